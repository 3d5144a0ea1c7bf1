//! Carries out requests: the cheapest slices first, within a budget and a deadline, and each slice
//! completely or not at all.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ramslice_types::{
    Budget, Bytes, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId, SliceState,
    WorkCounters,
};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::blocks::{self, BlockState, file};
use super::driver_silence::DriverSilence;
use super::hotplug_state::HotplugState;
use super::page_scan::{self, PageScan, ScannedSlice};
use super::place_margins::{MemoryPlace, PlaceMargins, SliceLoss};
use super::price;
use super::request_limits::{BlockEmptying, RequestLimits};
use super::system_files::{RequestLock, SystemFiles, read_proc};
use super::zones::keeps_reserves;
use super::{HotplugBackend, lock};
use crate::error::{FileAccess, KernelError};
use crate::readers::VmstatCounters;
use crate::readers::sysfs::failed;
use crate::sys::alarm;

/// The deadline of a request that names none, as in the patched kernel.
const DEADLINE: Duration = Duration::from_mins(1);

/// If at most one in this many used pages stays in a block, the block could not be emptied because
/// of pinned pages.
const PINNED_SHARE: usize = 8;

/// Takes the lock that every request which switches blocks holds.
pub(super) fn lock_requests(system: &dyn SystemFiles) -> Result<RequestLock, KernelError> {
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
    let _held = if request.dry_run { None } else { Some(lock_requests(system)?) };
    if !request.dry_run {
        check_blocks_are_writable(system)?;
    }
    let began = system.now();
    let takes = !request.dry_run && !request.op.wakes();
    if takes && !backend.segments_compared.swap(true, Ordering::Relaxed) {
        backend.warn_of_partial_segments(backend.slice_size()?);
    }
    let floor = if takes { backend.floor()? } else { Bytes(0) };
    let mut limits = RequestLimits::new(backend, floor);
    let scan = match scan_for(backend, request, &limits) {
        // A guard that wants memory does not wait for a scan.
        Err(_) if !request.op.wakes() && limits.is_memory_needed() => {
            return Ok(pressure_outcome(request));
        }
        scan => scan?,
    };
    // On a large machine the scan alone may take longer than the deadline, which limits only what
    // happens to slices.
    limits.end = system.now() + request.deadline.unwrap_or(DEADLINE);
    let (outcome, spent, work) = (RequestOutcome::default(), Price::ZERO, WorkCounters::default());
    let margins = scan.margins();
    let mut run = RequestRun {
        backend,
        system,
        request,
        place,
        scan,
        margins,
        outcome,
        spent_price: spent,
        limits: &limits,
        wake_silence: DriverSilence::default(),
        off_silence: DriverSilence::default(),
        work,
    };
    for number in run.scan.blocks_online_again() {
        run.scan.saved_state.blocks.remove(&number);
    }
    let result = run.carry_out();
    run.outcome.elapsed = system.now().saturating_sub(began);
    if !request.dry_run {
        run.save_state()?;
    }
    if run.scan.complete {
        *lock(&backend.last_scan) = Some(run.scan);
    }
    result.map(|()| run.outcome)
}

/// Scans what a request needs: the pages of the slices that it may empty. A recent scan is used
/// again; each slice is read again before it is emptied.
fn scan_for(
    backend: &HotplugBackend,
    request: &Request,
    limits: &RequestLimits<'_>,
) -> Result<PageScan, KernelError> {
    if request.op.wakes() {
        return backend.read_blocks();
    }
    let named = matches!(request.op, RequestOp::Offline(_));
    // A scan of one slice is short, and shows why that slice stays online.
    let wanted = || if named { backend.is_wake_pending() } else { limits.is_memory_needed() };
    let goes_on = || !wanted() && (backend.may_continue)();
    if let Some(scan) = backend.reusable_scan(&goes_on)? {
        return Ok(scan);
    }
    let wanted = |scan: &PageScan, part: &ScannedSlice| match request.op {
        RequestOp::Offline(id) => part.id == id,
        _ => is_within(request, scan, part),
    };
    backend.scan_slices(wanted, &goes_on)
}

/// Fails if blocks cannot be switched: in most containers, for instance.
pub(super) fn check_blocks_are_writable(system: &dyn SystemFiles) -> Result<(), KernelError> {
    let Some(first) = blocks::numbers(system)?.into_iter().next() else { return Ok(()) };
    let path = file(first, "state");
    system
        .check_writable(&path)
        .map_err(|source| failed(system.path(&path), FileAccess::Write, source))
}

