//! `ramslice compact`: pack memory within a budget, with progress and a clean Ctrl-C.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_backend::sys::SignalInterrupt;
use ramslice_types::{
    Backend, BackendInfo, Budget, Bytes, CacheChoice, NodeId, Pages, Reason, Request, RequestOp,
    RequestOutcome, SliceId, SliceSnapshot, SliceState, parse_duration,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::interrupt::{TICK, interruptible};
use crate::render::wrapped;
use crate::request_report::{reason_text, slices, zone_number};
use crate::stderr;

const HELP: &str = "\
Empties slices, cheapest first, and switches them off until the budget is spent, the zone has no \
more room, or its awake reserve is reached. Prices and budgets are in units of 100 CPU cycles; \
work on a slice that then fails is charged, too. Ctrl-C ends it cleanly: what is off stays off, \
the slice at hand stays on, and the report follows.

The exit status is 0 if it ended by itself, however little there was to do, and 1 if it was \
interrupted or something went wrong.

Examples:
  ramslice compact --dry-run                what packing everything would cost
  ramslice compact --budget 2M              spend at most 200 million cycles
  ramslice compact --budget 20k --per-slice any number of slices, but only cheap ones
  ramslice compact --max-slices 1           one more slice
  ramslice compact --cache auto             drop only the cache that was not used lately";

/// Pack memory: empty the cheapest slices within a budget.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CompactArgs {
    /// The most to spend, in units of 100 CPU cycles: 50000, 50k, 2M or inf
    #[arg(long, value_name = "N", default_value = "inf")]
    budget: Budget,
    /// Apply the budget to each slice rather than to all together
    #[arg(long)]
    per_slice: bool,
    /// Switch off at most this many slices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_slices: Option<u32>,
    /// Keep to this NUMA node
    #[arg(long, value_name = "NODE")]
    node: Option<i32>,
    /// Keep to the zone of this name
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Stop after this time [kernel's default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// What becomes of clean page cache: drop it, keep (move) it, or auto: keep what was used
    /// lately
    #[arg(long, value_name = "CHOICE", default_value_t)]
    cache: CacheChoice,
    /// Try slices that failed lately, too
    #[arg(long)]
    ignore_backoff: bool,
    /// Only report what it would do and cost
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct CompactDocument<'a> {
    dry_run: bool,
    budget_100cycles: Budget,
    outcome: &'a RequestOutcome,
    info: &'a BackendInfo,
}

pub(crate) fn run(
    args: &CompactArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let backend = backend.as_ref();
    let request = request(args, backend)?;
    let outcome = interruptible(|interrupt| {
        let progress = io::stderr().is_terminal() && !request.dry_run && !context.json();
        run_supervised(backend, &request, interrupt, progress)
    })?;
    let info = backend.info()?;
    if context.json() {
        let body = CompactDocument {
            dry_run: args.dry_run,
            budget_100cycles: args.budget,
            outcome: &outcome,
            info: &info,
        };
        write_json(out, "compact", body)?;
    } else {
        let source = context.source_path();
        for line in report(&request, &outcome, &info, source) {
            wrapped(&line, "", &context.screen, out)?;
        }
    }
    Ok(if outcome.ran_to_its_end() { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn request(args: &CompactArgs, backend: &dyn Backend) -> Result<Request> {
    let node = args.node.map(NodeId);
    let zone = match &args.zone {
        Some(name) => Some(zone_number(&backend.zones()?, node, name)?),
        None => None,
    };
    Ok(Request {
        op: RequestOp::Compact,
        node,
        zone,
        budget: args.budget,
        per_slice: args.per_slice,
        cache: args.cache,
        ignore_backoff: args.ignore_backoff,
        dry_run: args.dry_run,
        hold: false,
        max_slices: args.max_slices,
        deadline: args.deadline,
    })
}

/// Carries out the request in this thread; a second one shows how far it is.
pub(crate) fn run_supervised(
    backend: &dyn Backend,
    request: &Request,
    interrupt: &SignalInterrupt,
    progress: bool,
) -> Result<RequestOutcome> {
    if !progress {
        return Ok(backend.request(request)?);
    }
    let (info, before) = (backend.info()?, backend.snapshot()?);
    std::thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            let (start, before) = (Instant::now(), used_by_slice(&info, &before));
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                // Progress is a courtesy: if it cannot be read, the request goes on without.
                if let Ok(now) = backend.snapshot() {
                    let line =
                        progress_line(&info, &before, &now, start.elapsed(), interrupt.requested());
                    stderr::rewrite(line);
                }
            }
            stderr::clear();
        });
        let outcome = backend.request(request);
        drop(done);
        Ok(outcome?)
    })
}

