//! A saved machine as a [`Backend`]: what `ramslice --from FILE` shows, and what tests run against.
//!
//! Requests are carried out on the copy in memory by the rules of [`crate::whatif`]. The file is
//! never written.

use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, MachineState,
    Price, PriceParameter, Request, RequestOutcome, SCHEMA_VERSION, SliceContents, SliceId,
    SliceSnapshot, SliceState, WorkCounters, Zone,
};

use crate::error::ReplayError;
use crate::whatif::{MachineCopy, carry_out};

/// A machine read from a file.
pub struct ReplayBackend {
    machine: Mutex<MachineState>,
    state_change: Condvar,
    /// What was done for slices, where that was saved, too.
    work: Mutex<Option<WorkCounters>>,
}

impl ReplayBackend {
    /// Replays `machine`.
    pub fn new(machine: MachineState) -> Self {
        Self::with_work(machine, None)
    }

    /// Replays `machine`, which also holds the work done for slices by then.
    pub fn with_work(machine: MachineState, work: Option<WorkCounters>) -> Self {
        Self { machine: Mutex::new(machine), state_change: Condvar::new(), work: Mutex::new(work) }
    }

    /// Reads what `ramslice status --json` wrote.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ReplayError::Read { path, source }),
        };
        let mut machine: MachineState = match serde_json::from_str(&text) {
            Ok(machine) => machine,
            Err(source) => return Err(ReplayError::Parse { path, source }),
        };
        // Another program may have sorted them otherwise; reports look them up by id.
        machine.snapshot.slices.sort_by_key(|slice| slice.id);
        match (machine.schema_version, machine.check()) {
            (SCHEMA_VERSION, Ok(())) => Ok(Self::new(machine)),
            (SCHEMA_VERSION, Err(what)) => Err(ReplayError::Absurd { path, figure: what }),
            (found, _) => Err(ReplayError::Schema { path, found, known_version: SCHEMA_VERSION }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        // A panic elsewhere leaves the machine as it was: changes are made on a copy.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_of(&self) -> MutexGuard<'_, Option<WorkCounters>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds what a request did.
pub(crate) fn add_to_work(done: &mut WorkCounters, request: &Request, outcome: &RequestOutcome) {
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

/// Slices that are offline, cheapest first.
fn offline_slices(machine: &MachineCopy) -> Vec<SliceId> {
    let slices = machine.snapshot.slices.iter();
    let mut offline: Vec<_> = slices
        .filter(|slice| slice.state == SliceState::Offline)
        .map(|slice| (slice.price, slice.id))
        .collect();
    offline.sort_unstable();
    offline.into_iter().map(|(_, id)| id).collect()
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
                "the saved machine does not have the pages of slice {slice}: save it with \
                 `ramslice status --json --pages {slice}`"
            );
            BackendError::new(BackendErrorKind::NotFound, message)
        })
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        let message = "the saved machine does not record what was done for slices: a recording \
                       made by root does";
        self.work_of().ok_or_else(|| BackendError::new(BackendErrorKind::Unsupported, message))
    }

    fn machine(&self) -> Result<MachineState, BackendError> {
        Ok(self.lock().clone())
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        request.refuse_hold("nothing wakes in a saved machine")?;
        let mut machine = self.lock();
        let mut copy = MachineCopy {
            info: machine.info.clone(),
            zones: machine.zones.clone(),
            snapshot: machine.snapshot.clone(),
            headroom: None,
        };
        let wakeable = offline_slices(&copy);
        let outcome = carry_out(&mut copy, request, &wakeable)?.outcome;
        if !request.dry_run {
            let MachineCopy { info, zones, snapshot, .. } = copy;
            (machine.info, machine.zones, machine.snapshot) = (info, zones, snapshot);
            if let Some(done) = self.work_of().as_mut() {
                add_to_work(done, request, &outcome);
            }
            self.state_change.notify_all();
        }
        Ok(outcome)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        let machine = self.lock();
        let before = machine.info.event_seq;
        let (machine, _) = self
            .state_change
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

#[cfg(test)]
mod tests {
    use ramslice_types::{
        Budget, NodeId, Pages, Reason, RequestOp, Slice, SliceCounters, ZoneIndex, ZoneNumber,
    };

    use super::*;

    /// Two empty slices, one half full, one with slab, one offline; 100 pages each.
    fn backend() -> ReplayBackend {
        let slice = |id: u32, state, free: u64, anon: u64, price| Slice {
            state,
            price: Price(price),
            counters: SliceCounters {
                free: Pages(free),
                lru_anon: Pages(anon),
                ..SliceCounters::default()
            },
            zone: ZoneNumber(2),
            ..Slice::unread(SliceId(id), Pages(100))
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
                interleave: None,
                segments: Vec::new(),
                chunk_bytes: Bytes(409_600),
                nr_slices: 5,
                nr_zones: 1,
                event_seq: 0,
                managed_pages: Pages(500),
                free_pages: Pages(290),
                offline_pages: Pages(100),
                quarantined_pages: Pages(0),
                held_pages: Pages(0),
                resting_bytes: Bytes(0),
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
    fn slices_of_a_file_are_found_in_whatever_order_they_are_saved() {
        let mut machine = backend().machine().unwrap();
        machine.snapshot.slices.sort_by_key(|slice| (slice.price, std::cmp::Reverse(slice.id)));
        let file = tempfile::NamedTempFile::new().unwrap();
        serde_json::to_writer(&file, &machine).unwrap();
        let backend = ReplayBackend::open(file.path()).unwrap();
        let slices = backend.snapshot().unwrap().slices;
        for id in 0..5 {
            assert!(slices.binary_search_by_key(&SliceId(id), |slice| slice.id).is_ok(), "{id}");
        }
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
