//! `ramslice-lab record`: slices, events and statistics over time, as Parquet files.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use ramslice_backend::VmstatCounters;
use ramslice_record::{
    CheckFindings, EventsSource, KernelPaths, MOST_PART_AGE, Recorder, RecorderOptions, Recording,
    RecordingEnd, RecordingSummary, ReuseOptions,
};
use ramslice_types::{Backend, parse_duration};
use serde::Serialize;

use crate::subprocess::{Subprocess, SubprocessEvent, check_program};
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{CommandNotStarted, ExitStatus, UsageError};
use ramslice_cli::stderr;

const HELP: &str = "\
Writes a directory with a directory for each table:

  snapshots  a row per slice and sample: state, reason, price, counters
  zones      a row per zone and sample
  samples    a row per sample: clocks, totals, what taking it took
  events     changes of state, wakes and their cause, prices, outcomes of attempts
  meminfo    a row per line of /proc/meminfo and sample
  vmstat     a row per line of /proc/vmstat and sample
  census     with --census: a row per slice and census, every page by what it is used for

Each holds Parquet files, part-000000.parquet and so on. A part is complete, synced and in place \
at most 30 s after its first row: a kill loses only what came later. DuckDB and pandas \
read them as they are. Column names carry the unit; file metadata says what was recorded, where \
and how.

With a COMMAND the recording lasts as long as it; signals go to the command, and its exit status \
is that of the recording. Without one, Ctrl-C ends it. The kernel's trace events need root; \
without them, changes of state are found by comparing snapshots. On a kernel without ramslice, \
--statistics-only still records memory's figures.

A census looks at every page: seconds of one CPU for hundreds of GiB, so it has an interval of \
its own, and is taken with the first and the last sample, too. It needs root. `ramslice-lab census \
--from DIR` shows it, a report draws it.

With --reuse, a sample of pages is looked at again and again, for the time since each was last \
used: `ramslice-lab advise` says from it how much memory the work needs. The sample is fitted to \
--reuse-cpu of a CPU. It needs root, and a kernel with CONFIG_IDLE_PAGE_TRACKING, on which \
DAMON does not watch physical memory and the multi-generational LRU is off. Advice needs a kernel \
with ramslice, too: others do not count look-ups of page cache.

`ramslice-lab status`, `slices`, `map` and `top` show a recording that --from names.

Examples:
  ramslice-lab record                             into recording-<time>, until Ctrl-C
  ramslice-lab record -o build -- make -j8        as long as the build takes
  ramslice-lab record -o night --every 10s --for 8h
  ramslice-lab record -o night --every 10s --census 5m --for 8h
  ramslice-lab record -o work --reuse 500ms --for 10m
  ramslice-lab record --check build               is it whole? what is in it?
  duckdb -c \"SELECT boottime_us, sum(free_pages) FROM 'build/snapshots/*.parquet' GROUP BY 1 \
ORDER BY 1\"";

/// Record slices, events and statistics over time.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RecordArgs {
    /// The directory to make [default: recording-<time in UTC>]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Take a sample this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    every: Duration,
    /// Also look at every page this often, and count by what it is used for [default: never]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        conflicts_with = "statistics_only"
    )]
    census: Option<Duration>,
    /// Also count the page cache that was used once, page by page, with each sample: 2 MiB to read
    /// for a GiB
    #[arg(long, conflicts_with = "statistics_only")]
    cache_use: bool,
    /// Also look at a sample of pages this often, for the time since each was last used [default:
    /// never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    reuse: Option<Duration>,
    /// The share of a CPU that --reuse may take; more is for emulated machines, whose CPUs are slow
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", requires = "reuse",
          value_parser = parse_cpu_share)]
    reuse_cpu: f64,
    /// End after this time; a COMMAND that still runs gets SIGTERM
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasting: Option<Duration>,
    /// Write a part when its first row is this old, at most 25 s: the disk needs the rest of the 30
    /// s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_part)]
    part: Duration,
    /// Continue the recording that is in DIR, if it is of this boot
    #[arg(long, requires = "output")]
    append: bool,
    /// No slices: the statistics of a kernel that may not have ramslice
    #[arg(long)]
    statistics_only: bool,
    /// Do not record: read the recording in DIR, check every row, and sum up
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "output", "every", "census", "cache_use", "reuse", "reuse_cpu", "lasting", "part",
            "append", "statistics_only", "command"
        ]
    )]
    check: Option<PathBuf>,
    /// With --check, count parts that are not whole instead of failing
    #[arg(long, requires = "check")]
    skip_broken: bool,
    /// The command to record, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl RecordArgs {
    /// An option that only this machine can be recorded with; nothing if none was given.
    fn of_this_machine(&self) -> Option<&'static str> {
        let options = [
            ("--reuse", self.reuse.is_some()),
            ("--cache-use", self.cache_use),
            ("--statistics-only", self.statistics_only),
        ];
        options.into_iter().find_map(|(option, given)| given.then_some(option))
    }
}

