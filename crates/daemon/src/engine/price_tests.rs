//! Prices that hold or drift, as the engine derives them from its own requests.

use super::tests::*;
use super::*;
use crate::price_watch::PriceOffer;

const PERIODIC: &str = "mode = \"on\"\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = 30";

/// Steps of a machine whose demand goes up and down, so that slices are emptied in each.
fn waves(engine: &mut DecisionEngine, machine: &TestMachine, now: u64, count: u64) -> u64 {
    (0..count).fold(now, |now, step| {
        machine.use_slices(if step % 2 == 0 { 20.0 } else { 38.0 + (step % 5) as f64 });
        steps(engine, machine, now, 1)
    })
}

fn samples_of(offer: Option<PriceOffer>) -> ramslice_calibrate::SamplesFile {
    let Some(PriceOffer::Write(file)) = offer else { panic!("{offer:?}") };
    assert!(file.len() < 100_000, "{} bytes", file.len());
    serde_json::from_slice(&file).unwrap()
}

#[test]
fn prices_that_hold_are_steady_and_nothing_is_offered() {
    let machine = TestMachine::new(64);
    let mut engine = engine_of(settings(PERIODIC), None);
    let now = waves(&mut engine, &machine, 1_000_000, 8);
    let few = engine.status(Duration::ZERO).prices;
    assert_eq!(few.state, "too-few", "{few:?}");
    assert!(few.text.contains("it takes 20"), "{}", few.text);
    // What an earlier run left there.
    assert!(matches!(engine.offer(), Some(PriceOffer::Remove)));
    waves(&mut engine, &machine, now, 60);
    let steady = engine.status(Duration::ZERO).prices;
    assert_eq!((steady.state, steady.install.as_ref()), ("steady", None), "{steady:?}");
    let factor = steady.measured_over_predicted.unwrap();
    assert!((0.9..1.1).contains(&factor), "{factor}");
    assert!(steady.operations > steady.left_out as usize, "{steady:?}");
    assert!(engine.offer().is_none());
    let text = engine.metrics.text();
    assert!(text.contains("ramslice_price_drift_state{state=\"steady\"} 1"), "{text}");
    assert!(text.contains("ramslice_priced_requests_total{result=\"taken\"}"), "{text}");
}

#[test]
fn prices_that_drift_are_refitted_offered_and_never_installed() {
    let machine = TestMachine::new(64);
    let mut engine = engine_of(settings(PERIODIC), None);
    let now = waves(&mut engine, &machine, 1_000_000, 60);
    *machine.dearer.lock().unwrap() = 1.5;
    let in_force = |parameter| machine.sim.price_parameter(parameter).unwrap();
    let before = PriceParameter::ALL.map(in_force);
    let now = waves(&mut engine, &machine, now, 60);
    let file = samples_of(engine.offer());
    assert_eq!(
        (file.schema_version, file.samples.slice_bytes),
        (ramslice_types::SCHEMA_VERSION, SLICE)
    );
    assert!(file.samples.everyday().len() >= 20 && file.samples.everyday() == file.samples.samples);
    let status = engine.status(Duration::ZERO).prices;
    assert_eq!((status.state, status.install), ("refit", None), "not written yet");
    let path = std::path::Path::new("/state/prices.json");
    engine.prices().written(path);
    let status = engine.status(Duration::ZERO).prices;
    assert_eq!(
        status.install.as_deref(),
        Some("ramslice-lab calibrate --from /state/prices.json --install")
    );
    assert!(
        status.text.contains("do not hold") && status.text.contains("1.50 times"),
        "{}",
        status.text
    );
    let refitted = status.refitted.unwrap();
    let moved = |prices: &BTreeMap<PriceParameter, Price>| {
        (prices[&PriceParameter::MigratePage] + prices[&PriceParameter::MigrateMapping]).0 as f64
    };
    let factor = moved(&refitted) / moved(&status.parameters.unwrap());
    assert!((1.35..1.65).contains(&factor), "{refitted:?}");
    assert!(!refitted.contains_key(&PriceParameter::Unreclaimable));
    assert_eq!(PriceParameter::ALL.map(in_force), before);
    // Once is enough, until there is much that is new.
    assert!(engine.offer().is_none());
    let now = waves(&mut engine, &machine, now, 60);
    assert!(matches!(engine.offer(), Some(PriceOffer::Write(_))));

    // After a restart it is offered again, from what was remembered.
    let saved = memory_of(&engine);
    let again = |saved| engine_of(settings(PERIODIC), Some(saved));
    let mut restarted = again(saved.clone());
    let operations = engine.status(Duration::ZERO).prices.operations;
    let now = steps(&mut restarted, &machine, now, 1);
    assert_eq!(restarted.status(Duration::ZERO).prices.state, "refit");
    assert!(restarted.status(Duration::ZERO).prices.operations >= operations);
    samples_of(restarted.offer());

    // Once it is installed, watching starts over, and the offer is withdrawn.
    for (parameter, price) in refitted {
        machine.sim.set_price_parameter(parameter, price).unwrap();
    }
    *machine.dearer.lock().unwrap() = 1.0;
    steps(&mut restarted, &machine, now, 1);
    assert_eq!(restarted.status(Duration::ZERO).prices.state, "too-few");
    assert!(matches!(restarted.offer(), Some(PriceOffer::Remove)));
    let mut other = again(saved);
    steps(&mut other, &machine, now + 30, 1);
    assert_eq!(other.status(Duration::ZERO).prices.state, "too-few");
}

fn memory_of(engine: &DecisionEngine) -> PersistedState {
    crate::persisted_state::decode(
        crate::persisted_state::encode(&engine.persisted_state().unwrap()).as_bytes(),
    )
    .unwrap()
}

#[test]
fn costs_that_cannot_be_true_leave_prices_and_joules_alone() {
    for absurd in [0.0, 1e-9, 1e15, f64::INFINITY] {
        let machine = TestMachine::new(64);
        let mut engine = engine_of(settings(PERIODIC), None);
        let now = waves(&mut engine, &machine, 1_000_000, 50);
        let before = engine.status(Duration::ZERO).prices;
        *machine.dearer.lock().unwrap() = absurd;
        waves(&mut engine, &machine, now, 30);
        let after = engine.status(Duration::ZERO).prices;
        assert_eq!((after.state, after.operations), (before.state, before.operations), "{absurd}");
        assert!(after.left_out > before.left_out + 10, "{absurd}: {after:?}");
        engine.status(Duration::ZERO).write(tempfile::tempdir().unwrap().path()).unwrap();
    }
}

#[test]
fn only_mode_on_with_the_kernels_own_prices_learns_of_them() {
    let machine = TestMachine::new(64);
    let mut engine = engine("observe", None);
    waves(&mut engine, &machine, 1_000_000, 40);
    let observed = engine.status(Duration::ZERO).prices;
    assert_eq!((observed.state, observed.operations, observed.left_out), ("too-few", 0, 0));
    let mut engine = engine_of(settings(PERIODIC), None);
    engine.step(&*machine.real, "stock", Duration::from_secs(1)).unwrap();
    let stock = engine.status(Duration::ZERO).prices;
    assert!(stock.state == "unwatched" && stock.text.contains("stock kernel"), "{stock:?}");
    assert!(engine.offer().is_none());
}
