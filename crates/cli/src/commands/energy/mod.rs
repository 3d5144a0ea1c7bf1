//! `ramslice energy`: the ledger of what packing costs and saves, live and over a recording.

pub mod statement_text;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_backend::sys::SignalInterrupt;
use ramslice_backend::{KernelPaths, ProcessorKind, power_domains};
use ramslice_energy::{
    EnergyLedger, EnergySample, EnergyStatement, LedgerPlan, MeterReading, MeterTally,
    PowerGranule, SampleClock, now,
};
use ramslice_types::{Backend, Bytes, MachineState, WorkCounters, parse_duration};

use self::statement_text::StatementView;
use crate::context::CommandContext;
use crate::daemon_samples;
use crate::daemon_takers::STATUS;
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::interruptible;
use crate::ledger_options::LedgerOptions;
use crate::profile_files;

/// How often figures are printed while a machine is watched.
const EVERY: Duration = Duration::from_secs(5);
/// Between two samples at least, however many slices change.
const MIN_STEP: Duration = Duration::from_millis(100);
/// Between two readings of the meter at most: counters of RAPL come round, after 262 kJ many of
/// them, within the hour on a machine at work.
const METER: Duration = Duration::from_mins(1);

const HELP: &str = "\
Watches slices and adds up joules by a profile: a name, or a file as those in \
/usr/share/ramslice/profiles (`ramslice-lab profiles` says what they rest on). Memory that goes to \
a host is valued in GiB hours, by ramsliced: see given_back in its status. Joules are saved by \
memory that is off; invested in emptying and waking slices, in keeping account, in reading \
dropped cache again, in switching; and what is left. Each figure has a low and a high end, and \
says what it rests on. If 0 lies between the ends of the net, or if something that may outweigh \
it could not be counted, the verdict is \"undecided\".

Seconds of an emulated machine are not real ones. There, costs come from the operations that the \
kernel counted, at the prices of the profile's machine, and --time-factor must say how many times \
slower the machine is: the time of a program here, divided by its time on the profile's machine. \
--time-factor-source names that program beside the figures.

Where the hardware has a meter (RAPL), the machine's energy is read from it and laid beside the \
profile's. Root only: the counters are in debugfs. Ctrl-C ends it with the report.

Slices in use that may rest are in no sum: at most, they rested for the time in which DAMON's \
samples saw no access, if ramsliced has it watch (`[cold] automatic`), otherwise for all of it.

With --from and a saved machine, there is one moment: what it saves as long as nothing changes. \
For a recording, use `ramslice-lab energy`.

Examples:
  ramslice energy --profile thesis-parc --for 10m
  ramslice energy --profile mine.toml --runtime-change 0..0.2%
  ramslice energy --profile thesis-parc --time-factor 12..18 --granularity slice
  ramslice energy --profile ddr5-modes --machine thesis-parc
  ramslice energy --profile ddr5-modes --state pasr --json | tail -n 1 | jq .verdict
  ramslice energy --profile thesis-parc --from now.json";

/// Show what packing costs and saves in joules, live or over a recording.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct EnergyArgs {
    /// The memory system, and what its joules are counted by.
    #[command(flatten)]
    pub ledger: LedgerOptions,
    /// Print the figures so far this often [default: 5s, of a recording only the report]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: Option<Duration>,
    /// End after this time [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written, or makes no sense together.
pub fn run(args: &EnergyArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    if context.source_path().is_some() {
        if args.duration.is_some()
            || args.ledger.time_factor.time_factor.is_some()
            || args.ledger.runtime_change.is_some()
        {
            let message = "a saved machine is one moment, in which no time passes: leave out \
                           --for, --time-factor and --runtime-change";
            return Err(UsageError(message.to_owned()).into());
        }
        let plan = args.ledger.plan(SampleClock::Real)?;
        let machine = context.backend()?.machine()?;
        let sample = EnergySample::new(&machine.snapshot, &machine.info, WorkCounters::default());
        let granule = plan.granule(machine.info.slice_bytes);
        statement_text::moment(&now(&sample, &plan.state, granule), &plan, granule, context, out)?;
        return Ok(ExitStatus::Ok);
    }
    // Whatever this machine's clock is worth: a profile of another kind is of no use here.
    profile_files::load(&args.ledger.profile)?;
    let plan =
        args.ledger.plan(args.ledger.time_factor.clock(&ProcessorKind::here(), "this machine")?)?;
    let backend = context.backend()?;
    let meter = EnergyMeter::find(&plan.clock);
    interruptible(|interrupt| {
        let mut watch = EnergyWatch::new(backend.as_ref(), &plan, meter)?;
        watch.run(args, interrupt, context, out)
    })?;
    Ok(ExitStatus::Ok)
}

