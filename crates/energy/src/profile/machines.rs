//! Classes of machines, and what packing is worth on each: power, share of the machine, money, CO2,
//! beside what the same memory would be worth given back.
//!
//! ```text
//! saved [W]           = saving by packing [W/GiB] x memory [GiB] x share off
//! money [USD/year]    = saved x hours of a year x site x price of energy
//! given back          = memory x share off x hours of a year x price of memory
//! ```
//!
//! `profiles/machine-classes.toml` has the figures with their sources. What a state saves counts as
//! far as its profile knows; what is not known stays so in each figure that follows from it.

use ramslice_types::{Gibibytes, PhysicalQuantity, Ratio, Watts, WattsPerGib};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::quantity::{PERCENT, POWER, ProfileText, SIZE, UnitTable};
use super::{ProfileError, SourcedValue, builtin, check, raw};
use crate::interval::Interval;

const FILE: &str = "profiles/machine-classes.toml";
const TEXT: &str = include_str!("../../../../profiles/machine-classes.toml");
const HOURS_PER_YEAR: f64 = 8766.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachines {
    schema_version: Spanned<u32>,
    #[serde(rename = "kind")]
    _kind: Spanned<String>,
    prices: RawMachinePrices,
    class: Vec<RawClass>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachinePrices {
    energy: raw::RawNumber,
    carbon: raw::RawNumber,
    site: raw::RawNumber,
    memory: raw::RawNumber,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClass {
    name: String,
    profile: Spanned<String>,
    state: Spanned<String>,
    memory: raw::RawNumber,
    power: raw::RawNumber,
    off: raw::RawNumber,
    given_back: bool,
}

/// What packing is worth on a class of machines. What a source leaves out is nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassWorth {
    /// The class.
    pub class: String,
    /// The profile.
    pub profile: String,
    /// Its state.
    pub state: String,
    /// Memory of the machine.
    pub memory_gib: Interval<Gibibytes>,
    /// The share of it that packing keeps off.
    pub off: Interval<Ratio>,
    /// Power saved while that much is off and the state applies.
    pub saved_watts: Option<Interval<Watts>>,
    /// The same as a share of the machine's power.
    pub share_of_machine: Option<Interval<Ratio>>,
    /// US dollars a year.
    pub usd_per_year: Option<Interval<Ratio>>,
    /// Kilograms of CO2 a year.
    pub co2_kg_per_year: Option<Interval<Ratio>>,
    /// US dollars a year for the same memory given to a host; nothing where no host takes it.
    pub given_back_usd_per_year: Option<Interval<Ratio>>,
    /// The figures of the class, each with its source.
    pub sources: Vec<ClassSource>,
}

/// A figure of a class, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassSource {
    /// The field.
    pub field: &'static str,
    /// As the file has it.
    pub written: String,
    /// Its source.
    pub source: String,
}

/// The figures that all classes share, and the classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineClasses {
    /// The prices, each with its source.
    pub prices: Vec<ClassSource>,
    /// What packing is worth on each class, in the order of the file.
    pub classes: Vec<ClassWorth>,
}

impl MachineClasses {
    /// The classes that come with ramslice.
    ///
    /// # Errors
    /// None: a test reads them.
    pub fn builtin() -> Result<Self, ProfileError> {
        Self::parse(TEXT, FILE)
    }

    /// Reads classes from the text of a file; `file` is its name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what is allowed.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        let file = ProfileText { name: file, text };
        let raw: RawMachines = toml::from_str(text).map_err(|error| file.toml_error(&error))?;
        check::known_version(&file, &raw.schema_version)?;
        let mut prices = Vec::new();
        let mut price = |field, number: &raw::RawNumber, units: UnitTable<'_>| {
            let figure = file.interval::<Ratio>(field, number, units)?;
            prices.push(source(field, &figure));
            figure.value.ok_or_else(|| {
                let message = format!("{field} is unknown: give low and high, however far apart");
                file.error(&number.span(), message)
            })
        };
        let all = Prices {
            energy: price("energy", &raw.prices.energy, &[("USD/kWh", 1e-3)])?,
            carbon: price("carbon", &raw.prices.carbon, &[("g/kWh", 1e-6)])?,
            site: price("site", &raw.prices.site, &[("W/W", 1.0)])?,
            memory: price("memory", &raw.prices.memory, &[("USD/GiB h", 1.0)])?,
        };
        let classes: Result<Vec<_>, _> =
            raw.class.iter().map(|class| all.worth(&file, class)).collect();
        Ok(Self { prices, classes: classes? })
    }
}

/// For each Wh, Wh, W and GiB h.
struct Prices {
    energy: Interval<Ratio>,
    carbon: Interval<Ratio>,
    site: Interval<Ratio>,
    memory: Interval<Ratio>,
}

