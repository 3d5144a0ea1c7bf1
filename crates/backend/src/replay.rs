//! A saved machine as a [`Backend`]: what `ramslice --from FILE` shows, and what tests run against.
//!
//! Requests are carried out on the copy in memory by the rules below, which are simpler than
//! the kernel's: no page is ever pinned, prices are exact, and nothing takes time. The file
//! is never written.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Budget, Bytes, ContentsDetail,
    MachineState, Pages, Price, PriceParameter, Reason, Request, RequestOp, RequestOutcome,
    SCHEMA_VERSION, Slice, SliceContents, SliceCounters, SliceId, SliceSnapshot, SliceState, Zone,
};
use rustix::io::Errno;

use crate::error::ReplayError;

/// A machine read from a file.
pub struct ReplayBackend {
    machine: Mutex<MachineState>,
    changed: Condvar,
    /// What was done for slices, where that was saved, too.
    work: Mutex<Option<ramslice_types::WorkCounters>>,
}

impl ReplayBackend {
    /// Replays `machine`.
    pub fn new(machine: MachineState) -> Self {
        Self::with_work(machine, None)
    }

    /// Replays `machine`, which also tells what had been done for slices by then.
    pub fn with_work(machine: MachineState, work: Option<ramslice_types::WorkCounters>) -> Self {
        Self { machine: Mutex::new(machine), changed: Condvar::new(), work: Mutex::new(work) }
    }

    /// Reads what `ramslice status --json` wrote.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ReplayError::Read { path, source }),
        };
        let machine: MachineState = match serde_json::from_str(&text) {
            Ok(machine) => machine,
            Err(source) => return Err(ReplayError::Parse { path, source }),
        };
        match (machine.schema_version, machine.check()) {
            (SCHEMA_VERSION, Ok(())) => Ok(Self::new(machine)),
            (SCHEMA_VERSION, Err(what)) => Err(ReplayError::Absurd { path, what }),
            (found, _) => Err(ReplayError::Schema { path, found, known: SCHEMA_VERSION }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        // A panic elsewhere leaves the machine as it was: changes are made on a copy.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, Option<ramslice_types::WorkCounters>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds what a request did.
fn count(done: &mut ramslice_types::WorkCounters, request: &Request, outcome: &RequestOutcome) {
    if request.op.wakes() {
        done.woken_slices += u64::from(outcome.slices_done);
        return;
    }
    done.tried_slices += u64::from(outcome.slices_done + outcome.slices_failed);
    done.emptied_slices += u64::from(outcome.slices_done);
    done.migrated_pages += outcome.migrated;
    done.target_free_pages += outcome.migrated;
    done.dropped_pages += outcome.dropped;
    done.price_predicted += outcome.price_predicted;
    done.price_measured += outcome.price_measured;
}

impl Backend for ReplayBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        Ok(self.lock().info.clone())
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(self.lock().zones.clone())
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.lock().snapshot.clone())
    }

    fn contents(
        &self,
        slice: SliceId,
        _detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        let machine = self.lock();
        machine.contents.iter().find(|contents| contents.slice == slice).cloned().ok_or_else(|| {
            let message = format!(
                "the saved machine does not tell the pages of slice {slice}: save it with \
                 `ramslice status --json --pages {slice}`"
            );
            BackendError::new(BackendErrorKind::NotFound, message)
        })
    }

    fn work(&self) -> Result<ramslice_types::WorkCounters, BackendError> {
        let message = "the saved machine does not tell what was done for slices: a recording made by root does";
        self.done().ok_or_else(|| BackendError::new(BackendErrorKind::Unsupported, message))
    }

    fn machine(&self) -> Result<MachineState, BackendError> {
        Ok(self.lock().clone())
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        request.refuse_hold("nothing wakes in a saved machine")?;
        let mut machine = self.lock();
        let mut work =
            Work { machine: machine.clone(), request, outcome: RequestOutcome::default() };
        work.run()?;
        if !request.dry_run {
            *machine = work.machine;
            if let Some(done) = self.done().as_mut() {
                count(done, request, &work.outcome);
            }
            self.changed.notify_all();
        }
        Ok(work.outcome)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        let machine = self.lock();
        let before = machine.info.event_seq;
        let (machine, _) = self
            .changed
            .wait_timeout_while(machine, timeout, |machine| machine.info.event_seq == before)
            .unwrap_or_else(PoisonError::into_inner);
        let now = machine.info.event_seq;
        Ok((now != before).then_some(now))
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        Ok(self.lock().info.slice_bytes)
    }

    fn set_slice_bytes(&self, _size: Bytes) -> Result<(), BackendError> {
        Err(BackendError::new(
            BackendErrorKind::Unsupported,
            "a saved machine keeps its slice size",
        ))
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.lock().price_parameters.get(&parameter).copied().ok_or_else(|| {
            let message = format!("the saved machine has no price parameter {}", parameter.name());
            BackendError::new(BackendErrorKind::NotFound, message)
        })
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.lock().price_parameters.insert(parameter, value);
        Ok(())
    }
}

