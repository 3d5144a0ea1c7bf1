//! `status.json`: what the daemon knows and why it acts or not. Written after each step, for people
//! and `ramslice top`.
//!
//! The file is replaced as a whole, so a reader never sees half of it. Names carry the unit. New
//! fields may appear at any time; `schema_version` is raised when one changes its meaning or goes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use ramslice_policy::DemandForecast;
use ramslice_types::{Pages, Price, PriceParameter, SliceId};
use serde::Serialize;

use crate::cache_watch::{PageCacheStatus, WatermarkStatus};
use crate::cold_automatic::ColdStatus;
use crate::energy_ledger::EarnedJoules;
use crate::idle_cache::IdleCacheStatus;
use crate::memory_takers::TakersStatus;
use crate::mode::DaemonMode;
use crate::persisted_state;
use crate::worth_plan::GivenBack;

/// The version of the format.
pub const SCHEMA_VERSION: u32 = 1;

/// The name of the file in the runtime directory.
pub const FILE: &str = "status.json";

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DaemonStatus {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The daemon's version.
    pub version: &'static str,
    /// The id of its process.
    pub pid: u32,
    /// When this was written, in seconds since 1970.
    pub written_unix_seconds: f64,
    /// `observe`, `on` or `off`.
    pub mode: DaemonMode,
    /// The policy that decides.
    pub policy: &'static str,
    /// The energy profile and power state behind the joules.
    pub profile: String,
    /// The time between two steps.
    pub period_seconds: f64,
    /// The time until the next step, from when this was written.
    pub next_step_seconds: f64,
    /// Whether the machine can be read, and if not, why.
    pub machine: MachineStatus,
    /// After tasks waited for memory, nothing goes offline for this long, from when this was
    /// written.
    pub paused_seconds: Option<f64>,
    /// The decision for the zone with the most switchable slices, as a sentence.
    pub why: String,
    /// What the operator should know, one sentence each.
    pub notes: Vec<String>,
    /// Zones in the kernel's order, without those that have no switchable slice.
    pub zones: Vec<ZoneStatus>,
    /// Whether the kernel's prices hold.
    pub prices: PriceStatus,
    /// What moves by itself to memory for what is rarely used.
    pub cold: ColdStatus,
    /// Page cache that a kernel without ramslice gives up.
    pub idle_cache: IdleCacheStatus,
    /// How often the page cache had what was looked up.
    pub page_cache: PageCacheStatus,
    /// Who has emptied memory, and who gets it.
    pub takers: TakersStatus,
    /// Mode on: what was earned. Absent if this machine's seconds are not real ones.
    pub earned: Option<EarnedJoules>,
    /// Modes on and observe: the most that the governor can have lost, or would have put at risk,
    /// whatever happened. Absent for other policies: they give no such bound.
    pub loss_cap_joules: Option<f64>,
    /// Mode observe: what would have been earned.
    pub would_earn: Option<WouldEarn>,
    /// Mode on, without a profile of DRAM: what was given to the host.
    pub given_back: Option<GivenBack>,
    /// Mode observe, without a profile of DRAM: what would have been given to the host.
    pub would_give_back: Option<GivenBack>,
}

/// Whether the kernel's prices hold, by the requests of mode on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PriceStatus {
    /// `unwatched`; `too-few` operations to judge; `steady`: prices hold; `waiting`: they do not,
    /// and
    /// there are too few operations to fit new ones; `refit`: they do not.
    pub state: &'static str,
    /// In words.
    pub text: String,
    /// How many requests this is based on.
    pub operations: usize,
    /// Requests that taught nothing, since the daemon started or these parameters came into force.
    #[serde(rename = "left_out_operations")]
    pub left_out: u64,
    /// Measured cost of requests over predicted cost; if prices do not hold, of requests since
    /// then.
    pub measured_over_predicted: Option<f64>,
    /// The parameters in force.
    #[serde(rename = "price_parameters_100cycles")]
    pub parameters: Option<BTreeMap<PriceParameter, Price>>,
    /// Parameters that fit the operations. They come into force once an operator installs them.
    #[serde(rename = "refitted_100cycles")]
    pub refitted: Option<BTreeMap<PriceParameter, Price>>,
    /// The command that installs it.
    pub install: Option<String>,
}

