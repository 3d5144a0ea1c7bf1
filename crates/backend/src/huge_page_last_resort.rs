//! The last resort for huge pages: ranges that nothing but objects of the kernel keeps, tried again
//! once the caches of these objects are shrunk.

use std::collections::BTreeMap;

use ramslice_types::{
    Backend, BackendError, Bytes, ContentsDetail, PageClass, Pages, SliceContents, SliceId,
};

use crate::huge_page_making::HugePageRange;
use crate::object_caches::ShrinkStep;

/// Pages of a range that can be neither moved nor dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StayingPages {
    /// Of objects of the kernel, which go if the kernel can make each object of theirs again.
    pub slab: Pages,
    /// Of any other use: page tables, buffers, pinned memory.
    pub other: Pages,
}

impl StayingPages {
    fn add(&mut self, contents: &SliceContents) {
        for run in contents.blocking() {
            match run.class {
                PageClass::Slab => self.slab += run.pages,
                _ => self.other += run.pages,
            }
        }
    }

    fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether shrinking caches could empty the range: nothing but objects keeps it, and there are
    /// at least as many pages of caches that the kernel can shrink.
    ///
    /// One page of another use would keep the range on whatever goes, and all programs would have
    /// lost their cached inodes for nothing.
    fn could_go(self, reclaimable: Pages) -> bool {
        self.other == Pages::ZERO && self.slab > Pages::ZERO && self.slab <= reclaimable
    }
}

/// What the last resort does to the machine.
pub trait LastResortActions {
    /// Pages in caches that the kernel can shrink.
    ///
    /// # Errors
    /// They cannot be read.
    fn reclaimable(&self) -> Result<Pages, BackendError>;

    /// Shrinks caches, and returns how many pages that freed.
    ///
    /// # Errors
    /// It is not allowed.
    fn shrink(&mut self, step: ShrinkStep) -> Result<Pages, BackendError>;

    /// Makes a page of a range; returns why it failed, if it did.
    ///
    /// # Errors
    /// See [`make_huge_page`](crate::make_huge_page).
    fn make(&mut self, range: &HugePageRange) -> Result<Option<String>, BackendError>;

    /// Whether to stop.
    fn interrupted(&self) -> bool;
}

/// One time that caches were shrunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShrinkRound {
    /// What was shrunk.
    pub step: ShrinkStep,
    /// Pages of slab that it freed.
    pub freed: Pages,
    /// Huge pages that could be made then.
    pub made: u64,
}

/// How the last resort went.
#[derive(Debug, Default)]
pub struct LastResortReport {
    /// Ranges that nothing but objects kept at first.
    pub near: usize,
    /// What was done, in order.
    pub rounds: Vec<ShrinkRound>,
    /// Huge pages made without shrinking: what kept these ranges had gone by itself.
    pub made_at_once: u64,
    /// Ranges that were tried or could not be, by address, and why each became no page.
    pub ranges: BTreeMap<Bytes, Option<String>>,
    /// Why pages could not be read or caches not be shrunk, after what was done.
    pub failure: Option<String>,
}

impl LastResortReport {
    /// Huge pages made in all.
    pub fn made(&self) -> u64 {
        self.made_at_once + self.rounds.iter().map(|round| round.made).sum::<u64>()
    }
}

/// Ranges that only shrinking could make pages of: nothing but objects keeps them.
///
/// # Errors
/// Their pages cannot be read.
pub fn ranges_kept_by_objects<'a>(
    backend: &dyn Backend,
    ranges: impl IntoIterator<Item = &'a HugePageRange>,
    reclaimable: Pages,
) -> Result<Vec<&'a HugePageRange>, BackendError> {
    let seen = look(backend, changeable(ranges))?;
    Ok(near(&seen, reclaimable).into_iter().map(|(range, _)| range).collect())
}

