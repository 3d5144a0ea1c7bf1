//! Runs of the governor on slices of which the hardware switches four as one: it keeps to its cap,
//! and earns what it does where a slice is as large.

mod loads;
mod machine;

use std::time::Duration;

use loads::TestLoad;
use machine::economics;
use proptest::prelude::*;
use ramslice_policy::settings::GovernorConfig;
use ramslice_policy::{
    GovernorPolicy, GranuleLayout, MachineTotals, Observation, Policy, PolicyDecision, PolicyEvent,
    SliceEconomics, SliceRow, WakeCause,
};
use ramslice_types::{
    Bytes, Pages, Price, Reason, RequestOp, RequestOutcome, SliceId, SliceState, SplitMix64, Worth,
    WorthPerSecond,
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
