//! Allocation and release of memory: placement, watermarks, waking on demand, dropping cache.

use std::time::Duration;

use ramslice_policy::{PolicyEvent, WakeCause};
use ramslice_types::{Pages, SliceState};

use super::owners::DropCause;
use super::{OwnerClass, SimMachine, SimZone, SliceCell};
use crate::config::PlacementRule;

/// Tries to find a slice by chance before all are looked through.
const TRIES: u32 = 16;
/// Allocations are counted in units of a pageblock.
const COUNTED_PAGES: u64 = 512;

/// Adds pages of a kind to a slice, or takes them away.
fn count(
    cell: &mut SliceCell,
    zone: &mut SimZone,
    class: OwnerClass,
    maps: u32,
    pages: u32,
    dirty: u32,
    add: bool,
) {
    let change = |counter: &mut u32, by: u32| if add { *counter += by } else { *counter -= by };
    let cached = match class {
        OwnerClass::Anon => {
            change(&mut cell.anon, pages);
            0
        }
        OwnerClass::Pinned => {
            change(&mut cell.anon, pages);
            change(&mut cell.pinned, pages);
            0
        }
        OwnerClass::Shmem => {
            change(&mut cell.shmem, pages);
            0
        }
        OwnerClass::File => {
            change(&mut cell.freeable, pages - dirty);
            change(&mut cell.dirty, dirty);
            let freeable = u64::from(pages - dirty);
            zone.freeable = if add { zone.freeable + freeable } else { zone.freeable - freeable };
            pages
        }
        OwnerClass::FileMapped => {
            change(&mut cell.file_mapped, pages);
            pages
        }
        OwnerClass::Unmovable => {
            change(&mut cell.unmovable, pages);
            0
        }
    };
    let (cached, mappings) = (u64::from(cached), u64::from(maps) * u64::from(pages));
    zone.cache = if add { zone.cache + cached } else { zone.cache - cached };
    cell.mappings = if add { cell.mappings + mappings } else { cell.mappings - mappings };
}

impl SimMachine {
    /// Gives an owner free pages of a slice.
    pub(super) fn take(&mut self, at: usize, slot: usize, pages: u32) {
        self.take_as(at, slot, pages, 0);
    }

    /// The same, of which `dirty` are to be written.
    pub(super) fn take_as(&mut self, at: usize, slot: usize, pages: u32, dirty: u32) {
        if pages == 0 {
            return;
        }
        let (cell, owner) = (&mut self.cells[at], &mut self.owners[slot]);
        let zone = &mut self.zones[cell.zone as usize];
        zone.nr_empty -= u32::from(cell.is_empty());
        cell.free -= pages;
        zone.free -= u64::from(pages);
        owner.pages[at] += pages;
        owner.total += u64::from(pages);
        if dirty > 0 {
            owner.dirty[at] += dirty;
            owner.total_dirty += u64::from(dirty);
        }
        self.counted.forget(at);
        count(cell, zone, owner.class, owner.maps, pages, dirty, true);
    }

    /// Takes pages from an owner; clean ones first. Returns how many of them were dirty.
    pub(super) fn give(&mut self, at: usize, slot: usize, pages: u32) -> u32 {
        if pages == 0 {
            return 0;
        }
        let (cell, owner) = (&mut self.cells[at], &mut self.owners[slot]);
        let zone = &mut self.zones[cell.zone as usize];
        let dirty_here = owner.dirty.get(at).copied().unwrap_or(0);
        let dirty = pages.saturating_sub(owner.pages[at] - dirty_here);
        owner.pages[at] -= pages;
        owner.total -= u64::from(pages);
        if dirty > 0 {
            owner.dirty[at] -= dirty;
            owner.total_dirty -= u64::from(dirty);
        }
        self.counted.forget(at);
        count(cell, zone, owner.class, owner.maps, pages, dirty, false);
        cell.free += pages;
        zone.free += u64::from(pages);
        zone.nr_empty += u32::from(cell.is_empty());
        dirty
    }

