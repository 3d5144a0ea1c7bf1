//! The command line of `ramslice-lab`: its commands by name, and which file runs each.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use ramslice_cli::args::GlobalOptions;
use ramslice_cli::commands::{census, completions, energy, man, map, slices, status, top};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::ExitStatus;
use ramslice_cli::program;

use crate::commands::{
    advise, calibrate, dump, fragment, hit_ratio, profiles, ramp, record, recorded, report, sim,
};
use crate::recordings;

const LONG_ABOUT: &str = "\
Record, calibrate, simulate and report on what packing memory does.

ramslice-lab is for measuring: it keeps recordings, fits prices to this machine, simulates \
machines and fleets, and draws what runs did. `ramslice` shows and steers the slices of a running \
machine.

Some commands of `ramslice` are here, too, for recordings: status, slices, map, census, energy \
and top, with --from DIR.";

const AFTER_LONG_HELP: &str = "\
Examples:
  ramslice-lab record -o build -- make -j8       record as long as the build takes
  ramslice-lab top --from build                  replay it
  ramslice-lab report build -o build.html        draw it, as one page
  ramslice-lab dump build --table zones          its rows as CSV
  ramslice-lab energy --profile thesis-parc --from build
                                                 what packing cost and saved, in joules
  ramslice-lab advise build                      how much memory that needs
  ramslice-lab calibrate                         what the prices of this machine should be
  ramslice-lab sim tournament                    every policy on every load
  ramslice-lab ramp --step 2 --every 5m --floor 28
                                                 shrink memory slowly, then grow it again

Exit status:
  0  done
  1  something was refused or failed; the reason is printed
  2  wrong usage, a kernel that can neither this nor memory hotplug, or a recording or saved \
machine without what the command shows

With a COMMAND after --, the exit status is that of the command.

JSON: every document has a schema_version, raised when a field changes its meaning or goes; new \
fields may appear at any time. Names carry the unit: _bytes, _pages, _us, _100cycles.";

/// The program.
#[derive(Debug, Parser)]
#[command(
    name = "ramslice-lab",
    version,
    about = "Record, calibrate, simulate and report on what packing memory does",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_LONG_HELP,
    after_help = "More with --help; of one command with `ramslice-lab COMMAND --help`.",
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(mut_arg("from", |from| from
    .help("Take a recording, or a machine saved by `ramslice status --json`")
    .long_help(
        "Take a recording (a directory made by `ramslice-lab record`), or a machine saved by \
         `ramslice status --json`, instead of this machine. Commands that change something do so \
         on a copy in memory, by simpler rules than the kernel's; what was given stays as it is",
    )
    .value_name("DIR|FILE")))]
