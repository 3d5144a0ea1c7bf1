//! How much of the droppable cache counts as needed: none at first, more as dropped pages come back.

use serde::{Deserialize, Serialize};

/// Pages dropped and read again, older ones counting less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Cache {
    dropped: f64,
    refaulted: f64,
    /// Pages that prove nothing yet.
    few: f64,
    /// Seconds in which the past loses all but 1/e of its weight.
    fade: f64,
}

impl Cache {
    pub(super) fn new(slice_pages: f64, fade: f64) -> Self {
        Self { dropped: 0.0, refaulted: 0.0, few: slice_pages / 8.0, fade }
    }

    pub(super) fn step(&mut self, elapsed: f64) {
        let keep = (-elapsed / self.fade).exp();
        self.dropped *= keep;
        self.refaulted *= keep;
    }

    pub(super) fn drop(&mut self, pages: u64) {
        self.dropped += pages as f64;
    }

    pub(super) fn refault(&mut self, pages: u64) {
        self.refaulted += pages as f64;
    }

    /// The share of droppable cache that is needed: twice the share that came back, so that half coming back is enough
    /// to leave all of it alone.
    pub(super) fn needed_share(&self) -> f64 {
        (2.0 * self.refaulted / (self.dropped + self.few)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_needed_until_it_is_forgotten() {
        let mut cache = Cache::new(800.0, 100.0);
        assert!(cache.needed_share().abs() < 1e-9);
        cache.drop(1000);
        cache.refault(550);
        assert!((cache.needed_share() - 1.0).abs() < 1e-9);
        cache.step(1000.0);
        assert!(cache.needed_share() < 0.01);
    }
}
