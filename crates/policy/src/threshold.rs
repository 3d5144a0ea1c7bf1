//! `threshold`: keeps utilisation of the memory that is on between two thresholds, with slices chosen by chance.
//!
//! That is how `GreenDIMM` (MICRO 2021) drives memory hotplug: it looks at how full memory is, not at what a slice
//! holds.

use std::time::Duration;

use ramslice_types::{Random, Ratio, Request, SliceId, SliceState};
use serde::{Deserialize, Serialize};

use crate::config::{PolicyKind, Threshold as Config};
use crate::decision::{Decision, Policy, not_due, offline, online};
use crate::decision_reason::Why;
use crate::observation::{Needs, Observation, Row};

/// Thresholds and chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    config: Config,
    random: Random,
    due: Option<Duration>,
}

impl Threshold {
    /// With these settings.
    pub fn new(config: Config) -> Self {
        Self { random: Random::new(config.seed), config, due: None }
    }

    /// `count` different slices of those that are wanted.
    fn choose(&mut self, rows: &[Row], count: u32, wanted: impl Fn(&Row) -> bool) -> Vec<SliceId> {
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

impl Policy for Threshold {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Threshold
    }

    fn needs(&self) -> Needs {
        Needs::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> Decision {
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
        // As many as lead back to the threshold: down to the last slice that keeps below it, up to the first above.
        let spare = ((awake - used / low) / per_slice).max(0.0) as u32;
        let lacking = ((used / high - awake) / per_slice).ceil().max(0.0) as u32;
        if utilisation.0 < low && spare > 0 {
            let chosen = self.choose(seen.rows, spare.min(self.config.max_slices), Row::can_go_off);
            if chosen.is_empty() {
                return Decision::rest(Why::NoCandidate { spare });
            }
            let why = Why::Underused { utilisation, slices: chosen.len() as u32 };
            let requests: Vec<Request> = chosen.into_iter().map(offline).collect();
            Decision { requests, why, forecast: None }
        } else if utilisation.0 > high && lacking > 0 {
            let off = |row: &Row| row.state == SliceState::Offline;
            let chosen = self.choose(seen.rows, lacking.min(self.config.max_slices), off);
            if chosen.is_empty() {
                return Decision::rest(Why::AllNeeded { need: totals.nr_slices });
            }
            let why = Why::Overused { utilisation, slices: chosen.len() as u32 };
            let requests: Vec<Request> = chosen.into_iter().map(online).collect();
            Decision { requests, why, forecast: None }
        } else {
            Decision::rest(Why::UsedWell { utilisation })
        }
    }
}
