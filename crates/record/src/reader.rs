//! The reader: opens a recording, checks it, and gives its rows back.
//!
//! What is wrong is an error that names file and row: another version, a missing column, another
//! type or unit, a part that is not whole, a value that cannot be, duplicates, times that run
//! backwards. What is only missing is counted in [`CheckFindings`]: temporary files, parts and
//! samples that a kill took along, samples that came too late.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ramslice_types::{MachineState, PageCensus, WorkCounters};
use serde::Serialize;

use crate::error::ReadError;
use crate::part;
use crate::recording_info::{RecordingEnd, RecordingInfo};
use crate::recording_part::RecordingPart;
use crate::replay::RecordedMachines;
use crate::schema::TableRow;
use crate::table_rows::TableRows;
use crate::tables::{Census, Event, Meminfo, RecordingTable, Sample, Slice, Vmstat, Zone};

/// A recording on disk.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    info: RecordingInfo,
    end: Option<RecordingEnd>,
    parts: BTreeMap<RecordingTable, BTreeMap<u32, PathBuf>>,
    temporaries: u64,
    broken_parts: u64,
}

/// What a check of a whole recording found; nothing here is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CheckFindings {
    /// Rows by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Parts by table.
    pub parts: BTreeMap<&'static str, u64>,
    /// Files that were not finished; readers pass them over, the next recorder removes them.
    pub temporary_files: u64,
    /// Parts that are not whole and were skipped, as asked for.
    pub broken_parts: u64,
    /// Numbers of parts that a table lacks although others have them, or higher ones.
    pub missing_parts: u64,
    /// Numbers between the first and the last sample that are not there.
    pub missing_samples: u64,
    /// Samples that were due and not taken.
    pub missed_samples: u64,
    /// Samples whose slices are not all there, and slices of no sample: not replayed.
    pub incomplete_samples: u64,
    /// Censuses whose slices are not all there, and counted slices of no sample: passed over.
    pub incomplete_censuses: u64,
    /// Events that the kernel had no room for.
    pub lost_events: u64,
    /// Events that are a little earlier than the one before.
    pub events_out_of_order: u64,
    /// The highest number of a sample in any table; -1 without any.
    pub last_sample: i64,
    /// The highest number of an event; -1 without any.
    pub last_event: i64,
    /// From the first to the last sample.
    pub span_us: i64,
}

