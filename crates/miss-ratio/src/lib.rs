//! Miss-ratio curves: how many pages would have to be read again with less memory, or with more.
//!
//! This crate is pure: no clock, no I/O. Three sources make a curve, each where it sees something:
//!
//! - below the memory that a machine has, reuse times of a hashed sample of its pages
//!   ([`ReuseHistogram`]), by the model of average eviction time: Hu, Wang, Zhou, Luo, Ding, Jiang
//!   and Wang, Fast Miss Ratio Curve Modeling for Storage Cache, ACM Transactions on Storage
//!   14(2), 2018
//! - at that size, what was read
//! - above, the distances of refaults ([`RefaultDistances`])
//!
//! Where none of them saw anything, the curve ends. [`WindowCurve`] joins them for one stretch of
//! time, [`MemoryAdvice`] weighs what all stretches say, with intervals.

mod advice;
mod bootstrap;
mod miss_curve;
mod page_sample;
mod refault_distances;
mod reuse_histogram;
mod window_curve;

pub use advice::{
    AdviceError, AdviceSettings, CostSource, Estimate, LeastMemory, MemoryAdvice, MissCost,
    SizeOutlook, WINDOWS_WANTED,
};
pub use miss_curve::MissCurve;
pub use page_sample::PageSample;
pub use refault_distances::{NR_ORDERS, RefaultDistances, RefaultSizes};
pub use reuse_histogram::{ReuseBins, ReuseHistogram};
pub use window_curve::{ObservedWindow, PageKinds, SampledReuse, WindowCurve};
