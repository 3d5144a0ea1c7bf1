//! One step: look, decide, request, account. It has no clock of its own and waits for nothing.

mod bind;
mod pressure;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ramslice_energy::EnergySample;
use ramslice_policy::{
    AnyPolicy, Observation, ObservationNeeds, Policy, PolicyEvent, PolicyKind, SliceEconomics,
    SliceRow, WakeCause,
};
use ramslice_types::{
    Backend, BackendError, BackendInfo, Pages, Price, PriceParameter, Request, RequestOp,
    RequestOutcome, SliceId, SliceSnapshot, SliceState, WorkCounters,
};
use tracing::{debug, info, warn};

use crate::energy_ledger::{Books, Kind, ModeLedgers};
use crate::failure_reasons::Failures;
use crate::host_files::{Host, Vmstat};
use crate::machine_snapshot::{Look, ZoneKey};
use crate::metrics::Metrics;
use crate::persisted_state::Memory;
use crate::price_watch::{Offer, Prices};
use crate::settings::Settings;
use crate::status::{RequestStatus, ZoneStatus};
use crate::wake_attribution::{Cause, Left};

/// On a stock kernel requests switch one slice off, and give up after this: looks and pressure wait meanwhile.
const STOCK_DEADLINE: Duration = Duration::from_secs(10);

/// The way to a machine that is switched by memory hotplug.
pub(crate) const STOCK: &str = "stock";

/// What belongs to a zone.
#[derive(Debug)]
struct Mind {
    policy: AnyPolicy,
    /// How the zone was left; nothing while that is not known.
    left: Option<Left>,
    /// For the policy's next step.
    events: Vec<PolicyEvent>,
    /// Cache that was dropped and may be read again.
    dropped: Pages,
    /// Slices that a restart of the machine woke; the policy does not know yet.
    woken_by_restart: u32,
}

/// When the requests of a zone have to be done: those that wake slices, and others.
#[derive(Debug, Clone, Copy)]
struct Until {
    wakes: Instant,
    others: Instant,
}

/// A decision with its consequences, for the status.
#[derive(Debug)]
struct Done {
    zone: ZoneStatus,
    switchable: u32,
}

/// The machine that is decided for, and what is decided with.
#[derive(Debug)]
struct Attached {
    info: BackendInfo,
    economics: SliceEconomics,
    /// What the policies' learning rests on.
    basis: String,
    prices: BTreeMap<PriceParameter, Price>,
    /// What the books' sums are of.
    kind: Kind,
    ledgers: ModeLedgers,
}

/// The daemon without waiting.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    host: Host,
    metrics: Arc<Metrics>,
    /// Taken up at the first look: whether it fits depends on the machine.
    saved: Option<Memory>,
    attached: Option<Attached>,
    minds: BTreeMap<ZoneKey, Mind>,
    /// Slices that are offline in the backend's answers only, if it acts on nothing.
    simulated: Option<u32>,
    work: WorkCounters,
    prices: Prices,
    /// Slices after the last request of this step, if anybody looked.
    after: Option<SliceSnapshot>,
    vmstat: Option<Vmstat>,
    would_wake: u64,
    rows: Vec<SliceRow>,
    paused_until: Option<Duration>,
    /// Slices to wake at the next stall.
    wake_next: u32,
    /// Why nobody would wake slices, though the kernel does not: none goes off.
    unguarded: Option<String>,
    /// The CPU time of this process at the last step, and what its requests since then have in their own answers.
    own_time: Duration,
    requested: Price,
    /// Slices that were off after the last step with a decision.
    off: Vec<SliceId>,
    /// Slices that this daemon woke for want of memory since the last step.
    woken_by_pressure: u32,
    /// Slices that could not be emptied in this step.
    failures: Failures,
    done: Vec<Done>,
    way: Option<&'static str>,
    error: Option<String>,
    time: Duration,
    /// Once set, no further request goes out: somebody waits for the daemon to end.
    stop: Arc<AtomicBool>,
}

