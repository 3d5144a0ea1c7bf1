//! What every backend must hold, of the simulator at both grains and of a machine that it saved.

use std::time::Duration;

use ramslice_backend::ReplayBackend;
use ramslice_conformance::{CheckSettings, check};
use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimBackend, SimConfig, ZoneConfig};
use ramslice_types::{Backend, Bytes, NodeId, Pages, ZoneNumber};

const GIB: u64 = 1 << 30;

/// No other program uses a simulated machine.
fn holds(backend: &dyn Backend, contents: bool) {
    let broken = check(backend, CheckSettings { tolerance: Pages(0), contents, events: true });
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A machine with processes, cache, pinned memory and slab that have come and gone for a while.
fn used(config: SimConfig) -> SimBackend {
    let backend = SimBackend::new(config).unwrap();
    let total = backend.info().unwrap().managed_pages.0;
    let level = |owner, class, maps, share: f64| {
        let pages = (total as f64 * share) as u64;
        backend.apply(MemoryChange::Level { owner: OwnerId(owner), class, maps, pages });
    };
    for (owner, share) in (0..8).zip([0.05, 0.02, 0.04, 0.08, 0.01, 0.03, 0.02, 0.04]) {
        level(owner, OwnerClass::Anon, 1 + owner % 3, share);
    }
    level(20, OwnerClass::File, 0, 0.2);
    level(21, OwnerClass::FileMapped, 2, 0.02);
    level(22, OwnerClass::Shmem, 0, 0.01);
    level(23, OwnerClass::Unmovable, 0, 0.01);
    for owner in [1, 3, 5] {
        level(owner, OwnerClass::Anon, 1, 0.0);
    }
    backend.apply(MemoryChange::Write { owner: OwnerId(20), pages: total / 100 });
    backend.advance(Duration::from_secs(3));
    backend.with(|machine| machine.check_books()).unwrap();
    backend
}

fn fine() -> SimConfig {
    SimConfig::new(Bytes(8 * GIB), Bytes(64 << 20))
}

#[test]
fn the_simulator_is_a_backend() {
    let backend = used(fine());
    holds(&backend, true);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn the_simulator_with_coarse_grain_is_a_backend() {
    let backend = used(SimConfig::new(Bytes(512 * GIB), Bytes(GIB)).coarse());
    holds(&backend, true);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn the_simulator_with_two_nodes_is_a_backend() {
    let zone = |node, zone, name: &str, gib| ZoneConfig {
        node: NodeId(node),
        zone: ZoneNumber(zone),
        name: name.to_owned(),
        size: Bytes(gib * GIB),
    };
    let zones = vec![zone(0, 1, "DMA32", 2), zone(0, 2, "Normal", 6), zone(1, 2, "Normal", 8)];
    let backend = used(SimConfig { zones, ..fine() });
    holds(&backend, true);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn a_saved_machine_is_a_backend() {
    let machine = used(fine()).machine().unwrap();
    // The pages were not saved with it.
    holds(&ReplayBackend::new(machine), false);
}
