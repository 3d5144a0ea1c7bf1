//! `ramslice census`: what each slice holds by kind of page, and how far kernel pages are
//! scattered.

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use ramslice_types::{
    Bytes, CensusTotals, MachineState, NodeId, PageCensus, Pages, SECTION_BYTES, SliceCensus,
    ZoneCensus, parse_duration,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json, write_json_line};
use crate::exit::ExitStatus;
use crate::render::{ColumnAlign, TextTable};

const HELP: &str = "\
Looks at every page of every slice, which takes seconds on large machines. Columns are pages and \
add up to the slice, except the last two: `lru` are pages on the LRU lists, `stays` those of any \
kind that can neither be moved nor dropped. `cache` is page cache of files, `buffer` that of \
block devices.

Below the table: c, the part of free memory that is offline, and the best value it could have \
with as much memory in use (whole slices, and the awake reserve stays on); how many slices hold a \
page that stays, and how few slices could hold all of them; and how many memory sections of 128 \
MiB have no such page, so that hotplug could remove them. Where there are several zones, the same \
for each.

With --every, a line (or a JSON document) each time. Root only.

`ramslice-lab record --census` takes it while it records, and `ramslice-lab census --from` shows it.

Examples:
  ramslice census                             every slice, and the sums
  ramslice census --every 10s                 a line every ten seconds
  ramslice census --every 1s --count 60 --json > census.jsonl
  ramslice census --json | jq '.totals.slices_staying, .totals.slices_staying_least'";

/// Count the pages of each slice by kind, and how far kernel pages are scattered.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct CensusArgs {
    /// Take one after another, this far apart; of a recording, show those that are
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: Option<Duration>,
    /// End after this many; with --every
    #[arg(long, value_name = "N", requires = "every")]
    pub count: Option<u64>,
}

#[derive(Serialize)]
struct CensusDocument<'a> {
    monotonic_us: u64,
    page_bytes: Bytes,
    slice_bytes: Bytes,
    section_bytes: Bytes,
    totals: CensusTotals,
    zones: Vec<ZoneRow<'a>>,
    slices: &'a [SliceCensus],
}

#[derive(Serialize)]
struct ZoneRow<'a> {
    node: NodeId,
    name: &'a str,
    offline_ratio: f64,
    offline_ratio_bound: f64,
    #[serde(flatten)]
    census: &'a ZoneCensus,
}

impl<'a> CensusDocument<'a> {
    fn new(machine: &'a MachineState, census: &'a PageCensus) -> Self {
        let zone = |(zone, census): (&'a ramslice_types::Zone, &'a ZoneCensus)| ZoneRow {
            node: zone.node,
            name: &zone.name,
            offline_ratio: zone.offline_ratio(),
            offline_ratio_bound: census
                .offline_bound_pages
                .share_of(zone.free_pages + zone.offline_pages),
            census,
        };
        Self {
            monotonic_us: u64::try_from(machine.snapshot.time.as_micros()).unwrap_or(u64::MAX),
            page_bytes: machine.info.page_bytes,
            slice_bytes: machine.info.slice_bytes,
            section_bytes: SECTION_BYTES,
            totals: census.totals(machine),
            zones: machine.zones.iter().zip(&census.zones).map(zone).collect(),
            slices: &census.slices,
        }
    }

    /// The document, or the tables and sentences.
    fn write(&self, context: &CommandContext, out: &mut dyn Write) -> Result<()> {
        if context.json() {
            return write_json(out, "census", self);
        }
        table(self.slices).write(out, &context.screen)?;
        writeln!(out, "\n{}", sentences(&self.totals))?;
        if self.zones.len() > 1 {
            writeln!(out)?;
            zones(&self.zones).write(out, &context.screen)?;
        }
        Ok(())
    }

