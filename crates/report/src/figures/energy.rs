//! Joules: saved and invested next to the possible saving, and net against what requests may spend.

use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{GainVerdict, ReportData, RunBudget, RunEnergy, ValueRange};
use crate::scale::{ceiling, digits};
use crate::svg::TextAnchor;

const ENERGY: &str = "Energy saved and invested";
const NET: &str = "Net energy by budget";
const HOW: &str = "name a profile of a memory system with `--profile NAME` beside a recording \
                   made by root (`ramslice-lab profiles` lists them), or give a summary of joules \
                   as a run";

fn missing_energy(runs: &ReportData) -> &'static str {
    if runs.recorded.is_empty() {
        "no run has joules"
    } else {
        "joules need a profile of the memory system"
    }
}

/// Figures 4.7, 4.8 and 4.10 of the thesis, above.
pub(crate) fn energy(runs: &ReportData) -> Vec<ReportFigure> {
    if runs.energy.is_empty() {
        return vec![ReportFigure::missing("energy", ENERGY, missing_energy(runs), HOW)];
    }
    let figure = |(sweep, runs): (SweepKey, Vec<RunEnergy>)| {
        let caption = format!(
            "What switching slices off saved, what it cost, and the limit: what perfectly packed \
             memory without freeable pages would have saved in the same time. Lines are \
             intervals: from at least to at most; bars end in their middle. {}",
            basis(&runs)
        );
        let (csv, own) = (csv(&runs), sweep.clone());
        ReportFigure::drawn(sweep.id("energy"), sweep.title(ENERGY), caption, csv, move |look| {
            draw_energy(&runs, &own, look)
        })
    };
    groups(runs).into_iter().map(figure).collect()
}

/// The sweep that the runs of a figure are of: its number and its name; none for those of no sweep.
#[derive(Debug, Clone)]
struct SweepKey(Option<(usize, String)>);

impl SweepKey {
    fn id(&self, base: &str) -> String {
        self.0
            .as_ref()
            .map_or_else(|| base.to_owned(), |(number, _)| format!("{base}-sweep-{number}"))
    }

    fn title(&self, base: &str) -> String {
        self.0.as_ref().map_or_else(|| base.to_owned(), |(_, name)| format!("{base}: {name}"))
    }
}

/// Runs by what figure they belong to: first those of no sweep, then each sweep.
fn groups(runs: &ReportData) -> Vec<(SweepKey, Vec<RunEnergy>)> {
    let mut names: Vec<&Option<String>> = Vec::new();
    for run in &runs.energy {
        if !names.contains(&&run.sweep) {
            names.push(&run.sweep);
        }
    }
    names.sort_by_key(|name| name.is_some());
    let sweeps =
        (1..).zip(names.iter().filter_map(|name| name.as_ref())).collect::<Vec<(usize, &String)>>();
    let sweep = |name: &String| {
        sweeps.iter().find(|(_, other)| *other == name).map(|(n, _)| (*n, name.clone()))
    };
    let group = |name: &Option<String>| {
        let own = runs.energy.iter().filter(|run| run.sweep == *name).cloned().collect();
        (SweepKey(name.as_ref().and_then(sweep)), own)
    };
    names.into_iter().map(group).collect()
}

fn basis(runs: &[RunEnergy]) -> String {
    let mut found: Vec<&str> = runs.iter().map(|run| run.basis.as_str()).collect();
    found.dedup();
    let uncounted: Vec<String> = runs
        .iter()
        .filter(|run| !run.uncounted.is_empty())
        .map(|run| format!("{}: {}", run.name, run.uncounted.join(", ")))
        .collect();
    let mut text = found.join(" ");
    if !uncounted.is_empty() {
        text.push_str(&format!(
            " Costs that could not be counted and are missing here: {}.",
            uncounted.join("; ")
        ));
    }
    text
}

