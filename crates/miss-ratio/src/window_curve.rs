//! The curve of one stretch of a recording: what was read with the memory that there was, more with
//! less by reuse times, less with more by refault distances.

use serde::Serialize;

use crate::miss_curve::MissCurve;
use crate::refault_distances::{RefaultDistances, RefaultSizes};
use crate::reuse_histogram::{ReuseHistogram, eviction_sums};

/// Something for each kind of page that can be read again.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PageKinds<T> {
    /// Memory of programs, tmpfs included.
    pub anon: T,
    /// Page cache of files.
    pub file: T,
}

impl<T> PageKinds<T> {
    /// Both kinds.
    pub fn both(&self) -> [&T; 2] {
        [&self.anon, &self.file]
    }
}

impl PageKinds<f64> {
    /// Both kinds together.
    pub fn sum(&self) -> f64 {
        self.anon + self.file
    }
}

/// Accesses of a sample of pages during a stretch of time, by scan: a page that is used between two
/// scans, however often, counts as accessed once.
///
/// The time since the access before is counted in scans. First accesses are those to pages that
/// were not there before. A page that was there when sampling began, and is accessed for the first
/// time since, counts with the time since then.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampledReuse {
    /// Scans within the stretch; without any, it says nothing of less memory.
    pub scans: f64,
    /// Scans for which every page had been watched when the stretch began: longer times are not
    /// told apart.
    pub watched_scans: u64,
    /// The share of all page frames that is in the sample; above 0.
    pub rate: f64,
    /// Pages of the sample that could be evicted, on average.
    pub sampled_pages: f64,
    /// Accesses to pages that the kernel knows to be used often: on its active lists.
    pub active: PageKinds<ReuseHistogram>,
    /// Accesses to other pages. Among these are frames that hold another page than at the scan
    /// before.
    pub inactive: PageKinds<ReuseHistogram>,
    /// Frames of the sample that got another page between two scans unseen, as far as counts of
    /// reclaim say.
    pub recycled: PageKinds<f64>,
}

impl SampledReuse {
    /// All accesses. Recycled frames count as first accesses: those of the inactive pages with the
    /// longest times, because reclaim takes what has not been used for longest.
    fn accesses(&self) -> PageKinds<ReuseHistogram> {
        let join = |active: &ReuseHistogram, inactive: &ReuseHistogram, recycled: f64| {
            let mut all = inactive.clone();
            all.forget_longest(recycled);
            all.add_scaled(active, 1.0);
            all
        };
        PageKinds {
            anon: join(&self.active.anon, &self.inactive.anon, self.recycled.anon),
            file: join(&self.active.file, &self.inactive.file, self.recycled.file),
        }
    }
}

/// What was seen of a machine during a stretch of time. Pages are of the size of the machine's
/// pages; counts are sums over the stretch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObservedWindow {
    /// How long it lasted.
    pub seconds: f64,
    /// Memory that there was, in pages.
    pub memory_pages: f64,
    /// Of it, what cannot be evicted: the kernel's own, what is kept free, locked pages, and memory
    /// of programs if there is no swap.
    pub fixed_pages: f64,
    /// Of it, what can.
    pub evictable_pages: PageKinds<f64>,
    /// Pages that were read from a disk or swapped in.
    pub misses: PageKinds<f64>,
    /// Of the misses of files, pages that were read ahead and went unused: no look-up wanted them.
    pub unused_pages: f64,
    /// Pages of page cache that were looked up.
    pub lookups: f64,
    /// Time for which some task waited for memory or for a disk; nothing if that was not recorded.
    pub stall_seconds: Option<f64>,
    /// Of it, what the work took longer for at least: time in which nothing else was done, either.
    pub full_stall_seconds: f64,
    /// And at most; nothing if it may be all of it.
    pub most_lost_seconds: Option<f64>,
    /// Time that the kernel took on the processors of the work, most of which may be due to other
    /// things than misses; nothing if that was not recorded.
    pub kernel_seconds: Option<f64>,
    /// Of the misses, those of pages that had been there before.
    pub refaults: PageKinds<RefaultDistances>,
    /// Steps of the kernel's clock of these distances: evictions and activations; nothing if they
    /// were not recorded.
    pub clock_steps: Option<f64>,
    /// Reuse times; nothing if none were sampled.
    pub reuse: Option<SampledReuse>,
}

/// Misses of one stretch of time by the memory that there might have been.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowCurve {
    memory_pages: f64,
    fixed_pages: f64,
    evictable_pages: f64,
    misses: PageKinds<f64>,
    refaults: PageKinds<RefaultDistances>,
    refault_sizes: RefaultSizes,
    /// Hits that would be misses, by evictable pages; up to the memory that pages need whose reuse
    /// times could be told apart.
    more: PageKinds<MissCurve>,
    /// The relative deviation of the sample's size.
    deviation: f64,
}

