//! `ramslice status`: the machine on one screen.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{Census, Machine, SliceState};
use serde::Serialize;

use crate::context::{Context, write_json};
use crate::exit::Exit;
use crate::render::{Align, Glyph, Screen, Table, bar, legend};

const HELP: &str = "\
c is offline / (free + offline): the part of free memory that is switched off. The awake reserve is \
what a zone never switches off, so that allocations do not wait for a slice to wake.

Examples:
  ramslice status
  ramslice status --json > now.json        save everything, slices included
  ramslice status --from now.json          look at it again, anywhere";

/// Sum up memory, slices and zones.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    machine: Flat,
    census: Census,
}

/// A [`Machine`] without its `schema_version`, which heads the document already.
#[derive(Serialize)]
struct Flat {
    info: ramslice_types::Info,
    offline_ratio: f64,
    zones: Vec<ramslice_types::Zone>,
    price_parameters_100cycles:
        std::collections::BTreeMap<ramslice_types::PriceParameter, ramslice_types::Price>,
    snapshot: ramslice_types::Snapshot,
}

pub(crate) fn run(_args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let machine = context.backend()?.machine()?;
    let census = Census::of(&machine.snapshot.slices, machine.info.slice_pages());
    if context.json() {
        let machine = Flat {
            offline_ratio: machine.info.offline_ratio(),
            info: machine.info,
            zones: machine.zones,
            price_parameters_100cycles: machine.price_parameters,
            snapshot: machine.snapshot,
        };
        write_json(out, "status", Body { machine, census })?;
        return Ok(Exit::Ok);
    }
    let screen = &context.screen;
    for line in summary(&machine, &census, screen) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    zone_table(&machine).write(out, screen)?;
    Ok(Exit::Ok)
}

/// The lines above the table.
fn summary(machine: &Machine, census: &Census, screen: &Screen) -> Vec<String> {
    let width = usize::from(screen.width).min(100);
    let page = machine.info.page_bytes;
    let mut lines = vec![
        headline(machine),
        totals(machine),
        slice_counts(census),
        String::new(),
        Glyph::line(screen, &bar(screen, &census.pages, width)),
    ];
    lines.extend(legend(screen, &census.pages, page, width).iter().map(|line| Glyph::line(screen, line)));
    lines
}

/// Size, slices, driver.
pub(crate) fn headline(machine: &Machine) -> String {
    let info = &machine.info;
    format!(
        "{} in {} slices of {}, power driver {}",
        info.managed_pages.bytes(info.page_bytes),
        machine.snapshot.slices.len(),
        info.slice_bytes,
        if info.power_driver == "none" { "none (nothing is saved)" } else { &info.power_driver },
    )
}

/// Used, free, offline, c.
pub(crate) fn totals(machine: &Machine) -> String {
    let info = &machine.info;
    let bytes = |pages: ramslice_types::Pages| pages.bytes(info.page_bytes);
    let mut line = format!(
        "memory: {} used, {} free and awake, {} offline, c = {:.2}",
        bytes(info.used_pages()),
        bytes(info.free_pages),
        bytes(info.offline_pages),
        info.offline_ratio(),
    );
    if info.quarantined_pages.0 > 0 {
        line.push_str(&format!(", {} quarantined", bytes(info.quarantined_pages)));
    }
    line
}

/// Slices by state; states without slices are left out, but for online and offline.
pub(crate) fn slice_counts(census: &Census) -> String {
    let mut parts = Vec::new();
    for count in &census.states {
        let always = matches!(count.state, SliceState::Online | SliceState::Offline);
        if always || count.slices > 0 {
            parts.push(format!("{} {}", count.slices, count.state));
        }
    }
    format!(
        "slices: {} ({} empty, {} can never be emptied)",
        parts.join(", "),
        census.empty_slices,
        census.unreclaimable_slices
    )
}

/// A row per zone.
pub(crate) fn zone_table(machine: &Machine) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("node", Right),
        ("zone", Left),
        ("slices", Right),
        ("empty", Right),
        ("offline", Right),
        ("memory", Right),
        ("free", Right),
        ("offline", Right),
        ("awake reserve", Right),
        ("c", Right),
        ("woken", Right),
    ]);
    for zone in &machine.zones {
        let bytes = |pages: ramslice_types::Pages| pages.bytes(machine.info.page_bytes).to_string();
        table.row(vec![
            zone.node.to_string(),
            zone.name.clone(),
            zone.nr_slices.to_string(),
            zone.nr_empty.to_string(),
            zone.nr_offline.to_string(),
            bytes(zone.managed_pages),
            bytes(zone.free_pages),
            bytes(zone.offline_pages),
            bytes(zone.awake_reserve_pages),
            format!("{:.2}", zone.offline_ratio()),
            zone.woken_by_demand.to_string(),
        ]);
    }
    table
}
