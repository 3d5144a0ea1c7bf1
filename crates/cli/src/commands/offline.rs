//! `ramslice offline`: empty chosen slices and switch them off.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use ramslice_types::{CacheChoice, Request, RequestOp, SliceRanges, parse_duration};

use crate::address_order::{AddressOrder, can_go_off, settled_slices};
use crate::context::CommandContext;
use crate::exit::ExitStatus;
use crate::request_report::{report_each, resolve};

const HELP: &str = "\
A slice is emptied whole or not at all: if that fails, its memory stays as it was, the line says \
why, and the exit status is 1. When memory is wanted, the kernel wakes slices again.

With --hold they stay offline until `ramslice online`, sleep or a restart: the machine has that \
much less memory, and processes may be killed for lack of it. With --count, slices that cannot be \
emptied are passed over, and the exit status is 1 if fewer than N went offline.

On a stock kernel nothing wakes by itself, as with --hold: run `ramslice guard` beside it. Page \
cache always moves there, whatever --cache says.

Examples:
  ramslice offline 12                      one slice
  ramslice offline 64-71,80 --deadline 5s  several, at most 5 s each
  ramslice offline 80,12,30                in this order
  ramslice offline --count 4 --end low     the four lowest that can be emptied
  ramslice offline --empty                 what is empty already: costs next to nothing
  ramslice offline --count 8 --hold        test a load with eight slices less";

/// Empty slices and switch them off.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = HELP,
    group = clap::ArgGroup::new("which").required(true).args(["slices", "empty", "count"])
)]
pub(crate) struct OfflineArgs {
    /// Slices by id: 12, 3-7 or 3-7,12
    #[arg(value_name = "SLICE")]
    slices: Vec<SliceRanges>,
    /// All slices that are empty already
    #[arg(long, conflicts_with = "slices")]
    empty: bool,
    /// So many slices, by address from one end of memory
    #[arg(long, value_name = "N", conflicts_with_all = ["slices", "empty"],
          value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// The end where --count begins
    #[arg(long, value_name = "END", default_value = "high", requires = "count",
          conflicts_with_all = ["slices", "empty"])]
    end: AddressOrder,
    /// What becomes of clean page cache: drop it, keep (move) it, or auto: keep what was used
    /// lately
    #[arg(long, value_name = "CHOICE", default_value_t)]
    cache: CacheChoice,
    /// Give up on a slice after this time [kernel's default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Try slices that failed lately, too
    #[arg(long)]
    ignore_backoff: bool,
    /// Keep them offline even when memory is wanted, slices that are offline already too
    #[arg(long)]
    hold: bool,
}

pub(crate) fn run(
    args: &OfflineArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let request = |op| Request {
        cache: args.cache,
        deadline: args.deadline,
        ignore_backoff: args.ignore_backoff,
        hold: args.hold,
        ..Request::new(op)
    };
    let requests = if args.empty {
        vec![(None, request(RequestOp::OfflineFree))]
    } else {
        let ids = match args.count {
            Some(_) => args.end.order(&settled_slices(backend.as_ref())?, |slice| {
                can_go_off(slice, args.ignore_backoff)
            }),
            None => resolve(&args.slices, &backend.snapshot()?.slices)?,
        };
        ids.into_iter().map(|id| (Some(id), request(RequestOp::Offline(id)))).collect()
    };
    report_each(context, out, "offline", backend.as_ref(), &requests, args.count)
}