fn parse_part(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time > MOST_PART_AGE {
        return Err(format!(
            "`{text}` is too long: a part is to be on the disk 30 s after its first row, so \
             writing begins after {} s at most",
            MOST_PART_AGE.as_secs()
        ));
    }
    Ok(time)
}

/// `0.5%`.
fn parse_cpu_share(text: &str) -> Result<f64, String> {
    let percent =
        text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match percent {
        Some(number) if number > 0.0 && number <= 100.0 => Ok(number / 100.0),
        _ => Err(format!("`{text}` is no share: write one above 0% and at most 100%, as in 0.5%")),
    }
}

/// How long the loop may sleep: trace events are collected that often, lest their buffer overflow.
const TICK: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct RecordDocument<'a> {
    directory: &'a Path,
    events_source: &'static str,
    parts: u32,
    ended: &'a RecordingEnd,
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    directory: &'a Path,
    about: &'a ramslice_record::RecordingInfo,
    ended: Option<&'a RecordingEnd>,
    findings: &'a CheckFindings,
}

pub(crate) fn run(
    args: &RecordArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if let Some(dir) = &args.check {
        return check(dir, args.skip_broken, context, out);
    }
    if context.source_path().is_some()
        && let Some(option) = args.of_this_machine()
    {
        let message = format!(
            "{option} looks at this machine, and --from names another source: leave one of them out"
        );
        return Err(UsageError(message).into());
    }
    let backend = if args.statistics_only { None } else { Some(context.backend()?) };
    let backend = backend.as_deref();
    let dir = args.output.clone().unwrap_or_else(default_name);
    let saved = context.source_path();
    let options = RecorderOptions {
        dir: dir.clone(),
        every: args.every,
        census: args.census,
        part_age: args.part,
        append: args.append,
        command: args.command.clone(),
        source: saved
            .map_or_else(|| "running kernel".to_owned(), |path| path.display().to_string()),
        // This machine's figures beside another's slices would only mislead.
        statistics: saved.is_none(),
        cache_use: args.cache_use,
        reuse: args.reuse.map(|every| ReuseOptions { every, cpu_share: args.reuse_cpu }),
    };
    let sources = KernelPaths {
        tracefs: KernelPaths::system().tracefs.filter(|_| saved.is_none()),
        ..KernelPaths::system()
    };
    check_program(&args.command)?;
    // From now on a signal ends the recording, not the program with what it has begun.
    let subprocess = Subprocess::start(&[])?;
    let recorder = Recorder::start(options, &sources, backend)?;
    if args.reuse.is_some()
        && let Err(why) = VmstatCounters::read(&sources.root.join("proc/vmstat"))
            .and_then(|counters| counters.cache_lookups())
    {
        stderr::line(format_args!(
            "ramslice-lab: `ramslice-lab advise` will refuse this recording: {why}"
        ));
    }
    let progress = io::stderr().is_terminal() && !context.json() && args.command.is_empty();
    if let Some(why) = recorder.trace_failure().filter(|_| saved.is_none()) {
        stderr::line(format_args!(
            "ramslice-lab: states are compared, because there are no trace events: {why}"
        ));
    }

    let over = AtomicBool::new(false);
    let (summary, status) = std::thread::scope(|scope| {
        let (send, changed) = std::sync::mpsc::channel();
        if let (Some(backend), EventsSource::Poll) = (backend, recorder.events_source()) {
            let over = &over;
            scope.spawn(move || watch_changes(backend, over, &send));
        }
        let result = supervise(args, recorder, subprocess, &changed, progress);
        over.store(true, Ordering::Relaxed);
        result
    })?;

    if context.json() {
        let (events_source, parts) = (summary.events_source.name(), summary.parts);
        write_json(
            out,
            "record",
            RecordDocument { directory: &dir, events_source, parts, ended: &summary.ended },
        )?;
    } else if args.command.is_empty() {
        writeln!(out, "{}", report(&dir, &summary))?;
    } else {
        // stdout is the command's.
        stderr::line(format_args!("ramslice-lab: {}", report(&dir, &summary)));
    }
    Ok(status.map_or(ExitStatus::Ok, ExitStatus::Command))
}

