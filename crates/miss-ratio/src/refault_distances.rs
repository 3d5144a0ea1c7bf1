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

    /// The memory that would have kept all of them, in pages; nothing without any.
    pub fn longest(&self) -> Option<f64> {
        self.0.iter().rposition(|count| *count > 0.0).map(|order| power(order + 1))
    }

    /// Refaults that `pages` more pages of memory would have avoided, distances spread evenly
    /// between two powers.
    pub fn avoided(&self, pages: f64) -> f64 {
        self.sum(|low| ((pages - low) / low).clamp(0.0, 1.0))
    }

    /// The same if all distances lie at one place between their powers: at the lower one with 0,
    /// at the upper one with 1.
    pub fn avoided_at(&self, pages: f64, place: f64) -> f64 {
        self.sum(|low| f64::from(u8::from(pages >= low * (1.0 + place))))
    }

    /// Counts times their share, which depends on the lower power.
    fn sum(&self, share: impl Fn(f64) -> f64) -> f64 {
        let counts = self.0.iter().enumerate().filter(|(_, count)| **count > 0.0);
        counts.map(|(order, count)| count * share(power(order))).sum()
    }
}

/// 2^order, exactly.
fn power(order: usize) -> f64 {
    (order as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_avoids_the_near_refaults_first() {
        let mut distances = RefaultDistances::default();
        distances.add(3, 10.0);
        distances.add(5, 4.0);
        for (pages, avoided) in
            [(0.0, 0.0), (8.0, 0.0), (12.0, 5.0), (16.0, 10.0), (48.0, 12.0), (64.0, 14.0)]
        {
            assert!((distances.avoided(pages) - avoided).abs() < 1e-9, "{pages}");
        }
        assert_eq!((distances.total(), distances.longest()), (14.0, Some(64.0)));
        assert_eq!(RefaultDistances::default().longest(), None);
    }

    #[test]
    fn a_place_between_two_powers_is_a_step() {
        let mut distances = RefaultDistances::default();
        distances.add(4, 6.0);
        for (pages, place, avoided) in [
            (16.0, 0.0, 6.0),
            (16.0, 0.1, 0.0),
            (31.0, 1.0, 0.0),
            (32.0, 1.0, 6.0),
            (24.0, 0.5, 6.0),
        ] {
            assert!((distances.avoided_at(pages, place) - avoided).abs() < 1e-9, "{pages}");
        }
    }
}
