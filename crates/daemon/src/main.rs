//! `ramsliced`: see the library.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ramsliced::args::Args;
use ramsliced::clock::DayClock;
use ramsliced::host_files::Host;
use ramsliced::main_loop::{self, Options};
use ramsliced::open_backend::open;
use ramsliced::settings::{SAMPLE, Settings};
use ramsliced::{log, pressure};
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.print_config {
        return show(SAMPLE);
    }
    let settings = match Settings::read(&args.config) {
        Ok(settings) => settings,
        Err(error) => {
            // Where nobody reads it, the status is left.
            let _ = write!(io::stderr(), "{}", error.report());
            if !args.check_config {
                wake_owed(args);
            }
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        let (mode, policy) = (settings.mode, settings.policy.policy);
        return show(&format!("{}: right; mode {mode}, policy {policy}\n", args.config.display()));
    }
    let options = begin(args);
    match run::run(&options, settings, &open, |last| Box::new(DayClock::after(last))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Begins to log, and says where things are.
fn begin(args: Args) -> Options {
    log::init(match args.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    });
    Options {
        config: args.config,
        state_dir: args.state_dir,
        runtime_dir: args.runtime_dir,
        pressure: Some(pressure::PATH.into()),
        host: Host::here(),
    }
}

/// Nothing runs with wrong settings: what an earlier run has left off on a stock kernel, nobody would wake.
fn wake_owed(args: Args) {
    if let Err(error) = run::wake_owed(&begin(args), &open, |last| Box::new(DayClock::after(last)))
    {
        tracing::error!("{error:#}");
    }
}

/// Writes what was asked for; a full disk is a failure, no panic.
fn show(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ramsliced: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
