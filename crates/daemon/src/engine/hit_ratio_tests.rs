//! Watermarks that follow the hit ratio: from the kernel's counters to status and metrics.

use std::path::Path;

use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimConfig, ZoneConfig};
use ramslice_types::{NodeId, Pages};

use super::tests::{SLICE, TestMachine, engine_of, settings};
use super::*;

/// Counters after `looks` looks, between which so many pages each are looked up, absent and back.
fn write(path: &Path, looks: u64, [lookups, absent, back]: [u64; 3]) {
    let text = format!(
        "pgfault 1\nworkingset_refault_file {}\nramslice_lookup_read {}\n\
         ramslice_lookup_fault 0\nramslice_absent_read {}\nramslice_absent_fault 0\n\
         ramslice_readahead {}\nramslice_readahead_unused 0\n",
        back * looks,
        lookups * looks,
        absent * looks,
        absent * looks
    );
    std::fs::write(path, text).unwrap();
}

/// An engine after `looks` looks at counters that grow so.
fn looked(looks: u64, counts: [u64; 3]) -> DecisionEngine {
    let machine = TestMachine::used(20.0);
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "mode = \"on\"\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = 0.9\n\
                least_lookups = 1000";
    let mut engine = engine_of(settings(text), None);
    engine.host.vmstat = Some(file.path().into());
    for look in 1..=looks {
        write(file.path(), look, counts);
        let now = Duration::from_secs(1_000_000 + look * 30);
        engine.step(machine.seen_by(&engine), "simulated", now).unwrap();
    }
    engine
}

#[test]
fn misses_that_memory_would_avoid_raise_watermarks_with_a_reason_everywhere() {
    let engine = looked(12, [10_000, 3000, 3000]);
    let status = engine.status(Duration::ZERO);
    let marks = status.zones[0].watermarks.as_ref().unwrap();
    assert!(marks.moves >= 3, "{marks:?}");
    assert!(marks.last_move.as_deref().unwrap().starts_with("raises"), "{marks:?}");
    assert_eq!((marks.hit_ratio, marks.lookup_pages), (Some(0.7), Pages(10_000)));
    let ratios = status.page_cache.ratios.unwrap();
    assert!((ratios.lookup_hit.0 - 0.7).abs() < 1e-9, "{ratios:?}");
    let text = engine.metrics.text();
    for line in [
        "ramslice_cache_lookup_hit_ratio{} 0.7",
        "ramslice_cache_lookup_pages_total{kind=\"read\"} 110000",
        "ramslice_cache_absent_pages_total{kind=\"read\"} 33000",
        "direction=\"raised\",reason=\"below-target\"} ",
        "watermark=\"cache-free-high\"} ",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_is_read_for_the_first_time_raises_nothing() {
    let engine = looked(12, [10_000, 9000, 0]);
    let status = engine.status(Duration::ZERO);
    let marks = status.zones[0].watermarks.as_ref().unwrap();
    assert_eq!((marks.moves, marks.hit_ratio), (0, Some(1.0)), "{marks:?}");
    assert!((status.page_cache.ratios.unwrap().lookup_hit.0 - 0.1).abs() < 1e-9);
}

#[test]
fn zones_share_out_what_was_looked_up_by_their_cache() {
    let mut config = SimConfig::new(SLICE * 32, SLICE);
    let zone = config.zones[0].clone();
    config.zones = (0..2).map(|node| ZoneConfig { node: NodeId(node), ..zone.clone() }).collect();
    let machine = TestMachine::of(config);
    // Each owner on a node of its own.
    for (owner, pages) in [(2, 100_000), (3, 50_000)] {
        let (owner, class) = (OwnerId(owner), OwnerClass::File);
        machine.sim.apply(MemoryChange::Level { owner, class, maps: 0, pages });
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let sum = |text: &str| {
        let mut engine = engine_of(settings(text), None);
        engine.host.vmstat = Some(file.path().into());
        for look in 1..3 {
            write(file.path(), look, [10_000, 3000, 1000]);
            engine.time = Duration::from_secs(1_000_000 + look * 30);
            let look = MachineSnapshot::take(&*machine.real).unwrap();
            engine.bind(&*machine.real, &look).unwrap();
            engine.count_host(&look);
        }
        let mut sums = [0; 4];
        for event in engine.zone_states.values().flat_map(|state| &state.events) {
            if let &PolicyEvent::LookedUp { lookups, absent, brought, returned, .. } = event {
                for (sum, pages) in sums.iter_mut().zip([lookups, absent, brought, returned]) {
                    *sum += pages.0;
                }
            }
        }
        (engine.zone_states.len(), sums)
    };
    assert_eq!(sum("mode = \"on\""), (2, [10_000, 3000, 3000, 1000]));
    // By their ratio alone, each zone goes by all of them.
    let marks = "mode = \"on\"\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = 0.9";
    assert_eq!(sum(marks), (2, [20_000, 6000, 6000, 2000]));
}

#[test]
fn on_a_kernel_that_counts_nothing_the_status_says_why() {
    let machine = TestMachine::used(20.0);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "pgfault 1\n").unwrap();
    let text = "mode = \"on\"\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = 0.9";
    let mut engine = engine_of(settings(text), None);
    engine.host.vmstat = Some(file.path().into());
    for look in 1..4 {
        let now = Duration::from_secs(1_000_000 + look * 30);
        engine.step(machine.seen_by(&engine), "simulated", now).unwrap();
    }
    let status = engine.status(Duration::ZERO);
    assert!(status.page_cache.why.unwrap().contains("ramslice_lookup_read"));
    let marks = status.zones[0].watermarks.as_ref().unwrap();
    assert!(marks.moves == 0 && marks.why.contains("unknown"), "{marks:?}");
    assert!(!engine.metrics.text().contains("ramslice_cache_lookup_hit_ratio{}"));
}
