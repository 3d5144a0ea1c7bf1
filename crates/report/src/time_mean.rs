//! The mean of a value over time, with an interval that knows of autocorrelation.
//!
//! Method of batch means (Law and Kelton, "Simulation Modeling and Analysis", chapter 9): the time
//! is parted into batches of equal length, whose means are nearly independent if the batches are
//! much longer than the value remembers. If neighbouring batches are still alike, the recording is
//! too short for an interval.

/// Batches, and Student's t for one less at 97.5 %.
const BATCHES: usize = 20;
const STUDENT_T: f64 = 2.093;
/// Moments in a batch, at least.
const LEAST_MOMENTS: usize = 5;
/// Correlation of neighbouring batches that independent ones exceed once in twenty times.
const MOST_ALIKE: f64 = 0.33;

/// A mean over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimeMean {
    pub(crate) mean: f64,
    /// Half of the 95 % interval; absent if the recording is too short to tell.
    pub(crate) margin: Option<f64>,
}

impl TimeMean {
    /// Of (seconds, value), by time; each value holds until the next moment.
    pub(crate) fn of(moments: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        let whole = last.0 - first.0;
        if whole <= 0.0 {
            return Some(Self { mean: first.1, margin: None });
        }
        let mean = integral(moments, first.0, last.0) / whole;
        let margin = (moments.len() > BATCHES * LEAST_MOMENTS)
            .then(|| {
                let length = whole / BATCHES as f64;
                let batch = |at: usize| {
                    let from = first.0 + length * at as f64;
                    integral(moments, from, from + length) / length
                };
                margin(&(0..BATCHES).map(batch).collect::<Vec<_>>(), mean)
            })
            .flatten();
        Some(Self { mean, margin })
    }
}

fn integral(moments: &[(f64, f64)], from: f64, until: f64) -> f64 {
    let begin = moments.partition_point(|moment| moment.0 <= from).saturating_sub(1);
    moments[begin..]
        .windows(2)
        .take_while(|pair| pair[0].0 < until)
        .map(|pair| (pair[1].0.min(until) - pair[0].0.max(from)).max(0.0) * pair[0].1)
        .sum()
}

fn margin(batches: &[f64], mean: f64) -> Option<f64> {
    let apart: Vec<f64> = batches.iter().map(|batch| batch - mean).collect();
    let squares: f64 = apart.iter().map(|one| one * one).sum();
    // Sums are not exact
    if squares <= (mean * 1e-9).powi(2) {
        return Some(0.0);
    }
    let neighbours: f64 = apart.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let count = batches.len() as f64;
    (neighbours / squares <= MOST_ALIKE)
        .then(|| STUDENT_T * (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use ramslice_types::SplitMix64;

    use super::*;

    /// A value that keeps `memory` of its distance from 10 at each step.
    fn remembering(memory: f64, steps: usize, random: &mut SplitMix64) -> Vec<(f64, f64)> {
        let mut apart = 0.0;
        let mut noise = || random.normal();
        (0..steps)
            .map(|at| {
                apart = memory * apart + noise();
                (at as f64, 10.0 + apart)
            })
            .collect()
    }

    #[test]
    fn a_value_counts_until_the_next_moment() {
        let mean = TimeMean::of(&[(0.0, 1.0), (1.0, 5.0), (4.0, 100.0)]).unwrap();
        assert!((mean.mean - 4.0).abs() < 1e-12);
        assert_eq!(mean.margin, None);
        assert_eq!(TimeMean::of(&[(3.0, 7.0)]), Some(TimeMean { mean: 7.0, margin: None }));
        assert_eq!(TimeMean::of(&[]), None);
    }

    #[test]
    fn intervals_hold_the_mean_as_often_as_they_say() {
        let mut random = SplitMix64::new(1);
        for memory in [0.0, 0.9] {
            let (mut held, mut told) = (0, 0);
            for _ in 0..400 {
                let mean = TimeMean::of(&remembering(memory, 4000, &mut random)).unwrap();
                let Some(margin) = mean.margin else { continue };
                told += 1;
                held += i32::from((mean.mean - 10.0).abs() <= margin);
            }
            let share = f64::from(held) / f64::from(told);
            assert!(told > 300, "{memory}: {told}");
            assert!((0.9..0.99).contains(&share), "{memory}: {share}");
        }
    }

    #[test]
    fn what_remembers_for_longer_than_a_batch_has_no_interval() {
        let rising: Vec<_> = (0..1000).map(|at| (f64::from(at), f64::from(at))).collect();
        assert_eq!(TimeMean::of(&rising).unwrap().margin, None);
        let steady: Vec<_> = (0..1000).map(|at| (f64::from(at), 3.0)).collect();
        assert_eq!(TimeMean::of(&steady), Some(TimeMean { mean: 3.0, margin: Some(0.0) }));
    }
}
