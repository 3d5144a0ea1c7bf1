//! The simple policies, their settings, and what all policies have in common.

mod loads;

use std::time::Duration;

use loads::TestLoad;
use proptest::prelude::*;
use ramslice_energy::builtin;
use ramslice_policy::bench::{PAGE_BYTES, SLICE_BYTES, run};
use ramslice_policy::{
    AnyPolicy, DecisionReason, MachineTotals, Observation, Policy, PolicyConfig, PolicyDecision,
    PolicyEvent, PolicyKind, SavedPolicy, SliceEconomics, SliceRow,
};
use ramslice_types::{
    Budget, Bytes, CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId,
    SliceState,
};

fn economics() -> SliceEconomics {
    let profile = builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state("parc").unwrap();
    SliceEconomics::new(state, profile.machine.as_ref().unwrap(), Bytes(1 << 30), PAGE_BYTES)
        .unwrap()
}

fn policy(config: &PolicyConfig) -> AnyPolicy {
    AnyPolicy::new(config, &economics(), SLICE_BYTES, PAGE_BYTES).unwrap()
}

fn parse(text: &str) -> PolicyConfig {
    PolicyConfig::parse(text, "policy.toml").unwrap()
}

/// A machine of 16 slices of 512 pages; those from `on` up are off.
fn look(on: u32, used: u64, cache: u64) -> (MachineTotals, Vec<SliceRow>) {
    let totals = MachineTotals {
        slice_pages: Pages(512),
        managed: Pages(16 * 512),
        free: Pages(u64::from(on) * 512 - used),
        offline: Pages(u64::from(16 - on) * 512),
        freeable: Pages(cache),
        cache: Pages(cache),
        awake_reserve: Pages(64),
        nr_slices: 16,
        nr_offline: 16 - on,
        ..MachineTotals::default()
    };
    let row = |id| SliceRow {
        id: SliceId(id),
        state: if id < on { SliceState::Online } else { SliceState::Offline },
        price: (id < on).then_some(Price(5000)),
        present: Pages(512),
        free: Pages(100),
        freeable: Pages::ZERO,
    };
    (totals, (0..16).map(row).collect())
}

fn step(
    policy: &mut AnyPolicy,
    seconds: u64,
    (totals, rows): &(MachineTotals, Vec<SliceRow>),
) -> PolicyDecision {
    policy.step(&Observation {
        time: Duration::from_secs(seconds),
        totals: *totals,
        rows,
        events: &[],
    })
}

#[test]
fn periodic_sends_its_budget_once_a_period() {
    let text = "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = \
                60\nbudget_100cycles = 50000\nper_slice = true\n";
    let mut policy = policy(&parse(text));
    let machine = look(16, 100, 0);
    let first = step(&mut policy, 5, &machine);
    assert_eq!(
        first.requests,
        [Request {
            budget: Budget::Limited(Price(50_000)),
            per_slice: true,
            ..Request::new(RequestOp::Compact)
        }]
    );
    let second = step(&mut policy, 64, &machine);
    assert_eq!(
        (second.requests, second.why),
        (vec![], DecisionReason::NotDue { wait: Duration::from_secs(1) })
    );
    assert_eq!(step(&mut policy, 65, &machine).requests.len(), 1);
}

#[test]
fn a_budget_of_nothing_switches_off_what_is_empty() {
    let config = parse(
        "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nbudget_100cycles = 0\nmax_slices \
         = 3\n",
    );
    let first = step(&mut policy(&config), 0, &look(16, 100, 0));
    assert_eq!(
        first.requests,
        [Request { max_slices: Some(3), ..Request::new(RequestOp::OfflineFree) }]
    );
}

#[test]
fn a_budget_may_have_no_limit() {
    let config = parse(
        "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nbudget_100cycles = \"inf\"\n",
    );
    let first = step(&mut policy(&config), 0, &look(16, 100, 0));
    assert_eq!(first.requests[0].budget, Budget::Unlimited);
    assert_eq!(first.requests[0].cache, CacheChoice::Drop);
}

#[test]
fn page_cache_may_stay_by_its_use() {
    let config = parse("schema_version = 1\npolicy = \"periodic\"\n[periodic]\ncache = \"auto\"\n");
    let first = step(&mut policy(&config), 0, &look(16, 100, 0));
    assert_eq!(first.requests[0].cache, CacheChoice::Auto);
}

