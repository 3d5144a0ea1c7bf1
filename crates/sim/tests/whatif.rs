//! What requests would do to a simulated machine: none reaches it, and what is shown adds up.

use ramslice_backend::{ReplayBackend, WhatIfBackend, ZoneKey};
use ramslice_conformance::{CheckSettings, check};
use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, PlacementRule, SimBackend, SimConfig};
use ramslice_types::{
    Backend, Budget, Bytes, CacheChoice, NodeId, Pages, Price, Reason, Request, RequestOp, Slice,
    SliceSnapshot, SliceState, Zone,
};

const SLICE: u64 = 64 << 20;

fn machine(slices: u64) -> SimBackend {
    let slice = Bytes(SLICE);
    SimBackend::new(SimConfig::new(slice * slices, slice)).unwrap()
}

fn use_memory(sim: &SimBackend, slices: f64) {
    let pages = (slices * SLICE as f64 / 4096.0) as u64;
    sim.apply(MemoryChange::Level { owner: OwnerId(1), class: OwnerClass::Anon, maps: 1, pages });
}

/// Sums of zones and slices agree, as those of a kernel.
fn adds_up(zones: &[Zone], snapshot: &SliceSnapshot) {
    for zone in zones {
        let of_zone = |slice: &&Slice| ZoneKey::of_slice(slice) == ZoneKey::of(zone);
        let slices: Vec<_> = snapshot.slices.iter().filter(of_zone).collect();
        let off = slices.iter().filter(|slice| slice.state == SliceState::Offline);
        assert_eq!(off.clone().count() as u32, zone.nr_offline);
        assert_eq!(off.map(|slice| slice.present).sum::<Pages>(), zone.offline_pages);
        assert_eq!(slices.iter().filter(|slice| slice.is_empty()).count() as u32, zone.nr_empty);
        assert!(zone.free_pages + zone.offline_pages <= zone.managed_pages);
    }
}

/// Looks at the machine as it would be.
fn look(backend: &WhatIfBackend<&SimBackend>) -> (Zone, SliceSnapshot) {
    let (_, mut zones, snapshot) = backend.view().unwrap();
    adds_up(&zones, &snapshot);
    (zones.remove(0), snapshot)
}

fn nr_offline(backend: &WhatIfBackend<&SimBackend>) -> u32 {
    backend.simulated_offline().unwrap()
}

#[test]
fn every_rule_of_a_backend_holds_around_a_simulated_and_around_a_saved_machine() {
    let sim = machine(64);
    use_memory(&sim, 50.0);
    use_memory(&sim, 20.0);
    let pages = 8 * SLICE / 4096;
    sim.apply(MemoryChange::Level { owner: OwnerId(2), class: OwnerClass::File, maps: 0, pages });
    sim.apply(MemoryChange::Level {
        owner: OwnerId(3),
        class: OwnerClass::Unmovable,
        maps: 0,
        pages: 99,
    });
    let before = sim.snapshot().unwrap();
    let saved = ReplayBackend::new(sim.machine().unwrap());
    let settings = CheckSettings { tolerance: Pages::ZERO, contents: false, events: true };
    let broken = [
        check(&WhatIfBackend::new(&sim), CheckSettings { contents: true, ..settings }),
        check(&WhatIfBackend::new(&saved), settings),
    ];
    assert!(broken.iter().all(Vec::is_empty), "{broken:#?}");
    assert_eq!(sim.snapshot().unwrap(), before);
    assert_eq!(saved.snapshot().unwrap(), before);
}

#[test]
fn empty_slices_go_offline_in_the_copy_and_the_machine_stays_as_it_is() {
    let sim = machine(32);
    let before = sim.snapshot().unwrap();
    let backend = WhatIfBackend::new(&sim);
    let request = Request { max_slices: Some(5), ..Request::new(RequestOp::OfflineFree) };
    let outcome = backend.request(&request).unwrap();
    assert_eq!((outcome.slices_done, nr_offline(&backend)), (5, 5));
    adds_up(&backend.zones().unwrap(), &look(&backend).1);
    let (zone, snapshot) = look(&backend);
    assert_eq!(zone.nr_offline, 5);
    assert_eq!(snapshot.event_seq, before.event_seq + 10);
    assert_eq!(sim.snapshot().unwrap(), before);
    assert_eq!(sim.work().unwrap().tried_slices, 0);
}

#[test]
fn slices_wake_when_the_machine_would_fall_below_its_reserve_and_no_earlier() {
    let sim = machine(32);
    use_memory(&sim, 10.0);
    let backend = WhatIfBackend::new(&sim);
    // All it can: what stays free is the reserve and less than a slice.
    backend.request(&Request::new(RequestOp::Compact)).unwrap();
    let (off, free) = (nr_offline(&backend), look(&backend).0.free_pages);
    assert!(off >= 19 && free >= look(&backend).0.awake_reserve_pages, "{off} off, {free} free");
    use_memory(&sim, 14.0);
    let (zone, _) = look(&backend);
    assert!(zone.free_pages >= zone.awake_reserve_pages);
    let woken = zone.woken_by_demand;
    assert!((3..=5).contains(&woken), "{woken} woke");
    assert_eq!(u64::from(off - nr_offline(&backend)), woken);
    // Nothing further happens: they wake once.
    assert_eq!(look(&backend).0.woken_by_demand, woken);
}

