//! `ramslice energy`: the ledger of what packing costs and saves, live and over a recording.

use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use ramslice_backend::sys::Interrupt;
use ramslice_backend::{KernelPaths, Processor, power_domains};
use ramslice_energy::{
    Clock, Granule, Interval, Ledger, Measured, MeterReading, MeterTally, Profile, Sample,
    Settings, State, Statement, Tally, TimeFactor, now,
};
use ramslice_types::{Backend, Bytes, Machine, Ratio, Work, parse_bytes, parse_duration};

use super::interrupt::interruptible;
use super::{energy_recording, energy_show, profiles};
use crate::context::Context;
use crate::exit::{Exit, UsageError};

/// How often figures are printed while a machine is watched.
const EVERY: Duration = Duration::from_secs(5);
/// Between two samples at least, however many slices change.
const MIN_STEP: Duration = Duration::from_millis(100);
/// Between two readings of the meter at most: counters of RAPL come round, after 262 kJ many of them, within the hour on a
/// machine at work.
const METER: Duration = Duration::from_mins(1);

const HELP: &str = "\
Watches slices and adds up joules by a profile (`ramslice profiles` lists them): saved by memory \
that is off; invested in emptying and waking slices, in keeping account, in reading dropped cache \
again, in switching; and what is left. Each figure has a low and a high end, and says what it rests \
on. If 0 lies between the ends of the net, or if something that may outweigh it could not be \
counted, the verdict is \"undecided\".

Seconds of an emulated machine are not real ones. There, costs come from the operations that the \
kernel counted, at the prices of the profile's machine, and --time-factor must say how many times \
slower the machine is: the time of a program here, divided by its time on the profile's machine. \
--time-factor-source names that program beside the figures.

Where the hardware has a meter (RAPL), the machine's energy is read from it and laid beside the \
profile's. Root only: the counters are in debugfs. Ctrl-C ends it with the report.

With --from and a recording, the ledger runs over its samples, on its clock: --every is then time of \
the recording, and only the report is printed without it. With --from and a saved machine, there is \
one moment: what it saves as long as nothing changes.

Examples:
  ramslice energy --profile thesis-parc --for 10m
  ramslice energy --profile mine.toml --runtime-change 0..0.2%
  ramslice energy --profile thesis-parc --time-factor 12..18 --granularity slice
  ramslice energy --profile ddr5-modes --machine thesis-parc
  ramslice energy --profile ddr5-modes --state pasr --json | tail -n 1 | jq .verdict
  ramslice energy --profile thesis-parc --from build --every 1m
  ramslice energy --profile thesis-parc --from now.json";

/// Tell what packing costs and saves in joules, live or over a recording.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The memory system: a name from `ramslice profiles`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: String,
    /// The power state [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub(super) state: Option<String>,
    /// Take the machine that costs are counted for from another profile
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) machine: Option<String>,
    /// Print the figures so far this often [default: 5s, of a recording only the report]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) every: Option<Duration>,
    /// End after this time [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    #[command(flatten)]
    pub(super) slowness: Slowness,
    /// Assume that the hardware switches units of this size, as in 64M, or `slice`
    #[arg(long, value_name = "SIZE|slice")]
    pub(super) granularity: Option<Size>,
    /// By how much the work took longer than without packing: 0.1% or 0..0.2%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(super) runtime_change: Option<Percent>,
}

/// How slow an emulated machine is, and who says so.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Slowness {
    /// How many times slower than the profile's machine an emulated one is: 15 or 12..18
    #[arg(long, value_name = "FACTOR")]
    pub(super) time_factor: Option<Range>,
    /// What that factor is from, told beside it, as in "lab/case: compile, timed five times"
    #[arg(long, value_name = "TEXT", requires = "time_factor", value_parser = NonEmptyStringValueParser::new())]
    pub(super) time_factor_source: Option<String>,
}

/// `15` or `12..18`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range(Interval<Ratio>);

impl FromStr for Range {
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
pub(super) struct Percent(Interval<Ratio>);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range: Range = text.trim_end_matches('%').parse()?;
        if range.0.low().0 <= -100.0 {
            return Err(format!("`{text}`: work cannot take 100 % less time"));
        }
        Ok(Self(range.0.scaled(0.01)))
    }
}

/// A size, or that of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Slice,
    Bytes(Bytes),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "slice" => Ok(Self::Slice),
            text => match parse_bytes(text) {
                Ok(Bytes(0)) => Err("a unit of 0 bytes cannot be switched".to_owned()),
                Ok(bytes) => Ok(Self::Bytes(bytes)),
                Err(error) => Err(format!("{error}; or `slice`")),
            },
        }
    }
}

/// What is asked for, checked.
pub(super) struct Plan {
    pub(super) profile: Profile,
    pub(super) state: State,
    pub(super) clock: Clock,
    granularity: Option<Size>,
    runtime_change: Option<Interval<Ratio>>,
}

impl Plan {
    pub(super) fn new(args: &Args, clock: Clock) -> Result<Self> {
        let mut profile = profiles::load(&args.profile)?;
        if let Some(other) = &args.machine {
            let Profile { file, machine, .. } = profiles::load(other)?;
            if machine.is_none() {
                return Err(UsageError(format!(
                    "{file} names no machine, whose costs could be taken"
                ))
                .into());
            }
            profile.machine = machine;
        }
        let name = args.state.as_ref().unwrap_or(&profile.default_state);
        let Some(state) = profile.state(name).cloned() else {
            let names: Vec<&str> = profile.states.iter().map(|state| state.name.as_str()).collect();
            let message =
                format!("{} has no state `{name}`: it has {}", profile.file, names.join(", "));
            return Err(UsageError(message).into());
        };
        if state.saving_by_packing().is_none() {
            let message = format!(
                "{} gives relative powers only, so there are no joules: copy it with `ramslice profiles {} --toml`, \
                 and state module_capacity or full_power, which its source leaves out",
                profile.file, args.profile
            );
            return Err(UsageError(message).into());
        }
        let runtime_change = args.runtime_change.map(|percent| percent.0);
        Ok(Self { profile, state, clock, granularity: args.granularity, runtime_change })
    }

