//! How long slices with cold values would rest: against the time without an access after which they
//! begin to, and against the load; and how often cold values are reached. In place of the watts of
//! section 5.3.2 of "Energy-Aware Interface for Memory Allocation in Linux" (Figures 5.3.2 and
//! 5.3.3, Tables A.1 to A.3), which take hardware.

use std::rc::Rc;

use super::naming::{heading, id};
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::ReportData;
use crate::rest_data::{ColdAccessShare, ColdAccesses, RestCurve, RestStudy, VariedLoad};
use crate::scale::{ceiling, digits};

const HEIGHT: f64 = 260.0;
const SHARE: &str = "share of the time that slices rest, %";

/// A value of each load, or of each threshold, in one colour.
struct NamedCurve {
    label: String,
    points: Vec<(f64, f64)>,
}

/// All figures of cold memory; no placeholder without a study.
pub(crate) fn rest(runs: &ReportData) -> Vec<ReportFigure> {
    let mut figures = Vec::new();
    let all = runs.rest.len();
    for (at, study) in runs.rest.iter().enumerate() {
        let study = Rc::new(study.clone());
        let about = "Slices that hold cold values, by where hot and cold values lie. A slice rests \
                     once nothing has reached it for the idle threshold, until something does; \
                     accesses are counted behind modelled caches, before any memory controller.";
        let load = load_words(study.varied, study.load);
        let title = heading("Rest against the idle threshold", &study.name, all);
        let (id, name, own) = (id("rest-threshold", at, all), title.clone(), Rc::clone(&study));
        figures.push(ReportFigure::drawn(
            id.clone(),
            title,
            format!("{about} With {load}; the data have all loads."),
            rest_csv(&study),
            move |look| draw_thresholds(&id, &name, &own, look),
        ));
        if by_load(&study).iter().all(|curve| curve.points.len() < 2) {
            continue;
        }
        let (base, against) = match study.varied {
            VariedLoad::Rate => ("rest-rate", "Rest against the rate"),
            VariedLoad::Size => ("rest-size", "Rest against the size"),
        };
        let threshold = seconds(study.thresholds_seconds[study.threshold]);
        let title = heading(against, &study.name, all);
        let (id, name, own) = (self::id(base, at, all), title.clone(), Rc::clone(&study));
        figures.push(ReportFigure::drawn(
            id.clone(),
            title,
            format!("{about} With an idle threshold of {threshold}."),
            rest_csv(&study),
            move |look| draw_loads(&id, &name, &own, look),
        ));
    }
    // One rate is no curve
    let studies = || runs.cold_accesses.iter().filter(|study| study.rates.len() > 1);
    let all = studies().count();
    for (at, study) in studies().enumerate() {
        let title = heading("Accesses to cold values", &study.name, all);
        let (id, name, own) = (id("cold-accesses", at, all), title.clone(), study.clone());
        figures.push(ReportFigure::drawn(
            id.clone(),
            title,
            "Of all accesses to values, those to values that lie in the cold area; and as few as \
             there would be if the same number of values were split by who knows how popular each \
             is.",
            accesses_csv(study),
            move |look| draw_accesses(&id, &name, &own, look),
        ));
    }
    figures
}

fn load_words(varied: VariedLoad, load: u32) -> String {
    match varied {
        VariedLoad::Rate => format!("{load} thousand transactions a second"),
        VariedLoad::Size => format!("{load} MiB of values"),
    }
}

/// A time that is short.
fn seconds(time: f64) -> String {
    match time {
        time if time < 0.999e-3 => format!("{} µs", digits(time * 1e6)),
        time if time < 0.999 => format!("{} ms", digits(time * 1e3)),
        time => format!("{} s", digits(time)),
    }
}

/// A power of ten of seconds.
fn mark(power: i32) -> String {
    let (unit, above) = match power {
        ..-3 => ("µs", power + 6),
        -3..0 => ("ms", power + 3),
        _ => ("s", power),
    };
    format!("{} {unit}", 10f64.powi(above))
}

