//! DRAM profiles: what the power states of a memory system save, and what a reference machine pays
//! for packing.
//!
//! A profile is a TOML file; `profiles/template.toml` documents every field. Each number carries
//! its unit and its source, or says that nothing is known of it, with the source that leaves it
//! out. Nothing has a default.
//!
//! # How a state saves
//!
//! With a share `x` of the memory off, the memory draws, for each GiB that there is,
//!
//! ```text
//! power(x) = background - all_on - (saving - all_on) * x   >=   floor
//! background >= saving + floor
//! ```
//!
//! `background` is drawn by memory that is on and idle. `floor` is what the state draws with
//! everything off, so that half of the memory off never means half of the power. `all_on` is what
//! the mode saves with nothing off at all: partial self-refresh does so by being self-refresh.
//! Packing has no part in that, so the ledger counts
//!
//! ```text
//! saved = (saving - all_on) * GiB off * seconds
//! ```
//!
//! Where a file gives no `saving`, it is `background - floor`; where it gives both, their sum may
//! not exceed the background. For a state that only works while all of the memory rests, the low
//! end is 0, because no source says how long it rests.

mod builtin;
mod check;
mod figures;
mod giveback;
mod machines;
mod quantity;
mod raw;

use ramslice_types::{
    Bytes, Cycles, GibSeconds, Gibibytes, Hertz, Joules, JoulesPerCycle, PriceParameter, Ratio,
    Seconds, Watts, WattsPerGib,
};
use serde::Serialize;
use thiserror::Error;

pub use builtin::{
    GIVEBACK_NAME, TEMPLATE, builtin, builtin_giveback, builtin_names, builtin_text,
    worth_profile_names,
};
pub use figures::ProfileFigure;
pub use giveback::GivebackProfile;
pub use machines::{ClassSource, ClassWorth, MachineClasses};

use crate::interval::Interval;

/// A profile that is refused: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}: {message}")]
pub struct ProfileError {
    /// The file's name as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what is allowed.
    pub message: String,
}

/// What a file is a profile of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProfileKind {
    /// The power states of DRAM.
    Power,
    /// Memory that is given to the host of a virtual machine.
    Giveback,
}

/// A profile of either kind: what slices that are off are worth.
#[derive(Debug, Clone, PartialEq)]
pub enum WorthProfile {
    /// In joules: the power states of DRAM.
    Power(Box<DramProfile>),
    /// In GiB hours or money: memory that is given to a host.
    Giveback(Box<GivebackProfile>),
}

impl WorthProfile {
    /// Reads a profile of either kind from the text of a file; `file` is its name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what is allowed.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        match (quantity::ProfileText { name: file, text }).kind()?.0 {
            ProfileKind::Power => {
                DramProfile::parse(text, file).map(|profile| Self::Power(Box::new(profile)))
            }
            ProfileKind::Giveback => {
                GivebackProfile::parse(text, file).map(|profile| Self::Giveback(Box::new(profile)))
            }
        }
    }
}

/// A figure with its source; without a value if the source does not give one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourcedValue<T> {
    /// The figure, unless it is unknown.
    #[serde(skip)]
    pub value: Option<T>,
    /// As the file has it, with the unit: `9.19 mW/GiB`, `0.53 to 22.95 mW/GiB`, `unknown`.
    pub written: String,
    /// Where it is from, or who leaves it out.
    pub source: String,
}

/// What the powers of a profile are given for.
#[derive(Debug, Clone, PartialEq)]
pub enum PowerScale {
    /// For each GiB.
    PerGib,
    /// For a module of this capacity.
    PerModule(SourcedValue<Interval<Gibibytes>>),
    /// As a share of this power.
    OfFull(SourcedValue<Interval<WattsPerGib>>),
}

/// A power as the profile gives it, and for each GiB if the scale is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfilePower {
    /// In the profile's own unit: W/GiB, W of a module, or a share of full power.
    pub own: Interval<Ratio>,
    /// For each GiB.
    pub per_gib: Option<Interval<WattsPerGib>>,
}

/// How long it takes to enter or leave a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransitionLatency {
    /// At least this long.
    pub low: Seconds,
    /// At most this long, if the source gives a limit.
    pub high: Option<Seconds>,
}

