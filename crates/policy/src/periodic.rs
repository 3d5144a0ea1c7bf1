//! `periodic`: compacts with a budget, again and again (thesis, sections 3.2.6 and 4.3).

use std::time::Duration;

use ramslice_types::{Budget, Op, Price, Request};
use serde::{Deserialize, Serialize};

use crate::config::{Periodic as Config, PolicyKind};
use crate::decision::{Decision, Policy, compact, not_due};
use crate::decision_reason::Why;
use crate::observation::Observation;

/// `offline_batch` every so often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Periodic {
    config: Config,
    /// When it may act again.
    due: Option<Duration>,
}

impl Periodic {
    /// With these settings.
    pub fn new(config: Config) -> Self {
        Self { config, due: None }
    }
}

impl Policy for Periodic {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Periodic
    }

    fn step(&mut self, seen: &Observation<'_>) -> Decision {
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.due = Some(seen.time + self.config.period());
        let (slices, budget) = (self.config.max_slices, self.config.budget.into());
        let request = match budget {
            // The thesis' baseline: what is empty by itself goes off, whatever that costs.
            Budget::Limited(Price::ZERO) => {
                Request { max_slices: slices, ..Request::new(Op::OfflineFree) }
            }
            _ => compact(slices, budget, self.config.per_slice),
        };
        Decision::send(request, Why::Due { budget, per_slice: self.config.per_slice })
    }
}
