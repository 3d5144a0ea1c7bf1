//! Settings, figures of energy, slices or the boot change, and what becomes of what was learned.

use std::sync::atomic::{AtomicU64, Ordering};

use ramslice_sim::{MemoryChange, OwnerClass, OwnerId};
use ramslice_types::{Bytes, CacheChoice, Pages, Request, RequestOp, RequestOutcome};

use super::tests::{SLICE, TestMachine, engine, engine_of, host, settings, steps, with_energy};
use super::*;

#[test]
fn waking_everything_says_whether_something_is_still_off() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    steps(&mut engine, &machine, 1_000_000, 50);
    let off = machine.off();
    assert!(off > 0);
    *machine.requests_fail.lock().unwrap() = true;
    assert!(!engine.wake_all(&*machine.real, Duration::from_secs(1)));
    *machine.requests_fail.lock().unwrap() = false;
    assert!(engine.wake_all(&*machine.real, Duration::from_secs(1)));
    assert_eq!(machine.off(), 0);
    let text = engine.metrics.text();
    assert!(text.contains(&format!("mode=\"on\",cause=\"stop\"}} {off}\n")), "{text}");
}

#[test]
fn other_settings_of_the_policy_start_learning_again_and_the_joules_go_on() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 100);
    let before = engine.persisted_state().unwrap();
    let text = "mode = \"on\"\npolicy = \"watermarks\"";
    engine.set_settings(settings(text));
    steps(&mut engine, &machine, now, 2);
    let after = engine.persisted_state().unwrap();
    assert_ne!(before.basis, after.basis);
    assert!(
        after.earned.elapsed_us >= before.earned.elapsed_us && after.earned.off_high_byte_us > 0
    );
    assert_eq!(engine.status(Duration::ZERO).policy, "watermarks");
}

#[test]
fn metrics_show_nothing_of_an_earlier_mode_or_policy() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    let lines = |engine: &DecisionEngine, start: &str| {
        engine
            .metrics
            .text()
            .lines()
            .filter(|line| line.starts_with(start))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (joules, seconds, cap) = (
        "ramslice_energy_joules{mode=\"on\"",
        "ramslice_energy_accounted_seconds{mode=\"on\"",
        "ramslice_loss_cap",
    );
    for name in [joules, seconds, cap, "ramslice_forecast_"] {
        assert!(!lines(&engine, name).is_empty(), "{name}");
    }
    // The same once more changes nothing before the next look.
    let before = lines(&engine, "ramslice_energy");
    engine.set_settings(settings("mode = \"on\"\nperiod_seconds = 20"));
    assert_eq!(lines(&engine, "ramslice_energy"), before);

    engine.set_settings(settings("mode = \"observe\"\npolicy = \"periodic\""));
    let now = steps(&mut engine, &machine, now, 2);
    for name in [joules, seconds, cap] {
        assert_eq!(lines(&engine, name), [""; 0]);
    }
    let forecasts = |engine: &DecisionEngine| lines(engine, "ramslice_forecast_slices{");
    assert_eq!(forecasts(&engine), [""; 0]);
    engine.set_settings(settings("mode = \"observe\""));
    let now = steps(&mut engine, &machine, now, 20);
    assert!(!forecasts(&engine).is_empty());
    engine.set_settings(settings("mode = \"off\""));
    steps(&mut engine, &machine, now, 2);
    assert_eq!(forecasts(&engine), [""; 0]);
    assert_eq!(lines(&engine, "ramslice_energy_joules"), [""; 0]);
}