impl Recording {
    /// Opens the recording in `dir`; every part must be whole and of this version.
    ///
    /// Of one that has not ended, parts behind the last one of samples are left out: a flush is
    /// under way, or was cut short.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(dir, false, true)
    }

    /// The same, but parts that are not whole Parquet files are skipped and counted.
    pub fn open_skipping_broken(dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(dir, true, true)
    }

    /// With all parts, also of a flush that was cut short: for a recorder that goes on behind them.
    pub(crate) fn open_to_continue(dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(dir, false, false)
    }

    fn open_with(dir: &Path, skip: bool, flushed: bool) -> Result<Self, ReadError> {
        let (mut parts, mut temporaries, mut broken_parts) = (BTreeMap::new(), 0, 0);
        let mut info = None;
        let not_a_recording = |why: String| ReadError::NotARecording { path: dir.to_owned(), why };
        if !dir.is_dir() {
            let why = if dir.exists() { "it is not a directory" } else { "it does not exist" };
            return Err(not_a_recording(why.to_owned()));
        }
        let there = |table: &RecordingTable| dir.join(table.name()).is_dir();
        if let Some(table) =
            RecordingTable::ALL.iter().find(|table| !there(table) && !table.is_optional())
        {
            return Err(not_a_recording(format!("it has no directory `{table}`")));
        }
        // First of all, and samples before the others, which a flush writes before them: what
        // comes while this looks is neither missing nor left over.
        let end = read_end(&dir.join(part::MANIFEST))?;
        let mut last = None;
        for table in RecordingTable::ALL.into_iter().rev().filter(there) {
            let path = dir.join(table.name());
            let mut numbers: BTreeMap<u32, PathBuf> = BTreeMap::new();
            for entry in fs::read_dir(&path).map_err(|source| ReadError::io(&path, source))? {
                let entry = entry.map_err(|source| ReadError::io(&path, source))?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                temporaries += u64::from(part::is_temporary(name));
                if let Some(number) = part::number(name) {
                    numbers.insert(number, entry.path());
                }
            }
            if flushed && end.is_none() {
                let last = *last.get_or_insert(numbers.keys().next_back().copied());
                numbers.retain(|number, _| Some(*number) <= last);
            }
            let mut whole = BTreeMap::new();
            for (number, path) in numbers {
                match RecordingPart::open(&path, table, number) {
                    Ok(part) => {
                        info.get_or_insert(part.info);
                        whole.insert(number, path);
                    }
                    Err(ReadError::Broken { .. } | ReadError::Damaged { .. }) if skip => {
                        broken_parts += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            parts.insert(table, whole);
        }
        let Some(info) = info else {
            return Err(not_a_recording("it has no part".to_owned()));
        };
        Ok(Self { dir: dir.to_owned(), info, end, parts, temporaries, broken_parts })
    }

    /// What it says of itself; of several runs that were appended, the first.
    pub fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// How it ended; `None` while it goes on and after a kill.
    pub fn end(&self) -> Option<&RecordingEnd> {
        self.end.as_ref()
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number that no part has yet.
    pub(crate) fn next_part(&self) -> u32 {
        self.parts
            .values()
            .filter_map(|parts| parts.keys().next_back())
            .max()
            .map_or(0, |last| last + 1)
    }

    /// The rows of a table, in order.
    pub fn rows<R: TableRow>(&self) -> TableRows<R> {
        self.rows_of(0..u32::MAX)
    }

    /// Those in some of the parts.
    pub(crate) fn rows_of<R: TableRow>(&self, numbers: Range<u32>) -> TableRows<R> {
        let parts =
            self.parts.get(&R::TABLE).into_iter().flat_map(|parts| parts.range(numbers.clone()));
        let parts: Vec<_> = parts.map(|(&number, path)| (number, path.clone())).collect();
        TableRows::new(parts)
    }

    /// Whether a census was asked for while it was recorded.
    pub fn has_census(&self) -> bool {
        self.parts.contains_key(&RecordingTable::Census)
    }

    /// The machine at the last sample with a whole census, and the census, without reading the
    /// parts before; nothing without any.
    pub fn last_census(&self) -> Result<Option<(MachineState, PageCensus)>, ReadError> {
        for &number in self.parts[&RecordingTable::Samples].keys().rev() {
            let mut machines = RecordedMachines::new(self, number..number + 1);
            let mut found = None;
            while let Some(machine) = machines.next().transpose()? {
                if let Some(census) = machines.census()? {
                    found = Some((machine, census));
                }
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The machine at each sample that has slices, first to last.
    pub fn machines(&self) -> RecordedMachines<'_> {
        RecordedMachines::new(self, 0..u32::MAX)
    }

    /// The machine at the last sample that has slices, and what was done until then if that is
    /// known, without reading the parts before.
    pub fn last_machine(&self) -> Result<(MachineState, Option<WorkCounters>), ReadError> {
        for &number in self.parts[&RecordingTable::Samples].keys().rev() {
            let mut machines = RecordedMachines::new(self, number..number + 1);
            if let Some(machine) = machines.by_ref().last().transpose()? {
                return Ok((machine, machines.work().ok()));
            }
        }
        Err(ReadError::Empty { path: self.dir.clone() })
    }

    /// How many numbers of parts each table lacks although others have them, or higher ones; tables
    /// that lack none are left out. Parts that were skipped because they are not whole are among
    /// them.
    pub fn missing_parts(&self) -> BTreeMap<RecordingTable, u64> {
        let end = self.next_part();
        let missing = self.parts.iter().map(|(table, parts)| {
            // A census may be asked for when a recording is continued.
            let first =
                if table.is_optional() { parts.keys().next().copied().unwrap_or(end) } else { 0 };
            (*table, u64::from(end - first) - parts.len() as u64)
        });
        missing.filter(|(_, count)| *count > 0).collect()
    }

    /// Reads and checks everything.
    pub fn check(&self) -> Result<CheckFindings, ReadError> {
        let mut found = CheckFindings {
            temporary_files: self.temporaries,
            broken_parts: self.broken_parts,
            last_sample: -1,
            last_event: -1,
            ..CheckFindings::default()
        };
        found.parts =
            self.parts.iter().map(|(table, parts)| (table.name(), parts.len() as u64)).collect();
        found.missing_parts = self.missing_parts().values().sum();
        found.missing_parts = found.missing_parts.saturating_sub(found.broken_parts);

        let mut slices: BTreeMap<i64, i64> = BTreeMap::new();
        found.count::<Slice>(self.rows(), |row| *slices.entry(row.sample).or_default() += 1)?;
        let mut counted: BTreeMap<i64, i64> = BTreeMap::new();
        if self.has_census() {
            found
                .count::<Census>(self.rows(), |row| *counted.entry(row.sample).or_default() += 1)?;
        }
        let last = |rows: &BTreeMap<i64, i64>| rows.keys().next_back().copied();
        let mut seen = [last(&slices).max(last(&counted)), None, None, None];
        found.count::<Zone>(self.rows(), |row| seen[1] = Some(row.sample))?;
        found.count::<Meminfo>(self.rows(), |row| seen[2] = Some(row.sample))?;
        found.count::<Vmstat>(self.rows(), |row| seen[3] = Some(row.sample))?;
        let (mut dropped, mut last_event) = (0, -1);
        found.count::<Event>(self.rows(), |row| {
            dropped += row.lost_events.unwrap_or(0).unsigned_abs();
            last_event = row.event;
        })?;
        (found.lost_events, found.last_event) = (dropped, last_event);

        let (mut first, mut last) = (None, None);
        let (mut missed, mut incomplete, mut cut) = (0, 0, 0);
        found.count::<Sample>(self.rows(), |row| {
            first.get_or_insert((row.sample, row.boottime_us));
            last = Some((row.sample, row.boottime_us));
            missed += row.missed_samples.unsigned_abs();
            incomplete +=
                u64::from(slices.remove(&row.sample).unwrap_or(0) != row.nr_slices.unwrap_or(0));
            cut += u64::from(
                counted.remove(&row.sample).unwrap_or(0) != row.census_slices.unwrap_or(0),
            );
        })?;
        found.missed_samples = missed;
        found.incomplete_censuses = cut + counted.len() as u64;
        found.incomplete_samples = incomplete + slices.len() as u64;
        if let (Some((first, from)), Some((last, to))) = (first, last) {
            found.missing_samples = (last - first).unsigned_abs() + 1 - found.rows["samples"];
            found.span_us = to - from;
            seen[2] = seen[2].max(Some(last));
        }
        found.last_sample = seen.into_iter().flatten().max().unwrap_or(-1);
        Ok(found)
    }
}

impl CheckFindings {
    fn count<R: TableRow>(
        &mut self,
        mut rows: TableRows<R>,
        mut each: impl FnMut(&R),
    ) -> Result<(), ReadError> {
        let mut count = 0;
        for located in rows.by_ref() {
            each(&located?.row);
            count += 1;
        }
        self.events_out_of_order += rows.disorder;
        self.rows.insert(R::TABLE.name(), count);
        Ok(())
    }
}

fn read_end(manifest: &Path) -> Result<Option<RecordingEnd>, ReadError> {
    let text = match fs::read_to_string(manifest) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReadError::io(manifest, source)),
    };
    let wrong = |_| ReadError::Metadata { path: manifest.to_owned(), key: "ended".to_owned() };
    let mut value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    serde_json::from_value(value["ended"].take()).map_err(wrong)
}
