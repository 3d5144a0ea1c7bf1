//! The upper bound of what any policy can earn on an input.
//!
//! However memory is packed, pages of programs and the kernel are somewhere: so no more slices can
//! be off in a step than what they leave, if they lie as densely as can be. To switch a slice off
//! costs what an empty one does at least, to wake it what waking costs. Emptying, reading cache
//! again and where the kernel's own pages lie cost nothing here. With these costs the slices of
//! each level ([`ramslice_policy::clairvoyant`]) are off in each gap that pays, and at no other
//! time; steps may differ in length.
//!
//! What programs got counts as it is in a run in which nothing is switched off. The bound is far
//! above what can be earned where the kernel's pages are spread over many slices.

use ramslice_types::WorkCounters;

use crate::energy_account::EnergyRates;
use crate::machine::{MachineStats, SimMachine};
use crate::run::SimRun;

/// Joules of one slice, by the middle of their intervals as policies are ranked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MinimumCosts {
    /// Earned in a second off.
    saving: f64,
    /// To switch it off, empty.
    empty: f64,
    /// To wake it.
    waking: f64,
}

impl MinimumCosts {
    /// By the same books as every run's.
    pub(super) fn new(rates: &EnergyRates, machine: &SimMachine) -> Self {
        let slice = machine.config().slice_bytes;
        let net = |stats, work| {
            rates.books(&SimRun { stats, work, ..SimRun::default() }, slice).net_middle()
        };
        let second = MachineStats {
            off_byte_us: u128::from(slice.0) * 1_000_000,
            ..MachineStats::default()
        };
        let entered = MachineStats { entered_bytes: slice.0, ..MachineStats::default() };
        let tried = WorkCounters {
            tried_slices: 1,
            price_measured: machine.least_price(),
            ..WorkCounters::default()
        };
        Self {
            saving: net(second, WorkCounters::default()),
            empty: -net(entered, tried),
            waking: -net(
                MachineStats::default(),
                WorkCounters { woken_slices: 1, ..WorkCounters::default() },
            ),
        }
    }
}

/// The bound of an input, step by step of any run of it: what programs want does not depend on the
/// policy.
#[derive(Debug)]
pub(super) struct SavingsBound {
    cheapest: MinimumCosts,
    /// Since when each level can be off, in seconds, the one that can be off most first.
    since: Vec<f64>,
    now: f64,
    joules: f64,
}

impl SavingsBound {
    /// At the start, before any step. What is off then went off at no cost.
    pub(super) fn new(machine: &SimMachine, cheapest: MinimumCosts) -> Self {
        let off = machine.totals().nr_offline;
        let now = machine.time().as_secs_f64();
        let joules = f64::from(off) * cheapest.empty;
        Self { cheapest, since: vec![now; off as usize], now, joules }
    }

    /// After a step.
    pub(super) fn step(&mut self, machine: &SimMachine) {
        self.can_be_off(machine.time().as_secs_f64(), possible(machine));
    }

    fn can_be_off(&mut self, now: f64, slices: usize) {
        self.now = now;
        let MinimumCosts { saving, empty, waking } = self.cheapest;
        for since in self.since.drain(slices.min(self.since.len())..) {
            self.joules += ((now - since) * saving - empty - waking).max(0.0);
        }
        self.since.resize(slices, now);
    }

    /// At the end, where nothing wakes.
    pub(super) fn joules(&self) -> f64 {
        let MinimumCosts { saving, empty, .. } = self.cheapest;
        let worth = |since: &f64| ((self.now - since) * saving - empty).max(0.0);
        self.joules + self.since.iter().map(worth).sum::<f64>()
    }
}

