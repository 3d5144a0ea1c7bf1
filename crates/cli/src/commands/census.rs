//! `ramslice census`: what each slice holds by kind of page, and how far kernel pages are scattered.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use ramslice_types::{
    Backend, Contents, Detail, ErrorKind, Fate, Machine, PageClass, PageFlag, PageRun, Pages, Slice, SliceId,
    SliceState, parse_duration,
};
use serde::Serialize;

use crate::context::{Context, write_json, write_json_line};
use crate::exit::Exit;
use crate::render::{Align, Table};

/// The kernel's unit of memory hotplug on x86-64; removable ones are counted, as in the papers.
const SECTION_BYTES: u64 = 128 << 20;

const HELP: &str = "\
Every page of every slice is looked at, so this takes a moment on large machines. Columns are pages and add \
up to the slice, but for the last two: `lru` are those on the LRU lists, `stays` those that can neither be \
moved nor dropped, of whatever kind. `cache` is page cache of files, `buffer` that of block devices.

Below the table: c, the part of free memory that is off, and what it could be at best with as much in use \
(whole slices, and the awake reserve stays on); slices that hold a page that stays, and how few could hold \
them all: those that boot keeps on anyway, and as many more as are needed; and memory sections of 128 MiB \
without such a page, which hotplug could remove.

With --every, a line (or a JSON document) each time. Root only.

Examples:
  ramslice census                             every slice, and the sums
  ramslice census --every 10s                 how it goes on, a line each time
  ramslice census --every 1s --count 60 --json > census.jsonl
  ramslice census --json | jq '.totals.slices_staying, .totals.slices_staying_least'";

/// Count the pages of each slice by kind, and how far kernel pages are scattered.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Take it again and again, this far apart
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    /// End after this many; with --every
    #[arg(long, value_name = "N", requires = "every")]
    count: Option<u64>,
}

/// Pages of a slice. Those before `lru` add up to its page frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Row {
    slice: SliceId,
    state: SliceState,
    free_pages: Pages,
    anonymous_pages: Pages,
    cache_pages: Pages,
    shmem_pages: Pages,
    swap_cache_pages: Pages,
    buffer_pages: Pages,
    /// zsmalloc, balloon, hugetlb pool.
    other_movable_pages: Pages,
    slab_pages: Pages,
    page_table_pages: Pages,
    other_unmovable_pages: Pages,
    /// In a slice that is off, or no memory.
    off_pages: Pages,
    lru_pages: Pages,
    staying_pages: Pages,
}

#[derive(Debug, PartialEq, Serialize)]
struct Totals {
    /// c = offline / (free + offline).
    offline_ratio: f64,
    /// The most that it could be with as much in use.
    offline_ratio_bound: f64,
    /// Slices that hold a page that stays, or can never be switched off.
    slices_staying: u64,
    slices_staying_least: u64,
    /// Of `slices_staying`: they can never be switched off.
    slices_unreclaimable: u64,
    /// Slices whose pages were not saved.
    slices_unknown: u64,
    staying_pages: Pages,
    sections: u64,
    sections_removable: u64,
}

#[derive(Serialize)]
struct Body {
    monotonic_us: u64,
    page_bytes: ramslice_types::Bytes,
    slice_bytes: ramslice_types::Bytes,
    section_bytes: u64,
    totals: Totals,
    slices: Vec<Row>,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let backend = context.backend()?;
    let Some(every) = args.every else {
        let body = take(&*backend)?;
        if context.json() {
            write_json(out, "census", body)?;
        } else {
            table(&body.slices).write(out, &context.screen)?;
            writeln!(out, "\n{}", sentences(&body.totals))?;
        }
        return Ok(Exit::Ok);
    };
    let mut taken = 0;
    loop {
        let body = take(&*backend)?;
        if context.json() {
            write_json_line(out, "census", body)?;
        } else {
            let seconds = Duration::from_micros(body.monotonic_us).as_secs_f64();
            writeln!(out, "{seconds:.3} s: {}", line(&body.totals))?;
        }
        out.flush()?;
        taken += 1;
        if args.count.is_some_and(|count| taken >= count) {
            return Ok(Exit::Ok);
        }
        sleep(every);
    }
}

