//! One program with less and less memory: its performance, faults, and pages reclaimed, read and
//! swapped, against what was left to it; and over time while memory shrinks and grows. These are
//! the graphs of section 2.3 of "Memory Management using Dynamic Memory Switching" and Figures 3 to
//! 15 of the other report from Kanpur, as far as they mean something on 64 bits.

use std::rc::Rc;

use super::naming::{heading, id};
use super::time;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::ReportData;
use crate::scale::{ceiling, digits};
use crate::size_data::{SizeMethod, SizeRamp, SizeRampSample, SizeRun, SizeStudy};

const MIB: f64 = (1 << 20) as f64;
const MEGA: f64 = 1e6;

/// A legend's words, and a value of a run.
type NamedValue = (&'static str, fn(&SizeRun) -> f64);

/// One of the values of a run that is drawn against memory.
struct SizeCurve {
    id: &'static str,
    title: &'static str,
    /// The axis; nothing for the study's own unit.
    unit: Option<&'static str>,
    caption: &'static str,
    /// What is drawn together.
    values: &'static [NamedValue],
}

static CURVES: [SizeCurve; 7] = [
    SizeCurve {
        id: "size-performance",
        title: "Performance and memory",
        unit: None,
        caption: "How fast the program was.",
        values: &[("", |run| run.performance)],
    },
    SizeCurve {
        id: "size-major-faults",
        title: "Major page faults and memory",
        unit: Some("major page faults"),
        caption: "Page faults that waited for a disk.",
        values: &[("", |run| run.major_faults as f64)],
    },
    SizeCurve {
        id: "size-minor-faults",
        title: "Minor page faults and memory",
        unit: Some("minor page faults"),
        caption: "Page faults that waited for no disk.",
        values: &[("", |run| run.minor_faults as f64)],
    },
    SizeCurve {
        id: "size-reclaimed",
        title: "Pages reclaimed and memory",
        unit: Some("pages reclaimed"),
        caption: "Pages that kswapd or the program itself reclaimed. Linux counts them by node and \
                  kind, no longer by zone.",
        values: &[
            ("anonymous", |run| run.reclaimed_anonymous as f64),
            ("of files", |run| run.reclaimed_file as f64),
        ],
    },
    SizeCurve {
        id: "size-read",
        title: "Data read from disks and memory",
        unit: Some("read from disks, MiB"),
        caption: "What disks delivered, swap included.",
        values: &[("", |run| run.read.0 as f64 / MIB)],
    },
    SizeCurve {
        id: "size-swapped",
        title: "Pages swapped and memory",
        unit: Some("pages"),
        caption: "Pages read from swap and written to it.",
        values: &[("in", |run| run.swapped_in as f64), ("out", |run| run.swapped_out as f64)],
    },
    SizeCurve {
        id: "size-collection",
        title: "Time in garbage collection",
        unit: Some("seconds in garbage collection"),
        caption: "How long the program stood still while its collector worked.",
        values: &[("", |run| run.collection_seconds.unwrap_or(0.0))],
    },
];

/// The curves that say something of a study: of a heap, how fast it was and how long it was
/// collected; of memory, all others.
fn curves(study: &SizeStudy) -> impl Iterator<Item = &'static SizeCurve> {
    let heap = study.is_of_heap();
    let nothing = study.runs.is_empty();
    CURVES.iter().filter(move |curve| match curve.id {
        _ if nothing => false,
        "size-performance" => true,
        "size-collection" => heap,
        _ => !heap,
    })
}

fn words(method: SizeMethod) -> &'static str {
    match method {
        SizeMethod::Plenty => "plenty",
        SizeMethod::Held => "held",
        SizeMethod::Booted => "booted with less",
        SizeMethod::Heap => "heap",
    }
}

/// Runs of one method, and one of the values of a curve: drawn in one colour.
struct SizeSeries<'a> {
    label: String,
    points: Vec<(&'a SizeRun, f64)>,
}

/// The series of a curve; none without a run.
fn series<'a>(study: &'a SizeStudy, curve: &SizeCurve) -> Vec<SizeSeries<'a>> {
    let mut found = Vec::new();
    for method in [SizeMethod::Plenty, SizeMethod::Held, SizeMethod::Booted, SizeMethod::Heap] {
        for (what, value) in curve.values {
            let runs = study.runs.iter().filter(|run| run.method == method);
            let points: Vec<_> = runs.map(|run| (run, value(run))).collect();
            if !points.is_empty() {
                let label = match *what {
                    "" => words(method).to_owned(),
                    what => format!("{what}, {}", words(method)),
                };
                found.push(SizeSeries { label, points });
            }
        }
    }
    found
}

