//! The joules of a run: what was saved and what it cost, each as an interval.
//!
//! The simulator knows exactly which slices were offline for how long and what was read again, so
//! the remaining uncertainty is that of the profile's figures. Reading again is the one cost that
//! profiles leave out; its figures are assumed, and marked as assumed.

use ramslice_energy::{DramPowerState, DramProfile, Interval, SampleClock, UnknownSaving};
use ramslice_types::{Bytes, Cycles, Gibibytes, Joules, JoulesPerCycle, Ratio, WattsPerGib};
use serde::Serialize;
use thiserror::Error;

use crate::run::SimRun;

const GIB: f64 = (1u64 << 30) as f64;

/// A profile that lacks figures that joules need.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{profile} does not give {what}: choose another profile, or state it in a copy")]
pub struct EnergyRatesError {
    profile: String,
    what: String,
}

/// What reading dropped cache again is assumed to cost where the profile does not say.
pub const ASSUMED_REFAULT: &str = "reading a dropped page again: 3000 to 10000 cycles (up to what \
                                   moving one takes, thesis, section 4.2) and 2 to 10 J/GiB of \
                                   storage (5 W at 0.5 to 2.5 GiB/s), assumed: the profile does \
                                   not say";
const REFAULT_CYCLES: [f64; 2] = [3000.0, 10_000.0];
const REFAULT_J_PER_GIB: [f64; 2] = [2.0, 10.0];

/// Joules for everything that happens.
#[derive(Debug, Clone)]
pub struct EnergyRates {
    saving: Interval<WattsPerGib>,
    per_cycle: Interval<JoulesPerCycle>,
    waking_per_gib: Interval<Cycles>,
    accounting_per_page: Interval<Cycles>,
    refault_per_page: Interval<Joules>,
    price_error_per_gib: Interval<Cycles>,
    transition_per_gib: Interval<Joules>,
    clock: SampleClock,
    /// What was assumed because the profile leaves it out, one sentence each.
    pub assumptions: Vec<String>,
}

impl EnergyRates {
    /// By a profile and its power state, for pages of this size.
    ///
    /// # Errors
    /// If the profile does not say what the state saves, or names no machine whose costs could be
    /// counted.
    pub fn new(
        profile: &DramProfile,
        state: &DramPowerState,
        page: Bytes,
    ) -> Result<Self, EnergyRatesError> {
        let missing =
            |what: &str| EnergyRatesError { profile: profile.file.clone(), what: what.to_owned() };
        let saving = state.known_saving().map_err(|unknown| match unknown {
            UnknownSaving::Scale => missing("powers other than relative ones"),
            UnknownSaving::Figure { figure, state, .. } => {
                missing(&format!("{figure} of state {state}"))
            }
        })?;
        let machine = profile
            .machine
            .as_ref()
            .ok_or_else(|| missing("a machine whose costs could be counted"))?;
        let per_cycle = machine.energy_per_cycle();
        let per_cycle = per_cycle.ok_or_else(|| missing("compacting_power or frequency"))?;
        let mut assumptions =
            vec![format!("energy by the profile {}, state {}", profile.name, state.name)];
        let cycles = machine.cycles_per_instruction.value;
        let instructions =
            |number: Option<Interval<Ratio>>, what: &str, assumptions: &mut Vec<String>| {
                let found = number.and_then(|number| Some(number.times(cycles?)));
                if found.is_none() {
                    assumptions.push(format!("{what} costs nothing: the profile does not say"));
                }
                let found = found.unwrap_or_else(Interval::zero);
                Interval::between(Cycles(found.low().0), Cycles(found.high().0))
            };
        let waking_per_gib = instructions(machine.waking.value, "waking", &mut assumptions);
        let accounting_per_page =
            instructions(machine.accounting.value, "accounting", &mut assumptions);
        let between = |ends: [f64; 2]| Interval::between(Cycles(ends[0]), Cycles(ends[1]));
        if machine.refault_cpu.value.is_none() || machine.refault_storage.value.is_none() {
            assumptions.push(ASSUMED_REFAULT.to_owned());
        }
        let cpu = machine.refault_cpu.value.unwrap_or_else(|| between(REFAULT_CYCLES));
        let [low, high] = REFAULT_J_PER_GIB;
        let storage = machine
            .refault_storage
            .value
            .unwrap_or_else(|| Interval::between(Ratio(low), Ratio(high)));
        let refault_per_page =
            per_cycle.times(cpu) + Interval::exactly(Joules(page.0 as f64 / GIB)).times(storage);
        let transition = profile.transitions(state, Interval::exactly(Gibibytes(1.0)));
        let transition_per_gib = transition.unwrap_or_else(|why| {
            assumptions.push(format!("entering and leaving the power state costs nothing: {why}"));
            Interval::zero()
        });
        Ok(Self {
            saving,
            per_cycle,
            waking_per_gib,
            accounting_per_page,
            refault_per_page,
            price_error_per_gib: machine.price_error.value.unwrap_or_else(Interval::zero),
            transition_per_gib,
            clock: SampleClock::Real,
            assumptions,
        })
    }

