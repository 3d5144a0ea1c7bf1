//! Memory blocks of a stock kernel go offline and come back at once: what was free among pages in
//! use comes back in one piece, which free page reporting finds.

use std::env;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ramslice_backend::sys::SignalInterrupt;
use ramslice_types::{
    Backend, Bytes, Pages, Reason, Request, RequestOp, Slice, SliceId, SliceState,
};

use crate::address_order::can_go_off;
use crate::context::CommandContext;
use crate::exit::ExitStatus;

/// A block is emptied if at least one part in so many of it is free: what comes back in one piece
/// has to be worth the pages that move.
const FREE_SHARE: u64 = 8;
/// The last block has to have brought at least one part in so many of it, else that was all.
const GAIN_SHARE: u64 = 16;
/// How long emptying one block may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Blocks in a row that could not be emptied, until nothing better is expected of the next.
const MOST_FAILURES: u32 = 3;
/// How long it is tried to bring one back: another request may take a minute.
const BACK_WITHIN: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_millis(100);
/// The hidden command that brings back what this one cannot, once it was killed.
pub(super) const KEEPER: &str = "bring-back";
const NONE: &str = "-";

/// What became of memory blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EmptiedBlocks {
    /// Emptied, and online again.
    pub emptied: u32,
    /// Could not be emptied.
    pub failed: u32,
}

/// Whether emptying a block can bring free memory in one piece.
fn is_worth_emptying(slice: &Slice) -> bool {
    let (free, all) = (slice.counters.free, slice.present);
    can_go_off(slice, false) && free < all && free.0 >= all.0 / FREE_SHARE
}

/// Whether others need memory, or the user wants an end: no further block is tried.
fn is_shortage(reason: Reason) -> bool {
    matches!(reason, Reason::AwakeReserve | Reason::NoRoom | Reason::Pressure | Reason::Signal)
}

/// Empties memory blocks and brings each back, cheapest first, one at a time, until one more brings
/// nothing, three in a row cannot be emptied, memory is short, or the user interrupts.
///
/// `whole_blocks` says how much is free in one piece. `progress` gets the number of blocks emptied.
///
/// # Errors
/// What the backend fails with; a block that cannot be brought back.
pub(super) fn empty_blocks(
    backend: &dyn Backend,
    interrupt: &SignalInterrupt,
    whole_blocks: &dyn Fn() -> Result<Bytes>,
    progress: &dyn Fn(u32),
) -> Result<EmptiedBlocks> {
    let page = backend.info()?.page_bytes;
    let mut slices = backend.snapshot()?.slices;
    slices.retain(is_worth_emptying);
    slices.sort_by_key(|slice| (slice.price, slice.id));
    let mut keeper = BlockKeeper::start()?;
    let (mut done, mut failures) = (EmptiedBlocks::default(), 0);
    for slice in slices {
        if interrupt.requested() {
            break;
        }
        let before = whole_blocks()?;
        keeper.note(Some(slice.id))?;
        let request =
            Request { deadline: Some(DEADLINE), ..Request::new(RequestOp::Offline(slice.id)) };
        let outcome = backend.request(&request)?;
        // What could not be emptied may be half offline all the same
        if outcome.slices_done == 1 || !is_online(backend, slice.id) {
            bring_back(backend, slice.id)?;
        }
        keeper.note(None)?;
        if outcome.slices_done == 0 {
            (done.failed, failures) = (done.failed + 1, failures + 1);
            if is_shortage(outcome.reason) || failures == MOST_FAILURES {
                break;
            }
            continue;
        }
        failures = 0;
        done.emptied += 1;
        progress(done.emptied);
        let gained = whole_blocks()?.saturating_sub(before);
        if gained < least_gain(slice.present, page) {
            break;
        }
    }
    keeper.end()?;
    Ok(done)
}

/// What a block has to bring for the next to be tried.
fn least_gain(present: Pages, page: Bytes) -> Bytes {
    Bytes(present.bytes(page).0 / GAIN_SHARE)
}

