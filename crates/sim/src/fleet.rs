//! Many independent machines: read or generated one at a time, simulated in parallel, summed up.
//!
//! Only the machines being simulated are in memory, so time grows with their number and memory does
//! not. A machine's seed follows from the fleet's and its place, so results do not depend on how
//! many threads there are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, Float64Array, StringArray, UInt32Array, UInt64Array};
use ramslice_energy::Interval;
use ramslice_policy::{AnyPolicy, PolicyConfig, PolicyConfigError, SliceEconomics};
use ramslice_types::{Bytes, Joules, SplitMix64};
use serde::Serialize;
use thiserror::Error;

use crate::config::{SimConfig, SimConfigError};
use crate::energy_account::{EnergyAccount, EnergyRates};
use crate::load::{InputError, InputNotes, UsageLoad, UsageOptions, UsageSeries};
use crate::machine::SimMachine;
use crate::parquet_out::OutputDirectory;
pub use crate::parquet_out::OutputError;
use crate::run::{RunDecider, SimRun, run};

/// Machines in one part of a table.
const PART: usize = 64;

/// A fleet whose simulation could not be finished.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The machine.
    #[error(transparent)]
    Config(#[from] SimConfigError),
    /// The policy's settings.
    #[error(transparent)]
    Policy(#[from] PolicyConfigError),
    /// The output.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// It was interrupted; the report has the finished part.
    #[error("interrupted after {machines} machines")]
    Interrupted {
        /// That were done.
        machines: u64,
    },
}

/// How a fleet is simulated.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Memory of each machine.
    pub memory: Bytes,
    /// Its slices.
    pub slice: Bytes,
    /// What utilisation leaves open.
    pub usage: UsageOptions,
    /// The policy of all machines.
    pub policy: PolicyConfig,
    /// What it decides by.
    pub economics: SliceEconomics,
    /// Joules.
    pub rates: EnergyRates,
    /// Machines at a time.
    pub jobs: usize,
    /// Decides what happens by chance.
    pub seed: u64,
    /// Where tables go, if anywhere.
    pub output: Option<PathBuf>,
}

/// The sum over a fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetReport {
    /// Machines.
    pub machines: u64,
    /// Steps of all machines.
    pub machine_steps: u64,
    /// Simulated time of all machines together, in hours.
    pub machine_hours: f64,
    /// Joules.
    #[serde(flatten)]
    pub books: EnergyAccount,
    /// Net less accounting, which runs all the time.
    pub net_after_accounting_joules: Interval<Joules>,
    /// Machines that lost: the whole interval of their net is below 0.
    pub losing_machines: u64,
    /// Memory in use, as a share of all, on average over machines.
    pub mean_used_share: f64,
    /// Memory that was off, as a share of all, on average over machines.
    pub mean_offline_share: f64,
    /// Slices that woke because memory was wanted.
    pub demand_wakes: u64,
    /// Slices that were emptied.
    pub emptied_slices: u64,
    /// Pages that were moved.
    pub migrated_pages: u64,
    /// Pages that were dropped.
    pub dropped_pages: u64,
    /// Pages of these that were read again.
    pub refault_pages: u64,
    /// Pages that were wanted and not there.
    pub unmet_pages: u64,
    /// What the input left out.
    pub notes: InputNotes,
}

/// The result of one machine.
struct MachineResult {
    machine: String,
    run: SimRun,
    books: EnergyAccount,
    notes: InputNotes,
    levels: LevelHistory,
}

/// A machine's levels over time.
#[derive(Default)]
struct LevelHistory {
    seconds: Vec<u32>,
    used: Vec<u64>,
    freeable: Vec<u64>,
    nonempty: Vec<u32>,
    offline: Vec<u32>,
}

impl FleetReport {
    fn new() -> Self {
        Self {
            machines: 0,
            machine_steps: 0,
            machine_hours: 0.0,
            books: EnergyAccount::zero(),
            net_after_accounting_joules: Interval::zero(),
            losing_machines: 0,
            mean_used_share: 0.0,
            mean_offline_share: 0.0,
            demand_wakes: 0,
            emptied_slices: 0,
            migrated_pages: 0,
            dropped_pages: 0,
            refault_pages: 0,
            unmet_pages: 0,
            notes: InputNotes::default(),
        }
    }