    /// Finds memory for an owner; returns how much was to be had.
    ///
    /// Above the awake reserve there is nothing to do. Below it, new cache recycles old cache that
    /// is not used again; other allocations wake slices, zone by zone. Only when none is left, the
    /// reserve is used, then cache is dropped, and then the low watermark ignored.
    pub(super) fn allocate(&mut self, slot: usize, pages: u64, cache: bool) -> u64 {
        self.stats.allocations += pages.div_ceil(COUNTED_PAGES);
        let zones = self.zones_for(slot);
        let mut left = pages;
        // A zone wakes its own slices before memory comes from the next one.
        for zone in &zones {
            let zone = std::slice::from_ref(zone);
            loop {
                left = self.place(zone, slot, left, |zone| zone.free.saturating_sub(zone.reserve));
                let more = left > 0
                    && ((cache && self.reclaim(left, true) > 0) || self.wake_on_demand(zone));
                if !more {
                    break;
                }
            }
        }
        loop {
            left = self.place(&zones, slot, left, |zone| zone.free.saturating_sub(zone.low_wmark));
            if left == 0 || self.reclaim(left, false) == 0 {
                break;
            }
        }
        left = self.place(&zones, slot, left, |zone| zone.free.saturating_sub(zone.min_wmark));
        pages - left
    }

