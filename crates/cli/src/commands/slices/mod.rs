//! `ramslice slices`: a row per slice.

mod columns;

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;
use ramslice_backend::{KernelPaths, MemOffline, mem_offline};
use ramslice_types::{
    BackendInfo, Bytes, Interleave, MachineState, NodeId, PageComposition, Pages, Segment, Slice,
    SliceState, parse_bytes,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::render::{OutputStyle, TextTable};
use crate::request_report::{check_node, zone_number};

use columns::{ColumnList, SliceRow, ValueStyle, output_help};

const HELP: &str = "\
Sizes are MiB. The price is what emptying a slice is expected to cost, in units of 100 CPU cycles; \
without one (`inf`), the slice cannot be emptied for the reason shown.

Examples:
  ramslice slices --sort price --limit 10      the ten that compact would empty first
  ramslice slices --state online --zone Normal
  ramslice slices --resize 256MiB              larger slices, while none is off
  ramslice slices -o +held,retry               two more columns
  ramslice slices -nbr -o slice,free | awk '$2 > 32 * 2^20 { print $1 }'
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
    /// Columns to print, by name and separated by commas; +NAME adds to the default
    #[arg(
        short,
        long,
        value_name = "COLUMNS",
        long_help = output_help()
    )]
    output: Option<ColumnList>,
    /// Print no header
    #[arg(short, long)]
    no_header: bool,
    /// Print sizes in bytes
    #[arg(short, long)]
    bytes: bool,
    /// For awk and cut: columns with one blank between, values without blanks and with all digits,
    /// `-` for none
    #[arg(short, long)]
    raw: bool,
}

impl SlicesArgs {
    /// An option that is for the table alone, if there is one.
    fn table_option(&self) -> Option<&'static str> {
        let options = [
            ("--output", self.output.is_some()),
            ("--no-header", self.no_header),
            ("--bytes", self.bytes),
            ("--raw", self.raw),
        ];
        options.into_iter().find_map(|(name, is_there)| is_there.then_some(name))
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    interleave: Option<Interleave>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    segments: &'a [Segment],
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
    // Clap sees no conflict with a --json before the command.
    if context.json()
        && let Some(option) = args.table_option()
    {
        let message = format!("{option} cannot be used with --json, which has every figure");
        return Err(UsageError(message).into());
    }
    let backend = context.backend()?;
    if let Some(size) = args.resize {
        let before = backend.info()?;
        backend.set_slice_bytes(size)?;
        // Not where a program reads rows.
        if !(context.json() || args.raw || args.no_header) {
            writeln!(out, "{}", resized(&before, &backend.info()?))?;
        }
    }
    let machine = backend.machine()?;
    let slices = select(args, &machine)?;
    let frames = machine.info.slice_pages();
    if context.json() {
        let slices = slices.into_iter().map(|slice| RowBody {
            slice,
            zone_name: machine.zone_name(slice),
            start_bytes: machine.info.extents(slice.id).start,
            composition: slice.composition(frames),
        });
        let body = SlicesDocument {
            page_bytes: machine.info.page_bytes,
            slice_bytes: machine.info.slice_bytes,
            interleave: machine.info.interleave,
            segments: &machine.info.segments,
            event_seq: machine.snapshot.event_seq,
            slices: slices.collect(),
        };
        write_json(out, "slices", body)?;
    } else {
        // A saved machine has no driver, and no column of the default asks for one.
        let is_live = context.source_path().is_none() && machine.info.is_stock();
        let is_live = is_live && args.output.is_some();
        let driver = if is_live { mem_offline(&KernelPaths::system())? } else { None };
        table(args, &machine, driver.as_ref(), &slices, out, &context.screen)?;
    }
    Ok(ExitStatus::Ok)
}

fn select<'a>(args: &SlicesArgs, machine: &'a MachineState) -> Result<Vec<&'a Slice>> {
    let node = args.node.map(NodeId);
    if let Some(node) = node {
        check_node(&machine.zones, node)?;
    }
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

fn table(
    args: &SlicesArgs,
    machine: &MachineState,
    driver: Option<&MemOffline>,
    slices: &[&Slice],
    out: &mut dyn Write,
    screen: &OutputStyle,
) -> Result<()> {
    let ColumnList(columns) = args.output.clone().unwrap_or_default();
    let style = ValueStyle { bytes: args.bytes, raw: args.raw, unicode: screen.unicode };
    let rows = slices.iter().map(|slice| {
        let row = SliceRow::new(machine, slice, driver);
        columns.iter().map(|column| column.cell(&row, style)).collect::<Vec<String>>()
    });
    let titles = columns.iter().map(|column| (column.title(style), column.align()));
    if args.raw {
        if !args.no_header {
            let titles: Vec<_> = titles.map(|(title, _)| title).collect();
            writeln!(out, "{}", titles.join(" "))?;
        }
        for row in rows {
            writeln!(out, "{}", row.join(" "))?;
        }
        return Ok(());
    }
    let mut table = TextTable::new(&titles.collect::<Vec<_>>());
    rows.for_each(|row| table.row(row));
    if args.no_header {
        table = table.without_header();
    }
    Ok(table.write(out, screen)?)
}

/// What `--resize` changed, in a line.
fn resized(before: &BackendInfo, after: &BackendInfo) -> String {
    let (old, new) = (before.slice_bytes, after.slice_bytes);
    if old == new {
        return format!("{} slices, which have {new} already: nothing changed", after.nr_slices);
    }
    let (many, few) = (before.nr_slices, after.nr_slices);
    format!("{few} slices of {new} now; before, {many} of {old}")
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

    #[test]
    fn a_new_size_is_reported_with_the_old_one() {
        let slices = |nr_slices, mib: u64| {
            let document = serde_json::json!({
                "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
                "slice_bytes": mib << 20, "chunk_bytes": 4 << 20, "nr_slices": nr_slices,
                "nr_zones": 1, "event_seq": 0, "managed_pages": 0, "free_pages": 0,
                "offline_pages": 0, "quarantined_pages": 0, "power_driver": "none",
            });
            serde_json::from_value::<BackendInfo>(document).unwrap()
        };
        let (small, large) = (slices(64, 64), slices(16, 256));
        assert_eq!(resized(&small, &large), "16 slices of 256 MiB now; before, 64 of 64 MiB");
        assert_eq!(
            resized(&large, &large),
            "16 slices, which have 256 MiB already: nothing changed"
        );
    }
}
