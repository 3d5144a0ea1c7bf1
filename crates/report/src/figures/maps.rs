//! Slices over time by how full they are, and by how much of them stays: what a census adds to the
//! map of their states.

use std::collections::BTreeMap;
use std::rc::Rc;

use ramslice_types::{PageCounts, Pages};

use super::census::thinned;
use super::naming::{heading, id};
use super::slice_rows::{self, OFF, SliceRows, TileGrid, key_class};
use super::time;
use crate::chart::{ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{CensusMoment, RecordingData, ReportData};

/// What a map shows of a slice.
struct SliceMap {
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    /// Class, and word in the legend; from what a slice wants least to what it wants most.
    levels: &'static [(&'static str, &'static str)],
    /// Which level a row is, by the sum of its slices.
    level: fn(&PageCounts) -> usize,
    /// The pages that it is about, and the name of their column.
    pages: (fn(&PageCounts) -> Pages, &'static str),
    /// Whether the fewest slices that could hold these pages are a line.
    has_minimum_line: bool,
}

/// Figure 1 of Adaptive-Buddy, for each moment: pages in use, over all memory.
const FULLNESS: SliceMap = SliceMap {
    id: "fullness",
    title: "How full each slice is",
    caption: "A row is a slice, the lowest address at the bottom. Pale blue is memory that is \
              scattered: most of the slice is free, and yet it cannot be off. Packed memory is \
              dark blue or off, and little between. Data: a row for each change of colour.",
    levels: &[
        ("full-100", "over 90% in use"),
        ("full-90", "50–90%"),
        ("full-50", "10–50%"),
        ("full-10", "up to 10%"),
        ("k-free", "empty"),
        (OFF, "off"),
    ],
    level: |pages| {
        let (used, frames) = (pages.used(), pages.frames());
        match used.share_of(frames) {
            _ if pages.off == frames => 5,
            _ if used == Pages::ZERO => 4,
            share if share <= 0.1 => 3,
            share if share <= 0.5 => 2,
            share if share <= 0.9 => 1,
            _ => 0,
        }
    },
    pages: (PageCounts::used, "used_pages"),
    has_minimum_line: false,
};

/// Figures 2 and 7 of Adaptive-Buddy, for each moment: where the kernel's pages lie.
const FOOTPRINT: SliceMap = SliceMap {
    id: "footprint",
    title: "Kernel footprint: where pages that stay lie",
    caption: "A row is a slice, the lowest address at the bottom. Orange holds pages that can \
              neither be moved nor dropped, mostly the kernel's: pale where few pages keep a \
              whole slice on. Below the dashed line is room for all of them: what is orange above \
              it is scattered. Data: a row for each change of colour.",
    levels: &[
        ("stays-100", "over 10% stays"),
        ("stays-10", "1–10%"),
        ("stays-1", "up to 1%"),
        ("moves", "in use, nothing stays"),
        ("k-free", "empty"),
        (OFF, "off"),
    ],
    level: |pages| match pages.staying.share_of(pages.frames()) {
        share if share > 0.1 => 0,
        share if share > 0.01 => 1,
        _ if pages.staying > Pages::ZERO => 2,
        _ if pages.off == pages.frames() => 5,
        _ if pages.used() == Pages::ZERO => 4,
        _ => 3,
    },
    pages: (|pages| pages.staying, "staying_pages"),
    has_minimum_line: true,
};

/// How full slices are; one per recording that has a census.
pub(crate) fn fullness(runs: &ReportData) -> Vec<ReportFigure> {
    figures(runs, &FULLNESS)
}

/// Where pages that stay lie; one per recording that has a census.
pub(crate) fn footprint(runs: &ReportData) -> Vec<ReportFigure> {
    figures(runs, &FOOTPRINT)
}

fn figures(runs: &ReportData, map: &'static SliceMap) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id(map.id, at, all), heading(map.title, &recorded.name, all));
        let (recorded, name) = (Rc::clone(recorded), title.clone());
        let csv = csv(&recorded, map);
        ReportFigure::drawn(id.clone(), title, map.caption, csv, move |look| {
            draw_map(&id, &name, &recorded, map, look)
        })
    };
    runs.recorded.iter().enumerate().filter(|(_, one)| !one.censuses.is_empty()).map(draw).collect()
}

/// A row for each change of level: with thousands of slices, one for each census would be most of
/// the page.
fn csv(recorded: &RecordingData, map: &SliceMap) -> CsvTable {
    let (pages, column) = map.pages;
    let mut csv = CsvTable::new(&["time_s", "slice_id", column, "level"]);
    let mut before: BTreeMap<u32, usize> = BTreeMap::new();
    for counted in &recorded.censuses {
        for (slice, counts) in &counted.slices {
            let level = (map.level)(counts);
            if before.insert(*slice, level) != Some(level) {
                csv.row(&[
                    format!("{:.3}", counted.seconds),
                    slice.to_string(),
                    pages(counts).0.to_string(),
                    map.levels[level].1.to_owned(),
                ]);
            }
        }
    }
    csv
}

fn draw_map(
    id: &str,
    title: &str,
    recorded: &RecordingData,
    map: &SliceMap,
    look: Medium,
) -> String {
    let censuses = thinned(recorded, look.columns());
    let rows = SliceRows::of(
        censuses.iter().flat_map(|counted| counted.slices.iter().map(|slice| slice.0)),
    );
    // Of slices that share a row, the one that is worst shows.
    let mut grid: TileGrid<Option<usize>> = Vec::new();
    let end = time::span(recorded);
    let spans = spans(&censuses, end);
    for (counted, span) in censuses.iter().zip(&spans) {
        let mut column: Vec<Option<usize>> = vec![None; rows.count()];
        for (slice, counts) in &counted.slices {
            let (cell, level) = (&mut column[rows.row(*slice)], (map.level)(counts));
            *cell = Some(cell.map_or(level, |there| there.min(level)));
        }
        grid.push((span.0, column));
    }
    let there = |level: usize| grid.iter().any(|(_, column)| column.contains(&Some(level)));
    let levels: Vec<usize> = (0..map.levels.len()).filter(|&level| there(level)).collect();
    let key = |&level: &usize| {
        LegendEntry::new(key_class(map.levels[level].0), LegendMark::Area, map.levels[level].1)
    };
    let mut keys: Vec<LegendEntry> = levels.iter().map(key).collect();
    if map.has_minimum_line {
        keys.push(LegendEntry::new("fit s0 dashed", LegendMark::Line, "room for all that stays"));
    }
    let until = spans.last().map_or(end, |span| span.1);
    let x = time::axis(end, recorded.emulated);
    let mut panel = ChartPanel::new(look, title, rows.height(), &keys, &x, &rows.axis());
    for level in levels {
        slice_rows::draw(&mut panel, &grid, until, Some(level), map.levels[level].0);
    }
    if map.has_minimum_line {
        let row = |counted: &CensusMoment| {
            let slices = counted.totals.slices_staying_least as f64;
            (slices / rows.together() as f64).min(rows.count() as f64)
        };
        let line: Vec<_> = censuses
            .iter()
            .zip(&spans)
            .flat_map(|(counted, span)| [(span.0, row(counted)), (span.1, row(counted))])
            .collect();
        panel.curve("least-halo", &line);
        panel.curve("least", &line);
    }
    for (counted, (from, until)) in censuses.iter().zip(spans) {
        panel.hit(f64::midpoint(from, until), until - from, &words(counted, map));
    }
    let about =
        |counted: Option<&&CensusMoment>| counted.map_or_else(String::new, |one| words(one, map));
    let about = format!(
        "{} slices over {end:.0} seconds. {}. {}.",
        rows.slices(),
        about(censuses.first()),
        about(censuses.last())
    );
    panel.finish(id, title, &about)
}

/// From when to when each census is shown: half way to its neighbours, so that the last one is
/// seen, too; before the first and after the last as far as on the other side. One alone is shown
/// throughout.
fn spans(censuses: &[&CensusMoment], end: f64) -> Vec<(f64, f64)> {
    let at = |place: usize| censuses[place].seconds;
    let half = |place: usize| (at(place + 1) - at(place)) / 2.0;
    let last = censuses.len().saturating_sub(1);
    let span = |place: usize| {
        let before = if place > 0 {
            half(place - 1)
        } else if last > 0 {
            half(0)
        } else {
            end
        };
        let after = if place < last { half(place) } else { before };
        ((at(place) - before).max(0.0), (at(place) + after).min(end))
    };
    (0..censuses.len()).map(span).collect()
}

/// How many slices are at each level.
fn words(counted: &CensusMoment, map: &SliceMap) -> String {
    let count = |level: usize| {
        counted.slices.iter().filter(|(_, counts)| (map.level)(counts) == level).count()
    };
    let parts: Vec<String> = map
        .levels
        .iter()
        .enumerate()
        .map(|(level, (_, word))| (count(level), word))
        .filter(|(slices, _)| *slices > 0)
        .map(|(slices, word)| format!("{slices} {word}"))
        .collect();
    let mut text = format!("{:.1} s, slices: {}", counted.seconds, parts.join(", "));
    if map.has_minimum_line {
        text.push_str(&format!(
            "; room for all that stays in {}",
            counted.totals.slices_staying_least
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use ramslice_types::{Bytes, CensusTotals};

    use super::*;

    fn pages(anonymous: u64, free: u64, off: u64, staying: u64) -> PageCounts {
        PageCounts {
            anonymous: Pages(anonymous),
            free: Pages(free),
            off: Pages(off),
            staying: Pages(staying),
            ..PageCounts::default()
        }
    }

    #[test]
    fn a_census_is_shown_half_way_to_its_neighbours() {
        let counted = |seconds: f64| CensusMoment {
            seconds,
            slice_bytes: Bytes(0),
            totals: CensusTotals::default(),
            slices: Vec::new(),
        };
        let of = |seconds: &[f64], end: f64| {
            let all: Vec<CensusMoment> = seconds.iter().map(|&one| counted(one)).collect();
            spans(&all.iter().collect::<Vec<_>>(), end)
        };
        assert_eq!(of(&[0.0, 10.0, 14.0], 14.0), [(0.0, 5.0), (5.0, 12.0), (12.0, 14.0)]);
        // Times long before the first census or after the last are unknown.
        assert_eq!(of(&[50.0, 60.0], 100.0), [(45.0, 55.0), (55.0, 65.0)]);
        assert_eq!(of(&[50.0], 100.0), [(0.0, 100.0)]);
        assert_eq!(of(&[], 100.0), []);
    }

    #[test]
    fn a_page_more_is_another_level() {
        let level = |used| FULLNESS.levels[(FULLNESS.level)(&pages(used, 1000 - used, 0, 0))].1;
        assert_eq!([0, 1, 100, 101].map(level), ["empty", "up to 10%", "up to 10%", "10–50%"]);
        assert_eq!(
            [500, 501, 900, 901].map(level),
            ["10–50%", "50–90%", "50–90%", "over 90% in use"]
        );
        assert_eq!((FULLNESS.level)(&pages(0, 0, 1000, 0)), 5);
    }

    #[test]
    fn one_page_that_stays_is_seen() {
        let level = |staying| FOOTPRINT.levels[(FOOTPRINT.level)(&pages(500, 500, 0, staying))].1;
        assert_eq!(
            [0, 1, 10, 11].map(level),
            ["in use, nothing stays", "up to 1%", "up to 1%", "1–10%"]
        );
        assert_eq!([100, 101].map(level), ["1–10%", "over 10% stays"]);
        assert_eq!((FOOTPRINT.level)(&pages(0, 1000, 0, 0)), 4);
        assert_eq!((FOOTPRINT.level)(&pages(0, 0, 1000, 0)), 5);
    }
}