/// Makes up to `missing` pages of ranges that objects of the kernel keep, by carrying out `steps`
/// in order while there is such a range. `steps` may have the same one several times, because
/// objects that were used a moment ago survive the first: it is repeated only if it brought
/// something, a page or fewer objects in these ranges.
///
/// Which ranges these are, their pages say, as they are now: those of a snapshot may be older.
///
/// # Errors
/// A page cannot be made for want of access to the pool. What cannot be read or shrunk is no error:
/// the report says so.
pub fn make_by_shrinking(
    backend: &dyn Backend,
    ranges: &[&HugePageRange],
    missing: u64,
    steps: &[ShrinkStep],
    actions: &mut dyn LastResortActions,
) -> Result<LastResortReport, BackendError> {
    let mut report = LastResortReport::default();
    let first = look(backend, changeable(ranges.iter().copied()))
        .and_then(|seen| Ok((near(&seen, actions.reclaimable()?), seen)));
    let (mut candidates, mut empty) = match first {
        Ok(found) => found,
        Err(error) => {
            report.failure = Some(error.to_string());
            return Ok(report);
        }
    };
    report.near = candidates.len();
    // Of those that a snapshot alone blocked: the others were tried
    empty.retain(|(range, pages)| range.blocked.is_some() && pages.is_none());
    report.made_at_once = try_ranges(&empty, missing, actions, &mut report.ranges)?;

    let mut helped = true;
    let mut previous = None;
    for &step in steps {
        let missing = missing - report.made();
        if missing == 0 || candidates.is_empty() || actions.interrupted() {
            break;
        }
        if previous.replace(step) == Some(step) && !helped {
            continue;
        }
        let shrunk = actions.shrink(step).and_then(|freed| {
            let seen = look(backend, candidates.iter().map(|&(range, _)| range))?;
            Ok((freed, near(&seen, actions.reclaimable()?), seen))
        });
        let (freed, near, mut empty) = match shrunk {
            Ok(found) => found,
            Err(error) => {
                report.failure = Some(error.to_string());
                break;
            }
        };
        helped = sum(&empty) < sum(&candidates);
        candidates = near;
        empty.retain(|(_, pages)| pages.is_none());
        let made = try_ranges(&empty, missing, actions, &mut report.ranges)?;
        report.rounds.push(ShrinkRound { step, freed, made });
    }
    for (range, pages) in candidates {
        report.ranges.insert(range.start, Some(format!("{} pages of slab stay", pages.slab)));
    }
    Ok(report)
}

type SeenRange<'a> = (&'a HugePageRange, StayingPages);

/// What stays in each range; a slice that several ranges touch is read once.
fn look<'a>(
    backend: &dyn Backend,
    ranges: impl IntoIterator<Item = &'a HugePageRange>,
) -> Result<Vec<SeenRange<'a>>, BackendError> {
    let mut read: BTreeMap<SliceId, StayingPages> = BTreeMap::new();
    let mut seen = Vec::new();
    for range in ranges {
        let mut pages = StayingPages::default();
        for &id in &range.to_empty {
            let one = match read.get(&id) {
                Some(one) => *one,
                None => {
                    let mut one = StayingPages::default();
                    one.add(&backend.contents(id, ContentsDetail::default())?);
                    *read.entry(id).or_insert(one)
                }
            };
            pages.slab += one.slab;
            pages.other += one.other;
        }
        seen.push((range, pages));
    }
    Ok(seen)
}

/// Those that shrinking could empty.
fn near<'a>(seen: &[SeenRange<'a>], reclaimable: Pages) -> Vec<SeenRange<'a>> {
    seen.iter().copied().filter(|(_, pages)| pages.could_go(reclaimable)).collect()
}

/// Those that a change of the kernel's pages could empty.
fn changeable<'a>(
    ranges: impl IntoIterator<Item = &'a HugePageRange>,
) -> impl Iterator<Item = &'a HugePageRange> {
    ranges.into_iter().filter(|range| !range.blocked_for_good)
}

