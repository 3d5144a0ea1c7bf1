//! Samples as machines, for the commands and the simulator.

use std::iter::Peekable;
use std::ops::Range;

use ramslice_types::{
    BackendInfo, Bytes, MachineState, NodeId, PageCensus, PageCounts, Pages, Price, Reason,
    SliceCensus, SliceCounters, SliceId, SliceSnapshot, SliceState, WorkCounters, ZoneCensus,
    ZoneIndex, ZoneNumber,
};
use std::time::Duration;

use crate::error::ReadError;
use crate::reader::Recording;
use crate::table_rows::{LocatedRow, TableRows};
use crate::tables::{Census, Sample, Slice, Zone};

/// The machine at each sample that has slices; see [`Recording::machines`].
///
/// A sample whose slices are not all there is skipped and counted.
pub struct RecordedMachines<'a> {
    recording: &'a Recording,
    samples: TableRows<Sample>,
    slices: Peekable<TableRows<Slice>>,
    zones: Peekable<TableRows<Zone>>,
    census: Peekable<TableRows<Census>>,
    skipped_samples: u64,
    cut: u64,
    /// The sample of the machine last given, and its zones.
    last_sample: Option<LocatedRow<Sample>>,
    last_zones: Vec<LocatedRow<Zone>>,
}

impl<'a> RecordedMachines<'a> {
    pub(crate) fn new(recording: &'a Recording, parts: Range<u32>) -> Self {
        Self {
            recording,
            samples: recording.rows_of(parts.clone()),
            slices: recording.rows_of(parts.clone()).peekable(),
            zones: recording.rows_of(parts.clone()).peekable(),
            census: recording.rows_of(parts).peekable(),
            skipped_samples: 0,
            cut: 0,
            last_sample: None,
            last_zones: Vec::new(),
        }
    }

    /// Samples so far that could not be given back whole.
    pub fn skipped(&self) -> u64 {
        self.skipped_samples
    }

    /// Censuses so far whose slices or zones are not all there.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// The census that was taken with the machine last given; nothing if there was none, or if it
    /// is not whole. To be asked once for each machine.
    ///
    /// # Errors
    /// By file and row, if a value cannot be.
    pub fn census(&mut self) -> Result<Option<PageCensus>, ReadError> {
        let Some(sample) = &self.last_sample else { return Ok(None) };
        let Some(wanted) = sample.row.census_slices else { return Ok(None) };
        let rows = rows_of(&mut self.census, sample.row.sample, |row: &Census| row.sample)?;
        let zones: Option<Vec<_>> = self.last_zones.iter().map(zone_census).collect();
        let (Ok(true), Some(zones)) = (i64::try_from(rows.len()).map(|rows| rows == wanted), zones)
        else {
            self.cut += 1;
            return Ok(None);
        };
        let slices = rows.iter().map(slice_census).collect::<Result<_, _>>()?;
        Ok(Some(PageCensus { slices, zones: zones.into_iter().collect::<Result<_, _>>()? }))
    }

    /// When the machine last given was sampled, on the clock that goes on during suspend.
    pub fn boottime_us(&self) -> Option<i64> {
        self.last_sample.as_ref().map(|sample| sample.row.boottime_us)
    }

    /// The space used on block devices' file systems at that sample; `None` if the recording does
    /// not have it.
    pub fn stored(&self) -> Option<Bytes> {
        self.last_sample
            .as_ref()?
            .row
            .stored_bytes
            .and_then(|bytes| u64::try_from(bytes).ok())
            .map(Bytes)
    }

    /// Page cache that had been used once by that sample and was not active, and cache that was
    /// active and had been used since; `None` if the recording does not have it.
    pub fn cache_use(&self) -> Option<(Pages, Pages)> {
        let row = &self.last_sample.as_ref()?.row;
        let pages =
            |pages: Option<i64>| pages.and_then(|pages| u64::try_from(pages).ok()).map(Pages);
        pages(row.referenced_cache_pages).zip(pages(row.busy_cache_pages))
    }