    /// A line.
    fn write_line(&self, context: &CommandContext, out: &mut dyn Write) -> Result<()> {
        if context.json() {
            write_json_line(out, "census", self)?;
        } else {
            let seconds = Duration::from_micros(self.monotonic_us).as_secs_f64();
            writeln!(out, "{seconds:.3} s: {}", line(&self.totals))?;
        }
        Ok(out.flush()?)
    }
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(args: &CensusArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let take = || -> Result<(MachineState, PageCensus)> {
        let machine = backend.machine()?;
        let census = PageCensus::take(&*backend, &machine, || anyhow::Ok(()))?;
        Ok((machine, census))
    };
    let Some(every) = args.every else {
        let (machine, census) = take()?;
        CensusDocument::new(&machine, &census).write(context, out)?;
        return Ok(ExitStatus::Ok);
    };
    let mut taken = 0;
    loop {
        let (machine, census) = take()?;
        CensusDocument::new(&machine, &census).write_line(context, out)?;
        taken += 1;
        if args.count.is_some_and(|count| taken >= count) {
            return Ok(ExitStatus::Ok);
        }
        sleep(every);
    }
}

/// Writes one census: the document, or the tables and sentences.
///
/// # Errors
/// What cannot be written.
pub fn write(
    machine: &MachineState,
    census: &PageCensus,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    CensusDocument::new(machine, census).write(context, out)
}

/// Writes one census of several, on a line.
///
/// # Errors
/// What cannot be written.
pub fn write_line(
    machine: &MachineState,
    census: &PageCensus,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    CensusDocument::new(machine, census).write_line(context, out)
}

fn table(rows: &[SliceCensus]) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("slice", Right),
        ("state", Left),
        ("free", Right),
        ("anon", Right),
        ("cache", Right),
        ("shmem", Right),
        ("swap", Right),
        ("buffer", Right),
        ("movable", Right),
        ("slab", Right),
        ("tables", Right),
        ("kernel", Right),
        ("lru", Right),
        ("stays", Right),
    ]);
    for row in rows {
        let mut cells = vec![row.slice.to_string(), row.state.to_string()];
        let counts = &row.pages;
        let pages: [Pages; 12] = [
            counts.free,
            counts.anonymous,
            counts.cache,
            counts.shmem,
            counts.swap_cache,
            counts.buffer,
            counts.other_movable,
            counts.slab,
            counts.page_table,
            counts.other_unmovable,
            counts.lru,
            counts.staying,
        ];
        cells.extend(pages.iter().map(|pages| pages.0.to_string()));
        table.row(cells);
    }
    table
}

fn zones(rows: &[ZoneRow<'_>]) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("node", Right),
        ("zone", Left),
        ("c", Right),
        ("at best", Right),
        ("slices with pages that stay", Right),
        ("at best", Right),
        ("sections", Right),
        ("removable", Right),
    ]);
    for row in rows {
        table.row(vec![
            row.node.to_string(),
            row.name.to_owned(),
            format!("{:.3}", row.offline_ratio),
            format!("{:.3}", row.offline_ratio_bound),
            row.census.staying_slices.to_string(),
            row.census.least_staying_slices.to_string(),
            row.census.sections.to_string(),
            row.census.removable_sections.to_string(),
        ]);
    }
    table
}

fn sentences(totals: &CensusTotals) -> String {
    let mut text = format!(
        "c = {:.3}, at best {:.3}\n{} slices hold pages that stay, at best {} ({} can never be \
         switched off)\n{} of {} memory sections of 128 MiB are removable",
        totals.offline_ratio,
        totals.offline_ratio_bound,
        totals.slices_staying,
        totals.slices_staying_least,
        totals.slices_unreclaimable,
        totals.sections_removable,
        totals.sections,
    );
    if totals.slices_unknown > 0 {
        text.push_str(&format!(
            "\npages of {} slices were not saved: not counted",
            totals.slices_unknown
        ));
    }
    text
}

fn line(totals: &CensusTotals) -> String {
    format!(
        "c {:.3} of {:.3}; staying pages in {} slices, at best {}; {} of {} sections removable",
        totals.offline_ratio,
        totals.offline_ratio_bound,
        totals.slices_staying,
        totals.slices_staying_least,
        totals.sections_removable,
        totals.sections,
    )
}
