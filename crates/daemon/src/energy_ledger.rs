//! Joules: what an energy profile says of offline slices, and the ledgers across restarts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ramslice_backend::ProcessorKind;
use ramslice_energy::{
    DramPowerState, DramProfile, EnergyLedger, EnergySample, EnergyStatement, EnergyTally,
    Interval, PowerGranule, SampleClock, StatementSettings, TimeFactor, WorthProfile, builtin_text,
    range, worth_profile_names,
};
use ramslice_policy::{GranuleLayout, RestEconomics, SliceEconomics};
use ramslice_types::{BackendInfo, Bytes, Joules, Price, PriceParameter};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::mode::DaemonMode;

/// An energy plan that cannot be used: which setting is wrong, and what to do.
#[derive(Debug, Error)]
pub enum EnergyPlanError {
    /// The profile cannot be read, or lacks a figure.
    #[error("energy.profile: {0}")]
    Profile(String),
    /// The profile has no such power state.
    #[error("energy.state: {0}")]
    State(String),
    /// The profile that gives the costs is wrong.
    #[error("energy.machine: {0}")]
    Machine(String),
}

/// The built-in profile of no machine that exists.
const MADE_UP: &str = "thesis-parc";

/// How much memory the hardware switches as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwitchUnit {
    /// As the profile says.
    #[default]
    Profile,
    /// A slice, whatever its size.
    Slice,
    /// This many bytes.
    Bytes(Bytes),
}

/// What the sums of a ledger are about. Sums of different kinds can neither be added nor be
/// evaluated with the same figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerKind {
    /// The profile and its state.
    pub profile: String,
    /// Checksum of the files with its figures.
    pub crc32: String,
    /// How much memory the hardware switches as one; none if that is not known.
    pub granule_bytes: Option<Bytes>,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// A stock kernel switches slices by memory hotplug and does nothing at each page for it.
    pub stock: bool,
    /// A power driver switches offline slices.
    #[serde(default = "default_switched")]
    pub switched: bool,
}

/// For saved states without this field: most machines have a driver.
fn default_switched() -> bool {
    true
}

impl LedgerKind {
    /// The same, with a power driver or without.
    #[must_use]
    pub fn with_switch(&self, switched: bool) -> Self {
        Self { switched, ..self.clone() }
    }
}

impl fmt::Display for LedgerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, crc32, granule_bytes, page_bytes, stock, switched } = self;
        let unit =
            granule_bytes.map_or_else(|| "an unknown size".to_owned(), |unit| unit.to_string());
        let kernel = if *stock { "a stock kernel" } else { "the patched kernel" };
        let driver = if *switched { "" } else { " without a power driver" };
        write!(
            f,
            "{profile} ({crc32}), {unit} switched as one, pages of {page_bytes}, {kernel}{driver}"
        )
    }
}

/// The figures that joules are worked out with.
#[derive(Debug, Clone)]
pub struct EnergyPlan {
    profile: DramProfile,
    /// Checksum of the texts of all profiles that figures are from.
    crc32: u32,
    state: DramPowerState,
    unit: SwitchUnit,
    factor: Option<TimeFactor>,
}

/// A profile, and its text.
#[derive(Debug)]
pub(crate) struct LoadedProfile {
    pub(crate) profile: WorthProfile,
    pub(crate) text: String,
}

/// Finds a profile of either kind by name or path, and checks it.
pub(crate) fn load_profile(name: &str) -> Result<LoadedProfile, String> {
    let (text, file) = match builtin_text(name) {
        Some(text) => (text.to_owned(), format!("profiles/{name}.toml")),
        None if !name.contains(['/', '.']) && !Path::new(name).exists() => {
            let names: Vec<&str> = worth_profile_names().collect();
            return Err(format!(
                "there is no `{name}`: name one of {}, \"none\", or the path of a file",
                names.join(", ")
            ));
        }
        None => (
            fs::read_to_string(name).map_err(|error| format!("reading {name}: {error}"))?,
            name.to_owned(),
        ),
    };
    let profile = WorthProfile::parse(&text, &file).map_err(|error| error.to_string())?;
    Ok(LoadedProfile { profile, text })
}

