//! `ramslice-lab sim run`: one load on one machine with one policy.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use ramslice_policy::AnyPolicy;
use ramslice_sim::load::InputNotes;
use ramslice_sim::{EnergyAccount, RunDecider, SimBackend, SimConfig, SimRun, run as simulate};
use ramslice_types::Backend;
use serde::Serialize;

use super::common;
use super::load::LoadOptions;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::ExitStatus;
use ramslice_cli::render::{ColumnAlign, TextTable};

const HELP: &str = "\
LOAD is one of diurnal, bursty, vm-churn, batch, adversarial and thrash, which are generated; the \
directory of a recording made by `ramslice-lab record`, whose machine is taken, too; or a file in \
the layout of machine_usage.csv, of which --machine names the machine.

Examples:
  ramslice-lab sim run diurnal
  ramslice-lab sim run bursty --policy watermarks --seed 7 --json | jq .net_joules
  ramslice-lab sim run batch --slice 64M --granularity slice --memory 8G --step 1s --for 1h
  ramslice-lab sim run recording-20261121T210000 --policy periodic
  ramslice-lab sim run recorded-in-qemu --time-factor 12..18 --granularity slice
  ramslice-lab sim run usage.csv --machine m_1 --memory 512G --slice 4G
  ramslice-lab sim run diurnal --memory 6T --slice 1G --step 30s --coarse
  ramslice-lab sim run vm-churn --save end.json && ramslice map --from end.json";

/// Run one load on one machine with one policy.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct SimRunArgs {
    #[command(flatten)]
    load: LoadOptions,
    /// never, periodic, watermarks, threshold, repair or governor; or a file with settings
    #[arg(long, value_name = "NAME|FILE", default_value = "governor")]
    policy: String,
    #[command(flatten)]
    energy: common::EnergyOptions,
    /// Save the machine as it is at the end, for --from
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Serialize)]
struct SimRunDocument<'a> {
    load: &'a str,
    policy: &'a str,
    seed: u64,
    machine: &'a SimConfig,
    #[serde(flatten)]
    run: &'a SimRun,
    #[serde(flatten)]
    books: &'a EnergyAccount,
    wake_wait_p999_ns: f64,
    notes: InputNotes,
    assumptions: &'a [String],
}

pub(super) fn run(
    args: &SimRunArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let config = common::policy(&args.policy)?;
    let clock = args.load.clock()?;
    let input = args.load.input()?;
    let (slice, page) = (input.config.slice_bytes, input.config.page_bytes);
    let (economics, rates) = args.energy.resolve(slice, page, clock)?;
    let policy = AnyPolicy::new(&config, &economics, slice, page)?;
    let mut machine = input.machine;
    let result = simulate(&mut machine, input.steps, &mut RunDecider::Policy(policy), |_| ());
    let books = rates.books(&result, slice);
    if let Some(path) = &args.save {
        let saved = SimBackend::of(machine).machine()?;
        let text = serde_json::to_string_pretty(&saved)?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let body = SimRunDocument {
        load: &args.load.source,
        policy: config.policy.name(),
        seed: args.load.seed,
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
    Ok(ExitStatus::Ok)
}

fn show(body: &SimRunDocument<'_>, context: &CommandContext, out: &mut dyn Write) -> Result<()> {
    let (run, books) = (body.run, body.books);
    let seconds = run.duration.as_secs_f64();
    let duration = if seconds < 3600.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.1} h", seconds / 3600.0)
    };
    writeln!(
        out,
        "{} for {duration} on {} with {} slices of {}, policy {}, seed {}",
        body.load,
        body.machine.memory(),
        run.slices,
        body.machine.slice_bytes,
        body.policy,
        body.seed
    )?;
    let mut table = TextTable::new(&[("", ColumnAlign::Left), ("", ColumnAlign::Right)]);
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    row("memory in use, on average", common::share(Some(run.mean_used_share)));
    row("slices off, on average", format!("{:.1} of {}", run.mean_offline, run.slices));
    row("slices emptied, woken, woken on demand", {
        format!(
            "{}, {}, {}",
            run.work.emptied_slices, run.work.woken_slices, run.stats.demand_wakes
        )
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