/// Brings a block online, and tries again for a while if that fails: another request may be under
/// way.
fn bring_back(backend: &dyn Backend, id: SliceId) -> Result<()> {
    let began = Instant::now();
    loop {
        // A user who interrupts has to wait for this
        let why = match backend.request(&Request::new(RequestOp::Online(id))) {
            Ok(outcome) if outcome.slices_done == 1 => return Ok(()),
            Ok(_) if is_online(backend, id) => return Ok(()),
            Ok(outcome) => outcome.reason.to_string(),
            Err(error) => error.to_string(),
        };
        if began.elapsed() > BACK_WITHIN {
            bail!(
                "memory block {id} is offline and could not be brought back: {why}; \
                 `ramslice online {id}` tries again"
            );
        }
        thread::sleep(AGAIN);
    }
}

fn is_online(backend: &dyn Backend, id: SliceId) -> bool {
    let Ok(snapshot) = backend.snapshot() else { return false };
    snapshot.slices.iter().any(|slice| slice.id == id && slice.state == SliceState::Online)
}

/// A process that brings a block back if this one is killed meanwhile.
struct BlockKeeper {
    child: Child,
    to_child: ChildStdin,
}

impl BlockKeeper {
    fn start() -> Result<Self> {
        let program = env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .args(["--backend", "stock", "giveback", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C, and what ends a group of processes, is not for it
            .process_group(0)
            .spawn()
            .context("starting the process that brings blocks back if this one is killed")?;
        let to_child = child.stdin.take().context("no pipe to that process")?;
        Ok(Self { child, to_child })
    }

    /// The block that may be offline from now on.
    fn note(&mut self, id: Option<SliceId>) -> Result<()> {
        let line = id.map_or_else(|| NONE.to_owned(), |id| id.to_string());
        writeln!(self.to_child, "{line}")
            .context("the process that brings blocks back if this one is killed has ended")
    }

    fn end(self) -> Result<()> {
        let Self { mut child, to_child } = self;
        drop(to_child);
        let status = child.wait().context("waiting for the process that brings blocks back")?;
        if !status.success() {
            bail!("the process that brings blocks back ended with {status}");
        }
        Ok(())
    }
}

/// Waits until the process that writes to stdin ends, and brings back the block that it named last.
pub(super) fn keep(context: &CommandContext) -> Result<ExitStatus> {
    let backend = context.backend()?;
    // A supervisor ends all processes of a unit; this one has a block to bring back first
    let _noted = SignalInterrupt::install().context("handling signals")?;
    let mut last = NONE.to_owned();
    for line in io::stdin().lock().lines() {
        last = line.context("reading which block is offline")?;
    }
    if last == NONE {
        return Ok(ExitStatus::Ok);
    }
    let id = SliceId(last.parse().with_context(|| format!("\"{last}\" is no memory block"))?);
    if !is_online(backend.as_ref(), id) {
        bring_back(backend.as_ref(), id)?;
    }
    Ok(ExitStatus::Ok)
}

#[cfg(test)]
mod tests {
    use ramslice_types::SliceCounters;

    use super::*;

    fn slice(free: u64, present: u64) -> Slice {
        Slice {
            counters: SliceCounters { free: Pages(free), ..SliceCounters::default() },
            ..Slice::unread(SliceId(0), Pages(present))
        }
    }

    #[test]
    fn blocks_that_are_full_or_free_stay_as_they_are() {
        assert!(!is_worth_emptying(&slice(4095, 32_768)));
        assert!(is_worth_emptying(&slice(4096, 32_768)));
        assert!(is_worth_emptying(&slice(32_767, 32_768)));
        assert!(!is_worth_emptying(&slice(32_768, 32_768)));
        assert!(!is_worth_emptying(&Slice { unmovable: true, ..slice(20_000, 32_768) }));
    }

    #[test]
    fn the_next_block_is_tried_if_the_last_brought_a_sixteenth() {
        assert_eq!(least_gain(Pages(32_768), Bytes(4096)), Bytes(8 << 20));
    }
}
