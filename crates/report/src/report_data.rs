//! The data of figures: runs as tables. The code that reads files fills these; this module reads
//! none.

use std::fmt;
use std::rc::Rc;

use ramslice_types::{Bytes, CacheRatios, CensusTotals, PageComposition, PageCounts, Pages};

use crate::rest_data::{ColdAccesses, RestStudy};
use crate::scale::digits;
use crate::size_data::SizeStudy;
use crate::slice_history::SliceChanges;

/// Everything that a report is about.
#[derive(Debug, Clone, Default)]
pub struct ReportData {
    /// Machines over time. Figures share them: of 8192 slices, each census has a MiB.
    pub recorded: Vec<Rc<RecordingData>>,
    /// What `/proc/meminfo` said over time.
    pub statistics: Vec<StatisticsData>,
    /// How often the page cache had what was looked up.
    pub page_cache: Vec<PageCacheData>,
    /// Slices that were emptied, with what it cost.
    pub prices: Vec<PriceSamples>,
    /// Joules by setting.
    pub energy: Vec<RunEnergy>,
    /// Times of requests.
    pub latencies: Vec<LatencySamples>,
    /// Programs with less and less memory.
    pub sizes: Vec<SizeStudy>,
    /// How long slices with cold values would rest.
    pub rest: Vec<RestStudy>,
    /// How often cold values are reached.
    pub cold_accesses: Vec<ColdAccesses>,
}

/// The statistics of a recording, with or without slices.
#[derive(Debug, Clone)]
pub struct StatisticsData {
    /// How figures call it.
    pub name: String,
    /// Seconds are those of an emulator, not real ones.
    pub emulated: bool,
    /// Memory at each sample, by time.
    pub moments: Vec<MemoryMoment>,
}

/// Memory at one moment, by `/proc/meminfo`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MemoryMoment {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemFree`.
    pub free: Bytes,
    /// `Buffers`, `Cached` and `SwapCached`.
    pub cached: Bytes,
}

impl MemoryMoment {
    /// Bytes that are not free.
    pub fn used(&self) -> u64 {
        self.total.0.saturating_sub(self.free.0)
    }

    /// The same without page cache.
    pub fn used_without_cache(&self) -> u64 {
        self.used().saturating_sub(self.cached.0)
    }
}

/// The page cache over a recording.
#[derive(Debug, Clone)]
pub struct PageCacheData {
    /// How figures call it.
    pub name: String,
    /// Seconds are those of an emulator, not real ones.
    pub emulated: bool,
    /// Both ratios, by time.
    pub intervals: Vec<LookupInterval>,
    /// Watermarks that follow the hit ratio at each sample, by time; none without a daemon that has
    /// such.
    pub marks: Vec<MarkMoment>,
    /// When they moved, in seconds since the first sample, and why.
    pub moves: Vec<(f64, String)>,
}

impl PageCacheData {
    /// Seconds until the last of what is known.
    pub(crate) fn span(&self) -> f64 {
        let intervals = self.intervals.last().map_or(0.0, |one| one.seconds);
        self.marks.last().map_or(0.0, |one| one.seconds).max(intervals).max(1e-3)
    }
}

/// Both ratios over an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookupInterval {
    /// When it began, in seconds since the first sample.
    pub begun_seconds: f64,
    /// When it ended.
    pub seconds: f64,
    /// The ratios, and what was looked up.
    pub ratios: CacheRatios,
}

/// Watermarks that follow the hit ratio, at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarkMoment {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// Memory that is not off; unknown in a recording without slices.
    pub active: Option<Bytes>,
    /// `CACHE_FREE_LOW`, of all zones.
    pub low: Bytes,
    /// `CACHE_FREE_HIGH`, of all zones.
    pub high: Bytes,
}

/// A recording.
#[derive(Debug, Clone)]
pub struct RecordingData {
    /// How figures call it.
    pub name: String,
    /// Seconds are those of an emulator, not real ones.
    pub emulated: bool,
    /// The power driver reports slices that are off to the host of this virtual machine.
    pub reports_to_host: bool,
    /// The size of a slice at the first moment.
    pub slice_bytes: Bytes,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// The machine at each sample, by time.
    pub moments: Vec<MachineMoment>,
    /// What becomes of each slice from one of these moments to the next, by time.
    pub slice_changes: SliceChanges,
    /// Every page at some of the samples, by time; mostly none.
    pub censuses: Vec<CensusMoment>,
    /// When slices were being emptied: from, to, in seconds since the first sample.
    pub compactions: Vec<(f64, f64)>,
    /// Each attempt to empty a slice, by time; none without trace events.
    pub attempts: Vec<EmptyingAttempt>,
    /// Seconds since boot of the first sample, on the clock that goes on during suspend.
    pub begun_seconds: f64,
}

/// A machine at one moment.
#[derive(Debug, Clone)]
pub struct MachineMoment {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// Pages of all slices by kind.
    pub pages: PageComposition,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// Slices in which something is in use.
    pub holding_slices: u64,
    /// Of these such that are on and more than 90% free.
    pub nearly_free_slices: u64,
    /// Slices that are off.
    pub offline_slices: u64,
}

/// An attempt to empty a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmptyingAttempt {
    /// When it ended, in seconds since the first sample.
    pub seconds: f64,
    /// The slice.
    pub slice: u32,
    /// It went off.
    pub freed: bool,
    /// Pages moved out of it, also by one that failed.
    pub migrated: Pages,
    /// Clean cache dropped for it.
    pub dropped: Pages,
}

