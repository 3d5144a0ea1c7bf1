//! The governor without a profile: what is not needed goes off, as long as the tenant's limits
//! allow it. Nothing is known of what it is worth, so stalls are the only feedback.

use std::time::Duration;

use ramslice_types::{Budget, CacheChoice, Request, RequestOp};
use serde::{Deserialize, Serialize};

use crate::config::PolicyKind;
use crate::decision::{Policy, PolicyDecision, compact, offline_empty};
use crate::decision_reason::DecisionReason;
use crate::governor::margin;
use crate::limits::TenantLimits;
use crate::observation::{Observation, ObservationNeeds, PolicyEvent, WakeCause};
use crate::request_backoff::RequestBackoff;

/// The most that goes off at one step is one of so many slices: stalls show only afterwards.
const SLICES_PER_STEP: u32 = 16;
/// The pause after a step that did nothing or whose slices woke again. It doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The governor without a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitsPolicy {
    pub(crate) limits: TenantLimits,
    /// No request before.
    until: Duration,
    /// The length of the next pause.
    pause: Duration,
    /// The same for empty slices: only the kernel's awake reserve keeps those on.
    #[serde(default)]
    reserve_pause: RequestBackoff,
}

impl LimitsPolicy {
    /// Within these limits.
    pub fn new(limits: TenantLimits) -> Self {
        let reserve_pause = RequestBackoff::default();
        Self { limits, until: Duration::ZERO, pause: FIRST_PAUSE, reserve_pause }
    }

    /// Waits after a request that did nothing and after slices that memory was wanted of.
    fn learn(&mut self, seen: &Observation<'_>, need: u32) {
        let (mut done, mut failed) = (false, false);
        for event in seen.events {
            match event {
                PolicyEvent::Finished { op: RequestOp::Compact, outcome, .. } => {
                    done |= outcome.slices_done > 0;
                    failed |= outcome.slices_done == 0;
                }
                PolicyEvent::Finished { op: RequestOp::OfflineFree, outcome, .. } => {
                    if outcome.slices_done > 0 {
                        self.reserve_pause.reset_length();
                    } else {
                        let now = seen.time.as_secs_f64();
                        self.reserve_pause.lengthen_backoff(now, need, &seen.totals);
                    }
                }
                PolicyEvent::Woken { cause: WakeCause::Demand, .. } => failed = true,
                _ => {}
            }
        }
        if failed {
            self.until = seen.time + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else if done {
            self.pause = FIRST_PAUSE;
        }
    }
}

impl Policy for LimitsPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Governor
    }

    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        let (totals, now) = (&seen.totals, seen.time.as_secs_f64());
        let need = self.limits.slices(totals, totals.needed() + margin(totals));
        let on = totals.nr_slices.saturating_sub(totals.nr_offline);
        self.learn(seen, need);
        self.reserve_pause.observe(now, need, on);
        if let Some(held) = self.limits.step(seen) {
            return held;
        }
        if on <= need {
            return PolicyDecision::rest(DecisionReason::AllNeeded { need });
        }
        // Empty slices that the awake reserve keeps on are none to spare, but block no used one.
        let reserve_wait = self.reserve_pause.wait(now);
        let kept = if reserve_wait > 0.0 { totals.nr_empty } else { 0 };
        let spare = on.saturating_sub(need).saturating_sub(kept);
        if seen.time < self.until {
            let wait = self.until.saturating_sub(seen.time);
            return PolicyDecision::rest(DecisionReason::DidNothing { wait });
        }
        if spare == 0 {
            let wait = Duration::try_from_secs_f64(reserve_wait).unwrap_or(Duration::MAX);
            return PolicyDecision::rest(DecisionReason::DidNothing { wait });
        }
        let most = spare.min(totals.nr_switchable().div_ceil(SLICES_PER_STEP));
        let empty = (totals.nr_empty - kept).min(most);
        let used = most - empty;
        let mut requests = Vec::new();
        if empty > 0 {
            requests.push(offline_empty(Some(empty)));
        }
        if used > 0 {
            // Recently used cache stays.
            let request = compact(Some(used), Budget::Unlimited, false);
            requests.push(Request { cache: CacheChoice::Auto, ..request });
        }
        PolicyDecision {
            requests,
            why: DecisionReason::WithinLimits { empty, used },
            ..PolicyDecision::default()
        }
    }
}
