//! Intervals by resampling, repeatable: the generator is seeded.

use serde::{Deserialize, Serialize};

/// The middle 95% of what resampling gave.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// `SplitMix64` (Steele, Lea and Flood, 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// From the 2.5th to the 97.5th percentile.
pub(crate) fn interval(values: &mut [f64]) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = values.len().saturating_sub(1);
        values.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
    };
    Interval { low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_end_and_meet_all() {
        let mut random = Random::new(3);
        let mut met = [false; 5];
        (0..200).for_each(|_| met[random.below(5)] = true);
        assert_eq!(met, [true; 5]);
    }

    #[test]
    fn an_interval_holds_the_middle() {
        let mut values: Vec<f64> = (0..=1000).map(f64::from).collect();
        assert_eq!(interval(&mut values), Interval { low: 25.0, high: 975.0 });
    }
}
