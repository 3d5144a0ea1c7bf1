//! What `/proc/meminfo` said over time, and its means over whole recordings: the graphs and Table 1
//! of "Dynamic Memory Management" (IIT Kanpur), with 95 % intervals.

use std::rc::Rc;

use ramslice_types::Bytes;

use super::naming::{heading, id};
use super::time;
use super::utilisation::ByteUnit;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{MemoryMoment, ReportData, StatisticsData};
use crate::scale::ceiling;
use crate::time_mean::TimeMean;

const OVER_TIME: &str = "Free memory, page cache and the rest";
const MEANS: &str = "Means of free memory, page cache and the rest";

/// A column of the table, in its order.
type MemoryColumn = (&'static str, fn(&MemoryMoment) -> u64);

const COLUMNS: [MemoryColumn; 5] = [
    ("total", |moment| moment.total.0),
    ("free", |moment| moment.free.0),
    ("used", MemoryMoment::used),
    ("cached", |moment| moment.cached.0),
    ("used_without_cache", MemoryMoment::used_without_cache),
];

/// Free memory, page cache and the rest over time: one for each recording that has statistics; no
/// placeholder for others.
pub(crate) fn statistics(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.statistics.len();
    let draw = |(at, run): (usize, &StatisticsData)| {
        let (id, title) = (id("statistics", at, all), heading(OVER_TIME, &run.name, all));
        let caption = "From /proc/meminfo. Page cache is Buffers, Cached and SwapCached, with \
                       shared memory, which cannot be dropped. Used is MemTotal less MemFree.";
        let (csv, name, run) = (csv(run), title.clone(), Rc::new(run.clone()));
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_statistics(&id, &name, &run, look)
        })
    };
    runs.statistics.iter().enumerate().map(draw).collect()
}

fn csv(run: &StatisticsData) -> CsvTable {
    let names = COLUMNS.map(|(name, _)| format!("{name}_bytes"));
    let heads: Vec<&str> =
        std::iter::once("time_s").chain(names.iter().map(String::as_str)).collect();
    let mut csv = CsvTable::new(&heads);
    for moment in &run.moments {
        let mut row = vec![format!("{:.3}", moment.seconds)];
        row.extend(COLUMNS.map(|(_, value)| value(moment).to_string()));
        csv.row(&row);
    }
    csv
}

/// At most `columns` moments, at equal distances.
fn thinned(run: &StatisticsData, columns: usize) -> Vec<&MemoryMoment> {
    let step = run.moments.len().div_ceil(columns.max(1)).max(1);
    let mut found: Vec<_> = run.moments.iter().step_by(step).collect();
    if let Some(last) = run.moments.last()
        && found.last().is_some_and(|one| one.seconds < last.seconds)
    {
        found.push(last);
    }
    found
}

fn draw_statistics(id: &str, title: &str, run: &StatisticsData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("k-free", LegendMark::Area, "free"),
        LegendEntry::new("k-freeable", LegendMark::Area, "page cache"),
        LegendEntry::new("k-movable", LegendMark::Area, "used without page cache"),
    ];
    let moments = thinned(run, look.columns());
    let top = moments.iter().map(|moment| moment.total.0).max().unwrap_or(0) as f64;
    let unit = ByteUnit::of(top);
    let span = run.moments.last().map_or(1.0, |moment| moment.seconds).max(1e-3);
    let x = time::axis(span, run.emulated);
    let y = ChartAxis::new((0.0, ceiling(top / unit.bytes)), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 240.0, &keys, &x, &y);
    let mut band = |class: &str, ends: fn(&MemoryMoment) -> (u64, u64)| {
        let points: Vec<_> = moments
            .iter()
            .map(|moment| {
                let (low, high) = ends(moment);
                (moment.seconds, low as f64 / unit.bytes, high as f64 / unit.bytes)
            })
            .collect();
        panel.band(class, &points);
    };
    band("k-free", |moment| (moment.used(), moment.total.0));
    band("k-freeable", |moment| (moment.used_without_cache(), moment.used()));
    band("k-movable", |moment| (0, moment.used_without_cache()));
    let width = span / moments.len().saturating_sub(1).max(1) as f64;
    for moment in &moments {
        let words = format!(
            "{:.1} s, {} free, {} page cache, {} used without it",
            moment.seconds,
            moment.free,
            moment.cached,
            Bytes(moment.used_without_cache())
        );
        panel.hit(moment.seconds, width, &words);
    }
    let about = format!("{} samples over {span:.0} seconds.", run.moments.len());
    panel.finish(id, title, &about)
}

