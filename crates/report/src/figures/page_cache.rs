//! How often the page cache had what was looked up, over time and against the watermarks that
//! follow it ("Dynamic Memory Management", IIT Kanpur, section 4, points 5 and 6).

use std::rc::Rc;

use ramslice_types::Bytes;

use super::naming::{heading, id};
use super::time;
use super::utilisation::ByteUnit;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{LookupInterval, PageCacheData, ReportData};
use crate::scale::ceiling;

const OVER_TIME: &str = "Hit ratio of the page cache over time";
const ACTIVE: &str = "Active memory, and watermarks that follow the hit ratio";
const AGAINST: &str = "Hit ratio against the watermarks";

/// Both ratios over time, one figure for each recording of a kernel that counts look-ups; no
/// placeholder for others.
pub(crate) fn hit_ratios(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.page_cache.len();
    let draw = |(at, run): (usize, &PageCacheData)| {
        let (id, title) = (id("hit-ratio", at, all), heading(OVER_TIME, &run.name, all));
        let caption = "Look-up hit ratio: of the pages that buffered reads and faults looked up, \
                       those that the cache had. Disk-free ratio: those that no disk had to bring, \
                       also ahead of reading. Each point covers at least 1000 pages looked up.";
        let (csv, name, run) = (ratios_csv(run), title.clone(), Rc::new(run.clone()));
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_ratios(&id, &name, &run, look)
        })
    };
    let known = |(_, run): &(usize, &PageCacheData)| !run.intervals.is_empty();
    runs.page_cache.iter().enumerate().filter(known).map(draw).collect()
}

fn ratios_csv(run: &PageCacheData) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "begun_s",
        "time_s",
        "lookup_pages",
        "absent_pages",
        "from_disk_pages",
        "lookup_hit_ratio",
        "disk_free_ratio",
    ]);
    for interval in &run.intervals {
        let ratios = &interval.ratios;
        csv.row(&[
            format!("{:.3}", interval.begun_seconds),
            format!("{:.3}", interval.seconds),
            ratios.lookups.0.to_string(),
            ratios.absent.0.to_string(),
            ratios.from_disk.0.to_string(),
            format!("{:.6}", ratios.lookup_hit.0),
            format!("{:.6}", ratios.disk_free.0),
        ]);
    }
    csv
}

/// At most `columns` of a series, at equal distances.
fn thinned<T>(all: &[T], columns: usize) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(columns.max(1)).max(1))
}

/// The axis of a ratio: from the tenth below the least of them to 1.
fn ratio_axis<'a>(all: impl Iterator<Item = &'a LookupInterval>) -> ChartAxis {
    let ratios = all.flat_map(|one| [one.ratios.lookup_hit.0, one.ratios.disk_free.0]);
    let least = ratios.fold(0.9, f64::min);
    ChartAxis::new(((least * 10.0).floor() / 10.0, 1.0), "ratio")
}

fn draw_ratios(id: &str, title: &str, run: &PageCacheData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("fit s2", LegendMark::Line, "look-up hit ratio"),
        LegendEntry::new("fit s3", LegendMark::Line, "disk-free ratio"),
    ];
    let shown: Vec<_> = thinned(&run.intervals, look.columns()).collect();
    let x = time::axis(run.span(), run.emulated);
    let y = ratio_axis(run.intervals.iter());
    let mut panel = ChartPanel::new(look, title, 220.0, &keys, &x, &y);
    let curve = |ratio: fn(&LookupInterval) -> f64| -> Vec<_> {
        shown.iter().map(|interval| (interval.seconds, ratio(interval))).collect()
    };
    panel.curve("fit s3", &curve(|interval| interval.ratios.disk_free.0));
    panel.curve("fit s2", &curve(|interval| interval.ratios.lookup_hit.0));
    for interval in &shown {
        let words = format!("{:.1} s: {}", interval.seconds, interval.ratios);
        panel.hit(interval.seconds, run.span() / shown.len() as f64, &words);
    }
    let looked_up: u64 = run.intervals.iter().map(|interval| interval.ratios.lookups.0).sum();
    let about = format!("{looked_up} pages looked up over {:.0} seconds.", run.span());
    panel.finish(id, title, &about)
}

