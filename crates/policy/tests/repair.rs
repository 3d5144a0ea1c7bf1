//! Repair: which slices a pass empties, what it may cost, and what is learned from failures.

use std::time::Duration;

use proptest::prelude::*;
use ramslice_energy::builtin;
use ramslice_policy::settings::{BudgetLimit, CandidateRule};
use ramslice_policy::{
    AnyPolicy, DecisionReason, MachineTotals, Observation, Policy, PolicyConfig, PolicyDecision,
    PolicyEvent, PolicyKind, SavedPolicy, SliceEconomics, SliceRow, WakeCause,
};
use ramslice_types::{
    Budget, Bytes, CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId,
    SliceState,
};

const FRAMES: u64 = 512;
const RESERVE: u64 = 64;
const PERIOD: u64 = 10;

/// A slice by what it holds. Each page that moves costs 130 units, each that is dropped 39.
#[derive(Debug, Clone, Copy)]
struct SlicePages {
    movable: u64,
    cache: u64,
    /// Online without pages of the kernel's.
    user: bool,
    off: bool,
}

fn held(movable: u64) -> SlicePages {
    SlicePages { movable, cache: 0, user: true, off: false }
}

fn rows(slices: &[SlicePages]) -> Vec<SliceRow> {
    let row = |(id, held): (u32, &SlicePages)| SliceRow {
        id: SliceId(id),
        state: if held.off { SliceState::Offline } else { SliceState::Online },
        price: (!held.off && held.user)
            .then_some(Price(1000 + held.movable * 130 + held.cache * 39)),
        present: Pages(FRAMES),
        free: Pages(if held.off { 0 } else { FRAMES - held.movable - held.cache }),
        freeable: Pages(if held.off { 0 } else { held.cache }),
    };
    (0..).zip(slices).map(row).collect()
}

fn totals(slices: &[SlicePages]) -> MachineTotals {
    let on = || slices.iter().filter(|held| !held.off);
    MachineTotals {
        slice_pages: Pages(FRAMES),
        managed: Pages(FRAMES * slices.len() as u64),
        free: on().map(|held| Pages(FRAMES - held.movable - held.cache)).sum(),
        offline: Pages(FRAMES * slices.iter().filter(|held| held.off).count() as u64),
        freeable: on().map(|held| Pages(held.cache)).sum(),
        cache: on().map(|held| Pages(held.cache)).sum(),
        awake_reserve: Pages(RESERVE),
        nr_slices: slices.len() as u32,
        nr_offline: slices.iter().filter(|held| held.off).count() as u32,
        ..MachineTotals::default()
    }
}

fn config(candidates: CandidateRule) -> PolicyConfig {
    let mut config = PolicyConfig::new(PolicyKind::Repair);
    config.repair.candidates = candidates;
    config.repair.period_seconds = PERIOD as f64;
    config
}

fn policy(config: &PolicyConfig) -> AnyPolicy {
    let profile = builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state("parc").unwrap();
    let (slice, page) = (Bytes(FRAMES * 4096), Bytes(4096));
    let economics =
        SliceEconomics::new(state, profile.machine.as_ref().unwrap(), slice, page).unwrap();
    AnyPolicy::new(config, &economics, slice, page).unwrap()
}

fn step(
    policy: &mut AnyPolicy,
    seconds: u64,
    slices: &[SlicePages],
    events: &[PolicyEvent],
) -> PolicyDecision {
    let (totals, rows) = (totals(slices), rows(slices));
    policy.step(&Observation { time: Duration::from_secs(seconds), totals, rows: &rows, events })
}

/// The slices that requests empty, in their order.
fn emptied(requests: &[Request]) -> Vec<u32> {
    let id = |request: &Request| match request.op {
        RequestOp::Offline(SliceId(id)) => Some(id),
        _ => None,
    };
    requests.iter().filter_map(id).collect()
}

fn first(config: &PolicyConfig, slices: &[SlicePages]) -> Vec<Request> {
    step(&mut policy(config), 0, slices, &[]).requests
}

fn failed(slice: u32, reason: Reason) -> PolicyEvent {
    let outcome =
        RequestOutcome { status_errno: 16, reason, slices_failed: 1, ..RequestOutcome::default() };
    PolicyEvent::Finished { op: RequestOp::Offline(SliceId(slice)), outcome, max_slices: None }
}

