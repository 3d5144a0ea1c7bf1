//! Figures of runs: one self-contained page, the data of each figure as CSV, and pictures.
//!
//! [`read`] reads recordings and files of results; this is all the I/O that the crate does. The
//! rest is pure: tables in ([`ReportData`]), text and bytes out; writing them is left to the
//! caller.
//!
//! Drawings are SVG of our own: what plotting libraries write has its colours fixed in every
//! element, so that a page can neither be dark nor fit a telephone; and a picture for a paper is
//! the same drawing, rendered.

mod chart;
mod csv;
mod figure;
mod figures;
#[cfg(test)]
mod memory_tests;
mod page;
mod picture;
pub mod read;
mod report_data;
mod rest_data;
mod scale;
mod size_data;
mod slice_history;
mod style;
mod svg;
#[cfg(test)]
mod tests;
mod time_mean;

pub use csv::FigureData;
pub use figure::{ReportFigure, figures};
pub use page::{PageHeader, page};
pub use picture::{PictureError, PngRenderer};
pub use report_data::{
    CensusMoment, ContentsSource, EmptyingAttempt, EmptyingTotals, GainVerdict, LatencySamples,
    LookupInterval, MachineMoment, MarkMoment, MemoryMoment, PageCacheData, PriceSamples,
    PricedSlice, RecordingData, ReportData, RunBudget, RunEnergy, StatisticsData, ValueRange,
};
pub use rest_data::{ColdAccessShare, ColdAccesses, RestCurve, RestStudy, VariedLoad};
pub use size_data::{SizeMethod, SizeRamp, SizeRampSample, SizeRun, SizeStudy};
pub use slice_history::SliceChanges;
