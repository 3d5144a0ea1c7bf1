//! Distances of refaults: how many more pages of memory would have kept what had to be read again.

/// Powers of two that the kernel counts by.
pub const NR_ORDERS: usize = 64;

/// Refaults by distance, in powers of two: entry i counts distances of at least 2^i and less than
/// 2^(i+1) pages, the first one also those of 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefaultDistances([f64; NR_ORDERS]);

impl Default for RefaultDistances {
    fn default() -> Self {
        Self([0.0; NR_ORDERS])
    }
}

impl RefaultDistances {
    /// From counts by power of two.
    pub fn new(counts: [f64; NR_ORDERS]) -> Self {
        Self(counts)
    }

    /// Adds refaults of this order; one that is not below [`NR_ORDERS`] counts as the last one.
    pub fn add(&mut self, order: usize, count: f64) {
        self.0[order.min(NR_ORDERS - 1)] += count;
    }

    /// All refaults.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The order of the longest one; nothing without any.
    fn longest(&self) -> Option<usize> {
        self.0.iter().rposition(|count| *count > 0.0)
    }
}

/// How many more pages of memory would have avoided refaults, by their distances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefaultSizes([f64; NR_ORDERS + 1]);

impl RefaultSizes {
    /// From all refaults of a stretch of time, all pages that were read in it, refaults included,
    /// and the steps that the kernel's clock of distances made meanwhile: it counts evictions and
    /// activations. Without these, a distance is taken for the pages that it would need, which is
    /// the most.
    ///
    /// A page that came back t after it was evicted would have stayed in a memory that grew by what
    /// was read in that time, without what that memory would have kept itself: x more pages avoid
    /// the refaults that come within t, where x is the sum of misses that remain, M - R, up to t
    /// (the model of average eviction time, Hu et al. 2018, from the eviction on). With E steps of
    /// the clock, of which a distance d is a share of d / E, it is the sum of (M - R) / E up to d.
    pub fn new(refaults: [&RefaultDistances; 2], misses: f64, steps: Option<f64>) -> Self {
        let mut left = misses.max(refaults.iter().map(|kind| kind.total()).sum());
        let mut sizes = [0.0; NR_ORDERS + 1];
        let mut from = 0.0;
        for order in 0..NR_ORDERS {
            let avoided: f64 = refaults.iter().map(|kind| kind.0[order]).sum();
            let each = match steps {
                Some(steps) if steps > 0.0 => ((left - avoided / 2.0) / steps).clamp(0.0, 1.0),
                _ => 1.0,
            };
            let to = power(order + 1);
            // The first order begins at 0, and is taken to lie where it ends.
            if order == 0 {
                (sizes[0], from) = (each, 1.0);
            }
            sizes[order + 1] = sizes[order] + (to - from) * each;
            (left, from) = (left - avoided, to);
        }
        Self(sizes)
    }

    /// The memory that would have avoided all of these, in pages; nothing without any.
    pub fn longest(&self, refaults: &RefaultDistances) -> Option<f64> {
        refaults.longest().map(|order| self.0[order + 1])
    }

    /// Of these refaults, those that `pages` more pages of memory would have avoided, distances
    /// spread evenly between two powers.
    pub fn avoided(&self, refaults: &RefaultDistances, pages: f64) -> f64 {
        self.sum(refaults, |low, high| {
            if high > low {
                ((pages - low) / (high - low)).clamp(0.0, 1.0)
            } else {
                step(pages, low)
            }
        })
    }

    /// The same if all distances lie at one place between their powers: at the lower one with 0,
    /// at the upper one with 1.
    pub fn avoided_at(&self, refaults: &RefaultDistances, pages: f64, place: f64) -> f64 {
        self.sum(refaults, |low, high| step(pages, low + (high - low) * place))
    }

