//! `ramslice guard`: on a stock kernel, wake slices when memory runs short.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_backend::sys::SignalInterrupt;
use ramslice_backend::{GuardAction, HotplugBackend, HotplugGuard, WokenBy};
use ramslice_types::{
    BackendError, BackendErrorKind, Bytes, Reason, RequestOutcome, parse_bytes, parse_duration,
};
use serde::Serialize;
use tracing::warn;

use crate::context::{CommandContext, write_json_line};
use crate::exit::ExitStatus;
use crate::interrupt::{TICK, interruptible};
use crate::request_report::{reason_text, slices};
use crate::stdout;

const HELP: &str = "\
The patched kernel wakes slices by itself before an allocation would wait. A stock kernel does \
not: this command does, from user space, until Ctrl-C. It wakes slices when less than the floor \
is available (MemAvailable), and when tasks wait for memory (/proc/pressure/memory).

It may be too late. A program can take memory faster than blocks come online: then it meets \
reclaim, swapping and in the end the OOM killer while memory is still off. Therefore nothing is \
switched off on a stock kernel unless a tenth of memory, at least 256 MiB, stays available.

Examples:
  ramslice guard                  until Ctrl-C
  ramslice guard --floor 1GiB     keep this much available
  ramslice guard --for 10s --json a line of JSON for each wake-up";

/// On a stock kernel: wake slices when memory runs short.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct GuardArgs {
    /// Wake slices when less than this is available [default: 7.5 % of memory, at least 192 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    floor: Option<Bytes>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
}

#[derive(Serialize)]
struct GuardDocument<'a> {
    /// `stall` or `low`.
    by: &'static str,
    available_bytes: Option<Bytes>,
    floor_bytes: Bytes,
    outcome: &'a RequestOutcome,
}

pub(crate) fn run(
    args: &GuardArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() || context.has_ramslice() {
        let message = "only a stock kernel needs a guard: one with ramslice wakes slices by itself";
        return Err(BackendError::new(BackendErrorKind::Unsupported, message).into());
    }
    let backend = HotplugBackend::open().map_err(BackendError::from)?;
    backend.check_may_switch().map_err(BackendError::from)?;
    let mut guard = HotplugGuard::new(&backend, args.floor)?;
    if !context.json() {
        let stalls = guard.stall_fault().map_or_else(String::new, |why| format!("; {why}"));
        writeln!(out, "waking slices when less than {} is available{stalls}", guard.floor())?;
        out.flush()?;
    }
    interruptible(|interrupt| run_guard(&mut guard, args.duration, interrupt, context, out))?;
    Ok(ExitStatus::Ok)
}

/// Keeps watch until the time has passed, or Ctrl-C.
fn run_guard(
    guard: &mut HotplugGuard<'_>,
    limit: Option<Duration>,
    interrupt: &SignalInterrupt,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    let began = Instant::now();
    // That nothing wakes, and that memory cannot be watched, is said once.
    let (mut reported, mut warned) = (false, false);
    while !interrupt.requested() {
        let left = limit.map_or(TICK, |limit| limit.saturating_sub(began.elapsed()).min(TICK));
        if left.is_zero() {
            break;
        }
        stdout::check_reader()?;
        let pressure = match guard.watch(left) {
            Ok(pressure) => pressure,
            Err(error) if error.kind() == BackendErrorKind::Unsupported => return Err(error.into()),
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    warn!("memory cannot be watched, trying on: {:#}", anyhow::Error::from(error));
                }
                std::thread::sleep(left);
                continue;
            }
        };
        warned = false;
        let Some(pressure) = pressure else { continue };
        let outcome = &pressure.outcome;
        let woken = outcome.slices_done > 0;
        // Slices of a silent driver, of which one is tried again now and then.
        let rests = outcome.reason == Reason::Backoff && outcome.slices_failed == 0;
        // With nothing left to wake there is nothing to say.
        if woken || (!outcome.is_ok() && !rests && !reported) {
            report_wake(&pressure, guard.floor(), context, out)?;
            out.flush()?;
        }
        reported = !woken && !outcome.is_ok() && (reported || !rests);
        if !woken {
            // No hurry to look again, and a driver that refuses gets a rest.
            std::thread::sleep(left);
        }
    }
    Ok(())
}