impl Engine {
    /// With what an earlier run remembered, if anything. Once `stop` is set, neither a step nor pressure sends a further
    /// request.
    pub fn new(
        settings: Settings,
        saved: Option<Memory>,
        host: Host,
        metrics: Arc<Metrics>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        metrics.set_mode(settings.mode, settings.policy.policy.name());
        let time = saved.as_ref().map_or(Duration::ZERO, |saved| saved.time);
        let prices = Prices::new(saved.as_ref().and_then(|saved| saved.prices.clone()));
        Self {
            settings,
            host,
            metrics,
            saved,
            attached: None,
            minds: BTreeMap::new(),
            simulated: None,
            work: WorkCounters::default(),
            prices,
            after: None,
            vmstat: None,
            would_wake: 0,
            rows: Vec::new(),
            paused_until: None,
            wake_next: 1,
            unguarded: None,
            own_time: Duration::ZERO,
            requested: Price::ZERO,
            off: Vec::new(),
            woken_by_pressure: 0,
            failures: Failures::default(),
            done: Vec::new(),
            way: None,
            error: None,
            time,
            stop,
        }
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Looks, decides and acts. `now` is the policies' time, `way` names the backend.
    ///
    /// # Errors
    /// If the machine cannot be seen; nothing was done then. A request that fails is told by status and metrics.
    pub fn step(
        &mut self,
        backend: &dyn Backend,
        way: &'static str,
        now: Duration,
    ) -> Result<(), BackendError> {
        let began = Instant::now();
        self.settle(backend, way);
        let mut look = self.look(backend, way, now, began)?;
        self.tell_restart();
        // All of them together: many requests that each take long would keep the daemon from looking, and from feeding
        // its watchdog.
        let others = Instant::now() + self.settings.deadline;
        // What wakes slices has as long again: it does not come to nothing because others took long.
        let wakes = others + self.settings.deadline;
        let zones = look.zones.len();
        for index in 0..zones {
            let now = Instant::now();
            let left = u32::try_from(zones - index).unwrap_or(u32::MAX);
            let share = |end: Instant| now + end.saturating_duration_since(now) / left;
            let until = Until { others: share(others), wakes: share(wakes) };
            self.decide(backend, &look, index, until);
        }
        self.after = None;
        if self.acted() {
            self.after_requests(backend, &mut look);
        }
        let off = look
            .snapshot
            .slices
            .iter()
            .filter(|slice| slice.state == SliceState::Offline && !slice.is_away());
        self.off.clear();
        self.off.extend(off.map(|slice| slice.id));
        self.simulated = backend.simulated_offline();
        self.leave(&look);
        Ok(())
    }

    /// Looks and tells what is seen, but decides nothing.
    ///
    /// # Errors
    /// If the machine cannot be seen.
    pub fn watch(
        &mut self,
        backend: &dyn Backend,
        way: &'static str,
        now: Duration,
    ) -> Result<(), BackendError> {
        let look = self.look(backend, way, now, Instant::now())?;
        for mind in self.minds.values_mut() {
            // Nobody decides by them.
            mind.events.clear();
            mind.woken_by_restart = 0;
        }
        self.off.clear();
        self.leave(&look);
        Ok(())
    }

    /// Looks at the machine and takes note of what happened since the last look.
    fn look(
        &mut self,
        backend: &dyn Backend,
        way: &'static str,
        now: Duration,
        began: Instant,
    ) -> Result<Look, BackendError> {
        self.time = now;
        let look = Look::take(backend);
        let took = began.elapsed();
        // A machine that cannot be decided for is not up, however well it can be seen.
        let look = look.and_then(|look| self.attach(backend, &look).map(|()| look));
        self.metrics.look(took, look.as_ref().err());
        self.way = Some(way);
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                self.lost(&error);
                return Err(error);
            }
        };
        self.error = None;
        self.simulated = backend.simulated_offline();
        self.prices.see(backend, way);
        self.count_host(&look.info);
        self.notice(&look);
        self.account(&look);
        // For the next sample: the first of a ledger only begins it.
        self.count_itself(&look.info);
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.wake_next = 1;
            info!("tasks have not waited for memory for a while: slices may go off again");
        }
        self.done.clear();
        Ok(look)
    }

    /// Remembers how zones are left, and tells what there is to tell.
    fn leave(&mut self, look: &Look) {
        for zone in &look.zones {
            if let Some(mind) = self.minds.get_mut(&ZoneKey::of(zone)) {
                mind.left = Some(Left::now(zone));
            }
        }
        self.metrics.machine(look);
        self.metrics.set_paused(self.paused_until.is_some());
        self.metrics.prices(&self.prices.status());
        self.tell_energy();
    }

    /// Tells policies of slices that a restart of the machine woke.
    fn tell_restart(&mut self) {
        let (mode, time) = (self.settings.mode, self.time);
        for mind in self.minds.values_mut() {
            let slices = std::mem::take(&mut mind.woken_by_restart);
            if slices > 0 {
                self.metrics.woken(mode, Cause::Others, slices);
                mind.events.push(PolicyEvent::Woken { time, slices, cause: WakeCause::Ahead });
            }
        }
    }

    /// Whether the last step sent requests, or would have.
    pub fn acted(&self) -> bool {
        self.done.iter().any(|done| !done.zone.requests.is_empty())
    }

    /// The machine cannot be seen.
    pub fn lost(&mut self, error: &BackendError) {
        self.error = Some(error.to_string());
        self.done.clear();
    }

    /// Pages that wait in the CPUs' batches for their LRU list look as if they could not be moved: a policy that names slices would
    /// leave out each that has one. A request that does nothing has the kernel put them where they belong; others do so anyway.
    fn settle(&self, backend: &dyn Backend, way: &'static str) {
        let names = matches!(
            self.settings.policy.policy,
            PolicyKind::Watermarks | PolicyKind::Threshold | PolicyKind::Repair
        );
        if !names || way == STOCK {
            return;
        }
        if let Err(error) =
            backend.request(&Request { dry_run: true, ..Request::new(RequestOp::OfflineFree) })
        {
            debug!(%error, "what the slices hold is taken as it looks");
        }
    }

    /// Counts what the whole machine does.
    fn count_host(&mut self, info: &BackendInfo) {
        let Some(now) = self.host.vmstat.as_deref().and_then(Vmstat::read) else { return };
        let Some(before) = self.vmstat.replace(now) else { return };
        // These stand for the cost of accounts.
        if !info.is_stock() {
            self.work.page_faults += now.faults.saturating_sub(before.faults);
            self.work.allocated_pages += Pages(now.allocated.saturating_sub(before.allocated));
        }
        // Pages that came back after anybody dropped them: ours at most as many as we dropped.
        let mut refaults = Pages(now.refaults.saturating_sub(before.refaults));
        for mind in self.minds.values_mut() {
            let ours = refaults.min(mind.dropped);
            if ours > Pages::ZERO {
                mind.dropped = mind.dropped - ours;
                refaults = refaults - ours;
                mind.events.push(PolicyEvent::Refaulted { pages: ours });
            }
        }
    }

    /// Counts what this daemon costs besides its requests, which tell for themselves: looking above all.
    fn count_itself(&mut self, info: &BackendInfo) {
        let requested = std::mem::take(&mut self.requested);
        let Some(now) = self.host.own_time.map(|own_time| own_time()) else { return };
        let before = std::mem::replace(&mut self.own_time, now);
        let Some(clock) = info.clock() else { return };
        let cycles = now.saturating_sub(before).as_secs_f64() * clock.0;
        let own = Price((cycles / 100.0) as u64) - requested;
        let Some(books) = self.ledger() else { return };
        books.own += own;
        self.work.price_measured += own;
    }

    /// On a kernel that wakes nothing, nobody else would: why, or nothing if somebody does.
    pub fn set_unguarded(&mut self, why: Option<String>) {
        self.unguarded = why;
    }

    /// Finds out who woke what since the last step.
    fn notice(&mut self, look: &Look) {
        let (mode, time) = (self.settings.mode, self.time);
        let mut ours = std::mem::take(&mut self.woken_by_pressure);
        self.metrics.woken(mode, Cause::Pressure, ours);
        for zone in &look.zones {
            let Some(mind) = self.minds.get_mut(&ZoneKey::of(zone)) else { continue };
            let since = mind.left.map(|left| left.until(zone)).unwrap_or_default();
            let pressure = since.others.min(ours);
            ours -= pressure;
            self.work.woken_slices += u64::from(since.memory + since.others);
            let others = since.others - pressure;
            self.metrics.woken(mode, Cause::Memory, since.memory);
            self.metrics.woken(mode, Cause::Others, others);
            for (slices, cause) in
                [(since.memory + pressure, WakeCause::Demand), (others, WakeCause::Request)]
            {
                if slices > 0 {
                    mind.events.push(PolicyEvent::Woken { time, slices, cause });
                }
            }
            if self.simulated.is_some() {
                self.would_wake += u64::from(since.memory);
            }
            if since.switched_off > 0 {
                self.metrics.others_switched_off(since.switched_off);
                debug!(
                    zone = zone.name,
                    slices = since.switched_off,
                    "somebody else switched slices off"
                );
            }
        }
        // What the guard woke while the last step was at work was awake again before its zone was left, or was
        // told of too late and taken for the work of others.
        if let Some(mind) = look
            .zones
            .first()
            .filter(|_| ours > 0)
            .and_then(|zone| self.minds.get_mut(&ZoneKey::of(zone)))
        {
            self.work.woken_slices += u64::from(ours);
            mind.events.push(PolicyEvent::Woken { time, slices: ours, cause: WakeCause::Demand });
        }
    }

    /// One zone's policy; what it asks for is done until then.
    fn decide(&mut self, backend: &dyn Backend, look: &Look, index: usize, until: Until) {
        let key = ZoneKey::of(&look.zones[index]);
        let totals = look.totals(&look.zones[index]);
        let Some(mind) = self.minds.get_mut(&key) else { return };
        if totals.nr_slices == 0 || totals.nr_switchable() == 0 {
            mind.events.clear();
            return;
        }
        if mind.policy.needs() == ObservationNeeds::Rows {
            look.rows(key, &mut self.rows);
        }
        let events = std::mem::take(&mut mind.events);
        let decision = mind.policy.step(&Observation {
            time: self.time,
            totals,
            rows: &self.rows,
            events: &events,
        });
        self.rows.clear();
        self.metrics.forecast(&look.zones[index], decision.forecast);
        let mut requests = Vec::new();
        let mut why = decision.why.to_string();
        let waits = match &self.unguarded {
            Some(error) => {
                Some(format!("nobody would wake slices when memory runs short: {error}"))
            }
            None => self.paused_until.map(|_| "tasks waited for memory a moment ago".to_owned()),
        };
        if let Some(reason) = waits.as_ref().filter(|_| !decision.requests.is_empty()) {
            why = format!("waits: {reason}; else it {why}");
        }
        for mut request in decision.requests {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let wakes = request.op.wakes();
            let until = if wakes { until.wakes } else { until.others };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || waits.is_some() && !wakes {
                continue;
            }
            request.deadline = Some(left);
            requests.push(self.carry_out(backend, look, key, request));
        }
        let zone = &look.zones[index];
        debug!(zone = zone.name, node = zone.node.0, why, "decided");
        let status = ZoneStatus {
            node: zone.node.0,
            zone: zone.zone.0,
            name: zone.name.clone(),
            nr_slices: zone.nr_slices,
            nr_offline: zone.nr_offline,
            nr_empty: zone.nr_empty,
            why,
            requests,
            forecast: decision.forecast.map(Into::into),
        };
        self.done.push(Done { zone: status, switchable: totals.nr_switchable() });
    }

    /// Sends a request.
    fn carry_out(
        &mut self,
        backend: &dyn Backend,
        look: &Look,
        key: ZoneKey,
        mut request: Request,
    ) -> RequestStatus {
        if self.way == Some(STOCK) && !request.op.wakes() {
            // A guard that needs the lock breaks it off; nothing else does before the deadline.
            request.deadline = request.deadline.map(|deadline| deadline.min(STOCK_DEADLINE));
            request.max_slices = Some(1);
        }
        if !matches!(request.op, RequestOp::Offline(_) | RequestOp::Online(_)) {
            (request.node, request.zone) = (Some(key.node), Some(key.zone));
            if let Some(most) = self.settings.max_slices {
                request.max_slices =
                    Some(request.max_slices.map_or(most, |wanted| wanted.min(most)));
            }
        }
        let (mode, op, began) = (self.settings.mode, request.op, Instant::now());
        let imagined = self.simulated.is_some();
        let result = backend.request(&request);
        self.metrics.request(mode, op, began.elapsed(), &result);
        if let Ok(outcome) = &result {
            self.failures.add(op, outcome);
        }
        let mut status = RequestStatus {
            op: op.name(),
            slice: if let RequestOp::Offline(id) | RequestOp::Online(id) = op {
                Some(id)
            } else {
                None
            },
            imagined,
            migrated: Pages::ZERO,
            dropped: Pages::ZERO,
            slices_done: 0,
            slices_failed: 0,
            reason: "none".to_owned(),
            error: None,
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                warn!(op = op.name(), %error, "a request could not be carried out");
                status.error = Some(error.to_string());
                RequestOutcome::default()
            }
        };
        if status.error.is_none() {
            let level = if imagined { "would have" } else { "has" };
            info!(
                op = op.name(),
                done = outcome.slices_done,
                failed = outcome.slices_failed,
                reason = outcome.reason.code(),
                "{level} carried out a request"
            );
        }
        if !imagined {
            self.requested += outcome.price_measured;
            self.learn_prices(backend, look, op, &outcome);
        }
        status.slices_done = outcome.slices_done;
        status.slices_failed = outcome.slices_failed;
        (status.migrated, status.dropped) = (outcome.migrated, outcome.dropped);
        self.metrics.moved(mode, op, &outcome, look.info.slice_pages());
        status.reason = outcome.reason.code();
        self.count(op, &outcome);
        if let Some(mind) = self.minds.get_mut(&key) {
            mind.dropped += outcome.dropped;
            mind.events.push(PolicyEvent::Finished { op, outcome });
        }
        status
    }

    /// What a request says of the kernel's prices.
    fn learn_prices(
        &mut self,
        backend: &dyn Backend,
        look: &Look,
        op: RequestOp,
        outcome: &RequestOutcome,
    ) {
        if op.wakes() || !self.prices.watches() {
            return;
        }
        let before = self.after.take();
        let mut understood = false;
        if Prices::tells(op, outcome) {
            match backend.snapshot() {
                Ok(after) => {
                    let before = before.as_ref().unwrap_or(&look.snapshot);
                    understood = self.prices.take(op, outcome, &before.slices, &after.slices);
                    self.after = Some(after);
                }
                Err(error) => {
                    debug!(%error, "no look after a request");
                    self.prices.leave_out();
                }
            }
        } else if outcome.slices_done == 0 && outcome.slices_failed == 0 {
            // Nothing was done, so nothing was to be learned.
            self.after = before;
            return;
        } else {
            self.prices.leave_out();
        }
        self.metrics.priced(understood);
    }

    /// What is to be done with the file that fitted prices are offered in.
    pub fn offer(&mut self) -> Option<Offer> {
        self.prices.offer(&self.attached.as_ref()?.info)
    }

    /// The prices that are watched.
    pub fn prices(&mut self) -> &mut Prices {
        &mut self.prices
    }

    fn count(&mut self, op: RequestOp, outcome: &RequestOutcome) {
        let done = u64::from(outcome.slices_done);
        if op.wakes() {
            self.work.woken_slices += done;
            self.metrics.woken(self.settings.mode, Cause::Policy, outcome.slices_done);
            return;
        }
        self.work.tried_slices += done + u64::from(outcome.slices_failed);
        self.work.emptied_slices += done;
        self.work.migrated_pages += outcome.migrated;
        self.work.dropped_pages += outcome.dropped;
        // Where destinations came from is only in debugfs: the dearer way is taken.
        self.work.target_free_pages += outcome.migrated;
        self.work.price_predicted += outcome.price_predicted;
        self.work.price_measured += outcome.price_measured;
    }

    /// What requests made of the machine.
    fn after_requests(&mut self, backend: &dyn Backend, look: &mut Look) {
        let failures = std::mem::take(&mut self.failures);
        match Look::take(backend) {
            Ok(after) => {
                let told = failures.told_by(&look.snapshot, &after.snapshot);
                *look = after;
                self.metrics.failed(failures.by_reason(&told));
                self.account(look);
            }
            Err(error) => {
                self.metrics.error(&error);
                debug!(%error, "no look after the requests");
                self.metrics.failed(failures.by_reason(&[]));
            }
        }
    }

    /// Adds a look to the ledger of the mode.
    fn account(&mut self, look: &Look) {
        // What somebody holds off is not this daemon's to earn for.
        let sample = EnergySample::without_held(&look.snapshot, &look.info, self.work);
        if let Some(books) = self.ledger() {
            books.add(sample);
        }
    }

    /// The ledger of the mode, if it has one.
    fn ledger(&mut self) -> Option<&mut Books> {
        self.attached.as_mut()?.ledgers.of_mut(self.settings.mode)
    }
}

#[cfg(test)]
mod bind_tests;
#[cfg(test)]
mod pressure_tests;
#[cfg(test)]
mod price_tests;
#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod tests;
