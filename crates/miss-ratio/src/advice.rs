//! What each size of memory would cost, with intervals, and the least one that costs little.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::bootstrap::{WindowDraw, draws, interval};
use crate::window_curve::{ObservedWindow, PageKinds, WindowCurve};

/// Stretches of time that intervals need at least.
pub const WINDOWS_WANTED: usize = 6;
/// Fewer misses do not say what one costs.
const MISSES_WANTED: f64 = 100.0;
/// Sizes that are looked at up to the memory that there was; with more, steps grow.
const MOST_SIZES: f64 = 256.0;
/// The share of what is added to that memory by which the step grows: distances are known by powers
/// of two.
const GROWTH: f64 = 0.125;
/// What a multiple may be off by, as a share of the step.
const NOISE: f64 = 1e-6;
/// The share of its time that work takes at least, however few pages it waits for.
const LEAST_TIME: f64 = 1e-3;
/// More than a recording of that many times the length is not worth asking for.
const MOST_TIMES_LONGER: f64 = 100.0;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceSettings {
    /// The slowdown that is allowed, as a share; above 0 and at most 1.
    pub slowdown: f64,
    /// What a miss costs where the recording does not say.
    pub given_cost: Option<Duration>,
    /// Sizes are multiples of this many pages, beside the memory that there was; above 0.
    pub step_pages: f64,
    /// Of that memory, what only the recording took, in pages: sizes are without it.
    pub beside_pages: f64,
}

/// Why there is no advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdviceError {
    /// Too little was recorded.
    #[error("{have} stretches of time are too few for an interval: {WINDOWS_WANTED} are wanted")]
    TooFew {
        /// Stretches that there are.
        have: usize,
    },
    /// Nothing says what another size would do.
    #[error(
        "nothing was seen that says what another size would do: no reuse times were sampled, no \
         page came back, and no memory was free"
    )]
    NothingSeen,
    /// What a miss is said to cost cannot be.
    #[error(
        "a miss cannot have cost {cost:?}: in {seconds} s there were {misses}, which would have \
         taken longer than that; give by how much one makes the work longer"
    )]
    CostTooHigh {
        /// What was given.
        cost: Duration,
        /// A stretch of time, in whole seconds.
        seconds: u64,
        /// Its misses.
        misses: u64,
    },
}

/// A figure with the interval that holds it with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// What the cost of a miss rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// What misses cost in the recording, which had refaults.
    Refaults,
    /// What misses cost in the recording, nearly all of them first reads.
    FirstReads,
    /// It was given.
    Given,
}

/// How long the work waits for a page that has to be read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MissCost {
    /// The time for a page.
    pub seconds: Estimate,
    /// Where it is from.
    pub source: CostSource,
}

/// What is to be expected of one size of memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeOutlook {
    /// The size.
    pub pages: f64,
    /// Pages of page cache that no disk had to bring, of those looked up; nothing if none were.
    pub hit_ratio: Option<Estimate>,
    /// Pages read from a disk or swapped in, for each second.
    pub misses_per_second: Estimate,
    /// Of these, memory of programs.
    pub anon_misses_per_second: f64,
    /// Time that the same work takes, less what it takes with the most memory that the curve
    /// reaches, as a share of the latter; nothing if the cost of a miss is unknown.
    pub slowdown: Option<Estimate>,
}

/// The least memory that keeps the limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LeastMemory {
    /// With a probability of 97.5 %: the upper end of the interval keeps it.
    pub pages: f64,
    /// The curve begins less than a step below: less might do, too.
    pub at_most: bool,
    /// By the figure alone, without its interval.
    pub likely_pages: f64,
    /// How long stretches should last in all until the interval is narrow enough for
    /// `likely_pages`, in seconds; nothing if it is, or if no recording of reasonable length would
    /// do.
    pub record_seconds: Option<f64>,
}

/// What a recording says of the memory that its work needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryAdvice {
    /// From the least size of which something was seen to the largest.
    pub sizes: Vec<SizeOutlook>,
    /// What a miss costs; nothing if that is unknown.
    pub miss_cost: Option<MissCost>,
    /// The least memory that keeps the limit; nothing if the cost of a miss is unknown.
    pub least: Option<LeastMemory>,
    /// Stretches of time that this rests on, and how long they lasted in all.
    pub nr_windows: usize,
    /// Their time.
    pub seconds: f64,
}