/// One request on a copy of the machine.
struct Work<'a> {
    machine: MachineState,
    request: &'a Request,
    outcome: RequestOutcome,
}

impl Work<'_> {
    fn run(&mut self) -> Result<(), BackendError> {
        match self.request.op {
            RequestOp::Offline(id) => {
                let at = self.find(id)?;
                let result = self.offline(at);
                self.single(id, result);
            }
            RequestOp::Online(id) => {
                let at = self.find(id)?;
                let result = self.online(at);
                self.single(id, result);
            }
            RequestOp::Compact => self.sweep(false),
            RequestOp::OfflineFree => self.sweep(true),
            RequestOp::OnlineAll => {
                for at in self.candidates() {
                    if self.online(at).is_ok() {
                        self.done(at);
                    }
                }
            }
        }
        Ok(())
    }

    fn find(&self, id: SliceId) -> Result<usize, BackendError> {
        self.machine.snapshot.slices.iter().position(|slice| slice.id == id).ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::NotFound,
                format!("the saved machine has no slice {id}"),
            )
        })
    }

    /// Slices in the request's node and zone, cheapest first.
    fn candidates(&self) -> Vec<usize> {
        let slices = &self.machine.snapshot.slices;
        let wanted = |slice: &Slice| {
            self.request.node.is_none_or(|node| node == slice.node)
                && self.request.zone.is_none_or(|zone| zone == slice.zone)
        };
        let mut found: Vec<usize> = (0..slices.len()).filter(|&at| wanted(&slices[at])).collect();
        found.sort_by_key(|&at| (slices[at].price, slices[at].id));
        found
    }

    fn single(&mut self, id: SliceId, result: Result<(), Reason>) {
        self.outcome.last_slice = Some(id);
        match result {
            Ok(()) => self.outcome.slices_done = 1,
            Err(reason) => {
                // In the wrong state, nothing was tried.
                self.outcome.slices_failed = u32::from(reason != Reason::State);
                self.outcome.reason = reason;
                self.outcome.status_errno = errno_of(reason);
            }
        }
    }

    fn done(&mut self, at: usize) {
        self.outcome.slices_done += 1;
        self.outcome.last_slice = Some(self.machine.snapshot.slices[at].id);
    }

    /// Empties slices by ascending price until the limits end it.
    fn sweep(&mut self, only_empty: bool) {
        for at in self.candidates() {
            if self.request.max_slices.is_some_and(|most| self.outcome.slices_done >= most) {
                break;
            }
            if only_empty && !self.machine.snapshot.slices[at].is_empty() {
                continue;
            }
            match self.offline(at) {
                Ok(()) => self.done(at),
                Err(reason @ (Reason::OverBudget | Reason::AwakeReserve | Reason::NoRoom)) => {
                    self.outcome.reason = reason;
                    break;
                }
                Err(_) => {}
            }
        }
    }

    fn offline(&mut self, at: usize) -> Result<(), Reason> {
        let frames = self.machine.info.slice_pages();
        let slice = &self.machine.snapshot.slices[at];
        let parts = slice.composition(frames);
        let known = |fallback| if slice.reason == Reason::None { fallback } else { slice.reason };
        if slice.state == SliceState::Quarantined {
            return Err(Reason::Quarantined);
        }
        if slice.state != SliceState::Online {
            return Err(Reason::State);
        }
        if slice.unreclaimable || parts.unmovable > Pages::ZERO {
            return Err(known(Reason::Unmovable));
        }
        if slice.backoff && !self.request.ignore_backoff {
            return Err(Reason::Backoff);
        }
        let (price, present) = (slice.price, slice.present);
        if let Budget::Limited(budget) = self.request.budget {
            let spent =
                if self.request.per_slice { Price::ZERO } else { self.outcome.price_predicted };
            if spent + price > budget {
                return Err(Reason::OverBudget);
            }
        }
        if let Some(zone) = self.machine.zone_of(slice)
            && zone.free_pages < zone.awake_reserve_pages + parts.free + parts.movable
        {
            return Err(Reason::AwakeReserve);
        }
        self.migrate(at, parts.movable)?;
        self.outcome.price_predicted += price;
        if !self.request.dry_run {
            self.outcome.price_measured += price;
            self.outcome.migrated += parts.movable;
            self.outcome.dropped += parts.freeable;
        }
        self.switch(at, SliceState::Offline, SliceCounters::default(), |zone| {
            zone.free_pages = zone.free_pages - parts.free - parts.movable;
            zone.offline_pages += present;
        });
        Ok(())
    }

    fn online(&mut self, at: usize) -> Result<(), Reason> {
        let slice = &self.machine.snapshot.slices[at];
        if slice.state != SliceState::Offline {
            return Err(if slice.state == SliceState::Quarantined {
                Reason::Quarantined
            } else {
                Reason::State
            });
        }
        let present = slice.present;
        let counters = SliceCounters { free: present, ..SliceCounters::default() };
        self.switch(at, SliceState::Online, counters, |zone| {
            zone.free_pages += present;
            zone.offline_pages = zone.offline_pages - present;
        });
        Ok(())
    }

    /// Moves pages into the dearest other slices of the same zone.
    fn migrate(&mut self, from: usize, pages: Pages) -> Result<(), Reason> {
        let slices = &mut self.machine.snapshot.slices;
        let (node, zone) = (slices[from].node, slices[from].zone);
        let mut targets: Vec<usize> = (0..slices.len())
            .filter(|&at| at != from && slices[at].node == node && slices[at].zone == zone)
            .filter(|&at| slices[at].state == SliceState::Online && !slices[at].is_empty())
            .collect();
        targets.sort_by_key(|&at| Reverse((slices[at].price, slices[at].id)));
        let room: Pages = targets.iter().map(|&at| slices[at].counters.free).sum();
        if room < pages {
            return Err(Reason::NoRoom);
        }
        let mut left = pages;
        for at in targets {
            let counters = &mut slices[at].counters;
            let step = left.min(counters.free);
            counters.free = counters.free - step;
            counters.lru_anon += step;
            counters.anon_mapped += step;
            left = left - step;
        }
        Ok(())
    }

    /// Gives a slice its new state and content, and keeps the totals true.
    fn switch(
        &mut self,
        at: usize,
        state: SliceState,
        counters: SliceCounters,
        books: impl Fn(&mut Zone),
    ) {
        let slice = &mut self.machine.snapshot.slices[at];
        (slice.state, slice.counters, slice.reason) = (state, counters, Reason::None);
        let (node, number) = (slice.node, slice.zone);
        let of_zone = |slice: &&Slice| slice.node == node && slice.zone == number;
        let count = |wanted: &dyn Fn(&Slice) -> bool| {
            self.machine
                .snapshot
                .slices
                .iter()
                .filter(of_zone)
                .filter(|slice| wanted(slice))
                .count() as u32
        };
        let empty = count(&Slice::is_empty);
        let offline = count(&|slice: &Slice| slice.state == SliceState::Offline);
        let mut zones = self.machine.zones.iter_mut();
        if let Some(zone) = zones.find(|zone| zone.node == node && zone.zone == number) {
            books(zone);
            (zone.nr_empty, zone.nr_offline) = (empty, offline);
        }
        let info = &mut self.machine.info;
        info.free_pages = self.machine.zones.iter().map(|zone| zone.free_pages).sum();
        info.offline_pages = self.machine.zones.iter().map(|zone| zone.offline_pages).sum();
        // As in the kernel: through emptying or waking to the new state.
        info.event_seq += 2;
        self.machine.snapshot.event_seq = info.event_seq;
    }
}

