//! Predicts what another policy would have done on a recorded machine: fitted to a recording under
//! one policy, played under another, and compared with a recording under that one.
//!
//! The machine begins as the recorded one did and its programs want what they wanted there. What a
//! recording does not show, where the kernel puts new memory and which memory goes first, is a
//! [`KernelBehaviour`]; of all that are tried, the one counts with which the simulated machine
//! under the recording's own policy comes closest to the recording.

use std::time::Duration;

use ramslice_policy::{AnyPolicy, PolicyConfig, PolicyConfigError, SliceEconomics};
use serde::Serialize;
use thiserror::Error;

use crate::config::{PlacementRule, SimConfig, SimConfigError};
use crate::load::{LoadStep, RecordedLoad, ReleaseOrder};
use crate::machine::KINDS;
use crate::run::{RunDecider, run};

/// Runs over which chance is averaged.
const SEEDS: u64 = 8;
/// The number of behaviours that a prediction averages: the differences between the best ones are
/// partly chance.
const KEPT: usize = 8;
const RECYCLING: [f64; 3] = [0.0, 0.5, 1.0];
const SCATTER: [f64; 8] = [0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0];

/// A prediction that cannot be made.
#[derive(Debug, Error)]
pub enum PredictError {
    /// The machine.
    #[error(transparent)]
    Config(#[from] SimConfigError),
    /// A policy's settings.
    #[error(transparent)]
    Policy(#[from] PolicyConfigError),
    /// Two recordings that do not belong together.
    #[error(
        "{0} samples were predicted and {1} recorded: both are recordings of the same work, step \
         by step"
    )]
    Samples(usize, usize),
    /// Nothing to compare.
    #[error("the recording has {0} samples: a fit wants 3 at least")]
    Short(usize),
}

/// Properties of the kernel and the programs that a recording does not show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KernelBehaviour {
    /// Where the kernel puts new memory.
    pub placement: PlacementRule,
    /// How often a run of pages goes elsewhere than the one before.
    pub scatter: f64,
    /// How much of new cache recycles old cache, rather than wake memory.
    pub recycling: f64,
    /// Which anonymous memory goes first.
    pub anonymous: ReleaseOrder,
    /// Which page cache goes first.
    pub cache: ReleaseOrder,
}

impl KernelBehaviour {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for placement in [PlacementRule::Stock, PlacementRule::KernelLow] {
            for scatter in SCATTER {
                for anonymous in ReleaseOrder::ALL {
                    for cache in ReleaseOrder::ALL {
                        let each =
                            |recycling| Self { placement, scatter, recycling, anonymous, cache };
                        all.extend(RECYCLING.map(each));
                    }
                }
            }
        }
        all
    }

    fn orders(&self) -> [ReleaseOrder; KINDS.len()] {
        [ReleaseOrder::Any, self.anonymous, ReleaseOrder::Newest, self.cache, ReleaseOrder::Any]
    }
}

/// A policy on a recorded machine.
#[derive(Debug, Clone)]
pub struct PredictionSetting<'a> {
    /// Its settings.
    pub policy: &'a PolicyConfig,
    /// What it decides by.
    pub economics: &'a SliceEconomics,
    /// The time from one sample to the next, if that is not what clocks said: of work that was done
    /// step by step.
    pub step: Option<Duration>,
}

/// The best of all behaviours that were tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BehaviourFit {
    /// What they assume, the best first.
    pub behaviours: Vec<KernelBehaviour>,
    /// How far the simulated machine is from the recording that it was fitted on with the best of
    /// them: mean of |simulated - recorded| / recorded over the samples.
    pub error: f64,
    /// How many were tried.
    pub tried: usize,
}

/// Slices that hold something after each step, on average over chance.
///
/// # Errors
/// If the machine or the policy's settings cannot be.
pub fn play(
    load: &RecordedLoad,
    behaviour: KernelBehaviour,
    setting: &PredictionSetting<'_>,
) -> Result<Vec<f64>, PredictError> {
    let mut steps: Vec<LoadStep> = load.steps(behaviour.orders());
    if let Some(step) = setting.step {
        for (number, at) in (0u32..).zip(&mut steps) {
            at.time = step * number;
        }
    }
    let mut sums = vec![0.0; steps.len()];
    for seed in 1..=SEEDS {
        let KernelBehaviour { placement, scatter, recycling, .. } = behaviour;
        let config = SimConfig { placement, scatter, recycling, seed, ..load.config.clone() };
        let (slice, page) = (config.slice_bytes, config.page_bytes);
        let mut machine = load.machine(config)?;
        let policy = AnyPolicy::new(setting.policy, setting.economics, slice, page)?;
        // The first sample is from before the policy began.
        let mut seen = vec![f64::from(machine.nonempty())];
        let work = steps.iter().skip(1).cloned();
        run(&mut machine, work, &mut RunDecider::Policy(policy), |machine| {
            seen.push(f64::from(machine.nonempty()));
        });
        for (sum, seen) in sums.iter_mut().zip(seen) {
            *sum += seen / SEEDS as f64;
        }
    }
    Ok(sums)
}

