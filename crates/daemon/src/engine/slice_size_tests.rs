//! When slices become as large as what the hardware switches as one, and when and why not.

use ramslice_types::{Bytes, Request, RequestOp};

use super::tests::{SLICE, TestMachine, engine_of, steps, with_energy};
use super::*;

const UNIT: Bytes = Bytes(1 << 30);

/// A machine of so many slices of 64 MiB after some steps with these settings, the size of its
/// slices then, and what the status says of them.
fn after_steps(machine: &TestMachine, mode: &str, energy: &str) -> (Bytes, Vec<String>) {
    let mut engine = engine_of(with_energy(&format!("mode = \"{mode}\""), energy), None);
    steps(&mut engine, machine, 1_000_000, 3);
    (machine.sim.slice_bytes().unwrap(), size_notes(&engine))
}

fn size_notes(engine: &DecisionEngine) -> Vec<String> {
    let notes = engine.status(Duration::ZERO).notes;
    notes.into_iter().filter(|note| note.starts_with("slices stay at")).collect()
}

#[test]
fn mode_on_makes_slices_as_large_as_what_the_hardware_switches() {
    let machine = TestMachine::new(128);
    assert_eq!(after_steps(&machine, "on", ""), (UNIT, vec![]));
    // They are worth switching, and are
    assert!(machine.off() > 0);
}

#[test]
fn mode_observe_works_with_slices_as_large_and_leaves_the_machines() {
    // A driver is assumed
    for driver in [None, Some("none")] {
        let machine = TestMachine::new(128);
        *machine.driver.lock().unwrap() = driver;
        assert_eq!(after_steps(&machine, "observe", ""), (SLICE, vec![]));
        assert_eq!((machine.what_if.slice_bytes().unwrap(), machine.sent()), (UNIT, 0));
        assert!(machine.what_if.simulated_offline() > Some(0));
    }
}

#[test]
fn what_was_worked_out_with_larger_slices_is_taken_up_after_a_restart() {
    let machine = TestMachine::new(128);
    let settings = || with_energy("mode = \"observe\"", "");
    let mut engine = engine_of(settings(), None);
    steps(&mut engine, &machine, 1_000_000, 3);
    let saved =
        PersistedState { what_if: machine.what_if.memory(), ..engine.persisted_state().unwrap() };
    let again = engine_of(settings(), Some(saved));
    let memory = again.saved_what_if(&machine.real.info().unwrap()).unwrap();
    assert_eq!(memory, machine.what_if.memory());
    assert!(memory.nr_offline() > 0);
}

#[test]
fn the_size_stays_where_it_is_not_to_be_changed() {
    for (mode, energy) in [
        ("off", ""),
        ("on", "resize_slices = false"),
        // As large, or larger
        ("on", "granularity = \"slice\""),
        ("on", "granularity = \"64MiB\""),
        ("on", "granularity = \"16MiB\""),
    ] {
        let machine = TestMachine::new(128);
        assert_eq!(after_steps(&machine, mode, energy), (SLICE, vec![]), "{mode} {energy}");
    }
    // Without a driver, nothing is switched
    let machine = TestMachine::new(128);
    *machine.driver.lock().unwrap() = Some("none");
    assert_eq!(after_steps(&machine, "on", ""), (SLICE, vec![]));
}

#[test]
fn a_memory_of_few_units_keeps_its_slices_and_says_so() {
    let (size, notes) = after_steps(&TestMachine::new(63), "on", "");
    assert_eq!(size, SLICE);
    assert!(notes[0].contains("fewer than 4 of them; set energy.granularity"), "{notes:?}");
    assert_eq!(after_steps(&TestMachine::new(64), "on", ""), (UNIT, vec![]));
}

#[test]
fn the_size_changes_once_all_slices_are_online() {
    let machine = TestMachine::new(128);
    machine.sim.request(&Request::new(RequestOp::Offline(SliceId(100)))).unwrap();
    let mut engine = engine_of(with_energy("mode = \"on\"\npolicy = \"never\"", ""), None);
    let now = steps(&mut engine, &machine, 1_000_000, 2);
    assert_eq!(machine.sim.slice_bytes().unwrap(), SLICE);
    let notes = size_notes(&engine);
    assert!(notes[0].contains("slice 100 is offline, and the size changes only"), "{notes:?}");
    machine.sim.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    steps(&mut engine, &machine, now, 1);
    assert_eq!((machine.sim.slice_bytes().unwrap(), size_notes(&engine)), (UNIT, vec![]));
}

#[test]
fn what_the_machine_refuses_is_told() {
    // The simulated machine keeps its size once memory is in use
    let (size, notes) = after_steps(&TestMachine::used(20.0), "on", "");
    assert_eq!(size, SLICE);
    assert!(notes[0].contains("do not become 1 GiB: a simulated machine keeps"), "{notes:?}");
}

#[test]
fn a_profile_of_gigabytes_has_no_use_for_the_setting() {
    let text = "schema_version = 1\n[energy]\nprofile = \"giveback\"\nresize_slices = true\n";
    let fault = DaemonSettings::parse(text, "test.toml").unwrap_err().lines().join(" ");
    assert!(fault.contains("energy.resize_slices is about DRAM"), "{fault}");
}