/// A machine of 32 slices whose free memory is the reserve and little more: 20 slices with cache
/// and so many free pages each, which those of the reserve would have to go with; 5 with nothing
/// but cache; and 7 of programs.
fn little_is_free(holes: u64) -> SimBackend {
    let config = SimConfig {
        boot_share: 0.0,
        placement: PlacementRule::Packed,
        ..SimConfig::new(Bytes(SLICE * 32), Bytes(SLICE))
    };
    let sim = SimBackend::new(config).unwrap();
    let (frames, reserve) = (SLICE / 4096, sim.zones().unwrap()[0].awake_reserve_pages.0);
    let level = |owner, class, pages| {
        sim.apply(MemoryChange::Level { owner: OwnerId(owner), class, maps: 1, pages });
    };
    for slice in 0..20 {
        level(2 * slice, OwnerClass::File, frames - holes);
        level(2 * slice + 1, OwnerClass::Anon, holes);
    }
    level(40, OwnerClass::File, 5 * frames);
    level(41, OwnerClass::Anon, 7 * frames + 20 * holes - reserve - 4);
    for slice in 0..20 {
        level(2 * slice + 1, OwnerClass::Anon, 0);
    }
    assert_eq!(sim.zones().unwrap()[0].free_pages.0, reserve + 4);
    sim
}

#[test]
fn slices_with_free_pages_that_the_reserve_needs_keep_none_on_that_is_full_of_cache() {
    let sim = little_is_free(13);
    let what_if = WhatIfBackend::new(&sim);
    for backend in [&what_if as &dyn Backend, &sim] {
        let outcome = backend.request(&Request::new(RequestOp::Compact)).unwrap();
        assert_eq!(outcome.slices_done, 5, "{outcome:?}");
        assert_eq!(outcome.dropped, Pages(5 * SLICE / 4096), "{outcome:?}");
    }
}

#[test]
fn empty_slices_go_off_from_below_and_of_equal_prices_the_higher_one_first() {
    let config = SimConfig { boot_share: 0.0, ..SimConfig::new(Bytes(SLICE * 8), Bytes(SLICE)) };
    for (op, expected) in [(RequestOp::OfflineFree, [0, 1, 2]), (RequestOp::Compact, [5, 6, 7])] {
        let sim = SimBackend::new(config.clone()).unwrap();
        let what_if = WhatIfBackend::new(&sim);
        for backend in [&what_if as &dyn Backend, &sim] {
            backend.request(&Request { max_slices: Some(3), ..Request::new(op) }).unwrap();
            let slices = backend.snapshot().unwrap().slices;
            let off = slices.iter().filter(|slice| slice.state == SliceState::Offline);
            assert_eq!(off.map(|slice| slice.id.0).collect::<Vec<_>>(), expected, "{op:?}");
        }
    }
}

#[test]
fn the_budget_the_zone_and_the_number_are_kept() {
    let sim = machine(32);
    use_memory(&sim, 20.0);
    let backend = WhatIfBackend::new(&sim);
    let (_, snapshot) = look(&backend);
    let cheapest = snapshot.slices.iter().filter_map(Slice::finite_price).min().unwrap();
    let budget = Budget::Limited(Price(cheapest.0 - 1));
    let outcome = backend.request(&Request { budget, ..Request::default() }).unwrap();
    assert_eq!((outcome.slices_done, outcome.reason), (0, Reason::OverBudget));
    let node = Some(NodeId(7));
    let outcome = backend.request(&Request { node, ..Request::default() }).unwrap();
    assert_eq!(outcome.slices_done, 0);
    let two = Request { max_slices: Some(2), ..Request::default() };
    let outcome = backend.request(&two).unwrap();
    assert_eq!(outcome.slices_done, 2);
    assert!(outcome.price_predicted >= cheapest);
    let wake = Request { max_slices: Some(1), ..Request::new(RequestOp::OnlineAll) };
    let outcome = backend.request(&wake).unwrap();
    assert_eq!((outcome.slices_done, nr_offline(&backend)), (1, 1));
}

#[test]
fn cache_that_a_request_keeps_is_moved_not_dropped() {
    let sim = machine(32);
    use_memory(&sim, 8.0);
    let pages = 10 * SLICE / 4096;
    sim.apply(MemoryChange::Level { owner: OwnerId(2), class: OwnerClass::File, maps: 1, pages });
    let of = |cache| {
        let backend = WhatIfBackend::new(&sim);
        let outcome = backend.request(&Request { cache, ..Request::default() }).unwrap();
        (outcome.migrated, outcome.dropped)
    };
    let ((moved, dropped), (kept, none)) = (of(CacheChoice::Drop), of(CacheChoice::Keep));
    assert!(dropped > Pages::ZERO && none == Pages::ZERO, "{dropped} dropped, {none}");
    assert_eq!(kept, moved + dropped);
}

#[test]
fn a_slice_that_another_program_switches_off_is_no_longer_simulated() {
    let sim = machine(32);
    let backend = WhatIfBackend::new(&sim);
    let one = Request { max_slices: Some(1), ..Request::default() };
    let outcome = backend.request(&one).unwrap();
    sim.request(&Request::new(RequestOp::Offline(outcome.last_slice.unwrap()))).unwrap();
    let (zone, _) = look(&backend);
    assert_eq!((nr_offline(&backend), zone.nr_offline), (0, 1));
}

#[test]
fn memory_is_short_by_what_would_be_offline() {
    let sim = machine(32);
    use_memory(&sim, 10.0);
    let backend = WhatIfBackend::new(&sim);
    backend.request(&Request::new(RequestOp::Compact)).unwrap();
    assert!(!backend.is_short_of_memory().unwrap());
    use_memory(&sim, 14.0);
    // Nothing looked at slices, so that none has woken.
    assert!(backend.is_short_of_memory().unwrap() && !sim.is_short_of_memory().unwrap());
    backend.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    assert!(!backend.is_short_of_memory().unwrap());
}
