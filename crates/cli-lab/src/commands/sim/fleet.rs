//! `ramslice-lab sim fleet`: many machines by their utilisation; kWh, money and CO2.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_energy::{Interval, SampleClock, range};
use ramslice_sim::fleet::{FleetError, FleetOptions, FleetReport, simulate};
use ramslice_sim::load::{FleetAverages, InputError, UsageFile, UsageOptions, UsageSeries};
use ramslice_types::{Bytes, Joules, Ratio, parse_bytes};
use serde::Serialize;

use super::common;
use super::generate::GeneratedFleet;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::ExitStatus;
use ramslice_cli::interrupt::interruptible;
use ramslice_cli::render::{ColumnAlign, TextTable};
use ramslice_cli::stderr;

const HELP: &str = "\
FILE has the column layout of machine_usage.csv: nine columns, no header, the rows of a machine \
together and in order of time. It may be compressed by gzip. Only machine_id, time_stamp \
(seconds) and mem_util_percent are read. A row that cannot be is an error with its line; rows \
without a value (empty, -1, 101), repeated rows and gaps are counted. With --generate, machines \
are made up from published averages instead; `ramslice-lab sim generate` has the options.

Each machine is simulated by itself, with a seed that follows from --seed and its place: cost \
grows with their number, memory does not. With --output, tables go to DIR/machines/policy=NAME/ \
and DIR/levels/policy=NAME/ as Parquet, which DuckDB, pandas and Spark read as they are.

Money and CO2 follow from the net, scaled to a year, with --pue for cooling and power supply.

Examples:
  ramslice-lab sim fleet machine_usage.csv --memory 512G --slice 4G
  ramslice-lab sim fleet --generate 4000 --memory 512G --slice 4G --output fleet
  ramslice-lab sim fleet --generate 100 --memory-percent 50 --daily-swing 30 --policy watermarks
  duckdb -c \"select avg(net_low_joules) from 'fleet/machines/*/*.parquet'\"";

/// Simulate many machines by their utilisation, and report kWh, money and CO2.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct FleetArgs {
    /// Machine utilisation in the layout of `machine_usage.csv`
    #[arg(value_name = "FILE", required_unless_present = "generate", conflicts_with = "generate")]
    file: Option<PathBuf>,
    /// Take rows of FILE that are usually more than an hour apart; otherwise their times count as
    /// milliseconds
    #[arg(long, requires = "file")]
    sparse: bool,
    /// Make up this many machines
    #[arg(long, value_name = "N")]
    generate: Option<u32>,
    #[command(flatten)]
    made_up: GeneratedFleet,
    /// never, periodic, watermarks, threshold, repair or governor; or a file with settings
    #[arg(long, value_name = "NAME|FILE", default_value = "governor")]
    policy: String,
    /// Memory of each machine
    #[arg(long, value_name = "SIZE", default_value = "512G", value_parser = parse_bytes)]
    memory: Bytes,
    /// Size of a slice
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_bytes)]
    slice: Bytes,
    #[command(flatten)]
    energy: common::EnergyOptions,
    /// The share of memory in use that is clean page cache, 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = UsageOptions::default().cache_share,
        value_parser = common::up_to::<1>
    )]
    cache_share: f64,
    /// Machines at a time [default: one per CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write tables as Parquet into this directory, which may have those of other policies
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Price of electricity per kWh
    #[arg(
        long,
        value_name = "MONEY",
        default_value = "0.08..0.30",
        value_parser = common::interval
    )]
    price: Interval<Ratio>,
    /// Grams of CO2 per kWh
    #[arg(long, value_name = "GRAMS", default_value = "50..700", value_parser = common::interval)]
    carbon: Interval<Ratio>,
    /// Energy drawn by the site for each unit that machines draw
    #[arg(long, value_name = "FACTOR", default_value = "1.1..1.6", value_parser = common::interval)]
    pue: Interval<Ratio>,
}

