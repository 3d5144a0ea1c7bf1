//! How `ramslice energy` shows a statement: lines while it runs, a table at the end, JSON.

use std::io::Write;

use anyhow::Result;
use ramslice_energy::{
    CurrentSaving, EnergyStatement, EnergyTally, Interval, LedgerPlan, PowerGranule, RestStatement,
    SampleClock, TimeFactor, percent, range,
};
use ramslice_types::{Bytes, PhysicalQuantity, Ratio, WorkCounters};
use serde::Serialize;

use crate::context::{CommandContext, write_json, write_json_line};
use crate::render::{ColumnAlign, TextTable, fill};

/// What a statement was made with.
pub struct StatementView<'a> {
    /// The memory system, the clock and the unit that is switched.
    pub plan: &'a LedgerPlan,
    /// What the hardware switches as one.
    pub granule: PowerGranule,
    /// The sums.
    pub tally: &'a EnergyTally,
}

#[derive(Serialize)]
struct StatementHead<'a> {
    profile: &'a str,
    state: &'a str,
    /// `real` or `emulated`.
    clock: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_factor: Option<Interval<Ratio>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_factor_source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granularity_bytes: Option<Bytes>,
    granularity_assumed: bool,
}

#[derive(Serialize)]
struct EnergyDocument<'a> {
    #[serde(flatten)]
    head: StatementHead<'a>,
    #[serde(rename = "final")]
    last: bool,
    /// On the machine's own clock.
    elapsed_us: u64,
    samples: u64,
    work: WorkCounters,
    #[serde(flatten)]
    statement: &'a EnergyStatement,
}

#[derive(Serialize)]
struct MomentDocument<'a> {
    #[serde(flatten)]
    head: StatementHead<'a>,
    #[serde(flatten)]
    now: &'a CurrentSaving,
}

fn head(plan: &LedgerPlan, granule: PowerGranule) -> StatementHead<'_> {
    let (clock, slower) = match &plan.clock {
        SampleClock::Real => ("real", None),
        SampleClock::Emulated(slower) => ("emulated", Some(slower)),
    };
    StatementHead {
        profile: &plan.profile.name,
        state: &plan.state.name,
        clock,
        time_factor: slower.map(TimeFactor::factor),
        time_factor_source: slower.map(TimeFactor::source),
        granularity_bytes: granule.bytes(),
        granularity_assumed: matches!(granule, PowerGranule::Assumed(_)),
    }
}

impl StatementView<'_> {
    /// Writes a line while the ledger runs, and everything when it is over.
    pub fn write(
        &self,
        statement: &EnergyStatement,
        over: bool,
        context: &CommandContext,
        out: &mut dyn Write,
    ) -> Result<()> {
        if context.json() {
            let body = EnergyDocument {
                head: head(self.plan, self.granule),
                last: over,
                elapsed_us: self.tally.elapsed_us,
                samples: self.tally.steps + 1,
                work: self.tally.work,
                statement,
            };
            return write_json_line(out, "energy", body);
        }
        if over { self.report(statement, context, out) } else { self.line(statement, out) }
    }

    fn line(&self, statement: &EnergyStatement, out: &mut dyn Write) -> Result<()> {
        let shown = self.tally.elapsed().as_secs_f64();
        let time = match self.plan.clock {
            SampleClock::Real => format!("{shown:.1} s"),
            SampleClock::Emulated(_) => format!("{shown:.1} emulated s"),
        };
        Ok(writeln!(
            out,
            "{time}: saved {}, invested {}, net {}",
            range(statement.saved_joules),
            range(statement.invested_joules),
            range(statement.net_joules)
        )?)
    }

    fn report(
        &self,
        statement: &EnergyStatement,
        context: &CommandContext,
        out: &mut dyn Write,
    ) -> Result<()> {
        let screen = &context.screen;
        let width = usize::from(screen.width);
        let (profile, state) = (&self.plan.profile, &self.plan.state);
        let title = format!("{}, state {}: {}", profile.name, state.name, profile.title);
        writeln!(out, "{}", fill(&title, width, 2))?;
        writeln!(out)?;
        table(statement).write(out, screen)?;
        writeln!(out)?;
        let mut note = |text: &str| writeln!(out, "{}", fill(text, width, 2));
        note(&format!(
            "saved: {} off x {} saved by packing",
            range(statement.off_gib_seconds),
            state.saving_by_packing().map(range).unwrap_or_default()
        ))?;
        for line in &statement.lines {
            note(&format!("{}: {}", line.term.name(), line.basis))?;
        }
        if let Some(rest) = &statement.rest {
            note(&rest_text(rest))?;
        }
        for text in &statement.basis {
            note(text)?;
        }
        for one in &statement.reconciled {
            let fits = if one.agrees {
                "fits"
            } else {
                "DOES NOT FIT: the profile is not of this machine"
            };
            note(&format!(
                "meter, {}: {}; the profile says {}: {fits}",
                one.what,
                range(Interval::exactly(one.meter_joules)),
                range(one.model_joules)
            ))?;
        }
        writeln!(out)?;
        Ok(writeln!(out, "{}", screen.bold(&fill(&statement.verdict.sentence, width, 0)))?)
    }
}

