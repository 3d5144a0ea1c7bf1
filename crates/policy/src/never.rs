//! `never`: does nothing. What is off stays off until it is wanted.

use serde::{Deserialize, Serialize};

use crate::config::PolicyKind;
use crate::decision::{Decision, Policy};
use crate::decision_reason::Why;
use crate::observation::Observation;

/// The policy that every other one is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Never;

impl Policy for Never {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Never
    }

    fn step(&mut self, _: &Observation<'_>) -> Decision {
        Decision::rest(Why::Never)
    }
}