/// Money and CO2 of a year.
#[derive(Serialize)]
struct YearFigures {
    #[serde(rename = "kwh_per_year")]
    kwh: Interval<Ratio>,
    #[serde(rename = "money_per_year")]
    money: Interval<Ratio>,
    #[serde(rename = "co2_kg_per_year")]
    co2_kg: Interval<Ratio>,
}

#[derive(Serialize)]
struct FleetDocument<'a> {
    source: String,
    policy: &'a str,
    seed: u64,
    memory_bytes: Bytes,
    slice_bytes: Bytes,
    #[serde(flatten)]
    report: &'a FleetReport,
    year: Option<YearFigures>,
    elapsed_us: u64,
    assumptions: &'a [String],
}

const JOULES_PER_KWH: f64 = 3.6e6;
const HOURS_PER_YEAR: f64 = 8766.0;

/// Net after accounting, as kWh of the site in a year of all machines, and what follows.
fn year(report: &FleetReport, args: &FleetArgs) -> Option<YearFigures> {
    let hours_each = report.machine_hours / report.machines.max(1) as f64;
    if hours_each <= 0.0 {
        return None;
    }
    let net = report.net_after_accounting_joules;
    let scale = HOURS_PER_YEAR / hours_each / JOULES_PER_KWH;
    let kwh = |joules: Joules| Ratio(joules.0 * scale);
    let kwh = Interval::between(kwh(net.low()), kwh(net.high())).times(args.pue);
    Some(YearFigures {
        kwh,
        money: kwh.times(args.price),
        co2_kg: kwh.times(args.carbon).scaled(1e-3),
    })
}

fn plain_text(value: Interval<Ratio>) -> String {
    range(value).trim_end().to_owned()
}

/// Both ends as they were given.
fn factor_text(value: Interval<Ratio>) -> String {
    format!("{} to {}", value.low().0, value.high().0)
}

fn assumptions(args: &FleetArgs, rates: &[String]) -> Vec<String> {
    let mut all = rates.to_vec();
    all.push(format!(
        "all machines have {} with {} slices of {}, and {:.0} % of what is in use is clean page \
         cache, half of which is used again within an hour",
        args.memory,
        args.memory.0 / args.slice.0.max(1),
        args.slice,
        args.cache_share * 100.0
    ));
    if args.generate.is_some() {
        let of: FleetAverages = args.made_up.averages();
        all.push(format!(
            "machines are synthetic: {} % of memory in use on average, {} points between \
             machines, {} points in a day, {} points of noise",
            of.memory_percent, of.between_machines, of.daily_swing, of.noise
        ));
    }
    all.push(format!(
        "a year like the time simulated; {} of the site's energy for each unit of the machines', \
         {} of money and {} g of CO2 per kWh",
        factor_text(args.pue),
        factor_text(args.price),
        factor_text(args.carbon)
    ));
    all
}

pub(super) fn run(
    args: &FleetArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if args.file.is_some() {
        let why = "it is for machines that are made up, and FILE has its own";
        common::refuse_stated(&args.made_up.stated(), why)?;
    }
    let page = Bytes(4096);
    let (economics, rates) = args.energy.resolve(args.slice, page, SampleClock::Real)?;
    let all_assumptions = assumptions(args, &rates.assumptions);
    let usage = UsageOptions {
        step: args.made_up.step,
        cache_share: args.cache_share,
        ..UsageOptions::default()
    };
    let options = FleetOptions {
        memory: args.memory,
        slice: args.slice,
        usage,
        policy: common::policy(&args.policy)?,
        economics,
        rates,
        jobs: common::jobs(args.jobs),
        seed: args.made_up.seed,
        output: args.output.clone(),
    };
    let started = Instant::now();
    let machines: Box<dyn Iterator<Item = Result<UsageSeries, InputError>> + Send> =
        match (&args.file, args.generate) {
            (Some(file), _) => Box::new(UsageFile::open(file)?.sparse(args.sparse)),
            (None, number) => Box::new(args.made_up.machines(number.unwrap_or(0)).map(Ok)),
        };
    let report = simulate_with_progress(machines, &options, args.generate, context)?;
    let source = match &args.file {
        Some(file) => file.display().to_string(),
        None => "synthetic".to_owned(),
    };
    let body = FleetDocument {
        source,
        policy: options.policy.policy.name(),
        seed: options.seed,
        memory_bytes: args.memory,
        slice_bytes: args.slice,
        report: &report,
        year: year(&report, args),
        elapsed_us: started.elapsed().as_micros() as u64,
        assumptions: &all_assumptions,
    };
    if context.json() {
        write_json(out, "sim", body)?;
    } else {
        show(&body, args, context, out)?;
    }
    Ok(ExitStatus::Ok)
}