    /// What had been done for slices when the machine last given was sampled.
    ///
    /// # Errors
    /// An error with file and row if the recording does not have it, and before the first machine.
    pub fn work(&self) -> Result<WorkCounters, ReadError> {
        let Some(sample) = &self.last_sample else {
            return Err(ReadError::Empty { path: self.recording.dir().to_owned() });
        };
        let row = &sample.row;
        let value = |column: Option<i64>, name: &str| {
            let value = column.ok_or_else(|| {
                sample.error(format!(
                    "`{name}` has no value: what the kernel had done by then was not recorded; \
                     recorders of an older version, without root, or of a saved machine do not"
                ))
            })?;
            RowConverter(sample).narrow::<u64>(name, value)
        };
        Ok(WorkCounters {
            tried_slices: value(row.tried_slices, "tried_slices")?,
            emptied_slices: value(row.emptied_slices, "emptied_slices")?,
            woken_slices: value(row.woken_slices, "woken_slices")?,
            migrated_pages: Pages(value(row.migrated_pages, "migrated_pages")?),
            dropped_pages: Pages(value(row.dropped_pages, "dropped_pages")?),
            target_free_pages: Pages(value(row.target_free_pages, "target_free_pages")?),
            target_cache_pages: Pages(value(row.target_cache_pages, "target_cache_pages")?),
            price_predicted: Price(value(
                row.price_predicted_100cycles,
                "price_predicted_100cycles",
            )?),
            price_measured: Price(value(row.price_measured_100cycles, "price_measured_100cycles")?),
            page_faults: value(row.page_faults, "page_faults")?,
            allocated_pages: Pages(value(row.allocated_pages, "allocated_pages")?),
        })
    }

    fn machine(&mut self, sample: &LocatedRow<Sample>) -> Result<Option<MachineState>, ReadError> {
        let number = sample.row.sample;
        let slices = rows_of(&mut self.slices, number, |row: &Slice| row.sample)?;
        let zones = rows_of(&mut self.zones, number, |row: &Zone| row.sample)?;
        let (Some(geometry), Some(wanted)) =
            (&self.recording.info().geometry, sample.row.nr_slices)
        else {
            return Ok(None);
        };
        if u64::try_from(wanted) != Ok(slices.len() as u64) || zones.is_empty() {
            self.skipped_samples += 1;
            return Ok(None);
        }
        let value = |column: Option<i64>, name: &str| {
            let value = column.ok_or_else(|| sample.error(format!("`{name}` has no value")))?;
            u64::try_from(value).map_err(|_| sample.error(format!("{name} is {value}: below zero")))
        };
        let row = &sample.row;
        let event_seq = value(row.event_seq, "event_seq")?;
        let info = BackendInfo {
            slice_bytes: Bytes(value(row.slice_bytes, "slice_bytes")?),
            nr_slices: slices.len() as u32,
            nr_zones: zones.len() as u32,
            event_seq,
            managed_pages: Pages(value(row.managed_pages, "managed_pages")?),
            free_pages: Pages(value(row.free_pages, "free_pages")?),
            offline_pages: Pages(value(row.offline_pages, "offline_pages")?),
            quarantined_pages: Pages(value(row.quarantined_pages, "quarantined_pages")?),
            held_pages: Pages(
                row.held_pages.map_or(Ok(0), |pages| value(Some(pages), "held_pages"))?,
            ),
            // Recordings do not have it.
            resting_bytes: Bytes::ZERO,
            ..geometry.clone()
        };
        let time = Duration::from_micros(value(row.monotonic_us, "monotonic_us")?);
        let mut slices = slices.iter().map(slice).collect::<Result<Vec<_>, _>>()?;
        for slice in &mut slices {
            slice.frames = info.frames_of(slice.id);
        }
        let found = zones.iter().map(zone).collect::<Result<_, _>>()?;
        self.last_zones = zones;
        let machine = MachineState {
            schema_version: ramslice_types::SCHEMA_VERSION,
            info,
            zones: found,
            snapshot: SliceSnapshot { event_seq, time, slices },
            price_parameters: self.recording.info().price_parameters_100cycles.clone(),
            contents: Vec::new(),
        };
        machine
            .check()
            .map_err(|what| sample.error(format!("the sample cannot be true: {what}")))?;
        Ok(Some(machine))
    }
}

