//! Slices by state over time: a row for each slice, by address, as in the map of physical memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use ramslice_types::PageKind;

use super::naming::{heading, id};
use super::slice_rows::{self, SliceRows, TileGrid};
use super::time;
use super::utilisation::{kind_class, kind_word};
use crate::chart::{ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::{CsvRows, FigureData};
use crate::figure::ReportFigure;
use crate::report_data::{RecordingData, ReportData};
use crate::slice_history::SliceReplay;

const TITLE: &str = "Each slice over time";

/// One per recording.
pub(crate) fn slices(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    if all == 0 {
        let (what, how) = time::no_recording();
        return vec![ReportFigure::missing("slices", TITLE, what, how)];
    }
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("slices", at, all), heading(TITLE, &recorded.name, all));
        let caption = "A row is a slice, the lowest address at the bottom. A slice that is on has \
                       the colour of what is hardest to get rid of in it: unmovable pages, else \
                       movable ones, else freeable ones; free is a slice that is empty and on.";
        let recorded = Rc::clone(recorded);
        let (csv, name) = (csv(Rc::clone(&recorded)), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_slices(&id, &name, &recorded, look)
        })
    };
    runs.recorded.iter().enumerate().map(draw).collect()
}

/// A row for each change: with thousands of slices, one for each sample would be most of the page.
fn csv(recorded: Rc<RecordingData>) -> impl FigureData {
    CsvRows::new(&["time_s", "slice_id", "kind"], move |csv| {
        let mut before: BTreeMap<u32, PageKind> = BTreeMap::new();
        for change in recorded.slice_changes.iter() {
            let (Some(kind), Some(moment)) = (change.kind, recorded.moments.get(change.moment))
            else {
                continue;
            };
            // One that was gone may be back as it was.
            if before.insert(change.slice, kind) != Some(kind) {
                csv.row(&[
                    format!("{:.3}", moment.seconds),
                    change.slice.to_string(),
                    kind.name().to_owned(),
                ])?;
            }
        }
        Ok(())
    })
}

fn draw_slices(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let changes = &recorded.slice_changes;
    let rows = SliceRows::of(changes.iter().map(|change| change.slice));
    let mut replay = SliceReplay::new(changes.iter());
    // Of slices that share a row, the one that is hardest to switch off shows.
    let mut grid: TileGrid<PageKind> = Vec::new();
    for at in time::thinned_places(recorded, look.columns()) {
        let mut column = vec![PageKind::Hole; rows.count()];
        for (slice, kind) in replay.at(at) {
            let cell = &mut column[rows.row(*slice)];
            *cell = (*kind).min_by_hardness(*cell);
        }
        grid.push((recorded.moments[at].seconds, column));
    }
    let there = |kind: PageKind| grid.iter().any(|(_, column)| column.contains(&kind));
    let kinds: Vec<PageKind> =
        PageKind::ALL.into_iter().filter(|&kind| kind != PageKind::Hole && there(kind)).collect();
    let keys: Vec<LegendEntry> = kinds
        .iter()
        .map(|&kind| LegendEntry::new(kind_class(kind), LegendMark::Area, kind_word(kind)))
        .collect();
    let end = time::span(recorded);
    let x = time::axis(end, recorded.emulated);
    let mut panel = ChartPanel::new(look, title, rows.height(), &keys, &x, &rows.axis());
    for kind in kinds {
        slice_rows::draw(&mut panel, &grid, end, kind, kind_class(kind));
    }
    for pair in grid.windows(2) {
        let (seconds, column) = &pair[0];
        let off = column.iter().filter(|kind| **kind == PageKind::Offline).count();
        let width = pair[1].0 - seconds;
        let words = format!("{seconds:.1} s, {off} of {} rows off", rows.count());
        panel.hit(seconds + width / 2.0, width, &words);
    }
    let about = format!("{} slices over {end:.0} seconds.", rows.slices());
    panel.finish(id, title, &about)
}

trait EmptyingDifficulty {
    fn min_by_hardness(self, other: Self) -> Self;
}

impl EmptyingDifficulty for PageKind {
    /// Kinds are listed from what keeps a slice on to what is not there.
    fn min_by_hardness(self, other: Self) -> Self {
        let place = |kind: Self| Self::ALL.iter().position(|one| *one == kind);
        if place(self) <= place(other) { self } else { other }
    }
}
