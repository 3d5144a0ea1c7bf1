//! `ramslice-lab sim tournament`: every policy on every load, beside one that knew all demand in
//! advance.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ramslice_policy::PolicyKind;
use ramslice_sim::SimConfig;
use ramslice_sim::load::{
    LoadPattern, MachineSelection, UsageFile, UsageOptions, UsageSeries, recorded,
};
use ramslice_sim::tournament::{
    PolicyCandidate, PolicyScore, TournamentInput, TournamentOptions, TournamentReport, hold,
    is_above, svg, sweep,
};
use ramslice_types::{SplitMix64, parse_duration};
use serde::Serialize;

use super::common;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_cli::interrupt::interruptible;
use ramslice_cli::render::{ColumnAlign, TextTable};
use ramslice_cli::stderr;

const HELP: &str = "\
Every policy runs on every input: on generated loads with each seed, on recordings, and on files \
of utilisation. Beside them runs a clairvoyant, whose schedules are optima of a cost model for \
the demand of that input; the best of 25 counts. With --sweep, policies with settings have a \
choice of them and count with the best on each input: budgets as in the thesis' case studies, \
watermarks, thresholds.

A share is a policy's net by the clairvoyant's, both by the middle of their intervals. The \
clairvoyant knows all demand, but plans with slices that are equally full: a policy that finds \
the cheap ones may earn more. Such a share has a *. No policy can earn more than the bound: all \
that lasts packed perfectly, and every slice as cheap to switch off as an empty one.

Of a file of utilisation, --sample machines take part, drawn from all of the file's by \
--sample-seed; or one, by --machine. They have the memory and slices of generated loads, and \
steps of five minutes.

Examples:
  ramslice-lab sim tournament
  ramslice-lab sim tournament --loads diurnal,batch --seeds 1,2,3 --sweep --svg policies.svg
  ramslice-lab sim tournament --policies periodic --sweep --recording osm --loads none
  ramslice-lab sim tournament --loads none --usage usage.csv --sample 5 --memory 512G
  ramslice-lab sim tournament --json | jq '.standings[] | {policy, median_share}'";

/// Let every policy run on every load.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct TournamentArgs {
    /// Generated loads, or none [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    loads: Vec<String>,
    /// Seeds of the generated loads
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Recordings that take part; repeat
    #[arg(long, value_name = "DIR")]
    recording: Vec<PathBuf>,
    /// Files of machine utilisation in the layout of `machine_usage.csv` that take part, also those
    /// of `sim generate`; repeat
    #[arg(long, value_name = "FILE")]
    usage: Vec<PathBuf>,
    /// Machines of each file of utilisation that take part, drawn by --sample-seed
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "usage"
    )]
    sample: u32,
    /// Decides which machines of a file are drawn, and what happens to them by chance
    #[arg(long, value_name = "N", default_value_t = 1, requires = "usage")]
    sample_seed: u64,
    /// Machines of the files of utilisation that take part, by their names, instead of a sample
    #[arg(
        long = "machine",
        value_name = "ID,...",
        value_delimiter = ',',
        requires = "usage",
        conflicts_with = "sample"
    )]
    machines: Vec<String>,
    /// Take rows of a file of utilisation that are usually more than an hour apart; otherwise their
    /// times count as milliseconds
    #[arg(long, requires = "usage")]
    sparse: bool,
    #[command(flatten)]
    seconds: common::LoadSeconds,
    /// Policies, by name or by file with settings [default: all]
    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',')]
    policies: Vec<String>,
    /// Try many settings of each policy that has any, and count the best on each input
    #[arg(long)]
    sweep: bool,
    #[command(flatten)]
    machine: common::MachineOptions,
    #[command(flatten)]
    energy: common::EnergyOptions,
    /// Between two steps of generated loads [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    step: Option<Duration>,
    /// How long generated loads last [default: 24h]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Inputs at a time [default: one per CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Draw the result as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Serialize)]
struct TournamentDocument<'a> {
    machine: &'a SimConfig,
    #[serde(rename = "step_us", with = "ramslice_types::duration_us")]
    step: Duration,
    #[serde(rename = "duration_us", with = "ramslice_types::duration_us")]
    duration: Duration,
    sweep: bool,
    #[serde(flatten)]
    report: &'a TournamentReport,
    elapsed_us: u64,
    assumptions: &'a [String],
}

