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
mod cpu_frequency;
#[cfg(any(test, feature = "fake"))]
mod fake_machine;
mod guard;
mod hotplug_state;
#[cfg(test)]
mod limit_tests;
mod page_runs;
mod page_scan;
mod page_use;
mod place_margins;
mod price;
mod request;
mod request_limits;
mod request_wake;
mod system_files;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use procfs_core::VmStat;
use ramslice_types::{
    Backend, BackendError, BackendInfo, Bytes, ContentsDetail, MemoryHeadroom, Pages, Price,
    PriceParameter, Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, SliceState,
    WorkCounters, Zone,
};
use rustix::event::{Timespec, poll};
use tracing::debug;

#[cfg(any(test, feature = "fake"))]
pub use fake_machine::FakeMachine;
pub(crate) use guard::STALL_FLOORS;
pub use guard::{GuardAction, HotplugGuard, WokenBy};
pub(crate) use place_margins::{PlaceMargins, SliceLoss, ZoneSize};
pub(crate) use zones::{ZoneRoom, keeps_reserves};

use crate::error::KernelError;
use crate::readers::KernelPaths;
use crate::readers::page_names::PageNames;
use crate::readers::page_owner;
use hotplug_state::HotplugState;
use page_scan::{PageScan, ScannedSlice};
use place_margins::MemoryPlace;
use system_files::{RealFiles, SystemFiles, read_proc};

/// How often block states are read while waiting for a change: without a netlink socket there is no
/// event for it.
const POLL: Duration = Duration::from_millis(250);

/// At most a tenth of one CPU goes into scans, unless [`HotplugBackend::patient`] says otherwise.
const PATIENCE: u32 = 10;

/// A kernel without ramslice, through memory hotplug.
pub struct HotplugBackend {
    system: Box<dyn SystemFiles>,
    paths: KernelPaths,
    names: PageNames,
    block: Bytes,
    page: Bytes,
    /// The clock of measured prices, unless others have counted by another one since boot.
    clock_khz: u64,
    /// The last scan, used again while it is recent enough.
    last: Mutex<Option<PageScan>>,
    /// The states of slices last seen by [`Backend::wait_event`], and how often they have changed.
    seen: Mutex<(u64, Vec<SliceState>)>,
    /// A [`HotplugGuard`] waits to wake slices: a request that takes memory offline gives up.
    wanted: AtomicBool,
    /// A request has begun to take memory offline since a [`HotplugGuard`] last looked.
    takes: AtomicBool,
    /// A scan counts as recent for this many times its duration.
    patience: u32,
    /// Asked before each slice whose pages are read.
    goes_on: Box<dyn Fn() -> bool + Send + Sync>,
}

impl HotplugBackend {
    /// The running system's.
    pub fn open() -> Result<Self, KernelError> {
        Self::open_at(Path::new("/"))
    }

    /// The one whose `/sys`, `/proc` and `/run` are below `root`.
    pub fn open_at(root: &Path) -> Result<Self, KernelError> {
        Self::with(Box::new(RealFiles::under(root)), KernelPaths::under(root))
    }

    fn with(system: Box<dyn SystemFiles>, paths: KernelPaths) -> Result<Self, KernelError> {
        let block = blocks::block_bytes(&*system)?;
        let names = PageNames::new(&paths);
        let page = Bytes(rustix::param::page_size() as u64);
        let clock_khz = cpu_frequency::read(&*system);
        let (last, seen) = (Mutex::new(None), Mutex::new((0, Vec::new())));
        Ok(Self {
            system,
            paths,
            names,
            block,
            page,
            clock_khz,
            last,
            seen,
            wanted: AtomicBool::new(false),
            takes: AtomicBool::new(false),
            patience: PATIENCE,
            goes_on: Box::new(|| true),
        })
    }

    /// Lets a scan of pages count as recent for `times` its duration: at most one part in so many
    /// of one CPU goes into scans. Blocks, zones and available memory are always read again, and so
    /// are the pages of a slice before it is emptied.
    #[must_use]
    pub fn patient(self, times: u32) -> Self {
        Self { patience: times, ..self }
    }

    /// Asks `goes_on` before it reads the pages of a slice; if that returns false, the scan ends
    /// with an error. A scan takes a few tenths of a second per 10 GiB.
    #[must_use]
    pub fn asking(self, goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { goes_on: Box::new(goes_on), ..self }
    }

    /// Whether a guard waits to wake slices.
    fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Scans everything.
    fn look(&self) -> Result<PageScan, KernelError> {
        let mut look = self.look_at(|_, _| true, &*self.goes_on)?;
        self.settle(&mut look);
        *lock(&self.last) = Some(look.clone());
        Ok(look)
    }

