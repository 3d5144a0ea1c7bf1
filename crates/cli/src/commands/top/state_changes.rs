//! `ramslice watch`: slices as they change; a screen, lines of text, or lines of JSON.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use ramslice_types::{
    Backend, Census, Info, Machine, SliceId, SliceState, Snapshot, parse_duration,
};
use serde::Serialize;

use super::outcome::slices;
use super::{status, watch_screen};
use crate::context::{Context, write_json_line};
use crate::exit::Exit;
use crate::stdout;

/// How many changes a line of text lists before it only counts them.
const LISTED: usize = 8;

const HELP: &str = "\
On a terminal: a screen with totals and the map of physical memory, redrawn when a slice changes its \
state and at least every --interval; q quits. Into a file or pipe: a line per change. With --json: a \
JSON document per line, the first with the state of things, then one per change.

Examples:
  ramslice watch
  ramslice watch --interval 200ms
  ramslice watch --json | jq -c '.changes[]'";

/// Watch slices change, live.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// Redraw at least this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// End after this many lines; without a terminal or with --json
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// A slice that is in another state than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) slice: SliceId,
    pub(super) from: SliceState,
    pub(super) to: SliceState,
}

/// The states last seen.
#[derive(Default)]
pub(super) struct States(BTreeMap<SliceId, SliceState>);

impl States {
    /// What differs from the last time; nothing of slices seen for the first time.
    pub(super) fn update(&mut self, snapshot: &Snapshot) -> Vec<Change> {
        let now = snapshot.slices.iter().map(|slice| (slice.id, slice.state));
        let changes = now
            .clone()
            .filter_map(|(slice, to)| {
                let from = *self.0.get(&slice)?;
                (from != to).then_some(Change { slice, from, to })
            })
            .collect();
        self.0 = now.collect();
        changes
    }
}

#[derive(Serialize)]
struct Body {
    event_seq: u64,
    monotonic_us: u64,
    changes: Vec<Change>,
    info: Info,
    census: Census,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> Result<Exit> {
    let backend = context.backend()?;
    if context.screen.tty && !context.json() {
        watch_screen::run(backend.as_ref(), context.screen, args.interval)?;
    } else {
        lines(args, backend.as_ref(), context.json(), out)?;
    }
    Ok(Exit::Ok)
}

fn lines(args: &Args, backend: &dyn Backend, json: bool, out: &mut dyn Write) -> Result<()> {
    let (mut states, mut seen, mut printed) = (States::default(), None, 0);
    while args.count.is_none_or(|count| printed < count) {
        let machine = backend.machine()?;
        if seen == Some(machine.snapshot.event_seq) {
            backend.wait_event(args.interval)?;
            stdout::still_read()?;
        } else {
            let changes = states.update(&machine.snapshot);
            if json {
                write_json_line(out, "watch", body(machine.clone(), changes))?;
            } else {
                writeln!(out, "{}", line(&machine, &changes))?;
            }
            out.flush()?;
            printed += 1;
            seen = Some(machine.snapshot.event_seq);
        }
    }
    Ok(())
}

fn body(machine: Machine, changes: Vec<Change>) -> Body {
    Body {
        event_seq: machine.snapshot.event_seq,
        monotonic_us: u64::try_from(machine.snapshot.time.as_micros()).unwrap_or(u64::MAX),
        changes,
        census: Census::of(&machine.snapshot.slices, machine.info.slice_pages()),
        info: machine.info,
    }
}

fn line(machine: &Machine, changes: &[Change]) -> String {
    let mut text = format!("{:.3} s: ", machine.snapshot.time.as_secs_f64());
    text.push_str(&match changes {
        [] => "no state changed".to_owned(),
        some if some.len() <= LISTED => some.iter().map(describe).collect::<Vec<_>>().join(", "),
        many => format!("{} changed", slices(many.len() as u32)),
    });
    format!("{text}; {}", status::totals(machine))
}

/// `slice 7 online -> offline`.
pub(super) fn describe(change: &Change) -> String {
    format!("slice {} {} -> {}", change.slice, change.from, change.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(json: &str) -> Snapshot {
        let slices = json
            .split(',')
            .enumerate()
            .map(|(at, state)| {
                format!(
                    r#"{{"id":{at},"state":"{state}","reason":"none","unreclaimable":false,"backoff":false,
                    "unmovable":false,"node":0,"zone":1,"present_pages":0,"price_100cycles":0,"retry_ms":0,
                    "counters":{}}}"#,
                    serde_json::to_string(&ramslice_types::Counters::default()).unwrap()
                )
            })
            .collect::<Vec<_>>();
        serde_json::from_str(&format!(
            r#"{{"event_seq":1,"monotonic_us":1,"slices":[{}]}}"#,
            slices.join(",")
        ))
        .unwrap()
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let mut states = States::default();
        assert_eq!(states.update(&snapshot("online,offline")), []);
        let changes = states.update(&snapshot("offline,offline,online"));
        assert_eq!(changes.iter().map(describe).collect::<Vec<_>>(), ["slice 0 online -> offline"]);
    }
}
