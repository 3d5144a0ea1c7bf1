//! The simulated machine: slices with counts of pages, and owners that hold them.
//!
//! The grain is runs of pages: an owner (a process, a file, the kernel) holds a number of pages in
//! each slice, not single page frames. The places of an owner's pages decide what is left in a
//! slice when it ends; so fragmentation arises as on a real machine, and terabytes take little
//! memory.
//!
//! Time passes only in [`SimMachine::advance`]. The seed decides all random events.

mod cache_history;
mod cache_usage;
mod compact;
mod from_recording;
mod owners;
mod placement;
mod price;
mod snapshot;

use std::collections::BTreeSet;
use std::time::Duration;

use ramslice_policy::{MachineTotals, PolicyEvent};
use ramslice_types::{Pages, Price, Reason, SliceId, SliceState, SplitMix64, WorkCounters};
use serde::Serialize;

pub(crate) use from_recording::{KINDS, kinds};
pub use owners::{MemoryChange, OwnerClass, OwnerId};
pub use price::PriceModel;

use crate::config::{SimConfig, SimConfigError};
use cache_history::CacheHistory;
use cache_usage::CacheCounts;
use owners::MemoryOwner;

/// A slice's contents and state.
#[derive(Debug, Clone, Default)]
struct SliceCell {
    state: SliceState,
    zone: u32,
    present: u32,
    free: u32,
    /// Anonymous memory, also what is pinned.
    anon: u32,
    /// Of it, pinned.
    pinned: u32,
    shmem: u32,
    /// Page cache that is not mapped and clean.
    freeable: u32,
    dirty: u32,
    file_mapped: u32,
    unmovable: u32,
    /// Mappings of all pages: what a walk would find.
    mappings: u64,
    boot: bool,
    /// Failures in a row.
    fails: u32,
    /// Left alone until then, and why.
    retry_us: u64,
    reason: Reason,
}

impl SliceCell {
    fn is_empty(&self) -> bool {
        self.state == SliceState::Online && self.free == self.present && !self.boot
    }

    fn movable(&self) -> u64 {
        u64::from(self.anon)
            + u64::from(self.shmem)
            + u64::from(self.dirty)
            + u64::from(self.file_mapped)
    }

    /// Without tmpfs, which cannot be dropped.
    fn cache(&self) -> u64 {
        u64::from(self.freeable) + u64::from(self.dirty) + u64::from(self.file_mapped)
    }
}

/// A zone: a range of slices, and sums over them.
#[derive(Debug, Clone)]
struct SimZone {
    first: u32,
    end: u32,
    /// Free and online.
    free: u64,
    offline: u64,
    freeable: u64,
    cache: u64,
    nr_empty: u32,
    nr_offline: u32,
    nr_fixed: u32,
    managed: u64,
    min_wmark: u64,
    low_wmark: u64,
    reserve: u64,
    woken_by_demand: u64,
    /// Where the last run of pages went, and the last one of the kernel's.
    cursor: u32,
    cursor_unmovable: u32,
}

/// Events, as sums since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MachineStats {
    /// Slices that woke because memory was wanted.
    pub demand_wakes: u64,
    /// Runs of pages that were allocated; those that waited for a slice to wake are the demand
    /// wakes.
    pub allocations: u64,
    /// Pages of cache read again that had been dropped.
    pub refault_pages: u64,
    /// Of these, dropped for packing; the others for want of memory.
    pub packing_refault_pages: u64,
    /// Pages of cache dropped because memory was short.
    pub reclaimed_pages: u64,
    /// Pages that were wanted and not there: a real machine would have swapped or killed.
    pub unmet_pages: u64,
    /// Bytes that were off, times microseconds; of whole granules, where the hardware switches
    /// several slices as one.
    pub off_byte_us: u128,
    /// Bytes of these that went off, each time again.
    pub entered_bytes: u64,
    /// Slices that were off for less than the time given with [`SimMachine::set_short`] when they
    /// woke.
    pub short_offs: u64,
}