fn inputs(args: &TournamentArgs) -> Result<Vec<TournamentInput>> {
    let mut patterns: Vec<LoadPattern> = Vec::new();
    for name in &args.loads {
        match (name.as_str(), common::pattern(name)) {
            ("none", _) => {}
            (_, Some(pattern)) => patterns.push(pattern),
            _ => {
                let message = format!(
                    "there is no load `{name}`: there are {}, and none",
                    common::patterns()
                );
                return Err(UsageError(message).into());
            }
        }
    }
    if args.loads.is_empty() {
        patterns = LoadPattern::ALL.to_vec();
    }
    let mut inputs: Vec<TournamentInput> = patterns
        .into_iter()
        .flat_map(|pattern| {
            args.seeds.iter().map(move |&seed| TournamentInput::Generated { pattern, seed })
        })
        .collect();
    for dir in &args.recording {
        inputs.push(TournamentInput::Recorded {
            name: last_part(dir),
            load: Box::new(recorded(dir)?),
        });
    }
    for path in &args.usage {
        inputs.extend(usage(args, path)?);
    }
    for (at, input) in inputs.iter().enumerate() {
        let same = |other: &TournamentInput| {
            other.name() == input.name() && !matches!(other, TournamentInput::Generated { .. })
        };
        if inputs[..at].iter().any(same) {
            let message =
                format!("two inputs are called {}: give their files other names", input.name());
            return Err(UsageError(message).into());
        }
    }
    if inputs.is_empty() {
        let message = "there is no input: leave out `--loads none`, or name a --recording or a \
                       file with --usage";
        return Err(UsageError(message.to_owned()).into());
    }
    Ok(inputs)
}

