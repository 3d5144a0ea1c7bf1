//! `ramslice-lab dump`: a recording as text for other programs.

mod csv_rows;
mod metric_families;
mod openmetrics;
mod page_cache_metrics;
mod point_table;
mod slice_states;
mod time_span;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_record::{Recording, RecordingTable};

use crate::commands::recorded::census::no_census;
use crate::recordings::unreplayable_error;

use metric_families::SeriesLabel;
use time_span::{RecordingTimes, TimeLimit};

const HELP: &str = "\
csv writes the rows of one table under the names of its columns, which carry the unit. A column \
without a value is empty. realtime_us are microseconds since 1970.

openmetrics writes figures over time as `promtool tsdb create-blocks-from openmetrics` reads them: \
Prometheus then shows a recorded machine as one that it watched. Names are those of ramsliced, and \
for meminfo and vmstat those of node_exporter; memory is in bytes, times are in seconds. \
Without --table it writes all tables but events and census, which have no such form. A file \
without `# EOF` as its last line is not whole.

Times in openmetrics are the calendar time at which the recording began plus the time since then: \
they never run backwards, even if the clock was set. A limit T is on the same clock, either

  time since the recording's begin: 90 or 90s, 500ms, 5m, 2h
  or a calendar time by RFC 3339:   2026-11-21T20:59:59Z

and has to be within the recording.

Examples:
  ramslice-lab dump build > samples.csv
  ramslice-lab dump build --table events --begin 2m --end 5m
  ramslice-lab dump build -O openmetrics --label instance=build > build.txt
  promtool tsdb create-blocks-from openmetrics build.txt blocks";

/// Write a recording as CSV, or for Prometheus.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DumpArgs {
    /// The directory that `ramslice-lab record` made
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// What to write
    #[arg(short = 'O', long, value_name = "FORMAT", default_value = "csv")]
    format: DumpFormat,
    /// The table to write [default: samples for csv; all that it can for openmetrics]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(RecordingTable::ALL.map(RecordingTable::name))
            .map(|name| table_of(&name))
    )]
    table: Option<RecordingTable>,
    /// Give each series of openmetrics this label, as in instance=build; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<SeriesLabel>,
    /// Leave out what was before this time
    #[arg(long, value_name = "T")]
    begin: Option<TimeLimit>,
    /// Leave out what was after this time
    #[arg(long, value_name = "T")]
    end: Option<TimeLimit>,
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// The rows of one table
    Csv,
    /// Figures over time, for Prometheus
    Openmetrics,
}

fn table_of(name: &str) -> RecordingTable {
    let found = RecordingTable::ALL.into_iter().find(|table| table.name() == name);
    found.expect("clap lets only names of tables pass")
}

/// Runs the command.
pub(crate) fn run(
    args: &DumpArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    for (option, is_there) in
        [("--json", context.json()), ("--from", context.source_path().is_some())]
    {
        if is_there {
            let usage = "`ramslice-lab dump RECORDING -O csv|openmetrics`";
            let message = format!("{option} cannot be used with dump: write {usage}");
            return Err(UsageError(message).into());
        }
    }
    if args.format == DumpFormat::Csv && !args.labels.is_empty() {
        return Err(
            UsageError("--label is for -O openmetrics: csv has no labels".to_owned()).into()
        );
    }
    for (at, label) in args.labels.iter().enumerate() {
        if args.labels[..at].iter().any(|other| other.name() == label.name()) {
            return Err(UsageError(format!("--label {} is there twice", label.name())).into());
        }
    }
    let recording = Recording::open(&args.recording).map_err(unreplayable_error)?;
    let times = RecordingTimes::of(&recording);
    let span = times.span(&recording, args.begin.as_ref(), args.end.as_ref())?;
    match args.format {
        DumpFormat::Csv => {
            let table = args.table.unwrap_or(RecordingTable::Samples);
            if table == RecordingTable::Census && !recording.has_census() {
                return Err(no_census(&recording).into());
            }
            csv_rows::write(&recording, table, span, out)?;
        }
        DumpFormat::Openmetrics => {
            openmetrics::write(&recording, args.table, &args.labels, &times, span, out)?;
        }
    }
    Ok(ExitStatus::Ok)
}
