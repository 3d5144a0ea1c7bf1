//! The costs of packing, each with what its figure rests on.

use ramslice_types::{
    Bytes, Cycles, Gibibytes, Joules, JoulesPerCycle, PhysicalQuantity, Price, PriceParameter,
    Ratio, Seconds,
};
use serde::Serialize;

use crate::clock::{SampleClock, gib};
use crate::interval::Interval;
use crate::ledger::EnergyTally;
use crate::profile::ReferenceMachine;
use crate::statement_settings::StatementSettings;
use crate::verdict::{digits, percent, range};

/// What packing costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostTerm {
    /// CPU work to empty slices, failed attempts included.
    Emptying,
    /// CPU work to wake them.
    Waking,
    /// Counting what each pageblock holds, all the time.
    Accounting,
    /// Reading dropped cache again: CPU and storage.
    Refaults,
    /// Entering and leaving the power state.
    Transitions,
    /// Work that took longer, with the whole machine on.
    RunTime,
}

impl CostTerm {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Emptying => "emptying",
            Self::Waking => "waking",
            Self::Accounting => "accounting",
            Self::Refaults => "refaults",
            Self::Transitions => "transitions",
            Self::RunTime => "run time",
        }
    }
}

/// One cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostLine {
    /// Which.
    pub term: CostTerm,
    /// How much; nothing if it could not be counted.
    pub joules: Option<Interval<Joules>>,
    /// What the figure rests on, or why there is none.
    pub basis: String,
    /// Of a cost without a figure: what must hold for a net above 0 to stay above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_only_if: Option<String>,
}
/// Works out costs.
pub(crate) struct CostCalculator<'a> {
    pub(crate) tally: &'a EnergyTally,
    pub(crate) settings: &'a StatementSettings<'a>,
}

const NO_MACHINE: &str = "the profile names no machine";
const SET_BACK: &str = "the kernel's statistics were set back meanwhile, so that not all is known";

fn counted(term: CostTerm, joules: Interval<Joules>, basis: impl Into<String>) -> CostLine {
    CostLine { term, joules: Some(joules), basis: basis.into(), gain_only_if: None }
}

fn uncounted(term: CostTerm, why: impl Into<String>) -> CostLine {
    CostLine { term, joules: None, basis: why.into(), gain_only_if: None }
}

