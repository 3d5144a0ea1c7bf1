//! Look-ups of the page cache, as the kernel counts them, and the two ratios that follow.
//!
//! The *look-up hit ratio* is the share of the pages looked up that the cache had at that moment.
//! Readahead hides misses from it: a page that was read ahead counts as there. The *disk-free
//! ratio* is the share of the pages looked up that no disk had to bring, by readahead or for the
//! look-up itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::physical::Ratio;
use crate::units::Pages;

/// Counters since boot, in pages. Only buffered reads and faults of files count, and only while
/// ramslice is enabled: neither shared memory, direct I/O, DAX nor `RWF_NOWAIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheLookups {
    /// Looked up by buffered reads.
    #[serde(rename = "lookup_read_pages")]
    pub read: Pages,
    /// Looked up by faults.
    #[serde(rename = "lookup_fault_pages")]
    pub fault: Pages,
    /// Of those looked up by reads, not in the cache.
    #[serde(rename = "absent_read_pages")]
    pub absent_read: Pages,
    /// Of those looked up by faults, not in the cache.
    #[serde(rename = "absent_fault_pages")]
    pub absent_fault: Pages,
    /// Brought from disk by reading and readahead.
    #[serde(rename = "readahead_pages")]
    pub readahead: Pages,
    /// Of these, gone from the cache without having been used.
    #[serde(rename = "readahead_unused_pages")]
    pub readahead_unused: Pages,
}

impl CacheLookups {
    /// Names of the counters in `/proc/vmstat`.
    pub const NAMES: [&'static str; 6] = [
        "ramslice_lookup_read",
        "ramslice_lookup_fault",
        "ramslice_absent_read",
        "ramslice_absent_fault",
        "ramslice_readahead",
        "ramslice_readahead_unused",
    ];

    /// Looks each counter of [`Self::NAMES`] up.
    ///
    /// # Errors
    /// The name of the first that is not there.
    pub fn of(find: impl Fn(&str) -> Option<u64>) -> Result<Self, &'static str> {
        let mut values = [Pages::ZERO; Self::NAMES.len()];
        for (value, name) in values.iter_mut().zip(Self::NAMES) {
            *value = Pages(find(name).ok_or(name)?);
        }
        let [read, fault, absent_read, absent_fault, readahead, readahead_unused] = values;
        Ok(Self { read, fault, absent_read, absent_fault, readahead, readahead_unused })
    }

    /// What was counted since `before`; nothing if a counter is smaller than it was, as after a
    /// reboot.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let pages = |now: Pages, then: Pages| now.0.checked_sub(then.0).map(Pages);
        Some(Self {
            read: pages(self.read, before.read)?,
            fault: pages(self.fault, before.fault)?,
            absent_read: pages(self.absent_read, before.absent_read)?,
            absent_fault: pages(self.absent_fault, before.absent_fault)?,
            readahead: pages(self.readahead, before.readahead)?,
            readahead_unused: pages(self.readahead_unused, before.readahead_unused)?,
        })
    }

    /// Pages looked up.
    pub fn lookups(&self) -> Pages {
        self.read + self.fault
    }

    /// Of these, not in the cache; counters read while they change may be a little apart.
    pub fn absent(&self) -> Pages {
        (self.absent_read + self.absent_fault).min(self.lookups())
    }

    /// Pages from disk that were of use.
    pub fn from_disk(&self) -> Pages {
        self.readahead - self.readahead_unused
    }

    /// Both ratios of what was counted in an interval.
    ///
    /// # Errors
    /// If fewer than [`MIN_LOOKUPS`] pages were looked up.
    pub fn ratios(&self) -> Result<CacheRatios, RatioUnknown> {
        let lookups = self.lookups();
        if lookups < MIN_LOOKUPS {
            return Err(RatioUnknown::TooFew { lookups });
        }
        Ok(CacheRatios {
            lookups,
            absent: self.absent(),
            from_disk: self.from_disk(),
            lookup_hit: Ratio(1.0 - self.absent().share_of(lookups)),
            disk_free: Ratio((1.0 - self.from_disk().share_of(lookups)).max(0.0)),
        })
    }
}

/// Of fewer look-ups no ratio is given: chance alone moves a ratio of 0.97 of so many by 0.005.
pub const MIN_LOOKUPS: Pages = Pages(1000);

/// Both ratios over an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheRatios {
    /// Pages looked up.
    #[serde(rename = "lookup_pages")]
    pub lookups: Pages,
    /// Of these, not in the cache.
    #[serde(rename = "absent_pages")]
    pub absent: Pages,
    /// Pages that a disk had to bring.
    #[serde(rename = "from_disk_pages")]
    pub from_disk: Pages,
    /// The share of look-ups that found their page.
    #[serde(rename = "lookup_hit_ratio")]
    pub lookup_hit: Ratio,
    /// The share of look-ups that needed no disk, at least 0.
    #[serde(rename = "disk_free_ratio")]
    pub disk_free: Ratio,
}

impl fmt::Display for CacheRatios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "look-up hit ratio {:.3}, disk-free ratio {:.3} of {} pages looked up",
            self.lookup_hit.0, self.disk_free.0, self.lookups
        )
    }
}

/// Why there is no ratio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RatioUnknown {
    /// Nothing counts look-ups.
    NoCounters {
        /// What is missing, as a sentence without its end.
        why: String,
    },
    /// The counters were read once so far, or began again.
    FirstReading,
    /// Too few pages were looked up.
    TooFew {
        /// How many.
        lookups: Pages,
    },
}

