//! The command line: global options and the list of commands. Each command's own are in its file.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::commands::{
    calibrate, census, compact, completions, doctor, energy, explain, fragment, guard, man, map,
    offline, online, profiles, ramp, record, report, sim, slices, status, top, watch,
};

const LONG_ABOUT: &str = "\
See and steer which DRAM slices are in use.

ramslice makes Linux pack used memory into few slices of DRAM and switches the empty ones off. \
A slice is what the hardware can switch off as one. What it holds decides what emptying it costs:

  free       nobody uses it
  freeable   clean page cache that no process maps: can be dropped
  movable    can be migrated to another slice
  unmovable  neither: keeps its slice on

Nothing is lost by switching slices off: when memory is wanted, the kernel wakes them by itself.

On a kernel without ramslice, slices are groups of memory blocks, switched by memory hotplug. Such a \
kernel wakes nothing by itself: `ramslice guard` does it from user space, which may be too late.";

const AFTER_LONG_HELP: &str = "\
Examples:
  ramslice status                    what is used, free, off
  ramslice compact --dry-run         what packing would cost
  ramslice compact --budget 2M       pack, spending at most 200 million cycles
  ramslice offline 64-71,80          switch these slices off
  ramslice online --all              switch everything on again
  ramslice ramp --step 2 --every 5m --floor 28
                                     shrink memory slowly, then grow it again
  ramslice map --png memory.png      a picture of physical memory
  ramslice explain --all             what keeps slices on, and what to empty next
  ramslice energy --profile thesis-parc
                                     what packing costs and saves in joules
  ramslice status --json > now.json  save it; look at it later with --from now.json

Prices and budgets are in units of 100 CPU cycles.

Exit status:
  0  done
  1  something was refused or failed; the reason is printed
  2  wrong usage, or a kernel that can neither this nor memory hotplug

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
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print JSON instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to use colours and Unicode
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Global options",
        long_help = "When to use colours and Unicode: `auto` does on a terminal unless NO_COLOR is set"
    )]
    pub(crate) color: When,
    /// Tell on stderr what is read and written; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Look at a machine saved by `ramslice status --json`, or at a recording, instead of this one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options",
        long_help = "Look at a machine saved by `ramslice status --json`, or at the last sample of a \
                     directory made by `ramslice record`, instead of this one. Commands \
                     that change something do so on the copy in memory, by simpler rules than the \
                     kernel's; the file stays as it is. `ramslice doctor` takes a directory instead, made with --capture"
    )]
    pub(crate) from: Option<PathBuf>,
    /// Which way to this machine [default: kernel if it has ramslice, else stock]
    #[arg(
        long,
        global = true,
        value_name = "WHICH",
        conflicts_with = "from",
        help_heading = "Global options",
        long_help = "Which way to this machine. By default `kernel` if it has ramslice, else `stock`"
    )]
    pub(crate) backend: Option<Which>,
}

/// A way to the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// A kernel with the ramslice series, through /dev/ramslice
    Kernel,
    /// Any kernel, by memory hotplug: slices are groups of memory blocks
    Stock,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Also into files and pipes
    Always,
    /// Plain ASCII
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sum up memory, slices and zones
    Status(status::Args),
    /// List the slices
    Slices(slices::Args),
    /// Draw physical memory, or one slice page by page, on the terminal or as a PNG
    Map(map::Args),
    /// Say what keeps a slice on, and what would have to happen for it to be empty
    Explain(explain::Args),
    /// Count the pages of each slice by kind, and how far kernel pages are scattered
    Census(census::Args),
    /// Say what this machine could power down at all
    Doctor(doctor::Args),
    /// Empty slices and switch them off
    Offline(offline::Args),
    /// Switch slices on again
    Online(online::Args),
    /// Switch slices off step by step down to a floor, then on again
    Ramp(ramp::Args),
    /// Pack memory: empty the cheapest slices within a budget
    Compact(compact::Args),
    /// On a stock kernel: wake slices when memory runs short
    Guard(guard::Args),
    /// Show live what slices do, and why
    Top(top::Args),
    /// Watch slices change, live
    Watch(watch::Args),
    /// Record slices, events and statistics over time
    Record(record::Args),
    /// Draw what runs did: one page, CSV, pictures
    Report(report::Args),
    /// Fill memory with a known mix of pages, and hold it
    Fragment(fragment::Args),
    /// Tell what packing costs and saves in joules, live or over a recording
    Energy(energy::Args),
    /// Fit the price model to this machine, and judge it
    Calibrate(calibrate::Args),
    /// List and check profiles of memory systems
    Profiles(profiles::Args),
    /// Simulate machines and fleets, and compare policies
    Sim(sim::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the manual page, or write all of them
    Man(man::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for command in super::Cli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("ramslice {}", command.get_name());
            assert!(help.contains(&example), "`{}` has no example", command.get_name());
        }
    }
}
