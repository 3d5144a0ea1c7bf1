//! Prices: what emptying was expected to cost against what it did, and the deviations.

use std::rc::Rc;

use super::naming::{heading, id};
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{ContentsSource, PriceSamples, PricedSlice, ReportData};
use crate::scale::{ceiling, digits};

const PRICES: &str = "Price and cost of emptying slices";
const RESIDUALS: &str = "Error of prices";
const MEGA: f64 = 1e6;

pub(super) fn missing(id: &str, title: &str) -> ReportFigure {
    let how = "take samples with `ramslice-lab calibrate -o FILE` and name FILE as a run";
    ReportFigure::missing(id, title, "none of the runs has slices with a measured cost", how)
}

/// By what slices are priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PricingModel {
    Current,
    Fitted,
}

impl PricingModel {
    /// The ending of a figure's id, of its title, and words for what prices are by.
    fn words(self, run: &PriceSamples) -> (&'static str, &'static str, String) {
        let named =
            if run.in_force.is_empty() { String::new() } else { format!(" ({})", run.in_force) };
        match self {
            Self::Current => {
                ("", "by the parameters in force", format!("the parameters in force{named}"))
            }
            Self::Fitted => (
                "-fitted",
                "by the fitted model",
                if run.samples.iter().any(|one| one.source == ContentsSource::Filled) {
                    "the model that ramslice-lab calibrate fits to those filled on purpose"
                        .to_owned()
                } else {
                    "the parameters that ramslice-lab calibrate refits to these".to_owned()
                },
            ),
        }
    }
}

/// A run priced by one model.
#[derive(Debug, Clone)]
struct PricedRun {
    run: Rc<PriceSamples>,
    model: PricingModel,
}

impl PricedRun {
    fn price(&self, one: &PricedSlice) -> f64 {
        match self.model {
            PricingModel::Current => one.predicted_cycles,
            PricingModel::Fitted => one.fitted_cycles.unwrap_or(one.predicted_cycles),
        }
    }

    fn error(&self, one: &PricedSlice) -> f64 {
        self.price(one) - one.measured_cycles
    }
}

/// A figure for each run and each model that there is.
fn for_models(
    runs: &ReportData,
    base: &str,
    title: &str,
    caption: impl Fn(&PricedRun) -> String,
    draw: fn(&str, &str, &PricedRun, Medium) -> String,
) -> Vec<ReportFigure> {
    let all = runs.prices.len();
    if all == 0 {
        return vec![missing(base, title)];
    }
    let mut figures = Vec::new();
    for (at, run) in runs.prices.iter().enumerate() {
        let fitted =
            !run.samples.is_empty() && run.samples.iter().all(|one| one.fitted_cycles.is_some());
        let run = Rc::new(run.clone());
        for model in [PricingModel::Current, PricingModel::Fitted]
            .into_iter()
            .filter(|one| fitted || *one == PricingModel::Current)
        {
            let (ending, by, _) = model.words(&run);
            let id = format!("{}{ending}", id(base, at, all));
            let name = heading(&format!("{title}, {by}"), &run.name, all);
            let view = PricedRun { run: Rc::clone(&run), model };
            let (caption, csv, shown) = (caption(&view), csv(&view), name.clone());
            figures.push(ReportFigure::drawn(id.clone(), name, caption, csv, move |look| {
                draw(&id, &shown, &view, look)
            }));
        }
    }
    figures
}

/// Figure 4.5 of the thesis, above.
pub(crate) fn prices(runs: &ReportData) -> Vec<ReportFigure> {
    let caption = |view: &PricedRun| {
        let (.., by) = view.model.words(&view.run);
        let unfitted = view
            .run
            .unfitted
            .as_ref()
            .map_or_else(String::new, |why| format!(" No model was fitted: {why}."));
        format!(
            "A point is a slice that was emptied: its price by {by}, and what it cost. On the \
             line, both are the same. {}{unfitted}",
            summary(view)
        )
    };
    for_models(runs, "prices", PRICES, caption, draw_prices)
}

fn csv(view: &PricedRun) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "label",
        "held_out",
        "frames_pages",
        "drop_pages",
        "move_pages",
        "mappings",
        "price_cycles",
        "cost_cycles",
        "error_cycles",
    ]);
    for one in &view.run.samples {
        csv.row(&[
            one.label.clone(),
            (one.source == ContentsSource::Programs).to_string(),
            one.frames_pages.to_string(),
            one.drop_pages.to_string(),
            one.move_pages.to_string(),
            one.mappings.to_string(),
            format!("{}", view.price(one)),
            format!("{}", one.measured_cycles),
            format!("{}", view.error(one)),
        ]);
    }
    csv
}

