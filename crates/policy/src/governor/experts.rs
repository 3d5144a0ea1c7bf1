//! How long to wait before a slice goes offline: learned from what each waiting time would have
//! earned.
//!
//! A level of demand that falls idle is a ski rental: leave its slice online and pay for power, or
//! switch it off and pay for emptying. Waiting exactly until the idle time has cost as much as
//! emptying is never more than twice as dear as the best in hindsight, and no rule that knows
//! nothing does better (Karlin, Manasse, Rudolph and Sleator 1988). But demand can be known:
//! whether a rule would have woken or saved follows from demand alone, whatever the governor did.
//! So at the end of each gap every rule is credited with what it would have earned in it, for each
//! range of levels, and the one that has earned most recently decides there. Levels are grouped in
//! ranges because one near the top of demand rests for hours and one in its middle for seconds.
//!
//! # What is believed before anything is known
//!
//! A gap that has lasted for `x` break-even times ends before `2x + 1` with probability one half:
//! the chance that it lasts longer than `x` is `1 / (1 + x)`. Of gaps counted up to
//! [`LONGEST_GAP`], a rule that waits for `w` then earns
//! `ln((1 + LONGEST_GAP) / (1 + w)) - 1 / (1 + w)` emptyings on average, which favours short waits
//! a little. This prior weighs as much as two gaps of a level; the experience of other ranges
//! weighs as much as two for each range.

use serde::{Deserialize, Serialize};

use super::demand_history::DemandHistory;

/// Waiting times, as multiples of the break-even time of a slice's own price. The last expert
/// follows the season.
const WAITS: [f64; 8] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
/// Experts.
pub(super) const EXPERTS: usize = WAITS.len() + 1;
/// The index of the expert that follows the time of day.
const SEASON: usize = WAITS.len();
/// How long it waits where the season expects demand, or there is no season yet.
const WITHOUT_SEASON: f64 = 1.0;
/// A gap counts up to so many break-even times: one long night must not outweigh a day of short
/// gaps.
pub(super) const LONGEST_GAP: f64 = 12.0;
/// The weight of a prior, in gaps of a level.
const BELIEF: f64 = 2.0;
/// Gaps of a level after which an old one has fallen to 1/e of its weight.
const MEMORY: f64 = 12.0;
/// Most ranges of levels.
const RANGES: u32 = 24;

/// What to do with the levels of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ExpertAdvice {
    /// Switch a level off when it has been idle for this many of its break-even times.
    Wait(f64),
    /// Switch a level off at once unless the season expected it when its gap began.
    Season,
    /// Leave it on: gaps are too short here.
    Stay,
}

/// Figures of the moment, in the profile's unit of worth and in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CostFigures {
    pub(super) saving: f64,
    pub(super) emptying: f64,
    pub(super) waking: f64,
}

/// A range of levels, and what each expert would have earned with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LevelRange {
    /// Levels above this one.
    low: u32,
    /// Up to this one.
    high: u32,
    /// What each has earned; older gaps count less.
    gain: [f64; EXPERTS],
    /// Gaps that ended, one for each level; faded alike.
    gaps: f64,
}

/// All experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExpertPanel {
    slices: u32,
    ranges: Vec<LevelRange>,
    /// Gaps of levels above this one have been credited, though they have not ended.
    credited: u32,
    /// Gains of all ranges for each gap.
    pool: [f64; EXPERTS],
}

impl CostFigures {
    /// How long a slice must be off until emptying and waking it have paid, in seconds.
    pub(super) fn break_even(&self) -> f64 {
        (self.emptying + self.waking) / self.saving
    }
}

/// How long each expert waits in a gap whose end the season expects soon, or not.
fn waits(expected: bool) -> [f64; EXPERTS] {
    let mut all = [0.0; EXPERTS];
    all[..SEASON].copy_from_slice(&WAITS);
    all[SEASON] = season_waits(expected);
    all
}