/// What becomes of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRetention {
    /// They are still there afterwards.
    Kept,
    /// They are gone.
    Lost,
}

/// When a state saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavingScope {
    /// While the rest of the memory is in use.
    InUse,
    /// Only while all of the memory rests.
    AllIdle,
}

/// What the hardware switches as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerGranularity {
    /// The unit of the hardware: a rank, an eighth of one, a channel.
    pub what: String,
    /// Its size, and the alignment it wants, if known.
    pub bytes: SourcedValue<Bytes>,
}

/// A power state.
#[derive(Debug, Clone, PartialEq)]
pub struct DramPowerState {
    /// Its name within the profile.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Saved for each GiB off; see the formula of this module.
    pub saving: SourcedValue<ProfilePower>,
    /// Whether `saving` was worked out from background and floor.
    pub saving_derived: bool,
    /// Drawn for each GiB with everything off.
    pub floor: SourcedValue<ProfilePower>,
    /// Saved with nothing off; not due to packing.
    pub all_on: Option<SourcedValue<ProfilePower>>,
    /// What the hardware switches as one.
    pub granularity: PowerGranularity,
    /// Time to enter it.
    pub entry_latency: SourcedValue<TransitionLatency>,
    /// Time to leave it.
    pub exit_latency: SourcedValue<TransitionLatency>,
    /// Power while leaving it, where that is another than the background.
    pub exit_power: Option<SourcedValue<ProfilePower>>,
    /// Contents kept or lost.
    pub retention: SourcedValue<DataRetention>,
    /// When it saves.
    pub applies: SourcedValue<SavingScope>,
    /// Standards that have it.
    pub standards: Option<SourcedValue<Vec<String>>>,
}

/// A machine whose prices are known: the reference for counted operations.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceMachine {
    /// What machine it is.
    pub name: String,
    /// Its memory.
    pub memory: SourcedValue<Interval<Gibibytes>>,
    /// The frequency at which its cycles are counted.
    pub frequency: SourcedValue<Interval<Hertz>>,
    /// Extra power while a CPU empties slices.
    pub compacting_power: SourcedValue<Interval<Watts>>,
    /// Power of the whole machine.
    pub platform_power: SourcedValue<Interval<Watts>>,
    /// Instructions that the patched kernel adds for a page: allocated, mapped, unmapped, freed.
    pub accounting: SourcedValue<Interval<Ratio>>,
    /// Instructions to wake a GiB.
    pub waking: SourcedValue<Interval<Ratio>>,
    /// Cycles that such an instruction takes.
    pub cycles_per_instruction: SourcedValue<Interval<Ratio>>,
    /// CPU work to read a dropped page again.
    pub refault_cpu: SourcedValue<Interval<Cycles>>,
    /// Energy of storage, in J for each GiB read again.
    pub refault_storage: SourcedValue<Interval<Ratio>>,
    /// The price model, in cycles, by the kernel's parameters.
    pub prices: Vec<(PriceParameter, SourcedValue<Interval<Cycles>>)>,
    /// By how much the price model is off, in cycles for each GiB whose emptying was tried.
    pub price_error: SourcedValue<Interval<Cycles>>,
}

/// A memory system.
#[derive(Debug, Clone, PartialEq)]
pub struct DramProfile {
    /// Its name: what `--profile` takes.
    pub name: String,
    /// What it is.
    pub title: String,
    /// The file, or the name of a built-in one.
    pub file: String,
    /// What its powers are given for.
    pub scale: PowerScale,
    /// Power of memory that is on and idle.
    pub background: SourcedValue<ProfilePower>,
    /// The state that is taken when none is named.
    pub default_state: String,
    /// Its states, in the order of the file; names differ.
    pub states: Vec<DramPowerState>,
    /// The reference machine.
    pub machine: Option<ReferenceMachine>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl DramProfile {
    /// Reads a profile from the text of a file; `file` is its name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what is allowed.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        check::profile(text, file)
    }

    /// The state in which memory in use may rest: of those that keep contents while other memory is
    /// in use, the one that saves most, as far as that is known.
    pub fn rest_state(&self) -> Option<&DramPowerState> {
        let rests = |state: &&DramPowerState| {
            state.retention.value == Some(DataRetention::Kept)
                && state.applies.value == Some(SavingScope::InUse)
        };
        let most = |state: &DramPowerState| -> f64 {
            state.saving_by_packing().map_or(-1.0, |saving| saving.high().0)
        };
        self.states.iter().filter(rests).max_by(|one, other| most(one).total_cmp(&most(other)))
    }

