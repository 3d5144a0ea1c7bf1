//! Metrics: what the daemon reports to Prometheus, in the text format of `OpenMetrics`.
//!
//! Names end in their unit. Gauges of joules come in pairs, `bound="low"` and `bound="high"`,
//! because
//! a single figure would hide its uncertainty. Dashboard and alert rules are tested against these
//! names.

mod cache_metrics;
mod cold_metrics;
mod initial_labels;
mod registration;
mod reported_memory;
mod taker_metrics;
pub(crate) mod text_format;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use procfs_core::FromRead;
use procfs_core::process::StatM;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use ramslice_policy::DemandForecast;
use ramslice_types::{
    BackendError, BackendErrorKind, Pages, Reason, RequestOp, RequestOutcome, SliceState, Zone,
};

use crate::energy_ledger::{EarnedJoules, JouleRange};
use crate::idle_cache::IdleCacheStatus;
use crate::machine_snapshot::{MachineSnapshot, ZoneKey};
use crate::mode::DaemonMode;
use crate::status::PriceStatus;
use crate::wake_attribution::WakeReason;

use self::cache_metrics::CacheMetrics;
use self::cold_metrics::ColdMetrics;
use self::reported_memory::ReportedMemory;
use self::taker_metrics::TakerMetrics;

pub use initial_labels::KINDS;

type MetricLabels = Vec<(&'static str, String)>;
type FloatGauge = Gauge<f64, AtomicU64>;

/// Kinds of a zone's memory, as labels.
const ZONE_MEMORY: [&str; 4] = ["managed", "free", "offline", "reserve"];

/// A zone, as a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ZoneLabels {
    node: i32,
    zone: String,
}

impl ZoneLabels {
    fn of(zone: &Zone) -> Self {
        Self { node: zone.node.0, zone: zone.name.clone() }
    }

    fn with(&self, name: &'static str, value: &str) -> MetricLabels {
        vec![("node", self.node.to_string()), ("zone", self.zone.clone()), (name, value.to_owned())]
    }
}

/// All metrics, with their registry.
pub struct DaemonMetrics {
    registry: Registry,
    running: Gauge,
    mode: Family<MetricLabels, Gauge>,
    policy: Family<MetricLabels, Gauge>,
    /// Zones of the last look: gauges of one that is gone must go too.
    zones: Mutex<Vec<ZoneLabels>>,
    slices: Family<MetricLabels, Gauge>,
    empty: Family<ZoneLabels, Gauge>,
    slice_bytes: Gauge,
    memory: Family<MetricLabels, Gauge>,
    reported: ReportedMemory,
    offline_ratio: Family<ZoneLabels, FloatGauge>,
    offline_bound: Family<ZoneLabels, FloatGauge>,
    energy: Family<MetricLabels, FloatGauge>,
    energy_seconds: Family<MetricLabels, FloatGauge>,
    loss_cap: Family<MetricLabels, FloatGauge>,
    woken_slices: Family<MetricLabels, Counter>,
    offlined_slices: Family<MetricLabels, Counter>,
    offlined_by_others: Counter,
    migrated_pages: Family<MetricLabels, Counter>,
    dropped_pages: Family<MetricLabels, Counter>,
    share: Family<MetricLabels, Histogram>,
    requests: Family<MetricLabels, Counter>,
    failed_slices: Family<MetricLabels, Counter>,
    request_seconds: Family<MetricLabels, Histogram>,
    look_seconds: Histogram,
    step_seconds: Histogram,
    errors: Family<MetricLabels, Counter>,
    price_state: Family<MetricLabels, Gauge>,
    price_factor: Family<MetricLabels, FloatGauge>,
    priced_requests: Family<MetricLabels, Counter>,
    forecast: Family<ZoneLabels, Gauge>,
    forecast_horizon: Family<ZoneLabels, FloatGauge>,
    forecast_error: Family<ZoneLabels, FloatGauge>,
    forecast_bias: Family<ZoneLabels, FloatGauge>,
    forecast_checked: Family<ZoneLabels, Gauge>,
    stalls: Counter,
    cold: ColdMetrics,
    cache: CacheMetrics,
    takers: TakerMetrics,
    idle_cache_bytes: Counter,
    is_paused: Gauge,
    power_driver: Family<MetricLabels, Gauge>,
    guard_active: Family<MetricLabels, Gauge>,
    pressure_watched: Family<MetricLabels, Gauge>,
    reloads: Family<MetricLabels, Counter>,
    saves: Family<MetricLabels, Counter>,
    steps: Counter,
    period: FloatGauge,
    last_step: FloatGauge,
    cpu_seconds: Counter<f64, AtomicU64>,
    resident_bytes: Gauge,
}