const FOLLOWS: &str = "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = \
                       10\nbudget_100cycles = \"inf\"\nempty_seconds = 2\nwait_while_growing = \
                       true\nwait_while_busy_seconds = 15\n";

/// What [`look`] sees, with so many slices empty.
fn look_empty(used: u64, nr_empty: u32) -> (MachineTotals, Vec<SliceRow>) {
    let (totals, rows) = look(16, used, 0);
    (MachineTotals { nr_empty, ..totals }, rows)
}

#[test]
fn what_stays_empty_goes_off_between_compactions() {
    let mut policy = policy(&parse(FOLLOWS));
    assert_eq!(step(&mut policy, 0, &look_empty(7000, 0)).requests[0].op, RequestOp::Compact);
    // Empty for 1 s, then for 2 s; of those that were empty all the time, as far as that is known
    assert_eq!(step(&mut policy, 1, &look_empty(4000, 6)).requests, []);
    assert_eq!(step(&mut policy, 2, &look_empty(4000, 4)).requests, []);
    let third = step(&mut policy, 3, &look_empty(4000, 5));
    assert_eq!(
        third.requests,
        [Request { max_slices: Some(4), ..Request::new(RequestOp::OfflineFree) }]
    );
    assert_eq!(third.why.to_string(), "switches off 4 slices that have been empty for 2.0 s");
    // One that was taken in between starts again
    assert_eq!(step(&mut policy, 4, &look_empty(4000, 0)).requests, []);
    assert_eq!(step(&mut policy, 5, &look_empty(4000, 1)).requests, []);
    assert_eq!(step(&mut policy, 6, &look_empty(4000, 1)).requests, []);
    assert_eq!(step(&mut policy, 7, &look_empty(4000, 1)).requests.len(), 1);
}

#[test]
fn without_a_time_all_that_is_empty_goes_off_between_compactions() {
    let mut policy = policy(&parse(&FOLLOWS.replace("empty_seconds = 2", "empty_seconds = 0")));
    step(&mut policy, 0, &look_empty(7000, 0));
    // Pages on the processors' lists keep others from being seen as empty before the request
    let second = step(&mut policy, 1, &look_empty(4000, 1));
    assert_eq!(second.requests, [Request::new(RequestOp::OfflineFree)]);
    assert_eq!(second.why.to_string(), "switches off what is empty: at least 1 slice");
    assert_eq!(step(&mut policy, 2, &look_empty(4000, 0)).requests, []);
    // Also while more is in use: it may be on those lists
    assert_eq!(step(&mut policy, 3, &look_empty(7000, 1)).requests.len(), 1);
}

#[test]
fn what_the_kernel_keeps_is_not_asked_for_again() {
    let mut policy = policy(&parse(FOLLOWS));
    step(&mut policy, 0, &look_empty(7000, 0));
    let mut asks = |second, nr_empty, went: Option<u32>| {
        let (totals, rows) = look_empty(4000, nr_empty);
        let finished = went.map(|slices_done| PolicyEvent::Finished {
            op: RequestOp::OfflineFree,
            outcome: RequestOutcome { slices_done, ..RequestOutcome::default() },
            max_slices: None,
        });
        let time = Duration::from_secs(second);
        let events: Vec<_> = finished.into_iter().collect();
        let found = policy.step(&Observation { time, totals, rows: &rows, events: &events });
        found.requests.first().map(|request| request.max_slices)
    };
    let sent: Vec<_> = [
        (1, 6, None),
        (2, 6, None),
        // Of six, two go
        (3, 6, None),
        (4, 4, Some(2)),
        (5, 4, None),
        (6, 4, None),
        // One of the others is used, and is empty again for 2 s
        (7, 3, None),
        (8, 4, None),
        (9, 4, None),
    ]
    .map(|(second, nr_empty, went)| asks(second, nr_empty, went))
    .into();
    let mut expected = vec![None; 9];
    expected[2] = Some(Some(6));
    assert_eq!(sent, expected);
    assert_eq!(asks(10, 4, None), Some(None), "a compaction");
    assert_eq!(asks(11, 4, None), Some(Some(4)));
}