fn csv(runs: &[RunEnergy]) -> CsvTable {
    let mut csv = CsvTable::new(&[
        "run",
        "budget_cycles",
        "saved_low_joules",
        "saved_high_joules",
        "attainable_low_joules",
        "attainable_high_joules",
        "invested_low_joules",
        "invested_high_joules",
        "net_low_joules",
        "net_high_joules",
        "uncounted",
    ]);
    for run in runs {
        let mut row = vec![run.name.clone(), budget_cell(&run.budget)];
        let end = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value}"));
        for range in [Some(run.saved), run.attainable, Some(run.invested), Some(run.net)] {
            row.extend([end(range.map(|range| range.low)), end(range.map(|range| range.high))]);
        }
        row.push(run.uncounted.join("; "));
        csv.row(&row);
    }
    csv
}

fn budget_cell(budget: &RunBudget) -> String {
    match budget {
        RunBudget::Policy(name) => name.clone(),
        RunBudget::None => "0".to_owned(),
        RunBudget::Cycles(cycles) => format!("{cycles}"),
        RunBudget::Unlimited => "unlimited".to_owned(),
    }
}

fn words(range: ValueRange) -> String {
    if range.low >= range.high {
        format!("{} J", digits(range.low))
    } else {
        format!("{} to {} J", digits(range.low), digits(range.high))
    }
}

fn draw_energy(runs: &[RunEnergy], sweep: &SweepKey, look: Medium) -> String {
    const ROW: f64 = 66.0;
    let attainable = runs.iter().any(|run| run.attainable.is_some());
    let mut keys = vec![LegendEntry::new("saved", LegendMark::Area, "saved")];
    if attainable {
        keys.push(LegendEntry::new("attainable", LegendMark::Area, "attainable"));
    }
    keys.push(LegendEntry::new("invested", LegendMark::Area, "invested"));
    let ends = runs.iter().flat_map(|run| {
        [run.saved.high, run.attainable.map_or(0.0, |range| range.high), run.invested.high]
    });
    let x = ChartAxis::new((0.0, ceiling(ends.fold(0.0, f64::max))), "energy, J");
    let mut y = ChartAxis::new((0.0, runs.len() as f64), "");
    y.marks = Some(Vec::new());
    let mut panel =
        ChartPanel::new(look, &sweep.title(ENERGY), ROW * runs.len() as f64, &keys, &x, &y);
    let (left, top, ..) = panel.area;
    for (at, run) in runs.iter().enumerate() {
        let row = top + ROW * at as f64;
        panel.svg.text("row", (left, row + 14.0), TextAnchor::Start, &run.name);
        let bar =
            |panel: &mut ChartPanel, class, from: f64, height, range: ValueRange, title: &str| {
                let end = panel.x.at(range.middle().max(0.0));
                panel.svg.rect(class, (left, row + from), (end - left, height), title);
            };
        if let Some(limit) = run.attainable {
            bar(
                &mut panel,
                "attainable",
                20.0,
                20.0,
                limit,
                &format!("{}: attainable {}", run.name, words(limit)),
            );
        }
        bar(
            &mut panel,
            "saved",
            23.0,
            14.0,
            run.saved,
            &format!("{}: saved {}", run.name, words(run.saved)),
        );
        let title = format!("{}: invested {}", run.name, words(run.invested));
        bar(&mut panel, "invested", 43.0, 14.0, run.invested, &title);
        for (range, y) in [(run.saved, row + 30.0), (run.invested, row + 50.0)] {
            let (from, to) = (panel.x.at(range.low.max(0.0)), panel.x.at(range.high));
            if to - from >= 1.0 {
                panel.svg.line("whisker", (from, y), (to, y));
                for end in [from, to] {
                    panel.svg.line("whisker", (end, y - 4.0), (end, y + 4.0));
                }
            }
        }
    }
    let about: Vec<String> = runs
        .iter()
        .map(|run| {
            format!("{}: saved {}, invested {}.", run.name, words(run.saved), words(run.invested))
        })
        .collect();
    panel.finish(&sweep.id("energy"), &sweep.title(ENERGY), &about.join(" "))
}