impl PriceStatus {
    /// All states.
    pub const STATES: [&str; 5] = ["unwatched", "too-few", "steady", "waiting", "refit"];
}

/// Whether the machine can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    /// The last step could read it.
    pub ok: bool,
    /// `kernel` or `stock`; absent while there is none.
    pub backend: Option<&'static str>,
    /// The power driver's name.
    pub power_driver: Option<String>,
    /// Why the last step could not read it.
    pub error: Option<String>,
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZoneStatus {
    /// Its node.
    pub node: i32,
    /// Its number within the node.
    pub zone: u32,
    /// Its name.
    pub name: String,
    /// How many slices it has.
    pub nr_slices: u32,
    /// How many of these are offline; in mode observe, would be.
    pub nr_offline: u32,
    /// How many of these are online and wholly free.
    pub nr_empty: u32,
    /// Why the policy acts, or why it does not.
    pub why: String,
    /// Requests and their outcomes.
    pub requests: Vec<RequestStatus>,
    /// The policy's forecast, if it makes one.
    pub forecast: Option<ForecastStatus>,
    /// Watermarks that follow the hit ratio, if the policy has them.
    pub watermarks: Option<WatermarkStatus>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestStatus {
    /// `compact`, `offline-free`, `offline`, `online` or `online-all`.
    pub op: &'static str,
    /// The slice, if the request named one.
    pub slice: Option<SliceId>,
    /// It was only simulated.
    pub imagined: bool,
    /// Slices that changed as asked.
    pub slices_done: u32,
    /// Slices that failed.
    pub slices_failed: u32,
    /// Pages moved to other slices.
    #[serde(rename = "migrated_pages")]
    pub migrated: Pages,
    /// Clean cache dropped.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
    /// What stopped it, as a word; `none` if nothing did.
    pub reason: String,
    /// The error, if it could not even be tried.
    pub error: Option<String>,
}

/// A forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastStatus {
    /// How far it looks ahead.
    pub horizon_seconds: f64,
    /// The most slices expected to be needed.
    pub slices: u32,
    /// Mean of the absolute errors so far.
    pub mean_error_slices: f64,
    /// Mean of forecast minus what was needed.
    pub bias_slices: f64,
    /// How many forecasts these two are based on.
    pub checked: u64,
    /// In words.
    pub text: String,
}

impl From<DemandForecast> for ForecastStatus {
    fn from(forecast: DemandForecast) -> Self {
        Self {
            horizon_seconds: forecast.horizon.as_secs_f64(),
            slices: forecast.slices,
            mean_error_slices: forecast.mean_error_slices,
            bias_slices: forecast.bias_slices,
            checked: forecast.checked,
            text: forecast.to_string(),
        }
    }
}

/// What mode observe would have earned and risked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WouldEarn {
    /// In joules. Absent if this machine's seconds are not real ones.
    #[serde(flatten)]
    pub earned: Option<EarnedJoules>,
    /// Slices that would be offline now.
    pub nr_offline: u32,
    /// Slices that would have woken because memory was wanted. A task may have waited for each.
    pub woken_slices: u64,
    /// At most this much clean page cache would have been dropped.
    pub dropped_bytes: u64,
    /// The most that the governor would have risked, whatever had happened.
    pub most_at_risk_joules: Option<f64>,
}

impl DaemonStatus {
    /// Replaces the file in `dir`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let mut text =
            serde_json::to_vec_pretty(self).expect("names are text and numbers are finite");
        text.push(b'\n');
        persisted_state::replace(&dir.join(FILE), &text)
    }
}

/// Seconds until a moment; none if it is past.
pub(crate) fn until(moment: Option<Duration>, now: Duration) -> Option<f64> {
    Some(moment?.checked_sub(now)?.as_secs_f64()).filter(|left| *left > 0.0)
}