#[test]
fn other_figures_of_energy_are_decided_with_after_a_reload_and_after_a_restart() {
    let energy = |granularity: &str| {
        with_energy("mode = \"on\"", &format!("granularity = \"{granularity}\""))
    };
    let restarted = |settings, saved| engine_of(settings, Some(saved));
    let machine = TestMachine::used(20.0);
    // The governor rests where the hardware switches all memory as one: the kernel is in it.
    let mut engine = engine_of(energy("4GiB"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    assert_eq!(machine.off(), 0);
    let saved = engine.persisted_state().unwrap();
    engine.set_settings(energy("slice"));
    steps(&mut engine, &machine, now, 50);
    assert!(machine.off() > 0, "after a reload");

    let machine = TestMachine::used(20.0);
    let mut same = restarted(energy("4GiB"), saved.clone());
    steps(&mut same, &machine, now, 50);
    assert_eq!(machine.off(), 0);
    let mut other = restarted(energy("slice"), saved);
    steps(&mut other, &machine, now, 50);
    assert!(machine.off() > 0, "after a restart");
}

#[test]
fn what_was_simulated_is_forgotten_after_a_reboot_and_with_other_settings_or_slices() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("observe", None);
    steps(&mut engine, &machine, 1_000_000, 100);
    let what_if = machine.what_if.memory();
    assert!(what_if.nr_offline() > 0);
    let saved = PersistedState { what_if: what_if.clone(), ..engine.persisted_state().unwrap() };
    let again = |host, more: &str, machine: &TestMachine| {
        let settings = settings(&format!("mode = \"observe\"{more}"));
        let mut engine = engine_of(settings, Some(saved.clone()));
        engine.host = host;
        engine.saved_what_if(&machine.info().unwrap())
    };
    assert_eq!(again(host(), "", &machine), Some(what_if));
    let rebooted = HostFiles { boot: "another".to_owned(), ..host() };
    assert_eq!(again(rebooted, "", &machine), None);
    assert_eq!(again(host(), "\npolicy = \"periodic\"", &machine), None);
    assert_eq!(again(host(), "", &TestMachine::with(32, SLICE * 2)), None);
}

#[test]
fn a_power_driver_and_prices_that_come_later_are_told_and_taken() {
    let machine = TestMachine::used(20.0);
    *machine.driver.lock().unwrap() = Some("none");
    let mut engine = engine("on", None);
    let now = steps(&mut engine, &machine, 1_000_000, 20);
    let driver = |engine: &DecisionEngine| engine.status(Duration::ZERO).machine.power_driver;
    assert_eq!(driver(&engine).as_deref(), Some("none"));
    let (parameter, before) =
        (PriceParameter::MigrateMapping, engine.persisted_state().unwrap().earned.steps);
    let price = Price(machine.price_parameter(parameter).unwrap().0 + 7);

    *machine.driver.lock().unwrap() = Some("vendor");
    machine.set_price_parameter(parameter, price).unwrap();
    steps(&mut engine, &machine, now, 1);
    assert_eq!(driver(&engine).as_deref(), Some("vendor"));
    assert_eq!(engine.bound_machine.as_ref().unwrap().prices[&parameter], price);
    // Slices that no driver switched do not count with those that this one does.
    assert!(before > 0 && engine.persisted_state().unwrap().earned.steps < before);
    let now = steps(&mut engine, &machine, now + 30, 5);
    let counted = engine.persisted_state().unwrap().earned.steps;

    *machine.driver.lock().unwrap() = Some("another");
    steps(&mut engine, &machine, now, 1);
    assert!(counted > 0 && engine.persisted_state().unwrap().earned.steps > counted);
}

#[test]
fn without_a_power_driver_nothing_is_saved_and_status_and_metrics_say_so() {
    let machine = TestMachine::used(20.0);
    let joules = |mode: &str, driver: &'static str| {
        *machine.driver.lock().unwrap() = Some(driver);
        let mut engine = engine(mode, None);
        steps(&mut engine, &machine, 1_000_000, 50);
        machine.request(&Request::new(RequestOp::OnlineAll)).unwrap();
        let metric = format!("ramslice_power_driver{{driver=\"{driver}\"}} 1\n");
        assert!(engine.metrics.text().contains(&metric), "{}", engine.metrics.text());
        engine.status(Duration::ZERO)
    };
    let with = joules("on", "vendor").earned.unwrap();
    assert!(with.saved.high > 0.0);
    let without = joules("on", "none");
    let earned = without.earned.unwrap();
    assert_eq!((earned.saved.low, earned.saved.high), (0.0, 0.0));
    assert!(earned.net.high <= 0.0 && earned.net.low <= earned.net.high, "{earned:?}");
    assert!(
        without.notes.iter().any(|note| note.contains("no power driver")),
        "{:?}",
        without.notes
    );
    // What would be earned is reported as if there were one.
    assert!(joules("observe", "none").would_earn.unwrap().earned.unwrap().saved.high > 0.0);
}

#[test]
fn before_anything_is_packed_the_verdict_speaks_of_looking_alone() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("observe", None);
    let mut now = 1_000_000;
    for _ in 0..200 {
        now = steps(&mut engine, &machine, now, 1);
        let tally = engine.bound_machine.as_ref().unwrap().ledgers.of(engine.settings.mode);
        let tally = tally.unwrap().tally();
        let Some(earned) = engine.status(Duration::ZERO).would_earn.unwrap().earned else {
            continue;
        };
        let packed = tally.off_high_byte_us > 0 || tally.tried_bytes > 0;
        assert_eq!(earned.verdict.starts_with("Nothing was packed so far"), !packed);
        if packed {
            assert!(now > 1_000_000);
            return;
        }
    }
    panic!("nothing was ever packed");
}

