//! What the governor keeps in mind of cache that it dropped, and when it forgets that.

mod machine;

use std::time::Duration;

use machine::{economics, machine};
use ramslice_policy::{
    AnyPolicy, GovernorPolicy, Observation, Policy, PolicyKind, SavedPolicy, settings,
};
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
fn expected_back(policy: &AnyPolicy) -> [f64; 2] {
    let saved: Value = serde_json::from_str(&policy.save().to_text()).unwrap();
    let cache = &saved["state"]["mind"]["cache"];
    [&cache["out"], &cache["untraced"]["out"]].map(|out| out.as_f64().unwrap())
}

#[test]
fn what_was_dropped_before_a_reboot_is_not_expected_back() {
    let mut policy = expecting_back(1e6);
    policy.forget_dropped();
    assert_eq!(expected_back(&policy), [0.0, 0.0]);
}

#[test]
fn what_was_dropped_in_simulation_only_is_not_owed_for_real() {
    let mut policy = expecting_back(1e6);
    assert_eq!(expected_back(&policy), [1e6, 1e6]);
    policy.settle();
    assert_eq!(expected_back(&policy), [0.0, 0.0]);
}
