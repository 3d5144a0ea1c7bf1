//! Who gets memory that is emptied: the power driver, by which it sleeps or goes to the host; the
//! kernel's pool of huge pages; or a contiguous buffer. Each use of a GiB has a value, and the
//! dearest wins.
//!
//! The kernel gives buffers what sleeps by itself, and wakes what programs need. What is decided
//! here is the size of the pool: pages are made while they are the dearest use, up to the number
//! that is wanted, and given back for a dearer one. Taken back is only what this book counts as
//! made for the wish and no program uses: the administrator's own number of pages stays.
//!
//! Nothing flaps: a use must be dearer by a tenth; a page that was made stays for the settling time
//! unless tasks wait for memory, or a buffer was refused; after a page was given back, none is made
//! for as long; and where none could be made, for twice as long each time.

use std::fmt;
use std::time::Duration;

use ramslice_types::{Bytes, HugePagePool, NodeId};
use serde::{Deserialize, Serialize};

/// How many times as much as another a use must be worth to take its memory.
const DEARER: f64 = 1.1;
/// The settling time doubles at most so often.
const MOST_DOUBLINGS: u32 = 6;

/// What a GiB in use by each taker is worth for as long as it has it, as multiples of one and the
/// same thing: by default, of the same memory asleep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TakerValues {
    /// Switched off by a power driver.
    pub sleep: f64,
    /// Given to the host of this virtual machine.
    pub host: f64,
    /// A huge page in the pool, in use or not.
    pub huge: f64,
    /// A contiguous buffer that is wanted.
    pub buffers: f64,
}

/// How many huge pages are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePageWish {
    /// The size of a page.
    pub page: Bytes,
    /// The node that they are wanted on; none if that is all the same.
    pub node: Option<NodeId>,
    /// So many in the pool at least, or in its part on that node, in use or not.
    pub count: u64,
}

/// What the administrator wants.
#[derive(Debug, Clone, PartialEq)]
pub struct TakersConfig {
    /// The values.
    pub values: TakerValues,
    /// Huge pages; none if the pool is left alone.
    pub huge: Option<HugePageWish>,
    /// The settling time.
    pub settle: Duration,
}

/// What becomes of slices that are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfflineTaker {
    /// They sleep.
    Sleep,
    /// The host has them.
    Host,
    /// Nothing: no driver is there, so they are worth nothing.
    Nothing,
}

impl OfflineTaker {
    /// What a GiB that is off is worth.
    pub fn value(self, values: &TakerValues) -> f64 {
        match self {
            Self::Sleep => values.sleep,
            Self::Host => values.host,
            Self::Nothing => 0.0,
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Host => "host",
            Self::Nothing => "nothing",
        }
    }
}

/// What is known at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakersObservation {
    /// When.
    pub time: Duration,
    /// The pool that the book is about, or its part on a node.
    pub pool: HugePagePool,
    /// What becomes of slices that are off.
    pub offline: OfflineTaker,
    /// Since the last look, tasks waited for memory and little was free.
    pub is_short: bool,
    /// Tasks waited for memory a moment ago.
    pub is_paused: bool,
    /// Buffers that were refused for want of memory since the last look.
    pub refused_buffers: u64,
}

/// What is to be done with the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAction {
    /// Nothing.
    Keep,
    /// So many pages more.
    Make(u64),
    /// So many pages less, of those that are not in use.
    GiveBack(u64),
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TakerReason {
    /// The pool has what is wanted.
    HasAll,
    /// Pages are the dearest use.
    HugeIsDearest,
    /// Another use is dearer: what is off.
    OfflineIsDearer(OfflineTaker),
    /// Neither is dearer than the other by a tenth.
    AlikeWith(OfflineTaker),
    /// More than is wanted now was made earlier.
    NoLongerWanted,
    /// Tasks wait for memory.
    TasksWait,
    /// So many buffers were refused for want of memory.
    BuffersRefused(u64),
    /// Pages are lent beyond the size of the pool.
    PagesAreLent(u64),
    /// It changed a moment ago, or no page could be made: so much longer nothing is done.
    Settles(Duration),
}

impl fmt::Display for TakerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offline = |taker: &OfflineTaker| match taker {
            OfflineTaker::Sleep => "memory that sleeps",
            OfflineTaker::Host => "memory that the host has",
            OfflineTaker::Nothing => "memory that is off without a driver",
        };
        match self {
            Self::HasAll => f.write_str("the pool has all pages that are wanted"),
            Self::HugeIsDearest => f.write_str("huge pages are worth most"),
            Self::OfflineIsDearer(taker) => write!(f, "{} is worth more", offline(taker)),
            Self::AlikeWith(taker) => {
                write!(f, "{} is worth as much, within a tenth", offline(taker))
            }
            Self::NoLongerWanted => f.write_str("fewer pages are wanted than were made"),
            Self::TasksWait => f.write_str("tasks wait for memory"),
            Self::BuffersRefused(1) => f.write_str("a buffer was refused for want of memory"),
            Self::BuffersRefused(count) => {
                write!(f, "{count} buffers were refused for want of memory")
            }
            Self::PagesAreLent(count) => {
                write!(f, "{count} pages are lent beyond the size of the pool")
            }
            Self::Settles(left) => {
                write!(f, "it settles for another {} s", left.as_secs_f64().ceil())
            }
        }
    }
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolDecision {
    /// What is to be done.
    pub action: PoolAction,
    /// Why.
    pub why: TakerReason,
}

