//! Owners of memory: their demand, their pages, and the state of their cache.

use std::time::Duration;

use ramslice_policy::PolicyEvent;
use ramslice_types::Pages;
use serde::Serialize;

use super::SimMachine;
use super::cache_usage::{CacheOrigin, CacheUsage};

/// The owner of memory: a number that a load chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct OwnerId(pub u32);

impl OwnerId {
    /// What was reserved at boot.
    pub(crate) const BOOT: Self = Self(u32::MAX);
}

/// The kind of memory that an owner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerClass {
    /// Memory of processes, mapped.
    Anon,
    /// The same, held in place by a device: looks movable until it is tried.
    Pinned,
    /// tmpfs and shared memory.
    Shmem,
    /// Unmapped page cache.
    File,
    /// Page cache that processes map.
    FileMapped,
    /// The kernel's: slab, page tables.
    Unmovable,
}

/// A change that a load makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryChange {
    /// The owner's memory becomes this large; 0 ends it. For cache, it is all that was ever read
    /// and not deleted.
    Level {
        /// Who.
        owner: OwnerId,
        /// The kind; that of the first change holds as long as the owner lives.
        class: OwnerClass,
        /// Mappings of each page, as long as the owner lives.
        maps: u32,
        /// How much.
        pages: u64,
    },
    /// Pages of its cache are used, chosen by chance; those that were dropped are read again.
    Read {
        /// Whose.
        owner: OwnerId,
        /// How many.
        pages: u64,
    },
    /// Of its cache, this many pages count as used lately: what a kernel said of it.
    Used {
        /// Whose.
        owner: OwnerId,
        /// How many.
        pages: u64,
    },
    /// Until this is said again, for a hundred pages that are read without having left a trace,
    /// this many more pages of idle cache are recycled: allocations in the meantime use what
    /// reading makes free.
    Recycling {
        /// In percent of what is read, beyond as many as are read.
        percent: u32,
        /// Pages, at most.
        most: u64,
    },
    /// The owner's cache grows by pages that programs wrote, and that are on storage by now: memory
    /// wakes for them.
    Written {
        /// Whose.
        owner: OwnerId,
        /// How many.
        pages: u64,
    },
    /// Pages of its cache are written to, and wait for their way to storage.
    Write {
        /// Whose.
        owner: OwnerId,
        /// How many.
        pages: u64,
    },
}

/// Holds pages.
#[derive(Debug, Clone)]
pub(super) struct MemoryOwner {
    pub(super) id: OwnerId,
    pub(super) class: OwnerClass,
    pub(super) maps: u32,
    /// In each slice.
    pub(super) pages: Vec<u32>,
    /// Of these waiting to be written; without any as long as nothing was written to.
    pub(super) dirty: Vec<u32>,
    pub(super) total: u64,
    pub(super) total_dirty: u64,
    /// Cache that was dropped and is still in the file: by requests; for want of memory while
    /// slices were off, which is for packing, too; and while none was.
    pub(super) dropped_packing: u64,
    pub(super) dropped_reclaimed: u64,
    pub(super) dropped_pressure: u64,
    /// Of that by requests, what was chosen by its use: like what was reclaimed, it left a trace,
    /// and counts as used when it comes back.
    pub(super) dropped_by_use: u64,
    /// How its cache was used.
    pub(super) usage: CacheUsage,
    /// Pages of cache that requests moved since time passed last: active ones, and any. They age
    /// when it passes, because what was not moved does not.
    pub(super) moved: [u64; 2],
}

/// What cache was dropped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DropCause {
    /// A request wanted its place.
    Request,
    /// Memory was short while slices were off.
    Packing,
    /// Memory was short though all was on.
    Pressure,
}

impl MemoryOwner {
    /// Cache that was dropped and is still in the file.
    fn dropped(&self) -> u64 {
        self.dropped_packing + self.dropped_reclaimed + self.dropped_pressure
    }
}

/// Linux writes dirty pages after 30 s (`dirty_expire_centisecs`).
const WRITE_BACK_S: f64 = 30.0;

