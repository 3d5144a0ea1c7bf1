//! What `ramslice top` can be asked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use ramslice_types::parse_duration;

use super::daemon_status;
use crate::ledger_options::{FactorRange, UnitSize};

/// The shortest and the longest time between two looks.
pub(super) const PERIODS: [Duration; 2] = [Duration::from_millis(100), Duration::from_mins(1)];
/// A look that takes longer is said to be under way.
pub(super) const HINT: Duration = Duration::from_secs(1);

const HELP: &str = "\
The screen shows memory as a bar and as a map (`ramslice map --help` explains both), what was \
done for slices in the last period and since the start, what the governor of ramsliced expects \
and why it acts or not, and a list of slices. The one selected is marked, and a sentence says \
what would have to happen for it to be empty. Where a map of single slices would not fit, a cell \
is several of them.

Keys:
  arrows, j k, PgUp PgDn, Home End   select a slice in the list; left and right: by address
  Enter        look at the selected slice's pages, as `ramslice explain` does (root)
  s            sort: by address, price, used memory, or state
  p, blank     pause
  + -          longer, shorter period
  ?            the keys and what the figures mean
  q, Ctrl-C    quit; Ctrl-Z suspends

Without a terminal, or with TERM=dumb: a line per period. With --json: a document per period and \
line. --once looks, waits a period, looks again, and prints that. Pages moved and dropped, and \
joules, come from counters that only root can read.

With --profile it adds up joules as `ramslice energy` does: each figure has a low and a high end.

Examples:
  ramslice top
  ramslice top --interval 5s --profile thesis-parc
  ramslice top --once                      what it would show, as text
  ramslice top --json | jq -c .last
  ramslice top --from now.json             a saved machine
  ramslice-lab top --from build            a recording, sample by sample";

/// Show live what slices do, and why.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct TopArgs {
    /// Look this often, from 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(super) interval: Duration,
    /// Look, wait an interval, look again, print, and end
    #[arg(long, conflicts_with = "count")]
    pub(super) once: bool,
    /// End after this many lines; without a terminal or with --json
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
    /// What to sort slices by
    #[arg(long, value_name = "KEY", default_value = "address")]
    pub(super) sort: SortOrder,
    /// Add up joules for this memory system: a name from `ramslice-lab profiles`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: Option<String>,
    /// Its power state [default: the profile's]
    #[arg(long, value_name = "NAME", requires = "profile")]
    pub(super) state: Option<String>,
    /// How many times slower than the profile's machine this emulated one is: 15 or 12..18
    #[arg(long, value_name = "FACTOR", requires = "profile")]
    pub(super) time_factor: Option<FactorRange>,
    /// Assume that the hardware switches units of this size, as in 64M, or `slice`
    #[arg(long, value_name = "SIZE|slice", requires = "profile")]
    pub(super) granularity: Option<UnitSize>,
    /// Where the daemon writes what it does
    #[arg(long, value_name = "FILE", default_value = daemon_status::STATUS)]
    pub(super) status_file: PathBuf,
}

/// What to sort slices by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SortOrder {
    /// By physical address
    Address,
    /// Cheapest first; those that cannot be emptied last
    Price,
    /// Most used memory first
    Used,
    /// Off, in transition, empty, used
    State,
}

impl SortOrder {
    /// The one after it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Address => Self::Price,
            Self::Price => Self::Used,
            Self::Used => Self::State,
            Self::State => Self::Address,
        }
    }

    /// Words for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Price => "price",
            Self::Used => "used memory",
            Self::State => "state",
        }
    }
}

/// Where the machine that is shown comes from.
#[derive(Debug, Clone)]
pub(super) enum MachineSource {
    /// The running kernel.
    Running,
    /// A file: nothing changes there.
    Saved,
    /// A recording: each look shows the next sample.
    Recording {
        /// Whether the last sample has been shown.
        finished: Arc<AtomicBool>,
    },
}

impl MachineSource {
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }

    pub(super) fn is_saved(&self) -> bool {
        matches!(self, Self::Saved)
    }

    pub(super) fn is_recording(&self) -> bool {
        matches!(self, Self::Recording { .. })
    }

    /// Whether there will be no other look.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Running => false,
            Self::Saved => true,
            Self::Recording { finished: over } => over.load(Ordering::Relaxed),
        }
    }
}
