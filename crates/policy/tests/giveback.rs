//! The governor by a profile of memory that is given back: it gives back what pays and no more, and
//! a tenant's limits go before all that pays. Without a profile, the limits decide alone.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use ramslice_energy::{GivebackProfile, builtin_giveback, builtin_text};
use ramslice_policy::bench::{PAGE_BYTES, SLICE_BYTES, SLICE_PAGES, run};
use ramslice_policy::model::DemandSeries;
use ramslice_policy::{
    AnyPolicy, DecisionReason, GovernorPolicy, MachineTotals, Observation, Policy, PolicyConfig,
    PolicyDecision, PolicyEvent, PolicyKind, SavedPolicy, SliceEconomics, SliceRow, WakeCause,
    settings::LimitsConfig,
};
use ramslice_types::{
    CacheChoice, Pages, Price, Reason, RequestOp, RequestOutcome, SliceId, SliceState,
};

const STEP: Duration = Duration::from_secs(5);
const SLICES: u32 = 64;
const SLICE_MIB: f64 = 2.0;

fn economics(profile: &GivebackProfile) -> SliceEconomics {
    SliceEconomics::of_giveback(profile, SLICE_BYTES, PAGE_BYTES).unwrap()
}

/// The built-in profile with refaults that cost so many GiB h per GiB.
fn refaults_cost(gib_hours: f64) -> SliceEconomics {
    let text = builtin_text("giveback").unwrap();
    let wanted = format!("refaults = {{ value = {gib_hours:?},");
    let text = text.replacen("refaults = { low = 0.00084, high = 0.0253,", &wanted, 1);
    assert!(text.contains(&wanted));
    economics(&GivebackProfile::parse(&text, "test.toml").unwrap())
}

/// The built-in profile in a currency in which a GiB is worth so much for an hour.
fn memory_is_worth(money: f64) -> SliceEconomics {
    let memory = format!(
        "\nmemory = {{ value = {money:?}, unit = \"EUR/GiB h\", source = \"test\" }}\nfrequency"
    );
    let text = builtin_text("giveback")
        .unwrap()
        .replacen("\nkind", "\ncurrency = \"EUR\"\nkind", 1)
        .replace("\"GiB h/", "\"EUR/")
        .replacen("\nfrequency", &memory, 1);
    economics(&GivebackProfile::parse(&text, "test.toml").unwrap())
}

fn built_in() -> SliceEconomics {
    economics(&builtin_giveback().unwrap())
}

fn governor(economics: Option<&SliceEconomics>, limits: LimitsConfig) -> AnyPolicy {
    let mut config = PolicyConfig::new(PolicyKind::Governor);
    config.limits = limits;
    AnyPolicy::new(&config, economics, SLICE_BYTES, PAGE_BYTES).unwrap()
}

/// A machine of which so many slices are in use, `freeable` of these by cache, and `off` are off.
/// Slices in use come first, then free ones, then those that are off.
#[derive(Debug, Clone, Copy)]
struct Machine {
    used: u32,
    freeable: u32,
    off: u32,
}

impl Machine {
    fn totals(self) -> MachineTotals {
        let pages = |slices: u32| SLICE_PAGES * u64::from(slices);
        MachineTotals {
            slice_pages: SLICE_PAGES,
            managed: pages(SLICES),
            free: pages(SLICES - self.used - self.off),
            offline: pages(self.off),
            freeable: pages(self.freeable),
            cache: pages(self.freeable),
            awake_reserve: Pages(64),
            nr_slices: SLICES,
            nr_empty: SLICES - self.used - self.off,
            nr_offline: self.off,
            nr_fixed: 0,
        }
    }

