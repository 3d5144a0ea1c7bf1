//! Look-ups of the page cache, and the two ratios that follow, from the table `vmstat`.

use std::borrow::Cow;

use ramslice_record::tables::Vmstat;
use ramslice_types::{CacheLookups, LookupWindow};

use super::metric_families::{AddFigure, MetricFamily, MetricKind, TableMetrics, label};

/// The families, as ramsliced has them.
static FAMILIES: [MetricFamily; 4] = [
    family(
        "ramslice_cache_lookup_pages",
        "Pages of page cache that buffered reads and faults looked up, by kind.",
        MetricKind::Counter,
        "pages",
    ),
    family(
        "ramslice_cache_absent_pages",
        "Of these, pages that were not in the cache at that moment, by kind.",
        MetricKind::Counter,
        "pages",
    ),
    family(
        "ramslice_cache_lookup_hit_ratio",
        "The share of pages looked up that were in the cache, since the last point.",
        MetricKind::Gauge,
        "ratio",
    ),
    family(
        "ramslice_cache_disk_free_ratio",
        "The share of pages looked up that no disk had to bring, since the last point.",
        MetricKind::Gauge,
        "ratio",
    ),
];

const fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    unit: &'static str,
) -> MetricFamily {
    MetricFamily { name: Cow::Borrowed(name), help: Cow::Borrowed(help), kind, unit }
}

/// The counters of [`CacheLookups::NAMES`] that have a metric: its number, and the label's value.
const COUNTERS: [(usize, &str); 4] = [(0, "read"), (0, "fault"), (1, "read"), (1, "fault")];

/// Metrics of the page cache.
#[derive(Debug, Default)]
pub(super) struct PageCacheMetrics {
    sample: i64,
    values: [Option<u64>; CacheLookups::NAMES.len()],
    window: LookupWindow,
}

impl TableMetrics for PageCacheMetrics {
    type Row = Vmstat;

    fn figures(&mut self, row: &Vmstat, add: AddFigure<'_>) {
        let Some(number) = CacheLookups::NAMES.iter().position(|name| *name == row.name) else {
            return;
        };
        if self.sample != row.sample {
            (self.sample, self.values) = (row.sample, [None; CacheLookups::NAMES.len()]);
        }
        self.values[number] = u64::try_from(row.value).ok();
        if let Some((family, kind)) = COUNTERS.get(number) {
            add(*family, &label("kind", kind), row.value as f64);
        }
        // The last of them: the ratios are of this sample.
        if self.values.iter().all(Option::is_some) {
            let find = |name: &str| {
                self.values[CacheLookups::NAMES.iter().position(|known| *known == name)?]
            };
            if let Some(ratios) =
                CacheLookups::of(find).ok().and_then(|lookups| self.window.add(lookups).ok())
            {
                add(2, "", ratios.lookup_hit.0);
                add(3, "", ratios.disk_free.0);
            }
        }
    }

    fn family(&self, number: usize) -> &MetricFamily {
        &FAMILIES[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_points_of_the_samples_with_enough_lookups() {
        let mut metrics = PageCacheMetrics::default();
        let mut found = Vec::new();
        for (sample, read) in [(0, 0), (1, 999), (2, 2000), (3, 4000)] {
            for (number, name) in CacheLookups::NAMES.into_iter().enumerate() {
                let value = [read, 0, read / 10, 0, read / 5, 0][number];
                let row = Vmstat { sample, name: name.into(), value, ..Vmstat::default() };
                metrics.figures(&row, &mut |family, labels, value| {
                    found.push((sample, family, labels.to_owned(), value));
                });
            }
        }
        let ratios: Vec<_> = found.iter().filter(|one| one.1 >= 2).collect();
        assert_eq!(ratios.len(), 4, "{ratios:?}");
        assert_eq!((ratios[0].0, ratios[2].0), (2, 3));
        assert!((ratios[0].3 - 0.9).abs() < 1e-9 && (ratios[1].3 - 0.8).abs() < 1e-9);
        let counters: Vec<_> = found.iter().filter(|one| one.0 == 3 && one.1 < 2).collect();
        assert_eq!(counters.len(), 4);
        assert_eq!((counters[2].1, counters[2].3), (1, 400.0));
        for (number, family) in FAMILIES.iter().enumerate() {
            assert!(family.name.ends_with(family.unit), "{number}");
        }
    }
}
