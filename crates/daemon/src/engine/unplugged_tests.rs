//! The memory of a node is taken out and plugged in again while the daemon runs.

use std::fs;

use ramslice_sim::{SimConfig, ZoneConfig};
use ramslice_types::NodeId;

use super::tests::{SLICE, TestMachine, host, steps};
use super::*;

/// Two nodes with 64 slices each.
fn two_nodes() -> TestMachine {
    let mut config = SimConfig::new(SLICE * 64, SLICE);
    let zone = config.zones.remove(0);
    config.zones = (0..2).map(|node| ZoneConfig { node: NodeId(node), ..zone.clone() }).collect();
    TestMachine::of(config)
}

fn plugged(machine: &TestMachine, node_1: bool) {
    *machine.unplugged.lock().unwrap() = (!node_1).then_some(NodeId(1));
}

fn engine(host: HostFiles) -> DecisionEngine {
    let text = "schema_version = 1\nmode = \"on\"\n[energy]\nprofile = \"none\"\n\
        [limits]\nfloor_mib = 2048\n";
    let settings = DaemonSettings::parse(text, "test.toml").unwrap();
    DecisionEngine::new(settings, None, host, Arc::default(), Arc::default())
}

/// Slices of node 0 that are on.
fn on(machine: &TestMachine) -> usize {
    let on = |slice: &&ramslice_types::Slice| {
        slice.node == NodeId(0) && slice.state == SliceState::Online
    };
    machine.sim.snapshot().unwrap().slices.iter().filter(on).count()
}

#[test]
fn a_node_that_is_left_alone_holds_all_that_is_to_stay_on() {
    let machine = two_nodes();
    let mut engine = engine(host());
    let now = steps(&mut engine, &machine, 1_000_000, 1);
    plugged(&machine, false);
    let now = steps(&mut engine, &machine, now, 60);
    // 2 GiB are 32 slices.
    let all = on(&machine);
    assert!((32..40).contains(&all), "{all} slices");
    plugged(&machine, true);
    steps(&mut engine, &machine, now, 60);
    let half = on(&machine);
    assert!((16..24).contains(&half), "{half} slices");
}

#[test]
fn nothing_piles_up_for_memory_that_was_taken_out() {
    let machine = two_nodes();
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = "avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    fs::write(file.path(), format!("some {line}full {line}")).unwrap();
    let mut engine = engine(HostFiles { pressure: Some(file.path().into()), ..host() });
    let now = steps(&mut engine, &machine, 1_000_000, 10);
    plugged(&machine, false);
    steps(&mut engine, &machine, now, 50);
    let zones = engine.persisted_state().unwrap().zones;
    let gone = zones.iter().find(|zone| zone.key.node == NodeId(1)).unwrap();
    assert!(gone.events.is_empty() && gone.baseline.is_none(), "{gone:?}");
}

#[test]
fn metrics_show_nothing_of_memory_that_was_taken_out() {
    let machine = two_nodes();
    let mut engine = engine(host());
    let of_node_1 = |engine: &DecisionEngine| engine.metrics.text().matches("node=\"1\"").count();
    let now = steps(&mut engine, &machine, 1_000_000, 2);
    let before = of_node_1(&engine);
    assert!(before > 8, "{before}");
    plugged(&machine, false);
    let now = steps(&mut engine, &machine, now, 1);
    assert_eq!(of_node_1(&engine), 0, "{}", engine.metrics.text());
    plugged(&machine, true);
    steps(&mut engine, &machine, now, 1);
    assert_eq!(of_node_1(&engine), before);
}
