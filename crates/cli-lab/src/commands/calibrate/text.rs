//! The text of `ramslice-lab calibrate`: parameters with intervals, models side by side.

use std::io::Write;

use anyhow::Result;
use ramslice_calibrate::{CalibrationReport, JudgedModel, ModelQuality, SampleSet, TERMS};
use ramslice_types::{Bytes, PriceParameter};

use ramslice_cli::render::{ColumnAlign, OutputStyle, TextTable};

pub(super) fn write(
    out: &mut dyn Write,
    screen: &OutputStyle,
    samples: &SampleSet,
    report: &CalibrationReport,
) -> Result<()> {
    let (artificial, programs) = (samples.artificial(), samples.programs());
    let gathered = samples.everyday();
    let of_every_day = artificial.is_empty() && !gathered.is_empty();
    if of_every_day {
        writeln!(
            out,
            "fitted to {} everyday operations on slices of {}; cost over price varied by {:.1} %",
            gathered.len(),
            samples.slice_bytes,
            100.0 * samples.noise
        )?;
    } else {
        writeln!(
            out,
            "fitted to {} slices of artificial mixtures, {} each; the same work varied by {:.1} %",
            artificial.len(),
            samples.slice_bytes,
            100.0 * samples.noise
        )?;
    }
    if samples.changed > 0 {
        writeln!(out, "{} were left out: what they held changed meanwhile", samples.changed)?;
    }
    writeln!(out)?;
    parameters(report).write(out, screen)?;
    writeln!(out)?;
    match programs.first() {
        None if of_every_day => {
            writeln!(out, "judged on every second operation, by what the others give:")?;
            models(report, |compared| compared.held_out.as_ref()).write(out, screen)?;
        }
        Some(first) => {
            let size = Bytes(first.operations.frames.0 * samples.page_bytes.0);
            writeln!(
                out,
                "judged on {} slices of programs, {size} each, which no model has seen:",
                programs.len()
            )?;
            models(report, |compared| compared.held_out.as_ref()).write(out, screen)?;
        }
        None => {
            writeln!(
                out,
                "not judged: no slice that programs use could be emptied. On the artificial \
                 mixtures:"
            )?;
            models(report, |compared| compared.artificial.as_ref()).write(out, screen)?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn parameters(report: &CalibrationReport) -> TextTable {
    let mut table = TextTable::new(&[
        ("parameter (100 cycles)", ColumnAlign::Left),
        ("in force", ColumnAlign::Right),
        ("fitted", ColumnAlign::Right),
        ("95 % interval", ColumnAlign::Right),
    ]);
    let in_force = report.installed_model().coefficients_100cycles.to_array();
    let fitted = report.fitted_model().coefficients_100cycles.to_array();
    for at in 0..TERMS {
        let interval = report.intervals_100cycles[at];
        table.row(vec![
            PriceParameter::ALL[at].name().to_owned(),
            format!("{:.0}", in_force[at]),
            format!("{:.0}", fitted[at]),
            format!("{:.1} .. {:.1}", interval.low, interval.high),
        ]);
    }
    table
}

fn models<'a>(
    report: &'a CalibrationReport,
    which: impl Fn(&'a JudgedModel) -> Option<&'a ModelQuality>,
) -> TextTable {
    let mut table = TextTable::new(&[
        ("model", ColumnAlign::Left),
        ("p99", ColumnAlign::Right),
        ("p50", ColumnAlign::Right),
        ("relative p50", ColumnAlign::Right),
        ("p99", ColumnAlign::Right),
        ("bias", ColumnAlign::Right),
        ("rank", ColumnAlign::Right),
        ("regret", ColumnAlign::Right),
        ("MSE", ColumnAlign::Right),
    ]);
    for compared in &report.models {
        let Some(found) = which(compared) else { continue };
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        table.row(vec![
            name(compared.model).to_owned(),
            percent(found.p99_of_largest),
            percent(found.p50_100cycles / found.largest_100cycles),
            percent(found.p50_relative),
            percent(found.p99_relative),
            format!("{:+.1} %", 100.0 * found.bias),
            format!("{:.4}", found.rank_correlation),
            percent(found.regret),
            format!("{:.3e}", found.mse),
        ]);
    }
    table
}

fn name(model: &str) -> &str {
    match model {
        "ours" => "fitted here",
        "a" => "A: slopes",
        "b" => "B: the thesis'",
        "c" => "C: least squares",
        _ => "in force",
    }
}