/// The stretches with their curves.
struct CurveSet<'a> {
    windows: &'a [ObservedWindow],
    curves: Vec<WindowCurve>,
    cost: Option<CostSource>,
    given: f64,
    beside_pages: f64,
}

/// A draw, and what it has for all sizes.
struct DrawBase {
    draw: WindowDraw,
    cost: f64,
    lookups: f64,
    /// Pages of files that were read.
    read: f64,
    /// Of these, those that were read for no look-up.
    unused: f64,
    best_seconds: f64,
}

/// Sums over stretches, for one size.
struct SizeSums {
    misses: PageKinds<f64>,
    seconds: f64,
}

impl MemoryAdvice {
    /// Weighs what was seen in stretches of time, which may be of several recordings.
    ///
    /// With a miss costing s, a stretch of t seconds with m misses would take t + (m' - m) s with
    /// m' of them. Intervals are from resampled stretches, the size of the sample of pages, and
    /// places that are only known to lie between two sizes.
    ///
    /// # Errors
    /// [`AdviceError`].
    pub fn new(windows: &[ObservedWindow], settings: &AdviceSettings) -> Result<Self, AdviceError> {
        if windows.len() < WINDOWS_WANTED {
            return Err(AdviceError::TooFew { have: windows.len() });
        }
        let curves: Vec<_> = windows.iter().map(WindowCurve::new).collect();
        let most = |pages: &mut dyn Iterator<Item = f64>| {
            (pages.fold(0.0, f64::max) - settings.beside_pages).max(0.0)
        };
        let begin = most(&mut curves.iter().map(WindowCurve::begin));
        let end = most(&mut curves.iter().map(WindowCurve::end));
        let present = most(&mut windows.iter().map(|window| window.memory_pages));
        let sizes = sizes(begin, present, end, settings.step_pages);
        if sizes.len() < 2 {
            return Err(AdviceError::NothingSeen);
        }
        let given = settings.given_cost.map(|cost| cost.as_secs_f64());
        let cost = cost_source(windows, given.is_some());
        if let (Some(CostSource::Given), Some(given)) = (cost, settings.given_cost) {
            check_cost(windows, given)?;
        }
        let set = CurveSet {
            windows,
            curves,
            cost,
            given: given.unwrap_or_default(),
            beside_pages: settings.beside_pages,
        };
        let most = sizes.last().copied().unwrap_or(end);
        let middle = set.base(WindowDraw::middle(windows.len()), most);
        let draws: Vec<_> =
            draws(windows.len()).into_iter().map(|draw| set.base(draw, most)).collect();
        let mut outlooks: Vec<_> =
            sizes.iter().map(|&pages| set.outlook(pages, &middle, &draws)).collect();
        never_rising(&mut outlooks);
        let least = set.cost.and_then(|_| least(&outlooks, begin, settings, set.seconds()));
        Ok(Self {
            miss_cost: set.cost.map(|source| set.miss_cost(source, &middle, &draws)),
            least,
            nr_windows: windows.len(),
            seconds: set.seconds(),
            sizes: outlooks,
        })
    }
}

/// Multiples of the step from `begin` on, `present`, and `end`.
///
/// Above `present`, the step grows with what is added: `end` may be far off, because a single page
/// that comes back after days has a distance of many times the memory.
fn sizes(begin: f64, present: f64, end: f64, step: f64) -> Vec<f64> {
    let above = |pages: f64, step: f64| (pages / step - NOISE).ceil() * step;
    let fine = step * ((present - begin) / step / MOST_SIZES).ceil().max(1.0);
    let mut found = Vec::new();
    let mut next = above(begin, step);
    while next < present {
        found.push(next);
        next = above(next + step, fine);
    }
    found.push(present);
    next = above(present + step * NOISE, step);
    while next < end {
        found.push(next);
        next += step * ((next - present) * GROWTH / step).ceil().max(1.0);
    }
    found.push(end);
    // Means of whole numbers may be off by a little.
    found.dedup_by(|more, less| *more - *less < 0.5);
    found
}

