//! The machine of the governor's tests, and what its slices are worth.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use ramslice_energy::builtin;
use ramslice_policy::bench::PAGE_BYTES;
use ramslice_policy::{MachineTotals, SliceEconomics, SliceRow};
use ramslice_types::{Bytes, Pages, Price, SliceId, SliceState};

const SLICE: Pages = Pages(262_144);

pub(crate) fn economics() -> SliceEconomics {
    let profile = builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state("parc").unwrap();
    SliceEconomics::new(state, profile.machine.as_ref().unwrap(), Bytes(1 << 30), PAGE_BYTES)
        .unwrap()
}

/// A machine of 64 slices: so many used, so many of these by cache, so many offline. Its used
/// slices have all the same price.
pub(crate) fn machine(used: u64, cache: u64, offline: u32) -> (MachineTotals, Vec<SliceRow>) {
    let totals = MachineTotals {
        slice_pages: SLICE,
        managed: SLICE * 64,
        free: SLICE * (64 - used - u64::from(offline)),
        offline: SLICE * u64::from(offline),
        freeable: SLICE * cache,
        cache: SLICE * cache,
        awake_reserve: Pages(1000),
        nr_slices: 64,
        nr_offline: offline,
        ..MachineTotals::default()
    };
    let row = |id| SliceRow {
        id: SliceId(id),
        state: if id >= 64 - offline { SliceState::Offline } else { SliceState::Online },
        price: Some(Price(10_000_000)),
        present: SLICE,
        free: Pages(1000),
        freeable: Pages::ZERO,
    };
    (totals, (0..64).map(row).collect())
}
