//! `periodic`: compacts with a budget, again and again (thesis, sections 3.2.6 and 4.3).

use std::time::Duration;

use ramslice_types::{Budget, Price, Request, RequestOp};
use serde::{Deserialize, Serialize};

use crate::config::{PeriodicConfig, PolicyKind};
use crate::decision::{Policy, PolicyDecision, compact, not_due};
use crate::decision_reason::DecisionReason;
use crate::observation::Observation;

/// `offline_batch` every so often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeriodicPolicy {
    config: PeriodicConfig,
    /// When it may act again.
    due: Option<Duration>,
}

impl PeriodicPolicy {
    /// With these settings.
    pub fn new(config: PeriodicConfig) -> Self {
        Self { config, due: None }
    }
}

impl Policy for PeriodicPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Periodic
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.due = Some(seen.time + self.config.period());
        let (slices, budget) = (self.config.max_slices, self.config.budget.into());
        let request = match budget {
            // The thesis' baseline: slices that are empty by themselves go offline, whatever that
            // costs.
            Budget::Limited(Price::ZERO) => {
                Request { max_slices: slices, ..Request::new(RequestOp::OfflineFree) }
            }
            _ => compact(slices, budget, self.config.per_slice),
        };
        PolicyDecision::send(
            request,
            DecisionReason::Due { budget, per_slice: self.config.per_slice },
        )
    }
}
