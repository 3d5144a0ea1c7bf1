//! What would have been: nothing reaches the machine, and what is shown adds up.

use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimBackend, SimConfig};
use ramslice_types::{Backend, Budget};

use super::*;

const SLICE: u64 = 64 << 20;

fn machine(slices: u64) -> SimBackend {
    let slice = ramslice_types::Bytes(SLICE);
    SimBackend::new(SimConfig::new(slice * slices, slice)).unwrap()
}

fn use_memory(sim: &SimBackend, slices: f64) {
    let pages = (slices * SLICE as f64 / 4096.0) as u64;
    sim.apply(MemoryChange::Level { owner: OwnerId(1), class: OwnerClass::Anon, maps: 1, pages });
}

fn look(sim: &SimBackend, shadow: &mut Shadow) -> Look {
    let mut look = Look::take(sim).unwrap();
    shadow.view(&mut look);
    look
}

/// Sums of zones and slices agree, as those of a kernel.
fn adds_up(look: &Look) {
    for zone in &look.zones {
        let slices: Vec<_> = look.slices(ZoneKey::of(zone)).collect();
        let off = slices.iter().filter(|slice| slice.state == SliceState::Offline);
        assert_eq!(off.clone().count() as u32, zone.nr_offline);
        assert_eq!(off.map(|slice| slice.present).sum::<Pages>(), zone.offline_pages);
        assert_eq!(slices.iter().filter(|slice| slice.is_empty()).count() as u32, zone.nr_empty);
        assert!(zone.free_pages + zone.offline_pages <= zone.managed_pages);
    }
}

#[test]
fn empty_slices_go_off_in_thought_and_the_machine_stays_as_it_is() {
    let sim = machine(32);
    let before = sim.snapshot().unwrap();
    let mut shadow = Shadow::default();
    let mut seen = look(&sim, &mut shadow);
    let outcome = shadow.request(
        &mut seen,
        &Request { max_slices: Some(5), ..Request::new(RequestOp::OfflineFree) },
    );
    assert_eq!((outcome.slices_done, shadow.nr_off()), (5, 5));
    adds_up(&seen);
    let again = look(&sim, &mut shadow);
    adds_up(&again);
    assert_eq!(again.zones[0].nr_offline, 5);
    assert_eq!(again.snapshot.event_seq, before.event_seq + 10);
    assert_eq!(sim.snapshot().unwrap(), before);
    assert_eq!(sim.work().unwrap().tried_slices, 0);
}

#[test]
fn slices_wake_in_thought_when_the_machine_would_fall_below_its_reserve_and_no_earlier() {
    let sim = machine(32);
    use_memory(&sim, 10.0);
    let mut shadow = Shadow::default();
    let mut seen = look(&sim, &mut shadow);
    // All it can: what stays free is the reserve and less than a slice.
    shadow.request(&mut seen, &Request::new(RequestOp::Compact));
    let (off, free) = (shadow.nr_off(), seen.zones[0].free_pages);
    assert!(off >= 19 && free >= seen.zones[0].awake_reserve_pages, "{off} off, {free} free");
    adds_up(&seen);
    use_memory(&sim, 14.0);
    let seen = look(&sim, &mut shadow);
    adds_up(&seen);
    assert!(seen.zones[0].free_pages >= seen.zones[0].awake_reserve_pages);
    let woken = seen.zones[0].woken_by_demand;
    assert!((3..=5).contains(&woken) && u64::from(off - shadow.nr_off()) == woken, "{woken} woke");
    // Nothing else happens: they wake once.
    assert_eq!(look(&sim, &mut shadow).zones[0].woken_by_demand, woken);
}

#[test]
fn the_budget_the_zone_and_the_number_are_kept() {
    let sim = machine(32);
    use_memory(&sim, 20.0);
    let mut shadow = Shadow::default();
    let mut seen = look(&sim, &mut shadow);
    let cheapest = seen.snapshot.slices.iter().filter_map(Slice::finite_price).min().unwrap();
    let too_little = Budget::Limited(Price(cheapest.0 - 1));
    let outcome = shadow.request(&mut seen, &Request { budget: too_little, ..Request::default() });
    assert_eq!((outcome.slices_done, outcome.reason), (0, Reason::OverBudget));
    assert!(!outcome.is_ok());
    let node = Some(ramslice_types::NodeId(7));
    assert_eq!(shadow.request(&mut seen, &Request { node, ..Request::default() }).slices_done, 0);
    let outcome = shadow.request(&mut seen, &Request { max_slices: Some(2), ..Request::default() });
    assert_eq!(outcome.slices_done, 2);
    assert!(outcome.price_predicted >= cheapest);
    let outcome = shadow
        .request(&mut seen, &Request { max_slices: Some(1), ..Request::new(RequestOp::OnlineAll) });
    assert_eq!((outcome.slices_done, shadow.nr_off()), (1, 1));
}

#[test]
fn cache_that_a_request_keeps_is_moved_not_dropped() {
    let sim = machine(32);
    use_memory(&sim, 8.0);
    let pages = 10 * SLICE / 4096;
    sim.apply(MemoryChange::Level { owner: OwnerId(2), class: OwnerClass::File, maps: 1, pages });
    let of = |cache| {
        let mut shadow = Shadow::default();
        let mut seen = look(&sim, &mut shadow);
        let outcome = shadow.request(&mut seen, &Request { cache, ..Request::default() });
        (outcome.migrated, outcome.dropped)
    };
    let ((moved, dropped), (kept, none)) = (of(CacheChoice::Drop), of(CacheChoice::Keep));
    assert!(dropped > Pages::ZERO && none == Pages::ZERO, "{dropped} dropped, {none}");
    assert_eq!(kept, moved + dropped);
}

#[test]
fn a_slice_that_somebody_switches_off_in_truth_is_no_longer_imagined() {
    let sim = machine(32);
    let mut shadow = Shadow::default();
    let mut seen = look(&sim, &mut shadow);
    let outcome = shadow.request(&mut seen, &Request { max_slices: Some(1), ..Request::default() });
    sim.request(&Request::new(RequestOp::Offline(outcome.last_slice.unwrap()))).unwrap();
    let seen = look(&sim, &mut shadow);
    assert_eq!((shadow.nr_off(), seen.zones[0].nr_offline), (0, 1));
    adds_up(&seen);
}
