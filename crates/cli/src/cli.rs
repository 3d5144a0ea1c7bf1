//! The command line of `ramslice`: its commands by name, and which file runs each.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use crate::args::GlobalOptions;
use crate::commands::{
    census, cold, compact, completions, doctor, energy, explain, giveback, guard, huge, man, map,
    offline, online, run, slices, status, top,
};
use crate::context::CommandContext;
use crate::exit::ExitStatus;
use crate::{program, stderr};

const LONG_ABOUT: &str = "\
See and steer which DRAM slices are in use.

ramslice makes Linux pack used memory into few slices of DRAM and switches the empty ones off. A \
slice is what the hardware can switch off as one. What it holds decides what emptying it costs:

  free       no process or file uses it
  freeable   clean page cache that no process maps: can be dropped
  movable    can be migrated to another slice
  unmovable  neither: keeps its slice on

Switching slices off loses nothing: when memory is wanted, the kernel wakes them by itself. The \
share of free memory that is off, offline / (free + offline), is called c: 1 is the limit.

On a kernel without ramslice, slices are groups of memory blocks, switched by memory hotplug. \
Such a kernel wakes nothing by itself: `ramslice guard` does it from user space, which may be too \
late.";

const AFTER_LONG_HELP: &str = "\
Examples:
  ramslice status                    what is used, free, off
  ramslice compact --dry-run         what packing would cost
  ramslice compact --budget 2M       pack, spending at most 200 million cycles
  ramslice offline 64-71,80          switch these slices off
  ramslice online --all              switch everything on again
  ramslice giveback --now            in a virtual machine: what is not needed goes to the host
  ramslice map --png memory.png      a picture of physical memory
  ramslice explain --all             what keeps slices on, and what to empty next
  ramslice energy --profile thesis-parc
                                     what packing costs and saves in joules
  ramslice status --json > now.json  save it; look at it later with --from now.json

Prices and budgets are in units of 100 CPU cycles.

Recordings, reports, calibration and the simulator are in the program ramslice-lab.

Exit status:
  0  done
  1  something was refused or failed; the reason is printed
  2  wrong usage, a kernel that can neither this nor memory hotplug, or a saved machine without \
what the command shows

JSON: every document has a schema_version, raised when a field changes its meaning or goes; new \
fields may appear at any time. Names carry the unit: _bytes, _pages, _us, _100cycles.";