/// Widens intervals of slowdowns so that neither end rises with memory, as no draw does: ends are
/// spread about figures that differ, and would cross by a little.
fn never_rising(outlooks: &mut [SizeOutlook]) {
    for at in (1..outlooks.len()).rev() {
        if let Some(more) = outlooks[at].slowdown
            && let Some(less) = &mut outlooks[at - 1].slowdown
        {
            less.high = less.high.max(more.high);
        }
    }
    for at in 1..outlooks.len() {
        if let Some(less) = outlooks[at - 1].slowdown
            && let Some(more) = &mut outlooks[at].slowdown
        {
            more.low = more.low.min(less.low);
        }
    }
}

/// Where the cost of a miss comes from.
fn cost_source(windows: &[ObservedWindow], given: bool) -> Option<CostSource> {
    let sum = |of: &dyn Fn(&ObservedWindow) -> f64| windows.iter().map(of).sum::<f64>();
    let stalls = windows.iter().all(|window| window.stall_seconds.is_some());
    let refaults = sum(&|window| window.refaults.file.total() + window.refaults.anon.total());
    if stalls && refaults >= MISSES_WANTED {
        Some(CostSource::Refaults)
    } else if stalls && sum(&|window| window.misses.sum()) >= MISSES_WANTED {
        Some(CostSource::FirstReads)
    } else {
        given.then_some(CostSource::Given)
    }
}

/// Refuses a cost with which work that never waited would have taken no time at all.
fn check_cost(windows: &[ObservedWindow], cost: Duration) -> Result<(), AdviceError> {
    let longer = |seen: &&ObservedWindow| seen.misses.sum() * cost.as_secs_f64() >= seen.seconds;
    windows.iter().find(longer).map_or(Ok(()), |seen| {
        let (seconds, misses) = (seen.seconds.round() as u64, seen.misses.sum().round() as u64);
        Err(AdviceError::CostTooHigh { cost, seconds, misses })
    })
}

/// Time that misses took of a stretch: what was waited, and a share of the kernel's time, which
/// brings pages in and makes room for them.
///
/// While all tasks wait, nothing is done; while only some do, it may depend on the work whether the
/// others make up for it. How much of the kernel's time is due to misses cannot be told apart from
/// other work. It is taken to be at most as long as the wait: a page's way through the kernel is no
/// longer than that to its disk.
fn lost_seconds(seen: &ObservedWindow, draw: &WindowDraw) -> Option<f64> {
    let some = seen.stall_seconds?;
    let most = seen.most_lost_seconds.unwrap_or(some).min(some);
    let full = seen.full_stall_seconds.min(most);
    let waited = full + draw.curve.partly_stalled * (most - full);
    Some(waited + draw.curve.kernel * seen.kernel_seconds.unwrap_or_default().min(some))
}

