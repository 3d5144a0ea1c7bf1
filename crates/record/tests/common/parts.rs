//! Finds parts of a recording, reads them, and writes them again with a fault.

#![allow(dead_code)] // not every test needs all of it

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use ramslice_record::{Recording, RecordingTable};

/// Every row of a table.
pub(crate) fn all<R: ramslice_record::TableRow>(recording: &Recording) -> Vec<R> {
    recording.rows::<R>().map(|row| row.unwrap().row).collect()
}

/// A part that has rows.
pub(crate) fn full_part(dir: &Path, table: RecordingTable) -> PathBuf {
    let mut paths: Vec<_> =
        fs::read_dir(dir.join(table.name())).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let rows = |path: &PathBuf| builder(path).metadata().file_metadata().num_rows();
    paths.into_iter().find(|path| rows(path) > 0).unwrap()
}

pub(crate) fn builder(path: &Path) -> ParquetRecordBatchReaderBuilder<File> {
    ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap()
}

/// Columns by name, in order.
pub(crate) type NamedColumns = Vec<(Field, ArrayRef)>;

/// Writes a part again with other columns or another description.
pub(crate) fn rewrite(
    path: &Path,
    change: impl FnOnce(&mut NamedColumns, &mut HashMap<String, String>),
) {
    let builder = builder(path);
    let metadata =
        builder.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    let mut keys: HashMap<String, String> =
        metadata.into_iter().filter_map(|pair| Some((pair.key, pair.value?))).collect();
    keys.remove("ARROW:schema");
    let schema = Arc::clone(builder.schema());
    let batch = builder.build().unwrap().next().unwrap().unwrap();
    let mut columns: NamedColumns = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(f, c)| (f.as_ref().clone(), Arc::clone(c)))
        .collect();
    change(&mut columns, &mut keys);
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
    let pairs = keys.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub(crate) fn column<'a>(columns: &'a mut NamedColumns, name: &str) -> &'a mut (Field, ArrayRef) {
    columns.iter_mut().find(|(field, _)| field.name() == name).unwrap()
}

/// Replaces one value of a column of 64-bit numbers.
pub(crate) fn set(columns: &mut NamedColumns, name: &str, at: usize, value: Option<i64>) {
    let (field, array) = column(columns, name);
    let old = array.as_any().downcast_ref::<Int64Array>().unwrap();
    let values = old.iter().enumerate().map(|(n, old)| if n == at { value } else { old });
    *field = field.clone().with_nullable(true);
    *array = Arc::new(values.collect::<Int64Array>());
}

/// What opening and checking says, which must name the part.
pub(crate) fn complaint(dir: &Path, part: &Path) -> String {
    let error = Recording::open(dir).and_then(|recording| recording.check()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(part.to_str().unwrap()), "{text}");
    text
}

/// Writes every part of the tables that all recordings have again, as an older program would have;
/// parts without a row are removed.
pub(crate) fn rewrite_all(
    dir: &Path,
    change: impl Fn(RecordingTable, &mut NamedColumns, &mut HashMap<String, String>),
) {
    for table in RecordingTable::ALL.into_iter().filter(|table| !table.is_optional()) {
        for path in fs::read_dir(dir.join(table.name())).unwrap().map(|entry| entry.unwrap().path())
        {
            if builder(&path).metadata().file_metadata().num_rows() == 0 {
                fs::remove_file(path).unwrap();
            } else {
                rewrite(&path, |columns, keys| change(table, columns, keys));
            }
        }
    }
}
