//! The rules of the patched kernel: clean cache is dropped, the rest moves to other slices of the
//! same zone, and the kernel itself wakes slices when a zone falls below its awake reserve.

use ramslice_types::{CacheChoice, Pages, Reason};

use super::machine_copy::{Destinations, MachineCopy, MovedPages, ZoneKey};
use super::requests::PagesGone;
use super::whatif_memory::WhatIfMemory;

/// The rules, with where pages may go.
#[derive(Debug, Default)]
pub(super) struct PatchedRules {
    destinations: Destinations,
}

impl PatchedRules {
    /// Why a slice stays on: its zone would fall below its reserve, or other slices have no room.
    pub(super) fn refusal(&mut self, machine: &MachineCopy, at: usize) -> Option<Reason> {
        let slice = machine.slice(at);
        let parts = slice.composition(machine.frames());
        if let Some(zone) = machine.zone(ZoneKey::of_slice(slice))
            && zone.free_pages + parts.freeable < zone.awake_reserve_pages + slice.present
        {
            return Some(Reason::AwakeReserve);
        }
        // To fill an empty slice in order to have another one would gain nothing.
        (self.destinations.room(machine, at) < parts.movable).then_some(Reason::NoRoom)
    }

    /// Empties a slice and shows it as offline.
    ///
    /// Cache that the request keeps counts as moved, though it takes no room elsewhere: the next
    /// look at the machine takes it as dropped.
    pub(super) fn switch_off(
        &mut self,
        machine: &mut MachineCopy,
        at: usize,
        cache: CacheChoice,
    ) -> PagesGone {
        let slice = machine.slice(at);
        let (key, parts) = (ZoneKey::of_slice(slice), slice.composition(machine.frames()));
        let lost = slice.present - parts.freeable;
        // A slice may have got pages since it went off that could not move.
        let moved = parts.movable + parts.unmovable;
        self.destinations.exclude(machine, at);
        machine.switch_off(at, lost);
        self.destinations.fill(machine, key, MovedPages { total: moved, ..MovedPages::default() });
        let kept = if cache == CacheChoice::Keep { parts.freeable } else { Pages::ZERO };
        PagesGone { migrated: moved + kept, dropped: parts.freeable - kept }
    }
}

impl WhatIfMemory {
    /// Wakes what the kernel would have woken, the last one first, and shows the rest as offline.
    pub(super) fn apply_patched(&mut self, machine: &mut MachineCopy) {
        let frames = machine.frames();
        let mut rules = PatchedRules::default();
        for at in 0..self.offline_by_zone.len() {
            let key = self.offline_by_zone[at].0;
            let Some(zone) = machine.zone(key).cloned() else { continue };
            let (mut gone, mut dropped) = (Pages::ZERO, Pages::ZERO);
            let parts = |id| {
                let slice = machine.find(id).map(|at| machine.slice(at));
                slice.map_or((Pages::ZERO, Pages::ZERO), |slice| {
                    (slice.present, slice.composition(frames).freeable)
                })
            };
            for &id in &self.offline_by_zone[at].1 {
                let (present, freeable) = parts(id);
                gone += present;
                dropped += freeable;
            }
            while zone.free_pages + dropped < zone.awake_reserve_pages + gone {
                let Some(id) = self.offline_by_zone[at].1.pop() else { break };
                let (present, freeable) = parts(id);
                gone = gone - present;
                dropped = dropped - freeable;
                self.count_woken(key, 1);
            }
            for id in &self.offline_by_zone[at].1 {
                if let Some(slice) = machine.find(*id) {
                    rules.switch_off(machine, slice, CacheChoice::Drop);
                }
            }
        }
    }
}
