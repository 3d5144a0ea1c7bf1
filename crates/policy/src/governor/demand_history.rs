//! The time since which each level of demand has been idle: a staircase without the steps that
//! later ones hide.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// A step of the staircase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct DemandStep {
    /// When it was needed last, in seconds.
    time: f64,
    /// Slices needed.
    need: u32,
    /// Since when the levels above it, up to the step before, have been idle.
    since: f64,
    /// The level up to which the season, at that time, expected demand to return soon.
    expected: u32,
}

/// A gap in the need for a level, so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DemandGap {
    /// Since when, in seconds.
    pub(super) since: f64,
    /// The season expected its end soon.
    pub(super) expected: bool,
}

/// Steps of the past, the highest first: no later step is as high as an earlier one.
///
/// Level `j` counts slices from 1: it is needed at a moment if at least `j` slices are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct DemandHistory {
    steps: VecDeque<DemandStep>,
}

impl DemandHistory {
    /// Adds a moment, and forgets what is older than `memory` seconds.
    pub(super) fn push(&mut self, time: f64, need: u32, expected: u32, memory: f64) {
        let mut step = DemandStep { time, need, since: time, expected };
        while let Some(hidden) = self.steps.back().copied().filter(|before| before.need <= need) {
            // Levels between the new step and the one before have been idle since the lower one
            // began.
            (step.since, step.expected) = (hidden.since, hidden.expected);
            self.steps.pop_back();
        }
        self.steps.push_back(step);
        while self.steps.len() > 1 && self.steps[0].time < time - memory {
            self.steps.pop_front();
        }
    }

    /// Whether no moment was added yet.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What was needed last.
    pub(super) fn need(&self) -> u32 {
        self.steps.back().map_or(0, |step| step.need)
    }

    /// The gap of a level above the present demand. It begins no earlier than the history.
    pub(super) fn gap(&self, level: u32) -> DemandGap {
        let index = self.steps.partition_point(|step| step.need >= level);
        self.steps.get(index).map_or(DemandGap { since: f64::INFINITY, expected: true }, |step| {
            DemandGap { since: step.since, expected: level <= step.expected }
        })
    }

    /// The lowest demand whose levels above have all been idle since `time`; `None` if there are
    /// none.
    pub(super) fn idle_level(&self, time: f64) -> Option<u32> {
        let count = self.steps.partition_point(|step| step.since <= time);
        count.checked_sub(1).map(|index| self.steps[index].need)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_looking_at_everything(needs in proptest::collection::vec(0u32..8, 1..40),
            long in 0usize..20) {
            let mut recent = DemandHistory::default();
            for (at, need) in needs.iter().enumerate() {
                recent.push(at as f64, *need, 0, 1e9);
            }
            let now = needs.len() - 1;
            let since = |level: u32| {
                needs.iter().rposition(|&need| need >= level).map_or(0, |last| last + 1)
            };
            for level in needs[now] + 1..9 {
                prop_assert!((recent.gap(level).since - since(level) as f64).abs() < 1e-9);
            }
            let from = now.saturating_sub(long);
            let lowest = (needs[now]..8).find(|need| since(need + 1) <= from);
            match recent.idle_level(from as f64) {
                // Demand that never occurred lies within a step.
                Some(need) => prop_assert!(lowest.is_some_and(|lowest| lowest <= need)
                    && (need..8).all(|need| since(need + 1) <= from)),
                None => prop_assert!(lowest.is_none()),
            }
            prop_assert_eq!(recent.need(), needs[now]);
        }
    }

    #[test]
    fn what_is_too_old_is_forgotten_but_not_the_present() {
        let mut recent = DemandHistory::default();
        recent.push(0.0, 9, 0, 10.0);
        recent.push(100.0, 3, 5, 10.0);
        assert_eq!((recent.need(), recent.gap(4)), (3, DemandGap { since: 100.0, expected: true }));
        assert_eq!(recent.gap(9), DemandGap { since: 100.0, expected: false });
    }

    #[test]
    fn what_was_expected_is_remembered_from_when_the_gap_began() {
        let mut recent = DemandHistory::default();
        recent.push(0.0, 9, 0, 1e9);
        recent.push(10.0, 3, 7, 1e9);
        recent.push(20.0, 5, 0, 1e9);
        assert_eq!(recent.gap(7), DemandGap { since: 10.0, expected: true });
        assert_eq!(recent.gap(8), DemandGap { since: 10.0, expected: false });
    }
}
