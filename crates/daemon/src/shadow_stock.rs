//! The rules of memory hotplug, in thought: what a request to a stock kernel would do, refuse, and who would wake slices.
//!
//! Cache is not dropped but moved, as all else, and finds room outside its slice, in the zone of the highest number that has
//! some. So much stays available (`MemAvailable`) that a guard has time to act; it wakes the lowest slices first. The kernel
//! itself wakes nothing. The real backend asks before each slice, as this does.

use std::cmp::Reverse;

use ramslice_kernel::{Room, keeps_reserves};
use ramslice_types::{Bytes, Headroom, Op, Outcome, Pages, Price, Reason, Request, Slice, SliceId, Zone};
use rustix::io::Errno;

use super::{Shadow, add, shows_off};
use crate::look::{Look, ZoneKey};

impl Shadow {
    /// Wakes what a guard would have woken, and shows the rest as off.
    pub(super) fn view_stock(&mut self, look: &mut Look, headroom: Headroom) {
        let page = look.info.page_bytes;
        let slices = &mut look.snapshot.slices;
        let mut off: Vec<SliceId> = self.off.iter().flat_map(|(_, off)| off).copied().collect();
        off.sort_unstable();
        let of = |slices: &[Slice], id: SliceId| slices.binary_search_by_key(&id, |slice| slice.id).ok();
        let places: Vec<usize> = off.iter().filter_map(|&id| of(slices, id)).collect();
        let gone: Pages = places.iter().map(|&at| slices[at].present).sum();
        let mut available = headroom.available.0.saturating_sub(gone.bytes(page).0);
        let mut wake = 0;
        if available < headroom.floor.0 {
            // As many as bring it above the floor, and one more.
            wake = (headroom.floor.0 - available).div_ceil(look.info.slice_bytes.0.max(1)) as usize + 1;
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
                displaced.push((key, leave(&mut look.zones, slice, look.info.slice_pages())));
            }
        }
        // Not before the free pages of all of them are gone: none finds room in another that is off.
        for (from, pages) in displaced {
            take(&mut look.zones, from, pages);
        }
        look.headroom = Some(Headroom { available: Bytes(available), ..headroom });
    }

    /// Empties slices by ascending price; of equal prices, the higher address first.
    pub(super) fn empty_stock(
        &mut self,
        look: &mut Look,
        request: &Request,
        mut candidates: Vec<(Price, usize)>,
    ) -> Outcome {
        let frames = look.info.slice_pages();
        candidates.sort_unstable_by_key(|&(price, at)| (price, Reverse(at)));
        let mut outcome = Outcome::default();
        let (most, mut left) = (request.max_slices.unwrap_or(u32::MAX), request.budget.raw());
        let mut full = Vec::new();
        for (price, at) in candidates {
            let Some(headroom) = look.headroom.filter(|_| outcome.slices_done < most) else { break };
            let key = ZoneKey::of_slice(&look.snapshot.slices[at]);
            if full.contains(&key) {
                continue;
            }
            let moves = moves(&look.snapshot.slices[at], frames);
            let price = price + headroom.destination * moves.0;
            let refused = if price.0 > left {
                Some(Reason::OverBudget)
            } else {
                refuses(look, &headroom, &look.snapshot.slices[at], moves)
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
            look.headroom = Some(Headroom { available, ..headroom });
            let id = slice.id;
            leave(&mut look.zones, slice, frames);
            take(&mut look.zones, key, moves);
            self.is_off(look, key, id);
        }
        // Whoever named a slice is told that it failed; else a limit is an end as any other.
        if matches!(request.op, Op::Offline(_)) && outcome.slices_done == 0 && outcome.reason != Reason::None
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
fn refuses(look: &Look, headroom: &Headroom, slice: &Slice, moves: Pages) -> Option<Reason> {
    let free: Pages = look.zones.iter().map(|zone| zone.free_pages).sum();
    // The free pages of the slice go, and those that its content moves to; that finds no room inside the slice.
    if free < slice.counters.free + moves {
        return Some(Reason::NoRoom);
    }
    let rooms: Vec<Room> = look.zones.iter().map(room).collect();
    let lost = slice.present.bytes(look.info.page_bytes);
    let most = headroom.available.0.saturating_sub(headroom.margin.0);
    let keeps = keeps_reserves(&rooms, (slice.node, slice.zone), slice.counters.free, moves);
    (lost.0 > most || !keeps).then_some(Reason::AwakeReserve)
}

fn room(zone: &Zone) -> Room {
    Room {
        node: zone.node,
        zone: zone.zone,
        movable: zone.name == "Movable",
        free: zone.free_pages,
        awake_reserve: zone.awake_reserve_pages,
    }
}

/// Shows a slice as off, without its free pages. What it held is still to find room.
fn leave(zones: &mut [Zone], slice: &mut Slice, frames: Pages) -> Pages {
    let moves = moves(slice, frames);
    let (key, free) = (ZoneKey::of_slice(slice), slice.counters.free);
    if let Some(zone) = zones.iter_mut().find(|zone| ZoneKey::of(zone) == key) {
        zone.free_pages = zone.free_pages - free;
        shows_off(zone, slice);
    }
    moves
}

/// Takes pages from the zones that the allocator would take them from, for what moves out of one: of other nodes first, the
/// highest first, Movable for what was in Movable alone, and none below its low watermark as long as another has some.
fn take(zones: &mut [Zone], from: ZoneKey, mut pages: Pages) {
    let movable = |zone: &Zone| zone.name == "Movable";
    let of_movable = zones.iter().any(|zone| ZoneKey::of(zone) == from && movable(zone));
    let mut order: Vec<&mut Zone> = zones.iter_mut().filter(|zone| of_movable || !movable(zone)).collect();
    order.sort_by_key(|zone| (zone.node == from.node, Reverse(zone.zone)));
    for keeps_low in [true, false] {
        for zone in &mut order {
            let floor = if keeps_low { zone.low_wmark_pages } else { Pages::ZERO };
            let taken = pages.min(zone.free_pages - floor);
            zone.free_pages = zone.free_pages - taken;
            pages = pages - taken;
        }
    }
}
