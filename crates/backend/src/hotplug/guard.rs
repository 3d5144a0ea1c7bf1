//! Wakes memory blocks under memory pressure from user space, because a stock kernel does not.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, Bytes, Request, RequestOp, RequestOutcome,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use super::blocks::BlockState;
use super::hotplug_state::HotplugState;
use super::place_margins::{MemoryPlace, PlaceMargins, ShortPlace};
use super::{HotplugBackend, page_scan, request};
use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// Fires when tasks have waited 50 ms of a second for memory: early, because waking takes time.
const TRIGGER: &[u8] = b"some 50000 1000000\0";

/// How often the guard reads `MemAvailable`. A program that writes 1 GiB/s takes 50 MiB meanwhile.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How often the guard looks up which blocks are offline, and how often it reads available memory
/// while none is. It notices at once what this program takes offline.
const REST: Duration = Duration::from_secs(1);

/// Tasks also stall when a cgroup reaches its own limit, which waking slices does not help. A stall
/// is a reason to wake slices only while less than this many times the floor is available.
pub(crate) const STALL_FLOORS: u64 = 2;

/// How soon the guard tries again to wake slices while another request runs.
const AGAIN: Duration = Duration::from_millis(20);

/// What made a guard wake slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WokenBy {
    /// Tasks waited for memory (`/proc/pressure/memory`).
    Stall,
    /// Only this much was available: less than the floor or, in one node or in the zones that the
    /// kernel can use, less than their share of it.
    Low(Bytes),
}

/// Why a guard woke slices, and how that went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardAction {
    /// Why.
    pub cause: WokenBy,
    /// The outcome of waking; `slices_done` is 0 if no slice was left to wake.
    pub outcome: RequestOutcome,
}

/// Where memory is short.
#[derive(Debug)]
struct MemoryShortage {
    place: MemoryPlace,
    /// What is available there.
    available: Bytes,
    /// How many slices to wake for it.
    slices: u32,
}

/// The blocks that this program has taken offline.
#[derive(Debug)]
struct OfflineBlocks {
    blocks: BTreeMap<u64, String>,
    /// The margins while these blocks are offline.
    margins: PlaceMargins,
    /// All of the blocks were offline: the file lists them before they go.
    all_offline: bool,
}

/// The kernel's trigger, if it has one.
#[derive(Debug)]
struct StallTrigger {
    file: File,
}

impl StallTrigger {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(TRIGGER)?;
        Ok(Self { file })
    }

    /// Whether tasks waited within `timeout`.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::PRI)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => Ok(fds[0].revents().contains(PollFlags::PRI)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Watches memory and wakes slices before it is short.
///
/// Limits: the guard runs in user space. If a program takes more than [`HotplugBackend::margin`]
/// between two looks, or if the guard does not get the CPU, the system reclaims, swaps and finally
/// starts the OOM killer while memory is still offline. Onlining a block also allocates a little.
/// The patched kernel has none of these limits.
pub struct HotplugGuard<'a> {
    backend: &'a HotplugBackend,
    /// Without one: why.
    trigger: Result<StallTrigger, String>,
    /// After an error the trigger is set up again, because its file may have been the cause.
    trigger_outdated: bool,
    pressure_path: PathBuf,
    floor: Bytes,
    /// Slices to wake at the next stall; doubled while stalls continue.
    step: u32,
    /// Slices still to wake for a stall that came during another request: the kernel reports a
    /// stall only once.
    missed_stall: Option<u32>,
    /// `None` if it could not be read.
    offline_blocks: Option<OfflineBlocks>,
    /// Until this time of the monotonic clock, `offline_blocks` counts as current.
    blocks_valid_until: Duration,
    /// Nothing was offline: until this time there is no need to look.
    idle_until: Duration,
}

impl Drop for HotplugGuard<'_> {
    fn drop(&mut self) {
        self.backend.wake_pending.store(false, Ordering::Relaxed);
    }
}

impl<'a> HotplugGuard<'a> {
    /// Wakes slices when less than `floor` is available, by default three quarters of the margin.
    pub fn new(backend: &'a HotplugBackend, floor: Option<Bytes>) -> Result<Self, BackendError> {
        let floor = match floor {
            Some(floor) => floor,
            None => HotplugBackend::floor_of(backend.margin()?),
        };
        let pressure = backend.system.path("proc/pressure/memory");
        let trigger = open_trigger(&pressure)?;
        debug!(%floor, psi = trigger.is_ok(), "guard");
        Ok(Self {
            backend,
            trigger,
            trigger_outdated: false,
            pressure_path: pressure,
            floor,
            step: 1,
            missed_stall: None,
            offline_blocks: None,
            blocks_valid_until: Duration::ZERO,
            idle_until: Duration::ZERO,
        })
    }

