//! `ramslice online`: switch slices on again.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{Request, RequestOp, Slice, SliceRanges, SliceState};

use crate::address_order::AddressOrder;
use crate::context::CommandContext;
use crate::exit::ExitStatus;
use crate::request_report::{report_each, resolve};

const HELP: &str = "\
The patched kernel wakes slices by itself when memory is wanted. Waking them before a known peak \
spares its first allocations the wait.

A stock kernel wakes nothing: use this command, `ramslice guard`, or `ramsliced` in mode on. \
Blocks there that another program took offline are woken if they are named, but not by --all or \
--count.

Examples:
  ramslice online 64-71                these, in this order
  ramslice online --count 4 --end high the four highest that are off
  ramslice online --all                everything, as before changing the slice size";

/// Switch slices on again.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = HELP,
    group = clap::ArgGroup::new("which").required(true).args(["slices", "all", "count"])
)]
pub(crate) struct OnlineArgs {
    /// Slices by id: 12, 3-7 or 3-7,12
    #[arg(value_name = "SLICE")]
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
    end: AddressOrder,
}

pub(crate) fn run(
    args: &OnlineArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let requests = if args.all {
        vec![(None, Request { hold: true, ..Request::new(RequestOp::OnlineAll) })]
    } else {
        let slices = backend.snapshot()?.slices;
        let ids = match args.count {
            Some(_) => {
                let stock = backend.info()?.is_stock();
                args.end.order(&slices, |slice| is_ours(slice, stock))
            }
            None => resolve(&args.slices, &slices)?,
        };
        ids.into_iter().map(|id| (Some(id), Request::new(RequestOp::Online(id)))).collect()
    };
    report_each(context, out, "online", backend.as_ref(), &requests, args.count)
}

/// Off, and not by another program: what is held on a stock kernel was taken by one, and
/// only who names it gets it.
fn is_ours(slice: &Slice, stock: bool) -> bool {
    slice.state == SliceState::Offline && !(stock && slice.held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_another_program_took_offline_are_woken_only_by_name() {
        let text = r#"{"id": 7, "state": "offline", "reason": "none", "unreclaimable": false,
            "backoff": false,
            "unmovable": false, "held": true, "node": 0, "zone": 1, "present_pages": 32768,
            "price_100cycles": 5000,
            "counters": {"free_pages": 0, "lru_anon_pages": 0, "lru_file_pages": 0,
            "anon_mapped_pages": 0,
            "file_mapped_pages": 0, "file_pages": 0, "shmem_pages": 0, "dirty_pages": 0,
            "writeback_pages": 0,
            "huge_pages": 0}, "retry_ms": 0}"#;
        let held: Slice = serde_json::from_str(text).unwrap();
        assert!(is_ours(&held, false) && !is_ours(&held, true));
        assert!(is_ours(&Slice { held: false, ..held.clone() }, true));
        assert!(!is_ours(&Slice { held: false, state: SliceState::Online, ..held }, true));
    }
}
