//! The governor where the hardware switches several slices as one: it empties whole granules of
//! them, and prices, earnings and wakes are those of granules.

mod loads;
mod machine;

use std::time::Duration;

use loads::TestLoad;
use machine::{economics, machine};
use proptest::prelude::*;
use ramslice_energy::{EnergyLedger, EnergySample};
use ramslice_policy::settings::{GovernorConfig, LimitsConfig};
use ramslice_policy::{
    DecisionReason, GovernorPolicy, GranuleLayout, MachineTotals, Observation, Policy,
    PolicyDecision, PolicyEvent, SliceEconomics, SliceRow, TenantLimits,
};
use ramslice_types::{
    Bytes, Pages, Price, Reason, RequestOp, RequestOutcome, SliceId, SliceState, WorkCounters,
};

const GIB: Bytes = Bytes(1 << 30);
/// Slices of a granule.
const GRANULE: u32 = 4;

fn governor(economics: SliceEconomics) -> GovernorPolicy {
    GovernorPolicy::new(GovernorConfig::default(), economics)
}

fn offlined(decision: &PolicyDecision) -> Vec<u32> {
    let id = |op| if let RequestOp::Offline(id) = op { Some(id.0) } else { None };
    decision.requests.iter().filter_map(|request| id(request.op)).collect()
}

fn woken(decision: &PolicyDecision) -> Vec<u32> {
    let id = |op| if let RequestOp::Online(id) = op { Some(id.0) } else { None };
    decision.requests.iter().filter_map(|request| id(request.op)).collect()
}

/// Rows of used slices with these prices in millions; without one, it stays on.
fn rows_of(prices: &[Option<u64>]) -> (MachineTotals, Vec<SliceRow>) {
    let (_, rows) = machine(1, 0, 0);
    let nr_slices = prices.len() as u32;
    let price = |millions: &Option<u64>| millions.map(|price| Price(price * 1_000_000));
    let row =
        |(id, one): (u32, &Option<u64>)| SliceRow { id: SliceId(id), price: price(one), ..rows[0] };
    let slice_pages = rows[0].present;
    let totals = MachineTotals {
        slice_pages,
        managed: slice_pages * u64::from(nr_slices),
        free: slice_pages * u64::from(nr_slices - 1),
        awake_reserve: Pages(1000),
        nr_slices,
        ..MachineTotals::default()
    };
    (totals, (0..).zip(prices).map(row).collect())
}

/// Steps of a minute until it asks for something.
fn until_it_acts(
    governor: &mut GovernorPolicy,
    totals: MachineTotals,
    rows: &[SliceRow],
    from: u64,
) -> Option<(u64, PolicyDecision)> {
    (from..from + 24 * 60).find_map(|minute| {
        let time = Duration::from_secs(60 * minute);
        let decision = governor.step(&Observation { time, totals, rows, events: &[] });
        (!decision.requests.is_empty()).then_some((minute, decision))
    })
}

fn of_granules() -> GovernorPolicy {
    let layout = GranuleLayout::Neighbours;
    governor(economics().switched_as_one(Some(Bytes(4 * GIB.0)), GIB, layout))
}

fn at(minute: u64) -> Duration {
    Duration::from_secs(60 * minute)
}

/// How the request for a slice went.
fn finished(slice: u32, reason: Reason) -> PolicyEvent {
    let outcome = RequestOutcome {
        slices_done: u32::from(reason == Reason::None),
        reason,
        price_predicted: Price(1_000_000),
        ..RequestOutcome::default()
    };
    PolicyEvent::Finished { op: RequestOp::Offline(SliceId(slice)), outcome, max_slices: None }
}

fn seen<'a>(
    minute: u64,
    totals: MachineTotals,
    rows: &'a [SliceRow],
    events: &'a [PolicyEvent],
) -> Observation<'a> {
    Observation { time: at(minute), totals, rows, events }
}

fn switch_off(totals: &mut MachineTotals, rows: &mut [SliceRow], slices: &[usize]) {
    for &slice in slices {
        rows[slice].state = SliceState::Offline;
        totals.nr_offline += 1;
        totals.offline += totals.slice_pages;
        totals.free = totals.free - totals.slice_pages;
    }
}

