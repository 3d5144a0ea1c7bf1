//! One step: read the machine, decide, send requests, account. The engine has no clock of its own
//! and waits for nothing. It does not know its mode: in mode observe, its backend only simulates
//! requests.

mod bind;
mod counters;
mod decide;
mod pressure;
mod slice_size;
mod status;
mod takers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ramslice_energy::EnergySample;
use ramslice_policy::{AnyPolicy, PolicyEvent, SliceEconomics, SliceRow, WakeCause};
use ramslice_types::{
    Backend, BackendError, BackendInfo, Price, PriceParameter, Ratio, SliceId, SliceSnapshot,
    SliceState, WorkCounters,
};
use tracing::{debug, info};

use crate::cache_watch::{CacheWatch, WatermarkStatus};
use crate::energy_ledger::{LedgerKind, ModeLedger, ModeLedgers};
use crate::failure_reasons::FailureReasons;
use crate::host_files::HostFiles;
use crate::machine_snapshot::{MachineSnapshot, ZoneKey};
use crate::metrics::DaemonMetrics;
use crate::persisted_state::PersistedState;
use crate::price_watch::PriceWatch;
use crate::settings::DaemonSettings;
use crate::status::ZoneStatus;
use crate::wake_attribution::{WakeReason, ZoneBaseline};

use self::takers::MemoryTakers;

/// On a stock kernel a request switches one slice off and gives up after this: the next step and
/// pressure wait for it.
const STOCK_DEADLINE: Duration = Duration::from_secs(10);

/// The kind of backend that switches slices by memory hotplug.
pub(crate) const STOCK: &str = "stock";
/// The kind of backend of the patched kernel.
pub(crate) const KERNEL: &str = "kernel";

/// What the engine keeps for a zone.
#[derive(Debug)]
struct ZoneState {
    policy: AnyPolicy,
    /// The zone's share of all memory, and so of the tenant's limits.
    share: Ratio,
    /// The zone after the last step; none while that is not known.
    baseline: Option<ZoneBaseline>,
    /// Events for the policy's next step.
    events: Vec<PolicyEvent>,
    /// Pages of cache that left a trace when they were dropped, and may be read again.
    traced_out: f64,
    /// Slices that a reboot woke, not yet reported to the policy.
    woken_by_restart: u32,
    /// Of the windows that its policy has opened, those that the ledger has counted.
    counted_windows: u64,
    /// Watermarks that follow the hit ratio; none before they were judged.
    marks: Option<WatermarkStatus>,
}

/// When the requests of a zone must be done: those that wake slices, and all others.
#[derive(Debug, Clone, Copy)]
struct RequestDeadlines {
    wakes: Instant,
    others: Instant,
}

/// A decision and what came of it, for the status.
#[derive(Debug)]
struct ZoneDecision {
    zone: ZoneStatus,
    switchable: u32,
}

/// The machine that the engine decides for, and the figures it decides with.
#[derive(Debug)]
struct BoundMachine {
    info: BackendInfo,
    /// What slices are worth; nothing without a profile.
    economics: Option<SliceEconomics>,
    /// What the policies' learning depends on.
    basis: String,
    prices: BTreeMap<PriceParameter, Price>,
    /// What the sums of the ledgers are about.
    kind: LedgerKind,
    ledgers: ModeLedgers,
}

