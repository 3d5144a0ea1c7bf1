//! `ramslice-lab sim tune`: watermarks for a load, and how much memory suits it.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_policy::{AnyPolicy, MachineTotals, PolicyConfig, PolicyKind, TunedWatermarks, tune};
use ramslice_record::Recording;
use ramslice_sim::load::InputNotes;
use ramslice_sim::{RunDecider, run as simulate};
use ramslice_types::{Bytes, parse_duration};
use serde::Serialize;

use super::common;
use super::load::{LoadInput, LoadOptions};
use crate::commands::advise::{suitable_memory, write_watermarks};
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};

const HELP: &str = "\
LOAD is what `ramslice-lab sim run` takes: one of diurnal, bursty, vm-churn, batch, adversarial \
and thrash; the directory of a recording made by `ramslice-lab record`; or a file in the layout \
of machine_usage.csv. Of a recording, what was seen of its machine counts; other loads run on a \
simulated one, with all slices on.

What is printed is TOML: the table [watermarks] for the settings of the policy of that name, and \
as comments what it rests on and how much memory would have sufficed for 99.9 % of the time. Of a \
recording that `ramslice-lab advise` can use, that is the memory which it advises. \
docs/how-to/choose-a-policy.md has the rules.

Examples:
  ramslice-lab sim tune recording-20261121T210000
  ramslice-lab sim tune diurnal --memory 256G --slice 4G --timeout 1m
  ramslice-lab sim tune usage.csv --machine m_1 --memory 512G --slice 4G --json | jq .suitable_mib
  printf 'schema_version = 1\\npolicy = \"watermarks\"\\n' > tuned.toml
  ramslice-lab sim tune batch >> tuned.toml
  ramslice-lab sim run batch --policy tuned.toml";

/// Find watermarks for a load, and how much memory suits it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    energy: common::EnergyOptions,
    /// Between two looks of the policy
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Serialize)]
struct TuneDocument<'a> {
    load: &'a str,
    memory_bytes: Bytes,
    slice_bytes: Bytes,
    #[serde(flatten)]
    tuned: &'a TunedWatermarks,
    /// Whether the suitable memory is by demand alone, or what `advise` says.
    suitable_by: SuitableBy,
    break_even_seconds: f64,
    notes: InputNotes,
    assumptions: &'a [String],
}

/// What the suitable memory rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SuitableBy {
    /// What was needed for 99.9 % of the time.
    Demand,
    /// The least memory that keeps the slowdown at 5 %.
    Advice,
}

/// The machine at each look, and what is to be reported.
struct ObservedLoad {
    observations: Vec<(Duration, MachineTotals)>,
    notes: Vec<String>,
}

/// Of a recording: the machine as it was.
fn observe_recording(dir: &Path) -> Result<ObservedLoad> {
    let (mut looks, mut zones) = (Vec::new(), 0);
    for machine in Recording::open(dir)?.machines() {
        let machine = machine?;
        zones = zones.max(machine.zones.iter().filter(|zone| zone.nr_slices > 0).count());
        let slices = &machine.snapshot.slices;
        let totals = MachineTotals::of(&machine.zones, slices, machine.info.slice_pages());
        looks.push((machine.snapshot.time, totals));
    }
    let mut more =
        vec!["looks of the recording itself, under whatever policy it was made".to_owned()];
    if zones > 1 {
        more.push(format!("{zones} zones taken together: the daemon keeps that much in each"));
    }
    Ok(ObservedLoad { observations: looks, notes: more })
}

/// Of anything else: a simulated machine whose slices stay on.
fn observe_simulation(input: LoadInput, policy: AnyPolicy) -> ObservedLoad {
    let (mut machine, mut looks) = (input.machine, Vec::new());
    simulate(&mut machine, input.steps, &mut RunDecider::Policy(policy), |machine| {
        looks.push((machine.time(), machine.totals()));
    });
    ObservedLoad {
        observations: looks,
        notes: vec!["a simulated machine whose slices stay on".to_owned()],
    }
}