/// The program.
#[derive(Debug, Parser)]
#[command(
    name = "ramslice",
    version,
    about = "See and steer which DRAM slices are in use",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_LONG_HELP,
    after_help = "More with --help; of one command with `ramslice COMMAND --help`.",
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct OperatorCli {
    /// Options of every command.
    #[command(flatten)]
    global: GlobalOptions,
    /// What to do.
    #[command(subcommand)]
    command: OperatorCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum OperatorCommand {
    /// Sum up memory, slices and zones
    Status(status::StatusArgs),
    /// List the slices
    Slices(slices::SlicesArgs),
    /// Draw physical memory, or one slice page by page, on the terminal or as a PNG
    Map(map::MapArgs),
    /// Say what keeps a slice on, and what would have to happen for it to be empty
    Explain(explain::ExplainArgs),
    /// Count the pages of each slice by kind, and how far kernel pages are scattered
    Census(census::CensusArgs),
    /// Say what this machine could power down at all
    Doctor(doctor::DoctorArgs),
    /// Empty slices and switch them off
    Offline(offline::OfflineArgs),
    /// Switch slices on again
    Online(online::OnlineArgs),
    /// Pack memory: empty the cheapest slices within a budget
    Compact(compact::CompactArgs),
    /// Give memory back to the host that this virtual machine does not need
    Giveback(giveback::GivebackArgs),
    /// Make huge pages of memory that is emptied for them
    Huge(huge::HugeArgs),
    /// Show cold memory, size it, or say who gets it
    Cold(cold::ColdArgs),
    /// Run a program whose memory goes into cold memory
    Run(run::RunArgs),
    /// On a stock kernel: wake slices when memory runs short
    Guard(guard::GuardArgs),
    /// Show live what slices do, and why
    Top(top::TopArgs),
    /// Report what packing costs and saves in joules
    Energy(energy::EnergyArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write all of them
    Man(man::ManArgs),
}

/// Commands of the version before, and what to write now.
const MOVED: [(&str, &str); 8] = [
    ("record", "ramslice-lab record"),
    ("report", "ramslice-lab report"),
    ("calibrate", "ramslice-lab calibrate"),
    ("sim", "ramslice-lab sim"),
    ("fragment", "ramslice-lab fragment"),
    ("ramp", "ramslice-lab ramp"),
    ("profiles", "ramslice-lab profiles"),
    ("watch", "ramslice top"),
];

/// Where the command that was typed is now, if it moved.
fn moved_command(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (before, now) = MOVED.into_iter().find(|(before, _)| before == typed)?;
    let is_lab = now.starts_with("ramslice-lab");
    let package = if is_lab { ", of the package ramslice-lab" } else { "" };
    Some(format!("ramslice: '{before}' is now '{now}'{package}"))
}

/// The program `ramslice`.
pub fn main() -> ExitCode {
    let OperatorCli { global, command } = match OperatorCli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match moved_command(&error) {
            Some(text) => {
                stderr::line(text);
                return ExitStatus::Usage.into();
            }
            None => error.exit(),
        },
    };
    program::run("ramslice", global, None, |context, out| run(command, context, out))
}

/// Runs a command; text goes to `out`.
fn run(
    command: OperatorCommand,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    match command {
        OperatorCommand::Status(args) => status::run(&args, context, out),
        OperatorCommand::Slices(args) => slices::run(&args, context, out),
        OperatorCommand::Map(args) => map::run(&args, context, out),
        OperatorCommand::Explain(args) => explain::run(&args, context, out),
        OperatorCommand::Census(args) => census::run(&args, context, out),
        OperatorCommand::Doctor(args) => doctor::run(&args, context, out),
        OperatorCommand::Offline(args) => offline::run(&args, context, out),
        OperatorCommand::Online(args) => online::run(&args, context, out),
        OperatorCommand::Compact(args) => compact::run(&args, context, out),
        OperatorCommand::Giveback(args) => giveback::run(&args, context, out),
        OperatorCommand::Huge(args) => huge::run(&args, context, out),
        OperatorCommand::Cold(args) => cold::run(&args, context, out),
        OperatorCommand::Run(args) => run::run(&args, context),
        OperatorCommand::Guard(args) => guard::run(&args, context, out),
        OperatorCommand::Top(args) => top::run(&args, context, out),
        OperatorCommand::Energy(args) => energy::run(&args, context, out),
        OperatorCommand::Completions(args) => completions::run(&args, OperatorCli::command(), out),
        OperatorCommand::Man(args) => man::run(&args, OperatorCli::command(), context, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        OperatorCli::command().debug_assert();
    }

    #[test]
    fn a_command_that_moved_says_where_it_is() {
        for (before, now) in MOVED {
            let error =
                OperatorCli::try_parse_from(["ramslice", "--json", before, "--every", "1s"]);
            let text = moved_command(&error.unwrap_err());
            let text = text.unwrap();
            assert!(text.starts_with(&format!("ramslice: '{before}' is now '{now}'")), "{text}");
            let names_package = text.ends_with(", of the package ramslice-lab");
            assert_eq!(names_package, before != "watch", "{text}");
        }
        let error = OperatorCli::try_parse_from(["ramslice", "statu"]).unwrap_err();
        assert_eq!(moved_command(&error), None);
        assert!(error.to_string().contains("status"), "{error}");
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for command in OperatorCli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("ramslice {}", command.get_name());
            assert!(help.contains(&example), "`{}` has no example", command.get_name());
        }
    }
}
