//! Watches what the page cache is asked for: the kernel's counters between two looks.

use std::path::Path;
use std::time::Duration;

use ramslice_backend::{VmstatCounters, file_refault_distances};
use ramslice_policy::{CacheMarks, PolicyEvent};
use ramslice_types::{
    Bytes, CacheLookups, CacheRatios, LookupWindow, Pages, RatioUnknown, RefaultDistances,
};
use serde::Serialize;
use tracing::{debug, info};

/// The counters at one look.
#[derive(Debug, Clone)]
struct CacheReading {
    lookups: CacheLookups,
    /// Pages of files that came back.
    refaults: u64,
    distances: Option<RefaultDistances>,
}

/// What the page cache was asked for, for policies, status and metrics.
#[derive(Debug, Default)]
pub(crate) struct CacheWatch {
    before: Option<CacheReading>,
    window: LookupWindow,
    /// When the window began.
    begun: Duration,
    status: PageCacheStatus,
}

/// What was counted between two looks.
#[derive(Debug)]
pub(crate) struct CacheInterval {
    /// Look-ups.
    pub(crate) lookups: CacheLookups,
    /// The same for policies.
    pub(crate) event: PolicyEvent,
}

impl CacheWatch {
    /// Reads the counters at `now` of the policies' time, and gives what was counted since the last
    /// look. `sysfs` is the directory of ramslice.
    pub(crate) fn look(
        &mut self,
        counters: &VmstatCounters,
        sysfs: Option<&Path>,
        now: Duration,
    ) -> Option<CacheInterval> {
        let lookups = match counters.cache_lookups() {
            Ok(lookups) => lookups,
            Err(error) => {
                *self = Self::default();
                self.status.why = Some(error.to_string());
                return None;
            }
        };
        self.judge(lookups, now);
        let distances = sysfs.and_then(|sysfs| {
            file_refault_distances(sysfs)
                .inspect_err(|error| debug!(%error, "refaults by distance are not known"))
                .ok()
                .flatten()
        });
        let refaults = counters.get("workingset_refault_file").unwrap_or(0);
        let reading = CacheReading { lookups, refaults, distances };
        let before = self.before.replace(reading.clone())?;
        let counted = reading.lookups.since(&before.lookups)?;
        let distances = reading.distances.zip(before.distances);
        let event = PolicyEvent::LookedUp {
            lookups: counted.lookups(),
            absent: counted.absent(),
            brought: counted.readahead,
            returned: Pages(reading.refaults.saturating_sub(before.refaults)),
            distances: distances.and_then(|(now, before)| now.since(&before)),
        };
        Some(CacheInterval { lookups: counted, event })
    }

    fn judge(&mut self, lookups: CacheLookups, now: Duration) {
        match self.window.add(lookups) {
            Ok(ratios) => {
                let seconds = now.saturating_sub(self.begun).as_secs_f64();
                self.begun = now;
                self.status =
                    PageCacheStatus { ratios: Some(ratios), interval_seconds: seconds, why: None };
            }
            Err(unknown) => {
                if unknown == RatioUnknown::FirstReading {
                    self.begun = now;
                }
                // The last ratios stay until there are others; how old they are is in the status.
                self.status.why = Some(unknown.to_string());
            }
        }
    }

    /// Both ratios, or why they are not known.
    pub(crate) fn status(&self) -> &PageCacheStatus {
        &self.status
    }
}

/// Both ratios of the page cache, for the status.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PageCacheStatus {
    /// Over the last interval with enough look-ups; absent if there was none so far.
    #[serde(flatten)]
    pub ratios: Option<CacheRatios>,
    /// How long that was.
    pub interval_seconds: f64,
    /// Why there are none, or none since that interval.
    pub why: Option<String>,
}

