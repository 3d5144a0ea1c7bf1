//! `ramsliced`: see the library.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ramsliced::args::DaemonArgs;
use ramsliced::clock::DayClock;
use ramsliced::host_files::HostFiles;
use ramsliced::main_loop::{self, DaemonOptions};
use ramsliced::open_backend::open_backend;
use ramsliced::settings::{DaemonSettings, SAMPLE};
use ramsliced::settings_files::{count_drop_ins, drop_ins};
use ramsliced::settings_warnings::memory_of_machine;
use ramsliced::{log, pressure_trigger};
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let args = DaemonArgs::parse();
    if args.print_config {
        return show(SAMPLE);
    }
    let settings = match DaemonSettings::read(&args.config) {
        Ok(settings) => settings,
        Err(error) => {
            // If stderr is closed, the exit status remains.
            let _ = write!(io::stderr(), "{}", error.report());
            if !args.check_config {
                wake_left_offline(args);
            }
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        let (mode, policy) = (settings.mode, settings.policy.policy);
        let with = match drop_ins(&args.config).map_or(0, |found| found.len()) {
            0 => String::new(),
            count => format!(" with {}", count_drop_ins(count)),
        };
        let name = args.config.display();
        for warning in settings.warnings(memory_of_machine()) {
            let _ = writeln!(io::stderr(), "{name}: warning: {warning}");
        }
        return show(&format!("{name}{with}: valid; mode {mode}, policy {policy}\n"));
    }
    let options = begin(args);
    match main_loop::run(&options, settings, &open_backend, |last| Box::new(DayClock::after(last)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts logging, and gathers paths.
fn begin(args: DaemonArgs) -> DaemonOptions {
    log::init(match args.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    });
    DaemonOptions {
        config: args.config,
        state_dir: args.state_dir,
        runtime_dir: args.runtime_dir,
        pressure: Some(pressure_trigger::PATH.into()),
        host: HostFiles::here(),
    }
}

/// The daemon does not run with wrong settings, so nothing would wake the slices that an earlier
/// run
/// left offline on a stock kernel. This wakes them.
fn wake_left_offline(args: DaemonArgs) {
    if let Err(error) = main_loop::wake_left_offline(&begin(args), &open_backend, |last| {
        Box::new(DayClock::after(last))
    }) {
        tracing::error!("{error:#}");
    }
}

/// Writes to standard output. A full disk is an error, not a panic.
fn show(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ramsliced: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
