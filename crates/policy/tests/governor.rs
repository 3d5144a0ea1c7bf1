//! The governor: what it earns compared with the clairvoyant, and that it never loses more than it
//! may.

mod loads;
mod machine;

use std::time::Duration;

use loads::TestLoad;
use machine::{economics, machine};
use proptest::prelude::*;
use ramslice_policy::bench::{drive, run};
use ramslice_policy::clairvoyant::optimum;
use ramslice_policy::model::{DemandSeries, ModelState, SliceCosts};
use ramslice_policy::{
    DecisionReason, GovernorPolicy, GranuleLayout, MachineTotals, Observation, Policy,
    PolicyDecision, PolicyEvent, SliceRow, settings,
};
use ramslice_types::{
    Bytes, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId, SliceState,
    SplitMix64,
};

fn governor() -> GovernorPolicy {
    GovernorPolicy::new(settings::GovernorConfig::default(), economics())
}

fn off(decision: &PolicyDecision) -> u32 {
    let count = |request: &Request| match request.op {
        RequestOp::OfflineFree | RequestOp::Compact => request.max_slices.unwrap(),
        RequestOp::Offline(_) => 1,
        _ => 0,
    };
    decision.requests.iter().map(count).sum()
}

/// Seeds from here on were not looked at while the governor was written.
const FRESH: u64 = 77_000;

#[test]
fn earns_nine_tenths_of_the_clairvoyants_net_in_the_median() {
    let economics = economics();
    let (mut shares, mut total) = (Vec::new(), 0.0);
    for load in TestLoad::ALL {
        for seed in FRESH..FRESH + 6 {
            for (slices, step, steps) in [(32, 30.0, 2880), (96, 300.0, 2304)] {
                let series = load.series(seed, slices, step, steps);
                let best = optimum(&series, SliceCosts::new(&economics, step)).net();
                let step = Duration::from_secs_f64(step);
                let net =
                    run(&mut governor(), &series, &economics, step, |_, _, _| {}).account.net();
                assert!(
                    net <= best + 1e-6,
                    "{load:?} {seed}: {net} J are more than the clairvoyant's {best} J"
                );
                assert!(net > 0.0, "{load:?} {seed}: {net} J");
                shares.push(net / best);
                total += net;
            }
        }
    }
    shares.sort_by(f64::total_cmp);
    let (median, least) = (shares[shares.len() / 2], shares[0]);
    assert!(
        median >= 0.9 && total > 0.0,
        "median {median:.3}, least {least:.3}, total {total:.0} J"
    );
}

#[test]
fn gaps_that_never_pay_are_left_alone_once_that_is_known() {
    // Gaps are a little longer than the break-even time, or much shorter: neither waiting nor
    // acting at once pays.
    let economics = economics();
    let steps = |times: f64| (economics.break_even_of_emptying().0 * times / 30.0) as usize;
    let mut needed = Vec::new();
    for round in 0..300 {
        needed.extend(vec![20; 8]);
        needed.extend(vec![4; if round % 3 == 0 { steps(0.4) } else { steps(1.1) }]);
    }
    let series = DemandSeries { needed, slices: 20, used_at_start: 20 };
    let step = Duration::from_secs(30);
    let mut whys = Vec::new();
    run(&mut governor(), &series, &economics, step, |_, decision, _| whys.push(decision.why));
    let half = whys.len() / 2;
    let acts = |whys: &[DecisionReason]| {
        whys.iter().filter(|why| matches!(why, DecisionReason::Pays { .. })).count()
    };
    assert!(
        acts(&whys[..half]) > 0 && acts(&whys[half..]) == 0,
        "{} {}",
        acts(&whys),
        acts(&whys[half..])
    );
}