/// The meter, if there is one that can be read.
struct EnergyMeter {
    paths: KernelPaths,
    tally: MeterTally,
}

impl EnergyMeter {
    /// A meter measures real joules in real seconds: there is none in an emulated machine.
    fn find(clock: &SampleClock) -> Option<Self> {
        let paths = KernelPaths::system();
        if !clock.is_real() {
            return None;
        }
        match power_domains(&paths) {
            Ok(domains) if domains.is_empty() => None,
            Ok(_) => Some(Self { paths, tally: MeterTally::default() }),
            Err(error) => {
                tracing::warn!("the energy meter is left out: {error}");
                None
            }
        }
    }

    /// Adds what it shows. The ledger does without a figure of the meter, and goes on.
    fn read(&mut self) {
        let domains = match power_domains(&self.paths) {
            Ok(domains) => domains,
            Err(error) => {
                if self.tally.lose() {
                    tracing::warn!("the energy meter is left out from now on: {error}");
                }
                return;
            }
        };
        let reading = |domain: ramslice_backend::PowerDomain| MeterReading {
            domain: domain.name,
            part_of: domain.part_of,
            energy_uj: domain.energy_uj,
            range_uj: domain.range_uj,
        };
        self.tally.add(domains.into_iter().map(reading).collect());
    }
}

/// The ledger, and what it watches.
struct EnergyWatch<'a> {
    backend: &'a dyn Backend,
    plan: &'a LedgerPlan,
    granule: PowerGranule,
    ledger: EnergyLedger,
    meter: Option<EnergyMeter>,
    machine: MachineState,
}

impl<'a> EnergyWatch<'a> {
    fn new(
        backend: &'a dyn Backend,
        plan: &'a LedgerPlan,
        meter: Option<EnergyMeter>,
    ) -> Result<Self> {
        let machine = backend.machine()?;
        let granule = plan.granule(machine.info.slice_bytes);
        let ledger = EnergyLedger::new(granule.bytes());
        Ok(Self { backend, plan, granule, ledger, meter, machine })
    }

    fn sample(&mut self) -> Result<()> {
        let (info, snapshot) = (self.backend.info()?, self.backend.snapshot()?);
        let unaccessed = (info.resting_bytes > Bytes::ZERO)
            .then(|| daemon_samples::unaccessed_share(Path::new(STATUS)))
            .flatten();
        let sample = EnergySample::new(&snapshot, &info, self.backend.work()?);
        self.ledger.add(sample.with_unaccessed(unaccessed))?;
        // A stock kernel's is settled with the first cycles that are counted.
        self.machine.info.clock_khz = info.clock_khz;
        if let Some(meter) = &mut self.meter {
            meter.read();
        }
        Ok(())
    }

    fn statement(&self) -> Option<EnergyStatement> {
        let measured = self.meter.as_ref().and_then(|meter| meter.tally.measured());
        self.plan.statement(self.ledger.tally(), &self.machine, measured.as_ref())
    }

    /// Samples at each change and at least as often as figures are printed, until the time is over
    /// or Ctrl-C.
    fn run(
        &mut self,
        args: &EnergyArgs,
        interrupt: &SignalInterrupt,
        context: &CommandContext,
        out: &mut dyn Write,
    ) -> Result<()> {
        let start = Instant::now();
        let mut printed = start;
        self.sample()?;
        loop {
            let left =
                args.duration.map_or(Duration::MAX, |all| all.saturating_sub(start.elapsed()));
            let every = args.every.unwrap_or(EVERY);
            let most = if self.meter.is_some() { METER } else { Duration::MAX };
            let next = every.saturating_sub(printed.elapsed()).min(left).min(most);
            if !next.is_zero() {
                self.backend.wait_event(next)?;
                std::thread::sleep(MIN_STEP.min(next));
            }
            // Before the sample: the last one must see all that was done before Ctrl-C.
            let over =
                interrupt.requested() || args.duration.is_some_and(|all| start.elapsed() >= all);
            self.sample()?;
            let due = printed.elapsed() >= every;
            if !over && !due {
                continue;
            }
            printed = Instant::now();
            // LedgerOptions::plan has seen to it that the profile gives joules.
            let Some(statement) = self.statement() else { return Ok(()) };
            let view = StatementView {
                plan: self.plan,
                granule: self.granule,
                tally: self.ledger.tally(),
            };
            view.write(&statement, over, context, out)?;
            out.flush()?;
            if over {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
