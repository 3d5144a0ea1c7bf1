//! Joules: what a profile says of slices that are off, and the ledger across restarts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use ramslice_backend::Processor;
use ramslice_energy::{
    DramPowerState, DramProfile, EnergyLedger, EnergySample, EnergyStatement, EnergyTally,
    Interval, PowerGranule, SampleClock, StatementSettings, TimeFactor, builtin_names,
    builtin_text,
};
use ramslice_policy::SliceEconomics;
use ramslice_types::{BackendInfo, Bytes, Joules, Price, PriceParameter};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::mode::Mode;

/// A plan that does not work out: what it is about, and what to do.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The profile cannot be had, or does not tell enough.
    #[error("energy.profile: {0}")]
    DramProfile(String),
    /// It has no such state.
    #[error("energy.state: {0}")]
    DramPowerState(String),
    /// The profile that costs are taken from.
    #[error("energy.machine: {0}")]
    Machine(String),
}

/// What the hardware switches as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// As the profile has it.
    #[default]
    DramProfile,
    /// A slice, whatever its size.
    Slice,
    /// So many bytes.
    Bytes(Bytes),
}

/// What the sums of a ledger are of. Those of different kinds can neither be added nor be worked out with the same figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// The profile and its state.
    pub profile: String,
    /// Checksum of the files that its figures are from.
    pub crc32: String,
    /// What the hardware switches as one; nothing if that is not known.
    pub granule_bytes: Option<Bytes>,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// Slices are switched by memory hotplug of a stock kernel, which keeps no accounts.
    pub stock: bool,
    /// A power driver switches what is off.
    #[serde(default = "yes")]
    pub switched: bool,
}

/// Of states that do not say: most machines have a driver.
fn yes() -> bool {
    true
}

impl Kind {
    /// The same, with a power driver or without.
    #[must_use]
    pub fn with(&self, switched: bool) -> Self {
        Self { switched, ..self.clone() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, crc32, granule_bytes, page_bytes, stock, switched } = self;
        let unit =
            granule_bytes.map_or_else(|| "an unknown size".to_owned(), |unit| unit.to_string());
        let way = if *stock { "a stock kernel" } else { "the patched kernel" };
        let driver = if *switched { "" } else { " without a power driver" };
        write!(
            f,
            "{profile} ({crc32}), {unit} switched as one, pages of {page_bytes}, {way}{driver}"
        )
    }
}

/// What joules are worked out with.
#[derive(Debug, Clone)]
pub struct Plan {
    profile: DramProfile,
    /// Of the texts of all profiles that figures are taken from.
    crc32: u32,
    state: DramPowerState,
    unit: Unit,
    factor: Option<TimeFactor>,
}

/// A profile, and its text.
fn load(name: &str) -> Result<(DramProfile, String), String> {
    let (text, file) = match builtin_text(name) {
        Some(text) => (text.to_owned(), format!("profiles/{name}.toml")),
        None if !name.contains(['/', '.']) && !Path::new(name).exists() => {
            let names: Vec<&str> = builtin_names().collect();
            return Err(format!(
                "there is no `{name}`: name one of {}, or the path of a file",
                names.join(", ")
            ));
        }
        None => (
            fs::read_to_string(name).map_err(|error| format!("reading {name}: {error}"))?,
            name.to_owned(),
        ),
    };
    let profile = DramProfile::parse(&text, &file).map_err(|error| error.to_string())?;
    Ok((profile, text))
}

impl Plan {
    /// From names as in the settings.
    ///
    /// # Errors
    /// If there is no such profile or state, or it does not tell what decisions need.
    pub fn new(
        profile: &str,
        state: Option<&str>,
        machine: Option<&str>,
        unit: Unit,
        factor: Option<TimeFactor>,
    ) -> Result<Self, PlanError> {
        let (mut profile, mut texts) = load(profile).map_err(PlanError::Profile)?;
        if let Some(other) = machine {
            let (other, text) = load(other).map_err(PlanError::Machine)?;
            texts += &text;
            if other.machine.is_none() {
                let message =
                    format!("{} names no machine, whose costs could be taken", other.file);
                return Err(PlanError::Machine(message));
            }
            profile.machine = other.machine;
        }
        let name = state.unwrap_or(&profile.default_state);
        let Some(state) = profile.state(name).cloned() else {
            let names: Vec<&str> = profile.states.iter().map(|state| state.name.as_str()).collect();
            let message =
                format!("{} has no state `{name}`: it has {}", profile.file, names.join(", "));
            return Err(PlanError::State(message));
        };
        let plan = Self { profile, crc32: crc32fast::hash(texts.as_bytes()), state, unit, factor };
        // Whether it works out does not depend on the sizes.
        plan.economics(Bytes(64 << 20), Bytes(4096))
            .map_err(|error| PlanError::Profile(error.clone()))?;
        Ok(plan)
    }

