//! Estimates how much of the droppable cache is needed: none at first, more as dropped pages are
//! read again.

use serde::{Deserialize, Serialize};

/// Pages dropped and read again, older ones counting less.
///
/// Dropping a page saves by the room that it leaves, and costs when the page is read again: it must
/// stay dropped for some time to pay. How long pages stay dropped follows from the share of them
/// that is read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CacheRereads {
    /// Dropped and not seen again.
    out: f64,
    /// Pages times seconds that they were dropped.
    exposure: f64,
    /// Dropped pages that were read again.
    refaulted: f64,
    /// Seconds after which a dropped page has paid.
    worth: f64,
    /// Pages that prove nothing yet.
    few: f64,
    /// Seconds in which old counts fall to 1/e of their weight.
    fade: f64,
}

impl CacheRereads {
    /// `worth` is the time in seconds for which a page must stay dropped to pay.
    pub(super) fn new(slice_pages: f64, worth: f64, fade: f64) -> Self {
        Self { out: 0.0, exposure: 0.0, refaulted: 0.0, worth, few: slice_pages / 8.0, fade }
    }

    pub(super) fn step(&mut self, elapsed: f64) {
        let keep = (-elapsed / self.fade).exp();
        self.exposure = self.exposure * keep + self.out * elapsed;
        self.refaulted *= keep;
        self.out *= keep;
    }

    pub(super) fn drop(&mut self, pages: u64) {
        self.out += pages as f64;
    }

    /// Records pages that were read again; returns how many of them had been dropped at the
    /// governor's request. The kernel recycled the others for newer cache, which packing less would
    /// not have avoided.
    pub(super) fn refault(&mut self, pages: u64) -> u64 {
        let own = (pages as f64).min(self.out);
        self.out -= own;
        self.refaulted += own;
        own.round() as u64
    }

    /// The share of droppable cache that is needed: the cost of reading it again divided by what
    /// its room saves.
    pub(super) fn needed_share(&self) -> f64 {
        let come_back =
            self.refaulted / (self.exposure + self.few * self.worth).max(f64::MIN_POSITIVE);
        (come_back * self.worth).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_too_soon_is_needed_until_it_is_forgotten() {
        let mut cache = CacheRereads::new(800.0, 100.0, 10_000.0);
        assert!(cache.needed_share().abs() < 1e-9);
        cache.drop(1000);
        cache.step(10.0);
        assert_eq!(cache.refault(900), 900);
        // 900 pages in 10000 page-seconds were read again: after 11 s on average, and 100 s would
        // have paid.
        assert!((cache.needed_share() - 1.0).abs() < 1e-9);
        cache.step(1e6);
        assert!(cache.needed_share() < 0.01);
    }

    #[test]
    fn what_comes_back_late_was_worth_it_and_what_others_dropped_does_not_count() {
        let mut cache = CacheRereads::new(800.0, 100.0, 1e9);
        cache.drop(1000);
        cache.step(1000.0);
        assert_eq!(cache.refault(1500), 1000);
        assert!(cache.needed_share() < 0.1);
        assert_eq!(cache.refault(500), 0);
    }
}
