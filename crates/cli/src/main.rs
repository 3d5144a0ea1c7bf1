//! `ramslice`: see and steer which DRAM slices are in use.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod commands;
mod context;
mod exit;
mod render;
mod stderr;
mod stdout;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing::level_filters::LevelFilter;

use crate::args::Cli;
use crate::context::Context;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.global.verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // What cannot be logged is left out: told by `eprintln!`, it would end the program.
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .without_time()
        .init();

    let context = Context::new(cli.global);
    let mut out = BufWriter::new(io::stdout().lock());
    let result =
        commands::run(cli.command, &context, &mut out).and_then(|exit| match out.flush() {
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
            stderr::line(format_args!("ramslice: {error:#}"));
            exit::of_error(&error).into()
        }
    }
}