/// What each online slice holds.
fn used_by_slice(info: &BackendInfo, snapshot: &SliceSnapshot) -> BTreeMap<SliceId, Pages> {
    let online = snapshot.slices.iter().filter(|slice| slice.state == SliceState::Online);
    online.map(|slice| (slice.id, slice.composition(info.slice_pages()).used())).collect()
}

fn progress_line(
    info: &BackendInfo,
    before: &BTreeMap<SliceId, Pages>,
    now: &SliceSnapshot,
    elapsed: Duration,
    stopping: bool,
) -> String {
    let (mut off, mut cleared) = (0, Pages::ZERO);
    for slice in &now.slices {
        // Others fill up meanwhile; only slices that are being or have been emptied count.
        if let Some(&used) = before.get(&slice.id)
            && matches!(slice.state, SliceState::Emptying | SliceState::Offline)
        {
            off += u32::from(slice.state == SliceState::Offline);
            cleared += used - slice.composition(info.slice_pages()).used();
        }
    }
    format!(
        "{} off, {} pages ({}) cleared, {:.1} s{}",
        slices(off),
        cleared,
        cleared.bytes(info.page_bytes),
        elapsed.as_secs_f64(),
        if stopping { "; stopping" } else { "; Ctrl-C stops" },
    )
}

/// `source` is the file of a saved machine, on which requests are only simulated.
fn report(
    request: &Request,
    outcome: &RequestOutcome,
    info: &BackendInfo,
    source: Option<&Path>,
) -> Vec<String> {
    let size = |pages: Pages| pages.bytes(info.page_bytes);
    // None where slices are of several sizes
    let bytes = info.bytes_of_any(outcome.slices_done);
    let done = bytes.map_or_else(String::new, |bytes| format!(" ({bytes})"));
    let mut lines = Vec::new();
    let verb = if request.dry_run { "would switch off" } else { "switched off" };
    let mut first = format!("{verb} {}{done}", slices(outcome.slices_done));
    if !request.dry_run {
        first.push_str(&format!(" in {:.2} s", outcome.elapsed.as_secs_f64()));
    }
    if outcome.slices_failed > 0 {
        first.push_str(&format!(", {} in vain", slices(outcome.slices_failed)));
    }
    if let (Some(name), false) = (source.and_then(Path::file_name), request.dry_run) {
        first.push_str(&format!(", on a copy of {}", name.display()));
    }
    lines.push(first);
    if request.dry_run {
        lines.extend(drain_sentence(outcome.slices_to_drain));
        lines.push(format!("price: {} predicted, in units of 100 cycles", outcome.price_predicted));
    } else {
        let mut pages = format!(
            "moved {} pages ({}), dropped {} pages ({}) of clean cache",
            outcome.migrated,
            size(outcome.migrated),
            outcome.dropped,
            size(outcome.dropped),
        );
        if outcome.failed > Pages::ZERO {
            pages.push_str(&format!(", {} pages did not move", outcome.failed));
        }
        if outcome.huge_moved + outcome.huge_split > 0 {
            pages.push_str(&format!(
                "; huge pages: {} moved whole, {} split",
                outcome.huge_moved, outcome.huge_split
            ));
        }
        lines.push(pages);
        lines.push(format!(
            "price: {} predicted, {} measured{}, in units of 100 cycles",
            outcome.price_predicted,
            outcome.price_measured,
            deviation(outcome),
        ));
    }
    lines.push(format!("ended: {}", end_sentence(request, outcome)));
    let when = if request.dry_run { "now" } else { "afterwards" };
    lines.push(format!(
        "{when}: {} used, {} free and awake, {} offline, c = {:.2}",
        size(info.used_pages()),
        size(info.free_pages),
        size(info.offline_pages),
        info.offline_ratio(),
    ));
    if let (true, Some(bytes @ Bytes(1..))) = (request.dry_run, bytes) {
        let offline = Bytes(size(info.offline_pages).0.saturating_add(bytes.0));
        lines.push(format!("afterwards: {offline} would be offline"));
    }
    lines
}