fn rest_text(rest: &RestStatement) -> String {
    let memory = range(rest.gib_seconds);
    match (&rest.state, rest.joules) {
        (None, _) => format!(
            "rest: {memory} in use may rest; the profile has no state that keeps contents while \
             other memory is in use"
        ),
        (Some(state), None) => {
            format!("rest: {memory} in use may rest in state {state}, whose saving is unknown")
        }
        (Some(state), Some(joules)) => {
            let [sampled, unaccessed] = [rest.sampled_share, rest.unaccessed_share]
                .map(|share| percent(Interval::exactly(share)));
            let most = if rest.sampled_share.0 > 0.0 {
                format!(
                    "{unaccessed} of the time, as DAMON's samples of {sampled} of it saw no access"
                )
            } else {
                "all of the time".to_owned()
            };
            format!(
                "rest: {memory} in use may rest in state {state}, from none to {most}: {}, which \
                 is in no sum",
                range(joules)
            )
        }
    }
}

fn table(statement: &EnergyStatement) -> TextTable {
    let mut table = TextTable::new(&[
        ("", ColumnAlign::Left),
        ("low", ColumnAlign::Right),
        ("high", ColumnAlign::Right),
    ]);
    let mut row = |name: &str, joules: Option<Interval<ramslice_types::Joules>>| {
        let end = |value| range(Interval::exactly(value));
        let (low, high) = joules.map_or(("unknown".to_owned(), "unknown".to_owned()), |joules| {
            (end(joules.low()), end(joules.high()))
        });
        table.row(vec![name.to_owned(), low, high]);
    };
    row("saved", Some(statement.saved_joules));
    for line in &statement.lines {
        row(&format!("  {}", line.term.name()), line.joules);
    }
    let all = statement.lines.iter().all(|line| line.joules.is_some());
    row(
        if all { "invested" } else { "invested, as far as known" },
        Some(statement.invested_joules),
    );
    row(if all { "net" } else { "net, as far as known" }, Some(statement.net_joules));
    row("the whole machine", statement.machine_joules);
    let share = statement.net_share;
    let end = |share: Option<Ratio>| {
        share.map_or("unknown".to_owned(), |share| percent(Interval::exactly(share)))
    };
    table.row(vec![
        "net, of the whole machine".to_owned(),
        end(share.map(|share| share.low())),
        end(share.map(|share| share.high())),
    ]);
    table
}

/// Writes what one moment saves.
pub fn moment(
    now: &CurrentSaving,
    plan: &LedgerPlan,
    granule: PowerGranule,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    if context.json() {
        return write_json(out, "energy", MomentDocument { head: head(plan, granule), now });
    }
    let width = usize::from(context.screen.width);
    let mut note = |text: &str| writeln!(out, "{}", fill(text, width, 2));
    let (profile, state) = (&plan.profile, &plan.state);
    note(&format!("{}, state {}: {}", profile.name, state.name, profile.title))?;
    let unit = &state.granularity;
    note(&match (granule, now.whole_units_bytes) {
        (PowerGranule::Assumed(size), Some(whole)) => {
            format!("{} off, {whole} in whole aligned units of {size}, as assumed", now.off_bytes)
        }
        (PowerGranule::OfProfile(Some(size)), Some(whole)) => {
            format!(
                "{} off, {whole} in whole aligned units of {size} ({})",
                now.off_bytes, unit.what
            )
        }
        _ => {
            format!(
                "{} off; how much the hardware switches as one ({}) is unknown",
                now.off_bytes, unit.what
            )
        }
    })?;
    let saved = now.saved_watts.map_or_else(|| "unknown".to_owned(), range);
    let undecided =
        now.saved_watts.is_some_and(|saved| saved.contains_zero() && saved.high().get() > 0.0);
    let undecided = if undecided { ", undecided" } else { "" };
    note(&format!("saves {saved}{undecided}, by a model, as long as nothing changes"))?;
    note("what it cost to get there is not known from one moment: see `ramslice energy --help`")?;
    Ok(())
}
