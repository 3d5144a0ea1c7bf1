//! The clairvoyant optimum of the cost model: the most that could be earned with all demand known
//! in advance.
//!
//! Costs add up over levels, so each level can be treated by itself, and its time falls into gaps
//! in which it is not needed. A level that is not needed for `n` steps earns most if it goes
//! offline when the gap begins and wakes on demand when it ends, or not at all:
//!
//! ```text
//! max(0, n * saving - emptying - waking)
//! ```
//! without `waking` at the end of the series, and with `empty` instead of `emptying` for a level
//! that was not used since the start.
//!
//! A gap cannot be used better: waking in it only to go offline again costs and saves nothing. The
//! best schedules of levels fit together, because a lower level is needed whenever a higher one is:
//! its gaps lie within the gaps of the higher. This is how Lin, Wierman, Andrew and Thereska
//! (INFOCOM 2011) see right-sizing of data centres in hindsight.

use crate::model::{DemandSeries, JouleAccount, SliceCosts, account};

/// The best schedule: slices on in each step. Takes time in proportion to steps and slices.
pub fn schedule(series: &DemandSeries, costs: SliceCosts) -> Vec<u32> {
    let steps = series.needed.len();
    // How many more levels are offline in this step than in the one before.
    let mut change = vec![0i64; steps + 1];
    // gap[j]: the step since which level j + 1 has not been needed.
    let mut gap = vec![0usize; series.slices as usize];
    let mut close = |level: usize, from: usize, to: usize| {
        let unused = from == 0 && level >= series.used_at_start as usize;
        let waking = if to < steps { costs.waking } else { 0.0 };
        let price = waking + if unused { costs.empty } else { costs.emptying };
        if (to - from) as f64 * costs.saving > price {
            change[from] += 1;
            change[to] -= 1;
        }
    };
    let mut before = 0usize;
    for (step, &needed) in series.needed.iter().enumerate() {
        let needed = needed.min(series.slices) as usize;
        if needed > before {
            for (level, from) in gap.iter().enumerate().take(needed).skip(before) {
                close(level, *from, step);
            }
        }
        if needed < before {
            gap[needed..before].fill(step);
        }
        before = needed;
    }
    for (level, from) in gap.iter().enumerate().skip(before) {
        close(level, *from, steps);
    }
    let mut off = 0i64;
    change[..steps]
        .iter()
        .map(|change| {
            off += change;
            series.slices - u32::try_from(off).unwrap_or(0)
        })
        .collect()
}

/// What the best schedule earns: no policy can earn more on this series.
pub fn optimum(series: &DemandSeries, costs: SliceCosts) -> JouleAccount {
    account(series, costs, schedule(series, costs))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The best net of all schedules, tried one after another.
    fn by_trying(series: &DemandSeries, costs: SliceCosts) -> f64 {
        fn best(series: &DemandSeries, costs: SliceCosts, done: &mut Vec<u32>) -> f64 {
            if done.len() == series.needed.len() {
                return account(series, costs, done.iter().copied()).net();
            }
            let mut most = f64::NEG_INFINITY;
            for on in series.needed[done.len()]..=series.slices {
                done.push(on);
                most = most.max(best(series, costs, done));
                done.pop();
            }
            most
        }
        best(series, costs, &mut Vec::new())
    }

    fn small() -> impl Strategy<Value = (DemandSeries, SliceCosts)> {
        let series = (1u32..=3).prop_flat_map(|slices| {
            (proptest::collection::vec(0..=slices, 1..=6), 0..=slices).prop_map(
                move |(needed, used_at_start)| DemandSeries { needed, slices, used_at_start },
            )
        });
        let costs = (0.0..3.0f64, 0.0..5.0f64, 0.0..1.0f64, 0.0..2.0f64).prop_map(
            |(saving, emptying, share, waking)| SliceCosts {
                saving,
                emptying,
                empty: emptying * share,
                waking,
            },
        );
        (series, costs)
    }

    proptest! {
        #[test]
        fn no_schedule_of_a_small_machine_is_better((series, costs) in small()) {
            let (found, tried) = (optimum(&series, costs).net(), by_trying(&series, costs));
            prop_assert!((found - tried).abs() < 1e-9, "found {found}, tried {tried}");
        }
    }

    #[test]
    fn a_gap_is_used_exactly_if_it_pays() {
        let costs = SliceCosts { saving: 1.0, emptying: 2.0, empty: 0.1, waking: 0.5 };
        let series =
            |needed: &[u32]| DemandSeries { needed: needed.to_vec(), slices: 2, used_at_start: 0 };
        // Level 2 is empty at the start; level 1 rests for 2 steps, which does not pay, then for 3,
        // which does.
        assert_eq!(schedule(&series(&[1, 0, 0, 1, 0, 0, 0, 1]), costs), [1, 1, 1, 1, 0, 0, 0, 1]);
        // At the end nothing wakes.
        assert_eq!(schedule(&series(&[1, 0, 0]), costs), [1, 1, 1]);
        assert_eq!(schedule(&series(&[1, 0, 0, 0]), costs), [1, 0, 0, 0]);
    }
}
