//! `ramslice`: see and steer which DRAM slices are in use.

mod args;
mod commands;
mod context;
mod exit;
mod render;

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
    tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).without_time().init();

    let context = Context::new(cli.global);
    let mut out = BufWriter::new(io::stdout().lock());
    let result = commands::run(cli.command, &context, &mut out)
        .and_then(|exit| out.flush().map(|()| exit).map_err(Into::into));
    match result {
        Ok(exit) => exit.into(),
        // `ramslice slices | head` is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            drop(out);
            // One line: sources are joined, as in "writing map.png: permission denied".
            eprintln!("ramslice: {error:#}");
            exit::of_error(&error).into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