    fn add(&mut self, outcome: &MachineResult) {
        let (run, before) = (&outcome.run, self.machines as f64);
        let mean = |sum: f64, value: f64| (sum * before + value) / (before + 1.0);
        self.mean_used_share = mean(self.mean_used_share, run.mean_used_share);
        self.mean_offline_share =
            mean(self.mean_offline_share, run.mean_offline / f64::from(run.slices.max(1)));
        self.machines += 1;
        self.machine_steps += run.steps;
        self.machine_hours += run.duration.as_secs_f64() / 3600.0;
        self.books += outcome.books;
        self.net_after_accounting_joules = self.books.net_after_accounting();
        self.losing_machines += u64::from(outcome.books.net.high().0 < 0.0);
        self.demand_wakes += run.stats.demand_wakes;
        self.emptied_slices += run.work.emptied_slices;
        self.migrated_pages += run.work.migrated_pages.0;
        self.dropped_pages += run.work.dropped_pages.0;
        self.refault_pages += run.stats.packing_refault_pages;
        self.unmet_pages += run.stats.unmet_pages;
        self.notes += outcome.notes;
    }
}

/// The source of machines: a number, so that each has its own seed, and its load.
struct MachineSource<I> {
    machines: I,
    next: usize,
    failed: bool,
}

impl<I: Iterator<Item = Result<UsageSeries, InputError>>> MachineSource<I> {
    /// The next machines that make up a part.
    fn part(&mut self) -> Result<Option<(usize, Vec<UsageSeries>)>, InputError> {
        if self.failed {
            return Ok(None);
        }
        let first = self.next;
        let mut part = Vec::new();
        while part.len() < PART {
            match self.machines.next() {
                Some(Ok(series)) => part.push(series),
                Some(Err(error)) => {
                    self.failed = true;
                    return Err(error);
                }
                None => break,
            }
        }
        self.next += part.len();
        Ok((!part.is_empty()).then_some((first, part)))
    }
}

/// Simulates all machines. `progress` hears after each machine how many are done, and says whether
/// to go on.
///
/// # Errors
/// The first error of any machine, with the file and row where it is the input's.
pub fn simulate<I>(
    machines: I,
    options: &FleetOptions,
    progress: &(dyn Fn(u64) -> bool + Sync),
) -> Result<FleetReport, FleetError>
where
    I: Iterator<Item = Result<UsageSeries, InputError>> + Send,
{
    let output = options
        .output
        .as_deref()
        .map(|dir| OutputDirectory::new(dir, options.policy.policy.name()));
    let output = output.transpose()?;
    let source = Mutex::new(MachineSource { machines, next: 0, failed: false });
    // Sums of floating-point numbers depend on their order: parts are put back into it.
    let parts: Mutex<Vec<(usize, FleetReport)>> = Mutex::new(Vec::new());
    let done = Mutex::new(0u64);
    let work = || -> Result<(), FleetError> {
        loop {
            let next = source.lock().unwrap_or_else(PoisonError::into_inner).part()?;
            let Some((first, series)) = next else { return Ok(()) };
            let mut outcomes = Vec::new();
            for (at, series) in series.iter().enumerate() {
                outcomes.push(one(first + at, series, options)?);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                if !progress(*done) {
                    source.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
                    return Err(FleetError::Interrupted { machines: *done });
                }
            }
            if let Some(output) = &output {
                write(output, first / PART, &outcomes)?;
            }
            let mut report = FleetReport::new();
            for outcome in &outcomes {
                report.add(outcome);
            }
            parts.lock().unwrap_or_else(PoisonError::into_inner).push((first, report));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let results: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        results.into_iter().collect::<Result<Vec<()>, _>>()
    })?;
    if let Some(output) = &output {
        output.finish()?;
    }
    let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
    parts.sort_by_key(|(first, _)| *first);
    Ok(parts.iter().fold(FleetReport::new(), |sum, (_, part)| merged(sum, part)))
}

fn merged(mut sum: FleetReport, part: &FleetReport) -> FleetReport {
    let all = (sum.machines + part.machines).max(1) as f64;
    let mean = |a: f64, b: f64| (a * sum.machines as f64 + b * part.machines as f64) / all;
    sum.mean_used_share = mean(sum.mean_used_share, part.mean_used_share);
    sum.mean_offline_share = mean(sum.mean_offline_share, part.mean_offline_share);
    sum.machines += part.machines;
    sum.machine_steps += part.machine_steps;
    sum.machine_hours += part.machine_hours;
    sum.books += part.books;
    sum.net_after_accounting_joules = sum.books.net_after_accounting();
    sum.losing_machines += part.losing_machines;
    sum.demand_wakes += part.demand_wakes;
    sum.emptied_slices += part.emptied_slices;
    sum.migrated_pages += part.migrated_pages;
    sum.dropped_pages += part.dropped_pages;
    sum.refault_pages += part.refault_pages;
    sum.unmet_pages += part.unmet_pages;
    sum.notes += part.notes;
    sum
}