#[test]
fn the_granule_that_is_cheapest_to_complete_goes_first_and_its_dearest_slice_before_the_others() {
    let (cheap, dear, stays) = (Some(1), Some(12), None);
    let granules = [
        // Three are cheap, but one stays.
        [cheap, cheap, cheap, stays],
        [cheap, cheap, cheap, dear],
        [Some(2), Some(3), Some(4), Some(3)],
        [dear; 4],
    ];
    let (totals, rows) = rows_of(&granules.concat());
    let (_, decision) = until_it_acts(&mut of_granules(), totals, &rows, 0).unwrap();
    assert_eq!(offlined(&decision)[..4], [10, 11, 9, 8], "{decision:?}");
    assert_eq!(decision.requests.len(), decision.groups.iter().sum::<usize>());
    assert!(decision.groups.iter().all(|group| *group == 4));
    assert!(!offlined(&decision).iter().any(|id| *id < 4), "{decision:?}");
    // What is spent on each is what it is expected to cost, and a little more.
    let budgets: Vec<_> = decision.requests[..4].iter().map(|one| one.budget.raw()).collect();
    for (budget, price) in budgets.into_iter().zip([4.0, 3.0, 3.0, 2.0]) {
        assert!((budget as f64 - 1.25e6 * price).abs() < 10.0, "{budget} for {price}");
    }
}

/// With so many slices in use.
fn in_use(totals: MachineTotals, slices: u64) -> MachineTotals {
    let used = totals.slice_pages * slices - totals.awake_reserve * 2;
    MachineTotals { free: totals.managed - totals.offline - used, ..totals }
}

#[test]
fn where_one_granule_is_spare_the_cheapest_goes_wherever_it_lies() {
    let (totals, rows) = rows_of(&[[Some(4); 4], [Some(3); 4], [Some(5); 4]].concat());
    let spare = in_use(totals, 8);
    let mut governor = of_granules();
    // All of them have waited for long enough once they can be emptied.
    let stay: Vec<_> = rows.iter().map(|row| SliceRow { price: None, ..*row }).collect();
    assert!(until_it_acts(&mut governor, spare, &stay, 0).is_none());
    let decision = governor.step(&seen(25 * 60, spare, &rows, &[]));
    assert_eq!(offlined(&decision), [7, 6, 5, 4], "{decision:?}");
}

#[test]
fn a_granule_waits_by_what_all_of_it_earns_for_the_slice_of_it_that_was_needed_last() {
    let (totals, rows) = rows_of(&[Some(3); 8]);
    let economics = economics();
    let slice = economics.break_even(economics.cost(Price(3_000_000)) + economics.waking);
    let mut governor = of_granules();
    for minute in 0..60 {
        let five = in_use(totals, 5);
        let decision = governor.step(&seen(minute, five, &rows, &[]));
        assert!(decision.requests.is_empty(), "{decision:?}");
    }
    // The fifth slice was needed until now, the last three never.
    let four = in_use(totals, 4);
    let decision = governor.step(&seen(60, four, &rows, &[]));
    let DecisionReason::Waits { idle, break_even, .. } = decision.why else {
        panic!("{decision:?}")
    };
    assert!(idle < Duration::from_secs(1), "{idle:?}");
    assert!((break_even.as_secs_f64() - slice.0).abs() < 1.0, "{break_even:?} {slice:?}");
    let (minute, _) = until_it_acts(&mut governor, four, &rows, 61).unwrap();
    let waited = (minute - 60) as f64 * 60.0;
    assert!(waited >= slice.0 && waited < slice.0 + 120.0, "{waited} {slice:?}");
}

#[test]
fn empty_granules_that_the_awake_reserve_keeps_on_are_not_asked_for_at_once_again() {
    let (totals, mut rows) = rows_of(&[Some(1); 12]);
    for row in &mut rows {
        row.free = row.present;
    }
    let totals = MachineTotals { nr_empty: 12, ..totals };
    let mut governor = of_granules();
    let first = governor.step(&seen(0, totals, &rows, &[]));
    assert_eq!(offlined(&first), [11, 10, 9, 8, 7, 6, 5, 4], "{first:?}");
    let failed = [finished(11, Reason::AwakeReserve), finished(7, Reason::AwakeReserve)];
    let time = at(0) + Duration::from_secs(10);
    let again = governor.step(&Observation { time, ..seen(0, totals, &rows, &failed) });
    assert_eq!(again.requests, [], "{again:?}");
    let (minute, _) = until_it_acts(&mut governor, totals, &rows, 1).unwrap();
    assert!(minute < 5, "{minute}");
}

