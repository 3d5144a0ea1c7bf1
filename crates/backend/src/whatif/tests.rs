//! The suite of every backend around a made-up stock machine, and answers beside real ones.

use std::ops::Range;

use ramslice_conformance::{CheckSettings, check};
use ramslice_types::{Interleave, Pages, Reason, RequestOp, Slice, SliceState};

use super::*;
use crate::hotplug::FakeMachine;

fn holds(backend: &dyn Backend) {
    let settings = CheckSettings { tolerance: Pages::ZERO, contents: true, events: true };
    let broken = check(backend, settings);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A machine whose blocks from the second on hold so many pages of programs and of cache.
fn machine(programs: u64, cache: u64) -> FakeMachine {
    let fake = FakeMachine::new();
    for number in 2..24 {
        fake.holds(number, programs, cache);
    }
    fake
}

#[test]
fn every_rule_of_a_backend_holds_around_a_stock_machine_which_stays_as_it_is() {
    let nodes = FakeMachine::new();
    nodes.two_nodes(16);
    for fake in [FakeMachine::new(), machine(2000, 4000), nodes] {
        // The machine never changes, so that one look at its pages stands for the present.
        let backend = fake.backend().with_scan_reuse(u32::MAX);
        let before = backend.snapshot().unwrap().slices;
        holds(&WhatIfBackend::new(&backend));
        assert_eq!(backend.snapshot().unwrap().slices, before);
        assert!(fake.off().is_empty());
    }
}

#[test]
fn what_is_remembered_is_offline_again_around_another_backend_until_slices_have_another_size() {
    let fake = machine(0, 0);
    let (first, second) = (fake.backend(), fake.backend());
    let what_if = WhatIfBackend::new(&first);
    what_if.request(&Request { max_slices: Some(3), ..Request::default() }).unwrap();
    let memory = what_if.memory();
    let text = serde_json::to_string(&memory).unwrap();
    assert!(text.contains("\"off\":[[{") && text.contains("\"changes\":6"), "{text}");
    let again = WhatIfBackend::with_memory(&second, serde_json::from_str(&text).unwrap());
    let offline = |slices: &[ramslice_types::Slice]| {
        slices.iter().filter(|slice| slice.state == SliceState::Offline).count()
    };
    assert_eq!(offline(&again.snapshot().unwrap().slices), 3);
    second.set_slice_bytes(Bytes(128 << 20)).unwrap();
    assert_eq!(offline(&again.snapshot().unwrap().slices), 0);
    assert_eq!(again.simulated_offline(), Some(0));
}

/// Switches these slices off in thought and in truth, each by its name: answers are alike, and
/// some are a refusal.
fn answers_alike(fake: &FakeMachine, ids: Range<u32>) {
    let backend = fake.backend();
    let copy = WhatIfBackend::new(&backend);
    copy.view().unwrap();
    let mut refused = Vec::new();
    for id in ids.map(SliceId) {
        let request = Request::new(RequestOp::Offline(id));
        let (would, did) = (copy.request(&request).unwrap(), backend.request(&request).unwrap());
        let answer = |outcome: &RequestOutcome| {
            (outcome.slices_done, outcome.slices_failed, outcome.reason, outcome.status_errno)
        };
        assert_eq!(answer(&would), answer(&did), "{id}");
        refused.push(did.reason);
    }
    let accepted = refused.iter().filter(|reason| **reason == Reason::None).count();
    assert!(accepted > 0 && accepted < refused.len(), "{refused:?}");
}

#[test]
fn a_slice_that_is_named_is_refused_as_by_the_real_backend() {
    answers_alike(&machine(0, 14_000), 2..24);
}

#[test]
fn cache_that_moves_to_another_node_is_available_there_as_in_the_real_machine() {
    let fake = FakeMachine::new();
    fake.two_nodes(16);
    let block = FakeMachine::BLOCK_PAGES;
    (2..16).for_each(|number| fake.holds(number, block / 16, block / 16 * 3));
    // Of the other node, three blocks and a half are free, of which it is to keep two.
    (16..28).for_each(|number| fake.holds(number, block, 0));
    fake.holds(28, block / 2, 0);
    answers_alike(&fake, 2..16);
}

// --- larger slices than the machine's ---

/// A machine as if slices were twice as large as its own.
fn twice_as_large(fake: &FakeMachine) -> WhatIfBackend<Box<dyn Backend>> {
    let what_if = WhatIfBackend::new(Box::new(fake.backend()) as Box<dyn Backend>);
    let size = what_if.slice_bytes().unwrap() * 2;
    what_if.set_slice_bytes(size).unwrap();
    assert_eq!(what_if.info().unwrap().slice_bytes, size);
    what_if
}

#[test]
fn every_rule_of_a_backend_holds_for_slices_that_are_only_worked_out() {
    let nodes = FakeMachine::new();
    nodes.two_nodes(16);
    for fake in [FakeMachine::new(), machine(2000, 4000), nodes] {
        let what_if = twice_as_large(&fake);
        // Their pages cannot be read
        let settings = CheckSettings { tolerance: Pages::ZERO, contents: false, events: true };
        let broken = check(&what_if, settings);
        assert!(broken.is_empty(), "{broken:#?}");
        assert!(fake.off().is_empty());
    }
}

#[test]
fn a_larger_slice_is_the_sum_of_its_parts_and_goes_whole() {
    let fake = machine(2000, 4000);
    let real = fake.backend().snapshot().unwrap().slices;
    let what_if = twice_as_large(&fake);
    let slices = what_if.snapshot().unwrap().slices;
    assert_eq!(slices.len(), real.len().div_ceil(2));
    for slice in &slices {
        let parts = || real.iter().filter(|part| part.id.0 / 2 == slice.id.0);
        assert_eq!(slice.present, parts().map(|part| part.present).sum());
        assert_eq!(slice.counters.free, parts().map(|part| part.counters.free).sum());
        assert_eq!(slice.counters.lru_anon, parts().map(|part| part.counters.lru_anon).sum());
        assert_eq!(slice.price.0, parts().map(|part| part.price.0).sum::<u64>());
        assert!(!slice.unreclaimable || parts().any(|part| part.unreclaimable));
    }
    let totals = |backend: &dyn Backend| {
        let zone = backend.zones().unwrap().remove(0);
        (zone.managed_pages, zone.free_pages)
    };
    assert_eq!(totals(&what_if), totals(&fake.backend()));
    let done = what_if.request(&Request { max_slices: Some(3), ..Request::default() }).unwrap();
    assert_eq!(done.slices_done, 3);
    let info = what_if.info().unwrap();
    assert_eq!(info.offline_pages.bytes(info.page_bytes), info.slice_bytes * 3);
    assert_eq!((what_if.simulated_offline(), fake.off().len()), (Some(3), 0));
}

#[test]
fn a_larger_slice_with_a_part_missing_or_of_two_nodes_stays_online() {
    let fake = FakeMachine::new();
    // The second node begins in the middle of a slice of two parts
    fake.two_nodes(17);
    let what_if = twice_as_large(&fake);
    let stays = what_if.snapshot().unwrap().slices.into_iter().find(|slice| slice.id.0 == 8);
    let stays = stays.unwrap();
    assert_eq!((stays.unreclaimable, stays.reason), (true, Reason::ZoneEnd));
    let request = Request::new(RequestOp::Offline(stays.id));
    assert_eq!(what_if.request(&request).unwrap().slices_done, 0);

    let mut copy = MachineCopy::read(&fake.backend()).unwrap();
    copy.snapshot.slices.retain(|slice| slice.id.0 != 21);
    copy.merge_slices(2);
    let stays = copy.slice(copy.find(SliceId(10)).unwrap());
    assert_eq!((stays.unreclaimable, stays.reason), (true, Reason::Hole));
}

#[test]
fn slices_that_take_turns_grow_each_by_its_own() {
    let fake = machine(2000, 4000);
    let mut copy = MachineCopy::read(&fake.backend()).unwrap();
    let granularity_bytes = copy.info.slice_bytes;
    copy.info.interleave = Some(Interleave { ways: 2, granularity_bytes });
    let before = copy.clone();
    copy.merge_slices(2);
    assert_eq!(copy.snapshot.slices.len() * 2, before.snapshot.slices.len());
    for slice in &copy.snapshot.slices {
        // The addresses of its parts are its own
        let mine: Vec<_> = copy.info.extents(slice.id).ranges().collect();
        let parts: Vec<&Slice> = before
            .snapshot
            .slices
            .iter()
            .filter(|part| before.info.extents(part.id).ranges().all(|run| mine.contains(&run)))
            .collect();
        assert_eq!(parts.len(), 2, "{}", slice.id);
        assert_eq!(slice.counters.free, parts.iter().map(|part| part.counters.free).sum());
    }
}

#[test]
fn a_size_that_cannot_be_worked_out_is_refused_and_the_machines_own_stays() {
    let fake = FakeMachine::new();
    let what_if = WhatIfBackend::new(Box::new(fake.backend()) as Box<dyn Backend>);
    let real = what_if.slice_bytes().unwrap();
    for size in [Bytes(0), Bytes(real.0 / 2), Bytes(real.0 * 3 / 2)] {
        let error = what_if.set_slice_bytes(size).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains("multiple of the machine's own"), "{error}");
    }
    what_if.request(&Request { max_slices: Some(1), ..Request::default() }).unwrap();
    let error = what_if.set_slice_bytes(real * 2).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Busy);
    assert_eq!(what_if.slice_bytes().unwrap(), real);
    what_if.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    what_if.set_slice_bytes(real * 2).unwrap();
    what_if.set_slice_bytes(real).unwrap();
    assert_eq!(
        what_if.snapshot().unwrap().slices.len(),
        fake.backend().info().unwrap().nr_slices as usize
    );
    assert_eq!(fake.backend().slice_bytes().unwrap(), real);
}

#[test]
fn a_larger_size_is_remembered_until_the_machines_own_does_not_divide_it() {
    let fake = FakeMachine::new();
    let what_if = twice_as_large(&fake);
    let size = what_if.slice_bytes().unwrap();
    what_if.request(&Request { max_slices: Some(2), ..Request::default() }).unwrap();
    let text = serde_json::to_string(&what_if.memory()).unwrap();
    let backend = fake.backend();
    let again = WhatIfBackend::with_memory(&backend, serde_json::from_str(&text).unwrap());
    assert_eq!((again.info().unwrap().slice_bytes, again.simulated_offline()), (size, Some(2)));
    backend.set_slice_bytes(size).unwrap();
    assert_eq!((again.info().unwrap().slice_bytes, again.simulated_offline()), (size, Some(0)));
    assert_eq!(again.memory(), WhatIfMemory::default());
}