impl fmt::Display for RatioUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounters { why } => f.write_str(why),
            Self::FirstReading => f.write_str("the counters of look-ups were read once so far"),
            Self::TooFew { lookups } => write!(
                f,
                "{lookups} pages looked up are too few: a ratio is given of {MIN_LOOKUPS} and more"
            ),
        }
    }
}

/// Reads counters again and again, and gives ratios whenever enough was looked up since the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct LookupWindow {
    begun: Option<CacheLookups>,
}

impl LookupWindow {
    /// Takes the counters as they are now. Without ratios, the window goes on.
    ///
    /// # Errors
    /// Why there are no ratios now.
    pub fn add(&mut self, now: CacheLookups) -> Result<CacheRatios, RatioUnknown> {
        let Some(counted) = self.begun.and_then(|begun| now.since(&begun)) else {
            self.begun = Some(now);
            return Err(RatioUnknown::FirstReading);
        };
        let ratios = counted.ratios()?;
        self.begun = Some(now);
        Ok(ratios)
    }
}

/// Refaults by distance: entry i counts pages that came back after between 2^i and 2^(i+1) pages
/// were evicted in their place; entry 0 also those that came back at once. So much more memory
/// would have kept them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefaultDistances(Vec<u64>);

impl RefaultDistances {
    /// Entries that the kernel has.
    pub const ENTRIES: usize = 64;

    /// The counts in the order of the kernel's file; nothing if there are not
    /// [`Self::ENTRIES`] of them.
    pub fn new(counts: Vec<u64>) -> Option<Self> {
        (counts.len() == Self::ENTRIES).then_some(Self(counts))
    }

    /// What was counted since `before`; nothing if a count is smaller than it was.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let pairs = self.0.iter().zip(&before.0);
        pairs.map(|(now, then)| now.checked_sub(*then)).collect::<Option<_>>().map(Self)
    }

    /// All refaults.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Refaults that `more` pages would have avoided. Of the entry that `more` lies in, those below
    /// it are taken to be the share that it has of the entry's width.
    pub fn within(&self, more: Pages) -> f64 {
        let more = more.0 as f64;
        let part = |(order, &count): (usize, &u64)| {
            let end = (order as f64 + 1.0).exp2();
            let begin = if order == 0 { 0.0 } else { end / 2.0 };
            count as f64 * ((more - begin) / (end - begin)).clamp(0.0, 1.0)
        };
        self.0.iter().enumerate().map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(read: u64, absent: u64, from_disk: u64) -> CacheLookups {
        CacheLookups {
            read: Pages(read),
            absent_read: Pages(absent),
            readahead: Pages(from_disk),
            ..CacheLookups::default()
        }
    }

    #[test]
    fn the_two_ratios_differ_by_what_was_read_ahead() {
        let ratios = counted(10_000, 100, 2500).ratios().unwrap();
        assert!((ratios.lookup_hit.0 - 0.99).abs() < 1e-12);
        assert!((ratios.disk_free.0 - 0.75).abs() < 1e-12);
        let text = ratios.to_string();
        assert!(text.contains("look-up hit ratio 0.990") && text.contains("disk-free ratio 0.750"));
        // More was read ahead than looked up.
        let ahead = counted(10_000, 0, 30_000).ratios().unwrap();
        assert_eq!((ahead.lookup_hit, ahead.disk_free), (Ratio(1.0), Ratio(0.0)));
        let unused = CacheLookups { readahead_unused: Pages(20_000), ..counted(10_000, 0, 25_000) };
        assert!((unused.ratios().unwrap().disk_free.0 - 0.5).abs() < 1e-12);
    }

    #[test]
    fn few_lookups_give_no_ratio_and_the_window_goes_on() {
        let mut window = LookupWindow::default();
        assert_eq!(window.add(counted(500, 0, 0)), Err(RatioUnknown::FirstReading));
        let few = window.add(counted(1499, 0, 0));
        assert_eq!(few, Err(RatioUnknown::TooFew { lookups: Pages(999) }));
        assert!(few.unwrap_err().to_string().contains("1000"));
        assert_eq!(window.add(counted(1500, 0, 0)).unwrap().lookups, Pages(1000));
        assert!(window.add(counted(1500, 0, 0)).is_err(), "the next window begins there");
        // After a reboot
        assert_eq!(window.add(counted(100, 0, 0)), Err(RatioUnknown::FirstReading));
    }

    #[test]
    fn a_counter_that_is_missing_is_named() {
        let find = |name: &str| (name != "ramslice_readahead").then_some(7);
        assert_eq!(CacheLookups::of(find), Err("ramslice_readahead"));
        assert_eq!(CacheLookups::of(|_| Some(7)).unwrap().lookups(), Pages(14));
    }

    #[test]
    fn distances_count_up_to_the_memory_that_would_have_kept_the_page() {
        let mut counts = vec![0; RefaultDistances::ENTRIES];
        (counts[0], counts[4], counts[10], counts[63]) = (5, 8, 100, 1);
        let distances = RefaultDistances::new(counts).unwrap();
        assert_eq!(distances.total(), 114);
        for (more, avoided) in
            [(0, 0.0), (2, 5.0), (16, 5.0), (24, 9.0), (1024, 13.0), (1536, 63.0), (4096, 113.0)]
        {
            let found = distances.within(Pages(more));
            assert!((found - avoided).abs() < 1e-9, "{more}: {found}");
        }
        assert_eq!(RefaultDistances::new(vec![1; 63]), None);
        let before = RefaultDistances::new(vec![0; RefaultDistances::ENTRIES]).unwrap();
        assert_eq!(distances.since(&before).unwrap(), distances);
        assert_eq!(before.since(&distances), None);
    }
}