fn sum(seen: &[SeenRange<'_>]) -> Pages {
    seen.iter().map(|(_, pages)| pages.slab).sum()
}

/// Tries them, cheapest first, until as many pages are made; returns how many.
fn try_ranges(
    ranges: &[SeenRange<'_>],
    missing: u64,
    actions: &mut dyn LastResortActions,
    outcomes: &mut BTreeMap<Bytes, Option<String>>,
) -> Result<u64, BackendError> {
    let mut ranges: Vec<_> = ranges.iter().map(|&(range, _)| range).collect();
    ranges.sort_by_key(|range| (range.price, std::cmp::Reverse(range.start)));
    let mut made = 0;
    for range in ranges {
        if made == missing || actions.interrupted() {
            break;
        }
        let refused = actions.make(range)?;
        made += u64::from(refused.is_none());
        outcomes.insert(range.start, refused);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use ramslice_types::{BackendErrorKind, NodeId, Price, Reason, ZoneNumber};

    use super::*;
    use crate::huge_page_test_backend::StayingBackend;
    use crate::whatif::ZoneKey;

    /// Shrinking frees so many pages of each slice, the next number each time.
    struct ShrinkingMachine<'a> {
        backend: &'a StayingBackend,
        frees: VecDeque<u64>,
        steps: Vec<ShrinkStep>,
        is_allowed: bool,
        tried: Vec<SliceId>,
    }

    impl LastResortActions for ShrinkingMachine<'_> {
        fn reclaimable(&self) -> Result<Pages, BackendError> {
            Ok(Pages(1000))
        }

        fn shrink(&mut self, step: ShrinkStep) -> Result<Pages, BackendError> {
            if !self.is_allowed {
                return Err(BackendError::new(BackendErrorKind::Permission, "it is locked"));
            }
            self.steps.push(step);
            let most = Pages(self.frees.pop_front().unwrap_or_default());
            let mut freed = Pages::ZERO;
            for pages in self.backend.slices.lock().unwrap().iter_mut() {
                freed += pages.slab.min(most);
                pages.slab = pages.slab.saturating_sub(most);
            }
            Ok(freed)
        }

        fn make(&mut self, range: &HugePageRange) -> Result<Option<String>, BackendError> {
            let slices = self.backend.slices.lock().unwrap();
            self.tried.push(range.to_empty[0]);
            let stays = range.to_empty.iter().any(|id| !slices[id.0 as usize].is_none());
            Ok(stays.then(|| "it is not empty".to_owned()))
        }

        fn interrupted(&self) -> bool {
            false
        }
    }

    fn slab(pages: u64) -> StayingPages {
        StayingPages { slab: Pages(pages), other: Pages::ZERO }
    }

    /// A range of a slice.
    fn range(id: u32) -> HugePageRange {
        HugePageRange {
            start: Bytes(u64::from(id) << 30),
            zone: ZoneKey { node: NodeId(0), zone: ZoneNumber(0) },
            to_empty: vec![SliceId(id)],
            price: Price(u64::from(id)),
            blocked: Some((SliceId(id), Reason::Slab)),
            blocked_for_good: false,
            failed_lately: false,
        }
    }

    const STEPS: [ShrinkStep; 4] =
        [ShrinkStep::EmptySlabs, ShrinkStep::Objects, ShrinkStep::Objects, ShrinkStep::Objects];

    struct Run {
        report: LastResortReport,
        steps: Vec<ShrinkStep>,
        tried: Vec<SliceId>,
    }

    /// One range for each slice; `change` may alter the ranges.
    fn run(
        slices: &[StayingPages],
        missing: u64,
        frees: &[u64],
        change: impl Fn(&mut Vec<HugePageRange>, &mut bool),
    ) -> Run {
        let backend =
            StayingBackend { slices: Mutex::new(slices.to_vec()), ..StayingBackend::default() };
        let mut ranges: Vec<_> = (0..).map(range).take(slices.len()).collect();
        let mut is_allowed = true;
        change(&mut ranges, &mut is_allowed);
        let ranges: Vec<_> = ranges.iter().collect();
        let mut machine = ShrinkingMachine {
            backend: &backend,
            frees: frees.iter().copied().collect(),
            steps: Vec::new(),
            is_allowed,
            tried: Vec::new(),
        };
        let report = make_by_shrinking(&backend, &ranges, missing, &STEPS, &mut machine).unwrap();
        Run { report, steps: machine.steps, tried: machine.tried }
    }

    fn as_they_are(_ranges: &mut Vec<HugePageRange>, _is_allowed: &mut bool) {}

    #[test]
    fn a_range_that_objects_alone_keep_becomes_a_page_once_they_are_gone() {
        let done = run(&[slab(3), slab(50)], 2, &[1, 5, 0], as_they_are);
        assert_eq!((done.report.near, done.report.made()), (2, 1));
        // The last one freed nothing of what is left, and is not repeated
        let made: Vec<_> = done.report.rounds.iter().map(|round| round.made).collect();
        assert_eq!((done.steps, made), (STEPS[..3].to_vec(), vec![0, 1, 0]));
        assert_eq!(done.report.rounds[1].freed, Pages(2 + 5));
        let why = done.report.ranges[&Bytes(1 << 30)].as_deref();
        assert_eq!(why, Some("44 pages of slab stay"));
    }

    #[test]
    fn nothing_is_shrunk_for_ranges_that_it_could_not_empty() {
        let mixed = StayingPages { slab: Pages(1), other: Pages(1) };
        // Page tables, too; more than can be shrunk; a slice that is held
        let done = run(&[mixed, slab(1001), slab(1)], 3, &[1000], |ranges, _| {
            ranges[2].blocked_for_good = true;
        });
        assert_eq!((done.report.near, done.steps.len(), done.tried.len()), (0, 0, 0));
    }

    #[test]
    fn no_more_is_shrunk_than_the_pages_that_are_missing_take() {
        let done = run(&[slab(2), slab(1), slab(9)], 1, &[2, 9], as_they_are);
        assert_eq!(done.steps, [ShrinkStep::EmptySlabs]);
        // Of those that are empty, the cheapest
        assert_eq!((done.report.made(), done.tried), (1, vec![SliceId(0)]));
    }

    #[test]
    fn a_range_whose_pages_have_gone_by_themselves_is_tried_before_anything_is_shrunk() {
        let tried_before = |ranges: &mut Vec<HugePageRange>, _: &mut bool| ranges[1].blocked = None;
        let done = run(&[slab(0), slab(0)], 2, &[], tried_before);
        assert_eq!((done.report.made_at_once, done.report.near), (1, 0));
        assert_eq!((done.tried, done.steps.len()), (vec![SliceId(0)], 0));
    }

    #[test]
    fn what_may_not_be_shrunk_is_reported() {
        let done = run(&[slab(3)], 1, &[3], |_, is_allowed| *is_allowed = false);
        assert_eq!(done.report.failure.as_deref(), Some("it is locked"));
        assert_eq!((done.report.made(), done.report.near), (0, 1));
    }

    #[test]
    fn what_may_not_be_read_is_reported_and_nothing_is_shrunk() {
        let unknown = |ranges: &mut Vec<HugePageRange>, _: &mut bool| {
            ranges[0].to_empty.push(SliceId(99));
        };
        let done = run(&[slab(3)], 1, &[3], unknown);
        assert_eq!(done.report.failure.as_deref(), Some("not a part of this test"));
        assert_eq!((done.steps.len(), done.tried.len()), (0, 0));
    }

    #[test]
    fn a_slice_of_several_ranges_is_read_once() {
        let backend =
            StayingBackend { slices: Mutex::new(vec![slab(1)]), ..StayingBackend::default() };
        let ranges = [range(0), range(0)];
        let found = ranges_kept_by_objects(&backend, &ranges, Pages(1)).unwrap();
        assert_eq!((found.len(), *backend.looks.lock().unwrap()), (2, 1));
        assert_eq!(ranges_kept_by_objects(&backend, &ranges, Pages(0)).unwrap().len(), 0);
    }
}