#[test]
fn what_would_be_earned_is_the_same_when_a_power_driver_comes() {
    let machine = TestMachine::used(20.0);
    *machine.driver.lock().unwrap() = Some("none");
    let mut engine = engine("observe", None);
    let now = steps(&mut engine, &machine, 1_000_000, 20);
    let before = engine.persisted_state().unwrap().would_earn.steps;
    *machine.driver.lock().unwrap() = Some("vendor");
    // The first look at new books is where they begin
    steps(&mut engine, &machine, now, 2);
    let after = engine.persisted_state().unwrap().would_earn.steps;
    assert!(before > 0 && after > before, "{before} {after}");
}

/// Time and work of the books of mode on.
fn ledger(engine: &DecisionEngine) -> (Duration, u64) {
    let earned = engine.persisted_state().unwrap().earned;
    (earned.elapsed(), earned.work.tried_slices)
}

#[test]
fn joules_go_on_after_a_restart_unless_the_sums_are_of_another_kind_or_of_none_that_is_known() {
    let machine = TestMachine::used(20.0);
    let mut first = engine("on", None);
    let now = steps(&mut first, &machine, 1_000_000, 50);
    let saved = PersistedState { would_wake: 3, ..first.persisted_state().unwrap() };
    let kind = saved.ledger_kind.clone().unwrap();
    assert!(
        kind.profile.contains('/') && kind.granule_bytes == Some(SLICE) && !kind.stock,
        "{kind}"
    );
    let again = |of: Option<LedgerKind>| {
        let mut engine = engine("on", Some(PersistedState { ledger_kind: of, ..saved.clone() }));
        let look = MachineSnapshot::take(&*machine.real).unwrap();
        engine.time = Duration::from_secs(now);
        engine.bind(&*machine.real, &look).unwrap();
        assert_eq!(engine.persisted_state().unwrap().ledger_kind.as_ref(), Some(&kind));
        (ledger(&engine), engine.would_wake)
    };
    let none = ((Duration::ZERO, 0), 0);
    assert_eq!(again(Some(kind.clone())), (ledger(&first), 3));
    assert_eq!(again(None), none, "a file of before");
    for other in [
        LedgerKind { profile: "another/state".to_owned(), ..kind.clone() },
        LedgerKind { crc32: "00000000".to_owned(), ..kind.clone() },
        LedgerKind { granule_bytes: None, ..kind.clone() },
        LedgerKind { page_bytes: Bytes(16 << 10), ..kind.clone() },
        LedgerKind { stock: true, ..kind.clone() },
    ] {
        assert_eq!(again(Some(other.clone())), none, "{other}");
    }
}

fn cap(engine: &DecisionEngine) -> f64 {
    engine.status(Duration::ZERO).loss_cap_joules.unwrap()
}

#[test]
fn what_the_governor_can_lose_counts_the_windows_that_open_after_a_restart_or_a_suspension() {
    let machine = TestMachine::used(20.0);
    let mut engine = engine("on", None);
    let mut now = steps(&mut engine, &machine, 1_000_000, 2);
    let stake = cap(&engine);
    // In thousandths, because joules are no whole numbers.
    let stakes = |engine: &DecisionEngine| (cap(engine) / stake * 1e3).round() as u32;
    for restarts in 1..4 {
        // Half a day without the daemon, of which the ledger has nothing.
        let saved = engine.persisted_state().unwrap();
        engine = self::engine("on", Some(saved));
        now = steps(&mut engine, &machine, now + 43_200, 2);
        assert_eq!(stakes(&engine), 1000 * (1 + restarts));
    }
    assert!(ledger(&engine).0 < Duration::from_mins(10));
    // The same while the machine sleeps.
    steps(&mut engine, &machine, now + 43_200, 2);
    assert_eq!(stakes(&engine), 5000);
    // A state of before windows were counted has as many as fit into the time of its ledger.
    let old = PersistedState { earned_windows: None, ..engine.persisted_state().unwrap() };
    let mut engine = self::engine("on", Some(old));
    steps(&mut engine, &machine, now + 43_260, 1);
    assert_eq!(stakes(&engine), 1000);
}

