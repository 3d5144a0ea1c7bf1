//! What would have become of the machine had the policy's requests been carried out: mode observe.
//!
//! Nothing is sent to the kernel, not even a dry run. Slices that would be off are remembered, and each look at the
//! machine is changed accordingly: they are off in it, and their free memory is gone. When the machine would have
//! fallen below its awake reserve, they wake again, the last one first, as the kernel would do it.
//!
//! On a stock kernel the rules are those of memory hotplug: see [`stock`].
//!
//! What it cannot know: whether pages that look movable are pinned; how pages that were moved would fill the other
//! slices; memory that was wanted and given back between two looks. Cache that a request keeps counts as moved, but
//! later looks take it for dropped. So what it says of earnings is rather too much, and it is told as what would have
//! been.

use std::collections::BTreeMap;

use ramslice_types::{
    CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, Slice, SliceCounters,
    SliceId, SliceState, Zone,
};
use serde::{Deserialize, Serialize};

use crate::look::{Look, ZoneKey};

#[path = "shadow_stock.rs"]
mod stock;

/// What was done in thought.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shadow {
    /// Slices that would be off, by zone, in the order in which they went.
    off: Vec<(ZoneKey, Vec<SliceId>)>,
    /// State changes that would have been.
    changes: u64,
    /// Slices that would have woken because memory was wanted, by zone.
    woken: Vec<(ZoneKey, u64)>,
    /// Free pages that zones would have lost, as of the last look and what was done by it.
    #[serde(skip)]
    taken: BTreeMap<ZoneKey, Pages>,
    /// Cache in zones on a stock kernel, as of the same.
    #[serde(skip)]
    cached: BTreeMap<ZoneKey, Pages>,
}

/// The errno of a request for which there is no room.
const ENOSPC: u32 = 28;

impl Shadow {
    /// Changes what was seen into what would have been seen. Wakes what would have woken.
    pub fn view(&mut self, look: &mut Look) {
        let frames = look.info.slice_pages();
        let place: BTreeMap<SliceId, usize> =
            look.snapshot.slices.iter().enumerate().map(|(at, slice)| (slice.id, at)).collect();
        self.taken.clear();
        for (key, off) in &mut self.off {
            let slices = &mut look.snapshot.slices;
            // Gone, or somebody else has switched it meanwhile: it is what it is.
            off.retain(|id| {
                place.get(id).is_some_and(|&at| {
                    let slice = &slices[at];
                    slice.state == SliceState::Online && ZoneKey::of_slice(slice) == *key
                })
            });
            let Some(zone) = look.zones.iter_mut().find(|zone| ZoneKey::of(zone) == *key) else {
                off.clear();
                continue;
            };
            if look.headroom.is_some() {
                continue;
            }
            let (mut gone, mut dropped) = (Pages::ZERO, Pages::ZERO);
            for id in off.iter() {
                let slice = &slices[place[id]];
                gone += slice.present;
                dropped += slice.composition(frames).freeable;
            }
            while zone.free_pages + dropped < zone.awake_reserve_pages + gone {
                let Some(id) = off.pop() else { break };
                let slice = &slices[place[&id]];
                gone = gone - slice.present;
                dropped = dropped - slice.composition(frames).freeable;
                self.changes += 2;
                add(&mut self.woken, *key, 1);
            }
            for id in off.iter() {
                let slice = &mut slices[place[id]];
                *self.taken.entry(*key).or_default() += switch_off(zone, slice, frames);
            }
        }
        if let Some(headroom) = look.headroom {
            self.view_stock(look, headroom);
        }
        for (key, woken) in &self.woken {
            if let Some(zone) = look.zones.iter_mut().find(|zone| ZoneKey::of(zone) == *key) {
                zone.woken_by_demand += woken;
            }
        }
        look.snapshot.event_seq += self.changes;
    }

    /// Does in thought what a request asks for, on what [`Self::view`] has made of a look.
    pub fn request(&mut self, look: &mut Look, request: &Request) -> RequestOutcome {
        match request.op {
            RequestOp::Online(_) | RequestOp::OnlineAll => self.wake(request),
            RequestOp::Offline(_) | RequestOp::Compact | RequestOp::OfflineFree => {
                self.empty(look, request)
            }
        }
    }

    /// How many slices would be off.
    pub fn nr_off(&self) -> u32 {
        self.off.iter().map(|(_, off)| off.len() as u32).sum()
    }

    /// The same of one zone.
    pub fn nr_off_in(&self, zone: ZoneKey) -> u32 {
        self.off.iter().filter(|(key, _)| *key == zone).map(|(_, off)| off.len() as u32).sum()
    }

    /// Free pages that what is off would have taken from a zone: less than its slices, for their clean cache would be gone.
    /// On a stock kernel nobody asks.
    pub fn taken_from(&self, zone: ZoneKey) -> Pages {
        self.taken.get(&zone).copied().unwrap_or_default()
    }

