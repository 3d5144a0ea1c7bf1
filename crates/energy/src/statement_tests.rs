//! Statements: what is counted, what is not, and that net is saved less invested.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use ramslice_types::{Hertz, Pages, Price, PriceParameter, WattsPerGib, WorkCounters};

use super::*;
use crate::clock::TimeFactor;
use crate::costs::CostTerm;
use crate::meter::MeterEnergy;
use crate::profile::{DramProfile, ProfilePower, SourcedValue, TEMPLATE, builtin};
use crate::verdict::NetSign;

const PAGE: Bytes = Bytes(4096);
const GIB: u64 = 1 << 30;

/// The kernel's default prices: those of the thesis.
fn default_prices() -> BTreeMap<PriceParameter, Price> {
    use PriceParameter as P;
    [
        (P::IsolateSlice, 695),
        (P::IsolatePage, 303),
        (P::DropPage, 39),
        (P::MigratePage, 100),
        (P::MigrateMapping, 29),
        (P::AllocBuddy, 1),
        (P::AllocCache, 25),
    ]
    .map(|(parameter, price)| (parameter, Price(price)))
    .into()
}

fn slower(factor: f64) -> SampleClock {
    SampleClock::Emulated(TimeFactor::new(Interval::exactly(Ratio(factor)), "stated").unwrap())
}

/// A GiB off for so many seconds, and what it took.
fn off_for(seconds: u64, work: WorkCounters) -> EnergyTally {
    let byte_us = u128::from(GIB) * u128::from(seconds) * 1_000_000;
    EnergyTally {
        elapsed_us: seconds * 1_000_000,
        steps: 1,
        off_low_byte_us: byte_us,
        off_high_byte_us: byte_us,
        tried_bytes: work.tried_slices * GIB,
        woken_bytes: work.woken_slices * GIB,
        work,
        ..EnergyTally::default()
    }
}

struct StatementCase {
    profile: DramProfile,
    clock: SampleClock,
    cycle_clock: Option<Hertz>,
    accounts: bool,
    prices: BTreeMap<PriceParameter, Price>,
    runtime_change: Option<Interval<Ratio>>,
    measured: Option<MeterEnergy>,
}

impl StatementCase {
    fn new(profile: DramProfile, clock: SampleClock) -> Self {
        let runtime_change = Some(Interval::zero());
        Self {
            profile,
            clock,
            cycle_clock: None,
            accounts: true,
            prices: default_prices(),
            runtime_change,
            measured: None,
        }
    }

    fn thesis(clock: SampleClock) -> Self {
        Self::new(builtin("thesis-parc").unwrap().unwrap(), clock)
    }

    /// A profile in which nothing is unknown.
    fn template(clock: SampleClock) -> Self {
        Self::new(DramProfile::parse(TEMPLATE, "template.toml").unwrap(), clock)
    }

    fn state(&self, tally: &EnergyTally) -> EnergyStatement {
        let state = self.profile.state(&self.profile.default_state).unwrap();
        let settings = StatementSettings {
            profile: &self.profile,
            state,
            clock: &self.clock,
            cycle_clock: self.cycle_clock,
            granule: PowerGranule::OfProfile(state.granularity.bytes.value),
            runtime_change: self.runtime_change,
            accounts: self.accounts,
            kernel_prices: &self.prices,
            page_bytes: PAGE,
            memory: Bytes(8 * GIB),
            power_driver: "none",
            measured: self.measured.as_ref(),
        };
        EnergyStatement::new(tally, &settings).unwrap()
    }
}

fn line(statement: &EnergyStatement, term: CostTerm) -> &CostLine {
    statement.lines.iter().find(|line| line.term == term).unwrap()
}

fn near(value: Joules, expected: f64) {
    assert!(
        (value.0 - expected).abs() <= expected.abs() * 1e-9 + 1e-12,
        "{value:?} is not {expected}"
    );
}

