//! The governor's forecasts, each compared with the demand that came.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decision::DemandForecast;

/// The most forecasts that are pending at the same time.
const WAITING: f64 = 4.0;

/// A forecast whose time is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PendingForecast {
    due: f64,
    expected: u32,
    most: u32,
}

/// Forecasts under way, and how wrong those before were.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ForecastErrors {
    open: VecDeque<PendingForecast>,
    /// When the next one is to be noted down.
    next: f64,
    checked: u64,
    sum: f64,
    absolute: f64,
}

impl ForecastErrors {
    /// Records the present demand, and the highest demand expected within `horizon` seconds.
    pub(super) fn step(
        &mut self,
        now: f64,
        need: u32,
        expected: u32,
        horizon: f64,
    ) -> DemandForecast {
        for open in &mut self.open {
            open.most = open.most.max(need);
        }
        while self.open.front().is_some_and(|open| open.due <= now) {
            if let Some(open) = self.open.pop_front() {
                let error = f64::from(open.expected) - f64::from(open.most);
                self.checked += 1;
                self.sum += error;
                self.absolute += error.abs();
            }
        }
        if now >= self.next && self.open.len() < WAITING as usize {
            self.open.push_back(PendingForecast { due: now + horizon, expected, most: need });
            self.next = now + horizon / WAITING;
        }
        let mean = |sum: f64| if self.checked == 0 { 0.0 } else { sum / self.checked as f64 };
        DemandForecast {
            horizon: Duration::try_from_secs_f64(horizon).unwrap_or_default(),
            slices: expected,
            bias_slices: mean(self.sum),
            mean_error_slices: mean(self.absolute),
            checked: self.checked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_is_held_against_the_most_that_was_needed() {
        let mut outlook = ForecastErrors::default();
        assert_eq!(outlook.step(0.0, 3, 5, 10.0).checked, 0);
        outlook.step(1.0, 9, 9, 10.0);
        let after = outlook.step(10.0, 2, 2, 10.0);
        // Expected 5, came 9.
        assert_eq!((after.checked, after.bias_slices, after.mean_error_slices), (1, -4.0, 4.0));
    }
}
