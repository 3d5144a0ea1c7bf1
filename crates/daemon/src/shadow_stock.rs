//! The rules of memory hotplug, in thought: what a request to a stock kernel would do, refuse, and who would wake slices.
//!
//! Cache is not dropped but moved, as all else, and finds room outside its slice, in the zone of the highest number that has
//! some. So much stays available (`MemAvailable`) that a guard has time to act, and of each node its share; it wakes the lowest
//! slices first. The kernel itself wakes nothing. The real backend asks before each slice, as this does.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ramslice_backend::{PlaceMargins, SliceLoss, ZoneRoom, ZoneSize, keeps_reserves};
use ramslice_types::{
    Bytes, MemoryHeadroom, Pages, Price, Reason, Request, RequestOp, RequestOutcome, Slice,
    SliceId, Zone,
};
use rustix::io::Errno;

use super::{Shadow, add, shows_off};
use crate::look::{Look, ZoneKey};

impl Shadow {
    /// Wakes what a guard would have woken, and shows the rest as off.
    pub(super) fn view_stock(&mut self, look: &mut Look, headroom: MemoryHeadroom) {
        let page = look.info.page_bytes;
        let slices = &mut look.snapshot.slices;
        let mut off: Vec<SliceId> = self.off.iter().flat_map(|(_, off)| off).copied().collect();
        off.sort_unstable();
        let of =
            |slices: &[Slice], id: SliceId| slices.binary_search_by_key(&id, |slice| slice.id).ok();
        let places: Vec<usize> = off.iter().filter_map(|&id| of(slices, id)).collect();
        let gone: Pages = places.iter().map(|&at| slices[at].present).sum();
        let mut available = headroom.available.0.saturating_sub(gone.bytes(page).0);
        let mut wake = 0;
        if available < headroom.floor.0 {
            // As many as bring it above the floor, and one more.
            wake = (headroom.floor.0 - available).div_ceil(look.info.slice_bytes.0.max(1)) as usize
                + 1;
        }
        self.cached.clear();
        for slice in slices.iter() {
            *self.cached.entry(ZoneKey::of_slice(slice)).or_default() += slice.counters.lru_file;
        }
        let mut displaced = Vec::new();
        for (turn, &at) in places.iter().enumerate() {
            let slice = &mut slices[at];
            let key = ZoneKey::of_slice(slice);
            if turn < wake {
                available = available.saturating_add(slice.present.bytes(page).0);
                self.changes += 2;
                add(&mut self.woken, key, 1);
                self.off.iter_mut().for_each(|(_, off)| off.retain(|other| *other != slice.id));
            } else {
                displaced.push(leave(
                    &mut look.zones,
                    &mut self.cached,
                    slice,
                    look.info.slice_pages(),
                ));
            }
        }
        // Not before the free pages of all of them are gone: none finds room in another that is off.
        for displaced in displaced {
            take(&mut look.zones, &mut self.cached, displaced);
        }
        look.headroom = Some(MemoryHeadroom { available: Bytes(available), ..headroom });
    }

    /// Empties slices by ascending price; of equal prices, the higher address first.
    pub(super) fn empty_stock(
        &mut self,
        look: &mut Look,
        request: &Request,
        mut candidates: Vec<(Price, usize)>,
    ) -> RequestOutcome {
        let frames = look.info.slice_pages();
        candidates.sort_unstable_by_key(|&(price, at)| (price, Reverse(at)));
        let mut outcome = RequestOutcome::default();
        let (most, mut left) = (request.max_slices.unwrap_or(u32::MAX), request.budget.raw());
        let mut full = Vec::new();
        let margins = margins(look);
        for (price, at) in candidates {
            let Some(headroom) = look.headroom.filter(|_| outcome.slices_done < most) else {
                break;
            };
            let key = ZoneKey::of_slice(&look.snapshot.slices[at]);
            if full.contains(&key) {
                continue;
            }
            let moves = moves(&look.snapshot.slices[at], frames);
            let price = price + headroom.destination * moves.0;
            let refused = if price.0 > left {
                Some(Reason::OverBudget)
            } else {
                refuses(look, &self.cached, &margins, &headroom, &look.snapshot.slices[at], moves)
            };
            if let Some(reason) = refused {
                outcome.reason = reason;
                if reason == Reason::AwakeReserve {
                    // Of this zone no more; another may have some to spare.
                    full.push(key);
                    continue;
                }
                break;
            }
            if !request.per_slice {
                left = left.saturating_sub(price.0);
            }
            let slice = &mut look.snapshot.slices[at];
            outcome.slices_done += 1;
            outcome.last_slice = Some(slice.id);
            outcome.price_predicted += price;
            outcome.price_measured += price;
            outcome.migrated += moves;
            let lost = slice.present.bytes(look.info.page_bytes);
            let available = Bytes(headroom.available.0.saturating_sub(lost.0));
            look.headroom = Some(MemoryHeadroom { available, ..headroom });
            let id = slice.id;
            let displaced = leave(&mut look.zones, &mut self.cached, slice, frames);
            take(&mut look.zones, &mut self.cached, displaced);
            self.is_off(look, key, id);
        }
        // Whoever named a slice is told that it failed; else a limit is an end as any other.
        if matches!(request.op, RequestOp::Offline(_))
            && outcome.slices_done == 0
            && outcome.reason != Reason::None
        {
            outcome.slices_failed = 1;
            let errno = match outcome.reason {
                Reason::OverBudget => Errno::DQUOT,
                Reason::NoRoom => Errno::NOSPC,
                _ => Errno::NOMEM,
            };
            outcome.status_errno = errno.raw_os_error().unsigned_abs();
        }
        outcome
    }
}