/// The simulated machine.
#[derive(Debug, Clone)]
pub struct SimMachine {
    config: SimConfig,
    prices: PriceModel,
    cells: Vec<SliceCell>,
    zones: Vec<SimZone>,
    owners: Vec<MemoryOwner>,
    random: SplitMix64,
    time_us: u64,
    event_seq: u64,
    work: WorkCounters,
    stats: MachineStats,
    events: Vec<PolicyEvent>,
    /// Pages of cache used since events were taken.
    lookups: CacheCounts,
    short_us: u64,
    /// As [`MemoryChange::Recycling`] says: in percent, and pages that are left of what may be.
    recycling_more: (u32, u64),
    /// When each slice went off.
    off_since_us: Vec<u64>,
    /// Slices that are off; the lowest one of a zone wakes first.
    offline: BTreeSet<u32>,
    /// How many slices of each granule are off, and of how many granules all are.
    granules_off: Vec<u32>,
    nr_granules_off: u64,
    /// What requests count of cache, as long as it is true.
    counted: CacheHistory,
}

impl SimMachine {
    /// A machine after boot: all slices on, only the kernel in memory.
    ///
    /// # Errors
    /// If the configuration makes no machine; the message says what is allowed.
    pub fn new(config: SimConfig) -> Result<Self, SimConfigError> {
        config.check()?;
        let slice_pages = config.slice_pages().0;
        let (mut cells, mut zones) = (Vec::new(), Vec::new());
        for (index, zone) in config.zones.iter().enumerate() {
            let nr = zone.size.0 / config.slice_bytes.0;
            let first = cells.len() as u32;
            cells.extend((0..nr).map(|_| SliceCell {
                zone: index as u32,
                present: slice_pages as u32,
                free: slice_pages as u32,
                ..SliceCell::default()
            }));
            let managed = nr * slice_pages;
            let (min, low, high) = watermarks(managed, config.page_bytes.0);
            let chunk = 2 * config.pageblock_bytes.pages(config.page_bytes).0;
            zones.push(SimZone {
                first,
                end: cells.len() as u32,
                free: managed,
                offline: 0,
                freeable: 0,
                cache: 0,
                nr_empty: nr as u32,
                nr_offline: 0,
                nr_fixed: 0,
                managed,
                min_wmark: min,
                low_wmark: low,
                // As the kernel has it: at least the high watermark, and one chunk.
                reserve: high.max(chunk),
                woken_by_demand: 0,
                cursor: first,
                cursor_unmovable: first,
            });
        }
        let nr = cells.len();
        let granules_off = vec![0; nr.div_ceil(config.granule_slices as usize)];
        let mut machine = Self {
            random: SplitMix64::of(config.seed, 0),
            prices: PriceModel::default(),
            config,
            cells,
            zones,
            owners: Vec::new(),
            time_us: 0,
            event_seq: 0,
            work: WorkCounters::default(),
            stats: MachineStats::default(),
            events: Vec::new(),
            lookups: CacheCounts::default(),
            short_us: 60_000_000,
            recycling_more: (0, 0),
            off_since_us: vec![0; nr],
            offline: BTreeSet::new(),
            granules_off,
            nr_granules_off: 0,
            counted: CacheHistory::new(nr),
        };
        machine.boot();
        Ok(machine)
    }

    /// The kernel and its tables at the lowest addresses of each node.
    fn boot(&mut self) {
        let slot = self.slot(OwnerId::BOOT, OwnerClass::Unmovable, 0);
        for index in 0..self.zones.len() {
            let node = self.config.zones[index].node;
            if self.config.zones[..index].iter().any(|zone| zone.node == node) {
                continue;
            }
            let of_node = self.config.zones.iter().filter(|zone| zone.node == node);
            let bytes: u64 = of_node.map(|zone| zone.size.0).sum();
            let pages =
                (bytes as f64 * self.config.boot_share / self.config.page_bytes.0 as f64) as u64;
            let mut left = pages.min(self.zones[index].managed / 2);
            let mut at = self.zones[index].first as usize;
            while left > 0 {
                let step = left.min(u64::from(self.cells[at].free));
                self.take(at, slot, step as u32);
                self.cells[at].boot = true;
                self.cells[at].reason = Reason::Boot;
                self.zones[index].nr_fixed += 1;
                left -= step;
                at += 1;
            }
        }
    }