impl Iterator for RecordedMachines<'_> {
    type Item = Result<MachineState, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let sample = match self.samples.next()? {
                Ok(sample) => sample,
                Err(error) => return Some(Err(error)),
            };
            match self.machine(&sample) {
                Ok(Some(machine)) => {
                    self.last_sample = Some(sample);
                    return Some(Ok(machine));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The rows of sample `number`; those of earlier samples are dropped.
fn rows_of<R: crate::TableRow>(
    rows: &mut Peekable<TableRows<R>>,
    number: i64,
    sample: impl Fn(&R) -> i64,
) -> Result<Vec<LocatedRow<R>>, ReadError> {
    let mut found = Vec::new();
    while let Some(next) =
        rows.next_if(|next| next.as_ref().map_or(true, |row| sample(&row.row) <= number))
    {
        let next = next?;
        if sample(&next.row) == number {
            found.push(next);
        }
    }
    Ok(found)
}

/// Checked conversions of one row.
struct RowConverter<'a, R>(&'a LocatedRow<R>);

impl<R> RowConverter<'_, R> {
    fn narrow<T: TryFrom<i64>>(&self, name: &str, value: i64) -> Result<T, ReadError> {
        T::try_from(value).map_err(|_| self.0.error(format!("{name} is {value}: out of range")))
    }

    fn pages(&self, name: &str, value: i64) -> Result<Pages, ReadError> {
        self.narrow(name, value).map(Pages)
    }
}

fn slice(located: &LocatedRow<Slice>) -> Result<ramslice_types::Slice, ReadError> {
    let (row, cells) = (&located.row, RowConverter(located));
    let state: SliceState =
        row.state.parse().map_err(|error| located.error(format!("state: {error}")))?;
    let reason = serde_json::Value::String(row.reason.to_string());
    let reason: Reason = serde_json::from_value(reason)
        .map_err(|error| located.error(format!("reason: {error}")))?;
    Ok(ramslice_types::Slice {
        id: SliceId(cells.narrow("slice_id", row.slice_id)?),
        state,
        reason,
        unreclaimable: row.unreclaimable,
        backoff: row.backoff,
        unmovable: row.unmovable,
        node: NodeId(row.node),
        zone: ZoneNumber(cells.narrow("zone", row.zone.into())?),
        present: cells.pages("present_pages", row.present_pages)?,
        frames: None,
        price: Price(cells.narrow("price_100cycles", row.price_100cycles)?),
        counters: SliceCounters {
            free: cells.pages("free_pages", row.free_pages)?,
            lru_anon: cells.pages("lru_anon_pages", row.lru_anon_pages)?,
            lru_file: cells.pages("lru_file_pages", row.lru_file_pages)?,
            anon_mapped: cells.pages("anon_mapped_pages", row.anon_mapped_pages)?,
            file_mapped: cells.pages("file_mapped_pages", row.file_mapped_pages)?,
            file: cells.pages("file_pages", row.file_pages)?,
            shmem: cells.pages("shmem_pages", row.shmem_pages)?,
            dirty: cells.pages("dirty_pages", row.dirty_pages)?,
            writeback: cells.pages("writeback_pages", row.writeback_pages)?,
            huge: cells.pages("huge_pages", row.huge_pages)?,
        },
        retry_ms: cells.narrow("retry_ms", row.retry_ms)?,
        held: row.held.unwrap_or(false),
    })
}