/// Says when a state changed.
fn watch_changes(backend: &dyn Backend, over: &AtomicBool, changes: &std::sync::mpsc::Sender<()>) {
    while !over.load(Ordering::Relaxed) {
        match backend.wait_event(TICK) {
            Ok(Some(_)) if changes.send(()).is_err() => return,
            Ok(_) => {}
            // Samples go on and compare states, too.
            Err(_) => return,
        }
    }
}

/// Records until the command, the time or a signal ends it.
fn supervise(
    args: &RecordArgs,
    mut recorder: Recorder<'_>,
    mut subprocess: Subprocess,
    changed: &Receiver<()>,
    progress: bool,
) -> Result<(RecordingSummary, Option<u8>)> {
    let ended = watch(args, &mut recorder, &mut subprocess, changed, progress);
    if progress {
        stderr::clear();
    }
    match ended {
        Ok((reason, status)) => Ok((recorder.finish(reason, status.map(i32::from))?, status)),
        Err(error) if error.is::<CommandNotStarted>() => {
            recorder.finish("error", None)?;
            Err(error)
        }
        Err(error) => {
            // A build is worth more than its recording: it goes on, and the failure is reported at
            // its end.
            if subprocess.is_running() {
                stderr::line(format_args!(
                    "ramslice-lab: the recording broke off, the command goes on: {error:#}"
                ));
            }
            let status = subprocess.wait_for_end().unwrap_or_default();
            let written = recorder.finish("error", status.map(i32::from));
            // The thread that writes knows why; what asked it only knows that it is gone.
            Err(written.err().map_or(error, Into::into)).context("the recording broke off")
        }
    }
}

/// Says how the recording ends, and with which status of its command.
fn watch(
    args: &RecordArgs,
    recorder: &mut Recorder<'_>,
    subprocess: &mut Subprocess,
    changed: &Receiver<()>,
    progress: bool,
) -> Result<(&'static str, Option<u8>)> {
    let begun = Instant::now();
    // A sample of the state before, whatever the command does first.
    let mut patience = recorder.tick()?;
    // One that came meanwhile is for the program: the command has not begun.
    if subprocess.is_interrupted() {
        return Ok(("signal", None));
    }
    subprocess.run(&args.command)?;
    if !args.command.is_empty() {
        recorder.note(format!("command began: {}", args.command.join(" ")))?;
    }
    let (mut shown, mut reason, mut lasting) = (None, "command", args.lasting);
    loop {
        let left = lasting.map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            if !subprocess.ask_to_end()? {
                return Ok(("time", None));
            }
            // A command may take long to end: it is recorded until then.
            (reason, lasting) = ("time", None);
        }
        let time = patience.min(TICK).min(left.unwrap_or(TICK));
        match subprocess.wait(time)? {
            SubprocessEvent::Ended(status) => {
                recorder.note(format!("command ended: status {status}"))?;
                return Ok((reason, Some(status)));
            }
            SubprocessEvent::Signal => return Ok(("signal", None)),
            SubprocessEvent::Time => {}
        }
        if changed.try_iter().count() > 0 {
            recorder.changed()?;
        }
        patience = recorder.tick()?;
        if progress && shown != Some(recorder.counts()) {
            shown = Some(recorder.counts());
            let (samples, events) = recorder.counts();
            stderr::rewrite(format_args!(
                "recording: {samples} samples, {events} events; Ctrl-C ends"
            ));
        }
    }
}

