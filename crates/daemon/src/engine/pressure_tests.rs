//! Tasks wait for memory: what wakes, how much at a time and for how long, which slices are not the
//! daemon's to wake, and failures.

use std::sync::atomic::Ordering;

use ramslice_backend::FakeMachine;
use ramslice_sim::{MemoryChange, OwnerClass, OwnerId};
use ramslice_types::{Reason, Request, RequestOp};

use super::tests::{SLICE, TestMachine, engine, engine_of, host, settings, steps};
use super::*;

#[test]
fn pressure_wakes_slices_in_mode_on_and_nothing_goes_off_for_a_while() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    let off = machine.off();
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    // One, then twice as many.
    assert_eq!(machine.off(), off - 3);
    *machine.short.lock().unwrap() = false;
    let now = steps(&mut engine, &machine, now, 3);
    assert_eq!(machine.off(), off - 3);
    assert!(engine.status(Duration::ZERO).paused_seconds.is_some());
    let text = engine.metrics.text();
    assert!(
        text.contains("ramslice_woken_slices_total{mode=\"on\",cause=\"pressure\"} 3"),
        "{text}"
    );
    steps(&mut engine, &machine, now + 60, 1);
    assert!(engine.status(Duration::ZERO).paused_seconds.is_none());
}

#[test]
fn stalls_while_enough_is_free_are_not_for_want_of_slices() {
    let machine = TestMachine::used(20.0);
    for mode in ["on", "observe"] {
        let mut engine = engine(mode, None);
        let now = steps(&mut engine, &machine, 1_000_000, 50);
        let (off, sent) = (machine.off(), machine.sent());
        engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
        assert_eq!((machine.off(), machine.sent()), (off, sent));
        assert!(engine.status(Duration::ZERO).paused_seconds.is_none());
        assert!(engine.metrics.text().contains("ramslice_pressure_stalls_total 1\n"));
        machine.run_short();
        engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
        assert!(engine.status(Duration::ZERO).paused_seconds.is_some(), "{mode}");
        *machine.short.lock().unwrap() = false;
        machine.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    }
}

#[test]
fn cache_that_would_be_gone_counts_as_free_in_mode_observe_when_tasks_wait() {
    let machine = TestMachine::used(10.0);
    let pages = 40 * SLICE.0 / 4096;
    machine.sim.apply(MemoryChange::Level {
        owner: OwnerId(2),
        class: OwnerClass::File,
        maps: 1,
        pages,
    });
    let text = "mode = \"observe\"\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = 30\n\
        budget_100cycles = \"inf\"";
    let mut engine = engine_of(settings(text), None);
    let now = steps(&mut engine, &machine, 1_000_000, 5);
    // More than what is free by itself.
    let off = machine.what_if.simulated_offline();
    assert!(off > Some(20), "{off:?}");
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    assert!(engine.status(Duration::ZERO).paused_seconds.is_none());
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    assert!(engine.status(Duration::ZERO).paused_seconds.is_some());
}

#[test]
fn a_slice_that_does_not_wake_keeps_no_other_off() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    let off = machine.off();
    assert!(off > 3, "{off}");
    machine.dead.lock().unwrap().extend(engine.offline_slices.last());
    engine.next_wake_count = 2;
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    assert_eq!(machine.off(), off - 2);
}

#[test]
fn requests_that_wake_for_want_of_memory_count_like_others() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    let text = engine.metrics.text();
    assert!(
        text.contains("ramslice_requests_total{mode=\"on\",op=\"online\",result=\"done\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("ramslice_request_duration_seconds_count{op=\"online\"} 1\n"), "{text}");
}

#[test]
fn nothing_is_kept_for_policies_that_do_not_decide() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("off", None);
    let mut now = steps(&mut engine, &machine, 1_000_000, 2);
    for _ in 0..5 {
        machine.request(&Request { max_slices: Some(2), ..Request::default() }).unwrap();
        now = steps(&mut engine, &machine, now, 1);
        machine.request(&Request::new(RequestOp::OnlineAll)).unwrap();
        now = steps(&mut engine, &machine, now, 1);
    }
    let kept =
        |memory: PersistedState| memory.zones.iter().map(|zone| zone.events.len()).sum::<usize>();
    assert!(kept(engine.persisted_state().unwrap()) <= 1);
}