#[test]
fn a_slice_that_cost_more_than_its_budget_gets_a_larger_one_at_the_next_step() {
    let (totals, rows) = rows_of(&[Some(3); 8]);
    let mut governor = of_granules();
    let (minute, first) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    let events = [finished(7, Reason::OverBudget)];
    // Dearer slices wait for longer, but not for a pause.
    let (at, again) = (minute + 1..minute + 10)
        .find_map(|at| {
            let events = if at == minute + 1 { &events[..] } else { &[] };
            let decision = governor.step(&seen(at, totals, &rows, events));
            let budget = |one: &ramslice_types::Request| one.budget.raw();
            assert!(!matches!(decision.why, DecisionReason::DidNothing { .. }), "{decision:?}");
            decision.requests.first().map(|one| (at, budget(one)))
        })
        .unwrap();
    let before = first.requests[0].budget.raw();
    assert!(again > before * 14 / 10 && again < before * 16 / 10, "{at}: {before} {again}");
}

#[test]
fn what_another_mode_had_switched_off_is_not_woken() {
    let (totals, rows) = rows_of(&[Some(3); 8]);
    let mut governor = of_granules();
    let (minute, _) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    let (mut partly, mut partly_rows) = (totals, rows.clone());
    switch_off(&mut partly, &mut partly_rows, &[6, 7]);
    let events = [finished(7, Reason::None), finished(6, Reason::None)];
    governor.step(&seen(minute + 1, partly, &partly_rows, &events));
    let mut settled = governor.clone();
    partly_rows[5].price = None;
    // A slice on its way may soon be where it can be emptied.
    partly_rows[4].state = SliceState::Waking;
    assert!(woken(&governor.clone().step(&seen(minute + 2, partly, &partly_rows, &[]))).is_empty());
    partly_rows[4].state = SliceState::Online;
    let decision = governor.step(&seen(minute + 2, partly, &partly_rows, &[]));
    assert_eq!(woken(&decision), [6, 7], "{decision:?}");
    settled.settle();
    assert!(woken(&settled.step(&seen(minute + 2, partly, &partly_rows, &[]))).is_empty());
}

#[test]
fn slices_of_one_way_go_together_where_slices_take_turns() {
    let layout = GranuleLayout::SameWay { ways: 2 };
    let economics = economics().switched_as_one(Some(Bytes(2 * GIB.0)), GIB, layout);
    let (cheap, stays) = (Some(1), None);
    let (totals, rows) = rows_of(&[stays, cheap, cheap, cheap, stays, stays, cheap, stays]);
    let (_, decision) = until_it_acts(&mut governor(economics), totals, &rows, 0).unwrap();
    assert_eq!(offlined(&decision), [3, 1], "{decision:?}");
}

#[test]
fn nothing_goes_off_where_every_granule_has_a_slice_that_stays_or_is_not_there() {
    let (totals, mut rows) = rows_of(&[Some(1), Some(1), None, Some(1), Some(1), Some(1), Some(1)]);
    let mut governor = of_granules();
    assert!(until_it_acts(&mut governor, totals, &rows, 0).is_none());
    let time = Duration::from_hours(25);
    let seen = Observation { time, totals, rows: &rows, events: &[] };
    let why = governor.step(&seen).why;
    assert_eq!(why, DecisionReason::NoGranule { spare: 5, slices: 4 });
    assert!(why.to_string().contains("no 4 of them that the hardware switches"), "{why}");
    // Of four neighbours, one is at work on its state.
    rows[2] = SliceRow { price: Some(Price(1)), state: SliceState::Waking, ..rows[2] };
    assert!(until_it_acts(&mut governor, totals, &rows, 26 * 60).is_none());
}

#[test]
fn a_granule_of_which_one_slice_is_on_takes_that_one_slice() {
    let (mut totals, mut rows) = rows_of(&[Some(3); 12]);
    switch_off(&mut totals, &mut rows, &[4, 5, 7]);
    let (_, decision) = until_it_acts(&mut of_granules(), totals, &rows, 0).unwrap();
    assert_eq!(offlined(&decision)[0], 6, "{decision:?}");
    assert_eq!(decision.groups[0], 1);
    // With a slice of memory to spare, that is all that goes.
    let need = totals.slice_pages * 8 - Pages(3000);
    let few = MachineTotals { free: totals.managed - totals.offline - need, ..totals };
    let (_, decision) = until_it_acts(&mut of_granules(), few, &rows, 0).unwrap();
    assert_eq!(offlined(&decision), [6], "{decision:?}");
}