fn errno_of(reason: Reason) -> u32 {
    let errno = match reason {
        Reason::NoRoom | Reason::AwakeReserve => Errno::NOSPC,
        Reason::OverBudget => Errno::DQUOT,
        Reason::Backoff => Errno::AGAIN,
        _ => Errno::BUSY,
    };
    errno.raw_os_error().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{NodeId, ZoneIndex, ZoneNumber};

    /// Two empty slices, one half full, one with slab, one offline; 100 pages each.
    fn backend() -> ReplayBackend {
        let slice = |id: u32, state, free: u64, anon: u64, price| Slice {
            id: SliceId(id),
            state,
            reason: Reason::None,
            unreclaimable: false,
            backoff: false,
            unmovable: false,
            node: NodeId(0),
            zone: ZoneNumber(2),
            present: Pages(100),
            price: Price(price),
            counters: SliceCounters {
                free: Pages(free),
                lru_anon: Pages(anon),
                ..SliceCounters::default()
            },
            retry_ms: 0,
            held: false,
        };
        let mut slices = vec![
            slice(0, SliceState::Online, 40, 20, 900),
            slice(1, SliceState::Online, 50, 50, 500),
            slice(2, SliceState::Online, 100, 0, 10),
            slice(3, SliceState::Online, 100, 0, 10),
            slice(4, SliceState::Offline, 0, 0, 10),
        ];
        (slices[0].reason, slices[0].unmovable) = (Reason::Slab, true);
        let zone = Zone {
            index: ZoneIndex(0),
            node: NodeId(0),
            zone: ZoneNumber(2),
            name: "Normal".to_owned(),
            nr_slices: 5,
            nr_empty: 2,
            nr_offline: 1,
            nr_quarantined: 0,
            nr_held: 0,
            managed_pages: Pages(500),
            free_pages: Pages(290),
            offline_pages: Pages(100),
            awake_reserve_pages: Pages(20),
            low_wmark_pages: Pages(5),
            woken_by_demand: 0,
        };
        ReplayBackend::new(MachineState {
            schema_version: SCHEMA_VERSION,
            info: BackendInfo {
                abi_version: 1,
                page_bytes: Bytes(4096),
                pageblock_bytes: Bytes(409_600),
                slice_bytes: Bytes(409_600),
                chunk_bytes: Bytes(409_600),
                nr_slices: 5,
                nr_zones: 1,
                event_seq: 0,
                managed_pages: Pages(500),
                free_pages: Pages(290),
                offline_pages: Pages(100),
                quarantined_pages: Pages(0),
                held_pages: Pages(0),
                power_driver: "simulated".to_owned(),
                clock_khz: None,
            },
            zones: vec![zone],
            snapshot: SliceSnapshot { event_seq: 0, time: Duration::ZERO, slices },
            price_parameters: [].into(),
            contents: Vec::new(),
        })
    }

    #[test]
    fn an_offlined_slice_leaves_free_memory_and_comes_back() {
        let backend = backend();
        let done = backend.request(&Request::new(RequestOp::Offline(SliceId(2)))).unwrap();
        assert_eq!((done.status_errno, done.slices_done), (0, 1));
        let info = backend.info().unwrap();
        assert_eq!((info.free_pages, info.offline_pages), (Pages(190), Pages(200)));
        backend.request(&Request::new(RequestOp::Online(SliceId(2)))).unwrap();
        let info = backend.info().unwrap();
        assert_eq!((info.free_pages, info.offline_pages), (Pages(290), Pages(100)));
    }

    #[test]
    fn a_refusal_gives_the_slices_own_reason() {
        let backend = backend();
        let refused = backend.request(&Request::new(RequestOp::Offline(SliceId(0)))).unwrap();
        assert_eq!((refused.slices_failed, refused.reason), (1, Reason::Slab));
        let twice = backend.request(&Request::new(RequestOp::Offline(SliceId(4)))).unwrap();
        assert_eq!(twice.reason, Reason::State);
        let unknown = backend.request(&Request::new(RequestOp::Offline(SliceId(9)))).unwrap_err();
        assert_eq!(unknown.kind(), BackendErrorKind::NotFound);
    }

    #[test]
    fn compaction_keeps_to_budget_reserve_and_room() {
        let compact = |budget| Request { budget, ..Request::new(RequestOp::Compact) };
        let cheap = backend().request(&compact(Budget::Limited(Price(15)))).unwrap();
        assert_eq!((cheap.slices_done, cheap.reason), (1, Reason::OverBudget));
        // Slices 2 and 3 leave 90 free pages; slice 1 needs 50 + 50 of them and 20 stay awake.
        let all = backend().request(&compact(Budget::Unlimited)).unwrap();
        assert_eq!((all.slices_done, all.reason), (2, Reason::AwakeReserve));
    }

    #[test]
    fn a_dry_run_changes_nothing() {
        let backend = backend();
        let before = backend.machine().unwrap();
        let request = Request { dry_run: true, ..Request::new(RequestOp::Compact) };
        assert_eq!(backend.request(&request).unwrap().slices_done, 2);
        assert_eq!(backend.machine().unwrap(), before);
    }
}