#[test]
fn what_slices_save_while_the_machine_sleeps_or_no_daemon_runs_is_not_put_at_risk() {
    fn suspended() -> Duration {
        Duration::from_secs(SUSPENDED.load(Ordering::Relaxed))
    }
    static SUSPENDED: AtomicU64 = AtomicU64::new(0);
    let saved_by = |engine: &DecisionEngine| {
        let state = engine.persisted_state().unwrap();
        let policy: serde_json::Value =
            serde_json::from_str(&state.zones[0].policy.to_text()).unwrap();
        policy["state"]["mind"]["wallet"]["saved"].as_f64().unwrap()
    };
    let engine_with = |saved| {
        let host = HostFiles { suspended: Some(suspended), ..host() };
        let settings = settings("mode = \"on\"");
        DecisionEngine::new(settings, saved, host, Arc::default(), Arc::default())
    };
    let machine = TestMachine::used(20.0);
    let mut engine = engine_with(None);
    let now = steps(&mut engine, &machine, 1_000_000, 100);
    assert!(machine.off() > 20);
    let before = saved_by(&engine);
    SUSPENDED.store(43_200, Ordering::Relaxed);
    let now = steps(&mut engine, &machine, now + 43_200, 1);
    let slept = saved_by(&engine) - before;
    // Half a minute of some forty slices, and not half a day.
    assert!(slept > 0.0 && slept < before / 10.0, "{slept} {before}");
    let mut engine = engine_with(engine.persisted_state());
    steps(&mut engine, &machine, now + 43_200, 1);
    assert!(saved_by(&engine) - before - slept < slept, "{}", saved_by(&engine));
}

#[test]
fn another_unit_of_the_hardware_opens_new_books_at_a_reload_though_what_was_learned_still_fits() {
    let unit = |size: &str| with_energy("mode = \"on\"", &format!("granularity = \"{size}\""));
    let machine = TestMachine::used(20.0);
    let mut engine = engine_of(unit("slice"), None);
    steps(&mut engine, &machine, 1_000_000, 50);
    let (before, basis) = (ledger(&engine), engine.persisted_state().unwrap().basis);
    assert!(before.0 > Duration::ZERO && before.1 > 0);
    // The same in other words.
    engine.set_settings(unit("64MiB"));
    assert_eq!(ledger(&engine), before);
    engine.set_settings(unit("32MiB"));
    assert_eq!(
        (ledger(&engine), engine.persisted_state().unwrap().basis),
        ((Duration::ZERO, 0), basis)
    );
    assert_eq!(engine.zone_states.len(), 1);
}

#[test]
fn figures_of_a_profile_are_of_another_kind_if_they_change_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.toml");
    let info = TestMachine::new(64).info().unwrap();
    let kind = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let energy = format!("profile = \"{}\"\nmachine = \"thesis-parc\"", path.display());
        with_energy("", &energy).worth.kind(&info)
    };
    let text = ramslice_energy::builtin_text("thesis-parc").unwrap();
    let (before, after) = (kind(text), kind(&format!("{text}\n# Corrected.\n")));
    assert_eq!(before, kind(text));
    assert!(before.profile == after.profile && before != after, "{before}, {after}");
}

#[test]
fn page_faults_are_the_cost_of_accounts_only_where_the_kernel_keeps_any() {
    let faults = |backend: &dyn Backend, kind| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut engine = engine("observe", None);
        engine.host.vmstat = Some(file.path().into());
        for look in 1..4 {
            std::fs::write(
                file.path(),
                format!("pgalloc_normal {}\npgfault {}\n", 500 * look, 300 * look),
            )
            .unwrap();
            engine.step(backend, kind, Duration::from_secs(1_000_000 + look * 30)).unwrap();
        }
        let work = engine.persisted_state().unwrap().would_earn.work;
        (work.page_faults, work.allocated_pages.0)
    };
    assert_eq!(faults(&ramslice_backend::FakeMachine::new().backend(), STOCK), (0, 0));
    // Those before the first step do not count.
    let (faults, pages) = faults(&*TestMachine::used(20.0).real, "kernel");
    assert_eq!((faults, pages), (600, 1000));
}

