//! What a [`super::WhatIfBackend`] remembers from look to look: slices that would be offline, and
//! what would have happened to them. It can be saved and taken up again.

use ramslice_types::{Bytes, SliceId, SliceState};
use serde::{Deserialize, Serialize};

use super::machine_copy::{MachineCopy, ZoneKey};
use super::requests::RequestResult;
use super::whatif_pools::WhatIfPools;

/// What requests would have done so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WhatIfMemory {
    /// The size that slices would have, if not the machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slice_bytes: Option<Bytes>,
    /// Slices that would be offline, by zone, in the order in which they went.
    #[serde(rename = "off")]
    pub(super) offline_by_zone: Vec<(ZoneKey, Vec<SliceId>)>,
    /// State changes that would have been.
    pub(super) changes: u64,
    /// Slices that would have woken because memory was wanted, by zone.
    #[serde(rename = "woken")]
    pub(super) woken_by_zone: Vec<(ZoneKey, u64)>,
    /// Huge pages that would be in pools. Not saved: after a restart their slices would be offline.
    #[serde(skip)]
    pub(super) pools: WhatIfPools,
}

impl WhatIfMemory {
    /// The size that slices would have; the machine's own, `real`, if no other was set.
    pub fn slice_bytes(&self, real: Bytes) -> Bytes {
        self.slice_bytes.unwrap_or(real)
    }

    /// How many slices would be offline.
    pub fn nr_offline(&self) -> u32 {
        let offline = self.offline_by_zone.iter().flat_map(|(_, offline)| offline);
        offline.filter(|id| !self.pools.has(**id)).count() as u32
    }

    /// How many slices of one zone would be offline.
    pub fn nr_offline_in(&self, zone: ZoneKey) -> u32 {
        let mine = self.offline_by_zone.iter().filter(|(key, _)| *key == zone);
        mine.flat_map(|(_, offline)| offline).filter(|id| !self.pools.has(**id)).count() as u32
    }

    /// Slices that would be offline, in the order in which they went.
    pub(super) fn offline(&self) -> impl Iterator<Item = SliceId> {
        self.offline_by_zone.iter().flat_map(|(_, offline)| offline).copied()
    }

    /// The same in the order in which they wake: of each zone, the last one first.
    pub(super) fn wakeable(&self) -> Vec<SliceId> {
        let zones = self.offline_by_zone.iter();
        let ids = zones.flat_map(|(_, offline)| offline.iter().rev()).copied();
        ids.filter(|id| !self.pools.has(*id)).collect()
    }

    /// Changes a copy of the machine into what it would be. Wakes what would have woken.
    pub(super) fn apply(&mut self, machine: &mut MachineCopy) {
        for (key, offline) in &mut self.offline_by_zone {
            if machine.zone(*key).is_none() {
                offline.clear();
            }
            // One that is gone, or that another program has switched meanwhile, is what it is.
            offline.retain(|&id| {
                machine.find(id).map(|at| machine.slice(at)).is_some_and(|slice| {
                    slice.state == SliceState::Online && ZoneKey::of_slice(slice) == *key
                })
            });
        }
        match machine.headroom {
            Some(headroom) => self.apply_hotplug(machine, headroom),
            None => self.apply_patched(machine),
        }
        // A page that would have made way for programs is given back
        self.pools.retain_offline(machine);
        self.pools.show(machine);
        for (key, woken) in &self.woken_by_zone {
            if let Some(zone) = machine.zone_mut(*key) {
                zone.woken_by_demand += woken;
            }
        }
        machine.update_totals(self.changes);
    }

    /// Remembers what a request has done.
    pub(super) fn remember(&mut self, result: &RequestResult) {
        self.changes += 2 * (result.offlined.len() + result.woken.len()) as u64;
        for (key, id) in &result.offlined {
            match self.offline_by_zone.iter_mut().find(|(other, _)| other == key) {
                Some((_, offline)) => offline.push(*id),
                None => self.offline_by_zone.push((*key, vec![*id])),
            }
        }
        for id in &result.woken {
            self.forget(*id);
        }
    }

    /// A slice would be online again.
    pub(super) fn forget(&mut self, id: SliceId) {
        for (_, offline) in &mut self.offline_by_zone {
            offline.retain(|other| *other != id);
        }
    }

    /// Slices of a zone would have woken because memory was wanted.
    pub(super) fn count_woken(&mut self, key: ZoneKey, slices: u64) {
        self.changes += 2 * slices;
        match self.woken_by_zone.iter_mut().find(|(other, _)| *other == key) {
            Some((_, count)) => *count += slices,
            None => self.woken_by_zone.push((key, slices)),
        }
    }
}
