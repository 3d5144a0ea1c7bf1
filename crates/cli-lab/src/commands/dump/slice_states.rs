//! Slices by zone and state, counted sample by sample.

use std::collections::BTreeMap;

use anyhow::Result;
use ramslice_record::Recording;
use ramslice_record::tables::{Sample, Slice, Zone};
use ramslice_types::SliceState;

use super::metric_families::{label, zone_labels};
use super::point_table::{FamilySeries, MOST_POINTS, PointTable, SeriesPoint};
use super::time_span::{RecordingTimes, TimeSpan};

/// A zone: its node, and its number there.
type ZoneId = (i32, i32);

/// Slices by state, in the order of [`SliceState::ALL`].
type StateNumbers = [u32; SliceState::ALL.len()];

/// What has been counted so far.
struct StateCounts {
    zone_labels: BTreeMap<ZoneId, String>,
    /// How many slices belong to each sample.
    nr_slices: BTreeMap<i64, i64>,
    points: PointTable,
    /// Samples that lack slices.
    skipped: u64,
}

/// The slices of a sample that were read so far.
struct SampleCount {
    sample: i64,
    time_ms: i64,
    nr_slices: i64,
    zones: BTreeMap<ZoneId, StateNumbers>,
}

/// The series of all zones and states, and how many samples were passed over because their slices
/// are not all there.
pub(super) fn series(
    recording: &Recording,
    times: &RecordingTimes,
    span: TimeSpan,
) -> Result<(FamilySeries, u64)> {
    let mut counts = StateCounts {
        zone_labels: BTreeMap::new(),
        nr_slices: BTreeMap::new(),
        points: PointTable::new(0, MOST_POINTS),
        skipped: 0,
    };
    for row in span.rows::<Sample>(recording) {
        let row = row?;
        counts.nr_slices.insert(row.sample, row.nr_slices.unwrap_or(0));
    }
    for row in span.rows::<Zone>(recording) {
        let row = row?;
        let labels = || zone_labels(row.node, &row.name);
        counts.zone_labels.entry((row.node, row.zone)).or_insert_with(labels);
    }
    let mut current: Option<SampleCount> = None;
    for row in span.rows::<Slice>(recording) {
        let row = row?;
        if let Some(before) = current.take_if(|current| current.sample != row.sample) {
            counts.add(&before);
        }
        let time_ms = times.calendar_ms(row.boottime_us);
        current.get_or_insert_with(|| SampleCount::new(row.sample, time_ms)).count(&row);
    }
    if let Some(last) = current {
        counts.add(&last);
    }
    let (mut families, _) = counts.points.into_families();
    Ok((families.remove(&0).unwrap_or_default(), counts.skipped))
}

impl SampleCount {
    fn new(sample: i64, time_ms: i64) -> Self {
        Self { sample, time_ms, nr_slices: 0, zones: BTreeMap::new() }
    }

    fn count(&mut self, row: &Slice) {
        self.nr_slices += 1;
        let numbers = self.zones.entry((row.node, row.zone)).or_default();
        if let Some(at) = SliceState::ALL.iter().position(|state| state.name() == row.state) {
            numbers[at] += 1;
        }
    }
}

impl StateCounts {
    /// Adds the points of a sample, if it is whole.
    fn add(&mut self, count: &SampleCount) {
        if self.nr_slices.get(&count.sample) != Some(&count.nr_slices) {
            self.skipped += 1;
            return;
        }
        for (zone, labels) in &self.zone_labels {
            let numbers = count.zones.get(zone).copied().unwrap_or_default();
            for (state, number) in SliceState::ALL.into_iter().zip(numbers) {
                let labels = format!("{labels},{}", label("state", state.name()));
                let point = SeriesPoint { time_ms: count.time_ms, value: number.into() };
                self.points.add(0, &labels, point);
            }
        }
    }
}