fn last_part(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The machines of a file of utilisation that take part.
fn usage(args: &TournamentArgs, path: &Path) -> Result<Vec<TournamentInput>> {
    let which = if args.machines.is_empty() {
        MachineSelection::Sample { number: args.sample as usize, seed: args.sample_seed }
    } else {
        MachineSelection::Named(args.machines.clone())
    };
    let found = which.of(path, UsageFile::open(path)?.sparse(args.sparse))?;
    let input = |(place, series): (usize, UsageSeries)| TournamentInput::Usage {
        name: format!("{} {}", last_part(path), series.machine),
        // As in a fleet: chance is another one for each machine.
        seed: SplitMix64::of(args.sample_seed, place as u64).bits(),
        series: Box::new(series),
        options: UsageOptions::default(),
    };
    Ok(found.into_iter().map(input).collect())
}

fn contestants(args: &TournamentArgs) -> Result<Vec<PolicyCandidate>> {
    let tried = |kind| {
        if args.sweep { sweep(kind, args.machine.slice()) } else { PolicyCandidate::defaults(kind) }
    };
    if args.policies.is_empty() {
        return Ok(PolicyKind::ALL.map(tried).to_vec());
    }
    let contestant = |name: &String| match name.parse::<PolicyKind>() {
        Ok(kind) => Ok(tried(kind)),
        Err(_) => Ok(PolicyCandidate::of(common::policy(name)?)),
    };
    let found = args.policies.iter().map(contestant).collect::<Result<Vec<_>>>()?;
    for (at, one) in found.iter().enumerate() {
        if found[..at].iter().any(|other| other.kind == one.kind) {
            let message = format!("{} is named twice: a policy takes part once", one.kind);
            return Err(UsageError(message).into());
        }
    }
    Ok(found)
}

pub(super) fn run(
    args: &TournamentArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let config = args.machine.config(1);
    let clock = args.seconds.clock(args.recording.iter().map(PathBuf::as_path))?;
    let clock_is_real = clock.is_real();
    let (economics, rates) = args.energy.resolve(config.slice_bytes, config.page_bytes, clock)?;
    let inputs = inputs(args)?;
    for input in &inputs {
        if let TournamentInput::Recorded { name, load } = input
            && load.config.slice_bytes != config.slice_bytes
        {
            let message = format!(
                "recording {name} has slices of {}: state --slice {} and hold generated loads in \
                 another tournament",
                load.config.slice_bytes, load.config.slice_bytes.0
            );
            return Err(UsageError(message).into());
        }
    }
    if inputs.iter().all(|input| matches!(input, TournamentInput::Recorded { .. })) {
        let stated = [("--memory", args.machine.memory.is_some())];
        common::refuse_stated(&stated, "recordings have their own")?;
    }
    let generated = inputs.iter().any(|input| matches!(input, TournamentInput::Generated { .. }));
    let stated = [("--step", args.step.is_some()), ("--for", args.duration.is_some())];
    if !generated {
        common::refuse_stated(&stated, "it is for generated loads, and there are none")?;
    }
    if !clock_is_real
        && inputs.iter().any(|input| !matches!(input, TournamentInput::Recorded { .. }))
    {
        let message = "seconds of generated loads and of utilisation are real ones, those of \
                       these recordings are not: state --loads none and no --usage, and hold \
                       these in another tournament";
        return Err(UsageError(message.to_owned()).into());
    }
    let mut all_assumptions = rates.assumptions.clone();
    if !args.usage.is_empty() {
        all_assumptions.push(common::cache_assumption(UsageOptions::default()));
    }
    let options = TournamentOptions {
        config,
        step: args.step.unwrap_or(Duration::from_secs(30)),
        duration: args.duration.unwrap_or(Duration::from_hours(24)),
        inputs,
        contestants: contestants(args)?,
        economics,
        rates,
        jobs: common::jobs(args.jobs),
    };
    let (began, all) = (Instant::now(), options.inputs.len());
    let shown = io::stderr().is_terminal() && !context.json();
    let report = interruptible(|interrupt| {
        let progress = |done: usize| {
            if shown {
                stderr::rewrite(format_args!("{done} of {all} inputs; Ctrl-C ends"));
            }
            !interrupt.requested()
        };
        Ok(hold(&options, &progress))
    });
    if shown {
        stderr::clear();
    }
    let report = report??;
    if let Some(path) = &args.svg {
        fs::write(path, svg(&report)).with_context(|| format!("writing {}", path.display()))?;
    }
    let body = TournamentDocument {
        machine: &options.config,
        step: options.step,
        duration: options.duration,
        sweep: args.sweep,
        report: &report,
        elapsed_us: began.elapsed().as_micros() as u64,
        assumptions: &all_assumptions,
    };
    if context.json() {
        write_json(out, "sim", body)?;
    } else {
        show(&body, context, out)?;
    }
    Ok(ExitStatus::Ok)
}

fn show(
    body: &TournamentDocument<'_>,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("load", Left),
        ("seed", Right),
        ("policy", Left),
        ("net", Right),
        ("share", Right),
        ("of bound", Right),
        ("demand wakes", Right),
        ("p99.9 wait", Right),
        ("moved", Right),
        ("dropped", Right),
        ("settings", Left),
    ]);
    for score in &body.report.scores {
        table.row(cells(score));
    }
    table.write(out, &context.screen)?;
    writeln!(out)?;
    let mut table = TextTable::new(&[
        ("policy", Left),
        ("inputs", Right),
        ("net", Right),
        ("median share", Right),
        ("losses", Right),
        ("worst loss", Right),
        ("governor better", Right),
    ]);
    for standing in &body.report.standings {
        table.row(vec![
            standing.policy.clone(),
            standing.inputs.to_string(),
            common::joules(standing.books.net),
            share_text(standing.median_share),
            standing.losses.to_string(),
            format!("{:.1} J", standing.worst_loss_joules.0),
            standing
                .governor_better
                .map_or_else(|| "-".to_owned(), |n| format!("{n} of {}", standing.inputs)),
        ]);
    }
    table.write(out, &context.screen)?;
    for sentence in &body.report.explanations {
        writeln!(out, "* {sentence}")?;
    }
    for sentence in body.report.notes.sentences().iter().chain(body.assumptions) {
        writeln!(out, "- {sentence}")?;
    }
    Ok(())
}

/// A share; one that needs a word has a mark.
fn share_text(share: Option<f64>) -> String {
    format!("{}{}", common::share(share), if is_above(share) { " *" } else { "" })
}

fn cells(score: &PolicyScore) -> Vec<String> {
    vec![
        score.input.clone(),
        score.seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string()),
        score.policy.clone(),
        common::joules(score.books.net),
        share_text(score.share_of_clairvoyant),
        common::share(score.share_of_bound),
        score.demand_wakes.to_string(),
        format!("{:.0} ns", score.wake_wait_p999_ns),
        score.migrated_pages.to_string(),
        score.dropped_pages.to_string(),
        score.settings.clone(),
    ]
}
