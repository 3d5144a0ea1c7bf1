//! A stock kernel as a [`Backend`]: slices are groups of memory blocks, which memory hotplug takes
//! offline and online.
//!
//! The kernel needs no patch: `/sys/devices/system/memory` takes blocks offline and online, and
//! `/proc/kpageflags` and `/proc/kpagecount` show what they hold. `/run/ramslice/stock.json` stores
//! what the kernel does not: the zone that each block was in, slices that failed, the slice size.
//! The kernel notifies drivers that listen to memory hotplug of every block, and they may refuse
//! it, as with any other user of hotplug.
//!
//! A stock kernel does not wake blocks by itself: see [`HotplugGuard`].

mod blocks;
mod boot_memory;
mod cpu_frequency;
mod dram_segments;
mod driver_silence;
#[cfg(test)]
mod driver_tests;
#[cfg(any(test, feature = "fake"))]
mod fake_machine;
mod frame_uses;
mod guard;
mod hotplug_state;
#[cfg(test)]
mod limit_tests;
mod not_given;
mod page_runs;
mod page_scan;
mod page_use;
mod page_walk;
mod place_margins;
mod price;
#[cfg(test)]
mod real_machine_tests;
mod request;
mod request_limits;
mod request_wake;
mod system_files;
#[cfg(test)]
mod tests;
mod zones;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendInfo, Bytes, CacheLookups, ContentsDetail, HugePageNode,
    HugePagePool, MemoryHeadroom, NodeId, Price, PriceParameter, Request, RequestOutcome,
    SliceContents, SliceId, SliceSnapshot, SliceState, WorkCounters, Zone,
};
use rustix::event::{Timespec, poll};
use tracing::debug;

#[cfg(any(test, feature = "fake"))]
pub use fake_machine::FakeMachine;
pub use frame_uses::{FrameUse, FrameUses};
pub(crate) use guard::STALL_FLOORS;
pub use guard::{GuardAction, HotplugGuard, WokenBy};
pub(crate) use place_margins::{PlaceMargins, SliceLoss, ZoneSize};
pub(crate) use zones::{ZoneRoom, keeps_reserves};

use crate::error::KernelError;
use crate::huge_pages::HugePagePools;
use crate::readers::page_names::PageNames;
use crate::readers::page_owner;
use crate::readers::{KernelPaths, VmstatCounters};
use driver_silence::RestingSlices;
use hotplug_state::HotplugState;
use page_scan::{PageScan, ScannedSlice};
use place_margins::MemoryPlace;
use system_files::{RealFiles, SystemFiles, read_proc};

/// How often block states are read while waiting for a change: without a netlink socket there is no
/// event for it.
const POLL: Duration = Duration::from_millis(250);

/// At most a tenth of one CPU goes into scans, unless [`HotplugBackend::patient`] says otherwise.
const SCAN_REUSE_FACTOR: u32 = 10;

/// A kernel without ramslice, through memory hotplug.
pub struct HotplugBackend {
    system: Box<dyn SystemFiles>,
    paths: KernelPaths,
    names: PageNames,
    block_bytes: Bytes,
    page_bytes: Bytes,
    /// The clock of measured prices, unless others have counted by another one since boot.
    clock_khz: u64,
    /// The last scan, used again while it is recent enough.
    last_scan: Mutex<Option<PageScan>>,
    /// The states of slices last seen by [`Backend::wait_event`], and how often they have changed.
    last_states: Mutex<(u64, Vec<SliceState>)>,
    /// A [`HotplugGuard`] waits to wake slices: a request that takes memory offline gives up.
    wake_pending: AtomicBool,
    /// A request has begun to take memory offline since a [`HotplugGuard`] last looked.
    offlining_begun: AtomicBool,
    /// Slices that a silent power driver did not wake.
    resting: RestingSlices,
    /// Whether slices that are a part of a DRAM segment were reported.
    segments_compared: AtomicBool,
    /// A scan counts as recent for this many times its duration.
    scan_reuse_factor: u32,
    /// Asked before each slice whose pages are read, and while a request runs.
    may_continue: Box<dyn Fn() -> bool + Send + Sync>,
}

impl HotplugBackend {
    /// The running system's.
    pub fn open() -> Result<Self, KernelError> {
        Self::open_at(Path::new("/"))
    }

    /// The one whose `/sys`, `/proc` and `/run` are below `root`.
    pub fn open_at(root: &Path) -> Result<Self, KernelError> {
        Self::with_system(Box::new(RealFiles::under(root)), KernelPaths::under(root))
    }

    fn with_system(system: Box<dyn SystemFiles>, paths: KernelPaths) -> Result<Self, KernelError> {
        let block = blocks::block_bytes(&*system)?;
        let names = PageNames::new(&paths);
        let page = Bytes(rustix::param::page_size() as u64);
        let clock_khz = cpu_frequency::read(&*system);
        let (last, seen) = (Mutex::new(None), Mutex::new((0, Vec::new())));
        Ok(Self {
            system,
            paths,
            names,
            block_bytes: block,
            page_bytes: page,
            clock_khz,
            last_scan: last,
            last_states: seen,
            wake_pending: AtomicBool::new(false),
            offlining_begun: AtomicBool::new(false),
            resting: RestingSlices::default(),
            segments_compared: AtomicBool::new(false),
            scan_reuse_factor: SCAN_REUSE_FACTOR,
            may_continue: Box::new(|| true),
        })
    }