/// What is not known exactly, for one draw of the bootstrap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurveDraw {
    /// Deviations by which the sample has more pages than its share.
    pub(crate) sample: f64,
    /// Where misses go that are only known to go between two sizes; evenly if nothing is given.
    pub(crate) place: Option<f64>,
    /// The share of the time in which only some tasks waited that the work was longer by.
    pub(crate) partly_stalled: f64,
    /// The share of the kernel's time, as far as it may be due to misses, that is.
    pub(crate) kernel: f64,
}

impl CurveDraw {
    /// The middle of what is known.
    pub(crate) const MIDDLE: Self =
        Self { sample: 0.0, place: None, partly_stalled: 0.5, kernel: 0.5 };
}

impl WindowCurve {
    /// From what was seen.
    ///
    /// Time is counted in scans. With F(t) the pages accessed per scan whose reuse time is longer
    /// than t, F(0) + … + F(T - 1) pages are used within T scans, which is what evicts a page that
    /// has been idle for T: the sum of the model of average eviction time, its unit of time being a
    /// scan rather than an access. A reuse time of t scans is one of (t - 1, t + 1) intervals, so
    /// the misses F(T) belong to the middle between T and T + 1.
    pub fn new(window: &ObservedWindow) -> Self {
        // Without a scan, nothing was seen of reuse.
        let reuse = window.reuse.as_ref().filter(|reuse| reuse.scans > 0.0);
        let more = reuse.map(more_misses).unwrap_or_default();
        let sampled = reuse.map_or(0.0, |reuse| reuse.sampled_pages);
        Self {
            memory_pages: window.memory_pages,
            fixed_pages: window.fixed_pages,
            evictable_pages: window.evictable_pages.sum(),
            misses: window.misses,
            refaults: window.refaults,
            refault_sizes: RefaultSizes::new(
                window.refaults.both(),
                window.misses.sum(),
                window.clock_steps,
            ),
            more,
            deviation: if sampled > 0.0 { sampled.sqrt().recip() } else { 0.0 },
        }
    }

    /// The least memory for which something was seen, in pages.
    pub fn begin(&self) -> f64 {
        let evictable = self.more.file.begin().unwrap_or(self.evictable_pages);
        self.fixed_pages + evictable.min(self.evictable_pages)
    }

    /// The most memory for which something was seen, in pages.
    pub fn end(&self) -> f64 {
        let sizes = &self.refault_sizes;
        let longest = self.refaults.both().into_iter().filter_map(|kind| sizes.longest(kind));
        self.memory_pages + longest.fold(0.0, f64::max)
    }

    /// Pages that would have been read with so many pages of memory; nothing if that is less than
    /// where the curve begins. Above its end, misses are those at its end.
    pub fn misses(&self, pages: f64) -> Option<PageKinds<f64>> {
        self.misses_of(pages, CurveDraw::MIDDLE)
    }

    pub(crate) fn misses_of(&self, pages: f64, draw: CurveDraw) -> Option<PageKinds<f64>> {
        if pages >= self.memory_pages {
            let gained = pages - self.memory_pages;
            let left = |misses: f64, refaults: &RefaultDistances| {
                let avoided = match draw.place {
                    None => self.refault_sizes.avoided(refaults, gained),
                    Some(place) => self.refault_sizes.avoided_at(refaults, gained, place),
                };
                (misses - avoided).max(0.0)
            };
            return Some(PageKinds {
                anon: left(self.misses.anon, &self.refaults.anon),
                file: left(self.misses.file, &self.refaults.file),
            });
        }
        let evictable = pages - self.fixed_pages;
        if evictable >= self.evictable_pages {
            return Some(self.misses);
        }
        if pages < self.begin() {
            return None;
        }
        let scale = (1.0 + draw.sample * self.deviation).max(0.1);
        let more = |curve: &MissCurve| self.more_at(curve, evictable, scale, draw.place);
        Some(PageKinds {
            anon: self.misses.anon + more(&self.more.anon),
            file: self.misses.file + more(&self.more.file),
        })
    }

    /// Hits that would be misses. Between the last point of the curve and what there was, those
    /// that are left at the last point go.
    fn more_at(&self, curve: &MissCurve, evictable: f64, scale: f64, place: Option<f64>) -> f64 {
        let (Some(first), Some(last)) = (curve.points().first(), curve.points().last()) else {
            return 0.0;
        };
        let pages = evictable / scale;
        if let Some(more) = curve.at(pages.max(first.0)) {
            return more * scale;
        }
        let end = last.0 * scale;
        let share = (evictable - end) / (self.evictable_pages - end);
        let left = match place {
            None => 1.0 - share.clamp(0.0, 1.0),
            Some(place) => f64::from(u8::from(share < place)),
        };
        last.1 * scale * left
    }
}

