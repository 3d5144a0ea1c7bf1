//! `ramslice-lab fragment`: fill memory with a known mix of free, anonymous and file pages, and
//! hold it.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use ramslice_backend::sys::ending_signals;
use ramslice_fragment::{
    FillAmount, FillPlan, FillRecipe, FillStep, FragmentError, FragmentedMemory, PageAccount,
    PageMix, PageProbability,
};
use ramslice_types::{Bytes, parse_duration};
use serde::Serialize;

use crate::output_file::OutputFile;
use crate::subprocess::{Subprocess, SubprocessEvent};
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_cli::progress::ProgressLine;
use ramslice_cli::stderr;

const HELP: &str = "\
Walks three areas of one size side by side. At each page, and for each area by itself, a random \
number decides whether the page is touched: of a file, of an area that is freed in the end, of an \
area that stays. So pages of the three kinds lie mixed in physical memory. Then the one area is \
freed, the file's pages stay as clean cache that no process maps, and the anonymous pages stay \
mapped. This is the program of Listing 4.1 of the Hannover thesis (2024), for any kernel.

A probability is a number from 0 to 1, or a range as in 0..1 or 0.9..0.1, which changes evenly \
from the first page to the last: a gradient over memory. The three are independent, so their sum \
may be above 1.

The state is held until Ctrl-C, or while a COMMAND runs; then the exit status is that of the \
command. What was made is reported first, as the kernel sees it (pagemap, smaps, mincore), not as \
it was tried.

Recipes; options change any part of them:
  aged    a machine after long use: --memory 90% --free 0.2..0.8 --anon 0.5..0.1 --file 0.3..0.1
  thirds  as many free, anonymous and file pages: --free 1 --anon 1 --file 1
  halves  free and anonymous pages in turn: --free 1 --anon 1

Examples:
  ramslice-lab fragment --recipe aged                       until Ctrl-C
  ramslice-lab fragment --memory 2G --free 0.5 --anon 0.3 --file 0.2
  ramslice-lab fragment --memory 1G --free 1..0 --anon 0..1 slices from empty to full
  ramslice-lab fragment --recipe aged --account made.json -- ramslice compact --budget 2M";

/// Fill memory with a known mix of pages, and hold it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct FragmentArgs {
    /// Begin with a published mix
    #[arg(long, value_name = "NAME")]
    recipe: Option<RecipeName>,
    /// Touch this much memory in all: a size, or a share of what is available as in 50%
    #[arg(long, value_name = "AMOUNT", required_unless_present = "recipe")]
    memory: Option<FillAmount>,
    /// How likely a page is touched and freed in the end
    #[arg(long, value_name = "P")]
    free: Option<PageProbability>,
    /// How likely an anonymous page is touched and kept
    #[arg(long, value_name = "P")]
    anon: Option<PageProbability>,
    /// How likely a page of a file is read into the cache
    #[arg(long, value_name = "P")]
    file: Option<PageProbability>,
    /// Have each anonymous page mapped by this many processes
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    map_count: u32,
    /// Decides which pages; the same number, the same pages
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Allocate anonymous and freed pages in huge pages
    #[arg(long)]
    huge: bool,
    /// A directory on a disk, for the file without a name
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Write the account there as well, as JSON
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Hold it for this time only
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasting: Option<Duration>,
    /// The command to run meanwhile, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The recipes' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RecipeName {
    /// A whole machine after long use
    Aged,
    /// As many free, anonymous and file pages
    Thirds,
    /// Free and anonymous pages in turn
    Halves,
}

impl From<RecipeName> for FillRecipe {
    fn from(name: RecipeName) -> Self {
        match name {
            RecipeName::Aged => Self::Aged,
            RecipeName::Thirds => Self::Thirds,
            RecipeName::Halves => Self::Halves,
        }
    }
}

/// What was asked for and what came of it.
#[derive(Serialize)]
struct FragmentDocument<'a> {
    recipe: Option<&'static str>,
    memory: String,
    mix: &'a PageMix,
    seed: u64,
    map_count: u32,
    huge: bool,
    made: &'a PageAccount,
    elapsed_us: u64,
}

