//! How long to wait before a slice goes off: learned by watching what each waiting time would have earned.
//!
//! A level of demand that falls idle is a ski rental: leave it on, and pay for power, or switch it off, and pay for
//! emptying. Waiting exactly until the idle time has cost as much as emptying is never more than twice as dear as the
//! best in hindsight, and no rule that knows nothing does better (Karlin, Manasse, Rudolph and Sleator 1988). But demand
//! can be known: whether a rule would have woken or saved follows from demand alone, whatever was done in truth. So
//! each rule is followed on paper, for each range of levels, and the one that has earned most lately decides there.
//! Ranges, because a level near the top of demand rests for hours and one in its midst for seconds.

use serde::{Deserialize, Serialize};

use super::recent::Recent;

/// Waiting times, as multiples of the break-even time of a slice's own price. The last expert follows the season.
const WAITS: [f64; 8] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
/// Experts.
pub(super) const EXPERTS: usize = WAITS.len() + 1;
/// The place of the one that goes by the time of day.
const SEASON: usize = WAITS.len();
/// The place of the one that is trusted as long as nothing is known.
const DEFAULT: usize = 4;
/// Most ranges of levels.
const RANGES: u32 = 24;
/// The longest wait, in break-even times.
pub(super) const LONGEST_WAIT: f64 = 8.0;

/// What to do with the levels of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Advice {
    /// Switch a level off when it has been idle for so many of its break-even times.
    Wait(f64),
    /// Switch a level off at once unless the season expects it.
    Season,
    /// Leave it on: gaps are too short here.
    Stay,
}

/// Figures of the moment, in joules, watts and seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) saving: f64,
    pub(super) emptying: f64,
    pub(super) empty: f64,
    pub(super) waking: f64,
}

/// A range of levels, and what each expert would have done with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Range {
    /// Levels above this one.
    low: u32,
    /// Up to this one.
    high: u32,
    /// Levels that each expert has on.
    on: [u32; EXPERTS],
    /// What each has earned, in joules; older gains count less.
    gain: [f64; EXPERTS],
    /// Slices that each has emptied, faded alike.
    emptied: [f64; EXPERTS],
}

/// All experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Experts {
    slices: u32,
    ranges: Vec<Range>,
    /// The highest level that was ever needed: those above are empty.
    highest: u32,
    /// Seconds in which an old gain loses all but 1/e of its weight.
    fade: f64,
}

impl Experts {
    pub(super) fn new(slices: u32, used: u32, fade: f64) -> Self {
        let count = slices.clamp(1, RANGES);
        let edge = |index: u32| (u64::from(slices) * u64::from(index) / u64::from(count)) as u32;
        let range = |index| {
            let (low, high) = (edge(index), edge(index + 1));
            Range { low, high, on: [high - low; EXPERTS], gain: [0.0; EXPERTS], emptied: [0.0; EXPERTS] }
        };
        Self { slices, ranges: (0..count).map(range).collect(), highest: used, fade }
    }

    /// Slices that they know of.
    pub(super) fn slices(&self) -> u32 {
        self.slices
    }

    /// What the waiting experts keep on now, and the one of the season.
    fn kept(figures: &Figures, now: f64, need: u32, recent: &Recent, season: Option<u32>) -> [u32; EXPERTS] {
        let break_even = (figures.emptying + figures.waking) / figures.saving;
        let mut kept = [0; EXPERTS];
        for (kept, wait) in kept.iter_mut().zip(WAITS) {
            // A level that was idle for exactly the wait goes off.
            *kept = if wait > 0.0 { recent.most_since((now - wait * break_even).next_up()) } else { need };
        }
        // Without a season it does as the default does, so that it is never better by chance.
        kept[SEASON] = season.map_or(kept[DEFAULT], |expected| expected.max(need));
        kept
    }

    /// Follows everyone through `elapsed` seconds that end now, with `need` slices needed.
    pub(super) fn step(
        &mut self,
        figures: &Figures,
        now: f64,
        elapsed: f64,
        need: u32,
        recent: &Recent,
        season: Option<u32>,
    ) {
        let kept = Self::kept(figures, now, need, recent, season);
        self.highest = self.highest.max(need);
        let keep = (-elapsed / self.fade).exp();
        let earning = figures.saving * elapsed;
        for range in &mut self.ranges {
            let within = |level: u32| level.clamp(range.low, range.high) - range.low;
            let (needed, ever) = (within(need), within(self.highest));
            let width = range.high - range.low;
            for (expert, &kept) in kept.iter().enumerate() {
                let before = range.on[expert];
                let awake = before.max(needed);
                let after = awake.min(within(kept));
                let (emptied, empty) =
                    (awake.min(ever).saturating_sub(after), awake - awake.min(ever).max(after));
                let spent = f64::from(awake - before) * figures.waking
                    + f64::from(emptied) * figures.emptying
                    + f64::from(empty) * figures.empty;
                range.gain[expert] = range.gain[expert] * keep + earning * f64::from(width - before) - spent;
                range.emptied[expert] = range.emptied[expert] * keep + f64::from(emptied);
                range.on[expert] = after;
            }
        }
    }

    fn range(&self, level: u32) -> &Range {
        let index = self.ranges.partition_point(|range| range.high < level).min(self.ranges.len() - 1);
        &self.ranges[index]
    }

    /// What is best for the range of a level.
    pub(super) fn advice(&self, level: u32, figures: &Figures, season: Option<u32>) -> Advice {
        let range = self.range(level);
        // Somebody else has to be better by more than chance.
        let (mut best, mut most) = (DEFAULT, range.gain[DEFAULT] + range.doubt(figures));
        for (expert, &gain) in range.gain.iter().enumerate() {
            if gain > most && (expert != SEASON || season.is_some()) {
                (best, most) = (expert, gain);
            }
        }
        if most < 0.0 {
            Advice::Stay
        } else if best == SEASON {
            Advice::Season
        } else {
            Advice::Wait(WAITS[best])
        }
    }

    /// Whether a level still pays that has been idle for so many break-even times, and should have gone off before.
    ///
    /// Whoever waits that long enters each gap where it is now: if that has lost, what is left of a gap is too short.
    pub(super) fn still_pays(&self, level: u32, times: f64, figures: &Figures) -> bool {
        let range = self.range(level);
        let expert = WAITS.iter().rposition(|wait| *wait <= times).unwrap_or(0);
        range.gain[expert] + range.doubt(figures) >= 0.0
    }
}

impl Range {
    /// What two gaps of all its levels can lose: less proves nothing.
    fn doubt(&self, figures: &Figures) -> f64 {
        2.0 * f64::from(self.high - self.low) * (figures.emptying + figures.waking)
    }
}
