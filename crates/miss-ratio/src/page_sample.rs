//! A sample of pages by a hash of their number, so that a page is in it always or never
//! (Waldspurger, Park, Garthwaite and Ahmad, Efficient MRC Construction with SHARDS, FAST 2015).

/// The pages whose hash is below a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSample {
    /// One more than the highest hash that is taken; 2^64 takes all.
    end: u128,
}

impl PageSample {
    /// A sample of this share of all pages; less than 0 counts as 0, more than 1 as 1.
    pub fn of_rate(rate: f64) -> Self {
        let all = 2f64.powi(64);
        Self { end: (rate.clamp(0.0, 1.0) * all) as u128 }
    }

    /// The share of all pages, between 0 and 1.
    pub fn rate(&self) -> f64 {
        self.end as f64 / 2f64.powi(64)
    }

    /// Whether the page of this number is in the sample. A sample of a lower rate is a part of each
    /// sample of a higher rate.
    pub fn takes(&self, page: u64) -> bool {
        u128::from(hash(page)) < self.end
    }
}

/// The finaliser of `SplitMix64`: every bit of the number changes half of the bits.
fn hash(page: u64) -> u64 {
    let mut mixed = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_share_of_pages_and_smaller_ones_are_parts_of_it() {
        let (most, some) = (PageSample::of_rate(0.25), PageSample::of_rate(0.1));
        let count = |sample: PageSample| (0..100_000).filter(|&page| sample.takes(page)).count();
        assert!((24_500..25_500).contains(&count(most)) && (9_600..10_400).contains(&count(some)));
        assert!((0..100_000).all(|page| most.takes(page) || !some.takes(page)));
        assert!(count(PageSample::of_rate(1.0)) == 100_000 && count(PageSample::of_rate(0.0)) == 0);
        assert!((most.rate() - 0.25).abs() < 1e-12);
    }
}