    /// What decisions need, for slices and pages of these sizes.
    ///
    /// # Errors
    /// A sentence: what the profile does not tell.
    pub fn economics(&self, slice: Bytes, page: Bytes) -> Result<SliceEconomics, String> {
        let machine = self.profile.machine.as_ref().ok_or_else(|| {
            format!(
                "{} names no machine, whose costs could be counted: state energy.machine, as in \"thesis-parc\"",
                self.profile.file
            )
        })?;
        SliceEconomics::new(&self.state, machine, slice, page)
            .map(|economics| economics.switched_as_one(self.granule(slice).bytes(), slice))
            .map_err(|error| format!("{}: {error}", self.profile.file))
    }

    /// The profile and its state, for people and to tell whether what was learned still fits.
    pub fn name(&self) -> String {
        format!("{}/{}", self.profile.name, self.state.name)
    }

    /// What sums are of that are kept with this plan on this machine.
    pub fn kind(&self, info: &BackendInfo) -> Kind {
        Kind {
            profile: self.name(),
            crc32: format!("{:08x}", self.crc32),
            granule_bytes: self.granule(info.slice_bytes).bytes(),
            page_bytes: info.page_bytes,
            stock: info.is_stock(),
            switched: Power::of(info) != Power::Nobody,
        }
    }

    /// The most joules that so much CPU time may have cost on this machine, in the ledger's eyes: none where its seconds are not
    /// real, for there the CPU time of emptying is left out as well.
    pub fn running(&self, time: Price, info: &BackendInfo) -> f64 {
        let power =
            self.profile.machine.as_ref().and_then(|machine| machine.compacting_power.value);
        match (self.clock(), power, info.clock()) {
            (Some(SampleClock::Real), Some(power), Some(clock)) => {
                power.high().0 * time.cycles() as f64 / clock.0
            }
            _ => 0.0,
        }
    }

    fn granule(&self, slice: Bytes) -> PowerGranule {
        match self.unit {
            Unit::Profile => PowerGranule::OfProfile(self.state.granularity.bytes.value),
            Unit::Slice => PowerGranule::Assumed(slice),
            Unit::Bytes(bytes) => PowerGranule::Assumed(bytes),
        }
    }

    /// What makes joules doubtful on this machine.
    pub fn notes(&self, info: &BackendInfo) -> Vec<String> {
        let power = match Power::of(info) {
            Power::Driver => None,
            Power::Unknown => Some(
                "nobody can see whether a driver powers down the memory that goes offline; unless one does, nothing is saved"
                    .to_owned(),
            ),
            Power::Nobody => Some(
                "there is no power driver, so nothing is switched and nothing saved; what would be is as if there were one"
                    .to_owned(),
            ),
        };
        power.into_iter().chain(self.doubt(info.slice_bytes)).collect()
    }

    /// What is wrong with slices of this size, or with this machine's seconds.
    fn doubt(&self, slice: Bytes) -> Option<String> {
        if self.clock().is_none() {
            return Some(
                "this machine is emulated, so its seconds are not real ones and there are no joules: state \
                 energy.time_factor"
                    .to_owned(),
            );
        }
        let unit = self.granule(slice).bytes();
        match unit {
            Some(unit) if unit > slice => Some(format!(
                "slices of {slice} are smaller than what the hardware switches as one, {unit} by the profile {}: \
                 unless all slices of such a unit are off nothing is saved, and the governor does nothing; make them larger with \
                 `ramslice slices --resize {}`, or state energy.granularity",
                self.name(),
                unit.typed(),
            )),
            None => Some(format!(
                "the profile {} does not tell what the hardware switches as one, so perhaps nothing is saved: state \
                 energy.granularity",
                self.name(),
            )),
            Some(_) => None,
        }
    }

    /// The clock of this machine; nothing if its seconds are not real and nobody says how slow it is.
    fn clock(&self) -> Option<SampleClock> {
        if let Some(factor) = &self.factor {
            return Some(SampleClock::Emulated(factor.clone()));
        }
        match Processor::here() {
            Processor::Real | Processor::Virtual(_) => Some(SampleClock::Real),
            Processor::Emulated(_) | Processor::Unknown => None,
        }
    }
}

/// Who switches the power of slices that are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    /// The kernel's power driver.
    Driver,
    /// Whoever listens to memory hotplug of a stock kernel, if anybody does.
    Unknown,
    /// There is no power driver.
    Nobody,
}

impl Power {
    fn of(info: &BackendInfo) -> Self {
        match info.power_driver.as_str() {
            "none" => Self::Nobody,
            _ if info.is_stock() => Self::Unknown,
            _ => Self::Driver,
        }
    }
}

/// An interval of joules, as in files and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl From<Interval<Joules>> for Range {
    fn from(interval: Interval<Joules>) -> Self {
        Self { low: interval.low().0, high: interval.high().0 }
    }
}

/// What came of everything so far, in joules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Earned {
    /// Saved by slices that were off.
    #[serde(rename = "saved_joules")]
    pub saved: Range,
    /// What that cost, as far as it could be counted.
    #[serde(rename = "invested_joules")]
    pub invested: Range,
    /// Saved less invested.
    #[serde(rename = "net_joules")]
    pub net: Range,
    /// The time that this is about, in seconds of this machine's clock.
    pub seconds: f64,
    /// The verdict in a sentence.
    pub verdict: String,
}

