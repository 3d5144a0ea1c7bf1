//! One part: written to a temporary name, synced, renamed; and where things are in the directory.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use crc32fast::Hasher;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use crate::error::WriteError;
use crate::recording_info::RecordingInfo;
use crate::schema::{TableRow, schema};
use crate::tables::RecordingTable;

/// What temporary names end with; readers look for `.parquet` alone.
pub(crate) const TEMPORARY: &str = ".tmp";
/// What the recording says of itself.
pub(crate) const MANIFEST: &str = "recording.json";
/// Held by the recorder at work.
pub(crate) const LOCK: &str = ".lock";
/// What keys of metadata begin with.
pub(crate) const PREFIX: &str = "ramslice.";

/// What a Parquet file begins with.
const MAGIC: &[u8] = b"PAR1";
/// What follows in our parts; then the checksum (CRC-32) of all that comes behind it, in
/// hexadecimal.
const SEAL: &[u8] = b"ramslice";
const DIGITS: usize = 8;
/// Where what the checksum covers begins.
const SEALED: u64 = (MAGIC.len() + SEAL.len() + DIGITS) as u64;

/// `DIR/TABLE/part-000007.parquet`.
pub(crate) fn path(dir: &Path, table: RecordingTable, number: u32) -> PathBuf {
    dir.join(table.name()).join(format!("part-{number:06}.parquet"))
}

/// The number in a part's name; `None` of any other file.
pub(crate) fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
    (digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Writes rows as part `number` of their table.
pub(crate) fn write<R: TableRow>(
    dir: &Path,
    number: u32,
    about: &RecordingInfo,
    rows: &[R],
) -> Result<(), WriteError> {
    let path = path(dir, R::TABLE, number);
    let parquet = |source| WriteError::Parquet { path: path.clone(), source };
    let batch: RecordBatch = R::batch(rows);
    atomically(&path, |file| {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(metadata(R::TABLE, number, about)))
            .build();
        let summing = ChecksumWriter { file, sum: Hasher::new(), at: 0 };
        let mut writer =
            ArrowWriter::try_new(summing, schema::<R>(), Some(properties)).map_err(parquet)?;
        let io = |source| WriteError::io("writing", &path, source);
        // Readers of Parquet go by the footer's offsets and never look here.
        writer.write_all(SEAL).and_then(|()| writer.write_all(&[b'0'; DIGITS])).map_err(io)?;
        writer.write(&batch).map_err(parquet)?;
        let summing = writer.into_inner().map_err(parquet)?;
        let (file, sum) = (summing.file, format!("{:08x}", summing.sum.finalize()));
        file.seek(SeekFrom::Start(SEALED - DIGITS as u64)).map_err(io)?;
        file.write_all(sum.as_bytes()).map_err(io)?;
        Ok(())
    })
}

/// A file, and the checksum of what is written to it behind the seal.
struct ChecksumWriter<'a> {
    file: &'a mut File,
    sum: Hasher,
    at: u64,
}

impl Write for ChecksumWriter<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.file.write(data)?;
        let before = usize::try_from(SEALED.saturating_sub(self.at)).unwrap_or(usize::MAX);
        self.sum.update(&data[before.min(written)..written]);
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Whether a part is as it was written; true also of a file without a seal, which another program
/// wrote.
///
/// To be asked before anything is decoded: the library may panic on damaged footers and pages.
pub(crate) fn is_intact(path: &Path) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut head = Vec::new();
    (&mut reader).take(SEALED).read_to_end(&mut head)?;
    let Some(rest) = head.strip_prefix(MAGIC) else { return Ok(false) };
    let Some(digits) = rest.strip_prefix(SEAL) else { return Ok(true) };
    let mut summing = Hasher::new();
    loop {
        let data = reader.fill_buf()?;
        if data.is_empty() {
            break;
        }
        summing.update(data);
        let read = data.len();
        reader.consume(read);
    }
    Ok(digits == format!("{:08x}", summing.finalize()).as_bytes())
}

fn metadata(table: RecordingTable, number: u32, about: &RecordingInfo) -> Vec<KeyValue> {
    let serde_json::Value::Object(fields) = serde_json::json!(about) else {
        unreachable!("a struct is an object")
    };
    let own = [("table", serde_json::json!(table.name())), ("part", serde_json::json!(number))];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(fields)
        .map(|(name, value)| KeyValue::new(format!("{PREFIX}{name}"), value.to_string()))
        .collect()
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), WriteError> {
    atomically(path, |file| {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
        text.and_then(|text| writeln!(file, "{text}"))
            .map_err(|source| WriteError::io("writing", path, source))
    })
}

/// A file that has all of what `write` writes, or its former content, whenever the machine stops.
fn atomically(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}{TEMPORARY}"));
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| WriteError::Io { action, path, source }
    };
    let mut file = File::create(&temporary).map_err(failed("creating", &temporary))?;
    write(&mut file)?;
    file.sync_all().map_err(failed("syncing", &temporary))?;
    fs::rename(&temporary, path).map_err(failed("renaming to", path))?;
    sync_dir(dir)
}

/// Makes names in a directory last.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), WriteError> {
    let sync = File::open(dir).and_then(|dir| dir.sync_all());
    sync.map_err(|source| WriteError::io("syncing", dir, source))
}

/// Whether a name is one that [`atomically`] would have renamed.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_have_numbers() {
        assert_eq!(number("part-000012.parquet"), Some(12));
        assert_eq!(number("part-1234567.parquet"), Some(1_234_567));
        for name in
            ["part-12.parquet", ".part-000012.parquet.tmp", "part-00001x.parquet", "x.parquet"]
        {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
