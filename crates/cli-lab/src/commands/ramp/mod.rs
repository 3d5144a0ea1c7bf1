//! `ramslice-lab ramp`: memory shrinks step by step and grows again, as in the Kanpur report,
//! section 4.2.3.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ramslice_backend::sys::SignalInterrupt;
use ramslice_types::{
    Backend, BackendErrorKind, CacheChoice, Pages, Reason, Request, RequestOp, RequestOutcome,
    Slice, SliceId, SliceState, parse_duration,
};
use serde::Serialize;

use ramslice_cli::address_order::{AddressOrder, can_go_off, settled_slices};
use ramslice_cli::context::{CommandContext, write_json_line};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_cli::interrupt::{TICK, interruptible};
use ramslice_cli::request_report::{MOST_MISSES, is_missed, ranges, reason_text, slices};
use ramslice_cli::{stderr, stdout};

/// How long a step waits for another process's request to end.
const PATIENCE: Duration = Duration::from_secs(10);

const HELP: &str = "\
Switches slices off, a few at a time, until as many are on as --floor says or no other can be \
emptied; then wakes what it switched off in the reverse order, as many at a time. It reports each \
step in a line, or with --json in a document. A slice that cannot be emptied is passed over and \
not tried again; slices that were offline before are left alone; slices that wake meanwhile \
because memory was wanted stay online. On a stock kernel nothing wakes by itself: run `ramslice \
guard` beside it.

With --hold nothing wakes meanwhile: at each step the machine has that much less memory (MemTotal \
and watermarks follow), and processes may be killed for lack of it.

Ctrl-C ends it and wakes what it switched off, unless --leave says to leave that off. The exit \
status is 1 if the floor was not reached, or if it was interrupted.

Examples:
  ramslice-lab ramp --step 2 --every 5m --floor 28  two every five minutes, to 28 and back
  ramslice-lab ramp --end low --json > ramp.jsonl   from the lowest address, as documents
  ramslice-lab ramp --hold --floor 28               one load on less and less memory
  ramslice-lab record -o run -- ramslice-lab ramp --every 10s";

/// Switch slices off step by step down to a floor, then on again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RampArgs {
    /// Slices to switch in each step
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    step: u32,
    /// Time between two steps
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    every: Duration,
    /// Slices that stay on: there it turns round [default: as few as can be]
    #[arg(long, value_name = "N")]
    floor: Option<u32>,
    /// The end of memory where it begins
    #[arg(long, value_name = "END", default_value = "high")]
    end: AddressOrder,
    /// On Ctrl-C, keep offline slices offline
    #[arg(long)]
    leave: bool,
    /// Keep what it switches off from waking, whatever memory is wanted: the machine has less
    #[arg(long)]
    hold: bool,
    /// What becomes of clean page cache: drop it, keep (move) it, or auto: keep what was used
    /// lately
    #[arg(long, value_name = "CHOICE", default_value_t)]
    cache: CacheChoice,
    /// Give up on a slice after this time [kernel's default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RampDirection {
    Down,
    Up,
}

#[derive(Debug, Clone, Serialize)]
struct RefusedSlice {
    slice: SliceId,
    reason: String,
    #[serde(skip)]
    words: String,
}

/// One document of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum RampDocument {
    /// A step.
    Step {
        direction: RampDirection,
        step: u32,
        elapsed_us: u64,
        /// What was switched, in this order.
        slices: Vec<SliceId>,
        refused: Vec<RefusedSlice>,
        /// Slices of earlier steps that have woken without this program.
        woken_meanwhile: Vec<SliceId>,
        online_slices: u32,
        offline_slices: u32,
        migrated_pages: Pages,
        dropped_pages: Pages,
    },
    /// The end.
    End {
        ended: RampEnding,
        /// Whether as many slices were on as wanted; nothing if no floor was named.
        floor_reached: Option<bool>,
        /// What it switched off and is off still.
        left_off: Vec<SliceId>,
        refused: Vec<RefusedSlice>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RampEnding {
    Done,
    Interrupted,
    Failed,
}

/// A ramp under way.
struct RunningRamp<'a> {
    args: &'a RampArgs,
    backend: &'a dyn Backend,
    context: &'a CommandContext,
    start: Instant,
    steps: u32,
    /// Each slice is tried once.
    tried_slices: BTreeSet<SliceId>,
    /// What this program has switched off and not woken, in that order.
    offline_slices: Vec<SliceId>,
    /// Of these such that do not wake.
    stuck_slices: Vec<SliceId>,
    floor_reached: Option<bool>,
}