#[test]
fn what_the_daemon_did_not_allow_is_asked_for_again() {
    // It lets two slices go at a time, of six that are empty.
    let after = |reason, slices_done| {
        let mut policy = policy(&parse(FOLLOWS));
        step(&mut policy, 0, &look_empty(7000, 0));
        for second in 1..3 {
            assert_eq!(step(&mut policy, second, &look_empty(4000, 6)).requests, []);
        }
        assert_eq!(step(&mut policy, 3, &look_empty(4000, 6)).requests.len(), 1);
        let outcome = RequestOutcome { reason, slices_done, ..RequestOutcome::default() };
        let op = RequestOp::OfflineFree;
        let events = [PolicyEvent::Finished { op, outcome, max_slices: Some(2) }];
        let (totals, rows) = look_empty(4000, 6 - slices_done);
        let time = Duration::from_secs(4);
        let found = policy.step(&Observation { time, totals, rows: &rows, events: &events });
        found.requests.first().and_then(|request| request.max_slices)
    };
    assert_eq!(after(Reason::None, 2), Some(4));
    // One of the two could not go, or the reserve keeps all that are left.
    assert_eq!(after(Reason::None, 1), Some(5));
    assert_eq!(after(Reason::AwakeReserve, 1), None);
}

#[test]
fn a_compaction_waits_for_processors_that_work() {
    let mut policy = policy(&parse(FOLLOWS));
    // Two processors: since the last look they worked for so long, of 10 s
    let mut looks = |second, busy: u64| {
        let (totals, rows) = look_empty(4000, 0);
        let [busy, within] = [busy, 10].map(Duration::from_secs);
        let events = [PolicyEvent::Worked { busy, within }];
        let time = Duration::from_secs(second);
        let found = policy.step(&Observation { time, totals, rows: &rows, events: &events });
        (found.requests.len(), found.why)
    };
    // The first one waits for nothing
    assert_eq!(looks(0, 10).0, 1);
    assert_eq!(looks(5, 0), (0, DecisionReason::NotDue { wait: Duration::from_secs(5) }));
    // Over a period of 10 s: a pause in between changes little
    let [busy, within] = [6, 20].map(Duration::from_secs);
    assert_eq!(looks(10, 6), (0, DecisionReason::Busy { busy, within }));
    // A quarter of it is not much; the next one is due a period later, and waits at most 15 s
    assert_eq!(looks(15, 0).0, 0);
    assert_eq!(looks(16, 1).0, 1);
    assert_eq!(looks(26, 10).0, 0);
    assert_eq!(looks(40, 10).0, 0);
    assert_eq!(looks(41, 10).0, 1);
    // Not by the time in which nothing looked: the machine may have been suspended
    assert_eq!(looks(1000, 10).0, 0);
    assert_eq!(looks(1014, 10).0, 0);
    assert_eq!(looks(1015, 10).0, 1);
}

#[test]
fn what_is_empty_goes_off_while_a_compaction_waits() {
    let mut policy = policy(&parse(FOLLOWS));
    let [busy, within] = [1, 1].map(Duration::from_secs);
    let sent: Vec<_> = [0, 9, 10, 11]
        .map(|second| {
            let (totals, rows) = look_empty(4000, if second == 0 { 0 } else { 3 });
            let events = [PolicyEvent::Worked { busy, within }];
            let time = Duration::from_secs(second);
            let found = policy.step(&Observation { time, totals, rows: &rows, events: &events });
            found.requests.first().map(|request| request.op)
        })
        .into();
    assert_eq!(sent, [Some(RequestOp::Compact), None, None, Some(RequestOp::OfflineFree)]);
}

#[test]
fn nothing_goes_off_while_much_memory_is_taken() {
    let mut policy = policy(&parse(FOLLOWS));
    step(&mut policy, 0, &look_empty(1000, 8));
    for (second, used) in (1..=9).zip((1..).map(|n| 1000 + n * 600)) {
        let found = step(&mut policy, second, &look_empty(used, 8));
        assert_eq!(found.requests, [], "{second}: {}", found.why);
    }
    // Due, and waits, but not for more than a period
    let waits = step(&mut policy, 10, &look_empty(7000, 2));
    assert_eq!(
        (waits.requests, waits.why),
        (vec![], DecisionReason::Growing { pages: Pages(600) })
    );
    assert_eq!(step(&mut policy, 19, &look_empty(7600, 1)).requests, []);
    assert_eq!(step(&mut policy, 20, &look_empty(8192, 0)).requests[0].op, RequestOp::Compact);
    // A slice's worth is not much
    step(&mut policy, 21, &look_empty(1000, 3));
    step(&mut policy, 22, &look_empty(1000, 3));
    assert_eq!(step(&mut policy, 23, &look_empty(1512, 3)).requests.len(), 1);
    assert_eq!(step(&mut policy, 24, &look_empty(2025, 3)).requests, []);
}