#[test]
fn pressure_in_mode_observe_sends_nothing() {
    let machine = TestMachine::new(64);
    let mut engine = engine("observe", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    assert_eq!(machine.sent(), 0);
    // What mode on would wake then wakes in the copy alone.
    let off = machine.what_if.simulated_offline().unwrap();
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
    assert_eq!((machine.sent(), machine.what_if.simulated_offline()), (0, Some(off - 1)));
    *machine.short.lock().unwrap() = false;
    steps(&mut engine, &machine, now, 1);
    let text = engine.metrics.text();
    let woken = "ramslice_woken_slices_total{mode=\"observe\",cause=\"pressure\"} 1\n";
    assert!(off > 1 && text.contains(woken), "{text}");
}

#[test]
fn waking_many_slices_ends_at_the_deadline_of_all_of_them_and_when_the_daemon_is_to_stop() {
    let machine = TestMachine::used(10.0);
    let stop = Arc::new(AtomicBool::new(false));
    let text = "mode = \"on\"\npolicy = \"periodic\"\n[requests]\ndeadline_seconds = 0.1";
    let mut engine =
        DecisionEngine::new(settings(text), None, host(), Arc::default(), Arc::clone(&stop));
    let now = Duration::from_secs(steps(&mut engine, &machine, 1_000_000, 50));
    engine.next_wake_count = 32;
    let (off, sent) = (machine.off(), machine.sent());
    assert!(off > 32, "{off}");
    *machine.takes.lock().unwrap() = Duration::from_millis(60);
    machine.run_short();
    engine.pressure(Some(machine.seen_by(&engine)), now);
    // The second one begins before the deadline, the third would not.
    assert!((1..=2).contains(&(machine.sent() - sent)), "{}", machine.sent() - sent);
    stop.store(true, Ordering::Relaxed);
    let sent = machine.sent();
    engine.pressure(Some(machine.seen_by(&engine)), now);
    assert_eq!(machine.sent(), sent);
}

/// The daemon on a made-up stock machine, in mode on; the time after so many steps.
fn on_stock(
    fake: &FakeMachine,
    policy: &str,
    count: u64,
) -> (DecisionEngine, impl Backend, Duration) {
    let backend = fake.backend();
    let text = format!("mode = \"on\"\n{policy}");
    let mut engine = engine_of(settings(&text), None);
    let time = |step| Duration::from_secs(1_000_000 + step * 30);
    for step in 0..count {
        engine.step(&backend, STOCK, time(step)).unwrap();
    }
    (engine, backend, time(count))
}

#[test]
fn on_a_stock_kernel_blocks_that_another_program_took_are_not_woken_and_earn_nothing() {
    let fake = FakeMachine::new();
    fake.switch_by_hand(12, false);
    let (mut engine, backend, now) = on_stock(&fake, "policy = \"never\"", 3);
    engine.pressure(Some(&backend), now);
    assert_eq!(fake.off(), [12]);
    let ledger = engine.bound_machine.as_ref().unwrap().ledgers.earned.tally();
    assert_eq!((ledger.steps, ledger.off_high_byte_us), (2, 0));

    for policy in [
        "policy = \"periodic\"\n[periodic]\nperiod_seconds = 30",
        "policy = \"threshold\"\n[threshold]\nperiod_seconds = 30",
        "policy = \"watermarks\"\n[watermarks]\ntimeout_seconds = 30\nfree_low_mib = 640\n\
         free_high_mib = 960\n\
         cache_free_low_mib = 640\ncache_free_high_mib = 960",
    ] {
        let fake = FakeMachine::new();
        fake.switch_by_hand(12, false);
        let (mut engine, backend, now) = on_stock(&fake, policy, 8);
        assert!(fake.off().len() > 1 && fake.off().contains(&12), "{policy}: {:?}", fake.off());
        // Another program takes one more after the last step, and one of the daemon's comes back by
        // hand and goes again.
        let ours = *fake.off().last().unwrap();
        fake.switch_by_hand(ours, true);
        engine.step(&backend, STOCK, now).unwrap();
        let theirs = (1..24).find(|block| !fake.off().contains(block)).unwrap();
        fake.switch_by_hand(theirs, false);
        if !fake.off().contains(&ours) {
            fake.switch_by_hand(ours, false);
        }
        for _ in 0..8 {
            engine.pressure(Some(&backend), now);
        }
        let off = fake.off();
        assert!(off.contains(&12) && off.contains(&theirs), "{policy}: {off:?}");
        assert!(off.iter().all(|block| [12, theirs, ours].contains(block)), "{policy}: {off:?}");
    }
}

#[test]
fn watermarks_that_want_memory_leave_alone_what_another_program_took() {
    let fake = FakeMachine::new();
    for number in 8..24 {
        fake.switch_by_hand(number, false);
    }
    // 1 GiB is left, of which these want more than all.
    let marks = "policy = \"watermarks\"\n[watermarks]\ntimeout_seconds = 30\nfree_low_mib = \
        1500\nfree_high_mib = 1800\n\
                 cache_free_low_mib = 1500\ncache_free_high_mib = 1800";
    on_stock(&fake, marks, 5);
    assert_eq!(fake.off(), (8..24).collect::<Vec<_>>());
    on_stock(
        &fake,
        "policy = \"threshold\"\n[threshold]\nperiod_seconds = 30\nhigh = 0.003\nlow = 0.002",
        5,
    );
    // Of the other zone nothing is in use.
    assert!((8..24).all(|block| fake.off().contains(&block)), "{:?}", fake.off());
}

#[test]
fn slices_that_could_not_be_emptied_are_counted_by_what_they_say_not_by_what_ended_the_request() {
    let machine = TestMachine::used(20.0);
    let text = "mode = \"on\"\npolicy = \"periodic\"\n[requests]\nmax_slices = 2";
    let mut engine = engine_of(settings(text), None);
    *machine.failing.lock().unwrap() =
        vec![(SliceId(3), Reason::Pinned), (SliceId(5), Reason::Slab)];
    steps(&mut engine, &machine, 1_000_000, 60);
    assert!(machine.failing.lock().unwrap().is_empty(), "no request was sent");
    let text = engine.metrics.text();
    let failed: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("ramslice_failed_slices_total") && !line.ends_with(" 0"))
        .collect();
    let of = |reason| format!("ramslice_failed_slices_total{{reason=\"{reason}\"}} 1");
    assert!(
        failed.len() == 2 && failed.contains(&&*of("pinned")) && failed.contains(&&*of("slab")),
        "{failed:?}"
    );
}
