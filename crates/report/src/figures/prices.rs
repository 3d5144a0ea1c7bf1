//! Prices: what emptying was expected to cost against what it did, and the deviations.

use std::rc::Rc;

use super::{heading, id};
use crate::chart::{Axis, Key, Look, Mark, Panel};
use crate::csv::Csv;
use crate::data::{Priced, Prices, Runs};
use crate::figure::Figure;
use crate::scale::{ceiling, digits};

const PRICES: &str = "Price and cost of emptying slices";
const RESIDUALS: &str = "Error of prices";
const MEGA: f64 = 1e6;

pub(super) fn missing(id: &str, title: &str) -> Figure {
    let how = "take samples with `ramslice calibrate -o FILE` and name FILE as a run";
    Figure::missing(id, title, "none of the runs has slices with a measured cost", how)
}

/// Figure 4.5 of the thesis, above.
pub(crate) fn prices(runs: &Runs) -> Vec<Figure> {
    let all = runs.prices.len();
    if all == 0 {
        return vec![missing("prices", PRICES)];
    }
    let draw = |(at, run): (usize, &Prices)| {
        let (id, title) = (id("prices", at, all), heading(PRICES, &run.name, all));
        let caption = format!(
            "A point is a slice that was emptied: its price by the parameters in force, and what it cost. On the line, \
             both are the same. {}",
            summary(&run.samples)
        );
        let (run, name) = (Rc::new(run.clone()), title.clone());
        let csv = csv(&run);
        Figure::drawn(id.clone(), title, caption, csv, move |look| draw_prices(&id, &name, &run, look))
    };
    runs.prices.iter().enumerate().map(draw).collect()
}

fn csv(run: &Prices) -> Csv {
    let mut csv = Csv::new(&[
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
    for one in &run.samples {
        csv.row(&[
            one.label.clone(),
            one.held_out.to_string(),
            one.frames_pages.to_string(),
            one.drop_pages.to_string(),
            one.move_pages.to_string(),
            one.mappings.to_string(),
            format!("{}", one.predicted_cycles),
            format!("{}", one.measured_cycles),
            format!("{}", error(one)),
        ]);
    }
    csv
}

fn error(one: &Priced) -> f64 {
    one.predicted_cycles - one.measured_cycles
}

/// Percentile of sorted values: the smallest that so many are not above.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Errors in words.
fn summary(samples: &[Priced]) -> String {
    let mut errors: Vec<f64> = samples.iter().map(|one| error(one).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let most = samples.iter().map(|one| one.measured_cycles).fold(0.0, f64::max);
    let share = |value: f64| {
        if most > 0.0 { format!("{} %", digits(100.0 * value / most)) } else { "unknown".to_owned() }
    };
    let bias = samples.iter().map(error).sum::<f64>() / samples.len().max(1) as f64;
    format!(
        "{} slices; of the largest cost, half of the errors are at most {}, 99 of 100 at most {}; the mean error is {}.",
        samples.len(),
        share(percentile(&errors, 0.5)),
        share(percentile(&errors, 0.99)),
        share(bias)
    )
}

fn group(one: &Priced) -> (&'static str, &'static str) {
    if one.held_out { ("point-program", "left by programs") } else { ("point-filled", "filled on purpose") }
}

fn keys(run: &Prices) -> Vec<Key> {
    let mut groups: Vec<_> = run.samples.iter().map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.into_iter().map(|(class, label)| Key::new(class, Mark::Dot, label)).collect()
}

fn told(one: &Priced) -> String {
    format!(
        "{}: price {} M, cost {} M cycles, {} to move, {} mappings, {} to drop",
        one.label,
        digits(one.predicted_cycles / MEGA),
        digits(one.measured_cycles / MEGA),
        one.move_pages,
        one.mappings,
        one.drop_pages
    )
}

fn most(run: &Prices) -> f64 {
    run.samples.iter().map(|one| one.measured_cycles.max(one.predicted_cycles)).fold(0.0, f64::max) / MEGA
}

fn draw_prices(id: &str, title: &str, run: &Prices, look: Look) -> String {
    let mut keys = keys(run);
    keys.push(Key::new("diagonal", Mark::Line, "price = cost"));
    let end = ceiling(most(run));
    let x = Axis::new((0.0, end), "cost, millions of CPU cycles");
    let y = Axis::new((0.0, end), "price, millions of CPU cycles");
    let mut panel = Panel::new(look, title, if look == Look::Narrow { 300.0 } else { 420.0 }, &keys, &x, &y);
    panel.curve("diagonal", &[(0.0, 0.0), (end, end)]);
    for one in &run.samples {
        let point = panel.at(one.measured_cycles / MEGA, one.predicted_cycles / MEGA);
        panel.svg.circle(group(one).0, point, 3.0, &told(one));
    }
    panel.finish(id, title, &summary(&run.samples))
}

/// Figure 4.5 of the thesis, below.
pub(crate) fn residuals(runs: &Runs) -> Vec<Figure> {
    let all = runs.prices.len();
    if all == 0 {
        return vec![missing("residuals", RESIDUALS)];
    }
    let draw = |(at, run): (usize, &Prices)| {
        let (id, title) = (id("residuals", at, all), heading(RESIDUALS, &run.name, all));
        let caption = "How many slices have an error of that size: price less cost. Left of 0, emptying cost more than \
                       was expected.";
        let (run, name) = (Rc::new(run.clone()), title.clone());
        let csv = csv(&run);
        Figure::drawn(id.clone(), title, caption, csv, move |look| draw_residuals(&id, &name, &run, look))
    };
    runs.prices.iter().enumerate().map(draw).collect()
}

fn draw_residuals(id: &str, title: &str, run: &Prices, look: Look) -> String {
    let bars = if look == Look::Narrow { 25 } else { 49 };
    let most = run.samples.iter().map(|one| error(one).abs()).fold(0.0, f64::max) / MEGA;
    let end = ceiling(most);
    let width = 2.0 * end / f64::from(bars);
    let mut counts = vec![[0u32; 2]; bars as usize];
    for one in &run.samples {
        let at = ((error(one) / MEGA + end) / width) as usize;
        counts[at.min(bars as usize - 1)][usize::from(one.held_out)] += 1;
    }
    let top = counts.iter().map(|both| both[0] + both[1]).max().unwrap_or(1);
    let x = Axis::new((-end, end), "price less cost, millions of CPU cycles");
    let y = Axis::new((0.0, ceiling(f64::from(top))), "slices");
    let mut panel = Panel::new(look, title, 200.0, &keys(run), &x, &y);
    for (at, both) in counts.iter().enumerate() {
        let (mut below, from) = (0.0, -end + at as f64 * width);
        for (count, class) in both.iter().zip(["point-filled", "point-program"]) {
            let (left, high) = panel.at(from, below + f64::from(*count));
            let (right, low) = panel.at(from + width, below);
            if *count > 0 {
                let words =
                    format!("{count} slices, error {} to {} M cycles", digits(from), digits(from + width));
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
    panel.finish(id, title, &summary(&run.samples))
}