/// By how much sizes of one share may differ: slices are whole, and shares further apart.
const SAME_SHARE: f64 = 0.05;

/// Means of the points whose size is the same but for that, by size.
fn means(points: &[(&SizeRun, f64)]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> =
        points.iter().map(|(run, value)| (run.size.0 as f64 / MIB, *value)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let near = |a: &(f64, f64), b: &(f64, f64)| b.0 - a.0 <= SAME_SHARE * a.0.abs();
    sorted
        .chunk_by(near)
        .map(|group| {
            let nr = group.len() as f64;
            let sum = |of: fn(&(f64, f64)) -> f64| group.iter().map(of).sum::<f64>() / nr;
            (sum(|point| point.0), sum(|point| point.1))
        })
        .collect()
}

/// All figures of studies of sizes; no placeholder without one.
pub(crate) fn sizes(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.sizes.len();
    let mut figures = Vec::new();
    for (at, study) in runs.sizes.iter().enumerate() {
        let study = Rc::new(study.clone());
        for curve in curves(&study) {
            let (id, title) = (id(curve.id, at, all), heading(curve.title, &study.name, all));
            let (memory, line) = if study.is_of_heap() {
                ("Memory was plenty", "its live data")
            } else {
                (
                    "Memory is what was left above what the kernel keeps for itself",
                    "the most that the program used when there was plenty",
                )
            };
            let caption = format!(
                "{} The program: {}. Each point is a run; lines join the means. {memory}{}.",
                curve.caption,
                study.what,
                study.footprint.map_or_else(String::new, |bytes| format!(
                    "; the dashed line is {line}, {bytes}"
                ))
            );
            let (own, name) = (Rc::clone(&study), title.clone());
            figures.push(ReportFigure::drawn(
                id.clone(),
                title,
                caption,
                curve_csv(&study, curve),
                move |look| draw_curve(&id, &name, &own, curve, look),
            ));
        }
        for (number, ramp) in study.ramps.iter().enumerate() {
            let base = self::id("size-ramp", number, study.ramps.len());
            let (id, title) = (id(&base, at, all), heading(RAMP, &study.name, all));
            let caption = "Throughput is what the program read, from the cache or not; misses are \
                           what disks delivered for it. The stepped line is the memory that was \
                           left, slices held and given back.";
            let (own, name) = (Rc::new(ramp.clone()), title.clone());
            figures.push(ReportFigure::drawn(
                id.clone(),
                title,
                caption,
                ramp_csv(ramp),
                move |look| draw_ramp(&id, &name, &own, look),
            ));
        }
    }
    figures
}

fn curve_csv(study: &SizeStudy, curve: &SizeCurve) -> CsvTable {
    let unit = curve.unit.map_or_else(|| study.unit.clone(), str::to_owned);
    let names: Vec<String> = curve
        .values
        .iter()
        .map(|(what, _)| if what.is_empty() { unit.clone() } else { format!("{unit} {what}") })
        .collect();
    let mut heads = vec!["memory", "seed", "size_bytes", "elapsed_s"];
    heads.extend(names.iter().map(String::as_str));
    let mut csv = CsvTable::new(&heads);
    for run in &study.runs {
        let mut row = vec![
            words(run.method).to_owned(),
            run.seed.to_string(),
            run.size.0.to_string(),
            format!("{}", run.elapsed_seconds),
        ];
        row.extend(curve.values.iter().map(|(_, value)| format!("{}", value(run))));
        csv.row(&row);
    }
    csv
}

fn draw_curve(id: &str, title: &str, study: &SizeStudy, curve: &SizeCurve, look: Medium) -> String {
    let all = series(study, curve);
    let keys: Vec<LegendEntry> = all
        .iter()
        .enumerate()
        .map(|(at, one)| {
            LegendEntry::new(format!("series s{}", at % 8), LegendMark::Dot, &one.label)
        })
        .collect();
    let points = || all.iter().flat_map(|one| &one.points);
    let footprint = study.footprint.map(|bytes| bytes.0 as f64 / MIB);
    let right = points().map(|(run, _)| run.size.0 as f64 / MIB).fold(0.0, f64::max);
    let right = ceiling(right.max(footprint.unwrap_or(0.0)));
    let top = ceiling(points().map(|(_, value)| *value).fold(0.0, f64::max));
    let better = if study.more_is_better { "more is better" } else { "less is better" };
    let unit = curve.unit.map_or_else(|| format!("{}, {better}", study.unit), str::to_owned);
    let x = ChartAxis::new(
        (0.0, right),
        if study.is_of_heap() { "heap, MiB" } else { "memory left to the program, MiB" },
    );
    let y = ChartAxis::new((0.0, top), unit.clone());
    let mut panel = ChartPanel::new(look, title, 260.0, &keys, &x, &y);
    if let Some(size) = footprint {
        panel.curve("diagonal", &[(size, 0.0), (size, top)]);
    }
    for (at, one) in all.iter().enumerate() {
        panel.curve(&format!("fit s{}", at % 8), &means(&one.points));
        for (run, value) in &one.points {
            let size = run.size.0 as f64 / MIB;
            let words = format!(
                "{}, seed {}: {} MiB, {} ({unit})",
                one.label,
                run.seed,
                digits(size),
                digits(*value)
            );
            let place = panel.at(size, *value);
            panel.svg.circle(&format!("series s{}", at % 8), place, 3.5, &words);
        }
    }
    let about = format!("{} runs of {}.", study.runs.len(), study.name);
    panel.finish(id, title, &about)
}

const RAMP: &str = "Throughput and misses while memory shrinks and grows";

/// What a program read between two samples.
struct RampInterval {
    from: f64,
    until: f64,
    size: f64,
    /// Megabytes a second.
    read: f64,
    delivered: f64,
}

/// Intervals between samples, some of them joined so that there are at most `columns`.
fn intervals(samples: &[SizeRampSample], columns: usize) -> Vec<RampInterval> {
    let step = samples.len().div_ceil(columns.max(1)).max(1);
    let mut picked: Vec<_> = samples.iter().step_by(step).collect();
    if let Some(last) = samples.last()
        && picked.last().is_some_and(|one| one.seconds < last.seconds)
    {
        picked.push(last);
    }
    picked
        .windows(2)
        .map(|pair| {
            let seconds = pair[1].seconds - pair[0].seconds;
            RampInterval {
                from: pair[0].seconds,
                until: pair[1].seconds,
                size: pair[1].size.0 as f64 / MIB,
                read: (pair[1].read.0 - pair[0].read.0) as f64 / MEGA / seconds,
                delivered: (pair[1].disk_kib - pair[0].disk_kib) as f64 * 1024.0 / MEGA / seconds,
            }
        })
        .collect()
}

fn ramp_csv(ramp: &SizeRamp) -> CsvTable {
    let mut csv =
        CsvTable::new(&["from_s", "until_s", "size_mib", "read_mb_per_s", "misses_mb_per_s"]);
    for one in intervals(&ramp.samples, usize::MAX) {
        csv.row(&[
            format!("{:.3}", one.from),
            format!("{:.3}", one.until),
            format!("{:.1}", one.size),
            format!("{:.3}", one.read),
            format!("{:.3}", one.delivered),
        ]);
    }
    csv
}

fn draw_ramp(id: &str, title: &str, ramp: &SizeRamp, look: Medium) -> String {
    let keys = [
        LegendEntry::new("fit s0", LegendMark::Line, "read, MB/s"),
        LegendEntry::new("fit s1", LegendMark::Line, "of this from disks, MB/s"),
        LegendEntry::new("diagonal", LegendMark::Line, "memory left, MiB"),
    ];
    let found = intervals(&ramp.samples, look.columns());
    let span = found.last().map_or(1.0, |one| one.until).max(1e-3);
    let top = ceiling(
        found.iter().map(|one| one.read.max(one.delivered).max(one.size)).fold(0.0, f64::max),
    );
    let x = time::axis(span, true);
    let y = ChartAxis::new((0.0, top), "MB/s and MiB");
    let mut panel = ChartPanel::new(look, title, 260.0, &keys, &x, &y);
    let steps = |value: fn(&RampInterval) -> f64| -> Vec<(f64, f64)> {
        found.iter().flat_map(|one| [(one.from, value(one)), (one.until, value(one))]).collect()
    };
    panel.curve("diagonal", &steps(|one| one.size));
    panel.curve("fit s0", &steps(|one| one.read));
    panel.curve("fit s1", &steps(|one| one.delivered));
    for one in &found {
        let words = format!(
            "{:.2} to {:.2} s: {} MiB left, {} MB/s, of this {} MB/s from disks",
            one.from,
            one.until,
            digits(one.size),
            digits(one.read),
            digits(one.delivered)
        );
        panel.hit(f64::midpoint(one.from, one.until), one.until - one.from, &words);
    }
    let about = format!("{} samples over {span:.1} seconds.", ramp.samples.len());
    panel.finish(id, title, &about)
}

#[cfg(test)]
mod tests {
    use ramslice_types::Bytes;

    use super::*;
    use crate::size_data::tests::study;

    fn figures(studies: Vec<SizeStudy>) -> Vec<ReportFigure> {
        sizes(&ReportData { sizes: studies, ..ReportData::default() })
    }

    #[test]
    fn without_a_study_there_is_no_figure_and_no_placeholder() {
        assert!(figures(Vec::new()).is_empty());
        let empty = SizeStudy { runs: Vec::new(), ramps: Vec::new(), ..study("sort") };
        assert!(figures(vec![empty]).is_empty());
    }

    #[test]
    fn each_study_has_figures_of_its_own_named_after_it() {
        let found = figures(vec![study("sort"), study("read")]);
        let each = CURVES.len() - 1;
        assert_eq!(found.len(), 2 * (each + 1));
        assert_eq!(found[0].id, "size-performance-1");
        assert!(found[each + 1].title.ends_with(": read"));
    }

    #[test]
    fn a_heap_has_no_figures_of_reclaim_and_one_of_collection() {
        let mut heap = study("lists");
        heap.ramps.clear();
        for run in &mut heap.runs {
            run.method = SizeMethod::Heap;
            run.collection_seconds = Some(1.5);
        }
        let found = figures(vec![heap]);
        let ids: Vec<&str> = found.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["size-performance", "size-collection"]);
        assert!(found[1].csv().unwrap().lines().nth(1).unwrap().ends_with(",1.5"));
        assert!(found[1].caption.contains("Memory was plenty; the dashed line is its live data"));
    }

    #[test]
    fn data_are_what_was_read_one_row_for_each_run() {
        let found = figures(vec![study("sort")]);
        let csv = found[0].csv().unwrap();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows[0], "memory,seed,size_bytes,elapsed_s,s");
        assert_eq!(rows.len(), 1 + study("sort").runs.len());
        assert!(rows.contains(&"held,2,104857600,5,6"), "{rows:?}");
        let swapped = found.iter().find(|figure| figure.id == "size-swapped").unwrap();
        assert!(swapped.csv().unwrap().starts_with("memory,seed,size_bytes,elapsed_s,pages in,"));
    }

    #[test]
    fn a_line_joins_the_means_of_seeds_at_sizes_that_are_the_same_but_for_little() {
        let study = study("sort");
        let at = |mib: f64, value: f64| {
            let size = Bytes((mib * MIB) as u64);
            (SizeRun { size, ..study.runs[0].clone() }, value)
        };
        let runs = [at(100.0, 6.0), at(104.0, 8.0), at(160.0, 2.0)];
        let points: Vec<_> = runs.iter().map(|(run, value)| (run, *value)).collect();
        let found = means(&points);
        assert_eq!(found.len(), 2);
        assert!((found[0].1 - 7.0).abs() < 1e-9 && (found[1].1 - 2.0).abs() < 1e-9);
    }

    #[test]
    fn throughput_and_misses_are_of_the_time_between_samples() {
        let ramp = study("sort").ramps.remove(0);
        let found = intervals(&ramp.samples, usize::MAX);
        // 50 MB in half a second, a fifth of it from disks
        assert!((found[0].read - 100.0).abs() < 1e-9);
        assert!((found[0].delivered - 20.48).abs() < 1e-9);
        // Joined, they are means of the same time
        let joined = intervals(&ramp.samples, 1);
        assert_eq!(joined.len(), 1);
        assert!((joined[0].read - 100.0).abs() < 1e-9);
    }
}