#[test]
fn gaps_that_barely_pay_are_used_at_once_when_they_are_known() {
    let economics = economics();
    let length = (economics.break_even_of_emptying().0 * 1.5 / 30.0) as usize;
    let needed: Vec<u32> =
        (0..200).flat_map(|_| [vec![20; length], vec![4; length]].concat()).collect();
    let series = DemandSeries { needed, slices: 20, used_at_start: 20 };
    let step = Duration::from_secs(30);
    let best = optimum(&series, SliceCosts::new(&economics, 30.0)).net();
    let net = run(&mut governor(), &series, &economics, step, |_, _, _| {}).account.net();
    // Waiting for the break-even time first would lose half of an emptying in each gap.
    assert!(net > 0.8 * best, "{net} of {best} J");
}

#[test]
fn days_that_repeat_teach_what_gaps_alone_do_not() {
    // The same day again and again; its gaps are short or long by chance, so that only the time of
    // day shows which.
    let economics = economics();
    let break_even = economics.break_even_of_emptying().0 / 30.0;
    let mut chance = SplitMix64::new(FRESH);
    let mut day = Vec::new();
    while day.len() < 2880 {
        let times =
            if chance.unit() < 0.5 { chance.between(0.2, 0.8) } else { chance.between(1.5, 4.0) };
        day.extend(vec![4; (break_even * times) as usize]);
        day.extend(vec![20; 10]);
    }
    day.truncate(2880);
    let series = DemandSeries { needed: day.repeat(8), slices: 20, used_at_start: 20 };
    let net = |day_seconds| {
        let settings =
            settings::GovernorConfig { day_seconds, ..settings::GovernorConfig::default() };
        let mut policy = GovernorPolicy::new(settings, economics);
        run(&mut policy, &series, &economics, Duration::from_secs(30), |_, _, _| {}).account.net()
    };
    let (with, without) = (net(86_400.0), net(0.0));
    assert!(with > without * 1.05, "{with} J with the time of day, {without} J without");
}

/// A load that sees what the governor has done and wants exactly that memory back.
#[derive(Debug, Clone, Copy)]
enum AdversaryLoad {
    /// As soon as anything is off, all is needed, for one step.
    AtOnce,
    /// When slices have been off for this many steps.
    After(u32),
    /// When this many are off.
    Once(u32),
    /// By chance.
    Sometimes(u64),
}

impl AdversaryLoad {
    fn demand(
        self,
        state: &ModelState,
        slices: u32,
        since: &mut u32,
        chance: &mut SplitMix64,
    ) -> u32 {
        *since = if state.off() > 0 { *since + 1 } else { 0 };
        let strikes = match self {
            Self::AtOnce => state.off() > 0,
            Self::After(steps) => *since > steps,
            Self::Once(count) => state.off() >= count.min(slices),
            Self::Sometimes(percent) => chance.unit() * 100.0 < percent as f64,
        };
        if strikes { slices } else { 1 + (chance.unit() * f64::from(slices) / 4.0) as u32 }
    }
}

