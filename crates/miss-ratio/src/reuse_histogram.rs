//! Reuse times: how long ago a page was last accessed when it is accessed again, in whatever unit
//! of time its accesses are counted.

use std::iter;

use crate::miss_curve::MissCurve;

/// Bins of reuse times: each time of its own below 16, then eight bins for each power of two, so
/// that a bin is at most an eighth wide.
#[derive(Debug, Clone, Copy)]
pub struct ReuseBins;

impl ReuseBins {
    const EXACT: u64 = 16;
    const FIRST_OCTAVE: u32 = Self::EXACT.ilog2();
    const PER_OCTAVE_LOG2: u32 = 3;

    /// The bin of a time, which is at least 1.
    pub fn of(time: u64) -> usize {
        if time < Self::EXACT {
            return time as usize;
        }
        let octave = time.ilog2();
        let within =
            (time >> (octave - Self::PER_OCTAVE_LOG2)) & ((1 << Self::PER_OCTAVE_LOG2) - 1);
        let before = u64::from(octave - Self::FIRST_OCTAVE) << Self::PER_OCTAVE_LOG2;
        (Self::EXACT + before + within) as usize
    }

    /// The shortest time of a bin.
    pub fn shortest(bin: usize) -> u64 {
        let bin = bin as u64;
        if bin < Self::EXACT {
            return bin;
        }
        let (octave, within) = ((bin - Self::EXACT) >> 3, (bin - Self::EXACT) & 7);
        (8 + within) << (octave + u64::from(Self::FIRST_OCTAVE - Self::PER_OCTAVE_LOG2))
    }
}

/// Accesses by reuse time, and those to pages that had not been accessed before.
///
/// Counts need not be whole: a sample is scaled up, a mean is a quotient.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReuseHistogram {
    /// By bin; the first one is always 0, because no reuse time is.
    counts: Vec<f64>,
    first: f64,
}

impl ReuseHistogram {
    /// Adds `weight` accesses whose pages had last been accessed `time` earlier; `time` is at least
    /// 1.
    pub fn add(&mut self, time: u64, weight: f64) {
        self.add_to_bin(ReuseBins::of(time.max(1)), weight);
    }

    /// The same by the bin of the time.
    pub fn add_to_bin(&mut self, bin: usize, weight: f64) {
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0.0);
        }
        self.counts[bin] += weight;
    }

    /// Adds `weight` accesses to pages that had not been accessed before.
    pub fn add_first(&mut self, weight: f64) {
        self.first += weight;
    }

    /// Adds another histogram, scaled.
    pub fn add_scaled(&mut self, other: &Self, factor: f64) {
        for (bin, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count != 0.0) {
            self.add_to_bin(bin, count * factor);
        }
        self.first += other.first * factor;
    }

    /// Accesses to pages that had not been accessed before.
    pub fn first(&self) -> f64 {
        self.first
    }

    /// Moves up to `most` accesses with the longest reuse times to those of pages that had not been
    /// accessed before; says how many were moved.
    pub fn forget_longest(&mut self, most: f64) -> f64 {
        let mut left = most;
        for count in self.counts.iter_mut().rev() {
            let moved = count.min(left).max(0.0);
            (*count, left) = (*count - moved, left - moved);
            self.first += moved;
        }
        most - left
    }

    /// Accesses whose reuse time is longer than `time`, first ones included. Within a bin, times
    /// count as spread evenly.
    pub fn longer_than(&self, time: u64) -> f64 {
        let bin = ReuseBins::of(time.max(1));
        let above: f64 = self.counts.iter().skip(bin + 1).sum();
        let own = if time == 0 { self.counts.get(1) } else { self.counts.get(bin) };
        let (low, end) = (ReuseBins::shortest(bin), ReuseBins::shortest(bin + 1));
        let share = if time == 0 { 1.0 } else { (end - 1 - time) as f64 / (end - low) as f64 };
        self.first + above + own.copied().unwrap_or(0.0) * share
    }

    /// The times at which [`longer_than`](Self::longer_than) bends, from 0 to the longest that was
    /// seen.
    pub(crate) fn knots(&self) -> Vec<u64> {
        let last = self.counts.iter().rposition(|count| *count > 0.0).unwrap_or(0);
        (0..=last).map(|bin| ReuseBins::shortest(bin + 1) - 1).collect()
    }

    /// The miss ratio of a cache with least-recently-used eviction, by its size in pages.
    ///
    /// With P(t) the share of accesses whose reuse time is longer than t, the average eviction time
    /// of a cache of c pages is the T for which P(0) + … + P(T - 1) = c, and its miss ratio is P(T)
    /// (Hu et al. 2018, equations 4 to 6). `accesses` is the number of accesses that the histogram
    /// stands for: all accesses times the rate of the sample, which the sample itself only meets on
    /// average. The difference counts as accesses that hit in any cache, as SHARDS-adj has it. The
    /// curve ends with the longest reuse time that was seen.
    pub fn miss_ratio(&self, accesses: f64) -> MissCurve {
        let share = |time: u64| match time {
            0 => 1.0,
            _ => (self.longer_than(time) / accesses).min(1.0),
        };
        let sums = eviction_sums(self.knots().into_iter().skip(1), share);
        MissCurve::new(iter::once((0.0, 1.0)).chain(sums.map(|sum| (sum.pages, sum.longer))))
    }
}

