//! Metrics: what the daemon tells Prometheus, in the text format of `OpenMetrics`.
//!
//! Names end in their unit. Gauges of joules come in pairs, `bound="low"` and `bound="high"`: a figure without its
//! doubt would be a lie. Dashboard and alert rules are tested against these names.

mod initial_labels;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use procfs_core::FromRead;
use procfs_core::process::StatM;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use ramslice_policy::DemandForecast;
use ramslice_types::{
    BackendError, BackendErrorKind, Pages, Reason, RequestOp, RequestOutcome, SliceState, Zone,
};

use crate::energy_ledger::{Earned, Range};
use crate::machine_snapshot::{Look, ZoneKey};
use crate::mode::Mode;
use crate::status::PricesStatus;
use crate::wake_attribution::Cause;

pub use initial_labels::KINDS;

type Labels = Vec<(&'static str, String)>;
type Float = Gauge<f64, AtomicU64>;

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

    fn with(&self, name: &'static str, value: &str) -> Labels {
        vec![("node", self.node.to_string()), ("zone", self.zone.clone()), (name, value.to_owned())]
    }
}

/// All metrics, with their registry.
pub struct Metrics {
    registry: Registry,
    up: Gauge,
    mode: Family<Labels, Gauge>,
    policy: Family<Labels, Gauge>,
    slices: Family<Labels, Gauge>,
    empty: Family<ZoneLabels, Gauge>,
    slice_bytes: Gauge,
    memory: Family<Labels, Gauge>,
    offline_ratio: Family<ZoneLabels, Float>,
    offline_bound: Family<ZoneLabels, Float>,
    energy: Family<Labels, Float>,
    energy_seconds: Family<Labels, Float>,
    loss_cap: Family<Labels, Float>,
    woken: Family<Labels, Counter>,
    switched_off: Family<Labels, Counter>,
    by_others: Counter,
    migrated: Family<Labels, Counter>,
    dropped: Family<Labels, Counter>,
    share: Family<Labels, Histogram>,
    requests: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    request_seconds: Family<Labels, Histogram>,
    look_seconds: Histogram,
    step_seconds: Histogram,
    errors: Family<Labels, Counter>,
    price_state: Family<Labels, Gauge>,
    price_factor: Family<Labels, Float>,
    priced: Family<Labels, Counter>,
    forecast: Family<ZoneLabels, Gauge>,
    horizon: Family<ZoneLabels, Float>,
    forecast_error: Family<ZoneLabels, Float>,
    forecast_bias: Family<ZoneLabels, Float>,
    forecast_checked: Family<ZoneLabels, Gauge>,
    stalls: Counter,
    paused: Gauge,
    power_driver: Family<Labels, Gauge>,
    guarded: Family<Labels, Gauge>,
    told: Family<Labels, Gauge>,
    reloads: Family<Labels, Counter>,
    saves: Family<Labels, Counter>,
    steps: Counter,
    period: Float,
    last_step: Float,
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
}