#[test]
fn a_slice_of_the_thesis_pays_after_just_under_a_minute() {
    // 184.3 million measured cycles are 0.485 J.
    let work = WorkCounters {
        tried_slices: 1,
        price_measured: Price(1_843_000),
        ..WorkCounters::default()
    };
    let case = StatementCase::thesis(SampleClock::Real);
    let early = case.state(&off_for(52, work));
    assert_eq!(early.verdict.sign, NetSign::Loss, "{}", early.verdict.sentence);
    let late = case.state(&off_for(53, work));
    assert_eq!(late.verdict.sign, NetSign::Gain, "{}", late.verdict.sentence);
    near(late.saved_joules.low(), 53.0 * 0.009_19);
    near(late.invested_joules.high(), 0.485);
}

#[test]
fn measured_cycles_are_time_by_the_clock_that_counted_them_and_cost_power_for_that_time() {
    // 190 million cycles: 50 ms by the profile's 3.8 GHz, 100 ms of a machine of 1.9 GHz, at 10 W.
    let work = WorkCounters {
        tried_slices: 1,
        price_measured: Price(1_900_000),
        ..WorkCounters::default()
    };
    let mut case = StatementCase::thesis(SampleClock::Real);
    let assumed = case.state(&off_for(52, work));
    near(line(&assumed, CostTerm::Emptying).joules.unwrap().high(), 0.5);
    let words = "the clock of its cycles is not known, and assumed to be the profile's, 3.80 GHz";
    assert!(assumed.basis[1].contains(words), "{:?}", assumed.basis);
    case.cycle_clock = Some(Hertz(1.9e9));
    let statement = case.state(&off_for(52, work));
    let emptying = line(&statement, CostTerm::Emptying);
    near(emptying.joules.unwrap().low(), 1.0);
    near(emptying.joules.unwrap().high(), 1.0);
    assert!(
        emptying.basis.contains("190 Mcycles measured, 100 ms at 10.0 W"),
        "{}",
        emptying.basis
    );
    assert!(
        statement.basis[1].contains("(cycles are of 1.90 GHz), at the power of"),
        "{:?}",
        statement.basis
    );
    // Seconds are this machine's, whatever the profile's would have taken.
    let machine = case.profile.machine.as_mut().unwrap();
    machine.frequency.value = None;
    near(line(&case.state(&off_for(52, work)), CostTerm::Emptying).joules.unwrap().high(), 1.0);
}

#[test]
fn the_published_interval_leaves_the_same_work_undecided() {
    let work =
        WorkCounters { tried_slices: 1, price_measured: Price(1000), ..WorkCounters::default() };
    let mut case = StatementCase::thesis(SampleClock::Real);
    let modes = builtin("ddr5-modes").unwrap().unwrap();
    case.profile.states = modes.states;
    let statement = case.state(&off_for(1000, work));
    assert_eq!(statement.verdict.sign, NetSign::Undecided);
    assert!(statement.net_joules.contains_zero());
}

#[test]
fn without_a_machine_no_cost_is_counted_and_no_gain_claimed() {
    let case = StatementCase::new(builtin("rdram").unwrap().unwrap(), SampleClock::Real);
    let work = WorkCounters {
        tried_slices: 1,
        price_measured: Price(1000),
        page_faults: 5,
        ..WorkCounters::default()
    };
    let statement = case.state(&off_for(1000, work));
    assert_eq!(line(&statement, CostTerm::Emptying).joules, None);
    assert_eq!(line(&statement, CostTerm::Accounting).joules, None);
    assert!(statement.net_joules.low().0 > 0.0);
    assert_eq!(statement.verdict.sign, NetSign::Undecided, "{}", statement.verdict.sentence);
}

#[test]
fn a_profile_with_relative_powers_has_no_joules() {
    let case = StatementCase::new(builtin("mobile-states").unwrap().unwrap(), SampleClock::Real);
    let state = &case.profile.states[0];
    let settings = StatementSettings {
        profile: &case.profile,
        state,
        clock: &case.clock,
        cycle_clock: None,
        granule: PowerGranule::OfProfile(None),
        runtime_change: None,
        accounts: true,
        kernel_prices: &case.prices,
        page_bytes: PAGE,
        memory: Bytes(GIB),
        power_driver: "simulated",
        measured: None,
    };
    assert_eq!(EnergyStatement::new(&off_for(10, WorkCounters::default()), &settings), None);
}

