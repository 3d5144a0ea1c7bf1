//! A part of a recording: its description and its columns, checked before any row is read.

use std::fs::File;
use std::path::Path;

use arrow_schema::Schema;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::SCHEMA_VERSION;
use crate::error::ReadError;
use crate::part;
use crate::recording_info::RecordingInfo;
use crate::tables::{RecordingTable, is_later};

/// For each column of a row type where it is in a file; `None` of one that older versions do not
/// write.
pub(crate) type ColumnIndices = Vec<Option<usize>>;

/// A part whose description and columns are as they should be.
pub(crate) struct RecordingPart {
    pub(crate) info: RecordingInfo,
    /// Which columns of the file are those of the row type, in its order.
    pub(crate) columns: ColumnIndices,
    pub(crate) builder: ParquetRecordBatchReaderBuilder<File>,
}

impl RecordingPart {
    pub(crate) fn open(path: &Path, table: RecordingTable, number: u32) -> Result<Self, ReadError> {
        if !part::is_intact(path).map_err(|source| ReadError::io(path, source))? {
            return Err(ReadError::Damaged { path: path.to_owned() });
        }
        let file = File::open(path).map_err(|source| ReadError::io(path, source))?;
        let broken = |source| ReadError::Broken { path: path.to_owned(), source };
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
        let info = describe(path, table, number, &builder)?;
        let columns = columns(path, table, builder.schema())?;
        Ok(Self { info, columns, builder })
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
