//! Profiles of kind `giveback`: what memory is worth that a virtual machine gives to its host, and
//! what it costs to give it and to have it back.
//!
//! `profiles/giveback.toml` documents every field. All figures of a file are in one unit: the
//! currency that it names, or GiB hours, of which a GiB given back for an hour is worth one.

use ramslice_types::{
    Cycles, Hertz, PriceParameter, Worth, WorthPerGib, WorthPerGibSecond, WorthPerSecond,
};

use super::quantity::ProfileText;
use super::{ProfileError, ProfileFigure, ProfileKind, SourcedValue, check, raw};
use crate::interval::Interval;
use crate::worth::WorthUnit;

const SECONDS_PER_HOUR: f64 = 3600.0;

/// What memory given back is worth, and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct GivebackProfile {
    /// Its name: what `energy.profile` takes.
    pub name: String,
    /// What it is.
    pub title: String,
    /// The file, or the name of a built-in one.
    pub file: String,
    /// The unit of all its figures.
    pub unit: WorthUnit,
    /// A GiB that the host has, for each second; above 0 somewhere.
    pub memory: SourcedValue<Interval<WorthPerGibSecond>>,
    /// A second of a CPU of the guest.
    pub cpu: SourcedValue<Interval<WorthPerSecond>>,
    /// A GiB of dropped cache that is read again.
    pub refaults: SourcedValue<Interval<WorthPerGib>>,
    /// A GiB that comes back: what the host's page faults cost.
    pub host_faults: SourcedValue<Interval<WorthPerGib>>,
    /// One slice that wakes, whatever its size.
    pub wake: SourcedValue<Interval<Worth>>,
    /// The frequency at which the cycles of the prices are counted.
    pub frequency: SourcedValue<Interval<Hertz>>,
    /// The price model, in cycles, by the kernel's parameters: a first estimate.
    pub prices: Vec<(PriceParameter, SourcedValue<Interval<Cycles>>)>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl GivebackProfile {
    /// Reads a profile from the text of a file; `file` is its name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what is allowed.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        let name = file;
        let file = ProfileText { name, text };
        file.must_be(ProfileKind::Giveback)?;
        let raw: raw::RawGivebackProfile =
            toml::from_str(text).map_err(|error| file.toml_error(&error))?;
        check::known_version(&file, &raw.schema_version)?;
        check::word_like(&file, "name", &raw.name)?;
        let unit = unit(&file, raw.currency.as_ref())?;
        let per = |what: &str| format!("{unit}/{what}");
        let memory = memory(&file, &raw, unit)?;
        let (hour, second) = (per("CPU h"), per("CPU s"));
        let cpu = [(hour.as_str(), 1.0 / SECONDS_PER_HOUR), (second.as_str(), 1.0)];
        let (gib, wake) = (per("GiB"), per("wake"));
        Ok(Self {
            memory,
            cpu: known(&file, "cpu", &raw.cpu, &cpu)?,
            refaults: known(&file, "refaults", &raw.refaults, &[(gib.as_str(), 1.0)])?,
            host_faults: known(&file, "host_faults", &raw.host_faults, &[(gib.as_str(), 1.0)])?,
            wake: known(&file, "wake", &raw.wake, &[(wake.as_str(), 1.0)])?,
            frequency: check::frequency(&file, &raw.frequency)?,
            prices: check::prices(&file, &raw.prices)?,
            name: raw.name.into_inner(),
            title: raw.title,
            file: name.to_owned(),
            unit,
            notes: raw.notes,
        })
    }

    /// Every figure with its source, in the order of the file.
    pub fn rows(&self) -> Vec<ProfileFigure> {
        fn row<T>(field: &str, figure: &SourcedValue<T>) -> ProfileFigure {
            ProfileFigure {
                state: None,
                field: field.to_owned(),
                written: figure.written.clone(),
                low: None,
                high: None,
                unit: "",
                source: figure.source.clone(),
            }
        }
        let mut rows = vec![
            row("memory", &self.memory),
            row("cpu", &self.cpu),
            row("refaults", &self.refaults),
            row("host_faults", &self.host_faults),
            row("wake", &self.wake),
            row("frequency", &self.frequency),
        ];
        let price = |(parameter, price): &(PriceParameter, _)| {
            row(&format!("prices.{}", parameter.name()), price)
        };
        rows.extend(self.prices.iter().map(price));
        rows
    }
}

/// The unit of all figures.
fn unit(
    file: &ProfileText<'_>,
    currency: Option<&toml::Spanned<String>>,
) -> Result<WorthUnit, ProfileError> {
    let Some(name) = currency else { return Ok(WorthUnit::GibHour) };
    WorthUnit::currency(name.get_ref()).ok_or_else(|| {
        let message = format!(
            "currency is `{}`: it is three capital letters, as in \"EUR\"; leave it out to count \
             in GiB h",
            name.get_ref()
        );
        file.error(&name.span(), message)
    })
}

/// What a GiB is worth for a second. In GiB hours it is 1 by definition.
fn memory(
    file: &ProfileText<'_>,
    raw: &raw::RawGivebackProfile,
    unit: WorthUnit,
) -> Result<SourcedValue<Interval<WorthPerGibSecond>>, ProfileError> {
    let per_second = 1.0 / SECONDS_PER_HOUR;
    match (&raw.memory, &raw.currency) {
        (None, None) => Ok(SourcedValue {
            value: Some(Interval::exactly(WorthPerGibSecond(per_second))),
            written: "1 GiB h for each GiB and hour".to_owned(),
            source: "by definition, because the file names no currency".to_owned(),
        }),
        (Some(number), None) => Err(file.error(
            &number.span(),
            "memory has no use without a currency, because a GiB for an hour is 1 GiB h: take it \
             out, or name a currency",
        )),
        (None, Some(currency)) => Err(file.error(
            &currency.span(),
            format!("the file names a currency, so it needs memory, in {unit}/GiB h"),
        )),
        (Some(number), Some(_)) => {
            let name = format!("{unit}/GiB h");
            let memory: SourcedValue<Interval<WorthPerGibSecond>> =
                known(file, "memory", number, &[(name.as_str(), per_second)])?;
            if memory.value.is_some_and(|value| value.high().0 <= 0.0) {
                let message = "memory is worth 0: nothing could be earned by giving it back";
                return Err(file.error(&number.span(), message));
            }
            Ok(memory)
        }
    }
}

/// A figure that decisions cannot do without.
fn known<Q: ramslice_types::PhysicalQuantity>(
    file: &ProfileText<'_>,
    what: &str,
    raw: &raw::RawNumber,
    units: &[(&str, f64)],
) -> Result<SourcedValue<Interval<Q>>, ProfileError> {
    let figure = file.interval(what, raw, units)?;
    if figure.value.is_none() {
        let message = format!(
            "{what} is unknown: a decision needs it; give low and high as far apart as they may be"
        );
        return Err(file.error(&raw.span(), message));
    }
    Ok(figure)
}

#[cfg(test)]
#[path = "giveback_tests.rs"]
mod tests;