    /// Lets a scan of pages count as recent for `times` its duration: at most one part in so many
    /// of one CPU goes into scans. Blocks, zones and available memory are always read again, and so
    /// are the pages of a slice before it is emptied.
    #[must_use]
    pub fn with_scan_reuse(self, times: u32) -> Self {
        Self { scan_reuse_factor: times, ..self }
    }

    /// Asks `goes_on` before it reads the pages of a slice, before it takes a block offline, and
    /// meanwhile again and again; if that returns false, the scan ends with an error and the
    /// request with [`Reason::Signal`](ramslice_types::Reason::Signal). A request that begins only
    /// then is carried out: it is to clean up. A scan takes a few tenths of a second per 10 GiB.
    #[must_use]
    pub fn with_interruption(self, goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { may_continue: Box::new(goes_on), ..self }
    }

    /// Whether a guard waits to wake slices.
    fn is_wake_pending(&self) -> bool {
        self.wake_pending.load(Ordering::Relaxed)
    }

    /// Scans everything.
    fn scan(&self) -> Result<PageScan, KernelError> {
        let mut scan = self.scan_slices(|_, _| true, &*self.may_continue)?;
        self.drop_online_blocks(&mut scan);
        *lock(&self.last_scan) = Some(scan.clone());
        Ok(scan)
    }

