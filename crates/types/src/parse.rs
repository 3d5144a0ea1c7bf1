//! Reading what people type: sizes, times, ranges of slices. Each error names the text and what is
//! allowed.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::units::{Bytes, SliceId};

/// Text that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not {wanted}: {allowed}")]
pub struct ParseError {
    /// What was typed.
    pub text: String,
    /// What was expected, as in "a size".
    pub wanted: &'static str,
    /// The accepted form.
    pub allowed: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, wanted: &'static str, allowed: &'static str) -> Self {
        Self { text: text.to_owned(), wanted, allowed }
    }
}

/// Splits `12.5ms` into the number and the suffix.
fn split_suffix(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..end].trim(), text[end..].trim())
}

/// Reads a size: `4096`, `64M`, `64MiB`, `1GiB`. Factors are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<Bytes, ParseError> {
    let wrong = || {
        ParseError::new(
            text,
            "a size",
            "write a whole number of bytes or with a binary suffix, as in 4096, 64M, 64MiB or 1GiB",
        )
    };
    let (number, suffix) = split_suffix(text);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).map(Bytes).ok_or_else(wrong)
}

/// Reads a positive time of at most 49 days: `500ms`, `60s`, `2m`, `60` (seconds).
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let wrong = || {
        ParseError::new(
            text,
            "a time",
            "write a whole number above 0, of seconds or with ms, s, m or h, as in 60, 500ms or 2m",
        )
    };
    let (number, suffix) = split_suffix(text);
    let factor_ms = match suffix {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(factor_ms) {
        // The kernel takes 32 bits of milliseconds, and 0 as its default.
        Some(ms @ 1..=0xffff_ffff) => Ok(Duration::from_millis(ms)),
        _ => Err(wrong()),
    }
}

/// Slices as typed: an id or a list of ids and ranges, both ends included: `3-7,12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceRanges(Vec<(u32, u32)>);

impl SliceRanges {
    /// Whether `id` is in the list.
    pub fn contains(&self, id: SliceId) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&id.0))
    }

    /// The named ids in the order typed.
    pub fn iter(&self) -> impl Iterator<Item = SliceId> + '_ {
        self.0.iter().flat_map(|&(first, last)| (first..=last).map(SliceId))
    }
}

impl FromStr for SliceRanges {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || {
            ParseError::new(
                text,
                "a list of slices",
                "write ids and ascending ranges, as in 12, 3-7 or 3-7,12",
            )
        };
        let id = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let ranges = text
            .split(',')
            .map(|part| match part.split_once('-') {
                None => id(part).map(|id| (id, id)),
                Some((first, last)) => {
                    let (first, last) = (id(first)?, id(last)?);
                    if first <= last { Ok((first, last)) } else { Err(wrong()) }
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Self(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_suffixes() {
        for (text, bytes) in
            [("4096", 4096), ("64M", 64 << 20), ("64 MiB", 64 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_is_named_with_what_is_allowed() {
        for text in ["", "M", "64MB", "-1", "1.5G", "99999999999T"] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("64MiB"), "{error}");
        }
    }

    #[test]
    fn times_are_positive_and_fit_the_kernel() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("60"), Ok(Duration::from_mins(1)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        for text in ["0", "0s", "1d", "1200h", "s", "-5s"] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("of seconds"),
                "{error}"
            );
        }
    }

    #[test]
    fn slices_are_ids_and_ascending_ranges() {
        let ids: Vec<u32> =
            "3-5, 12".parse::<SliceRanges>().unwrap().iter().map(|id| id.0).collect();
        assert_eq!(ids, [3, 4, 5, 12]);
        for text in ["", "7-3", "a", "1-", "-1", "1,,2"] {
            assert!(text.parse::<SliceRanges>().is_err(), "{text}");
        }
    }
}