fn one(
    number: usize,
    series: &UsageSeries,
    options: &FleetOptions,
) -> Result<MachineResult, FleetError> {
    let seed = SplitMix64::of(options.seed, number as u64).bits();
    let config = SimConfig { seed, ..SimConfig::new(options.memory, options.slice).coarse() };
    let page = config.page_bytes;
    let mut machine = SimMachine::new(config)?;
    let totals = machine.totals();
    let load = UsageLoad::new(series, options.usage, totals.managed.0, totals.used().0);
    let policy = AnyPolicy::new(&options.policy, &options.economics, options.slice, page)?;
    let mut levels = LevelHistory::default();
    let keep = options.output.is_some();
    let run = run(&mut machine, load, &mut RunDecider::Policy(policy), |machine| {
        if keep {
            let totals = machine.totals();
            levels.seconds.push(machine.time().as_secs() as u32);
            levels.used.push(totals.used().bytes(page).0);
            levels.freeable.push(totals.freeable.bytes(page).0);
            levels.nonempty.push(machine.nonempty());
            levels.offline.push(totals.nr_offline);
        }
    });
    let books = options.rates.books(&run, options.slice);
    Ok(MachineResult { machine: series.machine.clone(), run, books, notes: series.notes, levels })
}

fn write(
    output: &OutputDirectory,
    number: usize,
    outcomes: &[MachineResult],
) -> Result<(), OutputError> {
    fn floats(outcomes: &[MachineResult], of: impl Fn(&MachineResult) -> f64) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(outcomes.iter().map(of)))
    }
    fn numbers(outcomes: &[MachineResult], of: impl Fn(&MachineResult) -> u64) -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(outcomes.iter().map(of)))
    }
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values(outcomes.iter().map(|o| o.machine.as_str())));
    let machines = vec![
        ("machine", names),
        ("hours", floats(outcomes, |o| o.run.duration.as_secs_f64() / 3600.0)),
        ("steps", numbers(outcomes, |o| o.run.steps)),
        ("mean_used_share", floats(outcomes, |o| o.run.mean_used_share)),
        (
            "mean_offline_share",
            floats(outcomes, |o| o.run.mean_offline / f64::from(o.run.slices.max(1))),
        ),
        ("saved_low_joules", floats(outcomes, |o| o.books.saved.low().0)),
        ("saved_high_joules", floats(outcomes, |o| o.books.saved.high().0)),
        ("net_low_joules", floats(outcomes, |o| o.books.net.low().0)),
        ("net_high_joules", floats(outcomes, |o| o.books.net.high().0)),
        ("accounting_high_joules", floats(outcomes, |o| o.books.accounting.high().0)),
        ("demand_wakes", numbers(outcomes, |o| o.run.stats.demand_wakes)),
        ("emptied_slices", numbers(outcomes, |o| o.run.work.emptied_slices)),
        ("migrated_pages", numbers(outcomes, |o| o.run.work.migrated_pages.0)),
        ("dropped_pages", numbers(outcomes, |o| o.run.work.dropped_pages.0)),
        ("refault_pages", numbers(outcomes, |o| o.run.stats.packing_refault_pages)),
        ("unmet_pages", numbers(outcomes, |o| o.run.stats.unmet_pages)),
        ("gaps", numbers(outcomes, |o| o.notes.gaps)),
        ("rows_without_value", numbers(outcomes, |o| o.notes.without_value)),
    ];
    output.part("machines", number, machines)?;
    let rows = outcomes
        .iter()
        .flat_map(|o| std::iter::repeat_n(o.machine.as_str(), o.levels.seconds.len()));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(rows));
    let small = |of: fn(&LevelHistory) -> &Vec<u32>| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(
            outcomes.iter().flat_map(|o| of(&o.levels).iter().copied()),
        ))
    };
    let large = |of: fn(&LevelHistory) -> &Vec<u64>| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            outcomes.iter().flat_map(|o| of(&o.levels).iter().copied()),
        ))
    };
    let levels = vec![
        ("machine", names),
        ("time_s", small(|levels| &levels.seconds)),
        ("used_bytes", large(|levels| &levels.used)),
        ("freeable_bytes", large(|levels| &levels.freeable)),
        ("nonempty_slices", small(|levels| &levels.nonempty)),
        ("offline_slices", small(|levels| &levels.offline)),
    ];
    output.part("levels", number, levels)
}
