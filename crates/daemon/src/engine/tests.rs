//! Steps on the simulated machine: what is done in which mode, what is remembered, what errors do.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use ramslice_sim::{SimConfig, ZoneConfig};
use ramslice_types::{NodeId, Pages, Request, RequestOp, SplitMix64};

pub(super) use super::test_machine::{SLICE, TestMachine};
use super::*;
use crate::mode::DaemonMode;

pub(super) fn settings(more: &str) -> DaemonSettings {
    with_energy(more, "granularity = \"slice\"")
}

pub(super) fn with_energy(more: &str, energy: &str) -> DaemonSettings {
    let text = format!("schema_version = 1\n{more}\n[energy]\n{energy}\ntime_factor = \"1\"\n");
    DaemonSettings::parse(&text, "test.toml").unwrap()
}

pub(super) fn host() -> HostFiles {
    HostFiles {
        boot: "boot".to_owned(),
        vmstat: None,
        sysfs: None,
        pressure: None,
        processors: None,
        own_time: None,
        suspended: None,
    }
}

pub(super) fn engine(mode: &str, saved: Option<PersistedState>) -> DecisionEngine {
    engine_of(settings(&format!("mode = \"{mode}\"")), saved)
}

pub(super) fn engine_of(settings: DaemonSettings, saved: Option<PersistedState>) -> DecisionEngine {
    DecisionEngine::new(settings, saved, host(), Arc::default(), Arc::default())
}

/// One step, as the main loop has it done.
pub(super) fn step(
    engine: &mut DecisionEngine,
    machine: &TestMachine,
    now: Duration,
) -> Result<(), BackendError> {
    let backend = machine.seen_by(engine);
    match engine.settings.mode {
        DaemonMode::Off => engine.watch(backend, "simulated", now),
        DaemonMode::On | DaemonMode::Observe => engine.step(backend, "simulated", now),
    }
}

/// So many steps of 30 s from `now` on; returns the time after them.
pub(super) fn steps(
    engine: &mut DecisionEngine,
    machine: &TestMachine,
    now: u64,
    count: u64,
) -> u64 {
    for step in 0..count {
        self::step(engine, machine, Duration::from_secs(now + step * 30)).unwrap();
        machine.sim.advance(Duration::from_secs(30));
    }
    now + count * 30
}

#[test]
fn observe_sends_nothing_and_says_what_it_would_have_earned() {
    let machine = TestMachine::used(20.0);
    let before = machine.sim.snapshot().unwrap().slices;
    let mut engine = engine("observe", None);
    steps(&mut engine, &machine, 1_000_000, 240);
    assert_eq!((machine.sent(), machine.off()), (0, 0));
    assert_eq!(machine.sim.snapshot().unwrap().slices, before);
    let status = engine.status(Duration::ZERO);
    let would = status.would_earn.unwrap();
    assert!(would.nr_offline > 20, "{would:?}");
    let earned = would.earned.unwrap();
    assert!(
        earned.net.low > 0.0 && earned.net.low <= earned.net.high && status.earned.is_none(),
        "{earned:?}"
    );
    let cap = would.most_at_risk_joules.unwrap();
    assert!(cap > 0.0 && earned.seconds > 7000.0);
}

#[test]
fn the_daemons_own_time_is_invested_and_no_fault_of_the_governor() {
    thread_local! { static TIME: std::cell::Cell<u64> = const { std::cell::Cell::new(0) } }
    /// A second of CPU time between two looks.
    fn own_time() -> Duration {
        TIME.set(TIME.get() + 1);
        Duration::from_secs(TIME.get())
    }
    let run = |own_time| {
        let settings_of = |mode| {
            let energy = "profile = \"thesis-parc\"\ngranularity = \"slice\"";
            let text = format!("schema_version = 1\nmode = \"{mode}\"\n[energy]\n{energy}\n");
            DaemonSettings::parse(&text, "test.toml").unwrap()
        };
        let settings = settings_of("observe");
        let machine = TestMachine::used(20.0);
        let mut engine = DecisionEngine::new(
            settings,
            None,
            HostFiles { own_time, ..host() },
            Arc::default(),
            Arc::default(),
        );
        steps(&mut engine, &machine, 1_000_000, 100);
        // What is taken in one mode is not of the other's books.
        engine.set_settings(settings_of("on"));
        steps(&mut engine, &machine, 1_003_000, 1);
        let memory = engine.persisted_state().unwrap();
        let measured = memory.would_earn.work.price_measured;
        (engine.bound_machine.unwrap().info, [memory.would_earn_own, memory.earned_own], measured)
    };
    let (info, own, measured) = run(Some(own_time));
    let (_, none, before) = run(None);
    let second = Price((info.clock().unwrap().0 / 100.0) as u64);
    assert_eq!((none, own), ([Price::ZERO; 2], [second * 100, second]));
    // The last second is for the next sample.
    assert_eq!(measured - before, second * 99);
}