/// Active memory and the watermarks over time, and the ratio against them: of recordings in which a
/// daemon's watermarks followed it.
pub(crate) fn hit_ratio_watermarks(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.page_cache.len();
    let mut figures = Vec::new();
    for (at, run) in runs.page_cache.iter().enumerate().filter(|(_, run)| !run.marks.is_empty()) {
        let run = Rc::new(run.clone());
        let (own, title) = (id("watermarks", at, all), heading(ACTIVE, &run.name, all));
        let caption = "Active memory is what is not off. CACHE_FREE_LOW and CACHE_FREE_HIGH are \
                       sums over the zones; each stripe is a move, with its reason.";
        let (csv, name, shown) = (marks_csv(&run), title.clone(), Rc::clone(&run));
        figures.push(ReportFigure::drawn(own.clone(), title, caption, csv, move |look| {
            draw_marks(&own, &name, &shown, look)
        }));
        if run.intervals.is_empty() {
            continue;
        }
        let (own, title) = (id("hit-ratio-watermarks", at, all), heading(AGAINST, &run.name, all));
        let caption = "Each point is an interval of the figure of hit ratios over time, at the \
                       CACHE_FREE_HIGH that was in force at its end.";
        let (csv, name) = (against_csv(&run), title.clone());
        figures.push(ReportFigure::drawn(own.clone(), title, caption, csv, move |look| {
            draw_against(&own, &name, &run, look)
        }));
    }
    figures
}

fn marks_csv(run: &PageCacheData) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "time_s",
        "active_bytes",
        "cache_free_low_bytes",
        "cache_free_high_bytes",
        "moved_because",
    ]);
    let mut moves = run.moves.iter().peekable();
    for moment in &run.marks {
        let active = moment.active.map_or_else(String::new, |active| active.0.to_string());
        let mut because = Vec::new();
        while let Some((_, why)) = moves.next_if(|(seconds, _)| *seconds <= moment.seconds) {
            because.push(why.as_str());
        }
        csv.row(&[
            format!("{:.3}", moment.seconds),
            active,
            moment.low.0.to_string(),
            moment.high.0.to_string(),
            because.join("; "),
        ]);
    }
    csv
}

fn draw_marks(id: &str, title: &str, run: &PageCacheData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("holding", LegendMark::Area, "active memory"),
        LegendEntry::new("fit s2", LegendMark::Line, "CACHE_FREE_HIGH"),
        LegendEntry::new("fit s2 dashed", LegendMark::Line, "CACHE_FREE_LOW"),
        LegendEntry::new("compaction", LegendMark::Area, "move"),
    ];
    let shown: Vec<_> = thinned(&run.marks, look.columns()).collect();
    let active = |active: Option<Bytes>| active.map_or(0, |active| active.0);
    let most = run.marks.iter().map(|one| active(one.active).max(one.high.0)).max().unwrap_or(0);
    let unit = ByteUnit::of(most as f64);
    let x = time::axis(run.span(), run.emulated);
    let top = ceiling(most as f64 / unit.bytes);
    let y = ChartAxis::new((0.0, top), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 240.0, &keys, &x, &y);
    let scaled = |bytes: u64| bytes as f64 / unit.bytes;
    let area: Vec<_> =
        shown.iter().filter_map(|one| Some((one.seconds, 0.0, scaled(one.active?.0)))).collect();
    if area.len() > 1 {
        panel.band("holding", &area);
    }
    let curve = |value: fn(&crate::report_data::MarkMoment) -> Bytes| -> Vec<_> {
        shown.iter().map(|one| (one.seconds, scaled(value(one).0))).collect()
    };
    panel.curve("fit s2 dashed", &curve(|one| one.low));
    panel.curve("fit s2", &curve(|one| one.high));
    for one in &shown {
        let words = format!(
            "{:.1} s: {} active, CACHE_FREE_LOW {}, CACHE_FREE_HIGH {}",
            one.seconds,
            one.active.map_or_else(|| "unknown".to_owned(), |active| active.to_string()),
            one.low,
            one.high
        );
        panel.hit(one.seconds, run.span() / shown.len() as f64, &words);
    }
    for (seconds, why) in thinned(&run.moves, look.columns()) {
        panel.stripe("compaction", *seconds, *seconds, &format!("{seconds:.1} s: {why}"));
    }
    let about = format!("{} moves over {:.0} seconds.", run.moves.len(), run.span());
    panel.finish(id, title, &about)
}

/// Intervals with the upper watermark that was in force at their end.
fn against(run: &PageCacheData) -> Vec<(Bytes, &LookupInterval)> {
    let mark = |interval: &LookupInterval| {
        let after = run.marks.partition_point(|moment| moment.seconds <= interval.seconds);
        Some(run.marks.get(after.checked_sub(1)?)?.high)
    };
    run.intervals.iter().filter_map(|interval| Some((mark(interval)?, interval))).collect()
}

fn against_csv(run: &PageCacheData) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "time_s",
        "cache_free_high_bytes",
        "lookup_pages",
        "lookup_hit_ratio",
        "disk_free_ratio",
    ]);
    for (high, interval) in against(run) {
        csv.row(&[
            format!("{:.3}", interval.seconds),
            high.0.to_string(),
            interval.ratios.lookups.0.to_string(),
            format!("{:.6}", interval.ratios.lookup_hit.0),
            format!("{:.6}", interval.ratios.disk_free.0),
        ]);
    }
    csv
}

