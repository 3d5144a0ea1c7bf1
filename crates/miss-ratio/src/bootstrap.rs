//! Resampling of stretches of time, and intervals from it.

use ramslice_types::SplitMix64;

use crate::window_curve::CurveDraw;

/// Draws; 2.5 % of them are ten.
pub(crate) const NR_DRAWS: usize = 400;
/// The share of draws that lies below an interval, and above it.
const TAIL: f64 = 0.025;
/// So that the same recording gives the same advice.
const SEED: u64 = 0x6d69_7373;

/// One draw: how often each stretch of the recording is in it, and what else is not known exactly.
pub(crate) struct WindowDraw {
    pub(crate) times: Vec<f64>,
    pub(crate) curve: CurveDraw,
}

impl WindowDraw {
    /// Each of so many stretches once, and the middle of the rest: what was seen.
    pub(crate) fn middle(nr_windows: usize) -> Self {
        Self { times: vec![1.0; nr_windows], curve: CurveDraw::MIDDLE }
    }
}

/// All draws for so many stretches.
///
/// Whole stretches are drawn (a block bootstrap whose blocks do not overlap: Carlstein, The Use of
/// Subseries Values, Annals of Statistics 14, 1986), so that what is alike within one stays
/// together.
pub(crate) fn draws(nr_windows: usize) -> Vec<WindowDraw> {
    let mut random = SplitMix64::new(SEED);
    let mut draw = || {
        let mut times = vec![0.0; nr_windows];
        for _ in 0..nr_windows {
            times[random.index(nr_windows)] += 1.0;
        }
        let curve = CurveDraw {
            sample: random.normal(),
            place: Some(random.unit()),
            partly_stalled: random.unit(),
            kernel: random.unit(),
        };
        WindowDraw { times, curve }
    };
    (0..NR_DRAWS).map(|_| draw()).collect()
}

/// The interval that leaves 2.5 % of the values on each side, which holds `value` in any case.
///
/// The mean of n stretches drawn from n varies by too little, by a factor of sqrt((n - 1) / n):
/// values are spread by its inverse.
pub(crate) fn interval(value: f64, mut values: Vec<f64>, nr_windows: usize) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let nr_windows = nr_windows as f64;
    let spread = (nr_windows / (nr_windows - 1.0).max(1.0)).sqrt();
    let place = ((values.len() as f64 * TAIL) as usize).min(values.len().saturating_sub(1));
    let end = |at: usize| value + (values.get(at).copied().unwrap_or(value) - value) * spread;
    (end(place).min(value), end(values.len().saturating_sub(1 + place)).max(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_deviation() {
        let mut random = SplitMix64::new(5);
        let values: Vec<f64> = (0..40).map(|_| 10.0 + random.normal()).collect();
        let mean = |draw: &WindowDraw| {
            let products = values.iter().zip(&draw.times).map(|(value, times)| value * times);
            products.sum::<f64>() / draw.times.iter().sum::<f64>()
        };
        let means = draws(values.len()).iter().map(mean).collect();
        let (low, high) = interval(mean(&WindowDraw::middle(values.len())), means, values.len());
        // 1.96 deviations of 1 / sqrt(40) on each side.
        let half = (high - low) / 2.0;
        assert!((0.22..0.42).contains(&half) && low < 10.0 && 10.0 < high, "{low} to {high}");
    }

    #[test]
    fn an_interval_holds_its_value() {
        assert!((interval(1.0, vec![2.0; 400], 6).0 - 1.0).abs() < 1e-9);
        assert_eq!(interval(1.0, Vec::new(), 6), (1.0, 1.0));
    }
}
