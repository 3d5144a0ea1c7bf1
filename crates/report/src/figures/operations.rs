//! What a page and a mapping cost: slices that hold one kind of page alone.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::naming::{heading, id};
use super::prices::missing;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{ContentsSource, PriceSamples, PricedSlice, ReportData};
use crate::scale::{ceiling, digits};

const TITLE: &str = "Cost by number of pages";
const MEGA: f64 = 1e6;

/// Slices of one kind: clean cache alone, anonymous pages with so many mappings each, or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SliceKind {
    Empty,
    Cache,
    Mapped(u64),
}

impl SliceKind {
    /// Which; nothing of a mixture.
    fn of(one: &PricedSlice) -> Option<Self> {
        if one.source != ContentsSource::Filled {
            return None;
        }
        match (one.move_pages, one.drop_pages) {
            (0, 0) => Some(Self::Empty),
            (0, _) => Some(Self::Cache),
            // A few pages that the kernel left there do not make a mixture.
            (moved, dropped) if dropped * 20 <= moved => {
                let each = one.mappings as f64 / moved as f64;
                let whole = each.round();
                ((each - whole).abs() <= 0.15).then_some(Self::Mapped(whole as u64))
            }
            _ => None,
        }
    }

    fn label(self) -> String {
        match self {
            Self::Empty => "empty".to_owned(),
            Self::Cache => "cache to drop".to_owned(),
            Self::Mapped(1) => "1 mapping".to_owned(),
            Self::Mapped(each) => format!("{each} mappings"),
        }
    }

    fn pages(self, one: &PricedSlice) -> f64 {
        (if self == Self::Cache { one.drop_pages } else { one.move_pages }) as f64
    }
}

fn groups(run: &PriceSamples) -> BTreeMap<SliceKind, Vec<&PricedSlice>> {
    let mut groups: BTreeMap<SliceKind, Vec<&PricedSlice>> = BTreeMap::new();
    for one in &run.samples {
        if let Some(kind) = SliceKind::of(one) {
            groups.entry(kind).or_default().push(one);
        }
    }
    groups
}

/// Least squares: intercept and slope; nothing without two different numbers of pages.
fn fit(kind: SliceKind, samples: &[&PricedSlice]) -> Option<(f64, f64)> {
    let count = samples.len() as f64;
    let mean = |value: &dyn Fn(&PricedSlice) -> f64| {
        samples.iter().map(|one| value(one)).sum::<f64>() / count
    };
    let (x, y) = (mean(&|one| kind.pages(one)), mean(&|one| one.measured_cycles));
    let square = samples.iter().map(|one| (kind.pages(one) - x).powi(2)).sum::<f64>();
    let both =
        samples.iter().map(|one| (kind.pages(one) - x) * (one.measured_cycles - y)).sum::<f64>();
    (square > 0.0).then(|| (y - both / square * x, both / square))
}

/// Figure 4.3 of the thesis; its slopes are in the caption.
pub(crate) fn operations(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.prices.len();
    if all == 0 {
        return vec![missing("operations", TITLE)];
    }
    let draw = |(at, run): (usize, &PriceSamples)| {
        let (id, title) = (id("operations", at, all), heading(TITLE, &run.name, all));
        let mut csv = CsvTable::new(&["kind", "pages", "frames_pages", "cost_cycles"]);
        let (mut slopes, groups) = (Vec::new(), groups(run));
        for (kind, samples) in &groups {
            for one in samples {
                let pages = kind.pages(one).to_string();
                csv.row(&[
                    kind.label(),
                    pages,
                    one.frames_pages.to_string(),
                    format!("{}", one.measured_cycles),
                ]);
            }
            if let (Some((_, slope)), false) = (fit(*kind, samples), *kind == SliceKind::Empty) {
                slopes.push(format!("{} {}", kind.label(), digits(slope)));
            }
        }
        if groups.keys().all(|kind| *kind == SliceKind::Empty) {
            let what = "none of the sampled slices holds pages of one kind alone";
            let how = "take more samples with `ramslice-lab calibrate --samples N -o FILE`";
            return ReportFigure::missing(&id, &title, what, how);
        }
        let caption = format!(
            "Slices that hold one kind of page alone, with the line of least squares. Cycles for \
             each page, by its slope: {}.",
            slopes.join(", ")
        );
        let (run, name) = (Rc::new(run.clone()), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_operations(&id, &name, &run, look)
        })
    };
    runs.prices.iter().enumerate().map(draw).collect()
}

