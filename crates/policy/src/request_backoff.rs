//! How long a policy waits after a request that did nothing because there was no room.

use serde::{Deserialize, Serialize};

use crate::observation::MachineTotals;

/// Seconds that it waits after a request that did nothing; twice as many the next time.
const FIRST_PAUSE: f64 = 30.0;
/// The longest such pause, in seconds.
const LONGEST_PAUSE: f64 = 3600.0;

/// A backoff after a request that did nothing because there was no room.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestBackoff {
    /// No request before this time, in seconds.
    until: f64,
    /// The length of the next pause.
    next: f64,
    /// Slices that were needed and online at that time: with other numbers, another try may
    /// succeed.
    need: u32,
    on: u32,
}

impl Default for RequestBackoff {
    fn default() -> Self {
        Self::none(0.0)
    }
}

impl RequestBackoff {
    pub(crate) fn none(now: f64) -> Self {
        Self { until: now, next: FIRST_PAUSE, need: 0, on: 0 }
    }

    /// A request did something: the next pause is a short one again.
    pub(crate) fn reset_length(&mut self) {
        self.next = FIRST_PAUSE;
    }

    /// A request did nothing.
    pub(crate) fn lengthen_backoff(&mut self, now: f64, need: u32, totals: &MachineTotals) {
        let next = (self.next * 2.0).min(LONGEST_PAUSE);
        *self = Self {
            until: now + self.next,
            next,
            need,
            on: totals.nr_slices.saturating_sub(totals.nr_offline),
        };
    }

    /// Ends early if something has changed since.
    pub(crate) fn observe(&mut self, now: f64, need: u32, on: u32) {
        if need < self.need || on > self.on {
            self.until = now;
        }
    }

    /// Seconds until the next request may go; 0 if there is no pause.
    pub(crate) fn wait(&self, now: f64) -> f64 {
        (self.until - now).max(0.0)
    }
}
