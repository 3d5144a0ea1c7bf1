//! Huge pages that would be in the kernel's pools, if they had been made or given back.

use ramslice_types::{
    BackendError, BackendErrorKind, Bytes, HugePagePool, NodeId, Reason, SliceCounters, SliceId,
    SliceState,
};

use super::machine_copy::{MachineCopy, ZoneKey};
use super::whatif_memory::WhatIfMemory;
use crate::huge_page_making::{cheapest_first, huge_page_ranges};

/// Pages that would have been made or given back.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct WhatIfPools {
    /// Pages as large as a slice or larger.
    large: Vec<LargePage>,
    /// Of smaller pages, how many would have been made.
    small: Vec<(PoolPart, u64)>,
    /// Of the machine's own pages, how many would have been given back.
    given_back: Vec<(PoolPart, u64)>,
}

/// The size of a pool's pages, and the node that they are on; none where the whole pool was
/// changed, of which the kernel chooses the node.
type PoolPart = (Bytes, Option<NodeId>);

/// A page of slices that count as offline, and are shown as in use.
#[derive(Debug, Clone, PartialEq)]
struct LargePage {
    size: Bytes,
    node: NodeId,
    slices: Vec<SliceId>,
}

impl LargePage {
    fn is_of(&self, (page, node): PoolPart) -> bool {
        self.size == page && node.is_none_or(|node| node == self.node)
    }
}

/// So many on a node; without one, so many in all.
fn count_of(counts: &[(PoolPart, u64)], (page, node): PoolPart) -> u64 {
    let is_of = |part: PoolPart| part.0 == page && (node.is_none() || part.1 == node);
    counts.iter().filter(|(part, _)| is_of(*part)).map(|(_, count)| *count).sum()
}

fn add_one(counts: &mut Vec<(PoolPart, u64)>, part: PoolPart) {
    match counts.iter_mut().find(|(known, _)| *known == part) {
        Some((_, count)) => *count += 1,
        None => counts.push((part, 1)),
    }
}

/// One less on this node; without one, on any. Whether there was one.
fn take_one(counts: &mut Vec<(PoolPart, u64)>, (page, node): PoolPart) -> bool {
    let found = counts
        .iter_mut()
        .find(|((size, on), _)| *size == page && (node.is_none() || *on == node))
        .map(|(_, count)| *count -= 1);
    counts.retain(|(_, count)| *count > 0);
    found.is_some()
}

impl WhatIfPools {
    /// Whether a slice would be part of a page.
    pub(super) fn has(&self, id: SliceId) -> bool {
        self.large.iter().any(|page| page.slices.contains(&id))
    }

    /// Pages are gone whose slices would not all be offline.
    pub(super) fn retain_offline(&mut self, machine: &MachineCopy) {
        self.large.retain(|page| page.slices.iter().all(|id| is_offline(machine, *id)));
    }

    fn made(&self, part: PoolPart) -> u64 {
        let large = self.large.iter().filter(|page| page.is_of(part)).count() as u64;
        large + count_of(&self.small, part)
    }

    /// The pools as they would be, or their parts on a node.
    pub(super) fn apply(
        &self,
        mut pools: Vec<HugePagePool>,
        node: Option<NodeId>,
    ) -> Vec<HugePagePool> {
        for pool in &mut pools {
            // Those that were given back may be in use now
            let gone = count_of(&self.given_back, (pool.page, node)).min(pool.unused());
            let made = self.made((pool.page, node));
            pool.total = pool.total - gone + made;
            pool.free = pool.free - gone + made;
        }
        pools
    }

    /// Shows slices of pages as online and in use by the pool.
    pub(super) fn show(&self, machine: &mut MachineCopy) {
        for id in self.large.iter().flat_map(|page| &page.slices) {
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
    /// Works out a pool of so many pages, or its part on a node, and returns how many it would
    /// have.
    ///
    /// # Errors
    /// The machine has no huge pages of this size.
    pub(super) fn resize_pool(
        &mut self,
        machine: &mut MachineCopy,
        real: &[HugePagePool],
        (page, node): PoolPart,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let find = |pools: &[HugePagePool]| pools.iter().find(|pool| pool.page == page).copied();
        let known = find(real).zip(find(&self.pools.apply(real.to_vec(), node)));
        let Some((real, mut now)) = known else {
            let message = format!("the kernel has no huge pages of {page}");
            return Err(BackendError::new(BackendErrorKind::NotFound, message));
        };
        while now.size() < pages && self.add_page(machine, (page, node)) {
            now.total += 1;
        }
        while now.size() > pages
            && now.free > now.reserved
            && self.remove_page(machine, &real, node)
        {
            now.total -= 1;
            now.free -= 1;
        }
        machine.update_totals(0);
        Ok(now.total)
    }

    fn add_page(&mut self, machine: &mut MachineCopy, part: PoolPart) -> bool {
        if take_one(&mut self.pools.given_back, part) {
            return true;
        }
        let (page, node) = part;
        if page < machine.info.slice_bytes {
            add_one(&mut self.pools.small, part);
            return true;
        }
        let (zones, slices) = (&machine.zones, &machine.snapshot.slices);
        let ranges = huge_page_ranges(&machine.info, zones, slices, page);
        let found = cheapest_first(&ranges)
            .into_iter()
            .filter(|range| node.is_none_or(|node| node == range.zone.node))
            .find_map(|range| {
                let run = range.start.0..range.start.0 + page.0;
                let slices: Vec<_> = machine.info.slices_touching(run).collect();
                let all_off = slices.iter().all(|id| is_offline(machine, *id));
                all_off.then_some(LargePage { size: page, node: range.zone.node, slices })
            });
        let Some(made) = found else { return false };
        for id in &made.slices {
            show_slice(machine, *id);
        }
        self.pools.large.push(made);
        true
    }

    fn remove_page(
        &mut self,
        machine: &mut MachineCopy,
        real: &HugePagePool,
        node: Option<NodeId>,
    ) -> bool {
        let part = (real.page, node);
        if let Some(at) = self.pools.large.iter().rposition(|page| page.is_of(part)) {
            for id in self.pools.large.remove(at).slices {
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
        if take_one(&mut self.pools.small, part) {
            return true;
        }
        if count_of(&self.pools.given_back, part) >= real.unused() {
            return false;
        }
        add_one(&mut self.pools.given_back, part);
        true
    }
}
