//! Why samples could not be taken.

use ramslice_fragment::FragmentError;
use ramslice_types::{BackendError, SliceId};

use crate::CalibrationRefusal;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why samples could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The size of slices changes only while all are awake.
    #[error(
        "slices are off, and their size cannot change meanwhile: wake them with `ramslice online \
         --all` first"
    )]
    SlicesOff,
    /// The host asked for it.
    #[error("interrupted: slices are awake and have their size again, nothing was installed")]
    Interrupted,
    /// A slice that was emptied stays off.
    #[error("slice {slice} does not wake: `ramslice online {slice}` tries again")]
    DoesNotWake {
        /// The slice.
        slice: SliceId,
    },
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The samples so far show that others would not be worth it.
    #[error(transparent)]
    Refused(#[from] CalibrationRefusal),
    /// Memory could not be filled.
    #[error(transparent)]
    Fill(#[from] FragmentError),
    /// The program whose memory is measured could not be run.
    #[error(transparent)]
    Workload(BoxError),
}
