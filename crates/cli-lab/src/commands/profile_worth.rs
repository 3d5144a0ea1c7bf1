//! `ramslice-lab profiles --worth`: what packing is worth by class of machine, as the Markdown
//! tables of `docs/reference/worth.md`.

use std::io::Write;

use anyhow::Result;
use ramslice_energy::{ClassSource, ClassWorth, Interval, MachineClasses, percent};
use ramslice_types::PhysicalQuantity;

use ramslice_cli::context::{CommandContext, write_json};

/// Prints the table and the figures that it rests on.
pub(super) fn run(context: &CommandContext, out: &mut dyn Write) -> Result<()> {
    let all = MachineClasses::builtin()?;
    if context.json() {
        return write_json(out, "worth", all);
    }
    writeln!(
        out,
        "| class | state | GiB | off | W | of the machine | USD/year | kg CO2/year | given back, \
         USD/year |"
    )?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
    for class in &all.classes {
        writeln!(out, "{}", row(class))?;
    }
    writeln!(out)?;
    writeln!(out, "| of | figure | is | from |")?;
    writeln!(out, "| --- | --- | --- | --- |")?;
    for source in &all.prices {
        writeln!(out, "{}", source_row("all", source))?;
    }
    for class in &all.classes {
        for source in &class.sources {
            writeln!(out, "{}", source_row(&class.class, source))?;
        }
    }
    Ok(())
}

fn row(class: &ClassWorth) -> String {
    let share = class.share_of_machine.map(percent);
    let given = class.given_back_usd_per_year.map_or_else(|| "no host".to_owned(), span);
    format!(
        "| {} | `{}`, `{}` | {} | {} | {} | {} | {} | {} | {given} |",
        class.class,
        class.profile,
        class.state,
        span(class.memory_gib),
        percent(class.off),
        known(class.saved_watts.map(span)),
        known(share),
        known(class.usd_per_year.map(span)),
        known(class.co2_kg_per_year.map(span)),
    )
}

fn source_row(of: &str, source: &ClassSource) -> String {
    format!("| {of} | {} | {} | {} |", source.field, source.written, source.source)
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "unknown".to_owned())
}

/// Both ends with two significant digits.
fn span<Q: PhysicalQuantity>(value: Interval<Q>) -> String {
    let (low, high) = (digits(value.low().get()), digits(value.high().get()));
    if low == high { low } else { format!("{low} to {high}") }
}

fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (1 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.places$}")
}