/// Percentile of sorted values: the smallest that so many are not above.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Errors in words, of what models were not fitted to first.
fn summary(view: &PricedRun) -> String {
    let sentences = [ContentsSource::Programs, ContentsSource::Filled, ContentsSource::Everyday]
        .map(|source| {
            let group: Vec<&PricedSlice> =
                view.run.samples.iter().filter(|one| one.source == source).collect();
            (!group.is_empty()).then(|| errors(view, &group, words(source).1))
        });
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn errors(view: &PricedRun, group: &[&PricedSlice], words: &str) -> String {
    let mut errors: Vec<f64> = group.iter().map(|one| view.error(one).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let most = group.iter().map(|one| one.measured_cycles).fold(0.0, f64::max);
    let share = |value: f64| {
        if most > 0.0 {
            format!("{} %", digits(100.0 * value / most))
        } else {
            "unknown".to_owned()
        }
    };
    let bias = group.iter().map(|one| view.error(one)).sum::<f64>() / group.len() as f64;
    format!(
        "{} slices {words}: of their largest cost, half of the errors are at most {}, 99 of 100 \
         at most {}; the mean error is {}.",
        group.len(),
        share(percentile(&errors, 0.5)),
        share(percentile(&errors, 0.99)),
        share(bias)
    )
}

/// How they are drawn, and called.
fn words(source: ContentsSource) -> (&'static str, &'static str) {
    match source {
        ContentsSource::Filled => ("point-filled", "filled on purpose"),
        ContentsSource::Programs => ("point-program", "left by programs"),
        ContentsSource::Everyday => ("point-filled", "of everyday requests"),
    }
}

fn keys(run: &PriceSamples) -> Vec<LegendEntry> {
    let mut groups: Vec<_> = run.samples.iter().map(|one| words(one.source)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
        .into_iter()
        .map(|(class, label)| LegendEntry::new(class, LegendMark::Dot, label))
        .collect()
}

fn point_title(view: &PricedRun, one: &PricedSlice) -> String {
    format!(
        "{}: price {} M, cost {} M cycles, {} to move, {} mappings, {} to drop",
        one.label,
        digits(view.price(one) / MEGA),
        digits(one.measured_cycles / MEGA),
        one.move_pages,
        one.mappings,
        one.drop_pages
    )
}

fn most(view: &PricedRun) -> f64 {
    view.run.samples.iter().map(|one| one.measured_cycles.max(view.price(one))).fold(0.0, f64::max)
        / MEGA
}

fn draw_prices(id: &str, title: &str, view: &PricedRun, look: Medium) -> String {
    let mut keys = keys(&view.run);
    keys.push(LegendEntry::new("diagonal", LegendMark::Line, "price = cost"));
    let end = ceiling(most(view));
    let x = ChartAxis::new((0.0, end), "cost, millions of CPU cycles");
    let y = ChartAxis::new((0.0, end), "price, millions of CPU cycles");
    let mut panel = ChartPanel::new(
        look,
        title,
        if look == Medium::Narrow { 300.0 } else { 420.0 },
        &keys,
        &x,
        &y,
    );
    panel.curve("diagonal", &[(0.0, 0.0), (end, end)]);
    for one in &view.run.samples {
        let point = panel.at(one.measured_cycles / MEGA, view.price(one) / MEGA);
        panel.svg.circle(words(one.source).0, point, 3.0, &point_title(view, one));
    }
    panel.finish(id, title, &summary(view))
}

/// Figure 4.5 of the thesis, below.
pub(crate) fn residuals(runs: &ReportData) -> Vec<ReportFigure> {
    let caption = |view: &PricedRun| {
        let (.., by) = view.model.words(&view.run);
        format!(
            "How many slices have an error of that size: price by {by} less cost. Left of 0, \
             emptying cost more than was expected."
        )
    };
    for_models(runs, "residuals", RESIDUALS, caption, draw_residuals)
}

fn draw_residuals(id: &str, title: &str, view: &PricedRun, look: Medium) -> String {
    let bars = if look == Medium::Narrow { 25 } else { 49 };
    let most = view.run.samples.iter().map(|one| view.error(one).abs()).fold(0.0, f64::max) / MEGA;
    let end = ceiling(most);
    let width = 2.0 * end / f64::from(bars);
    let mut counts = vec![[0u32; 2]; bars as usize];
    for one in &view.run.samples {
        let at = ((view.error(one) / MEGA + end) / width) as usize;
        counts[at.min(bars as usize - 1)][usize::from(one.source == ContentsSource::Programs)] += 1;
    }
    let top = counts.iter().map(|both| both[0] + both[1]).max().unwrap_or(1);
    let x = ChartAxis::new((-end, end), "price less cost, millions of CPU cycles");
    let y = ChartAxis::new((0.0, ceiling(f64::from(top))), "slices");
    let mut panel = ChartPanel::new(look, title, 200.0, &keys(&view.run), &x, &y);
    for (at, both) in counts.iter().enumerate() {
        let (mut below, from) = (0.0, -end + at as f64 * width);
        for (count, class) in both.iter().zip(["point-filled", "point-program"]) {
            let (left, high) = panel.at(from, below + f64::from(*count));
            let (right, low) = panel.at(from + width, below);
            if *count > 0 {
                let words = format!(
                    "{count} slices, error {} to {} M cycles",
                    digits(from),
                    digits(from + width)
                );
                panel.svg.rect(
                    &format!("{class} bar"),
                    (left, high),
                    (right - left - 1.0, low - high),
                    &words,
                );
            }
            below += f64::from(*count);
        }
    }
    panel.curve("zero", &[(0.0, 0.0), (0.0, ceiling(f64::from(top)))]);
    panel.finish(id, title, &summary(view))
}
