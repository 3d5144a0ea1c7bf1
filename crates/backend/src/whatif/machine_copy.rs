//! A machine in memory that requests change: its totals, zones and slices, and the sums over them.

use std::collections::BTreeMap;

use ramslice_types::{
    Backend, BackendError, BackendInfo, MemoryHeadroom, NodeId, Pages, Reason, Slice,
    SliceCounters, SliceId, SliceSnapshot, SliceState, Zone, ZoneNumber,
};
use serde::{Deserialize, Serialize};

/// Which zone. The slices of one zone do not serve another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ZoneKey {
    /// Its node.
    pub node: NodeId,
    /// Its number within the node.
    pub zone: ZoneNumber,
}

impl ZoneKey {
    /// Of a zone.
    pub fn of(zone: &Zone) -> Self {
        Self { node: zone.node, zone: zone.zone }
    }

    /// Of the zone that a slice belongs to.
    pub fn of_slice(slice: &Slice) -> Self {
        Self { node: slice.node, zone: slice.zone }
    }
}

/// A copy of a machine.
#[derive(Debug, Clone)]
pub(crate) struct MachineCopy {
    pub(crate) info: BackendInfo,
    pub(crate) zones: Vec<Zone>,
    pub(crate) snapshot: SliceSnapshot,
    /// What a system that wakes nothing by itself keeps available: the rules of memory hotplug
    /// hold. Without it, those of the patched kernel.
    pub(crate) headroom: Option<MemoryHeadroom>,
}

impl MachineCopy {
    /// Copies the machine as it is now.
    pub(crate) fn read(backend: &(impl Backend + ?Sized)) -> Result<Self, BackendError> {
        let (info, zones, snapshot) = backend.view()?;
        Ok(Self { info, zones, snapshot, headroom: backend.headroom()? })
    }

    /// Page frames of a slice.
    pub(super) fn frames(&self) -> Pages {
        self.info.slice_pages()
    }

    pub(super) fn slice(&self, at: usize) -> &Slice {
        &self.snapshot.slices[at]
    }

    /// Where a slice is.
    pub(super) fn find(&self, id: SliceId) -> Option<usize> {
        let slices = &self.snapshot.slices;
        let found = slices.binary_search_by_key(&id, |slice| slice.id).ok();
        // A saved file may have them in another order.
        found.or_else(|| slices.iter().position(|slice| slice.id == id))
    }

    pub(super) fn zone(&self, key: ZoneKey) -> Option<&Zone> {
        self.zones.iter().find(|zone| ZoneKey::of(zone) == key)
    }

    pub(super) fn zone_mut(&mut self, key: ZoneKey) -> Option<&mut Zone> {
        self.zones.iter_mut().find(|zone| ZoneKey::of(zone) == key)
    }

    /// Shows a slice as offline, whose zone has `lost` free pages less.
    pub(super) fn switch_off(&mut self, at: usize, lost: Pages) {
        let slice = &mut self.snapshot.slices[at];
        let (key, present, was_empty) = (ZoneKey::of_slice(slice), slice.present, slice.is_empty());
        (slice.state, slice.counters, slice.reason) =
            (SliceState::Offline, SliceCounters::default(), Reason::None);
        if let Some(zone) = self.zone_mut(key) {
            zone.free_pages = zone.free_pages - lost;
            zone.offline_pages += present;
            zone.nr_offline += 1;
            zone.nr_empty = zone.nr_empty.saturating_sub(was_empty.into());
        }
    }

    /// Shows a slice as online and empty.
    pub(super) fn switch_on(&mut self, at: usize) {
        let slice = &mut self.snapshot.slices[at];
        let (key, present) = (ZoneKey::of_slice(slice), slice.present);
        slice.counters = SliceCounters { free: present, ..SliceCounters::default() };
        (slice.state, slice.reason) = (SliceState::Online, Reason::None);
        let is_empty = slice.is_empty();
        if let Some(zone) = self.zone_mut(key) {
            zone.free_pages += present;
            zone.offline_pages = zone.offline_pages - present;
            zone.nr_offline = zone.nr_offline.saturating_sub(1);
            zone.nr_empty += u32::from(is_empty);
        }
    }

