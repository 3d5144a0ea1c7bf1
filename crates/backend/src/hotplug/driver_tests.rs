//! The stock backend and a vendor's driver: errnos of its own, silence, segments.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ramslice_types::{Backend, Budget, Bytes, Reason, Request, RequestOp, RequestOutcome, SliceId};
use rustix::io::Errno;
use tempfile::TempDir;

use super::dram_segments::partial_segments;
use super::fake_machine::{BLOCK, FakeMachine, saved_state};
use super::{HotplugBackend, HotplugGuard};
use crate::readers::{KernelPaths, mem_offline};

const SILENCE_MS: u64 = 4000;

fn machine() -> (FakeMachine, HotplugBackend) {
    let fake = FakeMachine::new();
    let backend = fake.simulated_backend();
    (fake, backend)
}

fn run(backend: &HotplugBackend, op: RequestOp) -> RequestOutcome {
    backend.request(&Request::new(op)).unwrap()
}

/// Takes these slices offline, after which the driver does not answer for them.
fn silent(slices: &[u32]) -> (FakeMachine, HotplugBackend) {
    let (fake, backend) = machine();
    for &slice in slices {
        assert!(run(&backend, RequestOp::Offline(SliceId(slice))).is_ok());
    }
    let mut inner = fake.inner();
    inner.failure_ms = SILENCE_MS;
    for &slice in slices {
        inner.failures.insert((u64::from(slice), "online"), Errno::TIME);
    }
    inner.writes.clear();
    drop(inner);
    (fake, backend)
}

fn written(fake: &FakeMachine) -> Vec<u64> {
    std::mem::take(&mut fake.inner().writes).into_iter().map(|(number, _)| number).collect()
}

#[test]
fn an_errno_of_the_drivers_own_is_its_refusal_in_both_directions() {
    for failing in [Errno::TIME, Errno::TIMEDOUT, Errno::REMOTEIO, Errno::PERM, Errno::OPNOTSUPP] {
        let (fake, backend) = machine();
        let expected = (Reason::Power, failing.raw_os_error().unsigned_abs());
        fake.inner().failures.insert((20, "offline"), failing);
        let outcome = run(&backend, RequestOp::Offline(SliceId(20)));
        assert_eq!((outcome.reason, outcome.status_errno), expected);
        assert!(run(&backend, RequestOp::Offline(SliceId(21))).is_ok());
        fake.inner().failures.insert((21, "online"), failing);
        let outcome = run(&backend, RequestOp::Online(SliceId(21)));
        assert_eq!((outcome.reason, outcome.status_errno), expected);
    }
}

#[test]
fn a_silent_driver_is_asked_twice_in_a_row_and_no_more() {
    let (fake, backend) = silent(&[26, 27, 28, 29]);
    let outcome = run(&backend, RequestOp::OnlineAll);
    assert_eq!((outcome.reason, outcome.slices_done, outcome.slices_failed), (Reason::Power, 0, 2));
    assert_eq!(written(&fake), [26, 27]);
    let most = Duration::from_millis(2 * SILENCE_MS + 500);
    assert!(outcome.elapsed < most, "{:?}", outcome.elapsed);
    // Refusals that come at once are no reason to end.
    let (fake, backend) = silent(&[26, 27, 28, 29]);
    fake.inner().failure_ms = 0;
    assert_eq!(run(&backend, RequestOp::OnlineAll).slices_failed, 4);
}

#[test]
fn one_lost_message_keeps_no_other_slice_offline() {
    let (fake, backend) = silent(&[26, 27, 28, 29]);
    fake.inner().failures.retain(|(number, _), _| [26, 28].contains(number));
    let outcome = run(&backend, RequestOp::OnlineAll);
    assert_eq!((outcome.reason, outcome.slices_done, outcome.slices_failed), (Reason::Power, 2, 2));
    assert_eq!(fake.off(), [26, 28]);
}

#[test]
fn slices_of_a_silent_driver_rest_and_others_are_tried_first() {
    let (fake, backend) = silent(&[26, 27, 28, 29]);
    let all = Request { max_slices: Some(1), ..Request::new(RequestOp::OnlineAll) };
    let tries = |expected: &[u64], reason| {
        let outcome = backend.request(&all).unwrap();
        assert_eq!((written(&fake).as_slice(), outcome.reason), (expected, reason));
        assert!(!outcome.is_ok());
    };
    tries(&[26, 27], Reason::Power);
    // The first rest for eight seconds, which the others take.
    tries(&[28, 29], Reason::Power);
    tries(&[26, 27], Reason::Power);
    let rests = fake.inner().now_ms;
    let mut asked = Vec::new();
    while fake.inner().now_ms < rests + 600_000 {
        assert!(!backend.request(&all).unwrap().is_ok());
        asked.extend(written(&fake));
        fake.advance(Duration::from_millis(200));
    }
    // Rests of 8, 16 and 32 s, then of a minute.
    assert!((4 * 9..4 * 14).contains(&asked.len()), "{asked:?}");
    let few = Request { max_slices: Some(0), ..Request::new(RequestOp::OnlineAll) };
    assert!(backend.request(&few).unwrap().is_ok(), "what rests was not asked for");
    // A request that names one does not wait, and what wakes needs no rest.
    assert_eq!(run(&backend, RequestOp::Online(SliceId(26))).reason, Reason::Power);
    fake.inner().failures.clear();
    assert!(run(&backend, RequestOp::Online(SliceId(26))).is_ok());
    fake.advance(Duration::from_mins(1));
    assert_eq!(run(&backend, RequestOp::OnlineAll).slices_done, 3);
}