#[test]
fn the_most_that_the_governor_can_lose_is_told_in_every_mode_in_which_it_decides() {
    for mode in ["observe", "on"] {
        let machine = TestMachine::used(20.0);
        let mut engine = engine(mode, None);
        let forecast_of = |engine: &DecisionEngine| {
            let status = engine.status(Duration::ZERO);
            let text = engine.metrics.text();
            let name = format!("ramslice_loss_cap_joules{{mode=\"{mode}\"}} ");
            let metric =
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok());
            assert_eq!(metric, status.loss_cap_joules);
            (status.loss_cap_joules, status.would_earn.and_then(|would| would.most_at_risk_joules))
        };
        let now = steps(&mut engine, &machine, 1_000_000, 2);
        let (first, _) = forecast_of(&engine);
        let now = steps(&mut engine, &machine, now, 238);
        let (later, at_risk) = forecast_of(&engine);
        assert!(later > first && first > Some(0.0), "{mode}: {first:?}, {later:?}");
        assert!(at_risk.is_none_or(|joules| Some(joules) == later));
        // Who promises nothing has no cap, nor one of the governor's time.
        let text = format!("mode = \"{mode}\"\npolicy = \"periodic\"");
        engine.set_settings(settings(&text));
        steps(&mut engine, &machine, now, 1);
        assert_eq!(forecast_of(&engine), (None, None));
    }
}

#[test]
fn observe_predicts_what_on_earns_where_demand_is_steady() {
    let net = |mode: &str| {
        let machine = TestMachine::used(20.0);
        let mut engine = engine(mode, None);
        steps(&mut engine, &machine, 1_000_000, 240);
        let status = engine.status(Duration::ZERO);
        let earned =
            status.earned.or_else(|| status.would_earn.and_then(|would| would.earned)).unwrap();
        f64::midpoint(earned.net.low, earned.net.high)
    };
    let (would, did) = (net("observe"), net("on"));
    assert!((would / did - 1.0).abs() < 0.1, "{would} predicted, {did} earned");
}

#[test]
fn observe_says_what_would_have_woken() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("observe", None);
    let now = steps(&mut engine, &machine, 1_000_000, 100);
    assert_eq!(engine.status(Duration::ZERO).would_earn.unwrap().woken_slices, 0);
    machine.use_slices(40.0);
    steps(&mut engine, &machine, now, 1);
    let woken = engine.status(Duration::ZERO).would_earn.unwrap().woken_slices;
    assert!((15..=25).contains(&woken), "{woken}");
}

