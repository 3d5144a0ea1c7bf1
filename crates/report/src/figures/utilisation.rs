//! Memory over time: what is used against the slices that hold it, and what all of it is occupied
//! by.

use std::rc::Rc;

use ramslice_types::{Bytes, PageKind, Pages};

use super::naming::{heading, id};
use super::time;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{MachineMoment, RecordingData, ReportData};
use crate::scale::ceiling;

const UTILISATION: &str = "Memory in use, and slices that hold it";
const OCCUPATION: &str = "What all memory is occupied by";
const GIB: f64 = (1u64 << 30) as f64;

/// GiB or MiB: whichever leaves numbers that can be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteUnit {
    pub(super) bytes: f64,
    pub(super) name: &'static str,
}

impl ByteUnit {
    pub(super) fn of(most_bytes: f64) -> Self {
        if most_bytes >= 2.0 * GIB {
            Self { bytes: GIB, name: "GiB" }
        } else {
            Self { bytes: Bytes::MIB.0 as f64, name: "MiB" }
        }
    }
}

fn bytes(recorded: &RecordingData, pages: Pages) -> f64 {
    pages.bytes(recorded.page_bytes).0 as f64
}

fn holding(moment: &MachineMoment) -> f64 {
    moment.holding_slices as f64 * moment.slice_bytes.0 as f64
}

/// In use, from the bottom: what keeps a slice on, what moves, what is dropped.
const USED: [PageKind; 3] = [PageKind::Unmovable, PageKind::Movable, PageKind::Freeable];

/// Figures 4.6, 4.9 and 4.11 of the thesis: one per recording, all with the same height.
pub(crate) fn utilisation(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    if all == 0 {
        let (what, how) = time::no_recording();
        return vec![ReportFigure::missing("utilisation", UTILISATION, what, how)];
    }
    let most = |recorded: &Rc<RecordingData>| {
        let used =
            |moment: &MachineMoment| bytes(recorded, moment.pages.used()).max(holding(moment));
        recorded.moments.iter().map(used).fold(0.0, f64::max)
    };
    let top = runs.recorded.iter().map(most).fold(0.0, f64::max);
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("utilisation", at, all), heading(UTILISATION, &recorded.name, all));
        let caption = "Pages that are movable or freeable could be packed; the grey area is the \
                       size of the slices in which anything is in use and which therefore stay \
                       on. The gap between them is what packing can switch off. Stripes: slices \
                       were being emptied.";
        let (csv, unit) = (csv(recorded), ByteUnit::of(top));
        let (shown, name) = (Rc::clone(recorded), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_utilisation(&id, &name, &shown, ceiling(top / unit.bytes), unit, look)
        })
    };
    runs.recorded.iter().enumerate().map(draw).collect()
}

fn csv(recorded: &RecordingData) -> CsvTable {
    let mut columns =
        vec!["time_s".to_owned(), "slice_bytes".to_owned(), "holding_slices".to_owned()];
    columns.extend(PageKind::ALL.iter().map(|kind| format!("{}_bytes", kind.name())));
    let mut csv = CsvTable::new(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for moment in &recorded.moments {
        let mut row = vec![
            format!("{:.3}", moment.seconds),
            moment.slice_bytes.0.to_string(),
            moment.holding_slices.to_string(),
        ];
        row.extend(
            PageKind::ALL
                .iter()
                .map(|&kind| moment.pages.get(kind).bytes(recorded.page_bytes).0.to_string()),
        );
        csv.row(&row);
    }
    csv
}

fn draw_utilisation(
    id: &str,
    title: &str,
    recorded: &RecordingData,
    top: f64,
    unit: ByteUnit,
    look: Medium,
) -> String {
    let mut keys =
        vec![LegendEntry::new("holding", LegendMark::Area, "slices that hold something")];
    keys.extend(
        USED.iter()
            .rev()
            .map(|kind| LegendEntry::new(kind_class(*kind), LegendMark::Area, kind.name())),
    );
    if !recorded.compactions.is_empty() {
        keys.push(LegendEntry::new("compaction", LegendMark::Area, "emptying"));
    }
    let x = time::axis(time::span(recorded), recorded.emulated);
    let y = ChartAxis::new((0.0, top), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 260.0, &keys, &x, &y);
    let moments = time::thinned(recorded, look.columns());
    let curve: Vec<_> =
        moments.iter().map(|moment| (moment.seconds, 0.0, holding(moment) / unit.bytes)).collect();
    panel.band("holding", &steps(&curve));
    for (from, to) in &recorded.compactions {
        panel.stripe("compaction", *from, *to, "");
    }
    stack(&mut panel, recorded, &moments, &USED, unit.bytes);
    for (moment, width) in widths(&moments) {
        let shown = |kind: PageKind| {
            let size = Bytes(bytes(recorded, moment.pages.get(kind)) as u64);
            format!("{} {size}", kind.name())
        };
        let mut words = vec![format!("{:.1} s", moment.seconds)];
        words.push(format!(
            "{} slices ({}) hold something",
            moment.holding_slices,
            Bytes(holding(moment) as u64)
        ));
        words.extend(USED.iter().map(|&kind| shown(kind)));
        words.push(shown(PageKind::Offline));
        panel.hit(moment.seconds, width, &words.join(", "));
    }
    let last = moments.last().map_or(0, |moment| moment.holding_slices);
    let peak = recorded.moments.iter().map(|moment| moment.holding_slices).max().unwrap_or(0);
    let about = format!(
        "Over {:.0} seconds, at most {peak} slices of {} held something, {last} at the end.",
        time::span(recorded),
        recorded.slice_bytes
    );
    panel.finish(id, title, &about)
}

/// Kinds on top of each other.
fn stack(
    panel: &mut ChartPanel,
    recorded: &RecordingData,
    moments: &[&MachineMoment],
    kinds: &[PageKind],
    unit: f64,
) {
    let mut below = vec![0.0; moments.len()];
    for &kind in kinds {
        let points: Vec<_> = moments
            .iter()
            .zip(&mut below)
            .map(|(moment, below)| {
                let low = *below;
                *below += bytes(recorded, moment.pages.get(kind)) / unit;
                (moment.seconds, low, *below)
            })
            .collect();
        panel.band(kind_class(kind), &points);
    }
}

/// States hold until the next sample: a staircase.
pub(super) fn steps(points: &[(f64, f64, f64)]) -> Vec<(f64, f64, f64)> {
    let mut stairs = Vec::with_capacity(2 * points.len());
    for pair in points.windows(2) {
        stairs.extend([pair[0], (pair[1].0, pair[0].1, pair[0].2)]);
    }
    stairs.extend(points.last());
    stairs
}

/// Moments, and how wide the column around each is.
pub(super) fn widths<'a>(
    moments: &'a [&'a MachineMoment],
) -> impl Iterator<Item = (&'a MachineMoment, f64)> {
    let all = moments.last().map_or(1.0, |moment| moment.seconds);
    let width = all / moments.len().saturating_sub(1).max(1) as f64;
    moments.iter().map(move |moment| (*moment, width))
}

