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
    PolicyDecision, PolicyEvent, SliceEconomics, SliceRow, TenantLimits, WakeCause,
};
use ramslice_types::{
    Bytes, Pages, Price, Reason, RequestOp, RequestOutcome, SliceId, SliceState, SplitMix64,
    WorkCounters, Worth, WorthPerSecond,
};

const GIB: Bytes = Bytes(1 << 30);
/// Slices of a granule.
const GRANULE: u32 = 4;
const SLICE_PAGES: Pages = Pages(512);

/// A GiB is switched as one, in so many slices.
fn in_slices(slices: u32) -> SliceEconomics {
    let (whole, part) = (economics(), f64::from(slices).recip());
    let small = SliceEconomics {
        saving: WorthPerSecond(whole.saving.0 * part),
        emptying: Worth(whole.emptying.0 * part),
        empty: Worth(whole.empty.0 * part),
        waking: Worth(whole.waking.0 * part),
        ..whole
    };
    small.switched_as_one(Some(GIB), Bytes(GIB.0 / u64::from(slices)), GranuleLayout::Neighbours)
}

fn governor(economics: SliceEconomics) -> GovernorPolicy {
    GovernorPolicy::new(GovernorConfig::default(), economics)
}

/// Slices that are on or off, used or empty; some stay on whatever is asked.
#[derive(Debug, Clone)]
struct Slices {
    economics: SliceEconomics,
    on: Vec<bool>,
    used: Vec<bool>,
    stays: Vec<bool>,
    needed: u32,
    /// Earned and spent.
    net: f64,
    demand_wakes: u32,
    /// Slices that were emptied though their granule had one that stays.
    in_vain: u32,
}

impl Slices {
    fn new(slices: u32, used: u32, economics: SliceEconomics) -> Self {
        Self {
            economics,
            on: vec![true; slices as usize],
            used: (0..slices).map(|id| id < used).collect(),
            stays: vec![false; slices as usize],
            needed: 0,
            net: 0.0,
            demand_wakes: 0,
            in_vain: 0,
        }
    }

    fn nr_on(&self) -> u32 {
        self.on.iter().filter(|on| **on).count() as u32
    }

