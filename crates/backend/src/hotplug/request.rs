//! Carries out requests: the cheapest slices first, within a budget and a deadline, and each slice
//! completely or not at all.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use procfs_core::VmStat;
use ramslice_types::{
    Budget, Bytes, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId, SliceState,
    WorkCounters,
};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::blocks::{self, BlockState, file};
use super::hotplug_state::HotplugState;
use super::page_scan::{self, PageScan, ScannedSlice};
use super::place_margins::{MemoryPlace, PlaceMargins, SliceLoss};
use super::price;
use super::request_limits::{BlockEmptying, RequestLimits};
use super::system_files::{RequestLock, SystemFiles, read_proc};
use super::zones::keeps_reserves;
use super::{HotplugBackend, lock};
use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;
use crate::sys::alarm;

/// The deadline of a request that names none, as in the patched kernel.
const DEADLINE: Duration = Duration::from_mins(1);

/// If at most one in this many used pages stays in a block, the block could not be emptied because
/// of pinned pages.
const PINNED_SHARE: usize = 8;

/// Takes the lock that every request which switches blocks holds.
pub(super) fn alone(system: &dyn SystemFiles) -> Result<RequestLock, KernelError> {
    let path = super::system_files::STATE;
    match system.lock() {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(KernelError::Locked { path: system.path("run/ramslice/stock.lock") }),
        Err(source) => Err(failed(system.path(path), FileAccess::Write, source)),
    }
}

/// Carries out a request; one that wakes slices wakes only those in `place`.
pub(super) fn run(
    backend: &HotplugBackend,
    request: &Request,
    place: MemoryPlace,
) -> Result<RequestOutcome, KernelError> {
    let system = &*backend.system;
    let _held = if request.dry_run { None } else { Some(alone(system)?) };
    let began = system.now();
    let takes = !request.dry_run && !request.op.wakes();
    let floor = if takes { backend.floor()? } else { Bytes(0) };
    let mut limits = RequestLimits::new(backend, floor);
    let look = match look_for(backend, request, &limits) {
        // A guard that wants memory does not wait for a scan.
        Err(_) if !request.op.wakes() && limits.memory_is_wanted() => return Ok(given_up(request)),
        look => look?,
    };
    // On a large machine the scan alone may take longer than the deadline, which limits only what
    // happens to slices.
    limits.end = system.now() + request.deadline.unwrap_or(DEADLINE);
    let (outcome, spent, work) = (RequestOutcome::default(), Price::ZERO, WorkCounters::default());
    let margins = look.margins();
    let mut run = RequestRun {
        backend,
        system,
        request,
        place,
        look,
        margins,
        outcome,
        spent,
        limits: &limits,
        work,
    };
    for number in run.look.brought_back() {
        run.look.store.blocks.remove(&number);
    }
    let result = run.carry_out();
    run.outcome.elapsed = system.now().saturating_sub(began);
    if !request.dry_run {
        run.remember()?;
    }
    if run.look.complete {
        *lock(&backend.last) = Some(run.look);
    }
    result.map(|()| run.outcome)
}

/// Scans what a request needs: the pages of the slices that it may empty. A recent scan is used
/// again; each slice is read again before it is emptied.
fn look_for(
    backend: &HotplugBackend,
    request: &Request,
    limits: &RequestLimits<'_>,
) -> Result<PageScan, KernelError> {
    if request.op.wakes() {
        return backend.glance();
    }
    let named = matches!(request.op, RequestOp::Offline(_));
    // A scan of one slice is short, and shows why that slice stays online.
    let wanted = || if named { backend.wanted() } else { limits.memory_is_wanted() };
    let goes_on = || !wanted() && (backend.goes_on)();
    if let Some(look) = backend.standing(&goes_on)? {
        return Ok(look);
    }
    let wanted = |look: &PageScan, part: &ScannedSlice| match request.op {
        RequestOp::Offline(id) => part.id == id,
        _ => is_in(request, look, part),
    };
    backend.look_at(wanted, &goes_on)
}