impl EnergyPlan {
    /// Makes a plan from a profile and its text, and names as in the settings.
    ///
    /// # Errors
    /// If there is no such state or machine, or the profile lacks a figure that decisions need.
    pub(crate) fn new(
        mut profile: DramProfile,
        mut texts: String,
        state: Option<&str>,
        machine: Option<&str>,
        unit: SwitchUnit,
        factor: Option<TimeFactor>,
    ) -> Result<Self, EnergyPlanError> {
        if let Some(other) = machine {
            let loaded = load_profile(other).map_err(EnergyPlanError::Machine)?;
            texts += &loaded.text;
            profile.machine = match loaded.profile {
                WorthProfile::Power(other) => other.machine,
                WorthProfile::Giveback(_) => None,
            };
            if profile.machine.is_none() {
                let message = format!("{other} names no machine whose costs could be used");
                return Err(EnergyPlanError::Machine(message));
            }
        }
        let name = state.unwrap_or(&profile.default_state);
        let Some(state) = profile.state(name).cloned() else {
            let names: Vec<&str> = profile.states.iter().map(|state| state.name.as_str()).collect();
            let message =
                format!("{} has no state `{name}`: it has {}", profile.file, names.join(", "));
            return Err(EnergyPlanError::State(message));
        };
        let plan = Self { profile, crc32: crc32fast::hash(texts.as_bytes()), state, unit, factor };
        // Whether this succeeds does not depend on the sizes.
        plan.slice_economics(Bytes(64 << 20), Bytes(4096))
            .map_err(|error| EnergyPlanError::Profile(error.clone()))?;
        Ok(plan)
    }

    /// The figures that decisions need on this machine.
    ///
    /// # Errors
    /// Which figure the profile lacks, as a sentence.
    pub fn economics(&self, info: &BackendInfo) -> Result<SliceEconomics, String> {
        let slice = info.slice_bytes;
        let (unit, layout) = (self.granule(slice).bytes(), GranuleLayout::of(info));
        self.slice_economics(slice, info.page_bytes)
            .map(|economics| economics.switched_as_one(unit, slice, layout))
    }

    /// The same for slices and pages of these sizes, whatever the hardware switches as one.
    fn slice_economics(&self, slice: Bytes, page: Bytes) -> Result<SliceEconomics, String> {
        let machine = self.profile.machine.as_ref().ok_or_else(|| {
            format!(
                "{} names no machine whose costs could be counted: set energy.machine, as in \
                 \"thesis-parc\"",
                self.profile.file
            )
        })?;
        SliceEconomics::new(&self.state, machine, slice, page)
            .map_err(|error| format!("{}: {error}", self.profile.file))
    }

    /// How long a page must rest until moving it there and back has paid, and by what figures.
    pub(crate) fn rest_break_even(&self, page: Bytes) -> Result<(Duration, String), String> {
        let clock = self.clock().ok_or(
            "this machine's seconds are not real ones: set energy.time_factor to how slow it is",
        )?;
        let economics = RestEconomics::new(&self.profile, page)?.by(&clock);
        Ok((economics.break_even(), format!("{}/{}", self.profile.name, economics.state)))
    }

    /// The profile and its state, to show and to check whether what was learned still fits.
    pub fn name(&self) -> String {
        format!("{}/{}", self.profile.name, self.state.name)
    }

    /// What sums are about that this plan yields on this machine.
    pub fn kind(&self, info: &BackendInfo) -> LedgerKind {
        LedgerKind {
            profile: self.name(),
            crc32: format!("{:08x}", self.crc32),
            granule_bytes: self.granule(info.slice_bytes).bytes(),
            page_bytes: info.page_bytes,
            stock: info.is_stock(),
            switched: PowerSwitch::of(info) != PowerSwitch::Missing,
        }
    }

