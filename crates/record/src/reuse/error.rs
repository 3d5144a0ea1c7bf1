//! Why reuse times cannot be sampled.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Reuse times that cannot be sampled.
#[derive(Debug, Error)]
pub enum ReuseError {
    /// The kernel does not track idle pages.
    #[error(
        "{path} is missing: reuse times need a kernel with CONFIG_IDLE_PAGE_TRACKING; record \
         without --reuse",
        path = .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// DAMON clears the same bits.
    #[error(
        "DAMON watches physical memory ({what}), and both would clear the marks that the other \
         one reads: stop it, or record without --reuse"
    )]
    Damon {
        /// The kdamond or the module, and where it is.
        what: String,
    },
    /// The kernel keeps its lists by generations, and then reads do not clear marks.
    #[error(
        "{path} is {value}: with the multi-generational LRU, reads of files leave pages marked as \
         idle; switch it off, or record without --reuse",
        path = .path.display()
    )]
    Generations {
        /// The file.
        path: PathBuf,
        /// What it says.
        value: String,
    },
    /// The scans would take too much time.
    #[error(
        "--reuse {every:?} is too short: within {percent} % of a CPU there is time for {frames} \
         page frames, and 64 are wanted; make it {longer:?} or more, or allow more with \
         --reuse-cpu",
        longer = longer(.every, .frames)
    )]
    TooShort {
        /// The time between two scans.
        every: Duration,
        /// What they may take of a CPU.
        percent: f64,
        /// Page frames that there is time for.
        frames: usize,
    },
    /// Where memory is is not known.
    #[error(
        "{path} lists no System RAM with addresses: reading them needs root",
        path = .path.display()
    )]
    NoMemory {
        /// `/proc/iomem`.
        path: PathBuf,
    },
    /// A file could not be used.
    #[error("{action} {path} failed", path = .path.display())]
    Io {
        /// As in "reading".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ReuseError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// A time in which twice as many frames as wanted could be looked at.
fn longer(every: &Duration, frames: &usize) -> Duration {
    let factor = (128 / (*frames).max(1)).max(2);
    *every * u32::try_from(factor).unwrap_or(u32::MAX)
}