impl fmt::Debug for DaemonMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From a ten-thousandth of a second to a minute.
fn seconds() -> Histogram {
    Histogram::new([1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0])
}

/// Tenths.
fn tenths() -> Histogram {
    Histogram::new((1..=10u8).map(|tenth| f64::from(tenth) / 10.0))
}

impl Default for DaemonMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl DaemonMetrics {
    /// The text that a scrape gets.
    pub fn text(&self) -> String {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        self.cpu_seconds.inc_by(
            (time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 - self.cpu_seconds.get()).max(0.0),
        );
        self.resident_bytes.set(i64::try_from(resident_bytes().unwrap_or(0)).unwrap_or(i64::MAX));
        let mut text = String::with_capacity(16 << 10);
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// Sets mode and policy. Figures of another mode or policy go.
    pub fn set_mode(&self, mode: DaemonMode, policy: &str) {
        let holds = |family: &Family<MetricLabels, Gauge>, name, value: &str| {
            family.get(&vec![(name, value.to_owned())]).is_some_and(|gauge| gauge.get() == 1)
        };
        if !holds(&self.mode, "mode", mode.name()) || !holds(&self.policy, "policy", policy) {
            self.energy.clear();
            self.energy_seconds.clear();
            self.loss_cap.clear();
            self.forecast.clear();
            self.forecast_horizon.clear();
            self.forecast_error.clear();
            self.forecast_bias.clear();
            self.forecast_checked.clear();
            self.forget_marks();
        }
        for each in DaemonMode::ALL {
            self.mode
                .get_or_create(&vec![("mode", each.name().to_owned())])
                .set((each == mode).into());
        }
        self.policy.clear();
        self.policy.get_or_create(&vec![("policy", policy.to_owned())]).set(1);
    }

    /// How reading the machine went.
    pub fn look(&self, took: Duration, failed: Option<&BackendError>) {
        self.running.set(failed.is_none().into());
        match failed {
            None => self.look_seconds.observe(took.as_secs_f64()),
            Some(error) => self.error(error),
        }
    }

    /// There is no machine to read, and nothing else is wrong.
    pub fn has_no_machine(&self) {
        self.running.set(1);
    }

    /// What a kernel without ramslice gave up.
    pub fn idle_cache(&self, status: &IdleCacheStatus) {
        let before = self.idle_cache_bytes.get();
        self.idle_cache_bytes.inc_by(status.reclaimed_bytes.0.saturating_sub(before));
    }

    /// A failure of the backend.
    pub fn error(&self, error: &BackendError) {
        self.errors.get_or_create(&vec![("kind", kind(error.kind()).to_owned())]).inc();
    }

    /// The machine as it is, or as it would be in mode observe.
    pub fn machine(&self, look: &MachineSnapshot) {
        let (page, frames) = (look.info.page_bytes, look.info.slice_pages());
        self.slice_bytes.set(number(look.info.slice_bytes.0));
        self.power_driver.clear();
        let driver = vec![("driver", look.info.power_driver.clone())];
        self.power_driver.get_or_create(&driver).set(1);
        self.reported.look(&look.info, look.time());
        let zones = look.zones.iter().map(ZoneLabels::of).collect::<Vec<_>>();
        let mut known = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in known.iter().filter(|zone| !zones.contains(zone)) {
            self.forget_zone(gone);
        }
        *known = zones;
        for zone in &look.zones {
            let labels = ZoneLabels::of(zone);
            let key = ZoneKey::of(zone);
            for (state, count) in SliceState::ALL.into_iter().zip(look.slices_by_state(key)) {
                self.slices.get_or_create(&labels.with("state", state.name())).set(count.into());
            }
            self.empty.get_or_create(&labels).set(zone.nr_empty.into());
            for (kind, pages) in ZONE_MEMORY.into_iter().zip([
                zone.managed_pages,
                zone.free_pages,
                zone.offline_pages,
                zone.awake_reserve_pages,
            ]) {
                self.memory
                    .get_or_create(&labels.with("kind", kind))
                    .set(number(pages.bytes(page).0));
            }
            self.offline_ratio.get_or_create(&labels).set(zone.offline_ratio());
            self.offline_bound.get_or_create(&labels).set(bound(look, zone, frames));
        }
    }

    /// The memory of a zone was taken out.
    fn forget_zone(&self, labels: &ZoneLabels) {
        for state in SliceState::ALL {
            self.slices.remove(&labels.with("state", state.name()));
        }
        for kind in ZONE_MEMORY {
            self.memory.remove(&labels.with("kind", kind));
        }
        for family in [&self.empty, &self.forecast, &self.forecast_checked] {
            family.remove(labels);
        }
        for family in [
            &self.offline_ratio,
            &self.offline_bound,
            &self.forecast_horizon,
            &self.forecast_error,
            &self.forecast_bias,
        ] {
            family.remove(labels);
        }
        self.forget_marks_of(labels);
    }

    /// The balance in joules.
    pub fn energy(&self, mode: DaemonMode, earned: &EarnedJoules) {
        for (account, JouleRange { low, high }) in
            [("saved", earned.saved), ("invested", earned.invested), ("net", earned.net)]
        {
            for (bound, value) in [("low", low), ("high", high)] {
                let labels = vec![
                    ("mode", mode.name().to_owned()),
                    ("account", account.to_owned()),
                    ("bound", bound.to_owned()),
                ];
                self.energy.get_or_create(&labels).set(value);
            }
        }
        self.energy_seconds
            .get_or_create(&vec![("mode", mode.name().to_owned())])
            .set(earned.seconds);
    }

    /// The most that the policy can have lost in this mode, if it gives a bound.
    pub fn loss_cap(&self, mode: DaemonMode, joules: Option<f64>) {
        self.loss_cap.clear();
        if let Some(joules) = joules {
            self.loss_cap.get_or_create(&vec![("mode", mode.name().to_owned())]).set(joules);
        }
    }

    /// Counts slices that woke.
    pub fn woken(&self, mode: DaemonMode, cause: WakeReason, slices: u32) {
        if slices == 0 {
            return;
        }
        let labels = vec![("mode", mode.name().to_owned()), ("cause", cause.name().to_owned())];
        self.woken_slices.get_or_create(&labels).inc_by(slices.into());
    }

    /// Another program switched slices off.
    pub fn others_switched_off(&self, slices: u32) {
        self.offlined_by_others.inc_by(slices.into());
    }

    /// A request ended.
    pub fn request(
        &self,
        mode: DaemonMode,
        op: RequestOp,
        took: Duration,
        result: &Result<RequestOutcome, BackendError>,
    ) {
        let word = match result {
            Ok(outcome) if outcome.slices_done == 0 => "nothing",
            Ok(outcome) if outcome.slices_failed > 0 || !outcome.ran_to_its_end() => "partly",
            Ok(_) => "done",
            Err(_) => "error",
        };
        let labels = vec![
            ("mode", mode.name().to_owned()),
            ("op", op.name().to_owned()),
            ("result", word.to_owned()),
        ];
        self.requests.get_or_create(&labels).inc();
        if mode == DaemonMode::On {
            let labels = vec![("op", op.name().to_owned())];
            self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        match result {
            Ok(outcome) => {
                if !op.wakes() {
                    let labels = vec![("mode", mode.name().to_owned())];
                    self.offlined_slices.get_or_create(&labels).inc_by(outcome.slices_done.into());
                }
            }
            Err(error) => self.error(error),
        }
    }

    /// Slices that could be neither emptied nor woken, by reason.
    pub fn failed(&self, slices: impl IntoIterator<Item = (Reason, u32)>) {
        for (reason, slices) in slices {
            self.failed_slices
                .get_or_create(&vec![("reason", reason.code())])
                .inc_by(slices.into());
        }
    }

    /// Slices that a request to wake some left offline.
    pub fn not_woken(&self, outcome: &RequestOutcome) {
        if outcome.slices_failed > 0 {
            self.failed([(outcome.reason, outcome.slices_failed)]);
        }
    }

    /// What a request moved, on a machine whose slices have `frames` pages.
    pub fn moved(&self, mode: DaemonMode, op: RequestOp, outcome: &RequestOutcome, frames: Pages) {
        let labels = vec![("mode", mode.name().to_owned())];
        self.migrated_pages.get_or_create(&labels).inc_by(outcome.migrated.0);
        self.dropped_pages.get_or_create(&labels).inc_by(outcome.dropped.0);
        // Slices that were empty before, and pages of slices that failed, would distort the share.
        if matches!(op, RequestOp::Offline(_) | RequestOp::Compact)
            && outcome.slices_done > 0
            && outcome.slices_failed == 0
        {
            let emptied = frames * u64::from(outcome.slices_done);
            self.share.get_or_create(&labels).observe(outcome.migrated.share_of(emptied));
        }
    }

    /// A request was carried out, and was understood or not.
    pub fn priced(&self, understood: bool) {
        let word = if understood { "taken" } else { "left-out" };
        self.priced_requests.get_or_create(&vec![("result", word.to_owned())]).inc();
    }

    /// Whether prices hold.
    pub fn prices(&self, status: &PriceStatus) {
        for state in PriceStatus::STATES {
            self.price_state
                .get_or_create(&vec![("state", state.to_owned())])
                .set((state == status.state).into());
        }
        self.price_factor.clear();
        if let Some(factor) = status.measured_over_predicted {
            self.price_factor.get_or_create(&Vec::new()).set(factor);
        }
    }

    /// The policy's forecast.
    pub fn forecast(&self, zone: &Zone, forecast: Option<DemandForecast>) {
        let Some(forecast) = forecast else { return };
        let labels = ZoneLabels::of(zone);
        self.forecast.get_or_create(&labels).set(forecast.slices.into());
        self.forecast_horizon.get_or_create(&labels).set(forecast.horizon.as_secs_f64());
        self.forecast_error.get_or_create(&labels).set(forecast.mean_error_slices);
        self.forecast_bias.get_or_create(&labels).set(forecast.bias_slices);
        self.forecast_checked.get_or_create(&labels).set(number(forecast.checked));
    }

    /// Tasks waited for memory.
    pub fn stalled(&self) {
        self.stalls.inc();
    }

    /// Whether a guard watches whether memory runs short, where the daemon needs one.
    pub fn set_guarded(&self, guarded: Option<bool>) {
        set_if(&self.guard_active, guarded);
    }

    /// Whether the kernel reports tasks that wait for memory, where the settings ask for it.
    pub fn set_pressure_watched(&self, pressure_watched: Option<bool>) {
        set_if(&self.pressure_watched, pressure_watched);
    }

    /// Whether nothing goes offline because tasks waited for memory.
    pub fn set_paused(&self, paused: bool) {
        self.is_paused.set(paused.into());
    }

    /// The settings were read again.
    pub fn reloaded(&self, done: bool) {
        let word = if done { "done" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", word.to_owned())]).inc();
    }

    /// The state was saved.
    pub fn saved(&self, done: bool) {
        let word = if done { "done" } else { "failed" };
        self.saves.get_or_create(&vec![("result", word.to_owned())]).inc();
    }

    /// A step ended; the next one is due after a period.
    pub fn stepped(&self, took: Duration, at: Duration, period: Duration) {
        self.steps.inc();
        self.period.set(period.as_secs_f64());
        self.step_seconds.observe(took.as_secs_f64());
        self.last_step.set(at.as_secs_f64());
    }
}

/// Sets a gauge that is absent where there is nothing to report.
fn set_if(family: &Family<MetricLabels, Gauge>, value: Option<bool>) {
    family.clear();
    if let Some(value) = value {
        family.get_or_create(&Vec::new()).set(value.into());
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn kind(kind: BackendErrorKind) -> &'static str {
    match kind {
        BackendErrorKind::Unsupported => "unsupported",
        BackendErrorKind::Disabled => "disabled",
        BackendErrorKind::Permission => "permission",
        BackendErrorKind::Busy => "busy",
        BackendErrorKind::NotFound => "not-found",
        BackendErrorKind::Invalid => "invalid",
        BackendErrorKind::Interrupted => "interrupted",
        _ => "failed",
    }
}

/// The most that c could be: as many whole slices as fit into free memory beyond the awake reserve,
/// and no more than could be emptied.
fn bound(look: &MachineSnapshot, zone: &Zone, frames: Pages) -> f64 {
    let free = zone.free_pages + zone.offline_pages;
    let whole = (free - zone.awake_reserve_pages).0.checked_div(frames.0).unwrap_or(0);
    let could = |slice: &&ramslice_types::Slice| {
        !slice.is_away() && !slice.unreclaimable && !slice.unmovable
    };
    let most = look.slices(ZoneKey::of(zone)).filter(could).count() as u64;
    (frames * whole.min(most)).share_of(free).min(1.0)
}

/// Memory of this process.
pub fn resident_bytes() -> Option<u64> {
    let pages = StatM::from_file("/proc/self/statm").ok()?.resident;
    Some(pages * rustix::param::page_size() as u64)
}

/// The time of day, for readers of a metric or a file.
pub fn time_of_day() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
