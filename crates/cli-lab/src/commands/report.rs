//! `ramslice-lab report`: figures of runs as one page, as CSV and as pictures.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::builder::NonEmptyStringValueParser;
use ramslice_record::Recording;
use ramslice_report::read::{RunError, RunReader, names};
use ramslice_report::{PageHeader, PngRenderer, RecordingData, ReportFigure, figures, page};
use serde::Serialize;

use crate::output_file::OutputFile;
use crate::recordings::{clock_of, unreplayable_error};

use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_cli::ledger_options::{
    FactorRange, LedgerOptions, PercentRange, TimeFactorOptions, UnitSize,
};

const HELP: &str = "\
Makes one HTML page that needs nothing else: no network, no other files, no fonts. It is light or \
dark as the reader's system is, and fits a telephone. Every figure has its data with it, as CSV.

A RUN is
  a directory made by `ramslice-lab record`: memory over time, each slice, and joules with --profile
  a file of `ramslice-lab calibrate -o FILE`: prices and what slices really cost
  a file of `ramslice energy --json`, or a case study's summary or sweep: joules by setting
  a study of memory sizes, made by `ramlab size`: one program with less and less memory
  results/bench-cold.json, made by `ramlab bench cold`: how long slices with cold values would rest
  a file NAME.csv with boottime_us,latency_us: when requests were sent and how long they took
and NAME=RUN gives it a name. A figure whose data no run has says what it lacks and how to get it.

Examples:
  ramslice-lab report build -o build.html
  ramslice-lab report nothing=r1 '4M=r2' unlimited=r3 --profile thesis-parc -o b.html
  ramslice-lab report samples.json -o prices.html --png figures --csv figures";

/// Draw what runs did: one page, CSV, pictures.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ReportArgs {
    /// Recordings and files of results, each with a name before it if wanted
    #[arg(required = true, value_name = "[NAME=]RUN")]
    runs: Vec<String>,
    /// The page
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
    /// Also write each figure's data there
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Also draw each figure there
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    /// The heading [default: from the runs]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The memory system by which recordings' joules are counted: a name from `ramslice-lab
    /// profiles`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Its power state, as for `ramslice energy`
    #[arg(long, value_name = "NAME", requires = "profile")]
    state: Option<String>,
    /// The profile with the machine that costs are counted for, as for `ramslice energy`
    #[arg(long, value_name = "NAME|FILE", requires = "profile")]
    machine: Option<String>,
    /// How many times slower than the profile's machine the recorded ones were, if emulated
    #[arg(long, value_name = "FACTOR", requires = "profile")]
    time_factor: Option<FactorRange>,
    /// What that factor is from, shown beside it
    #[arg(
        long,
        value_name = "TEXT",
        requires = "time_factor",
        value_parser = NonEmptyStringValueParser::new()
    )]
    time_factor_source: Option<String>,
    /// Assume that the hardware switches units of this size
    #[arg(long, value_name = "SIZE|slice", requires = "profile")]
    granularity: Option<UnitSize>,
    /// By how much the work took longer than without packing, as for `ramslice energy`
    #[arg(long, value_name = "PERCENT", requires = "profile", allow_hyphen_values = true)]
    runtime_change: Option<PercentRange>,
}

impl ReportArgs {
    /// What the ledger over a recording is asked for; nothing without a profile.
    fn ledger(&self) -> Option<LedgerOptions> {
        Some(LedgerOptions {
            profile: self.profile.clone()?,
            state: self.state.clone(),
            machine: self.machine.clone(),
            time_factor: TimeFactorOptions {
                time_factor: self.time_factor,
                time_factor_source: self.time_factor_source.clone(),
            },
            granularity: self.granularity,
            runtime_change: self.runtime_change,
        })
    }
}

/// The error with its exit status: what is no run is wrong usage.
fn with_status(error: RunError) -> anyhow::Error {
    match error {
        RunError::NotARun(text) => UsageError(text).into(),
        RunError::Recording(error) => unreplayable_error(error).into(),
        RunError::Plan(error) => match error.downcast::<UsageError>() {
            Ok(error) => (*error).into(),
            Err(error) => anyhow::Error::from_boxed(error),
        },
        error => error.into(),
    }
}

#[derive(Serialize)]
struct ReportDocument<'a> {
    output: &'a Path,
    size_bytes: u64,
    figures: Vec<ListedFigure<'a>>,
    emptying: Vec<EmptyingMeans<'a>>,
}

/// What emptying slices took in a recording, from its events.
#[derive(Serialize)]
struct EmptyingMeans<'a> {
    run: &'a str,
    emptied_slices: u64,
    already_empty_slices: u64,
    failed_slices: u64,
    migrated_pages: u64,
    dropped_pages: u64,
    /// Means over the slices that were emptied; null if there was none.
    migrated_ratio: Option<f64>,
    used_ratio: Option<f64>,
}

fn emptying_means(run: &RecordingData) -> EmptyingMeans<'_> {
    let sums = run.emptying();
    let mean = |share: f64| (sums.emptied > 0).then_some(share);
    EmptyingMeans {
        run: &run.name,
        emptied_slices: sums.emptied,
        already_empty_slices: sums.empty,
        failed_slices: sums.failed,
        migrated_pages: sums.migrated.0,
        dropped_pages: sums.dropped.0,
        migrated_ratio: mean(sums.migrated_share),
        used_ratio: mean(sums.used_share),
    }
}

