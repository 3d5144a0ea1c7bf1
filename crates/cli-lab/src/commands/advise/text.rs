//! Advice as text: a table of sizes, what follows from it, and watermarks to be pasted.

use std::io::Write;

use anyhow::Result;
use ramslice_cli::context::CommandContext;
use ramslice_cli::render::{ColumnAlign, TextTable};
use ramslice_miss_ratio::{CostSource, Estimate};

use super::AdviseDocument;
use super::watermarks::write_watermarks;

/// Rows of the table; JSON has all sizes.
const MOST_ROWS: usize = 20;

pub(super) fn write(
    body: &AdviseDocument,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(
        out,
        "{:.0} s in {} stretches, with {} of memory",
        body.seconds, body.stretches, body.memory_bytes
    )?;
    writeln!(out, "{}", cost(body))?;
    writeln!(out)?;
    table(body, context, out)?;
    writeln!(out)?;
    for sentence in verdict(body) {
        writeln!(out, "{sentence}")?;
    }
    for note in &body.notes {
        writeln!(out, "Note: {note}.")?;
    }
    if let Some(marks) = &body.watermarks {
        writeln!(out)?;
        write_watermarks(marks, out)?;
    }
    Ok(())
}

fn cost(body: &AdviseDocument) -> String {
    let (Some(cost), Some(source)) = (body.miss_cost_us, body.miss_cost_source) else {
        return "What a page costs that has to be read: cost unknown, the recording has too few; \
                give it with --miss-cost"
            .to_owned();
    };
    let basis = match source {
        CostSource::Refaults => "by the stalls of this recording, which had refaults",
        CostSource::FirstReads => "by the stalls of this recording, nearly all for first reads",
        CostSource::Given => "as given",
    };
    let range = if source == CostSource::Given {
        String::new()
    } else {
        format!(" ({:.1} to {:.1})", cost.low, cost.high)
    };
    format!("A page that has to be read costs {:.1} us{range}, {basis}", cost.value)
}

fn table(body: &AdviseDocument, context: &CommandContext, out: &mut dyn Write) -> Result<()> {
    let mut table = TextTable::new(&[
        ("MEMORY", ColumnAlign::Right),
        ("HIT RATIO", ColumnAlign::Right),
        ("95 %", ColumnAlign::Left),
        ("FAULTS/S", ColumnAlign::Right),
        ("95 %", ColumnAlign::Left),
        ("SLOWDOWN", ColumnAlign::Right),
        ("95 %", ColumnAlign::Left),
    ]);
    let apart = body.sizes.len().div_ceil(MOST_ROWS).max(1);
    let last = body.sizes.len().saturating_sub(1);
    for (at, size) in body.sizes.iter().enumerate() {
        let chosen = body.least_bytes == Some(size.memory_bytes);
        if at % apart != 0 && at != last && !chosen {
            continue;
        }
        let ratio = |value: f64| format!("{value:.4}");
        let number = |value: f64| format!("{value:.1}");
        let percent = |value: f64| format!("{:.1} %", value * 100.0);
        let cells = |figure: Option<Estimate>, show: &dyn Fn(f64) -> String| match figure {
            None => ["-".to_owned(), String::new()],
            Some(figure) => {
                [show(figure.value), format!("{} to {}", show(figure.low), show(figure.high))]
            }
        };
        let mut row = vec![size.memory_bytes.to_string()];
        row.extend(cells(size.hit_ratio, &ratio));
        row.extend(cells(Some(size.faults_per_second), &number));
        row.extend(cells(size.slowdown, &percent));
        table.row(row);
    }
    Ok(table.write(out, &context.screen)?)
}

/// What follows.
fn verdict(body: &AdviseDocument) -> Vec<String> {
    // Without what a product of two fractions adds far behind the point.
    let limit = (body.slowdown_limit * 1e6).round() / 1e4;
    let (Some(least), Some(saved)) = (body.least_bytes, body.saved_bytes) else {
        return vec!["No size is advised without the cost of a miss.".to_owned()];
    };
    let mut found = vec![format!(
        "Least memory that keeps the slowdown at {limit} %, with its interval: {least}{}.",
        if least > body.memory_bytes {
            format!(", more than the {} that there was", body.memory_bytes)
        } else {
            format!(", {saved} less than there was")
        }
    )];
    if body.least_is_where_the_curve_begins {
        found.push("Less might do, too: the curve begins there.".to_owned());
    }
    if let Some(likely) = body.likely_bytes.filter(|likely| *likely < least) {
        found.push(match body.record_more_seconds {
            Some(more) => format!(
                "{likely} would keep it by the figure alone: record about {} longer to be certain.",
                time(more.max(1.0))
            ),
            None => format!(
                "{likely} would keep it by the figure alone, too close to the limit to be certain."
            ),
        });
    }
    if let Some(saving) = &body.saving {
        found.push(format!("That saves {}, by {}.", saving.saved, saving.profile));
    }
    found
}

fn time(seconds: f64) -> String {
    match seconds {
        short if short < 120.0 => format!("{short:.0} s"),
        medium if medium < 7200.0 => format!("{:.0} min", medium / 60.0),
        long => format!("{:.1} h", long / 3600.0),
    }
}