fn adversary() -> impl Strategy<Value = AdversaryLoad> {
    prop_oneof![
        Just(AdversaryLoad::AtOnce),
        (1u32..80).prop_map(AdversaryLoad::After),
        (1u32..40).prop_map(AdversaryLoad::Once),
        (1u64..60).prop_map(AdversaryLoad::Sometimes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn never_loses_more_than_the_cap(
        who in adversary(), seed in any::<u64>(), slices in 1u32..40, seconds in 1u64..700,
            used in 0u32..40,
        calm in 0usize..400,
    ) {
        let economics = economics();
        let step = Duration::from_secs(seconds);
        let (mut chance, mut since, mut at) = (SplitMix64::new(seed), 0, 0);
        let demand = |state: &ModelState| {
            at += 1;
            // It lets the governor earn for a while, and then strikes.
            let striking = who.demand(state, slices, &mut since, &mut chance);
            (at <= 900).then_some(if at < calm { 1 } else { striking })
        };
        let mut broken = None;
        let watch = |index: usize, _: &PolicyDecision, state: &ModelState| {
            let cap = GovernorPolicy::loss_cap(&economics, step * u32::try_from(index).unwrap()).0;
            // Prices are whole units: a little is lost in rounding, for each request.
            if state.worst() < -cap - 1e-3 {
                broken = broken.or(Some((index, state.worst(), cap)));
            }
        };
        drive(&mut governor(), slices, used.min(slices), &economics, step, demand, watch);
        prop_assert_eq!(broken, None);
    }

    #[test]
    fn asks_for_nothing_while_it_backs_off(seed in any::<u64>(), slices in 2u32..40,
        seconds in 1u64..300) {
        let economics = economics();
        let (mut chance, mut since, mut at) = (SplitMix64::new(seed), 0, 0);
        let mut governor = governor();
        let demand = |state: &ModelState| {
            at += 1;
            (at <= 500).then_some(AdversaryLoad::AtOnce.demand(state, slices, &mut since,
                &mut chance))
        };
        let mut broken = false;
        let watch = |_: usize, decision: &PolicyDecision, _: &ModelState| {
            let backs_off = matches!(decision.why, DecisionReason::BackingOff { .. });
            broken |= backs_off && !decision.requests.is_empty();
        };
        drive(&mut governor, slices, slices, &economics, Duration::from_secs(seconds), demand,
            watch);
        prop_assert!(!broken);
    }

    #[test]
    fn same_observations_same_decisions_also_after_saving(seed in any::<u64>(),
        cut in 1usize..200) {
        let economics = economics();
        let series = TestLoad::Bursty.series(seed, 24, 30.0, 200);
        let step = Duration::from_secs(30);
        let decisions = |policy: &mut dyn Policy| {
            let mut all = Vec::new();
            run(policy, &series, &economics, step, |_, decision, _| all.push(decision.clone()));
            all
        };
        let mut through_json = RestoredMidway { policy: governor(), at: 0, cut };
        prop_assert_eq!(decisions(&mut governor()), decisions(&mut through_json));
    }

    #[test]
    fn leaves_the_margin_awake(
        used in 0u64..100_000, cache in 0u64..50_000, reserve in 0u64..20_000,
            off_slices in 0u32..100,
        fixed in 0u32..20, minutes in 0u64..100,
    ) {
        let slice = Pages(1024);
        let managed = slice * 128;
        let offline = slice * u64::from(off_slices);
        prop_assume!(used + offline.0 <= managed.0);
        let totals = MachineTotals {
            slice_pages: slice,
            managed,
            free: managed - Pages(used) - offline,
            offline,
            freeable: Pages(cache.min(used)),
            cache: Pages(cache.min(used)),
            awake_reserve: Pages(reserve),
            nr_slices: 128,
            nr_empty: 0,
            nr_offline: off_slices,
            nr_fixed: fixed.min(128 - off_slices),
        };
        let rows: Vec<SliceRow> = (0..128).map(|id| SliceRow {
            id: SliceId(id),
            state: if id < off_slices { SliceState::Offline } else { SliceState::Online },
            price: Some(Price(1000 * u64::from(id))),
            present: slice,
            free: Pages(1),
            freeable: Pages::ZERO,
        }).collect();
        let mut governor = governor();
        for minute in 0..=minutes {
            let time = Duration::from_secs(60 * minute);
            let decision = governor.step(&Observation { time, totals, rows: &rows, events: &[] });
            let on = 128 - off_slices - off(&decision);
            prop_assert!(decision.requests.is_empty() || on >= totals.nr_fixed);
            let needed = totals.needed() + Pages(2 * reserve);
            let enough = slice * u64::from(on) >= needed;
            prop_assert!(decision.requests.is_empty() || enough, "{on} slices for {needed} pages");
        }
    }
}

/// Goes through JSON once, in the middle of a run.
#[derive(Debug)]
struct RestoredMidway {
    policy: GovernorPolicy,
    at: usize,
    cut: usize,
}

impl Policy for RestoredMidway {
    fn kind(&self) -> ramslice_policy::PolicyKind {
        self.policy.kind()
    }

    fn needs(&self) -> ramslice_policy::ObservationNeeds {
        self.policy.needs()
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        self.at += 1;
        if self.at == self.cut {
            self.policy =
                serde_json::from_str(&serde_json::to_string(&self.policy).unwrap()).unwrap();
        }
        self.policy.step(seen)
    }
}

/// Steps of a minute until it asks for something; the time and the decision.
fn until_it_acts(
    governor: &mut GovernorPolicy,
    totals: MachineTotals,
    rows: &[SliceRow],
    from: u64,
) -> Option<(u64, PolicyDecision)> {
    (from..from + 24 * 60).find_map(|minute| {
        let seen =
            Observation { time: Duration::from_secs(60 * minute), totals, rows, events: &[] };
        let decision = governor.step(&seen);
        (!decision.requests.is_empty()).then_some((minute, decision))
    })
}

#[test]
fn cache_that_comes_back_counts_as_needed() {
    let (totals, rows) = machine(63, 40, 0);
    let mut fresh = governor();
    let (minute, first) = until_it_acts(&mut fresh, totals, &rows, 0).unwrap();
    assert!(off(&first) > 0, "{first:?}");
    // It dropped cache, and all of it was read again.
    let outcome = RequestOutcome {
        slices_done: 1,
        dropped: Pages(200_000),
        price_predicted: Price(9_000_000),
        ..RequestOutcome::default()
    };
    let events = [
        PolicyEvent::Finished { op: RequestOp::Compact, outcome, max_slices: None },
        PolicyEvent::Refaulted { pages: Pages(200_000) },
    ];
    let (totals, rows) = machine(62, 40, 1);
    let time = Duration::from_secs(60 * (minute + 1));
    let after = fresh.step(&Observation { time, totals, rows: &rows, events: &events });
    assert!(after.requests.is_empty(), "{after:?}");
    assert!(after.forecast.unwrap().slices >= 63, "{after:?}");
    // 40 slices could be spared without their cache, but it waits for long.
    let next = until_it_acts(&mut fresh, totals, &rows, minute + 2).map(|(at, _)| at - minute);
    assert!(next.is_none_or(|minutes| minutes > 30), "{next:?}");
}

#[test]
fn a_request_that_does_nothing_is_not_repeated_at_once() {
    // Of empty slices, it is the kernel's awake reserve that keeps them on.
    for (op, used, nr_empty) in [(RequestOp::Compact, 20, 0), (RequestOp::OfflineFree, 61, 3)] {
        not_repeated_at_once(&op, used, nr_empty);
    }
}

fn not_repeated_at_once(op: &RequestOp, used: u64, nr_empty: u32) {
    let (totals, rows) = machine(used, 0, 0);
    let totals = MachineTotals { nr_empty, ..totals };
    let mut governor = governor();
    let (mut minute, first) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    assert_eq!(first.requests.iter().map(|request| &request.op).collect::<Vec<_>>(), [op]);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let events = [PolicyEvent::Finished {
            op: *op,
            outcome: RequestOutcome::default(),
            max_slices: None,
        }];
        let time = Duration::from_secs(60 * (minute + 1));
        let rested = governor.step(&Observation { time, totals, rows: &rows, events: &events });
        let at = if rested.requests.is_empty() {
            until_it_acts(&mut governor, totals, &rows, minute + 2).unwrap().0
        } else {
            minute + 1
        };
        pauses.push(at - minute);
        minute = at;
    }
    assert!(
        pauses.windows(2).all(|pair| pair[1] >= pair[0]) && pauses[5] >= 8,
        "{op:?} {pauses:?}"
    );
}

#[test]
fn slices_that_save_nothing_alone_are_left_on_if_it_is_not_known_which_go_together() {
    let (totals, rows) = machine(20, 0, 0);
    let (unit, slice) = (Some(Bytes(4 << 30)), Bytes(1 << 30));
    let economics = economics().switched_as_one(unit, slice, GranuleLayout::Unknown);
    let mut governor = GovernorPolicy::new(settings::GovernorConfig::default(), economics);
    assert!(until_it_acts(&mut governor, totals, &rows, 0).is_none());
    let time = Duration::from_hours(25);
    let decision = governor.step(&Observation { time, totals, rows: &rows, events: &[] });
    assert_eq!(decision.why, DecisionReason::TooSmall { slices: 4 });
    assert!(decision.why.to_string().contains("4 slices as one"), "{}", decision.why);
}

/// What came of a request that did nothing, for this reason.
fn nothing_done(reason: Reason) -> [PolicyEvent; 1] {
    [PolicyEvent::Finished {
        op: RequestOp::Compact,
        outcome: RequestOutcome { reason, ..RequestOutcome::default() },
        max_slices: None,
    }]
}

#[test]
fn empty_slices_go_off_though_a_request_for_used_ones_found_no_room() {
    let (totals, rows) = machine(20, 0, 0);
    let mut governor = governor();
    let (minute, _) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    let time = Duration::from_secs(60 * minute + 10);
    let empty = MachineTotals { nr_empty: 3, ..totals };
    let events = nothing_done(Reason::NoRoom);
    let decision =
        governor.step(&Observation { time, totals: empty, rows: &rows, events: &events });
    let ops: Vec<(RequestOp, Option<u32>)> =
        decision.requests.iter().map(|request| (request.op, request.max_slices)).collect();
    assert_eq!(ops, [(RequestOp::OfflineFree, Some(3))], "{decision:?}");
}

#[test]
fn used_slices_go_off_though_the_reserve_keeps_empty_ones_on() {
    let (totals, rows) = machine(20, 0, 0);
    let mut governor = governor();
    // The demand of a day is known, and one empty slice stays on, however often it is asked for.
    let (minute, _) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    let kept = MachineTotals { nr_empty: 1, ..totals };
    let refused = [PolicyEvent::Finished {
        op: RequestOp::OfflineFree,
        outcome: RequestOutcome { reason: Reason::AwakeReserve, ..RequestOutcome::default() },
        max_slices: Some(1),
    }];
    let time = Duration::from_secs(60 * minute + 10);
    let seen = Observation { time, totals: kept, rows: &rows, events: &refused };
    let decision = governor.step(&seen);
    let ops: Vec<_> = decision.requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [RequestOp::Compact], "{decision:?}");
    // 20 slices and the margin are needed, and the empty one is on besides.
    assert!(off(&decision) < 64 - 21, "{decision:?}");
    // Where nothing else is spare, it says why.
    let (few, rows) = machine(62, 0, 0);
    let few = MachineTotals { nr_empty: 1, ..few };
    let time = time + Duration::from_secs(1);
    let rests = governor.step(&Observation { time, totals: few, rows: &rows, events: &[] });
    assert!(matches!(rests.why, DecisionReason::DidNothing { .. }), "{rests:?}");
}

