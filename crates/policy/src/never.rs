//! `never`: does nothing. Offline slices stay offline until they wake on demand.

use serde::{Deserialize, Serialize};

use crate::config::PolicyKind;
use crate::decision::{Policy, PolicyDecision};
use crate::decision_reason::DecisionReason;
use crate::observation::Observation;

/// The baseline of every comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NeverPolicy;

impl Policy for NeverPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Never
    }

    fn step(&mut self, _: &Observation<'_>) -> PolicyDecision {
        PolicyDecision::rest(DecisionReason::Never)
    }
}