#[test]
fn what_went_off_in_vain_wakes_after_a_second_failure_or_once_a_slice_stays() {
    let (totals, rows) = rows_of(&[Some(3); 8]);
    let mut governor = of_granules();
    let (minute, first) = until_it_acts(&mut governor, totals, &rows, 0).unwrap();
    assert_eq!(offlined(&first)[..4], [7, 6, 5, 4]);
    let (mut partly, mut partly_rows) = (totals, rows.clone());
    switch_off(&mut partly, &mut partly_rows, &[6, 7]);
    // There was no room for the third, and the fourth was not tried: it may be there later.
    let no_room =
        [finished(7, Reason::None), finished(6, Reason::None), finished(5, Reason::NoRoom)];
    let soon = |minute, events| Observation {
        time: at(minute) + Duration::from_secs(10),
        ..seen(minute, partly, &partly_rows, events)
    };
    let decision = governor.step(&soon(minute, &no_room));
    assert_eq!(decision.requests, [], "{decision:?}");
    let mut other = governor.clone();
    let (later, again) = until_it_acts(&mut governor, partly, &partly_rows, minute + 1).unwrap();
    assert_eq!(offlined(&again)[..2], [5, 4], "{again:?}");
    let failed = [finished(5, Reason::NoRoom)];
    let decision = governor.step(&soon(later, &failed));
    assert_eq!(woken(&decision), [6, 7], "{decision:?}");
    assert_eq!(decision.why, DecisionReason::GivesBack { slices: 2 });
    // The same at once if one of the others cannot go off.
    partly_rows[5].price = None;
    let decision = other.step(&seen(minute + 1, partly, &partly_rows, &[]));
    assert_eq!(woken(&decision), [6, 7], "{decision:?}");
    // Then it is left alone for a while: other granules come first.
    let next = until_it_acts(&mut governor, totals, &rows, later + 1);
    let (minute, decision) = next.unwrap();
    assert!(minute < later + 60 && offlined(&decision) == [3, 2, 1, 0], "{decision:?}");
}

#[test]
fn what_others_switched_off_is_not_woken() {
    let (mut totals, mut rows) = rows_of(&[Some(3), None, None, Some(3), None, None, None, None]);
    switch_off(&mut totals, &mut rows, &[0, 3]);
    assert!(until_it_acts(&mut of_granules(), totals, &rows, 0).is_none());
}

