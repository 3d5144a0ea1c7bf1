//! Giving memory to the host: what is reported without joules, and what a tenant's limits do.

use std::fs;

use super::tests::{engine_of, host, step, steps};
use super::*;
use crate::engine::test_machine::TestMachine;

fn settings(mode: &str, profile: &str, limits: &str) -> DaemonSettings {
    let text = format!(
        "schema_version = 1\nmode = \"{mode}\"\n[energy]\nprofile = \"{profile}\"\n\
         [limits]\n{limits}\n"
    );
    DaemonSettings::parse(&text, "test.toml").unwrap()
}

/// Of 64 slices of 64 MiB, of which programs use 20, with the driver that reports to a host.
fn guest() -> TestMachine {
    let machine = TestMachine::used(20.0);
    *machine.driver.lock().unwrap() = Some("report");
    machine
}

#[test]
fn observe_says_what_it_would_have_given_back_and_at_what_cost() {
    let machine = guest();
    let mut engine = engine_of(settings("observe", "giveback", ""), None);
    steps(&mut engine, &machine, 1_000_000, 240);
    assert_eq!((machine.sent(), machine.off()), (0, 0));
    let status = engine.status(Duration::ZERO);
    let would = status.would_give_back.unwrap();
    let off = f64::from(status.would_earn.as_ref().unwrap().nr_offline);
    // All that went off within the first minutes, for two hours.
    let hours = would.seconds / 3600.0;
    assert!(off > 30.0 && hours > 1.9, "{off} slices, {hours} h");
    let most = off / 16.0 * hours;
    assert!(would.gib_hours > 0.9 * most && would.gib_hours <= most, "{would:?}, {most}");
    let (value, cost) = (would.value.unwrap(), would.cost.unwrap());
    let middle = f64::midpoint(value.low, value.high);
    assert!((middle - would.gib_hours).abs() < 1e-9 && cost.low > 0.0, "{would:?}");
    assert!(cost.high < 0.1 * value.low && would.most_at_risk.unwrap() > 0.0, "{would:?}");
    assert_eq!(would.unit.as_deref(), Some("GiB h"));
    assert!(
        would.sentence.starts_with("would have given back 2.") && would.sentence.ends_with("GiB h"),
        "{}",
        would.sentence
    );
    // It is no matter of joules.
    assert!(status.earned.is_none() && status.given_back.is_none());
    assert!(status.would_earn.unwrap().earned.is_none() && status.loss_cap_joules.is_none());
}

#[test]
fn on_says_what_was_given_back_only_with_the_driver_that_reports() {
    for (driver, reports) in [("report", true), ("none", false)] {
        let machine = guest();
        *machine.driver.lock().unwrap() = Some(driver);
        let mut engine = engine_of(settings("on", "giveback", ""), None);
        steps(&mut engine, &machine, 1_000_000, 60);
        assert!(machine.off() > 30);
        let status = engine.status(Duration::ZERO);
        assert_eq!(status.given_back.is_some(), reports, "{driver}");
        let told = status.notes.iter().any(|note| note.contains("modprobe ramslice_report"));
        assert_eq!(told, !reports, "{:?}", status.notes);
        if let Some(given) = status.given_back {
            assert!(given.sentence.starts_with("gave back"), "{}", given.sentence);
        }
    }
}

#[test]
fn joules_of_a_machine_that_reports_to_a_host_are_marked() {
    let machine = guest();
    let mut engine = engine_of(settings("observe", "thesis-parc", ""), None);
    steps(&mut engine, &machine, 1_000_000, 1);
    let notes = engine.status(Duration::ZERO).notes;
    assert!(notes.iter().any(|note| note.contains("set energy.profile to \"giveback\"")));
    assert!(notes.iter().any(|note| note.contains("a made-up LPDDR5 machine")), "{notes:?}");
}

#[test]
fn without_a_profile_the_limits_decide_and_costs_are_what_was_done() {
    let machine = guest();
    // 32 of 64 slices.
    let limits = "floor_mib = 2048\nburst_reserve_mib = 128";
    let mut engine = engine_of(settings("observe", "none", limits), None);
    steps(&mut engine, &machine, 1_000_000, 240);
    let status = engine.status(Duration::ZERO);
    let off = status.would_earn.as_ref().unwrap().nr_offline;
    assert!((24..=32).contains(&off), "{off} slices");
    let would = status.would_give_back.unwrap();
    assert!(would.value.is_none() && would.most_at_risk.is_none(), "{would:?}");
    assert!(would.sentence.contains("s of a CPU"), "{}", would.sentence);
    assert_eq!(status.profile, "none");
}

