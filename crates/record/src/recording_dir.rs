//! The directory of a recording: made, locked, continued and freed of leftovers.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::error::WriteError;
use crate::part;
use crate::reader::Recording;
use crate::tables::RecordingTable;

/// Makes the directory and keeps others from it. A recording that is not to be continued is refused
/// untouched.
pub(crate) fn lock_directory(dir: &Path, append: bool) -> Result<File, WriteError> {
    let fresh = !dir.join(part::MANIFEST).exists();
    if fresh && dir.exists() {
        let mut names =
            fs::read_dir(dir).map_err(|source| WriteError::io("reading", dir, source))?;
        // A recorder killed in its first moments leaves these.
        let ours = |name: &str| {
            name == part::LOCK
                || part::is_temporary(name)
                || RecordingTable::ALL.iter().any(|table| table.name() == name)
        };
        if names.any(|entry| entry.is_ok_and(|entry| !entry.file_name().to_str().is_some_and(ours)))
        {
            return Err(WriteError::Foreign { path: dir.to_owned() });
        }
    }
    let path = dir.join(part::LOCK);
    if !fresh && !append && !path.exists() {
        return Err(WriteError::Exists { path: dir.to_owned() });
    }
    fs::create_dir_all(dir).map_err(|source| WriteError::io("creating", dir, source))?;
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    part::sync_dir(above.unwrap_or(Path::new(".")))?;
    let lock = File::create(&path).map_err(|source| WriteError::io("creating", &path, source))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(WriteError::InUse { path: dir.to_owned() }),
        Err(error) => Err(WriteError::io("locking", &path, error.into())),
    }
}

/// Makes the directories of the tables.
pub(crate) fn make_tables(dir: &Path, census: bool) -> Result<(), WriteError> {
    for table in RecordingTable::ALL.into_iter().filter(|table| census || !table.is_optional()) {
        let path = dir.join(table.name());
        fs::create_dir_all(&path).map_err(|source| WriteError::io("creating", &path, source))?;
    }
    part::sync_dir(dir)
}

/// The next part's number, and the next sample's and event's.
pub(crate) fn next_numbers(
    dir: &Path,
    append: bool,
    boot_id: &str,
) -> Result<(u32, (i64, i64)), WriteError> {
    let path = dir.to_owned();
    if !path.join(part::MANIFEST).exists() {
        return Ok((0, (0, 0)));
    }
    if !append {
        return Err(WriteError::Exists { path });
    }
    let wrong = |source| WriteError::Append { path: path.clone(), source: Box::new(source) };
    let recording = Recording::open_to_continue(&path).map_err(wrong)?;
    if recording.info().boot_id != boot_id {
        return Err(WriteError::OtherBoot { path });
    }
    let findings = recording.check().map_err(wrong)?;
    Ok((recording.next_part(), (findings.last_sample + 1, findings.last_event + 1)))
}

/// Removes what a killed recorder was about to rename.
pub(crate) fn remove_temporaries(dir: &Path) -> Result<(), WriteError> {
    let tables = RecordingTable::ALL
        .map(|table| dir.join(table.name()))
        .into_iter()
        .filter(|path| path.is_dir());
    for path in std::iter::once(dir.to_owned()).chain(tables) {
        let entries =
            fs::read_dir(&path).map_err(|source| WriteError::io("reading", &path, source))?;
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(part::is_temporary) {
                let path = entry.path();
                fs::remove_file(&path)
                    .map_err(|source| WriteError::io("removing", &path, source))?;
            }
        }
    }
    Ok(())
}