#[derive(Serialize)]
struct ListedFigure<'a> {
    id: &'a str,
    title: &'a str,
    drawn: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    how_to_get_it: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    csv: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    png: Option<PathBuf>,
}

pub(crate) fn run(
    args: &ReportArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() {
        let message = "name the runs to report on after `report`, not with --from";
        return Err(UsageError(message.to_owned()).into());
    }
    let ledger = args.ledger();
    let plan = ledger.as_ref().map(|options| {
        move |recording: &Recording| {
            let clock = clock_of(&options.time_factor, recording.info());
            clock
                .and_then(|clock| options.plan(clock))
                .map_err(anyhow::Error::reallocate_into_boxed_dyn_error_without_backtrace)
        }
    });
    let mut reader = RunReader::new(plan.as_ref().map(|plan| plan as _));
    let read = names(&args.runs).map_err(with_status)?;
    let writer = ReportWriter::new(read.iter().map(|(_, path)| path.as_path()));
    // Before the work, not after it.
    writer.refuse_run(&args.output)?;
    for (name, path) in &read {
        reader.read(name, path).map_err(with_status)?;
    }
    let (runs, about) = reader.finish();
    let title = args.title.clone().unwrap_or_else(|| {
        let names: Vec<&str> = about.iter().map(|(name, _)| name.as_str()).collect();
        format!("ramslice-lab: {}", names.join(", "))
    });
    let made_by = format!("ramslice {}", env!("CARGO_PKG_VERSION"));
    let figures = figures(&runs);
    let head = PageHeader { title, made_by, runs: about };
    writer.write(&args.output, |out| page(&head, &figures, out))?;
    let listed = figures.iter().zip(files(args, &figures, &writer)?).map(|(figure, (csv, png))| {
        ListedFigure {
            id: &figure.id,
            title: &figure.title,
            drawn: figure.lacks().is_none(),
            missing: figure.lacks().map(|(what, _)| what),
            how_to_get_it: figure.lacks().map(|(_, how)| how),
            csv,
            png,
        }
    });
    let listed: Vec<_> = listed.collect();
    if context.json() {
        let emptying = runs.recorded.iter().map(|run| emptying_means(run)).collect();
        let output = args.output.as_path();
        let size_bytes = fs::metadata(output)?.len();
        write_json(
            out,
            "report",
            ReportDocument { output, size_bytes, figures: listed, emptying },
        )?;
        return Ok(ExitStatus::Ok);
    }
    let drawn = listed.iter().filter(|figure| figure.drawn).count();
    writeln!(out, "{}: {drawn} of {} figures", args.output.display(), listed.len())?;
    for figure in listed {
        if let Some(what) = figure.missing {
            writeln!(out, "  not drawn: {}: {what}", figure.title)?;
        }
    }
    Ok(ExitStatus::Ok)
}

/// Writes files, but over none of the runs.
struct ReportWriter {
    runs: Vec<PathBuf>,
}

impl ReportWriter {
    fn new<'a>(runs: impl Iterator<Item = &'a Path>) -> Self {
        // What is not there is no run, and an error of its own.
        Self { runs: runs.filter_map(|path| path.canonicalize().ok()).collect() }
    }

    fn refuse_run(&self, path: &Path) -> Result<(), UsageError> {
        if path.canonicalize().is_ok_and(|path| self.runs.contains(&path)) {
            let path = path.display();
            return Err(UsageError(format!("{path} is one of the runs: choose another name")));
        }
        Ok(())
    }

    /// A file with what `write` writes, or what was there.
    fn write(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        self.refuse_run(path)?;
        let written = OutputFile::create(path).and_then(|mut file| {
            let mut out = BufWriter::new(&mut file);
            write(&mut out)?;
            out.flush()?;
            drop(out);
            file.finish()
        });
        written.with_context(|| format!("writing {}", path.display()))
    }
}

/// Writes the figures' other files; where they are.
fn files(
    args: &ReportArgs,
    figures: &[ReportFigure],
    writer: &ReportWriter,
) -> Result<Vec<(Option<PathBuf>, Option<PathBuf>)>> {
    for dir in [&args.csv, &args.png].into_iter().flatten() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let renderer = args.png.as_ref().map(|_| PngRenderer::default());
    let mut found = Vec::new();
    for figure in figures {
        let csv = match (&args.csv, figure.data()) {
            (Some(dir), Some(data)) => {
                let path = dir.join(format!("{}.csv", figure.id));
                writer.write(&path, |out| data.write(out))?;
                Some(path)
            }
            _ => None,
        };
        let picture = renderer.as_ref().map(|renderer| renderer.png(figure)).transpose()?.flatten();
        let png = match (&args.png, picture) {
            (Some(dir), Some(bytes)) => {
                let path = dir.join(format!("{}.png", figure.id));
                writer.write(&path, |out| out.write_all(&bytes))?;
                Some(path)
            }
            _ => None,
        };
        found.push((csv, png));
    }
    Ok(found)
}
