//! Options that every command of both programs takes.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Options of every command.
#[derive(Debug, Args)]
pub struct GlobalOptions {
    /// Print JSON instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// When to use colours and Unicode
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Global options",
        long_help = "When to use colours and Unicode: `auto` does on a terminal unless NO_COLOR \
                     is set"
    )]
    pub color: ColorChoice,
    /// Log on stderr what is read and written; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
    /// Look at a machine saved by `ramslice status --json` instead of this one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options",
        long_help = "Look at a machine saved by `ramslice status --json` instead of this one. \
                     Commands that change something do so on the copy in memory, by simpler \
                     rules than the kernel's; the file stays as it is. `ramslice doctor` takes a \
                     directory made with --capture"
    )]
    pub from: Option<PathBuf>,
    /// How to reach this machine [default: kernel if it has ramslice, otherwise stock]
    #[arg(
        long,
        global = true,
        value_name = "WHICH",
        conflicts_with = "from",
        help_heading = "Global options",
        long_help = "How to reach this machine. By default `kernel` if it has ramslice, otherwise \
                     `stock`"
    )]
    pub backend: Option<BackendChoice>,
}

/// A way to the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// A kernel with the ramslice series, through /dev/ramslice
    Kernel,
    /// Any kernel, by memory hotplug: slices are groups of memory blocks
    Stock,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Also into files and pipes
    Always,
    /// Plain ASCII
    Never,
}
