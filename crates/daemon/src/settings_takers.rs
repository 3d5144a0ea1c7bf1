//! Settings of `[takers]`: what each use of emptied memory is worth, and which huge pages are
//! wanted.

use std::time::Duration;

use ramslice_policy::{HugePageWish, TakerValues, TakersConfig};
use ramslice_types::{Bytes, NodeId, parse_bytes};
use serde::Deserialize;
use toml::Spanned;

use crate::settings::SettingsChecks;

/// Memory that a host can sell is worth at least so many times what powering it down is
/// (`docs/reference/worth.md`).
const HOST: f64 = 140.0;
/// A program waits for a buffer: it comes before anything that is only idle.
const BUFFERS: f64 = 1000.0;
const HUGE: f64 = 10.0;
const SETTLE_SECONDS: f64 = 600.0;
const HUGE_SIZE: Bytes = Bytes(1 << 30);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTakers {
    sleep: Option<Spanned<f64>>,
    host: Option<Spanned<f64>>,
    huge: Option<Spanned<f64>>,
    buffers: Option<Spanned<f64>>,
    huge_size: Option<Spanned<String>>,
    huge_count: Option<Spanned<u32>>,
    huge_node: Option<Spanned<i32>>,
    settle_seconds: Option<Spanned<f64>>,
}

impl RawTakers {
    /// The settings; what is wrong is noted, and has its default.
    pub(crate) fn check(self, checks: &mut SettingsChecks<'_>) -> TakersConfig {
        let page = match &self.huge_size {
            None => HUGE_SIZE,
            Some(text) => match parse_bytes(text.get_ref()) {
                Ok(size) if size >= Bytes(4096) && size.0.is_power_of_two() => size,
                parsed => {
                    let wrong = parsed.map_or_else(
                        |error| error.to_string(),
                        |_| format!("`{}` is no size of a page", text.get_ref()),
                    );
                    let message = format!(
                        "takers.huge_size: {wrong}; it must be one that the kernel has, as in \
                         \"1GiB\" or \"2MiB\""
                    );
                    checks.add_fault(Some(text.span()), message);
                    HUGE_SIZE
                }
            },
        };
        let values = TakerValues {
            sleep: checks.number("takers.sleep", self.sleep, 1.0),
            host: checks.number("takers.host", self.host, HOST),
            huge: checks.number("takers.huge", self.huge, HUGE),
            buffers: checks.number("takers.buffers", self.buffers, BUFFERS),
        };
        let count = checks.number("takers.huge_count", self.huge_count, 0);
        let node = self.huge_node.map(|node| checks.number("takers.huge_node", Some(node), 0));
        let settle = checks.number("takers.settle_seconds", self.settle_seconds, SETTLE_SECONDS);
        TakersConfig {
            values,
            huge: (count > 0).then(|| HugePageWish {
                page,
                node: node.map(NodeId),
                count: u64::from(count),
            }),
            settle: Duration::from_secs_f64(settle),
        }
    }
}
