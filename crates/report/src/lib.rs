//! Figures of runs: one self-contained page, the data of each figure as CSV, and pictures.
//!
//! [`read`] reads recordings and files of results; this is all the I/O that the crate does. The rest
//! is pure: tables in ([`Runs`]), text and bytes out; writing them is left to the caller.
//!
//! Drawings are SVG of our own: what plotting libraries write has its colours fixed in every element,
//! so that a page can neither be dark nor fit a telephone; and a picture for a paper is the same
//! drawing, rendered.

mod chart;
mod csv;
mod figure;
mod figures;
mod page;
mod picture;
pub mod read;
mod report_data;
mod scale;
mod style;
mod svg;
#[cfg(test)]
mod tests;

pub use figure::{Figure, figures};
pub use page::{Head, page};
pub use picture::{PictureError, Renderer};
pub use report_data::{
    Attempt, Budget, Counted, Emptying, Energy, Latencies, Moment, Priced, Prices, Range, Recorded,
    Runs, Source, Verdict,
};
