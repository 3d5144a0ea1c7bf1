//! Times of requests while slices are emptied.

use std::rc::Rc;

use super::naming::{heading, id};
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::CsvTable;
use crate::figure::ReportFigure;
use crate::report_data::{LatencySamples, ReportData};
use crate::scale::{ceiling, digits};

const TITLE: &str = "Latency of requests";

/// Requests that fall into one column.
struct LatencyBin {
    from: f64,
    until: f64,
    count: u64,
    low: f64,
    high: f64,
    sum: f64,
}

fn bins(requests: &[(f64, f64)], columns: usize) -> Vec<LatencyBin> {
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Vec::new() };
    let begun = first.0;
    // Some tens of requests in each; otherwise the average says nothing.
    let columns = columns.min(requests.len().div_ceil(20)).max(1);
    let width = ((last.0 - begun) / columns as f64).max(1e-9);
    let mut bins: Vec<LatencyBin> = Vec::new();
    for &(when, took) in requests {
        let at = (((when - begun) / width) as usize).min(columns - 1);
        let from = at as f64 * width;
        match bins.last_mut() {
            Some(bin) if bin.from >= from => {
                bin.count += 1;
                bin.sum += took;
                (bin.low, bin.high) = (bin.low.min(took), bin.high.max(took));
            }
            _ => bins.push(LatencyBin {
                from,
                until: from + width,
                count: 1,
                low: took,
                high: took,
                sum: took,
            }),
        }
    }
    bins
}

fn is_within(spans: &[(f64, f64)], when: f64) -> bool {
    spans.iter().any(|(from, to)| (*from..=*to).contains(&when))
}

/// Figure 4.12 of the thesis, above.
pub(crate) fn latency(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.latencies.len();
    if all == 0 {
        let how = "give a file NAME.csv with the columns boottime_us (when a request was sent) \
                   and latency_us, together with the recording of the same time";
        return vec![ReportFigure::missing(
            "latency",
            TITLE,
            "none of the runs has times of requests",
            how,
        )];
    }
    let draw = |(at, run): (usize, &LatencySamples)| {
        let (id, title) = (id("latency", at, all), heading(TITLE, &run.name, all));
        let mut csv = CsvTable::new(&["time_s", "latency_ms", "emptying"]);
        let begun = run.requests.first().map_or(0.0, |request| request.0);
        for &(when, took) in &run.requests {
            let emptying = is_within(&run.compactions, when).to_string();
            csv.row(&[format!("{:.6}", when - begun), format!("{took}"), emptying]);
        }
        let caption = caption(run);
        let (run, name) = (Rc::new(run.clone()), title.clone());
        ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
            draw_latency(&id, &name, &run, look)
        })
    };
    runs.latencies.iter().enumerate().map(draw).collect()
}

fn caption(run: &LatencySamples) -> String {
    let mean = |wanted: bool| {
        let found: Vec<f64> = run
            .requests
            .iter()
            .filter(|(when, _)| is_within(&run.compactions, *when) == wanted)
            .map(|(_, took)| *took)
            .collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    };
    let marked =
        "Average, least and most of the requests of a moment. Stripes: slices were being emptied.";
    match (mean(true), mean(false)) {
        (Some(during), Some(else_)) => {
            format!(
                "{marked} Mean {} ms while emptying, {} ms otherwise.",
                digits(during),
                digits(else_)
            )
        }
        (None, Some(_)) => "Average, least and most of the requests of a moment. None was sent \
                            while slices were being emptied, as far as the recordings show."
            .to_owned(),
        _ => marked.to_owned(),
    }
}

fn draw_latency(id: &str, title: &str, run: &LatencySamples, look: Medium) -> String {
    let bins = bins(&run.requests, look.columns());
    let begun = run.requests.first().map_or(0.0, |request| request.0);
    let end = bins.last().map_or(1.0, |bin| bin.until);
    let top = bins.iter().map(|bin| bin.high).fold(0.0, f64::max);
    let keys = [
        LegendEntry::new("average", LegendMark::Line, "average"),
        LegendEntry::new("extremes", LegendMark::Area, "least to most"),
        LegendEntry::new("compaction", LegendMark::Area, "emptying"),
    ];
    let (x, y) = (
        ChartAxis::new((0.0, end), "time, seconds"),
        ChartAxis::new((0.0, ceiling(top)), "latency, ms"),
    );
    let mut panel = ChartPanel::new(look, title, 260.0, &keys, &x, &y);
    for (from, to) in &run.compactions {
        if *to >= begun && *from - begun <= end {
            panel.stripe("compaction", from - begun, to - begun, "");
        }
    }
    let middle = |bin: &LatencyBin| f64::midpoint(bin.from, bin.until);
    panel.band(
        "extremes",
        &bins.iter().map(|bin| (middle(bin), bin.low, bin.high)).collect::<Vec<_>>(),
    );
    let average: Vec<_> =
        bins.iter().map(|bin| (middle(bin), bin.sum / bin.count as f64)).collect();
    panel.curve("average", &average);
    for bin in &bins {
        let average = digits(bin.sum / bin.count as f64);
        let (low, high) = (digits(bin.low), digits(bin.high));
        let words = format!(
            "{:.2} s, average {average} ms, {low} to {high} ms, {} requests",
            middle(bin),
            bin.count
        );
        panel.hit(middle(bin), bin.until - bin.from, &words);
    }
    panel.finish(
        id,
        title,
        &format!("{} requests, at most {} ms.", run.requests.len(), digits(top)),
    )
}