#[test]
fn without_these_settings_only_the_period_counts() {
    let mut policy = policy(&parse("schema_version = 1\npolicy = \"periodic\"\n"));
    let compacts = |at| step(&mut policy, at, &look_empty(100 * at + 1, 9)).requests.len();
    let sent: Vec<_> = (0..=60).map(compacts).enumerate().filter(|&(_, n)| n > 0).collect();
    assert_eq!(sent, [(0, 1), (30, 1), (60, 1)]);
}

/// `FREE_LOW` and `FREE_HIGH` at 2 and 6 slices, with cache at 3 and 8; slices have 2 MiB.
const MARKS: &str = "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\nfree_low_mib = \
                     4\nfree_high_mib = 12\ncache_free_low_mib = 6\ncache_free_high_mib = \
                     16\ntimeout_seconds = 10\n";

#[test]
fn watermarks_wake_the_lowest_and_switch_off_the_highest_slice() {
    let config = parse(MARKS);
    // 1 slice free, and half a slice of cache: both low watermarks are crossed.
    let low = step(&mut policy(&config), 0, &look(10, 9 * 512, 256));
    assert_eq!(low.requests, [Request::new(RequestOp::Online(SliceId(10)))], "{}", low.why);
    // The same, but with cache: it could be dropped.
    let cached = step(&mut policy(&config), 0, &look(10, 9 * 512, 4 * 512));
    assert!(cached.requests.is_empty(), "{}", cached.why);
    // 7 slices free.
    let free = step(&mut policy(&config), 0, &look(10, 3 * 512, 0));
    assert_eq!(free.requests, [Request::new(RequestOp::Offline(SliceId(9)))]);
    assert!(free.why.to_string().contains("FREE_HIGH"), "{}", free.why);
    // 4 free, 5 more hold cache.
    let cache = step(&mut policy(&config), 0, &look(10, 6 * 512, 5 * 512));
    assert_eq!(cache.requests, [Request::new(RequestOp::Offline(SliceId(9)))]);
    assert!(cache.why.to_string().contains("CACHE_FREE_HIGH"), "{}", cache.why);
}

#[test]
fn watermarks_rest_for_the_time_out() {
    let mut policy = policy(&parse(MARKS));
    let machine = look(10, 512, 0);
    assert_eq!(step(&mut policy, 0, &machine).requests.len(), 1);
    assert!(step(&mut policy, 9, &machine).requests.is_empty());
    assert_eq!(step(&mut policy, 10, &machine).requests.len(), 1);
}

#[test]
fn the_hysteresis_rule_is_checked_and_named_with_its_line() {
    for (wrong, line, name) in [
        ("free_high_mib = 6", 5, "free_high_mib must be above free_low_mib"),
        ("cache_free_high_mib = 8", 7, "cache_free_high_mib must be above cache_free_low_mib"),
    ] {
        let (key, _) = wrong.split_once(' ').unwrap();
        let text: Vec<&str> = MARKS
            .lines()
            .map(|line| if line.starts_with(&format!("{key} ")) { wrong } else { line })
            .collect();
        let config = parse(&text.join("\n"));
        let error = config.check(SLICE_BYTES).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("policy.toml:{line}: ")) && error.contains(name),
            "{error}"
        );
        assert!(AnyPolicy::new(&config, &economics(), SLICE_BYTES, PAGE_BYTES).is_err());
        // Slices of 1 MiB leave room between the same watermarks.
        config.check(Bytes::MIB).unwrap();
    }
}