fn report(dir: &Path, summary: &RecordingSummary) -> String {
    let ended = &summary.ended;
    let mut text = format!("{}: {} samples, {} events", dir.display(), ended.samples, ended.events);
    if ended.missed_samples > 0 {
        text.push_str(&format!(", {} samples missed", ended.missed_samples));
    }
    if ended.lost_events > 0 {
        text.push_str(&format!(", {} events lost", ended.lost_events));
    }
    let parts = if summary.parts == 1 { "part" } else { "parts" };
    format!("{text}; {} {parts} of each table", summary.parts)
}

fn check(
    dir: &Path,
    skip_broken: bool,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let recording =
        if skip_broken { Recording::open_skipping_broken(dir)? } else { Recording::open(dir)? };
    let findings = recording.check()?;
    let (about, ended) = (recording.info(), recording.end());
    if context.json() {
        write_json(
            out,
            "record",
            CheckDocument { directory: dir, about, ended, findings: &findings },
        )?;
        return Ok(ExitStatus::Ok);
    }
    let ending = match ended {
        Some(ended) => format!("ended by {}", ended.reason),
        None => "not ended: it goes on, or was killed".to_owned(),
    };
    let seconds = findings.span_us as f64 / 1e6;
    writeln!(out, "{}: {seconds:.1} s on Linux {}, {ending}", dir.display(), about.kernel_release)?;
    for (table, rows) in &findings.rows {
        writeln!(out, "  {table:<10} {rows:>10} rows in {} parts", findings.parts[table])?;
    }
    for (count, what) in [
        (findings.temporary_files, "files that were not finished, passed over"),
        (findings.broken_parts, "parts that are not whole, skipped"),
        (findings.missing_parts, "parts missing"),
        (findings.missing_samples, "samples missing"),
        (findings.missed_samples, "samples that came too late to be taken"),
        (findings.incomplete_samples, "samples whose slices are not all there"),
        (findings.incomplete_censuses, "censuses whose slices are not all there"),
        (findings.lost_events, "events that the kernel had no room for"),
        (findings.events_out_of_order, "events a little out of order"),
    ] {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }
    Ok(ExitStatus::Ok)
}

/// `recording-20261121T210000`.
fn default_name() -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("recording-{}", calendar(seconds)).into()
}

/// Seconds since 1970 as a date and time of day in UTC, by the usual count of days from March.
fn calendar(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(calendar(0), "19700101T000000");
        assert_eq!(calendar(951_782_400), "20000229T000000");
        assert_eq!(calendar(1_795_294_799), "20261121T205959");
    }

    #[test]
    fn shares_of_a_cpu_are_above_nothing_and_at_most_all() {
        assert_eq!(parse_cpu_share("0.5%"), Ok(ReuseOptions::USUAL_CPU_SHARE));
        for wrong in ["0%", "101%", "1"] {
            assert!(parse_cpu_share(wrong).unwrap_err().contains("at most 100%"), "{wrong}");
        }
    }

    #[test]
    fn parts_are_at_most_half_a_minute_old() {
        assert_eq!(parse_part("25s"), Ok(Duration::from_secs(25)));
        for late in ["26s", "30s"] {
            let refusal = parse_part(late).unwrap_err();
            assert!(refusal.contains("30 s") && refusal.contains("25 s at most"), "{refusal}");
        }
    }
}
