//! `ramslice top` without a screen: one look as text or JSON, or a line for each look.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use ramslice_types::{Backend, BackendInfo, SliceTotals};
use serde::Serialize;

use super::activity::SliceActivity;
use super::daemon_status::DaemonStatus;
use super::energy_sums::EnergyFigures;
use super::model::TopModel;
use super::observer_thread::{MachineObservation, ObserverThread};
use super::page_cache::PageCacheRatios;
use super::page_layout::{self, ScreenRow, TextTone};
use super::state_changes::StateChange;
use crate::commands::status;
use crate::context::{CommandContext, write_json, write_json_line};
use crate::interrupt::interruptible;
use crate::render::ScreenCell;

/// Lines that the text of one look should not exceed.
const MAX_ROWS: usize = 48;

#[derive(Serialize)]
struct TopDocument<'a> {
    event_seq: u64,
    monotonic_us: u64,
    offline_ratio: f64,
    info: &'a BackendInfo,
    census: &'a SliceTotals,
    changes: &'a [StateChange],
    /// Absent in the first look.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<SliceActivity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_start: Option<SliceActivity>,
    /// Absent without --profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<&'a EnergyFigures>,
    /// Absent of a saved machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache: Option<&'a PageCacheRatios>,
    daemon: &'a DaemonStatus,
    notes: Vec<String>,
}

fn body(top: &TopModel) -> TopDocument<'_> {
    let machine = top.machine();
    TopDocument {
        event_seq: machine.snapshot.event_seq,
        monotonic_us: u64::try_from(machine.snapshot.time.as_micros()).unwrap_or(u64::MAX),
        offline_ratio: machine.info.offline_ratio(),
        info: &machine.info,
        census: &top.census,
        changes: &top.changes,
        last: top.last_activity,
        since_start: top.rate.map(|_| top.total),
        energy: top.energy_sums.as_ref().and_then(super::energy_sums::EnergySums::figures),
        page_cache: (!top.source.is_saved()).then_some(&top.page_cache),
        daemon: &top.daemon,
        notes: top.notes(),
    }
}

/// Looks, waits an interval, looks again, and prints what the screen would show. In a saved machine
/// no time passes; a recording is read to its end.
pub(super) fn print_once(
    top: &mut TopModel,
    backend: &dyn Backend,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    while !top.source.is_finished() {
        if top.source.is_running() {
            std::thread::sleep(top.interval);
        }
        top.apply_observation(MachineObservation::read(backend));
        if let Some(problem) = &top.last_error {
            anyhow::bail!("the second look failed: {problem}");
        }
        if top.source.is_running() {
            break;
        }
    }
    if context.json() {
        return write_json(out, "top", body(top));
    }
    let screen = &context.screen;
    top.has_cursor = false;
    let mut rows = page_layout::rows(top, screen.width, MAX_ROWS);
    rows.pop(); // the keys
    for row in rows {
        let line = match row {
            ScreenRow::Cells(cells) => ScreenCell::line(screen, &cells),
            ScreenRow::Text(TextTone::Bold, text) => screen.bold(text.trim_end()),
            ScreenRow::Text(_, text) => text.trim_end().to_owned(),
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A line for each look, until Ctrl-C or `count` lines.
pub(super) fn lines(
    top: &mut TopModel,
    backend: &dyn Backend,
    observer: &mut ObserverThread,
    count: Option<u64>,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    interruptible(|interrupt| {
        let mut printed = 0;
        loop {
            if json {
                write_json_line(out, "top", body(top))?;
            } else {
                writeln!(out, "{}", line(top))?;
            }
            out.flush()?;
            printed += 1;
            if count.is_some_and(|count| printed >= count) {
                return Ok(());
            }
            let start = Instant::now();
            if top.source.is_recording() && top.source.is_finished() {
                return Ok(());
            }
            // A recording is read as fast as it can be.
            while !top.source.is_recording() && start.elapsed() < top.interval {
                if interrupt.requested() {
                    return Ok(());
                }
                // Changes within a period belong to its line.
                backend.wait_event(top.interval.saturating_sub(start.elapsed()))?;
                let left = top.interval.saturating_sub(start.elapsed());
                std::thread::sleep(left.min(crate::interrupt::TICK));
            }
            let Some(seen) = observer.observe_machine(|| !interrupt.requested())? else {
                return Ok(());
            };
            top.apply_observation(seen);
            if let Some(problem) = &top.last_error {
                anyhow::bail!("{problem}");
            }
        }
    })
}

fn line(top: &TopModel) -> String {
    let machine = top.machine();
    let mut text =
        format!("{:.3} s: {}", machine.snapshot.time.as_secs_f64(), status::totals(machine));
    if let Some(last) = &top.last_activity {
        text.push_str(&format!(
            "; {} off, {} woken, {} by demand",
            last.slices_off, last.slices_woken, last.woken_by_demand
        ));
        if let Some(work) = last.work {
            text.push_str(&format!(", {} pages moved, {} dropped", work.migrated, work.dropped));
        }
    }
    for words in top
        .energy_sums
        .iter()
        .map(super::energy_sums::EnergySums::words)
        .chain(top.governor().decisions.into_iter().take(1))
    {
        text.push_str("; ");
        text.push_str(&words);
    }
    text
}