#[test]
fn a_guard_turns_to_slices_whose_driver_answers() {
    let (fake, backend) = silent(&[26, 27, 28]);
    fake.inner().failures.remove(&(28, "online"));
    let mut guard = HotplugGuard::new(&backend, Some(Bytes(4 << 30))).unwrap();
    let first = guard.watch(Duration::ZERO).unwrap().unwrap().outcome;
    assert_eq!((first.reason, first.slices_done), (Reason::Power, 0));
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    assert_eq!(fake.off(), [26, 27]);
}

#[test]
fn ctrl_c_during_silence_ends_the_request_after_it() {
    let (fake, backend) = silent(&[26, 27, 28]);
    fake.inner().interrupting_write = Some(1);
    let outcome = run(&backend, RequestOp::OnlineAll);
    assert_eq!((outcome.reason, written(&fake)), (Reason::Signal, vec![26]));
    // What runs after Ctrl-C cleans up.
    fake.inner().interrupting_write = Some(0);
    fake.inner().failures.clear();
    fake.advance(Duration::from_mins(1));
    assert_eq!(run(&backend, RequestOp::OnlineAll).slices_done, 3);
}

#[test]
fn ctrl_c_while_the_driver_switches_a_block_off_brings_the_slice_back() {
    let (fake, backend) = machine();
    backend.set_slice_bytes(Bytes(128 << 20)).unwrap();
    fake.inner().interrupting_write = Some(1);
    let outcome = run(&backend, RequestOp::Offline(SliceId(13)));
    assert_eq!((outcome.reason, fake.off()), (Reason::Signal, vec![]));
    assert_eq!(written(&fake), [27, 27]);
}

#[test]
fn blocks_that_a_silent_driver_does_not_bring_back_are_ours_and_compact_ends() {
    let (fake, backend) = machine();
    backend.set_slice_bytes(Bytes(256 << 20)).unwrap();
    let mut inner = fake.inner();
    inner.failure_ms = SILENCE_MS;
    inner.failures.insert((28, "offline"), Errno::TIME);
    for number in 29..32 {
        inner.failures.insert((number, "online"), Errno::TIME);
    }
    drop(inner);
    let outcome =
        backend.request(&Request { budget: Budget::Unlimited, ..Request::default() }).unwrap();
    assert_eq!((outcome.reason, outcome.slices_failed), (Reason::Power, 1));
    assert_ne!(outcome.status_errno, 0);
    assert_eq!(written(&fake), [31, 30, 29, 28, 29, 30]);
    assert_eq!(fake.off(), [29, 30, 31]);
    for number in 29..32 {
        assert!(saved_state(&fake).contains(&format!("\"{number}\":\"Movable\"")));
    }
    fake.inner().failures.clear();
    assert!(run(&backend, RequestOp::OnlineAll).is_ok());
    assert!(fake.off().is_empty());
}

#[test]
fn a_slice_that_keeps_its_power_comes_back_and_two_in_a_row_end_compact() {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("sys/kernel/mem-offline");
    fs::create_dir_all(&folder).unwrap();
    let states = |states: &str| {
        let head = "\n\tONLINE\n\t\t\tmem29\t\tmem30\t\tmem31\t\t\n";
        fs::write(folder.join("stats"), format!("{head}\tState:\t\t{states}\n")).unwrap();
    };
    let compact = Request { ignore_backoff: true, ..Request::default() };
    for (row, done, failed, off) in [
        // It ends before the block that would do.
        ("Offline\t\tOnline\t\tOnline", 0, 2, vec![]),
        // One that cannot be switched off keeps no other from it.
        ("Offline\t\tOnline\t\tOffline", 2, 1, vec![29, 31]),
    ] {
        let fake = FakeMachine::new();
        let backend = fake.backend_with_files(root.path());
        states(row);
        let outcome = backend.request(&Request { max_slices: Some(2), ..compact }).unwrap();
        assert_eq!((outcome.slices_done, outcome.slices_failed), (done, failed), "{row}");
        assert_eq!((outcome.reason, outcome.is_ok()), (Reason::Power, done > 0));
        assert_eq!(fake.off(), off);
        assert_eq!(fake.inner().zones[&30], "Movable");
        assert!(!saved_state(&fake).contains("\"30\":\"Movable\""));
        // It is left alone for a while, as any that failed.
        assert_eq!(run(&backend, RequestOp::Offline(SliceId(30))).reason, Reason::Backoff);
    }
}

/// Files of a driver with segments of this many blocks each, from block 8 on.
fn segments(root: &Path, sizes: &[u64]) {
    let folder = root.join("sys/kernel/mem-offline");
    let mut first = 8;
    for (number, blocks) in sizes.iter().enumerate() {
        let segment = folder.join(format!("seg_info/segment{number}"));
        fs::create_dir_all(&segment).unwrap();
        for (file, value) in
            [("memblk_start", first), ("num_memblks", *blocks), ("seg_size", blocks * BLOCK * 4096)]
        {
            fs::write(segment.join(file), format!("{value}\n")).unwrap();
        }
        first += blocks;
    }
}

#[test]
fn slices_that_are_a_part_of_a_segment_are_reported_with_the_size_that_is_not() {
    let (root, block) = (TempDir::new().unwrap(), Bytes(BLOCK * 4096));
    segments(root.path(), &[4, 4, 2, 1, 1]);
    let driver = mem_offline(&KernelPaths::under(root.path())).unwrap().unwrap();
    let text = |times| partial_segments(&driver, block * times, block);
    let said = text(1).unwrap();
    for part in ["64 MiB", "not equal, from 64 MiB to 256 MiB", "--resize 256MiB"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!((text(2).is_some(), text(4), text(8)), (true, None, None));
}