#[test]
fn limits_wake_slices_that_save_nothing_first() {
    let layout = GranuleLayout::Neighbours;
    let economics = economics().switched_as_one(Some(Bytes(4 * GIB.0)), GIB, layout);
    let config = LimitsConfig { burst_reserve_mib: 6.0 * 1024.0, ..LimitsConfig::default() };
    let limits = TenantLimits::new(&config, economics.worth_unit, Bytes(4096));
    let mut governor = governor(economics).within(limits);
    let (mut totals, mut rows) = rows_of(&[Some(3); 12]);
    switch_off(&mut totals, &mut rows, &[0, 1, 2, 3, 5, 6, 7]);
    totals.free = totals.slice_pages * 2 + totals.awake_reserve;
    let decision = governor.step(&Observation { time: at(0), totals, rows: &rows, events: &[] });
    assert_eq!(woken(&decision), [5, 6, 7, 0], "{decision:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn where_a_slice_is_switched_alone_decisions_are_the_same(seed in any::<u64>(),
        finer in 0u32..5, ways in 1u32..5) {
        let (alone, slice) = (economics(), GIB);
        let unit = (finer < 4).then_some(Bytes(slice.0 >> finer));
        let as_one = alone.switched_as_one(unit, slice, GranuleLayout::SameWay { ways });
        let series = TestLoad::Bursty.series(seed, 24, 30.0, 200);
        let step = Duration::from_secs(30);
        let decisions = |economics: SliceEconomics| {
            let (mut all, mut policy) = (Vec::new(), governor(economics));
            ramslice_policy::bench::run(&mut policy, &series, &alone, step, |_, decision, _| {
                all.push(decision.clone());
            });
            (all, serde_json::to_string(&policy).unwrap())
        };
        let (plain, granules) = (decisions(alone), decisions(as_one));
        prop_assert!(plain.0.iter().all(|decision| decision.groups.is_empty()));
        prop_assert_eq!(plain, granules);
    }

    #[test]
    fn what_the_governor_completes_is_what_the_ledger_counts(
        off in proptest::collection::vec(any::<bool>(), 1..100), ways in 1u32..4,
        unit in 2u64..7, slice in 1u64..4,
    ) {
        let (slice, unit) = (Bytes(slice << 30), Bytes(unit << 30));
        prop_assume!(unit > slice);
        let layout =
            if ways == 1 { GranuleLayout::Neighbours } else { GranuleLayout::SameWay { ways } };
        let economics = economics().switched_as_one(Some(unit), slice, layout);
        // Only what is off in whole granules: the ledger may count parts of those of several units.
        let granule = |id: u32| economics.granule_of(SliceId(id));
        let slices = || 0..off.len() as u32;
        let whole = |id: u32| {
            let neighbours = slices().filter(|other| granule(*other) == granule(id));
            let off = neighbours.filter(|other| off[*other as usize]).count();
            off as u32 == economics.granule_slices()
        };
        let state = |id| if whole(id) { SliceState::Offline } else { SliceState::Online };
        let sample = |second| EnergySample {
            time: Duration::from_secs(second),
            event_seq: 0,
            slice_bytes: slice,
            segments: Vec::new(),
            ways,
            states: (0..off.len() as u32).map(|id| (SliceId(id), state(id))).collect(),
            resting: Bytes(0),
            accessed: None,
            work: WorkCounters::default(),
        };
        let mut ledger = EnergyLedger::new(Some(unit));
        ledger.add(sample(0)).unwrap();
        ledger.add(sample(1)).unwrap();
        let all = (0..off.len() as u32).filter(|id| whole(*id)).count() as u64 * slice.0;
        prop_assert_eq!(ledger.tally().off_low_byte_us, u128::from(all) * 1_000_000);
        // And where a unit is whole slices, nothing else does.
        if unit.0.is_multiple_of(slice.0) {
            let states = |sample: EnergySample| EnergySample {
                states: (0..).map(SliceId).zip(off.iter().map(|off| {
                    if *off { SliceState::Offline } else { SliceState::Online }
                })).collect(),
                ..sample
            };
            let mut ledger = EnergyLedger::new(Some(unit));
            ledger.add(states(sample(0))).unwrap();
            ledger.add(states(sample(1))).unwrap();
            prop_assert_eq!(ledger.tally().off_low_byte_us, u128::from(all) * 1_000_000);
        }
    }

    #[test]
    fn requests_complete_whole_granules_within_what_may_go(
        prices in proptest::collection::vec(
            proptest::option::weighted(0.9, 0u64..20), 8..64),
        off in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
        empty in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        needed in 1u64..8,
    ) {
        let (mut totals, mut rows) = rows_of(&prices);
        totals.free = totals.slice_pages * (u64::from(totals.nr_slices) - needed);
        for at in off {
            let at = at.index(rows.len());
            if rows[at].state == SliceState::Online && totals.free > totals.slice_pages * 2 {
                switch_off(&mut totals, &mut rows, &[at]);
            }
        }
        for at in empty {
            let at = at.index(rows.len());
            rows[at].free = rows[at].present;
        }
        totals.nr_empty = rows.iter().filter(|row| row.is_empty()).count() as u32;
        let mut policy = of_granules();
        for minute in 0..200 {
            let seen = Observation { time: at(minute), totals, rows: &rows, events: &[] };
            let decision = policy.step(&seen);
            prop_assert!(woken(&decision).is_empty(), "nothing went off in vain");
            let asked = offlined(&decision);
            prop_assert_eq!(asked.len(), decision.requests.len());
            let mut begin = 0;
            for group in &decision.groups {
                let slices = &asked[begin..begin + group];
                begin += group;
                let number = slices[0] / GRANULE;
                let of_granule: Vec<_> = rows.iter().filter(|row| row.id.0 / GRANULE == number)
                    .collect();
                prop_assert_eq!(of_granule.len(), 4);
                for row in of_granule {
                    let stays = row.state == SliceState::Online && row.price.is_none();
                    prop_assert!(!stays, "slice {} of granule {number}", row.id);
                    let is_off = row.state == SliceState::Offline;
                    prop_assert_eq!(slices.contains(&row.id.0), !is_off);
                }
            }
            prop_assert_eq!(begin, asked.len());
            let left = totals.nr_slices - totals.nr_offline - asked.len() as u32;
            let enough = totals.slice_pages * u64::from(left)
                >= totals.needed() + totals.awake_reserve * 2;
            prop_assert!(asked.is_empty() || enough);
        }
    }

}
