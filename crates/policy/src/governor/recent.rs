//! How long ago each level of demand was needed last: a staircase that forgets what is hidden.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Steps of the past, the highest first: no later step is as high as an earlier one.
///
/// Level `j` counts slices from 1: it is needed at a moment if at least `j` slices are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Recent {
    /// When it began, in seconds.
    since: f64,
    /// Time in seconds and need in slices; times rise, needs fall.
    steps: VecDeque<(f64, u32)>,
}

impl Recent {
    pub(super) fn new(since: f64) -> Self {
        Self { since, steps: VecDeque::new() }
    }

    /// Adds a moment, and forgets what is older than `memory` seconds.
    pub(super) fn push(&mut self, time: f64, need: u32, memory: f64) {
        while self.steps.back().is_some_and(|&(_, before)| before <= need) {
            self.steps.pop_back();
        }
        self.steps.push_back((time, need));
        while self.steps.len() > 1 && self.steps[0].0 < time - memory {
            self.steps.pop_front();
        }
    }

    /// The most that was needed since `time`; the present need at least.
    pub(super) fn most_since(&self, time: f64) -> u32 {
        let first = self.steps.partition_point(|&(at, _)| at < time);
        self.steps.get(first).or(self.steps.back()).map_or(0, |&(_, need)| need)
    }

    /// For how many seconds a level has not been needed at `now`; at most since the beginning.
    pub(super) fn idle(&self, level: u32, now: f64) -> f64 {
        let after = self.steps.partition_point(|&(_, need)| need >= level);
        let last = after.checked_sub(1).map_or(self.since, |index| self.steps[index].0);
        now - last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_looking_at_everything(needs in proptest::collection::vec(0u32..8, 1..40), window in 0usize..20) {
            let mut recent = Recent::new(0.0);
            for (at, need) in needs.iter().enumerate() {
                recent.push(at as f64, *need, 1e9);
            }
            let now = needs.len() - 1;
            let from = now.saturating_sub(window);
            prop_assert_eq!(recent.most_since(from as f64), *needs[from..].iter().max().unwrap());
            for level in 1..8 {
                let last = needs.iter().rposition(|&need| need >= level).unwrap_or(0);
                prop_assert_eq!(recent.idle(level, now as f64), (now - last) as f64);
            }
        }
    }

    #[test]
    fn what_is_too_old_is_forgotten_but_not_the_present() {
        let mut recent = Recent::new(0.0);
        recent.push(0.0, 9, 10.0);
        recent.push(100.0, 3, 10.0);
        assert_eq!((recent.most_since(0.0), recent.most_since(200.0)), (3, 3));
    }
}
