//! The unit in which a profile counts what memory is worth and what it costs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The unit of a [`Worth`](ramslice_types::Worth): one for all figures of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorthUnit {
    /// Energy, of profiles of DRAM.
    #[default]
    Joule,
    /// One GiB that others can use for an hour.
    GibHour,
    /// Money: three capital letters, as in ISO 4217.
    Currency([u8; 3]),
}

impl WorthUnit {
    /// The currency of this name, if it is three capital letters.
    pub fn currency(name: &str) -> Option<Self> {
        let letters: [u8; 3] = name.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_uppercase).then_some(Self::Currency(letters))
    }

    /// Whether it is the joule.
    pub fn is_joule(&self) -> bool {
        *self == Self::Joule
    }
}

impl fmt::Display for WorthUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joule => f.pad("J"),
            Self::GibHour => f.pad("GiB h"),
            Self::Currency(letters) => f.pad(&String::from_utf8_lossy(letters)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_currency_is_three_capital_letters() {
        assert_eq!(WorthUnit::currency("USD").unwrap().to_string(), "USD");
        for wrong in ["", "US", "USDT", "usd", "U D", "\u{20ac}"] {
            assert_eq!(WorthUnit::currency(wrong), None, "{wrong}");
        }
    }
}