fn done(slice: u32) -> PolicyEvent {
    let outcome = RequestOutcome { slices_done: 1, ..RequestOutcome::default() };
    PolicyEvent::Finished { op: RequestOp::Offline(SliceId(slice)), outcome, max_slices: None }
}

#[test]
fn by_price_cheap_slices_go_first_and_too_full_ones_not_at_all() {
    let mut slices =
        [held(200), held(300), held(20), held(100), held(40), held(60), held(240), held(400)];
    // Dearer by its pages, but most of them are dropped.
    slices[3] = SlicePages { movable: 10, cache: 300, user: true, off: false };
    slices[4].user = false;
    let requests = first(&config(CandidateRule::Price), &slices);
    assert_eq!(emptied(&requests), [2, 5, 3, 0]);
    assert!(requests.iter().all(|request| request.cache == CacheChoice::Auto));
    let mut config = config(CandidateRule::Price);
    config.repair.max_share = 0.03;
    assert_eq!(emptied(&first(&config, &slices)), [3]);
}

#[test]
fn by_the_paper_the_least_occupied_go_first_and_cache_counts_as_occupied() {
    let mut slices =
        [held(200), held(300), held(20), held(100), held(40), held(60), held(240), held(400)];
    slices[3] = SlicePages { movable: 10, cache: 300, user: true, off: false };
    slices[4].user = false;
    let requests = first(&config(CandidateRule::Paper), &slices);
    assert_eq!(emptied(&requests), [2, 5, 0]);
    assert!(requests.iter().all(|request| request.cache == CacheChoice::Keep));
}

#[test]
fn by_the_paper_pages_fit_into_slices_without_kernel_pages() {
    // Two of the three could take a third of a slice each; the kernel's slice does not count.
    let mut slices = [held(340), held(340), held(340), held(10)];
    slices[3].user = false;
    let mut config = config(CandidateRule::Paper);
    config.repair.keep_free_slices = 0;
    assert_eq!(emptied(&first(&config, &slices)), [2]);
    slices[2] = held(344);
    assert_eq!(emptied(&first(&config, &slices)), [1]);
    slices[0] = held(360);
    assert_eq!(emptied(&first(&config, &slices)), Vec::<u32>::new());
}

#[test]
fn empty_slices_go_off_first_but_for_what_stays_free() {
    let slices = [held(0), held(0), held(0), held(500)];
    for candidates in [CandidateRule::Price, CandidateRule::Paper] {
        let requests = first(&config(candidates), &slices);
        let wanted = Request { max_slices: Some(1), ..Request::new(RequestOp::OfflineFree) };
        assert_eq!(requests, [wanted], "{candidates:?}");
    }
    let mut config = config(CandidateRule::Price);
    config.repair.keep_free_slices = 2;
    let mut policy = policy(&config);
    let rest = step(&mut policy, 0, &slices, &[]);
    assert_eq!(
        (rest.requests.len(), rest.why),
        (0, DecisionReason::Packed { slices: 1, resting: 0, full: 1 })
    );
}

#[test]
fn a_slice_that_failed_rests_twice_as_long_each_time() {
    let mut slices = vec![held(10), held(400), held(400)];
    slices[1].user = false;
    slices[2].user = false;
    let mut config = config(CandidateRule::Price);
    config.repair.keep_free_slices = 0;
    let mut policy = policy(&config);
    let (mut tried, mut events) = (Vec::new(), Vec::new());
    for pass in 0..300 {
        let decision = step(&mut policy, pass * PERIOD, &slices, &events);
        events.clear();
        if emptied(&decision.requests) == [0] {
            tried.push(pass);
            events.push(failed(0, Reason::Pinned));
        }
    }
    let gaps: Vec<u64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 5 && gaps.iter().all(|gap| *gap <= 80), "{gaps:?}");
    assert!(gaps[0] >= 2 && gaps[1] >= 4 && gaps[2] >= 8 && gaps[5] >= 64, "{gaps:?}");
    // Once it came off, the backoff begins again.
    let mut policy = self::policy(&config);
    assert_eq!(emptied(&step(&mut policy, 0, &slices, &[]).requests), [0]);
    assert!(step(&mut policy, 1000, &slices, &[done(0)]).requests.len() == 1);
}

