//! `watermarks`: four watermarks with a time-out (Kanpur report, section 3.4).
//!
//! ```text
//! wake the lowest offline slice          if free + cache < CACHE_FREE_LOW and free < FREE_LOW
//! switch off the highest online slice    if free + cache > CACHE_FREE_HIGH or free > FREE_HIGH
//! ```
//!
//! `free` is free online memory, `cache` page cache of files. One slice at a time, and then nothing
//! for the time-out. With `hit_ratio`, the two watermarks with cache follow the hit ratio of the
//! page cache.

use std::time::Duration;

use ramslice_types::{Bytes, Pages, Request, SliceState};
use serde::{Deserialize, Serialize};

use crate::config::PolicyKind;
use crate::decision::{Policy, PolicyDecision, not_due, offline, online};
use crate::decision_reason::DecisionReason;
use crate::hit_ratio::HitRatioControl;
use crate::observation::{Observation, ObservationNeeds};
use crate::watermarks_config::{WatermarksConfig, pages};

/// The daemon of four watermarks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatermarksPolicy {
    /// `FREE_LOW`, `FREE_HIGH`, `CACHE_FREE_LOW`, `CACHE_FREE_HIGH`.
    free_low: Pages,
    free_high: Pages,
    cache_free_low: Pages,
    cache_free_high: Pages,
    timeout: Duration,
    due: Option<Duration>,
    /// Moves the watermarks with cache, if they follow the hit ratio.
    #[serde(default)]
    hit_ratio: Option<HitRatioControl>,
}

impl WatermarksPolicy {
    /// With settings that [`crate::PolicyConfig::check`] has found right.
    pub(crate) fn new(config: &WatermarksConfig, slice: Bytes, page: Bytes) -> Self {
        let levels = config.levels(slice);
        Self {
            free_low: pages(levels.free_low, page),
            free_high: pages(levels.free_high, page),
            cache_free_low: pages(levels.cache_free_low, page),
            cache_free_high: pages(levels.cache_free_high, page),
            timeout: config.timeout(),
            due: None,
            hit_ratio: config.hit_ratio_levels(slice, page).map(HitRatioControl::new),
        }
    }

    fn decide(&self, seen: &Observation<'_>) -> (Option<Request>, DecisionReason) {
        let free = seen.totals.free;
        let cache_free = free + seen.totals.cache;
        if cache_free < self.cache_free_low && free < self.free_low {
            let lowest = seen.rows.iter().find(|row| row.state == SliceState::Offline);
            return match lowest {
                Some(row) => (Some(online(row.id)), DecisionReason::BelowLow { free, cache_free }),
                None => (None, DecisionReason::AllNeeded { need: seen.totals.nr_slices }),
            };
        }
        let crossed = [
            ("CACHE_FREE_HIGH", cache_free, self.cache_free_high),
            ("FREE_HIGH", free, self.free_high),
        ]
        .into_iter()
        .find(|(_, value, limit)| value > limit);
        let Some((watermark, _, limit)) = crossed else {
            return (None, DecisionReason::BetweenWatermarks { free, cache_free });
        };
        match seen.rows.iter().rfind(|row| row.can_go_off()) {
            Some(row) => (
                Some(offline(row.id)),
                DecisionReason::AboveHigh { free, cache_free, watermark, limit },
            ),
            None => (None, DecisionReason::NoCandidate { spare: seen.totals.nr_on() }),
        }
    }
}

impl Policy for WatermarksPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Watermarks
    }

    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        if let Some(control) = &mut self.hit_ratio {
            control.learn(seen);
        }
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.due = Some(seen.time + self.timeout);
        let (low, high) = (&mut self.cache_free_low, &mut self.cache_free_high);
        let marks = self.hit_ratio.as_mut().map(|control| control.step(low, high, &seen.totals));
        let decision = match self.decide(seen) {
            (Some(request), why) => PolicyDecision::send(request, why),
            (None, why) => PolicyDecision::rest(why),
        };
        PolicyDecision { marks, ..decision }
    }
}