/// How long the expert of the season waits.
pub(super) fn season_waits(expected: bool) -> f64 {
    if expected { WITHOUT_SEASON } else { 0.0 }
}

impl ExpertPanel {
    pub(super) fn new(slices: u32, figures: &CostFigures) -> Self {
        let count = slices.clamp(1, RANGES);
        let edge = |index: u32| (u64::from(slices) * u64::from(index) / u64::from(count)) as u32;
        let range = |index| LevelRange {
            low: edge(index),
            high: edge(index + 1),
            gain: [0.0; EXPERTS],
            gaps: 0.0,
        };
        let mut new = Self {
            slices,
            ranges: (0..count).map(range).collect(),
            credited: slices,
            pool: [0.0; EXPERTS],
        };
        new.share(figures);
        new
    }

    /// The same for another number of slices: what was learned of a level stays with it.
    pub(super) fn resized(&self, slices: u32, figures: &CostFigures) -> Self {
        let mut new = Self::new(slices, figures);
        new.credited = self.credited.min(slices);
        for range in &mut new.ranges {
            for old in &self.ranges {
                let common = range.high.min(old.high).saturating_sub(range.low.max(old.low));
                let part = f64::from(common) / f64::from((old.high - old.low).max(1));
                range.gaps += old.gaps * part;
                for (gain, earned) in range.gain.iter_mut().zip(old.gain) {
                    *gain += earned * part;
                }
            }
        }
        new.share(figures);
        new
    }

    /// Whether fewer gaps than a prior weighs have ended, or become as long as counts.
    pub(super) fn know_nothing(&self) -> bool {
        self.ranges.iter().map(|range| range.gaps).sum::<f64>() < BELIEF
    }

    /// Slices that they know of.
    pub(super) fn slices(&self) -> u32 {
        self.slices
    }

    /// Learns from a moment at which `need` slices are needed; `recent` is still that of the moment
    /// before.
    pub(super) fn step(
        &mut self,
        figures: &CostFigures,
        now: f64,
        need: u32,
        recent: &DemandHistory,
    ) {
        if recent.is_empty() {
            // What is needed at the first look ended no gap.
            return;
        }
        let longest = LONGEST_GAP * figures.break_even();
        let before = recent.need();
        // Gaps that have become as long as counts are credited once, and not again when they end.
        let passed = recent.idle_level(now - longest).unwrap_or(self.slices).max(before);
        let known = if need > before || passed < self.credited {
            self.credit(figures, now, passed..self.credited, recent);
            self.credited = self.credited.min(passed);
            self.credit(figures, now, before..need.min(self.credited), recent);
            true
        } else {
            false
        };
        self.credited = self.credited.max(need);
        if known {
            self.share(figures);
        }
    }

    /// Credits every expert with the gaps of levels above `levels.start` up to `levels.end`, as if
    /// they ended now.
    fn credit(
        &mut self,
        figures: &CostFigures,
        now: f64,
        levels: std::ops::Range<u32>,
        recent: &DemandHistory,
    ) {
        let (cost, unit) = (figures.emptying + figures.waking, figures.break_even());
        let mut index = self.ranges.partition_point(|range| range.high <= levels.start);
        for level in levels.start + 1..=levels.end {
            while self.ranges.get(index).is_some_and(|range| range.high < level) {
                index += 1;
            }
            let Some(range) = self.ranges.get_mut(index) else { return };
            let gap = recent.gap(level);
            // Everything in break-even times: then a gap that long saves what emptying costs.
            let length = ((now - gap.since) / unit).clamp(0.0, LONGEST_GAP);
            let keep = (-1.0 / (MEMORY * f64::from(range.high - range.low))).exp();
            range.gaps = range.gaps * keep + 1.0;
            for (gain, wait) in range.gain.iter_mut().zip(waits(gap.expected)) {
                let earned = if length > wait { (length - wait - 1.0) * cost } else { 0.0 };
                *gain = *gain * keep + earned;
            }
        }
    }

