//! Memory bitmaps: all memory at some moments, a row for each slice, by use of its pages.

use std::collections::BTreeMap;
use std::rc::Rc;

use ramslice_types::{Bytes, PageCounts, Pages};

use super::naming::{heading, id};
use super::slice_rows::{OFF, SliceRows, key_class};
use super::time;
use crate::chart::{ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{CensusMoment, RecordingData, ReportData};

const TITLE: &str = "Memory bitmaps";
/// Part of a moment's width that is left free on either side.
const GAP: f64 = 0.05;

/// What pages are used for, as drawn from left to right: class, word, pages. What is free is what
/// is left; what is off mostly fills a row.
type PageUse = (&'static str, &'static str, fn(&PageCounts) -> Pages);
const USES: [PageUse; 8] = [
    ("p-slab", "slab", |pages| pages.slab),
    ("p-table", "page tables", |pages| pages.page_table),
    ("p-kernel", "other kernel", |pages| pages.other_unmovable),
    ("p-anonymous", "anonymous", |pages| pages.anonymous),
    ("p-shared", "other movable", |pages| pages.shmem + pages.swap_cache + pages.other_movable),
    ("p-cache", "page cache", |pages| pages.cache),
    ("p-buffer", "buffers", |pages| pages.buffer),
    (OFF, "off", |pages| pages.off),
];

/// Those of the Kanpur report, section 2.2, with the pages of a slice in order of use instead of
/// address; one per recording that has a census.
pub(crate) fn bitmaps(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("bitmaps", at, all), heading(TITLE, &recorded.name, all));
        let caption = "All memory at some moments. A row is a slice, the lowest address at the \
                       bottom; a colour is as long as its share of the slice's pages. From the \
                       left: what the kernel holds, what moves (other movable pages are tmpfs, \
                       swap cache, zsmalloc, hugetlb), cache, free. Orange at the left edge of \
                       row after row is a kernel that is everywhere. Data: these moments, a row \
                       for each slice that changed.";
        let (recorded, name) = (Rc::clone(recorded), title.clone());
        let csv = csv(&recorded);
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_bitmaps(&id, &name, &recorded, look)
        })
    };
    runs.recorded.iter().enumerate().filter(|(_, one)| !one.censuses.is_empty()).map(draw).collect()
}

/// Moments that are worth drawing: the first, the last, and evenly between them as many as have
/// room.
fn chosen_moments(recorded: &RecordingData, look: Medium) -> Vec<&CensusMoment> {
    let most = if look == Medium::Narrow { 4 } else { 10 };
    let last = recorded.censuses.len().saturating_sub(1);
    let step = last.div_ceil(most - 1).max(1);
    let mut found: Vec<&CensusMoment> = recorded.censuses[..last].iter().step_by(step).collect();
    found.extend(recorded.censuses.last());
    found
}

fn csv(recorded: &RecordingData) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "time_s",
        "slice_id",
        "free_pages",
        "slab_pages",
        "page_table_pages",
        "other_unmovable_pages",
        "anonymous_pages",
        "shmem_pages",
        "swap_cache_pages",
        "other_movable_pages",
        "cache_pages",
        "buffer_pages",
        "off_pages",
        "staying_pages",
    ]);
    let mut before: BTreeMap<u32, PageCounts> = BTreeMap::new();
    for counted in chosen_moments(recorded, Medium::Wide) {
        for (slice, pages) in &counted.slices {
            if before.insert(*slice, *pages) == Some(*pages) {
                continue;
            }
            let mut cells = vec![format!("{:.3}", counted.seconds), slice.to_string()];
            let counts = [
                pages.free,
                pages.slab,
                pages.page_table,
                pages.other_unmovable,
                pages.anonymous,
                pages.shmem,
                pages.swap_cache,
                pages.other_movable,
                pages.cache,
                pages.buffer,
                pages.off,
                pages.staying,
            ];
            cells.extend(counts.iter().map(|pages| pages.0.to_string()));
            csv.row(&cells);
        }
    }
    csv
}

