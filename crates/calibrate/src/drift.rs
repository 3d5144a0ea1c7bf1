//! Detects prices that no longer hold, from predicted and measured costs of everyday operations.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::coefficients::ModelCoefficients;
use crate::fit::{FitError, FittedModel, refit, typical_factor};
use crate::sample::CalibrationSample;

/// When the detector reports a deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftSettings {
    /// A deviation up to this share is as good as none.
    pub tolerance: f64,
    /// What adds up before it counts as drift: the sum of the natural logarithms of measured over
    /// predicted, beyond the tolerance. With 1, about 5 operations in a row that cost a third more,
    /// or 12 that cost a fifth more.
    pub alarm_threshold: f64,
    /// Operations that a refit needs.
    pub min_operations: usize,
    /// Operations that are remembered.
    pub max_operations: usize,
}

impl Default for DriftSettings {
    fn default() -> Self {
        Self { tolerance: 0.1, alarm_threshold: 1.0, min_operations: 20, max_operations: 512 }
    }
}

/// What the detector reports.
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

/// A cumulative sum, and how long it has been one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct CumulativeSum {
    value: f64,
    /// Operations since it was 0 last: what deviates began there.
    #[serde(rename = "since_operations")]
    operations: usize,
}

impl CumulativeSum {
    fn add(&mut self, step: f64, most: f64) {
        self.value = (self.value + step).clamp(0.0, most);
        self.operations = if self.value > 0.0 { self.operations + 1 } else { 0 };
    }
}

/// A detector of drift: two cumulative sums (Page 1954), one for prices too low and one for prices
/// too high.
///
/// Feed it each operation; when it says [`DriftState::Refit`], [`DriftDetector::refit`] gives new
/// parameters. It keeps no time and reads nothing: a daemon does.
///
/// A deviation began when its sum was last 0. Operations from before say nothing about the machine
/// as it is now: they are not fitted, and there have to be enough since.
#[derive(Debug, Clone)]
pub struct DriftDetector {
    settings: DriftSettings,
    coefficients: ModelCoefficients,
    recent_samples: VecDeque<CalibrationSample>,
    overrun: CumulativeSum,
    underrun: CumulativeSum,
}

/// The saved state of a [`DriftDetector`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DriftMemory {
    recent: Vec<CalibrationSample>,
    dearer: CumulativeSum,
    cheaper: CumulativeSum,
}

/// One operation counts for no more than a factor of e, whatever interrupted it.
const MAX_STEP: f64 = 1.0;
/// A sum grows to so many times the patience: when prices hold again, this is forgotten in time.
const MAX_THRESHOLDS: f64 = 3.0;

impl DriftDetector {
    /// Watches these parameters.
    pub fn new(in_force: ModelCoefficients, settings: DriftSettings) -> Self {
        let (dearer, cheaper) = Default::default();
        Self {
            settings,
            coefficients: in_force,
            recent_samples: VecDeque::new(),
            overrun: dearer,
            underrun: cheaper,
        }
    }

    /// Goes on with what was remembered while the same parameters were in force.
    pub fn from_memory(
        in_force: ModelCoefficients,
        settings: DriftSettings,
        memory: DriftMemory,
    ) -> Self {
        let mut recent = VecDeque::from(memory.recent);
        recent.drain(..recent.len().saturating_sub(settings.max_operations.max(1)));
        Self {
            settings,
            coefficients: in_force,
            recent_samples: recent,
            overrun: memory.dearer,
            underrun: memory.cheaper,
        }
    }

    /// What is to be remembered.
    pub fn memory(&self) -> DriftMemory {
        DriftMemory {
            recent: self.recent_samples.iter().cloned().collect(),
            dearer: self.overrun,
            cheaper: self.underrun,
        }
    }

    /// Takes one operation: a slice emptied, or a sum over several from the work counters.
    pub fn observe(&mut self, sample: CalibrationSample) -> DriftState {
        let predicted = self.coefficients.price(&sample.operations);
        let measured = sample.measured.0 as f64;
        if predicted > 0.0 && measured > 0.0 {
            let step = (measured / predicted).ln().clamp(-MAX_STEP, MAX_STEP);
            let slack = self.settings.tolerance.ln_1p();
            let most = MAX_THRESHOLDS * self.settings.alarm_threshold;
            self.overrun.add(step - slack, most);
            self.underrun.add(-step - slack, most);
            if self.recent_samples.len() == self.settings.max_operations.max(1) {
                self.recent_samples.pop_front();
            }
            self.recent_samples.push_back(sample);
        }
        self.state()
    }

    /// What it says now.
    pub fn state(&self) -> DriftState {
        if self.sum().value < self.settings.alarm_threshold {
            return DriftState::Steady;
        }
        let factor = self.factor();
        if self.deviating().len() < self.settings.min_operations {
            return DriftState::Waiting { factor };
        }
        DriftState::Refit { factor }
    }

    fn sum(&self) -> &CumulativeSum {
        if self.overrun.value >= self.underrun.value { &self.overrun } else { &self.underrun }
    }

    /// Operations that are remembered.
    pub fn operations(&self) -> usize {
        self.recent_samples.len()
    }

    /// Of these, while prices do not hold, the operations since they stopped holding; otherwise
    /// all.
    pub fn deviating(&self) -> impl ExactSizeIterator<Item = &CalibrationSample> {
        let sum = self.sum();
        let counts =
            if sum.value < self.settings.alarm_threshold { usize::MAX } else { sum.operations };
        self.recent_samples.range(self.recent_samples.len().saturating_sub(counts)..)
    }

    /// Measured over predicted cost of these operations, by the middle one; 1 of nothing.
    pub fn factor(&self) -> f64 {
        typical_factor(self.deviating(), &self.coefficients).unwrap_or(1.0)
    }

    /// New parameters from these operations: terms that they do not show keep their proportions.
    /// The caller that puts them into force reports it with [`DriftDetector::replace`].
    pub fn refit(&self) -> Result<FittedModel, FitError> {
        let samples: Vec<CalibrationSample> = self.deviating().cloned().collect();
        refit(&samples, &self.coefficients)
    }

    /// Watches other parameters from now on and forgets what was.
    pub fn replace(&mut self, in_force: ModelCoefficients) {
        *self = Self::new(in_force, self.settings);
    }
}
