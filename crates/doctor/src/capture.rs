//! Captures what the doctor reads, to examine it on another machine.
//!
//! A capture has exactly the files that the doctor reads, at the same paths. Serial numbers and the
//! like are blanked in the SMBIOS table, whose other structures are dropped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::read_inputs::{CPUINFO, DMI_TABLE, gather};
use crate::root::{
    CaptureNotes, NOTES, NOTES_VERSION, ReadEntry, ReadProblem, RootError, SystemRoot,
};
use crate::smbios::structures;

/// Structure types that are kept, with the offsets of what is blanked: fields of strings, and a
/// range of bytes.
const KEPT: [(u8, &[usize], std::ops::Range<usize>); 8] = [
    (0, &[], 0..0),
    // Serial number, SKU, family; the UUID.
    (1, &[0x07, 0x19, 0x1a], 0x08..0x18),
    (16, &[], 0..0),
    // Serial number, asset tag.
    (17, &[0x18, 0x19], 0..0),
    (18, &[], 0..0),
    (19, &[], 0..0),
    (20, &[], 0..0),
    (127, &[], 0..0),
];

/// What a capture did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSummary {
    /// Files that were written, relative to the directory.
    pub files: Vec<PathBuf>,
    /// Files that could not be read.
    pub unreadable: Vec<PathBuf>,
}

/// Copies what [`gather`] reads below `root` into `directory`, which must be empty or not exist.
pub fn capture(root: &SystemRoot, directory: &Path) -> Result<CaptureSummary, RootError> {
    if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(RootError::NotEmpty { path: directory.to_owned() });
    }
    let write_error = |source| RootError::Write { path: directory.to_owned(), source };
    // Written next to it first, and renamed when complete: half a capture would look like a machine
    // without the rest.
    let target = if directory.exists() {
        directory.canonicalize().map_err(write_error)?
    } else {
        directory.to_owned()
    };
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = target.with_file_name(name);
    if partial.exists() {
        return Err(RootError::NotEmpty { path: partial });
    }
    let captured = write_all(root, &partial)?;
    fs::rename(&partial, &target).map_err(write_error)?;
    Ok(captured)
}

/// Reads everything and writes it into a new directory.
fn write_all(root: &SystemRoot, directory: &Path) -> Result<CaptureSummary, RootError> {
    let _ = gather(root);
    let mut out = CaptureSummary { files: Vec::new(), unreadable: Vec::new() };
    let mut notes = CaptureNotes { schema_version: NOTES_VERSION, ..CaptureNotes::default() };
    make_directory(directory)?;
    for (path, seen) in root.seen() {
        let target = directory.join(&path);
        match seen {
            ReadEntry::Directory(names) => {
                notes.directories.insert(path, names);
            }
            ReadEntry::Link(target) => {
                notes.links.insert(path, target);
            }
            ReadEntry::File(bytes) => {
                if let Some(parent) = target.parent() {
                    make_directory(parent)?;
                }
                let bytes = match path.as_str() {
                    DMI_TABLE => blanked(&bytes),
                    CPUINFO => first_processor(bytes),
                    _ => bytes,
                };
                write(&target, &bytes)?;
                out.files.push(path.into());
            }
            ReadEntry::Problem(ReadProblem::Absent) => {}
            ReadEntry::Problem(problem) => {
                notes.problems.insert(path.clone(), problem);
                out.unreadable.push(path.into());
            }
        }
    }
    let text = serde_json::to_vec_pretty(&notes).unwrap_or_default();
    write(&directory.join(NOTES), &text)?;
    Ok(out)
}

fn make_directory(path: &Path) -> Result<(), RootError> {
    fs::create_dir_all(path).map_err(|source| RootError::Write { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RootError> {
    fs::write(path, bytes).map_err(|source| RootError::Write { path: path.to_owned(), source })
}

/// What `/proc/cpuinfo` says of the first processor; the others are like it.
fn first_processor(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n").map_or(bytes.len(), |at| at + 1);
    bytes.truncate(end);
    bytes
}

/// The table with the structures that the doctor reads, and without what names this very machine.
///
/// A damaged table is cut where the damage is, and the damaged bytes are dropped: they could hold
/// anything.
fn blanked(table: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for structure in structures(table).0 {
        let Some((_, strings, bytes)) = KEPT.iter().find(|kept| kept.0 == structure.kind) else {
            continue;
        };
        let start = out.len();
        out.extend_from_slice(structure.fields.0);
        if let Some(range) = out.get_mut(start + bytes.start..start + bytes.end) {
            range.fill(0);
        }
        let secret: Vec<u8> = strings.iter().filter_map(|&at| structure.fields.u8(at)).collect();
        for (number, text) in (1u8..).zip(structure.raw_strings().split(|&byte| byte == 0)) {
            match text {
                [] => {}
                _ if secret.contains(&number) => out.extend(text.iter().map(|_| b'*')),
                _ => out.extend_from_slice(text),
            }
            out.push(0);
        }
        // Two zeros end a structure; the last string brought one of them, no string at all none.
        if structure.raw_strings().is_empty() {
            out.truncate(start + structure.fields.0.len());
            out.push(0);
        }
        out.push(0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_blanked_and_lengths_stay() {
        let mut table = vec![17, 0x1c, 7, 0];
        table.resize(0x1c, 0);
        (table[0x10], table[0x18], table[0x19]) = (1, 2, 3);
        table.extend_from_slice(b"DIMM A\0SN1234\0TAG\0\0");
        let rest = [4, 4, 1, 0, 0, 0, 127, 4, 2, 0, 0, 0];
        let expected: Vec<u8> =
            [&table[..0x1c], b"DIMM A\0******\0***\0\0", &[127, 4, 2, 0, 0, 0]].concat();
        table.extend_from_slice(&rest);
        assert_eq!(blanked(&table), expected);
        assert_eq!(blanked(&expected), expected);
    }
}