/// What a dry run cannot promise of slices that go last.
fn drain_sentence(count: u32) -> Option<String> {
    (count > 0).then(|| {
        let (verb, whose) = if count == 1 { ("has", "its") } else { ("have", "their") };
        format!(
            "of these, {} {verb} pages that are free in CPUs' lists, or the kernel's: last in \
             order, and sure only once the kernel has drained {whose} pages from these lists",
            slices(count)
        )
    })
}

/// ` (+8 %)`: how far the measured price is from the predicted one.
fn deviation(outcome: &RequestOutcome) -> String {
    if outcome.price_predicted.0 == 0 {
        return String::new();
    }
    let ratio = outcome.price_measured.share_of(outcome.price_predicted);
    format!(" ({:+.0} %)", 100.0 * (ratio - 1.0))
}

pub(crate) fn end_sentence(request: &Request, outcome: &RequestOutcome) -> String {
    let enough = request.max_slices.is_some_and(|most| outcome.slices_done >= most);
    match outcome.reason {
        _ if outcome.is_ok() && enough => "as many slices as allowed".to_owned(),
        Reason::None if outcome.is_ok() => "no slice is left that could be emptied".to_owned(),
        // Of a whole request, "it" in the slice's sentence would mean the next slice.
        Reason::OverBudget => {
            "over-budget: the next slice costs more than what is left of the budget".to_owned()
        }
        Reason::AwakeReserve => {
            "awake-reserve: with another slice off, too little free memory would stay awake"
                .to_owned()
        }
        Reason::NoRoom => "no-room: the slices that stay on cannot take more pages".to_owned(),
        _ if outcome.is_ok() => {
            format!(
                "no slice is left that could be emptied; the last that failed: {}",
                reason_text(outcome)
            )
        }
        _ => reason_text(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::Price;

    #[test]
    fn the_deviation_is_relative_to_the_prediction() {
        let outcome = RequestOutcome {
            price_predicted: Price(200),
            price_measured: Price(250),
            ..RequestOutcome::default()
        };
        assert_eq!(deviation(&outcome), " (+25 %)");
        assert_eq!(deviation(&RequestOutcome::default()), "");
    }

    #[test]
    fn a_dry_run_says_how_many_slices_depend_on_cpus_lists() {
        assert_eq!(drain_sentence(0), None);
        let one = drain_sentence(1).unwrap();
        assert!(
            one.starts_with("of these, 1 slice has pages that are free in CPUs' lists"),
            "{one}"
        );
        let several = drain_sentence(3).unwrap();
        assert!(several.starts_with("of these, 3 slices have pages"), "{several}");
    }

    #[test]
    fn the_end_is_explained_even_without_a_reason() {
        let request = Request { max_slices: Some(2), ..Request::default() };
        let outcome = RequestOutcome { slices_done: 2, ..RequestOutcome::default() };
        assert_eq!(end_sentence(&request, &outcome), "as many slices as allowed");
        assert!(end_sentence(&Request::default(), &outcome).starts_with("no slice is left"));
        // A stock kernel reports the last slice that failed.
        let failed = RequestOutcome { slices_failed: 1, reason: Reason::Pinned, ..outcome };
        assert_eq!(end_sentence(&request, &failed), "as many slices as allowed");
        let sentence = end_sentence(&Request::default(), &failed);
        assert!(
            sentence.starts_with("no slice is left")
                && sentence.contains("the last that failed: pinned"),
            "{sentence}"
        );
    }
}
