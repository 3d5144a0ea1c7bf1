//! One step: look, decide, request, account. It has no clock of its own and waits for nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ramslice_energy::{Sample, Tally};
use ramslice_policy::{
    AnyPolicy, Economics, Event, Governor, Needs, Observation, Policy, PolicyKind, Row, Saved, WakeCause,
};
use ramslice_types::{
    Backend, BackendError, ErrorKind, Info, Op, Outcome, Pages, Price, PriceParameter, Request, SliceId,
    SliceState, Work, Zone,
};
use tracing::{debug, info, warn};

use crate::books::Books;
use crate::look::{Look, ZoneKey};
use crate::memory::{Memory, ZoneMemory};
use crate::metrics::{Metrics, time_of_day};
use crate::mode::Mode;
use crate::settings::Settings;
use crate::shadow::Shadow;
use crate::status::{self, MachineStatus, RequestStatus, Status, WouldEarn, ZoneStatus};
use crate::wakes::{Cause, Left};

/// Where the machine's own files are, and which boot it is; elsewhere in tests.
#[derive(Debug, Clone)]
pub struct Host {
    /// Names the boot.
    pub boot: String,
    /// `/proc/vmstat`, or nothing where it would be another machine's.
    pub vmstat: Option<PathBuf>,
}

impl Host {
    /// This machine.
    pub fn here() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned(), vmstat: Some("/proc/vmstat".into()) }
    }
}

/// What `/proc/vmstat` says.
#[derive(Debug, Clone, Copy, Default)]
struct Vmstat {
    faults: u64,
    allocated: u64,
    refaults: u64,
}

impl Vmstat {
    fn read(path: &PathBuf) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut found = Self::default();
        for line in text.lines() {
            let Some((name, number)) = line.split_once(' ') else { continue };
            match name {
                "pgfault" => found.faults = number.parse().ok()?,
                "workingset_refault_file" => found.refaults = number.parse().ok()?,
                name if name.starts_with("pgalloc_") => found.allocated += number.parse::<u64>().ok()?,
                _ => {}
            }
        }
        Some(found)
    }
}

/// What belongs to a zone.
#[derive(Debug)]
struct Mind {
    policy: AnyPolicy,
    /// How the zone was left; nothing while that is not known.
    left: Option<Left>,
    /// For the policy's next step.
    events: Vec<Event>,
    /// Cache that was dropped and may be read again.
    dropped: Pages,
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
    info: Info,
    economics: Economics,
    /// What the policies' learning rests on.
    basis: String,
    prices: BTreeMap<PriceParameter, Price>,
    earned: Books,
    would_earn: Books,
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
    shadow: Shadow,
    work: Work,
    vmstat: Option<Vmstat>,
    would_wake: u64,
    rows: Vec<Row>,
    paused_until: Option<Duration>,
    /// Slices to wake at the next stall.
    wake_next: u32,
    /// Slices that were off after the last step, in mode on.
    off: Vec<SliceId>,
    /// Slices that this daemon woke for want of memory since the last step.
    woken_by_pressure: u32,
    done: Vec<Done>,
    way: Option<&'static str>,
    error: Option<String>,
    time: Duration,
}

