//! A census as rows: taken along with a sample, which carries how long it took.

use std::time::{Duration, Instant};

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, ContentsDetail, MachineState, PageCensus, Pages,
    SliceCensus,
};

use crate::error::WriteError;
use crate::tables::{Census, Sample, signed};
use crate::writer::RowBatch;

/// When the next one is due.
#[derive(Debug)]
pub(crate) struct CensusSchedule {
    every: Duration,
    at: Instant,
}

impl CensusSchedule {
    /// At once, and then this often.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, at: Instant::now() }
    }

    /// The next moment.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// After one was taken; intervals that passed meanwhile are not made up for.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.at <= now {
            self.at += self.every;
        }
    }
}

/// Whether pages can be looked at, before anything is written: a saved machine may have none, a
/// user may not.
pub(crate) fn probe(backend: &dyn Backend) -> Result<(), BackendError> {
    let snapshot = backend.snapshot()?;
    let Some(slice) = snapshot.slices.first() else { return Ok(()) };
    match backend.contents(slice.id, ContentsDetail::default()) {
        Err(error) if error.kind() != BackendErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Looks at every page, and adds the rows to a batch that has the zones of the same sample;
/// `between` is called often.
pub(crate) fn take(
    backend: &dyn Backend,
    machine: &MachineState,
    batch: &mut RowBatch,
    sample: &mut Sample,
    between: impl FnMut() -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let begun = Instant::now();
    let census = PageCensus::take(backend, machine, between)?;
    for (row, zone) in batch.zones.iter_mut().zip(&census.zones) {
        row.sections = Some(signed(zone.sections));
        row.removable_sections = Some(signed(zone.removable_sections));
        row.staying_slices = Some(signed(zone.staying_slices));
        row.least_staying_slices = Some(signed(zone.least_staying_slices));
        row.staying_pages = Some(signed(zone.staying_pages.0));
        row.offline_bound_pages = Some(signed(zone.offline_bound_pages.0));
    }
    batch.census = census.slices.iter().map(|slice| row(slice, machine, sample)).collect();
    sample.census_slices = Some(signed(census.slices.len() as u64));
    sample.census_us = Some(i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX));
    Ok(())
}

fn row(counted: &SliceCensus, machine: &MachineState, at: &Sample) -> Census {
    let found = machine.snapshot.slices.binary_search_by_key(&counted.slice, |slice| slice.id);
    let zone = found.ok().and_then(|at| machine.zone_of(&machine.snapshot.slices[at]));
    let pages = |pages: Pages| signed(pages.0);
    let counts = &counted.pages;
    Census {
        sample: at.sample,
        boottime_us: at.boottime_us,
        realtime_us: at.realtime_us,
        slice_id: counted.slice.0.into(),
        state: counted.state.name().into(),
        zone_index: zone.map_or(-1, |zone| i32::try_from(zone.index.0).unwrap_or(i32::MAX)),
        free_pages: pages(counts.free),
        anonymous_pages: pages(counts.anonymous),
        cache_pages: pages(counts.cache),
        shmem_pages: pages(counts.shmem),
        swap_cache_pages: pages(counts.swap_cache),
        buffer_pages: pages(counts.buffer),
        other_movable_pages: pages(counts.other_movable),
        slab_pages: pages(counts.slab),
        page_table_pages: pages(counts.page_table),
        other_unmovable_pages: pages(counts.other_unmovable),
        off_pages: pages(counts.off),
        lru_pages: pages(counts.lru),
        staying_pages: pages(counts.staying),
    }
}
