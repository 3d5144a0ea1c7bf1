//! Why a policy acts or not: plain data, so that a step formats no text, and sentences to read.

use std::fmt;
use std::time::Duration;

use ramslice_energy::WorthUnit;
use ramslice_types::{Budget, Pages, Ratio, Worth};

/// The reason for a decision. Its text is made only when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum DecisionReason {
    /// The policy never acts.
    #[default]
    Never,
    /// The period or time-out is not over.
    NotDue {
        /// Until then.
        wait: Duration,
    },
    /// The period is over.
    Due {
        /// The most that may be spent.
        budget: Budget,
        /// For each slice rather than for all.
        per_slice: bool,
    },
    /// Slices have been empty for long enough.
    EmptyForLong {
        /// So many of them.
        slices: u32,
        /// For so long.
        time: Duration,
    },
    /// A compaction is due, but memory is being taken.
    Growing {
        /// Pages taken since the last look.
        pages: Pages,
    },
    /// A compaction is due, but the processors have other work.
    Busy {
        /// For so long in the last period, as a sum over the processors.
        busy: Duration,
        /// Of so much time.
        within: Duration,
    },
    /// Both low watermarks are crossed.
    BelowLow {
        /// Free pages.
        free: Pages,
        /// Free pages and page cache.
        cache_free: Pages,
    },
    /// A high watermark is crossed.
    AboveHigh {
        /// Free pages.
        free: Pages,
        /// Free pages and page cache.
        cache_free: Pages,
        /// The one that is crossed.
        watermark: &'static str,
        /// Its value.
        limit: Pages,
    },
    /// Between the watermarks.
    BetweenWatermarks {
        /// Free pages.
        free: Pages,
        /// Free pages and page cache.
        cache_free: Pages,
    },
    /// The watermarks with cache rise: the hit ratio is below its target.
    RaisesMarks {
        /// Of the look-ups that count, the share that hit.
        ratio: Ratio,
        /// What is wanted.
        target: Ratio,
        /// Look-ups that count.
        lookups: Pages,
        /// `CACHE_FREE_LOW` from now on.
        low: Pages,
        /// `CACHE_FREE_HIGH` from now on.
        high: Pages,
    },
    /// The watermarks with cache sink: the hit ratio has kept its target for long.
    LowersMarks {
        /// Of the look-ups that count, the share that hit.
        ratio: Ratio,
        /// What is wanted.
        target: Ratio,
        /// For how many time-outs it was kept.
        timeouts: u32,
        /// `CACHE_FREE_LOW` from now on.
        low: Pages,
        /// `CACHE_FREE_HIGH` from now on.
        high: Pages,
    },
    /// The watermarks with cache stay: the hit ratio keeps its target.
    KeepsMarks {
        /// Of the look-ups that count, the share that hit.
        ratio: Ratio,
        /// What is wanted.
        target: Ratio,
        /// Look-ups that count.
        lookups: Pages,
        /// After how many more time-outs they sink; nothing at their lower bound.
        timeouts: Option<u32>,
    },
    /// The watermarks with cache stay: memory has yet to wake as they are.
    MarksFill {
        /// Of the look-ups that count, the share that hit.
        ratio: Ratio,
        /// What is wanted.
        target: Ratio,
        /// Free pages and page cache.
        cache_free: Pages,
        /// `CACHE_FREE_LOW`.
        low: Pages,
    },
    /// The watermarks with cache stay: they are at their upper bound.
    MarksAtMost {
        /// Of the look-ups that count, the share that hit.
        ratio: Ratio,
        /// What is wanted.
        target: Ratio,
        /// `CACHE_FREE_HIGH`.
        high: Pages,
    },
    /// The watermarks with cache stay: a ratio of so few look-ups says nothing.
    TooFewLookups {
        /// Look-ups that count.
        lookups: Pages,
        /// How many it takes.
        least: Pages,
    },
    /// The watermarks with cache stay: nothing counts look-ups.
    LookupsUnknown,
    /// Utilisation of online memory is below the threshold.
    Underused {
        /// Utilisation of online memory.
        utilisation: Ratio,
        /// Slices chosen at random.
        slices: u32,
    },
    /// Utilisation of online memory is above the threshold.
    Overused {
        /// Utilisation of online memory.
        utilisation: Ratio,
        /// Slices chosen at random.
        slices: u32,
    },
    /// Utilisation is between the thresholds.
    UsedWell {
        /// Utilisation of online memory.
        utilisation: Ratio,
    },
    /// A pass empties slices.
    Repairs {
        /// Slices that are empty already.
        empty: u32,
        /// Slices that are to be emptied.
        slices: u32,
        /// Pages that are to be moved for that, as far as is known.
        pages: Pages,
    },
    /// A pass found nothing to empty.
    Packed {
        /// Slices in use that hold nothing unmovable.
        slices: u32,
        /// Of these, slices that failed recently.
        resting: u32,
        /// Of these, slices of which too much would have to be moved.
        full: u32,
    },
    /// Slices should pay.
    Pays {
        /// Empty ones.
        empty: u32,
        /// Used ones.
        used: u32,
        /// What they put at risk.
        at_risk: Worth,
        /// The unit of that.
        unit: WorthUnit,
    },
    /// Slices go off because no limit of the tenant is against it. No profile says what they are
    /// worth.
    WithinLimits {
        /// Empty ones.
        empty: u32,
        /// Used ones.
        used: u32,
    },
    /// Tasks waited for memory for longer than the target.
    Stalled {
        /// The share of the time in which some task waited.
        stall: Ratio,
        /// The most that is allowed.
        target: Ratio,
        /// Slices that are to wake.
        wakes: u32,
    },
    /// Tasks waited for memory a moment ago.
    RestsAfterStall {
        /// Until slices may go off again.
        wait: Duration,
    },
    /// Less is free than the burst reserve.
    RestoresReserve {
        /// Free pages beyond the kernel's awake reserve.
        free: Pages,
        /// The burst reserve.
        reserve: Pages,
        /// Slices that are to wake.
        wakes: u32,
    },
    /// All online slices are needed.
    AllNeeded {
        /// How many, with the margin.
        need: u32,
    },
    /// No slice can be switched off, as far as is known.
    NoCandidate {
        /// Slices beyond what is needed.
        spare: u32,
    },
    /// Yesterday they were needed at this time.
    Expected {
        /// Slices beyond what is needed now.
        slices: u32,
    },
    /// A slice alone saves nothing, and which others must be off with it is not known.
    TooSmall {
        /// That the hardware switches as one.
        slices: u32,
    },
    /// No granule whose slices could all go off fits into what could be spared.
    NoGranule {
        /// Slices beyond what is needed.
        spare: u32,
        /// Slices of a granule.
        slices: u32,
    },
    /// Slices wake of granules that cannot be completed.
    GivesBack {
        /// So many.
        slices: u32,
    },
    /// Gaps in demand were too short to pay.
    NeverPays {
        /// Slices beyond what is needed.
        spare: u32,
    },
    /// Not idle for long enough.
    Waits {
        /// Slices beyond what is needed.
        spare: u32,
        /// How long one of them has not been needed.
        idle: Duration,
        /// How long it is to be idle.
        wait: Duration,
        /// How long it must stay offline to pay.
        break_even: Duration,
    },
    /// Idle for so long that the rest of such gaps was too short in the past.
    TooLate {
        /// Slices beyond what is needed.
        spare: u32,
        /// How long one of them has not been needed.
        idle: Duration,
    },
    /// The risk account is used up.
    AtRisk {
        /// Slices beyond what is needed.
        spare: u32,
        /// Until the next window opens.
        wait: Duration,
    },
    /// Losses in this window.
    BackingOff {
        /// Until the next window opens.
        wait: Duration,
        /// Slices that woke before they had paid.
        early: u32,
        /// Pages of dropped cache that were read again.
        refaults: u64,
    },
    /// The last request did nothing.
    DidNothing {
        /// Until it tries again.
        wait: Duration,
    },
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = |time: Duration| time.as_secs();
        match *self {
            Self::Never => f.write_str("does nothing: that is the policy"),
            Self::NotDue { wait } => write!(f, "does nothing: acts again in {} s", secs(wait)),
            Self::Due { budget, per_slice } => {
                let each = if per_slice { " for each slice" } else { "" };
                write!(
                    f,
                    "compacts: the period is over; budget {budget} (units of 100 cycles){each}"
                )
            }
            Self::EmptyForLong { slices, time } if time.is_zero() => {
                let plural = if slices == 1 { "" } else { "s" };
                write!(f, "switches off what is empty: at least {slices} slice{plural}")
            }
            Self::EmptyForLong { slices, time } => write!(
                f,
                "switches off {slices} slices that have been empty for {:.1} s",
                time.as_secs_f64()
            ),
            Self::Growing { pages } => write!(
                f,
                "does nothing: compacts once less memory is taken; {pages} pages since the last \
                 look"
            ),
            Self::Busy { busy, within } => write!(
                f,
                "does nothing: compacts once the processors have less to do; they worked for {:.1} \
                 of {:.1} s",
                busy.as_secs_f64(),
                within.as_secs_f64()
            ),
            Self::BelowLow { free, cache_free } => write!(
                f,
                "wakes a slice: {free} pages are free, {cache_free} with cache, both below their \
                 low watermarks"
            ),
            Self::AboveHigh { free, cache_free, watermark, limit } => write!(
                f,
                "switches a slice off: {free} pages are free, {cache_free} with cache, above \
                 {watermark} ({limit})"
            ),
            Self::BetweenWatermarks { free, cache_free } => {
                write!(
                    f,
                    "does nothing: {free} free pages, {cache_free} with cache, are between the \
                     watermarks"
                )
            }
            Self::RaisesMarks { .. }
            | Self::LowersMarks { .. }
            | Self::KeepsMarks { .. }
            | Self::MarksFill { .. }
            | Self::MarksAtMost { .. }
            | Self::TooFewLookups { .. }
            | Self::LookupsUnknown => self.of_marks(f),
            Self::Underused { utilisation, slices } => write!(
                f,
                "switches off {slices} slices by chance: {:.0} % of what is on is used",
                utilisation.0 * 100.0
            ),
            Self::Overused { utilisation, slices } => {
                write!(
                    f,
                    "wakes {slices} slices by chance: {:.0} % of what is on is used",
                    utilisation.0 * 100.0
                )
            }
            Self::UsedWell { utilisation } => write!(
                f,
                "does nothing: {:.0} % of what is on is used, which is between the thresholds",
                utilisation.0 * 100.0
            ),
            Self::Repairs { empty, slices, pages } => write!(
                f,
                "switches off {empty} empty slices and empties {slices} more, of which {pages} \
                 pages are to be moved"
            ),
            Self::Packed { slices, resting, full } => write!(
                f,
                "does nothing: of {slices} slices in use that could be emptied {resting} failed \
                 lately, of {full} too much would have to be moved, and the others are beyond the \
                 budget or fit nowhere else"
            ),
            Self::WithinLimits { empty, used } => write!(
                f,
                "switches off {empty} empty and {used} used slices: floor, burst reserve and stall \
                 target allow it"
            ),
            Self::Stalled { stall, target, wakes } => write!(
                f,
                "wakes {wakes} slices and switches none off: tasks waited for memory for {:.1} ms \
                 per second, the target is {} ms",
                stall.0 * 1e3,
                target.0 * 1e3
            ),
            Self::RestsAfterStall { wait } => {
                write!(f, "does nothing for {} s: tasks waited for memory a moment ago", secs(wait))
            }
            Self::RestoresReserve { free, reserve, wakes } => write!(
                f,
                "wakes {wakes} slices: {free} pages are free beyond the kernel's awake reserve, \
                 less than the burst reserve of {reserve}"
            ),
            Self::Pays { empty, used, at_risk, unit } => write!(
                f,
                "switches off {empty} empty and {used} used slices: they should stay off longer \
                 than it takes to earn the {} {unit} at risk",
                amount(at_risk)
            ),
            Self::AllNeeded { need } => {
                write!(f, "does nothing: the {need} slices that are on are needed")
            }
            Self::NoCandidate { spare } => {
                write!(
                    f,
                    "does nothing: {spare} slices could be spared, but none can be emptied now"
                )
            }
            Self::Expected { slices } => {
                write!(
                    f,
                    "does nothing: {slices} slices are spare, but were needed at this time \
                     yesterday"
                )
            }
            Self::TooSmall { slices } => write!(
                f,
                "does nothing: the hardware switches {slices} slices as one, and by the table of \
                 slices it is not known which; state the granularity if the hardware's is finer"
            ),
            Self::NoGranule { spare, slices } => write!(
                f,
                "does nothing: {spare} slices could be spared, but no {slices} of them that the \
                 hardware switches as one"
            ),
            Self::GivesBack { slices } => write!(
                f,
                "wakes {slices} slices that save nothing: others that the hardware switches \
                 together with them stay on"
            ),
            Self::NeverPays { spare } => {
                write!(
                    f,
                    "does nothing: {spare} slices are spare, but such gaps have been too short to \
                     pay"
                )
            }
            Self::Waits { spare, idle, wait, break_even } => write!(
                f,
                "does nothing: {spare} slices are spare, the next for {} of the {} s that it \
                 waits (it pays after {} s off)",
                secs(idle),
                secs(wait),
                secs(break_even)
            ),
            Self::TooLate { spare, idle } => write!(
                f,
                "does nothing: {spare} slices are spare, the next for {} s, and what was left of \
                 such gaps has been too short",
                secs(idle)
            ),
            Self::AtRisk { spare, wait } => write!(
                f,
                "does nothing: {spare} slices are spare, but all that may be risked is at risk \
                 until slices have paid, or for {} s",
                secs(wait)
            ),
            Self::BackingOff { wait, early, refaults } => write!(
                f,
                "backs off for {} s: {early} slices woke before they had paid, {refaults} pages \
                 of dropped cache came back",
                secs(wait)
            ),
            Self::DidNothing { wait } => {
                write!(
                    f,
                    "does nothing: the last request did nothing, so it tries again in {} s",
                    secs(wait)
                )
            }
        }
    }
}