/// Of each place of values, what `points` takes from its curves.
fn curves(study: &RestStudy, points: impl Fn(&RestCurve) -> Vec<(f64, f64)>) -> Vec<NamedCurve> {
    let mut found: Vec<NamedCurve> = Vec::new();
    for curve in &study.curves {
        let (more, label) = (points(curve), curve.places.replace('-', " "));
        match found.iter_mut().find(|one| one.label == label) {
            Some(one) => one.points.extend(more),
            None => found.push(NamedCurve { label, points: more }),
        }
    }
    for one in &mut found {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    found
}

/// Per cent against powers of ten of seconds, at the load that is drawn.
fn by_threshold(study: &RestStudy) -> Vec<NamedCurve> {
    let mut found = curves(study, |curve| {
        if curve.load != study.load {
            return Vec::new();
        }
        let shares = study.thresholds_seconds.iter().zip(&curve.shares);
        shares.map(|(time, share)| (time.log10(), share * 100.0)).collect()
    });
    found.retain(|one| !one.points.is_empty());
    found
}

/// Per cent against loads, at the threshold that is drawn.
fn by_load(study: &RestStudy) -> Vec<NamedCurve> {
    curves(study, |curve| vec![(f64::from(curve.load), curve.shares[study.threshold] * 100.0)])
}

fn draw_thresholds(id: &str, title: &str, study: &RestStudy, look: Medium) -> String {
    let found = by_threshold(study);
    let ends = [study.thresholds_seconds.first(), study.thresholds_seconds.last()];
    let [low, high] = ends.map(|time| time.map_or(0.0, |time| time.log10()));
    let marks = (low.ceil() as i32..=high.floor() as i32)
        .map(|power| (f64::from(power), mark(power)))
        .collect();
    let x = ChartAxis { marks: Some(marks), ..ChartAxis::new((low, high), "idle threshold") };
    let words = |x: f64| seconds(10f64.powf(x));
    draw((id, title), &found, (x, ChartAxis::new((0.0, 100.0), SHARE)), words, look)
}

fn draw_loads(id: &str, title: &str, study: &RestStudy, look: Medium) -> String {
    let label = match study.varied {
        VariedLoad::Rate => "thousand transactions a second",
        VariedLoad::Size => "values, MiB",
    };
    let found = by_load(study);
    let x = ChartAxis::new((0.0, furthest(&found)), label);
    let words = |load: f64| load_words(study.varied, load as u32);
    draw((id, title), &found, (x, ChartAxis::new((0.0, 100.0), SHARE)), words, look)
}

fn draw_accesses(id: &str, title: &str, study: &ColdAccesses, look: Medium) -> String {
    let curve = |label: &str, share: fn(&ColdAccessShare) -> f64| NamedCurve {
        label: label.to_owned(),
        points: study
            .rates
            .iter()
            .map(|rate| (f64::from(rate.ktps), share(rate) * 100.0))
            .collect(),
    };
    let found = [
        curve("in the cold area", |rate| rate.share),
        curve("split by who knows all", |rate| rate.clairvoyant),
    ];
    let most = found.iter().flat_map(|one| &one.points).map(|point| point.1).fold(0.0, f64::max);
    let x = ChartAxis::new((0.0, furthest(&found)), "thousand transactions a second");
    let y = ChartAxis::new((0.0, ceiling(most)), "share of accesses to values, %");
    let words = |load: f64| load_words(VariedLoad::Rate, load as u32);
    draw((id, title), &found, (x, y), words, look)
}

fn furthest(found: &[NamedCurve]) -> f64 {
    ceiling(found.iter().flat_map(|one| &one.points).map(|point| point.0).fold(0.0, f64::max))
}

/// Curves with a dot for each value, whose place `words` tells.
fn draw(
    (id, title): (&str, &str),
    found: &[NamedCurve],
    (x, y): (ChartAxis, ChartAxis),
    words: impl Fn(f64) -> String,
    look: Medium,
) -> String {
    let keys: Vec<LegendEntry> = found
        .iter()
        .enumerate()
        .map(|(at, one)| LegendEntry::new(format!("fit s{}", at % 8), LegendMark::Line, &one.label))
        .collect();
    let mut panel = ChartPanel::new(look, title, HEIGHT, &keys, &x, &y);
    for (at, one) in found.iter().enumerate() {
        panel.curve(&format!("fit s{}", at % 8), &one.points);
        for &(place, value) in &one.points {
            let text = format!("{}, {}: {}%", one.label, words(place), digits(value));
            let (left, top) = panel.at(place, value);
            panel.svg.circle(&format!("series s{}", at % 8), (left, top), 2.5, &text);
        }
    }
    let values: usize = found.iter().map(|one| one.points.len()).sum();
    panel.finish(id, title, &format!("{values} values in {} curves.", found.len()))
}

fn rest_csv(study: &RestStudy) -> CsvTable {
    let load = match study.varied {
        VariedLoad::Rate => "ktps",
        VariedLoad::Size => "values_mib",
    };
    let mut csv = CsvTable::new(&["places", load, "threshold_ns", "rest_share"]);
    for curve in &study.curves {
        for (time, share) in study.thresholds_seconds.iter().zip(&curve.shares) {
            csv.row(&[
                curve.places.clone(),
                curve.load.to_string(),
                format!("{:.0}", time * 1e9),
                format!("{share}"),
            ]);
        }
    }
    csv
}

fn accesses_csv(study: &ColdAccesses) -> CsvTable {
    let mut csv = CsvTable::new(&["ktps", "share", "clairvoyant_share"]);
    for rate in &study.rates {
        csv.row(&[
            rate.ktps.to_string(),
            format!("{}", rate.share),
            format!("{}", rate.clairvoyant),
        ]);
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest_data::tests::rest as study;

    fn figures(rest: Vec<RestStudy>, cold_accesses: Vec<ColdAccesses>) -> Vec<ReportFigure> {
        super::rest(&ReportData { rest, cold_accesses, ..ReportData::default() })
    }

    #[test]
    fn without_a_study_there_is_no_figure_and_no_placeholder() {
        assert!(figures(Vec::new(), Vec::new()).is_empty());
    }

    #[test]
    fn one_load_is_drawn_against_thresholds_and_one_threshold_against_loads() {
        let at_90 = by_threshold(&study("map"));
        assert_eq!(at_90[0].label, "separated");
        let second = at_90[0].points[1];
        assert!((second.0 - 5e-5f64.log10()).abs() < 1e-9 && (second.1 - 70.0).abs() < 1e-9);
        let loads = by_load(&study("map"));
        assert_eq!(loads[1].points, [(30.0, 20.0), (90.0, 5.0)]);
        let found = figures(vec![study("map")], Vec::new());
        let ids: Vec<&str> = found.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["rest-threshold", "rest-rate"]);
        assert!(found[0].caption.contains("With 90 thousand transactions a second"));
        assert!(found[1].caption.ends_with("an idle threshold of 50.0 µs."));
    }

    #[test]
    fn thresholds_are_marked_by_powers_of_ten() {
        let found = figures(vec![study("map")], Vec::new());
        let svg = found[0].svg(Medium::Wide).unwrap();
        for mark in ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"] {
            assert!(svg.contains(&format!(">{mark}<")), "{mark}");
        }
        assert!(svg.contains("separated, 50.0 µs: 70.0%"));
    }

    #[test]
    fn a_single_load_has_no_figure_of_loads() {
        let mut one = study("map");
        one.curves.retain(|curve| curve.load == 90);
        assert_eq!(figures(vec![one], Vec::new()).len(), 1);
    }

    #[test]
    fn data_have_every_load_and_threshold() {
        let found = figures(vec![study("map")], Vec::new());
        let csv = found[0].csv().unwrap();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows[0], "places,ktps,threshold_ns,rest_share");
        assert_eq!(rows.len(), 1 + 4 * 3);
        assert!(rows.contains(&"one-area,30,50000,0.2"), "{rows:?}");
    }

    #[test]
    fn accesses_stand_beside_the_fewest_that_could_be() {
        let rate = |ktps, share| ColdAccessShare { ktps, share, clairvoyant: 0.068 };
        let accesses = |rates| vec![ColdAccesses { name: "map".to_owned(), rates }];
        let found = figures(Vec::new(), accesses(vec![rate(30, 0.08), rate(90, 0.077)]));
        let csv = found[0].csv().unwrap();
        assert_eq!(csv, "ktps,share,clairvoyant_share\n30,0.08,0.068\n90,0.077,0.068\n");
        let svg = found[0].svg(Medium::Wide).unwrap();
        assert!(svg.contains("split by who knows all, 90 thousand transactions a second: 6.80%"));
        assert!(figures(Vec::new(), accesses(vec![rate(30, 0.08)])).is_empty());
    }
}
