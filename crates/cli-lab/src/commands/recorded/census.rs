//! `ramslice-lab census`: the censuses that were taken while a machine was recorded.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use ramslice_cli::commands::census::{self, CensusArgs, write, write_line};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::ExitStatus;
use ramslice_record::Recording;
use ramslice_types::{BackendError, BackendErrorKind};

use crate::recordings::{open_recording, unreplayable_error};

/// Shows the last census, or with --every one after another; or that of a saved machine.
pub(crate) fn run(
    args: &CensusArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some_and(std::path::Path::is_file) {
        return census::run(args, context, out);
    }
    let recording = &open_recording(context)?;
    let Some(every) = args.every else {
        let (machine, census) = recording
            .last_census()
            .map_err(unreplayable_error)?
            .ok_or_else(|| no_census(recording))?;
        write(&machine, &census, context, out)?;
        return Ok(ExitStatus::Ok);
    };
    let mut machines = recording.machines();
    let (mut shown, mut next) = (0, Duration::ZERO);
    while let Some(machine) = machines.next().transpose().map_err(unreplayable_error)? {
        let Some(census) = machines.census().map_err(unreplayable_error)? else { continue };
        let now = machine.snapshot.time;
        if now < next || args.count.is_some_and(|count| shown >= count) {
            continue;
        }
        next = now + every;
        shown += 1;
        write_line(&machine, &census, context, out)?;
    }
    if machines.cut() > 0 {
        tracing::warn!(
            "{} censuses are not whole and were passed over: see `ramslice-lab record --check`",
            machines.cut()
        );
    }
    if shown == 0 { Err(no_census(recording).into()) } else { Ok(ExitStatus::Ok) }
}

/// Unsupported, not failed: the recording was made without a census, or lost it.
pub(crate) fn no_census(recording: &Recording) -> BackendError {
    let dir = recording.dir().display();
    let message = if recording.has_census() {
        format!("{dir} has no whole census: see `ramslice-lab record --check {dir}`")
    } else {
        format!(
            "{dir} has no census: record one with `ramslice-lab record --census 1m`, or look at \
             the running system with `ramslice census`"
        )
    };
    BackendError::new(BackendErrorKind::Unsupported, message)
}
