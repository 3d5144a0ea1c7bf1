//! Wakes slices: some when tasks wait for memory and little is free, all when the daemon stops.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ramslice_types::{Backend, BackendError, Request, RequestOp, RequestOutcome};
use tracing::{debug, info, warn};

use super::{DecisionEngine, STOCK};
use crate::mode::DaemonMode;
use crate::wake_attribution::WakeReason;

/// Slices that one request wakes on a stock kernel when tasks wait for memory. Between two requests
/// the daemon can react to a signal.
const WOKEN_AT_ONCE: u32 = 8;

impl DecisionEngine {
    /// Tasks waited for memory. If little is free, slices wake, and none goes offline for a while.
    pub fn pressure(&mut self, backend: Option<&dyn Backend>, now: Duration) {
        self.metrics.stalled();
        if backend.is_some_and(|backend| matches!(backend.is_short_of_memory(), Ok(false))) {
            debug!("tasks waited for memory although enough is free");
            return;
        }
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.takers.is_short = true;
        self.metrics.set_paused(true);
        let Some(backend) = backend.filter(|_| !self.offline_slices.is_empty()) else {
            debug!("tasks waited for memory");
            return;
        };
        let (mut woken, wanted) = (0, self.next_wake_count);
        self.next_wake_count = self.next_wake_count.saturating_mul(2).min(1024);
        // One deadline for all of them, as in a step: the watchdog and a stop signal wait.
        let until = Instant::now() + self.settings.deadline;
        while woken < wanted && !self.stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(request) = self.wake_request(wanted - woken).filter(|_| !left.is_zero())
            else {
                break;
            };
            match self.wake(backend, &Request { deadline: Some(left), ..request }) {
                // A slice that woke meanwhile is no failure.
                Ok(outcome) => {
                    woken += outcome.slices_done;
                    if outcome.slices_done == 0 && request.op == RequestOp::OnlineAll {
                        break;
                    }
                }
                Err(error) => {
                    warn!(%error, "tasks waited for memory, and a slice could not be woken");
                    // One that its driver cannot wake is no reason to leave the others off.
                    if request.op == RequestOp::OnlineAll {
                        break;
                    }
                }
            }
        }
        self.simulated_offline = backend.simulated_offline();
        let verb = if self.simulated_offline.is_some() { "would have been" } else { "were" };
        info!(slices = woken, "tasks waited for memory: slices {verb} woken");
        self.woken_by_pressure += woken;
    }

    /// Counts a stall. Where a guard watches what is available, it decides what to wake.
    pub fn stalled(&self) {
        self.metrics.stalled();
    }

    /// Sends a request that wakes slices, and counts its outcome.
    fn wake(
        &self,
        backend: &dyn Backend,
        request: &Request,
    ) -> Result<RequestOutcome, BackendError> {
        let began = Instant::now();
        let result = backend.request(request);
        let mode = DaemonMode::of_requests(backend);
        self.metrics.request(mode, request.op, began.elapsed(), &result);
        if let Ok(outcome) = &result {
            self.metrics.not_woken(outcome);
        }
        result
    }

    /// The next request that wakes slices of those offline after the last step, in any order.
    fn wake_request(&mut self, most: u32) -> Option<Request> {
        if self.backend_kind == Some(STOCK) {
            // Only the backend knows which slices are still ours: another program may have taken
            // one.
            let max_slices = Some(most.min(WOKEN_AT_ONCE));
            return Some(Request { max_slices, ..Request::new(RequestOp::OnlineAll) });
        }
        self.offline_slices.pop().map(|slice| Request::new(RequestOp::Online(slice)))
    }

    /// The guard has woken slices because memory was short.
    pub fn add_guard_wake(&mut self, slices: u32, now: Duration) {
        self.woken_by_pressure += slices;
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
    }

    /// Tries once to wake everything. Returns whether none of our slices is left to wake.
    pub fn wake_all(&mut self, backend: &dyn Backend, deadline: Duration) -> bool {
        let request = Request { deadline: Some(deadline), ..Request::new(RequestOp::OnlineAll) };
        let outcome = match self.wake(backend, &request) {
            Ok(outcome) => outcome,
            Err(error) => {
                debug!(%error, "slices could not be woken");
                return false;
            }
        };
        let (slices, failed) = (outcome.slices_done, outcome.slices_failed);
        if slices > 0 {
            info!(slices, "slices were woken");
        }
        self.work.woken_slices += u64::from(slices);
        self.metrics.woken(DaemonMode::of_requests(backend), WakeReason::Stop, slices);
        for zone_state in self.zone_states.values_mut() {
            zone_state.baseline = None;
        }
        if failed > 0 {
            debug!(failed, reason = %outcome.reason, "slices do not wake");
        }
        failed == 0 && outcome.is_ok()
    }
}