impl CurveSet<'_> {
    fn seconds(&self) -> f64 {
        self.windows.iter().map(|window| window.seconds).sum()
    }

    /// What is the same for all sizes: what a miss costs, look-ups, and the time with the most
    /// memory.
    fn base(&self, draw: WindowDraw, most: f64) -> DrawBase {
        let cost = if self.cost.is_some() { self.miss_seconds(&draw) } else { 0.0 };
        let sum = |of: &dyn Fn(&ObservedWindow) -> f64| -> f64 {
            self.windows.iter().zip(&draw.times).map(|(seen, times)| of(seen) * times).sum()
        };
        let (lookups, read) = (sum(&|seen| seen.lookups), sum(&|seen| seen.misses.file));
        let unused = sum(&|seen| seen.unused_pages);
        let best_seconds = self.sums(most, cost, &draw).seconds;
        DrawBase { draw, cost, lookups, read, unused, best_seconds }
    }

    /// Seconds that a miss costs.
    fn miss_seconds(&self, draw: &WindowDraw) -> f64 {
        if self.cost == Some(CostSource::Given) {
            return self.given;
        }
        let (mut stalls, mut misses) = (0.0, 0.0);
        for (seen, times) in self.windows.iter().zip(&draw.times) {
            stalls += lost_seconds(seen, draw).unwrap_or_default() * times;
            misses += seen.misses.sum() * times;
        }
        if misses > 0.0 { stalls / misses } else { 0.0 }
    }

    /// Misses and time with so many pages.
    fn sums(&self, pages: f64, cost: f64, draw: &WindowDraw) -> SizeSums {
        let mut sums = SizeSums { misses: PageKinds::default(), seconds: 0.0 };
        let all = self.windows.iter().zip(&self.curves).zip(&draw.times);
        for ((seen, curve), times) in all.filter(|(_, times)| **times > 0.0) {
            // Sizes begin where every curve has begun.
            let pages = pages + self.beside_pages;
            let misses = curve.misses_of(pages, draw.curve).unwrap_or(seen.misses);
            sums.misses.anon += misses.anon * times;
            sums.misses.file += misses.file * times;
            let more = (misses.sum() - seen.misses.sum()) * cost;
            // Time in which nothing waited goes by in any case.
            let stalls = lost_seconds(seen, draw).unwrap_or(seen.seconds);
            let least = (seen.seconds - stalls).max(seen.seconds * LEAST_TIME);
            sums.seconds += (seen.seconds + more).max(least) * times;
        }
        sums
    }

    /// Of one draw: hit ratio, misses per second, slowdown, and misses of programs' memory per
    /// second.
    fn figures(&self, pages: f64, base: &DrawBase) -> [f64; 4] {
        let here = self.sums(pages, base.cost, &base.draw);
        // What other sizes add to misses was used, and is wanted again; what they avoid was unused
        // as often as the rest.
        let left = if base.read > 0.0 { (here.misses.file / base.read).min(1.0) } else { 1.0 };
        let wanted = (here.misses.file - base.unused * left).max(0.0);
        let hits = 1.0 - wanted / base.lookups;
        [
            if base.lookups > 0.0 { hits.max(0.0) } else { 0.0 },
            here.misses.sum() / here.seconds,
            here.seconds / base.best_seconds - 1.0,
            here.misses.anon / here.seconds,
        ]
    }

    fn outlook(&self, pages: f64, middle: &DrawBase, draws: &[DrawBase]) -> SizeOutlook {
        let middle = self.figures(pages, middle);
        let all: Vec<_> = draws.iter().map(|base| self.figures(pages, base)).collect();
        let estimate = |which: usize| {
            let values = all.iter().map(|figures| figures[which]).collect();
            self.estimate(middle[which], values)
        };
        let looked_up = self.windows.iter().any(|window| window.lookups > 0.0);
        SizeOutlook {
            pages,
            hit_ratio: looked_up.then(|| {
                let found = estimate(0);
                Estimate { low: found.low.max(0.0), high: found.high.min(1.0), ..found }
            }),
            misses_per_second: Estimate { low: estimate(1).low.max(0.0), ..estimate(1) },
            anon_misses_per_second: middle[3],
            slowdown: self.cost.map(|_| estimate(2)),
        }
    }

    fn miss_cost(&self, source: CostSource, middle: &DrawBase, draws: &[DrawBase]) -> MissCost {
        let found = self.estimate(middle.cost, draws.iter().map(|base| base.cost).collect());
        MissCost { seconds: Estimate { low: found.low.max(0.0), ..found }, source }
    }

    fn estimate(&self, value: f64, drawn: Vec<f64>) -> Estimate {
        let (low, high) = interval(value, drawn, self.windows.len());
        Estimate { value, low, high }
    }
}

/// The least size from which on the limit is kept.
fn least(
    sizes: &[SizeOutlook],
    begin: f64,
    settings: &AdviceSettings,
    seconds: f64,
) -> Option<LeastMemory> {
    let keeps = |of: &dyn Fn(&Estimate) -> f64| {
        let above = |size: &SizeOutlook| {
            let kept = |slowdown: &Estimate| of(slowdown) <= settings.slowdown;
            !size.slowdown.as_ref().is_some_and(kept)
        };
        sizes.iter().rposition(above).map_or(0, |last| last + 1)
    };
    let (certain, likely) = (keeps(&|slowdown| slowdown.high), keeps(&|slowdown| slowdown.value));
    let (at, likely) = (sizes.get(certain)?, sizes.get(likely)?);
    let record_seconds = likely.slowdown.filter(|_| likely.pages < at.pages).and_then(|slowdown| {
        // Intervals narrow with the root of the time.
        let times = (slowdown.high - slowdown.value) / (settings.slowdown - slowdown.value);
        let times = times * times;
        (times.is_finite() && times <= MOST_TIMES_LONGER).then_some(seconds * times)
    });
    Some(LeastMemory {
        pages: at.pages,
        at_most: at.pages < begin + settings.step_pages * (1.0 - NOISE),
        likely_pages: likely.pages,
        record_seconds,
    })
}

#[cfg(test)]
mod tests;