    fn rows(self) -> Vec<SliceRow> {
        let row = |id: u32| {
            let (on, used) = (id < SLICES - self.off, id < self.used);
            SliceRow {
                id: SliceId(id),
                state: if on { SliceState::Online } else { SliceState::Offline },
                price: on.then_some(Price(1000)),
                present: SLICE_PAGES,
                free: if used { Pages::ZERO } else { SLICE_PAGES },
                freeable: if used && id < self.freeable { SLICE_PAGES } else { Pages::ZERO },
            }
        };
        (0..SLICES).map(row).collect()
    }
}

fn step(
    policy: &mut AnyPolicy,
    step: u32,
    machine: Machine,
    events: &[PolicyEvent],
) -> PolicyDecision {
    let rows = machine.rows();
    let (time, totals) = (STEP * step, machine.totals());
    policy.step(&Observation { time, totals, rows: &rows, events })
}

fn count(decision: &PolicyDecision, wakes: bool) -> u32 {
    let requests = decision.requests.iter().filter(|request| request.op.wakes() == wakes);
    requests
        .map(|request| match request.op {
            RequestOp::Offline(_) | RequestOp::Online(_) => 1,
            _ => request.max_slices.unwrap(),
        })
        .sum()
}

/// Tasks waited for so many ms of the last second.
fn stalled(ms: u64) -> PolicyEvent {
    PolicyEvent::Stalled { waited: Duration::from_millis(ms), within: Duration::from_secs(1) }
}

fn reserve(mib: f64) -> LimitsConfig {
    LimitsConfig { burst_reserve_mib: mib, ..LimitsConfig::default() }
}

fn floor(mib: f64) -> LimitsConfig {
    LimitsConfig { floor_mib: mib, ..LimitsConfig::default() }
}

/// Half of the memory is needed for an hour, then a quarter for as long.
fn halves() -> DemandSeries {
    let needed = [vec![32; 720], vec![16; 720]].concat();
    DemandSeries { needed, slices: SLICES, used_at_start: SLICES }
}

#[test]
fn memory_goes_back_when_it_is_worth_more_than_it_costs() {
    let economics = built_in();
    let mut policy = governor(Some(&economics), LimitsConfig::default());
    let run = run(&mut policy, &halves(), &economics, STEP, |_, _, _| {});
    assert!(run.on[600] <= 34 && run.on[1400] <= 18, "{} {}", run.on[600], run.on[1400]);
    // 40 of 64 slices on average are 40 x 2 MiB for two hours.
    let most = 40.0 * SLICE_MIB / 1024.0 * 2.0;
    let saved = run.account.saved;
    assert!(saved > 0.95 * most && saved <= most, "{saved} of {most} GiB h");
    assert!(run.account.net() > 0.9 * saved, "{:?}", run.account);
}

#[test]
fn memory_stays_when_it_is_worth_less_than_it_costs() {
    // A GiB for an hour at 0.02 of a euro cent, and a CPU for an hour at 9 euros: used slices take
    // 15 hours to pay, and there are two.
    let economics = memory_is_worth(0.000_2);
    let mut policy = governor(Some(&economics), LimitsConfig::default());
    let series = halves();
    let run = run(&mut policy, &series, &economics, STEP, |_, _, _| {});
    // No more than its stake.
    assert!(run.account.emptied <= 2 && run.on[1439] >= 62, "{:?}", run.account);
    let cap = GovernorPolicy::loss_cap(&economics, STEP * 1440).0;
    assert!(run.account.net() >= -cap, "{:?}, {cap}", run.account);
}

#[test]
fn a_decision_names_the_unit_of_what_is_at_risk() {
    for (economics, unit) in
        [(built_in(), "GiB h at risk"), (memory_is_worth(0.005), "EUR at risk")]
    {
        let mut policy = governor(Some(&economics), LimitsConfig::default());
        let machine = Machine { used: 20, freeable: 0, off: 0 };
        let why = step(&mut policy, 1, machine, &[]).why.to_string();
        assert!(why.starts_with("switches off 4") && why.ends_with(unit), "{why}");
    }
}