#[test]
fn on_switches_off_and_off_does_nothing() {
    let machine = TestMachine::used(20.0);
    let mut off = engine("off", None);
    steps(&mut off, &machine, 1_000_000, 100);
    assert_eq!((machine.sent(), machine.off()), (0, 0));
    let mut on = engine("on", None);
    steps(&mut on, &machine, 1_000_000, 100);
    assert!(machine.off() > 20 && machine.sent() > 0);
    machine.sim.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn repair_empties_fragmented_slices_a_few_at_a_time_and_tells_what_it_moved() {
    let run = |mode: &str| {
        let machine = TestMachine::new(64);
        // What an owner gives back it gives back everywhere.
        machine.use_slices(50.0);
        machine.use_slices(20.0);
        let text = format!("mode = \"{mode}\"\npolicy = \"repair\"\n[repair]\nmax_slices = 3");
        let mut engine = engine_of(settings(&text), None);
        let (mut moved, mut emptied) = (Pages::ZERO, 0);
        for step in 0..60 {
            steps(&mut engine, &machine, 1_000_000 + step * 30, 1);
            let status = engine.status(Duration::ZERO);
            let requests = status.zones.iter().flat_map(|zone| &zone.requests);
            let offline: Vec<_> = requests.filter(|request| request.op == "offline").collect();
            assert!(offline.len() <= 3 && offline.iter().all(|request| request.slice.is_some()));
            emptied += offline.iter().map(|request| request.slices_done).sum::<u32>();
            moved += offline.iter().map(|request| request.migrated).sum();
        }
        let metrics = engine.metrics.text();
        let counted = format!("ramslice_migrated_pages_total{{mode=\"{mode}\"}} {moved}\n");
        assert!(metrics.contains(&counted), "{counted}{metrics}");
        let shares =
            format!("ramslice_emptied_migrated_ratio_count{{mode=\"{mode}\"}} {emptied}\n");
        assert!(metrics.contains(&shares), "{shares}{metrics}");
        machine.sim.with(|machine| machine.check_books()).unwrap();
        (moved, emptied, machine.off())
    };
    let (moved, emptied, off) = run("on");
    assert!(
        moved > Pages(1000) && emptied >= 5 && off >= 30,
        "{moved} pages, {emptied} slices, {off} off"
    );
    let (moved, _, off) = run("observe");
    assert!(moved > Pages(1000) && off == 0, "{moved} pages in thought, {off} off");
}

#[test]
fn requests_of_one_decision_that_take_long_share_the_deadline() {
    let machine = TestMachine::used(50.0);
    machine.use_slices(20.0);
    *machine.takes.lock().unwrap() = Duration::from_millis(60);
    let text = "mode = \"on\"\npolicy = \"repair\"\n[repair]\nmax_slices = 20\nbudget_100cycles = \
        \"inf\"\n\
                [requests]\ndeadline_seconds = 0.1";
    let mut engine = engine_of(settings(text), None);
    steps(&mut engine, &machine, 1_000_000, 1);
    let times = machine.times.lock().unwrap().clone();
    assert!(
        times.iter().all(|time| *time < times[0] + Duration::from_millis(100)) && times.len() < 20
    );
    *machine.takes.lock().unwrap() = Duration::ZERO;
    steps(&mut engine, &machine, 1_000_030, 1);
    assert!(
        machine.sent() as usize > times.len() + 3,
        "the rest is for the next pass: {}",
        machine.sent()
    );
}

#[test]
fn requests_that_wake_slices_in_many_zones_share_a_deadline_of_their_own() {
    let mut config = SimConfig::new(SLICE * 16, SLICE);
    let zone = config.zones.remove(0);
    config.zones = (0..4).map(|node| ZoneConfig { node: NodeId(node), ..zone.clone() }).collect();
    let machine = TestMachine::of(config);
    let wants = |mib: u32| {
        let marks: String = ["", "cache_"]
            .map(|of| format!("{of}free_low_mib = {mib}\n{of}free_high_mib = {}\n", mib + 100))
            .concat();
        let text = "mode = \"on\"\npolicy = \"watermarks\"\n[requests]\ndeadline_seconds = 0.5\n\
            [watermarks]\n";
        engine_of(settings(&format!("{text}{marks}")), None)
    };
    let now = steps(&mut wants(200), &machine, 1_000_000, 60);
    *machine.until_deadline.lock().unwrap() = true;
    let sent = machine.sent() as usize;
    steps(&mut wants(700), &machine, now, 1);
    let requests = &machine.requests.lock().unwrap()[sent..];
    let zones = requests.iter().map(|request| {
        if let RequestOp::Online(id) = request.op { id.0 / 16 } else { panic!("{request:?}") }
    });
    assert_eq!(zones.collect::<Vec<_>>(), [0, 1, 2, 3]);
    let all: Duration = requests.iter().filter_map(|request| request.deadline).sum();
    assert!(all <= Duration::from_secs(1), "{all:?}");
}

#[test]
fn killed_at_random_and_restarted_it_decides_as_if_it_had_run_through() {
    let dir = tempfile::tempdir().unwrap();
    let run = |seed: Option<u64>| {
        let machine = TestMachine::new(48);
        let mut random = SplitMix64::of(seed.unwrap_or(0), 7);
        let mut engine = engine("on", None);
        let mut trace = Vec::new();
        for step in 0..400_u64 {
            machine.use_slices(12.0 + 8.0 * ((step as f64) / 40.0).sin());
            let now = Duration::from_secs(2_000_000 + step * 30);
            self::step(&mut engine, &machine, now).unwrap();
            machine.sim.advance(Duration::from_secs(30));
            trace.push((engine.status(Duration::ZERO).why, machine.off()));
            if seed.is_some() {
                crate::persisted_state::write(dir.path(), &engine.persisted_state().unwrap())
                    .unwrap();
                if random.below(10) == 0 {
                    // Killed: what is left is the file.
                    let crate::persisted_state::FoundState::Good(saved) =
                        crate::persisted_state::read(dir.path())
                    else {
                        panic!("lost")
                    };
                    engine = self::engine("on", Some(*saved));
                }
            }
        }
        let tally = engine.persisted_state().unwrap().earned;
        (trace, tally.work.emptied_slices, tally.work.woken_slices)
    };
    let through = run(None);
    assert!(through.1 > 0 && through.2 > 0, "{} emptied, {} woken", through.1, through.2);
    for seed in 1..4 {
        let differs =
            run(Some(seed)).0.into_iter().zip(&through.0).position(|(killed, not)| killed != *not);
        assert_eq!(differs, None, "seed {seed}: another decision at this step");
    }
}

#[test]
fn a_machine_that_vanishes_is_told_and_taken_up_again_with_what_was_learned() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    let off = machine.off();
    *machine.looks_fail.lock().unwrap() = Some("/dev/ramslice is gone");
    let error = step(&mut engine, &machine, Duration::from_secs(now)).unwrap_err();
    assert_eq!(error.to_string(), "/dev/ramslice is gone");
    let status = engine.status(Duration::ZERO);
    assert!(!status.machine.ok && status.why.contains("/dev/ramslice is gone"), "{status:?}");
    assert_eq!(engine.persisted_state().unwrap().zones.len(), 1);
    *machine.looks_fail.lock().unwrap() = None;
    steps(&mut engine, &machine, now + 30, 1);
    assert!(engine.status(Duration::ZERO).machine.ok && machine.off() >= off);
}

