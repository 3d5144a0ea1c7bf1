//! All models side by side.

use serde::Serialize;

use crate::bootstrap::BootstrapInterval;
use crate::coefficients::{ModelCoefficients, TERMS, thesis};
use crate::fit::{FitError, fit, intervals, least_squares, refit, refit_intervals};
use crate::model_quality::{ModelQuality, judge};
use crate::sample::{CalibrationSample, SampleSet};
use crate::slopes::slopes;

/// A model and how good it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedModel {
    /// `ours`, `a`, `b`, `c`, or `in-force` where these are not model B's.
    pub model: &'static str,
    /// Its coefficients, in units of 100 cycles.
    pub coefficients_100cycles: ModelCoefficients,
    /// On the samples it may have been fitted to: artificial ones, or of every day.
    pub artificial: Option<ModelQuality>,
    /// On samples that no model has seen, of programs at another slice size; absent without any. Of
    /// everyday operations see [`everyday()`].
    pub held_out: Option<ModelQuality>,
}

/// The result of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrationReport {
    /// Our model's coefficients before they were made whole numbers.
    pub exact_100cycles: ModelCoefficients,
    /// Their 95% intervals, in the order of the table.
    pub intervals_100cycles: [BootstrapInterval; TERMS],
    /// Ours first, in whole numbers, as the kernel would use it.
    pub models: Vec<JudgedModel>,
}

impl CalibrationReport {
    /// Our model.
    pub fn fitted_model(&self) -> &JudgedModel {
        &self.models[0]
    }

    /// Whether its errors, on what was not fitted, are at most those of the parameters in force;
    /// nothing if there is nothing to judge by.
    pub fn is_better(&self) -> Option<bool> {
        let (ours, in_force) = (self.fitted_model().held_out?, self.installed_model().held_out?);
        Some(ours.p99_of_largest <= in_force.p99_of_largest)
    }

    /// The parameters that were in force when the samples were taken.
    pub fn installed_model(&self) -> &JudgedModel {
        let by_name = |name| self.models.iter().find(|compared| compared.model == name);
        by_name("in-force").or_else(|| by_name("b")).unwrap_or(&self.models[0])
    }
}

/// Fits all models to the artificial samples and judges them on both kinds.
pub fn report(samples: &SampleSet) -> Result<CalibrationReport, FitError> {
    let (artificial, programs) = (samples.artificial(), samples.programs());
    let fitted = fit(&artificial)?;
    let mut models = vec![("ours", fitted.rounded)];
    models.extend(slopes(&artificial).map(|model| ("a", model)));
    models.push(("b", thesis()));
    models.push(("c", least_squares(&artificial)?));
    let in_force = ModelCoefficients::of_parameters(&samples.parameters);
    if in_force != thesis() {
        models.push(("in-force", in_force));
    }
    let models = models
        .into_iter()
        .map(|(model, coefficients)| JudgedModel {
            model,
            coefficients_100cycles: coefficients,
            artificial: judge(&coefficients, &artificial),
            held_out: judge(&coefficients, &programs),
        })
        .collect();
    let intervals_100cycles = intervals(&artificial)?;
    Ok(CalibrationReport { exact_100cycles: fitted.exact, intervals_100cycles, models })
}

/// The same from everyday operations alone: parameters by [`refit()`], next to those in force and
/// those of the thesis.
///
/// There is nothing better to judge by: `held_out` is every second operation, and our model there
/// is fitted to the others.
pub fn everyday(samples: &SampleSet) -> Result<CalibrationReport, FitError> {
    let all = samples.everyday();
    let in_force = ModelCoefficients::of_parameters(&samples.parameters);
    let whole = refit(&all, &in_force)?;
    let every_second = |rest: usize| -> Vec<CalibrationSample> {
        all.iter()
            .enumerate()
            .filter(|(at, _)| at % 2 == rest)
            .map(|(_, sample)| sample.clone())
            .collect()
    };
    let (known, unseen) = (every_second(0), every_second(1));
    let mut models = vec![("ours", whole.rounded, refit(&known, &in_force)?.rounded)];
    models.push(("b", thesis(), thesis()));
    if in_force != thesis() {
        models.push(("in-force", in_force, in_force));
    }
    let models = models
        .into_iter()
        .map(|(model, coefficients, of_known)| JudgedModel {
            model,
            coefficients_100cycles: coefficients,
            artificial: judge(&coefficients, &all),
            held_out: judge(&of_known, &unseen),
        })
        .collect();
    let intervals_100cycles = refit_intervals(&all, &in_force)?;
    Ok(CalibrationReport { exact_100cycles: whole.exact, intervals_100cycles, models })
}
