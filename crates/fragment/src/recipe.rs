//! Recipes: mixes under a name, so that two experiments can start from the same state.
//!
//! A recipe never changes once it is published; a better one gets another name.

use ramslice_types::{Bytes, ParseError, parse_bytes};
use std::fmt;
use std::str::FromStr;

use crate::mix::{PageMix, PageProbability};

/// How much memory to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillAmount {
    /// This much.
    Bytes(Bytes),
    /// A share of what is available, in per cent.
    Percent(u8),
}

impl FromStr for FillAmount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            text: text.to_owned(),
            wanted: "an amount of memory",
            allowed: "write a size or a share of what is available, as in 512M, 4GiB or 80%",
        };
        match text.strip_suffix('%') {
            Some(number) => match number.trim().parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
            None => parse_bytes(text).map(Self::Bytes).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for FillAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A published mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillRecipe {
    /// A whole machine after long use: every slice holds some of everything, from mostly used to
    /// mostly free.
    Aged,
    /// Equal parts of free, movable and freeable pages (§4.2.1 of the thesis).
    Thirds,
    /// Free and anonymous pages, half of each (§4.4 of the thesis).
    Halves,
}

impl FillRecipe {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aged, Self::Thirds, Self::Halves];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aged => "aged",
            Self::Thirds => "thirds",
            Self::Halves => "halves",
        }
    }

    /// Its probabilities.
    pub fn mix(self) -> PageMix {
        let of = |first, last| PageProbability::new(first, last).unwrap_or_default();
        match self {
            // At every place they add up to 1: what becomes rarer makes room for free pages.
            Self::Aged => PageMix { free: of(0.2, 0.8), anon: of(0.5, 0.1), file: of(0.3, 0.1) },
            Self::Thirds => PageMix { free: of(1.0, 1.0), anon: of(1.0, 1.0), file: of(1.0, 1.0) },
            Self::Halves => PageMix { free: of(1.0, 1.0), anon: of(1.0, 1.0), file: of(0.0, 0.0) },
        }
    }

    /// How much it fills by default.
    pub fn amount(self) -> Option<FillAmount> {
        match self {
            // Nearly all, as no part of an aged machine is untouched.
            Self::Aged => Some(FillAmount::Percent(90)),
            Self::Thirds | Self::Halves => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_sizes_or_shares() {
        assert_eq!("512M".parse(), Ok(FillAmount::Bytes(Bytes(512 << 20))));
        assert_eq!("80%".parse(), Ok(FillAmount::Percent(80)));
        for text in ["", "0%", "101%", "-5%", "much", "1.5G"] {
            let error = text.parse::<FillAmount>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("80%"), "{error}");
        }
    }

    #[test]
    fn the_aged_machine_leaves_no_gap() {
        let mix = FillRecipe::Aged.mix();
        for at in 0..=100 {
            let sum: f64 = [mix.free, mix.anon, mix.file].iter().map(|p| p.at(at, 101)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{at}: {sum}");
        }
    }
}