    /// The most joules that this CPU time may have cost on this machine, by the ledger's rules:
    /// zero
    /// where its seconds are not real, because the CPU time of emptying is left out there as well.
    pub fn running_joules(&self, time: Price, info: &BackendInfo) -> f64 {
        let power =
            self.profile.machine.as_ref().and_then(|machine| machine.compacting_power.value);
        match (self.clock(), power, info.clock()) {
            (Some(SampleClock::Real), Some(power), Some(clock)) => {
                power.high().0 * time.cycles() as f64 / clock.0
            }
            _ => 0.0,
        }
    }

    /// What the hardware switches as one, if that is known and more than a slice.
    pub fn larger_unit(&self, info: &BackendInfo) -> Option<Bytes> {
        self.granule(info.slice_bytes).bytes().filter(|unit| *unit > info.slice_bytes)
    }

    /// Whether a driver may switch offline slices.
    pub fn may_be_switched(info: &BackendInfo) -> bool {
        PowerSwitch::of(info) != PowerSwitch::Missing
    }

    /// How the size of what the hardware switches as one was set.
    pub fn unit(&self) -> SwitchUnit {
        self.unit
    }

    fn granule(&self, slice: Bytes) -> PowerGranule {
        match self.unit {
            SwitchUnit::Profile => PowerGranule::OfProfile(self.state.granularity.bytes.value),
            SwitchUnit::Slice => PowerGranule::Assumed(slice),
            SwitchUnit::Bytes(bytes) => PowerGranule::Assumed(bytes),
        }
    }

    /// Why joules are doubtful on this machine, a sentence for each reason.
    pub fn notes(&self, info: &BackendInfo) -> Vec<String> {
        let power = match PowerSwitch::of(info) {
            PowerSwitch::Driver => None,
            PowerSwitch::Unknown => Some(
                "it is unknown whether a driver powers down the memory that goes offline; unless \
                 one does, \
                 nothing is saved"
                    .to_owned(),
            ),
            PowerSwitch::Missing => Some(
                "there is no power driver, so nothing is switched and nothing saved; figures of \
                 what would \
                 be saved assume one"
                    .to_owned(),
            ),
        };
        let made_up = (self.profile.name == MADE_UP).then(|| {
            format!(
                "the joules are those of a made-up LPDDR5 machine, the profile {MADE_UP}: set \
                 energy.profile to one for your memory"
            )
        });
        let doubt = self.granularity_doubt(info);
        power.into_iter().chain(made_up).chain(self.host_doubt(info)).chain(doubt).collect()
    }

    /// Why joules mean little in a virtual machine.
    fn host_doubt(&self, info: &BackendInfo) -> Option<String> {
        let what = if info.reports_to_host() {
            "slices are reported to a host"
        } else if matches!(ProcessorKind::here(), ProcessorKind::Virtual(_)) {
            "this is a virtual machine, whose DRAM is the host's"
        } else {
            return None;
        };
        Some(format!(
            "{what}, of which the joules of {} say nothing: set energy.profile to \"giveback\"",
            self.name()
        ))
    }

    /// Why slices of this size, or this machine's seconds, make joules doubtful.
    fn granularity_doubt(&self, info: &BackendInfo) -> Option<String> {
        let slice = info.slice_bytes;
        if self.clock().is_none() {
            return Some(
                "this machine is emulated, so its seconds are not real ones and there are no \
                 joules: set \
                 energy.time_factor"
                    .to_owned(),
            );
        }
        let unit = self.granule(slice).bytes();
        match unit {
            Some(unit) if unit > slice => {
                let governor = match GranuleLayout::of(info) {
                    GranuleLayout::Unknown => {
                        "and as a table says what slices are, the governor does nothing"
                    }
                    GranuleLayout::Neighbours | GranuleLayout::SameWay { .. } => {
                        "so the governor empties whole units; other policies do not know them"
                    }
                };
                Some(format!(
                    "slices of {slice} are smaller than what the hardware switches as one, {unit} \
                     by the profile {}: unless all slices of such a unit are offline, nothing is \
                     saved, {governor}; make them larger with `ramslice slices --resize {}`, or \
                     set energy.granularity",
                    self.name(),
                    unit.typed(),
                ))
            }
            None => Some(format!(
                "the profile {} does not say what the hardware switches as one, so perhaps \
                 nothing is saved: set \
                 energy.granularity",
                self.name(),
            )),
            Some(_) => None,
        }
    }

