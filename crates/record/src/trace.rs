//! The kernel's trace events of slices.
//!
//! Events carry the boot-time clock. `ramslice_target` is left out: it says where room was found,
//! page by page.

use std::borrow::Cow;
use std::path::Path;

use ramslice_types::SliceState;

use crate::clock::ClockReading;
use crate::schema::ColumnText;
use crate::tables::Event;
use crate::trace_instance::{TraceError, TraceInstance, TraceLine, lost_events};

/// The events that are recorded.
const EVENTS: [&str; 6] = [
    "ramslice_state",
    "ramslice_chunk",
    "ramslice_price",
    "ramslice_offline",
    "ramslice_refuse",
    "ramslice_request",
];
/// Instances are `ramslice-record-PID`.
const INSTANCE: &str = "ramslice-record-";
/// For each CPU: some ten thousand events, between two looks.
const BUFFER_KIB: u32 = 2048;

/// The kernel's events of slices.
pub(crate) struct SliceEvents {
    instance: TraceInstance,
    /// When the last event was.
    last: Option<ClockReading>,
}

impl SliceEvents {
    /// Begins to trace; fails without tracefs, without permission, or on a kernel without these
    /// events.
    pub(crate) fn start(tracefs: Option<&Path>) -> Result<Self, TraceError> {
        let events = EVENTS.map(|event| format!("ramslice/{event}"));
        let instance = TraceInstance::start(tracefs, INSTANCE, BUFFER_KIB, &events)?;
        Ok(Self { instance, last: None })
    }

    /// What happened since the last time, oldest first.
    pub(crate) fn drain(&mut self, now: &ClockReading) -> Vec<Event> {
        let mut found = Vec::new();
        self.instance.lines(|line| found.extend(parse(line, now)));
        date_losses(&mut found, &mut self.last);
        found
    }
}

/// Gives losses, which have no time of their own, that of the event after them, or of the last one
/// before: what the buffer kept may be long past, and rows are in order.
fn date_losses(events: &mut [Event], last: &mut Option<ClockReading>) {
    let is_loss = |event: &Event| event.lost_events.is_some();
    let date = |event: &mut Event, time: ClockReading| {
        (event.boottime_us, event.realtime_us) = (time.boottime_us, time.realtime);
    };
    let time = |event: &Event| ClockReading {
        boottime_us: event.boottime_us,
        realtime: event.realtime_us,
    };
    let after = events.iter().rposition(|event| !is_loss(event)).map_or(0, |at| at + 1);
    if let Some(event) = after.checked_sub(1).map(|at| &events[at]) {
        *last = Some(time(event));
    }
    let mut next = None;
    for event in events[..after].iter_mut().rev() {
        if !is_loss(event) {
            next = Some(time(event));
        } else if let Some(next) = next {
            date(event, next);
        }
    }
    if let Some(last) = *last {
        for event in &mut events[after..] {
            date(event, last);
        }
    }
}

/// A line of `trace_pipe`; `None` of one that is not ours.
fn parse(line: &str, now: &ClockReading) -> Option<Event> {
    if let Some(lost) = lost_events(line) {
        let (boottime_us, realtime_us) = (now.boottime_us, now.realtime);
        let (source, kind) = (ColumnText::from("trace"), ColumnText::from("lost"));
        return Some(Event {
            boottime_us,
            realtime_us,
            source,
            kind,
            lost_events: Some(lost),
            ..Event::default()
        });
    }
    let TraceLine { task, pid, boottime_us, name, payload } = TraceLine::of(line, &EVENTS)?;
    let event = Event {
        boottime_us,
        realtime_us: now.realtime_at(boottime_us),
        source: "trace".into(),
        pid: Some(pid),
        task: Some(task.to_owned().into()),
        ..Event::default()
    };
    payload_of(name, payload, event)
}

