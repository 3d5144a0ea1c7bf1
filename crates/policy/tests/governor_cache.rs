//! What the governor keeps in mind of cache that it dropped, and when it forgets that.

mod machine;

use std::time::Duration;

use machine::{economics, machine};
use ramslice_policy::{
    AnyPolicy, GovernorPolicy, MachineTotals, Observation, Policy, PolicyEvent, PolicyKind,
    SavedPolicy, settings,
};
use ramslice_types::{Pages, Reason, RequestOp, RequestOutcome};
use serde_json::Value;

/// A governor that expects so much cache back, which it dropped by use and regardless.
fn expecting_back(pages: f64) -> AnyPolicy {
    let (totals, rows) = machine(63, 40, 0);
    let mut governor = GovernorPolicy::new(settings::GovernorConfig::default(), economics());
    governor.step(&Observation { time: Duration::ZERO, totals, rows: &rows, events: &[] });
    let saved = AnyPolicy::Governor(Box::new(governor)).save().to_text();
    let mut saved: Value = serde_json::from_str(&saved).unwrap();
    let cache = &mut saved["state"]["mind"]["cache"];
    (cache["out"], cache["untraced"]["out"]) = (pages.into(), pages.into());
    SavedPolicy::restore(&saved.to_string(), PolicyKind::Governor).unwrap()
}

/// Pages that it expects back.
fn expected_back(policy: &AnyPolicy) -> [u64; 2] {
    let saved: Value = serde_json::from_str(&policy.save().to_text()).unwrap();
    let cache = &saved["state"]["mind"]["cache"];
    [&cache["out"], &cache["untraced"]["out"]].map(|out| out.as_f64().unwrap().round() as u64)
}

#[test]
fn what_was_dropped_before_a_reboot_is_not_expected_back() {
    let mut policy = expecting_back(1e6);
    policy.forget_dropped();
    assert_eq!(expected_back(&policy), [0, 0]);
}

#[test]
fn what_was_dropped_in_simulation_only_is_not_owed_for_real() {
    let mut policy = expecting_back(1e6);
    assert_eq!(expected_back(&policy), [1_000_000, 1_000_000]);
    policy.settle();
    assert_eq!(expected_back(&policy), [0, 0]);
}

#[test]
fn a_slice_that_is_held_costs_nothing_of_what_was_learned() {
    let (totals, rows) = machine(63, 40, 0);
    let mut governor = GovernorPolicy::new(settings::GovernorConfig::default(), economics());
    let time = Duration::from_secs(50);
    governor.step(&Observation { time, totals, rows: &rows, events: &[] });
    // Cache that came back soon is needed; and a request found no room.
    let dropped = RequestOutcome { dropped: Pages(200_000), ..RequestOutcome::default() };
    let full = RequestOutcome { reason: Reason::NoRoom, ..RequestOutcome::default() };
    let finished = |outcome| {
        let op = RequestOp::Compact;
        PolicyEvent::Finished { op, outcome, max_slices: None }
    };
    let events =
        [finished(dropped), PolicyEvent::Refaulted { pages: Pages(200_000) }, finished(full)];
    let mut step = |seconds, totals: MachineTotals, events: &[PolicyEvent]| {
        let time = Duration::from_secs(seconds);
        governor.step(&Observation { time, totals, rows: &rows, events })
    };
    let needed = step(60, totals, &events).forecast.unwrap().slices;
    assert!(needed >= 63, "{needed}");
    let held =
        MachineTotals { nr_slices: 63, managed: totals.managed - totals.slice_pages, ..totals };
    let after = step(61, held, &[]);
    assert!(after.requests.is_empty(), "{after:?}");
    assert!(after.forecast.unwrap().slices >= 62, "{after:?}");
    let policy = AnyPolicy::Governor(Box::new(governor));
    let saved: Value = serde_json::from_str(&policy.save().to_text()).unwrap();
    let mind = &saved["state"]["mind"];
    assert!(mind["cache"]["refaulted"].as_f64().unwrap() > 190_000.0, "{}", mind["cache"]);
    assert!(mind["pause"]["until"].as_f64().unwrap() > 61.0, "{}", mind["pause"]);
}