/// The outcome of a request that gave way before it did anything.
fn pressure_outcome(request: &Request) -> RequestOutcome {
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
fn is_within(request: &Request, scan: &PageScan, part: &ScannedSlice) -> bool {
    request.node.is_none_or(|node| node == part.node)
        && request.zone.is_none_or(|zone| zone == scan.zone_number(part))
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
    pub(super) scan: PageScan,
    /// The margins at the time of the scan: a request does not change the sizes of places.
    pub(super) margins: PlaceMargins,
    pub(super) outcome: RequestOutcome,
    /// The price charged to the budget so far.
    pub(super) spent_price: Price,
    pub(super) limits: &'a RequestLimits<'a>,
    pub(super) wake_silence: DriverSilence,
    off_silence: DriverSilence,
    pub(super) work: WorkCounters,
}

impl RequestRun<'_> {
    fn carry_out(&mut self) -> Result<(), KernelError> {
        match self.request.op {
            RequestOp::Offline(id) => {
                self.find(id)?;
                let part = self.scan.rescan_slice(self.system, id)?;
                let result = self.offline(&part)?;
                self.record_single(id, result);
            }
            RequestOp::Online(id) => {
                let part = self.find(id)?;
                let result = self.online(&part);
                self.record_single(id, result);
            }
            RequestOp::Compact | RequestOp::OfflineFree => self.offline_cheapest()?,
            RequestOp::OnlineAll => self.online_all()?,
        }
        Ok(())
    }

    pub(super) fn find(&self, id: SliceId) -> Result<ScannedSlice, KernelError> {
        let part = self.scan.scanned_slices.iter().find(|part| part.id == id).cloned();
        part.ok_or_else(|| KernelError::NotFound { what: format!("slice {id}") })
    }

    pub(super) fn record_single(&mut self, id: SliceId, result: Result<(), SliceRefusal>) {
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
    pub(super) fn candidates(&self) -> Result<Vec<ScannedSlice>, KernelError> {
        let fits = |part: &&ScannedSlice| is_within(self.request, &self.scan, part);
        let found: Vec<ScannedSlice> =
            self.scan.scanned_slices.iter().filter(fits).cloned().collect();
        if found.is_empty() && (self.request.node.is_some() || self.request.zone.is_some()) {
            return Err(KernelError::NotFound { what: "slice in this node and zone".to_owned() });
        }
        Ok(found)
    }

    /// Empties slices by ascending price until a limit ends the request; of equal prices, the
    /// higher address first.
    fn offline_cheapest(&mut self) -> Result<(), KernelError> {
        let only_empty = self.request.op == RequestOp::OfflineFree;
        let mut parts = self.candidates()?;
        parts.retain(|part| {
            let slice = self.scan.slice(part);
            slice.state == SliceState::Online
                && (self.request.ignore_backoff || !slice.backoff)
                && !slice.unreclaimable
                && !slice.unmovable
                && (!only_empty || slice.is_empty())
        });
        // Of equals, last those that may hold pages of the kernel.
        parts.sort_by_key(|part| (std::cmp::Reverse((part.price, part.sum.perhaps_free)), part.id));
        while let Some(part) = parts.pop() {
            if self.request.max_slices.is_some_and(|most| self.outcome.slices_done >= most) {
                return Ok(());
            }
            if let Some(reason) = self.limits.stop_reason() {
                self.stop(&SliceRefusal::new(reason), true);
                return Ok(());
            }
            // Earlier slices may have filled this one, and the scan may be some time ago. If the
            // slice costs more than expected, it goes back in the queue.
            let part = self.scan.rescan_slice(self.system, part.id)?;
            if part.sum.reason == Reason::BootMemory {
                continue;
            }
            if only_empty && !self.scan.slice(&part).is_empty() {
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
                        let is_over =
                            self.wake_silence.is_lasting() || self.off_silence.is_lasting();
                        self.stop(&stop, is_over);
                        if is_over {
                            return Ok(());
                        }
                    }
                },
            }
        }
        Ok(())
    }

    /// Decides whether a slice may be emptied, and returns its price with destinations.
    fn check_limits(
        &self,
        part: &ScannedSlice,
    ) -> Result<Result<Price, SliceRefusal>, KernelError> {
        let slice = self.scan.slice(part);
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
        let price = part.price + price::destinations(self.scan.saved_state.prices(), &part.sum);
        if let Budget::Limited(budget) = self.request.budget {
            let spent = if self.request.per_slice { Price::ZERO } else { self.spent_price };
            if spent + price > budget {
                return refuse(Reason::OverBudget);
            }
        }
        let rooms = page_scan::read_rooms(self.system, self.scan.block_pages())?;
        let free: Pages = rooms.iter().map(|zone| zone.free).sum();
        // The slice's own free pages are lost, and its content needs free pages outside the slice.
        let needed = part.sum.counters.free + part.sum.moves;
        if free < needed {
            return refuse(Reason::NoRoom);
        }
        let own = (part.node, self.scan.zone_number(part));
        if !keeps_reserves(&rooms, own, part.sum.counters.free, part.sum.moves) {
            return refuse(Reason::AwakeReserve);
        }
        let available = page_scan::available(self.system)?;
        let margin = HotplugBackend::margin_of(self.scan.managed().bytes(self.scan.page_bytes));
        let lost = part.sum.present.bytes(self.scan.page_bytes);
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
        if !self.margins.allow_loss(&rooms, margin.pages(self.scan.page_bytes), &going) {
            debug!("too little would stay available to a node or to the kernel");
            return refuse(Reason::AwakeReserve);
        }
        Ok(Ok(price))
    }

    /// Empties a slice and takes it offline, or leaves all its blocks as they were.
    fn offline(&mut self, part: &ScannedSlice) -> Result<Result<(), SliceRefusal>, KernelError> {
        let price = match self.check_limits(part)? {
            Ok(price) => price,
            Err(stop) => return Ok(Err(stop)),
        };
        self.outcome.price_predicted += price;
        self.spent_price += price;
        if self.request.dry_run {
            self.outcome.slices_to_drain += u32::from(part.sum.perhaps_free > Pages::ZERO);
            return Ok(Ok(()));
        }
        let (cpu, moved) = (self.system.cpu_time(), self.migrated_pages());
        let result = self.switch_off(part);
        let cycles = self.cycles(self.system.cpu_time().saturating_sub(cpu));
        let moved = self.migrated_pages().saturating_sub(moved);
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
            Ok(()) => drop(self.scan.saved_state.failures.remove(&part.blocks[0])),
            Err(stop)
                if !matches!(stop.reason, Reason::Signal | Reason::Pressure | Reason::State) =>
            {
                self.scan.saved_state.add_failure(part.blocks[0], stop.reason, self.system.now());
            }
            Err(_) => {}
        }
        if result.is_err()
            && let Err(error) = self.scan.rescan_slice(self.system, part.id)
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
            if self.scan.blocks.get(&number).is_none_or(|block| block.state != BlockState::Online) {
                continue;
            }
            let Err(stop) = self.offline_block(number, &part.zone) else {
                gone.push(number);
                continue;
            };
            self.bring_back(&gone);
            return Err(stop);
        }
        for &number in &part.blocks {
            match blocks::state(self.system, number).ok() {
                Some(BlockState::Offline) => {}
                Some(_) => {
                    self.bring_back(&gone);
                    return Err(SliceRefusal::new(Reason::BroughtBack));
                }
                None => return Err(SliceRefusal::new(Reason::State)),
            }
        }
        let powered = self.backend.powered_blocks(&gone);
        if powered.is_empty() {
            return Ok(());
        }
        self.off_silence.add_failed_switch_off();
        warn!(
            blocks = ?powered,
            "the power driver could not switch the DRAM segment of these blocks off: see the \
             kernel log"
        );
        self.bring_back(&gone);
        Err(SliceRefusal::new(Reason::Power))
    }

    /// Gives blocks back that went offline, the last one first. One that stays offline stays saved
    /// as ours: `online --all` tries again.
    fn bring_back(&mut self, gone: &[u64]) {
        for &number in gone.iter().rev() {
            if self.wake_silence.is_lasting() {
                warn!(block = number, "a block was not brought back: the driver is silent");
            } else if let Err(error) = self.online_block(number) {
                warn!(block = number, %error, "a block did not come back");
            }
        }
    }

    /// Takes one block offline. It is saved as ours before, so that it is known if this program
    /// dies.
    fn offline_block(&mut self, number: u64, zone: &str) -> Result<(), SliceRefusal> {
        if let Some(reason) = self.limits.stop_reason() {
            return Err(SliceRefusal::new(reason));
        }
        let left = self.limits.end.saturating_sub(self.system.now());
        let users = self.scan.users(self.system, number).unwrap_or_default();
        self.scan.saved_state.blocks.insert(number, zone.to_owned());
        if let Err(error) = self.scan.saved_state.save(self.system) {
            warn!(%error, "nothing was switched");
            self.scan.saved_state.blocks.remove(&number);
            return Err(SliceRefusal { reason: Reason::None, errno: Errno::IO });
        }
        self.backend.offlining_begun.store(true, Ordering::Relaxed);
        let path = file(number, "state");
        let gives_up = !matches!(self.request.op, RequestOp::Offline(_));
        let emptying = BlockEmptying::new(self.limits, &self.scan, number, gives_up, users.len());
        let result =
            alarm::within(left, || emptying.should_end(), || self.system.write(&path, "offline"))
                .and_then(|result| result);
        let stuck = emptying.was_stuck() || alarm::has_rung();
        let Err(error) = result else {
            if let Some(block) = self.scan.blocks.get_mut(&number) {
                (block.state, block.zone) = (BlockState::Offline, None);
            }
            return Ok(());
        };
        // A write that failed half way may have taken effect all the same.
        match blocks::state(self.system, number) {
            Ok(BlockState::Offline) => drop(self.online_block(number)),
            _ => drop(self.scan.saved_state.blocks.remove(&number)),
        }
        Err(self.refusal_of(number, &error, &users, stuck))
    }

    /// Why the kernel refused, judged by its errno and by the pages that are left.
    pub(super) fn refusal_of(
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
            Errno::INTR if self.limits.is_memory_needed() => return stop(Reason::Pressure),
            Errno::INTR if self.system.now() < self.limits.end && !stuck => {
                return stop(Reason::Signal);
            }
            Errno::INTR => {
                // Nothing enters a block that is being emptied. If all but a few pages have left,
                // these are pinned.
                let after = self.scan.users(self.system, number).unwrap_or_default();
                let stayed = after.iter().filter(|&pfn| users.binary_search(pfn).is_ok()).count();
                self.outcome.failed += Pages(stayed as u64);
                let few = stayed > 0 && stayed * PINNED_SHARE <= users.len().max(PINNED_SHARE);
                return match () {
                    () if few => stop(Reason::Pinned),
                    // Not one could leave: VFIO and io_uring pin all that a program has.
                    () if stuck && stayed == users.len() => stop(Reason::Pinned),
                    () if stuck => SliceRefusal::new(Reason::Migration),
                    () => SliceRefusal::new(Reason::Deadline),
                };
            }
            Errno::NOMEM => return SliceRefusal::new(Reason::NoRoom),
            Errno::AGAIN => return stop(Reason::Isolated),
            // The block is gone, or has holes or two zones.
            Errno::NOENT | Errno::NODEV => return stop(Reason::State),
            Errno::INVAL => return stop(Reason::Hole),
            Errno::BUSY => {}
            Errno::PERM if self.is_kept_since_boot(number) => {
                self.keep_boot_blocks(number);
                return stop(Reason::BootMemory);
            }
            // A driver that listens to memory hotplug refused: NOTIFY_BAD is EPERM, and it may have
            // an errno of its own.
            _ => return stop(Reason::Power),
        }
        let sum = self.scan.block_sum(self.system, number).unwrap_or_default();
        self.outcome.failed += sum.staying + sum.unknown_use;
        match sum.reason {
            Reason::None if sum.unknown_use > Pages::ZERO => stop(Reason::Unmovable),
            Reason::None => stop(Reason::Migration),
            reason => stop(reason),
        }
    }

    pub(super) fn offline_blocks(&self, part: &ScannedSlice) -> Vec<u64> {
        let off = |number: &&u64| self.scan.blocks[number].state == BlockState::Offline;
        part.blocks.iter().filter(off).copied().collect()
    }

    /// Pages that the kernel has migrated so far, for any purpose.
    fn migrated_pages(&self) -> Pages {
        let number = read_proc::<VmstatCounters>(self.system, "proc/vmstat")
            .ok()
            .and_then(|vmstat| vmstat.get("pgmigrate_success"));
        Pages(number.unwrap_or(0))
    }

    /// CPU time in units of 100 cycles of one clock.
    pub(super) fn cycles(&mut self, time: Duration) -> Price {
        let clock_khz = *self.scan.saved_state.clock_khz.get_or_insert(self.backend.clock_khz);
        Price(
            u64::try_from(time.as_nanos() * u128::from(clock_khz) / 100_000_000)
                .unwrap_or(u64::MAX),
        )
    }

    /// Saves what the request did.
    pub(super) fn save_state(&mut self) -> Result<(), KernelError> {
        let before = self.scan.saved_state.work.unwrap_or_default();
        self.scan.saved_state.work = Some(before.plus(&self.work));
        let store: &HotplugState = &self.scan.saved_state;
        store.save(self.system)
    }
}