#[test]
fn watermarks_that_no_size_of_slices_would_suit_are_refused_at_once() {
    let head = "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\n";
    for (text, line, name) in [
        (
            "free_low_mib = 1024\nfree_high_mib = 1024\n",
            5,
            "above free_low_mib plus the size of a slice",
        ),
        ("cache_free_high_mib = 1\ncache_free_low_mib = 2\n", 4, "above cache_free_low_mib plus"),
        // Left out, the low one with cache is above the other.
        ("free_low_mib = 64\ncache_free_high_mib = 64\n", 5, "above free_low_mib plus"),
    ] {
        let error = PolicyConfig::parse(&format!("{head}{text}"), "policy.toml").unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    parse(&format!("{head}free_low_mib = 1024\nfree_high_mib = 1025\n"));
}

#[test]
fn wrong_settings_are_named_by_line() {
    let head = "schema_version = 1\npolicy = \"threshold\"\n";
    for (text, line, what) in [
        ("policy = \"never\"\n".to_owned(), 1, "schema_version"),
        ("schema_version = 2\npolicy = \"never\"\n".to_owned(), 1, "these tools know 1"),
        ("schema_version = 1\npolicy = \"greedy\"\n".to_owned(), 2, "unknown variant `greedy`"),
        (format!("{head}[threshold]\nlow = 0.9\nhigh = 0.8\n"), 4, "low < high"),
        (format!("{head}[threshold]\nmax_slices = 0\n"), 4, "at least 1"),
        (format!("{head}[threshold]\nspeed = 3\n"), 4, "unknown field `speed`"),
        (format!("{head}[periodic]\nperiod_seconds = -1\n"), 4, "at least 0.001"),
        (format!("{head}[periodic]\nperiod_seconds = nan\n"), 4, "NaN"),
        (format!("{head}[periodic]\nempty_seconds = -2\n"), 4, "at least 0"),
        (format!("{head}[periodic]\nwait_while_growing = 1\n"), 4, "true or false"),
        (format!("{head}[periodic]\nbudget_100cycles = \"much\"\n"), 4, "\"inf\" for no limit"),
        (
            format!("{head}[governor]\nday_seconds = \"long\"\n"),
            4,
            "governor.day_seconds is \"long\": it must be a number of at least 0",
        ),
        (
            format!("{head}[governor]\ncosts = 1\n"),
            4,
            "governor.costs is 1: it must be \"measured\" or \"predicted\"",
        ),
        (
            format!("{head}[repair]\n\nmax_slices = -1\n"),
            5,
            "repair.max_slices is -1: it must be a whole number",
        ),
        (format!("{head}[periodic]\nbudget_100cycles = 1.5\n"), 4, "or \"inf\" for no limit"),
        (
            "schema_version = 1\npolicy = 3\n".to_owned(),
            2,
            "policy is 3: it must be one of \"never\"",
        ),
        (
            "schema_version = 1\npolicy = \"never\"\ngovernor = 3\n".to_owned(),
            3,
            "begins with [governor]",
        ),
        (format!("{head}[threshold]\nhigh = 0.5\n"), 4, "low < high"),
        (format!("{head}[periodic\n"), 3, ""),
    ] {
        let error = PolicyConfig::parse(&text, "policy.toml").unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let error =
        PolicyConfig::parse_bytes(b"schema_version = 1\npolicy = \"\xe4\"\n".to_vec(), "p.toml")
            .unwrap_err();
    assert_eq!(error.line, 2);
    assert!(error.to_string().contains("0xe4") && error.to_string().contains("UTF-8"), "{error}");
    let error = "greedy".parse::<PolicyKind>().unwrap_err().to_string();
    assert!(error.contains("`greedy`") && error.contains("governor"), "{error}");
}

#[test]
fn thresholds_switch_until_utilisation_is_between_them() {
    let mut config = PolicyConfig::new(PolicyKind::Threshold);
    config.threshold.max_slices = 16;
    // 3 slices used of 16: 4 on make 75 %.
    let low = step(&mut policy(&config), 0, &look(16, 3 * 512, 0));
    assert_eq!(low.requests.len(), 12, "{}", low.why);
    // 9.5 of 10 used: 11 on make 86 %.
    let high = step(&mut policy(&config), 0, &look(10, 19 * 256, 0));
    assert_eq!(high.requests.len(), 1, "{}", high.why);
    assert!(matches!(high.requests[0].op, RequestOp::Online(SliceId(10..16))));
    let well = step(&mut policy(&config), 0, &look(10, 8 * 512, 0));
    assert!(well.requests.is_empty(), "{}", well.why);
}

#[test]
fn chance_depends_on_the_seed_alone() {
    let choice = |seed| {
        let mut config = PolicyConfig::new(PolicyKind::Threshold);
        config.threshold.seed = seed;
        step(&mut policy(&config), 0, &look(16, 3 * 512, 0)).requests
    };
    assert_eq!(choice(7), choice(7));
    assert_ne!(choice(7), choice(8));
}

#[test]
fn saved_states_that_are_damaged_or_of_another_version_or_policy_are_refused() {
    let saved = policy(&PolicyConfig::new(PolicyKind::Never)).save().to_text();
    let refused = |text: &str, kind| SavedPolicy::restore(text, kind).unwrap_err().to_string();
    let error = refused(&saved, PolicyKind::Governor);
    assert!(error.contains("never") && error.contains("governor"), "{error}");
    let error = refused("{\"state_version\":9,\"mind\":[]}", PolicyKind::Never);
    assert!(error.contains("version 9"), "{error}");
    let error = refused(&saved[..saved.len() / 2], PolicyKind::Never);
    assert!(error.contains("cannot be read") && error.contains("remove it"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_policy_is_the_same_after_saving_and_restoring(
        kind in prop::sample::select(PolicyKind::ALL.as_slice()), seed in any::<u64>(),
    ) {
        let series = TestLoad::Churn.series(seed, 16, 30.0, 120);
        let mut first = policy(&PolicyConfig::new(kind));
        run(&mut first, &series, &economics(), Duration::from_secs(30), |_, _, _| {});
        let restored = SavedPolicy::restore(&first.save().to_text(), kind).unwrap();
        prop_assert_eq!(restored, first);
    }

    #[test]
    fn no_policy_earns_more_than_the_clairvoyant(
        kind in prop::sample::select(PolicyKind::ALL.as_slice()),
            load in prop::sample::select(TestLoad::ALL.as_slice()),
        seed in any::<u64>(),
    ) {
        let (economics, step) = (economics(), Duration::from_secs(30));
        let series = load.series(seed, 16, 30.0, 400);
        let best = ramslice_policy::clairvoyant::optimum(
            &series, ramslice_policy::model::SliceCosts::new(&economics, step.as_secs_f64())).net();
        let mut policy = policy(&PolicyConfig::new(kind));
        let net = run(&mut policy, &series, &economics, step, |_, _, _| {}).account.net();
        prop_assert!(net <= best + 1e-6, "{} {} {}", kind, net, best);
    }

    #[test]
    fn watermarks_that_keep_the_rule_do_not_swing_under_constant_load(
        low in 0.0f64..8.0, width in 2.01f64..20.0, cache_low in 0.0f64..8.0,
            cache_width in 2.01f64..20.0,
        used in 0u64..4000, cache_share in 0.0f64..1.0,
    ) {
        let mut config = PolicyConfig::new(PolicyKind::Watermarks);
        config.watermarks.free_low_mib = Some(low);
        config.watermarks.free_high_mib = Some(low + width);
        config.watermarks.cache_free_low_mib = Some(low + cache_low);
        config.watermarks.cache_free_high_mib = Some(low + cache_low + cache_width);
        let mut policy = policy(&config);
        let mut on = 16;
        let mut directions = Vec::new();
        for round in 0..40u64 {
            let cache = (used as f64 * cache_share) as u64;
            let decision = step(&mut policy, round * 30, &look(on, used, cache));
            match decision.requests.first().map(|request| request.op) {
                Some(RequestOp::Offline(_)) if u64::from(on - 1) * 512 >= used => {
                    on -= 1;
                    directions.push(-1);
                }
                Some(RequestOp::Online(_)) => {
                    on += 1;
                    directions.push(1);
                }
                _ => {}
            }
        }
        // It goes one way and rests.
        prop_assert!(directions.windows(2).all(|pair| pair[0] == pair[1]), "{directions:?}");
    }

    #[test]
    fn more_use_never_makes_a_threshold_switch_more_off(used in 0u64..6000, more in 0u64..2000) {
        let mut config = PolicyConfig::new(PolicyKind::Threshold);
        config.threshold.max_slices = 16;
        let off = |used| {
            let decision = step(&mut policy(&config), 0, &look(16, used, 0));
            decision
                .requests
                .iter()
                .filter(|request| matches!(request.op, RequestOp::Offline(_)))
                .count()
        };
        prop_assert!(off(used + more) <= off(used));
    }
}