#[test]
fn tries_again_when_demand_has_fallen_since_there_was_no_room() {
    let (totals, rows) = machine(40, 0, 0);
    let waits = |used| {
        let mut governor = governor();
        let (minute, _) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
        let mut at = minute;
        for _ in 0..5 {
            let time = Duration::from_secs(60 * (at + 1));
            let events = nothing_done(Reason::NoRoom);
            governor.step(&Observation { time, totals, rows: &rows, events: &events });
            at = until_it_acts(&mut governor, totals, &rows, at + 2).unwrap().0;
        }
        let (later, rows) = machine(used, 0, 0);
        let time = Duration::from_secs(60 * (at + 1));
        governor.step(&Observation {
            time,
            totals,
            rows: &rows,
            events: &nothing_done(Reason::NoRoom),
        });
        until_it_acts(&mut governor, later, &rows, at + 2).unwrap().0 - at
    };
    let (same, less) = (waits(40), waits(39));
    assert!(same > 10 && less < 5, "{same} {less} minutes");
}

#[test]
fn a_budget_that_was_too_low_for_any_slice_is_raised_up_to_a_full_slice() {
    let (totals, rows) = machine(20, 0, 0);
    let mut governor = governor();
    let mut minute = 0;
    let mut budgets = Vec::new();
    for _ in 0..12 {
        let (at, decision) = until_it_acts(&mut governor, totals, &rows, minute).unwrap();
        budgets.push(decision.requests[0].budget.raw());
        minute = at + 1;
        let (time, events) = (Duration::from_secs(60 * minute), nothing_done(Reason::OverBudget));
        let refused = governor.step(&Observation { time, totals, rows: &rows, events: &events });
        if let Some(request) = refused.requests.first() {
            budgets.push(request.budget.raw());
        }
        minute += 1;
    }
    // Rows say 10 million units; a full slice is 2 * 4.49 J, and prices may be off by a quarter.
    let economics = economics();
    let most = economics.price(economics.emptying + economics.emptying).0 as f64 * 1.26;
    assert!(budgets[0] < 13_000_000, "{budgets:?}");
    assert!(budgets.windows(2).all(|pair| pair[1] >= pair[0]), "{budgets:?}");
    assert!(budgets.iter().any(|&budget| budget > 30_000_000), "{budgets:?}");
    assert!(budgets.iter().all(|&budget| budget as f64 <= most), "{budgets:?}");
}

