//! Writes a small recording of an invented machine, the same each time: for tests, and to try a
//! reader on.
//!
//! `cargo run -p ramslice-record --example made_up -- DIR [BUDGET] [--census]`. The machine has 64
//! slices of 32 MiB. A build goes up and down in it for two minutes; every 15 s, requests may spend
//! BUDGET, in units of 100 cycles: 0 for a machine that empties nothing, nothing for no limit. With
//! --census, every page is counted now and then, and kernel pages scatter.

#[path = "../tests/common/made_up.rs"]
mod made_up;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let census = args.last().is_some_and(|word| word == "--census");
    if census {
        args.pop();
    }
    let mut args = args.into_iter();
    let (dir, budget) = (args.next(), args.next().map(|budget| budget.parse()));
    let (Some(dir), Some(budget), None) = (dir, budget.transpose().ok(), args.next()) else {
        eprintln!("usage: made_up DIR [BUDGET] [--census]");
        return ExitCode::from(2);
    };
    match made_up::write(Path::new(&dir), budget, census) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("made_up: {error}");
            ExitCode::FAILURE
        }
    }
}