/// Mean of |predicted - recorded| / recorded; the first sample, from before any policy began, does
/// not count.
pub fn error(predicted: &[f64], recorded: &[u32]) -> f64 {
    let pairs = predicted.iter().zip(recorded).skip(1);
    let errors: Vec<f64> =
        pairs.map(|(p, &r)| (p - f64::from(r)).abs() / f64::from(r.max(1))).collect();
    errors.iter().sum::<f64>() / errors.len().max(1) as f64
}

/// Finds how the machine of a recording behaved, which was made under the policy of `setting`.
///
/// # Errors
/// If the recording is too short, or the machine or the policy's settings cannot be.
pub fn fit(
    load: &RecordedLoad,
    setting: &PredictionSetting<'_>,
) -> Result<BehaviourFit, PredictError> {
    if load.nonempty.len() < 3 {
        return Err(PredictError::Short(load.nonempty.len()));
    }
    let all = KernelBehaviour::all();
    let mut tried = Vec::new();
    for &behaviour in &all {
        tried.push((error(&play(load, behaviour, setting)?, &load.nonempty), behaviour));
    }
    tried.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    // What makes no difference counts once.
    tried.dedup_by_key(|(error, _)| error.to_bits());
    let error = tried.first().map_or(0.0, |(error, _)| *error);
    let behaviours = tried.into_iter().take(KEPT).map(|(_, behaviour)| behaviour).collect();
    Ok(BehaviourFit { behaviours, error, tried: all.len() })
}

/// Slices that hold something after each step under another policy: the mean of what the behaviours
/// of a fit say.
///
/// # Errors
/// If the machine or the policy's settings cannot be.
pub fn predict(
    load: &RecordedLoad,
    fit: &BehaviourFit,
    setting: &PredictionSetting<'_>,
) -> Result<Vec<f64>, PredictError> {
    let mut sums = vec![0.0; load.nonempty.len()];
    for &behaviour in &fit.behaviours {
        for (sum, seen) in sums.iter_mut().zip(play(load, behaviour, setting)?) {
            *sum += seen / fit.behaviours.len() as f64;
        }
    }
    Ok(sums)
}

/// How far a prediction was from the recording, next to two predictions that need no simulator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictionAgreement {
    /// Of the prediction.
    pub error: f64,
    /// Of the last value before: the number of slices at the end of the recording that was fitted,
    /// from then on.
    pub last_value_error: f64,
    /// Of taking the recording that was fitted for what comes under the other policy, too.
    pub unchanged_error: f64,
}

/// Holds a prediction against a recording of the same work under the policy that was predicted.
///
/// # Errors
/// If they have different numbers of samples.
pub fn agreement(
    predicted: &[f64],
    fitted: &RecordedLoad,
    came: &RecordedLoad,
) -> Result<PredictionAgreement, PredictError> {
    if predicted.len() != came.nonempty.len() || fitted.nonempty.len() != predicted.len() {
        return Err(PredictError::Samples(predicted.len(), came.nonempty.len()));
    }
    let unchanged: Vec<f64> = fitted.nonempty.iter().copied().map(f64::from).collect();
    let last = vec![unchanged.last().copied().unwrap_or(0.0); unchanged.len()];
    Ok(PredictionAgreement {
        error: error(predicted, &came.nonempty),
        last_value_error: error(&last, &came.nonempty),
        unchanged_error: error(&unchanged, &came.nonempty),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_mean_of_shares_and_the_first_sample_does_not_count() {
        assert!((error(&[99.0, 11.0, 8.0], &[1, 10, 10]) - 0.15).abs() < 1e-9);
        assert!(error(&[5.0], &[7]) < 1e-9);
    }
}