/// Hits that would be misses by evictable pages, as far as reuse times can be told apart.
fn more_misses(reuse: &SampledReuse) -> PageKinds<MissCurve> {
    let accesses = reuse.accesses();
    let per_scan = |time: u64| {
        let longer: f64 = accesses.both().iter().map(|kind| kind.longer_than(time)).sum();
        longer / (reuse.rate * reuse.scans)
    };
    let mut knots: Vec<u64> = accesses.both().into_iter().flat_map(ReuseHistogram::knots).collect();
    knots.push(reuse.watched_scans);
    knots.sort_unstable();
    knots.dedup();
    let mut points = PageKinds::<Vec<(f64, f64)>>::default();
    let knots = knots.into_iter().filter(|knot| (1..=reuse.watched_scans).contains(knot));
    for sum in eviction_sums(knots, per_scan) {
        let size = sum.pages + sum.longer / 2.0;
        let again =
            |kind: &ReuseHistogram| (kind.longer_than(sum.time) - kind.first()) / reuse.rate;
        points.anon.push((size, again(&accesses.anon).max(0.0)));
        points.file.push((size, again(&accesses.file).max(0.0)));
    }
    PageKinds { anon: MissCurve::new(points.anon), file: MissCurve::new(points.file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over 1000 pages that takes ten scans, watched through a sample of a tenth.
    fn looping() -> ObservedWindow {
        let mut file = ReuseHistogram::default();
        file.add(10, 1000.0);
        ObservedWindow {
            seconds: 100.0,
            memory_pages: 3000.0,
            fixed_pages: 500.0,
            evictable_pages: PageKinds { anon: 0.0, file: 1200.0 },
            misses: PageKinds { anon: 0.0, file: 7.0 },
            lookups: 10_000.0,
            reuse: Some(SampledReuse {
                scans: 100.0,
                watched_scans: 50,
                rate: 0.1,
                sampled_pages: 120.0,
                active: PageKinds { file, ..PageKinds::default() },
                ..SampledReuse::default()
            }),
            ..ObservedWindow::default()
        }
    }

    #[test]
    fn a_loop_hits_with_all_of_its_pages_and_misses_with_fewer() {
        let curve = WindowCurve::new(&looping());
        // 100 pages a scan; half of a scan's below the loop all is lost, half above nothing.
        for (pages, misses) in [(700.0, 10_007.0), (1400.0, 10_007.0), (1550.0, 7.0), (3000.0, 7.0)]
        {
            let found = curve.misses(pages).unwrap().file;
            assert!((found - misses).abs() < 1e-6, "{pages}: {found}");
        }
        // Below what is used between two scans, and half of another, nothing was seen.
        assert!((curve.begin() - 650.0).abs() < 1e-9);
        assert_eq!(curve.misses(600.0), None);
    }

    #[test]
    fn what_was_idle_for_longer_than_anything_was_watched_goes_up_to_what_there_was() {
        let mut window = looping();
        window.reuse.as_mut().unwrap().active.file.add(80, 10.0);
        let curve = WindowCurve::new(&window);
        let last = curve.more.file.points().last().copied().unwrap();
        assert!((last.1 - 100.0).abs() < 1e-9);
        let at = |pages, place| {
            curve.misses_of(pages, CurveDraw { place, ..CurveDraw::MIDDLE }).unwrap().file - 7.0
        };
        let middle = 500.0 + f64::midpoint(last.0, 1200.0);
        assert!((at(middle, None) - 50.0).abs() < 1e-6);
        assert!((at(middle, Some(0.6)) - 100.0).abs() < 1e-6 && at(middle, Some(0.4)) < 1e-9);
        assert!(at(1700.0, Some(0.9)) < 1e-9);
    }

    #[test]
    fn more_memory_avoids_refaults_and_no_more_than_these() {
        let mut window = ObservedWindow { reuse: None, ..looping() };
        window.refaults.file.add(8, 5.0);
        let curve = WindowCurve::new(&window);
        assert_eq!((curve.begin(), curve.end()), (1700.0, 3512.0));
        for (pages, misses) in [(3000.0, 7.0), (3256.0, 7.0), (3384.0, 4.5), (3512.0, 2.0)] {
            let found = curve.misses(pages).unwrap().file;
            assert!((found - misses).abs() < 1e-9, "{pages}: {found}");
        }
    }

    #[test]
    fn a_stretch_without_a_scan_says_nothing_of_less_memory() {
        let mut window = looping();
        window.reuse.as_mut().unwrap().scans = 0.0;
        let curve = WindowCurve::new(&window);
        assert!((curve.begin() - 1700.0).abs() < 1e-9, "{}", curve.begin());
        assert!(curve.misses(1699.0).is_none() && curve.misses(1700.0).is_some());
    }

    #[test]
    fn frames_that_got_another_page_are_no_reuse() {
        let mut window = looping();
        let reuse = window.reuse.as_mut().unwrap();
        reuse.inactive.file.add(40, 30.0);
        let with = WindowCurve::new(&window).misses(1600.0).unwrap().file;
        window.reuse.as_mut().unwrap().recycled.file = 30.0;
        let without = WindowCurve::new(&window).misses(1600.0).unwrap().file;
        assert!(with > 250.0 && (without - 7.0).abs() < 1e-6, "{with} {without}");
    }
}
