//! `ramslice online`: switch slices on again.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{Op, Request, SliceRanges};

use super::outcome::{each, resolve};
use crate::context::Context;
use crate::exit::Exit;

const HELP: &str = "\
You need not: the kernel wakes slices by itself when memory is wanted. Waking ahead of a known peak \
spares its first allocations the wait.

Examples:
  ramslice online 64-71    these
  ramslice online --all    everything, as before changing the slice size";

/// Switch slices on again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Slices by id: 12, 3-7 or 3-7,12
    #[arg(value_name = "SLICE", required_unless_present = "all")]
    slices: Vec<SliceRanges>,
    /// All slices that are off
    #[arg(long, conflicts_with = "slices")]
    all: bool,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let backend = context.backend()?;
    let requests = if args.all {
        vec![(None, Request::new(Op::OnlineAll))]
    } else {
        let ids = resolve(&args.slices, &backend.snapshot()?.slices)?;
        ids.into_iter().map(|id| (Some(id), Request::new(Op::Online(id)))).collect()
    };
    each(context, out, ("online", "online"), backend.as_ref(), &requests)
}