#[test]
fn says_why_and_what_it_expects() {
    let series = TestLoad::Diurnal.series(FRESH, 24, 30.0, 600);
    let mut sentences = Vec::new();
    run(&mut governor(), &series, &economics(), Duration::from_secs(30), |_, decision, _| {
        sentences.push(format!("{}; {}", decision.why, decision.forecast.unwrap()));
    });
    assert!(
        sentences[0].contains("slices needed within")
            && sentences[0].contains("no forecast could be checked yet")
    );
    assert!(sentences[599].contains("slices on average"), "{}", sentences[599]);
    assert!(sentences.iter().any(|text| text.contains("switches off")));
    assert!(sentences.iter().any(|text| text.contains("does nothing")));
}

#[test]
fn after_a_cold_start_empty_slices_go_first_and_used_ones_once_they_would_have_paid() {
    let (totals, rows) = machine(20, 0, 0);
    let totals = MachineTotals { nr_empty: 7, ..totals };
    let mut governor = governor();
    let first =
        governor.step(&Observation { time: Duration::ZERO, totals, rows: &rows, events: &[] });
    let ops: Vec<_> = first.requests.iter().map(|request| (request.op, off(&first))).collect();
    assert_eq!(ops, [(RequestOp::OfflineFree, 7)], "{first:?}");
    // What is used has to be idle for a break-even time: there was no gap to learn from.
    let totals = MachineTotals { nr_empty: 0, ..totals };
    let (minute, next) = until_it_acts(&mut governor, totals, &rows, 1).unwrap();
    assert_eq!(next.requests[0].op, RequestOp::Compact);
    let price = economics().cost(rows[0].price.unwrap()) + economics().waking;
    let pays = economics().break_even(price).0;
    assert!(minute as f64 * 60.0 >= pays && (minute - 2) as f64 * 60.0 < pays, "{minute} {pays}");
}

#[test]
fn a_run_that_ends_before_anything_paid_costs_no_more_than_empty_slices() {
    // Used memory falls, and all of it is wanted again before a slice would have paid.
    let economics = economics();
    let steps = (economics.break_even_of_emptying().0 * 0.9 / 30.0) as usize;
    let needed = [vec![20; 2], vec![4; steps], vec![20; 2]].concat();
    let series = DemandSeries { needed, slices: 20, used_at_start: 20 };
    let step = Duration::from_secs(30);
    let net = run(&mut governor(), &series, &economics, step, |_, _, _| {}).account.net();
    assert!(net >= -20.0 * economics.empty.0, "{net} J");
}