struct LabCli {
    /// Options of every command.
    #[command(flatten)]
    global: GlobalOptions,
    /// What to do.
    #[command(subcommand)]
    command: LabCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Record slices, events and statistics over time
    Record(record::RecordArgs),
    /// Draw what runs did: one page, CSV, pictures
    Report(report::ReportArgs),
    /// Write a recording as CSV, or for Prometheus
    Dump(dump::DumpArgs),
    /// Say how much memory recorded work needs
    Advise(advise::AdviseArgs),
    /// Fit the price model to this machine, and judge it
    Calibrate(calibrate::CalibrateArgs),
    /// Simulate machines and fleets, and compare policies
    Sim(sim::SimArgs),
    /// Fill memory with a known mix of pages, and hold it
    Fragment(fragment::FragmentArgs),
    /// Switch slices off step by step down to a floor, then on again
    Ramp(ramp::RampArgs),
    /// Count hits of the page cache by trace events, on Linux 6.12 and later
    HitRatio(hit_ratio::HitRatioArgs),
    /// List and check profiles of memory systems
    Profiles(profiles::ProfilesArgs),
    /// Sum up the last sample of a recording
    #[command(after_long_help = "\
Examples:
  ramslice-lab status --from build
  ramslice-lab status --json --from build > end.json; ramslice compact --dry-run --from end.json")]
    Status(status::StatusArgs),
    /// List the slices at the last sample of a recording
    #[command(after_long_help = "\
Examples:
  ramslice-lab slices --from build --sort price")]
    Slices(slices::SlicesArgs),
    /// Draw physical memory at the last sample of a recording
    #[command(after_long_help = "\
Examples:
  ramslice-lab map --from build --png end.png")]
    Map(map::MapArgs),
    /// Show the censuses that were taken while a machine was recorded
    #[command(after_long_help = "\
Shows the last census of a recording, or with --every one after another, at least so far apart. \
What the columns and sentences mean is in `ramslice census --help`.

Examples:
  ramslice-lab census --from build
  ramslice-lab census --from build --every 1ms     all that a recording has")]
    Census(census::CensusArgs),
    /// Report what packing cost and saved in joules over a recording
    #[command(after_long_help = "\
Keeps the ledger of `ramslice energy` over the samples of a recording, on the recording's clock: \
--every is time of the recording, and without it only the report is printed. Seconds of an \
emulated machine are not real ones, so --time-factor must say how many times slower it was.

Examples:
  ramslice-lab energy --profile thesis-parc --from build
  ramslice-lab energy --profile thesis-parc --from build --every 1m --time-factor 12..18")]
    Energy(energy::EnergyArgs),
    /// Replay a recording
    #[command(after_long_help = "\
The screen is that of `ramslice top`: each period shows the next sample of the recording, so a \
short --interval replays it fast. Without a terminal or with --json there is a line for each \
sample, as fast as they can be read. --once reads all of it and prints what the screen shows at \
its end.

Examples:
  ramslice-lab top --from build
  ramslice-lab top --from build --interval 100ms
  ramslice-lab top --from build --once --profile thesis-parc
  ramslice-lab top --from build --json | jq -c .changes")]
    Top(top::TopArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = "\
Examples:
  ramslice-lab completions bash > ~/.local/share/bash-completion/completions/ramslice-lab
  ramslice-lab completions zsh > ~/.zfunc/_ramslice-lab
  ramslice-lab completions fish > ~/.config/fish/completions/ramslice-lab.fish")]
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write all of them
    #[command(after_long_help = "\
Examples:
  ramslice-lab man | man -l -
  ramslice-lab man --dir /usr/local/share/man/man1")]
    Man(man::ManArgs),
}

/// The program `ramslice-lab`.
pub(crate) fn main() -> ExitCode {
    let LabCli { global, command } = LabCli::parse();
    let open = Some(recordings::open_last as _);
    program::run("ramslice-lab", global, open, |context, out| run(command, context, out))
}

/// Runs a command; text goes to `out`.
fn run(command: LabCommand, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    if matches!(command, LabCommand::Status(_) | LabCommand::Slices(_) | LabCommand::Map(_)) {
        recordings::recording_path(context)?;
    }
    match command {
        LabCommand::Record(args) => record::run(&args, context, out),
        LabCommand::Report(args) => report::run(&args, context, out),
        LabCommand::Dump(args) => dump::run(&args, context, out),
        LabCommand::Advise(args) => advise::run(&args, context, out),
        LabCommand::Calibrate(args) => calibrate::run(&args, context, out),
        LabCommand::Sim(args) => sim::run(&args, context, out),
        LabCommand::Fragment(args) => fragment::run(&args, context, out),
        LabCommand::Ramp(args) => ramp::run(&args, context, out),
        LabCommand::HitRatio(args) => hit_ratio::run(&args, context, out),
        LabCommand::Profiles(args) => profiles::run(&args, context, out),
        LabCommand::Status(args) => status::run(&args, context, out),
        LabCommand::Slices(args) => slices::run(&args, context, out),
        LabCommand::Map(args) => map::run(&args, context, out),
        LabCommand::Census(args) => recorded::census::run(&args, context, out),
        LabCommand::Energy(args) => recorded::energy::run(&args, context, out),
        LabCommand::Top(args) => recorded::top::run(&args, context, out),
        LabCommand::Completions(args) => completions::run(&args, LabCli::command(), out),
        LabCommand::Man(args) => man::run(&args, LabCli::command(), context, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        LabCli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for command in LabCli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("ramslice-lab {}", command.get_name());
            assert!(help.contains(&example), "`{}` has no example", command.get_name());
        }
    }

    #[test]
    fn every_option_for_recordings_names_them() {
        let mut program = LabCli::command();
        program.build();
        let from = program.get_arguments().find(|arg| arg.get_id() == "from").unwrap();
        assert!(from.get_help().unwrap().to_string().contains("recording"));
    }
}
