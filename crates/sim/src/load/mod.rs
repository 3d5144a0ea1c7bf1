//! Loads: how programs change the memory of the simulated machine, step by step.

mod demand;
mod error;
mod generate;
mod machine_selection;
mod recording;
mod synthetic;
mod usage;

use std::time::Duration;

use ramslice_record::{Recording, RecordingTable};
use serde::{Serialize, Serializer};

pub use demand::{ProgramDemand, RecordedMoment, ReleaseOrder};
pub use error::InputError;
pub use generate::{LoadGenerator, LoadPattern, LoadScale};
pub use machine_selection::MachineSelection;
pub use recording::{RecordedLoad, recorded};
pub use synthetic::{FleetAverages, SyntheticUsage};
pub use usage::{UsageFile, UsageLoad, UsageOptions, UsageSeries};

use crate::machine::MemoryChange;

/// The changes at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadStep {
    /// When: never before the step that came before.
    pub time: Duration,
    /// What is done then, in this order.
    pub changes: Vec<MemoryChange>,
}

/// Gaps of an input, and how they were filled. None of them is an error; all are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct InputNotes {
    /// Times between two rows that were far longer than others: what was before went on.
    pub gaps: u64,
    /// How long these were together.
    #[serde(rename = "gap_us", with = "ramslice_types::duration_us")]
    pub gap_time: Duration,
    /// Rows without a value, or with the one that says that it is not known: left out.
    pub without_value: u64,
    /// Rows that repeat the one before, word for word: left out.
    pub repeated: u64,
    /// Samples of a recording whose slices were not all there: left out.
    pub incomplete: u64,
    /// Parts of a recording's tables that are missing: their data is left out.
    pub missing_parts: MissingParts,
}

/// Missing parts, by table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingParts([u64; RecordingTable::ALL.len()]);

impl MissingParts {
    /// Those of a recording.
    pub fn of(recording: &Recording) -> Self {
        let missing = recording.missing_parts();
        Self(RecordingTable::ALL.map(|table| missing.get(&table).copied().unwrap_or(0)))
    }

    /// Tables that lack some, and how many.
    pub fn tables(&self) -> impl Iterator<Item = (RecordingTable, u64)> {
        RecordingTable::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for MissingParts {
    /// The tables that lack some.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.tables().map(|(table, count)| (table.name(), count)))
    }
}

impl std::ops::AddAssign for InputNotes {
    fn add_assign(&mut self, other: Self) {
        self.gaps += other.gaps;
        self.gap_time += other.gap_time;
        self.without_value += other.without_value;
        self.repeated += other.repeated;
        self.incomplete += other.incomplete;
        for (mine, theirs) in self.missing_parts.0.iter_mut().zip(other.missing_parts.0) {
            *mine += theirs;
        }
    }
}

impl InputNotes {
    /// What a reader should know, in words; empty if there is nothing.
    pub fn sentences(&self) -> Vec<String> {
        let gaps = (self.gaps > 0).then(|| {
            let hours = self.gap_time.as_secs_f64() / 3600.0;
            format!(
                "{} gaps of {hours:.1} h in all, across which what was before went on",
                self.gaps
            )
        });
        let others = [
            (self.without_value, "rows without a value, left out"),
            (self.repeated, "rows that repeat the one before, left out"),
            (self.incomplete, "samples whose slices are not all there, left out"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"));
        gaps.into_iter()
            .chain(others)
            .chain(self.missing_parts.tables().map(|(table, count)| {
                format!("{count} parts of the table {table} are missing: their data is left out")
            }))
            .collect()
    }

    /// Counts the gaps among the distances of rows: what is more than three times as long as nine
    /// of ten. Traces whose rows are irregular by nature have few.
    fn count_gaps(&mut self, mut distances: Vec<Duration>) {
        distances.sort_unstable();
        let Some(&long) = distances.get(distances.len().saturating_sub(1) * 9 / 10) else { return };
        let gaps = distances.iter().filter(|distance| **distance > long * GAP);
        (self.gaps, self.gap_time) = (gaps.clone().count() as u64, gaps.sum());
    }
}

/// A distance this many times a long one is a gap.
const GAP: u32 = 3;
