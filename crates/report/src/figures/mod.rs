//! The figures, one file per subject.

mod bitmaps;
mod census;
mod energy;
mod giveback;
mod latency;
mod maps;
mod naming;
mod operations;
mod page_cache;
mod prices;
mod repair;
mod rest;
mod sizes;
mod slice_rows;
mod slices;
mod statistics;
mod time;
mod utilisation;

pub(crate) use bitmaps::bitmaps;
pub(crate) use census::{kept_on, shares};
pub(crate) use energy::{energy, net};
pub(crate) use giveback::giveback;
pub(crate) use latency::latency;
pub(crate) use maps::{footprint, fullness};
pub(crate) use operations::operations;
pub(crate) use page_cache::{hit_ratio_watermarks, hit_ratios};
pub(crate) use prices::{prices, residuals};
pub(crate) use repair::repair;
pub(crate) use rest::rest;
pub(crate) use sizes::sizes;
pub(crate) use slices::slices;
pub(crate) use statistics::{statistics, statistics_means};
pub(crate) use utilisation::{occupation, utilisation};
