//! Checks a number of a profile: its form, its sign, its unit, its source.

use std::ops::Range;

use ramslice_types::{PhysicalQuantity, Seconds};
use toml::Spanned;

use super::raw;
use super::{ProfileError, ProfileKind, SourcedValue, TransitionLatency};
use crate::interval::Interval;

/// Units that a number may have, each with its factor to the unit of the type.
pub(super) type UnitTable<'a> = &'a [(&'a str, f64)];

pub(super) const PER_GIB: UnitTable<'static> = &[("mW/GiB", 1e-3), ("W/GiB", 1.0)];
pub(super) const OF_MODULE: UnitTable<'static> = &[("mW", 1e-3), ("W", 1.0)];
pub(super) const PERCENT: UnitTable<'static> = &[("%", 0.01)];
pub(super) const POWER: UnitTable<'static> = &[("mW", 1e-3), ("W", 1.0)];
pub(super) const TIME: UnitTable<'static> = &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
pub(super) const SIZE: UnitTable<'static> = &[("MiB", 1.0 / 1024.0), ("GiB", 1.0)];
pub(super) const FREQUENCY: UnitTable<'static> = &[("MHz", 1e6), ("GHz", 1e9)];

const FORMS: &str = "write { value = 1.5, unit = \"...\", source = \"...\" }, or low and high in \
                     place of value, or { unknown = true, source = \"...\" }";

/// The file that is read: finds lines.
pub(super) struct ProfileText<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl ProfileText<'_> {
    /// An error at a place in the text.
    pub(super) fn error(&self, span: &Range<usize>, message: impl Into<String>) -> ProfileError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        ProfileError { file: self.name.to_owned(), line, message: message.into() }
    }

    /// Refuses a file of another kind. A file that does not name its kind is of DRAM.
    pub(super) fn must_be(&self, wanted: ProfileKind) -> Result<(), ProfileError> {
        let (kind, span) = self.kind()?;
        if kind == wanted {
            return Ok(());
        }
        let message = match wanted {
            ProfileKind::Power => {
                "kind is \"giveback\": that gives no joules; name a profile of kind \"power\". \
                 What giving back is worth: `ramslice giveback --watch`, and given_back in \
                 ramsliced's status"
            }
            ProfileKind::Giveback => {
                "kind is \"power\", or left out: that gives joules; name a profile of kind \
                 \"giveback\""
            }
        };
        Err(self.error(&span, message))
    }

    /// What it is a profile of, and where it says so.
    pub(super) fn kind(&self) -> Result<(ProfileKind, Range<usize>), ProfileError> {
        let raw: raw::RawKind =
            toml::from_str(self.text).map_err(|error| self.toml_error(&error))?;
        let Some(kind) = raw.kind else { return Ok((ProfileKind::Power, 0..0)) };
        let found = match kind.get_ref().as_str() {
            "power" => ProfileKind::Power,
            "giveback" => ProfileKind::Giveback,
            other => {
                let message =
                    format!("kind is `{other}`: it is \"power\" (of DRAM) or \"giveback\"");
                return Err(self.error(&kind.span(), message));
            }
        };
        Ok((found, kind.span()))
    }

    /// What is wrong with the TOML itself, or with the fields it has.
    pub(super) fn toml_error(&self, error: &toml::de::Error) -> ProfileError {
        let span = error.span().unwrap_or(0..0);
        let mut message = error.message().to_owned();
        if message.starts_with("missing field") {
            message.push_str(&format!(
                " of the table that begins here: it may be left out nowhere; {FORMS}, or see \
                 profiles/template.toml"
            ));
        }
        self.error(&span, message)
    }

    fn source(
        &self,
        what: &str,
        span: &Range<usize>,
        source: Option<&Spanned<String>>,
    ) -> Result<String, ProfileError> {
        match source {
            None => Err(self.error(
                span,
                format!(
                    "{what} has no source: every number says where it is from (source = \"...\")"
                ),
            )),
            Some(source) if source.get_ref().trim().is_empty() => Err(self.error(
                &source.span(),
                format!(
                    "the source of {what} is empty: name the paper and its table, or how it was \
                     worked out"
                ),
            )),
            Some(source) => Ok(source.get_ref().trim().to_owned()),
        }
    }

    /// A checked end, in the unit of the file.
    fn end(&self, what: &str, end: &Spanned<f64>) -> Result<f64, ProfileError> {
        let value = *end.get_ref();
        if !value.is_finite() {
            return Err(
                self.error(&end.span(), format!("{what} is {value}: it must be a finite number"))
            );
        }
        if value < 0.0 {
            return Err(
                self.error(&end.span(), format!("{what} is {value}: it may not be negative"))
            );
        }
        Ok(value)
    }

    /// Low and high end in the file's unit; without a high end for `at_least`.
    fn ends(
        &self,
        what: &str,
        raw: &Spanned<raw::RawQuantity>,
        open: bool,
    ) -> Result<(f64, Option<f64>), ProfileError> {
        let number = raw.get_ref();
        match (&number.value, &number.low, &number.high, &number.at_least) {
            (Some(value), None, None, None) => {
                self.end(what, value).map(|value| (value, Some(value)))
            }
            (None, Some(low), Some(high), None) => {
                let (from, to) = (self.end(what, low)?, self.end(what, high)?);
                if from > to {
                    let message = format!("{what} is inverted: low = {from} is above high = {to}");
                    return Err(self.error(&low.span(), message));
                }
                Ok((from, Some(to)))
            }
            (None, None, None, Some(least)) if open => {
                self.end(what, least).map(|least| (least, None))
            }
            (None, None, None, Some(least)) => Err(self.error(
                &least.span(),
                format!("{what} needs an upper end; at_least is for latencies only: {FORMS}"),
            )),
            (None, Some(_), None, None) => {
                Err(self.error(&raw.span(), format!("{what} has low but no high: {FORMS}")))
            }
            (None, None, Some(_), None) => {
                Err(self.error(&raw.span(), format!("{what} has high but no low: {FORMS}")))
            }
            (None, None, None, None) => {
                Err(self.error(&raw.span(), format!("{what} has no value: {FORMS}")))
            }
            _ => Err(self.error(
                &raw.span(),
                format!("{what} says its value twice: either value, or low and high: {FORMS}"),
            )),
        }
    }

    /// The number in the file's unit, with the unit's factor; nothing if unknown.
    fn number(
        &self,
        what: &str,
        raw: &Spanned<raw::RawQuantity>,
        units: UnitTable<'_>,
        open: bool,
    ) -> Result<SourcedValue<(f64, Option<f64>, f64)>, ProfileError> {
        let number = raw.get_ref();
        let source = self.source(what, &raw.span(), number.source.as_ref())?;
        if let Some(unknown) = &number.unknown {
            let numbers = [&number.value, &number.low, &number.high, &number.at_least];
            if !unknown.get_ref()
                || numbers.iter().any(|number| number.is_some())
                || number.unit.is_some()
            {
                return Err(self.error(
                    &unknown.span(),
                    format!(
                        "{what}: unknown = true stands alone with its source; leave it out where \
                         there is a number"
                    ),
                ));
            }
            return Ok(SourcedValue { value: None, written: "unknown".to_owned(), source });
        }
        let (low, high) = self.ends(what, raw, open)?;
        let allowed = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let Some(unit) = &number.unit else {
            return Err(
                self.error(&raw.span(), format!("{what} has no unit: it may be {}", allowed()))
            );
        };
        let Some((name, factor)) = units.iter().find(|(name, _)| name == unit.get_ref()) else {
            return Err(self.error(
                &unit.span(),
                format!(
                    "{what} cannot have the unit `{}`: it may be {}",
                    unit.get_ref(),
                    allowed()
                ),
            ));
        };
        let written = match high {
            None => format!("at least {low} {name}"),
            Some(high) if high > low => format!("{low} to {high} {name}"),
            Some(_) => format!("{low} {name}"),
        };
        Ok(SourcedValue { value: Some((low, high, *factor)), written, source })
    }

    /// A number with two ends.
    pub(super) fn interval<Q: PhysicalQuantity>(
        &self,
        what: &str,
        raw: &Spanned<raw::RawQuantity>,
        units: UnitTable<'_>,
    ) -> Result<SourcedValue<Interval<Q>>, ProfileError> {
        let SourcedValue { value, written, source } = self.number(what, raw, units, false)?;
        let value = match value {
            None => None,
            Some((low, high, factor)) => {
                let ends = Interval::new(Q::of(low * factor), Q::of(high.unwrap_or(low) * factor));
                Some(ends.map_err(|error| self.error(&raw.span(), format!("{what}: {error}")))?)
            }
        };
        Ok(SourcedValue { value, written, source })
    }

    /// A time that may have no upper end.
    pub(super) fn latency(
        &self,
        what: &str,
        raw: &Spanned<raw::RawQuantity>,
    ) -> Result<SourcedValue<TransitionLatency>, ProfileError> {
        let SourcedValue { value, written, source } = self.number(what, raw, TIME, true)?;
        let value = value.map(|(low, high, factor)| TransitionLatency {
            low: Seconds(low * factor),
            high: high.map(|high| Seconds(high * factor)),
        });
        Ok(SourcedValue { value, written, source })
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(
        &self,
        what: &str,
        raw: &Spanned<raw::RawWord>,
        words: &[(&str, T)],
    ) -> Result<SourcedValue<T>, ProfileError> {
        let word = raw.get_ref();
        let source = self.source(what, &raw.span(), word.source.as_ref())?;
        let allowed =
            || words.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        match (&word.is, &word.unknown) {
            (Some(is), None) => match words.iter().find(|(name, _)| name == is.get_ref()) {
                Some((name, value)) => {
                    Ok(SourcedValue { value: Some(*value), written: (*name).to_owned(), source })
                }
                None => Err(self.error(
                    &is.span(),
                    format!("{what} cannot be `{}`: it is {}", is.get_ref(), allowed()),
                )),
            },
            (None, Some(unknown)) if *unknown.get_ref() => {
                Ok(SourcedValue { value: None, written: "unknown".to_owned(), source })
            }
            _ => Err(self.error(
                &raw.span(),
                format!(
                    "{what} is written {{ is = \"...\", source = \"...\" }} with {}, or {{ \
                     unknown = true, source = \"...\" }}",
                    allowed()
                ),
            )),
        }
    }

    /// A list of words.
    pub(super) fn words(
        &self,
        what: &str,
        raw: &Spanned<raw::RawWordList>,
    ) -> Result<SourcedValue<Vec<String>>, ProfileError> {
        let words = raw.get_ref();
        let source = self.source(what, &raw.span(), words.source.as_ref())?;
        Ok(SourcedValue { value: Some(words.list.clone()), written: words.list.join(", "), source })
    }
}
