//! Steps on the simulated machine: huge pages are made of what sleeps and given back.

use ramslice_sim::{SimConfig, ZoneConfig};
use ramslice_types::{BufferBooks, Bytes, HugePagePool, NodeId, Reason, Request, RequestOp};

use super::tests::{TestMachine, engine_of, settings, step, steps};
use super::*;
use crate::memory_takers::TakersStatus;
use crate::mode::DaemonMode;

const GIB: Bytes = Bytes(1 << 30);

fn pool(size: u64, in_use: u64) -> HugePagePool {
    HugePagePool { page: GIB, total: size, free: size - in_use, reserved: 0, surplus: 0 }
}

/// Of 8 GiB, with a pool of so many pages of 1 GiB, of which some are in use.
fn machine(size: u64, in_use: u64) -> TestMachine {
    let machine = TestMachine::new(128);
    *machine.pool.lock().unwrap() = Some((pool(size, in_use), 64));
    machine
}

fn wants(mode: &str, takers: &str) -> DaemonSettings {
    let policy = "policy = \"periodic\"\n[periodic]\nperiod_seconds = 1";
    settings(&format!("mode = \"{mode}\"\n{policy}\n[takers]\n{takers}"))
}

fn pool_of(machine: &TestMachine) -> HugePagePool {
    machine.real.huge_page_pools(None).unwrap()[0]
}

fn status(engine: &DecisionEngine) -> TakersStatus {
    engine.status(Duration::ZERO).takers
}

#[test]
fn pages_are_made_of_what_sleeps_and_stay_while_they_are_dearest() {
    let machine = machine(1, 0);
    let mut engine = engine_of(wants("on", "huge_count = 3"), None);
    steps(&mut engine, &machine, 1_000_000, 20);
    assert_eq!(pool_of(&machine), pool(3, 0));
    let said = status(&engine);
    let huge = said.huge.unwrap();
    assert_eq!((huge.made_pages, huge.administrators_pages, huge.wanted_pages), (2, 1, 3));
    assert_eq!(said.by_value[0].taker, "huge");
    assert_eq!(said.by_value[1].taker, "sleep");
    assert_eq!(said.by_value[0].bytes, GIB * 3);
    assert!(said.last_change.unwrap().starts_with("made 2 huge pages of 1 GiB, because"));
    assert_eq!(said.why, "the pool has all pages that are wanted");
    let text = engine.metrics.text();
    assert!(text.contains("ramslice_huge_made_pages_total{mode=\"on\"} 2\n"), "{text}");
    assert!(text.contains("ramslice_taker_bytes{taker=\"huge\"} 3221225472\n"), "{text}");
}

