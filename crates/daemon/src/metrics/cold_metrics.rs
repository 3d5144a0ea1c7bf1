//! What moves by itself to cold nodes and back.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{DaemonMetrics, FloatGauge, MetricLabels, number};
use crate::cold_automatic::{ColdStatus, ColdWord};

/// Gauges and counters, from metrics that are registered.
#[derive(Debug)]
pub(super) struct ColdMetrics {
    pub(super) state: Family<MetricLabels, Gauge>,
    pub(super) moved: Family<MetricLabels, Counter>,
    pub(super) rate: Family<MetricLabels, Gauge>,
    pub(super) idle: Family<MetricLabels, FloatGauge>,
    pub(super) kdamond_cpu: Family<MetricLabels, FloatGauge>,
    pub(super) unaccessed: Family<MetricLabels, FloatGauge>,
}

impl ColdMetrics {
    pub(super) fn set_state(&self, state: ColdWord) {
        for each in ColdWord::ALL {
            let labels = vec![("state", each.name().to_owned())];
            self.state.get_or_create(&labels).set((each == state).into());
        }
    }
}

impl DaemonMetrics {
    /// The state of what moves by itself.
    pub fn cold(&self, status: &ColdStatus) {
        let cold = &self.cold;
        cold.set_state(status.state);
        for (family, value) in [
            (&cold.idle, status.idle_seconds),
            (&cold.kdamond_cpu, status.kdamond_cpu_ratio),
            (&cold.unaccessed, status.unaccessed_ratio),
        ] {
            family.clear();
            if let Some(value) = value {
                family.get_or_create(&Vec::new()).set(value);
            }
        }
        cold.rate.clear();
        for node in &status.nodes {
            for (direction, rate, moved) in [
                ("to-cold", node.to_cold_bytes_per_second, node.moved_to_cold_bytes),
                ("back", node.back_bytes_per_second, node.moved_back_bytes),
            ] {
                let labels = vec![
                    ("node", node.node.to_string()),
                    ("cold_node", node.cold_node.to_string()),
                    ("direction", direction.to_owned()),
                ];
                if status.idle_seconds.is_some() {
                    let rate = rate.map_or(0, |rate| number(rate.0));
                    cold.rate.get_or_create(&labels).set(rate);
                }
                let counter = cold.moved.get_or_create(&labels);
                counter.inc_by(moved.0.saturating_sub(counter.get()));
            }
        }
    }
}
