//! The statistical models: C by plain least squares, ours with independent terms, none below 0.
//!
//! Why our model has other terms than model C. Eq 3.4 prices destinations from free memory
//! (`alloc_buddy`) and those gained by dropping cache (`alloc_cache`) in addition to each page
//! moved. But each page moved has exactly one destination, so that the three counts are not
//! independent: least squares finds any combination, with terms of thousands below 0 (Table 4.2,
//! column C: 5791 − 5694). Here, `migrate_page` includes the usual destination, `alloc_buddy` is 0,
//! and `alloc_cache` is what a destination costs more if cache has to be dropped for it. The
//! kernel's formula needs no change.

use ramslice_types::SplitMix64;
use thiserror::Error;

use crate::bootstrap::{BootstrapInterval, interval};
use crate::coefficients::{ModelCoefficients, TERMS, row};
use crate::least_squares::{CoefficientBound, LeastSquares};
use crate::sample::{CalibrationSample, OperationCounts};

/// A model could not be fitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FitError {
    /// No samples, or none that cost anything.
    #[error("there is nothing to fit: no sample that took any time")]
    Nothing,
    /// The solver did not find an end.
    #[error("the solver gave up: {status}")]
    Solver {
        /// What it said.
        status: String,
    },
}

/// A fitted model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedModel {
    /// As fitted.
    pub exact: ModelCoefficients,
    /// In whole numbers, as the kernel takes them: those around the exact ones that fit best
    /// together.
    pub rounded: ModelCoefficients,
}

/// Independent terms: those of [`row`] but for `alloc_buddy`.
const INDEPENDENT_TERMS: usize = TERMS - 1;
/// Of a term that the samples do not determine, this keeps the solution unique, and is far below
/// what they say of others.
const WEAK_PRIOR: f64 = 1e-9;
/// For a refit: a term that everyday operations hardly show stays where it was.
const REFIT_PRIOR: f64 = 1e-3;
/// A residual beyond so many times the usual one counts less (Huber 1964; 95% efficient without
/// outliers).
const HUBER: f64 = 1.345;
/// The error of a slice is that of a sum of operations: its variance grows with the cost. Below
/// this share of the largest cost, it is that of the clock.
const NOISE_FLOOR: f64 = 0.01;
const ROUNDS: usize = 20;
const RESAMPLES: usize = 200;

/// Model C: plain least squares on all terms at once (Eq 4.1), without bounds.
///
/// Samples of one slice size cannot distinguish `isolate_slice` from `isolate_page`, as in the
/// thesis.
pub fn least_squares(samples: &[CalibrationSample]) -> Result<ModelCoefficients, FitError> {
    let rows: Vec<_> = samples.iter().map(|sample| row(&sample.operations)).collect();
    let targets = measured_costs(samples);
    let weights = vec![1.0; rows.len()];
    let problem = LeastSquares {
        rows: &rows,
        targets: &targets,
        weights: &weights,
        prior: [0.0; TERMS],
        prior_weight: WEAK_PRIOR,
    };
    problem.solve(CoefficientBound::None).map(ModelCoefficients::from_array)
}

/// Our model: independent terms, none below 0, robust against samples that something interrupted.
///
/// Minimises Σ ρ(e / √v) with Huber's ρ and v the measured cost, by weights that are improved in
/// turn, each a small quadratic program.
///
/// If no sample has destinations gained by dropping cache, one is taken to cost a dropped page
/// more.
pub fn fit(samples: &[CalibrationSample]) -> Result<FittedModel, FitError> {
    let mut found = fit_terms(samples, ModelCoefficients::default(), WEAK_PRIOR)?;
    if !shows_cache_targets(samples) {
        found.exact.alloc_cache = found.exact.drop_page;
        found.rounded.alloc_cache = found.rounded.drop_page;
    }
    Ok(found)
}

fn shows_cache_targets(samples: &[CalibrationSample]) -> bool {
    samples.iter().any(|sample| sample.operations.cache_targets.0 > 0)
}

/// The same from everyday operations, which may not show all terms: those stay as in force, but for
/// a common factor.
pub fn refit(
    samples: &[CalibrationSample],
    in_force: &ModelCoefficients,
) -> Result<FittedModel, FitError> {
    fit_terms(samples, prior(samples, in_force)?, REFIT_PRIOR)
}