/// What one step did.
#[derive(Default)]
struct StepOutcome {
    slices: Vec<SliceId>,
    refused_slices: Vec<RefusedSlice>,
    woken_slices: Vec<SliceId>,
    migrated_pages: Pages,
    dropped_pages: Pages,
}

pub(crate) fn run(
    args: &RampArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    run_ramp(context.backend()?.as_ref(), args, context, out)
}

fn run_ramp(
    backend: &dyn Backend,
    args: &RampArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let on = nr_on(&backend.snapshot()?.slices);
    if let Some(floor) = args.floor.filter(|floor| *floor >= on) {
        let message = format!(
            "--floor is {floor}, and {} on already: name fewer, or wake some",
            if on == 1 { "1 slice is".to_owned() } else { format!("{on} slices are") }
        );
        return Err(UsageError(message).into());
    }
    let mut ramp = RunningRamp {
        args,
        backend,
        context,
        start: Instant::now(),
        steps: 0,
        tried_slices: BTreeSet::new(),
        offline_slices: Vec::new(),
        stuck_slices: Vec::new(),
        floor_reached: None,
    };
    let result = interruptible(|interrupt| {
        ramp.ramp_down(interrupt, out)?;
        ramp.ramp_up(interrupt, out)?;
        Ok(interrupt.requested())
    });
    // Nothing interrupts requests from here on but another signal.
    let ended = match &result {
        Ok(false) => RampEnding::Done,
        Ok(true) => RampEnding::Interrupted,
        Err(_) => RampEnding::Failed,
    };
    let refused =
        if args.leave || ended == RampEnding::Done { Ok(Vec::new()) } else { ramp.wake_all() };
    let document = ramp.finish(ended, refused.as_ref().map_or(&[][..], Vec::as_slice), out);
    let left = ramp.left_off();
    if document.is_err() && !left.is_empty() {
        // Nothing reads the report any more, and slices that stay off are more than a reader that
        // left.
        stderr::line(format_args!("ramslice-lab: {}", left_off(&left)));
        return match result {
            Err(error) if !stdout::is_broken_pipe(&error) => Err(error),
            _ => Ok(ExitStatus::Refused),
        };
    }
    // What went wrong first says most.
    result?;
    refused?;
    document?;
    let fine = ended == RampEnding::Done
        && ramp.floor_reached != Some(false)
        && ramp.stuck_slices.is_empty();
    Ok(if fine { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn nr_on(slices: &[Slice]) -> u32 {
    let on = |slice: &&Slice| !matches!(slice.state, SliceState::Offline | SliceState::Quarantined);
    slices.iter().filter(on).count() as u32
}

impl RunningRamp<'_> {
    fn ramp_down(&mut self, interrupt: &SignalInterrupt, out: &mut dyn Write) -> Result<()> {
        while !interrupt.requested() {
            let now = settled_slices(self.backend)?;
            let wanted =
                nr_on(&now).saturating_sub(self.args.floor.unwrap_or(0)).min(self.args.step);
            if wanted == 0 {
                self.floor_reached = self.args.floor.map(|_| true);
                return Ok(());
            }
            let mut done =
                StepOutcome { woken_slices: self.take_woken(&now), ..StepOutcome::default() };
            let ids = self.args.end.order(&now, |slice| can_go_off(slice, false));
            let mut misses = 0;
            for id in ids {
                let enough = done.slices.len() as u32 >= wanted || misses >= MOST_MISSES;
                if enough || interrupt.requested() {
                    break;
                }
                if !self.tried_slices.insert(id) {
                    continue;
                }
                let request = Request {
                    cache: self.args.cache,
                    deadline: self.args.deadline,
                    hold: self.args.hold,
                    ..Request::new(RequestOp::Offline(id))
                };
                let Some(outcome) = self.request(&request, interrupt)? else { break };
                done.migrated_pages += outcome.migrated;
                done.dropped_pages += outcome.dropped;
                misses = if is_missed(&outcome) { misses + 1 } else { 0 };
                if outcome.is_ok() {
                    self.offline_slices.push(id);
                    done.slices.push(id);
                } else {
                    done.refused_slices.push(refused(id, &outcome));
                }
            }
            let none = done.slices.is_empty();
            if !none || !done.refused_slices.is_empty() || !done.woken_slices.is_empty() {
                self.report_step(RampDirection::Down, done, out)?;
            }
            if none && !interrupt.requested() {
                self.floor_reached = self.args.floor.map(|_| false);
                return Ok(());
            }
            self.wait(interrupt)?;
        }
        Ok(())
    }

    fn ramp_up(&mut self, interrupt: &SignalInterrupt, out: &mut dyn Write) -> Result<()> {
        while !self.offline_slices.is_empty() && !interrupt.requested() {
            let mut done = StepOutcome {
                woken_slices: self.take_woken(&self.backend.snapshot()?.slices),
                ..StepOutcome::default()
            };
            while (done.slices.len() as u32) < self.args.step && !interrupt.requested() {
                let Some(&id) = self.offline_slices.last() else { break };
                let Some(outcome) =
                    self.request(&Request::new(RequestOp::Online(id)), interrupt)?
                else {
                    break;
                };
                self.offline_slices.pop();
                if outcome.is_ok() {
                    done.slices.push(id);
                } else if outcome.reason == Reason::State {
                    done.woken_slices.push(id);
                } else {
                    self.stuck_slices.push(id);
                    done.refused_slices.push(refused(id, &outcome));
                }
            }
            self.report_step(RampDirection::Up, done, out)?;
            if !self.offline_slices.is_empty() {
                self.wait(interrupt)?;
            }
        }
        Ok(())
    }

    /// Slices of earlier steps that are on again; they are no longer this program's.
    fn take_woken(&mut self, now: &[Slice]) -> Vec<SliceId> {
        let is_off = |id: SliceId| {
            let place = now.binary_search_by_key(&id, |slice| slice.id);
            place.is_ok_and(|at| now[at].state == SliceState::Offline)
        };
        let (off, woken) =
            std::mem::take(&mut self.offline_slices).into_iter().partition(|&id| is_off(id));
        self.offline_slices = off;
        woken
    }

    /// Nothing if Ctrl-C came before it was done.
    fn request(
        &self,
        request: &Request,
        interrupt: &SignalInterrupt,
    ) -> Result<Option<RequestOutcome>> {
        let begun = Instant::now();
        loop {
            match self.backend.request(request) {
                Ok(outcome) if outcome.reason == Reason::Signal => return Ok(None),
                Ok(outcome) => return Ok(Some(outcome)),
                Err(error) if error.kind() == BackendErrorKind::Interrupted => return Ok(None),
                Err(error)
                    if error.kind() == BackendErrorKind::Busy && begun.elapsed() < PATIENCE =>
                {
                    if interrupt.requested() {
                        return Ok(None);
                    }
                    std::thread::sleep(TICK);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Until the next step is due, or Ctrl-C; an error if nothing reads the output any more.
    fn wait(&self, interrupt: &SignalInterrupt) -> Result<()> {
        let due = self.args.every.saturating_mul(self.steps);
        while !interrupt.requested() {
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(TICK));
            stdout::check_reader()?;
        }
        Ok(())
    }

    fn report_step(
        &mut self,
        direction: RampDirection,
        done: StepOutcome,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.steps += 1;
        let elapsed = self.start.elapsed();
        let now = self.backend.snapshot()?.slices;
        let (on, off) = (
            nr_on(&now),
            now.iter().filter(|slice| slice.state == SliceState::Offline).count() as u32,
        );
        if self.context.json() {
            let document = RampDocument::Step {
                direction,
                step: self.steps,
                elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                slices: done.slices,
                refused: done.refused_slices,
                woken_meanwhile: done.woken_slices,
                online_slices: on,
                offline_slices: off,
                migrated_pages: done.migrated_pages,
                dropped_pages: done.dropped_pages,
            };
            write_json_line(out, "ramp", document)?;
            return Ok(out.flush()?);
        }
        for refused in &done.refused_slices {
            writeln!(out, "slice {}: refused: {}", refused.slice, refused.words)?;
        }
        let mut line = format!("{:.1} s: ", elapsed.as_secs_f64());
        if !done.woken_slices.is_empty() {
            line.push_str(&format!("woke meanwhile: {}; ", slice_list(&done.woken_slices)));
        }
        let word = if direction == RampDirection::Down { "offline" } else { "online" };
        line.push_str(&format!(
            "{word}: {}; {} on, {off} off",
            slice_list(&done.slices),
            slices(on)
        ));
        if done.migrated_pages.0 + done.dropped_pages.0 > 0 {
            line.push_str(&format!(
                "; {} pages moved, {} dropped",
                done.migrated_pages, done.dropped_pages
            ));
        }
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    /// Wakes what is off, as far as that works; what did not.
    fn wake_all(&mut self) -> Result<Vec<RefusedSlice>> {
        let mut failed = Vec::new();
        let now = self.backend.snapshot().context("looking which slices are off")?.slices;
        self.take_woken(&now);
        for id in std::mem::take(&mut self.offline_slices).into_iter().rev() {
            let begun = Instant::now();
            let result = loop {
                match self.backend.request(&Request::new(RequestOp::Online(id))) {
                    Err(error)
                        if matches!(
                            error.kind(),
                            BackendErrorKind::Busy | BackendErrorKind::Interrupted
                        ) && begun.elapsed() < PATIENCE =>
                    {
                        std::thread::sleep(TICK);
                    }
                    result => break result,
                }
            };
            match result {
                Ok(outcome) if outcome.is_ok() || outcome.reason == Reason::State => {}
                Ok(outcome) => {
                    failed.push(refused(id, &outcome));
                    self.stuck_slices.push(id);
                }
                Err(error) => {
                    failed.push(RefusedSlice {
                        slice: id,
                        reason: "error".to_owned(),
                        words: error.to_string(),
                    });
                    self.stuck_slices.push(id);
                }
            }
        }
        Ok(failed)
    }

    /// What it switched off and is off still.
    fn left_off(&self) -> Vec<SliceId> {
        self.offline_slices.iter().chain(&self.stuck_slices).copied().collect()
    }

    fn finish(
        &self,
        ended: RampEnding,
        failed: &[RefusedSlice],
        out: &mut dyn Write,
    ) -> Result<()> {
        let left = self.left_off();
        if self.context.json() {
            let refused = failed.to_vec();
            let document = RampDocument::End {
                ended,
                floor_reached: self.floor_reached,
                left_off: left,
                refused,
            };
            write_json_line(out, "ramp", document)?;
            return Ok(out.flush()?);
        }
        for refused in failed {
            writeln!(out, "slice {}: stays off: {}", refused.slice, refused.words)?;
        }
        if let (Some(false), Some(floor)) = (self.floor_reached, self.args.floor) {
            writeln!(
                out,
                "the floor of {} was not reached: no other could be emptied",
                slices(floor)
            )?;
        }
        let left = if left.is_empty() {
            "what it switched off is on again".to_owned()
        } else {
            left_off(&left)
        };
        let how = match ended {
            RampEnding::Done => "done",
            RampEnding::Interrupted => "interrupted",
            RampEnding::Failed => "failed",
        };
        writeln!(out, "{how}: {left}")?;
        Ok(out.flush()?)
    }
}

fn refused(slice: SliceId, outcome: &RequestOutcome) -> RefusedSlice {
    RefusedSlice { slice, reason: outcome.reason.code(), words: reason_text(outcome) }
}

fn left_off(ids: &[SliceId]) -> String {
    format!("left off: {}; `ramslice online` wakes them", slice_list(ids))
}

/// `none`, or the slices as ranges.
fn slice_list(ids: &[SliceId]) -> String {
    if ids.is_empty() {
        return "none".to_owned();
    }
    let mut ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ranges(&ids)
}

#[cfg(test)]
mod tests;