/// What a ledger comes to, and of that, what the daemon took besides its requests.
pub type Sums = (EnergyTally, Price);

/// The ledger of a mode: what it was before this run, and what has been added.
#[derive(Debug)]
pub struct Books {
    /// Of its sums, what this daemon took besides its requests.
    pub own: Price,
    before: EnergyTally,
    ledger: EnergyLedger,
    granule: Option<Bytes>,
    /// It is of what would have been.
    simulated: bool,
}

/// The ledgers of the modes that have one.
#[derive(Debug)]
pub struct ModeLedgers {
    /// Of mode on.
    pub earned: Books,
    /// Of mode observe.
    pub would_earn: Books,
}

impl ModeLedgers {
    /// Go on from sums of the same kind.
    pub fn new(kind: &Kind, earned: Sums, would_earn: Sums) -> Self {
        Self {
            earned: Books::new(kind, earned, false),
            would_earn: Books::new(kind, would_earn, true),
        }
    }

    /// The ledger of a mode, if it has any.
    pub fn of(&self, mode: Mode) -> Option<&Books> {
        match mode {
            Mode::On => Some(&self.earned),
            Mode::Observe => Some(&self.would_earn),
            Mode::Off => None,
        }
    }

    /// The same, to add to it.
    pub fn of_mut(&mut self, mode: Mode) -> Option<&mut Books> {
        match mode {
            Mode::On => Some(&mut self.earned),
            Mode::Observe => Some(&mut self.would_earn),
            Mode::Off => None,
        }
    }

    /// What both come to.
    pub fn sums(&self) -> (Sums, Sums) {
        (self.earned.sums(), self.would_earn.sums())
    }

    /// Both pause.
    pub fn pause(&mut self) {
        self.earned.pause();
        self.would_earn.pause();
    }
}

impl Earned {
    /// What is left of it where slices that were off may have had power all the time.
    fn by(self, power: Power) -> Self {
        let Self { saved, invested, .. } = self;
        match power {
            Power::Driver => self,
            Power::Unknown => Self {
                saved: Range { low: saved.low.min(0.0), ..saved },
                net: Range { low: self.net.low.min(-invested.high), ..self.net },
                verdict: format!("If a driver powers down what goes offline: {}", self.verdict),
                ..self
            },
            Power::Nobody => Self {
                saved: Range { low: 0.0, high: 0.0 },
                net: Range { low: -invested.high, high: -invested.low },
                verdict:
                    "Nothing was switched, for there is no power driver: what packing cost is lost."
                        .to_owned(),
                ..self
            },
        }
    }
}

impl Books {
    /// Goes on from sums of the same kind.
    pub fn new(kind: &Kind, (before, own): Sums, simulated: bool) -> Self {
        let granule = kind.granule_bytes;
        Self { own, before, ledger: EnergyLedger::new(granule), granule, simulated }
    }

    /// Whether it is of what would have been.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Adds what happened until this sample. One of another boot begins anew, and what was before stays.
    pub fn add(&mut self, sample: EnergySample) {
        if let Err(error) = self.ledger.add(sample.clone()) {
            tracing::debug!(%error, "the ledger begins anew");
            self.before = self.tally();
            self.ledger = EnergyLedger::new(self.granule);
            // The first sample of a ledger follows no other.
            let _ = self.ledger.add(sample);
        }
    }

    /// Time passes that belongs to nobody: until the next sample nothing is counted.
    pub fn pause(&mut self) {
        self.before = self.tally();
        self.ledger = EnergyLedger::new(self.granule);
    }

    /// What the next books of the same kind go on from.
    pub fn sums(&self) -> Sums {
        (self.tally(), self.own)
    }

    /// The sums, those of earlier runs included.
    pub fn tally(&self) -> EnergyTally {
        self.before + *self.ledger.tally()
    }

    /// In joules, by the plan and the machine whose kind the sums are of; nothing if this machine's seconds are not real. Of what
    /// was only imagined, as if its power were switched.
    pub fn earned(
        &self,
        plan: &Plan,
        info: &BackendInfo,
        prices: &BTreeMap<PriceParameter, Price>,
    ) -> Option<Earned> {
        let clock = plan.clock()?;
        let tally = self.tally();
        let statement = EnergyStatement::new(
            &tally,
            &StatementSettings {
                profile: &plan.profile,
                state: &plan.state,
                clock: &clock,
                cycle_clock: info.clock(),
                granule: plan.granule(info.slice_bytes),
                runtime_change: None,
                accounts: !info.is_stock(),
                kernel_prices: prices,
                page_bytes: info.page_bytes,
                memory: info.managed_pages.bytes(info.page_bytes),
                power_driver: &info.power_driver,
                measured: None,
            },
        )?;
        let earned = Earned {
            saved: statement.saved_joules.into(),
            invested: statement.invested_joules.into(),
            net: statement.net_joules.into(),
            seconds: tally.elapsed().as_secs_f64(),
            verdict: statement.verdict.sentence.clone(),
        };
        Some(if self.simulated { earned } else { earned.by(Power::of(info)) })
    }
}