/// Where terms stay that everyday operations do not show.
fn prior(
    samples: &[CalibrationSample],
    in_force: &ModelCoefficients,
) -> Result<ModelCoefficients, FitError> {
    // `alloc_buddy` of the parameters in force belongs to each page moved.
    let mut prior = in_force.scaled(typical_factor(samples, in_force).ok_or(FitError::Nothing)?);
    prior.migrate_page += prior.alloc_buddy;
    prior.alloc_cache = (prior.alloc_cache - prior.alloc_buddy).max(0.0);
    prior.alloc_buddy = 0.0;
    Ok(prior)
}

/// Measured over predicted cost: half of what was predicted cost less than this many times as much,
/// half of it more.
///
/// Not the ratio of the sums: one operation that was interrupted for seconds would outweigh all
/// others.
pub(crate) fn typical_factor<'a>(
    samples: impl IntoIterator<Item = &'a CalibrationSample>,
    in_force: &ModelCoefficients,
) -> Option<f64> {
    let pairs = samples.into_iter().map(|sample| {
        let predicted = in_force.price(&sample.operations);
        (sample.measured.0 as f64 / predicted, predicted)
    });
    let mut pairs: Vec<(f64, f64)> =
        pairs.filter(|(factor, _)| factor.is_finite() && *factor > 0.0).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = pairs.iter().map(|(_, predicted)| predicted).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let middle = pairs.iter().find(|(_, predicted)| {
        below += predicted;
        below >= half
    });
    middle.map(|(factor, _)| *factor)
}

fn fit_terms(
    samples: &[CalibrationSample],
    prior: ModelCoefficients,
    pull: f64,
) -> Result<FittedModel, FitError> {
    let rows: Vec<_> = samples.iter().map(|sample| independent_terms(&sample.operations)).collect();
    let targets = measured_costs(samples);
    let prior = drop_alloc_buddy(&prior.to_array());
    let (exact, _) = robust_fit(&rows, &targets, prior, pull)?;
    let whole = round(&rows, &targets, &exact);
    Ok(FittedModel {
        exact: ModelCoefficients::from_array(add_alloc_buddy(&exact)),
        rounded: ModelCoefficients::from_array(add_alloc_buddy(&whole)),
    })
}

/// 95% intervals of what [`fit()`] finds, in the order of the table: by fitting to samples drawn
/// from the samples, each with the weight that it had.
pub fn intervals(samples: &[CalibrationSample]) -> Result<[BootstrapInterval; TERMS], FitError> {
    resampled_fits(samples, [0.0; INDEPENDENT_TERMS], WEAK_PRIOR)
}

/// The same of what [`refit()`] finds.
pub fn refit_intervals(
    samples: &[CalibrationSample],
    in_force: &ModelCoefficients,
) -> Result<[BootstrapInterval; TERMS], FitError> {
    resampled_fits(samples, drop_alloc_buddy(&prior(samples, in_force)?.to_array()), REFIT_PRIOR)
}

fn resampled_fits(
    samples: &[CalibrationSample],
    prior: [f64; INDEPENDENT_TERMS],
    pull: f64,
) -> Result<[BootstrapInterval; TERMS], FitError> {
    let rows: Vec<_> = samples.iter().map(|sample| independent_terms(&sample.operations)).collect();
    let targets = measured_costs(samples);
    let (_, weights) = robust_fit(&rows, &targets, prior, pull)?;

    let mut random = SplitMix64::new(rows.len() as u64);
    let mut found: [Vec<f64>; INDEPENDENT_TERMS] = Default::default();
    for _ in 0..RESAMPLES {
        let picked: Vec<usize> = (0..rows.len()).map(|_| random.index(rows.len())).collect();
        let again: Vec<_> = picked.iter().map(|&at| rows[at]).collect();
        let costs: Vec<_> = picked.iter().map(|&at| targets[at]).collect();
        let weights: Vec<_> = picked.iter().map(|&at| weights[at]).collect();
        let problem = LeastSquares {
            rows: &again,
            targets: &costs,
            weights: &weights,
            prior,
            prior_weight: pull,
        };
        for (found, value) in found.iter_mut().zip(problem.solve(CoefficientBound::NonNegative)?) {
            found.push(value);
        }
    }
    let none = BootstrapInterval { low: 0.0, high: 0.0 };
    let [slice, page, drop, moved, maps, cache] = found.map(|mut values| interval(&mut values));
    // As in `fit()`; a refit has its prior instead.
    let cache = if pull > WEAK_PRIOR || shows_cache_targets(samples) { cache } else { drop };
    Ok([slice, page, drop, moved, maps, none, cache])
}