fn draw_operations(id: &str, title: &str, run: &PriceSamples, look: Medium) -> String {
    let groups = groups(run);
    let keys: Vec<LegendEntry> = groups
        .keys()
        .enumerate()
        .map(|(at, kind)| {
            LegendEntry::new(format!("series s{}", at % 8), LegendMark::Dot, kind.label())
        })
        .collect();
    let all = || groups.iter().flat_map(|(kind, samples)| samples.iter().map(|one| (*kind, *one)));
    let across = ceiling(all().map(|(kind, one)| kind.pages(one)).fold(0.0, f64::max));
    let top = ceiling(all().map(|(_, one)| one.measured_cycles).fold(0.0, f64::max) / MEGA);
    let x = ChartAxis::new((0.0, across), "pages moved or dropped");
    let y = ChartAxis::new((0.0, top), "cost, millions of CPU cycles");
    let mut panel = ChartPanel::new(look, title, 280.0, &keys, &x, &y);
    for (at, (kind, samples)) in groups.iter().enumerate() {
        if let Some((start, slope)) = fit(*kind, samples) {
            let ends = [0.0, samples.iter().map(|one| kind.pages(one)).fold(0.0, f64::max)];
            let line = ends.map(|pages| (pages, ((start + slope * pages) / MEGA).clamp(0.0, top)));
            panel.curve(&format!("fit s{}", at % 8), &line);
        }
        for one in samples {
            let point = panel.at(kind.pages(one), one.measured_cycles / MEGA);
            let words = format!(
                "{}: {} pages, {} M cycles",
                kind.label(),
                kind.pages(one),
                digits(one.measured_cycles / MEGA)
            );
            panel.svg.circle(&format!("series s{}", at % 8), point, 3.0, &words);
        }
    }
    panel.finish(id, title, &format!("{} slices of {} kinds.", all().count(), groups.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(moved: u64, mappings: u64, dropped: u64) -> PricedSlice {
        PricedSlice {
            label: String::new(),
            source: ContentsSource::Filled,
            frames_pages: 512,
            drop_pages: dropped,
            move_pages: moved,
            mappings,
            fitted_cycles: None,
            predicted_cycles: 0.0,
            measured_cycles: 1000.0 + 7.0 * moved as f64,
        }
    }

    #[test]
    fn slices_of_one_kind_are_distinguished_from_mixtures() {
        assert_eq!(SliceKind::of(&slice(0, 0, 0)), Some(SliceKind::Empty));
        assert_eq!(SliceKind::of(&slice(0, 0, 9)), Some(SliceKind::Cache));
        assert_eq!(SliceKind::of(&slice(100, 305, 2)), Some(SliceKind::Mapped(3)));
        assert_eq!(SliceKind::of(&slice(100, 150, 0)), None);
        assert_eq!(SliceKind::of(&slice(100, 100, 90)), None);
        assert_eq!(
            SliceKind::of(&PricedSlice { source: ContentsSource::Programs, ..slice(100, 100, 0) }),
            None
        );
    }

    #[test]
    fn the_slope_is_that_of_a_page() {
        let samples = [slice(10, 10, 0), slice(20, 20, 0), slice(90, 90, 0)];
        let (start, slope) =
            fit(SliceKind::Mapped(1), &samples.iter().collect::<Vec<_>>()).unwrap();
        assert!((start - 1000.0).abs() < 1e-6 && (slope - 7.0).abs() < 1e-9);
        assert_eq!(fit(SliceKind::Mapped(1), &[&samples[0]]), None);
    }
}