/// Slices that the governor empties within a day while all cache that it drops is read again five
/// minutes later, and wakes the slice for that.
fn emptied_with_refaults(economics: &SliceEconomics) -> u32 {
    let mut policy = governor(Some(economics), LimitsConfig::default());
    let mut machine = Machine { used: SLICES, freeable: 40, off: 0 };
    let (mut events, mut emptied, mut back) = (Vec::new(), 0, VecDeque::new());
    for index in 0..17_280 {
        while back.front().is_some_and(|&(due, _)| due <= index) {
            let (_, slices) = back.pop_front().unwrap();
            machine.off -= slices;
            machine.used += slices;
            machine.freeable += slices;
            let (time, cause) = (STEP * index, WakeCause::Demand);
            events.push(PolicyEvent::Woken { time, slices, cause });
            events.push(PolicyEvent::Refaulted { pages: SLICE_PAGES * u64::from(slices) });
        }
        let decision = step(&mut policy, index, machine, &events);
        events.clear();
        for request in &decision.requests {
            // Cache that is kept is moved, for which there is no room.
            let keeps = request.cache == CacheChoice::Keep;
            let slices = request.max_slices.unwrap().min(machine.freeable);
            let slices = if keeps { 0 } else { slices };
            machine.used -= slices;
            machine.freeable -= slices;
            machine.off += slices;
            emptied += slices;
            let price = Price(1000 * u64::from(slices));
            let outcome = RequestOutcome {
                slices_done: slices,
                dropped: SLICE_PAGES * u64::from(slices),
                price_predicted: price,
                price_measured: price,
                reason: if slices == 0 { Reason::NoRoom } else { Reason::None },
                ..RequestOutcome::default()
            };
            events.push(PolicyEvent::Finished {
                op: request.op,
                outcome,
                max_slices: request.max_slices,
            });
            back.push_back((index + 60, slices));
        }
    }
    emptied
}

#[test]
fn dear_refaults_keep_the_cache() {
    let (cheap, dear) =
        (emptied_with_refaults(&refaults_cost(1e-6)), emptied_with_refaults(&refaults_cost(10.0)));
    // 1365 and 11232. An emptying cannot know whether its cache is read again; the share of cache
    // that stays and windows that double keep down how often that is tried.
    assert!(dear * 5 < cheap, "{dear} with dear refaults, {cheap} with cheap ones");
}

#[test]
fn the_stall_target_stops_it_and_wakes_slices_where_little_is_free() {
    let economics = built_in();
    for economics in [Some(&economics), None] {
        let mut policy = governor(economics, LimitsConfig::default());
        let roomy = Machine { used: 20, freeable: 0, off: 2 };
        let tight = Machine { used: 44, freeable: 30, off: 20 };
        // A millisecond of each second is allowed.
        assert!(count(&step(&mut policy, 1, roomy, &[stalled(1)]), false) > 0);
        let decision = step(&mut policy, 2, roomy, &[stalled(2)]);
        assert!(matches!(decision.why, DecisionReason::Stalled { wakes: 0, .. }));
        assert!(decision.requests.is_empty(), "{decision:?}");
        // It wakes ever more as long as tasks wait.
        let woken: Vec<u32> = (3..7)
            .map(|index| count(&step(&mut policy, index, tight, &[stalled(500)]), true))
            .collect();
        assert_eq!(woken, [1, 2, 4, 8]);
        let decision = step(&mut policy, 8, roomy, &[stalled(0)]);
        assert!(matches!(decision.why, DecisionReason::RestsAfterStall { .. }), "{decision:?}");
        let why = step(&mut policy, 9, tight, &[stalled(500)]).why.to_string();
        assert!(why.contains("500.0 ms per second, the target is 1 ms"), "{why}");
        assert!(count(&step(&mut policy, 20, roomy, &[]), false) > 0, "it goes on afterwards");
    }
}

