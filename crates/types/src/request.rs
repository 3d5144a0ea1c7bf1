//! Requests to a backend, and their outcomes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::{BackendError, BackendErrorKind};
use crate::parse::ParseError;
use crate::price::Budget;
use crate::reason::Reason;
use crate::units::{NodeId, Pages, Price, SliceId, ZoneNumber, duration_us};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestOp {
    /// Empty this slice and switch it off.
    Offline(SliceId),
    /// Wake this slice.
    Online(SliceId),
    /// Empty the cheapest slices within the budget.
    #[default]
    Compact,
    /// Switch off slices that are empty already.
    OfflineFree,
    /// Wake everything; held slices only with [`Request::hold`].
    OnlineAll,
}

impl RequestOp {
    /// The word for it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Offline(_) => "offline",
            Self::Online(_) => "online",
            Self::Compact => "compact",
            Self::OfflineFree => "offline-free",
            Self::OnlineAll => "online-all",
        }
    }

    /// Whether it wakes slices; all others switch some off.
    pub fn wakes(self) -> bool {
        matches!(self, Self::Online(_) | Self::OnlineAll)
    }
}

/// What happens to clean unmapped page cache in the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheChoice {
    /// It is dropped in sources, and in destinations that have no room otherwise.
    #[default]
    Drop,
    /// It is moved, and in destinations it stays where it is.
    Keep,
    /// Recently used cache is moved, the rest dropped.
    Auto,
}

impl CacheChoice {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drop, Self::Keep, Self::Auto];

    /// The word for it, on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Keep => "keep",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for CacheChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CacheChoice {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| ParseError::new(text, "a choice for page cache", "drop, keep or auto"))
    }
}

/// A request. The default compacts everything without a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// What to do.
    pub op: RequestOp,
    /// The node to which [`RequestOp::Compact`], [`RequestOp::OfflineFree`] and
    /// [`RequestOp::OnlineAll`] are limited.
    pub node: Option<NodeId>,
    /// The zone number to which they are limited.
    pub zone: Option<ZoneNumber>,
    /// The most to spend.
    pub budget: Budget,
    /// The budget applies to each slice rather than to all together.
    pub per_slice: bool,
    /// What becomes of page cache.
    pub cache: CacheChoice,
    /// Also try slices that failed recently.
    pub ignore_backoff: bool,
    /// Compute prices only: nothing is moved.
    pub dry_run: bool,
    /// Slices switched off are held offline until a request wakes them: their memory leaves
    /// `MemTotal`.
    pub hold: bool,
    /// The most slices to switch off.
    pub max_slices: Option<u32>,
    /// When to give up; the kernel's default is 60 s.
    pub deadline: Option<Duration>,
}

impl Request {
    /// A request of this kind with the default of every other field.
    pub fn new(op: RequestOp) -> Self {
        Self { op, ..Self::default() }
    }

    /// For systems that cannot hold slices off: an error if the request wants that.
    pub fn refuse_hold(&self, why: &str) -> Result<(), BackendError> {
        if !self.hold || self.op.wakes() {
            return Ok(());
        }
        let message = format!("slices cannot be held off here (--hold): {why}");
        Err(BackendError::new(BackendErrorKind::Unsupported, message))
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// 0, or the errno of what stopped it.
    pub status_errno: u32,
    /// The reason for it.
    pub reason: Reason,
    /// Slices that changed as asked; in a dry run, that would.
    pub slices_done: u32,
    /// Slices that were tried and stayed online.
    pub slices_failed: u32,
    /// In a dry run on a stock kernel: of `slices_done`, those with pages that are free in CPUs'
    /// lists, as far as can be seen. They go last, after the kernel has drained these lists.
    #[serde(default)]
    pub slices_to_drain: u32,
    /// The last slice that the request worked on, if any.
    pub last_slice: Option<SliceId>,
    /// Wall-clock time.
    #[serde(rename = "elapsed_us", with = "duration_us")]
    pub elapsed: Duration,
    /// Sum of the prices of the slices tried.
    #[serde(rename = "price_predicted_100cycles")]
    pub price_predicted: Price,
    /// CPU time spent.
    #[serde(rename = "price_measured_100cycles")]
    pub price_measured: Price,
    /// Pages moved to other slices.
    #[serde(rename = "migrated_pages")]
    pub migrated: Pages,
    /// Clean cache dropped, in sources and destinations.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
    /// Pages that could not be moved.
    #[serde(rename = "failed_pages")]
    pub failed: Pages,
    /// Huge pages split for want of room.
    pub huge_split: u64,
    /// Huge pages moved whole.
    pub huge_moved: u64,
}

impl RequestOutcome {
    /// Nothing stopped it.
    pub fn is_ok(&self) -> bool {
        self.status_errno == 0
    }

    /// What a power driver that refused gave as the cause, unless it was a general error: EPERM
    /// (`NOTIFY_BAD`) and EIO say no more than the reason does.
    pub fn driver_error(&self) -> Option<std::io::Error> {
        const GENERAL: [i32; 3] = [0, 1, 5];
        let errno = self.status_errno.cast_signed();
        (self.reason == Reason::Power && !GENERAL.contains(&errno))
            .then(|| std::io::Error::from_raw_os_error(errno))
    }

    /// It ended by itself: done, or nothing more within its limits.
    ///
    /// False when it was interrupted (signal, deadline, memory pressure) or failed (power driver,
    /// migration).
    pub fn ran_to_its_end(&self) -> bool {
        let within_limits = matches!(
            self.reason,
            Reason::None
                | Reason::OverBudget
                | Reason::NoRoom
                | Reason::AwakeReserve
                | Reason::Backoff
        );
        self.is_ok() || (within_limits && self.reason != Reason::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_budget_is_an_end_but_a_signal_is_not() {
        let stopped = |status_errno, reason| RequestOutcome {
            status_errno,
            reason,
            ..RequestOutcome::default()
        };
        assert!(stopped(0, Reason::None).ran_to_its_end());
        assert!(stopped(28, Reason::OverBudget).ran_to_its_end());
        assert!(!stopped(4, Reason::Signal).ran_to_its_end());
        assert!(!stopped(5, Reason::None).ran_to_its_end());
    }
}