impl fmt::Debug for Metrics {
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

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at 0.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ramslice");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The daemon's version", version);
        let other = |unit: &str| Unit::Other(unit.to_owned());
        macro_rules! metric {
            ($name:literal, $help:literal) => {
                metric!($name, $help, Default::default())
            };
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, Clone::clone(&metric));
                metric
            }};
            ($name:literal, $help:literal, $metric:expr, $unit:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, $unit, Clone::clone(&metric));
                metric
            }};
        }
        let metrics = Self {
            up: metric!(
                "up",
                "1 if the last look at the machine succeeded, and the settings fit what was seen"
            ),
            mode: metric!("mode", "1 for the mode that the daemon is in: observe, on or off"),
            policy: metric!("policy", "1 for the policy that decides"),
            slices: metric!("slices", "Slices by state; in mode observe those that would be in it"),
            empty: metric!("empty_slices", "Slices that are online and wholly free"),
            slice_bytes: metric!("slice_size", "Size of a slice", Gauge::default(), Unit::Bytes),
            memory: metric!(
                "memory",
                "Memory by kind: managed, free (and awake), offline, reserve (never switched off)",
                Family::default(),
                Unit::Bytes
            ),
            offline_ratio: metric!(
                "fragmentation_offline",
                "c: offline / (free + offline), the part of free memory that is off",
                Family::default(),
                other("ratio")
            ),
            offline_bound: metric!(
                "fragmentation_bound",
                "The most that c could be with whole slices, the awake reserve and memory that cannot move",
                Family::default(),
                other("ratio")
            ),
            energy: metric!(
                "energy",
                "Joules by account (saved, invested, net), at least (low) and at most (high), for mode on, and \
                 for mode observe what would have been",
                Family::default(),
                Unit::Joules
            ),
            energy_seconds: metric!(
                "energy_accounted",
                "The time that the joules are about",
                Family::default(),
                Unit::Seconds
            ),
            loss_cap: metric!(
                "loss_cap",
                "The most that the governor can have lost, and what the daemon took, by mode; other policies promise none",
                Family::default(),
                Unit::Joules
            ),
            woken: metric!(
                "woken_slices",
                "Slices that woke, by cause; in mode observe those that would have"
            ),
            switched_off: metric!(
                "switched_off_slices",
                "Slices that were switched off, or would have been, by mode"
            ),
            by_others: metric!(
                "switched_off_by_others_slices",
                "Slices that somebody else switched off"
            ),
            migrated: metric!(
                "migrated_pages",
                "Pages that requests moved to other slices, or would have, by mode"
            ),
            dropped: metric!(
                "dropped_pages",
                "Pages of clean cache that requests dropped, or would have, by mode"
            ),
            share: metric!(
                "emptied_migrated",
                "Of the slices that a request emptied, the share of their pages that had to be moved",
                Family::new_with_constructor(tenths as fn() -> Histogram),
                other("ratio")
            ),
            requests: metric!(
                "requests",
                "Requests by operation and result: done, partly, nothing or error"
            ),
            failed: metric!(
                "failed_slices",
                "Slices that could not be emptied or woken, by what each says; none where nobody knows"
            ),
            request_seconds: metric!(
                "request_duration",
                "How long requests took that were sent: in mode on, and to wake slices",
                Family::new_with_constructor(seconds as fn() -> Histogram),
                Unit::Seconds
            ),
            look_seconds: metric!(
                "look_duration",
                "How long it took to look at the machine",
                seconds(),
                Unit::Seconds
            ),
            step_seconds: metric!(
                "step_duration",
                "How long steps took, requests included",
                seconds(),
                Unit::Seconds
            ),
            errors: metric!("backend_errors", "Failures of the kernel's side, by kind"),
            price_state: metric!(
                "price_drift_state",
                "1 for what is known of the kernel's prices: unwatched, too-few, steady, waiting or refit"
            ),
            price_factor: metric!(
                "price_drift",
                "What requests took over what the kernel expected of them; since prices do not hold, if they do not",
                Family::default(),
                other("ratio")
            ),
            priced: metric!(
                "priced_requests",
                "Requests of mode on by what they told of prices: taken, or left-out because their figures do not add up"
            ),
            forecast: metric!(
                "forecast",
                "Slices that the governor expects to be needed at most within the horizon",
                Family::default(),
                other("slices")
            ),
            horizon: metric!(
                "forecast_horizon",
                "How far the forecast looks ahead",
                Family::default(),
                Unit::Seconds
            ),
            forecast_error: metric!(
                "forecast_error",
                "Mean of the absolute differences between forecast and what was needed",
                Family::default(),
                other("slices")
            ),
            forecast_bias: metric!(
                "forecast_bias",
                "Mean of forecast less what was needed: above 0, too much is kept on",
                Family::default(),
                other("slices")
            ),
            forecast_checked: metric!("forecasts_checked", "Forecasts that error and bias rest on"),
            stalls: metric!(
                "pressure_stalls",
                "Times that tasks waited for memory for longer than set"
            ),
            paused: metric!(
                "paused",
                "1 while nothing goes off because tasks waited for memory, or slices woke for want of it"
            ),
            power_driver: metric!(
                "power_driver",
                "1 for what switches slices that are off: a driver, none, or memory-hotplug of a stock kernel"
            ),
            told: metric!(
                "pressure_watched",
                "1 if the kernel tells when tasks wait for memory, 0 if it does not though it should"
            ),
            guarded: metric!(
                "guarded",
                "On a stock kernel in mode on: 1 if somebody watches whether memory runs short, else 0"
            ),
            reloads: metric!("reloads", "Reloads of the settings, by result: done or refused"),
            saves: metric!(
                "state_saves",
                "Times that the learned state was written, by result: done or failed"
            ),
            steps: metric!("steps", "Looks at the machine with a decision"),
            period: metric!(
                "period",
                "How far apart looks at the machine are, as set",
                Float::default(),
                Unit::Seconds
            ),
            last_step: metric!(
                "last_step_timestamp",
                "When the last step ended, since 1970",
                Float::default(),
                Unit::Seconds
            ),
            cpu: metric!(
                "process_cpu",
                "CPU time of the daemon itself",
                Counter::default(),
                Unit::Seconds
            ),
            resident: metric!(
                "process_resident",
                "Memory of the daemon itself",
                Gauge::default(),
                Unit::Bytes
            ),
            registry,
        };
        metrics.begin();
        metrics
    }

    /// The text that a scrape gets.
    pub fn text(&self) -> String {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        self.cpu.inc_by((time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 - self.cpu.get()).max(0.0));
        self.resident.set(i64::try_from(resident_bytes().unwrap_or(0)).unwrap_or(i64::MAX));
        let mut text = String::with_capacity(16 << 10);
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// The mode and the policy. What another mode earned or another policy expected is of the past.
    pub fn set_mode(&self, mode: Mode, policy: &str) {
        let holds = |family: &Family<Labels, Gauge>, name, value: &str| {
            family.get(&vec![(name, value.to_owned())]).is_some_and(|gauge| gauge.get() == 1)
        };
        if !holds(&self.mode, "mode", mode.name()) || !holds(&self.policy, "policy", policy) {
            self.energy.clear();
            self.energy_seconds.clear();
            self.loss_cap.clear();
            self.forecast.clear();
            self.horizon.clear();
            self.forecast_error.clear();
            self.forecast_bias.clear();
            self.forecast_checked.clear();
        }
        for each in Mode::ALL {
            self.mode
                .get_or_create(&vec![("mode", each.name().to_owned())])
                .set((each == mode).into());
        }
        self.policy.clear();
        self.policy.get_or_create(&vec![("policy", policy.to_owned())]).set(1);
    }

    /// How the last look went.
    pub fn look(&self, took: Duration, failed: Option<&BackendError>) {
        self.up.set(failed.is_none().into());
        match failed {
            None => self.look_seconds.observe(took.as_secs_f64()),
            Some(error) => self.error(error),
        }
    }

    /// A failure of the kernel's side.
    pub fn error(&self, error: &BackendError) {
        self.errors.get_or_create(&vec![("kind", kind(error.kind()).to_owned())]).inc();
    }

    /// The machine, as seen, or as it would be in mode observe.
    pub fn machine(&self, look: &Look) {
        let (page, frames) = (look.info.page_bytes, look.info.slice_pages());
        self.slice_bytes.set(number(look.info.slice_bytes.0));
        self.power_driver.clear();
        let driver = vec![("driver", look.info.power_driver.clone())];
        self.power_driver.get_or_create(&driver).set(1);
        for zone in &look.zones {
            let labels = ZoneLabels::of(zone);
            let key = ZoneKey::of(zone);
            for (state, count) in SliceState::ALL.into_iter().zip(look.by_state(key)) {
                self.slices.get_or_create(&labels.with("state", state.name())).set(count.into());
            }
            self.empty.get_or_create(&labels).set(zone.nr_empty.into());
            for (kind, pages) in [
                ("managed", zone.managed_pages),
                ("free", zone.free_pages),
                ("offline", zone.offline_pages),
                ("reserve", zone.awake_reserve_pages),
            ] {
                self.memory
                    .get_or_create(&labels.with("kind", kind))
                    .set(number(pages.bytes(page).0));
            }
            self.offline_ratio.get_or_create(&labels).set(zone.offline_ratio());
            self.offline_bound.get_or_create(&labels).set(bound(look, zone, frames));
        }
    }

    /// What came of it in joules.
    pub fn energy(&self, mode: Mode, earned: &Earned) {
        for (account, Range { low, high }) in
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

    /// The most that the policy can have lost in this mode, if it promises anything.
    pub fn loss_cap(&self, mode: Mode, joules: Option<f64>) {
        self.loss_cap.clear();
        if let Some(joules) = joules {
            self.loss_cap.get_or_create(&vec![("mode", mode.name().to_owned())]).set(joules);
        }
    }

    /// Slices woke.
    pub fn woken(&self, mode: Mode, cause: Cause, slices: u32) {
        if slices == 0 {
            return;
        }
        let labels = vec![("mode", mode.name().to_owned()), ("cause", cause.name().to_owned())];
        self.woken.get_or_create(&labels).inc_by(slices.into());
    }

    /// Somebody else switched slices off.
    pub fn others_switched_off(&self, slices: u32) {
        self.by_others.inc_by(slices.into());
    }

    /// A request came to its end.
    pub fn request(
        &self,
        mode: Mode,
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
        if mode == Mode::On {
            let labels = vec![("op", op.name().to_owned())];
            self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        match result {
            Ok(outcome) => {
                if !op.wakes() {
                    let labels = vec![("mode", mode.name().to_owned())];
                    self.switched_off.get_or_create(&labels).inc_by(outcome.slices_done.into());
                }
            }
            Err(error) => self.error(error),
        }
    }

    /// Slices that could be neither emptied nor woken, by reason.
    pub fn failed(&self, slices: impl IntoIterator<Item = (Reason, u32)>) {
        for (reason, slices) in slices {
            self.failed.get_or_create(&vec![("reason", reason.code())]).inc_by(slices.into());
        }
    }

    /// Slices that a request to wake some left off.
    pub fn not_woken(&self, outcome: &RequestOutcome) {
        if outcome.slices_failed > 0 {
            self.failed([(outcome.reason, outcome.slices_failed)]);
        }
    }

    /// What a request moved, on a machine whose slices have `frames` pages.
    pub fn moved(&self, mode: Mode, op: RequestOp, outcome: &RequestOutcome, frames: Pages) {
        let labels = vec![("mode", mode.name().to_owned())];
        self.migrated.get_or_create(&labels).inc_by(outcome.migrated.0);
        self.dropped.get_or_create(&labels).inc_by(outcome.dropped.0);
        // Slices that were empty before, and pages of slices that failed, say nothing of what a slice takes.
        if matches!(op, RequestOp::Offline(_) | RequestOp::Compact)
            && outcome.slices_done > 0
            && outcome.slices_failed == 0
        {
            let emptied = frames * u64::from(outcome.slices_done);
            self.share.get_or_create(&labels).observe(outcome.migrated.share_of(emptied));
        }
    }

    /// A request was carried out, and told something of prices or did not.
    pub fn priced(&self, understood: bool) {
        let word = if understood { "taken" } else { "left-out" };
        self.priced.get_or_create(&vec![("result", word.to_owned())]).inc();
    }

    /// Whether prices hold.
    pub fn prices(&self, status: &PricesStatus) {
        for state in PricesStatus::STATES {
            self.price_state
                .get_or_create(&vec![("state", state.to_owned())])
                .set((state == status.state).into());
        }
        self.price_factor.clear();
        if let Some(factor) = status.measured_over_predicted {
            self.price_factor.get_or_create(&Vec::new()).set(factor);
        }
    }

    /// What the policy expects.
    pub fn forecast(&self, zone: &Zone, forecast: Option<DemandForecast>) {
        let Some(forecast) = forecast else { return };
        let labels = ZoneLabels::of(zone);
        self.forecast.get_or_create(&labels).set(forecast.slices.into());
        self.horizon.get_or_create(&labels).set(forecast.horizon.as_secs_f64());
        self.forecast_error.get_or_create(&labels).set(forecast.mean_error_slices);
        self.forecast_bias.get_or_create(&labels).set(forecast.bias_slices);
        self.forecast_checked.get_or_create(&labels).set(number(forecast.checked));
    }

    /// Tasks waited for memory.
    pub fn stalled(&self) {
        self.stalls.inc();
    }

    /// Whether somebody watches whether memory runs short, where that is for the daemon to do.
    pub fn set_guarded(&self, guarded: Option<bool>) {
        set_if(&self.guarded, guarded);
    }

    /// Whether the kernel tells when tasks wait for memory, where somebody wants to know.
    pub fn set_told(&self, told: Option<bool>) {
        set_if(&self.told, told);
    }

    /// Whether nothing goes off because of that.
    pub fn set_paused(&self, paused: bool) {
        self.paused.set(paused.into());
    }

    /// The settings were read again.
    pub fn reloaded(&self, done: bool) {
        let word = if done { "done" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", word.to_owned())]).inc();
    }

    /// The learned state was written.
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

/// A gauge that is only there where there is something to say.
fn set_if(family: &Family<Labels, Gauge>, value: Option<bool>) {
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

/// The most that c could be: whole slices of what is free beyond the awake reserve, of those that could be emptied.
fn bound(look: &Look, zone: &Zone, frames: Pages) -> f64 {
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

/// The time of day, for who reads a metric or a file.
pub fn time_of_day() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