pub(super) fn run(
    args: &TuneArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if args.timeout < Duration::from_millis(1) {
        let message =
            format!("--timeout {:?} is too short: a millisecond is the least", args.timeout);
        return Err(UsageError(message).into());
    }
    let clock = args.load.clock()?;
    let input = args.load.input()?;
    let (memory, notes) = (input.config.memory(), input.notes);
    let (slice, page) = (input.config.slice_bytes, input.config.page_bytes);
    let (economics, rates) = args.energy.resolve(slice, page, clock)?;
    let seen = match args.load.recording() {
        Some(dir) => observe_recording(dir)?,
        None => observe_simulation(
            input,
            AnyPolicy::new(&PolicyConfig::new(PolicyKind::Never), &economics, slice, page)?,
        ),
    };
    let looks = &seen.observations;
    let mut tuned = tune(looks, args.timeout, &economics, slice, page).with_context(|| {
        format!(
            "{}: the machine was seen {} times: watermarks follow from how demand grows, and need \
             two looks at least",
            args.load.source,
            looks.len()
        )
    })?;
    let (mut assumptions, mut suitable_by) = (seen.notes, SuitableBy::Demand);
    if let Some(dir) = args.load.recording() {
        match suitable_memory(dir) {
            Ok(memory) => {
                (tuned, suitable_by) = (tuned.with_memory(mib(memory)), SuitableBy::Advice);
            }
            Err(why) => assumptions.push(format!("suitable memory by demand: {why:#}")),
        }
    }
    if tuned.suitable_mib > mib(memory) {
        assumptions.push(format!(
            "more than the {memory} of this machine would suit: little would go off"
        ));
    }
    // Of joules only the break-even time is reported.
    assumptions.extend(rates.assumptions.into_iter().take(1));
    let body = TuneDocument {
        load: &args.load.source,
        memory_bytes: memory,
        slice_bytes: slice,
        tuned: &tuned,
        suitable_by,
        break_even_seconds: economics.break_even_of_emptying().0,
        notes,
        assumptions: &assumptions,
    };
    if context.json() {
        write_json(out, "sim", body)?;
    } else {
        show(&body, out)?;
    }
    Ok(ExitStatus::Ok)
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / Bytes::MIB.0 as f64
}

fn size(mib: f64) -> Bytes {
    Bytes((mib * Bytes::MIB.0 as f64) as u64)
}

/// As TOML, so that the whole of it can be pasted.
fn show(body: &TuneDocument<'_>, out: &mut dyn Write) -> Result<()> {
    let (tuned, marks) = (body.tuned, &body.tuned.watermarks);
    let timeout = marks.timeout_seconds.unwrap_or_default();
    let long = match tuned.seconds {
        seconds if seconds < 7200.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.1} h", seconds / 3600.0),
    };
    // Growth within longer than was seen is that within what was seen.
    let within = |seconds: f64, name: &str| {
        if seconds > tuned.seconds {
            format!("the {long} seen ({name} is {seconds:.0} s)")
        } else {
            format!("{seconds:.0} s, {name},")
        }
    };
    writeln!(
        out,
        "# {}: {} looks in {long} at {} in slices of {}",
        body.load, tuned.samples, body.memory_bytes, body.slice_bytes
    )?;
    let suitable = match body.suitable_by {
        SuitableBy::Demand => "enough for 99.9 % of the time",
        SuitableBy::Advice => "with which the work takes at most 5 % longer",
    };
    writeln!(out, "# suitable memory, {suitable}: {}", size(tuned.suitable_mib))?;
    writeln!(
        out,
        "# in 99 of 100 cases demand grew within {} by {} at most, in 90 within {} by {}",
        within(timeout, "the time-out"),
        size(tuned.growth_timeout_mib),
        within(body.break_even_seconds, "the break-even time"),
        size(tuned.growth_break_even_mib)
    )?;
    writeln!(out, "# cache that was there 95 % of the time: {}", size(tuned.steady_cache_mib))?;
    for sentence in body.notes.sentences().iter().chain(body.assumptions) {
        writeln!(out, "# {sentence}")?;
    }
    write_watermarks(marks, out)?;
    Ok(())
}
