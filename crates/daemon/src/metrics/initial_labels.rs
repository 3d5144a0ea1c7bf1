//! Counters with their labels, before anything was counted.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use ramslice_types::{BackendErrorKind, Reason, RequestOp, SliceId};

use super::taker_metrics::CAUSES;
use super::{DaemonMetrics, MetricLabels, kind};
use crate::cold_automatic::ColdWord;
use crate::mode::DaemonMode;
use crate::wake_attribution::WakeReason;

/// Results of requests.
const RESULTS: [&str; 4] = ["done", "partly", "nothing", "error"];

/// All kinds of failures of a backend.
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

/// One of each operation.
const OPS: [RequestOp; 5] = [
    RequestOp::Offline(SliceId(0)),
    RequestOp::Online(SliceId(0)),
    RequestOp::Compact,
    RequestOp::OfflineFree,
    RequestOp::OnlineAll,
];

impl DaemonMetrics {
    /// Starts every counter at 0 for all its labels: in a series that starts at 1, Prometheus sees
    /// no
    /// increase.
    pub(super) fn start_at_zero(&self) {
        let at_zero = |family: &Family<MetricLabels, Counter>, labels: &[(&'static str, &str)]| {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            drop(family.get_or_create(&labels));
        };
        self.cold.set_state(ColdWord::Off);
        for mode in DaemonMode::ALL {
            let mode = ("mode", mode.name());
            for family in [&self.offlined_slices, &self.migrated_pages, &self.dropped_pages] {
                at_zero(family, &[mode]);
            }
            for cause in WakeReason::ALL {
                at_zero(&self.woken_slices, &[mode, ("cause", cause.name())]);
            }
            at_zero(&self.takers.made_pages, &[mode]);
            for cause in CAUSES {
                at_zero(&self.takers.given_back_pages, &[mode, ("cause", cause)]);
            }
            for op in OPS {
                for result in RESULTS {
                    at_zero(&self.requests, &[mode, ("op", op.name()), ("result", result)]);
                }
            }
        }
        for reason in Reason::ALL.iter().chain(&[Reason::None]) {
            at_zero(&self.failed_slices, &[("reason", &reason.code())]);
        }
        for each in KINDS {
            at_zero(&self.errors, &[("kind", kind(each))]);
        }
        for (family, results) in [
            (&self.priced_requests, ["taken", "left-out"]),
            (&self.reloads, ["done", "refused"]),
            (&self.saves, ["done", "failed"]),
        ] {
            for result in results {
                at_zero(family, &[("result", result)]);
            }
        }
    }
}