/// The outcome of a request that gave way before it did anything.
fn given_up(request: &Request) -> RequestOutcome {
    let stop = SliceRefusal::new(Reason::Pressure);
    let named = if let RequestOp::Offline(id) = request.op { Some(id) } else { None };
    RequestOutcome {
        reason: stop.reason,
        status_errno: stop.errno.raw_os_error().unsigned_abs(),
        last_slice: named,
        slices_failed: u32::from(named.is_some()),
        ..RequestOutcome::default()
    }
}

/// Whether a slice is in the request's node and zone.
fn is_in(request: &Request, look: &PageScan, part: &ScannedSlice) -> bool {
    request.node.is_none_or(|node| node == part.node)
        && request.zone.is_none_or(|zone| zone == look.zone_number(part))
}

/// Why a slice keeps its state.
pub(super) struct SliceRefusal {
    pub(super) reason: Reason,
    pub(super) errno: Errno,
}

impl SliceRefusal {
    pub(super) fn new(reason: Reason) -> Self {
        let errno = match reason {
            Reason::OverBudget => Errno::DQUOT,
            Reason::NoRoom => Errno::NOSPC,
            Reason::AwakeReserve => Errno::NOMEM,
            Reason::Backoff | Reason::Pressure => Errno::AGAIN,
            Reason::Deadline => Errno::TIMEDOUT,
            Reason::Signal => Errno::INTR,
            Reason::Power => Errno::IO,
            _ => Errno::BUSY,
        };
        Self { reason, errno }
    }
}

pub(super) struct RequestRun<'a> {
    pub(super) backend: &'a HotplugBackend,
    pub(super) system: &'a dyn SystemFiles,
    pub(super) request: &'a Request,
    /// Where slices may wake.
    pub(super) place: MemoryPlace,
    pub(super) look: PageScan,
    /// The margins at the time of the scan: a request does not change the sizes of places.
    pub(super) margins: PlaceMargins,
    pub(super) outcome: RequestOutcome,
    /// The price charged to the budget so far.
    pub(super) spent: Price,
    pub(super) limits: &'a RequestLimits<'a>,
    pub(super) work: WorkCounters,
}