#[test]
fn requests_that_fail_are_counted_and_do_not_end_it() {
    let machine = TestMachine::used(20.0);
    *machine.requests_fail.lock().unwrap() = true;
    let mut engine = engine("on", None);
    let mut errors = 0;
    for step in 0..100 {
        steps(&mut engine, &machine, 1_000_000 + step * 30, 1);
        let status = engine.status(Duration::ZERO);
        errors += status.zones[0].requests.iter().filter(|request| request.error.is_some()).count();
    }
    assert!(errors > 0 && machine.off() == 0);
    let text = engine.metrics.text();
    let counted = format!("ramslice_backend_errors_total{{kind=\"busy\"}} {errors}\n");
    assert!(text.contains(&counted), "{counted}{text}");
}

#[test]
fn what_a_guard_woke_counts_even_if_no_two_looks_show_it() {
    let machine = TestMachine::new(64);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    engine.add_guard_wake(2, Duration::from_secs(now));
    steps(&mut engine, &machine, now, 2);
    let text = engine.metrics.text();
    assert!(
        text.contains("ramslice_woken_slices_total{mode=\"on\",cause=\"pressure\"} 2"),
        "{text}"
    );
    assert!(
        !text.contains("ramslice_woken_slices_total{mode=\"on\",cause=\"others\"} 2"),
        "{text}"
    );
}

#[test]
fn held_slices_are_not_woken_by_any_policy() {
    let marks = "timeout_seconds = 30\nfree_low_mib = 640\nfree_high_mib = 960\n\
        cache_free_low_mib = 640\n\
                 cache_free_high_mib = 960";
    for (policy, more) in [("watermarks", marks), ("threshold", "period_seconds = 30")] {
        let machine = TestMachine::used(20.0);
        let text = format!("mode = \"on\"\npolicy = \"{policy}\"\n[{policy}]\n{more}");
        let mut engine = engine_of(settings(&text), None);
        let now = steps(&mut engine, &machine, 1_000_000, 50);
        let off = |slice: &ramslice_types::Slice| {
            (slice.state == SliceState::Offline).then_some(slice.id)
        };
        let held: BTreeSet<_> =
            machine.sim.snapshot().unwrap().slices.iter().filter_map(off).collect();
        assert!(held.len() > 8, "{policy} switched off {}", held.len());
        *machine.held.lock().unwrap() = held.clone();
        machine.requests.lock().unwrap().clear();
        // So much is wanted that each policy would wake some.
        machine.use_slices(62.0 - machine.off() as f64);
        let now = steps(&mut engine, &machine, now, 20);
        engine.pressure(Some(machine.seen_by(&engine)), Duration::from_secs(now));
        let woken =
            |request: &&Request| matches!(request.op, RequestOp::Online(id) if held.contains(&id));
        assert_eq!(machine.requests.lock().unwrap().iter().find(woken), None, "{policy}");
    }
}