impl Prices {
    fn worth(&self, file: &ProfileText<'_>, raw: &RawClass) -> Result<ClassWorth, ProfileError> {
        let what = |field: &str| format!("{field} of class `{}`", raw.name);
        let memory = file.interval::<Gibibytes>(&what("memory"), &raw.memory, SIZE)?;
        let power = file.interval::<Watts>(&what("power"), &raw.power, POWER)?;
        let off = file.interval::<Ratio>(&what("off"), &raw.off, PERCENT)?;
        let known = |field, number: &raw::RawNumber| {
            let message = format!("{} is unknown: give low and high", what(field));
            file.error(&number.span(), message)
        };
        let memory_gib = memory.value.ok_or_else(|| known("memory", &raw.memory))?;
        let share = off.value.ok_or_else(|| known("off", &raw.off))?;
        if share.high().0 > 1.0 {
            let message = format!("{} is above 100 %", what("off"));
            return Err(file.error(&raw.off.span(), message));
        }
        let saving = saving(file, raw)?;
        let gib = plain(memory_gib).times(share);
        let watts = saving.map(|saving| plain(saving).times(gib));
        let saved_watts =
            watts.map(|watts| Interval::between(Watts(watts.low().0), Watts(watts.high().0)));
        // In Wh of the site.
        let saved = watts.map(|watts| watts.scaled(HOURS_PER_YEAR).times(self.site));
        Ok(ClassWorth {
            class: raw.name.clone(),
            profile: raw.profile.get_ref().clone(),
            state: raw.state.get_ref().clone(),
            memory_gib,
            off: share,
            saved_watts,
            share_of_machine: saved_watts.zip(power.value).and_then(|(saved, all)| saved.per(all)),
            usd_per_year: saved.map(|wh| wh.times(self.energy)),
            co2_kg_per_year: saved.map(|wh| wh.times(self.carbon)),
            given_back_usd_per_year: raw
                .given_back
                .then(|| gib.scaled(HOURS_PER_YEAR).times(self.memory)),
            sources: vec![source("memory", &memory), source("power", &power), source("off", &off)],
        })
    }
}

/// The numbers alone.
fn plain<Q: PhysicalQuantity>(value: Interval<Q>) -> Interval<Ratio> {
    Interval::between(Ratio(value.low().get()), Ratio(value.high().get()))
}

/// What the state of a class saves for each GiB.
fn saving(
    file: &ProfileText<'_>,
    raw: &RawClass,
) -> Result<Option<Interval<WattsPerGib>>, ProfileError> {
    let name = raw.profile.get_ref();
    let Some(profile) = builtin(name) else {
        return Err(file.error(&raw.profile.span(), format!("there is no profile `{name}`")));
    };
    let profile = profile?;
    let state = profile.state(raw.state.get_ref()).ok_or_else(|| {
        let message = format!("profile `{name}` has no state `{}`", raw.state.get_ref());
        file.error(&raw.state.span(), message)
    })?;
    Ok(state.saving_by_packing())
}

fn source<T>(field: &'static str, figure: &SourcedValue<T>) -> ClassSource {
    ClassSource { field, written: figure.written.clone(), source: figure.source.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thesis_desktop_saves_what_its_profile_says_for_the_share_that_is_off() {
        let all = MachineClasses::builtin().unwrap();
        let desktop = &all.classes[0];
        let saved = desktop.saved_watts.unwrap();
        // 9.19 mW/GiB x 32 GiB, of which 10 to 90 % are off.
        assert!((saved.low().0 - 0.029_408).abs() < 1e-6, "{saved:?}");
        assert!((saved.high().0 - 0.264_672).abs() < 1e-6, "{saved:?}");
        let share = desktop.share_of_machine.unwrap();
        assert!((share.high().0 - 0.026_467).abs() < 1e-5, "{share:?}");
        assert_eq!(desktop.given_back_usd_per_year, None);
    }

    #[test]
    fn memory_given_back_is_worth_more_than_powering_it_down_wherever_a_host_takes_it() {
        let all = MachineClasses::builtin().unwrap();
        let mut compared = 0;
        for class in &all.classes {
            if let Some(given) = class.given_back_usd_per_year {
                let saved = class.usd_per_year.unwrap();
                assert!(given.high().0 > saved.high().0, "{}", class.class);
                compared += 1;
            }
        }
        assert!(compared >= 3);
    }

    #[test]
    fn what_is_unknown_stays_unknown_and_wrong_names_are_refused_by_line() {
        let all = MachineClasses::builtin().unwrap();
        let cxl = all.classes.iter().find(|class| class.profile == "cxl-expander").unwrap();
        assert_eq!(cxl.share_of_machine, None);
        let wrong = TEXT.replacen("state = \"parc\"", "state = \"nap\"", 1);
        let error = MachineClasses::parse(&wrong, "x.toml").unwrap_err().to_string();
        assert!(error.contains("no state `nap`") && error.starts_with("x.toml:"), "{error}");
    }
}