/// The class that the style sheet colours a kind by.
pub(super) fn kind_class(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Unmovable => "k-unmovable",
        PageKind::Movable => "k-movable",
        PageKind::Freeable => "k-freeable",
        PageKind::Free => "k-free",
        PageKind::Waking => "k-waking",
        PageKind::Offline => "k-offline",
        PageKind::Quarantined => "k-quarantined",
        PageKind::Hole => "k-hole",
    }
}

/// All memory by kind: what is on top is off.
pub(crate) fn occupation(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    if all == 0 {
        let (what, how) = time::no_recording();
        return vec![ReportFigure::missing("occupation", OCCUPATION, what, how)];
    }
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("occupation", at, all), heading(OCCUPATION, &recorded.name, all));
        let caption = "Every page of every slice by what it is, at each moment: from what keeps \
                       slices on at the bottom to what is off at the top.";
        let recorded = Rc::clone(recorded);
        let (csv, name) = (csv(&recorded), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_occupation(&id, &name, &recorded, look)
        })
    };
    runs.recorded.iter().enumerate().map(draw).collect()
}

fn draw_occupation(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let there =
        |kind: PageKind| recorded.moments.iter().any(|moment| moment.pages.get(kind) > Pages::ZERO);
    let kinds: Vec<PageKind> =
        PageKind::ALL.into_iter().filter(|&kind| kind != PageKind::Hole && there(kind)).collect();
    let keys: Vec<LegendEntry> = kinds
        .iter()
        .map(|&kind| LegendEntry::new(kind_class(kind), LegendMark::Area, kind_word(kind)))
        .collect();
    let total = |moment: &MachineMoment| {
        kinds.iter().map(|&kind| bytes(recorded, moment.pages.get(kind))).sum::<f64>()
    };
    let top = recorded.moments.iter().map(total).fold(0.0, f64::max);
    let unit = ByteUnit::of(top);
    let x = time::axis(time::span(recorded), recorded.emulated);
    let y = ChartAxis::new((0.0, top / unit.bytes), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 240.0, &keys, &x, &y);
    let moments = time::thinned(recorded, look.columns());
    stack(&mut panel, recorded, &moments, &kinds, unit.bytes);
    for (moment, width) in widths(&moments) {
        let mut words = vec![format!("{:.1} s", moment.seconds)];
        words.extend(kinds.iter().map(|&kind| {
            format!("{} {}", kind_word(kind), Bytes(bytes(recorded, moment.pages.get(kind)) as u64))
        }));
        panel.hit(moment.seconds, width, &words.join(", "));
    }
    let off = |moment: Option<&MachineMoment>| {
        let pages = moment.map_or(Pages::ZERO, |moment| moment.pages.get(PageKind::Offline));
        Bytes(bytes(recorded, pages) as u64)
    };
    let about = format!(
        "{} are off at the start, {} at the end.",
        off(recorded.moments.first()),
        off(recorded.moments.last())
    );
    panel.finish(id, title, &about)
}

/// The word in a legend.
pub(super) fn kind_word(kind: PageKind) -> &'static str {
    if kind == PageKind::Offline { "off" } else { kind.name() }
}