    /// Scans the pages of some slices.
    fn scan_slices(
        &self,
        wanted: impl Fn(&PageScan, &ScannedSlice) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<PageScan, KernelError> {
        let mut scan = self.read_blocks()?;
        scan.scan_pages(&*self.system, wanted, goes_on)?;
        Ok(scan)
    }

    fn drop_online_blocks(&self, scan: &mut PageScan) {
        if !scan.blocks_online_again().is_empty() {
            self.forget_online_blocks(scan);
        }
    }

    /// Forgets blocks that another process has brought online. A running request does so itself.
    fn forget_online_blocks(&self, scan: &mut PageScan) {
        let Ok(_held) = request::lock_requests(&*self.system) else { return };
        let fresh = HotplugState::read(&*self.system)
            .and_then(|store| Ok((store, blocks::read(&*self.system)?)));
        let Ok((mut store, blocks)) = fresh else { return };
        for number in scan.blocks_online_again() {
            scan.saved_state.blocks.remove(&number);
            if blocks::is_online(&blocks, number) {
                store.blocks.remove(&number);
            }
        }
        if let Err(error) = store.save(&*self.system) {
            debug!(%error, "blocks that came back are still taken for ours");
        }
    }

    /// Reads blocks and zones alone.
    fn read_blocks(&self) -> Result<PageScan, KernelError> {
        PageScan::without_pages(&*self.system, self.block_bytes, self.page_bytes)
    }

    /// A scan that is recent enough by its cost, or a new one.
    fn recent_scan(&self) -> Result<PageScan, KernelError> {
        match self.reusable_scan(&*self.may_continue)? {
            Some(mut scan) => {
                self.drop_online_blocks(&mut scan);
                *lock(&self.last_scan) = Some(scan.clone());
                Ok(scan)
            }
            None => self.scan(),
        }
    }

    /// The last scan, brought up to date, if it is recent enough.
    fn reusable_scan(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<PageScan>, KernelError> {
        let last = lock(&self.last_scan).clone();
        let Some(mut scan) = last.filter(|scan| {
            self.system.now() < scan.scan_start + scan.scan_duration * self.scan_reuse_factor
        }) else {
            return Ok(None);
        };
        Ok(scan.refresh(&*self.system, goes_on)?.then_some(scan))
    }

    /// Changes the saved state while it holds the lock.
    fn change_state(&self, change: impl FnOnce(&mut HotplugState)) -> Result<(), KernelError> {
        let _held = request::lock_requests(&*self.system)?;
        let mut store = HotplugState::read(&*self.system)?;
        change(&mut store);
        store.save(&*self.system)?;
        *lock(&self.last_scan) = None;
        Ok(())
    }

    fn slice_size(&self) -> Result<Bytes, KernelError> {
        Ok(Bytes(HotplugState::read(&*self.system)?.slice_bytes.0.max(self.block_bytes.0)))
    }

    /// How much of `total` must stay available.
    fn margin_of(total: Bytes) -> Bytes {
        Bytes((total.0 / 10).max(256 << 20))
    }

    /// The floor that belongs to a margin: with less available, a guard wakes slices.
    fn floor_of(margin: Bytes) -> Bytes {
        Bytes(margin.0 / 4 * 3)
    }

    /// The floor of a guard that got no other.
    fn floor(&self) -> Result<Bytes, KernelError> {
        Ok(Self::floor_of(self.margin_now()?))
    }

    /// What stays available (`MemAvailable`) after every offlining: a tenth of memory, at least 256
    /// MiB.
    ///
    /// A stock kernel does not wake blocks. Programs can take this much before [`HotplugGuard`] has
    /// woken some.
    pub fn margin(&self) -> Result<Bytes, BackendError> {
        Ok(self.margin_now()?)
    }

    /// Fails if this process may not switch memory blocks: without root, for instance.
    ///
    /// # Errors
    /// Which file cannot be written, and what to do.
    pub fn check_may_switch(&self) -> Result<(), KernelError> {
        request::check_blocks_are_writable(&*self.system)
    }

    fn margin_now(&self) -> Result<Bytes, KernelError> {
        Ok(Self::margin_of(self.read_blocks()?.managed().bytes(self.page_bytes)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Values are replaced as a whole, so that a panic elsewhere leaves them intact.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for HotplugBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        Ok(self.recent_scan()?.info(self.changes()?, self.clock_khz))
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(self.recent_scan()?.zones())
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.view()?.2)
    }

    fn view(&self) -> Result<(BackendInfo, Vec<Zone>, SliceSnapshot), BackendError> {
        let (scan, changes) = (self.recent_scan()?, self.changes()?);
        let snapshot = SliceSnapshot { event_seq: changes, time: scan.time, slices: scan.slices() };
        Ok((scan.info(changes, self.clock_khz), scan.zones(), snapshot))
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        let mut contents = self.recent_scan()?.contents(&*self.system, slice)?;
        self.names.add(&mut contents, detail);
        if detail.sites {
            contents.sites = page_owner::sites(&self.paths.page_owner, &contents.suspects())?;
        }
        Ok(contents)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        request.refuse_hold(
            "what memory hotplug has switched off stays off, unless `ramslice guard` runs",
        )?;
        Ok(request::run(self, request, MemoryPlace::default())?)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        let before = self.changes()?;
        let end = self.system.now() + timeout;
        loop {
            let left = end.saturating_sub(self.system.now()).min(POLL);
            let span = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            if poll(&mut [], Some(&span)).is_err() {
                return Ok(None);
            }
            let now = self.changes()?;
            if now != before {
                return Ok(Some(now));
            }
            if self.system.now() >= end {
                return Ok(None);
            }
        }
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        Ok(self.slice_size()?)
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        if size.0 == 0 || !size.0.is_multiple_of(self.block_bytes.0) {
            return Err(KernelError::NotBlocks { size, block: self.block_bytes }.into());
        }
        if !HotplugState::read(&*self.system)?.blocks.is_empty() {
            return Err(KernelError::SizeBusy { size }.into());
        }
        // Failures are of slices of the old size.
        self.change_state(|store| {
            store.slice_bytes = size;
            store.failures.clear();
        })?;
        self.segments_compared.store(true, Ordering::Relaxed);
        self.warn_of_partial_segments(size);
        Ok(())
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        Ok(price::parameter(HotplugState::read(&*self.system)?.prices(), parameter))
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        Ok(self.change_state(|store| {
            store.price_100cycles.insert(parameter, value);
        })?)
    }

    fn headroom(&self) -> Result<Option<MemoryHeadroom>, BackendError> {
        let scan = self.recent_scan()?;
        let margin = Self::margin_of(scan.managed().bytes(self.page_bytes));
        Ok(Some(MemoryHeadroom {
            available: page_scan::available(&*self.system)?,
            margin,
            floor: Self::floor_of(margin),
            destination: price::parameter(scan.saved_state.prices(), PriceParameter::AllocBuddy),
        }))
    }

    /// A guard knows by what is available; where none is at work, caution says yes.
    fn is_short_of_memory(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        let mut work = HotplugState::read(&*self.system)?.work.unwrap_or_default();
        if let Ok(counters) = read_proc::<VmstatCounters>(&*self.system, "proc/vmstat") {
            work.page_faults = counters.get("pgfault").unwrap_or(0);
            work.allocated_pages = counters.allocated();
        }
        Ok(work)
    }

    fn cache_lookups(&self) -> Result<CacheLookups, BackendError> {
        Ok(read_proc::<VmstatCounters>(&*self.system, "proc/vmstat")?.cache_lookups()?)
    }

    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        Ok(HugePagePools::of(&self.paths).read(node)?)
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        Ok(HugePagePools::of(&self.paths).nodes()?)
    }
}

impl HotplugBackend {
    /// How many changes of slice states this program has seen.
    fn changes(&self) -> Result<u64, KernelError> {
        let store = HotplugState::read(&*self.system)?;
        let blocks = blocks::read(&*self.system)?;
        let states = page_scan::states(
            &blocks,
            store.slice_bytes.0.max(self.block_bytes.0) / self.block_bytes.0,
        );
        let mut seen = lock(&self.last_states);
        let changed = if seen.1.len() == states.len() {
            states.iter().zip(&seen.1).filter(|(now, then)| now != then).count() as u64
        } else {
            u64::from(!seen.1.is_empty())
        };
        *seen = (seen.0 + changed, states);
        Ok(seen.0)
    }
}
