//! `ramslice slices`: a row per slice.

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;
use ramslice_types::{
    Bytes, MachineState, NodeId, PageComposition, Pages, Slice, SliceState, parse_bytes,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::render::{ColumnAlign, TextTable};
use crate::request_report::zone_number;

const HELP: &str = "\
Sizes are MiB. The price is what emptying a slice is expected to cost, in units of 100 CPU cycles; \
without one (`inf`), the slice cannot be emptied for the reason shown.

Examples:
  ramslice slices --sort price --limit 10      the ten that compact would empty first
  ramslice slices --state online --zone Normal
  ramslice slices --resize 256MiB              larger slices, while none is off
  ramslice slices --json | jq '.slices[] | select(.reason == \"slab\").id'";

/// List the slices.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct SlicesArgs {
    /// Only slices in this state: online, emptying, offline, waking or quarantined
    #[arg(long, value_name = "STATE")]
    state: Option<SliceState>,
    /// Only slices of this zone, by its name
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Only slices of this NUMA node
    #[arg(long, value_name = "NODE")]
    node: Option<i32>,
    /// What to sort by
    #[arg(long, value_name = "KEY", default_value = "id")]
    sort: SliceSort,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// First make slices this large: a multiple of the pageblock, or of the memory block on a stock
    /// kernel
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    resize: Option<Bytes>,
}

/// What to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SliceSort {
    /// By physical address
    Id,
    /// Cheapest first; those that cannot be emptied last
    Price,
    /// Most free memory first
    Free,
}

#[derive(Serialize)]
struct SlicesDocument<'a> {
    page_bytes: Bytes,
    slice_bytes: Bytes,
    event_seq: u64,
    slices: Vec<RowBody<'a>>,
}

#[derive(Serialize)]
struct RowBody<'a> {
    #[serde(flatten)]
    slice: &'a Slice,
    zone_name: String,
    start_bytes: u64,
    composition: PageComposition,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(args: &SlicesArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    let backend = context.backend()?;
    if let Some(size) = args.resize {
        backend.set_slice_bytes(size)?;
    }
    let machine = backend.machine()?;
    let slices = select(args, &machine)?;
    let frames = machine.info.slice_pages();
    if context.json() {
        let slices = slices.into_iter().map(|slice| RowBody {
            slice,
            zone_name: machine.zone_name(slice),
            start_bytes: slice.addresses(machine.info.slice_bytes).start,
            composition: slice.composition(frames),
        });
        let body = SlicesDocument {
            page_bytes: machine.info.page_bytes,
            slice_bytes: machine.info.slice_bytes,
            event_seq: machine.snapshot.event_seq,
            slices: slices.collect(),
        };
        write_json(out, "slices", body)?;
    } else {
        table(&machine, &slices, context.screen.unicode).write(out, &context.screen)?;
    }
    Ok(ExitStatus::Ok)
}

fn select<'a>(args: &SlicesArgs, machine: &'a MachineState) -> Result<Vec<&'a Slice>> {
    let node = args.node.map(NodeId);
    let zone =
        args.zone.as_deref().map(|name| zone_number(&machine.zones, node, name)).transpose()?;
    let mut slices: Vec<&Slice> = machine
        .snapshot
        .slices
        .iter()
        .filter(|slice| args.state.is_none_or(|state| state == slice.state))
        .filter(|slice| node.is_none_or(|node| node == slice.node))
        .filter(|slice| zone.is_none_or(|zone| zone == slice.zone))
        .collect();
    match args.sort {
        SliceSort::Id => slices.sort_by_key(|slice| slice.id),
        SliceSort::Price => {
            slices.sort_by_key(|slice| (slice.finite_price().is_none(), slice.price, slice.id));
        }
        SliceSort::Free => {
            slices.sort_by_key(|slice| (std::cmp::Reverse(slice.counters.free), slice.id));
        }
    }
    slices.truncate(args.limit.unwrap_or(usize::MAX));
    Ok(slices)
}

fn table(machine: &MachineState, slices: &[&Slice], unicode: bool) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("slice", Right),
        ("physical address", Left),
        ("node", Right),
        ("zone", Left),
        ("state", Left),
        ("price", Right),
        ("free", Right),
        ("freeable", Right),
        ("movable", Right),
        ("unmovable", Right),
        ("reason", Left),
    ]);
    for slice in slices {
        let parts = slice.composition(machine.info.slice_pages());
        let addresses = slice.addresses(machine.info.slice_bytes);
        let known = matches!(slice.state, SliceState::Online | SliceState::Emptying);
        let size =
            |pages: Pages| if known { mib(pages, machine.info.page_bytes) } else { "-".to_owned() };
        let price = match slice.finite_price() {
            _ if slice.state != SliceState::Online => "-".to_owned(),
            Some(price) => price.to_string(),
            None if unicode => "∞".to_owned(),
            None => "inf".to_owned(),
        };
        table.row(vec![
            slice.id.to_string(),
            format!("{:010x}-{:010x}", addresses.start, addresses.end.saturating_sub(1)),
            slice.node.to_string(),
            machine.zone_name(slice),
            slice.state.to_string(),
            price,
            size(parts.free),
            size(parts.freeable),
            size(parts.movable),
            size(parts.unmovable),
            reason(slice),
        ]);
    }
    table
}

/// MiB; what is there is never shown as 0.
pub(super) fn mib(pages: Pages, page_bytes: Bytes) -> String {
    let bytes = pages.bytes(page_bytes).0 as f64;
    let mib = bytes / Bytes::MIB.0 as f64;
    match mib {
        v if v > 0.0 && v < 0.05 => "<0.1".to_owned(),
        v if v.fract() == 0.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

fn reason(slice: &Slice) -> String {
    let code = if slice.reason == ramslice_types::Reason::None {
        String::new()
    } else {
        slice.reason.code()
    };
    if slice.backoff {
        return format!("{code}, retry in {} s", slice.retry_ms.div_ceil(1000));
    }
    if slice.unreclaimable && !code.is_empty() { format!("{code}, for good") } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_not_shown_as_nothing() {
        let page = Bytes(4096);
        assert_eq!(mib(Pages(0), page), "0");
        assert_eq!(mib(Pages(1), page), "<0.1");
        assert_eq!(mib(Pages(256), page), "1");
        assert_eq!(mib(Pages(300), page), "1.2");
    }
}
