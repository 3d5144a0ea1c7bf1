//! The generator behind the decisions: `SplitMix64` (Steele, Lea and Flood, 2014), written out so that a seed
//! means the same in every version of this program.

/// A sequence of numbers that a seed determines.
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

    /// True with this probability: never with 0, always with 1.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, all that a double tells apart in [0, 1).
        let number = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        number < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn never_and_always_are_exact() {
        let mut random = Random::new(7);
        assert!((0..10_000).all(|_| !random.chance(0.0) && random.chance(1.0)));
    }
}
