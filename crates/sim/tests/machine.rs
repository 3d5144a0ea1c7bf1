//! The simulated machine by itself: its books, its rules, what chance decides.

use std::time::Duration;

use proptest::prelude::*;
use ramslice_policy::{AnyPolicy, PolicyConfig, PolicyEvent, PolicyKind, SliceEconomics};
use ramslice_sim::load::{LoadGenerator, LoadPattern, LoadScale};
use ramslice_sim::{
    ClairvoyantSchedule, EnergyRates, MemoryChange, OwnerClass, OwnerId, PlacementRule, RunDecider,
    SimBackend, SimConfig, SimMachine, SimRun, run,
};
use ramslice_types::{
    Backend, Budget, Bytes, CacheChoice, Price, Reason, Request, RequestOp, SliceState,
};

const MIB: u64 = 1 << 20;

fn small() -> SimConfig {
    SimConfig { boot_share: 0.01, ..SimConfig::new(Bytes(1024 * MIB), Bytes(32 * MIB)) }
}

fn level(owner: u32, class: OwnerClass, maps: u32, pages: u64) -> MemoryChange {
    MemoryChange::Level { owner: OwnerId(owner), class, maps, pages }
}

fn offline(backend: &SimBackend) -> usize {
    let slices = backend.snapshot().unwrap().slices;
    slices.iter().filter(|slice| slice.state == SliceState::Offline).count()
}

fn economics(slice: Bytes) -> (SliceEconomics, EnergyRates) {
    let profile = ramslice_energy::builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state(&profile.default_state).unwrap().clone();
    let economics =
        SliceEconomics::new(&state, profile.machine.as_ref().unwrap(), slice, Bytes(4096)).unwrap();
    (economics, EnergyRates::new(&profile, &state, Bytes(4096)).unwrap())
}

fn simulate(pattern: LoadPattern, kind: PolicyKind, config: &SimConfig, hours: u64) -> SimRun {
    let mut machine = SimMachine::new(config.clone()).unwrap();
    let pages = machine.totals().managed.0;
    let scale = LoadScale {
        pages,
        step: Duration::from_secs(30),
        duration: Duration::from_secs(hours * 3600),
        seed: config.seed,
    };
    let (economics, _) = economics(config.slice_bytes);
    let policy =
        AnyPolicy::new(&PolicyConfig::new(kind), &economics, config.slice_bytes, Bytes(4096))
            .unwrap();
    run(
        &mut machine,
        LoadGenerator::new(pattern, scale),
        &mut RunDecider::Policy(policy),
        |machine| {
            machine.check_books().unwrap();
        },
    )
}

