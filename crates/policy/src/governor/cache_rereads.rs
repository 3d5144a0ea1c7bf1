//! Estimates how much of the droppable cache is needed: none at first, more as dropped pages are
//! read again; and chooses what requests do with cache.
//!
//! What a request drops by use (`auto`) leaves a trace, and the kernel reports its return. What a
//! request drops regardless leaves none: its return looks like a first read. So of the pages that a
//! disk brought without a trace, those count as returned that the look-ups would have found among
//! the dropped ones. First reads count too, so this is rather too much than too little. Dropping
//! regardless begins where well below all of what it saves is lost to that, and needs a kernel that
//! counts look-ups.

use ramslice_types::{CacheChoice, Pages};
use serde::{Deserialize, Serialize};

/// Dropping regardless begins where less than this share of what it saves is lost to pages that
/// are read again, and ends where all of it is.
const WELL_BELOW: f64 = 0.5;
/// Seconds in which the count of pages dropped regardless falls to 1/e: their files may be gone.
const FORGOTTEN: f64 = 86_400.0;

/// Pages dropped and read again, older ones counting less.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct DroppedPages {
    /// Dropped and not seen again.
    out: f64,
    /// Pages times seconds that they were dropped.
    exposure: f64,
    /// Dropped pages that were read again.
    refaulted: f64,
}

/// Dropped cache, by whether its return can be noticed.
///
/// Dropping a page saves by the room that it leaves, and costs when the page is read again: it must
/// stay dropped for some time to pay. How long pages stay dropped follows from the share of them
/// that is read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CacheRereads {
    /// Dropped by use: the kernel reports what returns.
    #[serde(flatten)]
    traced: DroppedPages,
    /// Dropped regardless.
    #[serde(default)]
    untraced: DroppedPages,
    /// Whether the pages that a disk brings are counted: otherwise the return of what was dropped
    /// regardless could not be noticed.
    #[serde(default)]
    reads_counted: bool,
    /// What requests do with cache now.
    #[serde(default = "by_use")]
    choice: CacheChoice,
    /// Seconds after which a dropped page has paid.
    worth: f64,
    /// Pages that prove nothing yet.
    few: f64,
    /// Seconds in which old counts fall to 1/e of their weight.
    fade: f64,
}

fn by_use() -> CacheChoice {
    CacheChoice::Auto
}

impl DroppedPages {
    fn step(&mut self, elapsed: f64, fade: f64, forgotten: f64) {
        let keep = (-elapsed / fade).exp();
        self.exposure = self.exposure * keep + self.out * elapsed;
        self.refaulted *= keep;
        self.out *= (-elapsed / forgotten).exp();
    }

    /// Records pages that were read again; returns how many of them were among these.
    fn refault(&mut self, pages: Pages) -> u64 {
        let own = (pages.0 as f64).min(self.out);
        self.out -= own;
        self.refaulted += own;
        own.round() as u64
    }
}

impl CacheRereads {
    /// `worth` is the time in seconds for which a page must stay dropped to pay.
    pub(super) fn new(slice_pages: f64, worth: f64, fade: f64) -> Self {
        Self {
            traced: DroppedPages::default(),
            untraced: DroppedPages::default(),
            reads_counted: false,
            choice: CacheChoice::Auto,
            worth,
            few: slice_pages / 8.0,
            fade,
        }
    }

    pub(super) fn step(&mut self, elapsed: f64) {
        self.traced.step(elapsed, self.fade, self.fade);
        self.untraced.step(elapsed, self.fade, FORGOTTEN.max(self.fade));
    }

    /// Forgets all pages that were dropped, and what came back of them.
    pub(super) fn reset(&mut self) {
        (self.traced, self.untraced) = (DroppedPages::default(), DroppedPages::default());
    }

    /// What was dropped cannot come back as such; how soon such pages do stays known.
    pub(super) fn forget_dropped(&mut self) {
        (self.traced.out, self.untraced.out) = (0.0, 0.0);
    }

    /// Records what the last request dropped.
    pub(super) fn drop(&mut self, pages: u64) {
        let dropped = match self.choice {
            CacheChoice::Drop => &mut self.untraced,
            CacheChoice::Auto | CacheChoice::Keep => &mut self.traced,
        };
        dropped.out += pages as f64;
    }

    /// Records pages that the kernel saw return; returns how many of them had been dropped at the
    /// governor's request. The kernel recycled the others for newer cache, which packing less would
    /// not have avoided.
    pub(super) fn refault(&mut self, pages: u64) -> u64 {
        self.traced.refault(Pages(pages))
    }

    /// Records `lookups` of the `cached` pages, the pages that a disk brought for them, and how
    /// many of these the kernel saw return; returns how many of the others are taken to have been
    /// dropped regardless at the governor's request.
    ///
    /// At most all of the others were, and at most the share of the look-ups that the dropped pages
    /// have in the cache as it would be with them: what is dropped regardless was used as often as
    /// the rest.
    pub(super) fn read_from_disk(
        &mut self,
        lookups: Pages,
        cached: Pages,
        brought: Pages,
        returned: Pages,
    ) -> u64 {
        self.reads_counted = true;
        let out = self.untraced.out;
        let share = out / (cached.0 as f64 + out).max(1.0);
        let used = Pages((lookups.0 as f64 * share).ceil() as u64);
        self.untraced.refault(brought.saturating_sub(returned).min(used))
    }

