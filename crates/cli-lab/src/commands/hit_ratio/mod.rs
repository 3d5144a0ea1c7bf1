//! `ramslice-lab hit-ratio`: the look-up hit ratio of the page cache by trace events, for kernels
//! that do not count look-ups, and as a check of those that do.

mod lookup_trace;

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ramslice_backend::VmstatCounters;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_record::{KernelPaths, TraceError, TraceInstance};
use ramslice_types::{BackendError, BackendErrorKind, CacheLookups, CacheRatios, parse_duration};
use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};
use rustix::param::page_size;
use serde::Serialize;

use crate::subprocess::{Subprocess, SubprocessEvent};
use lookup_trace::{EVENTS, TraceLookups};

const HELP: &str = "\
Counts the pages of files that reads and faults look up in the page cache, and those of them that \
are not there, for as long as a COMMAND runs, for a time, or until Ctrl-C. The whole machine \
counts. It needs root, and trace events that Linux 6.12 has and 6.1 does not.

Where the kernel counts look-ups itself (ramslice), its figures stand beside, also the disk-free \
ratio, which the events do not show. The two differ by what the events cannot tell: reads with \
RWF_NOWAIT count, and a read that asks for more than its file has counts up to where it would end.

Each event costs about a microsecond, and a trace that loses some gives no ratio.

Examples:
  sudo ramslice-lab hit-ratio --for 1m
  sudo ramslice-lab hit-ratio -- grep -r pattern /usr/include
  sudo ramslice-lab hit-ratio --json --for 10s | jq .traced.lookup_hit_ratio";

/// Instances are `ramslice-hit-ratio-PID`.
const INSTANCE: &str = "ramslice-hit-ratio-";
/// For each CPU: some hundred thousand events between two looks.
const BUFFER_KIB: u32 = 16 << 10;
/// How often events are collected.
const TICK: Duration = Duration::from_millis(100);
/// File systems in memory, by the name that mounts have.
const MEMORY_FILE_SYSTEMS: [&str; 3] = ["tmpfs", "devtmpfs", "ramfs"];

/// Count hits of the page cache by trace events, on Linux 6.12 and later.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct HitRatioArgs {
    /// End after this time; a COMMAND that still runs gets SIGTERM
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasting: Option<Duration>,
    /// The command to run meanwhile, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Figures of one source.
#[derive(Debug, Serialize)]
struct LookupFigures {
    #[serde(flatten)]
    lookups: CacheLookups,
    /// Null of too few look-ups.
    lookup_hit_ratio: Option<f64>,
    /// Why there is no ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct HitRatioDocument {
    seconds: f64,
    traced: LookupFigures,
    /// Null on a kernel that does not count.
    counted: Option<LookupFigures>,
    disk_free_ratio: Option<f64>,
}

pub(crate) fn run(
    args: &HitRatioArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() {
        let message = "--from cannot be used with hit-ratio: it counts on this machine; of a \
                       recording, `ramslice-lab report` draws hit ratios";
        return Err(UsageError(message.to_owned()).into());
    }
    // Signals end the wait, not the program, before there is something to clean up.
    let mut signals = Subprocess::start(&[])?;
    let events = EVENTS.map(|event| format!("filemap/{event}"));
    let tracefs = KernelPaths::system().tracefs;
    let mut trace = TraceInstance::start(tracefs.as_deref(), INSTANCE, BUFFER_KIB, &events)
        .map_err(with_release)?;
    let mut traced = TraceLookups::new(memory_devices(), page_size() as u64);
    let (begun, before) = (Instant::now(), kernel_lookups());
    let mut subprocess = Subprocess::start(&args.command)?;
    let (mut lasting, mut more) = (args.lasting, false);
    let status = loop {
        let left = lasting.map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            if !subprocess.ask_to_end()? {
                break None;
            }
            // A command may take long to end: its events are collected until then.
            lasting = None;
        }
        // A busy machine may have events faster than they are read.
        let time = if more { Duration::ZERO } else { TICK.min(left.unwrap_or(TICK)) };
        let event = subprocess.wait(time)?;
        more = trace.lines_for(TICK, |line| traced.take(line));
        match event {
            SubprocessEvent::Ended(status) => break Some(status),
            SubprocessEvent::Signal => break None,
            SubprocessEvent::Time => {}
        }
        // One that came before the command began.
        if signals.wait(Duration::ZERO)? == SubprocessEvent::Signal && args.command.is_empty() {
            break None;
        }
    };
    trace.stop().context("ending the trace")?;
    let after = kernel_lookups();
    trace.lines(|line| traced.take(line));
    drop(trace);
    let seconds = begun.elapsed().as_secs_f64();
    let (lookups, lost) = traced.finish();
    if lost > 0 {
        bail!(
            "the kernel had no room for {lost} trace events, so the hit ratio is unknown: trace \
             for a shorter time, or fewer reads"
        );
    }
    let counted = after.zip(before).and_then(|(after, before)| after.since(&before));
    report(seconds, lookups, counted, context, out)?;
    Ok(status.map_or(ExitStatus::Ok, ExitStatus::Command))
}

