//! `ramslice status`: the machine on one screen.

use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use anyhow::Result;
use ramslice_types::{
    Backend, BufferBooks, Bytes, ContentsDetail, MachineState, Reason, SliceContents, SliceRanges,
    SliceSizes, SliceState, SliceTotals,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::daemon_takers::{DaemonTakers, STATUS};
use crate::exit::ExitStatus;
use crate::render::{ColumnAlign, OutputStyle, ScreenCell, TextTable, bar, fill, legend};
use crate::request_report::resolve;

const HELP: &str = "\
c is offline / (free + offline): the part of free memory that is switched off. The awake reserve \
is memory that a zone never switches off, so that allocations need not wait for a slice to wake.

Examples:
  ramslice status
  ramslice status --json > now.json        save everything, slices included
  ramslice status --json --pages stuck > now.json
                                           the pages of slices that stay on as well, for `explain`
  ramslice status --from now.json          look at it again, anywhere";

/// Sum up memory, slices and zones.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct StatusArgs {
    /// Save what slices hold, page by page: `all`, `stuck`, or slices as in 3-7,12
    #[arg(
        long,
        value_name = "SLICES",
        requires = "json",
        long_help = "With --json, save what slices hold, page by page, for `ramslice explain \
                     --from` and `ramslice map SLICE --from`: `all` that are online, those that \
                     are `stuck` (online and not to be emptied), or slices as in 3-7,12. Root \
                     only. A few hundred bytes for each run of pages that are alike"
    )]
    pages: Option<PageSelection>,
}

/// Slices whose pages are saved.
#[derive(Debug, Clone)]
enum PageSelection {
    All,
    Stuck,
    Named(SliceRanges),
}

impl FromStr for PageSelection {
    type Err = <SliceRanges as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "all" => Self::All,
            "stuck" => Self::Stuck,
            ranges => Self::Named(ranges.parse()?),
        })
    }
}

/// The pages of the slices that `which` names.
fn contents(
    backend: &dyn Backend,
    machine: &MachineState,
    which: &PageSelection,
) -> Result<Vec<SliceContents>> {
    let mut found = Vec::new();
    let named = match which {
        PageSelection::Named(ranges) => {
            resolve(std::slice::from_ref(ranges), &machine.snapshot.slices)?
        }
        _ => Vec::new(),
    };
    for slice in &machine.snapshot.slices {
        let wanted = match which {
            PageSelection::All | PageSelection::Stuck => slice.state == SliceState::Online,
            PageSelection::Named(_) => named.contains(&slice.id),
        };
        if !wanted {
            continue;
        }
        let mut contents = backend.contents(slice.id, ContentsDetail::default())?;
        let stuck = contents.blocking().next().is_some();
        if matches!(which, PageSelection::Stuck) && !stuck {
            continue;
        }
        // Who allocated them is worth its time for what stays, or for what was asked for by name.
        if stuck || matches!(which, PageSelection::Named(_)) {
            contents = backend
                .contents(slice.id, ContentsDetail { sites: true, ..ContentsDetail::default() })?;
        }
        found.push(contents);
    }
    Ok(found)
}

#[derive(Serialize)]
struct StatusDocument {
    #[serde(flatten)]
    machine: MachineDocument,
    census: SliceTotals,
    #[serde(skip_serializing_if = "Option::is_none")]
    takers: Option<MemoryTakers>,
}

/// Who has memory in one piece, beside slices that are off.
#[derive(Debug, Serialize)]
struct MemoryTakers {
    /// Contiguous buffers; absent if the kernel has none to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers: Option<BufferBooks>,
    /// The pools of huge pages that are not empty.
    huge_pages: Vec<HugeTaker>,
    /// What ramsliced decides; absent while it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<DaemonTakers>,
}

#[derive(Debug, Serialize)]
struct HugeTaker {
    page_bytes: Bytes,
    total: u64,
    /// In no use, and promised to no program: could be given back.
    unused: u64,
}

impl MemoryTakers {
    fn read(backend: &dyn Backend) -> Result<Self> {
        let pools = backend.huge_page_pools(None)?;
        let taken = pools.iter().filter(|pool| pool.total > 0);
        Ok(Self {
            buffers: backend.buffer_books()?,
            huge_pages: taken
                .map(|pool| HugeTaker {
                    page_bytes: pool.page,
                    total: pool.total,
                    unused: pool.unused(),
                })
                .collect(),
            daemon: DaemonTakers::read(Path::new(STATUS)),
        })
    }

    /// Absent if none has any, and none was refused.
    fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(books) = self.buffers.filter(|books| books.nr + books.nr_refused > 0) {
            let plural = if books.nr == 1 { "" } else { "s" };
            let mut words = format!("{} in {} buffer{plural}", books.bytes, books.nr);
            if books.nr_refused > 0 {
                words.push_str(&format!(
                    " ({} refused, the last: {})",
                    books.nr_refused, books.last_refusal
                ));
            }
            parts.push(words);
        }
        for pool in &self.huge_pages {
            parts.push(format!(
                "{} huge pages of {} ({} unused)",
                pool.total, pool.page_bytes, pool.unused
            ));
        }
        (!parts.is_empty()).then(|| format!("in one piece: {}", parts.join(", ")))
    }
}