    /// The share of droppable cache that is needed: the cost of reading it again divided by what
    /// its room saves. Where dropping regardless pays, none is.
    pub(super) fn needed_share(&self) -> f64 {
        match self.choice {
            CacheChoice::Drop => 0.0,
            CacheChoice::Auto | CacheChoice::Keep => self.share(&self.traced),
        }
    }

    fn all(&self) -> DroppedPages {
        let (one, other) = (self.traced, self.untraced);
        DroppedPages {
            out: one.out + other.out,
            exposure: one.exposure + other.exposure,
            refaulted: one.refaulted + other.refaulted,
        }
    }

    fn share(&self, dropped: &DroppedPages) -> f64 {
        let come_back =
            dropped.refaulted / (dropped.exposure + self.few * self.worth).max(f64::MIN_POSITIVE);
        (come_back * self.worth).min(1.0)
    }

    /// Chooses what requests do with cache from now on.
    ///
    /// All of it stays where as much is read again as is dropped. Otherwise what was used lately
    /// stays, or nothing, as long as it `may_drop` that and it pays by what is taken to return.
    pub(super) fn choose(&mut self, may_drop: bool) {
        let limit = if self.choice == CacheChoice::Drop { 1.0 } else { WELL_BELOW };
        self.choice = if self.share(&self.traced) >= 1.0 {
            CacheChoice::Keep
        } else if may_drop && self.reads_counted && self.share(&self.all()) < limit {
            CacheChoice::Drop
        } else {
            CacheChoice::Auto
        };
    }

    /// What requests do with cache now; the kernel chooses instead of dropping all where the risk
    /// of that does not fit.
    pub(super) fn request(&mut self, fits: bool) -> CacheChoice {
        if self.choice == CacheChoice::Drop && !fits {
            self.choice = CacheChoice::Auto;
        }
        self.choice
    }

    /// Pages dropped regardless that may still return.
    pub(super) fn untraced_pages(&self) -> f64 {
        self.untraced.out
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

    /// One that drops regardless, on a kernel that counts look-ups; a page pays after 100 s.
    fn dropping() -> CacheRereads {
        let mut cache = CacheRereads::new(800.0, 100.0, 10_000.0);
        cache.read_from_disk(Pages(10), Pages(5000), Pages(0), Pages(0));
        cache.choose(true);
        assert_eq!(cache.request(true), CacheChoice::Drop);
        cache
    }

    #[test]
    fn nothing_is_dropped_regardless_where_its_return_is_not_counted_or_does_not_fit() {
        let mut uncounted = CacheRereads::new(800.0, 100.0, 10_000.0);
        uncounted.choose(true);
        assert_eq!(uncounted.request(true), CacheChoice::Auto);
        let mut forbidden = dropping();
        forbidden.choose(false);
        assert_eq!(forbidden.request(true), CacheChoice::Auto);
        assert_eq!(dropping().request(false), CacheChoice::Auto);
    }

    #[test]
    fn of_what_a_disk_brings_only_the_share_of_the_dropped_pages_counts_as_returned() {
        let mut cache = dropping();
        cache.drop(1000);
        // A fifth of the cache is out, so a fifth of 500 look-ups would have found it.
        assert_eq!(cache.read_from_disk(Pages(500), Pages(4000), Pages(400), Pages(0)), 100);
        // Pages that left a trace were not dropped regardless.
        assert_eq!(cache.read_from_disk(Pages(500), Pages(4000), Pages(400), Pages(400)), 0);
        assert!((cache.untraced_pages() - 900.0).abs() < 1e-9);
    }

    #[test]
    fn dropping_regardless_ends_where_all_of_it_is_lost_and_begins_well_below() {
        let mut cache = dropping();
        // 1000 pages go, and after some seconds so many of all that are out are read again.
        let lose = |cache: &mut CacheRereads, seconds: f64, returned: u64| {
            cache.drop(1000);
            cache.step(seconds);
            cache.read_from_disk(Pages(1 << 20), Pages(0), Pages(returned), Pages(0));
            cache.choose(true);
            cache.request(true)
        };
        // They stay out for longer than the 100 s after which a page has paid.
        assert_eq!(lose(&mut cache, 200.0, 1000), CacheChoice::Drop);
        let rounds = (0..20).position(|_| lose(&mut cache, 10.0, 1000) == CacheChoice::Auto);
        assert!(rounds.is_some_and(|rounds| rounds > 0), "{rounds:?} {cache:?}");
        cache.choose(true);
        assert_eq!(cache.request(true), CacheChoice::Auto);
        cache.step(1e6);
        cache.choose(true);
        assert_eq!(cache.request(true), CacheChoice::Drop);
    }

    #[test]
    fn a_state_saved_before_it_dropped_regardless_is_restored() {
        let old = r#"{"out":5.0,"exposure":7.0,"refaulted":1.0,"worth":100.0,"few":100.0,
            "fade":1000.0}"#;
        let cache: CacheRereads = serde_json::from_str(old).unwrap();
        assert!((cache.traced.out - 5.0).abs() < 1e-9 && cache.choice == CacheChoice::Auto);
    }
}
