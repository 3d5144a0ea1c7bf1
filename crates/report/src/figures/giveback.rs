//! What a virtual machine keeps of its host's memory over time, against what it uses. Only of
//! recordings whose power driver reports slices to the host: others give nothing back.

use std::rc::Rc;

use ramslice_types::{Bytes, PageKind};

use super::naming::{heading, id};
use super::time;
use super::utilisation::{ByteUnit, steps, widths};
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{MachineMoment, RecordingData, ReportData};
use crate::scale::ceiling;

const TITLE: &str = "Memory left to the guest, against what it uses";
const GIB_MINUTE: f64 = (1_u64 << 30) as f64 * 60.0;

/// Sizes at a moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GuestSizes {
    /// In use, without clean cache that no process maps.
    used: u64,
    /// The same with it.
    used_with_cache: u64,
    /// All that is not off: the host may hold it.
    on: u64,
    reported: u64,
}

impl GuestSizes {
    fn of(recorded: &RecordingData, moment: &MachineMoment) -> Self {
        let bytes = |kind: PageKind| moment.pages.get(kind).bytes(recorded.page_bytes).0;
        let there = PageKind::ALL.into_iter().filter(|&kind| kind != PageKind::Hole);
        let used = bytes(PageKind::Unmovable) + bytes(PageKind::Movable);
        let reported = bytes(PageKind::Offline);
        Self {
            used,
            used_with_cache: used + bytes(PageKind::Freeable),
            on: there.map(bytes).sum::<u64>() - reported,
            reported,
        }
    }
}

/// One per recording of a guest that reports; no placeholder for others.
pub(crate) fn giveback(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let draw = |(at, recorded): (usize, &Rc<RecordingData>)| {
        let (id, title) = (id("giveback", at, all), heading(TITLE, &recorded.name, all));
        let caption = "What is on may be held by the host; what is above it was reported, and is \
                       the host's to use. Whether the host took it is not in a recording: \
                       `ramslice giveback verify` says it there. The gap between what is on and \
                       what is used is what could still go.";
        let recorded = Rc::clone(recorded);
        let (csv, name) = (csv(&recorded), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_giveback(&id, &name, &recorded, look)
        })
    };
    let runs = runs.recorded.iter().enumerate();
    runs.filter(|(_, recorded)| recorded.reports_to_host).map(draw).collect()
}

fn csv(recorded: &RecordingData) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "time_s",
        "used_bytes",
        "used_with_cache_bytes",
        "on_bytes",
        "reported_bytes",
    ]);
    for moment in &recorded.moments {
        let sizes = GuestSizes::of(recorded, moment);
        let mut row = vec![format!("{:.3}", moment.seconds)];
        row.extend(
            [sizes.used, sizes.used_with_cache, sizes.on, sizes.reported]
                .map(|bytes| bytes.to_string()),
        );
        csv.row(&row);
    }
    csv
}

/// A size over time, in GiB minutes: each moment counts until the next.
fn gib_minutes(recorded: &RecordingData, size: fn(GuestSizes) -> u64) -> f64 {
    let byte_seconds = recorded.moments.windows(2).map(|pair| {
        size(GuestSizes::of(recorded, &pair[0])) as f64 * (pair[1].seconds - pair[0].seconds)
    });
    byte_seconds.sum::<f64>() / GIB_MINUTE
}

fn draw_giveback(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("k-offline", LegendMark::Area, "reported"),
        LegendEntry::new("holding", LegendMark::Area, "on"),
        LegendEntry::new("k-freeable", LegendMark::Area, "clean cache"),
        LegendEntry::new("k-movable", LegendMark::Area, "used"),
    ];
    let moments: Vec<(&MachineMoment, GuestSizes)> = time::thinned(recorded, look.columns())
        .into_iter()
        .map(|moment| (moment, GuestSizes::of(recorded, moment)))
        .collect();
    let top = moments.iter().map(|(_, sizes)| sizes.on + sizes.reported).max().unwrap_or(0) as f64;
    let unit = ByteUnit::of(top);
    let x = time::axis(time::span(recorded), recorded.emulated);
    let y = ChartAxis::new((0.0, ceiling(top / unit.bytes)), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 240.0, &keys, &x, &y);
    let mut band = |class: &str, ends: fn(GuestSizes) -> (u64, u64)| {
        let points: Vec<_> = moments
            .iter()
            .map(|&(moment, sizes)| {
                let (low, high) = ends(sizes);
                (moment.seconds, low as f64 / unit.bytes, high as f64 / unit.bytes)
            })
            .collect();
        panel.band(class, &steps(&points));
    };
    band("k-offline", |sizes| (sizes.on, sizes.on + sizes.reported));
    band("holding", |sizes| (0, sizes.on));
    band("k-freeable", |sizes| (sizes.used, sizes.used_with_cache));
    band("k-movable", |sizes| (0, sizes.used));
    let shown: Vec<&MachineMoment> = moments.iter().map(|(moment, _)| *moment).collect();
    for (moment, width) in widths(&shown) {
        let sizes = GuestSizes::of(recorded, moment);
        let words = format!(
            "{:.1} s, {} used, {} with cache, {} on, {} reported",
            moment.seconds,
            Bytes(sizes.used),
            Bytes(sizes.used_with_cache),
            Bytes(sizes.on),
            Bytes(sizes.reported)
        );
        panel.hit(moment.seconds, width, &words);
    }
    let about = format!(
        "In GiB minutes: {:.2} used, {:.2} with cache, {:.2} on, {:.2} reported.",
        gib_minutes(recorded, |sizes| sizes.used),
        gib_minutes(recorded, |sizes| sizes.used_with_cache),
        gib_minutes(recorded, |sizes| sizes.on),
        gib_minutes(recorded, |sizes| sizes.reported)
    );
    panel.finish(id, title, &about)
}
