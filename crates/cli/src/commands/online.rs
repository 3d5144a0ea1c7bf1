//! `ramslice online`: switch slices on again.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{Op, Request, SliceRanges, SliceState};

use super::end::End;
use super::outcome::{each, resolve};
use crate::context::Context;
use crate::exit::Exit;

const HELP: &str = "\
You need not: the kernel wakes slices by itself when memory is wanted. Waking ahead of a known peak \
spares its first allocations the wait.

Examples:
  ramslice online 64-71                these, in this order
  ramslice online --count 4 --end high the four highest that are off
  ramslice online --all                everything, as before changing the slice size";

/// Switch slices on again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Slices by id: 12, 3-7 or 3-7,12
    #[arg(value_name = "SLICE", required_unless_present_any = ["all", "count"])]
    slices: Vec<SliceRanges>,
    /// All slices that are off, held ones, too
    #[arg(long, conflicts_with = "slices")]
    all: bool,
    /// So many slices, by address from one end of memory
    #[arg(long, value_name = "N", conflicts_with_all = ["slices", "all"],
          value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// The end where --count begins
    #[arg(long, value_name = "END", default_value = "low", requires = "count",
          conflicts_with_all = ["slices", "all"])]
    end: End,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let backend = context.backend()?;
    let requests = if args.all {
        vec![(None, Request { hold: true, ..Request::new(Op::OnlineAll) })]
    } else {
        let slices = backend.snapshot()?.slices;
        let ids = match args.count {
            Some(_) => {
                // On a stock kernel, what is away was taken by somebody else: only who names it gets it.
                let stock = backend.info()?.is_stock();
                args.end.order(&slices, |slice| slice.state == SliceState::Offline && !(stock && slice.held))
            }
            None => resolve(&args.slices, &slices)?,
        };
        ids.into_iter().map(|id| (Some(id), Request::new(Op::Online(id)))).collect()
    };
    each(context, out, ("online", "online"), backend.as_ref(), &requests, args.count)
}