/// What is known of a pool, or its part on a node, from look to look. It can be saved, and holds
/// for one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolBook {
    /// The size of its pages.
    #[serde(rename = "page_bytes")]
    page: Bytes,
    /// The node that they are on; none for the whole pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
    /// Pages that were made for the wish, and not given back.
    #[serde(rename = "made_pages")]
    made: u64,
    /// The size of the pool after the last look.
    #[serde(rename = "size_pages")]
    size: Option<u64>,
    /// Until then, pages that were made stay.
    keep_until: Duration,
    /// Until then, none is made.
    make_after: Duration,
    /// How often in a row not all that were wanted could be made.
    failures: u32,
}

impl PoolBook {
    /// Of a pool, or its part on a node, all of which is the administrator's.
    pub fn new(page: Bytes, node: Option<NodeId>) -> Self {
        let (keep_until, make_after) = (Duration::ZERO, Duration::ZERO);
        Self { page, node, made: 0, size: None, keep_until, make_after, failures: 0 }
    }

    /// The size of its pages.
    pub fn page(&self) -> Bytes {
        self.page
    }

    /// The node whose part of the pool it is about, if it is not about all of it.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Whether it is about the pool that these pages are wanted in.
    pub fn is_of(&self, wish: &HugePageWish) -> bool {
        (self.page, self.node) == (wish.page, wish.node)
    }

    /// Pages that were made for the wish and are still there, in use or not.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Pages beyond the administrator's number that no program uses or was promised. Those that are
    /// lent come out of the rest: to take more would change what is counted as lent.
    pub fn to_give_back(&self, pool: &HugePagePool) -> u64 {
        self.made.min(pool.unused().saturating_sub(pool.surplus))
    }

    /// Other settings: what could not be done may be tried at once.
    pub fn retry(&mut self) {
        (self.make_after, self.failures) = (Duration::ZERO, 0);
    }

    /// Decides. What was decided and done is reported by [`Self::finished`].
    pub fn decide(&mut self, config: &TakersConfig, seen: &TakersObservation) -> PoolDecision {
        self.note(&seen.pool);
        // The clock may have been set back, or the settling time shortened
        let longest = config.settle * 2u32.pow(MOST_DOUBLINGS);
        self.keep_until = self.keep_until.min(seen.time + config.settle);
        self.make_after = self.make_after.min(seen.time + longest);
        let wish = config.huge.filter(|wish| self.is_of(wish));
        let (count, value) = wish.map_or((0, 0.0), |wish| (wish.count, config.values.huge));
        let offline = seen.offline.value(&config.values);
        let offline_is_dearer = is_dearer(offline, value);
        let keep = |why| PoolDecision { action: PoolAction::Keep, why };

        let spare = self.to_give_back(&seen.pool);
        if spare > 0 {
            let give = |pages, why| PoolDecision { action: PoolAction::GiveBack(pages), why };
            // Neither says how much it needs
            let half = spare.div_ceil(2);
            if seen.is_short {
                return give(half, TakerReason::TasksWait);
            }
            if seen.refused_buffers > 0 && is_dearer(config.values.buffers, value) {
                return give(half, TakerReason::BuffersRefused(seen.refused_buffers));
            }
            let beyond = seen.pool.size().saturating_sub(count).min(spare);
            if beyond > 0 {
                return give(beyond, TakerReason::NoLongerWanted);
            }
            if offline_is_dearer {
                return match self.keep_until.checked_sub(seen.time) {
                    Some(left) if !left.is_zero() => keep(TakerReason::Settles(left)),
                    _ => give(spare, TakerReason::OfflineIsDearer(seen.offline)),
                };
            }
        }
        let missing = count.saturating_sub(seen.pool.size());
        if missing == 0 {
            return keep(TakerReason::HasAll);
        }
        if offline_is_dearer {
            return keep(TakerReason::OfflineIsDearer(seen.offline));
        }
        if !is_dearer(value, offline) {
            return keep(TakerReason::AlikeWith(seen.offline));
        }
        if seen.is_short || seen.is_paused {
            return keep(TakerReason::TasksWait);
        }
        if seen.pool.surplus > 0 {
            return keep(TakerReason::PagesAreLent(seen.pool.surplus));
        }
        match self.make_after.checked_sub(seen.time) {
            Some(left) if !left.is_zero() => keep(TakerReason::Settles(left)),
            _ => {
                PoolDecision { action: PoolAction::Make(missing), why: TakerReason::HugeIsDearest }
            }
        }
    }

    /// An action was carried out: the pool is now like that. `refused` if pages could not be made,
    /// and more time would not help.
    pub fn finished(
        &mut self,
        action: PoolAction,
        pool: &HugePagePool,
        refused: bool,
        time: Duration,
        settle: Duration,
    ) {
        let (before, now) = (self.size.unwrap_or_default(), pool.size());
        match action {
            PoolAction::Keep => return,
            PoolAction::Make(_) => {
                self.made += now.saturating_sub(before);
                if now > before {
                    self.keep_until = time + settle;
                }
                if refused {
                    let doublings = self.failures.min(MOST_DOUBLINGS);
                    self.make_after = time + settle * 2u32.pow(doublings);
                    self.failures += 1;
                } else {
                    self.failures = 0;
                }
            }
            PoolAction::GiveBack(_) => {
                self.made = self.made.saturating_sub(before.saturating_sub(now));
                if now < before {
                    self.make_after = self.make_after.max(time + settle);
                }
            }
        }
        self.size = Some(now);
        self.made = self.made.min(now);
    }

    /// A size that another program gave the pool is the administrator's, all of it.
    fn note(&mut self, pool: &HugePagePool) {
        if self.size.replace(pool.size()) != Some(pool.size()) {
            self.made = 0;
        }
    }
}

/// Whether a use is worth more than another, by enough to take its memory.
fn is_dearer(value: f64, other: f64) -> bool {
    value > other * DEARER
}

#[cfg(test)]
#[path = "memory_takers_tests.rs"]
mod tests;