#[test]
fn what_says_nothing_of_a_slice_is_not_held_against_it() {
    let mut slices = vec![held(10), held(400), held(400)];
    slices[1].user = false;
    slices[2].user = false;
    for reason in [Reason::None, Reason::State] {
        let mut policy = policy(&config(CandidateRule::Price));
        step(&mut policy, 0, &slices, &[]);
        let again = step(&mut policy, PERIOD, &slices, &[failed(0, reason)]);
        assert_eq!(emptied(&again.requests), Vec::<u32>::new(), "no room: {reason:?}");
        slices[1] = SlicePages { movable: 10, cache: 0, user: false, off: false };
        let again = step(&mut policy, 2 * PERIOD, &slices, &[]);
        assert_eq!(emptied(&again.requests), [0], "{reason:?}");
        slices[1] = SlicePages { movable: 400, cache: 0, user: false, off: false };
    }
}

#[test]
fn passes_are_further_apart_while_nothing_comes_of_them() {
    let slices: Vec<SlicePages> = (0..64).map(|_| held(50)).collect();
    let mut policy = policy(&config(CandidateRule::Price));
    let (mut passes, mut events) = (Vec::new(), Vec::new());
    for second in 0..600 {
        let decision = step(&mut policy, second, &slices, &events);
        events =
            emptied(&decision.requests).iter().map(|&id| failed(id, Reason::Migration)).collect();
        if !events.is_empty() {
            passes.push(second);
        }
    }
    let gaps: Vec<u64> = passes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // That a pass was barren is known at the next one.
    assert_eq!(gaps[..5], [10, 20, 40, 80, 160]);
    assert!(gaps[5..].iter().all(|gap| *gap == 160), "{gaps:?}");
}

#[test]
fn after_slices_woke_for_want_of_memory_a_pass_waits() {
    let slices: Vec<SlicePages> = (0..8).map(|_| held(50)).collect();
    for (cause, waits) in
        [(WakeCause::Demand, true), (WakeCause::Ahead, true), (WakeCause::Request, false)]
    {
        let mut policy = policy(&config(CandidateRule::Price));
        step(&mut policy, 0, &slices, &[]);
        let woken = PolicyEvent::Woken { time: Duration::from_secs(9), slices: 1, cause };
        let decision = step(&mut policy, PERIOD, &slices, &[woken]);
        assert_eq!(decision.requests.is_empty(), waits, "{cause:?}");
        assert!(!step(&mut policy, 2 * PERIOD, &slices, &[]).requests.is_empty());
    }
}

#[test]
fn what_failed_is_remembered_when_it_is_restored() {
    let slices: Vec<SlicePages> = (0..8).map(|_| held(50)).collect();
    let mut policy = policy(&config(CandidateRule::Price));
    let tried = emptied(&step(&mut policy, 0, &slices, &[]).requests);
    let events: Vec<PolicyEvent> = tried.iter().map(|&id| failed(id, Reason::Pinned)).collect();
    let next = emptied(&step(&mut policy, PERIOD, &slices, &events).requests);
    assert!(!next.is_empty() && tried.iter().all(|id| !next.contains(id)), "{tried:?} {next:?}");
    let restored = SavedPolicy::restore(&policy.save().to_text(), PolicyKind::Repair).unwrap();
    assert_eq!(restored, policy);
}