/// The lower part of these figures.
pub(crate) fn net(runs: &ReportData) -> Vec<ReportFigure> {
    if runs.energy.is_empty() {
        return vec![ReportFigure::missing("net", NET, missing_energy(runs), HOW)];
    }
    let caption = "Saved less invested, by what a request was allowed to spend; nothing is \
                   without emptying at all. An interval that spans the line at 0 is undecided: \
                   it may have gained or lost.";
    let figure = |(sweep, runs): (SweepKey, Vec<RunEnergy>)| {
        let (csv, own) = (csv(&runs), sweep.clone());
        let found = if own.0.is_some() {
            format!("{caption} {}", basis(&runs))
        } else {
            caption.to_owned()
        };
        ReportFigure::drawn(sweep.id("net"), sweep.title(NET), found, csv, move |look| {
            draw_net(&runs, &own, look)
        })
    };
    groups(runs).into_iter().map(figure).collect()
}

/// Budgets in ascending order; policies between those that are numbers and no limit.
fn place(budget: &RunBudget) -> (f64, &str) {
    match budget {
        RunBudget::None => (-1.0, ""),
        RunBudget::Cycles(cycles) => (*cycles, ""),
        RunBudget::Policy(name) => (f64::MAX, name),
        RunBudget::Unlimited => (f64::INFINITY, ""),
    }
}

fn draw_net(runs: &[RunEnergy], sweep: &SweepKey, look: Medium) -> String {
    let mut budgets: Vec<&RunBudget> = runs.iter().map(|run| &run.budget).collect();
    budgets
        .sort_by(|a, b| place(a).0.total_cmp(&place(b).0).then_with(|| place(a).1.cmp(place(b).1)));
    budgets.dedup();
    let low = runs.iter().map(|run| run.net.low).fold(0.0, f64::min);
    let high = runs.iter().map(|run| run.net.high).fold(0.0, f64::max);
    let bottom = if low < 0.0 { -ceiling(-low) } else { 0.0 };
    let top = if high > 0.0 { ceiling(high) } else { 0.0 };
    let mut x =
        ChartAxis::new((-0.5, budgets.len() as f64 - 0.5), "budget of a request, CPU cycles");
    x.marks = Some(
        budgets.iter().enumerate().map(|(at, budget)| (at as f64, budget.to_string())).collect(),
    );
    let y = ChartAxis::new((bottom, top), "net energy, J");
    let keys = [
        LegendEntry::new("saved", LegendMark::Dot, "gain"),
        LegendEntry::new("undecided", LegendMark::Dot, "undecided"),
        LegendEntry::new("invested", LegendMark::Dot, "loss"),
    ];
    let mut panel = ChartPanel::new(look, &sweep.title(NET), 240.0, &keys, &x, &y);
    panel.curve("zero", &[(-0.5, 0.0), (budgets.len() as f64 - 0.5, 0.0)]);
    for (at, budget) in budgets.iter().enumerate() {
        let same: Vec<&RunEnergy> = runs.iter().filter(|run| run.budget == **budget).collect();
        for (turn, run) in same.iter().enumerate() {
            // Runs of one budget stand side by side.
            let spread = 0.5 / same.len() as f64;
            let at = at as f64 + (turn as f64 - (same.len() - 1) as f64 / 2.0) * spread;
            panel.whisker(at, run.net.low, run.net.high);
            let class = match run.verdict {
                GainVerdict::Gain => "saved",
                GainVerdict::Loss => "invested",
                GainVerdict::Undecided => "undecided",
            };
            let point = panel.at(at, run.net.middle());
            panel.svg.circle(class, point, 5.0, &format!("{}: net {}", run.name, words(run.net)));
        }
    }
    let about: Vec<String> = runs
        .iter()
        .map(|run| format!("{}, budget {}: net {}.", run.name, run.budget, words(run.net)))
        .collect();
    panel.finish(&sweep.id("net"), &sweep.title(NET), &about.join(" "))
}
