//! `threshold`: keeps the utilisation of online memory between two thresholds, with slices chosen
//! at random.
//!
//! That is how `GreenDIMM` (MICRO 2021) drives memory hotplug: it reads how full memory is, not
//! what a slice holds.

use std::time::Duration;

use ramslice_types::{Ratio, Request, SliceId, SliceState, SplitMix64};
use serde::{Deserialize, Serialize};

use crate::config::{PolicyKind, ThresholdConfig};
use crate::decision::{Policy, PolicyDecision, not_due, offline, online};
use crate::decision_reason::DecisionReason;
use crate::observation::{Observation, ObservationNeeds, SliceRow};

/// Thresholds and chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdPolicy {
    config: ThresholdConfig,
    random: SplitMix64,
    due: Option<Duration>,
}

impl ThresholdPolicy {
    /// With these settings.
    pub fn new(config: ThresholdConfig) -> Self {
        Self { random: SplitMix64::new(config.seed), config, due: None }
    }

    /// `count` different slices of the eligible ones.
    fn choose(
        &mut self,
        rows: &[SliceRow],
        count: u32,
        wanted: impl Fn(&SliceRow) -> bool,
    ) -> Vec<SliceId> {
        let mut ids: Vec<SliceId> =
            rows.iter().filter(|row| wanted(row)).map(|row| row.id).collect();
        let count = ids.len().min(count as usize);
        for place in 0..count {
            let other = place + self.random.index(ids.len() - place);
            ids.swap(place, other);
        }
        ids.truncate(count);
        ids
    }
}

impl Policy for ThresholdPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Threshold
    }

    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.due = Some(seen.time + self.config.period());
        let totals = &seen.totals;
        let used = totals.used().0 as f64;
        let awake = (totals.managed - totals.offline).0 as f64;
        let per_slice = totals.managed.0 as f64 / f64::from(totals.nr_slices.max(1));
        let utilisation = Ratio(if awake > 0.0 { used / awake } else { 1.0 });
        let (low, high) = (self.config.low, self.config.high);
        // The number that leads back to the threshold: down to the last slice below it, up to the
        // first above.
        let spare = ((awake - used / low) / per_slice).max(0.0) as u32;
        let lacking = ((used / high - awake) / per_slice).ceil().max(0.0) as u32;
        if utilisation.0 < low && spare > 0 {
            let chosen =
                self.choose(seen.rows, spare.min(self.config.max_slices), SliceRow::can_go_off);
            if chosen.is_empty() {
                return PolicyDecision::rest(DecisionReason::NoCandidate { spare });
            }
            let why = DecisionReason::Underused { utilisation, slices: chosen.len() as u32 };
            let requests: Vec<Request> = chosen.into_iter().map(offline).collect();
            PolicyDecision { requests, why, ..PolicyDecision::default() }
        } else if utilisation.0 > high && lacking > 0 {
            let off = |row: &SliceRow| row.state == SliceState::Offline;
            let chosen = self.choose(seen.rows, lacking.min(self.config.max_slices), off);
            if chosen.is_empty() {
                return PolicyDecision::rest(DecisionReason::AllNeeded { need: totals.nr_slices });
            }
            let why = DecisionReason::Overused { utilisation, slices: chosen.len() as u32 };
            let requests: Vec<Request> = chosen.into_iter().map(online).collect();
            PolicyDecision { requests, why, ..PolicyDecision::default() }
        } else {
            PolicyDecision::rest(DecisionReason::UsedWell { utilisation })
        }
    }
}
