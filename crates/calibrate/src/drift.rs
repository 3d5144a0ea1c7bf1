//! Whether prices still hold: predicted and measured costs of everyday operations.

use std::collections::VecDeque;

use serde::Serialize;

use crate::fit::{FitError, Fitted, refit};
use crate::model::Coefficients;
use crate::sample::Sample;

/// When it speaks up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// A deviation up to this share is as good as none.
    pub tolerance: f64,
    /// What adds up before it counts as drift: the sum of the natural logarithms of measured over predicted, beyond the
    /// tolerance. With 1, about 5 operations in a row that cost a third more, or 12 that cost a fifth more.
    pub patience: f64,
    /// Operations that a refit needs.
    pub least: usize,
    /// Operations that are remembered.
    pub most: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tolerance: 0.1, patience: 1.0, least: 20, most: 512 }
    }
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum DriftState {
    /// Prices hold.
    Steady,
    /// They do not, by this factor lately; there are too few operations for new ones.
    Waiting {
        /// Measured over predicted.
        factor: f64,
    },
    /// They do not: fit again.
    Refit {
        /// Measured over predicted.
        factor: f64,
    },
}

/// A detector of drift: two cumulative sums (Page 1954), one for prices too low and one for prices too high.
///
/// Feed it each operation; when it says [`DriftState::Refit`], [`Drift::refit`] gives new parameters. It keeps no time and
/// reads nothing: a daemon does.
#[derive(Debug, Clone)]
pub struct Drift {
    settings: Settings,
    in_force: Coefficients,
    recent: VecDeque<Sample>,
    dearer: f64,
    cheaper: f64,
}

/// One operation counts for no more than a factor of e, whatever interrupted it.
const MOST_STEP: f64 = 1.0;

impl Drift {
    /// Watches these parameters.
    pub fn new(in_force: Coefficients, settings: Settings) -> Self {
        Self { settings, in_force, recent: VecDeque::new(), dearer: 0.0, cheaper: 0.0 }
    }

    /// Takes one operation: a slice emptied, or a sum over several from the work counters.
    pub fn observe(&mut self, sample: Sample) -> DriftState {
        let predicted = self.in_force.price(&sample.operations);
        let measured = sample.measured.0 as f64;
        if predicted > 0.0 && measured > 0.0 {
            let step = (measured / predicted).ln().clamp(-MOST_STEP, MOST_STEP);
            let slack = self.settings.tolerance.ln_1p();
            self.dearer = (self.dearer + step - slack).max(0.0);
            self.cheaper = (self.cheaper - step - slack).max(0.0);
            if self.recent.len() == self.settings.most.max(1) {
                self.recent.pop_front();
            }
            self.recent.push_back(sample);
        }
        self.state()
    }

    /// What it says now.
    pub fn state(&self) -> DriftState {
        if self.dearer.max(self.cheaper) < self.settings.patience {
            return DriftState::Steady;
        }
        let factor = self.factor();
        if self.recent.len() < self.settings.least {
            return DriftState::Waiting { factor };
        }
        DriftState::Refit { factor }
    }

    /// Measured over predicted cost of what is remembered; 1 of nothing.
    pub fn factor(&self) -> f64 {
        let predicted: f64 = self.recent.iter().map(|sample| self.in_force.price(&sample.operations)).sum();
        let measured: f64 = self.recent.iter().map(|sample| sample.measured.0 as f64).sum();
        if predicted > 0.0 { measured / predicted } else { 1.0 }
    }

    /// New parameters from what is remembered: terms that it does not show keep their proportions. Whoever puts them in
    /// force tells with [`Drift::replace`].
    pub fn refit(&self) -> Result<Fitted, FitError> {
        let samples: Vec<Sample> = self.recent.iter().cloned().collect();
        refit(&samples, &self.in_force)
    }

    /// Watches other parameters from now on and forgets what was.
    pub fn replace(&mut self, in_force: Coefficients) {
        *self = Self::new(in_force, self.settings);
    }
}