impl SimMachine {
    /// The slot of an owner; a new one if there is none.
    pub(super) fn slot(&mut self, id: OwnerId, class: OwnerClass, maps: u32) -> usize {
        if let Some(slot) = self.owners.iter().position(|owner| owner.id == id) {
            return slot;
        }
        let owner = MemoryOwner {
            id,
            class,
            maps: match class {
                OwnerClass::Anon | OwnerClass::Pinned | OwnerClass::FileMapped => maps.max(1),
                OwnerClass::Shmem | OwnerClass::File | OwnerClass::Unmovable => 0,
            },
            pages: vec![0; self.cells.len()],
            dirty: Vec::new(),
            total: 0,
            total_dirty: 0,
            dropped_packing: 0,
            dropped_reclaimed: 0,
            dropped_pressure: 0,
            dropped_by_use: 0,
            usage: CacheUsage::new(),
            moved: [0; 2],
        };
        self.owners.push(owner);
        self.owners.len() - 1
    }

    fn known(&self, id: OwnerId) -> Option<usize> {
        self.owners.iter().position(|owner| owner.id == id)
    }

    /// Does what a load asks for.
    pub fn apply(&mut self, change: MemoryChange) {
        match change {
            MemoryChange::Level { owner, class, maps, pages } => {
                self.level(owner, class, maps, pages);
            }
            MemoryChange::Read { owner, pages } => self.read(owner, pages),
            MemoryChange::Used { owner, pages } => {
                if let Some(slot) = self.known(owner) {
                    let owner = &mut self.owners[slot];
                    self.counted.forget_all();
                    owner.usage.set_active(pages as f64 / owner.total.max(1) as f64);
                }
            }
            MemoryChange::Recycling { percent, most } => self.recycling_more = (percent, most),
            MemoryChange::Written { owner, pages } => {
                let slot = self.slot(owner, OwnerClass::File, 1);
                self.grow(slot, pages, CacheOrigin::Written);
            }
            MemoryChange::Write { owner, pages } => self.write(owner, pages),
        }
    }

    fn level(&mut self, id: OwnerId, class: OwnerClass, maps: u32, pages: u64) {
        if id == OwnerId::BOOT {
            return;
        }
        if pages == 0 {
            if let Some(slot) = self.known(id) {
                self.shrink(slot, u64::MAX);
                self.owners.swap_remove(slot);
            }
            return;
        }
        let slot = self.slot(id, class, maps);
        let owner = &self.owners[slot];
        let has = owner.total + owner.dropped();
        if pages >= has {
            if class == OwnerClass::File {
                self.lookups.read_first(pages - has);
            }
            self.grow(slot, pages - has, CacheOrigin::Read);
            return;
        }
        // A file that shrinks loses what was dropped in proportion.
        let share = if has == 0 { 0.0 } else { (has - pages) as f64 / has as f64 };
        let owner = &mut self.owners[slot];
        for dropped in [
            &mut owner.dropped_packing,
            &mut owner.dropped_reclaimed,
            &mut owner.dropped_pressure,
            &mut owner.dropped_by_use,
        ] {
            *dropped -= (*dropped as f64 * share) as u64;
        }
        let keep = pages.saturating_sub(owner.dropped());
        let less = owner.total.saturating_sub(keep);
        self.shrink(slot, less);
    }

    /// Takes `pages` more. Cache that is read without having left a trace may recycle cache instead
    /// of waking memory.
    fn grow(&mut self, slot: usize, pages: u64, how: CacheOrigin) {
        let recycles = how == CacheOrigin::Read && self.owners[slot].class == OwnerClass::File;
        let recycling = if recycles { (pages as f64 * self.config.recycling) as u64 } else { 0 };
        let (percent, most) = self.recycling_more;
        let more = (recycling * u64::from(percent) / 100).min(most);
        if more > 0 && !self.offline.is_empty() {
            self.recycling_more.1 -= self.reclaim(more, true);
        }
        let got =
            self.allocate(slot, recycling, true) + self.allocate(slot, pages - recycling, false);
        let owner = &mut self.owners[slot];
        self.counted.forget_all();
        owner.usage.join(owner.total.saturating_sub(got), got, how);
        self.work.page_faults += pages;
        self.work.allocated_pages += Pages(got);
        self.stats.unmet_pages += pages - got;
    }

