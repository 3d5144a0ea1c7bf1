//! `watermarks`: four watermarks with a time-out (Kanpur report, section 3.4).
//!
//! ```text
//! wake a slice          if free + cache < CACHE_FREE_LOW and free < FREE_LOW          the lowest that is off
//! switch a slice off    if free + cache > CACHE_FREE_HIGH or free > FREE_HIGH         the highest that is on
//! ```
//!
//! `free` is what is free and awake, `cache` all page cache. One slice at a time, and then nothing for the time-out.

use std::time::Duration;

use ramslice_types::{Bytes, Pages, Request, SliceState};
use serde::{Deserialize, Serialize};

use crate::config::{PolicyKind, Watermarks as Config};
use crate::decision::{Decision, Policy, not_due, offline, online};
use crate::decision_reason::Why;
use crate::observation::{Needs, Observation};

/// The daemon of four watermarks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watermarks {
    /// `FREE_LOW`, `FREE_HIGH`, `CACHE_FREE_LOW`, `CACHE_FREE_HIGH`.
    free_low: Pages,
    free_high: Pages,
    cache_free_low: Pages,
    cache_free_high: Pages,
    timeout: Duration,
    due: Option<Duration>,
}

impl Watermarks {
    /// With settings that [`crate::Config::check`] has found right.
    pub(crate) fn new(config: &Config, slice: Bytes, page: Bytes) -> Self {
        let levels = config.levels(slice);
        let pages = |mib: f64| Pages((mib * Bytes::MIB.0 as f64 / page.0 as f64) as u64);
        Self {
            free_low: pages(levels.free_low),
            free_high: pages(levels.free_high),
            cache_free_low: pages(levels.cache_free_low),
            cache_free_high: pages(levels.cache_free_high),
            timeout: config.timeout(),
            due: None,
        }
    }

    fn decide(&self, seen: &Observation<'_>) -> (Option<Request>, Why) {
        let free = seen.totals.free;
        let cache_free = free + seen.totals.cache;
        if cache_free < self.cache_free_low && free < self.free_low {
            let lowest = seen.rows.iter().find(|row| row.state == SliceState::Offline);
            return match lowest {
                Some(row) => (Some(online(row.id)), Why::BelowLow { free, cache_free }),
                None => (None, Why::AllNeeded { need: seen.totals.nr_slices }),
            };
        }
        let crossed = [
            ("CACHE_FREE_HIGH", cache_free, self.cache_free_high),
            ("FREE_HIGH", free, self.free_high),
        ]
        .into_iter()
        .find(|(_, value, limit)| value > limit);
        let Some((watermark, _, limit)) = crossed else {
            return (None, Why::BetweenWatermarks { free, cache_free });
        };
        match seen.rows.iter().rfind(|row| row.can_go_off()) {
            Some(row) => {
                (Some(offline(row.id)), Why::AboveHigh { free, cache_free, watermark, limit })
            }
            None => (None, Why::NoCandidate { spare: seen.totals.nr_on() }),
        }
    }
}

impl Policy for Watermarks {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Watermarks
    }

    fn needs(&self) -> Needs {
        Needs::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> Decision {
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.due = Some(seen.time + self.timeout);
        match self.decide(seen) {
            (Some(request), why) => Decision::send(request, why),
            (None, why) => Decision::rest(why),
        }
    }
}
