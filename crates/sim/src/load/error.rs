//! Errors of inputs: the file, the row, what is wrong, what is allowed.

use std::io;
use std::path::PathBuf;

use ramslice_record::ReadError;
use thiserror::Error;

/// An input that is refused.
#[derive(Debug, Error)]
pub enum InputError {
    /// A file cannot be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A row is not as it should be.
    #[error("{}:{row}: {what}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        row: u64,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// A file has no rows that could be used.
    #[error("{}: {what}", path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// A recording is broken, or of another version.
    #[error(transparent)]
    Recording(#[from] ReadError),
}

impl InputError {
    pub(crate) fn row(path: &std::path::Path, row: u64, what: impl Into<String>) -> Self {
        Self::Row { path: path.to_owned(), row, what: what.into() }
    }
}
