//! The answer of a policy: requests, and the reason.

use std::fmt;
use std::time::Duration;

use ramslice_types::{Budget, Pages, Ratio, Request, RequestOp, SliceId};
use serde::{Deserialize, Serialize};

use crate::config::PolicyKind;
use crate::decision_reason::DecisionReason;
use crate::observation::{Observation, ObservationNeeds};

/// Decides what to switch off and what to wake.
///
/// A policy has no clock and does no I/O: the same observations in the same order give the same
/// decisions. Its caller observes, steps, carries the requests out in their order, and reports
/// their outcomes with the next observation.
///
/// Slices of one zone do not serve another: a machine with several zones that matter gets a policy
/// for each, observed by itself, and the caller fills in node and zone of its requests.
pub trait Policy: fmt::Debug + Send {
    /// Which policy this is.
    fn kind(&self) -> PolicyKind;

    /// What it reads.
    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Totals
    }

    /// Decides from an observation. Times of observations must not go back; one that does is
    /// treated as if no time had passed.
    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision;
}

/// A decision: what to do now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyDecision {
    /// To be carried out in this order. Mostly empty, and then nothing was allocated.
    pub requests: Vec<Request>,
    /// How many of `requests`, one group after the other, are worth something only together. Those
    /// past the last group stand alone.
    pub groups: Vec<usize>,
    /// Why it acts, or why it does not.
    pub why: DecisionReason,
    /// Its forecast, if it has one.
    pub forecast: Option<DemandForecast>,
    /// Watermarks that follow the hit ratio, when they were judged.
    pub marks: Option<CacheMarks>,
}

/// The watermarks with cache, which follow the hit ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheMarks {
    /// `CACHE_FREE_LOW`.
    pub low: Pages,
    /// `CACHE_FREE_HIGH`.
    pub high: Pages,
    /// The share of look-ups that hit, without misses that memory up to the bound would not avoid;
    /// nothing if it is unknown.
    pub ratio: Option<Ratio>,
    /// Look-ups without these.
    pub lookups: Pages,
    /// Whether they moved.
    pub moved: Option<MarkMove>,
    /// Why they moved or stayed.
    pub why: DecisionReason,
}

/// In which direction watermarks moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkMove {
    /// More cache stays.
    Raised,
    /// Less cache stays.
    Lowered,
}

impl MarkMove {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Raised, Self::Lowered];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Lowered => "lowered",
        }
    }
}

impl PolicyDecision {
    /// Does nothing.
    pub fn rest(why: DecisionReason) -> Self {
        Self { why, ..Self::default() }
    }

    /// Takes the requests out, for who carries them out.
    pub fn take_requests(&mut self) -> RequestSequence {
        RequestSequence {
            requests: std::mem::take(&mut self.requests).into_iter(),
            groups: std::mem::take(&mut self.groups).into_iter(),
            left: 0,
        }
    }

    /// Sends one request.
    pub fn send(request: Request, why: DecisionReason) -> Self {
        Self { requests: vec![request], why, ..Self::default() }
    }
}

/// Requests of a decision, in their order.
#[derive(Debug)]
pub struct RequestSequence {
    requests: std::vec::IntoIter<Request>,
    groups: std::vec::IntoIter<usize>,
    /// Requests of the group that has begun.
    left: usize,
}

impl RequestSequence {
    /// Leaves out the rest of the group of the last request, because that did nothing: without it,
    /// the others are worth nothing.
    pub fn give_up_group(&mut self) {
        for _ in 0..std::mem::take(&mut self.left) {
            self.requests.next();
        }
    }
}

impl Iterator for RequestSequence {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.left == 0 {
            self.left = self.groups.next().unwrap_or(1);
        }
        self.left = self.left.saturating_sub(1);
        self.requests.next()
    }
}

/// Expected demand, in slices that must be online.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemandForecast {
    /// How far it looks ahead.
    pub horizon: Duration,
    /// The highest demand expected within the horizon.
    pub slices: u32,
    /// Mean of (forecast - demand) of those whose horizon is over: above 0, it keeps too much
    /// online.
    pub bias_slices: f64,
    /// Mean of the absolute differences.
    pub mean_error_slices: f64,
    /// Forecasts that these two means rest on.
    pub checked: u64,
}

impl fmt::Display for DemandForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} slices needed within {} s", self.slices, self.horizon.as_secs())?;
        if self.checked == 0 {
            return f.write_str(" (no forecast could be checked yet)");
        }
        write!(
            f,
            " (off by {:.1} slices on average, {:+.1} with its sign, over {} forecasts)",
            self.mean_error_slices, self.bias_slices, self.checked
        )
    }
}

/// The decision of a periodic policy before `due`: nothing.
pub(crate) fn not_due(due: Option<Duration>, now: Duration) -> Option<PolicyDecision> {
    let wait = due?.checked_sub(now).filter(|wait| !wait.is_zero())?;
    Some(PolicyDecision::rest(DecisionReason::NotDue { wait }))
}

/// Switches off slices that are empty already, at most `slices` of them.
pub(crate) fn offline_empty(slices: Option<u32>) -> Request {
    Request { max_slices: slices.map(|n| n.max(1)), ..Request::new(RequestOp::OfflineFree) }
}

/// Empties the cheapest slices: at most `slices` of them within `budget`.
pub(crate) fn compact(slices: Option<u32>, budget: Budget, per_slice: bool) -> Request {
    Request {
        max_slices: slices.map(|n| n.max(1)),
        budget,
        per_slice,
        ..Request::new(RequestOp::Compact)
    }
}

/// Empties one slice.
pub(crate) fn offline(slice: SliceId) -> Request {
    Request::new(RequestOp::Offline(slice))
}

/// Wakes one slice.
pub(crate) fn online(slice: SliceId) -> Request {
    Request::new(RequestOp::Online(slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_group_in_which_one_fails_the_rest_is_left_out() {
        let requests: Vec<_> = (0..6).map(|id| offline(SliceId(id))).collect();
        let decision = PolicyDecision { requests, groups: vec![1, 3], ..PolicyDecision::default() };
        let carried_out = |fails: &[u32]| {
            let mut sequence = decision.clone().take_requests();
            let mut tried = Vec::new();
            while let Some(request) = sequence.next() {
                let RequestOp::Offline(id) = request.op else { panic!("{request:?}") };
                tried.push(id.0);
                if fails.contains(&id.0) {
                    sequence.give_up_group();
                }
            }
            tried
        };
        assert_eq!(carried_out(&[]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(carried_out(&[0, 4]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(carried_out(&[1]), [0, 1, 4, 5]);
        assert_eq!(carried_out(&[3]), [0, 1, 2, 3, 4, 5]);
    }
}
