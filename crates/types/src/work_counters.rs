//! The work that a kernel has done for slices since boot, as counters that only grow.

use serde::{Deserialize, Serialize};

use crate::units::{Pages, Price};

/// Cumulative counters of all zones. The kernel's statistics can be reset to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkCounters {
    /// Slices whose emptying was tried.
    pub tried_slices: u64,
    /// Of these emptied and switched off.
    pub emptied_slices: u64,
    /// Slices woken, on request or on demand.
    pub woken_slices: u64,
    /// Pages moved to other slices.
    pub migrated_pages: Pages,
    /// Clean cache dropped, in sources and destinations.
    pub dropped_pages: Pages,
    /// Destinations taken from free memory.
    pub target_free_pages: Pages,
    /// Destinations gained by dropping cache.
    pub target_cache_pages: Pages,
    /// Sum of the prices of the slices tried, by the kernel's parameters.
    #[serde(rename = "price_predicted_100cycles")]
    pub price_predicted: Price,
    /// CPU time of emptying, on the kernel's own clock.
    #[serde(rename = "price_measured_100cycles")]
    pub price_measured: Price,
    /// Page faults of all processes (`pgfault`).
    pub page_faults: u64,
    /// Pages taken from the allocator (`pgalloc_*`).
    pub allocated_pages: Pages,
}

impl WorkCounters {
    /// The work done since `before`, or `None` if any counter is smaller than it was.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let pages = |now: Pages, then: Pages| now.0.checked_sub(then.0).map(Pages);
        let price = |now: Price, then: Price| now.0.checked_sub(then.0).map(Price);
        Some(Self {
            tried_slices: self.tried_slices.checked_sub(before.tried_slices)?,
            emptied_slices: self.emptied_slices.checked_sub(before.emptied_slices)?,
            woken_slices: self.woken_slices.checked_sub(before.woken_slices)?,
            migrated_pages: pages(self.migrated_pages, before.migrated_pages)?,
            dropped_pages: pages(self.dropped_pages, before.dropped_pages)?,
            target_free_pages: pages(self.target_free_pages, before.target_free_pages)?,
            target_cache_pages: pages(self.target_cache_pages, before.target_cache_pages)?,
            price_predicted: price(self.price_predicted, before.price_predicted)?,
            price_measured: price(self.price_measured, before.price_measured)?,
            page_faults: self.page_faults.checked_sub(before.page_faults)?,
            allocated_pages: pages(self.allocated_pages, before.allocated_pages)?,
        })
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            tried_slices: self.tried_slices + other.tried_slices,
            emptied_slices: self.emptied_slices + other.emptied_slices,
            woken_slices: self.woken_slices + other.woken_slices,
            migrated_pages: self.migrated_pages + other.migrated_pages,
            dropped_pages: self.dropped_pages + other.dropped_pages,
            target_free_pages: self.target_free_pages + other.target_free_pages,
            target_cache_pages: self.target_cache_pages + other.target_cache_pages,
            price_predicted: self.price_predicted + other.price_predicted,
            price_measured: self.price_measured + other.price_measured,
            page_faults: self.page_faults + other.page_faults,
            allocated_pages: self.allocated_pages + other.allocated_pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_went_back_is_no_difference() {
        let before = WorkCounters { migrated_pages: Pages(5), ..WorkCounters::default() };
        let after =
            WorkCounters { migrated_pages: Pages(9), tried_slices: 1, ..WorkCounters::default() };
        let between = after.since(&before).unwrap();
        assert_eq!((between.migrated_pages, between.tried_slices), (Pages(4), 1));
        assert_eq!(before.plus(&between), after);
        assert_eq!(before.since(&after), None);
        // Of a counter of slices, of pages and of a price alone, too.
        let fewer_pages = WorkCounters { migrated_pages: Pages(4), ..before };
        assert_eq!(fewer_pages.since(&before), None);
        let more_price = WorkCounters { price_measured: Price(1), ..before };
        assert_eq!(before.since(&more_price), None);
    }
}
