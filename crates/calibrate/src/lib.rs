//! What emptying a slice costs on this machine: the price model's parameters, fitted to samples, and judged.
//!
//! A [`Sample`] is one slice that was emptied: the operations that this took, and the cycles measured. Four models
//! are made of samples (Hannover thesis 2024, §4.2, Table 4.2): A from slopes of dedicated experiments, B as given,
//! C by least squares, and [`fit()`] with independent, non-negative terms. [`judge()`] says how good one is on samples
//! that it has not seen. [`Drift`] watches everyday operations and says when to fit again.
//!
//! This crate is pure: no clock, no I/O. It is apart from `ramslice-energy` for the solver, which nobody needs who
//! only adds up joules.

mod bootstrap;
mod drift;
mod fit;
mod judge;
mod model;
mod refuse;
mod report;
mod sample;
mod slopes;
mod solve;

pub use bootstrap::Interval;
pub use drift::{Drift, DriftMemory, DriftState, Settings as DriftSettings};
pub use fit::{FitError, Fitted, fit, intervals, least_squares, refit, refit_intervals};
pub use judge::{Judgement, REGRET_SHARES, judge, quantile, rank_correlation, regret};
pub use model::{Coefficients, TERMS, thesis};
pub use refuse::{
    Conditions, LEAST, Refusal, check_conditions, check_everyday, check_refit, check_samples,
    check_steady, noise,
};
pub use report::{Compared, Report, everyday, report};
pub use sample::{Experiment, Operations, Origin, Sample, Samples, SamplesFile};
pub use slopes::slopes;