impl CostCalculator<'_> {
    /// The machine and the energy of its cycles.
    fn cpu(&self) -> Result<(&ReferenceMachine, Interval<JoulesPerCycle>), String> {
        let machine = self.settings.profile.machine.as_ref().ok_or(NO_MACHINE)?;
        let energy = machine.energy_per_cycle();
        Ok((machine, energy.ok_or("the profile's machine has no compacting_power or frequency")?))
    }

    /// `Err` says why there is no figure.
    fn line(term: CostTerm, found: Result<(Interval<Joules>, String), String>) -> CostLine {
        match found {
            Ok((joules, basis)) => counted(term, joules, basis),
            Err(why) => uncounted(term, why),
        }
    }

    fn complete(&self) -> Result<(), String> {
        if self.tally.resets > 0 { Err(SET_BACK.to_owned()) } else { Ok(()) }
    }

    pub(crate) fn emptying(&self) -> CostLine {
        let found = || {
            self.complete()?;
            let work = &self.tally.work;
            if work.tried_slices == 0 && work.price_measured == Price::ZERO {
                return Ok((Interval::zero(), "no slice was emptied".to_owned()));
            }
            let (joules, how) = match self.settings.clock {
                SampleClock::Real => self.measured()?,
                SampleClock::Emulated(_) => {
                    let (machine, energy) = self.cpu()?;
                    let cycles = self.reference_cycles(machine)?;
                    let how =
                        format!("{} for the operations counted, {}", range(cycles), range(energy));
                    (energy.times(cycles), how)
                }
            };
            let basis = format!(
                "{} slices, {} pages moved, {} dropped: {how}",
                work.tried_slices, work.migrated_pages, work.dropped_pages
            );
            Ok((joules, basis))
        };
        Self::line(CostTerm::Emptying, found())
    }

    /// What the CPU time that was measured cost. It is as long as it was, whatever the profile's
    /// machine would have taken.
    fn measured(&self) -> Result<(Interval<Joules>, String), String> {
        let machine = self.settings.profile.machine.as_ref().ok_or(NO_MACHINE)?;
        let power = machine
            .compacting_power
            .value
            .ok_or("the profile's machine has no compacting_power")?;
        let clock = self.settings.cycle_clock.map(Interval::exactly).or(machine.frequency.value);
        let clock =
            clock.ok_or("neither the machine nor the profile gives the clock of its cycles")?;
        let cycles = Interval::exactly(Cycles(self.tally.work.price_measured.cycles() as f64));
        let time: Interval<Seconds> =
            cycles.per(clock).ok_or("the clock of its cycles may be 0")?;
        Ok((
            power.times(time),
            format!("{} measured, {} at {}", range(cycles), range(time), range(power)),
        ))
    }

    /// What the counted operations cost on the reference machine.
    ///
    /// Mappings are not counted: the low end is none. The high end is one for each page, or what
    /// the kernel's prices imply, which count each mapping; that holds only for the reference
    /// machine's prices.
    fn reference_cycles(&self, machine: &ReferenceMachine) -> Result<Interval<Cycles>, String> {
        use PriceParameter as P;
        let price = |parameter: P| {
            machine
                .price(parameter)
                .ok_or_else(|| format!("the profile has no price {}", parameter.name()))
        };
        for (parameter, _) in &machine.prices {
            let (kernel, profile) =
                (self.settings.kernel_prices.get(parameter), price(*parameter)?);
            let kernel = kernel.ok_or_else(|| {
                format!("the kernel's price {} could not be read", parameter.name())
            })?;
            if !profile.contains(Cycles(kernel.cycles() as f64)) {
                return Err(format!(
                    "the kernel's price {} is {} cycles, not the reference machine's {}, so that \
                     mappings are not known",
                    parameter.name(),
                    kernel.cycles(),
                    range(profile)
                ));
            }
        }
        let work = &self.tally.work;
        let tried_pages = Bytes(self.tally.tried_bytes).pages(self.settings.page_bytes);
        let mut sum = Interval::zero();
        for (parameter, number) in [
            (P::IsolateSlice, work.tried_slices as f64),
            (P::IsolatePage, tried_pages.0 as f64 / 1024.0),
            (P::DropPage, work.dropped_pages.saturating_sub(work.target_cache_pages).0 as f64),
            (P::MigratePage, work.migrated_pages.0 as f64),
            (P::AllocBuddy, work.target_free_pages.0 as f64),
            (P::AllocCache, work.target_cache_pages.0 as f64),
        ] {
            sum = sum + price(parameter)?.scaled(number);
        }
        let mapped = sum + price(P::MigrateMapping)?.scaled(work.migrated_pages.0 as f64);
        let predicted = work.price_predicted.cycles() as f64;
        let most = Interval::between(sum.low(), Cycles(mapped.high().0.max(predicted)));
        let error =
            machine.price_error.value.ok_or("the profile does not give the error of its prices")?;
        let error = error.scaled(gib(self.tally.tried_bytes).0);
        Ok((most + Interval::between(Cycles(-error.high().0), error.high())).at_least_zero())
    }

    pub(crate) fn waking(&self) -> CostLine {
        let found = || {
            self.complete()?;
            if self.tally.woken_bytes == 0 {
                return Ok((Interval::zero(), "no slice woke".to_owned()));
            }
            let (machine, energy) = self.cpu()?;
            let each = Self::instructions(machine, machine.waking.value, "waking")?;
            let woken = gib(self.tally.woken_bytes);
            let basis = format!("{} slices", self.tally.work.woken_slices);
            Ok((energy.times(each.scaled(woken.0)), basis))
        };
        Self::line(CostTerm::Waking, found())
    }

    /// Cycles for instructions.
    fn instructions(
        machine: &ReferenceMachine,
        number: Option<Interval<Ratio>>,
        what: &str,
    ) -> Result<Interval<Cycles>, String> {
        let number = number
            .ok_or_else(|| format!("the profile does not give the instructions of {what}"))?;
        let each = machine.cycles_per_instruction.value;
        let each = each.ok_or("the profile does not give cycles_per_instruction")?;
        Ok(Interval::exactly(Cycles(1.0)).times(number.times(each)))
    }

    pub(crate) fn accounting(&self) -> CostLine {
        let found = || {
            if !self.settings.accounts {
                return Ok((Interval::zero(), "a stock kernel keeps no account".to_owned()));
            }
            self.complete()?;
            let (faults, pages) =
                (self.tally.work.page_faults as f64, self.tally.work.allocated_pages.0 as f64);
            if faults == 0.0 && pages == 0.0 {
                return Ok((Interval::zero(), "no page was touched".to_owned()));
            }
            let (machine, energy) = self.cpu()?;
            let each = Self::instructions(machine, machine.accounting.value, "accounting")?;
            // A fault may find its page, and pages are allocated without a fault.
            let number = Interval::between(Ratio(faults), Ratio(pages));
            let basis = format!(
                "{} page faults, {} pages allocated, {} each",
                self.tally.work.page_faults,
                self.tally.work.allocated_pages,
                range(each)
            );
            Ok((energy.times(each.times(number)), basis))
        };
        Self::line(CostTerm::Accounting, found())
    }

    pub(crate) fn refaults(&self) -> CostLine {
        let found = || {
            self.complete()?;
            let dropped = self.tally.work.dropped_pages;
            if dropped.0 == 0 {
                return Ok((Interval::zero(), "no cache was dropped".to_owned()));
            }
            let (machine, energy) = self.cpu()?;
            let why = |field: &str, source: &str| {
                format!(
                    "up to {dropped} dropped pages may have been read again; {field} is unknown: \
                     {source}"
                )
            };
            let cpu = machine
                .refault_cpu
                .value
                .ok_or_else(|| why("refault_cpu", &machine.refault_cpu.source))?;
            let storage = machine.refault_storage.value;
            let storage =
                storage.ok_or_else(|| why("refault_storage", &machine.refault_storage.source))?;
            let read = gib(dropped.bytes(self.settings.page_bytes).0);
            let storage = Interval::exactly(Joules(read.0)).times(storage);
            let all = energy.times(cpu.scaled(dropped.0 as f64)) + storage;
            // A page that was dropped is read again once or never, until it is dropped again.
            Ok((all.or_nothing(), format!("none to all of {dropped} dropped pages read again")))
        };
        Self::line(CostTerm::Refaults, found())
    }

    pub(crate) fn transitions(&self) -> CostLine {
        let found = || {
            let (low, high) =
                (gib(self.tally.entered_low_bytes), gib(self.tally.entered_high_bytes));
            if high.0 == 0.0 {
                return Ok((Interval::zero(), "nothing was switched off".to_owned()));
            }
            let memory = Interval::between(low, high);
            let all = self.settings.profile.transitions(self.settings.state, memory)?;
            Ok((all, format!("{} GiB switched off, each time again", plain_gib(memory))))
        };
        Self::line(CostTerm::Transitions, found())
    }

    pub(crate) fn run_time(&self, machine_joules: Option<Interval<Joules>>) -> CostLine {
        let found = || {
            let change = self.settings.runtime_change;
            let change =
                change.ok_or("not measured: that takes a run of the same work without packing")?;
            let all = machine_joules.ok_or("the power of the whole machine is unknown")?;
            // The work was as long as it was with the change: of 1 + change, that was more.
            let more = |end: Ratio| Ratio(end.0 / (1.0 + end.0));
            let more = Interval::between(more(change.low()), more(change.high()));
            Ok((
                all.times(more),
                format!("{} of the time, as stated, with the whole machine on", percent(change)),
            ))
        };
        Self::line(CostTerm::RunTime, found())
    }

    /// What a cost without a figure may reach until it has eaten up a net above 0.
    pub(crate) fn condition(
        &self,
        term: CostTerm,
        net: Joules,
        machine: Option<Interval<Joules>>,
    ) -> Option<String> {
        if net.0 <= 0.0 {
            return None;
        }
        match term {
            CostTerm::Refaults => {
                let each = net.0 / self.tally.work.dropped_pages.0.max(1) as f64;
                let each = range(Interval::exactly(Joules(each)));
                Some(format!("each of the dropped pages costs less than {each} to read again"))
            }
            CostTerm::RunTime if self.settings.runtime_change.is_none() => {
                let share = net.0 / machine?.high().get();
                let most = share / (1.0 - share);
                (share < 1.0)
                    .then(|| format!("the work took less than {} % longer", digits(most * 100.0)))
            }
            _ => None,
        }
    }
}

fn plain_gib(memory: Interval<Gibibytes>) -> String {
    let (low, high) = (digits(memory.low().0), digits(memory.high().0));
    if low == high { low } else { format!("{low} to {high}") }
}
