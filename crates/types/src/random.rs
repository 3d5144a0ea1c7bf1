//! Seeded random numbers: `SplitMix64` (Steele, Lea and Flood, 2014), implemented here so that a
//! seed gives the same sequence in every version of this program, and so that its state can be
//! saved.

use serde::{Deserialize, Serialize};

/// A sequence of numbers that a seed determines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate sequence for part `stream` of what `seed` determines: a machine of a fleet, an
    /// input.
    pub fn of(seed: u64, stream: u64) -> Self {
        let mut outer = Self(seed);
        let mut inner = Self(outer.bits() ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(inner.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// In [0, end); 0 when `end` is 0. The bias of at most `end` / 2^64 does not show.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// An index into a list of this length, which is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True with this probability: never with 0, always with 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed around 0 with deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// The time to the next of random events that are `mean` apart.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first = |seed, stream| SplitMix64::of(seed, stream).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert!(first(1, 2) != first(1, 3) && first(1, 2) != first(2, 2));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = SplitMix64::new(7);
        for _ in 0..10_000 {
            assert!(random.below(10) < 10 && (0.0..1.0).contains(&random.unit()));
            assert!(random.exponential(5.0) >= 0.0 && random.normal().is_finite());
        }
        assert_eq!(random.below(0), 0);
        assert!((0..10_000).all(|_| !random.chance(0.0) && random.chance(1.0)));
    }
}