    fn read(&mut self, id: OwnerId, pages: u64) {
        let Some(slot) = self.known(id) else { return };
        let owner = &mut self.owners[slot];
        let (packing, reclaimed) = (owner.dropped_packing, owner.dropped_reclaimed);
        let (pressure, dropped) = (owner.dropped_pressure, owner.dropped());
        let all = owner.total + dropped;
        self.counted.forget_all();
        owner.usage.touch(pages as f64 / all.max(1) as f64);
        self.lookups.all += if all > 0 { pages } else { 0 };
        if all == 0 || dropped == 0 {
            return;
        }
        let mut again = |dropped: u64| {
            let expected = pages as f64 * dropped as f64 / all as f64;
            let whole = expected.floor();
            (whole as u64 + u64::from(self.random.chance(expected - whole))).min(dropped)
        };
        let (packing, pressure) = (again(packing), again(pressure));
        let reclaimed = if reclaimed > 0 { again(reclaimed) } else { 0 };
        let back = packing + reclaimed + pressure;
        if back == 0 {
            return;
        }
        self.lookups.absent += back;
        self.lookups.brought += back;
        let owner = &mut self.owners[slot];
        let by_use =
            (owner.dropped_by_use * packing).checked_div(owner.dropped_packing).unwrap_or(0);
        owner.dropped_by_use -= by_use;
        owner.dropped_packing -= packing;
        owner.dropped_reclaimed -= reclaimed;
        owner.dropped_pressure -= pressure;
        self.stats.refault_pages += back;
        self.stats.packing_refault_pages += packing + reclaimed;
        let traced = by_use + reclaimed + pressure;
        self.lookups.returned += traced;
        // What was dropped regardless left no trace.
        if by_use > 0 {
            match self.events.last_mut() {
                // A caller that does not take events does not collect them without limit.
                Some(PolicyEvent::Refaulted { pages }) => *pages += Pages(by_use),
                _ => self.events.push(PolicyEvent::Refaulted { pages: Pages(by_use) }),
            }
        }
        // What the kernel notices is worth waking memory; the rest looks like what is read for the
        // first time.
        self.grow(slot, traced, CacheOrigin::Back);
        self.grow(slot, packing - by_use, CacheOrigin::Read);
    }

    fn write(&mut self, id: OwnerId, pages: u64) {
        let Some(slot) = self.known(id) else { return };
        if self.owners[slot].class != OwnerClass::File {
            return;
        }
        if self.owners[slot].dirty.is_empty() {
            self.owners[slot].dirty = vec![0; self.cells.len()];
        }
        let clean = self.owners[slot].total - self.owners[slot].total_dirty;
        let mut left = pages.min(clean);
        let start = self.random.below(self.cells.len() as u64) as usize;
        for at in (start..self.cells.len()).chain(0..start) {
            let owner = &mut self.owners[slot];
            let step = u64::from(owner.pages[at] - owner.dirty[at]).min(left) as u32;
            self.counted.forget(at);
            owner.dirty[at] += step;
            owner.total_dirty += u64::from(step);
            let cell = &mut self.cells[at];
            cell.freeable -= step;
            cell.dirty += step;
            self.zones[cell.zone as usize].freeable -= u64::from(step);
            left -= u64::from(step);
            if left == 0 {
                break;
            }
        }
    }

    /// What was moved has grown older by a step.
    pub(super) fn grow_old(&mut self) {
        for owner in &mut self.owners {
            let [active, any] = std::mem::take(&mut owner.moved);
            if active + any == 0 {
                continue;
            }
            self.counted.forget_all();
            owner.usage.age(owner.total, active, true);
            owner.usage.age(owner.total, any, false);
        }
    }

    /// Cache that is not active leaves an owner.
    pub(super) fn drop_idle(&mut self, slot: usize, pages: u64) {
        self.counted.forget_all();
        let owner = &mut self.owners[slot];
        owner.usage.drop_idle(owner.total, pages);
    }

    /// Dirty pages are written as time goes by.
    pub(super) fn write_back(&mut self, by: Duration) {
        let share = (by.as_secs_f64() / WRITE_BACK_S).min(1.0);
        for owner in self.owners.iter_mut().filter(|owner| owner.total_dirty > 0) {
            for (at, dirty) in owner.dirty.iter_mut().enumerate().filter(|(_, dirty)| **dirty > 0) {
                self.counted.forget(at);
                let step = ((f64::from(*dirty) * share).ceil() as u32).min(*dirty);
                *dirty -= step;
                owner.total_dirty -= u64::from(step);
                let cell = &mut self.cells[at];
                cell.dirty -= step;
                cell.freeable += step;
                self.zones[cell.zone as usize].freeable += u64::from(step);
            }
        }
    }
}