    /// Scans the pages of some slices.
    fn look_at(
        &self,
        wanted: impl Fn(&PageScan, &ScannedSlice) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<PageScan, KernelError> {
        let mut look = self.glance()?;
        look.walk(&*self.system, wanted, goes_on)?;
        Ok(look)
    }

    fn settle(&self, look: &mut PageScan) {
        if !look.brought_back().is_empty() {
            self.forget(look);
        }
    }

    /// Forgets blocks that another process has brought online. A running request does so itself.
    fn forget(&self, look: &mut PageScan) {
        let Ok(_held) = request::alone(&*self.system) else { return };
        let fresh = HotplugState::read(&*self.system)
            .and_then(|store| Ok((store, blocks::read(&*self.system)?)));
        let Ok((mut store, blocks)) = fresh else { return };
        for number in look.brought_back() {
            look.store.blocks.remove(&number);
            if blocks::is_on(&blocks, number) {
                store.blocks.remove(&number);
            }
        }
        if let Err(error) = store.save(&*self.system) {
            debug!(%error, "blocks that came back are still taken for ours");
        }
    }

    /// Reads blocks and zones alone.
    fn glance(&self) -> Result<PageScan, KernelError> {
        PageScan::glance(&*self.system, self.block, self.page)
    }

    /// A scan that is recent enough by its cost, or a new one.
    fn recent(&self) -> Result<PageScan, KernelError> {
        match self.standing(&*self.goes_on)? {
            Some(mut look) => {
                self.settle(&mut look);
                *lock(&self.last) = Some(look.clone());
                Ok(look)
            }
            None => self.look(),
        }
    }

    /// The last scan, brought up to date, if it is recent enough.
    fn standing(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<PageScan>, KernelError> {
        let last = lock(&self.last).clone();
        let Some(mut look) =
            last.filter(|look| self.system.now() < look.walked + look.cost * self.patience)
        else {
            return Ok(None);
        };
        Ok(look.refresh(&*self.system, goes_on)?.then_some(look))
    }

    /// Changes the saved state while it holds the lock.
    fn change(&self, change: impl FnOnce(&mut HotplugState)) -> Result<(), KernelError> {
        let _held = request::alone(&*self.system)?;
        let mut store = HotplugState::read(&*self.system)?;
        change(&mut store);
        store.save(&*self.system)?;
        *lock(&self.last) = None;
        Ok(())
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
        Ok(Self::floor_of(self.kept()?))
    }

    /// What stays available (`MemAvailable`) after every offlining: a tenth of memory, at least 256
    /// MiB.
    ///
    /// A stock kernel does not wake blocks. Programs can take this much before [`HotplugGuard`] has
    /// woken some.
    pub fn margin(&self) -> Result<Bytes, BackendError> {
        Ok(self.kept()?)
    }

    fn kept(&self) -> Result<Bytes, KernelError> {
        Ok(Self::margin_of(self.glance()?.managed().bytes(self.page)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Values are replaced as a whole, so that a panic elsewhere leaves them intact.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for HotplugBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        Ok(self.recent()?.info(self.changes()?, self.clock_khz))
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(self.recent()?.zones())
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.view()?.2)
    }

    fn view(&self) -> Result<(BackendInfo, Vec<Zone>, SliceSnapshot), BackendError> {
        let (look, changes) = (self.recent()?, self.changes()?);
        let snapshot = SliceSnapshot { event_seq: changes, time: look.time, slices: look.slices() };
        Ok((look.info(changes, self.clock_khz), look.zones(), snapshot))
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        let mut contents = self.recent()?.contents(&*self.system, slice)?;
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
        Ok(Bytes(HotplugState::read(&*self.system)?.slice_bytes.0.max(self.block.0)))
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        if size.0 == 0 || !size.0.is_multiple_of(self.block.0) {
            return Err(KernelError::NotBlocks { size, block: self.block }.into());
        }
        if !HotplugState::read(&*self.system)?.blocks.is_empty() {
            return Err(KernelError::SizeBusy { size }.into());
        }
        // Failures are of slices of the old size.
        self.change(|store| {
            store.slice_bytes = size;
            store.failures.clear();
        })?;
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
        Ok(self.change(|store| {
            store.price_100cycles.insert(parameter, value);
        })?)
    }

    fn headroom(&self) -> Result<Option<MemoryHeadroom>, BackendError> {
        let look = self.recent()?;
        let margin = Self::margin_of(look.managed().bytes(self.page));
        Ok(Some(MemoryHeadroom {
            available: page_scan::available(&*self.system)?,
            margin,
            floor: Self::floor_of(margin),
            destination: price::parameter(look.store.prices(), PriceParameter::AllocBuddy),
        }))
    }

    /// A guard knows by what is available; where none is at work, caution says yes.
    fn is_short_of_memory(&self) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        let mut work = HotplugState::read(&*self.system)?.work.unwrap_or_default();
        let counters = read_proc::<VmStat>(&*self.system, "proc/vmstat")
            .map_or_else(|_| HashMap::new(), |vmstat| vmstat.0);
        for (name, &number) in &counters {
            let number = u64::try_from(number).unwrap_or(0);
            match name.as_str() {
                "pgfault" => work.page_faults = number,
                name if name.starts_with("pgalloc_") => work.allocated_pages += Pages(number),
                _ => {}
            }
        }
        Ok(work)
    }
}

impl HotplugBackend {
    /// How many changes of slice states this program has seen.
    fn changes(&self) -> Result<u64, KernelError> {
        let store = HotplugState::read(&*self.system)?;
        let blocks = blocks::read(&*self.system)?;
        let states =
            page_scan::states(&blocks, store.slice_bytes.0.max(self.block.0) / self.block.0);
        let mut seen = lock(&self.seen);
        let changed = if seen.1.len() == states.len() {
            states.iter().zip(&seen.1).filter(|(now, then)| now != then).count() as u64
        } else {
            u64::from(!seen.1.is_empty())
        };
        *seen = (seen.0 + changed, states);
        Ok(seen.0)
    }
}
