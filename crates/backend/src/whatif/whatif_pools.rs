//! Huge pages that would be in the kernel's pools, if they had been made or given back.

use ramslice_types::{
    BackendError, BackendErrorKind, Bytes, HugePagePool, Reason, SliceCounters, SliceId, SliceState,
};

use super::machine_copy::{MachineCopy, ZoneKey};
use super::whatif_memory::WhatIfMemory;
use crate::huge_page_making::{cheapest_first, huge_page_ranges};

/// Pages that would have been made or given back.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct WhatIfPools {
    /// Of a page as large as a slice or larger: its size and its slices. These count as offline,
    /// and are shown as in use.
    large: Vec<(Bytes, Vec<SliceId>)>,
    /// Of smaller pages, how many would have been made.
    small: Vec<(Bytes, u64)>,
    /// Of the machine's own pages, how many would have been given back.
    given_back: Vec<(Bytes, u64)>,
}

fn count_of(counts: &[(Bytes, u64)], page: Bytes) -> u64 {
    counts.iter().filter(|(size, _)| *size == page).map(|(_, count)| *count).sum()
}

fn set_count(counts: &mut Vec<(Bytes, u64)>, page: Bytes, count: u64) {
    counts.retain(|(size, _)| *size != page);
    if count > 0 {
        counts.push((page, count));
    }
}

impl WhatIfPools {
    /// Whether a slice would be part of a page.
    pub(super) fn has(&self, id: SliceId) -> bool {
        self.large.iter().any(|(_, ids)| ids.contains(&id))
    }

    /// Pages are gone whose slices would not all be offline.
    pub(super) fn retain_offline(&mut self, machine: &MachineCopy) {
        self.large.retain(|(_, ids)| ids.iter().all(|id| is_offline(machine, *id)));
    }

    fn made(&self, page: Bytes) -> u64 {
        let large = self.large.iter().filter(|(size, _)| *size == page).count() as u64;
        large + count_of(&self.small, page)
    }

    /// The pools as they would be.
    pub(super) fn apply(&self, mut pools: Vec<HugePagePool>) -> Vec<HugePagePool> {
        for pool in &mut pools {
            // Those that were given back may be in use now
            let gone = count_of(&self.given_back, pool.page).min(pool.unused());
            let made = self.made(pool.page);
            pool.total = pool.total - gone + made;
            pool.free = pool.free - gone + made;
        }
        pools
    }

    /// Shows slices of pages as online and in use by the pool.
    pub(super) fn show(&self, machine: &mut MachineCopy) {
        for id in self.large.iter().flat_map(|(_, ids)| ids) {
            show_slice(machine, *id);
        }
    }
}

/// Whether a slice is offline and at hand.
fn is_offline(machine: &MachineCopy, id: SliceId) -> bool {
    let slice = machine.find(id).map(|at| machine.slice(at));
    slice.is_some_and(|slice| slice.state == SliceState::Offline && !slice.held)
}

fn show_slice(machine: &mut MachineCopy, id: SliceId) {
    let Some(at) = machine.find(id) else { return };
    let slice = &mut machine.snapshot.slices[at];
    if slice.state != SliceState::Offline {
        return;
    }
    let (key, present) = (ZoneKey::of_slice(slice), slice.present);
    slice.state = SliceState::Online;
    slice.counters = SliceCounters::default();
    (slice.unreclaimable, slice.reason) = (true, Reason::Gigantic);
    if let Some(zone) = machine.zone_mut(key) {
        zone.offline_pages = zone.offline_pages - present;
        zone.nr_offline = zone.nr_offline.saturating_sub(1);
    }
}

impl WhatIfMemory {
    /// Works out a pool of so many pages, and returns how many it would have.
    ///
    /// # Errors
    /// The machine has no huge pages of this size.
    pub(super) fn resize_pool(
        &mut self,
        machine: &mut MachineCopy,
        real: &[HugePagePool],
        page: Bytes,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let find = |pools: &[HugePagePool]| pools.iter().find(|pool| pool.page == page).copied();
        let known = find(real).zip(find(&self.pools.apply(real.to_vec())));
        let Some((real, mut now)) = known else {
            let message = format!("the kernel has no huge pages of {page}");
            return Err(BackendError::new(BackendErrorKind::NotFound, message));
        };
        while now.size() < pages && self.add_page(machine, page) {
            now.total += 1;
        }
        while now.size() > pages && now.free > now.reserved && self.remove_page(machine, &real) {
            now.total -= 1;
            now.free -= 1;
        }
        machine.update_totals(0);
        Ok(now.total)
    }

    fn add_page(&mut self, machine: &mut MachineCopy, page: Bytes) -> bool {
        let gone = count_of(&self.pools.given_back, page);
        if gone > 0 {
            set_count(&mut self.pools.given_back, page, gone - 1);
            return true;
        }
        if page < machine.info.slice_bytes {
            let made = count_of(&self.pools.small, page);
            set_count(&mut self.pools.small, page, made + 1);
            return true;
        }
        let slices = &machine.snapshot.slices;
        let ranges = huge_page_ranges(&machine.info, slices, page);
        let found = cheapest_first(&ranges).into_iter().find_map(|range| {
            let ids: Vec<_> =
                machine.info.slices_touching(range.start.0..range.start.0 + page.0).collect();
            ids.iter().all(|id| is_offline(machine, *id)).then_some(ids)
        });
        let Some(ids) = found else { return false };
        for id in &ids {
            show_slice(machine, *id);
        }
        self.pools.large.push((page, ids));
        true
    }

    fn remove_page(&mut self, machine: &mut MachineCopy, real: &HugePagePool) -> bool {
        let page = real.page;
        if let Some(at) = self.pools.large.iter().rposition(|(size, _)| *size == page) {
            let (_, ids) = self.pools.large.remove(at);
            for id in ids {
                self.forget(id);
                if let Some(at) = machine.find(id) {
                    let slice = &mut machine.snapshot.slices[at];
                    let (key, present) = (ZoneKey::of_slice(slice), slice.present);
                    slice.counters = SliceCounters { free: present, ..SliceCounters::default() };
                    (slice.unreclaimable, slice.reason) = (false, Reason::None);
                    if let Some(zone) = machine.zone_mut(key) {
                        zone.free_pages += present;
                        zone.nr_empty += 1;
                    }
                }
            }
            return true;
        }
        let made = count_of(&self.pools.small, page);
        if made > 0 {
            set_count(&mut self.pools.small, page, made - 1);
            return true;
        }
        let gone = count_of(&self.pools.given_back, page);
        if gone >= real.unused() {
            return false;
        }
        set_count(&mut self.pools.given_back, page, gone + 1);
        true
    }
}
