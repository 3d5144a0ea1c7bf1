//! `ramslice top`: what slices do and why, live: a screen, lines of text, or lines of JSON.

mod draw;
mod governor;
mod joules;
mod looker;
mod model;
mod print;
mod rates;
mod screen;
#[cfg(test)]
mod slow;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use ramslice_types::{Backend, parse_duration};

use self::looker::Looker;
use self::model::Top;
use super::energy::{Range, Size};
use super::progress::Progress;
use crate::context::Context;
use crate::exit::{Exit, UsageError};

/// The shortest and the longest time between two looks.
const PERIODS: [Duration; 2] = [Duration::from_millis(100), Duration::from_mins(1)];
/// A look that takes longer is said to be under way.
const HINT: Duration = Duration::from_secs(1);

const HELP: &str = "\
The screen shows memory as a bar and as a map (`ramslice map --help` explains both), what was done for \
slices in the last period and since the start, what the governor of ramsliced expects and why it acts \
or not, and a list of slices. The one selected is marked, and a sentence says what would have to \
happen for it to be empty. Where a map of single slices would not fit, a cell is several of them.

Keys:
  arrows, j k, PgUp PgDn, Home End   select a slice in the list; left and right: by address
  Enter        look at the selected slice's pages, as `ramslice explain` does (root)
  s            sort: by address, price, used memory, or state
  p, blank     pause
  + -          longer, shorter period
  ?            the keys and what the figures mean
  q, Ctrl-C    quit; Ctrl-Z suspends

Without a terminal, or with TERM=dumb: a line per period. With --json: a document per period and \
line. --once looks, waits a period, looks again, and prints that. Pages moved and dropped, and joules, \
come from counters that only root can read.

With --profile it adds up joules as `ramslice energy` does: each figure has a low and a high end.

Examples:
  ramslice top
  ramslice top --interval 5s --profile thesis-parc
  ramslice top --once                      what it would show, as text
  ramslice top --json | jq -c .last
  ramslice top --from now.json             a saved machine";

/// Show live what slices do, and why.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Look this often, from 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Look, wait an interval, look again, print, and end
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// End after this many lines; without a terminal or with --json
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// What to sort slices by
    #[arg(long, value_name = "KEY", default_value = "address")]
    sort: Sort,
    /// Add up joules for this memory system: a name from `ramslice profiles`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Its power state [default: the profile's]
    #[arg(long, value_name = "NAME", requires = "profile")]
    state: Option<String>,
    /// How many times slower than the profile's machine this emulated one is: 15 or 12..18
    #[arg(long, value_name = "FACTOR", requires = "profile")]
    time_factor: Option<Range>,
    /// Assume that the hardware switches units of this size, as in 64M, or `slice`
    #[arg(long, value_name = "SIZE|slice", requires = "profile")]
    granularity: Option<Size>,
    /// Where the daemon tells what it does
    #[arg(long, value_name = "FILE", default_value = governor::STATUS)]
    status_file: PathBuf,
}

/// What to sort slices by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// By physical address
    Address,
    /// Cheapest first; those that cannot be emptied last
    Price,
    /// Most used memory first
    Used,
    /// Off, in transition, empty, used
    State,
}

impl Sort {
    /// The one after it.
    fn next(self) -> Self {
        match self {
            Self::Address => Self::Price,
            Self::Price => Self::Used,
            Self::Used => Self::State,
            Self::State => Self::Address,
        }
    }

    /// Words for it.
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Price => "price",
            Self::Used => "used memory",
            Self::State => "state",
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let [shortest, longest] = PERIODS;
    if !(shortest..=longest).contains(&args.interval) {
        let message = format!("--interval {:?} is out of range: from 100ms to 1m", args.interval);
        return Err(UsageError(message).into());
    }
    let ledger = joules::Joules::new(args, context)?;
    let backend: Arc<dyn Backend> = context.backend()?.into();
    let mut looker = Looker::new(Arc::clone(&backend));
    let live = !args.once && context.screen.tty && !context.json() && !dumb();
    // Nothing handles signals yet: they end it.
    let progress = Progress::new(!live, HINT);
    let seen = looker.look(|| {
        progress.show(|time| format!("the first look at all memory: {} s so far", time.as_secs()));
        true
    });
    progress.clear();
    let Some(seen) = seen? else { return Ok(Exit::Ok) };
    let mut top = Top::new(seen?, args, context.saved().is_some(), context.screen, ledger);
    if args.once {
        print::once(&mut top, &*backend, context, out)?;
    } else if live {
        screen::run(top, looker)?;
    } else {
        print::lines(&mut top, &*backend, &mut looker, args.count, context.json(), out)?;
    }
    Ok(Exit::Ok)
}

/// Whether the terminal has no cursor to move.
fn dumb() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}
