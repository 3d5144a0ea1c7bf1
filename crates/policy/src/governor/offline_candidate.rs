//! Whether a slice or granule that could go off should: by what the experts say of its level of
//! demand.

use super::experts::{ExpertAdvice, season_waits};
use super::{GovernorState, seconds};
use crate::decision_reason::DecisionReason;

/// How long a used slice must have been idle before any gap was seen, in break-even times: after a
/// cold start, empty slices go first.
const UNKNOWN_WAIT: f64 = 1.0;
/// What might go off next.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfflineCandidate {
    /// The lowest level of demand that it would serve no longer.
    pub(super) level: u32,
    /// Slices beyond what is needed.
    pub(super) spare: u32,
    pub(super) empty: bool,
    /// How long it must stay offline to pay, in seconds.
    pub(super) break_even: f64,
}

impl GovernorState {
    /// Why a slice or granule that could go off does not; nothing if it should.
    pub(super) fn objection(&self, candidate: OfflineCandidate) -> Option<DecisionReason> {
        let OfflineCandidate { level, spare, empty, break_even } = candidate;
        let now = self.time;
        let wait = if empty { 0.0 } else { self.pause.wait(now) };
        if wait > 0.0 {
            return Some(DecisionReason::DidNothing { wait: seconds(wait) });
        }
        let gap = self.recent.gap(level);
        let idle = (now - gap.since).max(0.0);
        // An empty slice pays within seconds, and costs no more than those.
        let advice = (!empty).then(|| self.experts.advice(level));
        let wait = match advice {
            None => 0.0,
            Some(ExpertAdvice::Wait(times)) if self.experts.know_nothing() => {
                times.max(UNKNOWN_WAIT) * break_even
            }
            Some(ExpertAdvice::Wait(times)) => times * break_even,
            Some(ExpertAdvice::Season) => season_waits(gap.expected) * break_even,
            Some(ExpertAdvice::Stay) => return Some(DecisionReason::NeverPays { spare }),
        };
        if matches!(advice, Some(ExpertAdvice::Season)) && gap.expected && idle < wait {
            return Some(DecisionReason::Expected { slices: spare });
        }
        if idle < wait {
            return Some(DecisionReason::Waits {
                spare,
                idle: seconds(idle),
                wait: seconds(wait),
                break_even: seconds(break_even),
            });
        }
        let too_late = matches!(advice, Some(ExpertAdvice::Wait(_)))
            && !self.experts.still_pays(level, idle / break_even);
        too_late.then(|| DecisionReason::TooLate { spare, idle: seconds(idle) })
    }
}
