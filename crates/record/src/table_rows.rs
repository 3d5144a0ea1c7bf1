//! The rows of a table, read from one part after another and checked one by one.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Field, FieldRef, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;

use crate::error::ReadError;
use crate::recording_part::{ColumnIndices, RecordingPart};
use crate::schema::TableRow;
use crate::tables::RecordingTable;

/// By how much events of two CPUs may be out of order; they are counted.
const EVENT_DISORDER_US: i64 = 5_000_000;

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

/// The rows of a table, checked one by one; ends after the first error.
pub struct TableRows<R> {
    parts: std::vec::IntoIter<(u32, PathBuf)>,
    open_part: Option<OpenPart>,
    /// Key and time of the row before.
    last_key: Option<((i64, i64), i64)>,
    /// Rows that are a little earlier than the one before.
    pub(crate) disorder: u64,
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
    /// The rows of these parts, given with their numbers.
    pub(crate) fn new(parts: Vec<(u32, PathBuf)>) -> Self {
        Self {
            parts: parts.into_iter(),
            open_part: None,
            last_key: None,
            disorder: 0,
            failed: false,
            row: PhantomData,
        }
    }

    fn advance(&mut self) -> Result<Option<LocatedRow<R>>, ReadError> {
        loop {
            if self.open_part.is_none() {
                let Some((number, path)) = self.parts.next() else { return Ok(None) };
                self.open_part = Some(OpenPart::open::<R>(&path, number)?);
            }
            let Some(open) = &mut self.open_part else { continue };
            match open.row()? {
                Some(located) => {
                    self.check(&located)?;
                    return Ok(Some(located));
                }
                None => self.open_part = None,
            }
        }
    }

    fn check(&mut self, located: &LocatedRow<R>) -> Result<(), ReadError> {
        if let Some(what) = located.row.wrong() {
            return Err(located.error(what));
        }
        let (key, time) = (located.row.key(), located.row.boottime_us());
        if let Some((before, earlier)) = self.last_key {
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
            self.last_key = Some((key, time.max(earlier)));
        } else {
            self.last_key = Some((key, time));
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
            let batch = self
                .with_all_columns::<R>(&batch)
                .map_err(|error| broken(ParquetError::from(error)))?;
            self.check_no_nulls::<R>(&batch)?;
            self.batch = Some(batch);
        }
    }

    /// The columns of the row type; those that are not there as nulls.
    fn with_all_columns<R: TableRow>(
        &self,
        batch: &RecordBatch,
    ) -> Result<RecordBatch, ArrowError> {
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
    fn check_no_nulls<R: TableRow>(&self, batch: &RecordBatch) -> Result<(), ReadError> {
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
