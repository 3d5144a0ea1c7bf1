//! The reader: opens a recording, checks it, and gives its rows back.
//!
//! What is wrong is an error that names file and row: another version, a missing column, another
//! type or unit, a part that is not whole, a value that cannot be, duplicates, times that run
//! backwards. What is only missing is counted in [`CheckFindings`]: temporary files, parts and
//! samples that a kill took along, samples that came too late.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Field, FieldRef, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use ramslice_types::{MachineState, PageCensus, WorkCounters};
use serde::Serialize;

use crate::error::ReadError;
use crate::part;
use crate::recording_info::{RecordingEnd, RecordingInfo};
use crate::schema::TableRow;
use crate::tables::{
    Census, Event, Meminfo, RecordingTable, Sample, Slice, Vmstat, Zone, is_later,
};
use crate::{SCHEMA_VERSION, replay::RecordedMachines};

/// By how much events of two CPUs may be out of order; they are counted.
const EVENT_DISORDER_US: i64 = 5_000_000;

/// A recording on disk.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    about: RecordingInfo,
    ended: Option<RecordingEnd>,
    parts: BTreeMap<RecordingTable, BTreeMap<u32, PathBuf>>,
    temporaries: u64,
    broken: Vec<PathBuf>,
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

/// A row and where it is.
#[derive(Debug, Clone)]
pub struct LocatedRow<R> {
    /// The row.
    pub row: R,
    /// The part.
    pub path: Arc<Path>,
    /// Its position in the part, from 0 on.
    pub at: u64,
}

impl<R> LocatedRow<R> {
    pub(crate) fn error(&self, what: impl Into<String>) -> ReadError {
        ReadError::Row { path: self.path.to_path_buf(), row: self.at, what: what.into() }
    }
}

impl Recording {
    /// Opens the recording in `dir`; every part must be whole and of this version.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(dir, false)
    }

    /// The same, but parts that are not whole Parquet files are skipped and counted.
    pub fn open_skipping_broken(dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(dir, true)
    }

    fn open_with(dir: &Path, skip: bool) -> Result<Self, ReadError> {
        let (mut parts, mut temporaries, mut broken) = (BTreeMap::new(), 0, Vec::new());
        let mut about = None;
        for table in RecordingTable::ALL {
            let path = dir.join(table.name());
            if !path.is_dir() {
                if table.is_optional() {
                    continue;
                }
                let missing = format!("directory `{table}`");
                return Err(ReadError::NotARecording { path: dir.to_owned(), missing });
            }
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
            let mut whole = BTreeMap::new();
            for (number, path) in numbers {
                match RecordingPart::open(&path, table, number) {
                    Ok(part) => {
                        about.get_or_insert(part.about);
                        whole.insert(number, path);
                    }
                    Err(ReadError::Broken { path, .. } | ReadError::Damaged { path }) if skip => {
                        broken.push(path);
                    }
                    Err(error) => return Err(error),
                }
            }
            parts.insert(table, whole);
        }
        let Some(about) = about else {
            return Err(ReadError::NotARecording {
                path: dir.to_owned(),
                missing: "part".to_owned(),
            });
        };
        let ended = ended(&dir.join(part::MANIFEST))?;
        Ok(Self { dir: dir.to_owned(), about, ended, parts, temporaries, broken })
    }

    /// What it says of itself; of several runs that were appended, the first.
    pub fn about(&self) -> &RecordingInfo {
        &self.about
    }

    /// How it ended; `None` while it goes on and after a kill.
    pub fn ended(&self) -> Option<&RecordingEnd> {
        self.ended.as_ref()
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Parts that were skipped because they are not whole.
    pub fn broken(&self) -> &[PathBuf] {
        &self.broken
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
        TableRows {
            parts: parts.into_iter(),
            open: None,
            last: None,
            disorder: 0,
            failed: false,
            row: PhantomData,
        }
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
            broken_parts: self.broken.len() as u64,
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

fn ended(manifest: &Path) -> Result<Option<RecordingEnd>, ReadError> {
    let text = match fs::read_to_string(manifest) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReadError::io(manifest, source)),
    };
    let wrong = |_| ReadError::Metadata { path: manifest.to_owned(), key: "ended".to_owned() };
    let mut value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    serde_json::from_value(value["ended"].take()).map_err(wrong)
}

/// For each column of a row type where it is in a file; `None` of one that older versions do not
/// write.
type ColumnIndices = Vec<Option<usize>>;

/// A part whose description and columns are as they should be.
struct RecordingPart {
    about: RecordingInfo,
    /// Which columns of the file are those of the row type, in its order.
    columns: ColumnIndices,
    builder: ParquetRecordBatchReaderBuilder<File>,
}