#[test]
fn emulated_time_and_cycles_are_never_taken_for_real_ones() {
    let work = WorkCounters {
        tried_slices: 2,
        migrated_pages: Pages(1000),
        dropped_pages: Pages(0),
        target_free_pages: Pages(1000),
        price_predicted: Price(131_000),
        price_measured: Price(999_999_999),
        ..WorkCounters::default()
    };
    let real = StatementCase::thesis(SampleClock::Real).state(&off_for(150, work));
    let emulated = StatementCase::thesis(slower(15.0)).state(&off_for(150, work));
    near(emulated.saved_joules.high(), real.saved_joules.high().0 / 15.0);
    near(Joules(emulated.time_seconds.high().0), 10.0);
    // Operations at prices: 2 slices, 2 x 262144 page frames, 1000 moved, 1000 taken; prices err by
    // 25.95 M a GiB.
    let fixed = 2.0 * 69500.0 + 512.0 * 30300.0 + 1000.0 * 10000.0 + 1000.0 * 100.0;
    let most = (fixed + 1000.0 * 2900.0_f64).max(13_100_000.0) + 2.0 * 25_950_000.0;
    let emptying = line(&emulated, CostTerm::Emptying).joules.unwrap();
    near(emptying.high(), most * 10.0 / 3.8e9);
    near(emptying.low(), 0.0);
    assert!(emulated.basis[0].contains("divided by 15.0 (stated)"), "{:?}", emulated.basis);
    assert!(emulated.basis[1].contains("Ryzen"), "{:?}", emulated.basis);
    assert!(emulated.verdict.sentence.contains("reference machine"));
    // What the emulated kernel measured is nowhere in it.
    let other = WorkCounters { price_measured: Price(1), ..work };
    assert_eq!(StatementCase::thesis(slower(15.0)).state(&off_for(150, other)), emulated);
}

#[test]
fn prices_that_are_not_the_reference_machines_count_no_mappings() {
    let work =
        WorkCounters { tried_slices: 1, migrated_pages: Pages(10), ..WorkCounters::default() };
    let mut case = StatementCase::thesis(slower(15.0));
    case.prices.insert(PriceParameter::DropPage, Price(40));
    let statement = case.state(&off_for(150, work));
    let line = line(&statement, CostTerm::Emptying);
    assert_eq!(line.joules, None);
    assert!(line.basis.contains("drop_page is 4000 cycles"), "{}", line.basis);
}

#[test]
fn dropped_pages_without_a_price_take_the_gain_away() {
    let work = WorkCounters { dropped_pages: Pages(1000), ..WorkCounters::default() };
    let statement = StatementCase::thesis(SampleClock::Real).state(&off_for(1000, work));
    assert_eq!(line(&statement, CostTerm::Refaults).joules, None);
    assert_eq!(statement.verdict.sign, NetSign::Undecided);
    // 9.19 J for 1000 pages.
    assert!(
        statement.verdict.sentence.contains("less than 9.19 mJ"),
        "{}",
        statement.verdict.sentence
    );
    let priced = StatementCase::template(SampleClock::Real).state(&off_for(1000, work));
    let refaults = line(&priced, CostTerm::Refaults).joules.unwrap();
    near(refaults.low(), 0.0);
    near(refaults.high(), 1000.0 * (20000.0 * 10.0 / 3e9 + 5.0 / 262_144.0));
}

#[test]
fn accounting_counts_faults_and_allocations_as_an_interval() {
    let work = WorkCounters {
        page_faults: 2_000_000,
        allocated_pages: Pages(3_000_000),
        ..WorkCounters::default()
    };
    let case = StatementCase::thesis(SampleClock::Real);
    let machine = case.profile.machine.as_ref().unwrap();
    let [instructions, cycles] = [&machine.accounting, &machine.cycles_per_instruction]
        .map(|figure| figure.value.unwrap().high().0);
    let statement = case.state(&off_for(10, work));
    let accounting = line(&statement, CostTerm::Accounting).joules.unwrap();
    near(accounting.low(), 0.0);
    near(accounting.high(), 3e6 * instructions * cycles * 10.0 / 3.8e9);
}

