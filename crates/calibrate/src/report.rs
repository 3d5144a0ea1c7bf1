//! All models side by side.

use serde::Serialize;

use crate::bootstrap::Interval;
use crate::fit::{FitError, fit, intervals, least_squares};
use crate::judge::{Judgement, judge};
use crate::model::{Coefficients, TERMS, thesis};
use crate::sample::Samples;
use crate::slopes::slopes;

/// A model and how good it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// `ours`, `a`, `b`, `c`, or `in-force` where these are not model B's.
    pub model: &'static str,
    /// Its coefficients, in units of 100 cycles.
    pub coefficients_100cycles: Coefficients,
    /// On the samples it may have been fitted to.
    pub artificial: Option<Judgement>,
    /// On samples that no model has seen, of programs at another slice size; absent without any.
    pub held_out: Option<Judgement>,
}

/// What comes of samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Our model's coefficients before they were made whole numbers.
    pub exact_100cycles: Coefficients,
    /// Their 95% intervals, in the order of the table.
    pub intervals_100cycles: [Interval; TERMS],
    /// Ours first, in whole numbers, as the kernel would use it.
    pub models: Vec<Compared>,
}

impl Report {
    /// Our model.
    pub fn ours(&self) -> &Compared {
        &self.models[0]
    }

    /// The parameters that were in force when the samples were taken.
    pub fn in_force(&self) -> &Compared {
        let by_name = |name| self.models.iter().find(|compared| compared.model == name);
        by_name("in-force").or_else(|| by_name("b")).unwrap_or(&self.models[0])
    }
}

/// Fits all models to the artificial samples and judges them on both kinds.
pub fn report(samples: &Samples) -> Result<Report, FitError> {
    let (artificial, programs) = (samples.artificial(), samples.programs());
    let fitted = fit(&artificial)?;
    let mut models = vec![("ours", fitted.whole)];
    models.extend(slopes(&artificial).map(|model| ("a", model)));
    models.push(("b", thesis()));
    models.push(("c", least_squares(&artificial)?));
    let in_force = Coefficients::in_force(&samples.parameters);
    if in_force != thesis() {
        models.push(("in-force", in_force));
    }
    let models = models
        .into_iter()
        .map(|(model, coefficients)| Compared {
            model,
            coefficients_100cycles: coefficients,
            artificial: judge(&coefficients, &artificial),
            held_out: judge(&coefficients, &programs),
        })
        .collect();
    let intervals_100cycles = intervals(&artificial)?;
    Ok(Report { exact_100cycles: fitted.exact, intervals_100cycles, models })
}
