//! Why a run could not be read.

use std::io;
use std::path::PathBuf;

use ramslice_energy::{LedgerError, LedgerPlan};
use ramslice_record::{ReadError, Recording};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) type Result<T> = std::result::Result<T, RunError>;

/// How joules over a recording are counted.
pub type PlanForRecording<'a> =
    dyn Fn(&Recording) -> std::result::Result<LedgerPlan, BoxError> + 'a;

/// Why a run could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What was named is no run, or none that this version knows: wrong usage.
    #[error("{0}")]
    NotARun(String),
    /// A file could not be read.
    #[error("reading {path}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not JSON.
    #[error("{path} is not JSON, or damaged", path = .path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong.
        source: serde_json::Error,
    },
    /// A file is damaged: where, and what is wrong.
    #[error("{0}")]
    Damaged(String),
    /// A recording could not be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// Its samples make no ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Its joules cannot be counted as wanted.
    #[error(transparent)]
    Plan(BoxError),
}