fn payload_of(name: &str, payload: &str, event: Event) -> Option<Event> {
    let text = |key: &str| {
        payload.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let number = |key: &str| text(key).and_then(decimal_or_hexadecimal);
    let event = Event { slice_id: number("id"), ..event };
    Some(match name {
        "ramslice_state" => {
            let (from, to) = payload.split_once(' ')?.1.split_once(" -> ")?;
            Event {
                kind: "state".into(),
                from_state: Some(word(from)),
                to_state: Some(word(to)),
                ..event
            }
        }
        "ramslice_chunk" => Event {
            kind: "wake".into(),
            by_demand: text("by_demand").map(|flag| flag == "1"),
            nr_pages: number("nr_pages"),
            pfn: number("pfn"),
            ..event
        },
        "ramslice_price" => Event {
            kind: "price".into(),
            price_100cycles: number("price"),
            // Without a limit the kernel has the largest number there is.
            budget_100cycles: number("budget").filter(|&budget| budget != i64::MAX),
            dropped_pages: number("drop"),
            movable_pages: number("move"),
            mappings: number("maps"),
            ..event
        },
        "ramslice_offline" => Event {
            kind: "offline".into(),
            // The kernel's own numbers are negative.
            error_errno: text("error").and_then(|error| error.trim_start_matches('-').parse().ok()),
            reason: text("reason").map(word),
            migrated_pages: number("migrated"),
            dropped_pages: number("dropped"),
            ..event
        },
        "ramslice_refuse" => Event {
            kind: "refuse".into(),
            reason: text("reason").map(word),
            pfn: number("pfn").filter(|&pfn| pfn != 0),
            ..event
        },
        "ramslice_request" => Event {
            kind: "request".into(),
            op: text("op").map(word),
            // One that could not begin has an error, one that ended early a status.
            error_errno: ["error", "status"]
                .into_iter()
                .filter_map(|key| text(key)?.trim_start_matches('-').parse().ok())
                .find(|&errno: &i32| errno != 0)
                .or(Some(0)),
            reason: text("reason").map(word),
            done_slices: number("done"),
            failed_slices: number("failed"),
            budget_100cycles: number("budget").filter(|&budget| budget != i64::MAX),
            price_100cycles: number("predicted"),
            measured_100cycles: number("measured"),
            migrated_pages: number("migrated"),
            dropped_pages: number("dropped"),
            elapsed_us: number("elapsed_ns").map(|ns| ns / 1000),
            ..event
        },
        _ => return None,
    })
}

/// Numbers that do not fit are the largest that does.
fn decimal_or_hexadecimal(text: &str) -> Option<i64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// States and reasons: known words need no memory of their own.
fn word(text: &str) -> ColumnText {
    SliceState::ALL
        .iter()
        .map(|state| state.name())
        .find(|name| *name == text)
        .map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{TableRow, WallTime};

    fn parsed(line: &str) -> Event {
        let now = ClockReading { boottime_us: 20_000_000, realtime: WallTime(1_000_020_000_000) };
        let event = parse(line, &now).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(event.wrong(), None, "{line}");
        event
    }

    #[test]
    fn a_change_of_state_has_its_time_and_its_thread() {
        let line = "  kworker/u4:1-H [x]-77      [001] d..2.    12.345678: ramslice_state: id=3 \
                    online -> emptying";
        let event = parsed(line);
        assert_eq!(
            (event.boottime_us, event.realtime_us),
            (12_345_678, WallTime(1_000_012_345_678))
        );
        assert_eq!((event.pid, event.task.as_deref()), (Some(77), Some("kworker/u4:1-H [x]")));
        assert_eq!(event.slice_id, Some(3));
        assert_eq!(
            (event.from_state.as_deref(), event.to_state.as_deref()),
            (Some("online"), Some("emptying"))
        );
    }

    #[test]
    fn a_wake_has_its_cause() {
        let head = "          <idle>-0       [000] d.s2.   1.000001: ramslice_chunk: id=7 \
                    pfn=0x38000 nr_pages=1024";
        let demand = parsed(&format!("{head} by_demand=1"));
        assert_eq!(
            (demand.kind.as_ref(), demand.by_demand, demand.pfn),
            ("wake", Some(true), Some(0x38000))
        );
        assert_eq!((demand.nr_pages, demand.pid), (Some(1024), Some(0)));
        assert_eq!(parsed(&format!("{head} by_demand=0")).by_demand, Some(false));
    }

    #[test]
    fn attempts_have_price_outcome_and_reason() {
        let head = "   ramslice-1234    [001] .....   5.000000: ";
        let price = parsed(&format!(
            "{head}ramslice_price: id=2 price=900 budget=18446744073709551615 drop=1 move=2 maps=3"
        ));
        assert_eq!(
            (price.price_100cycles, price.budget_100cycles, price.mappings),
            (Some(900), None, Some(3))
        );
        let outcome = parsed(&format!(
            "{head}ramslice_offline: id=2 error=-16 reason=pinned migrated=5 dropped=6"
        ));
        assert_eq!((outcome.error_errno, outcome.reason.as_deref()), (Some(16), Some("pinned")));
        assert_eq!((outcome.migrated_pages, outcome.dropped_pages), (Some(5), Some(6)));
        let refused = parsed(&format!("{head}ramslice_refuse: id=2 reason=slab pfn=0x10"));
        assert_eq!((refused.reason.as_deref(), refused.pfn), (Some("slab"), Some(16)));
    }

    #[test]
    fn a_request_has_its_parameters_and_its_outcome() {
        let request = |outcome: &str| {
            parsed(&format!(
                "   ramslice-1234    [001] .....   5.000000: ramslice_request: op=compact \
                 flags=0x10 {outcome} done=3 failed=1 budget=18446744073709551615 predicted=900 \
                 measured=800 migrated=5 dropped=6 elapsed_ns=2500000"
            ))
        };
        let ended = request("error=0 status=0 reason=no-room id=7");
        assert_eq!((ended.op.as_deref(), ended.error_errno), (Some("compact"), Some(0)));
        assert_eq!((ended.reason.as_deref(), ended.slice_id), (Some("no-room"), Some(7)));
        assert_eq!((ended.done_slices, ended.failed_slices), (Some(3), Some(1)));
        assert_eq!((ended.price_100cycles, ended.measured_100cycles), (Some(900), Some(800)));
        assert_eq!((ended.budget_100cycles, ended.elapsed_us), (None, Some(2500)));
        let early = request("error=0 status=4 reason=signal id=-1");
        assert_eq!((early.error_errno, early.slice_id), (Some(4), None));
        assert_eq!(request("error=-16 status=0 reason=none id=-1").error_errno, Some(16));
    }

    #[test]
    fn losses_have_the_time_of_the_event_after_them_or_of_the_last_one() {
        let events = |lines: &[&str], last: &mut Option<ClockReading>| {
            let mut found: Vec<Event> = lines.iter().map(|line| parsed(line)).collect();
            date_losses(&mut found, last);
            let times =
                |event: &Event| (event.boottime_us, event.realtime_us.0 - event.boottime_us);
            found.iter().map(times).collect::<Vec<_>>()
        };
        let early = "a-1 [000] d..2. 1.000000: ramslice_state: id=3 waking -> online";
        let later = "a-1 [000] d..2. 2.000000: ramslice_state: id=3 online -> emptying";
        let loss = "CPU:1 [LOST 345 EVENTS]";
        let (mut last, since) = (None, 1_000_000_000_000);
        // Alone there is nothing but the time at which it was read.
        assert_eq!(events(&[loss], &mut last), [(20_000_000, since)]);
        assert_eq!(
            events(&[loss, loss, early, loss, later, loss], &mut last),
            [1, 1, 1, 2, 2, 2].map(|second| (second * 1_000_000, since))
        );
        assert_eq!(events(&[loss], &mut last), [(2_000_000, since)]);
    }

    #[test]
    fn lost_events_are_counted_and_other_lines_left_alone() {
        assert_eq!(parsed("CPU:1 [LOST 345 EVENTS]").lost_events, Some(345));
        let now = ClockReading::now();
        for line in
            ["", "x", "a-1 [000] d..2. 1.000000: sched_switch: x", "a-1 ramslice_state: id=3"]
        {
            assert_eq!(parse(line, &now), None, "{line}");
        }
    }
}