/// Watermarks of a zone that follow the hit ratio, for the status.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatermarkStatus {
    /// `CACHE_FREE_LOW`.
    pub cache_free_low_bytes: Bytes,
    /// `CACHE_FREE_HIGH`.
    pub cache_free_high_bytes: Bytes,
    /// The ratio that was judged last, without misses that more memory would not avoid; absent if
    /// it is unknown.
    pub hit_ratio: Option<f64>,
    /// Look-ups for it, without these misses.
    pub lookup_pages: Pages,
    /// Why they moved or stayed.
    pub why: String,
    /// How often they moved since the daemon started.
    pub moves: u64,
    /// Why they moved last.
    pub last_move: Option<String>,
}

impl WatermarkStatus {
    /// After a decision, and after the status `before`.
    pub(crate) fn after(
        before: Option<&Self>,
        zone: &str,
        marks: &CacheMarks,
        page: Bytes,
    ) -> Self {
        let why = marks.why.to_string();
        let (mut moves, mut last_move) =
            before.map_or((0, None), |before| (before.moves, before.last_move.clone()));
        if marks.moved.is_some() {
            info!(zone, why, "the watermarks move");
            (moves, last_move) = (moves + 1, Some(why.clone()));
        }
        Self {
            cache_free_low_bytes: marks.low.bytes(page),
            cache_free_high_bytes: marks.high.bytes(page),
            hit_ratio: marks.ratio.map(|ratio| ratio.0),
            lookup_pages: marks.lookups,
            why,
            moves,
            last_move,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use procfs_core::FromRead;

    use super::*;

    fn counters(read: u64, absent: u64, refaults: u64) -> VmstatCounters {
        let text = format!(
            "ramslice_lookup_read {read}\nramslice_lookup_fault 0\n\
             ramslice_absent_read {absent}\nramslice_absent_fault 0\nramslice_readahead {absent}\n\
             ramslice_readahead_unused 0\nworkingset_refault_file {refaults}\n"
        );
        VmstatCounters::from_read(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_counted_between_two_looks_goes_to_policies_and_status() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("refault_distances")).unwrap();
        let distances = |first: u64| {
            let text = format!("{first} {}\n", ["0"; 63].join(" "));
            fs::write(dir.path().join("refault_distances/file"), text).unwrap();
        };
        let mut watch = CacheWatch::default();
        let second = Duration::from_secs;
        distances(5);
        assert!(watch.look(&counters(100, 0, 0), Some(dir.path()), second(10)).is_none());
        assert!(watch.status().why.as_deref().unwrap().contains("once"));
        distances(9);
        let found = watch.look(&counters(2100, 100, 40), Some(dir.path()), second(40)).unwrap();
        let PolicyEvent::LookedUp { lookups, absent, brought, returned, distances } = found.event
        else {
            panic!("another event");
        };
        assert_eq!((lookups, absent, brought), (Pages(2000), Pages(100), Pages(100)));
        assert_eq!((returned, distances.unwrap().total()), (Pages(40), 4));
        let status = watch.status();
        let ratios = status.ratios.unwrap();
        assert!((ratios.lookup_hit.0 - 0.95).abs() < 1e-9 && status.why.is_none());
        assert!((status.interval_seconds - 30.0).abs() < 1e-9);
        // Few look-ups: the last ratios stay, and the reason is there.
        watch.look(&counters(2101, 100, 40), None, second(70)).unwrap();
        assert_eq!(watch.status().ratios, Some(ratios));
        assert!(watch.status().why.as_deref().unwrap().contains("too few"));
        let json = serde_json::to_value(watch.status()).unwrap();
        assert_eq!(json["lookup_pages"], 2000);
    }

    #[test]
    fn without_counters_the_status_says_why() {
        let mut watch = CacheWatch::default();
        let none = VmstatCounters::from_read("pgfault 7\n".as_bytes()).unwrap();
        assert!(watch.look(&none, None, Duration::ZERO).is_none());
        assert!(watch.status().why.as_deref().unwrap().contains("ramslice_lookup_read"));
        assert_eq!(watch.status().ratios, None);
    }
}
