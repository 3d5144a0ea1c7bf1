//! Waking: some slices when tasks wait for memory and little is free, all of them at the end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ramslice_types::{Backend, BackendError, Request, RequestOp, RequestOutcome};
use tracing::{debug, info, warn};

use super::{Engine, STOCK};
use crate::mode::Mode;
use crate::wake_attribution::Cause;

/// Slices that one request wakes on a stock kernel when tasks wait for memory; between two, the daemon may be told to stop.
const WOKEN_AT_ONCE: u32 = 8;

impl Engine {
    /// Tasks waited for memory. If little is free, slices wake in mode on, and nothing goes off for a while.
    pub fn pressure(&mut self, backend: Option<&dyn Backend>, now: Duration) {
        self.metrics.stalled();
        if backend.is_some_and(|backend| matches!(backend.is_short_of_memory(), Ok(false))) {
            debug!("tasks waited for memory, though enough is free");
            return;
        }
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
        let Some(backend) = backend.filter(|_| !self.off.is_empty()) else {
            debug!("tasks waited for memory");
            return;
        };
        let (mut woken, wanted) = (0, self.wake_next);
        self.wake_next = self.wake_next.saturating_mul(2).min(1024);
        // All of them together, as the requests of a step: somebody may wait for the end, and the watchdog does.
        let until = Instant::now() + self.settings.deadline;
        while woken < wanted && !self.stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(request) = self.next_to_wake(wanted - woken).filter(|_| !left.is_zero())
            else {
                break;
            };
            match self.wake(backend, &Request { deadline: Some(left), ..request }) {
                // What woke meanwhile is no failure.
                Ok(outcome) => {
                    woken += outcome.slices_done;
                    if outcome.slices_done == 0 && request.op == RequestOp::OnlineAll {
                        break;
                    }
                }
                Err(error) => {
                    warn!(%error, "tasks waited for memory, and a slice could not be woken");
                    break;
                }
            }
        }
        self.simulated = backend.simulated_offline();
        let verb = if self.simulated.is_some() { "would have been" } else { "were" };
        info!(slices = woken, "tasks waited for memory: slices {verb} woken");
        self.woken_by_pressure += woken;
    }

    /// On a stock kernel the guard sees what is available, and wakes: there it is only counted.
    pub fn stalled(&self) {
        self.metrics.stalled();
    }

    /// Sends a request that wakes, and counts what comes of it.
    fn wake(
        &self,
        backend: &dyn Backend,
        request: &Request,
    ) -> Result<RequestOutcome, BackendError> {
        let began = Instant::now();
        let result = backend.request(request);
        let mode = Mode::of_requests(backend);
        self.metrics.request(mode, request.op, began.elapsed(), &result);
        if let Ok(outcome) = &result {
            self.metrics.not_woken(outcome);
        }
        result
    }

    /// Wakes one or several of those that were off after the last step; any will do.
    fn next_to_wake(&mut self, most: u32) -> Option<Request> {
        if self.way == Some(STOCK) {
            // It knows what is ours now: somebody may have taken a slice away since that step.
            let max_slices = Some(most.min(WOKEN_AT_ONCE));
            return Some(Request { max_slices, ..Request::new(RequestOp::OnlineAll) });
        }
        self.off.pop().map(|slice| Request::new(RequestOp::Online(slice)))
    }

    /// Somebody of this daemon has woken slices for want of memory.
    pub fn woken_by_guard(&mut self, slices: u32, now: Duration) {
        self.woken_by_pressure += slices;
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
    }

    /// Tries once to wake everything. Says whether nothing of ours is left to wake.
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
        self.metrics.woken(Mode::of_requests(backend), Cause::Stop, slices);
        for mind in self.minds.values_mut() {
            mind.left = None;
        }
        if failed > 0 {
            debug!(failed, reason = %outcome.reason, "slices do not wake");
        }
        failed == 0 && outcome.is_ok()
    }
}
