//! One file per command: its arguments, its help, what it does.

pub(crate) mod calibrate;
mod calibrate_show;
mod calibrate_take;
pub(crate) mod census;
mod child;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod doctor;
mod end;
pub(crate) mod energy;
mod energy_recording;
mod energy_show;
pub(crate) mod explain;
mod explain_all;
mod explain_words;
pub(crate) mod fragment;
pub(crate) mod guard;
mod interrupt;
pub(crate) mod man;
pub(crate) mod map;
mod map_slice;
pub(crate) mod offline;
pub(crate) mod online;
mod outcome;
pub(crate) mod profiles;
mod progress;
pub(crate) mod ramp;
pub(crate) mod record;
pub(crate) mod report;
mod report_prices;
mod report_read;
mod report_recording;
mod report_sweep;
pub(crate) mod sim;
pub(crate) mod slices;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod watch;
mod watch_screen;

pub(crate) use child::NotStarted;

use std::io::Write;

use anyhow::Result;

use crate::args::Command;
use crate::context::Context;
use crate::exit::Exit;

/// Runs a command; text goes to `out`.
pub(crate) fn run(command: Command, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    match command {
        Command::Status(args) => status::run(&args, context, out),
        Command::Slices(args) => slices::run(&args, context, out),
        Command::Map(args) => map::run(&args, context, out),
        Command::Explain(args) => explain::run(&args, context, out),
        Command::Census(args) => census::run(&args, context, out),
        Command::Doctor(args) => doctor::run(&args, context, out),
        Command::Offline(args) => offline::run(&args, context, out),
        Command::Online(args) => online::run(&args, context, out),
        Command::Ramp(args) => ramp::run(&args, context, out),
        Command::Compact(args) => compact::run(&args, context, out),
        Command::Guard(args) => guard::run(&args, context, out),
        Command::Top(args) => top::run(&args, context, out),
        Command::Watch(args) => watch::run(&args, context, out),
        Command::Energy(args) => energy::run(&args, context, out),
        Command::Profiles(args) => profiles::run(&args, context, out),
        Command::Record(args) => record::run(&args, context, out),
        Command::Report(args) => report::run(&args, context, out),
        Command::Fragment(args) => fragment::run(&args, context, out),
        Command::Calibrate(args) => calibrate::run(&args, context, out),
        Command::Sim(args) => sim::run(&args, context, out),
        Command::Completions(args) => completions::run(&args, context, out),
        Command::Man(args) => man::run(&args, context, out),
    }
}
