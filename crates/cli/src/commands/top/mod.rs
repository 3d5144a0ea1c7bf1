//! `ramslice top`: what slices do and why, live: a screen, lines of text, or lines of JSON.

mod activity;
#[cfg(test)]
mod background_backend;
mod daemon_status;
mod energy_sums;
mod live_screen;
mod model;
mod observer_thread;
mod options;
mod page_cache;
mod page_layout;
mod state_changes;
mod terminal_style;
mod text_output;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use ramslice_backend::ProcessorKind;
use ramslice_energy::SampleClock;
use ramslice_types::Backend;

pub use self::options::TopArgs;

use self::energy_sums::EnergySums;
use self::model::TopModel;
use self::observer_thread::ObserverThread;
use self::options::{HINT, MachineSource, PERIODS};
use crate::context::CommandContext;
use crate::exit::{ExitStatus, UsageError};
use crate::ledger_options::TimeFactorOptions;
use crate::progress::ProgressLine;

/// Runs the command.
///
/// # Errors
/// What cannot be read or written, or makes no sense together.
pub fn run(args: &TopArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    let saved = context.source_path().is_some();
    // In a saved machine no time passes.
    let clock = |factor: &TimeFactorOptions| {
        if saved {
            Ok(SampleClock::Real)
        } else {
            factor.clock(&ProcessorKind::here(), "this machine")
        }
    };
    let source = if saved { MachineSource::Saved } else { MachineSource::Running };
    show(args, source, || Ok(context.backend()?.into()), clock, context, out)
}

/// Replays a recording: each look at `backend` shows the next sample, until it sets `over`.
///
/// The recording's `clock` is asked for only if joules are wanted.
///
/// # Errors
/// What cannot be read or written, or makes no sense together.
pub fn replay(
    args: &TopArgs,
    (backend, over): (Arc<dyn Backend>, Arc<AtomicBool>),
    clock: impl FnOnce(&TimeFactorOptions) -> Result<SampleClock>,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    show(args, MachineSource::Recording { finished: over }, || Ok(backend), clock, context, out)
}

fn show(
    args: &TopArgs,
    source: MachineSource,
    open: impl FnOnce() -> Result<Arc<dyn Backend>>,
    clock: impl FnOnce(&TimeFactorOptions) -> Result<SampleClock>,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let [shortest, longest] = PERIODS;
    if !(shortest..=longest).contains(&args.interval) {
        let message = format!("--interval {:?} is out of range: from 100ms to 1m", args.interval);
        return Err(UsageError(message).into());
    }
    let sums = EnergySums::new(args, clock)?;
    let backend = open()?;
    let mut observer = ObserverThread::new(Arc::clone(&backend));
    let live = !args.once && context.screen.tty && !context.json() && !is_dumb_terminal();
    // Nothing handles signals yet: they end it.
    let progress = ProgressLine::new(!live, HINT);
    let seen = observer.observe_machine(|| {
        progress.show(|time| format!("the first look at all memory: {} s so far", time.as_secs()));
        true
    });
    progress.clear();
    let Some(seen) = seen? else { return Ok(ExitStatus::Ok) };
    let mut top = TopModel::new(seen?, args, source, context.screen, sums);
    if args.once {
        text_output::print_once(&mut top, &*backend, context, out)?;
    } else if live {
        live_screen::run(top, observer)?;
    } else {
        text_output::lines(&mut top, &*backend, &mut observer, args.count, context.json(), out)?;
    }
    Ok(ExitStatus::Ok)
}

/// Whether the terminal has no cursor to move.
fn is_dumb_terminal() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}