    /// The clock of this machine; none if its seconds are not real and no setting says how slow it
    /// is.
    fn clock(&self) -> Option<SampleClock> {
        if let Some(factor) = &self.factor {
            return Some(SampleClock::Emulated(factor.clone()));
        }
        match ProcessorKind::here() {
            ProcessorKind::Real | ProcessorKind::Virtual(_) => Some(SampleClock::Real),
            ProcessorKind::Emulated(_) | ProcessorKind::Unknown => None,
        }
    }
}

/// What switches the power of offline slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PowerSwitch {
    /// The kernel's power driver.
    Driver,
    /// A driver that listens to memory hotplug of a stock kernel, if there is one.
    Unknown,
    /// Nothing: there is no power driver.
    Missing,
}

impl PowerSwitch {
    fn of(info: &BackendInfo) -> Self {
        match info.power_driver.as_str() {
            "none" => Self::Missing,
            _ if info.is_stock() => Self::Unknown,
            _ => Self::Driver,
        }
    }
}

/// An interval of joules, as in files and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct JouleRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl From<Interval<Joules>> for JouleRange {
    fn from(interval: Interval<Joules>) -> Self {
        Self { low: interval.low().0, high: interval.high().0 }
    }
}

/// The balance so far, in joules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EarnedJoules {
    /// Saved by offline slices.
    #[serde(rename = "saved_joules")]
    pub saved: JouleRange,
    /// What that cost, as far as it can be counted.
    #[serde(rename = "invested_joules")]
    pub invested: JouleRange,
    /// Saved minus invested.
    #[serde(rename = "net_joules")]
    pub net: JouleRange,
    /// The time that this covers, in seconds of this machine's clock.
    pub seconds: f64,
    /// The verdict in a sentence.
    pub verdict: String,
}

/// The sums of a ledger, the part of them that the daemon itself cost beyond its requests, and the
/// windows that governors have opened meanwhile.
pub type LedgerSums = (EnergyTally, Price, u64);

/// The ledger of a mode: its sums before this run, and what was added since.
#[derive(Debug)]
pub struct ModeLedger {
    /// The part of its sums that this daemon cost beyond its requests.
    pub own_cost: Price,
    /// Windows that the governors of all zones have opened, each with something at risk. The time
    /// of the sums does not show how many: it stands still while the machine is suspended and while
    /// the daemon does not run.
    pub windows: u64,
    before: EnergyTally,
    ledger: EnergyLedger,
    granule: Option<Bytes>,
    /// It is about what would have happened.
    is_simulated: bool,
}

/// The ledgers of the modes that have one.
#[derive(Debug)]
pub struct ModeLedgers {
    /// The ledger of mode on.
    pub earned: ModeLedger,
    /// The ledger of mode observe.
    pub would_earn: ModeLedger,
}

impl ModeLedgers {
    /// Continues from sums of the same kind.
    pub fn new(kind: &LedgerKind, earned: LedgerSums, would_earn: LedgerSums) -> Self {
        Self {
            earned: ModeLedger::new(kind, earned, false),
            would_earn: ModeLedger::new(kind, would_earn, true),
        }
    }

    /// The ledger of a mode, if it has any.
    pub fn of(&self, mode: DaemonMode) -> Option<&ModeLedger> {
        match mode {
            DaemonMode::On => Some(&self.earned),
            DaemonMode::Observe => Some(&self.would_earn),
            DaemonMode::Off => None,
        }
    }

