//! Errors of filling memory, and what to do about each.
//!
//! Messages leave out their source: the program that prints an error prints the chain.

use std::io;
use std::path::PathBuf;

use ramslice_types::Bytes;
use thiserror::Error as ThisError;

/// Memory could not be filled as asked.
#[derive(Debug, ThisError)]
pub enum FragmentError {
    /// All probabilities are 0.
    #[error(
        "nothing would be touched: at least one of free, anon and file needs a probability above 0"
    )]
    Nothing,
    /// More than there is.
    #[error(
        "{wanted} are wanted but {available} are available, of which at most {most} may be \
         filled: choose a smaller --memory, or free some"
    )]
    TooMuch {
        /// What was asked for.
        wanted: Bytes,
        /// `MemAvailable`.
        available: Bytes,
        /// What may be filled of it.
        most: Bytes,
    },
    /// Less than a page of each.
    #[error("{wanted} are too little: the least is {least}")]
    TooLittle {
        /// What was asked for.
        wanted: Bytes,
        /// One step of all kinds.
        least: Bytes,
    },
    /// A directory whose files are kept in memory only.
    #[error(
        "{path} is on {kind}: its files are kept in memory and cannot be dropped. Choose a \
         directory on a \
         disk with --dir",
        path = .path.display()
    )]
    NotOnDisk {
        /// The directory.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// Huge pages are switched off.
    #[error(
        "huge pages are wanted but this kernel gives none ({path} reads `never`, or is missing): \
         write `madvise` to it",
        path = .path.display()
    )]
    NoHugePages {
        /// The file that says so.
        path: PathBuf,
    },
    /// Stopped by the caller.
    #[error("interrupted after {done} of {total} steps: everything was given back")]
    Interrupted {
        /// Steps done.
        done: u64,
        /// Steps planned.
        total: u64,
    },
    /// A file could not be used.
    #[error("{action} {path} failed", path = .path.display())]
    File {
        /// As in "reading".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the kernel that is not as expected.
    #[error("{path}: `{name}` is missing", path = .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        name: &'static str,
    },
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// Which one, and for what.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl FragmentError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { call, source }
    }
}
