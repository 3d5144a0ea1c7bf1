//! The demand at this time of day, yesterday.

use serde::{Deserialize, Serialize};

/// Parts of a day that the season distinguishes.
const BINS: usize = 288;

/// The highest demand in each part of the last day and of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DailySeason {
    /// Length of a day in seconds.
    day: f64,
    /// When it began, in seconds.
    since: f64,
    /// The highest demand in each part: of today up to the present part, of yesterday after it.
    most: Vec<u32>,
    /// The last observed part, counted from the beginning.
    part: u64,
}

impl DailySeason {
    /// Begins to learn; a `day` of 0 seconds learns nothing.
    pub(super) fn new(since: f64, day: f64) -> Self {
        Self { day, since, most: Vec::new(), part: 0 }
    }

    fn part_of(&self, time: f64) -> u64 {
        ((time - self.since).max(0.0) * BINS as f64 / self.day) as u64
    }

    /// Adds a moment.
    pub(super) fn push(&mut self, time: f64, need: u32) {
        if self.day <= 0.0 {
            return;
        }
        if self.most.is_empty() {
            self.most = vec![0; BINS];
        }
        let part = self.part_of(time);
        if part == self.part {
            let bin = &mut self.most[part as usize % BINS];
            *bin = need.max(*bin);
        } else {
            // Parts without an observation are taken to be like this one.
            for passed in (self.part + 1..=part).take(BINS) {
                self.most[passed as usize % BINS] = need;
            }
            self.part = part;
        }
    }

    /// The highest demand a day before, from now until `ahead` seconds later; `None` on the first
    /// day.
    pub(super) fn expects(&self, time: f64, ahead: f64) -> Option<u32> {
        if self.day <= 0.0 || self.part < BINS as u64 {
            return None;
        }
        // Today has overwritten the present part: the rest of it is taken to be like the next.
        let last = self.part_of(time + ahead).max(self.part + 1).min(self.part + BINS as u64 - 1);
        (self.part + 1..=last).map(|part| self.most[part as usize % BINS]).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expects_what_was_yesterday() {
        let mut season = DailySeason::new(0.0, 86_400.0);
        let need = |time: f64| if (time % 86_400.0) > 43_200.0 { 9 } else { 4 };
        for step in 0..300 {
            assert_eq!(season.expects(f64::from(step) * 300.0, 600.0).is_some(), step > 288);
            season.push(f64::from(step) * 300.0, need(f64::from(step) * 300.0));
        }
        // Shortly before noon of the second day.
        for step in 300..430 {
            season.push(f64::from(step) * 300.0, need(f64::from(step) * 300.0));
        }
        let now = 429.0 * 300.0;
        assert_eq!(season.expects(now, 600.0), Some(4));
        assert_eq!(season.expects(now, 1800.0), Some(9));
    }

    #[test]
    fn a_day_of_no_length_teaches_nothing() {
        let mut season = DailySeason::new(0.0, 0.0);
        season.push(5.0, 3);
        assert_eq!(season.expects(1e9, 1.0), None);
    }
}
