//! What a census sums up, over time: the slices that kernel pages keep on, c and its bound, and
//! removable sections.

use std::rc::Rc;

use ramslice_types::{CensusTotals, Pages};

use super::naming::{heading, id};
use super::time;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{CensusMoment, RecordingData, ReportData};
use crate::scale::ceiling;

const KEPT_ON: &str = "Slices in use, and slices that cannot be off";
const SHARES: &str = "What is off, and what could be removed";

/// At most `columns` censuses: of those that fall into one column, the one with most slices that
/// stay on, so that no peak is lost.
pub(super) fn thinned(recorded: &RecordingData, columns: usize) -> Vec<&CensusMoment> {
    let all = &recorded.censuses;
    if all.len() <= columns {
        return all.iter().collect();
    }
    let (span, mut found) = (time::span(recorded), Vec::<(usize, &CensusMoment)>::new());
    for counted in all {
        let column = ((counted.seconds / span * columns as f64) as usize).min(columns - 1);
        match found.last_mut() {
            Some((last, kept)) if *last == column => {
                if counted.totals.slices_staying > kept.totals.slices_staying {
                    *kept = counted;
                }
            }
            _ => found.push((column, counted)),
        }
    }
    found.into_iter().map(|(_, counted)| counted).collect()
}

/// Recordings with a census, and their number among all.
fn recordings_with_census(runs: &ReportData) -> impl Iterator<Item = (usize, &Rc<RecordingData>)> {
    runs.recorded.iter().enumerate().filter(|(_, one)| !one.censuses.is_empty())
}

/// What is in use, as so many whole slices.
fn packed(recorded: &RecordingData, counted: &CensusMoment) -> f64 {
    let frames = counted.slice_bytes.pages(recorded.page_bytes);
    counted.used().0 as f64 / frames.0.max(1) as f64
}

/// A curve with a dot at each census: the values between them are unknown.
fn line(panel: &mut ChartPanel, series: &str, dash: &str, points: &[(f64, f64)]) {
    panel.curve(&format!("fit {series}{dash}"), points);
    if points.len() <= 60 {
        for &(x, y) in points {
            let at = panel.at(x, y);
            panel.svg.circle(&format!("series {series}"), at, 2.5, "");
        }
    }
}

/// Columns that show the words of a census to who points at them.
fn hits(
    panel: &mut ChartPanel,
    censuses: &[&CensusMoment],
    words: impl Fn(&CensusMoment) -> String,
) {
    let width = |at: usize| {
        let near = [at.checked_sub(1), Some(at + 1)]
            .into_iter()
            .flatten()
            .filter_map(|at| censuses.get(at));
        let away = near.map(|other| (other.seconds - censuses[at].seconds).abs());
        away.fold(f64::INFINITY, f64::min).min(1e9)
    };
    for (at, counted) in censuses.iter().enumerate() {
        panel.hit(counted.seconds, width(at), &words(counted));
    }
}

/// Figures 1, 2 and 7 of Adaptive-Buddy over time, as numbers of slices; one per recording that has
/// a census, all of one height.
pub(crate) fn kept_on(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let most = |counted: &CensusMoment| counted.holding_slices().max(counted.totals.slices_staying);
    let top =
        runs.recorded.iter().flat_map(|one| &one.censuses).map(most).max().unwrap_or(0) as f64;
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("kept-on", at, all), heading(KEPT_ON, &recorded.name, all));
        let caption = "Grey: slices in which anything is in use. Blue: as many as what is in use \
                       would fill. Orange: slices with a page that can neither be moved nor \
                       dropped, or that boot keeps on; dashed, the fewest that could hold these \
                       pages. Packing takes grey down to blue, or to orange where that is higher; \
                       placement takes orange down to the dashed line.";
        let (recorded, name) = (Rc::clone(recorded), title.clone());
        let mut csv = CsvTable::new(&[
            "time_s",
            "slice_bytes",
            "holding_slices",
            "used_pages",
            "staying_slices",
            "least_staying_slices",
            "unreclaimable_slices",
            "staying_pages",
        ]);
        for one in &recorded.censuses {
            let numbers = [
                one.slice_bytes.0,
                one.holding_slices(),
                one.used().0,
                one.totals.slices_staying,
                one.totals.slices_staying_least,
                one.totals.slices_unreclaimable,
                one.totals.staying_pages.0,
            ];
            let mut cells = vec![format!("{:.3}", one.seconds)];
            cells.extend(numbers.iter().map(ToString::to_string));
            csv.row(&cells);
        }
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_kept_on(&id, &name, &recorded, ceiling(top), look)
        })
    };
    recordings_with_census(runs).map(draw).collect()
}