    /// How much memory the guard keeps available.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Why stalls are not noticed, so that only what is available counts; none if they are.
    pub fn stall_fault(&self) -> Option<&str> {
        self.trigger.as_ref().err().map(String::as_str)
    }

    /// Watches for at most `timeout`, and wakes slices when memory is short.
    ///
    /// While another request runs, it waits until that one ends and tries again; it returns `None`
    /// if the request outlasts `timeout`. It can continue after any error: the next call starts
    /// again. Only [`ErrorKind::Unsupported`] is permanent.
    pub fn watch(&mut self, timeout: Duration) -> Result<Option<GuardAction>, BackendError> {
        if std::mem::take(&mut self.trigger_outdated) {
            self.trigger =
                open_trigger(&self.pressure_path).inspect_err(|_| self.trigger_outdated = true)?;
        }
        let end = self.backend.system.now() + timeout;
        loop {
            match self.watch_until(end) {
                Err(error) if error.kind() == BackendErrorKind::Busy => {
                    let left = end.saturating_sub(self.backend.system.now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    self.backend.system.pause(left.min(AGAIN));
                }
                result => {
                    self.trigger_outdated = result.is_err();
                    return result;
                }
            }
        }
    }

    /// Watches until `end`, or until it wakes slices or fails to wake any.
    fn watch_until(&mut self, end: Duration) -> Result<Option<GuardAction>, BackendError> {
        if let Some(slices) = self.missed_stall
            && let Some(pressure) = self.handle_stall(slices)?
        {
            return Ok(Some(pressure));
        }
        loop {
            let now = self.backend.system.now();
            if now >= self.idle_until || self.backend.offlining_begun.load(Ordering::Relaxed) {
                let low = self.shortages(self.floor)?;
                self.idle_until = if self.nothing_is_off() { now + REST } else { Duration::ZERO };
                if let Some(MemoryShortage { available, .. }) = low.first() {
                    return self.wake(WokenBy::Low(*available), &low).map(Some);
                }
            }
            let pause =
                if self.idle_until > now { self.idle_until.saturating_sub(now) } else { LOOK };
            let left = end.saturating_sub(self.backend.system.now()).min(pause);
            let stalled = match &self.trigger {
                Ok(trigger) => {
                    let path = &self.pressure_path;
                    trigger
                        .wait(left)
                        .map_err(|source| failed(path.clone(), FileAccess::Read, source))
                }
                Err(_) => {
                    self.backend.system.pause(left);
                    Ok(false)
                }
            };
            if stalled.map_err(|error: KernelError| BackendError::from(error))?
                && let Some(pressure) = self.handle_stall(self.step)?
            {
                return Ok(Some(pressure));
            }
            if self.backend.system.now() >= end {
                self.step = 1;
                // The memory that it waited for is available again.
                self.backend.wake_pending.store(false, Ordering::Relaxed);
                return Ok(None);
            }
        }
    }

    /// Handles a stall: wakes slices if memory is short, and twice as many the next time.
    fn handle_stall(&mut self, slices: u32) -> Result<Option<GuardAction>, BackendError> {
        self.missed_stall = None;
        let mut low = self.shortages(self.floor * STALL_FLOORS)?;
        if low.is_empty() {
            debug!("tasks waited for memory, of which there is enough");
            // The guard may have set this flag for the sake of this stall.
            self.backend.wake_pending.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        self.step = (slices * 2).min(1024);
        for low in &mut low {
            low.slices = slices;
        }
        let result = self.wake(WokenBy::Stall, &low);
        let busy = result.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Busy);
        self.missed_stall = busy.then_some(slices);
        result.map(Some)
    }

    fn nothing_is_off(&self) -> bool {
        self.offline_blocks.as_ref().is_some_and(|offline| offline.blocks.is_empty())
    }

    /// Looks up which blocks are ours. The file that lists them grows with their number, so the
    /// guard does not read it at every look.
    fn update_offline_blocks(&mut self) -> Result<(), KernelError> {
        let system = &*self.backend.system;
        let now = system.now();
        let begun = self.backend.offlining_begun.swap(false, Ordering::Relaxed);
        if !begun && self.offline_blocks.is_some() && now < self.blocks_valid_until {
            return Ok(());
        }
        let before = self.offline_blocks.take();
        let ours = HotplugState::read(system)?.blocks;
        self.blocks_valid_until = now + REST;
        // Nodes and zones of blocks are looked up again only when other blocks are offline than
        // before.
        self.offline_blocks = match before
            .filter(|offline| offline.all_offline && offline.blocks == ours)
        {
            None if ours.is_empty() => Some(OfflineBlocks {
                blocks: ours,
                margins: PlaceMargins::of([]),
                all_offline: true,
            }),
            None => {
                let scan = self.backend.read_blocks()?;
                let is_offline = |number| {
                    scan.blocks.get(number).is_some_and(|block| block.state == BlockState::Offline)
                };
                let all_offline = ours.keys().all(is_offline);
                Some(OfflineBlocks { blocks: ours, margins: scan.margins(), all_offline })
            }
            before => before,
        };
        Ok(())
    }

    /// Where less than `floor` is available: in all memory, or in places from which blocks are
    /// offline. The place that is shortest comes first.
    fn shortages(&mut self, floor: Bytes) -> Result<Vec<MemoryShortage>, BackendError> {
        let update = self.update_offline_blocks();
        let available = page_scan::available(&*self.backend.system).map_err(BackendError::from)?;
        if available < floor {
            let slices = self.slices_for(Bytes(floor.0 - available.0));
            return Ok(vec![MemoryShortage { place: MemoryPlace::default(), available, slices }]);
        }
        let short = update.and_then(|()| self.short_places(floor)).unwrap_or_else(|error| {
            // The check of all memory together does not need it.
            debug!(%error, "parts of memory cannot be looked at");
            Vec::new()
        });
        let page = self.backend.page_bytes;
        let low = |short: ShortPlace| MemoryShortage {
            place: short.place,
            available: short.available.bytes(page),
            slices: self.slices_for(short.missing_pages.bytes(page)),
        };
        Ok(short.into_iter().map(low).collect())
    }

    /// Reads zones at each look: nothing else shows that a single node runs short.
    fn short_places(&self, floor: Bytes) -> Result<Vec<ShortPlace>, KernelError> {
        let Some(OfflineBlocks { margins, .. }) =
            self.offline_blocks.as_ref().filter(|offline| !offline.margins.is_empty())
        else {
            return Ok(Vec::new());
        };
        let page = self.backend.page_bytes;
        let zones =
            page_scan::read_rooms(&*self.backend.system, self.backend.block_bytes.pages(page))?;
        Ok(margins.short_places(&zones, floor.pages(page)))
    }

    /// How many slices bring this much back, and one more.
    fn slices_for(&self, missing: Bytes) -> u32 {
        let slice = self.backend.slice_bytes().map_or(self.backend.block_bytes.0, |bytes| bytes.0);
        u32::try_from(missing.0.div_ceil(slice.max(1)) + 1).unwrap_or(u32::MAX)
    }

    /// Wakes slices where memory is short. It turns to the next place only if nothing wakes in the
    /// one before: a driver may refuse.
    fn wake(
        &mut self,
        cause: WokenBy,
        low: &[MemoryShortage],
    ) -> Result<GuardAction, BackendError> {
        self.blocks_valid_until = Duration::ZERO;
        // A running request of this program that takes memory offline then ends, and frees the
        // lock.
        self.backend.wake_pending.store(true, Ordering::Relaxed);
        let result = self.wake_places(low);
        if !result.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Busy) {
            self.backend.wake_pending.store(false, Ordering::Relaxed);
        }
        let outcome = result?;
        debug!(?cause, ?low, done = outcome.slices_done, "woken");
        Ok(GuardAction { cause, outcome })
    }

