//! `ramsliced`: see the library.

use std::process::ExitCode;

use clap::Parser;
use ramsliced::args::Args;
use ramsliced::clock::DayClock;
use ramsliced::host::Host;
use ramsliced::run::{self, Options};
use ramsliced::settings::{SAMPLE, Settings};
use ramsliced::{log, pressure};
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.print_config {
        print!("{SAMPLE}");
        return ExitCode::SUCCESS;
    }
    let settings = match Settings::read(&args.config) {
        Ok(settings) => settings,
        Err(error) => {
            eprint!("{}", error.report());
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        println!(
            "{}: right; mode {}, policy {}",
            args.config.display(),
            settings.mode,
            settings.policy.policy
        );
        return ExitCode::SUCCESS;
    }
    log::init(match args.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    });
    let options = Options {
        config: args.config,
        state_dir: args.state_dir,
        runtime_dir: args.runtime_dir,
        pressure: Some(pressure::PATH.into()),
        host: Host::here(),
    };
    match run::run(&options, settings, &run::open, |last| Box::new(DayClock::after(last))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