#[test]
fn a_stock_kernel_keeps_no_account_and_pays_nothing_for_one() {
    let work = WorkCounters {
        page_faults: 2_000_000,
        allocated_pages: Pages(3_000_000),
        ..WorkCounters::default()
    };
    let mut case = StatementCase::thesis(SampleClock::Real);
    case.accounts = false;
    let statement = case.state(&off_for(10, work));
    let accounting = line(&statement, CostTerm::Accounting);
    assert_eq!(accounting.joules, Some(Interval::zero()));
    assert_eq!(accounting.basis, "a stock kernel keeps no account");
    assert_eq!(statement.net_joules, statement.saved_joules);
}

#[test]
fn a_longer_run_costs_the_whole_machines_power() {
    let mut case = StatementCase::thesis(SampleClock::Real);
    case.runtime_change = Some(Interval::new(Ratio(0.001), Ratio(0.002)).unwrap());
    let statement = case.state(&off_for(100, WorkCounters::default()));
    let longer = line(&statement, CostTerm::RunTime).joules.unwrap();
    near(longer.low(), 0.001 / 1.001 * 10.0 * 100.0);
    near(longer.high(), 0.002 / 1.002 * 20.0 * 100.0);
    // Of 100 s that took twice as long as without packing, 50 were more.
    case.runtime_change = Some(Interval::exactly(Ratio(1.0)));
    let twice =
        line(&case.state(&off_for(100, WorkCounters::default())), CostTerm::RunTime).clone();
    near(twice.joules.unwrap().high(), 20.0 * 50.0);
    case.runtime_change = None;
    let unmeasured = case.state(&off_for(100, WorkCounters::default()));
    assert_eq!(unmeasured.verdict.sign, NetSign::Undecided);
    assert!(unmeasured.verdict.sentence.contains("% longer"), "{}", unmeasured.verdict.sentence);
}

#[test]
fn a_latency_without_limit_cannot_be_counted_once_something_went_off() {
    let mut case = StatementCase::thesis(SampleClock::Real);
    case.profile.states = builtin("ddr5-modes").unwrap().unwrap().states;
    case.profile.default_state = "channel-off".to_owned();
    let none = case.state(&off_for(10, WorkCounters::default()));
    assert_eq!(line(&none, CostTerm::Transitions).joules, Some(Interval::zero()));
    let tally = EnergyTally {
        entered_low_bytes: GIB,
        entered_high_bytes: GIB,
        ..off_for(10, WorkCounters::default())
    };
    let some = case.state(&tally);
    assert_eq!(line(&some, CostTerm::Transitions).joules, None);
    case.profile.default_state = "parc".to_owned();
    let parc = line(&case.state(&tally), CostTerm::Transitions).joules.unwrap();
    near(parc.high(), 0.009_19 * 28e-9);
}

#[test]
fn leaving_a_state_costs_its_power_and_is_unknown_where_that_is() {
    let mut case = StatementCase::template(SampleClock::Real);
    let tally = EnergyTally {
        entered_low_bytes: GIB,
        entered_high_bytes: GIB,
        ..off_for(10, WorkCounters::default())
    };
    let transitions =
        |case: &StatementCase| line(&case.state(&tally), CostTerm::Transitions).clone();
    let mut exit = case.profile.states[0].exit_power.take().unwrap();
    let without = transitions(&case).joules.unwrap();
    // The template's back takes 100 ns, and its background is 80 mW/GiB.
    let per_gib = Some(Interval::exactly(WattsPerGib(1.08)));
    exit.value = exit.value.map(|power| ProfilePower { per_gib, ..power });
    case.profile.states[0].exit_power = Some(exit.clone());
    let with = transitions(&case).joules.unwrap();
    near(with.high() - without.high(), 1e-7);
    let unknown = SourcedValue { value: None, written: "unknown".to_owned(), ..exit };
    case.profile.states[0].exit_power = Some(unknown);
    let line = transitions(&case);
    assert_eq!(line.joules, None);
    assert!(line.basis.starts_with("the exit power is unknown: "), "{}", line.basis);
}

