//! `ramslice-lab sim`: simulated machines, fleets of them, and policies against each other.

mod common;
mod fleet;
mod generate;
mod load;
mod run;
mod tournament;
mod tune;

use std::io::Write;

use anyhow::Result;
use clap::Subcommand;

use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::ExitStatus;

const HELP: &str = "\
The simulated machine has zones, slices, programs that take and free memory, page cache that is \
read again, prices and watermarks, and the same policies decide as on a real kernel. Chance is \
decided by --seed: the same seed gives the same result. Joules are worked out by a \
profile (`ramslice-lab profiles`), as intervals; what was assumed is printed with them.

Examples:
  ramslice-lab sim run diurnal                     a day on 64 GiB with the governor
  ramslice-lab sim run batch --policy periodic --slice 1G --save end.json
  ramslice map --from end.json                     how memory looks then
  ramslice-lab sim fleet --generate 100            100 machines for 8 days
  ramslice-lab sim tournament                      every policy on every load
  ramslice-lab sim tune recording-20261121T210000  watermarks for a recorded machine";

/// Simulate machines and fleets, and compare policies.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Run one load on one machine with one policy
    Run(run::SimRunArgs),
    /// Simulate many machines by their utilisation, and report kWh, money and CO2
    Fleet(fleet::FleetArgs),
    /// Write a file of machine utilisation, made up from published averages
    Generate(generate::GenerateArgs),
    /// Let every policy run on every load
    Tournament(tournament::TournamentArgs),
    /// Find watermarks for a load, and how much memory suits it
    Tune(tune::TuneArgs),
}

pub(crate) fn run(
    args: &SimArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    match &args.command {
        SimCommand::Run(args) => run::run(args, context, out),
        SimCommand::Fleet(args) => fleet::run(args, context, out),
        SimCommand::Generate(args) => generate::run(args, context, out),
        SimCommand::Tournament(args) => tournament::run(args, context, out),
        SimCommand::Tune(args) => tune::run(args, context, out),
    }
}
