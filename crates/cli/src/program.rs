//! What both programs do around a command: logging, standard output, exit status.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use tracing::level_filters::LevelFilter;

use crate::args::GlobalOptions;
use crate::context::{CommandContext, OpenRecording};
use crate::exit::{self, ExitStatus};
use crate::{stderr, stdout};

/// Runs one command of the program `name`; what it writes to its output goes to standard output.
pub fn run(
    name: &str,
    global: GlobalOptions,
    open_recording: Option<OpenRecording>,
    command: impl FnOnce(&CommandContext, &mut dyn Write) -> Result<ExitStatus>,
) -> ExitCode {
    let level = match global.verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // A line that cannot be logged is left out: `eprintln!` would panic and end the program.
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .without_time()
        .init();

    let context = CommandContext::new(global, open_recording);
    let mut out = BufWriter::new(io::stdout().lock());
    let result = command(&context, &mut out).and_then(|exit| match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(exit),
    });
    match result {
        Ok(exit) => exit.into(),
        // `ramslice slices | head` is no failure.
        Err(error) if stdout::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            drop(out);
            // One line: sources are joined, as in "writing map.png: permission denied".
            stderr::line(format_args!("{name}: {error:#}"));
            exit::of_error(&error).into()
        }
    }
}
