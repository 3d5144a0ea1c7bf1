//! `ramslice-lab`: record, calibrate, simulate and report on what packing memory does.
//!
//! What it shares with the operator's program, as options, output and rendering, is the library
//! `ramslice_cli`.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod cli;
mod commands;
mod output_file;
mod recordings;
mod subprocess;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
