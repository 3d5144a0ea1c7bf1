//! Probabilities: one for each kind of page, the same everywhere or changing evenly from the first
//! page to the last.

use std::fmt;
use std::str::FromStr;

use ramslice_types::ParseError;
use serde::Serialize;

/// How likely a page is touched: `first` at the start of the area, `last` at its end, evenly in
/// between.
///
/// Falling ranges are as good as rising ones: where one kind becomes rarer, another can take its
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PageProbability {
    first: f64,
    last: f64,
}

impl PageProbability {
    /// From `first` to `last`, both from 0 to 1.
    pub fn new(first: f64, last: f64) -> Option<Self> {
        let valid = |p: f64| (0.0..=1.0).contains(&p);
        (valid(first) && valid(last)).then_some(Self { first, last })
    }

    /// At step `at` of `steps`.
    pub fn at(&self, at: u64, steps: u64) -> f64 {
        if steps < 2 {
            return self.first;
        }
        self.first + (self.last - self.first) * (at as f64 / (steps - 1) as f64)
    }

    /// On average over the area.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.first, self.last)
    }
}

impl fmt::Display for PageProbability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.to_bits() == self.last.to_bits() {
            self.first.fmt(f)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}

impl FromStr for PageProbability {
    type Err = ParseError;

    /// `0.5`, or a range as in `0..1` or `0.9..0.1`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            text: text.to_owned(),
            wanted: "a probability",
            allowed: "write a number from 0 to 1, or two for a gradient from the first page to \
                      the last, as in 0.5, 0..1 or 0.9..0.1",
        };
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
        Self::new(number(first)?, number(last)?).ok_or_else(wrong)
    }
}

/// The probabilities of the three kinds. They are independent of each other, so their sum may be
/// above 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PageMix {
    /// Of pages that are freed in the end.
    pub free: PageProbability,
    /// Of anonymous pages that stay.
    pub anon: PageProbability,
    /// Of file pages that stay as clean cache.
    pub file: PageProbability,
}

impl PageMix {
    /// Pages touched per step, on average.
    pub fn pages_per_step(&self) -> f64 {
        self.free.mean() + self.anon.mean() + self.file.mean()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_a_number_or_a_range() {
        let of = |first, last| PageProbability::new(first, last).unwrap();
        for (text, expected) in [
            ("0.5", of(0.5, 0.5)),
            ("1", of(1.0, 1.0)),
            ("0..1", of(0.0, 1.0)),
            ("0.9..0.1", of(0.9, 0.1)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_probability_is_named_with_what_is_allowed() {
        for text in
            ["", "1.1", "-0.1", "0..2", "50%", "NaN", "0..", "..1", "0.1..0.2..0.3", "inf", "0-1"]
        {
            let error = text.parse::<PageProbability>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("0 to 1"), "{error}");
        }
    }

    #[test]
    fn a_range_is_even_from_end_to_end() {
        let gradient = PageProbability::new(0.2, 0.6).unwrap();
        for (at, expected) in [(0, 0.2), (5, 0.4), (10, 0.6)] {
            assert!((gradient.at(at, 11) - expected).abs() < 1e-12);
        }
        assert!((gradient.mean() - 0.4).abs() < 1e-12);
        assert!((gradient.at(0, 1) - 0.2).abs() < 1e-12);
    }
}
