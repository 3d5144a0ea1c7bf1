//! Options that every command with a ledger of joules shares, and the plan that they make.

use std::str::FromStr;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use ramslice_backend::ProcessorKind;
use ramslice_energy::{
    AssumedUnit, DramProfile, Interval, LedgerPlan, SampleClock, TimeFactor, UnknownSaving,
};
use ramslice_types::{Bytes, Ratio, parse_bytes};

use crate::exit::UsageError;
use crate::profile_files;

/// The memory system, and what its joules are counted by.
#[derive(Debug, Clone, clap::Args)]
pub struct LedgerOptions {
    /// The memory system: a name, as thesis-parc (`ramslice-lab profiles` lists them), or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: String,
    /// The power state [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub state: Option<String>,
    /// Take the machine that costs are counted for from another profile
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// How slow an emulated machine is.
    #[command(flatten)]
    pub time_factor: TimeFactorOptions,
    /// Assume that the hardware switches units of this size, as in 64M, or `slice`
    #[arg(long, value_name = "SIZE|slice")]
    pub granularity: Option<UnitSize>,
    /// By how much the work took longer than without packing: 0.1% or 0..0.2%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub runtime_change: Option<PercentRange>,
}

/// How slow an emulated machine is, and where that figure comes from.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TimeFactorOptions {
    /// How many times slower than the profile's machine an emulated one is: 15 or 12..18
    #[arg(long, value_name = "FACTOR")]
    pub time_factor: Option<FactorRange>,
    /// Where that factor comes from, printed beside it, as in "case study compile, timed 5 times"
    #[arg(
        long,
        value_name = "TEXT",
        requires = "time_factor",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub time_factor_source: Option<String>,
}

/// `15` or `12..18`.
#[derive(Debug, Clone, Copy)]
pub struct FactorRange(pub Interval<Ratio>);

impl FromStr for FactorRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is neither a number nor a range of two: write 15 or 12..18");
        let number = |text: &str| text.trim().parse::<f64>().map(Ratio).map_err(|_| wrong());
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        Interval::new(number(low)?, number(high)?).map(Self).map_err(|error| error.to_string())
    }
}

/// `0.1%` or `0..0.2%`.
#[derive(Debug, Clone, Copy)]
pub struct PercentRange(pub Interval<Ratio>);

impl FromStr for PercentRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range: FactorRange = text.trim_end_matches('%').parse()?;
        if range.0.low().0 <= -100.0 {
            return Err(format!("`{text}`: work cannot take 100 % less time"));
        }
        Ok(Self(range.0.scaled(0.01)))
    }
}

/// The size of the unit that the hardware switches, or that of a slice.
#[derive(Debug, Clone, Copy)]
pub struct UnitSize(pub AssumedUnit);

impl FromStr for UnitSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "slice" => Ok(Self(AssumedUnit::Slice)),
            text => match parse_bytes(text) {
                Ok(Bytes(0)) => Err("a unit of 0 bytes cannot be switched".to_owned()),
                Ok(bytes) => Ok(Self(AssumedUnit::Bytes(bytes))),
                Err(error) => Err(format!("{error}; or `slice`")),
            },
        }
    }
}

impl LedgerOptions {
    /// The plan of a ledger with this clock.
    ///
    /// # Errors
    /// If a profile cannot be read, lacks what is named, or gives no joules.
    pub fn plan(&self, clock: SampleClock) -> Result<LedgerPlan> {
        let mut profile = profile_files::load(&self.profile)?;
        if let Some(other) = &self.machine {
            let DramProfile { file, machine, .. } = profile_files::load(other)?;
            if machine.is_none() {
                let message = format!("{file} names no machine whose costs could be taken");
                return Err(UsageError(message).into());
            }
            profile.machine = machine;
        }
        let state = profile_files::state(&profile, self.state.as_deref())?;
        if let Err(unknown) = state.known_saving() {
            let (file, name) = (&profile.file, &self.profile);
            let message = match unknown {
                UnknownSaving::Scale => format!(
                    "{file} gives relative powers only, so there are no joules: copy it with \
                     `ramslice-lab profiles {name} --toml`, and state module_capacity or \
                     full_power, which its source leaves out"
                ),
                UnknownSaving::Figure { figure, .. } => format!(
                    "{file}: {unknown}, so there are no joules: choose another --state, or copy \
                     it with `ramslice-lab profiles {name} --toml`, and state {figure}"
                ),
            };
            return Err(UsageError(message).into());
        }
        Ok(LedgerPlan {
            profile,
            state,
            clock,
            assumed_unit: self.granularity.map(|size| size.0),
            runtime_change: self.runtime_change.map(|percent| percent.0),
        })
    }
}

