//! `ramslice cold`: how large cold memory is, and who gets it.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use ramslice_backend::{ColdError, ColdMemory, ColdMode, ColdNode, ColdState};
use ramslice_types::{Bytes, parse_bytes, parse_duration};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::{TICK, interruptible};
use crate::progress::ProgressLine;
use crate::render::{ColumnAlign, TextTable};
use crate::stderr;

/// The kernel's limit.
const MAX_DEADLINE: Duration = Duration::from_hours(1);

const HELP: &str = "\
DRAM can rest where it holds data, if nothing touches it for long enough. So what is rarely used \
gets slices of its own: each node has a twin, a node without CPUs, which is given some of its \
memory. Programs put things there by mmap(MAP_COLD), or by mbind() to that node.

A size is a multiple of the larger of a slice (all that take turns, if slices are interleaved) and \
a memory block. Growing empties slices, highest first, and moves their blocks; it is all or \
nothing. Size 0 gives everything back, and what was in it moves along. With several nodes and \
without --node, each twin gets an equal part.

In mode overflow other memory goes there after all else, and reclaim moves idle pages there before \
it swaps. In mode strict only what asks for it gets it, and others instead of an OOM kill.

\"may rest\" is what lies in slices that the power driver was told are rarely touched, so that \
their hardware may idle deep and keep what they hold.

It needs a kernel with CONFIG_RAMSLICE_COLD and `ramslice_cold=0` on its command line, where a \
size may stand, too: ramslice_cold=2G,strict.

Examples:
  ramslice cold                  how things are
  ramslice cold --size 2G        give 2 GiB to what is rarely used
  ramslice cold --mode strict    keep it for what asks
  ramslice cold --size 0         give it back";

/// Show cold memory, size it, or say who gets it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ColdArgs {
    /// What it is to have, as in 512M or 2G; 0 gives it back
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<Bytes>,
    /// Only that of this node
    #[arg(long, value_name = "N", requires = "size")]
    node: Option<u32>,
    /// Give up after this time, and undo what was done [kernel's default: 60s]
    #[arg(long, value_name = "TIME", requires = "size", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Who gets it: overflow (others, too, after all else) or strict (only what asks)
    #[arg(long, value_name = "MODE")]
    mode: Option<ColdMode>,
}

#[derive(Serialize)]
struct ColdDocument {
    mode: &'static str,
    unit_bytes: Bytes,
    nodes: Vec<ColdNodeRow>,
}

#[derive(Serialize)]
struct ColdNodeRow {
    node: u32,
    twin: u32,
    size_bytes: Bytes,
    used_bytes: Bytes,
    free_bytes: Bytes,
    resting_bytes: Bytes,
    most_bytes: Bytes,
}

impl From<&ColdNode> for ColdNodeRow {
    fn from(found: &ColdNode) -> Self {
        Self {
            node: found.node,
            twin: found.twin,
            size_bytes: found.size,
            used_bytes: used(found),
            free_bytes: found.free,
            resting_bytes: found.resting,
            most_bytes: found.most,
        }
    }
}

pub(crate) fn run(
    args: &ColdArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if let Some(path) = context.source_path() {
        let text =
            format!("cold memory is not in saved machines: leave out --from {}", path.display());
        return Err(UsageError(text).into());
    }
    let cold = ColdMemory::under(Path::new("/"));
    let mut state = cold.look().map_err(usage)?;
    if let Some(deadline) = args.deadline.filter(|&deadline| deadline > MAX_DEADLINE) {
        let text = format!("a deadline of {} s is too long: at most 1h", deadline.as_secs());
        return Err(UsageError(text).into());
    }
    if let Some(size) = args.size {
        let parts = match args.node {
            Some(node) => state.check(node, size).map(|found| vec![(found.node, size)]),
            None => state.parts(size),
        };
        resize_all(&cold, &state, &parts.map_err(usage)?, args.deadline, context.json())?;
    }
    if let Some(mode) = args.mode {
        cold.set_mode(mode)?;
    }
    if args.mode.is_some() || args.size.is_some() {
        state = cold.look().map_err(usage)?;
    }
    if context.json() {
        let nodes = state.nodes.iter().map(ColdNodeRow::from).collect();
        let body = ColdDocument { mode: state.mode.name(), unit_bytes: state.unit, nodes };
        write_json(out, "cold", body)?;
    } else {
        table(&state).write(out, &context.screen)?;
        writeln!(out, "\n{}; sizes are multiples of {}", meaning(state.mode), state.unit)?;
        writeln!(out, "Programs ask for it by mmap(MAP_COLD), or for a twin by a memory policy.")?;
    }
    Ok(ExitStatus::Ok)
}