#[test]
fn cache_that_was_dropped_before_a_reboot_is_not_expected_back() {
    let machine = TestMachine::used(20.0);
    let mut first = engine("on", None);
    let now = steps(&mut first, &machine, 1_000_000, 50);
    let mut saved = first.persisted_state().unwrap();
    let zone = &mut saved.zones[0];
    let mut policy = serde_json::to_value(&zone.policy).unwrap();
    policy["state"]["mind"]["cache"]["untraced"]["out"] = 1e6.into();
    zone.policy = serde_json::from_value(policy).unwrap();
    zone.dropped = Pages(1 << 20);
    let outcome = RequestOutcome { dropped: Pages(1 << 20), ..RequestOutcome::default() };
    let op = RequestOp::Compact;
    zone.events.push(PolicyEvent::Finished { op, outcome, max_slices: None });
    let expected = |host| {
        let mut engine = engine("on", Some(saved.clone()));
        engine.host = host;
        let look = MachineSnapshot::take(&*machine.real).unwrap();
        engine.time = Duration::from_secs(now);
        engine.bind(&*machine.real, &look).unwrap();
        let zone = engine.persisted_state().unwrap().zones.remove(0);
        let policy = serde_json::to_value(&zone.policy).unwrap();
        let out = policy["state"]["mind"]["cache"]["untraced"]["out"].as_f64().unwrap();
        let dropped: Pages = zone
            .events
            .iter()
            .map(|event| match event {
                PolicyEvent::Finished { outcome, .. } => outcome.dropped,
                _ => Pages::ZERO,
            })
            .sum();
        (out > 0.0, zone.dropped > Pages::ZERO, dropped > Pages::ZERO)
    };
    assert_eq!(expected(host()), (true, true, true));
    let rebooted = HostFiles { boot: "another".to_owned(), ..host() };
    assert_eq!(expected(rebooted), (false, false, false));
}

#[test]
fn refaults_are_ours_only_of_cache_that_left_a_trace_and_not_for_ever() {
    let refaulted = |cache, later: u64| {
        let machine = TestMachine::used(20.0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut engine = engine_of(settings("mode = \"on\"\npolicy = \"never\""), None);
        engine.host.vmstat = Some(file.path().into());
        let look = |engine: &mut DecisionEngine, now, pages: u64| {
            std::fs::write(file.path(), format!("workingset_refault_file {pages}\n")).unwrap();
            engine.time = Duration::from_secs(now);
            let look = MachineSnapshot::take(&*machine.real).unwrap();
            engine.bind(&*machine.real, &look).unwrap();
            engine.count_host(&look);
            look
        };
        let seen = look(&mut engine, 1000, 0);
        machine.sim.apply(MemoryChange::Level {
            owner: OwnerId(2),
            class: OwnerClass::File,
            maps: 0,
            pages: 100_000,
        });
        let key = ZoneKey::of(&seen.zones[0]);
        let request = Request { cache, ..Request::new(RequestOp::Compact) };
        let status = engine.carry_out(&*machine.real, &seen, key, request);
        assert!(status.dropped > Pages::ZERO, "{status:?}");
        engine.zone_states.get_mut(&key).unwrap().events.clear();
        look(&mut engine, 1000 + later, 1 << 20);
        let events = &engine.zone_states[&key].events;
        let ours = events.iter().find_map(|event| match event {
            PolicyEvent::Refaulted { pages } => Some(pages.0 as f64),
            _ => None,
        });
        ours.unwrap_or(0.0) / status.dropped.0 as f64
    };
    assert!((refaulted(CacheChoice::Auto, 0) - 1.0).abs() < 1e-9);
    assert!(refaulted(CacheChoice::Drop, 0) < 1e-9);
    // After a day, a third of it; after ten, none.
    let day = refaulted(CacheChoice::Auto, 86_400);
    assert!(day > 0.36 && day < 0.38, "{day}");
    assert!(refaulted(CacheChoice::Auto, 864_000) < 1e-3);
}

#[test]
fn settings_that_do_not_fit_cost_nothing_of_what_was_saved() {
    let machine = TestMachine::used(20.0);
    let text = "mode = \"on\"\npolicy = \"watermarks\"";
    let mut engine = engine_of(settings(text), None);
    let now = steps(&mut engine, &machine, 1_000_000, 50);
    let saved = engine.persisted_state().unwrap();
    assert!(saved.zones[0].baseline.unwrap().off > 0);
    // Narrower than a slice.
    let narrow = format!("{text}\n[watermarks]\nfree_low_mib = 100\nfree_high_mib = 110");
    let mut engine = engine_of(settings(&narrow), Some(saved.clone()));
    let now = Duration::from_secs(now);
    engine.step(&*machine.real, "simulated", now).unwrap_err();
    let kept = engine.persisted_state().unwrap();
    assert_eq!((&kept.zones, kept.earned.elapsed_us), (&saved.zones, saved.earned.elapsed_us));
    engine.set_settings(settings(text));
    engine.step(&*machine.real, "simulated", now).unwrap();
    let again = engine.persisted_state().unwrap();
    assert_eq!(again.zones[0].baseline, saved.zones[0].baseline);
    assert!(again.earned.elapsed_us >= saved.earned.elapsed_us, "{again:?}");
}
