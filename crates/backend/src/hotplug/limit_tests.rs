//! What the stock backend leaves available and where, and what ends its requests, over a simulated
//! machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ramslice_types::{Backend, Bytes, NodeId, Pages, Reason, Request, RequestOp, SliceId};
use rustix::io::Errno;

use super::fake_machine::{ANON, BLOCK, BLOCKS, FakeMachine};
use super::page_use::bit;
use super::{HotplugBackend, HotplugGuard, WokenBy};

/// Blocks 16 to 31 are of a second node; all are in Normal.
fn two_nodes() -> (FakeMachine, HotplugBackend) {
    let fake = FakeMachine::new();
    fake.two_nodes(16);
    let backend = fake.simulated_backend();
    (fake, backend)
}

fn offline(backend: &HotplugBackend, id: u64) -> Reason {
    backend.request(&Request::new(RequestOp::Offline(SliceId(id as u32)))).unwrap().reason
}

fn compact_node(backend: &HotplugBackend, node: i32) -> Reason {
    let request = Request { node: Some(NodeId(node)), ..Request::default() };
    backend.request(&request).unwrap().reason
}

fn fills(fake: &FakeMachine, blocks: impl Iterator<Item = u64>) {
    blocks.for_each(|block| fake.holds(block, BLOCK, 0));
}

#[test]
fn a_node_keeps_its_share_of_the_margin_though_another_has_plenty() {
    let (fake, backend) = two_nodes();
    // Of 256 MiB for 2 GiB each node is to keep half, two blocks, above its high mark.
    assert_eq!(compact_node(&backend, 1), Reason::AwakeReserve);
    assert_eq!(fake.off(), (19..BLOCKS).collect::<Vec<_>>());
    let available = 18 * (64 << 20);
    assert!(backend.headroom().unwrap().unwrap().available > Bytes(available));
}

#[test]
fn a_node_that_others_move_to_keeps_its_share_as_well() {
    for (spare, expected) in [(BLOCK * 2, Reason::AwakeReserve), (BLOCK * 3 + 300, Reason::None)] {
        let (fake, backend) = two_nodes();
        fills(&fake, 16..BLOCKS);
        fake.inner().fill(16, BLOCK, bit::BUDDY, 0);
        fake.inner().fill(17, BLOCK, bit::BUDDY, 0);
        fake.inner().fill(18, spare - 2 * BLOCK, bit::BUDDY, 0);
        fills(&fake, std::iter::once(10));
        assert_eq!(offline(&backend, 10), expected, "{spare} pages to spare");
        // What is empty moves nothing there.
        assert_eq!(offline(&backend, 11), Reason::None);
    }
}

#[test]
fn the_kernels_zones_keep_their_share_beside_a_large_movable_one() {
    let fake = FakeMachine::new();
    fake.inner()
        .zones
        .iter_mut()
        .for_each(|(block, zone)| *zone = if *block < 8 { "Normal" } else { "Movable" });
    let backend = fake.backend();
    // Of 256 MiB the kernel's quarter is a block.
    for block in [7, 6] {
        assert_eq!(offline(&backend, block), Reason::None);
    }
    fills(&fake, 1..5);
    fake.inner().fill(5, 400, ANON, 1);
    assert_eq!(offline(&backend, 5), Reason::AwakeReserve);
    assert_eq!(offline(&backend, 31), Reason::None);
}

#[test]
fn a_guard_wakes_first_where_least_is_left() {
    let (fake, backend) = two_nodes();
    for block in [12, 13, 28, 29] {
        assert_eq!(offline(&backend, block), Reason::None);
    }
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
    // A program that is bound to the second node takes almost all of it.
    fills(&fake, (16..BLOCKS - 1).filter(|block| ![28, 29].contains(block)));
    let woken = guard.watch(Duration::ZERO).unwrap().unwrap();
    let left = Pages(BLOCK - 300).bytes(Bytes(4096));
    assert_eq!((woken.cause, woken.outcome.slices_done), (WokenBy::Low(left), 2));
    assert_eq!(fake.off(), [12, 13]);
}

#[test]
fn a_guard_wakes_nothing_elsewhere_for_a_node_that_is_short() {
    let (fake, backend) = two_nodes();
    for block in [12, 13, 14, 28] {
        assert_eq!(offline(&backend, block), Reason::None);
    }
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    // It lacks half a block, for which two would wake.
    fills(&fake, (16..BLOCKS - 1).filter(|block| *block != 28));
    fake.inner().failures.insert((28, "online"), Errno::IO);
    let pressure = guard.watch(Duration::ZERO).unwrap().unwrap().outcome;
    assert_eq!(
        (pressure.slices_done, pressure.slices_failed, pressure.reason),
        (0, 1, Reason::Power)
    );
    assert_eq!(fake.off(), [12, 13, 14, 28]);
    fake.inner().failures.clear();
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    assert_eq!(fake.off(), [12, 13, 14]);
}

#[test]
fn a_guard_wakes_nothing_of_movable_for_the_kernel() {
    let fake = FakeMachine::new();
    for (block, zone) in &mut fake.inner().zones {
        *zone = if *block < 8 { "Normal" } else { "Movable" };
    }
    let backend = fake.backend();
    for block in [7, 30, 31] {
        assert_eq!(offline(&backend, block), Reason::None);
    }
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    fills(&fake, 1..7);
    fake.holds(0, BLOCK / 2, 0);
    fake.wakes(7, false);
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 0);
    assert_eq!(fake.off(), [7, 30, 31]);
    fake.wakes(7, true);
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    assert_eq!(fake.off(), [30, 31]);
}

