//! The rules of memory hotplug: what a request to a stock kernel would do, what it would refuse,
//! and what a guard would wake.
//!
//! Cache is not dropped but moved, as all other content, and finds room outside its slice, in the
//! zone of the highest number that has some. So much stays available (`MemAvailable`) that a guard
//! has time to act, and of each node its share; it wakes the lowest slices first. The kernel itself
//! wakes nothing. The real backend asks before each slice, as this does.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ramslice_types::{Bytes, MemoryHeadroom, Pages, Price, Reason, Slice, SliceId, Zone};

use super::machine_copy::{Destinations, MachineCopy, MovedPages, ZoneKey};
use super::requests::PagesGone;
use super::whatif_memory::WhatIfMemory;
use crate::hotplug::{PlaceMargins, SliceLoss, ZoneRoom, ZoneSize, keeps_reserves};

/// The rules, with what they go by.
#[derive(Debug)]
pub(super) struct HotplugRules {
    headroom: MemoryHeadroom,
    /// The parts of memory that keep a share.
    margins: PlaceMargins,
    /// Page cache by zone.
    cache: BTreeMap<ZoneKey, Pages>,
    destinations: Destinations,
}

impl HotplugRules {
    pub(super) fn new(machine: &MachineCopy, headroom: MemoryHeadroom) -> Self {
        let mut cache: BTreeMap<ZoneKey, Pages> = BTreeMap::new();
        for slice in &machine.snapshot.slices {
            *cache.entry(ZoneKey::of_slice(slice)).or_default() += slice.counters.lru_file;
        }
        let margins = PlaceMargins::of(machine.zones.iter().map(|zone| ZoneSize {
            node: zone.node,
            movable: is_movable(zone),
            pages: zone.managed_pages,
            offline: zone.offline_pages,
        }));
        Self { headroom, margins, cache, destinations: Destinations::default() }
    }

    /// The price of a slice, and what destinations cost.
    pub(super) fn price(&self, machine: &MachineCopy, at: usize) -> Price {
        let slice = machine.slice(at);
        slice.price + self.headroom.destination * moved(slice, machine.frames()).total.0
    }

    /// Why a slice stays on, if it does.
    pub(super) fn refusal(&self, machine: &MachineCopy, at: usize) -> Option<Reason> {
        let (slice, headroom) = (machine.slice(at), machine.headroom?);
        let (zones, moves) = (&machine.zones, moved(slice, machine.frames()).total);
        let free: Pages = zones.iter().map(|zone| zone.free_pages).sum();
        // The free pages of the slice go, and those that its content moves to; that finds no room
        // inside the slice.
        if free < slice.counters.free + moves {
            return Some(Reason::NoRoom);
        }
        let cache = |zone| self.cache.get(&ZoneKey::of(zone)).copied().unwrap_or_default();
        let rooms: Vec<ZoneRoom> = zones.iter().map(|zone| room(zone, cache(zone))).collect();
        let key = ZoneKey::of_slice(slice);
        let going = SliceLoss {
            node: slice.node,
            movable: machine.zone(key).is_some_and(is_movable),
            present: slice.present,
            cache: slice.counters.lru_file,
            moves,
        };
        let page = machine.info.page_bytes;
        let margin = headroom.margin.pages(page);
        let most = headroom.available.0.saturating_sub(headroom.margin.0);
        let fits = slice.present.bytes(page).0 <= most
            && keeps_reserves(&rooms, (slice.node, slice.zone), slice.counters.free, moves)
            && self.margins.allow_loss(&rooms, margin, &going);
        (!fits).then_some(Reason::AwakeReserve)
    }

    /// Empties a slice and shows it as offline.
    pub(super) fn switch_off(&mut self, machine: &mut MachineCopy, at: usize) -> PagesGone {
        let lost = machine.slice(at).present.bytes(machine.info.page_bytes);
        if let Some(headroom) = &mut machine.headroom {
            headroom.available = Bytes(headroom.available.0.saturating_sub(lost.0));
        }
        let displaced = self.remove_pages(machine, at);
        self.place_pages(machine, displaced);
        PagesGone { migrated: displaced.1.total, dropped: Pages::ZERO }
    }