#[test]
fn counters_that_were_set_back_make_costs_unknown() {
    let tally = EnergyTally { resets: 1, ..off_for(1000, WorkCounters::default()) };
    let statement = StatementCase::thesis(SampleClock::Real).state(&tally);
    assert_eq!(line(&statement, CostTerm::Emptying).joules, None);
    assert_eq!(statement.verdict.sign, NetSign::Undecided);
}

#[test]
fn a_meter_is_laid_beside_the_model_and_gives_the_share() {
    let mut case = StatementCase::thesis(SampleClock::Real);
    let measured = |machine, dram| MeterEnergy {
        machine_joules: Some(Joules(machine)),
        machine_domains: vec!["psys".to_owned()],
        dram_joules: Some(Joules(dram)),
        incomplete: false,
    };
    case.measured = Some(measured(1500.0, 100.0));
    let fits = case.state(&off_for(100, WorkCounters::default()));
    assert!(fits.reconciled.iter().all(|one| one.agrees), "{:?}", fits.reconciled);
    near(Joules(fits.net_share.unwrap().high().0), 0.919 / 1500.0);
    case.measured = Some(measured(5000.0, 10.0));
    let differs = case.state(&off_for(100, WorkCounters::default()));
    assert_eq!(differs.reconciled.len(), 2);
    assert!(differs.reconciled.iter().all(|one| !one.agrees), "{:?}", differs.reconciled);
    case.measured = None;
    let modelled = case.state(&off_for(100, WorkCounters::default()));
    assert!(modelled.basis.iter().any(|text| text.contains("no meter")));
    case.measured = Some(MeterEnergy { incomplete: true, ..MeterEnergy::default() });
    let lost = case.state(&off_for(100, WorkCounters::default()));
    assert!(lost.basis.iter().any(|text| text.contains("domains changed")), "{:?}", lost.basis);
    assert_eq!(
        (lost.machine_joules, &lost.reconciled),
        (modelled.machine_joules, &modelled.reconciled)
    );
}

#[test]
fn the_scale_of_the_thesis_comes_out() {
    // Section 4.3.1: 40.8 J in the 2136 s that make 19.1 mW of them, at 10 W.
    let time = Duration::from_secs(2136);
    let energy = Interval::exactly(Watts(10.0)).times(SampleClock::Real.seconds(time));
    let share: Interval<Ratio> = Interval::exactly(Joules(40.8)).per(energy).unwrap();
    assert!((share.low().0 * 100.0 - 0.19).abs() < 0.005);
}

fn works() -> impl Strategy<Value = WorkCounters> {
    let number = || 0u64..2_000_000;
    (0u64..9, 0u64..9, number(), number(), number(), number(), number(), number()).prop_map(
        |(
            tried_slices,
            woken_slices,
            migrated,
            dropped,
            predicted,
            measured,
            page_faults,
            allocated,
        )| WorkCounters {
            tried_slices,
            woken_slices,
            migrated_pages: Pages(migrated),
            dropped_pages: Pages(dropped),
            target_free_pages: Pages(migrated / 2),
            target_cache_pages: Pages(dropped / 2),
            price_predicted: Price(predicted),
            price_measured: Price(measured),
            page_faults,
            allocated_pages: Pages(allocated),
            ..WorkCounters::default()
        },
    )
}

fn tallies() -> impl Strategy<Value = EnergyTally> {
    (works(), 1u64..10_000, 0u64..100).prop_map(|(work, seconds, more)| {
        let tally = off_for(seconds, work);
        EnergyTally {
            off_high_byte_us: tally.off_low_byte_us + u128::from(more) * u128::from(GIB),
            ..tally
        }
    })
}