fn draw_kept_on(id: &str, title: &str, recorded: &RecordingData, top: f64, look: Medium) -> String {
    let keys = [
        LegendEntry::new("holding", LegendMark::Area, "slices in use"),
        LegendEntry::new("fit s2", LegendMark::Line, "what is in use, packed"),
        LegendEntry::new("fit s3", LegendMark::Line, "slices with pages that stay"),
        LegendEntry::new("fit s3 dashed", LegendMark::Line, "fewest that could hold these"),
    ];
    let x = time::axis(time::span(recorded), recorded.emulated);
    let y = ChartAxis::new((0.0, top), format!("slices of {}", recorded.slice_bytes));
    let mut panel = ChartPanel::new(look, title, 260.0, &keys, &x, &y);
    let censuses = thinned(recorded, look.columns());
    let of = |value: &dyn Fn(&CensusMoment) -> f64| -> Vec<(f64, f64)> {
        censuses.iter().map(|counted| (counted.seconds, value(counted))).collect()
    };
    let holding = of(&|counted| counted.holding_slices() as f64);
    panel.band("holding", &holding.iter().map(|&(x, y)| (x, 0.0, y)).collect::<Vec<_>>());
    line(&mut panel, "s2", "", &of(&|counted| packed(recorded, counted)));
    line(&mut panel, "s3", " dashed", &of(&|counted| counted.totals.slices_staying_least as f64));
    line(&mut panel, "s3", "", &of(&|counted| counted.totals.slices_staying as f64));
    let words = |counted: &CensusMoment| {
        let size = |pages: Pages| pages.bytes(recorded.page_bytes);
        format!(
            "{:.1} s: {} slices in use, which {} would fill {:.1}; {} hold pages that stay ({}), \
             at best {}",
            counted.seconds,
            counted.holding_slices(),
            size(counted.used()),
            packed(recorded, counted),
            counted.totals.slices_staying,
            size(counted.totals.staying_pages),
            counted.totals.slices_staying_least
        )
    };
    hits(&mut panel, &censuses, words);
    let about =
        [censuses.first(), censuses.last()].into_iter().flatten().map(|counted| words(counted));
    let about = about.collect::<Vec<_>>().join(". ");
    panel.finish(id, title, &format!("{about}."))
}

/// c over time as in its section V, and removable sections, Figure 8, as a share; one per recording
/// that has a census.
pub(crate) fn shares(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("census-shares", at, all), heading(SHARES, &recorded.name, all));
        let caption = "c is the part of free memory that is off; its bound is what it could be \
                       with as much in use, in whole slices and with the awake reserve on. \
                       Removable are memory sections of 128 MiB in which no page stays: memory \
                       hotplug could take them.";
        let (recorded, name) = (Rc::clone(recorded), title.clone());
        let mut csv = CsvTable::new(&[
            "time_s",
            "offline_ratio",
            "offline_ratio_bound",
            "sections",
            "removable_sections",
        ]);
        for one in &recorded.censuses {
            csv.row(&[
                format!("{:.3}", one.seconds),
                format!("{:.6}", one.totals.offline_ratio),
                format!("{:.6}", one.totals.offline_ratio_bound),
                one.totals.sections.to_string(),
                one.totals.sections_removable.to_string(),
            ]);
        }
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_shares(&id, &name, &recorded, look)
        })
    };
    recordings_with_census(runs).map(draw).collect()
}

fn removable(totals: &CensusTotals) -> f64 {
    totals.sections_removable as f64 / totals.sections.max(1) as f64
}

fn draw_shares(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("fit s1", LegendMark::Line, "c: off, of free memory"),
        LegendEntry::new("fit s1 dashed", LegendMark::Line, "its bound"),
        LegendEntry::new("fit s4 dotted", LegendMark::Line, "sections that are removable"),
    ];
    let x = time::axis(time::span(recorded), recorded.emulated);
    let mut panel =
        ChartPanel::new(look, title, 240.0, &keys, &x, &ChartAxis::new((0.0, 1.0), "share"));
    let censuses = thinned(recorded, look.columns());
    let of = |value: fn(&CensusTotals) -> f64| -> Vec<(f64, f64)> {
        censuses.iter().map(|counted| (counted.seconds, value(&counted.totals))).collect()
    };
    line(&mut panel, "s4", " dotted", &of(removable));
    line(&mut panel, "s1", " dashed", &of(|totals| totals.offline_ratio_bound));
    line(&mut panel, "s1", "", &of(|totals| totals.offline_ratio));
    let words = |counted: &CensusMoment| {
        let totals = &counted.totals;
        format!(
            "{:.1} s: c {:.3}, at best {:.3}; {} of {} sections removable",
            counted.seconds,
            totals.offline_ratio,
            totals.offline_ratio_bound,
            totals.sections_removable,
            totals.sections
        )
    };
    hits(&mut panel, &censuses, words);
    let about =
        [censuses.first(), censuses.last()].into_iter().flatten().map(|counted| words(counted));
    let about = about.collect::<Vec<_>>().join(". ");
    panel.finish(id, title, &format!("{about}."))
}