impl DecisionReason {
    /// Reasons of watermarks that follow the hit ratio.
    fn of_marks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RaisesMarks { ratio, target, lookups, low, high } => write!(
                f,
                "raises CACHE_FREE_LOW to {low} and CACHE_FREE_HIGH to {high} pages: the hit ratio \
                 was {:.3} of {lookups} look-ups, below {}",
                ratio.0, target.0
            ),
            Self::LowersMarks { ratio, target, timeouts, low, high } => write!(
                f,
                "lowers CACHE_FREE_LOW to {low} and CACHE_FREE_HIGH to {high} pages: the hit ratio \
                 has kept {} for {timeouts} time-outs and is {:.3}",
                target.0, ratio.0
            ),
            Self::KeepsMarks { ratio, target, lookups, timeouts } => {
                write!(
                    f,
                    "leaves the watermarks: the hit ratio was {:.3} of {lookups} look-ups and \
                     keeps {}; ",
                    ratio.0, target.0
                )?;
                match timeouts {
                    Some(timeouts) => write!(f, "they sink after {timeouts} more such time-outs"),
                    None => f.write_str("they are at their lower bound"),
                }
            }
            Self::MarksFill { ratio, target, cache_free, low } => write!(
                f,
                "leaves the watermarks: the hit ratio was {:.3}, below {}, but of CACHE_FREE_LOW \
                 ({low} pages) only {cache_free} are free or cache so far",
                ratio.0, target.0
            ),
            Self::MarksAtMost { ratio, target, high } => write!(
                f,
                "leaves the watermarks: the hit ratio was {:.3}, below {}, but CACHE_FREE_HIGH is \
                 at its upper bound ({high} pages)",
                ratio.0, target.0
            ),
            Self::TooFewLookups { lookups, least } => write!(
                f,
                "leaves the watermarks: {lookups} look-ups that count are too few to judge the hit \
                 ratio by, it takes {least}"
            ),
            _ => f.write_str(
                "leaves the watermarks: the hit ratio is unknown, because nothing counts look-ups \
                 of the page cache here",
            ),
        }
    }
}

/// Joules have two places, as in the ledger; GiB hours and money may be far below 1.
fn amount(worth: Worth) -> String {
    match worth.0.abs() {
        value if value >= 0.1 || value <= 0.0 => format!("{:.2}", worth.0),
        value if value >= 0.001 => format!("{:.4}", worth.0),
        _ => format!("{:.1e}", worth.0),
    }
}