impl TimeFactorOptions {
    /// The clock of `machine`.
    ///
    /// # Errors
    /// If its seconds may not be real and nothing says how slow it is.
    pub fn clock(&self, processor: &ProcessorKind, machine: &str) -> Result<SampleClock> {
        if let Some(FactorRange(factor)) = self.time_factor {
            let source = self.time_factor_source.as_deref().unwrap_or("--time-factor");
            let factor =
                TimeFactor::new(factor, source).map_err(|error| UsageError(error.to_string()))?;
            return Ok(SampleClock::Emulated(factor));
        }
        let what = match processor {
            ProcessorKind::Real | ProcessorKind::Virtual(_) => return Ok(SampleClock::Real),
            ProcessorKind::Emulated(name) => {
                format!("{machine} is emulated ({name}), so its seconds are not real ones")
            }
            ProcessorKind::Unknown => {
                format!("whether {machine} is emulated cannot be known")
            }
        };
        let message = format!(
            "{what}: state with --time-factor how many times slower it is than the profile's \
             machine, the time of a program here divided by its time there"
        );
        Err(UsageError(message).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LedgerOptions {
        LedgerOptions {
            profile: "thesis-parc".to_owned(),
            state: None,
            machine: None,
            time_factor: TimeFactorOptions::default(),
            granularity: Some(UnitSize(AssumedUnit::Slice)),
            runtime_change: None,
        }
    }

    #[test]
    fn emulated_seconds_need_a_factor() {
        let emulated = ProcessorKind::Emulated("TCGTCGTCGTCG".to_owned());
        let error = TimeFactorOptions::default().clock(&emulated, "this machine").unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("--time-factor"), "{error}");
        assert!(TimeFactorOptions::default().clock(&ProcessorKind::Unknown, "it").is_err());
        let factor = |text: &str| TimeFactorOptions {
            time_factor: Some(text.parse().unwrap()),
            ..TimeFactorOptions::default()
        };
        assert!(matches!(factor("12..18").clock(&emulated, "it"), Ok(SampleClock::Emulated(_))));
        assert!(matches!(
            TimeFactorOptions::default()
                .clock(&ProcessorKind::Virtual("KVMKVMKVM".to_owned()), "it"),
            Ok(SampleClock::Real)
        ));
        assert!(matches!(
            TimeFactorOptions::default().clock(&ProcessorKind::Real, "it"),
            Ok(SampleClock::Real)
        ));
        assert!(factor("0").clock(&emulated, "it").is_err());
    }

    #[test]
    fn ranges_and_percentages_are_read_or_refused() {
        let range = |text: &str| {
            text.parse::<FactorRange>().map(|range| (range.0.low().0, range.0.high().0))
        };
        assert_eq!(range("15"), Ok((15.0, 15.0)));
        assert_eq!(range("12..18"), Ok((12.0, 18.0)));
        for text in ["", "18..12", "a", "1..", "nan", "1..inf"] {
            assert!(range(text).is_err(), "{text}");
        }
        let percent = "-0.1..0.2%".parse::<PercentRange>().unwrap().0;
        assert!(
            (percent.low().0 + 0.001).abs() < 1e-15 && (percent.high().0 - 0.002).abs() < 1e-15
        );
        assert!("-100%".parse::<PercentRange>().is_err());
        assert!("0".parse::<UnitSize>().is_err() && "big".parse::<UnitSize>().is_err());
        assert!(matches!("slice".parse(), Ok(UnitSize(AssumedUnit::Slice))));
    }

    #[test]
    fn every_profile_that_gives_joules_can_be_planned_with() {
        for name in ramslice_energy::builtin_names() {
            let profile: DramProfile = ramslice_energy::builtin(name).unwrap().unwrap();
            let options = LedgerOptions { profile: name.to_owned(), ..options() };
            let gives =
                profile.state(&profile.default_state).unwrap().saving_by_packing().is_some();
            assert_eq!(options.plan(SampleClock::Real).is_ok(), gives, "{name}");
        }
    }

    #[test]
    fn a_profile_without_a_machine_can_use_the_machine_of_another() {
        let with = |machine: &str| LedgerOptions {
            profile: "ddr5-modes".to_owned(),
            machine: Some(machine.to_owned()),
            ..options()
        };
        let plan = with("thesis-parc").plan(SampleClock::Real).unwrap();
        assert!(plan.profile.machine.unwrap().name.contains("Ryzen"));
        let error = with("rdram").plan(SampleClock::Real).err().unwrap();
        assert!(
            error.is::<UsageError>() && error.to_string().contains("rdram.toml names no machine"),
            "{error}"
        );
    }
}