#[test]
fn wrong_settings_are_named_by_line() {
    let head = "schema_version = 1\npolicy = \"repair\"\n[repair]\n";
    for (text, what) in [
        ("candidates = \"cheap\"\n", "unknown variant `cheap`, expected `price` or `paper`"),
        ("max_share = 1.5\n", "must be from 0 to 1"),
        ("max_share = nan\n", "must be from 0 to 1"),
        ("max_slices = 0\n", "at least 1"),
        ("period_seconds = 0\n", "at least 0.001"),
        ("budget_100cycles = -1\n", "\"inf\" for no limit"),
        ("budget = 5\n", "unknown field `budget`"),
    ] {
        let error = PolicyConfig::parse(&format!("{head}{text}"), "policy.toml").unwrap_err();
        assert_eq!(error.line, 4, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

fn slices() -> impl Strategy<Value = Vec<SlicePages>> {
    let one = (0..=FRAMES, 0..=FRAMES, 0u8..10, 0u8..10).prop_map(|(movable, cache, user, off)| {
        let movable = movable.saturating_sub(60);
        SlicePages {
            movable,
            cache: cache.min(FRAMES - movable).saturating_sub(40),
            user: user > 2,
            off: off == 0,
        }
    });
    prop::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_pass_keeps_to_its_limits_whatever_it_sees(
        slices in slices(), paper in any::<bool>(), budget in prop::option::of(0u64..200_000),
            most in 1u32..6,
        share in 0.0f64..=1.0, keep in 0u32..4,
    ) {
        let mut config = config(if paper { CandidateRule::Paper } else { CandidateRule::Price });
        config.repair.budget = BudgetLimit(budget);
        config.repair.max_slices = most;
        config.repair.max_share = share;
        config.repair.keep_free_slices = keep;
        let requests = first(&config, &slices);
        let ids = emptied(&requests);
        prop_assert!(ids.len() <= most as usize);
        let empty: u64 = requests.iter().filter(|request| request.op == RequestOp::OfflineFree)
            .map(|request| u64::from(request.max_slices.unwrap())).sum();
        // What may be spent: the budgets of all requests, and empty slices at their price.
        if let Some(budget) = budget {
            let each = requests.iter().filter(|request| request.op != RequestOp::OfflineFree);
            let spent: u64 = each.map(|request| request.budget.raw()).sum();
            prop_assert!(spent + empty * 1000 <= budget);
        } else if paper {
            prop_assert!(requests.iter().all(|request| request.budget == Budget::Unlimited));
        }
        // By price, a slice that has been filled since the look is too dear before more of it has
        // moved than may.
        for request in requests.iter().filter(|_| !paper) {
            let RequestOp::Offline(id) = request.op else { continue };
            let one = slices[id.0 as usize];
            let price = (1000 + one.movable * 130 + one.cache * 39) as f64;
            let room = (share * FRAMES as f64 / one.movable as f64).max(1.0);
            prop_assert!(one.movable == 0 || request.budget.raw() as f64 <= price * room * 1.1);
        }
        // Each once, on, in use and without kernel pages.
        let mut once = ids.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), ids.len());
        let chosen = || ids.iter().map(|&id| slices[id as usize]);
        prop_assert!(chosen().all(|one| one.user && !one.off && one.movable + one.cache > 0));
        // What stays free, of memory that is on, when all has been done.
        let online = slices.iter().filter(|one| !one.off);
        let free: u64 = online.map(|one| FRAMES - one.movable - one.cache).sum();
        let dropped: u64 = if paper { 0 } else { chosen().map(|one| one.cache).sum() };
        let gone = FRAMES * (empty + ids.len() as u64);
        if !requests.is_empty() {
            prop_assert!(free + dropped >= gone + RESERVE + FRAMES * u64::from(keep));
        }
        if paper {
            let pool = slices.iter().enumerate().filter(|(at, one)| {
                !one.off && one.user && one.movable + one.cache > 0 && !ids.contains(&(*at as u32))
            });
            let room: u64 = pool.map(|(_, one)| FRAMES - one.movable - one.cache).sum();
            prop_assert!(room >= chosen().map(|one| one.movable + one.cache).sum::<u64>());
        } else {
            prop_assert!(chosen().all(|one| one.movable as f64 / FRAMES as f64 <= share));
        }
    }

    #[test]
    fn no_slice_is_passed_over_for_one_that_holds_more(slices in slices(), paper in any::<bool>()) {
        let mut config = config(if paper { CandidateRule::Paper } else { CandidateRule::Price });
        config.repair.budget = BudgetLimit(None);
        config.repair.max_share = 1.0;
        let place = |one: &SlicePages| {
            if paper { one.movable + one.cache } else { one.movable * 130 + one.cache * 39 }
        };
        let ids = emptied(&first(&config, &slices));
        let places: Vec<u64> = ids.iter().map(|&id| place(&slices[id as usize])).collect();
        prop_assert!(places.is_sorted());
        if paper && let Some(last) = places.last() {
            let left = slices.iter().enumerate().filter(|(at, one)| {
                !one.off && one.user && one.movable + one.cache > 0 && !ids.contains(&(*at as u32))
            });
            prop_assert!(left.map(|(_, one)| place(one)).all(|other| other >= *last));
        }
    }
}