#[test]
fn what_was_made_is_given_back_when_sleep_is_worth_more_but_nothing_in_use() {
    let machine = machine(1, 0);
    let mut engine = engine_of(wants("on", "huge_count = 4"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    assert_eq!(pool_of(&machine), pool(4, 0));
    // A program uses two of them
    machine.pool.lock().unwrap().as_mut().unwrap().0.free = 2;
    engine.set_settings(wants("on", "huge_count = 4\nsleep = 20"));
    // What was made a moment ago settles
    let now = steps(&mut engine, &machine, now, 1);
    assert_eq!(pool_of(&machine), pool(4, 2));
    let now = steps(&mut engine, &machine, now, 20);
    assert_eq!(pool_of(&machine), pool(2, 2));
    let huge = status(&engine).huge.unwrap();
    assert_eq!((huge.made_pages, huge.administrators_pages), (1, 1));
    // The program ends: the rest of what was made goes, too
    machine.pool.lock().unwrap().as_mut().unwrap().0.free = 2;
    steps(&mut engine, &machine, now, 1);
    assert_eq!(pool_of(&machine), pool(1, 0));
}

#[test]
fn memory_that_the_host_has_is_dearer_than_huge_pages_unless_the_settings_say_otherwise() {
    let machine = machine(0, 0);
    *machine.driver.lock().unwrap() = Some("report");
    let mut engine = engine_of(wants("on", "huge_count = 2"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    let said = status(&engine);
    assert_eq!(
        (pool_of(&machine), said.why.as_str()),
        (pool(0, 0), "memory that the host has is worth more")
    );
    assert_eq!((said.by_value[0].taker, said.by_value[0].value), ("host", 140.0));
    engine.set_settings(wants("on", "huge_count = 2\nhuge = 200"));
    steps(&mut engine, &machine, now, 1);
    assert_eq!(pool_of(&machine), pool(2, 0));
}

#[test]
fn values_that_are_not_set_change_nothing() {
    let machine = machine(2, 0);
    let mut engine = engine_of(wants("on", ""), None);
    steps(&mut engine, &machine, 1_000_000, 60);
    assert_eq!(pool_of(&machine), pool(2, 0));
    let said = status(&engine);
    assert_eq!((said.huge, said.last_change), (None, None));
    assert!(said.why.contains("takers.huge_count is 0"), "{}", said.why);
}

#[test]
fn observe_changes_nothing_and_says_what_it_would_do() {
    let machine = machine(1, 0);
    let before = machine.sim.snapshot().unwrap().slices;
    let mut engine = engine_of(wants("observe", "huge_count = 3"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 20);
    assert_eq!((machine.sent(), pool_of(&machine)), (0, pool(1, 0)));
    assert_eq!(machine.sim.snapshot().unwrap().slices, before);
    let said = status(&engine);
    assert!(said.imagined);
    let last = said.last_change.unwrap();
    assert!(last.starts_with("would have made 2 huge pages of 1 GiB"), "{last}");
    let huge = said.huge.unwrap();
    assert_eq!((huge.total_pages, huge.made_pages, huge.administrators_pages), (3, 2, 1));
    // Slices of these pages would not sleep
    let would_sleep = machine.what_if.simulated_offline().unwrap();
    engine.set_settings(wants("observe", "huge_count = 3\nsleep = 20"));
    steps(&mut engine, &machine, now, 22);
    assert_eq!(status(&engine).huge.unwrap().total_pages, 1);
    assert_eq!(machine.what_if.simulated_offline(), Some(would_sleep + 32));
    assert_eq!((machine.sent(), pool_of(&machine)), (0, pool(1, 0)));
}

#[test]
fn a_buffer_that_was_refused_has_half_of_what_was_made_given_back_once() {
    let machine = machine(0, 0);
    let books = BufferBooks { nr: 0, bytes: Bytes(0), nr_refused: 7, last_refusal: Reason::NoRoom };
    *machine.buffers.lock().unwrap() = Some(books);
    let mut engine = engine_of(wants("on", "huge_count = 4"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    // What was refused before the first look is not held against it
    assert_eq!(pool_of(&machine), pool(4, 0));
    let refuse = |last_refusal, nr_refused| {
        let books = BufferBooks { nr_refused, last_refusal, ..books };
        *machine.buffers.lock().unwrap() = Some(books);
    };
    // A control group at its limit gains nothing by it
    refuse(Reason::OverLimit, 8);
    let now = steps(&mut engine, &machine, now, 2);
    assert_eq!(pool_of(&machine), pool(4, 0));
    refuse(Reason::NoRoom, 9);
    let now = steps(&mut engine, &machine, now, 10);
    assert_eq!(pool_of(&machine), pool(2, 0));
    let said = status(&engine);
    assert!(said.last_change.unwrap().contains("a buffer was refused for want of memory"));
    assert!(said.why.contains("settles for another"), "{}", said.why);
    steps(&mut engine, &machine, now, 20);
    assert_eq!(pool_of(&machine), pool(4, 0));
}

#[test]
fn tasks_that_wait_for_memory_get_half_of_what_was_made() {
    let machine = machine(0, 0);
    let mut engine = engine_of(wants("on", "huge_count = 4"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    machine.run_short();
    let at = Duration::from_secs(now);
    engine.pressure(Some(&*machine.real), at);
    step(&mut engine, &machine, at).unwrap();
    assert_eq!(pool_of(&machine), pool(2, 0));
    // Once for each time that they wait
    step(&mut engine, &machine, at + Duration::from_secs(30)).unwrap();
    assert_eq!(pool_of(&machine), pool(2, 0));
}

#[test]
fn what_cannot_be_made_is_reported_and_not_tried_at_each_step() {
    let machine = machine(0, 0);
    machine.pool.lock().unwrap().as_mut().unwrap().1 = 1;
    let mut engine = engine_of(wants("on", "huge_count = 2"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 1);
    let said = status(&engine);
    assert!(said.why.contains("made 1 of 2 huge pages"), "{}", said.why);
    assert!(said.why.contains("the kernel made no page of it"), "{}", said.why);
    assert_eq!(pool_of(&machine), pool(1, 0));
    let name = |request: &Request| matches!(request.op, RequestOp::Offline(_));
    let tried = |machine: &TestMachine| {
        machine.requests.lock().unwrap().iter().filter(|request| name(request)).count()
    };
    let before = tried(&machine);
    steps(&mut engine, &machine, now, 10);
    assert_eq!(tried(&machine), before);
    assert!(status(&engine).why.contains("settles"), "{}", status(&engine).why);
}

#[test]
fn a_restart_in_the_same_boot_knows_which_pages_are_the_administrators() {
    let machine = machine(1, 0);
    let mut engine = engine_of(wants("on", "huge_count = 3"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 3);
    let saved = engine.persisted_state().unwrap();
    let made = |saved| {
        let mut again = engine_of(wants("on", "huge_count = 3"), Some(saved));
        steps(&mut again, &machine, now, 1);
        status(&again).huge.unwrap().made_pages
    };
    assert_eq!(made(saved.clone()), 2);
    assert_eq!(made(PersistedState { boot: "another".to_owned(), ..saved }), 0);
}

#[test]
fn mode_off_decides_nothing() {
    let machine = machine(1, 0);
    let mut engine = engine_of(wants("off", "huge_count = 3"), None);
    steps(&mut engine, &machine, 1_000_000, 3);
    assert_eq!((engine.settings.mode, pool_of(&machine)), (DaemonMode::Off, pool(1, 0)));
    assert!(status(&engine).why.contains("mode is off"));
}

/// Two nodes of 4 GiB, on each of which the pool has a page.
fn two_nodes() -> TestMachine {
    let slice = Bytes(64 << 20);
    let mut config = SimConfig::new(slice * 64, slice);
    let zone = config.zones[0].clone();
    config.zones = (0..2).map(|node| ZoneConfig { node: NodeId(node), ..zone.clone() }).collect();
    let machine = TestMachine::of(config);
    *machine.node_pools.lock().unwrap() = vec![pool(1, 0); 2];
    machine
}

fn parts(machine: &TestMachine) -> Vec<u64> {
    machine.node_pools.lock().unwrap().iter().map(HugePagePool::size).collect()
}

#[test]
fn pages_that_are_wanted_on_a_node_are_made_of_its_memory_and_given_back_there() {
    let machine = two_nodes();
    let mut engine = engine_of(wants("on", "huge_count = 3\nhuge_node = 1"), None);
    let now = steps(&mut engine, &machine, 1_000_000, 20);
    assert_eq!(parts(&machine), [1, 3]);
    let said = status(&engine);
    let huge = said.huge.unwrap();
    assert_eq!((huge.node, huge.wanted_pages, huge.total_pages), (Some(NodeId(1)), 3, 3));
    assert_eq!((huge.made_pages, huge.administrators_pages), (2, 1));
    let last = said.last_change.unwrap();
    assert!(last.starts_with("made 2 huge pages of 1 GiB on node 1, because"), "{last}");
    engine.set_settings(wants("on", "huge_count = 3\nhuge_node = 1\nsleep = 20"));
    steps(&mut engine, &machine, now, 22);
    assert_eq!(parts(&machine), [1, 1]);
}

#[test]
fn without_a_node_a_page_is_of_the_node_on_which_slices_sleep() {
    let machine = two_nodes();
    let mut engine = engine_of(wants("on", "huge_count = 3"), None);
    steps(&mut engine, &machine, 1_000_000, 3);
    // Of ranges alike, the highest; the whole pool's page would be of node 0
    assert_eq!(parts(&machine), [1, 2]);
    assert_eq!(status(&engine).huge.unwrap().node, None);
}

#[test]
fn observe_works_out_pages_of_the_node_that_is_named() {
    let machine = two_nodes();
    let mut engine = engine_of(wants("observe", "huge_count = 3\nhuge_node = 0"), None);
    steps(&mut engine, &machine, 1_000_000, 20);
    assert_eq!((machine.sent(), parts(&machine)), (0, vec![1, 1]));
    let huge = status(&engine).huge.unwrap();
    assert_eq!((huge.node, huge.total_pages, huge.made_pages), (Some(NodeId(0)), 3, 2));
    let sizes = [None, Some(NodeId(0)), Some(NodeId(1))]
        .map(|node| machine.what_if.huge_page_pools(node).unwrap()[0].size());
    assert_eq!(sizes, [4, 3, 1]);
}

#[test]
fn a_node_that_is_not_there_is_named_with_those_that_are() {
    let machine = two_nodes();
    let mut engine = engine_of(wants("on", "huge_count = 3\nhuge_node = 4"), None);
    steps(&mut engine, &machine, 1_000_000, 3);
    let said = status(&engine);
    assert_eq!((parts(&machine), said.huge), (vec![1, 1], None));
    assert!(said.why.starts_with("takers.huge_node: there is no node 4"), "{}", said.why);
    assert!(said.why.ends_with("nodes 0 and 1"), "{}", said.why);
}

#[test]
fn a_size_that_the_kernel_does_not_have_is_named_with_those_it_has() {
    let machine = machine(1, 0);
    let mut engine = engine_of(wants("on", "huge_count = 3\nhuge_size = \"2MiB\""), None);
    steps(&mut engine, &machine, 1_000_000, 1);
    let why = status(&engine).why;
    assert_eq!(why, "takers.huge_size is 2 MiB: this kernel has huge pages of 1 GiB");
}