/// Looks at every page of the machine.
fn take(backend: &dyn Backend) -> Result<Body> {
    let machine = backend.machine()?;
    let mut rows = Vec::new();
    let mut sections = BTreeMap::new();
    let mut unknown = 0;
    for slice in &machine.snapshot.slices {
        match backend.contents(slice.id, Detail::default()) {
            Ok(contents) => {
                rows.push(row(slice, &contents));
                let in_section = (SECTION_BYTES / machine.info.page_bytes.0).max(1);
                contents.runs.iter().for_each(|run| add_sections(&mut sections, run, in_section));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => unknown += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Body {
        monotonic_us: u64::try_from(machine.snapshot.time.as_micros()).unwrap_or(u64::MAX),
        page_bytes: machine.info.page_bytes,
        slice_bytes: machine.info.slice_bytes,
        section_bytes: SECTION_BYTES,
        totals: totals(&machine, &rows, &sections, unknown),
        slices: rows,
    })
}

fn row(slice: &Slice, contents: &Contents) -> Row {
    let mut row = Row { slice: slice.id, state: contents.state, ..Row::default() };
    for run in &contents.runs {
        let kind = match run.class {
            PageClass::Free | PageClass::Transit => &mut row.free_pages,
            PageClass::Anonymous => &mut row.anonymous_pages,
            PageClass::File if run.file.is_some_and(|file| file.inode == 0) => &mut row.buffer_pages,
            PageClass::File => &mut row.cache_pages,
            PageClass::Shmem => &mut row.shmem_pages,
            PageClass::SwapCache => &mut row.swap_cache_pages,
            PageClass::MovableOps | PageClass::Hugetlb => &mut row.other_movable_pages,
            PageClass::Slab => &mut row.slab_pages,
            PageClass::PageTable => &mut row.page_table_pages,
            PageClass::Kernel | PageClass::Reserved | PageClass::HwPoison | PageClass::Foreign => {
                &mut row.other_unmovable_pages
            }
            PageClass::Hole | PageClass::Off => &mut row.off_pages,
        };
        *kind += run.pages;
        if run.flags.has(PageFlag::Lru) {
            row.lru_pages += run.pages;
        }
        if run.fate() == Fate::Stays {
            row.staying_pages += run.pages;
        }
    }
    row
}

/// Notes of each memory section with memory whether a page of it stays.
fn add_sections(sections: &mut BTreeMap<u64, bool>, run: &PageRun, in_section: u64) {
    if run.class == PageClass::Hole || run.pages == Pages::ZERO {
        return;
    }
    for section in run.pfn.0 / in_section..=(run.end().0 - 1) / in_section {
        *sections.entry(section).or_insert(false) |= run.fate() == Fate::Stays;
    }
}

fn totals(machine: &Machine, rows: &[Row], sections: &BTreeMap<u64, bool>, unknown: u64) -> Totals {
    let frames = machine.info.slice_pages();
    let fixed = |row: &Row| {
        let of = machine.snapshot.slices.iter().find(|slice| slice.id == row.slice);
        of.is_some_and(|slice| slice.unreclaimable)
    };
    let (always, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| fixed(row));
    let staying = |rows: &[&Row]| rows.iter().map(|row| row.staying_pages).sum::<Pages>();
    let with_staying = others.iter().filter(|row| row.staying_pages > Pages::ZERO).count();
    Totals {
        offline_ratio: machine.info.offline_ratio(),
        offline_ratio_bound: bound(machine),
        slices_staying: (always.len() + with_staying) as u64,
        slices_staying_least: least(frames, always.len() as u64, staying(&always), staying(&others)),
        slices_unreclaimable: always.len() as u64,
        slices_unknown: unknown,
        staying_pages: staying(&always) + staying(&others),
        sections: sections.len() as u64,
        sections_removable: sections.values().filter(|&&stays| !stays).count() as u64,
    }
}

/// The fewest slices for pages that stay: `fixed` ones stay on anyway and hold `there`; `elsewhere` fits into
/// what room they have, or needs more slices of so many `frames`.
fn least(frames: Pages, fixed: u64, there: Pages, elsewhere: Pages) -> u64 {
    let room = (frames * fixed).saturating_sub(there);
    fixed + elsewhere.saturating_sub(room).0.div_ceil(frames.0.max(1))
}

/// Free memory beyond the awake reserve, zone by zone in whole slices, as part of all free memory.
fn bound(machine: &Machine) -> f64 {
    let frames = machine.info.slice_pages().0.max(1);
    let best = machine.zones.iter().map(|zone| {
        let spare = (zone.free_pages + zone.offline_pages).saturating_sub(zone.awake_reserve_pages);
        Pages(spare.0 / frames * frames)
    });
    best.sum::<Pages>().share_of(machine.info.free_pages + machine.info.offline_pages)
}

fn table(rows: &[Row]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
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
        let pages = [
            row.free_pages,
            row.anonymous_pages,
            row.cache_pages,
            row.shmem_pages,
            row.swap_cache_pages,
            row.buffer_pages,
            row.other_movable_pages,
            row.slab_pages,
            row.page_table_pages,
            row.other_unmovable_pages,
            row.lru_pages,
            row.staying_pages,
        ];
        cells.extend(pages.iter().map(|pages| pages.0.to_string()));
        table.row(cells);
    }
    table
}

fn sentences(totals: &Totals) -> String {
    let mut text = format!(
        "c = {:.3}, at best {:.3}\n{} slices hold pages that stay, at best {} ({} can never be switched off)\n\
         {} of {} memory sections of 128 MiB are removable",
        totals.offline_ratio,
        totals.offline_ratio_bound,
        totals.slices_staying,
        totals.slices_staying_least,
        totals.slices_unreclaimable,
        totals.sections_removable,
        totals.sections,
    );
    if totals.slices_unknown > 0 {
        text.push_str(&format!("\npages of {} slices were not saved: not counted", totals.slices_unknown));
    }
    text
}

fn line(totals: &Totals) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{Pfn, Reason};

    fn run(pfn: u64, pages: u64, reason: Reason) -> PageRun {
        serde_json::from_value(serde_json::json!({
            "pfn": Pfn(pfn), "pages": pages, "class": "kernel", "reason": reason,
        }))
        .unwrap()
    }

    #[test]
    fn what_stays_fits_into_slices_that_stay_on_anyway_or_needs_more() {
        let least = |there, elsewhere| least(Pages(100), 2, Pages(there), Pages(elsewhere));
        assert_eq!(least(150, 0), 2);
        assert_eq!(least(150, 50), 2);
        assert_eq!(least(150, 51), 3);
        assert_eq!(least(150, 150), 3);
        assert_eq!(least(150, 151), 4);
        assert_eq!(super::least(Pages(100), 0, Pages(0), Pages(1)), 1);
    }

    #[test]
    fn a_section_is_removable_unless_a_page_of_it_stays() {
        let mut sections = BTreeMap::new();
        for run in [run(0, 10, Reason::None), run(10, 5, Reason::Slab), run(20, 25, Reason::None)] {
            add_sections(&mut sections, &run, 16);
        }
        // A run that ends with its section does not touch the next one
        add_sections(&mut sections, &run(48, 16, Reason::None), 16);
        assert_eq!(sections, BTreeMap::from([(0, true), (1, false), (2, false), (3, false)]));
    }
}
