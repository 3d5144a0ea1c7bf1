//! The suite of every backend around a made-up stock machine, and answers beside real ones.

use std::ops::Range;

use ramslice_conformance::{CheckSettings, check};
use ramslice_types::{Pages, Reason, RequestOp, SliceState};

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
