//! Mode observe beside mode on, on a simulated stock machine: it predicts what is done, and no
//! more.

use ramslice_backend::{FakeMachine, HotplugBackend, HotplugGuard, WhatIfBackend};
use ramslice_types::Pages;

use super::tests::{engine_of, settings};
use super::*;
use crate::mode::DaemonMode;

const POLICY: &str =
    "policy = \"periodic\"\n[periodic]\nperiod_seconds = 30\nbudget_100cycles = \"inf\"";

/// A machine whose blocks from the second on hold so many pages of programs and of cache.
fn machine(programs: u64, cache: u64) -> FakeMachine {
    let fake = FakeMachine::new();
    for number in 2..24 {
        fake.holds(number, programs, cache);
    }
    fake
}

struct StockRun<'a> {
    fake: &'a FakeMachine,
    backend: Arc<HotplugBackend>,
    what_if: WhatIfBackend<Arc<HotplugBackend>>,
    engine: DecisionEngine,
    time: u64,
}

impl<'a> StockRun<'a> {
    fn new(mode: &str, fake: &'a FakeMachine) -> Self {
        let settings = settings(&format!("mode = \"{mode}\"\n{POLICY}"));
        let engine = engine_of(settings, None);
        let backend = Arc::new(fake.backend());
        let what_if = WhatIfBackend::new(Arc::clone(&backend));
        Self { fake, backend, what_if, engine, time: 1_000_000 }
    }

    /// As the main loop shows it to the engine.
    fn seen(&self) -> &dyn Backend {
        if self.is_observed() { &self.what_if } else { &*self.backend }
    }

    fn is_observed(&self) -> bool {
        self.engine.settings.mode == DaemonMode::Observe
    }

    fn step(&mut self) {
        let backend: &dyn Backend = if self.is_observed() { &self.what_if } else { &*self.backend };
        self.engine.step(backend, STOCK, Duration::from_secs(self.time)).unwrap();
        self.time += 30;
    }

    /// Steps until nothing goes off any more: how many slices are off, in thought or in truth.
    fn run_until_settled(&mut self) -> usize {
        loop {
            self.step();
            if self.done() == 0 {
                return self.off();
            }
        }
    }

    fn done(&self) -> u32 {
        self.engine
            .decisions
            .iter()
            .flat_map(|done| &done.zone.requests)
            .map(|request| request.slices_done)
            .sum()
    }

    fn off(&self) -> usize {
        match self.seen().simulated_offline() {
            Some(off) => off as usize,
            None => self.fake.off().len(),
        }
    }
}

#[test]
fn on_a_stock_kernel_as_much_goes_offline_in_mode_observe_as_in_mode_on() {
    for (programs, cache, what) in
        [(0, 8000, "half cache"), (0, 14_000, "nearly all cache"), (6000, 4000, "both")]
    {
        let on = StockRun::new("on", &machine(programs, cache)).run_until_settled();
        let fake = machine(programs, cache);
        let mut thought = StockRun::new("observe", &fake);
        let would = thought.run_until_settled();
        assert!(on > 0 && would.abs_diff(on) <= 1, "{what}: {would} in thought, {on} in truth");
        assert!(fake.off().is_empty());
        let work = thought.engine.work;
        assert_eq!(work.dropped_pages, Pages::ZERO, "{what}: hotplug drops nothing");
    }
}

#[test]
fn on_two_nodes_each_keeps_its_share_in_mode_observe_as_in_mode_on() {
    let machine = || {
        let fake = FakeMachine::new();
        fake.two_nodes(16);
        fake
    };
    let (on, observed) = (machine(), machine());
    StockRun::new("on", &on).run_until_settled();
    let did = on.off().into_iter().partition::<Vec<_>, _>(|&number| number < 16);
    let mut thought = StockRun::new("observe", &observed);
    thought.run_until_settled();
    let zones = thought.backend.zones().unwrap();
    let would = [0, 1].map(|node| {
        let zone = zones.iter().find(|zone| zone.node.0 == node).unwrap();
        thought.what_if.memory().nr_offline_in(ZoneKey::of(zone)) as usize
    });
    // Of 16 blocks each, two are its share, and one is for its watermarks.
    assert_eq!((would, [did.0.len(), did.1.len()]), ([13, 13], [13, 13]));
}

#[test]
fn where_no_guard_would_wake_slices_none_goes_offline_and_the_status_says_why() {
    let fake = machine(0, 0);
    let mut run = StockRun::new("on", &fake);
    run.engine.set_guard_error(Some("no pressure file".to_owned()));
    run.step();
    let why = run.engine.status(Duration::ZERO).why;
    assert!(
        fake.off().is_empty()
            && why.contains("no guard would wake")
            && why.contains("no pressure file"),
        "{why}"
    );
    run.engine.set_guard_error(None);
    run.step();
    assert!(!fake.off().is_empty());
}

#[test]
fn in_mode_observe_slices_wake_when_a_guard_would_have_woken_them() {
    let (on, would) = (machine(0, 0), machine(0, 0));
    let (mut truth, mut thought) = (StockRun::new("on", &on), StockRun::new("observe", &would));
    let off = truth.run_until_settled();
    assert_eq!(thought.run_until_settled(), off);
    // Programs take what is left down to the margin, and then more.
    for (pages, wakes) in [(0, false), (FakeMachine::BLOCK_PAGES, true)] {
        let mut took = 0;
        for number in (2..24).filter(|number| !on.off().contains(number)) {
            on.holds(number, pages, 0);
            took += 1;
        }
        assert!(took > 0);
        (2..2 + took).for_each(|number| would.holds(number, pages, 0));
        let woken = HotplugGuard::new(&truth.backend, None).unwrap().watch(Duration::ZERO).unwrap();
        assert_eq!(woken.is_some(), wakes);
        thought.step();
        let in_thought = off - thought.off();
        let in_truth = off - truth.off();
        assert!(
            in_thought.abs_diff(in_truth) <= 1 && (in_truth > 0) == wakes,
            "{in_thought} and {in_truth} woke"
        );
    }
}

#[test]
fn in_mode_observe_stalls_matter_on_a_stock_kernel_when_a_guard_would_wake_for_them() {
    let fake = machine(0, 0);
    let mut run = StockRun::new("observe", &fake);
    run.step();
    run.step();
    assert!(run.off() > 0);
    let stall = |run: &mut StockRun<'_>| {
        run.engine.pressure(Some(&run.what_if), Duration::from_secs(run.time));
        run.engine.status(Duration::ZERO).paused_seconds.is_some()
    };
    // Nothing is free any more, and nearly all is available.
    (2..24).for_each(|number| fake.holds(number, 0, FakeMachine::BLOCK_PAGES));
    assert!(!stall(&mut run));
    (2..28).for_each(|number| fake.holds(number, FakeMachine::BLOCK_PAGES, 0));
    assert!(stall(&mut run));
}