#[test]
fn a_stall_above_the_target_ends_the_emptying_and_the_pressure_file_says_so() {
    let machine = guest();
    let file = tempfile::NamedTempFile::new().unwrap();
    let waited = |ms: u64| {
        let line = |what, us| format!("{what} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
        fs::write(file.path(), line("some", ms * 1000) + &line("full", 0)).unwrap();
    };
    waited(5000);
    let mut engine = DecisionEngine::new(
        settings("on", "giveback", ""),
        None,
        HostFiles { pressure: Some(file.path().into()), ..host() },
        Arc::default(),
        Arc::default(),
    );
    // 31 ms of 30 s are more than 1 ms of each second; 29 ms are not.
    for (look, ms, stops) in [(0, 5000, false), (1, 5031, true), (3, 5060, false)] {
        waited(ms);
        let sent = machine.sent();
        step(&mut engine, &machine, Duration::from_secs(1_000_000 + 30 * look)).unwrap();
        let why = engine.status(Duration::ZERO).why;
        assert_eq!(why.contains("the target is 1 ms"), stops, "{why}");
        assert_eq!(machine.sent() == sent, stops, "{why}");
    }
    assert!(engine.status(Duration::ZERO).notes.is_empty());
}

#[test]
fn a_compaction_waits_while_processors_work() {
    let machine = guest();
    let file = tempfile::NamedTempFile::new().unwrap();
    let worked = |busy: u64, idle: u64| {
        fs::write(file.path(), format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n")).unwrap();
    };
    let text = "schema_version = 1\nmode = \"on\"\npolicy = \"periodic\"\n[periodic]\n\
        budget_100cycles = \"inf\"\nwait_while_busy_seconds = 600\n";
    let mut engine = DecisionEngine::new(
        DaemonSettings::parse(text, "test.toml").unwrap(),
        None,
        HostFiles { processors: Some(file.path().into()), ..host() },
        Arc::default(),
        Arc::default(),
    );
    worked(0, 0);
    step(&mut engine, &machine, Duration::from_secs(1_000_000)).unwrap();
    for (look, busy, idle, waits) in [(1, 60, 40, true), (2, 80, 120, false)] {
        worked(busy, idle);
        let sent = machine.sent();
        step(&mut engine, &machine, Duration::from_secs(1_000_000 + 30 * look)).unwrap();
        assert_eq!(machine.sent() == sent, waits, "{}", engine.status(Duration::ZERO).why);
    }
}

#[test]
fn a_kernel_that_says_nothing_of_stalls_is_noted() {
    let machine = guest();
    let mut engine = engine_of(settings("observe", "giveback", ""), None);
    steps(&mut engine, &machine, 1_000_000, 2);
    let notes = engine.status(Duration::ZERO).notes;
    assert!(notes.iter().any(|note| note.contains("psi=1")), "{notes:?}");
}

#[test]
fn other_limits_hold_at_once_and_nothing_is_learned_again() {
    let machine = guest();
    let mut engine = engine_of(settings("on", "giveback", "floor_mib = 3072"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 60);
    assert!((14..=16).contains(&machine.off()), "{}", machine.off());
    let before = engine.persisted_state().unwrap();
    engine.set_settings(settings("on", "giveback", ""));
    let after = engine.persisted_state().unwrap();
    assert_eq!((before.basis, before.zones.len()), (after.basis, after.zones.len()));
    let now = steps(&mut engine, &machine, now, 60);
    assert!(machine.off() > 30, "{}", machine.off());
    // A state that was saved under other limits does not bring them back.
    let saved = engine.persisted_state();
    let mut restored = engine_of(settings("on", "giveback", "floor_mib = 4096"), saved);
    let off = machine.off();
    machine.use_slices(10.0);
    steps(&mut restored, &machine, now, 20);
    assert_eq!(machine.off(), off);
}