/// What the model of average eviction time says of one time T.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EvictionSum {
    /// T.
    pub(crate) time: u64,
    /// P(0) + … + P(T - 1).
    pub(crate) pages: f64,
    /// P(T).
    pub(crate) longer: f64,
}

/// The sums for these times, which ascend from 1 or more on; between two of them, P falls evenly.
pub(crate) fn eviction_sums(
    times: impl Iterator<Item = u64>,
    longer: impl Fn(u64) -> f64,
) -> impl Iterator<Item = EvictionSum> {
    let mut last = EvictionSum { time: 0, pages: 0.0, longer: longer(0) };
    times.map(move |time| {
        let now = longer(time);
        let pages = last.pages + steps((last.time, last.longer), (time, now));
        last = EvictionSum { time, pages, longer: now };
        last
    })
}

/// The sum of what falls evenly from one knot to the next, over the times from the first one on
/// and before the second one.
fn steps(from: (u64, f64), to: (u64, f64)) -> f64 {
    let times = (to.0 - from.0) as f64;
    times * from.1 - (from.1 - to.1) * (times - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_without_gaps_and_at_most_an_eighth_wide() {
        for bin in 1..300 {
            let (low, end) = (ReuseBins::shortest(bin), ReuseBins::shortest(bin + 1));
            assert!(low < end && (end - low <= (low / 8).max(1)), "{bin}: {low} to {end}");
            assert_eq!((ReuseBins::of(low), ReuseBins::of(end - 1)), (bin, bin));
        }
    }

    #[test]
    fn longer_times_are_counted_within_bins_too() {
        let mut histogram = ReuseHistogram::default();
        histogram.add_first(2.0);
        for (time, weight) in [(1, 5.0), (3, 4.0), (16, 8.0)] {
            histogram.add(time, weight);
        }
        // 16 and 17 share a bin.
        for (time, longer) in [(0, 19.0), (1, 14.0), (2, 14.0), (3, 10.0), (16, 6.0), (17, 2.0)] {
            assert!((histogram.longer_than(time) - longer).abs() < 1e-9, "{time}");
        }
        assert_eq!(histogram.knots().last(), Some(&17));
    }

    #[test]
    fn the_longest_times_are_forgotten_first() {
        let mut histogram = ReuseHistogram::default();
        histogram.add(1, 5.0);
        histogram.add(9, 3.0);
        assert!((histogram.forget_longest(4.0) - 4.0).abs() < 1e-9);
        assert!((histogram.first() - 4.0).abs() < 1e-9);
        assert!((histogram.longer_than(1) - 4.0).abs() < 1e-9);
        assert!((histogram.forget_longest(9.0) - 4.0).abs() < 1e-9);
        assert!((histogram.longer_than(0) - 8.0).abs() < 1e-9);
    }
}
