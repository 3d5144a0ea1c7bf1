//! A simulated machine that starts from a real one: its slices, their contents, its watermarks.

use ramslice_types::{MachineState, Reason, Slice, SliceCounters, SliceState};

use super::{OwnerClass, OwnerId, SimMachine, watermarks};
use crate::config::{SimConfig, SimConfigError};

/// The kinds of memory that counters distinguish, and the owner that has all of each at the
/// beginning.
pub(crate) const KINDS: [(OwnerClass, OwnerId); 5] = [
    (OwnerClass::Unmovable, OwnerId(0)),
    (OwnerClass::Anon, OwnerId(1)),
    (OwnerClass::Shmem, OwnerId(2)),
    (OwnerClass::File, OwnerId(3)),
    (OwnerClass::FileMapped, OwnerId(4)),
];

/// Pages of each of [`KINDS`] in a slice; nothing while it is off.
pub(crate) fn kinds(slice: &Slice) -> [u64; KINDS.len()] {
    if slice.state == SliceState::Offline {
        return [0; KINDS.len()];
    }
    let SliceCounters { free, lru_anon, lru_file, file_mapped, shmem, .. } = slice.counters;
    let used = slice.present.0.saturating_sub(free.0);
    let shmem = shmem.0.min(lru_anon.0).min(used);
    let anon = (lru_anon.0 - shmem).min(used - shmem);
    let all_file = lru_file.0.min(used - shmem - anon);
    let mapped = file_mapped.0.min(all_file);
    [used - shmem - anon - all_file, anon, shmem, all_file - mapped, mapped]
}

impl SimMachine {
    /// A machine with the slices of `seen`, each holding as much of every kind as it held there.
    ///
    /// # Errors
    /// If the configuration makes no machine, or one with other slices.
    pub fn like(config: SimConfig, seen: &MachineState) -> Result<Self, SimConfigError> {
        let mut machine = Self::new(SimConfig { boot_share: 0.0, ..config.clone() })?;
        machine.config = config;
        let slices = &seen.snapshot.slices;
        if slices.len() != machine.cells.len() {
            let wrong = format!("{} slices instead of {}", slices.len(), machine.cells.len());
            return Err(SimConfigError::new(
                "machine",
                wrong,
                "it has the slices of the one that it is like",
            ));
        }
        for (cell, slice) in machine.cells.iter_mut().zip(slices) {
            cell.present = slice.present.0 as u32;
            cell.free = cell.present;
            cell.boot = slice.unreclaimable || cell.present == 0;
            cell.reason = if cell.boot { Reason::Boot } else { Reason::None };
        }
        let page_bytes = machine.config.page_bytes.0;
        let chunk = 2 * machine.config.pageblock_bytes.pages(machine.config.page_bytes).0;
        for zone in &mut machine.zones {
            let cells = &machine.cells[zone.first as usize..zone.end as usize];
            zone.free = cells.iter().map(|cell| u64::from(cell.free)).sum();
            zone.managed = zone.free;
            zone.nr_fixed = cells.iter().filter(|cell| cell.boot).count() as u32;
            zone.nr_empty = cells.iter().filter(|cell| cell.is_empty()).count() as u32;
            let (min, low, high) = watermarks(zone.managed, page_bytes);
            (zone.min_wmark, zone.low_wmark, zone.reserve) = (min, low, high.max(chunk));
        }
        // What the kernel itself says of its marks counts more than what they are as a rule.
        let real = seen.zones.iter().filter(|zone| zone.nr_slices > 0);
        for (zone, real) in machine.zones.iter_mut().zip(real) {
            zone.reserve = real.awake_reserve_pages.0;
            zone.low_wmark = real.low_wmark_pages.0;
            zone.min_wmark = zone.min_wmark.min(zone.low_wmark);
        }
        for (kind, (class, owner)) in KINDS.into_iter().enumerate() {
            let slot = machine.slot(owner, class, 1);
            for (at, slice) in slices.iter().enumerate() {
                machine.take(at, slot, kinds(slice)[kind] as u32);
            }
        }
        for (at, slice) in slices.iter().enumerate() {
            if slice.state == SliceState::Offline && machine.cells[at].is_empty() {
                machine.switch(at, SliceState::Offline);
            }
        }
        machine.stats = super::MachineStats::default();
        Ok(machine)
    }
}