    /// The same for a machine whose clock is this one.
    #[must_use]
    pub fn by(self, clock: SampleClock) -> Self {
        let mut assumptions = self.assumptions;
        if let SampleClock::Emulated(slower) = &clock {
            let (low, high) = (slower.factor().low().0, slower.factor().high().0);
            assumptions.push(format!(
                "time: seconds of an emulated machine, divided by {low} to {high} ({})",
                slower.source()
            ));
        }
        Self { clock, assumptions, ..self }
    }

    /// The joules of a run on a machine with slices of this size.
    pub fn books(&self, run: &SimRun, slice: Bytes) -> EnergyAccount {
        let gib = |bytes: f64| bytes / GIB;
        let slice_gib = gib(slice.0 as f64);
        let off = self.clock.gib_seconds(run.stats.off_byte_us);
        let entered = gib(run.stats.entered_bytes as f64);
        let work = Interval::exactly(Cycles(run.work.price_measured.cycles() as f64));
        let doubt = self.price_error_per_gib.high().0 * slice_gib * run.work.tried_slices as f64;
        let work = (work + Interval::between(Cycles(-doubt), Cycles(doubt))).at_least_zero();
        let woken = self.waking_per_gib.scaled(slice_gib * run.work.woken_slices as f64);
        let mut books = EnergyAccount {
            saved: self.saving.times(off),
            emptying: self.per_cycle.times(work),
            waking: self.per_cycle.times(woken),
            refaults: self.refault_per_page.scaled(run.stats.packing_refault_pages as f64),
            transitions: self.transition_per_gib.scaled(entered),
            accounting: self
                .per_cycle
                .times(self.accounting_per_page.scaled(run.work.allocated_pages.0 as f64)),
            net: Interval::zero(),
        };
        books.net =
            books.saved - books.emptying - books.waking - books.refaults - books.transitions;
        books
    }
}

/// Where the joules of a run went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EnergyAccount {
    /// Saved by slices that were off.
    #[serde(rename = "saved_joules")]
    pub saved: Interval<Joules>,
    /// CPU work to empty slices.
    #[serde(rename = "emptying_joules")]
    pub emptying: Interval<Joules>,
    /// CPU work to wake them.
    #[serde(rename = "waking_joules")]
    pub waking: Interval<Joules>,
    /// Reading again what was dropped for packing.
    #[serde(rename = "refaults_joules")]
    pub refaults: Interval<Joules>,
    /// Entering and leaving the power state.
    #[serde(rename = "transitions_joules")]
    pub transitions: Interval<Joules>,
    /// Counting what pageblocks hold, whatever the policy: not part of the net, by which policies
    /// are compared.
    #[serde(rename = "accounting_joules")]
    pub accounting: Interval<Joules>,
    /// Saved, less emptying, waking, refaults and transitions.
    #[serde(rename = "net_joules")]
    pub net: Interval<Joules>,
}

impl EnergyAccount {
    /// Nothing happened.
    pub fn zero() -> Self {
        let none = Interval::zero();
        Self {
            saved: none,
            emptying: none,
            waking: none,
            refaults: none,
            transitions: none,
            accounting: none,
            net: none,
        }
    }

    /// The middle of the net: what policies are ranked by.
    pub fn net_middle(&self) -> f64 {
        f64::midpoint(self.net.low().0, self.net.high().0)
    }

    /// Net less what accounting costs.
    pub fn net_after_accounting(&self) -> Interval<Joules> {
        self.net - self.accounting
    }
}

impl std::ops::AddAssign for EnergyAccount {
    fn add_assign(&mut self, other: Self) {
        self.saved = self.saved + other.saved;
        self.emptying = self.emptying + other.emptying;
        self.waking = self.waking + other.waking;
        self.refaults = self.refaults + other.refaults;
        self.transitions = self.transitions + other.transitions;
        self.accounting = self.accounting + other.accounting;
        self.net = self.net + other.net;
    }
}
