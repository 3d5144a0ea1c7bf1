//! The rows that a snapshot of a machine fills.

use ramslice_types::{BackendInfo, SliceSnapshot, WorkCounters};

use crate::tables::{Sample, Slice, Zone, signed};

/// Fills in the figures of the whole machine.
pub(crate) fn fill_machine(row: &mut Sample, snapshot: &SliceSnapshot, info: &BackendInfo) {
    row.monotonic_us = Some(i64::try_from(snapshot.time.as_micros()).unwrap_or(i64::MAX));
    row.event_seq = Some(signed(snapshot.event_seq));
    row.slice_bytes = Some(signed(info.slice_bytes.0));
    row.nr_slices = i64::try_from(snapshot.slices.len()).ok();
    row.managed_pages = Some(signed(info.managed_pages.0));
    row.free_pages = Some(signed(info.free_pages.0));
    row.offline_pages = Some(signed(info.offline_pages.0));
    row.quarantined_pages = Some(signed(info.quarantined_pages.0));
    row.held_pages = Some(signed(info.held_pages.0));
}

/// Fills in the counters of work.
pub(crate) fn fill_work(row: &mut Sample, work: &WorkCounters) {
    row.tried_slices = Some(signed(work.tried_slices));
    row.emptied_slices = Some(signed(work.emptied_slices));
    row.woken_slices = Some(signed(work.woken_slices));
    row.migrated_pages = Some(signed(work.migrated_pages.0));
    row.dropped_pages = Some(signed(work.dropped_pages.0));
    row.target_free_pages = Some(signed(work.target_free_pages.0));
    row.target_cache_pages = Some(signed(work.target_cache_pages.0));
    row.price_predicted_100cycles = Some(signed(work.price_predicted.0));
    row.price_measured_100cycles = Some(signed(work.price_measured.0));
    row.page_faults = Some(signed(work.page_faults));
    row.allocated_pages = Some(signed(work.allocated_pages.0));
}

/// The row of a zone at a sample.
pub(crate) fn zone_row(zone: &ramslice_types::Zone, at: &Sample) -> Zone {
    let small = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    Zone {
        sample: at.sample,
        boottime_us: at.boottime_us,
        realtime_us: at.realtime_us,
        zone_index: small(zone.index.0),
        node: zone.node.0,
        zone: small(zone.zone.0),
        name: zone.name.clone().into(),
        nr_slices: small(zone.nr_slices),
        nr_empty: small(zone.nr_empty),
        nr_offline: small(zone.nr_offline),
        nr_quarantined: small(zone.nr_quarantined),
        managed_pages: signed(zone.managed_pages.0),
        free_pages: signed(zone.free_pages.0),
        offline_pages: signed(zone.offline_pages.0),
        awake_reserve_pages: signed(zone.awake_reserve_pages.0),
        low_wmark_pages: signed(zone.low_wmark_pages.0),
        woken_by_demand: signed(zone.woken_by_demand),
        nr_held: Some(small(zone.nr_held)),
        ..Zone::default()
    }
}

/// The row of a slice at a sample.
pub(crate) fn slice_row(slice: &ramslice_types::Slice, at: &Sample) -> Slice {
    let counters = &slice.counters;
    Slice {
        sample: at.sample,
        boottime_us: at.boottime_us,
        realtime_us: at.realtime_us,
        slice_id: slice.id.0.into(),
        state: slice.state.name().into(),
        reason: match slice.reason {
            ramslice_types::Reason::None => "none".into(),
            reason => reason.code().into(),
        },
        unreclaimable: slice.unreclaimable,
        backoff: slice.backoff,
        unmovable: slice.unmovable,
        node: slice.node.0,
        zone: i32::try_from(slice.zone.0).unwrap_or(i32::MAX),
        present_pages: signed(slice.present.0),
        price_100cycles: signed(slice.price.0),
        retry_ms: slice.retry_ms.into(),
        free_pages: signed(counters.free.0),
        lru_anon_pages: signed(counters.lru_anon.0),
        lru_file_pages: signed(counters.lru_file.0),
        anon_mapped_pages: signed(counters.anon_mapped.0),
        file_mapped_pages: signed(counters.file_mapped.0),
        file_pages: signed(counters.file.0),
        shmem_pages: signed(counters.shmem.0),
        dirty_pages: signed(counters.dirty.0),
        writeback_pages: signed(counters.writeback.0),
        huge_pages: signed(counters.huge.0),
        held: Some(slice.held),
    }
}