impl RecordingPart {
    fn open(path: &Path, table: RecordingTable, number: u32) -> Result<Self, ReadError> {
        if !part::is_intact(path).map_err(|source| ReadError::io(path, source))? {
            return Err(ReadError::Damaged { path: path.to_owned() });
        }
        let file = File::open(path).map_err(|source| ReadError::io(path, source))?;
        let broken = |source| ReadError::Broken { path: path.to_owned(), source };
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
        let about = describe(path, table, number, &builder)?;
        let columns = columns(path, table, builder.schema())?;
        Ok(Self { about, columns, builder })
    }
}

fn describe(
    path: &Path,
    table: RecordingTable,
    number: u32,
    builder: &ParquetRecordBatchReaderBuilder<File>,
) -> Result<RecordingInfo, ReadError> {
    let metadata = builder.metadata().file_metadata().key_value_metadata();
    let mut fields = serde_json::Map::new();
    for pair in metadata.into_iter().flatten() {
        if let (Some(name), Some(value)) = (pair.key.strip_prefix(part::PREFIX), &pair.value) {
            let wrong = |_| ReadError::Metadata { path: path.to_owned(), key: pair.key.clone() };
            fields.insert(name.to_owned(), serde_json::from_str(value).map_err(wrong)?);
        }
    }
    let wrong = |key: &str| ReadError::Metadata {
        path: path.to_owned(),
        key: format!("{}{key}", part::PREFIX),
    };
    let version = fields.get("schema_version").and_then(serde_json::Value::as_u64);
    let version = version.ok_or_else(|| wrong("schema_version"))? as u32;
    if version != SCHEMA_VERSION {
        return Err(ReadError::Version {
            path: path.to_owned(),
            found: version,
            known: SCHEMA_VERSION,
        });
    }
    let name = fields.get("table").and_then(|name| name.as_str()).ok_or_else(|| wrong("table"))?;
    let part =
        fields.get("part").and_then(serde_json::Value::as_u64).ok_or_else(|| wrong("part"))?;
    if name != table.name() || part != u64::from(number) {
        return Err(ReadError::Misplaced {
            path: path.to_owned(),
            found: format!("part {part} of {name}"),
        });
    }
    serde_json::from_value(fields.into()).map_err(|error| {
        // serde names the field that is missing or wrong.
        let text = error.to_string();
        wrong(text.split('`').nth(1).unwrap_or("*"))
    })
}

/// Where the columns of a table are in a file; columns of newer versions are passed over.
fn columns(path: &Path, table: RecordingTable, found: &Schema) -> Result<ColumnIndices, ReadError> {
    let (path, unit) =
        (path.to_owned(), |field: &arrow_schema::Field| field.metadata().get("unit").cloned());
    let mut columns = Vec::new();
    for wanted in table.fields() {
        let column = wanted.name().clone();
        let Some((at, field)) = found.column_with_name(&column) else {
            if is_later(table, &column) {
                columns.push(None);
                continue;
            }
            let stem = stem(&column);
            let similar = found.fields().iter().find(|field| {
                field.name() != &column
                    && !stem.is_empty()
                    && field.name().starts_with(stem)
                    && table.fields().iter().all(|known| known.name() != field.name())
            });
            let hint = similar
                .map(|field| format!("; `{}` is not the same", field.name()))
                .unwrap_or_default();
            return Err(ReadError::MissingColumn { path, column, hint });
        };
        if field.data_type() != wanted.data_type() {
            let (found, expected) = (field.data_type().to_string(), wanted.data_type().to_string());
            return Err(ReadError::Type { path, column, found, expected });
        }
        if let (Some(found), Some(expected)) = (unit(field), unit(&wanted))
            && found != expected
        {
            return Err(ReadError::Type { path, column, found: format!("in {found}"), expected });
        }
        columns.push(Some(at));
    }
    Ok(columns)
}

/// A name without its unit.
fn stem(column: &str) -> &str {
    column.rfind('_').map_or("", |at| &column[..=at])
}

/// The rows of a table, checked one by one; ends after the first error.
pub struct TableRows<R> {
    parts: std::vec::IntoIter<(u32, PathBuf)>,
    open: Option<OpenPart>,
    /// Key and time of the row before.
    last: Option<((i64, i64), i64)>,
    /// Rows that are a little earlier than the one before.
    disorder: u64,
    failed: bool,
    row: PhantomData<R>,
}

struct OpenPart {
    path: Arc<Path>,
    columns: ColumnIndices,
    batches: ParquetRecordBatchReader,
    batch: Option<RecordBatch>,
    /// Next row in the batch, and rows in the batches before.
    at: usize,
    before: u64,
}

impl<R: TableRow> Iterator for TableRows<R> {
    type Item = Result<LocatedRow<R>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.advance().transpose();
        self.failed = matches!(result, Some(Err(_)));
        result
    }
}