    fn granules(&self) -> std::slice::Chunks<'_, bool> {
        self.on.chunks(self.economics.granule_slices() as usize)
    }

    fn complete(&self) -> u32 {
        let all = self.economics.granule_slices() as usize;
        let off = |granule: &&[bool]| granule.len() == all && !granule.contains(&true);
        self.granules().filter(off).count() as u32
    }

    /// What would have been earned if everything woke now.
    fn worst(&self) -> f64 {
        let off = self.on.len() as f64 - f64::from(self.nr_on());
        self.net - off * self.economics.waking.0
    }

    /// Wakes the lowest slices until so many are on, and uses the lowest.
    fn demand(&mut self, needed: u32) -> u32 {
        self.needed = needed.min(self.on.len() as u32);
        let mut woken = 0;
        while self.nr_on() < self.needed {
            let at = self.on.iter().position(|on| !on).unwrap();
            self.on[at] = true;
            woken += 1;
        }
        let mut used = self.used.iter().filter(|used| **used).count() as u32;
        for at in 0..self.on.len() {
            if used < self.needed && self.on[at] && !self.used[at] {
                self.used[at] = true;
                used += 1;
            }
        }
        self.demand_wakes += woken;
        self.net -= f64::from(woken) * self.economics.waking.0;
        woken
    }

    fn price(&self, at: usize) -> Price {
        let cost = if self.used[at] { self.economics.emptying } else { self.economics.empty };
        self.economics.price(cost)
    }

    fn rows(&self) -> Vec<SliceRow> {
        let row = |at: usize| SliceRow {
            id: SliceId(at as u32),
            state: if self.on[at] { SliceState::Online } else { SliceState::Offline },
            price: (self.on[at] && !self.stays[at]).then(|| self.price(at)),
            present: SLICE_PAGES,
            free: if self.used[at] { Pages(SLICE_PAGES.0 / 2) } else { SLICE_PAGES },
            freeable: Pages::ZERO,
        };
        (0..self.on.len()).map(row).collect()
    }

    fn totals(&self) -> MachineTotals {
        let (slices, on) = (self.on.len() as u32, self.nr_on());
        let empty = (0..self.on.len()).filter(|&at| self.on[at] && !self.used[at]).count();
        let used = SLICE_PAGES * u64::from(self.needed) - Pages(64);
        MachineTotals {
            slice_pages: SLICE_PAGES,
            managed: SLICE_PAGES * u64::from(slices),
            free: SLICE_PAGES * u64::from(on) - used,
            offline: SLICE_PAGES * u64::from(slices - on),
            awake_reserve: Pages(16),
            nr_slices: slices,
            nr_empty: empty as u32,
            nr_offline: slices - on,
            ..MachineTotals::default()
        }
    }

    fn carry_out(&mut self, op: RequestOp) -> RequestOutcome {
        let mut outcome = RequestOutcome::default();
        match op {
            RequestOp::Offline(id) => {
                let at = id.0 as usize;
                outcome.reason = if !self.on[at] {
                    Reason::State
                } else if self.stays[at] {
                    Reason::Slab
                } else if self.nr_on() <= self.needed {
                    Reason::NoRoom
                } else {
                    Reason::None
                };
                if outcome.reason == Reason::None {
                    let first = at - at % GRANULE as usize;
                    let end = (first + GRANULE as usize).min(self.stays.len());
                    self.in_vain += u32::from(self.stays[first..end].contains(&true));
                    let price = self.price(at);
                    (self.on[at], self.used[at]) = (false, false);
                    outcome.slices_done = 1;
                    (outcome.price_predicted, outcome.price_measured) = (price, price);
                    self.net -= self.economics.cost(price).0;
                }
            }
            RequestOp::Online(id) => {
                let at = id.0 as usize;
                outcome.slices_done = u32::from(!self.on[at]);
                self.on[at] = true;
                self.net -= f64::from(outcome.slices_done) * self.economics.waking.0;
            }
            RequestOp::OfflineFree | RequestOp::Compact | RequestOp::OnlineAll => {
                panic!("{op:?}: granules go by their slices")
            }
        }
        outcome
    }

    /// Steps of so many seconds for as long as there is demand.
    fn drive(
        &mut self,
        policy: &mut GovernorPolicy,
        seconds: u64,
        mut demand: impl FnMut(&mut Self) -> Option<u32>,
        mut watch: impl FnMut(usize, &PolicyDecision, &Self),
    ) {
        let mut events = Vec::new();
        for index in 0.. {
            let Some(needed) = demand(self) else { return };
            let time = Duration::from_secs(seconds * index as u64);
            let slices = self.demand(needed);
            if slices > 0 {
                events.push(PolicyEvent::Woken { time, slices, cause: WakeCause::Demand });
            }
            let (totals, rows) = (self.totals(), self.rows());
            let seen = Observation { time, totals, rows: &rows, events: &events };
            let mut decision = policy.step(&seen);
            events.clear();
            let (whole, mut sequence) = (decision.clone(), decision.take_requests());
            while let Some(request) = sequence.next() {
                let outcome = self.carry_out(request.op);
                if outcome.slices_done == 0 {
                    sequence.give_up_group();
                }
                events.push(PolicyEvent::Finished { op: request.op, outcome, max_slices: None });
            }
            let off = self.complete() * self.economics.granule_slices();
            self.net += f64::from(off) * self.economics.saving.0 * seconds as f64;
            watch(index, &whole, self);
        }
    }
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