fn report_wake(
    pressure: &GuardAction,
    floor: Bytes,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    let outcome = &pressure.outcome;
    let (by, available_bytes) = match pressure.cause {
        WokenBy::Stall => ("stall", None),
        WokenBy::Low(bytes) => ("low", Some(bytes)),
    };
    if context.json() {
        return write_json_line(
            out,
            "guard",
            GuardDocument { by, available_bytes, floor_bytes: floor, outcome },
        );
    }
    let cause = available_bytes.map_or_else(
        || "tasks waited for memory".to_owned(),
        |bytes| format!("{bytes} available, less than {floor}"),
    );
    let end =
        if outcome.is_ok() { String::new() } else { format!(", then {}", reason_text(outcome)) };
    Ok(writeln!(
        out,
        "{cause}: {} woken in {:.2} s{end}",
        slices(outcome.slices_done),
        outcome.elapsed.as_secs_f64()
    )?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::args::{ColorChoice, GlobalOptions};

    /// A machine whose memory is always short: 64 MiB blocks, of which none is there.
    fn short_backend(root: &Path) -> HotplugBackend {
        // The other lines are those that its parser requires.
        let others = "MemTotal MemFree Buffers Cached SwapCached Active Inactive SwapTotal \
                      SwapFree Dirty Writeback Mapped Slab Committed_AS VmallocTotal VmallocUsed \
                      VmallocChunk";
        let meminfo = others
            .split(' ')
            .fold("MemAvailable: 1000 kB\n".to_owned(), |text, name| text + name + ": 0 kB\n");
        for (path, text) in [
            ("sys/devices/system/memory/block_size_bytes", "4000000\n"),
            ("proc/meminfo", &meminfo),
            ("proc/zoneinfo", "Node 0, zone Normal\n"),
            ("run/ramslice/stock.lock", ""),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        HotplugBackend::open_at(root).unwrap()
    }

    /// How long it kept watch, of a limit of a tenth of a second.
    fn run_short(backend: &HotplugBackend) -> Result<Duration> {
        let global = GlobalOptions {
            json: false,
            color: ColorChoice::Never,
            verbose: 0,
            from: None,
            backend: None,
        };
        let (context, began, limit) =
            (CommandContext::new(global, None), Instant::now(), Duration::from_millis(100));
        let mut guard = HotplugGuard::new(backend, Some(Bytes(1 << 30)))?;
        interruptible(|interrupt| {
            run_guard(&mut guard, Some(limit), interrupt, &context, &mut Vec::new())
        })?;
        Ok(began.elapsed())
    }

    #[test]
    fn it_outlasts_another_request_and_what_goes_wrong() {
        let root = tempfile::tempdir().unwrap();
        let backend = short_backend(root.path());
        let lock =
            File::options().write(true).open(root.path().join("run/ramslice/stock.lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(run_short(&backend).unwrap() >= Duration::from_millis(100));
        flock(&lock, FlockOperation::Unlock).unwrap();
        fs::write(root.path().join("run/ramslice/stock.json"), "{").unwrap();
        assert!(run_short(&backend).unwrap() >= Duration::from_millis(100));
    }

    #[test]
    fn without_the_kernels_files_it_ends() {
        let root = tempfile::tempdir().unwrap();
        let backend = short_backend(root.path());
        fs::write(root.path().join("proc/meminfo"), "").unwrap();
        let error = run_short(&backend).unwrap_err();
        assert_eq!(crate::exit::of_error(&error), ExitStatus::Usage);
    }
}