    fn empty(&mut self, look: &mut Look, request: &Request) -> RequestOutcome {
        let frames = look.info.slice_pages();
        let wanted = |slice: &Slice| match request.op {
            RequestOp::Offline(id) => slice.id == id,
            RequestOp::OfflineFree => slice.is_empty(),
            _ => true,
        };
        let in_zone = |slice: &Slice| {
            request.node.is_none_or(|node| slice.node == node)
                && request.zone.is_none_or(|zone| slice.zone == zone)
        };
        let mut candidates: Vec<(Price, usize)> = look
            .snapshot
            .slices
            .iter()
            .enumerate()
            .filter(|(_, slice)| {
                slice.state == SliceState::Online && wanted(slice) && in_zone(slice)
            })
            .filter_map(|(at, slice)| Some((slice.finite_price()?, at)))
            .collect();
        candidates.sort_unstable();
        if look.headroom.is_some() {
            return self.empty_stock(look, request, candidates);
        }
        let mut outcome = RequestOutcome::default();
        let (most, mut left) = (request.max_slices.unwrap_or(u32::MAX), request.budget.raw());
        for (price, at) in candidates {
            if outcome.slices_done >= most {
                break;
            }
            if price.0 > left {
                outcome.reason = Reason::OverBudget;
                break;
            }
            let slice = &mut look.snapshot.slices[at];
            let key = ZoneKey::of_slice(slice);
            let Some(zone) = look.zones.iter_mut().find(|zone| ZoneKey::of(zone) == key) else {
                continue;
            };
            let parts = slice.composition(frames);
            if zone.free_pages + parts.freeable < zone.awake_reserve_pages + slice.present {
                outcome.reason = Reason::AwakeReserve;
                break;
            }
            if !request.per_slice {
                left = left.saturating_sub(price.0);
            }
            outcome.slices_done += 1;
            outcome.last_slice = Some(slice.id);
            outcome.price_predicted += price;
            outcome.price_measured += price;
            let kept =
                if request.cache == CacheChoice::Keep { parts.freeable } else { Pages::ZERO };
            outcome.migrated += parts.movable + kept;
            outcome.dropped += parts.freeable - kept;
            *self.taken.entry(key).or_default() += switch_off(zone, slice, frames);
            let id = slice.id;
            self.is_off(look, key, id);
        }
        if outcome.slices_done == 0 && outcome.reason != Reason::None {
            outcome.status_errno = ENOSPC;
        }
        outcome
    }

    /// Remembers a slice that went off.
    fn is_off(&mut self, look: &mut Look, key: ZoneKey, id: SliceId) {
        self.changes += 2;
        look.snapshot.event_seq += 2;
        match self.off.iter_mut().find(|(other, _)| *other == key) {
            Some((_, off)) => off.push(id),
            None => self.off.push((key, vec![id])),
        }
    }

    /// The slices themselves are seen to be on at the next look.
    fn wake(&mut self, request: &Request) -> RequestOutcome {
        let mut outcome = RequestOutcome::default();
        let most = request.max_slices.unwrap_or(u32::MAX);
        for (key, off) in &mut self.off {
            let other = request.node.is_some_and(|node| key.node != node)
                || request.zone.is_some_and(|zone| key.zone != zone);
            if other {
                continue;
            }
            if let RequestOp::Online(id) = request.op {
                let before = off.len();
                off.retain(|off| *off != id);
                outcome.slices_done += (before - off.len()) as u32;
            } else {
                let some = off.len().min((most - outcome.slices_done) as usize);
                off.truncate(off.len() - some);
                outcome.slices_done += some as u32;
            }
        }
        self.changes += 2 * u64::from(outcome.slices_done);
        outcome
    }
}

/// Shows a slice as off. Its clean cache would have been dropped, what is movable would be elsewhere in the zone. Says how much
/// less would be free.
fn switch_off(zone: &mut Zone, slice: &mut Slice, frames: Pages) -> Pages {
    let taken = slice.present - slice.composition(frames).freeable;
    zone.free_pages = zone.free_pages - taken;
    shows_off(zone, slice);
    taken
}

fn shows_off(zone: &mut Zone, slice: &mut Slice) {
    if slice.is_empty() {
        zone.nr_empty = zone.nr_empty.saturating_sub(1);
    }
    zone.nr_offline += 1;
    zone.offline_pages += slice.present;
    slice.state = SliceState::Offline;
    slice.counters = SliceCounters::default();
}

fn add(counts: &mut Vec<(ZoneKey, u64)>, key: ZoneKey, more: u64) {
    match counts.iter_mut().find(|(other, _)| *other == key) {
        Some((_, count)) => *count += more,
        None => counts.push((key, more)),
    }
}

#[cfg(test)]
#[path = "shadow_tests.rs"]
mod tests;
