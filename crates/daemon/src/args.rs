//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

use crate::settings;

const LONG_ABOUT: &str = "\
Observes memory, decides which slices of DRAM to switch off, and reports the result.

ramsliced reads the machine every 30 seconds. Its mode says what it may do:

  observe  the default: it acts on nothing and reports what it would have earned and risked
  on       it switches slices off when that should pay
  off      it decides nothing and only reports the state of memory

It needs the patched kernel, or any kernel with memory hotplug. Switching slices off \
loses no memory: the patched kernel wakes them when memory is wanted. On a stock kernel the daemon \
does so, and keeps a margin.

Settings are in /etc/ramslice/ramsliced.toml and are read again at SIGHUP. A file with an error is \
refused with line and column, and the old settings stay. What the daemon has learned is in \
/var/lib/ramslice.";

const AFTER_LONG_HELP: &str = "\
Examples:
  ramsliced --print-config                all settings: what they mean, and defaults or examples
  ramsliced --check-config                check /etc/ramslice/ramsliced.toml
  systemctl enable --now ramsliced        observe
  systemctl reload ramsliced              take over changed settings
  ramslice top                            what it does, live
  curl http://127.0.0.1:9750/metrics      what Prometheus sees

Signals:
  HUP        read the settings again
  TERM, INT  stop; [stop] in the settings says what happens to offline slices

Files:
  /etc/ramslice/ramsliced.toml   settings
  /etc/ramslice/ramsliced.toml.d/*.toml
                                 settings that override these, by name, the last one wins
  /var/lib/ramslice/state.json   what was learned; safe to remove while the daemon is stopped
  /var/lib/ramslice/prices.json  while the kernel's prices do not hold: samples to fit new ones,
                                 for ramslice-lab calibrate --from
  /run/ramslice/status.json      what it knows and why it acts or not, after each step

Exit status:
  0  stopped as asked
  1  failed; the reason is in the log
  2  wrong usage or settings";

/// The arguments.
#[derive(Debug, Parser)]
#[command(
    name = "ramsliced",
    version,
    about = "Observes memory, and switches off slices of DRAM when that pays",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_LONG_HELP,
    max_term_width = 100
)]
pub struct DaemonArgs {
    /// The settings file
    #[arg(long, value_name = "FILE", default_value = settings::PATH)]
    pub config: PathBuf,
    /// Check the settings and exit: 0 if they are valid, 2 if not
    #[arg(long)]
    pub check_config: bool,
    /// Print a file with all settings, their defaults, and examples (e.g.), and exit
    #[arg(long, conflicts_with = "check_config")]
    pub print_config: bool,
    /// Directory of the saved state
    #[arg(
        long,
        value_name = "DIR",
        env = "STATE_DIRECTORY",
        hide_env = true,
        default_value = "/var/lib/ramslice"
    )]
    pub state_dir: PathBuf,
    /// Directory of status.json
    #[arg(
        long,
        value_name = "DIR",
        env = "RUNTIME_DIRECTORY",
        hide_env = true,
        default_value = "/run/ramslice"
    )]
    pub runtime_dir: PathBuf,
    /// Log more: decisions; twice: every access to a kernel file
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::DaemonArgs::command().debug_assert();
    }
}