    /// Shares the experience of each range with all ranges.
    fn share(&mut self, figures: &CostFigures) {
        let (mut pool, mut gaps) = (start_weights(figures.emptying + figures.waking), BELIEF);
        for range in &self.ranges {
            gaps += range.gaps;
            for (sum, gain) in pool.iter_mut().zip(range.gain) {
                *sum += gain;
            }
        }
        self.pool = pool.map(|gain| gain / gaps);
    }

    fn range(&self, level: u32) -> &LevelRange {
        let index =
            self.ranges.partition_point(|range| range.high < level).min(self.ranges.len() - 1);
        &self.ranges[index]
    }

    /// What is best for the range of a level.
    pub(super) fn advice(&self, level: u32) -> ExpertAdvice {
        let range = self.range(level);
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for expert in 0..EXPERTS {
            let score = self.score(range, expert);
            if score > most {
                (best, most) = (expert, score);
            }
        }
        if most < 0.0 {
            ExpertAdvice::Stay
        } else if best == SEASON {
            ExpertAdvice::Season
        } else {
            ExpertAdvice::Wait(WAITS[best])
        }
    }

    /// Whether switching off still pays for a level that has been idle for this many break-even
    /// times and should have gone offline before.
    ///
    /// An expert that waits this long enters each gap at its current point: if that has lost, the
    /// rest of a gap is too short.
    pub(super) fn still_pays(&self, level: u32, times: f64) -> bool {
        let expert = WAITS.iter().rposition(|wait| *wait <= times).unwrap_or(0);
        self.score(self.range(level), expert) >= 0.0
    }

    /// What an expert has earned with a range, and its prior.
    fn score(&self, range: &LevelRange, expert: usize) -> f64 {
        range.gain[expert] + BELIEF * f64::from(range.high - range.low) * self.pool[expert]
    }
}

/// The prior: what two gaps of a level should earn each expert.
fn start_weights(emptying: f64) -> [f64; EXPERTS] {
    let earns = |wait: f64| {
        BELIEF * emptying * (((1.0 + LONGEST_GAP) / (1.0 + wait)).ln() - 1.0 / (1.0 + wait))
    };
    let mut all = [0.0; EXPERTS];
    for (gain, wait) in all.iter_mut().zip(WAITS) {
        *gain = earns(wait);
    }
    all[SEASON] = earns(WITHOUT_SEASON);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: CostFigures = CostFigures { saving: 1.0, emptying: 9.0, waking: 1.0 };

    #[test]
    fn what_was_learned_of_a_level_stays_with_it_when_slices_come_or_go() {
        let mut panel = ExpertPanel::new(96, &FIGURES);
        for (at, range) in panel.ranges.iter_mut().enumerate() {
            (range.gaps, range.gain) = (4.0, [at as f64; EXPERTS]);
        }
        let sums = |panel: &ExpertPanel| {
            let sum = |of: fn(&LevelRange) -> f64| panel.ranges.iter().map(of).sum::<f64>();
            (sum(|range| range.gaps), sum(|range| range.gain[0]))
        };
        let same = panel.resized(96, &FIGURES);
        assert_eq!(same.ranges, panel.ranges);
        // 4 levels in each range: without one slice, a quarter of the last range goes.
        let fewer = panel.resized(95, &FIGURES);
        let ((gaps, gain), (all_gaps, all_gain)) = (sums(&fewer), sums(&panel));
        assert!((all_gaps - gaps - 1.0).abs() < 1e-9, "{gaps} of {all_gaps}");
        assert!((all_gain - gain - 23.0 / 4.0).abs() < 1e-9, "{gain} of {all_gain}");
        assert!(!fewer.know_nothing() && fewer.slices() == 95 && fewer.credited == 95);
        let more = panel.resized(200, &FIGURES);
        assert!((sums(&more).0 - all_gaps).abs() < 1e-9 && more.credited == 96);
        assert!(more.ranges.iter().all(|range| range.low < 96 || range.gaps < 1e-9));
    }
}