fn draw_bitmaps(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let moments = chosen_moments(recorded, look);
    let rows = SliceRows::of(
        moments.iter().flat_map(|counted| counted.slices.iter().map(|slice| slice.0)),
    );
    let there = |pages: fn(&PageCounts) -> Pages| {
        moments.iter().any(|counted| counted.slices.iter().any(|(_, one)| pages(one) > Pages::ZERO))
    };
    let uses: Vec<PageUse> = USES.into_iter().filter(|(_, _, pages)| there(*pages)).collect();
    let mut keys: Vec<LegendEntry> = uses
        .iter()
        .map(|(class, word, _)| LegendEntry::new(key_class(class), LegendMark::Area, *word))
        .collect();
    // As in other figures: what is off comes last.
    let off = uses.iter().position(|(class, ..)| *class == OFF).unwrap_or(keys.len());
    keys.insert(off, LegendEntry::new("k-free", LegendMark::Area, "free"));
    let mut x = time::axis(moments.len() as f64, recorded.emulated);
    let mark = |(at, counted): (usize, &&CensusMoment)| {
        (at as f64 + 0.5, format!("{:.0}", counted.seconds))
    };
    x.marks = Some(moments.iter().enumerate().map(mark).collect());
    let mut panel = ChartPanel::new(look, title, rows.height(), &keys, &x, &rows.axis());
    for (at, counted) in moments.iter().enumerate() {
        bitmap(&mut panel, at as f64, counted, &rows, &uses);
        let (left, right) = (at as f64 + GAP, at as f64 + 1.0 - GAP);
        let (low, high) = (panel.at(left, 0.0), panel.at(right, rows.count() as f64));
        panel.svg.path("frame", &[low, (low.0, high.1), high, (high.0, low.1)], true);
        panel.hit(at as f64 + 0.5, 1.0, &words(counted, recorded.page_bytes));
    }
    let (first, last) = (moments.first(), moments.last());
    let at = |counted: Option<&&CensusMoment>| {
        counted.map_or_else(String::new, |counted| words(counted, recorded.page_bytes))
    };
    let about = format!(
        "{} slices at {} moments. {}. {}.",
        rows.slices(),
        moments.len(),
        at(first),
        at(last)
    );
    panel.finish(id, title, &about)
}

/// One moment: what is used for one thing lies over all that comes to the right of it.
fn bitmap(
    panel: &mut ChartPanel,
    at: f64,
    counted: &CensusMoment,
    rows: &SliceRows,
    uses: &[PageUse],
) {
    let mut frames = vec![0u64; rows.count()];
    for (slice, pages) in &counted.slices {
        frames[rows.row(*slice)] += pages.frames().0;
    }
    let whole: Vec<f64> = frames.iter().map(|&frames| if frames > 0 { 1.0 } else { 0.0 }).collect();
    stairs(panel, at, "k-free", &whole);
    let mut edges = vec![vec![0u64; rows.count()]; uses.len()];
    for (slice, pages) in &counted.slices {
        let mut sum = 0;
        for (edge, (_, _, count)) in edges.iter_mut().zip(uses) {
            sum += count(pages).0;
            edge[rows.row(*slice)] += sum;
        }
    }
    for (edge, (class, _, _)) in edges.iter().zip(uses).rev() {
        let shares: Vec<f64> = edge
            .iter()
            .zip(&frames)
            .map(|(&edge, &frames)| edge as f64 / frames.max(1) as f64)
            .collect();
        stairs(panel, at, class, &shares);
    }
}

/// An area from the left edge of a moment to a share of its width, row by row.
fn stairs(panel: &mut ChartPanel, at: f64, class: &str, shares: &[f64]) {
    if shares.iter().all(|&share| share <= 0.0) {
        return;
    }
    let x = |share: f64| at + GAP + share.min(1.0) * (1.0 - 2.0 * GAP);
    let mut points = vec![panel.at(x(0.0), 0.0)];
    let mut from = 0;
    while from < shares.len() {
        let same =
            shares[from..].iter().take_while(|&&share| (share - shares[from]).abs() < 1e-3).count();
        points.push(panel.at(x(shares[from]), from as f64));
        from += same;
        points.push(panel.at(x(shares[from - 1]), from as f64));
    }
    points.push(panel.at(x(0.0), shares.len() as f64));
    panel.svg.path(class, &points, true);
}

fn words(counted: &CensusMoment, page_bytes: Bytes) -> String {
    let size = |pages: fn(&PageCounts) -> Pages| {
        counted.slices.iter().map(|(_, one)| pages(one)).sum::<Pages>().bytes(page_bytes)
    };
    let parts: Vec<String> = USES
        .into_iter()
        .map(|(_, word, pages)| (word, size(pages)))
        .chain([("free", size(|pages| pages.free))])
        .filter(|(_, size)| size.0 > 0)
        .map(|(word, size)| format!("{word} {size}"))
        .collect();
    format!("{:.1} s: {}", counted.seconds, parts.join(", "))
}
