//! `ramslice`: see and steer which DRAM slices are in use.

use std::process::ExitCode;

fn main() -> ExitCode {
    ramslice_cli::cli::main()
}
