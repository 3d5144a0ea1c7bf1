//! `ramslice sim run`: one load on one machine with one policy.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_policy::AnyPolicy;
use ramslice_sim::load::{Generator, Notes, Scale, Step, UsageFile, UsageLoad, UsageOptions, recorded};
use ramslice_sim::{Books, Config, Decider, Machine, Run, SimBackend, run as simulate};
use ramslice_types::{Backend, parse_duration};
use serde::Serialize;

use super::common;
use crate::context::{Context, write_json};
use crate::exit::{Exit, UsageError};
use crate::render::{Align, Table};

const HELP: &str = "\
LOAD is one of diurnal, bursty, vm-churn, batch, adversarial and thrash, which are generated; the \
directory of a recording made by `ramslice record`, whose machine is taken, too; or a file in the \
layout of machine_usage.csv, of which --machine names the machine.

Examples:
  ramslice sim run diurnal
  ramslice sim run bursty --policy watermarks --seed 7 --json | jq .net_joules
  ramslice sim run batch --slice 64M --granularity slice --memory 8G --step 1s --for 1h
  ramslice sim run recording-20261121T210000 --policy periodic
  ramslice sim run usage.csv --machine m_1 --memory 512G --slice 4G
  ramslice sim run diurnal --memory 6T --slice 1G --step 30s --coarse
  ramslice sim run vm-churn --save end.json && ramslice map --from end.json";

/// Run one load on one machine with one policy.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Args {
    /// A generated load, a recording, or a file of utilisation
    #[arg(value_name = "LOAD")]
    load: String,
    /// never, periodic, watermarks, threshold, repair or governor; or a file with settings
    #[arg(long, value_name = "NAME|FILE", default_value = "governor")]
    policy: String,
    #[command(flatten)]
    machine: common::Machine,
    #[command(flatten)]
    energy: common::Energy,
    /// Between two steps [default: 10s; 5m for a file of utilisation]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    step: Option<Duration>,
    /// How long a generated load lasts
    #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    duration: Duration,
    /// Decides everything that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The machine of a file of utilisation [default: the first]
    #[arg(long = "machine", value_name = "ID")]
    name: Option<String>,
    /// Take rows of a file of utilisation that are usually more than an hour apart, which else count as milliseconds
    #[arg(long)]
    sparse: bool,
    /// Save the machine as it is at the end, for --from
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Serialize)]
struct Body<'a> {
    load: &'a str,
    policy: &'a str,
    seed: u64,
    machine: &'a Config,
    #[serde(flatten)]
    run: &'a Run,
    #[serde(flatten)]
    books: &'a Books,
    wake_wait_p999_ns: f64,
    notes: Notes,
    assumptions: &'a [String],
}

/// The machine and its steps.
struct Input {
    config: Config,
    machine: Machine,
    steps: Box<dyn Iterator<Item = Step>>,
    notes: Notes,
}

fn usage(args: &Args, path: &Path, config: Config) -> Result<Input> {
    let file = UsageFile::open(path)?.sparse(args.sparse);
    let mut found = None;
    for series in file {
        let series = series?;
        if args.name.as_ref().is_none_or(|name| *name == series.machine) {
            found = Some(series);
            break;
        }
    }
    let Some(series) = found else {
        let name = args.name.as_deref().unwrap_or_default();
        return Err(UsageError(format!("{} has no machine {name}", path.display())).into());
    };
    let mut options = UsageOptions::default();
    options.step = args.step.unwrap_or(options.step);
    let machine = Machine::new(config.clone())?;
    let totals = machine.totals();
    let steps: Vec<Step> = UsageLoad::new(&series, options, totals.managed.0, totals.used().0).collect();
    Ok(Input { config, machine, steps: Box::new(steps.into_iter()), notes: series.notes })
}

fn input(args: &Args) -> Result<Input> {
    let config = args.machine.config(args.seed);
    let path = Path::new(&args.load);
    if let Some(pattern) = common::pattern(&args.load) {
        let machine = Machine::new(config.clone())?;
        let pages = machine.totals().managed.0;
        let step = args.step.unwrap_or(Duration::from_secs(10));
        let scale = Scale { pages, step, duration: args.duration, seed: args.seed };
        return Ok(Input {
            config,
            machine,
            steps: Box::new(Generator::new(pattern, scale)),
            notes: Notes::default(),
        });
    }
    if path.is_dir() {
        let load = recorded(path)?;
        let config = Config { seed: args.seed, ..load.config.clone() };
        let machine = load.machine(config.clone())?;
        return Ok(Input { config, machine, steps: Box::new(load.steps.into_iter()), notes: load.notes });
    }
    if path.is_file() {
        return usage(args, path, config);
    }
    let message = format!(
        "there is no load `{}`: name one of {}, the directory of a recording, or a file of utilisation",
        args.load,
        common::patterns()
    );
    Err(UsageError(message).into())
}

pub(super) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let config = common::policy(&args.policy)?;
    let input = input(args)?;
    let (slice, page) = (input.config.slice_bytes, input.config.page_bytes);
    let (economics, rates) = args.energy.resolve(slice, page)?;
    let policy = AnyPolicy::new(&config, &economics, slice, page)?;
    let mut machine = input.machine;
    let result = simulate(&mut machine, input.steps, &mut Decider::Policy(policy), |_| ());
    let books = rates.books(&result, slice);
    if let Some(path) = &args.save {
        let saved = SimBackend::of(machine).machine()?;
        let text = serde_json::to_string_pretty(&saved)?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let body = Body {
        load: &args.load,
        policy: config.policy.name(),
        seed: args.seed,
        machine: &input.config,
        run: &result,
        books: &books,
        wake_wait_p999_ns: result.wake_wait_p999_ns(input.config.wake_latency_ns),
        notes: input.notes,
        assumptions: &rates.assumptions,
    };
    if context.json() {
        write_json(out, "sim", body)?;
    } else {
        show(&body, context, out)?;
    }
    Ok(Exit::Ok)
}

fn show(body: &Body<'_>, context: &Context, out: &mut dyn Write) -> Result<()> {
    let (run, books) = (body.run, body.books);
    let hours = run.duration.as_secs_f64() / 3600.0;
    writeln!(
        out,
        "{} for {hours:.1} h on {} with {} slices of {}, policy {}, seed {}",
        body.load,
        body.machine.memory(),
        run.slices,
        body.machine.slice_bytes,
        body.policy,
        body.seed
    )?;
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right)]);
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    row("memory in use, on average", common::share(Some(run.mean_used_share)));
    row("slices off, on average", format!("{:.1} of {}", run.mean_offline, run.slices));
    row("slices emptied, woken, woken on demand", {
        format!("{}, {}, {}", run.work.emptied_slices, run.work.woken_slices, run.stats.demand_wakes)
    });
    row("pages moved, dropped, read again", {
        format!(
            "{}, {}, {}",
            run.work.migrated_pages, run.work.dropped_pages, run.stats.packing_refault_pages
        )
    });
    row("pages wanted and not there", run.stats.unmet_pages.to_string());
    row("99.9 % of allocations waited at most", format!("{:.0} ns", body.wake_wait_p999_ns));
    row("saved", common::joules(books.saved));
    row("emptying", common::joules(books.emptying));
    row("waking, transitions", common::joules(books.waking + books.transitions));
    row("reading again", common::joules(books.refaults));
    row("net", common::joules(books.net));
    row("accounting, whatever the policy", common::joules(books.accounting));
    table.write(out, &context.screen)?;
    for sentence in body.notes.sentences().iter().chain(body.assumptions) {
        writeln!(out, "- {sentence}")?;
    }
    Ok(())
}
