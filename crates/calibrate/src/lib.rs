//! The cost of emptying a slice on this machine: the price model's parameters, fitted to samples
//! and evaluated.
//!
//! A [`CalibrationSample`] is one slice that was emptied: the operations that this took, and the
//! cycles measured. Four models are made of samples (Hannover thesis 2024, §4.2, Table 4.2): A from
//! slopes of dedicated experiments, B as given, C by least squares, and [`fit()`] with independent,
//! non-negative terms. [`judge()`] says how good one is on samples that it has not seen.
//! [`DriftDetector`] watches everyday operations and says when to fit again.
//!
//! All of this is pure: no clock, no I/O. [`measuring`] alone acts: through a [`Backend`] it
//! empties slices, wakes them and changes their size, and it fills memory by `ramslice-fragment`,
//! with files of page cache in a directory that the caller names. It reads the kernel's release,
//! and prints nothing: progress, interrupts and the program that is measured are the caller's, by
//! [`measuring::MeasuringHost`].
//!
//! The crate is apart from `ramslice-energy` because of its solver, which adding up joules does not
//! need.
//!
//! [`Backend`]: ramslice_types::Backend

mod bootstrap;
mod coefficients;
mod drift;
mod fit;
mod least_squares;
pub mod measuring;
mod model_quality;
mod preconditions;
mod report;
mod sample;
mod slopes;

pub use bootstrap::BootstrapInterval;
pub use coefficients::{ModelCoefficients, TERMS, thesis};
pub use drift::{DriftDetector, DriftMemory, DriftSettings, DriftState};
pub use fit::{FitError, FittedModel, fit, intervals, least_squares, refit, refit_intervals};
pub use model_quality::{ModelQuality, REGRET_SHARES, judge, quantile, rank_correlation, regret};
pub use preconditions::{
    CalibrationRefusal, LEAST, MachineConditions, check_conditions, check_everyday, check_refit,
    check_samples, check_steady, noise,
};
pub use report::{CalibrationReport, JudgedModel, everyday, report};
pub use sample::{
    CalibrationSample, OperationCounts, SampleOrigin, SampleSet, SamplesFile, ThesisExperiment,
};
pub use slopes::slopes;