#[test]
fn by_a_profile_of_dram_there_is_no_stall_target_unless_one_is_set() {
    let profile = ramslice_energy::builtin("thesis-parc").unwrap().unwrap();
    let machine = profile.machine.as_ref().unwrap();
    let economics =
        SliceEconomics::new(profile.state("parc").unwrap(), machine, SLICE_BYTES, PAGE_BYTES)
            .unwrap();
    for (stall_ms_per_second, stops) in [(None, false), (Some(5.0), true)] {
        let limits = LimitsConfig { stall_ms_per_second, ..LimitsConfig::default() };
        let mut policy = governor(Some(&economics), limits);
        let machine = Machine { used: 20, freeable: 0, off: 10 };
        let decision = step(&mut policy, 1, machine, &[stalled(100)]);
        assert_eq!(decision.requests.is_empty(), stops, "{decision:?}");
    }
}

#[test]
fn the_floor_stays_on() {
    let economics = built_in();
    for economics in [Some(&economics), None] {
        let mut policy = governor(economics, floor(100.0));
        let off = |policy: &mut AnyPolicy, index, off| {
            count(&step(policy, index, Machine { used: 4, freeable: 0, off }, &[]), false)
        };
        // 100 MiB are 50 of 64 slices.
        let asked = off(&mut policy, 1, 0);
        assert!(asked > 0 && asked <= 14, "{asked}");
        assert_eq!(off(&mut policy, 2, 14), 0);
    }
}

#[test]
fn the_burst_reserve_is_kept_free_and_restored() {
    let economics = built_in();
    for economics in [Some(&economics), None] {
        let mut policy = governor(economics, reserve(20.0));
        // 34 slices in use, 10 of the reserve and one of the kernel's leave 19.
        let machine = Machine { used: 34, freeable: 0, off: 0 };
        let asked = count(&step(&mut policy, 1, machine, &[]), false);
        assert!(asked > 0 && asked <= 19, "{asked}");
        let machine = Machine { used: 34, freeable: 0, off: 19 };
        assert!(step(&mut policy, 2, machine, &[]).requests.is_empty());
        // Three slices of the ten are used up; the kernel's 64 pages are in the fourth.
        let machine = Machine { used: 38, freeable: 0, off: 19 };
        let decision = step(&mut policy, 3, machine, &[]);
        assert_eq!((count(&decision, true), count(&decision, false)), (4, 0), "{decision:?}");
        let why = decision.why.to_string();
        assert!(
            why.contains(
                "3520 pages are free beyond the kernel's awake reserve, less than the burst \
                 reserve of 5120"
            ),
            "{why}"
        );
    }
}

#[test]
fn without_a_profile_little_goes_off_at_a_time_and_recent_cache_stays() {
    let mut policy = governor(None, LimitsConfig::default());
    let decision = step(&mut policy, 1, Machine { used: 60, freeable: 50, off: 0 }, &[]);
    // A sixteenth of the slices, all of them empty; then used ones.
    assert_eq!(count(&decision, false), 4);
    let decision = step(&mut policy, 2, Machine { used: 60, freeable: 50, off: 4 }, &[]);
    assert_eq!(decision.requests[0].cache, CacheChoice::Auto);
    let nothing = RequestOutcome { reason: Reason::NoRoom, ..RequestOutcome::default() };
    let event =
        PolicyEvent::Finished { op: RequestOp::Compact, outcome: nothing, max_slices: None };
    let decision = step(&mut policy, 3, Machine { used: 60, freeable: 50, off: 4 }, &[event]);
    assert!(matches!(decision.why, DecisionReason::DidNothing { .. }), "{decision:?}");
}