fn report(
    seconds: f64,
    traced: CacheLookups,
    counted: Option<CacheLookups>,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    let ratios = counted.and_then(|counted| counted.ratios().ok());
    if context.json() {
        let document = HitRatioDocument {
            seconds,
            traced: figures(traced),
            counted: counted.map(figures),
            disk_free_ratio: ratios.map(|ratios| ratios.disk_free.0),
        };
        return write_json(out, "hit-ratio", document);
    }
    writeln!(out, "{seconds:.1} s")?;
    line(out, "by trace events", &traced, |ratios| format!("{:.4}", ratios.lookup_hit.0))?;
    match &counted {
        Some(counted) => line(out, "by the kernel's counters", counted, |ratios| {
            format!("{:.4}, disk-free ratio {:.4}", ratios.lookup_hit.0, ratios.disk_free.0)
        })?,
        None => writeln!(out, "by the kernel's counters: it has none")?,
    }
    Ok(())
}

fn line(
    out: &mut dyn Write,
    source: &str,
    lookups: &CacheLookups,
    words: impl Fn(&CacheRatios) -> String,
) -> Result<()> {
    let ratio = match lookups.ratios() {
        Ok(ratios) => format!("look-up hit ratio {}", words(&ratios)),
        Err(unknown) => format!("hit ratio unknown: {unknown}"),
    };
    let CacheLookups { read, fault, absent_read, absent_fault, .. } = *lookups;
    writeln!(
        out,
        "{source}: {ratio}\n  {read} pages looked up by reads, {absent_read} of them absent; \
         {fault} by faults, {absent_fault} of them absent"
    )?;
    Ok(())
}

fn figures(lookups: CacheLookups) -> LookupFigures {
    let ratios = lookups.ratios();
    LookupFigures {
        lookups,
        lookup_hit_ratio: ratios.as_ref().ok().map(|ratios| ratios.lookup_hit.0),
        why: ratios.err().map(|unknown| unknown.to_string()),
    }
}

/// What the kernel has counted since boot; nothing of one that does not.
fn kernel_lookups() -> Option<CacheLookups> {
    VmstatCounters::read(Path::new("/proc/vmstat")).ok()?.cache_lookups().ok()
}

/// A kernel without an event is unsupported, and named.
fn with_release(error: TraceError) -> anyhow::Error {
    let TraceError::NoEvent { event } = error else { return error.into() };
    let release = rustix::system::uname();
    let message = format!(
        "this kernel ({}) has no trace event {event}: Linux 6.12 has it",
        release.release().to_string_lossy()
    );
    BackendError::new(BackendErrorKind::Unsupported, message).into()
}

/// Devices whose files are memory, mounted or not: faults of shared memory are traced, too.
fn memory_devices() -> Vec<(u32, u32)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let kind = kind.split(' ').next()?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        MEMORY_FILE_SYSTEMS.contains(&kind).then_some(number)
    });
    mounted.chain(anonymous_device().ok()).collect()
}

/// The device of shared memory without a name, which is mounted nowhere.
fn anonymous_device() -> io::Result<(u32, u32)> {
    let file = memfd_create("ramslice", MemfdFlags::CLOEXEC)?;
    let device = fstat(file.as_fd())?.st_dev;
    Ok((major(device), minor(device)))
}
