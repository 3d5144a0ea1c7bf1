//! Where the hardware switches four slices as one, they go off and wake together.

use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimConfig};
use ramslice_types::{Bytes, RequestOp};

use super::tests::{SLICE, TestMachine, engine_of, steps, with_energy};
use super::*;

const GRANULE: u32 = 4;

/// Of 64 slices, programs use 20: they keep their size, as memory is in use.
fn used() -> TestMachine {
    let granule_slices = GRANULE;
    let machine =
        TestMachine::of(SimConfig { granule_slices, ..SimConfig::new(SLICE * 64, SLICE) });
    machine.use_slices(20.0);
    machine
}

fn engine_in(mode: &str, settings: &str) -> DecisionEngine {
    let unit = Bytes(SLICE.0 * u64::from(GRANULE)).typed();
    let energy = format!("granularity = \"{unit}\"");
    engine_of(with_energy(&format!("mode = \"{mode}\"\n{settings}"), &energy), None)
}

/// How many slices of each granule are off.
fn off_by_granule(slices: &[ramslice_types::Slice]) -> Vec<usize> {
    let off = |granule: &[ramslice_types::Slice]| {
        granule.iter().filter(|slice| slice.state == SliceState::Offline).count()
    };
    slices.chunks(GRANULE as usize).map(off).collect()
}

fn off_of(machine: &TestMachine) -> Vec<usize> {
    off_by_granule(&machine.sim.snapshot().unwrap().slices)
}

#[test]
fn whole_units_go_off_and_earn() {
    let machine = used();
    let mut engine = engine_in("on", "");
    steps(&mut engine, &machine, 1_000_000, 240);
    let off = off_of(&machine);
    assert!(off.iter().all(|off| [0, 4].contains(off)), "{off:?}");
    assert!(off.iter().sum::<usize>() >= 32, "{off:?}");
    // All of it is named: what the front of the kernel's order has may lie anywhere.
    let requests = machine.requests.lock().unwrap();
    assert!(requests.iter().all(|request| matches!(request.op, RequestOp::Offline(_))));
    let status = engine.status(Duration::ZERO);
    let earned = status.earned.unwrap();
    assert!(earned.net.low > 0.0, "{earned:?}");
    assert!(status.notes.iter().any(|note| note.contains("so the governor empties whole units")));
    // In two hours, the granules have saved what as many slices do alone.
    let saved = machine.sim.with(|machine| machine.stats().off_byte_us);
    let all = u128::from(SLICE.0) * 240 * 30_000_000 * off.iter().sum::<usize>() as u128;
    assert!(saved > all / 2 && saved <= all, "{saved} of {all}");
}

#[test]
fn observe_simulates_whole_units() {
    let machine = used();
    let mut engine = engine_in("observe", "\n");
    // It would work with larger slices otherwise.
    engine.settings.resize_slices = false;
    steps(&mut engine, &machine, 1_000_000, 240);
    assert_eq!((machine.sent(), machine.off()), (0, 0));
    let off = off_by_granule(&machine.what_if.snapshot().unwrap().slices);
    assert!(off.iter().all(|off| [0, 4].contains(off)), "{off:?}");
    assert!(off.iter().sum::<usize>() >= 32, "{off:?}");
    let earned = engine.status(Duration::ZERO).would_earn.unwrap().earned.unwrap();
    assert!(earned.net.low > 0.0, "{earned:?}");
}

#[test]
fn other_policies_and_what_is_told_of_them_do_not_change() {
    let machine = used();
    let mut engine = engine_in("on", "policy = \"periodic\"");
    steps(&mut engine, &machine, 1_000_000, 3);
    let requests = machine.requests.lock().unwrap();
    assert!(!requests.is_empty());
    assert!(!requests.iter().any(|request| matches!(request.op, RequestOp::Offline(_))));
}

#[test]
fn after_a_slice_failed_the_rest_of_its_unit_is_not_tried_and_what_was_off_wakes() {
    let machine = used();
    // Those of the kernel are in the first.
    let stuck: Vec<u32> = (1..16).map(|granule| granule * GRANULE + granule % GRANULE).collect();
    machine.stuck.lock().unwrap().extend(stuck.iter().copied().map(SliceId));
    let mut engine = engine_in("on", "");
    let mut now = 1_000_000;
    for _ in 0..120 {
        machine.requests.lock().unwrap().clear();
        now = steps(&mut engine, &machine, now, 1);
        let requests = machine.requests.lock().unwrap();
        let tried: Vec<u32> = requests
            .iter()
            .filter_map(|request| match request.op {
                RequestOp::Offline(id) => Some(id.0),
                _ => None,
            })
            .collect();
        for pair in tried.windows(2) {
            let ends = !stuck.contains(&pair[0]) || pair[0] / GRANULE != pair[1] / GRANULE;
            assert!(ends, "{tried:?}");
        }
    }
    assert!(off_of(&machine).iter().all(|off| *off < 4));
    assert!(engine.work.woken_slices > 0, "{:?}", engine.work);
    // Once the last ones were given up, nothing of them is left off, though it goes on trying.
    let left: usize = off_of(&machine).iter().sum();
    assert!(left < 8, "{left} slices are off in vain");
    machine.stuck.lock().unwrap().clear();
    steps(&mut engine, &machine, now, 360);
    let off = off_of(&machine);
    assert!(off.iter().filter(|off| **off == 4).count() >= 8, "{off:?}");
}

#[test]
fn a_unit_of_which_memory_woke_a_slice_is_completed_once_that_is_idle() {
    let machine = used();
    let mut engine = engine_in("on", "");
    let now = steps(&mut engine, &machine, 1_000_000, 240);
    let before = off_of(&machine).iter().filter(|off| **off == 4).count();
    let take = |pages| {
        machine.sim.apply(MemoryChange::Level {
            owner: OwnerId(2),
            class: OwnerClass::Anon,
            maps: 1,
            pages,
        });
    };
    // More than what is awake: some slices wake, and leave their granules incomplete.
    let zone = &machine.sim.zones().unwrap()[0];
    take((zone.free_pages + zone.awake_reserve_pages).0);
    let now = steps(&mut engine, &machine, now, 1);
    let broken = off_of(&machine);
    assert!(broken.iter().any(|off| (1..4).contains(off)), "{broken:?}");
    take(0);
    let sent = machine.sent();
    steps(&mut engine, &machine, now, 480);
    let off = off_of(&machine);
    assert!(off.iter().filter(|off| **off == 4).count() >= before, "{before}: {off:?}");
    assert!(off.iter().all(|off| [0, 4].contains(off)), "{off:?}");
    assert!(machine.sent() > sent);
}
