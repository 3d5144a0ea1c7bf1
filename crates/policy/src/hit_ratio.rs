//! Lets `CACHE_FREE_LOW` and `CACHE_FREE_HIGH` follow the hit ratio of the page cache (Kanpur
//! report, sections 4.5 and 4.6).
//!
//! Both move together, by a slice at a time-out at most: their distance, and with it the hysteresis
//! rule, stays as it was set. They rise at once when the ratio is below its target, and sink after
//! it has kept it for many time-outs. A sinking that had to be taken back makes the next one wait
//! for twice as long, one that took memory and was kept for half as long.
//!
//! Misses count only if memory up to the bound would have avoided them:
//!
//! ```text
//! hits      = look-ups - absent
//! avoidable = absent x (pages that came back at a distance within the room) / (pages from disk)
//! ratio     = hits / (hits + avoidable)
//! ```
//!
//! The room is what the cache could still get: up to the bound, and no more than is offline. What
//! is read for the first time comes back at no distance, so a stream moves nothing up. Where
//! distances are not known, everything that came back counts.

use ramslice_types::{Pages, Ratio, RefaultDistances};
use serde::{Deserialize, Serialize};

use crate::decision::{CacheMarks, MarkMove};
use crate::decision_reason::DecisionReason;
use crate::observation::{MachineTotals, Observation, PolicyEvent};
use crate::watermarks_config::HitRatioLevels;

/// A sinking waits at most for so many times the time-outs that are set.
const MOST_PATIENCE: u32 = 16;

/// What was looked up since the ratio was judged last.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct LookupSums {
    hits: Pages,
    /// Misses that more memory would have avoided.
    avoidable: f64,
}

impl LookupSums {
    /// All look-ups but misses that no memory up to the bound would avoid. Of a stream alone hardly
    /// any are left, and their ratio is chance.
    fn counted(&self) -> Pages {
        self.hits + Pages(self.avoidable.round() as u64)
    }

    /// Of these, the share that hit.
    fn ratio(&self) -> Ratio {
        Ratio(1.0 - self.avoidable / (self.hits.0 as f64 + self.avoidable).max(1.0))
    }
}

/// Moves the watermarks with cache of a zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HitRatioControl {
    levels: HitRatioLevels,
    sums: LookupSums,
    /// Something counted look-ups since the last time-out.
    counted: bool,
    /// Time-outs in a row in which the ratio kept its target.
    calm: u32,
    /// A sinking waits for so many times the time-outs that are set.
    patience: u32,
    last: Option<MarkMove>,
    /// Free pages and page cache when they moved last.
    cache_free: Pages,
}

impl HitRatioControl {
    pub(crate) fn new(levels: HitRatioLevels) -> Self {
        Self {
            levels,
            sums: LookupSums::default(),
            counted: false,
            calm: 0,
            patience: 1,
            last: None,
            cache_free: Pages::ZERO,
        }
    }

    /// Takes in what was looked up.
    pub(crate) fn learn(&mut self, seen: &Observation<'_>) {
        let room = self.room(&seen.totals);
        for event in seen.events {
            if let PolicyEvent::LookedUp { lookups, absent, brought, returned, distances } = event {
                let absent = (*absent).min(*lookups);
                let share = avoidable_share(*brought, *returned, distances.as_ref(), room);
                self.counted = true;
                self.sums.hits += *lookups - absent;
                self.sums.avoidable += absent.0 as f64 * share;
            }
        }
    }

    /// How much more the cache could get.
    fn room(&self, totals: &MachineTotals) -> Pages {
        let most = self.levels.most_high.unwrap_or(totals.managed);
        (most - (totals.free + totals.cache)).min(totals.offline)
    }

    /// Judges the ratio at a time-out, and moves the watermarks `low` and `high`.
    pub(crate) fn step(
        &mut self,
        low: &mut Pages,
        high: &mut Pages,
        totals: &MachineTotals,
    ) -> CacheMarks {
        let sums = self.sums;
        let rest = |ratio, why| CacheMarks {
            low: *low,
            high: *high,
            ratio,
            lookups: sums.counted(),
            moved: None,
            why,
        };
        if !std::mem::take(&mut self.counted) {
            return rest(None, DecisionReason::LookupsUnknown);
        }
        let (lookups, least) = (sums.counted(), self.levels.least_lookups);
        if lookups < least {
            return rest(None, DecisionReason::TooFewLookups { lookups, least });
        }
        self.sums = LookupSums::default();
        let (ratio, target) = (sums.ratio(), self.levels.target);
        let cache_free = totals.free + totals.cache;
        if ratio < target {
            self.calm = 0;
            let room = self.levels.most_high.unwrap_or(totals.managed) - *high;
            let why = if cache_free < *low {
                DecisionReason::MarksFill { ratio, target, cache_free, low: *low }
            } else if room == Pages::ZERO {
                DecisionReason::MarksAtMost { ratio, target, high: *high }
            } else {
                let by = self.levels.step.min(room);
                (*low, *high) = (*low + by, *high + by);
                if self.last == Some(MarkMove::Lowered) {
                    self.patience = (self.patience * 2).min(MOST_PATIENCE);
                }
                self.cache_free = cache_free;
                return self.moved(MarkMove::Raised, *low, *high, &sums, 0);
            };
            return rest(Some(ratio), why);
        }
        self.calm += 1;
        let wanted = self.levels.calm_timeouts.saturating_mul(self.patience);
        let room = *low - self.levels.least_low;
        if self.calm < wanted || room == Pages::ZERO {
            let wait = (room > Pages::ZERO).then(|| wanted - self.calm);
            return rest(
                Some(ratio),
                DecisionReason::KeepsMarks { ratio, target, lookups, timeouts: wait },
            );
        }
        let by = self.levels.step.min(room);
        (*low, *high) = (*low - by, *high - by);
        // Between the watermarks a sinking takes nothing, and proves nothing.
        let took = self.cache_free - cache_free >= self.levels.step;
        if self.last == Some(MarkMove::Lowered) && took {
            self.patience = (self.patience / 2).max(1);
        }
        self.cache_free = cache_free;
        let calm = std::mem::take(&mut self.calm);
        self.moved(MarkMove::Lowered, *low, *high, &sums, calm)
    }

    fn moved(
        &mut self,
        direction: MarkMove,
        low: Pages,
        high: Pages,
        sums: &LookupSums,
        timeouts: u32,
    ) -> CacheMarks {
        self.last = Some(direction);
        let (ratio, target, lookups) = (sums.ratio(), self.levels.target, sums.counted());
        let why = match direction {
            MarkMove::Raised => DecisionReason::RaisesMarks { ratio, target, lookups, low, high },
            MarkMove::Lowered => DecisionReason::LowersMarks { ratio, target, timeouts, low, high },
        };
        CacheMarks { low, high, ratio: Some(ratio), lookups, moved: Some(direction), why }
    }
}

/// Of the pages that a disk brought, the share that `room` more memory would have kept.
fn avoidable_share(
    brought: Pages,
    returned: Pages,
    distances: Option<&RefaultDistances>,
    room: Pages,
) -> f64 {
    let kept = match distances {
        _ if room == Pages::ZERO => 0.0,
        Some(distances) => distances.within(room),
        None => returned.0 as f64,
    };
    let all = brought.max(returned).0 as f64;
    if all > 0.0 { (kept / all).min(1.0) } else { 0.0 }
}