impl RequestRun<'_> {
    fn carry_out(&mut self) -> Result<(), KernelError> {
        match self.request.op {
            RequestOp::Offline(id) => {
                self.find(id)?;
                let part = self.look.again(self.system, id)?;
                let result = self.offline(&part)?;
                self.single(id, result);
            }
            RequestOp::Online(id) => {
                let part = self.find(id)?;
                let result = self.online(&part);
                self.single(id, result);
            }
            RequestOp::Compact | RequestOp::OfflineFree => self.sweep()?,
            RequestOp::OnlineAll => self.online_all()?,
        }
        Ok(())
    }

    pub(super) fn find(&self, id: SliceId) -> Result<ScannedSlice, KernelError> {
        let part = self.look.parts.iter().find(|part| part.id == id).cloned();
        part.ok_or_else(|| KernelError::NotFound { what: format!("slice {id}") })
    }

    pub(super) fn single(&mut self, id: SliceId, result: Result<(), SliceRefusal>) {
        self.outcome.last_slice = Some(id);
        match result {
            Ok(()) => self.outcome.slices_done = 1,
            Err(stop) => {
                // In the wrong state nothing was tried, so that nothing failed.
                self.outcome.slices_failed = u32::from(stop.reason != Reason::State);
                self.stop(&stop, true);
            }
        }
    }

    pub(super) fn stop(&mut self, stop: &SliceRefusal, fails: bool) {
        self.outcome.reason = stop.reason;
        self.outcome.status_errno =
            if fails { stop.errno.raw_os_error().unsigned_abs() } else { 0 };
    }

    /// The slices in the request's node and zone.
    pub(super) fn wanted(&self) -> Result<Vec<ScannedSlice>, KernelError> {
        let fits = |part: &&ScannedSlice| is_in(self.request, &self.look, part);
        let found: Vec<ScannedSlice> = self.look.parts.iter().filter(fits).cloned().collect();
        if found.is_empty() && (self.request.node.is_some() || self.request.zone.is_some()) {
            return Err(KernelError::NotFound { what: "slice in this node and zone".to_owned() });
        }
        Ok(found)
    }

    /// Empties slices by ascending price until a limit ends the request; of equal prices, the
    /// higher address first.
    fn sweep(&mut self) -> Result<(), KernelError> {
        let only_empty = self.request.op == RequestOp::OfflineFree;
        let mut parts = self.wanted()?;
        parts.retain(|part| {
            let slice = self.look.slice(part);
            slice.state == SliceState::Online
                && (self.request.ignore_backoff || !slice.backoff)
                && !slice.unreclaimable
                && !slice.unmovable
                && (!only_empty || slice.is_empty())
        });
        parts.sort_by_key(|part| (std::cmp::Reverse(part.price), part.id));
        while let Some(part) = parts.pop() {
            if self.request.max_slices.is_some_and(|most| self.outcome.slices_done >= most) {
                return Ok(());
            }
            if let Some(reason) = self.limits.over() {
                self.stop(&SliceRefusal::new(reason), true);
                return Ok(());
            }
            // Earlier slices may have filled this one, and the scan may be some time ago. If the
            // slice costs more than expected, it goes back in the queue.
            let part = self.look.again(self.system, part.id)?;
            if only_empty && !self.look.slice(&part).is_empty() {
                continue;
            }
            if parts.last().is_some_and(|next| next.price < part.price) {
                let at = parts.partition_point(|other| other.price > part.price);
                parts.insert(at, part);
                continue;
            }
            self.outcome.last_slice = Some(part.id);
            match self.offline(&part)? {
                Ok(()) => self.outcome.slices_done += 1,
                Err(stop) => match stop.reason {
                    // Take no more of this zone; another may have memory to spare.
                    Reason::AwakeReserve => {
                        self.stop(&stop, false);
                        parts.retain(|other| (other.node, &other.zone) != (part.node, &part.zone));
                    }
                    Reason::OverBudget | Reason::NoRoom => {
                        self.stop(&stop, false);
                        return Ok(());
                    }
                    Reason::Deadline | Reason::Signal | Reason::Pressure => {
                        self.outcome.slices_failed += 1;
                        self.stop(&stop, true);
                        return Ok(());
                    }
                    // The request continues. Unless something more important ends it, it reports
                    // the last of these failures.
                    _ => {
                        self.outcome.slices_failed += 1;
                        self.stop(&stop, false);
                    }
                },
            }
        }
        Ok(())
    }

    /// Decides whether a slice may be emptied, and returns its price with destinations.
    fn admit(&self, part: &ScannedSlice) -> Result<Result<Price, SliceRefusal>, KernelError> {
        let slice = self.look.slice(part);
        let refuse = |reason| Ok(Err(SliceRefusal::new(reason)));
        if slice.state != SliceState::Online {
            return refuse(Reason::State);
        }
        if slice.backoff && !self.request.ignore_backoff {
            return refuse(Reason::Backoff);
        }
        if slice.unreclaimable || slice.unmovable {
            return refuse(part.sum.reason);
        }
        let price = part.price + price::destinations(self.look.store.prices(), &part.sum);
        if let Budget::Limited(budget) = self.request.budget {
            let spent = if self.request.per_slice { Price::ZERO } else { self.spent };
            if spent + price > budget {
                return refuse(Reason::OverBudget);
            }
        }
        let rooms = page_scan::read_rooms(self.system, self.look.block_pages())?;
        let free: Pages = rooms.iter().map(|zone| zone.free).sum();
        // The slice's own free pages are lost, and its content needs free pages outside the slice.
        let needed = part.sum.counters.free + part.sum.moves;
        if free < needed {
            return refuse(Reason::NoRoom);
        }
        let own = (part.node, self.look.zone_number(part));
        if !keeps_reserves(&rooms, own, part.sum.counters.free, part.sum.moves) {
            return refuse(Reason::AwakeReserve);
        }
        let available = page_scan::available(self.system)?;
        let margin = HotplugBackend::margin_of(self.look.managed().bytes(self.look.page));
        let lost = part.sum.present.bytes(self.look.page);
        if available < Bytes(lost.0.saturating_add(margin.0)) {
            debug!(%available, %margin, %lost, "too little would stay available");
            return refuse(Reason::AwakeReserve);
        }
        let going = SliceLoss {
            node: part.node,
            movable: part.zone == "Movable",
            present: part.sum.present,
            cache: part.sum.counters.lru_file,
            moves: part.sum.moves,
        };
        if !self.margins.keeps(&rooms, margin.pages(self.look.page), &going) {
            debug!("too little would stay available to a node or to the kernel");
            return refuse(Reason::AwakeReserve);
        }
        Ok(Ok(price))
    }

    /// Empties a slice and takes it offline, or leaves all its blocks as they were.
    fn offline(&mut self, part: &ScannedSlice) -> Result<Result<(), SliceRefusal>, KernelError> {
        let price = match self.admit(part)? {
            Ok(price) => price,
            Err(stop) => return Ok(Err(stop)),
        };
        self.outcome.price_predicted += price;
        self.spent += price;
        if self.request.dry_run {
            return Ok(Ok(()));
        }
        let (cpu, moved) = (self.system.cpu_time(), self.migrated());
        let result = self.switch_off(part);
        let cycles = self.cycles(self.system.cpu_time().saturating_sub(cpu));
        let moved = self.migrated().saturating_sub(moved);
        self.outcome.price_measured += cycles;
        self.outcome.migrated += moved;
        self.work = self.work.plus(&WorkCounters {
            tried_slices: 1,
            emptied_slices: u64::from(result.is_ok()),
            migrated_pages: moved,
            target_free_pages: moved,
            price_predicted: price,
            price_measured: cycles,
            ..WorkCounters::default()
        });
        match &result {
            Ok(()) => drop(self.look.store.failures.remove(&part.blocks[0])),
            Err(stop)
                if !matches!(stop.reason, Reason::Signal | Reason::Pressure | Reason::State) =>
            {
                self.look.store.fail(part.blocks[0], stop.reason, self.system.now());
            }
            Err(_) => {}
        }
        if result.is_err()
            && let Err(error) = self.look.again(self.system, part.id)
        {
            // Some pages have moved all the same. What is unknown now is read again before the next
            // attempt.
            debug!(slice = part.id.0, %error, "not looked at after it failed");
        }
        Ok(result)
    }

    fn switch_off(&mut self, part: &ScannedSlice) -> Result<(), SliceRefusal> {
        let mut gone = Vec::new();
        // From the top, because a zone shrinks at its end.
        for &number in part.blocks.iter().rev() {
            if self.look.blocks.get(&number).is_none_or(|block| block.state != BlockState::Online) {
                continue;
            }
            let Err(stop) = self.block_off(number, &part.zone) else {
                gone.push(number);
                continue;
            };
            for &number in gone.iter().rev() {
                if let Err(error) = self.block_on(number) {
                    // The block stays saved as ours: `online --all` tries again.
                    warn!(block = number, %error, "a block did not come back");
                }
            }
            return Err(stop);
        }
        // Blocks that another process has brought online meanwhile are not offline.
        let off =
            |&number: &u64| blocks::state(self.system, number).ok() == Some(BlockState::Offline);
        if part.blocks.iter().all(off) { Ok(()) } else { Err(SliceRefusal::new(Reason::State)) }
    }

    /// Takes one block offline. It is saved as ours before, so that it is known if this program
    /// dies.
    fn block_off(&mut self, number: u64, zone: &str) -> Result<(), SliceRefusal> {
        if let Some(reason) = self.limits.over() {
            return Err(SliceRefusal::new(reason));
        }
        let left = self.limits.end.saturating_sub(self.system.now());
        let users = self.look.users(self.system, number).unwrap_or_default();
        self.look.store.blocks.insert(number, zone.to_owned());
        if let Err(error) = self.look.store.save(self.system) {
            warn!(%error, "nothing was switched");
            self.look.store.blocks.remove(&number);
            return Err(SliceRefusal { reason: Reason::None, errno: Errno::IO });
        }
        self.backend.takes.store(true, Ordering::Relaxed);
        let path = file(number, "state");
        let gives_up = !matches!(self.request.op, RequestOp::Offline(_));
        let emptying = BlockEmptying::new(self.limits, &self.look, number, gives_up, users.len());
        let result =
            alarm::within(left, || emptying.ends(), || self.system.write(&path, "offline"))
                .and_then(|result| result);
        let stuck = emptying.was_stuck();
        let Err(error) = result else {
            if let Some(block) = self.look.blocks.get_mut(&number) {
                (block.state, block.zone) = (BlockState::Offline, None);
            }
            return Ok(());
        };
        // A write that failed half way may have taken effect all the same.
        match blocks::state(self.system, number) {
            Ok(BlockState::Offline) => drop(self.block_on(number)),
            _ => drop(self.look.store.blocks.remove(&number)),
        }
        Err(self.why(number, &error, &users, stuck))
    }

    /// Why the kernel refused, judged by its errno and by the pages that are left.
    pub(super) fn why(
        &mut self,
        number: u64,
        error: &io::Error,
        users: &[u64],
        stuck: bool,
    ) -> SliceRefusal {
        debug!(block = number, %error, "not taken offline");
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        let stop = |reason| SliceRefusal { errno, ..SliceRefusal::new(reason) };
        match errno {
            Errno::INTR if self.limits.memory_is_wanted() => return stop(Reason::Pressure),
            Errno::INTR if self.system.now() < self.limits.end && !stuck => {
                return stop(Reason::Signal);
            }
            Errno::INTR => {
                // Nothing enters a block that is being emptied. If all but a few pages have left,
                // these are pinned.
                let after = self.look.users(self.system, number).unwrap_or_default();
                let stayed = after.iter().filter(|&pfn| users.binary_search(pfn).is_ok()).count();
                self.outcome.failed += Pages(stayed as u64);
                let few = stayed > 0 && stayed * PINNED_SHARE <= users.len().max(PINNED_SHARE);
                return match () {
                    () if few => stop(Reason::Pinned),
                    () if stuck => SliceRefusal::new(Reason::Migration),
                    () => SliceRefusal::new(Reason::Deadline),
                };
            }
            Errno::NOMEM => return SliceRefusal::new(Reason::NoRoom),
            Errno::AGAIN => return stop(Reason::Isolated),
            // The block is gone, or has holes or two zones.
            Errno::NOENT | Errno::NODEV => return stop(Reason::State),
            Errno::INVAL => return stop(Reason::Hole),
            // A driver that listens to memory hotplug refused (NOTIFY_BAD).
            Errno::PERM | Errno::IO => return stop(Reason::Power),
            _ => {}
        }
        let movable = self.look.zone_of_block(number) == Some("Movable");
        let sum = self.look.look_at(self.system, number, movable).unwrap_or_default();
        self.outcome.failed += sum.stays + sum.bare;
        match sum.reason {
            Reason::None if sum.bare > Pages::ZERO => stop(Reason::Unmovable),
            Reason::None => stop(Reason::Migration),
            reason => stop(reason),
        }
    }

    pub(super) fn offline_blocks(&self, part: &ScannedSlice) -> Vec<u64> {
        let off = |number: &&u64| self.look.blocks[number].state == BlockState::Offline;
        part.blocks.iter().filter(off).copied().collect()
    }

    /// Pages that the kernel has migrated so far, for any purpose.
    fn migrated(&self) -> Pages {
        let number = read_proc::<VmStat>(self.system, "proc/vmstat")
            .ok()
            .and_then(|vmstat| u64::try_from(*vmstat.0.get("pgmigrate_success")?).ok());
        Pages(number.unwrap_or(0))
    }

    /// CPU time in units of 100 cycles of one clock.
    pub(super) fn cycles(&mut self, time: Duration) -> Price {
        let clock_khz = *self.look.store.clock_khz.get_or_insert(self.backend.clock_khz);
        Price(
            u64::try_from(time.as_nanos() * u128::from(clock_khz) / 100_000_000)
                .unwrap_or(u64::MAX),
        )
    }

    /// Saves what the request did.
    pub(super) fn remember(&mut self) -> Result<(), KernelError> {
        let before = self.look.store.work.unwrap_or_default();
        self.look.store.work = Some(before.plus(&self.work));
        let store: &HotplugState = &self.look.store;
        store.save(self.system)
    }
}