pub(crate) fn run(
    args: &FragmentArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() {
        return Err(UsageError(
            "fragment fills this machine's memory: it cannot work with --from".to_owned(),
        )
        .into());
    }
    let plan = plan(args)?;
    // Opened first: hours of work should not end at a name that cannot be written. What is there
    // stays if they are interrupted.
    let account_file = match &args.account {
        Some(path) => {
            Some(OutputFile::create(path).with_context(|| format!("creating {}", path.display()))?)
        }
        None => None,
    };
    // A flag and no thread so far: processes are forked while memory is filled.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handling signals")?;
    }
    let begun = Instant::now();
    let progress = ProgressLine::new(context.json(), Duration::from_millis(500));
    let state = FragmentedMemory::make(&plan, |step| {
        progress.show(|elapsed| progress_text(step, elapsed));
        !stop.load(Ordering::Relaxed)
    });
    progress.clear();
    let state = match state {
        Err(error @ (FragmentError::Nothing | FragmentError::TooLittle { .. })) => {
            return Err(UsageError(error.to_string()).into());
        }
        other => other?,
    };
    let made = state.account()?;
    let recipe = args.recipe.map(|name| FillRecipe::from(name).name());
    let elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let body = FragmentDocument {
        recipe,
        memory: plan.amount.to_string(),
        mix: &plan.mix,
        seed: plan.seed,
        map_count: plan.map_count,
        huge: plan.huge,
        made: &made,
        elapsed_us,
    };
    if let (Some(mut file), Some(path)) = (account_file, &args.account) {
        write_json(&mut file, "fragment", &body)
            .and_then(|()| Ok(file.finish()?))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if context.json() {
        write_json(out, "fragment", &body)?;
    } else {
        for line in report(&plan, &made) {
            writeln!(out, "{line}")?;
        }
    }
    // A reader that waits for the state, or for the command's output, gets the account first.
    out.flush()?;
    let exit = hold(args, &stop, io::stderr().is_terminal() && !context.json())?;
    drop(state);
    Ok(exit)
}

fn plan(args: &FragmentArgs) -> Result<FillPlan> {
    let recipe = args.recipe.map(FillRecipe::from);
    let mut mix = recipe.map(FillRecipe::mix).unwrap_or_default();
    for (asked, kind) in
        [(args.free, &mut mix.free), (args.anon, &mut mix.anon), (args.file, &mut mix.file)]
    {
        if let Some(probability) = asked {
            *kind = probability;
        }
    }
    let amount = args.memory.or_else(|| recipe.and_then(FillRecipe::amount));
    let amount = amount.ok_or_else(|| {
        let name = recipe.map_or("this", FillRecipe::name);
        UsageError(format!(
            "the recipe {name} does not say how much: give --memory, as in --memory 1G or 50%"
        ))
    })?;
    let (seed, map_count, huge, dir) = (args.seed, args.map_count, args.huge, args.dir.clone());
    Ok(FillPlan { mix, amount, seed, map_count, huge, dir })
}

/// Until the command ends, the time has passed, or a signal comes.
fn hold(args: &FragmentArgs, stop: &AtomicBool, terminal: bool) -> Result<ExitStatus> {
    // Until now a signal was caught by the flag alone. The state is there: what was asked for is
    // done, unless a command was to see it.
    if stop.load(Ordering::Relaxed) {
        return Ok(if args.command.is_empty() { ExitStatus::Ok } else { ExitStatus::Refused });
    }
    let mut subprocess = Subprocess::start(&args.command)?;
    if terminal && args.command.is_empty() {
        stderr::line("holding it; Ctrl-C ends");
    }
    let begun = Instant::now();
    // The same in the moment before the companion catches signals.
    if stop.load(Ordering::Relaxed) {
        return Ok(subprocess.end()?.map_or(ExitStatus::Ok, ExitStatus::Command));
    }
    loop {
        let left = args.lasting.map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(subprocess.end()?.map_or(ExitStatus::Ok, ExitStatus::Command));
        }
        match subprocess.wait(left.unwrap_or(Duration::from_hours(1)))? {
            SubprocessEvent::Ended(status) => return Ok(ExitStatus::Command(status)),
            SubprocessEvent::Signal => return Ok(ExitStatus::Ok),
            SubprocessEvent::Time => {}
        }
    }
}

fn progress_text(step: &FillStep, elapsed: Duration) -> String {
    let percent = 100 * step.done / step.total;
    let left = elapsed.mul_f64((step.total - step.done) as f64 / step.done as f64);
    format!("filling memory: {percent} %, about {:.0} s left", left.as_secs_f64())
}

fn report(plan: &FillPlan, made: &PageAccount) -> Vec<String> {
    let size = |pages: u64| Bytes(pages.saturating_mul(made.page_bytes)).to_string();
    let PageMix { free, anon, file } = plan.mix;
    let mut lines = vec![
        format!("free {free}, anon {anon}, file {file}, seed {}, {} steps", plan.seed, made.steps),
        format!("freed: {} pages ({})", made.freed_pages, size(made.freed_pages)),
    ];
    let mut line = format!(
        "anonymous: {} pages ({}) present of {} touched",
        made.anon_present_pages,
        size(made.anon_present_pages),
        made.touched.anon_pages
    );
    if let Some(mappings) = made.mappings_per_anon_page {
        line.push_str(&format!(", mapped {mappings:.2} times"));
    }
    if made.anon_swapped_pages > 0 {
        line.push_str(&format!(", {} pages in swap", made.anon_swapped_pages));
    }
    if plan.huge {
        line.push_str(&format!(", {} in huge pages", size(made.anon_huge_pages)));
    }
    lines.push(line);
    lines.push(format!(
        "file: {} pages ({}) in the cache of {} read, not mapped",
        made.file_present_pages,
        size(made.file_present_pages),
        made.touched.file_pages
    ));
    lines.push(format!(
        "page tables: {} in each of {} processes",
        Bytes(made.page_table_bytes),
        made.processes
    ));
    lines
}