    /// What machine it is.
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// The time since boot.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.time_us)
    }

    /// Lets time pass: what is off goes on saving, dirty pages are written.
    pub fn advance(&mut self, by: Duration) {
        let us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let off = self.nr_granules_off * self.granule_bytes();
        self.stats.off_byte_us += u128::from(off) * u128::from(us);
        self.time_us = self.time_us.saturating_add(us);
        self.grow_old();
        self.write_back(by);
    }

    /// Slices that wake after less than this count as [`MachineStats::short_offs`].
    pub fn set_short(&mut self, time: Duration) {
        self.short_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    }

    /// The price model's parameters.
    pub fn prices(&mut self) -> &mut PriceModel {
        &mut self.prices
    }

    /// Who holds memory, or held some that was dropped.
    pub fn owners(&self) -> impl Iterator<Item = OwnerId> + '_ {
        self.owners.iter().map(|owner| owner.id)
    }

    /// What was done for slices so far, as the kernel counts it.
    pub fn work(&self) -> WorkCounters {
        self.work
    }

    /// What happened so far.
    pub fn stats(&self) -> MachineStats {
        self.stats
    }

    /// What a policy would want to know, since the last call.
    ///
    /// A page of cache that is used is a look-up; how far back dropped pages lie is not modelled.
    pub fn take_events(&mut self) -> Vec<PolicyEvent> {
        let mut events = std::mem::take(&mut self.events);
        let CacheCounts { all, absent, brought, returned } = std::mem::take(&mut self.lookups);
        if all > 0 || brought > 0 {
            events.push(PolicyEvent::LookedUp {
                lookups: Pages(all),
                absent: Pages(absent),
                brought: Pages(brought),
                returned: Pages(returned),
                distances: None,
            });
        }
        events
    }

    /// Sums over the slices, kept up to date as they change.
    pub fn totals(&self) -> MachineTotals {
        let mut totals =
            MachineTotals { slice_pages: self.config.slice_pages(), ..MachineTotals::default() };
        for zone in &self.zones {
            totals.managed += Pages(zone.managed);
            totals.free += Pages(zone.free);
            totals.offline += Pages(zone.offline);
            totals.freeable += Pages(zone.freeable);
            totals.cache += Pages(zone.cache);
            totals.awake_reserve += Pages(zone.reserve);
            totals.nr_slices += zone.end - zone.first;
            totals.nr_empty += zone.nr_empty;
            totals.nr_offline += zone.nr_offline;
            totals.nr_fixed += zone.nr_fixed;
        }
        totals
    }

    /// Pages in use that no request drops, whatever it costs: all but unmapped cache, which may be
    /// written back first.
    pub fn lasting(&self) -> Pages {
        let owners = self.owners.iter().filter(|owner| owner.class != OwnerClass::File);
        Pages(owners.map(|owner| owner.total).sum())
    }

    /// What switching a slice off costs at least: one that is empty.
    pub fn least_price(&self) -> Price {
        self.prices.base(self.config.slice_pages().0)
    }

    /// Slices that are on and hold something.
    pub fn nonempty(&self) -> u32 {
        self.zones.iter().map(|zone| zone.end - zone.first - zone.nr_empty - zone.nr_offline).sum()
    }

    fn granule_bytes(&self) -> u64 {
        self.config.slice_bytes.0 * u64::from(self.config.granule_slices)
    }

    fn id(at: usize) -> SliceId {
        SliceId(at as u32)
    }

    /// Gives a slice its new state and keeps the sums true. The slice is wholly free.
    fn switch(&mut self, at: usize, state: SliceState) {
        let (granule, granule_bytes) =
            (at / self.config.granule_slices as usize, self.granule_bytes());
        let cell = &mut self.cells[at];
        let pages = u64::from(cell.present);
        let zone = &mut self.zones[cell.zone as usize];
        match (cell.state, state) {
            (SliceState::Online, SliceState::Offline) => {
                zone.nr_empty -= 1;
                zone.nr_offline += 1;
                zone.free -= pages;
                zone.offline += pages;
                cell.free = 0;
                self.off_since_us[at] = self.time_us;
                self.offline.insert(at as u32);
                self.granules_off[granule] += 1;
                if self.granules_off[granule] == self.config.granule_slices {
                    self.nr_granules_off += 1;
                    self.stats.entered_bytes += granule_bytes;
                }
            }
            (SliceState::Offline, SliceState::Online) => {
                zone.nr_empty += 1;
                zone.nr_offline -= 1;
                zone.free += pages;
                zone.offline -= pages;
                cell.free = cell.present;
                self.work.woken_slices += 1;
                if self.time_us - self.off_since_us[at] < self.short_us {
                    self.stats.short_offs += 1;
                }
                self.offline.remove(&(at as u32));
                if self.granules_off[granule] == self.config.granule_slices {
                    self.nr_granules_off -= 1;
                }
                self.granules_off[granule] -= 1;
            }
            (was, _) => unreachable!("{was} to {state}: a simulated slice is on or off"),
        }
        cell.state = state;
        // As in the kernel: through emptying or waking to the new state.
        self.event_seq += 2;
    }

    /// Whether the sums are those of the slices, and the slices those of the owners.
    ///
    /// # Errors
    /// The first thing that does not add up.
    pub fn check_books(&self) -> Result<(), String> {
        for (at, cell) in self.cells.iter().enumerate() {
            let used = u64::from(cell.freeable) + cell.movable() + u64::from(cell.unmovable);
            let expected = match cell.state {
                SliceState::Offline => 0,
                _ => u64::from(cell.present) - u64::from(cell.free),
            };
            let owned: u64 = self.owners.iter().map(|owner| u64::from(owner.pages[at])).sum();
            if used != expected
                || owned != expected
                || (cell.state == SliceState::Offline && cell.free > 0)
            {
                return Err(format!(
                    "slice {at}: {used} pages by kind, {owned} by owner, {expected} not free"
                ));
            }
        }
        for (index, zone) in self.zones.iter().enumerate() {
            let cells = &self.cells[zone.first as usize..zone.end as usize];
            let free: u64 = cells.iter().map(|cell| u64::from(cell.free)).sum();
            let freeable: u64 = cells.iter().map(|cell| u64::from(cell.freeable)).sum();
            let cache: u64 = cells.iter().map(SliceCell::cache).sum();
            let empty = cells.iter().filter(|cell| cell.is_empty()).count() as u32;
            let off = cells.iter().filter(|cell| cell.state == SliceState::Offline);
            let offline: u64 = off.clone().map(|cell| u64::from(cell.present)).sum();
            let found = (free, offline, freeable, cache, empty, off.count() as u32);
            let kept = (
                zone.free,
                zone.offline,
                zone.freeable,
                zone.cache,
                zone.nr_empty,
                zone.nr_offline,
            );
            if found != kept {
                return Err(format!(
                    "zone {index}: the sums are {kept:?}, its slices have {found:?}"
                ));
            }
        }
        let full = |&&off: &&u32| off == self.config.granule_slices;
        let all = self.granules_off.iter().filter(full).count() as u64;
        let off: u64 = self.granules_off.iter().copied().map(u64::from).sum();
        if (all, off) != (self.nr_granules_off, self.offline.len() as u64) {
            return Err(format!("{all} granules are off, with {off} slices"));
        }
        self.check_kept()?;
        for owner in &self.owners {
            let pages: u64 = owner.pages.iter().map(|&pages| u64::from(pages)).sum();
            if pages != owner.total {
                return Err(format!(
                    "owner {:?}: {} pages counted, {pages} held",
                    owner.id, owner.total
                ));
            }
        }
        Ok(())
    }
}

/// Min, low and high watermark of a zone in pages, as Linux works them out of its size.
///
/// `min_free_kbytes` is 4 * sqrt(kbytes) between 128 and 262144; low and high are above it by the
/// larger of a quarter of it and a thousandth of the zone (`mm/page_alloc.c`,
/// `calculate_min_free_kbytes`, `__setup_per_zone_wmarks`).
fn watermarks(managed: u64, page_bytes: u64) -> (u64, u64, u64) {
    let kbytes = managed * (page_bytes / 1024);
    let min = (kbytes * 16).isqrt().clamp(128, 262_144) / (page_bytes / 1024);
    let min = min.min(managed / 16);
    let gap = (min / 4).max(managed / 1000);
    (min, min + gap, min + 2 * gap)
}
