//! The governor on simulated memory whose hardware switches four slices as one.

use std::time::Duration;

use ramslice_energy::builtin;
use ramslice_policy::{
    AnyPolicy, GovernorPolicy, GranuleLayout, PolicyConfig, PolicyKind, SliceEconomics,
};
use ramslice_sim::load::{LoadGenerator, LoadPattern, LoadScale};
use ramslice_sim::{EnergyRates, RunDecider, SimBackend, SimConfig, SimMachine, SimRun, run};
use ramslice_types::{Backend as _, Bytes, Request, RequestOp, SliceId};

const MIB: u64 = 1 << 20;
const MEMORY: Bytes = Bytes(8192 * MIB);
const SLICE: Bytes = Bytes(64 * MIB);
const PAGE: Bytes = Bytes(4096);
const GRANULE: u32 = 4;

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Never,
    /// The governor as if each slice could be switched alone.
    Ignorant,
    /// The governor that knows what the hardware switches.
    Governor,
}

/// The net of twelve hours, and the run.
fn half_a_day(pattern: LoadPattern, who: Who, granule_slices: u32, seed: u64) -> (f64, SimRun) {
    let config =
        SimConfig { boot_share: 0.01, seed, granule_slices, ..SimConfig::new(MEMORY, SLICE) };
    let mut machine = SimMachine::new(config).unwrap();
    let scale = LoadScale {
        pages: machine.totals().managed.0,
        step: Duration::from_secs(30),
        duration: Duration::from_hours(12),
        seed,
    };
    let profile = builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state(&profile.default_state).unwrap();
    let figures = profile.machine.as_ref().unwrap();
    let economics = SliceEconomics::new(state, figures, SLICE, PAGE).unwrap();
    let unit = (who == Who::Governor).then_some(Bytes(SLICE.0 * u64::from(granule_slices)));
    let economics = economics.switched_as_one(unit, SLICE, GranuleLayout::Neighbours);
    let kind = if who == Who::Never { PolicyKind::Never } else { PolicyKind::Governor };
    let policy = AnyPolicy::new(&PolicyConfig::new(kind), &economics, SLICE, PAGE).unwrap();
    let load = LoadGenerator::new(pattern, scale);
    let run = run(&mut machine, load, &mut RunDecider::Policy(policy), |_| ());
    machine.check_books().unwrap();
    let net = EnergyRates::new(&profile, state, PAGE).unwrap().books(&run, SLICE).net_middle();
    let cap = GovernorPolicy::loss_cap(&economics, run.duration).0;
    assert!(who == Who::Ignorant || net >= -cap, "{net} J is below the cap of {cap} J");
    (net, run)
}

#[test]
fn whole_granules_earn_more_than_never_and_than_slices_that_are_taken_for_granules() {
    for pattern in LoadPattern::ALL {
        for seed in [7, 8] {
            let [(never, _), (ignorant, without), (governor, with)] =
                [Who::Never, Who::Ignorant, Who::Governor]
                    .map(|who| half_a_day(pattern, who, GRANULE, seed));
            let line = format!(
                "{} {seed}: {governor:.0} J (woke {}), ignorant {ignorant:.0} J (woke {})",
                pattern.name(),
                with.stats.demand_wakes,
                without.stats.demand_wakes,
            );
            println!("{line}; alone {:.0} J", half_a_day(pattern, Who::Governor, 1, seed).0);
            assert!(never.abs() < 1e-9 && governor > 0.0, "{line}");
            assert!(governor > 1.2 * ignorant, "{line}");
            assert!(with.stats.demand_wakes < without.stats.demand_wakes, "{line}");
        }
    }
}

#[test]
fn what_is_off_saves_only_in_whole_granules() {
    let config = SimConfig { granule_slices: GRANULE, ..SimConfig::new(MEMORY, SLICE) };
    let backend = SimBackend::new(config).unwrap();
    let off = |id| backend.request(&Request::new(RequestOp::Offline(SliceId(id)))).unwrap();
    for id in [9, 10, 11, 12] {
        off(id);
    }
    backend.advance(Duration::from_secs(1));
    assert_eq!(
        (
            backend.with(|machine| machine.stats()).off_byte_us,
            backend.with(|machine| machine.stats()).entered_bytes
        ),
        (0, 0)
    );
    off(8);
    backend.advance(Duration::from_secs(2));
    let granule = SLICE.0 * u64::from(GRANULE);
    assert_eq!(
        backend.with(|machine| machine.stats()).off_byte_us,
        u128::from(granule) * 2_000_000
    );
    backend.request(&Request::new(RequestOp::Online(SliceId(10)))).unwrap();
    backend.advance(Duration::from_secs(2));
    assert_eq!(
        backend.with(|machine| machine.stats()).off_byte_us,
        u128::from(granule) * 2_000_000
    );
    assert_eq!(backend.with(|machine| machine.stats()).entered_bytes, granule);
}