/// A [`MachineState`] without its `schema_version`, which heads the document already.
#[derive(Serialize)]
struct MachineDocument {
    info: ramslice_types::BackendInfo,
    offline_ratio: f64,
    zones: Vec<ramslice_types::Zone>,
    price_parameters_100cycles:
        std::collections::BTreeMap<ramslice_types::PriceParameter, ramslice_types::Price>,
    snapshot: ramslice_types::SliceSnapshot,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contents: Vec<SliceContents>,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(args: &StatusArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let mut machine = backend.machine()?;
    if let Some(which) = &args.pages {
        machine.contents = contents(&*backend, &machine, which)?;
    }
    let census = SliceTotals::of(&machine.snapshot.slices, machine.info.slice_pages());
    let takers = match context.source_path() {
        Some(_) => None,
        None => Some(MemoryTakers::read(&*backend)?),
    };
    if context.json() {
        let machine = MachineDocument {
            offline_ratio: machine.info.offline_ratio(),
            info: machine.info,
            zones: machine.zones,
            price_parameters_100cycles: machine.price_parameters,
            snapshot: machine.snapshot,
            contents: machine.contents,
        };
        write_json(out, "status", StatusDocument { machine, census, takers })?;
        return Ok(ExitStatus::Ok);
    }
    let screen = &context.screen;
    for line in summary(&machine, &census, screen) {
        writeln!(out, "{line}")?;
    }
    for line in takers.iter().filter_map(MemoryTakers::line) {
        writeln!(out, "{line}")?;
    }
    let daemon = takers.as_ref().and_then(|takers| takers.daemon.as_ref());
    for words in daemon.into_iter().filter_map(DaemonTakers::words) {
        writeln!(out, "{}", fill(&words, usize::from(screen.width).clamp(20, 100), 2))?;
    }
    writeln!(out)?;
    zone_table(&machine).write(out, screen)?;
    Ok(ExitStatus::Ok)
}

/// The lines above the table.
fn summary(machine: &MachineState, census: &SliceTotals, screen: &OutputStyle) -> Vec<String> {
    let width = usize::from(screen.width).min(100);
    let page = machine.info.page_bytes;
    let mut lines = vec![headline(machine), totals(machine), slice_counts(census)];
    lines.extend(not_given(machine));
    lines.extend([String::new(), ScreenCell::line(screen, &bar(screen, &census.pages, width))]);
    lines.extend(
        legend(screen, &census.pages, page, width)
            .iter()
            .map(|line| ScreenCell::line(screen, line)),
    );
    lines
}

/// Why the memory above may be less than `MemTotal`.
pub(crate) fn not_given(machine: &MachineState) -> Option<String> {
    let slices = &machine.snapshot.slices;
    let count = slices.iter().filter(|slice| slice.reason == Reason::NotGiven).count();
    let hold = if count == 1 { "slice holds" } else { "slices hold" };
    (count > 0).then(|| {
        format!(
            "{count} {hold} memory that the allocator does not have yet (not-given): MemTotal may \
             count it, the memory above does not"
        )
    })
}

/// Size, slices, driver.
pub(crate) fn headline(machine: &MachineState) -> String {
    let info = &machine.info;
    format!(
        "{} in {} {}, power driver {}",
        info.managed_pages.bytes(info.page_bytes),
        machine.snapshot.slices.len(),
        SliceSizes(info),
        driver_words(&info.power_driver, info.is_stock()),
    )
}

/// The power driver in words: a stock kernel cannot say whether one listens to memory hotplug.
fn driver_words(name: &str, is_stock: bool) -> &str {
    match name {
        "none" => "none (nothing is saved)",
        _ if is_stock => "not visible",
        name => name,
    }
}

/// Used, free, offline, c.
pub(crate) fn totals(machine: &MachineState) -> String {
    let info = &machine.info;
    let bytes = |pages: ramslice_types::Pages| pages.bytes(info.page_bytes);
    let mut line = format!(
        "memory: {} used, {} free and awake, {} offline, c = {:.2}",
        bytes(info.used_pages()),
        bytes(info.free_pages),
        bytes(info.offline_pages),
        info.offline_ratio(),
    );
    if info.held_pages.0 > 0 {
        line.push_str(&format!(", {} held off", bytes(info.held_pages)));
    }
    if info.quarantined_pages.0 > 0 {
        line.push_str(&format!(", {} quarantined", bytes(info.quarantined_pages)));
    }
    line
}

/// Slices by state; states without slices are left out, but for online and offline.
pub(crate) fn slice_counts(census: &SliceTotals) -> String {
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
pub(crate) fn zone_table(machine: &MachineState) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_hotplug_is_no_power_driver() {
        assert_eq!(driver_words("memory-hotplug", true), "not visible");
        assert_eq!(driver_words("none", false), "none (nothing is saved)");
        assert_eq!(driver_words("report", false), "report");
    }

    #[test]
    fn buffers_and_pools_are_named_with_what_could_be_given_back() {
        let takers = MemoryTakers {
            buffers: Some(BufferBooks {
                nr: 2,
                bytes: Bytes(128 << 20),
                nr_refused: 3,
                last_refusal: Reason::OverLimit,
            }),
            huge_pages: vec![HugeTaker { page_bytes: Bytes(1 << 30), total: 4, unused: 1 }],
            daemon: None,
        };
        assert_eq!(
            takers.line().unwrap(),
            "in one piece: 128 MiB in 2 buffers (3 refused, the last: over-limit), \
             4 huge pages of 1 GiB (1 unused)"
        );
    }

    #[test]
    fn without_any_there_is_no_line() {
        let none =
            BufferBooks { nr: 0, bytes: Bytes(0), nr_refused: 0, last_refusal: Reason::None };
        let takers = MemoryTakers { buffers: Some(none), huge_pages: Vec::new(), daemon: None };
        assert_eq!(takers.line(), None);
    }
}
