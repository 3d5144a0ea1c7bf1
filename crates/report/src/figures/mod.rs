//! The figures, one file per subject.

mod bitmaps;
mod census;
mod energy;
mod latency;
mod maps;
mod operations;
mod prices;
mod repair;
mod slice_rows;
mod slices;
mod time;
mod utilisation;

pub(crate) use bitmaps::bitmaps;
pub(crate) use census::{kept_on, shares};
pub(crate) use energy::{energy, net};
pub(crate) use latency::latency;
pub(crate) use maps::{footprint, fullness};
pub(crate) use operations::operations;
pub(crate) use prices::{prices, residuals};
pub(crate) use repair::repair;
pub(crate) use slices::slices;
pub(crate) use utilisation::{occupation, utilisation};

/// The id of figure `base` of run `at` of `all`: numbered if there are several.
fn id(base: &str, at: usize, all: usize) -> String {
    if all > 1 { format!("{base}-{}", at + 1) } else { base.to_owned() }
}

/// The heading of figure `base` of a run: it names the run if there are several.
fn heading(base: &str, name: &str, all: usize) -> String {
    if all > 1 { format!("{base}: {name}") } else { base.to_owned() }
}