    /// Zones that an owner uses, the first choice first: its node's highest zone.
    fn zones_for(&self, slot: usize) -> Vec<usize> {
        if self.zones.len() == 1 {
            return vec![0];
        }
        let mut nodes: Vec<_> = self.config.zones.iter().map(|zone| zone.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let home = nodes[self.owners[slot].id.0 as usize % nodes.len()];
        let mut zones: Vec<usize> = (0..self.zones.len()).collect();
        zones.sort_by_key(|&index| {
            let zone = &self.config.zones[index];
            (zone.node != home, zone.node, std::cmp::Reverse(zone.zone))
        });
        zones
    }

    /// Hands out what `room` allows in each zone; returns what is left.
    fn place(
        &mut self,
        zones: &[usize],
        slot: usize,
        pages: u64,
        room: fn(&SimZone) -> u64,
    ) -> u64 {
        let mut left = pages;
        for &index in zones {
            let mut step = left.min(room(&self.zones[index]));
            left -= step;
            while step > 0 {
                let at = self.destination(index, self.owners[slot].class);
                let run = step.min(self.config.run_pages()).min(u64::from(self.cells[at].free));
                self.take(at, slot, run as u32);
                step -= run;
            }
        }
        left
    }

    /// The slice where the next run goes; it has free pages.
    fn destination(&mut self, index: usize, class: OwnerClass) -> usize {
        let unmovable = class == OwnerClass::Unmovable;
        let usable = |cell: &SliceCell| cell.state == SliceState::Online && cell.free > 0;
        let (first, end) = (self.zones[index].first as usize, self.zones[index].end as usize);
        let lowest = match self.config.placement {
            PlacementRule::Stock => false,
            PlacementRule::KernelLow => unmovable,
            PlacementRule::Packed => true,
        };
        if lowest {
            let found = self.cells[first..end].iter().position(usable);
            return first + found.expect("the zone has free pages");
        }
        let cursor =
            if unmovable { self.zones[index].cursor_unmovable } else { self.zones[index].cursor };
        if usable(&self.cells[cursor as usize]) && !self.random.chance(self.config.scatter) {
            return cursor as usize;
        }
        let at = self.by_chance(first, end);
        let zone = &mut self.zones[index];
        if unmovable {
            zone.cursor_unmovable = at as u32;
        } else {
            zone.cursor = at as u32;
        }
        at
    }

    /// A slice by chance, in proportion to its free pages.
    fn by_chance(&mut self, first: usize, end: usize) -> usize {
        let nr = (end - first) as u64;
        for _ in 0..TRIES {
            let at = first + self.random.below(nr) as usize;
            let cell = &self.cells[at];
            let share = f64::from(cell.free) / f64::from(cell.present);
            if cell.free > 0 && self.random.chance(share) {
                return at;
            }
        }
        let start = first + self.random.below(nr) as usize;
        let found = (start..end).chain(first..start).find(|&at| self.cells[at].free > 0);
        found.expect("the zone has free pages")
    }

    /// Takes up to `pages` from an owner, a run here and a run there.
    pub(super) fn shrink(&mut self, slot: usize, pages: u64) {
        let nr = self.cells.len();
        let mut left = pages.min(self.owners[slot].total);
        if left == self.owners[slot].total {
            for at in 0..nr {
                let all = self.owners[slot].pages[at];
                self.give(at, slot, all);
            }
            return;
        }
        let run = self.config.run_pages();
        while left > 0 {
            let Some(at) = self.held_by_chance(slot) else { return };
            let step = left.min(run).min(u64::from(self.owners[slot].pages[at]));
            self.give(at, slot, step as u32);
            left -= step;
        }
    }

    /// A slice where an owner has pages, by chance and in proportion to them.
    fn held_by_chance(&mut self, slot: usize) -> Option<usize> {
        let nr = self.cells.len() as u64;
        for _ in 0..TRIES {
            let at = self.random.below(nr) as usize;
            let share = f64::from(self.owners[slot].pages[at]) / f64::from(self.cells[at].present);
            if share > 0.0 && self.random.chance(share) {
                return Some(at);
            }
        }
        let start = self.random.below(nr) as usize;
        let pages = &self.owners[slot].pages;
        (start..pages.len()).chain(0..start).find(|&at| pages[at] > 0)
    }

    /// Drops up to `pages` of clean unmapped cache because memory is short, or only `idle` cache,
    /// to be replaced by other; returns how many.
    pub(super) fn reclaim(&mut self, pages: u64, idle: bool) -> u64 {
        let mut dropped = 0;
        // While slices are off, it is for their sake that memory is short.
        let packing = !self.offline.is_empty();
        let cause = if packing { DropCause::Packing } else { DropCause::Pressure };
        for slot in 0..self.owners.len() {
            while dropped < pages && self.owners[slot].class == OwnerClass::File {
                let owner = &self.owners[slot];
                let clean = owner.total - owner.total_dirty;
                let spared = if idle {
                    (owner.usage.active() * owner.total as f64).round() as u64
                } else {
                    0
                };
                let clean = clean.saturating_sub(spared);
                if clean == 0 {
                    break;
                }
                let Some(at) = self.clean_by_chance(slot) else { break };
                let here = u64::from(self.clean_here(slot, at));
                let step = here.min(self.config.run_pages()).min(pages - dropped).min(clean);
                self.drop_idle(slot, step);
                self.drop_clean(at, slot, step as u32, cause);
                self.stats.reclaimed_pages += step;
                dropped += step;
            }
        }
        dropped
    }

    fn clean_by_chance(&mut self, slot: usize) -> Option<usize> {
        if let Some(at) = self.held_by_chance(slot)
            && self.clean_here(slot, at) > 0
        {
            return Some(at);
        }
        (0..self.cells.len()).find(|&at| self.clean_here(slot, at) > 0)
    }

    /// An owner's clean cache in a slice.
    pub(super) fn clean_here(&self, slot: usize, at: usize) -> u32 {
        let owner = &self.owners[slot];
        if owner.class == OwnerClass::File {
            owner.pages[at] - owner.dirty.get(at).copied().unwrap_or(0)
        } else {
            0
        }
    }

    /// Drops clean cache; the owner remembers that it was there.
    pub(super) fn drop_clean(&mut self, at: usize, slot: usize, pages: u32, cause: DropCause) {
        self.give(at, slot, pages);
        let owner = &mut self.owners[slot];
        let dropped = match cause {
            DropCause::Request => &mut owner.dropped_packing,
            DropCause::Packing => &mut owner.dropped_reclaimed,
            DropCause::Pressure => &mut owner.dropped_pressure,
        };
        *dropped += u64::from(pages);
    }

    /// Wakes the lowest slice that is off in the first zone that has one, as the kernel does.
    fn wake_on_demand(&mut self, zones: &[usize]) -> bool {
        for &index in zones {
            let SimZone { first, end, .. } = self.zones[index];
            let Some(&at) = self.offline.range(first..end).next() else { continue };
            self.switch(at as usize, SliceState::Online);
            self.zones[index].woken_by_demand += 1;
            self.stats.demand_wakes += 1;
            self.report_woken(1);
            return true;
        }
        false
    }

    fn report_woken(&mut self, more: u32) {
        let now = Duration::from_micros(self.time_us);
        if let Some(PolicyEvent::Woken { time, slices, cause: WakeCause::Demand }) =
            self.events.last_mut()
            && *time == now
        {
            *slices += more;
            return;
        }
        self.events.push(PolicyEvent::Woken { time: now, slices: more, cause: WakeCause::Demand });
    }

    /// Free pages of all zones that are awake.
    pub fn free(&self) -> Pages {
        Pages(self.zones.iter().map(|zone| zone.free).sum())
    }
}
