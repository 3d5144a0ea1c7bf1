//! The rows of a table as CSV.

use std::io::{self, Write};

use anyhow::Result;
use ramslice_record::tables::{Census, Event, Meminfo, Sample, Slice, Vmstat, Zone};
use ramslice_record::{Recording, RecordingTable, TableRow};
use serde::Serialize;

use super::time_span::TimeSpan;

/// Writes the names of a table's columns, and the rows within `span`.
pub(super) fn write(
    recording: &Recording,
    table: RecordingTable,
    span: TimeSpan,
    out: &mut dyn Write,
) -> Result<()> {
    match table {
        RecordingTable::Snapshots => write_rows::<Slice>(recording, span, out),
        RecordingTable::Zones => write_rows::<Zone>(recording, span, out),
        RecordingTable::Events => write_rows::<Event>(recording, span, out),
        RecordingTable::Meminfo => write_rows::<Meminfo>(recording, span, out),
        RecordingTable::Vmstat => write_rows::<Vmstat>(recording, span, out),
        RecordingTable::Census => write_rows::<Census>(recording, span, out),
        RecordingTable::Samples => write_rows::<Sample>(recording, span, out),
    }
}

fn write_rows<R: TableRow + Serialize>(
    recording: &Recording,
    span: TimeSpan,
    out: &mut dyn Write,
) -> Result<()> {
    // A table without rows has names of columns, too.
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    for field in R::fields() {
        csv.write_field(field.name()).map_err(io_error)?;
    }
    csv.write_record(None::<&[u8]>).map_err(io_error)?;
    for row in span.rows::<R>(recording) {
        csv.serialize(row?).map_err(io_error)?;
    }
    Ok(csv.flush()?)
}

/// As the `io::Error` that it is, a closed pipe is still known as one.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