impl Engine {
    /// With what an earlier run remembered, if anything.
    pub fn new(settings: Settings, saved: Option<Memory>, host: Host, metrics: Arc<Metrics>) -> Self {
        metrics.set_mode(settings.mode, settings.policy.policy.name());
        let time = saved.as_ref().map_or(Duration::ZERO, |saved| saved.time);
        Self {
            settings,
            host,
            metrics,
            saved,
            attached: None,
            minds: BTreeMap::new(),
            shadow: Shadow::default(),
            work: Work::default(),
            vmstat: None,
            would_wake: 0,
            rows: Vec::new(),
            paused_until: None,
            wake_next: 1,
            off: Vec::new(),
            woken_by_pressure: 0,
            done: Vec::new(),
            way: None,
            error: None,
            time,
        }
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Looks, decides and acts. `now` is the policies' time, `way` names the backend.
    ///
    /// # Errors
    /// If the machine cannot be seen; nothing was done then. A request that fails is told by the status and the metrics.
    pub fn step(
        &mut self,
        backend: &dyn Backend,
        way: &'static str,
        now: Duration,
    ) -> Result<(), BackendError> {
        let began = Instant::now();
        self.time = now;
        let look = Look::take(backend);
        self.metrics.look(began.elapsed(), look.as_ref().err());
        self.way = Some(way);
        let mut look = match look {
            Ok(look) => look,
            Err(error) => {
                self.lost(&error);
                return Err(error);
            }
        };
        self.error = None;
        self.attach(backend, &look)?;
        if self.settings.mode == Mode::Observe {
            self.shadow.view(&mut look);
        }
        self.count_host();
        self.notice(&look);
        self.account(&look);
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.wake_next = 1;
            info!("tasks have not waited for memory for a while: slices may go off again");
        }
        self.done.clear();
        if self.settings.mode != Mode::Off {
            for index in 0..look.zones.len() {
                self.decide(backend, &mut look, index, now);
            }
            if self.acted() {
                self.after_requests(backend, &mut look);
            }
        }
        for zone in &look.zones {
            if let Some(mind) = self.minds.get_mut(&ZoneKey::of(zone)) {
                mind.left = Some(Left::now(zone));
            }
        }
        self.off.clear();
        if self.settings.mode == Mode::On {
            let off = look.snapshot.slices.iter().filter(|slice| slice.state == SliceState::Offline);
            self.off.extend(off.map(|slice| slice.id));
        }
        self.metrics.machine(&look);
        self.metrics.set_paused(self.paused_until.is_some());
        self.tell_energy();
        self.metrics.stepped(began.elapsed(), time_of_day());
        Ok(())
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

    /// Sees to it that there are policies and books for this machine.
    fn attach(&mut self, backend: &dyn Backend, look: &Look) -> Result<(), BackendError> {
        let info = &look.info;
        let same = self.attached.as_ref().is_some_and(|attached| {
            attached.info.slice_bytes == info.slice_bytes && attached.info.page_bytes == info.page_bytes
        });
        if !same {
            let economics = self.settings.energy.economics(info.slice_bytes, info.page_bytes);
            let economics = economics.map_err(|error| BackendError::new(ErrorKind::Invalid, error))?;
            let prices = PriceParameter::ALL
                .into_iter()
                .filter_map(|parameter| Some((parameter, backend.price_parameter(parameter).ok()?)))
                .collect();
            let (mut earned, mut would_earn) = (Tally::default(), Tally::default());
            if let Some(saved) = &self.saved {
                (earned, would_earn) = (saved.earned, saved.would_earn);
                self.work = saved.work;
                self.would_wake = saved.would_wake;
            } else if let Some(old) = &self.attached {
                (earned, would_earn) = (old.earned.tally(), old.would_earn.tally());
            }
            let books = |before| Books::new(&self.settings.energy, info.slice_bytes, before);
            let (earned, would_earn) = (books(earned), books(would_earn));
            let basis = self.basis(info);
            self.minds.clear();
            self.attached =
                Some(Attached { info: info.clone(), economics, basis, prices, earned, would_earn });
            if let Some(note) = self.settings.energy.note(info.slice_bytes) {
                warn!("{note}");
            }
            info!(
                slices = info.nr_slices,
                slice = %info.slice_bytes,
                power_driver = info.power_driver,
                mode = %self.settings.mode,
                "the machine is seen"
            );
        }
        let saved = self.saved.take();
        if let Some(saved) = &saved {
            let fits = self.attached.as_ref().is_some_and(|attached| attached.basis == saved.basis);
            if !fits {
                info!(
                    "what was learned was for other settings, another profile or another size of slices: learning anew"
                );
            }
            if saved.mode == Mode::Observe && self.settings.mode == Mode::Observe && fits {
                self.shadow = saved.shadow.clone();
            }
        }
        for zone in &look.zones {
            if !self.minds.contains_key(&ZoneKey::of(zone)) {
                self.new_mind(zone, look, saved.as_ref())?;
            }
        }
        Ok(())
    }

    /// What learning rests on: other policies, figures or slices learn other things.
    fn basis(&self, info: &Info) -> String {
        let policy = &self.settings.policy;
        let kind = policy.policy.name();
        let settings = serde_json::to_value(policy).unwrap_or_default();
        format!("{kind} {} {} {}", settings[kind], self.settings.energy.name(), info.slice_bytes.0)
    }

    fn new_mind(&mut self, zone: &Zone, look: &Look, saved: Option<&Memory>) -> Result<(), BackendError> {
        let Some(attached) = &self.attached else { return Ok(()) };
        let key = ZoneKey::of(zone);
        if look.totals(zone).nr_switchable() == 0 {
            return Ok(());
        }
        let (slice, page) = (attached.info.slice_bytes, attached.info.page_bytes);
        let fresh = AnyPolicy::new(&self.settings.policy, &attached.economics, slice, page)
            .map_err(|error| BackendError::new(ErrorKind::Invalid, error))?;
        let remembered =
            saved.and_then(|saved| Some((saved, saved.zones.iter().find(|zone| zone.key == key)?)));
        let (mut policy, mut left, mut events, mut dropped) = (fresh, None, Vec::new(), Pages::ZERO);
        if let Some((saved, remembered)) = remembered {
            if saved.basis == attached.basis {
                match Saved::restore(&remembered.policy.to_text(), self.settings.policy.policy) {
                    Ok(restored) => policy = restored,
                    Err(error) => warn!(zone = zone.name, %error, "learning anew"),
                }
            }
            let same_boot = saved.boot == self.host.boot;
            let acted = saved.mode == self.settings.mode;
            if acted {
                (events, dropped) = (remembered.events.clone(), remembered.dropped);
            }
            if !acted {
                policy.settle();
            } else if same_boot {
                left = remembered.left;
            } else if let Some(Left { off: slices @ 1.., .. }) = remembered.left
                && self.settings.mode == Mode::On
            {
                // A restart of the machine wakes everything.
                let time = self.time;
                self.metrics.woken(Mode::On, Cause::Others, slices);
                events.push(Event::Woken { time, slices, cause: WakeCause::Ahead });
            }
        }
        self.minds.insert(key, Mind { policy, left, events, dropped });
        Ok(())
    }

    /// Counts what the whole machine does.
    fn count_host(&mut self) {
        let Some(now) = self.host.vmstat.as_ref().and_then(Vmstat::read) else { return };
        let Some(before) = self.vmstat.replace(now) else { return };
        self.work.page_faults += now.faults.saturating_sub(before.faults);
        self.work.allocated_pages += Pages(now.allocated.saturating_sub(before.allocated));
        // Pages that came back after anybody dropped them: ours at most as many as we dropped.
        let mut refaults = Pages(now.refaults.saturating_sub(before.refaults));
        for mind in self.minds.values_mut() {
            let ours = refaults.min(mind.dropped);
            if ours > Pages::ZERO {
                mind.dropped = mind.dropped - ours;
                refaults = refaults - ours;
                mind.events.push(Event::Refaulted { pages: ours });
            }
        }
    }

    /// Finds out who woke what since the last step.
    fn notice(&mut self, look: &Look) {
        let (mode, time) = (self.settings.mode, self.time);
        let mut ours = std::mem::take(&mut self.woken_by_pressure);
        for zone in &look.zones {
            let Some(mind) = self.minds.get_mut(&ZoneKey::of(zone)) else { continue };
            let since = mind.left.map(|left| left.until(zone)).unwrap_or_default();
            let pressure = since.others.min(ours);
            ours -= pressure;
            self.work.woken_slices += u64::from(since.memory + since.others);
            for (slices, cause, event) in [
                (since.memory, Cause::Memory, WakeCause::Demand),
                (pressure, Cause::Pressure, WakeCause::Demand),
                (since.others - pressure, Cause::Others, WakeCause::Request),
            ] {
                if slices > 0 {
                    self.metrics.woken(mode, cause, slices);
                    mind.events.push(Event::Woken { time, slices, cause: event });
                }
            }
            if mode == Mode::Observe {
                self.would_wake += u64::from(since.memory);
            }
            if since.switched_off > 0 {
                self.metrics.others_switched_off(since.switched_off);
                debug!(zone = zone.name, slices = since.switched_off, "somebody else switched slices off");
            }
        }
    }

    /// One zone's policy.
    fn decide(&mut self, backend: &dyn Backend, look: &mut Look, index: usize, now: Duration) {
        let key = ZoneKey::of(&look.zones[index]);
        let totals = look.totals(&look.zones[index]);
        let Some(mind) = self.minds.get_mut(&key) else { return };
        if totals.nr_slices == 0 || totals.nr_switchable() == 0 {
            return;
        }
        if mind.policy.needs() == Needs::Rows {
            look.rows(key, &mut self.rows);
        }
        let events = std::mem::take(&mut mind.events);
        let decision =
            mind.policy.step(&Observation { time: now, totals, rows: &self.rows, events: &events });
        self.rows.clear();
        self.metrics.forecast(&look.zones[index], decision.forecast);
        let mut requests = Vec::new();
        let mut why = decision.why.to_string();
        let paused = self.paused_until.is_some();
        if paused && !decision.requests.is_empty() {
            why = format!("waits: tasks waited for memory a moment ago; else it {why}");
        }
        for request in decision.requests {
            let wakes = matches!(request.op, Op::Online(_) | Op::OnlineAll);
            if paused && !wakes {
                continue;
            }
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

    /// Sends a request, or does it in thought.
    fn carry_out(
        &mut self,
        backend: &dyn Backend,
        look: &mut Look,
        key: ZoneKey,
        mut request: Request,
    ) -> RequestStatus {
        request.deadline = Some(self.settings.deadline);
        if !matches!(request.op, Op::Offline(_) | Op::Online(_)) {
            (request.node, request.zone) = (Some(key.node), Some(key.zone));
            if let Some(most) = self.settings.max_slices {
                request.max_slices = Some(request.max_slices.map_or(most, |wanted| wanted.min(most)));
            }
        }
        let (mode, op, began) = (self.settings.mode, request.op, Instant::now());
        let imagined = mode != Mode::On;
        let result =
            if imagined { Ok(self.shadow.request(look, &request)) } else { backend.request(&request) };
        self.metrics.request(mode, op, began.elapsed(), &result);
        let mut status = RequestStatus {
            op: op.name(),
            imagined,
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
                Outcome::default()
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
        status.slices_done = outcome.slices_done;
        status.slices_failed = outcome.slices_failed;
        status.reason = outcome.reason.code();
        self.count(op, &outcome);
        if let Some(mind) = self.minds.get_mut(&key) {
            mind.dropped += outcome.dropped;
            mind.events.push(Event::Finished { op, outcome });
        }
        status
    }

    fn count(&mut self, op: Op, outcome: &Outcome) {
        let done = u64::from(outcome.slices_done);
        if matches!(op, Op::Online(_) | Op::OnlineAll) {
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
        if self.settings.mode == Mode::On {
            match Look::take(backend) {
                Ok(after) => *look = after,
                Err(error) => {
                    self.metrics.error(&error);
                    debug!(%error, "no look after the requests");
                    return;
                }
            }
        }
        self.account(look);
    }

    /// Adds a look to the ledger of the mode.
    fn account(&mut self, look: &Look) {
        let Some(attached) = &mut self.attached else { return };
        let sample = || Sample::new(&look.snapshot, look.info.slice_bytes, self.work);
        match self.settings.mode {
            Mode::On => attached.earned.add(sample()),
            Mode::Observe => attached.would_earn.add(sample()),
            Mode::Off => {}
        }
    }

    fn tell_energy(&self) {
        let Some(Attached { earned, would_earn, info, prices, .. }) = &self.attached else { return };
        let (mode, plan) = (self.settings.mode, &self.settings.energy);
        let books = match mode {
            Mode::On => earned,
            Mode::Observe => would_earn,
            Mode::Off => return,
        };
        if let Some(earned) = books.earned(plan, info, prices) {
            self.metrics.energy(mode, &earned);
        }
    }

    /// Tasks waited for memory, or little is available: in mode on slices wake, and nothing goes off for a while.
    pub fn pressure(&mut self, backend: Option<&dyn Backend>, now: Duration) {
        self.metrics.stalled();
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
        let Some(backend) = backend.filter(|_| self.settings.mode == Mode::On && !self.off.is_empty()) else {
            debug!("tasks waited for memory");
            return;
        };
        let (mut woken, wanted) = (0, self.wake_next);
        self.wake_next = self.wake_next.saturating_mul(2).min(1024);
        // Those that went off last are at the end of nobody's list: any will do. What woke meanwhile is no failure.
        while let Some(slice) = (woken < wanted).then(|| self.off.pop()).flatten() {
            let request =
                Request { deadline: Some(self.settings.deadline), ..Request::new(Op::Online(slice)) };
            match backend.request(&request) {
                Ok(outcome) => woken += outcome.slices_done,
                Err(error) => {
                    self.metrics.error(&error);
                    warn!(%error, "tasks waited for memory, and a slice could not be woken");
                    break;
                }
            }
        }
        info!(slices = woken, "tasks waited for memory: slices were woken");
        self.woken_by_pressure += woken;
    }

    /// Somebody of this daemon has woken slices for want of memory.
    pub fn woken_by_guard(&mut self, slices: u32, now: Duration) {
        self.metrics.stalled();
        self.woken_by_pressure += slices;
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
    }

    /// Takes other settings. What was learned stays if they have the same policy, settings of it, and profile.
    pub fn set_settings(&mut self, settings: Settings, backend: Option<&dyn Backend>, wake: bool) {
        let before = std::mem::replace(&mut self.settings, settings);
        let (mode, was) = (self.settings.mode, before.mode);
        self.metrics.set_mode(mode, self.settings.policy.policy.name());
        if mode != was {
            info!(from = %was, to = %mode, "the mode changes");
            if was == Mode::On && wake {
                self.wake_all(backend, "the mode is no longer on");
            }
            self.shadow = Shadow::default();
            for mind in self.minds.values_mut() {
                mind.policy.settle();
                mind.events.clear();
                mind.dropped = Pages::ZERO;
                // What is off in thought is not off in truth, and the other way round.
                mind.left = None;
            }
            if let Some(attached) = &mut self.attached {
                attached.earned.pause();
                attached.would_earn.pause();
            }
        }
        let Some(attached) = self.attached.take() else { return };
        if self.basis(&attached.info) == attached.basis {
            self.attached = Some(attached);
        } else {
            info!("other settings of the policy, or another profile: learning anew");
            self.minds.clear();
            // The tallies go on.
            self.attached = Some(attached);
            self.reattach();
        }
    }

    /// Figures of the new settings.
    fn reattach(&mut self) {
        let Some(old) = self.attached.take() else { return };
        let info = old.info;
        match self.settings.energy.economics(info.slice_bytes, info.page_bytes) {
            Ok(economics) => {
                let books = |before| Books::new(&self.settings.energy, info.slice_bytes, before);
                let (earned, would_earn) = (books(old.earned.tally()), books(old.would_earn.tally()));
                let basis = self.basis(&info);
                self.attached =
                    Some(Attached { economics, basis, prices: old.prices, earned, would_earn, info });
            }
            // Settings were checked for that; the next look says it again.
            Err(error) => warn!(error, "the profile does not work out"),
        }
    }

    /// Wakes everything. Says how many woke.
    pub fn wake_all(&mut self, backend: Option<&dyn Backend>, why: &str) -> u32 {
        let Some(backend) = backend else { return 0 };
        let request = Request { deadline: Some(Duration::from_mins(1)), ..Request::new(Op::OnlineAll) };
        match backend.request(&request) {
            Ok(outcome) => {
                info!(
                    slices = outcome.slices_done,
                    failed = outcome.slices_failed,
                    "{why}: slices were woken"
                );
                self.work.woken_slices += u64::from(outcome.slices_done);
                self.metrics.woken(Mode::On, Cause::Stop, outcome.slices_done);
                for mind in self.minds.values_mut() {
                    mind.left = None;
                }
                outcome.slices_done
            }
            Err(error) => {
                self.metrics.error(&error);
                warn!(%error, "{why}, but slices could not be woken");
                0
            }
        }
    }

    /// What is to be remembered; nothing as long as the machine was never seen and nothing was remembered before.
    pub fn memory(&self) -> Option<Memory> {
        let Some(attached) = &self.attached else { return self.saved.clone() };
        Some(Memory {
            boot: self.host.boot.clone(),
            time: self.time,
            mode: self.settings.mode,
            basis: attached.basis.clone(),
            slice_bytes: attached.info.slice_bytes,
            zones: self
                .minds
                .iter()
                .map(|(key, mind)| ZoneMemory {
                    key: *key,
                    policy: mind.policy.save(),
                    left: mind.left,
                    events: mind.events.clone(),
                    dropped: mind.dropped,
                })
                .collect(),
            shadow: self.shadow.clone(),
            earned: attached.earned.tally(),
            would_earn: attached.would_earn.tally(),
            work: self.work,
            would_wake: self.would_wake,
        })
    }

    /// What there is to tell, `next` before the next step.
    pub fn status(&self, next: Duration) -> Status {
        let (settings, plan) = (&self.settings, &self.settings.energy);
        let books = |books: &Books, attached: &Attached| books.earned(plan, &attached.info, &attached.prices);
        let attached = self.attached.as_ref();
        let dropped = |attached: &Attached| {
            attached.would_earn.tally().work.dropped_pages.bytes(attached.info.page_bytes).0
        };
        let risk = |attached: &Attached| {
            let governed = settings.policy.policy == PolicyKind::Governor;
            let elapsed = attached.would_earn.tally().elapsed();
            governed.then(|| Governor::loss_cap(&attached.economics, elapsed).0 * self.minds.len() as f64)
        };
        let largest = self.done.iter().max_by_key(|done| done.switchable);
        let why = match (&self.error, settings.mode, largest) {
            (Some(error), ..) => format!("waits for the machine: {error}"),
            (None, Mode::Off, _) => "does nothing: its mode is off".to_owned(),
            (None, _, Some(done)) => done.zone.why.clone(),
            (None, _, None) => "has decided nothing yet".to_owned(),
        };
        Status {
            schema_version: status::SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            written_unix_seconds: time_of_day().as_secs_f64(),
            mode: settings.mode,
            policy: settings.policy.policy.name(),
            profile: plan.name(),
            period_seconds: settings.period.as_secs_f64(),
            next_step_seconds: next.as_secs_f64(),
            machine: MachineStatus {
                ok: self.error.is_none() && attached.is_some(),
                backend: self.way,
                power_driver: attached.map(|attached| attached.info.power_driver.clone()),
                error: self.error.clone(),
            },
            paused_seconds: status::until(self.paused_until, self.time),
            why,
            notes: attached.and_then(|attached| plan.note(attached.info.slice_bytes)).into_iter().collect(),
            zones: self.done.iter().map(|done| done.zone.clone()).collect(),
            earned: attached
                .filter(|_| settings.mode == Mode::On)
                .and_then(|attached| books(&attached.earned, attached)),
            would_earn: attached.filter(|_| settings.mode == Mode::Observe).map(|attached| WouldEarn {
                earned: books(&attached.would_earn, attached),
                nr_offline: self.shadow.nr_off(),
                woken_slices: self.would_wake,
                dropped_bytes: dropped(attached),
                most_at_risk_joules: risk(attached),
            }),
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
