//! What is known of labels before anything happened.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use ramslice_types::{BackendErrorKind, Reason, RequestOp, SliceId};

use super::{Labels, Metrics, kind};
use crate::mode::Mode;
use crate::wake_attribution::Cause;

/// What comes of requests.
const RESULTS: [&str; 4] = ["done", "partly", "nothing", "error"];

/// Kinds of failures of the kernel's side: all that there are.
pub const KINDS: [BackendErrorKind; 8] = [
    BackendErrorKind::Unsupported,
    BackendErrorKind::Disabled,
    BackendErrorKind::Permission,
    BackendErrorKind::Busy,
    BackendErrorKind::NotFound,
    BackendErrorKind::Invalid,
    BackendErrorKind::Interrupted,
    BackendErrorKind::Failed,
];

/// Of each operation one.
const OPS: [RequestOp; 5] = [
    RequestOp::Offline(SliceId(0)),
    RequestOp::Online(SliceId(0)),
    RequestOp::Compact,
    RequestOp::OfflineFree,
    RequestOp::OnlineAll,
];

impl Metrics {
    /// Counters begin at 0 whatever they count by: in a series that begins at 1 Prometheus sees no increase.
    pub(super) fn begin(&self) {
        let at_zero = |family: &Family<Labels, Counter>, labels: &[(&'static str, &str)]| {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            drop(family.get_or_create(&labels));
        };
        for mode in Mode::ALL {
            let mode = ("mode", mode.name());
            for family in [&self.switched_off, &self.migrated, &self.dropped] {
                at_zero(family, &[mode]);
            }
            for cause in Cause::ALL {
                at_zero(&self.woken, &[mode, ("cause", cause.name())]);
            }
            for op in OPS {
                for result in RESULTS {
                    at_zero(&self.requests, &[mode, ("op", op.name()), ("result", result)]);
                }
            }
        }
        for reason in Reason::ALL.iter().chain(&[Reason::None]) {
            at_zero(&self.failed, &[("reason", &reason.code())]);
        }
        for each in KINDS {
            at_zero(&self.errors, &[("kind", kind(each))]);
        }
        for (family, results) in [
            (&self.priced, ["taken", "left-out"]),
            (&self.reloads, ["done", "refused"]),
            (&self.saves, ["done", "failed"]),
        ] {
            for result in results {
                at_zero(family, &[("result", result)]);
            }
        }
    }
}