/// Slices that can be off now at most, if all that lasts is packed.
fn possible(machine: &SimMachine) -> usize {
    let totals = machine.totals();
    let (free, slice) = ((totals.managed - machine.lasting()).0, totals.slice_pages.0.max(1));
    // Slices that lack pages may be more, and earn less each.
    let whole = totals.managed.0 == u64::from(totals.nr_slices) * slice;
    let slices = if whole { free / slice } else { free.div_ceil(slice) };
    slices.min(u64::from(totals.nr_slices - totals.nr_fixed)) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use ramslice_policy::clairvoyant::optimum;
    use ramslice_policy::model::{DemandSeries, SliceCosts};
    use ramslice_types::{Bytes, CacheChoice, Request, RequestOp, SliceId};

    use super::*;
    use crate::config::SimConfig;
    use crate::load::LoadStep;
    use crate::machine::{MemoryChange, OwnerClass, OwnerId};

    const SLICES: u32 = 4;

    fn machine(seed: u64) -> SimMachine {
        let config = SimConfig::new(Bytes(u64::from(SLICES) << 30), Bytes(1 << 30));
        SimMachine::new(SimConfig { seed, scatter: 0.5, ..config.coarse() }).unwrap()
    }

    fn rates() -> EnergyRates {
        let profile = ramslice_energy::builtin("thesis-parc").unwrap().unwrap();
        EnergyRates::new(&profile, profile.state(&profile.default_state).unwrap(), Bytes(4096))
            .unwrap()
    }

    /// All that can be done in a step: nothing, one slice on or off, or some at once, with cache
    /// dropped or kept.
    fn choices() -> Vec<Vec<Request>> {
        let mut choices = vec![Vec::new()];
        for cache in [CacheChoice::Drop, CacheChoice::Keep] {
            let offline =
                |id| vec![Request { cache, ..Request::new(RequestOp::Offline(SliceId(id))) }];
            choices.extend((0..SLICES).map(offline));
            choices.push(vec![Request { cache, ..Request::new(RequestOp::Compact) }]);
        }
        choices.push(vec![Request::new(RequestOp::OfflineFree)]);
        choices.push(vec![Request::new(RequestOp::OnlineAll)]);
        choices
    }

    /// The most that any sequence of choices earns.
    fn by_trying(
        machine: &SimMachine,
        steps: &[LoadStep],
        rates: &EnergyRates,
        choices: &[Vec<Request>],
    ) -> f64 {
        let (step, rest) = steps.split_first().unwrap();
        let mut machine = machine.clone();
        machine.advance(step.time.saturating_sub(machine.time()));
        step.changes.iter().for_each(|change| machine.apply(*change));
        // At the end nothing can be earned any more.
        if rest.is_empty() {
            let run = SimRun { stats: machine.stats(), work: machine.work(), ..SimRun::default() };
            return rates.books(&run, machine.config().slice_bytes).net_middle();
        }
        let earned = choices.iter().map(|requests| {
            let mut machine = machine.clone();
            for request in requests {
                machine.request_by_policy(request);
            }
            by_trying(&machine, rest, rates, choices)
        });
        earned.fold(f64::NEG_INFINITY, f64::max)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn no_sequence_of_requests_on_a_small_machine_earns_more(
            seed in 0..1000u64,
            steps in proptest::collection::vec((1..2000u64, 0.0..0.9f64, 0.0..0.9f64, 0.0..0.05f64),
                3..=3),
        ) {
            let (machine, rates, mut now) = (machine(seed), rates(), 0);
            let pages = machine.totals().managed.0 as f64;
            let level = |owner, class, share: f64| {
                MemoryChange::Level { owner: OwnerId(owner), class, maps: 1,
                    pages: (share * pages) as u64 }
            };
            let mut load: Vec<LoadStep> = Vec::new();
            for (seconds, programs, cache, kernel) in steps {
                let anon = level(1, OwnerClass::Anon, programs);
                let file = level(2, OwnerClass::File, cache * (1.0 - programs));
                let write = MemoryChange::Write { owner: OwnerId(2),
                    pages: (pages * 0.1 * cache) as u64 };
                let changes = vec![anon, file, write, level(3, OwnerClass::Unmovable, kernel)];
                load.push(LoadStep { time: Duration::from_secs(now), changes });
                now += seconds;
            }
            load.push(LoadStep { time: Duration::from_secs(now), changes: Vec::new() });
            let mut bound = SavingsBound::new(&machine, MinimumCosts::new(&rates, &machine));
            let mut never = machine.clone();
            for step in &load {
                never.advance(step.time.saturating_sub(never.time()));
                step.changes.iter().for_each(|change| never.apply(*change));
                bound.step(&never);
            }
            let most = by_trying(&machine, &load, &rates, &choices());
            prop_assert!(most <= bound.joules() + 1e-9, "{most} J of {} J", bound.joules());
        }

        #[test]
        fn with_steps_of_one_length_it_is_the_optimum_of_the_model_where_emptying_costs_nothing(
            needed in proptest::collection::vec(0..=6u32, 1..40),
            (saving, empty, waking) in (0.0..3.0f64, 0.0..5.0f64, 0.0..5.0f64),
        ) {
            let slices = 6;
            let series = DemandSeries { needed: needed.clone(), slices, used_at_start: 0 };
            let costs = SliceCosts { saving, emptying: empty, empty, waking };
            let model = optimum(&series, costs).net();
            let mut bound =
                SavingsBound { cheapest: MinimumCosts { saving, empty, waking }, since: Vec::new(),
                    now: 0.0, joules: 0.0 };
            let last = *needed.last().unwrap();
            for (step, needed) in needed.into_iter().chain([last]).enumerate() {
                bound.can_be_off(step as f64, (slices - needed) as usize);
            }
            prop_assert!((bound.joules() - model).abs() < 1e-9, "{} {model}", bound.joules());
        }
    }
}