    /// Counts times their share, which depends on the sizes at both powers.
    fn sum(&self, refaults: &RefaultDistances, share: impl Fn(f64, f64) -> f64) -> f64 {
        let counts = refaults.0.iter().zip(self.0.windows(2)).filter(|(count, _)| **count > 0.0);
        counts.map(|(count, sizes)| count * share(sizes[0], sizes[1])).sum()
    }
}

/// 1 from `least` on, 0 below.
fn step(pages: f64, least: f64) -> f64 {
    f64::from(u8::from(pages >= least))
}

/// 2^order, exactly.
fn power(order: usize) -> f64 {
    (order as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if each distance were the memory that it needs.
    fn as_they_are(distances: &RefaultDistances) -> RefaultSizes {
        RefaultSizes::new([distances, &RefaultDistances::default()], 0.0, None)
    }

    #[test]
    fn more_memory_avoids_the_near_refaults_first() {
        let mut distances = RefaultDistances::default();
        distances.add(3, 10.0);
        distances.add(5, 4.0);
        let sizes = as_they_are(&distances);
        for (pages, avoided) in
            [(0.0, 0.0), (8.0, 0.0), (12.0, 5.0), (16.0, 10.0), (48.0, 12.0), (64.0, 14.0)]
        {
            assert!((sizes.avoided(&distances, pages) - avoided).abs() < 1e-9, "{pages}");
        }
        assert_eq!((distances.total(), sizes.longest(&distances)), (14.0, Some(64.0)));
        assert_eq!(sizes.longest(&RefaultDistances::default()), None);
    }

    #[test]
    fn a_place_between_two_powers_is_a_step() {
        let mut distances = RefaultDistances::default();
        distances.add(4, 6.0);
        let sizes = as_they_are(&distances);
        for (pages, place, avoided) in [
            (16.0, 0.0, 6.0),
            (16.0, 0.1, 0.0),
            (31.0, 1.0, 0.0),
            (32.0, 1.0, 6.0),
            (24.0, 0.5, 6.0),
        ] {
            assert!((sizes.avoided_at(&distances, pages, place) - avoided).abs() < 1e-9, "{pages}");
        }
    }

    #[test]
    fn random_reads_of_a_set_need_the_rest_of_the_set() {
        // 1000 pages of which 800 are kept by chance: an evicted page is read again after a number
        // of evictions that is 200 on average, and falls off evenly: so do distances.
        let mut distances = RefaultDistances::default();
        let (misses, missing) = (10_000.0, 200.0);
        let beyond = |distance: f64| misses * (-distance / missing).exp();
        for order in 0..NR_ORDERS {
            let from = if order == 0 { 0.0 } else { power(order) };
            distances.add(order, beyond(from) - beyond(power(order + 1)));
        }
        let none = RefaultDistances::default();
        // Each miss evicts a page, and the clock steps with evictions, or twice as often.
        for (steps, scale) in [(misses, 1.0), (2.0 * misses, 0.5)] {
            let sizes = RefaultSizes::new([&distances, &none], misses, Some(steps));
            for share in [0.25, 0.5, 0.75] {
                let avoided = sizes.avoided(&distances, missing * scale * share) / misses;
                assert!((avoided - share).abs() < 0.06, "{share}: {avoided}");
            }
            assert!(sizes.avoided(&distances, 1.1 * missing * scale) > 0.98 * misses);
        }
        // What is read once stays in between: more is needed.
        let sizes = RefaultSizes::new([&distances, &none], 2.0 * misses, Some(2.0 * misses));
        assert!(sizes.avoided(&distances, 1.1 * missing) < 0.8 * misses);
    }

    #[test]
    fn no_refault_needs_more_pages_than_its_distance() {
        let mut distances = RefaultDistances::default();
        distances.add(6, 10.0);
        let none = RefaultDistances::default();
        // Memory that is being filled: much is read, little evicted.
        let sizes = RefaultSizes::new([&none, &distances], 1e6, Some(20.0));
        assert_eq!(sizes.longest(&distances), Some(128.0));
    }
}