#[test]
fn on_a_stock_kernel_each_request_switches_off_one_slice_so_that_the_guard_need_not_wait_for_long()
{
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    for step in 0..20 {
        let (off, sent) = (machine.off(), machine.sent());
        engine.step(&*machine.real, "stock", Duration::from_secs(1_000_000 + step * 30)).unwrap();
        assert!(machine.off() - off <= (machine.sent() - sent) as usize);
        machine.sim.advance(Duration::from_secs(30));
    }
    assert!(machine.off() > 5);
}

#[test]
fn what_was_simulated_is_not_put_at_risk_when_the_mode_becomes_on() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("observe", None);
    let now = steps(&mut engine, &machine, 1_000_000, 200);
    engine.set_settings(settings("mode = \"on\""));
    assert!(machine.sent() == 0 && machine.what_if.simulated_offline() > Some(0));
    steps(&mut engine, &machine, now, 100);
    assert!(machine.off() > 20);
    let text = engine.metrics.text();
    // Slices that were off in thought have not woken.
    assert!(
        text.contains("ramslice_woken_slices_total{mode=\"on\",cause=\"others\"} 0\n"),
        "{text}"
    );
}

#[test]
fn once_the_daemon_is_to_stop_no_further_request_goes_out() {
    let machine = TestMachine::used(50.0);
    machine.use_slices(20.0);
    let stop = Arc::new(AtomicBool::new(true));
    let text = "mode = \"on\"\npolicy = \"periodic\"";
    let mut engine =
        DecisionEngine::new(settings(text), None, host(), Arc::default(), Arc::clone(&stop));
    steps(&mut engine, &machine, 1_000_000, 5);
    assert_eq!(machine.sent(), 0);
    stop.store(false, Ordering::Relaxed);
    steps(&mut engine, &machine, 1_000_150, 1);
    assert!(machine.sent() > 0);
}

#[test]
fn watermarks_that_do_not_fit_the_size_of_slices_are_told_not_panicked_about() {
    let machine = TestMachine::new(64);
    let text = "policy = \"watermarks\"\n[watermarks]\nfree_low_mib = 100.0\nfree_high_mib = 110.0";
    let mut engine = engine_of(settings(text), None);
    let error = step(&mut engine, &machine, Duration::from_secs(1)).unwrap_err().to_string();
    assert!(error.contains("test.toml:5") && error.contains("size of a slice"), "{error}");
    let text = engine.metrics.text();
    assert!(text.contains("\nramslice_up 0\n") && text.contains("kind=\"invalid\"} 1\n"), "{text}");
}

#[test]
fn settings_are_held_against_the_machine_as_soon_as_there_is_one() {
    let machine = TestMachine::new(64);
    let narrow = settings(
        "policy = \"watermarks\"\n[watermarks]\nfree_low_mib = 100.0\nfree_high_mib = 110.0",
    );
    let mut engine = engine("observe", None);
    engine.fits(&narrow).unwrap();
    steps(&mut engine, &machine, 1_000_000, 1);
    assert!(engine.metrics.text().contains("\nramslice_up 1\n"));
    let error = engine.fits(&narrow).unwrap_err();
    assert!(error.contains("test.toml:5") && error.contains("64 MiB"), "{error}");
    engine.fits(&settings("policy = \"watermarks\"\n[watermarks]\nfree_low_mib = 100.0")).unwrap();
}

#[test]
fn slices_that_another_program_switches_are_noticed() {
    let machine = TestMachine::used(20.0);
    let text = "mode = \"on\"\npolicy = \"never\"";
    let mut engine = engine_of(settings(text), None);
    let now = steps(&mut engine, &machine, 1_000_000, 2);
    let (off, sent) = (machine.off(), machine.sent());
    let request = Request { max_slices: Some(1), ..Request::new(RequestOp::Compact) };
    machine.sim.request(&request).unwrap();
    assert_eq!((machine.off(), machine.sent()), (off + 1, sent));
    steps(&mut engine, &machine, now, 1);
    let text = engine.metrics.text();
    assert!(text.contains("ramslice_switched_off_by_others_slices_total 1"), "{text}");
    machine.sim.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    steps(&mut engine, &machine, now + 30, 1);
    let text = engine.metrics.text();
    let woken =
        format!("ramslice_woken_slices_total{{mode=\"on\",cause=\"others\"}} {}\n", off + 1);
    assert!(text.contains(&woken), "{woken}{text}");
}