    /// Works out the sums over all zones again, after so many more changes of state.
    pub(super) fn update_totals(&mut self, changes: u64) {
        self.info.free_pages = self.zones.iter().map(|zone| zone.free_pages).sum();
        self.info.offline_pages = self.zones.iter().map(|zone| zone.offline_pages).sum();
        self.info.event_seq += changes;
        self.snapshot.event_seq += changes;
    }
}

/// Pages that leave a slice for others, by what becomes of them there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MovedPages {
    pub(super) total: Pages,
    /// Of these on the file LRU lists.
    pub(super) file_lru: Pages,
    /// Of these clean and unmapped, so that they can be dropped.
    pub(super) freeable: Pages,
}

impl MovedPages {
    /// Takes at most so many of them away; cache first.
    pub(super) fn split_off(&mut self, pages: Pages) -> Self {
        let total = self.total.min(pages);
        let file_lru = self.file_lru.min(total);
        let freeable = self.freeable.min(file_lru);
        self.total = self.total - total;
        self.file_lru = self.file_lru - file_lru;
        self.freeable = self.freeable - freeable;
        Self { total, file_lru, freeable }
    }
}

/// Where pages that move go within a zone: into slices with content first, the dearest of them
/// first, because they are the last to be emptied.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    zones: BTreeMap<ZoneKey, ZoneDestinations>,
}

#[derive(Debug, Default)]
struct ZoneDestinations {
    /// Online slices: those with content, then the empty ones.
    order: Vec<usize>,
    /// The first of them that may have room.
    next: usize,
    /// Free pages of the slices with content.
    room: Pages,
}

impl Destinations {
    fn of(&mut self, machine: &MachineCopy, key: ZoneKey) -> &mut ZoneDestinations {
        self.zones.entry(key).or_insert_with(|| {
            let slices = &machine.snapshot.slices;
            let fits = |slice: &Slice| {
                slice.state == SliceState::Online && ZoneKey::of_slice(slice) == key
            };
            let mut order: Vec<usize> = (0..slices.len()).filter(|&at| fits(&slices[at])).collect();
            order.sort_by_cached_key(|&at| {
                let slice = &slices[at];
                (slice.is_empty(), std::cmp::Reverse((slice.price, slice.id)))
            });
            let room = order
                .iter()
                .filter(|&&at| !slices[at].is_empty())
                .map(|&at| slices[at].counters.free)
                .sum();
            ZoneDestinations { order, next: 0, room }
        })
    }

    /// Free pages of slices with content in a zone, without the slice `from`.
    pub(super) fn room(&mut self, machine: &MachineCopy, from: usize) -> Pages {
        let slice = machine.slice(from);
        let own = if slice.is_empty() { Pages::ZERO } else { slice.counters.free };
        self.of(machine, ZoneKey::of_slice(slice)).room - own
    }

    /// A slice is about to go: its free pages are no room any more.
    pub(super) fn exclude(&mut self, machine: &MachineCopy, from: usize) {
        let room = self.room(machine, from);
        self.of(machine, ZoneKey::of_slice(machine.slice(from))).room = room;
    }

    /// Fills pages into online slices of a zone. The zone's count of free pages is the caller's.
    pub(super) fn fill(&mut self, machine: &mut MachineCopy, key: ZoneKey, moved: MovedPages) {
        let zone = self.of(machine, key);
        zone.room = zone.room - moved.total;
        let (mut left, mut filled) = (moved, 0);
        while left.total > Pages::ZERO && zone.next < zone.order.len() {
            let slice = &mut machine.snapshot.slices[zone.order[zone.next]];
            if slice.state != SliceState::Online || slice.counters.free == Pages::ZERO {
                zone.next += 1;
                continue;
            }
            filled += u32::from(slice.is_empty());
            let counters = &mut slice.counters;
            let step = left.split_off(counters.free);
            let anon = step.total - step.file_lru;
            counters.free = counters.free - step.total;
            counters.lru_anon += anon;
            counters.anon_mapped += anon;
            counters.lru_file += step.file_lru;
            counters.file += step.freeable;
        }
        if let Some(zone) = machine.zone_mut(key) {
            zone.nr_empty = zone.nr_empty.saturating_sub(filled);
        }
    }
}
