//! The price model's parameters and the budget that a request may spend.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parse::ParseError;
use crate::units::Price;

/// A parameter of the price model (Table 3.2 of the Hannover thesis); each is one sysfs file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceParameter {
    /// Isolating a slice, whatever its size.
    IsolateSlice,
    /// Isolating 1024 page frames (not one, despite the name; Eq 3.1).
    IsolatePage,
    /// Dropping one page of clean cache.
    DropPage,
    /// Migrating one page, without its mappings.
    MigratePage,
    /// Moving one mapping of a page.
    MigrateMapping,
    /// Allocating a destination from the buddy allocator.
    AllocBuddy,
    /// Making room for a destination by dropping cache.
    AllocCache,
    /// Added to the price of a slice with pages that cannot move (Eq 3.3).
    Unreclaimable,
}

impl PriceParameter {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::IsolateSlice,
        Self::IsolatePage,
        Self::DropPage,
        Self::MigratePage,
        Self::MigrateMapping,
        Self::AllocBuddy,
        Self::AllocCache,
        Self::Unreclaimable,
    ];

    /// The name of its file below `price/`, and its key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::IsolateSlice => "isolate_slice",
            Self::IsolatePage => "isolate_page",
            Self::DropPage => "drop_page",
            Self::MigratePage => "migrate_page",
            Self::MigrateMapping => "migrate_mapping",
            Self::AllocBuddy => "alloc_buddy",
            Self::AllocCache => "alloc_cache",
            Self::Unreclaimable => "unreclaimable",
        }
    }
}

/// The most that a request may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Budget {
    /// No limit.
    #[default]
    Unlimited,
    /// This much, in units of 100 cycles.
    Limited(Price),
}

impl Budget {
    /// As the kernel takes it: `u64::MAX` is unlimited.
    pub fn raw(self) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::Limited(price) => price.0,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.pad("inf"),
            Self::Limited(price) => price.fmt(f),
        }
    }
}

impl FromStr for Budget {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || {
            ParseError::new(
                text,
                "a budget",
                "write units of 100 cycles, as in 50000, 50k or 2M, or inf for no limit",
            )
        };
        if text == "inf" {
            return Ok(Self::Unlimited);
        }
        let (number, factor) = match text.char_indices().last() {
            Some((at, 'k')) => (&text[..at], 1_000),
            Some((at, 'M')) => (&text[..at], 1_000_000),
            Some((at, 'G')) => (&text[..at], 1_000_000_000),
            _ => (text, 1),
        };
        let number: u64 = number.replace('_', "").parse().map_err(|_| wrong())?;
        match number.checked_mul(factor) {
            Some(units) if units < u64::MAX => Ok(Self::Limited(Price(units))),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Budget {
    /// A number, or the string `inf`.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => to.serialize_str("inf"),
            Self::Limited(price) => to.serialize_u64(price.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_numbers_or_inf() {
        for (text, budget) in [
            ("inf", Budget::Unlimited),
            ("0", Budget::Limited(Price(0))),
            ("50_000", Budget::Limited(Price(50_000))),
            ("50k", Budget::Limited(Price(50_000))),
            ("2M", Budget::Limited(Price(2_000_000))),
        ] {
            assert_eq!(text.parse(), Ok(budget), "{text}");
        }
    }

    #[test]
    fn a_wrong_budget_is_named_with_what_is_allowed() {
        for text in ["", "infinite", "-1", "1.5M", "18446744073709551615", "k"] {
            let error = text.parse::<Budget>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("inf"), "{error}");
        }
    }
}