    pub(super) fn granule(&self, slice_bytes: Bytes) -> Granule {
        match self.granularity {
            None => Granule::OfProfile(self.state.granularity.bytes.value),
            Some(Size::Slice) => Granule::Assumed(slice_bytes),
            Some(Size::Bytes(bytes)) => Granule::Assumed(bytes),
        }
    }

    /// What the sums of a ledger of `machine` come to.
    pub(super) fn statement(
        &self,
        tally: &Tally,
        machine: &Machine,
        measured: Option<&Measured>,
    ) -> Option<Statement> {
        let info = &machine.info;
        let settings = Settings {
            profile: &self.profile,
            state: &self.state,
            clock: &self.clock,
            cycle_clock: info.clock(),
            granule: self.granule(info.slice_bytes),
            runtime_change: self.runtime_change,
            accounts: !info.is_stock(),
            kernel_prices: &machine.price_parameters,
            page_bytes: info.page_bytes,
            memory: info.managed_pages.bytes(info.page_bytes),
            power_driver: &info.power_driver,
            measured,
        };
        Statement::new(tally, &settings)
    }
}

/// The clock of `machine`; an error if its seconds may not be real and nobody says how slow it is.
pub(super) fn clock(slowness: &Slowness, processor: &Processor, machine: &str) -> Result<Clock> {
    if let Some(Range(factor)) = slowness.time_factor {
        let source = slowness.time_factor_source.as_deref().unwrap_or("--time-factor");
        let factor =
            TimeFactor::new(factor, source).map_err(|error| UsageError(error.to_string()))?;
        return Ok(Clock::Emulated(factor));
    }
    let what = match processor {
        Processor::Real | Processor::Virtual(_) => return Ok(Clock::Real),
        Processor::Emulated(name) => {
            format!("{machine} is emulated ({name}), so its seconds are not real ones")
        }
        Processor::Unknown => {
            format!("whether {machine} is emulated cannot be told")
        }
    };
    let message = format!(
        "{what}: state with --time-factor how many times slower it is than the profile's machine, \
         the time of a program here divided by its time there"
    );
    Err(UsageError(message).into())
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    if let Some(recording) = context.recording()? {
        energy_recording::run(args, &recording, context, out)?;
        return Ok(Exit::Ok);
    }
    if context.saved().is_some() {
        if args.duration.is_some()
            || args.slowness.time_factor.is_some()
            || args.runtime_change.is_some()
        {
            let message = "a saved machine is one moment, in which no time passes: leave out --for, \
                           --time-factor and --runtime-change";
            return Err(UsageError(message.to_owned()).into());
        }
        let plan = Plan::new(args, Clock::Real)?;
        let machine = context.backend()?.machine()?;
        let sample = Sample::new(&machine.snapshot, &machine.info, Work::default());
        let granule = plan.granule(machine.info.slice_bytes);
        energy_show::moment(&now(&sample, &plan.state, granule), &plan, granule, context, out)?;
        return Ok(Exit::Ok);
    }
    let plan = Plan::new(args, clock(&args.slowness, &Processor::here(), "this machine")?)?;
    let backend = context.backend()?;
    let meter = Meter::find(&plan.clock);
    interruptible(|interrupt| {
        let mut watch = Watch::new(backend.as_ref(), &plan, meter)?;
        watch.run(args, interrupt, context, out)
    })?;
    Ok(Exit::Ok)
}

/// The meter, if there is one that can be read.
struct Meter {
    paths: KernelPaths,
    tally: MeterTally,
}

impl Meter {
    /// A meter measures real joules in real seconds: there is none in an emulated machine.
    fn find(clock: &Clock) -> Option<Self> {
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
struct Watch<'a> {
    backend: &'a dyn Backend,
    plan: &'a Plan,
    granule: Granule,
    ledger: Ledger,
    meter: Option<Meter>,
    machine: Machine,
}

impl<'a> Watch<'a> {
    fn new(backend: &'a dyn Backend, plan: &'a Plan, meter: Option<Meter>) -> Result<Self> {
        let machine = backend.machine()?;
        let granule = plan.granule(machine.info.slice_bytes);
        let ledger = Ledger::new(granule.bytes());
        Ok(Self { backend, plan, granule, ledger, meter, machine })
    }

    fn sample(&mut self) -> Result<()> {
        let (info, snapshot) = (self.backend.info()?, self.backend.snapshot()?);
        self.ledger.add(Sample::new(&snapshot, &info, self.backend.work()?))?;
        // A stock kernel's is settled with the first cycles that are counted.
        self.machine.info.clock_khz = info.clock_khz;
        if let Some(meter) = &mut self.meter {
            meter.read();
        }
        Ok(())
    }

    fn statement(&self) -> Option<Statement> {
        let measured = self.meter.as_ref().and_then(|meter| meter.tally.measured());
        self.plan.statement(self.ledger.tally(), &self.machine, measured.as_ref())
    }

    /// Samples at each change and at least as often as figures are printed, until the time is over or Ctrl-C.
    fn run(
        &mut self,
        args: &Args,
        interrupt: &Interrupt,
        context: &Context,
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
            // Plan::new has seen to it that the profile gives joules.
            let Some(statement) = self.statement() else { return Ok(()) };
            let view = energy_show::View {
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
#[path = "energy_tests.rs"]
mod tests;
