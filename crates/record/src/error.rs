//! Errors of writing and reading recordings: each names the file, and the row where there is one.
//!
//! Messages leave out their source: the program that prints an error prints the chain.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use ramslice_types::BackendError;
use thiserror::Error;

use crate::reuse::ReuseError;

/// A recording that cannot be begun or continued.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A file or directory could not be used.
    #[error("{action} {path} failed", path = .path.display())]
    Io {
        /// As in "writing".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A part could not be encoded.
    #[error("writing {path} failed", path = .path.display())]
    Parquet {
        /// The part.
        path: PathBuf,
        /// What the library said.
        source: ParquetError,
    },
    /// Another recorder is at work in the directory.
    #[error(
        "another recorder is writing to {path}: choose another directory",
        path = .path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is a recording already.
    #[error(
        "{path} holds a recording already: choose another directory, or continue it with --append",
        path = .path.display()
    )]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has other files in it.
    #[error(
        "{path} is not empty and holds no recording: choose another directory",
        path = .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The recording is of an earlier boot, whose clock was another one.
    #[error(
        "the recording in {path} is of another boot: choose another directory",
        path = .path.display()
    )]
    OtherBoot {
        /// The directory.
        path: PathBuf,
    },
    /// A recording to be continued cannot be read.
    #[error("the recording in {path} cannot be continued", path = .path.display())]
    Append {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ReadError>,
    },
    /// A statistic in a form that is not known.
    #[error("{path}:{line} is not a line of a name and a number", path = .path.display())]
    Figure {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
    },
    /// Reuse times cannot be sampled.
    #[error(transparent)]
    Reuse(#[from] ReuseError),
    /// The machine could not be looked at.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The thread that writes has ended.
    #[error("the thread that writes the recording has ended early")]
    Ended,
}

impl WriteError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// A recording that cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file or directory could not be read.
    #[error("reading {path} failed", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no recording.
    #[error(
        "{path} is not a recording made by `ramslice-lab record`: {why}",
        path = .path.display()
    )]
    NotARecording {
        /// The directory.
        path: PathBuf,
        /// What it lacks of what every recording has.
        why: String,
    },
    /// A part is not a whole Parquet file.
    #[error(
        "{path} is not a whole Parquet file: it is damaged, or was cut short",
        path = .path.display()
    )]
    Broken {
        /// The part.
        path: PathBuf,
        /// What the library said.
        source: ParquetError,
    },
    /// A part that is not what was written.
    #[error(
        "{path} is not a whole Parquet file, or damaged: its checksum does not match",
        path = .path.display()
    )]
    Damaged {
        /// The part.
        path: PathBuf,
    },
    /// A part without the description that the recorder writes, or with a damaged one.
    #[error(
        "{path} was not written by `ramslice-lab record`: its key {key} is missing or wrong",
        path = .path.display()
    )]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// Written by another version.
    #[error("{path} has schema_version {found}, these tools know {known}", path = .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// [`crate::SCHEMA_VERSION`].
        known: u32,
    },
    /// A part of another table, or of another place in the order.
    #[error("{path} says that it is {found}: it was renamed or moved", path = .path.display())]
    Misplaced {
        /// The part.
        path: PathBuf,
        /// What it says of itself, as in "part 3 of zones".
        found: String,
    },
    /// A column is missing.
    #[error("{path} has no column `{column}`{hint}", path = .path.display())]
    MissingColumn {
        /// The part.
        path: PathBuf,
        /// The column.
        column: String,
        /// One of a similar name, or nothing.
        hint: String,
    },
    /// A column of another type.
    #[error("{path}: column `{column}` is {found}, expected {expected}", path = .path.display())]
    Type {
        /// The part.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its type or unit.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Values that cannot be.
    #[error("{path}, row {row}: {what}", path = .path.display())]
    Row {
        /// The part.
        path: PathBuf,
        /// The row, from 0 on.
        row: u64,
        /// What is wrong there.
        what: String,
    },
    /// The recording has no sample with slices.
    #[error("{path} holds no sample with slices", path = .path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}