    fn wake_places(&self, low: &[MemoryShortage]) -> Result<RequestOutcome, BackendError> {
        let mut all = RequestOutcome::default();
        for &MemoryShortage { place, slices, .. } in low {
            let request =
                Request { max_slices: Some(slices), ..Request::new(RequestOp::OnlineAll) };
            let one = request::run(self.backend, &request, place).map_err(BackendError::from)?;
            all.slices_done += one.slices_done;
            all.slices_failed += one.slices_failed;
            all.last_slice = one.last_slice.or(all.last_slice);
            all.elapsed += one.elapsed;
            if !one.is_ok() {
                (all.status_errno, all.reason) = (one.status_errno, one.reason);
            }
            if all.slices_done > 0 {
                break;
            }
        }
        Ok(all)
    }
}

/// The kernel's trigger on this file, or why `MemAvailable` alone has to do.
fn open_trigger(pressure: &Path) -> Result<Result<StallTrigger, String>, KernelError> {
    let source = match StallTrigger::open(pressure) {
        Ok(trigger) => return Ok(Ok(trigger)),
        Err(source) => source,
    };
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            Err(failed(pressure.to_owned(), FileAccess::Write, source))
        }
        // With psi=0 on the command line, or a kernel without PSI.
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
            Ok(Err("this kernel does not report stalls (psi=1 makes it)".to_owned()))
        }
        // Without CAP_SYS_RESOURCE, windows must be multiples of 2 s: EINVAL.
        _ => Ok(Err(format!(
            "stalls are not reported to this process, which may lack CAP_SYS_RESOURCE ({}: \
             {source})",
            pressure.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use ramslice_types::SliceId;

    use super::super::fake_machine::FakeMachine;
    use super::*;
    use crate::readers::KernelPaths;

    #[test]
    fn a_kernel_without_stalls_is_told_apart_from_one_that_refuses_to_report_them() {
        let dir = tempfile::tempdir().unwrap();
        let fault = |path: &Path| open_trigger(path).unwrap().unwrap_err();
        let absent = fault(&dir.path().join("memory"));
        assert!(absent.contains("psi=1"), "{absent}");
        // Opening a directory for writing fails even for root.
        let refused = fault(dir.path());
        assert!(refused.contains("CAP_SYS_RESOURCE") && !refused.contains("psi=1"), "{refused}");
    }

    #[test]
    fn a_guard_that_could_wake_nothing_is_refused() {
        let fake = FakeMachine::new();
        let backend = fake.backend();
        backend.check_may_switch().unwrap();
        fake.inner().read_only = true;
        let error = backend.check_may_switch().unwrap_err().to_string();
        assert!(error.contains("/state is on a file system that is mounted read-only"), "{error}");
    }

    #[test]
    fn a_stall_during_another_request_is_not_forgotten() {
        let fake = FakeMachine::new();
        let backend = HotplugBackend::with_system(
            Box::new(fake.clone()),
            KernelPaths::under("/nonexistent".as_ref()),
        )
        .unwrap();
        assert!(backend.request(&Request::new(RequestOp::Offline(SliceId(31)))).unwrap().is_ok());
        // Just above the floor: only the stall is a reason to wake slices.
        let available = page_scan::available(&*backend.system).unwrap();
        let mut guard = HotplugGuard::new(&backend, Some(Bytes(available.0 - 4096))).unwrap();
        fake.inner().lock_held = true;
        assert_eq!(guard.handle_stall(1).unwrap_err().kind(), BackendErrorKind::Busy);
        assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
        fake.inner().lock_held = false;
        let pressure = guard.watch(Duration::ZERO).unwrap().unwrap();
        assert_eq!((pressure.cause, pressure.outcome.slices_done), (WokenBy::Stall, 1));
    }

    #[test]
    fn a_stall_during_another_request_blocks_nothing_once_it_no_longer_matters() {
        let fake = FakeMachine::new();
        let backend = fake.backend();
        assert!(backend.request(&Request::new(RequestOp::Offline(SliceId(31)))).unwrap().is_ok());
        let available = page_scan::available(&*backend.system).unwrap();
        let mut guard = HotplugGuard::new(&backend, Some(Bytes(available.0 - 4096))).unwrap();
        fake.inner().lock_held = true;
        assert_eq!(guard.handle_stall(1).unwrap_err().kind(), BackendErrorKind::Busy);
        fake.inner().lock_held = false;
        guard.floor = Bytes(available.0 / STALL_FLOORS);
        assert_eq!(guard.handle_stall(1).unwrap(), None);
        assert!(!backend.is_wake_pending());
    }

    #[test]
    fn a_node_is_watched_even_if_its_only_slice_was_still_going_offline_at_the_last_look() {
        let fake = FakeMachine::new();
        fake.two_nodes(16);
        let backend = fake.backend();
        assert!(backend.request(&Request::new(RequestOp::Offline(SliceId(28)))).unwrap().is_ok());
        let mut guard = HotplugGuard::new(&backend, None).unwrap();
        let state = "sys/devices/system/memory/memory28/state";
        fake.inner().saved_files.insert(state.to_owned(), "going-offline".to_owned());
        assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
        fake.inner().saved_files.remove(state);
        (16..31)
            .filter(|block| *block != 28)
            .for_each(|block| fake.holds(block, FakeMachine::BLOCK_PAGES, 0));
        guard.blocks_valid_until = Duration::ZERO;
        assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    }

    #[test]
    fn a_stall_with_plenty_available_wakes_nothing() {
        let fake = FakeMachine::new();
        let backend = fake.backend();
        assert!(backend.request(&Request::new(RequestOp::Offline(SliceId(31)))).unwrap().is_ok());
        let available = page_scan::available(&*backend.system).unwrap();
        let mut guard =
            HotplugGuard::new(&backend, Some(Bytes(available.0 / STALL_FLOORS))).unwrap();
        assert_eq!(guard.handle_stall(1).unwrap(), None);
        assert_eq!((fake.off(), guard.step, guard.missed_stall), (vec![31], 1, None));
        guard.floor = Bytes(available.0 / STALL_FLOORS + 4096);
        assert_eq!(guard.handle_stall(1).unwrap().unwrap().cause, WokenBy::Stall);
        assert_eq!((fake.off(), guard.step), (vec![], 2));
    }
}