#[test]
fn memory_that_is_wanted_wakes_slices_and_is_there() {
    let backend = SimBackend::new(small()).unwrap();
    let managed = backend.info().unwrap().managed_pages.0;
    backend.request(&Request::new(RequestOp::Compact)).unwrap();
    assert!(offline(&backend) > 20);
    backend.apply(level(1, OwnerClass::Anon, 1, managed * 8 / 10));
    let stats = backend.with(|machine| machine.stats());
    assert!(stats.demand_wakes > 15, "{stats:?}");
    assert_eq!(stats.unmet_pages, 0);
    assert_eq!(backend.zones().unwrap()[0].woken_by_demand, stats.demand_wakes);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn the_lowest_slice_that_is_off_wakes_first() {
    let backend = SimBackend::new(SimConfig { boot_share: 0.0, ..small() }).unwrap();
    backend.request(&Request::new(RequestOp::OfflineFree)).unwrap();
    let off = |backend: &SimBackend| -> Vec<u32> {
        let slices = backend.snapshot().unwrap().slices;
        slices
            .iter()
            .filter(|slice| slice.state == SliceState::Offline)
            .map(|slice| slice.id.0)
            .collect()
    };
    let before = off(&backend);
    let managed = backend.info().unwrap().managed_pages.0;
    backend.apply(level(1, OwnerClass::Anon, 1, managed / 2));
    let after = off(&backend);
    assert!(!after.is_empty() && after.len() < before.len());
    assert_eq!(after, before[before.len() - after.len()..]);
}

#[test]
fn cache_that_left_a_trace_wakes_memory_and_other_cache_that_is_read_recycles() {
    for (cache, recycles) in [(CacheChoice::Drop, true), (CacheChoice::Auto, false)] {
        let backend = SimBackend::new(small()).unwrap();
        let managed = backend.info().unwrap().managed_pages.0;
        backend.apply(MemoryChange::Written { owner: OwnerId(1), pages: managed / 4 });
        backend.request(&Request { cache, ..Request::new(RequestOp::Compact) }).unwrap();
        // What is written wakes memory, whatever there is to recycle.
        let off = offline(&backend);
        backend.apply(MemoryChange::Written { owner: OwnerId(2), pages: managed / 4 });
        assert_eq!(backend.with(|machine| machine.stats()).reclaimed_pages, 0);
        assert!(offline(&backend) < off);
        backend.apply(MemoryChange::Read { owner: OwnerId(1), pages: managed / 4 });
        let stats = backend.with(|machine| machine.stats());
        assert!(stats.packing_refault_pages > managed / 16, "{cache:?}: {stats:?}");
        assert_eq!(stats.reclaimed_pages > 0, recycles, "{cache:?}: {stats:?}");
        backend.with(|machine| machine.check_books()).unwrap();
    }
}

#[test]
fn cache_that_is_reclaimed_while_slices_are_off_leaves_a_trace() {
    let backend = SimBackend::new(small()).unwrap();
    let managed = backend.info().unwrap().managed_pages.0;
    backend.apply(level(1, OwnerClass::File, 0, managed / 4));
    backend.request(&Request::new(RequestOp::OfflineFree)).unwrap();
    assert!(offline(&backend) > 0);
    let room = backend.info().unwrap().free_pages.0;
    // It is read for the first time, and recycles the other.
    backend.apply(level(2, OwnerClass::File, 0, room + managed / 8));
    assert!(backend.with(|machine| machine.stats()).reclaimed_pages > managed / 16);
    backend.with(SimMachine::take_events);
    backend.apply(MemoryChange::Read { owner: OwnerId(1), pages: managed / 4 });
    let refaults = backend.with(|machine| machine.stats()).packing_refault_pages;
    let events = backend.with(SimMachine::take_events);
    let returned = events.iter().find_map(|event| match event {
        PolicyEvent::LookedUp { returned, .. } => Some(returned.0),
        _ => None,
    });
    assert!(refaults > 0 && returned == Some(refaults), "{refaults} {events:?}");
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn more_than_there_is_is_counted_as_unmet() {
    let backend = SimBackend::new(small()).unwrap();
    let managed = backend.info().unwrap().managed_pages.0;
    backend.apply(level(1, OwnerClass::Anon, 1, managed * 2));
    let stats = backend.with(|machine| machine.stats());
    assert!(stats.unmet_pages > managed && stats.unmet_pages < managed * 11 / 10, "{stats:?}");
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn new_cache_recycles_old_cache_instead_of_waking() {
    let backend = SimBackend::new(small()).unwrap();
    let managed = backend.info().unwrap().managed_pages.0;
    backend.apply(level(1, OwnerClass::File, 0, managed / 4));
    backend.request(&Request::new(RequestOp::OfflineFree)).unwrap();
    let off = offline(&backend);
    assert!(off > 0);
    let room = backend.info().unwrap().free_pages.0;
    backend.apply(level(2, OwnerClass::File, 0, room + managed / 8));
    assert_eq!(offline(&backend), off, "cache that is read for the first time wakes nothing");
    // The same for memory of processes wakes.
    backend.apply(level(3, OwnerClass::Anon, 1, managed / 8));
    assert!(offline(&backend) < off);
}

#[test]
fn what_was_dropped_and_is_used_is_read_again() {
    // No other cache is dropped meanwhile.
    let backend = SimBackend::new(SimConfig { recycling: 0.0, ..small() }).unwrap();
    let managed = backend.info().unwrap().managed_pages.0;
    backend.apply(level(1, OwnerClass::File, 0, managed / 4));
    let dropped = backend.request(&Request::new(RequestOp::Compact)).unwrap().dropped.0;
    assert!(dropped > managed / 16, "{dropped}");
    let refaults = || backend.with(|machine| machine.stats()).packing_refault_pages;
    // Half of the file's pages are used, so half of those that were dropped are read again; then
    // half of the rest.
    backend.apply(MemoryChange::Read { owner: OwnerId(1), pages: managed / 8 });
    let first = refaults();
    assert!(first.abs_diff(dropped / 2) <= 1, "{first} of {dropped}");
    backend.apply(MemoryChange::Read { owner: OwnerId(1), pages: managed / 8 });
    assert!((refaults() - first).abs_diff(dropped / 4) <= 2, "{} of {dropped}", refaults() - first);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn cache_that_is_kept_is_moved_and_auto_keeps_what_was_used_again_page_by_page() {
    let outcome = |cache, read| {
        let backend = SimBackend::new(small()).unwrap();
        backend.apply(level(1, OwnerClass::File, 0, 20_000));
        backend.apply(level(2, OwnerClass::Anon, 1, 20_000));
        backend.apply(MemoryChange::Read { owner: OwnerId(1), pages: read });
        let outcome =
            backend.request(&Request { cache, ..Request::new(RequestOp::Compact) }).unwrap();
        backend.with(|machine| machine.check_books()).unwrap();
        (outcome.dropped.0, outcome.migrated.0)
    };
    let (dropped, moved) = outcome(CacheChoice::Drop, 0);
    assert!(dropped > 0);
    let (none, more) = outcome(CacheChoice::Keep, 0);
    // What is kept is moved, and so dearer: other slices are the cheapest ones.
    assert!(none == 0 && more > 0 && more != moved, "{none} {more} {moved}");
    assert_eq!(outcome(CacheChoice::Auto, 20_000), (none, more));
    let all = outcome(CacheChoice::Auto, 0).0;
    assert!(all > 0, "cache that was used once is dropped");
    let half = outcome(CacheChoice::Auto, 10_000).0;
    assert!(half > all / 3 && half < all * 2 / 3, "{half} of {all}");
}

#[test]
fn a_kernel_that_says_what_was_used_is_believed() {
    let dropped = |used| {
        let backend = SimBackend::new(small()).unwrap();
        backend.apply(level(1, OwnerClass::File, 0, 20_000));
        backend.apply(MemoryChange::Used { owner: OwnerId(1), pages: used });
        let request = Request { cache: CacheChoice::Auto, ..Request::new(RequestOp::Compact) };
        backend.request(&request).unwrap().dropped.0
    };
    assert!(dropped(0) > dropped(10_000) && dropped(10_000) > 0);
    assert_eq!(dropped(20_000), 0);
}

#[test]
fn dirty_pages_are_moved_not_dropped_until_they_are_written() {
    let backend = SimBackend::new(small()).unwrap();
    backend.apply(level(1, OwnerClass::File, 0, 40_000));
    backend.apply(MemoryChange::Write { owner: OwnerId(1), pages: 10_000 });
    let sum = || {
        let slices = backend.snapshot().unwrap().slices;
        slices.iter().map(|slice| slice.counters.dirty.0).sum::<u64>()
    };
    assert_eq!(sum(), 10_000);
    backend.request(&Request::new(RequestOp::Compact)).unwrap();
    assert_eq!(sum(), 10_000, "dirty pages are still there");
    backend.with(|machine| machine.check_books()).unwrap();
    backend.advance(Duration::from_secs(30));
    assert_eq!(sum(), 0);
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn pinned_memory_fails_once_is_paid_for_and_left_alone() {
    let backend = SimBackend::new(SimConfig { scatter: 1.0, ..small() }).unwrap();
    backend.apply(level(1, OwnerClass::Pinned, 1, 40_000));
    let slices = backend.snapshot().unwrap().slices;
    let pinned = slices.iter().rev().find(|slice| slice.counters.lru_anon.0 > 0).unwrap();
    let before = backend.work().unwrap();
    let failed = backend.request(&Request::new(RequestOp::Offline(pinned.id))).unwrap();
    assert_eq!((failed.slices_failed, failed.reason), (1, Reason::Pinned));
    assert!(backend.work().unwrap().price_measured > before.price_measured);
    let again = backend.request(&Request::new(RequestOp::Offline(pinned.id))).unwrap();
    assert_eq!(again.reason, Reason::Backoff);
    backend.advance(Duration::from_secs(11));
    let later = backend.request(&Request::new(RequestOp::Offline(pinned.id))).unwrap();
    assert_eq!(later.reason, Reason::Pinned);
    backend.with(|machine| machine.check_books()).unwrap();
}

/// A machine whose free memory is the awake reserve, with whole slices of cache.
fn at_its_reserve() -> SimBackend {
    let backend = SimBackend::new(SimConfig { scatter: 0.0, boot_share: 0.0, ..small() }).unwrap();
    let info = backend.info().unwrap();
    let reserve = backend.zones().unwrap()[0].awake_reserve_pages.0;
    backend.apply(level(1, OwnerClass::File, 0, info.managed_pages.0 / 2));
    let left = backend.info().unwrap().free_pages.0 - reserve;
    backend.apply(level(2, OwnerClass::Anon, 1, left));
    backend
}

#[test]
fn a_slice_of_nothing_but_cache_goes_off_though_free_memory_is_at_the_reserve() {
    let backend = at_its_reserve();
    let free = backend.info().unwrap().free_pages;
    let outcome = backend.request(&Request::new(RequestOp::Compact)).unwrap();
    assert!(outcome.slices_done >= 10, "{outcome:?}");
    // What was free is free: the slices took nothing of it with them.
    assert!(backend.info().unwrap().free_pages >= free, "{free:?}");
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn empty_slices_that_must_stay_awake_do_not_end_a_request() {
    // Slices so small that the reserve is more than sixteen of them; they are empty, and cheapest.
    let config = SimConfig::new(Bytes(32 * 1024 * MIB), Bytes(2 * MIB));
    let backend = SimBackend::new(SimConfig { scatter: 0.0, boot_share: 0.0, ..config }).unwrap();
    let info = backend.info().unwrap();
    backend.apply(level(1, OwnerClass::File, 0, info.managed_pages.0 / 2));
    backend.request(&Request::new(RequestOp::OfflineFree)).unwrap();
    let empty = backend.snapshot().unwrap().slices.iter().filter(|slice| slice.is_empty()).count();
    assert!(empty > 16, "{empty}");
    let outcome = backend.request(&Request::new(RequestOp::Compact)).unwrap();
    assert!(outcome.slices_done > 1000, "{outcome:?}");
    backend.with(|machine| machine.check_books()).unwrap();
}

#[test]
fn idle_cache_makes_room_at_destinations_unless_it_is_kept() {
    // Two slices are half full of processes and the rest of both is cache: only without it, one can
    // take the other's.
    let dropped = |cache| {
        let config =
            SimConfig { boot_share: 0.0, ..SimConfig::new(Bytes(8 * 32 * MIB), Bytes(32 * MIB)) };
        let backend = SimBackend::new(SimConfig { scatter: 1.0, ..config }).unwrap();
        let managed = backend.info().unwrap().managed_pages.0;
        backend.apply(level(1, OwnerClass::Anon, 1, managed * 3 / 10));
        backend.apply(level(2, OwnerClass::File, 0, managed * 6 / 10));
        let outcome =
            backend.request(&Request { cache, ..Request::new(RequestOp::Compact) }).unwrap();
        backend.with(|machine| machine.check_books()).unwrap();
        (outcome.slices_done, backend.work().unwrap().target_cache_pages.0)
    };
    let (kept, none) = dropped(CacheChoice::Keep);
    let (auto, some) = dropped(CacheChoice::Auto);
    assert!(none == 0 && some > 0 && auto > kept, "{kept} {none} {auto} {some}");
    assert_eq!(dropped(CacheChoice::Drop), (auto, some), "cache that was used once is idle");
}

#[test]
fn the_kernels_memory_keeps_few_slices_on_where_it_is_placed_low() {
    let with = |placement| {
        let config = SimConfig { placement, scatter: 1.0, ..small() };
        let backend = SimBackend::new(config).unwrap();
        for owner in 0..40 {
            backend.apply(level(owner, OwnerClass::Unmovable, 0, 200));
            backend.apply(level(1000 + owner, OwnerClass::Anon, 1, 2000));
        }
        backend.request(&Request::new(RequestOp::Compact)).unwrap();
        offline(&backend)
    };
    assert!(with(PlacementRule::KernelLow) > with(PlacementRule::Stock) + 5);
}

#[test]
fn prices_count_mappings_only_when_they_are_paid() {
    let backend = SimBackend::new(small()).unwrap();
    backend.apply(level(1, OwnerClass::Anon, 5, 3000));
    backend.apply(level(2, OwnerClass::Anon, 1, 30_000));
    let slices = backend.snapshot().unwrap().slices;
    let holds =
        |slice: &&ramslice_types::Slice| slice.finite_price().is_some() && !slice.is_empty();
    let cheapest = slices.iter().filter(holds).min_by_key(|slice| slice.price).unwrap();
    let request = Request { dry_run: true, ..Request::new(RequestOp::Offline(cheapest.id)) };
    assert!(backend.request(&request).unwrap().price_predicted >= cheapest.price);
    // A budget below the price is refused before anything is done.
    let budget = Budget::Limited(Price(cheapest.price.0 - 1));
    let refused = backend
        .request(&Request { budget, ..Request::new(RequestOp::Offline(cheapest.id)) })
        .unwrap();
    assert_eq!(refused.reason, Reason::OverBudget);
}

#[test]
fn a_seed_decides_a_run_whatever_other_runs_do() {
    for kind in [PolicyKind::Periodic, PolicyKind::Governor] {
        let one = simulate(LoadPattern::Batch, kind, &small(), 2);
        assert_eq!(one, simulate(LoadPattern::Batch, kind, &small(), 2));
        assert!(one != simulate(LoadPattern::Batch, kind, &SimConfig { seed: 2, ..small() }, 2));
    }
}

#[test]
fn every_policy_runs_on_every_load_and_the_books_stay_true() {
    for pattern in LoadPattern::ALL {
        for kind in PolicyKind::ALL {
            let run = simulate(pattern, kind, &small(), 1);
            assert_eq!(run.steps, 121, "{} {kind}", pattern.name());
            if kind == PolicyKind::Never {
                assert_eq!((run.work.emptied_slices, run.stats.off_byte_us), (0, 0));
            }
        }
    }
}

#[test]
fn joules_are_those_of_what_was_off() {
    let config = SimConfig::new(Bytes(32 << 30), Bytes(1 << 30));
    let mut machine = SimMachine::new(config.clone()).unwrap();
    let step = |seconds| ramslice_sim::load::LoadStep {
        time: Duration::from_secs(seconds),
        changes: Vec::new(),
    };
    // Ten slices off from the first step on, for 1000 s.
    let (economics, rates) = economics(config.slice_bytes);
    let costs = ramslice_policy::model::SliceCosts::new(&economics, 1000.0);
    let unit_joules = Some(ramslice_types::Joules(economics.price_unit.0));
    let schedule =
        ClairvoyantSchedule { on: vec![22, 22], cache: CacheChoice::Drop, costs, unit_joules };
    let run = run(&mut machine, [step(0), step(1000)], &mut RunDecider::Schedule(schedule), |_| ());
    let books = rates.books(&run, config.slice_bytes);
    assert!((books.saved.low().0 - 10.0 * 1000.0 * 0.009_19).abs() < 1e-6, "{books:?}");
    // Emptying ten empty slices: ten times Eq 3.1, at 10 W and 3.8 GHz.
    let cycles = 100.0 * (695.0 + 303.0 * 256.0) * 10.0;
    assert!(books.emptying.contains(ramslice_types::Joules(cycles * 10.0 / 3.8e9)), "{books:?}");
    assert!(books.net.high().0 < books.saved.high().0);
}

/// A change by chance, among few owners and sizes, so that they meet.
fn change() -> impl Strategy<Value = MemoryChange> {
    let classes = prop_oneof![
        Just(OwnerClass::Anon),
        Just(OwnerClass::Pinned),
        Just(OwnerClass::Shmem),
        Just(OwnerClass::File),
        Just(OwnerClass::FileMapped),
        Just(OwnerClass::Unmovable)
    ];
    prop_oneof![
        4 => (0u32..8, classes, 1u32..4, 0u64..120_000).prop_map(
            |(o, class, maps, pages)| level(o, class, maps, pages)),
        1 => (0u32..8, 0u64..50_000).prop_map(
            |(owner, pages)| MemoryChange::Read { owner: OwnerId(owner), pages }),
        1 => (0u32..8, 0u64..50_000).prop_map(
            |(owner, pages)| MemoryChange::Write { owner: OwnerId(owner), pages }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let ops = prop_oneof![
        Just(RequestOp::Compact),
        Just(RequestOp::OfflineFree),
        Just(RequestOp::OnlineAll),
        (0u32..32).prop_map(|id| RequestOp::Offline(ramslice_types::SliceId(id))),
        (0u32..32).prop_map(|id| RequestOp::Online(ramslice_types::SliceId(id))),
    ];
    (
        ops,
        any::<bool>(),
        any::<bool>(),
        proptest::option::of(0u64..3_000_000),
        proptest::option::of(1u32..8),
    )
        .prop_map(|(op, keep, per_slice, budget, max_slices)| Request {
            cache: if keep { CacheChoice::Keep } else { CacheChoice::Drop },
            per_slice,
            max_slices,
            budget: budget.map_or(Budget::Unlimited, |units| Budget::Limited(Price(units))),
            ..Request::new(op)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn books_stay_true_whatever_happens(
        steps in proptest::collection::vec((change(), request(), 0u64..40), 1..40),
        scatter in 0.0f64..1.0,
        seed in any::<u64>(),
    ) {
        let backend = SimBackend::new(SimConfig { scatter, seed, ..small() }).unwrap();
        let managed = backend.info().unwrap().managed_pages;
        for (change, request, seconds) in steps {
            backend.apply(change);
            backend.with(|machine| machine.check_books()).unwrap();
            let before = backend.info().unwrap().used_pages();
            let outcome = backend.request(&request).unwrap();
            backend.with(|machine| machine.check_books()).unwrap();
            let info = backend.info().unwrap();
            prop_assert_eq!(info.managed_pages, managed);
            // Only cache that was dropped is gone.
            prop_assert_eq!(before, info.used_pages() + outcome.dropped);
            backend.advance(Duration::from_secs(seconds));
        }
    }
}
