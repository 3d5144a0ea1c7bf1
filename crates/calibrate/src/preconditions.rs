//! Preconditions of a calibration: enough samples, and a machine that is quiet enough to measure
//! on.

use thiserror::Error;

use crate::model_quality::{ModelQuality, quantile};
use crate::report::CalibrationReport;
use crate::sample::CalibrationSample;

/// The least samples of each kind that parameters are fitted to.
pub const LEAST: usize = 8;
/// The least in all.
const LEAST_IN_ALL: usize = 30;
/// The most that the cost of the same work may vary; see [`check_steady`].
const MOST_NOISE: f64 = 0.25;

/// Why a calibration is refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CalibrationRefusal {
    /// A parameter would be guessed.
    #[error(
        "too few samples: {found} {sample_kind}, at least {required} are needed. Give it more \
         memory (--memory) or more samples (--samples)"
    )]
    TooFew {
        /// As in "with pages to drop".
        sample_kind: &'static str,
        /// How many there are.
        found: usize,
        /// How many are needed.
        required: usize,
    },
    /// Of everyday operations.
    #[error(
        "too few everyday operations: {found}, at least {required} are needed. The daemon gathers \
         more"
    )]
    TooFewOperations {
        /// How many there are.
        found: usize,
        /// How many are needed.
        required: usize,
    },
    /// Others have smaller errors.
    #[error("on operations that were not fitted, the parameters in force have smaller errors")]
    NotBetter,
    /// A fit to some operations does not predict others.
    #[error(
        "half of the operations that were not fitted are missed by more than {middle_error:.0} \
         %, at most {limit:.0} % will do: they cost now this, now that. `ramslice-lab calibrate` \
         measures on purpose",
        middle_error = 100.0 * .middle_error,
        limit = 100.0 * .limit
    )]
    Uneven {
        /// The middle one's share.
        middle_error: f64,
        /// How much it may be.
        limit: f64,
    },
    /// Others want the CPUs.
    #[error(
        "the machine is busy: {load:.1} threads want to run on {cpus} CPUs (average of a minute). \
         What is measured now would be wrong later: wait, or take it anyway with --anyway"
    )]
    Busy {
        /// The load average of the last minute.
        load: f64,
        /// CPUs that are online.
        cpus: usize,
    },
    /// No empty slices: nothing shows whether the machine is steady, or what an empty slice costs.
    #[error(
        "no empty slice could be switched off, and what that costs is a part of every price. Free \
         some memory, or pack it with `ramslice compact` and wake all with `ramslice online \
         --all`; then try again"
    )]
    NothingEmpty,
    /// The same work does not cost the same.
    #[error(
        "the machine is not steady: the cost of switching off the same empty slice varied by \
         {percent:.0} %, at most {limit:.0} % can be averaged out. Something else uses the CPUs, \
         perhaps outside of this virtual machine: wait, or take it anyway with --anyway",
        percent = 100.0 * .noise,
        limit = 100.0 * .limit
    )]
    Unsteady {
        /// How much it varied.
        noise: f64,
        /// How much it may.
        limit: f64,
    },
}

/// Other work on the machine during the measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineConditions {
    /// The load average of the last minute.
    pub load: f64,
    /// CPUs that are online.
    pub cpus: usize,
}

/// Refuses when more threads want to run than there are CPUs to spare: one is for the measurement
/// itself.
pub fn check_conditions(now: MachineConditions) -> Result<(), CalibrationRefusal> {
    if now.load > (now.cpus as f64 - 1.0).max(0.5) {
        return Err(CalibrationRefusal::Busy { load: now.load, cpus: now.cpus });
    }
    Ok(())
}

/// How much the costs of the same work vary: half the middle half of them over their median.
/// Refuses above a quarter, and if there are none.
pub fn check_steady(costs: &[f64]) -> Result<f64, CalibrationRefusal> {
    if costs.is_empty() {
        return Err(CalibrationRefusal::NothingEmpty);
    }
    let noise = noise(costs);
    if noise > MOST_NOISE {
        return Err(CalibrationRefusal::Unsteady { noise, limit: MOST_NOISE });
    }
    Ok(noise)
}

/// Half the middle half of the costs over their median; 1 of none.
pub fn noise(costs: &[f64]) -> f64 {
    let at = |share| quantile(costs.iter().copied(), share).unwrap_or(0.0);
    let median = at(0.5);
    if median > 0.0 { (at(0.75) - at(0.25)) / 2.0 / median } else { 1.0 }
}

/// Refuses when there are not enough everyday operations for a refit, of which half are needed to
/// judge it.
pub fn check_everyday(samples: &[CalibrationSample]) -> Result<(), CalibrationRefusal> {
    let need = crate::DriftSettings::default().min_operations;
    if samples.len() < need {
        return Err(CalibrationRefusal::TooFewOperations { found: samples.len(), required: need });
    }
    Ok(())
}

/// Refuses what was fitted to everyday operations if it is no better than what is in force, or not
/// good.
pub fn check_refit(report: &CalibrationReport) -> Result<(), CalibrationRefusal> {
    if report.is_better() != Some(true) {
        return Err(CalibrationRefusal::NotBetter);
    }
    match report.fitted_model().held_out {
        Some(ModelQuality { p50_relative: missed, .. }) if missed > MOST_NOISE => {
            Err(CalibrationRefusal::Uneven { middle_error: missed, limit: MOST_NOISE })
        }
        _ => Ok(()),
    }
}

/// Refuses when there are too few samples to determine each parameter.
pub fn check_samples(samples: &[CalibrationSample]) -> Result<(), CalibrationRefusal> {
    let count = |wanted: fn(&CalibrationSample) -> bool| {
        samples.iter().filter(|sample| wanted(sample)).count()
    };
    let least = |what, have, need| {
        if have < need {
            Err(CalibrationRefusal::TooFew { sample_kind: what, found: have, required: need })
        } else {
            Ok(())
        }
    };
    least("in all", samples.len(), LEAST_IN_ALL)?;
    least(
        "of slices that are nearly empty",
        count(|s| s.operations.free >= s.operations.frames),
        LEAST,
    )?;
    least(
        "with pages to drop",
        count(|s| s.operations.dropped.0 * 20 > s.operations.frames.0),
        LEAST,
    )?;
    let moves = |s: &CalibrationSample| s.operations.moved.0 * 20 > s.operations.frames.0;
    let mapped =
        |s: &CalibrationSample| s.operations.mappings as f64 / s.operations.moved.0.max(1) as f64;
    let few = samples.iter().filter(|s| moves(s) && mapped(s) < 1.5).count();
    let many = samples.iter().filter(|s| moves(s) && mapped(s) >= 1.5).count();
    least("with pages to move that are mapped once", few, LEAST)?;
    least("with pages to move that are mapped more than once", many, LEAST)
}