fn means(run: &StatisticsData, value: fn(&MemoryMoment) -> u64) -> Option<TimeMean> {
    let moments: Vec<_> =
        run.moments.iter().map(|moment| (moment.seconds, value(moment) as f64)).collect();
    TimeMean::of(&moments)
}

/// The means of all recordings that have statistics, beside each other.
pub(crate) fn statistics_means(runs: &ReportData) -> Vec<ReportFigure> {
    if runs.statistics.is_empty() {
        return Vec::new();
    }
    let caption = "Means over time. The 95 % intervals know of autocorrelation (batch means); a \
                   recording that is too short for one has none.";
    let (csv, data) = (means_csv(&runs.statistics), Rc::new(runs.statistics.clone()));
    vec![ReportFigure::drawn("statistics-means", MEANS, caption, csv, move |look| {
        draw_means(&data, look)
    })]
}

fn means_csv(runs: &[StatisticsData]) -> CsvTable {
    let mut heads = vec!["run".to_owned(), "samples".to_owned(), "time_s".to_owned()];
    for (name, _) in COLUMNS {
        heads.extend([format!("{name}_bytes"), format!("{name}_margin_bytes")]);
    }
    let mut csv = CsvTable::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for run in runs {
        let span = run.moments.last().map_or(0.0, |moment| moment.seconds);
        let mut row = vec![run.name.clone(), run.moments.len().to_string(), format!("{span:.3}")];
        for (_, value) in COLUMNS {
            let mean = means(run, value);
            row.push(mean.map_or_else(String::new, |mean| format!("{:.0}", mean.mean)));
            let margin = mean.and_then(|mean| mean.margin);
            row.push(margin.map_or_else(String::new, |margin| format!("{margin:.0}")));
        }
        csv.row(&row);
    }
    csv
}

fn draw_means(runs: &[StatisticsData], look: Medium) -> String {
    let keys = [
        LegendEntry::new("k-free", LegendMark::Area, "free"),
        LegendEntry::new("k-freeable", LegendMark::Area, "page cache"),
        LegendEntry::new("k-movable", LegendMark::Area, "used without page cache"),
    ];
    let mean = |run, value| means(run, value).map_or(0.0, |mean| mean.mean);
    let top = runs.iter().map(|run| mean(run, COLUMNS[0].1)).fold(0.0, f64::max);
    let unit = ByteUnit::of(top);
    let names = runs.iter().enumerate().map(|(at, run)| (at as f64 + 0.5, run.name.clone()));
    let x = ChartAxis {
        marks: Some(names.collect()),
        ..ChartAxis::new((0.0, runs.len() as f64), "recording")
    };
    let y = ChartAxis::new((0.0, ceiling(top / unit.bytes)), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, MEANS, 240.0, &keys, &x, &y);
    for (at, run) in runs.iter().enumerate() {
        let (from, to) = (at as f64 + 0.2, at as f64 + 0.8);
        let [total, _, used, _, rest] = COLUMNS.map(|(_, value)| mean(run, value) / unit.bytes);
        for (class, low, high) in
            [("k-free", used, total), ("k-freeable", rest, used), ("k-movable", 0.0, rest)]
        {
            panel.band(class, &[(from, low, high), (to, low, high)]);
        }
        for (value, place) in [(COLUMNS[2].1, 0.6), (COLUMNS[4].1, 0.4)] {
            if let Some(TimeMean { mean, margin: Some(margin) }) = means(run, value) {
                let ends = ((mean - margin) / unit.bytes, (mean + margin) / unit.bytes);
                panel.whisker(at as f64 + place, ends.0, ends.1);
            }
        }
        let words = format!(
            "{}: {} samples, {:.2} {} used, {:.2} without page cache",
            run.name,
            run.moments.len(),
            used,
            unit.name,
            rest
        );
        panel.hit(at as f64 + 0.5, 0.6, &words);
    }
    panel.finish("statistics-means", MEANS, &format!("{} recordings.", runs.len()))
}