/// Ctrl-C ends it after the machines under way; then there is no report: half a fleet is no fleet.
fn simulate_with_progress(
    machines: impl Iterator<Item = Result<UsageSeries, InputError>> + Send,
    options: &FleetOptions,
    all: Option<u32>,
    context: &CommandContext,
) -> Result<FleetReport, anyhow::Error> {
    let shown = io::stderr().is_terminal() && !context.json();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let found = interruptible(|interrupt| {
        let progress = |done: u64| {
            if shown && done.is_multiple_of(16) {
                let mut text = format!("simulating: {done}");
                if let Some(all) = all {
                    let left =
                        started.elapsed().mul_f64((f64::from(all) / done as f64 - 1.0).max(0.0));
                    let _ = write!(text, " of {all} machines, {} s left", left.as_secs());
                } else {
                    text.push_str(" machines");
                }
                stderr::rewrite(format_args!("{text}; Ctrl-C ends"));
            }
            !(stop.load(Ordering::Relaxed) || interrupt.requested())
        };
        Ok::<Result<FleetReport, FleetError>, anyhow::Error>(simulate(machines, options, &progress))
    });
    if shown {
        stderr::clear();
    }
    Ok(found??)
}

fn show(
    body: &FleetDocument<'_>,
    args: &FleetArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    let (report, books) = (body.report, &body.report.books);
    let each =
        Duration::from_secs_f64(report.machine_hours / report.machines.max(1) as f64 * 3600.0);
    writeln!(
        out,
        "{} machines ({}) for {:.1} h each, policy {}, seed {}",
        report.machines,
        body.source,
        each.as_secs_f64() / 3600.0,
        body.policy,
        body.seed
    )?;
    let mut table = TextTable::new(&[("", ColumnAlign::Left), ("", ColumnAlign::Right)]);
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    row("memory in use, on average", common::share(Some(report.mean_used_share)));
    row("memory off, on average", common::share(Some(report.mean_offline_share)));
    row("saved", common::joules(books.saved));
    row("emptying", common::joules(books.emptying));
    row("waking, transitions", common::joules(books.waking + books.transitions));
    row("reading again", common::joules(books.refaults));
    row("net", common::joules(books.net));
    row("accounting", common::joules(books.accounting));
    row("net after accounting", common::joules(report.net_after_accounting_joules));
    row("machines that lost", format!("{} of {}", report.losing_machines, report.machines));
    row("woken on demand", format!("{} slices", report.demand_wakes));
    row("pages wanted and not there", report.unmet_pages.to_string());
    if let Some(year) = &body.year {
        row("kWh in a year, with cooling", plain_text(year.kwh));
        row("money in a year", plain_text(year.money));
        row("kg of CO2 in a year", plain_text(year.co2_kg));
    }
    table.write(out, &context.screen)?;
    for sentence in report.notes.sentences().iter().chain(body.assumptions) {
        writeln!(out, "- {sentence}")?;
    }
    if let Some(dir) = &args.output {
        writeln!(out, "tables: {}", dir.display())?;
    }
    Ok(())
}