/// Resizes all or none, and leaves the kernel's deadline as it was.
fn resize_all(
    cold: &ColdMemory,
    state: &ColdState,
    parts: &[(u32, Bytes)],
    deadline: Option<Duration>,
    silent: bool,
) -> Result<()> {
    let usual = match deadline {
        Some(deadline) => {
            let usual = cold.deadline()?;
            cold.set_deadline(deadline)?;
            Some(usual)
        }
        None => None,
    };
    let result = parts.iter().enumerate().try_for_each(|(at, &(node, size))| {
        resize(cold, state, node, size, silent).inspect_err(|_| {
            for &(done, _) in &parts[..at] {
                let before = state.nodes.iter().find(|found| found.node == done);
                if let Some(Err(error)) = before.map(|at| cold.resize(state, done, at.size)) {
                    stderr::line(format!("ramslice: undoing: {error}"));
                }
            }
        })
    });
    if let Some(usual) = usual {
        cold.set_deadline(usual)?;
    }
    result
}

/// Resizes one twin, with progress and so that Ctrl-C ends it.
fn resize(
    cold: &ColdMemory,
    state: &ColdState,
    node: u32,
    size: Bytes,
    silent: bool,
) -> Result<()> {
    let done = interruptible(|_| {
        thread::scope(|scope| {
            let (over, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                let progress = ProgressLine::new(silent, TICK);
                while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    let now = cold.size(node).unwrap_or(Bytes(0));
                    progress.show(|_| format!("node {node}: {now} of cold memory, {size} wanted"));
                }
                progress.clear();
            });
            let result = cold.resize(state, node, size);
            drop(over);
            Ok(result)
        })
    })?;
    done.map_err(usage)
}

/// What the machine does not have, or no machine could do, is a matter of usage.
fn usage(error: ColdError) -> anyhow::Error {
    match error {
        ColdError::Kept { .. } | ColdError::Kernel(_) => error.into(),
        _ => UsageError(error.to_string()).into(),
    }
}

fn used(found: &ColdNode) -> Bytes {
    Bytes(found.size.0.saturating_sub(found.free.0))
}

fn meaning(mode: ColdMode) -> &'static str {
    match mode {
        ColdMode::Overflow => "overflow: others get it, too, after all other memory",
        ColdMode::Strict => "strict: only what asks for it gets it, others instead of an OOM kill",
    }
}

fn table(state: &ColdState) -> TextTable {
    let mut table = TextTable::new(&[
        ("node", ColumnAlign::Right),
        ("twin", ColumnAlign::Right),
        ("cold", ColumnAlign::Right),
        ("used", ColumnAlign::Right),
        ("free", ColumnAlign::Right),
        ("may rest", ColumnAlign::Right),
        ("at most", ColumnAlign::Right),
    ]);
    for found in &state.nodes {
        table.row(vec![
            found.node.to_string(),
            found.twin.to_string(),
            found.size.to_string(),
            used(found).to_string(),
            found.free.to_string(),
            found.resting.to_string(),
            found.most.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(nodes: &[u32]) -> ColdState {
        let node = |&node| ColdNode {
            node,
            twin: node + 8,
            size: Bytes(1 << 30),
            free: Bytes(256 << 20),
            resting: Bytes(512 << 20),
            most: Bytes(3 << 30),
        };
        ColdState {
            mode: ColdMode::Overflow,
            unit: Bytes(128 << 20),
            nodes: nodes.iter().map(node).collect(),
        }
    }

    #[test]
    fn the_table_says_what_is_used() {
        let mut text = Vec::new();
        table(&state(&[0])).write(&mut text, &crate::render::OutputStyle::plain()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("   0     8  1 GiB  768 MiB  256 MiB   512 MiB    3 GiB"), "{text}");
    }
}