fn measured_costs(samples: &[CalibrationSample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.measured.0 as f64).collect()
}

fn independent_terms(operations: &OperationCounts) -> [f64; INDEPENDENT_TERMS] {
    drop_alloc_buddy(&row(operations))
}

fn drop_alloc_buddy(row: &[f64; TERMS]) -> [f64; INDEPENDENT_TERMS] {
    let [slice, page, drop, moved, maps, _, cache] = *row;
    [slice, page, drop, moved, maps, cache]
}

fn add_alloc_buddy(terms: &[f64; INDEPENDENT_TERMS]) -> [f64; TERMS] {
    let [slice, page, drop, moved, maps, cache] = *terms;
    [slice, page, drop, moved, maps, 0.0, cache]
}

fn times(row: &[f64; INDEPENDENT_TERMS], terms: &[f64; INDEPENDENT_TERMS]) -> f64 {
    row.iter().zip(terms).map(|(count, price)| count * price).sum()
}

/// 1/√v of each sample.
fn precision(targets: &[f64]) -> Vec<f64> {
    let largest = targets.iter().copied().fold(0.0, f64::max);
    targets.iter().map(|&target| 1.0 / target.max(NOISE_FLOOR * largest).max(1.0).sqrt()).collect()
}

/// The terms, and the weights that they were found with at last.
fn robust_fit(
    rows: &[[f64; INDEPENDENT_TERMS]],
    targets: &[f64],
    prior: [f64; INDEPENDENT_TERMS],
    pull: f64,
) -> Result<([f64; INDEPENDENT_TERMS], Vec<f64>), FitError> {
    let precision = precision(targets);
    let mut weights: Vec<f64> = precision.iter().map(|p| p * p).collect();
    let mut found = LeastSquares { rows, targets, weights: &weights, prior, prior_weight: pull }
        .solve(CoefficientBound::NonNegative)?;
    for _ in 0..ROUNDS {
        let residuals: Vec<f64> = rows
            .iter()
            .zip(targets)
            .zip(&precision)
            .map(|((row, target), precision)| (times(row, &found) - target).abs() * precision)
            .collect();
        let most = HUBER * 1.4826 * median(&residuals);
        if most <= 0.0 {
            break;
        }
        for ((weight, precision), residual) in weights.iter_mut().zip(&precision).zip(&residuals) {
            *weight = precision * precision * (most / residual.max(most));
        }
        let next = LeastSquares { rows, targets, weights: &weights, prior, prior_weight: pull }
            .solve(CoefficientBound::NonNegative)?;
        let settled =
            next.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1e-3));
        found = next;
        if settled {
            break;
        }
    }
    Ok((found, weights))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Of the whole numbers below and above each term, those that fit best together: errors of rounding
/// cancel.
fn round(
    rows: &[[f64; INDEPENDENT_TERMS]],
    targets: &[f64],
    exact: &[f64; INDEPENDENT_TERMS],
) -> [f64; INDEPENDENT_TERMS] {
    let precision = precision(targets);
    let loss = |terms: &[f64; INDEPENDENT_TERMS]| -> f64 {
        rows.iter()
            .zip(targets)
            .zip(&precision)
            .map(|((row, target), precision)| (times(row, terms) - target).abs() * precision)
            .sum()
    };
    let candidates = (0..1_u32 << INDEPENDENT_TERMS).map(|choice| {
        let mut terms = *exact;
        for (at, term) in terms.iter_mut().enumerate() {
            *term = if choice & (1 << at) == 0 { term.floor() } else { term.ceil() };
        }
        terms
    });
    candidates.min_by(|a, b| loss(a).total_cmp(&loss(b))).unwrap_or(*exact)
}
