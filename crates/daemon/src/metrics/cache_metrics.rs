//! Look-ups of the page cache, both ratios, and watermarks that follow the hit ratio.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use ramslice_policy::{CacheMarks, MarkMove};
use ramslice_types::{Bytes, CacheLookups, CacheRatios, Pages, Zone};

use super::{DaemonMetrics, FloatGauge, MetricLabels, ZoneLabels, number};

/// Watermarks that follow the hit ratio, as labels.
const MARKS: [&str; 2] = ["cache-free-low", "cache-free-high"];

/// Gauges and counters, from metrics that are registered.
#[derive(Debug)]
pub(super) struct CacheMetrics {
    pub(super) lookups: Family<MetricLabels, Counter>,
    pub(super) absent: Family<MetricLabels, Counter>,
    pub(super) lookup_hit: Family<MetricLabels, FloatGauge>,
    pub(super) disk_free: Family<MetricLabels, FloatGauge>,
    pub(super) watermarks: Family<MetricLabels, Gauge>,
    pub(super) counted_hit: Family<ZoneLabels, FloatGauge>,
    pub(super) moves: Family<MetricLabels, Counter>,
}

/// Why watermarks move in this direction, as a word.
fn reason(direction: MarkMove) -> &'static str {
    match direction {
        MarkMove::Raised => "below-target",
        MarkMove::Lowered => "kept-target",
    }
}

impl DaemonMetrics {
    /// Counts look-ups.
    pub fn looked_up(&self, counted: &CacheLookups) {
        let cache = &self.cache;
        let add = |family: &Family<MetricLabels, Counter>, kind: &str, pages: Pages| {
            family.get_or_create(&vec![("kind", kind.to_owned())]).inc_by(pages.0);
        };
        add(&cache.lookups, "read", counted.read);
        add(&cache.lookups, "fault", counted.fault);
        add(&cache.absent, "read", counted.absent_read);
        add(&cache.absent, "fault", counted.absent_fault);
    }

    /// The ratios of the last interval with enough look-ups; absent if they are not known.
    pub fn cache_ratios(&self, ratios: Option<&CacheRatios>) {
        let cache = &self.cache;
        for (family, value) in [
            (&cache.lookup_hit, ratios.map(|ratios| ratios.lookup_hit)),
            (&cache.disk_free, ratios.map(|ratios| ratios.disk_free)),
        ] {
            family.clear();
            if let Some(value) = value {
                family.get_or_create(&Vec::new()).set(value.0);
            }
        }
    }

    /// Watermarks of a zone that follow the hit ratio.
    pub fn marks(&self, zone: &Zone, marks: &CacheMarks, page: Bytes) {
        let (cache, labels) = (&self.cache, ZoneLabels::of(zone));
        for (name, pages) in MARKS.into_iter().zip([marks.low, marks.high]) {
            let labels = labels.with("watermark", name);
            cache.watermarks.get_or_create(&labels).set(number(pages.bytes(page).0));
        }
        match marks.ratio {
            Some(ratio) => {
                cache.counted_hit.get_or_create(&labels).set(ratio.0);
            }
            None => {
                cache.counted_hit.remove(&labels);
            }
        }
        for direction in MarkMove::ALL {
            let mut labels = labels.with("direction", direction.name());
            labels.push(("reason", reason(direction).to_owned()));
            let counter = cache.moves.get_or_create(&labels);
            counter.inc_by(u64::from(marks.moved == Some(direction)));
        }
    }

    /// The memory of a zone was taken out.
    pub(super) fn forget_marks_of(&self, labels: &ZoneLabels) {
        for name in MARKS {
            self.cache.watermarks.remove(&labels.with("watermark", name));
        }
        self.cache.counted_hit.remove(labels);
    }

    /// Another policy decides, or other settings: watermarks may no longer follow anything.
    pub fn forget_marks(&self) {
        self.cache.watermarks.clear();
        self.cache.counted_hit.clear();
    }
}
