//! `status.json`: what the daemon knows and why it acts or not, after each step, for people and `ramslice top`.
//!
//! The file is replaced as a whole, so a reader never sees half of it. Names carry the unit; new fields may appear at
//! any time, and `schema_version` is raised when one changes its meaning or goes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use ramslice_policy::DemandForecast;
use ramslice_types::{Pages, Price, PriceParameter, SliceId};
use serde::Serialize;

use crate::energy_ledger::Earned;
use crate::mode::Mode;
use crate::persisted_state;

/// The version of the format.
pub const SCHEMA_VERSION: u32 = 1;

/// The name of the file in the runtime directory.
pub const FILE: &str = "status.json";

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The daemon's version.
    pub version: &'static str,
    /// Its process.
    pub pid: u32,
    /// When this was written, in seconds since 1970.
    pub written_unix_seconds: f64,
    /// `observe`, `on` or `off`.
    pub mode: Mode,
    /// The policy that decides.
    pub policy: &'static str,
    /// Profile and power state that joules are worked out with.
    pub profile: String,
    /// Between two looks.
    pub period_seconds: f64,
    /// Until the next look, from when this was written.
    pub next_step_seconds: f64,
    /// Whether the machine can be seen, and if not, why.
    pub machine: MachineStatus,
    /// While tasks wait for memory nothing goes off: until then, in seconds from when this was written.
    pub paused_seconds: Option<f64>,
    /// One sentence: the decision of the zone where most can be switched.
    pub why: String,
    /// What the operator should know, a sentence each.
    pub notes: Vec<String>,
    /// By zone, as the kernel lists them. Zones in which nothing can be switched are left out.
    pub zones: Vec<ZoneStatus>,
    /// Whether the kernel's prices hold.
    pub prices: PricesStatus,
    /// Mode on: what came of it. Absent if this machine's seconds are not real ones.
    pub earned: Option<Earned>,
    /// Modes on and observe: the most that the governor can have lost in this mode, or would have put at risk, whatever
    /// happened. Nothing for other policies: they promise none.
    pub loss_cap_joules: Option<f64>,
    /// Mode observe: what would have come of it.
    pub would_earn: Option<WouldEarn>,
}

/// Whether the kernel's prices hold, by the requests of mode on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PricesStatus {
    /// `unwatched`; `too-few` operations to say so; `steady`: they hold; `waiting`: they do not, and there are too few
    /// operations for new ones; `refit`: they do not.
    pub state: &'static str,
    /// In words.
    pub text: String,
    /// Requests that this rests on.
    pub operations: usize,
    /// Requests since the daemon or these parameters began that told nothing.
    #[serde(rename = "left_out_operations")]
    pub left_out: u64,
    /// What requests took over what they were expected to; of those since prices do not hold, if they do not.
    pub measured_over_predicted: Option<f64>,
    /// The parameters in force.
    #[serde(rename = "price_parameters_100cycles")]
    pub parameters: Option<BTreeMap<PriceParameter, Price>>,
    /// What fits the operations; in force only once somebody has installed it.
    #[serde(rename = "refitted_100cycles")]
    pub refitted: Option<BTreeMap<PriceParameter, Price>>,
    /// The command that installs it.
    pub install: Option<String>,
}

impl PricesStatus {
    /// All words for the state.
    pub const STATES: [&str; 5] = ["unwatched", "too-few", "steady", "waiting", "refit"];
}

/// Whether the machine can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    /// The last look succeeded.
    pub ok: bool,
    /// `kernel` or `stock`; nothing while there is none.
    pub backend: Option<&'static str>,
    /// The power driver's name.
    pub power_driver: Option<String>,
    /// What was wrong with the last look.
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
    /// Its slices.
    pub nr_slices: u32,
    /// Of these off; in mode observe those that would be.
    pub nr_offline: u32,
    /// Of these on and wholly free.
    pub nr_empty: u32,
    /// Why the policy acts, or why it does not.
    pub why: String,
    /// What was asked for, and what came of it; empty if nothing was.
    pub requests: Vec<RequestStatus>,
    /// What the policy expects, if it expects anything.
    pub forecast: Option<ForecastStatus>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestStatus {
    /// `compact`, `offline-free`, `offline`, `online` or `online-all`.
    pub op: &'static str,
    /// The slice, if it was about one.
    pub slice: Option<SliceId>,
    /// Only in thought.
    pub imagined: bool,
    /// Slices that changed as asked.
    pub slices_done: u32,
    /// Slices tried in vain.
    pub slices_failed: u32,
    /// Pages moved to other slices.
    #[serde(rename = "migrated_pages")]
    pub migrated: Pages,
    /// Clean cache dropped.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
    /// What stopped it, as a word; `none` if nothing did.
    pub reason: String,
    /// The failure, if it could not even be tried.
    pub error: Option<String>,
}

/// A forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastStatus {
    /// How far it looks ahead.
    pub horizon_seconds: f64,
    /// The most that is expected to be needed.
    pub slices: u32,
    /// Mean of the absolute errors so far.
    pub mean_error_slices: f64,
    /// Mean of forecast less what was needed.
    pub bias_slices: f64,
    /// Forecasts that these two rest on.
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

/// What mode observe would have earned, and what it would have risked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WouldEarn {
    /// In joules. Absent if this machine's seconds are not real ones.
    #[serde(flatten)]
    pub earned: Option<Earned>,
    /// Slices that would be off now.
    pub nr_offline: u32,
    /// Slices that would have woken because memory was wanted: each may have made somebody wait for it.
    pub woken_slices: u64,
    /// Clean page cache that would have been dropped, at most.
    pub dropped_bytes: u64,
    /// The most that the governor would have let be lost, whatever had happened.
    pub most_at_risk_joules: Option<f64>,
}

impl Status {
    /// Replaces the file in `dir`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let mut text =
            serde_json::to_vec_pretty(self).expect("names are text and numbers are finite");
        text.push(b'\n');
        memory::replace(&dir.join(FILE), &text)
    }
}

/// Seconds until a moment; nothing if it is past.
pub(crate) fn until(moment: Option<Duration>, now: Duration) -> Option<f64> {
    Some(moment?.checked_sub(now)?.as_secs_f64()).filter(|left| *left > 0.0)
}
