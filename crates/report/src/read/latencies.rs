//! Times of requests, as a CSV file.

use std::path::Path;

use super::error::RunError;
use crate::LatencySamples;

/// Times of requests: `boottime_us,latency_us`.
pub(super) fn latencies(name: &str, path: &Path, text: &str) -> Result<LatencySamples, RunError> {
    const COLUMNS: [&str; 2] = ["boottime_us", "latency_us"];
    let place = |line: usize| format!("{}:{}", path.display(), line + 1);
    let mut lines = text.lines().enumerate();
    let head: Vec<&str> =
        lines.next().map_or(Vec::new(), |(_, line)| line.split(',').map(str::trim).collect());
    let column = |name: &str| {
        head.iter().position(|found| *found == name).ok_or_else(|| {
            RunError::NotARun(format!(
                "{} has no column `{name}`: the first line names {}",
                place(0),
                COLUMNS.join(",")
            ))
        })
    };
    let (when, took) = (column(COLUMNS[0])?, column(COLUMNS[1])?);
    let mut requests: Vec<(f64, f64)> = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |at: usize| -> Result<f64, RunError> {
            let text = cells.get(at).map_or("", |cell| cell.trim());
            let value: f64 = text
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite() && *value >= 0.0)
                .ok_or_else(|| {
                    let place = place(number);
                    RunError::Damaged(format!(
                        "{place}: {} is `{text}`, not microseconds",
                        head[at]
                    ))
                })?;
            Ok(value)
        };
        requests.push((cell(when)? / 1e6, cell(took)? / 1e3));
    }
    if requests.is_empty() {
        return Err(RunError::NotARun(format!("{} has no requests", path.display())));
    }
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(LatencySamples { name: name.to_owned(), requests, compactions: Vec::new() })
}
