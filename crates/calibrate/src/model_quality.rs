//! How good a model is on samples that it was not fitted to.

use ramslice_types::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::bootstrap::{BootstrapInterval, interval};
use crate::coefficients::ModelCoefficients;
use crate::sample::CalibrationSample;

/// The errors of a model. Costs in units of 100 cycles; an error is predicted less measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ModelQuality {
    /// Samples.
    pub n: usize,
    /// The largest measured cost.
    pub largest_100cycles: f64,
    /// Mean of the squared errors, in (100 cycles)².
    pub mse: f64,
    /// Half of the absolute errors are at most this.
    pub p50_100cycles: f64,
    /// 99% of them are.
    pub p99_100cycles: f64,
    /// The same as a share of the largest cost: what the thesis gives 7.6% for.
    pub p99_of_largest: f64,
    /// Its 95% interval, by resampling.
    pub p99_of_largest_ci95: BootstrapInterval,
    /// Half of the errors are at most this share of their sample's cost.
    pub p50_relative: f64,
    /// 99% of them are.
    pub p99_relative: f64,
    /// Sum of the errors over sum of the costs: above 0, it expects too much.
    pub bias: f64,
    /// Spearman's rank correlation of predicted and measured cost.
    pub rank_correlation: f64,
    /// Its 95% interval.
    pub rank_correlation_ci95: BootstrapInterval,
    /// [`regret`]: extra cycles for the wrong order, mean over the budgets.
    pub regret: f64,
    /// Its 95% interval.
    pub regret_ci95: BootstrapInterval,
    /// At the budget where it is largest.
    pub regret_worst: f64,
}

const RESAMPLES: usize = 400;

/// Judges a model; `None` without samples, or if they cost nothing.
pub fn judge(model: &ModelCoefficients, samples: &[CalibrationSample]) -> Option<ModelQuality> {
    let pairs: Vec<(f64, f64)> = samples
        .iter()
        .map(|sample| (model.price(&sample.operations), sample.measured.0 as f64))
        .collect();
    let first = QualityFigures::of(&pairs)?;

    let mut random = SplitMix64::new(pairs.len() as u64);
    let mut found: [Vec<f64>; 3] = Default::default();
    for _ in 0..RESAMPLES {
        let picked: Vec<_> = (0..pairs.len()).map(|_| pairs[random.index(pairs.len())]).collect();
        let Some(figures) = QualityFigures::of(&picked) else { continue };
        // All with the same largest cost: otherwise the interval would answer another question.
        found[0].push(figures.p99 / first.largest_error);
        found[1].push(figures.rank);
        found[2].push(figures.regret.0);
    }
    let [p99, rank, regret] = found.map(|mut values| interval(&mut values));
    let errors = pairs.iter().map(|(predicted, measured)| predicted - measured);
    let relative = || {
        pairs.iter().map(|(predicted, measured)| (predicted - measured).abs() / measured.max(1.0))
    };
    Some(ModelQuality {
        n: pairs.len(),
        largest_100cycles: first.largest_error,
        mse: errors.clone().map(|error| error * error).sum::<f64>() / pairs.len() as f64,
        p50_100cycles: quantile(errors.clone().map(f64::abs), 0.5)?,
        p99_100cycles: first.p99,
        p99_of_largest: first.p99 / first.largest_error,
        p99_of_largest_ci95: p99,
        p50_relative: quantile(relative(), 0.5)?,
        p99_relative: quantile(relative(), 0.99)?,
        bias: errors.sum::<f64>() / pairs.iter().map(|pair| pair.1).sum::<f64>(),
        rank_correlation: first.rank,
        rank_correlation_ci95: rank,
        regret: first.regret.0,
        regret_ci95: regret,
        regret_worst: first.regret.1,
    })
}

/// The figures that are computed again for each resample.
struct QualityFigures {
    largest_error: f64,
    p99: f64,
    rank: f64,
    regret: (f64, f64),
}

impl QualityFigures {
    fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let largest = pairs.iter().map(|pair| pair.1).fold(0.0, f64::max);
        if largest <= 0.0 {
            return None;
        }
        Some(Self {
            largest_error: largest,
            p99: quantile(
                pairs.iter().map(|(predicted, measured)| (predicted - measured).abs()),
                0.99,
            )?,
            rank: rank_correlation(pairs),
            regret: regret(pairs),
        })
    }
}

/// The smallest value that at least this share of the values does not exceed; `None` of none.
///
/// Never between two values: with fewer than 100, the 99th percentile is the largest.
pub fn quantile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().checked_sub(1)?)).copied()
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let value = values[order[first]];
        let same =
            order[first..].iter().take_while(|&&at| values[at].total_cmp(&value).is_eq()).count();
        let rank = first as f64 + f64::midpoint(same as f64, 1.0);
        order[first..first + same].iter().for_each(|&at| ranks[at] = rank);
        first += same;
    }
    ranks
}

/// Spearman's rank correlation of the two values of each pair: 1 if they have one order, −1 if the
/// opposite.
///
/// 0 if all values of one kind are equal: then there is no order.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let predicted = ranks(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let measured = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let mean = f64::midpoint(pairs.len() as f64, 1.0);
    let (mut both, mut first, mut second) = (0.0, 0.0, 0.0);
    for (a, b) in predicted.iter().zip(&measured) {
        both += (a - mean) * (b - mean);
        first += (a - mean).powi(2);
        second += (b - mean).powi(2);
    }
    if first * second > 0.0 { both / (first * second).sqrt() } else { 0.0 }
}

/// Budgets at which the order of emptying is judged, as shares of what emptying all would cost.
pub const REGRET_SHARES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// Extra cycles from emptying in the order of the predicted costs: mean over the budgets, and the
/// largest.
///
/// For a budget, k is the number of slices that it would empty in the order of their measured
/// costs: as many as there could be. The regret is what the k slices that are cheapest by
/// prediction really cost, over what the k cheapest do, less 1. Equal predictions are taken dearest
/// first, so that a model that predicts nothing gains nothing by it. A budget that does not suffice
/// for one slice counts for one.
pub fn regret(pairs: &[(f64, f64)]) -> (f64, f64) {
    let mut best: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    best.sort_by(f64::total_cmp);
    let mut ordered = pairs.to_vec();
    ordered.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let sums = |costs: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
        let mut sum = 0.0;
        costs
            .map(|cost| {
                sum += cost;
                sum
            })
            .collect()
    };
    let best = sums(&mut best.into_iter());
    let taken = sums(&mut ordered.into_iter().map(|pair| pair.1));
    let Some(&all) = best.last() else { return (0.0, 0.0) };
    let regrets = REGRET_SHARES.map(|share| {
        let k = best.partition_point(|&cost| cost <= share * all).max(1);
        if best[k - 1] > 0.0 { taken[k - 1] / best[k - 1] - 1.0 } else { 0.0 }
    });
    let mean = regrets.iter().sum::<f64>() / regrets.len() as f64;
    (mean, regrets.into_iter().fold(0.0, f64::max))
}
