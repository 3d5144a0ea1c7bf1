//! `ramslice-lab top`: a recording, sample by sample.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use ramslice_cli::commands::top::{self, TopArgs};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::ExitStatus;

use crate::recordings::{RecordingPlayer, clock_of, open_recording};

/// Replays it, or shows a saved machine.
pub(crate) fn run(
    args: &TopArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some_and(std::path::Path::is_file) {
        return top::run(args, context, out);
    }
    let recording = open_recording(context)?;
    let about = recording.info().clone();
    let player = RecordingPlayer::start(recording);
    let over = player.finished_flag();
    let clock = |factor: &_| clock_of(factor, &about);
    top::replay(args, (Arc::new(player), over), clock, context, out)
}