/// Pages that would have to find room elsewhere.
fn moves(slice: &Slice, frames: Pages) -> Pages {
    let parts = slice.composition(frames);
    parts.movable + parts.freeable
}

/// Why a slice would have to stay on, if it would.
fn refuses(
    look: &Look,
    cached: &BTreeMap<ZoneKey, Pages>,
    margins: &PlaceMargins,
    headroom: &MemoryHeadroom,
    slice: &Slice,
    moves: Pages,
) -> Option<Reason> {
    let free: Pages = look.zones.iter().map(|zone| zone.free_pages).sum();
    // The free pages of the slice go, and those that its content moves to; that finds no room inside the slice.
    if free < slice.counters.free + moves {
        return Some(Reason::NoRoom);
    }
    let cache = |zone| cached.get(&ZoneKey::of(zone)).copied().unwrap_or_default();
    let rooms: Vec<ZoneRoom> = look.zones.iter().map(|zone| room(zone, cache(zone))).collect();
    let going = SliceLoss {
        node: slice.node,
        movable: look
            .zones
            .iter()
            .any(|zone| ZoneKey::of(zone) == ZoneKey::of_slice(slice) && is_movable(zone)),
        present: slice.present,
        cache: slice.counters.lru_file,
        moves,
    };
    let margin = headroom.margin.pages(look.info.page_bytes);
    let lost = slice.present.bytes(look.info.page_bytes);
    let most = headroom.available.0.saturating_sub(headroom.margin.0);
    let keeps = keeps_reserves(&rooms, (slice.node, slice.zone), slice.counters.free, moves);
    (lost.0 > most || !keeps || !margins.keeps(&rooms, margin, &going))
        .then_some(Reason::AwakeReserve)
}

/// The parts that keep a share.
fn margins(look: &Look) -> PlaceMargins {
    PlaceMargins::of(look.zones.iter().map(|zone| ZoneSize {
        node: zone.node,
        movable: is_movable(zone),
        pages: zone.managed_pages,
        off: zone.offline_pages,
    }))
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

/// What a slice held, that is to find room elsewhere.
#[derive(Clone, Copy)]
struct Displaced {
    from: ZoneKey,
    pages: Pages,
    /// As much of them is cache, which is available wherever it is.
    cache: Pages,
}

/// Shows a slice as off, without its free pages and its cache.
fn leave(
    zones: &mut [Zone],
    cached: &mut BTreeMap<ZoneKey, Pages>,
    slice: &mut Slice,
    frames: Pages,
) -> Displaced {
    let (key, free) = (ZoneKey::of_slice(slice), slice.counters.free);
    let displaced =
        Displaced { from: key, pages: moves(slice, frames), cache: slice.counters.lru_file };
    if let Some(zone) = zones.iter_mut().find(|zone| ZoneKey::of(zone) == key) {
        zone.free_pages = zone.free_pages - free;
        shows_off(zone, slice);
    }
    let here = cached.entry(key).or_default();
    *here = *here - displaced.cache;
    displaced
}

/// Takes pages from the zones that the allocator would take them from, for what moves out of one: of other nodes first, the
/// highest first, Movable for what was in Movable alone, and none below its low watermark as long as another has some.
fn take(zones: &mut [Zone], cached: &mut BTreeMap<ZoneKey, Pages>, displaced: Displaced) {
    let Displaced { from, mut pages, mut cache } = displaced;
    let of_movable = zones.iter().any(|zone| ZoneKey::of(zone) == from && is_movable(zone));
    let mut order: Vec<&mut Zone> =
        zones.iter_mut().filter(|zone| of_movable || !is_movable(zone)).collect();
    order.sort_by_key(|zone| (zone.node == from.node, Reverse(zone.zone)));
    for keeps_low in [true, false] {
        for zone in &mut order {
            let floor = if keeps_low { zone.low_wmark_pages } else { Pages::ZERO };
            let taken = pages.min(zone.free_pages - floor);
            zone.free_pages = zone.free_pages - taken;
            pages = pages - taken;
            let moved = cache.min(taken);
            *cached.entry(ZoneKey::of(zone)).or_default() += moved;
            cache = cache - moved;
        }
    }
}