    /// Joules for memory that enters a state and leaves it again: what it would have saved
    /// meanwhile, and what leaving draws beyond the background.
    ///
    /// # Errors
    /// Which figure is unknown, and why.
    pub fn transitions(
        &self,
        state: &DramPowerState,
        memory: Interval<Gibibytes>,
    ) -> Result<Interval<Joules>, String> {
        let limited = |name, latency: &SourcedValue<TransitionLatency>| {
            let time = latency.value.and_then(|latency| latency.limited());
            let why = || format!("the {name} latency is {}: {}", latency.written, latency.source);
            time.ok_or_else(why)
        };
        let back = limited("exit", &state.exit_latency)?;
        let lost = limited("entry", &state.entry_latency)? + back;
        let saving = state.known_saving().map_err(|unknown| unknown.to_string())?;
        let all = saving.times(memory.times(lost));
        let Some(exit) = &state.exit_power else { return Ok(all) };
        let power = |name, power: &SourcedValue<ProfilePower>| {
            let known = power.value.and_then(|power| power.per_gib);
            let why = || format!("the {name} is {}: {}", power.written, power.source);
            known.ok_or_else(why)
        };
        let more = power("exit power", exit)? - power("background", &self.background)?;
        Ok(all + more.at_least_zero().times(memory.times(back)))
    }

    /// The state of this name.
    pub fn state(&self, name: &str) -> Option<&DramPowerState> {
        self.states.iter().find(|state| state.name == name)
    }
}

/// Why it is not known what a power state saves.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownSaving {
    /// The profile leaves a figure out.
    #[error("{figure} of state {state} is unknown ({why})")]
    Figure {
        /// `saving` or `all_on`.
        figure: &'static str,
        /// The state.
        state: String,
        /// As the profile has it.
        why: String,
    },
    /// Its powers have no scale.
    #[error("the profile's powers are only relative")]
    Scale,
}

impl DramPowerState {
    /// Saved by packing for each GiB off: without what the mode saves anyway. Nothing if that is
    /// not known.
    pub fn saving_by_packing(&self) -> Option<Interval<WattsPerGib>> {
        self.known_saving().ok()
    }

    /// The same, or why it is not known.
    ///
    /// # Errors
    /// If the profile leaves out what the state saves, or the scale of its powers.
    pub fn known_saving(&self) -> Result<Interval<WattsPerGib>, UnknownSaving> {
        let power = |figure, power: &SourcedValue<ProfilePower>| {
            let unknown = || UnknownSaving::Figure {
                figure,
                state: self.name.clone(),
                why: power.source.clone(),
            };
            power.value.ok_or_else(unknown)?.per_gib.ok_or(UnknownSaving::Scale)
        };
        let saving = power("saving", &self.saving)?;
        let own = match &self.all_on {
            None => saving,
            Some(all_on) => (saving - power("all_on", all_on)?).at_least_zero(),
        };
        let always = self.applies.value == Some(SavingScope::InUse);
        Ok(if always { own } else { own.or_nothing() })
    }

    /// The share of the background that is saved with everything off.
    pub fn share(&self, background: &ProfilePower) -> Option<Interval<Ratio>> {
        self.saving.value?.own.per(background.own)
    }
}

impl ReferenceMachine {
    /// Energy of a cycle that a CPU spends on packing: extra power divided by frequency.
    pub fn energy_per_cycle(&self) -> Option<Interval<JoulesPerCycle>> {
        self.compacting_power.value?.per(self.frequency.value?)
    }

    /// The price of an operation.
    pub fn price(&self, parameter: PriceParameter) -> Option<Interval<Cycles>> {
        self.prices.iter().find(|(name, _)| *name == parameter)?.1.value
    }

    /// How much memory must be off for how long, until emptying it once has paid: work divided by
    /// saving.
    pub fn break_even(
        &self,
        work: Interval<Cycles>,
        saving: Interval<WattsPerGib>,
    ) -> Option<Interval<GibSeconds>> {
        self.energy_per_cycle()?.times(work).per(saving)
    }
}

#[cfg(test)]
mod tests;
