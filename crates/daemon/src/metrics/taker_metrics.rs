//! Who has emptied memory, and huge pages that were made or given back.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use ramslice_policy::{PoolAction, TakerReason};

use super::{DaemonMetrics, FloatGauge, MetricLabels, number};
use crate::memory_takers::TakersStatus;
use crate::mode::DaemonMode;

/// Gauges and counters, from metrics that are registered.
#[derive(Debug)]
pub(super) struct TakerMetrics {
    pub(super) bytes: Family<MetricLabels, Gauge>,
    pub(super) value: Family<MetricLabels, FloatGauge>,
    pub(super) made_bytes: Gauge,
    pub(super) made_pages: Family<MetricLabels, Counter>,
    pub(super) given_back_pages: Family<MetricLabels, Counter>,
}

/// Why pages are given back.
pub(super) const CAUSES: [&str; 4] = ["dearer-use", "not-wanted", "pressure", "buffer"];

/// One of these.
fn cause(why: TakerReason) -> &'static str {
    match why {
        TakerReason::NoLongerWanted => CAUSES[1],
        TakerReason::TasksWait => CAUSES[2],
        TakerReason::BuffersRefused(_) => CAUSES[3],
        _ => CAUSES[0],
    }
}

impl DaemonMetrics {
    /// Who has what.
    pub fn takers(&self, status: &TakersStatus) {
        let takers = &self.takers;
        takers.bytes.clear();
        takers.value.clear();
        for row in &status.by_value {
            let labels = vec![("taker", row.taker.to_owned())];
            takers.bytes.get_or_create(&labels).set(number(row.bytes.0));
            takers.value.get_or_create(&labels).set(row.value);
        }
        let made = status.huge.map_or(0, |huge| (huge.page_bytes * huge.made_pages).0);
        takers.made_bytes.set(number(made));
    }

    /// A pool was changed by so many pages.
    pub fn changed_pool(&self, mode: DaemonMode, action: PoolAction, why: TakerReason, pages: u64) {
        let mode = ("mode", mode.name().to_owned());
        match action {
            PoolAction::Keep => {}
            PoolAction::Make(_) => {
                self.takers.made_pages.get_or_create(&vec![mode]).inc_by(pages);
            }
            PoolAction::GiveBack(_) => {
                let labels = vec![mode, ("cause", cause(why).to_owned())];
                self.takers.given_back_pages.get_or_create(&labels).inc_by(pages);
            }
        }
    }
}