/// The daemon without its waiting.
#[derive(Debug)]
pub struct DecisionEngine {
    settings: DaemonSettings,
    host: HostFiles,
    metrics: Arc<DaemonMetrics>,
    /// The saved state, taken up at the first step: whether it fits depends on the machine.
    saved: Option<PersistedState>,
    bound_machine: Option<BoundMachine>,
    zone_states: BTreeMap<ZoneKey, ZoneState>,
    /// Slices that are offline in the backend's answers only, if it acts on nothing.
    simulated_offline: Option<u32>,
    work: WorkCounters,
    prices: PriceWatch,
    /// Slices after the last request of this step, if they were read.
    snapshot_after: Option<SliceSnapshot>,
    /// Page faults, allocated pages and refaults of files at the last look.
    vmstat: Option<[u64; 3]>,
    /// Until when pages that were dropped have been forgotten.
    forgotten: Duration,
    cache: CacheWatch,
    /// How long tasks have waited for memory since the boot, and when that was read.
    stalls: Option<(Duration, Duration)>,
    /// How long the processors had worked at the last look, and of how much time.
    worked: Option<(Duration, Duration)>,
    /// How long the machine had been suspended at the last look.
    suspended: Option<Duration>,
    would_wake: u64,
    rows: Vec<SliceRow>,
    paused_until: Option<Duration>,
    /// How many slices to wake at the next stall.
    next_wake_count: u32,
    /// Why no guard would wake slices on a kernel that does not: then none goes offline.
    guard_error: Option<String>,
    /// The CPU time of this process at the last step, and the part of it since then that requests
    /// have reported.
    own_time: Duration,
    requests_cost: Price,
    /// Slices that were offline after the last step with a decision.
    offline_slices: Vec<SliceId>,
    /// Slices that this daemon woke since the last step because memory was short.
    woken_by_pressure: u32,
    /// Slices that could not be emptied in this step.
    failures: FailureReasons,
    decisions: Vec<ZoneDecision>,
    backend_kind: Option<&'static str>,
    takers: MemoryTakers,
    /// Why slices are not as large as what the hardware switches.
    size_refused: Option<String>,
    error: Option<String>,
    time: Duration,
    /// Once set, the daemon is to stop, and no further request goes out.
    stop: Arc<AtomicBool>,
}