#[test]
fn a_node_whose_slices_do_not_wake_keeps_no_other_from_its_own() {
    let (fake, backend) = two_nodes();
    for block in [11, 12, 13, 28] {
        assert_eq!(offline(&backend, block), Reason::None);
    }
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    // Each node has a little less than its share, a block and a half, above its low mark; both
    // together have enough.
    fills(&fake, (0..15).filter(|block| ![11, 12, 13].contains(block)));
    fake.holds(14, BLOCK / 2 - 124, 0);
    fills(&fake, (16..31).filter(|block| *block != 28));
    fake.holds(30, BLOCK / 2 - 24, 0);
    fake.wakes(28, false);
    let woken = guard.watch(Duration::ZERO).unwrap().unwrap();
    let left = Pages(BLOCK + BLOCK / 2 + 24 - 300).bytes(Bytes(4096));
    assert_eq!(woken.cause, WokenBy::Low(left));
    let outcome = woken.outcome;
    assert_eq!(
        (outcome.slices_done, outcome.slices_failed, outcome.reason),
        (2, 1, Reason::NoRoom)
    );
    assert_eq!(fake.off(), [13, 28]);
}

#[test]
fn a_guard_looks_rarely_while_nothing_is_off() {
    let fake = FakeMachine::new();
    let backend = fake.simulated_backend();
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    let reads = |guard: &mut HotplugGuard<'_>| {
        let before = fake.inner().meminfo_reads;
        assert_eq!(guard.watch(Duration::from_millis(600)).unwrap(), None);
        fake.inner().meminfo_reads - before
    };
    let rests = reads(&mut guard);
    assert!(rests <= 2, "{rests}");
    assert_eq!(offline(&backend, 31), Reason::None);
    // It goes on at once: the request was of this program.
    let watches = reads(&mut guard);
    assert!(watches > rests + 2, "{watches}");
}

#[test]
fn offline_blocks_are_read_once_a_second_and_when_this_program_takes_more_offline() {
    let (fake, backend) = two_nodes();
    assert_eq!(offline(&backend, 31), Reason::None);
    let mut guard = HotplugGuard::new(&backend, None).unwrap();
    let counts = || {
        let inner = fake.inner();
        (inner.meminfo_reads, inner.state_reads)
    };
    let before = counts();
    assert_eq!(guard.watch(Duration::from_millis(600)).unwrap(), None);
    let after = counts();
    let (looks, reads) = (after.0 - before.0, after.1 - before.1);
    // The second time it is by the way, with the nodes of blocks.
    assert!(looks >= 5 && reads <= 2, "{reads} in {looks} looks");
    // The first slice that a node loses counts at once.
    assert_eq!(offline(&backend, 12), Reason::None);
    fills(&fake, (0..16).filter(|block| *block != 12));
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    assert_eq!(fake.off(), [31]);
}

#[test]
fn a_request_ends_when_memory_runs_short_even_if_no_guard_can_report_it() {
    let fake = FakeMachine::new();
    fake.inner().pinned_blocks.insert(5);
    let backend = fake.backend();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while fake.inner().writes.is_empty() {
                std::thread::yield_now();
            }
            fills(&fake, (1..BLOCKS).filter(|block| *block != 5));
        });
        assert_eq!(offline(&backend, 5), Reason::Pressure);
    });
    assert!(fake.off().is_empty());
    // A request that would have to search for slices while memory is short does not even scan.
    let read = fake.inner().pages_read;
    assert_eq!(backend.request(&Request::default()).unwrap().reason, Reason::Pressure);
    assert_eq!(fake.inner().pages_read, read);
}

#[test]
fn a_program_that_is_to_end_does_not_wait_for_the_deadline_of_its_request() {
    let fake = FakeMachine::new();
    fake.inner().pinned_blocks.insert(5);
    let goes_on = Arc::new(AtomicBool::new(true));
    let backend = fake.backend().with_interruption({
        let goes_on = Arc::clone(&goes_on);
        move || goes_on.load(Ordering::Relaxed)
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while fake.inner().writes.is_empty() {
                std::thread::yield_now();
            }
            goes_on.store(false, Ordering::Relaxed);
        });
        assert_eq!(offline(&backend, 5), Reason::Signal);
    });
    // Before it ends, it wakes what it has taken offline.
    assert!(fake.off().is_empty());
    goes_on.store(true, Ordering::Relaxed);
    assert_eq!(offline(&backend, 6), Reason::None);
    goes_on.store(false, Ordering::Relaxed);
    let all = Request::new(RequestOp::OnlineAll);
    assert_eq!(backend.request(&all).unwrap().slices_done, 1);
}

#[test]
fn a_pinned_page_does_not_keep_a_request_from_other_slices() {
    let fake = FakeMachine::new();
    let mut inner = fake.inner();
    inner.pinned_blocks.insert(6);
    inner.fill(6, 1, ANON, 1);
    // All others are dearer, and the rest cannot go.
    for block in 7..BLOCKS {
        inner.fill(block, 1, bit::SLAB, 0);
    }
    drop(inner);
    let backend = fake.backend();
    let request = Request {
        deadline: Some(Duration::from_secs(50)),
        max_slices: Some(1),
        ..Request::default()
    };
    let outcome = backend.request(&request).unwrap();
    assert_eq!((outcome.slices_done, outcome.slices_failed), (1, 1));
    assert!(outcome.elapsed < Duration::from_secs(30), "{:?}", outcome.elapsed);
    assert_eq!(fake.off(), [2]);
    let slice = backend.snapshot().unwrap().slices[6].clone();
    assert!(slice.backoff && slice.reason == Reason::Pinned, "{slice:?}");
}