impl<R: TableRow> TableRows<R> {
    fn advance(&mut self) -> Result<Option<LocatedRow<R>>, ReadError> {
        loop {
            if self.open.is_none() {
                let Some((number, path)) = self.parts.next() else { return Ok(None) };
                self.open = Some(OpenPart::open::<R>(&path, number)?);
            }
            let Some(open) = &mut self.open else { continue };
            match open.row()? {
                Some(located) => {
                    self.check(&located)?;
                    return Ok(Some(located));
                }
                None => self.open = None,
            }
        }
    }

    fn check(&mut self, located: &LocatedRow<R>) -> Result<(), ReadError> {
        if let Some(what) = located.row.wrong() {
            return Err(located.error(what));
        }
        let (key, time) = (located.row.key(), located.row.boottime_us());
        if let Some((before, earlier)) = self.last {
            if key == before {
                return Err(located.error(format!("{} is there twice", name_of::<R>(key))));
            }
            if key < before {
                let (now, before) = (name_of::<R>(key), name_of::<R>(before));
                return Err(located
                    .error(format!("{now} comes after {before}: out of order, or there twice")));
            }
            if time < earlier {
                let by = earlier - time;
                if R::TABLE != RecordingTable::Events || by > EVENT_DISORDER_US {
                    return Err(located.error(format!("boottime_us runs backwards, by {by} us")));
                }
                self.disorder += 1;
            }
            // Events that lag do not move the clock back.
            self.last = Some((key, time.max(earlier)));
        } else {
            self.last = Some((key, time));
        }
        Ok(())
    }
}

/// What a key stands for, in messages.
fn name_of<R: TableRow>((first, second): (i64, i64)) -> String {
    match R::TABLE {
        RecordingTable::Samples => format!("sample {first}"),
        RecordingTable::Events => format!("event {first}"),
        RecordingTable::Snapshots => format!("slice {second} of sample {first}"),
        RecordingTable::Census => format!("slice {second} of the census of sample {first}"),
        RecordingTable::Zones => format!("zone {second} of sample {first}"),
        RecordingTable::Meminfo | RecordingTable::Vmstat => {
            format!("line {second} of sample {first}")
        }
    }
}

impl OpenPart {
    fn open<R: TableRow>(path: &Path, number: u32) -> Result<Self, ReadError> {
        let part = RecordingPart::open(path, R::TABLE, number)?;
        let broken = |source| ReadError::Broken { path: path.to_owned(), source };
        let batches = part.builder.build().map_err(broken)?;
        Ok(Self {
            path: path.into(),
            columns: part.columns,
            batches,
            batch: None,
            at: 0,
            before: 0,
        })
    }

    fn row<R: TableRow>(&mut self) -> Result<Option<LocatedRow<R>>, ReadError> {
        loop {
            if let Some(batch) = &self.batch {
                if self.at < batch.num_rows() {
                    let (row, at) = (R::get(batch, self.at), self.before + self.at as u64);
                    self.at += 1;
                    return Ok(Some(LocatedRow { row, path: Arc::clone(&self.path), at }));
                }
                self.before += batch.num_rows() as u64;
                (self.batch, self.at) = (None, 0);
            }
            let Some(batch) = self.batches.next() else { return Ok(None) };
            let broken = |source| ReadError::Broken { path: self.path.to_path_buf(), source };
            let batch = batch.map_err(|error| broken(ParquetError::from(error)))?;
            let batch =
                self.wanted::<R>(&batch).map_err(|error| broken(ParquetError::from(error)))?;
            self.no_nulls::<R>(&batch)?;
            self.batch = Some(batch);
        }
    }

    /// The columns of the row type; those that are not there as nulls.
    fn wanted<R: TableRow>(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let schema: SchemaRef = crate::schema::schema::<R>();
        let column = |(field, at): (&FieldRef, &Option<usize>)| match at {
            Some(at) => Arc::clone(batch.column(*at)),
            None => new_null_array(field.data_type(), batch.num_rows()),
        };
        let columns: Vec<ArrayRef> =
            schema.fields().iter().zip(&self.columns).map(column).collect();
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .zip(&columns)
            // Nulls where there must be none are reported afterwards, by row.
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }

    /// Files of other writers may have nulls where a row has a value.
    fn no_nulls<R: TableRow>(&self, batch: &RecordBatch) -> Result<(), ReadError> {
        let wanted: SchemaRef = crate::schema::schema::<R>();
        for (field, column) in wanted.fields().iter().zip(batch.columns()) {
            if !field.is_nullable()
                && let Some(at) =
                    (0..column.len()).find(|&at| column.null_count() > 0 && column.is_null(at))
            {
                let (path, row) = (self.path.to_path_buf(), self.before + at as u64);
                return Err(ReadError::Row {
                    path,
                    row,
                    what: format!("`{}` has no value", field.name()),
                });
            }
        }
        Ok(())
    }
}