#[test]
fn without_a_profile_a_kept_empty_slice_does_not_keep_used_ones_on() {
    // Of a small zone, the awake reserve keeps one empty slice on, whatever is asked for.
    let mut policy = governor(None, LimitsConfig::default());
    let small = |used, nr_empty| {
        let machine = Machine { used, freeable: 0, off: 0 };
        let pages = |slices: u32| SLICE_PAGES * u64::from(slices);
        let totals = MachineTotals {
            managed: pages(16),
            free: pages(8),
            nr_slices: 16,
            nr_empty,
            ..machine.totals()
        };
        (totals, machine.rows()[..16].to_vec())
    };
    let (totals, rows) = small(15, 1);
    let mut events = Vec::new();
    let mut asked = Vec::new();
    for index in 0..40 {
        let seen = Observation { time: STEP * index, totals, rows: &rows, events: &events };
        let decision = policy.step(&seen);
        events.clear();
        for request in &decision.requests {
            let done = u32::from(request.op == RequestOp::Compact);
            let reason = if done == 0 { Reason::AwakeReserve } else { Reason::None };
            let outcome = RequestOutcome { slices_done: done, reason, ..RequestOutcome::default() };
            events.push(PolicyEvent::Finished {
                op: request.op,
                outcome,
                max_slices: request.max_slices,
            });
            asked.push((index, request.op));
        }
    }
    let empty: Vec<u32> = asked
        .iter()
        .filter(|(_, op)| *op == RequestOp::OfflineFree)
        .map(|&(index, _)| index)
        .collect();
    // After 30 s, 60 s and 120 s: looks are 5 s apart, and hear of it one later.
    assert_eq!(empty, [0, 7, 20], "{asked:?}");
    let used = asked.iter().filter(|(_, op)| *op == RequestOp::Compact).count();
    assert_eq!(used, 37, "{asked:?}");
}

#[test]
fn limits_are_set_and_not_restored_and_the_rest_goes_on() {
    let economics = built_in();
    for economics in [Some(&economics), None] {
        let mut policy = governor(economics, floor(100.0));
        step(&mut policy, 1, Machine { used: 20, freeable: 0, off: 10 }, &[stalled(100)]);
        let saved = policy.save().to_text();
        let mut restored = SavedPolicy::restore(&saved, PolicyKind::Governor).unwrap();
        assert_eq!(restored, policy);
        restored.take_limits(&governor(economics, LimitsConfig::default()));
        let machine = Machine { used: 4, freeable: 0, off: 14 };
        let rests = step(&mut restored, 2, machine, &[]);
        assert!(matches!(rests.why, DecisionReason::RestsAfterStall { .. }), "{rests:?}");
        assert!(step(&mut policy, 20, machine, &[]).requests.is_empty());
        assert!(count(&step(&mut restored, 20, machine, &[]), false) > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_request_breaks_a_limit_whatever_happens(
        floor_mib in 0.0f64..140.0,
        burst_reserve_mib in 0.0f64..60.0,
        by_profile in any::<bool>(),
        looks in proptest::collection::vec((0u32..=64, 0u32..=64, 0u32..=64, 0u64..4), 1..40),
    ) {
        let economics = built_in();
        let limits = LimitsConfig { floor_mib, burst_reserve_mib, stall_ms_per_second: Some(1.0) };
        let mut policy = governor(by_profile.then_some(&economics), limits);
        for (index, (used, freeable, off, stall_ms)) in looks.into_iter().enumerate() {
            let off = off.min(SLICES - used);
            let machine = Machine { used, freeable: freeable.min(used), off };
            let event = stalled(stall_ms);
            let decision = step(&mut policy, index as u32, machine, &[event]);
            let down = count(&decision, false);
            if down > 0 {
                prop_assert!(stall_ms <= 1);
                let on = f64::from(SLICES - off - down) * SLICE_MIB;
                prop_assert!(on >= floor_mib, "{on} MiB on: {decision:?}");
                let needed = f64::from(used - machine.freeable) * SLICE_MIB;
                prop_assert!(on - needed >= burst_reserve_mib, "{on} MiB on: {decision:?}");
            }
            prop_assert!(count(&decision, true) <= off);
        }
    }
}