fn draw_against(id: &str, title: &str, run: &PageCacheData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("series s2", LegendMark::Dot, "look-up hit ratio"),
        LegendEntry::new("series s3", LegendMark::Dot, "disk-free ratio"),
    ];
    let points = against(run);
    let most = points.iter().map(|(high, _)| high.0).max().unwrap_or(0) as f64;
    let unit = ByteUnit::of(most);
    let end = ceiling(most / unit.bytes);
    let x = ChartAxis::new((0.0, end), format!("CACHE_FREE_HIGH, {}", unit.name));
    let y = ratio_axis(run.intervals.iter());
    let mut panel = ChartPanel::new(look, title, 240.0, &keys, &x, &y);
    for (high, interval) in thinned(&points, 4 * look.columns()) {
        let words = format!("{:.1} s, at {high}: {}", interval.seconds, interval.ratios);
        let ratios =
            [("series s3", interval.ratios.disk_free), ("series s2", interval.ratios.lookup_hit)];
        for (class, ratio) in ratios {
            let at = panel.at(high.0 as f64 / unit.bytes, ratio.0);
            panel.svg.circle(class, at, 3.0, &words);
        }
    }
    panel.finish(id, title, &format!("{} intervals.", points.len()))
}

#[cfg(test)]
mod tests {
    use ramslice_types::{CacheRatios, Pages, Ratio};

    use super::*;
    use crate::report_data::MarkMoment;

    const MIB: u64 = 1 << 20;

    fn run(name: &str, marks: bool) -> PageCacheData {
        let interval = |at: u64| LookupInterval {
            begun_seconds: at as f64 * 10.0,
            seconds: at as f64 * 10.0 + 10.0,
            ratios: CacheRatios {
                lookups: Pages(1000),
                absent: Pages(at),
                from_disk: Pages(5 * at),
                lookup_hit: Ratio(1.0 - at as f64 / 1000.0),
                disk_free: Ratio(1.0 - at as f64 / 200.0),
            },
        };
        let mark = |at: u64| MarkMoment {
            seconds: at as f64 * 25.0,
            active: Some(Bytes((500 + at) * MIB)),
            low: Bytes((64 + at) * MIB),
            high: Bytes((128 + at) * MIB),
        };
        PageCacheData {
            name: name.to_owned(),
            emulated: false,
            intervals: (0..60).map(interval).collect(),
            marks: if marks { (0..20).map(mark).collect() } else { Vec::new() },
            moves: if marks { vec![(30.0, "raises, by \"much\"".to_owned())] } else { Vec::new() },
        }
    }

    #[test]
    fn ratios_are_drawn_for_each_run_and_watermarks_where_there_are_any() {
        let page_cache = vec![run("first", false), run("second", true)];
        let runs = ReportData { page_cache, ..ReportData::default() };
        let ids = |figures: Vec<ReportFigure>| -> Vec<_> {
            figures.into_iter().map(|figure| figure.id).collect()
        };
        assert_eq!(ids(hit_ratios(&runs)), ["hit-ratio-1", "hit-ratio-2"]);
        assert_eq!(ids(hit_ratio_watermarks(&runs)), ["watermarks-2", "hit-ratio-watermarks-2"]);
        for figure in hit_ratios(&runs).iter().chain(&hit_ratio_watermarks(&runs)) {
            for look in [Medium::Wide, Medium::Narrow, Medium::Picture] {
                let svg = figure.svg(look).unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", figure.id);
            }
        }
        assert!(hit_ratios(&ReportData::default()).is_empty());
    }

    #[test]
    fn the_data_have_ratios_marks_and_reasons() {
        let runs = ReportData { page_cache: vec![run("one", true)], ..ReportData::default() };
        let ratios = hit_ratios(&runs);
        let csv = ratios[0].csv().unwrap();
        assert_eq!(csv.lines().nth(3), Some("20.000,30.000,1000,2,10,0.998000,0.990000"));
        let marks = hit_ratio_watermarks(&runs);
        let csv = marks[0].csv().unwrap();
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines[1], format!("0.000,{},{},{},", 500 * MIB, 64 * MIB, 128 * MIB));
        assert!(lines[3].starts_with("50.000,") && lines[3].contains("raises"), "{}", lines[3]);
        // The mark in force at the end of the interval, not the next.
        let csv = marks[1].csv().unwrap();
        let against: Vec<_> = csv.lines().collect();
        assert_eq!(against[3], format!("30.000,{},1000,0.998000,0.990000", 129 * MIB));
    }
}
