//! Settings of policies, and their TOML with errors by line.

use std::fmt;
use std::time::Duration;

use ramslice_types::{Budget, Price};
use serde::{Deserialize, Serialize};

/// The policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Does nothing.
    Never,
    /// Compacts with a budget, again and again.
    Periodic,
    /// Four watermarks with a time-out.
    Watermarks,
    /// A threshold of utilisation, slices by chance.
    Threshold,
    /// Our break-even governor.
    Governor,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Never, Self::Periodic, Self::Watermarks, Self::Threshold, Self::Governor];

    /// Its name in files and at a prompt.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Periodic => "periodic",
            Self::Watermarks => "watermarks",
            Self::Threshold => "threshold",
            Self::Governor => "governor",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A budget in a file: a number of 100 cycles, or left out for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limit(pub Option<u64>);

impl From<Limit> for Budget {
    fn from(limit: Limit) -> Self {
        limit.0.map_or(Self::Unlimited, |units| Self::Limited(Price(units)))
    }
}

/// Settings of [`PolicyKind::Periodic`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Periodic {
    /// Time between two compactions, in seconds.
    pub period_seconds: f64,
    /// The most to spend, in units of 100 cycles; left out, there is no limit.
    #[serde(rename = "budget_100cycles")]
    pub budget: Limit,
    /// The budget holds for each slice rather than for all of one compaction.
    pub per_slice: bool,
    /// The most slices to switch off in one compaction.
    pub max_slices: Option<u32>,
}

impl Default for Periodic {
    /// As the best runs of the case studies (thesis, section 4.3.4): every 30 s with 8 million units.
    fn default() -> Self {
        Self { period_seconds: 30.0, budget: Limit(Some(8_000_000)), per_slice: false, max_slices: None }
    }
}

impl Periodic {
    /// Time between two compactions.
    pub fn period(&self) -> Duration {
        Duration::try_from_secs_f64(self.period_seconds).unwrap_or_default()
    }
}