    /// The same, to add to.
    pub fn of_mut(&mut self, mode: DaemonMode) -> Option<&mut ModeLedger> {
        match mode {
            DaemonMode::On => Some(&mut self.earned),
            DaemonMode::Observe => Some(&mut self.would_earn),
            DaemonMode::Off => None,
        }
    }

    /// The sums of both.
    pub fn sums(&self) -> (LedgerSums, LedgerSums) {
        (self.earned.sums(), self.would_earn.sums())
    }

    /// Pauses both.
    pub fn pause(&mut self) {
        self.earned.pause();
        self.would_earn.pause();
    }
}

impl EarnedJoules {
    /// What remains of it if offline slices may have had power all the time.
    fn by(self, power: PowerSwitch) -> Self {
        let Self { saved, invested, .. } = self;
        match power {
            PowerSwitch::Driver => self,
            PowerSwitch::Unknown => Self {
                saved: JouleRange { low: saved.low.min(0.0), ..saved },
                net: JouleRange { low: self.net.low.min(-invested.high), ..self.net },
                verdict: format!("If a driver powers down what goes offline: {}", self.verdict),
                ..self
            },
            PowerSwitch::Missing => Self {
                saved: JouleRange { low: 0.0, high: 0.0 },
                net: JouleRange { low: -invested.high, high: -invested.low },
                verdict:
                    "Nothing was switched because there is no power driver: the cost of packing \
                     is lost."
                        .to_owned(),
                ..self
            },
        }
    }
}

impl ModeLedger {
    /// Continues from sums of the same kind.
    pub fn new(kind: &LedgerKind, sums: LedgerSums, is_simulated: bool) -> Self {
        let (granule, (before, own_cost, windows)) = (kind.granule_bytes, sums);
        let ledger = EnergyLedger::new(granule);
        Self { own_cost, windows, before, ledger, granule, is_simulated }
    }

    /// Whether it is about what would have happened.
    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Adds what happened until this sample. A sample of another boot starts a new ledger; earlier
    /// sums stay.
    pub fn add(&mut self, sample: EnergySample) {
        if let Err(error) = self.ledger.add(sample.clone()) {
            tracing::debug!(%error, "the ledger starts again");
            self.before = self.tally();
            self.ledger = EnergyLedger::new(self.granule);
            // The first sample of a ledger cannot fail: it follows no other.
            let _ = self.ledger.add(sample);
        }
    }

    /// Counts nothing until the next sample.
    pub fn pause(&mut self) {
        self.before = self.tally();
        self.ledger = EnergyLedger::new(self.granule);
    }

    /// The sums from which the next ledger of the same kind continues.
    pub fn sums(&self) -> LedgerSums {
        (self.tally(), self.own_cost, self.windows)
    }

    /// The sums, including those of earlier runs.
    pub fn tally(&self) -> EnergyTally {
        self.before + *self.ledger.tally()
    }

    /// In joules, by the plan and the machine that the sums are about; none if this machine's
    /// seconds are not real. A simulated ledger assumes a power driver.
    pub fn earned(
        &self,
        plan: &EnergyPlan,
        info: &BackendInfo,
        prices: &BTreeMap<PriceParameter, Price>,
    ) -> Option<EarnedJoules> {
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
        let was_packed = tally.off_high_byte_us > 0 || tally.tried_bytes > 0;
        let verdict = if was_packed {
            statement.verdict.sentence.clone()
        } else {
            let cost = range(statement.invested_joules);
            format!("Nothing was packed so far, and looking at memory cost {cost}, by a model.")
        };
        let earned = EarnedJoules {
            saved: statement.saved_joules.into(),
            invested: statement.invested_joules.into(),
            net: statement.net_joules.into(),
            seconds: tally.elapsed().as_secs_f64(),
            verdict,
        };
        Some(if self.is_simulated { earned } else { earned.by(PowerSwitch::of(info)) })
    }
}