    /// Shows a slice as offline, without its free pages and its cache. Its content is to settle
    /// elsewhere.
    fn remove_pages(&mut self, machine: &mut MachineCopy, at: usize) -> (ZoneKey, MovedPages) {
        let slice = machine.slice(at);
        let (key, free) = (ZoneKey::of_slice(slice), slice.counters.free);
        let content = moved(slice, machine.frames());
        machine.switch_off(at, free);
        let here = self.cache.entry(key).or_default();
        *here = *here - content.file_lru;
        (key, content)
    }

    /// Takes pages from the zones that the allocator would take them from: of other nodes first,
    /// the highest zone first, Movable only for what was in Movable, and none below its low
    /// watermark as long as another has some.
    fn place_pages(&mut self, machine: &mut MachineCopy, (from, content): (ZoneKey, MovedPages)) {
        let of_movable = machine.zone(from).is_some_and(is_movable);
        let mut order: Vec<usize> = (0..machine.zones.len())
            .filter(|&at| of_movable || !is_movable(&machine.zones[at]))
            .collect();
        order.sort_by_key(|&at| {
            let zone = &machine.zones[at];
            (zone.node == from.node, Reverse(zone.zone))
        });
        let mut left = content;
        for keeps_low in [true, false] {
            for &at in &order {
                let zone = &mut machine.zones[at];
                let key = ZoneKey::of(zone);
                let floor = if keeps_low { zone.low_wmark_pages } else { Pages::ZERO };
                let taken = left.split_off(zone.free_pages - floor);
                zone.free_pages = zone.free_pages - taken.total;
                *self.cache.entry(key).or_default() += taken.file_lru;
                self.destinations.fill(machine, key, taken);
            }
        }
    }
}

/// Pages of a slice that would have to find room elsewhere.
fn moved(slice: &Slice, frames: Pages) -> MovedPages {
    let parts = slice.composition(frames);
    MovedPages {
        total: parts.movable + parts.freeable,
        file_lru: slice.counters.lru_file,
        freeable: parts.freeable,
    }
}

fn is_movable(zone: &Zone) -> bool {
    zone.name == "Movable"
}

/// Without the high watermark, which the reserve is at least.
fn room(zone: &Zone, cache: Pages) -> ZoneRoom {
    ZoneRoom {
        node: zone.node,
        zone: zone.zone,
        movable: is_movable(zone),
        free: zone.free_pages,
        awake_reserve: zone.awake_reserve_pages,
        available: zone.free_pages + (cache - Pages((cache.0 / 2).min(zone.low_wmark_pages.0)))
            - zone.low_wmark_pages,
    }
}

impl WhatIfMemory {
    /// Wakes what a guard would have woken, and shows the rest as offline.
    pub(super) fn apply_hotplug(&mut self, machine: &mut MachineCopy, headroom: MemoryHeadroom) {
        let page = machine.info.page_bytes;
        let mut offline: Vec<SliceId> = self.offline().collect();
        offline.sort_unstable();
        let places: Vec<usize> = offline.iter().filter_map(|&id| machine.find(id)).collect();
        let gone: Pages = places.iter().map(|&at| machine.slice(at).present).sum();
        let mut available = headroom.available.0.saturating_sub(gone.bytes(page).0);
        let mut wakes = 0;
        if available < headroom.floor.0 {
            // As many as bring it above the floor, and one more.
            let missing = headroom.floor.0 - available;
            wakes = missing.div_ceil(machine.info.slice_bytes.0.max(1)) as usize + 1;
        }
        let mut rules = HotplugRules::new(machine, headroom);
        let mut displaced = Vec::new();
        for (turn, &at) in places.iter().enumerate() {
            let slice = machine.slice(at);
            if turn < wakes {
                available = available.saturating_add(slice.present.bytes(page).0);
                let (key, id) = (ZoneKey::of_slice(slice), slice.id);
                self.count_woken(key, 1);
                self.forget(id);
            } else {
                displaced.push(rules.remove_pages(machine, at));
            }
        }
        // Not before the free pages of all of them are gone: content finds no room in a slice
        // that is offline itself.
        for displaced in displaced {
            rules.place_pages(machine, displaced);
        }
        machine.headroom = Some(MemoryHeadroom { available: Bytes(available), ..headroom });
    }
}