/// A load that sees what is off and wants it back.
fn strikes(who: u32, off: u32, since: &mut u32, chance: &mut SplitMix64) -> bool {
    *since = if off > 0 { *since + 1 } else { 0 };
    match who {
        0 => off > 0,
        1..40 => *since > who,
        40..70 => off >= who - 39,
        _ => chance.unit() * 100.0 < f64::from(who - 69),
    }
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
        let whole = |id: u32| (0..off.len() as u32)
            .filter(|other| economics.granule_of(SliceId(*other)) == economics.granule_of(SliceId(id)))
            .filter(|other| off[*other as usize])
            .count() as u32 == economics.granule_slices();
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

    #[test]
    fn never_loses_more_than_the_cap_of_whole_granules(
        who in 0u32..130, seed in any::<u64>(), granules in 1u32..10, seconds in 1u64..700,
        used in 0u32..40, stays in 0u32..4, calm in 0u32..300,
    ) {
        let economics = in_slices(GRANULE);
        let slices = granules * GRANULE;
        let mut machine = Slices::new(slices, used.min(slices), economics);
        let (mut chance, mut since, mut steps) = (SplitMix64::new(seed), 0, 0);
        for _ in 0..stays {
            let at = (chance.unit() * f64::from(slices)) as usize;
            machine.stays[at] = true;
        }
        let demand = |machine: &mut Slices| {
            steps += 1;
            let off = slices - machine.nr_on();
            let strikes = strikes(who, off, &mut since, &mut chance) && steps > calm;
            let quiet = 1 + (chance.unit() * f64::from(slices) / 4.0) as u32;
            // Also a single slice, which costs a granule what it saves.
            let back = if chance.unit() < 0.5 { slices - off + 1 } else { slices };
            (steps <= 700).then_some(if strikes { back } else { quiet })
        };
        let mut broken = None;
        let mut policy = governor(economics);
        machine.drive(&mut policy, seconds, demand, |index, _, machine| {
            let cap = GovernorPolicy::loss_cap(&economics, Duration::from_secs(seconds) *
                u32::try_from(index).unwrap()).0;
            if machine.worst() < -cap - 1e-3 {
                broken = broken.or(Some((index, machine.worst(), cap)));
            }
        });
        prop_assert_eq!(broken, None);
        prop_assert_eq!(machine.in_vain, 0, "a granule had a slice that stays");
    }

    #[test]
    fn decides_the_same_after_saving(seed in any::<u64>(), cut in 1usize..300) {
        let economics = in_slices(GRANULE);
        let series = TestLoad::Bursty.series(seed, 32, 30.0, 300);
        let decisions = |cut: usize| {
            let (mut all, mut policy) = (Vec::new(), governor(economics));
            let mut machine = Slices::new(32, 20, economics);
            for part in [&series.needed[..cut], &series.needed[cut..]] {
                let mut needed = part.iter().copied();
                machine.drive(&mut policy, 30, |_| needed.next(), |_, decision, _| {
                    all.push(decision.clone());
                });
                policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
            }
            all
        };
        // Time begins again at the cut, for both.
        let direct = |cut: usize| {
            let (mut all, mut policy) = (Vec::new(), governor(economics));
            let mut machine = Slices::new(32, 20, economics);
            for part in [&series.needed[..cut], &series.needed[cut..]] {
                let mut needed = part.iter().copied();
                machine.drive(&mut policy, 30, |_| needed.next(), |_, decision, _| {
                    all.push(decision.clone());
                });
            }
            all
        };
        prop_assert_eq!(decisions(cut), direct(cut));
    }
}

#[test]
fn a_granule_of_small_slices_earns_what_a_slice_of_its_size_does() {
    let mut shares = Vec::new();
    for load in TestLoad::ALL {
        for seed in 0..4 {
            let net = |slices: u32| {
                let economics = in_slices(slices);
                let series = load.series(seed, 24, 30.0, 2880);
                let mut machine =
                    Slices::new(24 * slices, series.used_at_start * slices, economics);
                let mut needed = series.needed.iter().map(|needed| needed * slices);
                let mut policy = governor(economics);
                if slices == 1 {
                    let step = Duration::from_secs(30);
                    let watch = |_: usize, _: &PolicyDecision, _: &_| {};
                    return ramslice_policy::bench::run(
                        &mut policy,
                        &series,
                        &economics,
                        step,
                        watch,
                    )
                    .account
                    .net();
                }
                machine.drive(&mut policy, 30, |_| needed.next(), |_, _, _| {});
                machine.net
            };
            let (alone, together) = (net(1), net(GRANULE));
            shares.push(together / alone);
        }
    }
    shares.sort_by(f64::total_cmp);
    let (least, median) = (shares[0], shares[shares.len() / 2]);
    assert!(least > 0.85 && median > 0.95, "{shares:?}");
}
