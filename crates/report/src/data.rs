//! What figures are drawn from: runs as tables. Whoever reads files fills these; nothing here does.

use ramslice_types::{Bytes, CensusTotals, Composition, Kind, PageCounts, Pages};

/// Everything that a report is about.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// Machines over time.
    pub recorded: Vec<Recorded>,
    /// Slices that were emptied, with what it cost.
    pub prices: Vec<Prices>,
    /// Joules by setting.
    pub energy: Vec<Energy>,
    /// Times of requests.
    pub latencies: Vec<Latencies>,
}

/// A recording.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// How figures call it.
    pub name: String,
    /// Seconds are those of an emulator, not real ones.
    pub emulated: bool,
    /// The size of a slice at the first moment.
    pub slice_bytes: Bytes,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// The machine at each sample, by time.
    pub moments: Vec<Moment>,
    /// Every page at some of the samples, by time; mostly none.
    pub censuses: Vec<Counted>,
    /// When slices were being emptied: from, to, in seconds since the first sample.
    pub compactions: Vec<(f64, f64)>,
    /// Seconds since boot of the first sample, on the clock that goes on during suspend.
    pub begun_seconds: f64,
}

/// A machine at one moment.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// Pages of all slices by kind.
    pub pages: Composition,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// Slices in which something is in use.
    pub holding_slices: u64,
    /// Each slice: its id, and what keeps it from being off, or what it is.
    pub slices: Vec<(u32, Kind)>,
}

/// Every page of a machine at one moment.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Since the first sample, on the machine's own clock.
    pub seconds: f64,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// c, its bound, and how far pages that stay are scattered.
    pub totals: CensusTotals,
    /// Each slice: its id, and its pages by what they are used for.
    pub slices: Vec<(u32, PageCounts)>,
}

impl Counted {
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
pub struct Prices {
    /// How figures call it.
    pub name: String,
    /// The slices.
    pub samples: Vec<Priced>,
}

/// One slice that was emptied. Costs are in CPU cycles.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The mixture or program.
    pub label: String,
    /// What programs left there, rather than memory filled on purpose.
    pub held_out: bool,
    /// Page frames.
    pub frames_pages: u64,
    /// Clean cache to be dropped.
    pub drop_pages: u64,
    /// Pages to be migrated.
    pub move_pages: u64,
    /// Mappings of these.
    pub mappings: u64,
    /// Expected.
    pub predicted_cycles: f64,
    /// Needed.
    pub measured_cycles: f64,
}

/// A low and a high end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Range {
    /// In between.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// Whether it paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// More was saved than spent.
    Gain,
    /// Less.
    Loss,
    /// Nobody can say: 0 lies in the interval, or a cost that may outweigh it was not counted.
    Undecided,
}

/// What a request may spend.
#[derive(Debug, Clone, PartialEq)]
pub enum Budget {
    /// Nothing was emptied.
    None,
    /// This many CPU cycles.
    Cycles(f64),
    /// What a policy decided, which has this name.
    Policy(String),
    /// Anything.
    Unlimited,
}

/// Joules of one run.
#[derive(Debug, Clone)]
pub struct Energy {
    /// How figures call it.
    pub name: String,
    /// What each request was allowed.
    pub budget: Budget,
    /// Saved.
    pub saved: Range,
    /// What perfectly packed memory without freeable pages would have saved in the same time.
    pub attainable: Option<Range>,
    /// Invested, as far as known.
    pub invested: Range,
    /// Saved less invested.
    pub net: Range,
    /// What it comes to.
    pub verdict: Verdict,
    /// Not all costs could be counted: what is missing, for a note.
    pub uncounted: Vec<String>,
    /// What it is by: profile, state, clock.
    pub basis: String,
}

/// Times that requests to a program took.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// How figures call it.
    pub name: String,
    /// When each was sent, in seconds since boot, and how long it took, in milliseconds; by time.
    pub requests: Vec<(f64, f64)>,
    /// When slices were being emptied, in the same seconds; from a recording of the same boot.
    pub compactions: Vec<(f64, f64)>,
}
