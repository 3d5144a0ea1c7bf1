//! Waking: some slices when tasks wait for memory, all of them at the end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ramslice_types::{Backend, Op, Request};
use tracing::{debug, info, warn};

use super::{Engine, STOCK};
use crate::mode::Mode;
use crate::wakes::Cause;

/// Slices that one request wakes on a stock kernel when tasks wait for memory; between two, the daemon may be told to stop.
const WOKEN_AT_ONCE: u32 = 8;

impl Engine {
    /// Tasks waited for memory, or little is available: in mode on slices wake, and nothing goes off for a while.
    pub fn pressure(&mut self, backend: Option<&dyn Backend>, now: Duration) {
        self.metrics.stalled();
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
        let Some(backend) = backend.filter(|_| self.settings.mode == Mode::On && !self.off.is_empty()) else {
            debug!("tasks waited for memory");
            return;
        };
        let (mut woken, wanted) = (0, self.wake_next);
        self.wake_next = self.wake_next.saturating_mul(2).min(1024);
        // All of them together, as the requests of a step: somebody may wait for the end, and the watchdog does.
        let until = Instant::now() + self.settings.deadline;
        while woken < wanted && !self.stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(request) = self.next_to_wake(wanted - woken).filter(|_| !left.is_zero()) else { break };
            match backend.request(&Request { deadline: Some(left), ..request }) {
                // What woke meanwhile is no failure.
                Ok(outcome) => {
                    woken += outcome.slices_done;
                    self.metrics.not_woken(&outcome);
                    if outcome.slices_done == 0 && request.op == Op::OnlineAll {
                        break;
                    }
                }
                Err(error) => {
                    self.metrics.error(&error);
                    warn!(%error, "tasks waited for memory, and a slice could not be woken");
                    break;
                }
            }
        }
        info!(slices = woken, "tasks waited for memory: slices were woken");
        self.woken_by_pressure += woken;
    }

    /// Wakes one or several of those that were off after the last step; any will do.
    fn next_to_wake(&mut self, most: u32) -> Option<Request> {
        if self.way == Some(STOCK) {
            // It knows what is ours now: somebody may have taken a slice away since that step.
            let max_slices = Some(most.min(WOKEN_AT_ONCE));
            return Some(Request { max_slices, ..Request::new(Op::OnlineAll) });
        }
        self.off.pop().map(|slice| Request::new(Op::Online(slice)))
    }

    /// Somebody of this daemon has woken slices for want of memory.
    pub fn woken_by_guard(&mut self, slices: u32, now: Duration) {
        self.metrics.stalled();
        self.woken_by_pressure += slices;
        self.paused_until = Some(now + self.settings.pressure.pause);
        self.metrics.set_paused(true);
    }

    /// Tries once to wake everything. Says whether nothing of ours is left to wake.
    pub fn wake_all(&mut self, backend: &dyn Backend, deadline: Duration) -> bool {
        let request = Request { deadline: Some(deadline), ..Request::new(Op::OnlineAll) };
        let outcome = match backend.request(&request) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.metrics.error(&error);
                debug!(%error, "slices could not be woken");
                return false;
            }
        };
        let (slices, failed) = (outcome.slices_done, outcome.slices_failed);
        if slices > 0 {
            info!(slices, "slices were woken");
        }
        self.work.woken_slices += u64::from(slices);
        self.metrics.woken(Mode::On, Cause::Stop, slices);
        self.metrics.not_woken(&outcome);
        for mind in self.minds.values_mut() {
            mind.left = None;
        }
        if failed > 0 {
            debug!(failed, reason = %outcome.reason, "slices do not wake");
        }
        failed == 0 && outcome.is_ok()
    }
}