impl DecisionEngine {
    /// Takes the state that an earlier run saved, if any. Once `stop` is set, neither a step nor
    /// pressure sends a further request.
    pub fn new(
        settings: DaemonSettings,
        saved: Option<PersistedState>,
        host: HostFiles,
        metrics: Arc<DaemonMetrics>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        metrics.set_mode(settings.mode, settings.policy.policy.name());
        let time = saved.as_ref().map_or(Duration::ZERO, |saved| saved.time);
        let prices = PriceWatch::new(saved.as_ref().and_then(|saved| saved.prices.clone()));
        Self {
            settings,
            host,
            metrics,
            saved,
            bound_machine: None,
            zone_states: BTreeMap::new(),
            simulated_offline: None,
            work: WorkCounters::default(),
            prices,
            snapshot_after: None,
            vmstat: None,
            forgotten: time,
            cache: CacheWatch::default(),
            stalls: None,
            worked: None,
            suspended: None,
            would_wake: 0,
            rows: Vec::new(),
            paused_until: None,
            next_wake_count: 1,
            guard_error: None,
            own_time: Duration::ZERO,
            requests_cost: Price::ZERO,
            offline_slices: Vec::new(),
            woken_by_pressure: 0,
            failures: FailureReasons::default(),
            decisions: Vec::new(),
            backend_kind: None,
            takers: MemoryTakers::default(),
            size_refused: None,
            error: None,
            time,
            stop,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &DaemonSettings {
        &self.settings
    }

    /// Reads the machine, decides and acts. `now` is the policies' time.
    ///
    /// # Errors
    /// If the machine cannot be read; then nothing was done. Status and metrics report a request
    /// that fails.
    pub fn step(
        &mut self,
        backend: &dyn Backend,
        backend_kind: &'static str,
        now: Duration,
    ) -> Result<(), BackendError> {
        let began = Instant::now();
        let mut look = self.look(backend, backend_kind, now, began)?;
        self.report_restart();
        // One deadline for all of them: many slow requests would delay the next step and the
        // watchdog.
        let others = Instant::now() + self.settings.deadline;
        // Requests that wake slices have as long again, so that slow ones before cannot starve
        // them.
        let wakes = others + self.settings.deadline;
        let zones = look.zones.len();
        for index in 0..zones {
            let now = Instant::now();
            let left = u32::try_from(zones - index).unwrap_or(u32::MAX);
            let share = |end: Instant| now + end.saturating_duration_since(now) / left;
            let until = RequestDeadlines { others: share(others), wakes: share(wakes) };
            self.decide(backend, &look, index, until);
        }
        self.count_windows();
        self.snapshot_after = None;
        let seen = self.share_memory(backend, &look);
        if self.has_acted() {
            self.read_after_requests(backend, &mut look);
        }
        let off = look
            .snapshot
            .slices
            .iter()
            .filter(|slice| slice.state == SliceState::Offline && !slice.is_away());
        self.offline_slices.clear();
        self.offline_slices.extend(off.map(|slice| slice.id));
        self.simulated_offline = backend.simulated_offline();
        self.report_takers(backend, &look, seen);
        self.finish_step(&look);
        Ok(())
    }

    /// Reads the machine and reports it, but decides nothing.
    ///
    /// # Errors
    /// If the machine cannot be read.
    pub fn watch(
        &mut self,
        backend: &dyn Backend,
        backend_kind: &'static str,
        now: Duration,
    ) -> Result<(), BackendError> {
        let look = self.look(backend, backend_kind, now, Instant::now())?;
        for zone_state in self.zone_states.values_mut() {
            // No policy runs to take them.
            zone_state.events.clear();
            zone_state.woken_by_restart = 0;
        }
        self.offline_slices.clear();
        self.watch_takers(backend, &look);
        self.finish_step(&look);
        Ok(())
    }

    /// Reads the machine and notes what happened since the last step.
    fn look(
        &mut self,
        backend: &dyn Backend,
        backend_kind: &'static str,
        now: Duration,
        began: Instant,
    ) -> Result<MachineSnapshot, BackendError> {
        self.time = now;
        let look = MachineSnapshot::take(backend).and_then(|look| self.fit_slices(backend, look));
        let took = began.elapsed();
        // A machine that the settings do not fit is not up, even if it can be read.
        let look = look.and_then(|look| self.bind(backend, &look).map(|()| look));
        self.metrics.look(took, look.as_ref().err());
        self.backend_kind = Some(backend_kind);
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                self.set_error(&error);
                return Err(error);
            }
        };
        self.error = None;
        self.simulated_offline = backend.simulated_offline();
        if let Some(bound) = &self.bound_machine {
            self.prices.watch_parameters(&bound.prices, backend_kind);
        }
        self.count_stalls();
        self.count_work();
        self.count_suspension();
        self.count_host(&look);
        self.attribute_wakes(&look);
        self.account(&look);
        // For the next sample: the first one of a ledger only opens it.
        self.count_own_time(&look.info);
        self.forget_gone_zones(&look);
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.next_wake_count = 1;
            info!("tasks have not waited for memory for a while: slices may go offline again");
        }
        self.decisions.clear();
        Ok(look)
    }

    /// A zone whose memory was taken out has no steps that would take its events: they would pile
    /// up. What its policy learned stays, because the memory may be plugged in again.
    fn forget_gone_zones(&mut self, look: &MachineSnapshot) {
        for (key, zone_state) in &mut self.zone_states {
            if !look.zones.iter().any(|zone| ZoneKey::of(zone) == *key) {
                zone_state.events.clear();
                zone_state.traced_out = 0.0;
                zone_state.woken_by_restart = 0;
                zone_state.baseline = None;
            }
        }
    }

    /// Remembers the zones as they are, and reports them.
    fn finish_step(&mut self, look: &MachineSnapshot) {
        for zone in &look.zones {
            if let Some(zone_state) = self.zone_states.get_mut(&ZoneKey::of(zone)) {
                zone_state.baseline = Some(ZoneBaseline::now(zone));
            }
        }
        self.metrics.machine(look);
        self.metrics.set_paused(self.paused_until.is_some());
        self.metrics.prices(&self.prices.status());
        self.report_energy();
    }

    /// Reports slices that a reboot woke to metrics and policies.
    fn report_restart(&mut self) {
        let (mode, time) = (self.settings.mode, self.time);
        for zone_state in self.zone_states.values_mut() {
            let slices = std::mem::take(&mut zone_state.woken_by_restart);
            if slices > 0 {
                self.metrics.woken(mode, WakeReason::Others, slices);
                zone_state.events.push(PolicyEvent::Woken {
                    time,
                    slices,
                    cause: WakeCause::Ahead,
                });
            }
        }
    }

    /// How long the requests of a step take at most: those of the policies and those that make huge
    /// pages, each followed by what must wake, which has as long again.
    pub(crate) fn longest_requests(&self) -> Duration {
        4 * self.settings.deadline
    }

    /// Whether the last step sent requests.
    pub fn has_acted(&self) -> bool {
        let requested = self.decisions.iter().any(|done| !done.zone.requests.is_empty());
        requested || self.takers.has_acted
    }

    /// There is no machine with slices to read, and by the settings there need not be.
    pub fn has_no_machine(&mut self) {
        self.error = None;
        self.decisions.clear();
        self.offline_slices.clear();
        self.metrics.has_no_machine();
    }

    /// The machine cannot be read.
    pub fn set_error(&mut self, error: &BackendError) {
        self.error = Some(error.to_string());
        self.decisions.clear();
    }

    /// Sets why no guard would wake slices on a kernel that does not; none if one does.
    pub fn set_guard_error(&mut self, why: Option<String>) {
        self.guard_error = why;
    }

    /// Works out which slices woke since the last step, and why.
    fn attribute_wakes(&mut self, look: &MachineSnapshot) {
        let (mode, time) = (self.settings.mode, self.time);
        let mut ours = std::mem::take(&mut self.woken_by_pressure);
        self.metrics.woken(mode, WakeReason::Pressure, ours);
        for zone in &look.zones {
            let Some(zone_state) = self.zone_states.get_mut(&ZoneKey::of(zone)) else { continue };
            let since = zone_state.baseline.map(|left| left.until(zone)).unwrap_or_default();
            let pressure = since.others.min(ours);
            ours -= pressure;
            self.work.woken_slices += u64::from(since.memory + since.others);
            let others = since.others - pressure;
            self.metrics.woken(mode, WakeReason::Memory, since.memory);
            self.metrics.woken(mode, WakeReason::Others, others);
            for (slices, cause) in
                [(since.memory + pressure, WakeCause::Demand), (others, WakeCause::Request)]
            {
                if slices > 0 {
                    zone_state.events.push(PolicyEvent::Woken { time, slices, cause });
                }
            }
            if self.simulated_offline.is_some() {
                self.would_wake += u64::from(since.memory);
            }
            if since.switched_off > 0 {
                self.metrics.others_switched_off(since.switched_off);
                debug!(
                    zone = zone.name,
                    slices = since.switched_off,
                    "another program switched slices off"
                );
            }
        }
        // Slices that the guard woke during the last step were online again before the zone was
        // remembered, or the guard reported them too late and others were credited.
        if let Some(zone_state) = look
            .zones
            .first()
            .filter(|_| ours > 0)
            .and_then(|zone| self.zone_states.get_mut(&ZoneKey::of(zone)))
        {
            self.work.woken_slices += u64::from(ours);
            zone_state.events.push(PolicyEvent::Woken {
                time,
                slices: ours,
                cause: WakeCause::Demand,
            });
        }
    }

    /// Reads the machine again after requests.
    fn read_after_requests(&mut self, backend: &dyn Backend, look: &mut MachineSnapshot) {
        let failures = std::mem::take(&mut self.failures);
        match MachineSnapshot::take(backend) {
            Ok(after) => {
                let reasons = failures.reasons_of_chosen(&look.snapshot, &after.snapshot);
                *look = after;
                self.metrics.failed(failures.count_by_reason(&reasons));
                self.account(look);
            }
            Err(error) => {
                self.metrics.error(&error);
                debug!(%error, "the machine could not be read after the requests");
                self.metrics.failed(failures.count_by_reason(&[]));
            }
        }
    }

    /// Adds the machine as it is to the ledger of the mode.
    fn account(&mut self, look: &MachineSnapshot) {
        // Slices that are held earn nothing for this daemon.
        let sample = EnergySample::without_held(&look.snapshot, &look.info, self.work);
        if let Some(ledger) = self.ledger() {
            ledger.add(sample);
        }
    }

    /// The ledger of the mode, if it has one.
    fn ledger(&mut self) -> Option<&mut ModeLedger> {
        self.bound_machine.as_mut()?.ledgers.of_mut(self.settings.mode)
    }
}

#[cfg(test)]
mod bind_tests;
#[cfg(test)]
mod giveback_tests;
#[cfg(test)]
mod granule_tests;
#[cfg(test)]
mod hit_ratio_tests;
#[cfg(test)]
mod pressure_tests;
#[cfg(test)]
mod price_tests;
#[cfg(test)]
mod slice_size_tests;
#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod takers_tests;
#[cfg(test)]
mod test_machine;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unplugged_tests;