proptest! {
    /// The books balance: what was saved is what was invested and what is left, end by end.
    #[test]
    fn net_is_saved_less_invested_exactly(tally in tallies(), emulated in any::<bool>(),
        template in any::<bool>()) {
        let clock = if emulated { slower(15.0) } else { SampleClock::Real };
        let case =
            if template { StatementCase::template(clock) } else { StatementCase::thesis(clock) };
        let statement = case.state(&tally);
        let (mut low, mut high) = (0.0, 0.0);
        for joules in statement.lines.iter().filter_map(|line| line.joules) {
            low += joules.low().0;
            high += joules.high().0;
        }
        prop_assert_eq!((statement.invested_joules.low().0, statement.invested_joules.high().0),
            (low, high));
        prop_assert_eq!(statement.net_joules.low(), statement.saved_joules.low() - Joules(high));
        prop_assert_eq!(statement.net_joules.high(), statement.saved_joules.high() - Joules(low));
        if statement.net_joules.contains_zero() {
            prop_assert_eq!(statement.verdict.sign, NetSign::Undecided);
        }
        if statement.verdict.sign == NetSign::Gain {
            prop_assert!(statement.net_joules.low().0 > 0.0);
            prop_assert!(statement.lines.iter().all(|line| line.joules.is_some()));
        }
    }

    /// More work never makes packing look better.
    #[test]
    fn more_work_never_earns_more(tally in tallies(), more in works()) {
        let case = StatementCase::template(SampleClock::Real);
        let dearer = EnergyTally {
            work: tally.work.plus(&more),
            tried_bytes: tally.tried_bytes + more.tried_slices * GIB,
            woken_bytes: tally.woken_bytes + more.woken_slices * GIB,
            ..tally
        };
        let (cheap, dear) = (case.state(&tally).net_joules, case.state(&dearer).net_joules);
        prop_assert!(dear.low() <= cheap.low() && dear.high() <= cheap.high());
    }
}

/// A GiB that may rest for so many seconds, with nothing off.
fn rest_for(seconds: u64) -> EnergyTally {
    let byte_us = u128::from(GIB) * u128::from(seconds) * 1_000_000;
    EnergyTally {
        elapsed_us: seconds * 1_000_000,
        resting_high_byte_us: byte_us,
        ..off_for(0, WorkCounters::default())
    }
}

#[test]
fn rest_is_from_none_to_all_of_the_time_and_in_no_sum() {
    let kept = TEMPLATE.replace("is = \"lost\"", "is = \"kept\"");
    let profile = DramProfile::parse(&kept, "kept.toml").unwrap();
    let case = StatementCase::new(profile, SampleClock::Real);
    let statement = case.state(&rest_for(100));
    let rest = statement.rest.unwrap();
    let saving = case.profile.states[0].saving_by_packing().unwrap();
    assert_eq!(rest.state.as_deref(), Some(case.profile.states[0].name.as_str()));
    near(Joules(rest.gib_seconds.low().0), 100.0);
    let joules = rest.joules.unwrap();
    near(joules.low(), 0.0);
    near(joules.high(), 100.0 * saving.high().0);
    assert!(joules.high().0 > 0.0);
    assert_eq!((rest.sampled_share, rest.unaccessed_share), (Ratio(0.0), Ratio(1.0)));
    let tally = rest_for(100);
    let (accessed_low_byte_us, sampled_byte_us) =
        (tally.resting_high_byte_us / 4, tally.resting_high_byte_us / 2);
    let tally = EnergyTally { sampled_byte_us, accessed_low_byte_us, ..tally };
    let sampled = case.state(&tally).rest.unwrap();
    assert_eq!((sampled.sampled_share, sampled.unaccessed_share), (Ratio(0.5), Ratio(0.75)));
    near(Joules(sampled.gib_seconds.low().0), 100.0);
    near(sampled.joules.unwrap().high(), 75.0 * saving.high().0);
    near(statement.saved_joules.high(), 0.0);
    near(statement.net_joules.high(), 0.0);
}

#[test]
fn without_a_state_that_keeps_contents_rest_has_no_joules() {
    let rest = StatementCase::template(SampleClock::Real).state(&rest_for(100)).rest.unwrap();
    assert_eq!((rest.state, rest.joules), (None, None));
    let none = StatementCase::template(SampleClock::Real).state(&rest_for(0));
    assert_eq!(none.rest, None);
}