fn zone(located: &LocatedRow<Zone>) -> Result<ramslice_types::Zone, ReadError> {
    let (row, cells) = (&located.row, RowConverter(located));
    Ok(ramslice_types::Zone {
        index: ZoneIndex(cells.narrow("zone_index", row.zone_index.into())?),
        node: NodeId(row.node),
        zone: ZoneNumber(cells.narrow("zone", row.zone.into())?),
        name: row.name.to_string(),
        nr_slices: cells.narrow("nr_slices", row.nr_slices.into())?,
        nr_empty: cells.narrow("nr_empty", row.nr_empty.into())?,
        nr_offline: cells.narrow("nr_offline", row.nr_offline.into())?,
        nr_quarantined: cells.narrow("nr_quarantined", row.nr_quarantined.into())?,
        nr_held: cells.narrow("nr_held", row.nr_held.unwrap_or(0).into())?,
        managed_pages: cells.pages("managed_pages", row.managed_pages)?,
        free_pages: cells.pages("free_pages", row.free_pages)?,
        offline_pages: cells.pages("offline_pages", row.offline_pages)?,
        awake_reserve_pages: cells.pages("awake_reserve_pages", row.awake_reserve_pages)?,
        low_wmark_pages: cells.pages("low_wmark_pages", row.low_wmark_pages)?,
        woken_by_demand: cells.narrow("woken_by_demand", row.woken_by_demand)?,
    })
}

/// What a census says of a zone; nothing if there was none, or its columns are not there.
fn zone_census(located: &LocatedRow<Zone>) -> Option<Result<ZoneCensus, ReadError>> {
    let (row, cells) = (&located.row, RowConverter(located));
    let (sections, removable) = (row.sections?, row.removable_sections?);
    let (slices, least) = (row.staying_slices?, row.least_staying_slices?);
    let (pages, bound) = (row.staying_pages?, row.offline_bound_pages?);
    Some((|| {
        Ok(ZoneCensus {
            index: ZoneIndex(cells.narrow("zone_index", row.zone_index.into())?),
            sections: cells.narrow("sections", sections)?,
            removable_sections: cells.narrow("removable_sections", removable)?,
            staying_slices: cells.narrow("staying_slices", slices)?,
            least_staying_slices: cells.narrow("least_staying_slices", least)?,
            staying_pages: cells.pages("staying_pages", pages)?,
            offline_bound_pages: cells.pages("offline_bound_pages", bound)?,
        })
    })())
}

fn slice_census(located: &LocatedRow<Census>) -> Result<SliceCensus, ReadError> {
    let (row, cells) = (&located.row, RowConverter(located));
    let state = row.state.parse().map_err(|error| located.error(format!("state: {error}")))?;
    let pages = |name, value| cells.pages(name, value);
    let pages = PageCounts {
        free: pages("free_pages", row.free_pages)?,
        anonymous: pages("anonymous_pages", row.anonymous_pages)?,
        cache: pages("cache_pages", row.cache_pages)?,
        shmem: pages("shmem_pages", row.shmem_pages)?,
        swap_cache: pages("swap_cache_pages", row.swap_cache_pages)?,
        buffer: pages("buffer_pages", row.buffer_pages)?,
        other_movable: pages("other_movable_pages", row.other_movable_pages)?,
        slab: pages("slab_pages", row.slab_pages)?,
        page_table: pages("page_table_pages", row.page_table_pages)?,
        other_unmovable: pages("other_unmovable_pages", row.other_unmovable_pages)?,
        off: pages("off_pages", row.off_pages)?,
        lru: pages("lru_pages", row.lru_pages)?,
        staying: pages("staying_pages", row.staying_pages)?,
    };
    Ok(SliceCensus { slice: SliceId(cells.narrow("slice_id", row.slice_id)?), state, pages })
}