/// What emptying slices took, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EmptyingTotals {
    /// Slices that went off and had held something.
    pub emptied: u64,
    /// Slices that went off and were empty already.
    pub empty: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Pages moved by all of them.
    pub migrated: Pages,
    /// Clean cache dropped by all of them.
    pub dropped: Pages,
    /// Of those emptied: the mean share of a slice that had to be moved.
    pub migrated_share: f64,
    /// Of those emptied: the mean share of a slice that was in use.
    pub used_share: f64,
}

impl RecordingData {
    /// Pages of a slice.
    pub fn frames(&self) -> Pages {
        self.slice_bytes.pages(self.page_bytes)
    }

    /// The attempts, summed up.
    pub fn emptying(&self) -> EmptyingTotals {
        let (mut sums, frames) = (EmptyingTotals::default(), self.frames());
        for one in &self.attempts {
            let used = one.migrated + one.dropped;
            sums.migrated += one.migrated;
            sums.dropped += one.dropped;
            match (one.freed, used > Pages::ZERO) {
                (false, _) => sums.failed += 1,
                (true, false) => sums.empty += 1,
                (true, true) => {
                    sums.emptied += 1;
                    sums.migrated_share += one.migrated.share_of(frames);
                    sums.used_share += used.share_of(frames);
                }
            }
        }
        let count = sums.emptied.max(1) as f64;
        (sums.migrated_share, sums.used_share) =
            (sums.migrated_share / count, sums.used_share / count);
        sums
    }
}

/// Every page of a machine at one moment.
#[derive(Debug, Clone)]
pub struct CensusMoment {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// c, its bound, and how far pages that stay are scattered.
    pub totals: CensusTotals,
    /// Each slice: its id, and its pages by what they are used for.
    pub slices: Vec<(u32, PageCounts)>,
}

impl CensusMoment {
    /// Slices in which something is in use.
    pub fn holding_slices(&self) -> u64 {
        self.slices.iter().filter(|(_, pages)| pages.used() > Pages::ZERO).count() as u64
    }

    /// Pages in use.
    pub fn used(&self) -> Pages {
        self.slices.iter().map(|(_, pages)| pages.used()).sum()
    }
}

/// What emptying slices cost.
#[derive(Debug, Clone)]
pub struct PriceSamples {
    /// How figures call it.
    pub name: String,
    /// Words for the parameters in force when they were emptied; empty if there are none but that.
    pub in_force: String,
    /// Why no model was fitted, if none was.
    pub unfitted: Option<String>,
    /// The slices.
    pub samples: Vec<PricedSlice>,
}

/// The origin of the contents of an emptied slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentsSource {
    /// Filled on purpose; models are fitted to these.
    Filled,
    /// What programs left there; models are judged by these.
    Programs,
    /// From an everyday request; where there are no others, parameters in force are fitted to
    /// these.
    Everyday,
}

/// One slice that was emptied. Costs are in CPU cycles.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedSlice {
    /// The mixture or program.
    pub label: String,
    /// The origin of its contents.
    pub source: ContentsSource,
    /// Page frames.
    pub frames_pages: u64,
    /// Clean cache to be dropped.
    pub drop_pages: u64,
    /// Pages to be migrated.
    pub move_pages: u64,
    /// Mappings of these.
    pub mappings: u64,
    /// Expected, by the parameters in force.
    pub predicted_cycles: f64,
    /// Expected by the model that was fitted.
    pub fitted_cycles: Option<f64>,
    /// Needed.
    pub measured_cycles: f64,
}

/// A low and a high end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl ValueRange {
    /// In between.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// So many times as much, which is not negative.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }
}

/// Whether it paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GainVerdict {
    /// More was saved than spent.
    Gain,
    /// Less.
    Loss,
    /// Undecided: 0 lies in the interval, or a cost that may outweigh it was not counted.
    Undecided,
}

/// What a request may spend.
#[derive(Debug, Clone, PartialEq)]
pub enum RunBudget {
    /// Nothing was emptied.
    None,
    /// This many CPU cycles.
    Cycles(f64),
    /// What a policy decided, which has this name.
    Policy(String),
    /// Anything.
    Unlimited,
}

impl fmt::Display for RunBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => f.write_str(name),
            Self::None => f.write_str("nothing"),
            Self::Cycles(cycles) => write!(f, "{} M", digits(cycles / 1e6)),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// Joules of one run.
#[derive(Debug, Clone)]
pub struct RunEnergy {
    /// How figures call it.
    pub name: String,
    /// The sweep over budgets that it is of, if it is: each has figures of its own, with this in
    /// their headings.
    pub sweep: Option<String>,
    /// What each request was allowed.
    pub budget: RunBudget,
    /// Saved.
    pub saved: ValueRange,
    /// What perfectly packed memory without freeable pages would have saved in the same time.
    pub attainable: Option<ValueRange>,
    /// Invested, as far as known.
    pub invested: ValueRange,
    /// Saved less invested.
    pub net: ValueRange,
    /// What it comes to.
    pub verdict: GainVerdict,
    /// Not all costs could be counted: what is missing, for a note.
    pub uncounted: Vec<String>,
    /// What it is by: profile, state, clock.
    pub basis: String,
}

/// Times that requests to a program took.
#[derive(Debug, Clone)]
pub struct LatencySamples {
    /// How figures call it.
    pub name: String,
    /// When each was sent, in seconds since boot, and how long it took, in milliseconds; by time.
    pub requests: Vec<(f64, f64)>,
    /// When slices were being emptied, in the same seconds; from a recording of the same boot.
    pub compactions: Vec<(f64, f64)>,
}
