//! The stock backend over a made-up machine: order, limits, and what becomes of blocks when
//! something fails.

use std::time::Duration;

use ramslice_conformance::{CheckSettings, check};
use ramslice_types::{
    Backend, BackendErrorKind, Budget, Bytes, ContentsDetail, PageClass, Pages, Price,
    PriceParameter, Reason, Request, RequestOp, RequestOutcome, SliceId, SliceState,
};
use rustix::io::Errno;

use super::fake_machine::{ANON, BLOCK, BLOCKS, FakeMachine, saved_state};
use super::system_files::STATE;
use super::{HotplugBackend, HotplugGuard};

fn machine() -> (FakeMachine, HotplugBackend) {
    let fake = FakeMachine::new();
    let backend = fake.simulated_backend();
    (fake, backend)
}

/// Slices of two blocks.
fn pairs() -> (FakeMachine, HotplugBackend) {
    let (fake, backend) = machine();
    backend.set_slice_bytes(Bytes(128 << 20)).unwrap();
    (fake, backend)
}

fn offline(backend: &HotplugBackend, id: u32) -> RequestOutcome {
    backend.request(&Request::new(RequestOp::Offline(SliceId(id)))).unwrap()
}

fn why(outcome: &RequestOutcome) -> (Reason, u32) {
    (outcome.reason, outcome.status_errno)
}

fn errno(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

#[test]
fn a_kernel_without_hotremove_is_named_and_has_no_slices() {
    let (fake, backend) = machine();
    fake.inner().without_hotremove = true;
    let error = backend.snapshot().unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("CONFIG_MEMORY_HOTREMOVE") && text.contains("valid_zones"), "{text}");
    let error = backend.request(&Request::new(RequestOp::Offline(SliceId(4)))).unwrap_err();
    assert!(error.to_string().contains("CONFIG_MEMORY_HOTREMOVE"), "{error}");
}

#[test]
fn every_rule_of_a_backend_holds() {
    // Each look is a new one: what moved counts where it went.
    let backend = machine().1.with_scan_reuse(0);
    let settings = CheckSettings { tolerance: Pages::ZERO, contents: true, events: false };
    let broken = check(&backend, settings);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_rule_holds_with_slices_of_several_blocks() {
    let backend = pairs().1.with_scan_reuse(0);
    let settings = CheckSettings { tolerance: Pages::ZERO, contents: true, events: false };
    let broken = check(&backend, settings);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_suite_notices_a_backend_that_breaks_rules() {
    let (fake, backend) = machine();
    fake.inner().failures.insert((6, "online"), Errno::NOMEM);
    let settings = CheckSettings { tolerance: Pages::ZERO, contents: true, events: false };
    let broken: Vec<_> = check(&backend, settings).into_iter().map(|(rule, _)| rule).collect();
    assert!(!broken.is_empty());
}

#[test]
fn slices_go_by_price_and_from_the_top() {
    let (fake, backend) = machine();
    for (most, expected) in [(1, vec![31]), (2, vec![29, 30, 31])] {
        backend.request(&Request { max_slices: Some(most), ..Request::default() }).unwrap();
        assert_eq!(fake.inner().offline(), expected);
    }
    // Dearer than an empty one by 100 pages, their mappings and destinations.
    let slices = backend.snapshot().unwrap().slices;
    assert_eq!(slices[2].price, slices[6].price + Price(100 * 100 + 100 * 29));
    assert_eq!(slices[2].counters.anon_mapped, Pages(100));
}

#[test]
fn enough_stays_available_and_it_says_so() {
    let (fake, backend) = machine();
    let outcome = backend.request(&Request::default()).unwrap();
    assert_eq!(why(&outcome), (Reason::AwakeReserve, 0));
    assert!(outcome.slices_done > 10 && outcome.ran_to_its_end());
    // One block less would be below the margin of 256 MiB, or below the reserve of its zone.
    let left = fake.inner().online_blocks.values().filter(|online| **online).count();
    assert!((6..=12).contains(&left), "{left}");
    let awake = backend.snapshot().unwrap().slices.into_iter().rev();
    let next = awake
        .into_iter()
        .find(|slice| slice.state == SliceState::Online && slice.id.0 > 5)
        .unwrap();
    assert_eq!(why(&offline(&backend, next.id.0)), (Reason::AwakeReserve, errno(Errno::NOMEM)));
}

#[test]
fn the_reason_that_blocks_a_slice_is_reported_without_touching_it() {
    let (fake, backend) = machine();
    for (id, reason) in [(0, Reason::Boot), (1, Reason::Slab)] {
        assert_eq!(why(&offline(&backend, id)), (reason, errno(Errno::BUSY)));
    }
    assert_eq!(fake.inner().writes, []);
    let contents = backend.contents(SliceId(1), ContentsDetail::default()).unwrap();
    let blocking: Vec<_> =
        contents.blocking().map(|run| (run.class, run.pages, run.reason)).collect();
    assert_eq!(blocking, [(PageClass::Slab, Pages(10), Reason::Slab)]);
}

#[test]
fn unknown_pages_within_the_cpus_lists_are_tried_and_explained_when_the_kernel_refuses() {
    let (fake, backend) = machine();
    fake.inner().fill(7, 5, 0, 0);
    assert_eq!(why(&offline(&backend, 7)), (Reason::Unmovable, errno(Errno::BUSY)));
    assert!(fake.inner().offline().is_empty());
    fake.inner().fill(8, 6, 0, 0);
    assert!(backend.snapshot().unwrap().slices[8].unmovable, "more than the lists hold");
}

#[test]
fn a_failure_half_way_brings_offline_blocks_back_to_the_zone_they_were_in() {
    for failing in [Errno::BUSY, Errno::IO, Errno::NOMEM, Errno::PERM, Errno::AGAIN] {
        let (fake, backend) = pairs();
        fake.inner().failures.insert((26, "offline"), failing);
        let outcome = offline(&backend, 13);
        assert!(!outcome.is_ok() && outcome.slices_failed == 1, "{failing:?}: {outcome:?}");
        let inner = fake.inner();
        let words: Vec<_> =
            inner.writes.iter().map(|(number, word)| (*number, word.as_str())).collect();
        assert_eq!(words, [(27, "offline"), (26, "offline"), (27, "online_movable")]);
        assert_eq!((inner.offline(), inner.zones[&27]), (vec![], "Movable"));
        drop(inner);
        assert!(saved_state(&fake).contains(r#""blocks":{}"#), "{}", saved_state(&fake));
    }
}

#[test]
fn errors_of_the_kernel_have_the_patched_kernels_reasons() {
    for (failing, reason) in [
        (Errno::IO, Reason::Power),
        (Errno::PERM, Reason::Power),
        (Errno::NOMEM, Reason::NoRoom),
        (Errno::INVAL, Reason::Hole),
        (Errno::AGAIN, Reason::Isolated),
        (Errno::BUSY, Reason::Migration),
        (Errno::INTR, Reason::Signal),
    ] {
        let (fake, backend) = machine();
        fake.inner().failures.insert((20, "offline"), failing);
        assert_eq!(offline(&backend, 20).reason, reason, "{failing:?}");
    }
}

#[test]
fn at_the_deadline_pages_that_are_still_there_are_called_pinned_if_the_others_left() {
    let (fake, backend) = machine();
    let mut inner = fake.inner();
    inner.failures.insert((5, "offline"), Errno::INTR);
    inner.write_ms = 2000;
    drop(inner);
    let request = Request {
        deadline: Some(Duration::from_secs(1)),
        ..Request::new(RequestOp::Offline(SliceId(5)))
    };
    let outcome = backend.request(&request).unwrap();
    // Nothing at all had left.
    assert_eq!(
        (why(&outcome), outcome.failed),
        ((Reason::Deadline, errno(Errno::TIMEDOUT)), Pages(400))
    );
}

#[test]
fn a_slice_that_failed_is_left_alone_for_a_while() {
    let (fake, backend) = machine();
    fake.inner().failures.insert((9, "offline"), Errno::BUSY);
    offline(&backend, 9);
    let slice = backend.snapshot().unwrap().slices[9].clone();
    assert!(slice.backoff && slice.retry_ms > 0 && slice.reason == Reason::Migration);
    assert_eq!(why(&offline(&backend, 9)), (Reason::Backoff, errno(Errno::AGAIN)));
    fake.inner().failures.clear();
    let request = Request { ignore_backoff: true, ..Request::new(RequestOp::Offline(SliceId(9))) };
    assert!(backend.request(&request).unwrap().is_ok());
}

#[test]
fn a_block_that_vanishes_is_no_success_and_nothing_of_it_is_remembered() {
    let (fake, backend) = pairs();
    fake.inner().vanishing_blocks.insert(20);
    let outcome = offline(&backend, 10);
    assert_eq!(why(&outcome), (Reason::State, errno(Errno::NODEV)));
    assert!(fake.inner().offline().is_empty());
    assert!(saved_state(&fake).contains(r#""blocks":{}"#));
}

#[test]
fn a_block_that_does_not_come_back_stays_ours_and_is_woken_later() {
    let (fake, backend) = pairs();
    let mut inner = fake.inner();
    inner.failures.insert((26, "offline"), Errno::BUSY);
    inner.failures.insert((27, "online"), Errno::NOMEM);
    drop(inner);
    assert!(!offline(&backend, 13).is_ok());
    assert_eq!(fake.inner().offline(), [27]);
    let all = Request::new(RequestOp::OnlineAll);
    assert_eq!(backend.request(&all).unwrap().reason, Reason::NoRoom);
    fake.inner().failures.clear();
    assert!(backend.request(&all).unwrap().is_ok());
    let inner = fake.inner();
    assert_eq!((inner.offline(), inner.zones[&27]), (vec![], "Movable"));
}

#[test]
fn nothing_is_switched_that_could_not_be_remembered() {
    let (fake, backend) = machine();
    fake.inner().save_fails = true;
    assert!(backend.request(&Request::new(RequestOp::Offline(SliceId(9)))).is_err());
    assert_eq!(fake.inner().writes, []);
}

#[test]
fn all_cycles_since_boot_are_of_one_clock_whatever_the_cpu_runs_at() {
    let mhz = |fake: &FakeMachine, mhz: &str| {
        fake.inner()
            .saved_files
            .insert("proc/cpuinfo".to_owned(), format!("processor\t: 0\ncpu MHz\t\t: {mhz}"));
    };
    let clock = |backend: &HotplugBackend| backend.info().unwrap().clock_khz.unwrap();
    let (fake, backend) = machine();
    fake.inner().write_ms = 100;
    // The thread's CPU time goes on by 100 ms for a block.
    let price = |backend: &HotplugBackend, id| {
        let outcome = backend.request(&Request::new(RequestOp::Offline(SliceId(id)))).unwrap();
        let ms = outcome.price_measured.cycles() / clock(backend);
        assert!((100..200).contains(&ms), "{ms} ms of {outcome:?}");
    };
    mhz(&fake, "800.0");
    price(&backend, 31);
    assert_eq!(clock(&backend), 1_000_000, "as it was when it was opened");
    let later = fake.backend();
    price(&later, 30);
    assert_eq!(clock(&later), 1_000_000, "as that of the cycles that are counted already");

    let fresh = |file: &str, khz: &str| {
        let fake = FakeMachine::new();
        mhz(&fake, "3512.5");
        fake.inner()
            .saved_files
            .insert(format!("sys/devices/system/cpu/cpu0/cpufreq/{file}"), khz.to_owned());
        clock(&fake.backend())
    };
    assert_eq!(fresh("base_frequency", "2100000"), 2_100_000);
    assert_eq!(fresh("cpuinfo_max_freq", "3400000"), 3_400_000);
    assert_eq!(fresh("scaling_cur_freq", "800000"), 3_512_500);
}

#[test]
fn blocks_that_another_process_took_offline_are_left_alone_unless_named() {
    let (fake, backend) = machine();
    fake.inner().by_hand(12, false);
    offline(&backend, 31);
    let all = backend.machine().unwrap();
    let off: Vec<_> =
        all.snapshot.slices.iter().filter(|slice| slice.state == SliceState::Offline).collect();
    let held: Vec<_> = off.iter().map(|slice| (slice.id.0, slice.held)).collect();
    assert_eq!(held, [(12, true), (31, false)]);
    // Memory that no request here can bring back is not a part of this machine.
    let pages = (all.info.managed_pages, all.info.offline_pages, all.info.held_pages);
    assert_eq!(pages, (Pages((BLOCKS - 1) * BLOCK), Pages(BLOCK), Pages(BLOCK)));
    let zones: Vec<_> = all
        .zones
        .iter()
        .map(|zone| (zone.nr_offline, zone.nr_held, zone.offline_pages.0))
        .collect();
    assert_eq!(zones, [(1, 1, 0), (1, 0, BLOCK)]);

    assert_eq!(backend.request(&Request::new(RequestOp::OnlineAll)).unwrap().slices_done, 1);
    assert_eq!(fake.inner().offline(), [12]);
    assert!(backend.request(&Request::new(RequestOp::Online(SliceId(12)))).unwrap().is_ok());
    assert!(fake.inner().offline().is_empty());
}

#[test]
fn a_slice_with_a_block_that_another_process_took_offline_wakes_only_in_part() {
    let (fake, backend) = pairs();
    assert!(offline(&backend, 13).is_ok());
    let held = || backend.snapshot().unwrap().slices[13].held;
    assert!(!held());
    fake.inner().by_hand(26, true);
    backend.snapshot().unwrap();
    fake.inner().by_hand(26, false);
    assert!(held());
    assert_eq!(backend.request(&Request::new(RequestOp::OnlineAll)).unwrap().slices_done, 1);
    assert_eq!(fake.inner().offline(), [26]);
}

#[test]
fn with_its_memory_damaged_it_wakes_nothing_by_itself_and_names_what_wakes() {
    let (fake, backend) = machine();
    fake.inner().online_blocks.insert(12, false);
    offline(&backend, 31);
    fake.inner().saved_files.insert(STATE.to_owned(), "{".to_owned());
    let all = Request::new(RequestOp::OnlineAll);
    let said = backend.request(&all).unwrap_err().to_string();
    assert!(
        said.contains("remove it, then `ramslice --backend stock slices --state offline`"),
        "{said}"
    );
    fake.inner().saved_files.remove(STATE);
    // It is unknown which of the two is ours.
    assert_eq!(backend.request(&all).unwrap().slices_done, 0);
    let slices = backend.snapshot().unwrap().slices;
    let off: Vec<_> = slices.iter().filter(|slice| slice.state == SliceState::Offline).collect();
    assert_eq!(off.iter().map(|slice| slice.id.0).collect::<Vec<_>>(), [12, 31]);
    assert!(backend.request(&Request::new(RequestOp::Online(SliceId(31)))).unwrap().is_ok());
    assert_eq!(fake.inner().offline(), [12]);
}

#[test]
fn blocks_that_another_process_switches_are_seen_at_once_without_needless_page_reads() {
    let (fake, backend) = machine();
    let backend = backend.with_scan_reuse(100);
    let seen = || {
        let before = fake.inner().pages_read;
        let state = backend.snapshot().unwrap().slices[12].state;
        (state, fake.inner().pages_read - before)
    };
    assert_eq!(seen(), (SliceState::Online, BLOCKS * BLOCK));
    assert_eq!(seen(), (SliceState::Online, 0));
    fake.inner().by_hand(12, false);
    assert_eq!(seen(), (SliceState::Offline, 0));
    fake.inner().by_hand(12, true);
    assert_eq!(seen(), (SliceState::Online, BLOCK));
    // A request has switched it: others are as they were.
    assert_eq!(offline(&backend, 12).slices_done, 1);
    assert_eq!(seen(), (SliceState::Offline, 0));
    backend.set_price_parameter(PriceParameter::MigratePage, Price(7000)).unwrap();
    let slice = &backend.snapshot().unwrap().slices[2];
    assert!(slice.price > Price(7000 * 100), "{slice:?}");
}

#[test]
fn a_request_looks_at_the_pages_that_it_is_about() {
    let (fake, backend) = machine();
    let pages = |request: &Request| {
        let before = fake.inner().pages_read;
        assert_eq!(backend.request(request).unwrap().slices_done, 1, "{request:?}");
        (fake.inner().pages_read - before) / BLOCK
    };
    // Once to find out, once more before it is done, once for who is there if it fails.
    assert_eq!(pages(&Request::new(RequestOp::Offline(SliceId(31)))), 3);
    let movable =
        machine().1.zones().unwrap().iter().find(|zone| zone.name == "Movable").unwrap().zone;
    // Of its zone the seven that are on, and one of them once more.
    let request =
        Request { zone: Some(movable), max_slices: Some(1), dry_run: true, ..Request::default() };
    assert_eq!(pages(&request), 8);
}

#[test]
fn what_was_empty_at_the_look_and_is_not_now_stays_and_is_known_from_then_on() {
    let (fake, backend) = machine();
    let backend = backend.with_scan_reuse(10_000);
    assert!(backend.snapshot().unwrap().slices[31].is_empty());
    for block in 6..BLOCKS {
        fake.inner().fill(block, BLOCK / 2, ANON, 1);
    }
    let before = fake.inner().writes.len();
    let empty = Request { max_slices: Some(1), ..Request::new(RequestOp::OfflineFree) };
    assert_eq!(backend.request(&empty).unwrap().slices_done, 0);
    assert_eq!(fake.inner().writes.len(), before);
    let read = fake.inner().pages_read;
    assert!(!backend.snapshot().unwrap().slices[31].is_empty());
    assert_eq!(fake.inner().pages_read, read, "it was looked at by the request");
}

#[test]
fn no_slice_begins_after_the_deadline() {
    let (fake, backend) = machine();
    fake.inner().write_ms = 2000;
    let request = Request { deadline: Some(Duration::from_secs(5)), ..Request::default() };
    let outcome = backend.request(&request).unwrap();
    assert_eq!(why(&outcome), (Reason::Deadline, errno(Errno::TIMEDOUT)));
    // At 0, 2 and 4 seconds one may begin.
    assert!((1..=3).contains(&outcome.slices_done), "{}", outcome.slices_done);
}

#[test]
fn a_deadline_is_for_what_is_done_and_a_look_of_any_length_can_be_ended() {
    let (fake, backend) = machine();
    fake.inner().batch_ms = 1000;
    let request = Request {
        deadline: Some(Duration::from_secs(30)),
        max_slices: Some(1),
        ..Request::default()
    };
    let outcome = backend.request(&request).unwrap();
    assert_eq!((outcome.slices_done, why(&outcome)), (1, (Reason::None, 0)));
    assert!(outcome.elapsed > Duration::from_mins(1), "{:?}", outcome.elapsed);
    let left = std::sync::atomic::AtomicU32::new(5);
    let (_, backend) = machine();
    let backend = backend
        .with_interruption(move || left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 1);
    let error = backend.snapshot().unwrap_err();
    assert!(error.to_string().contains("kpageflags"), "{error}");
}

#[test]
fn what_moves_needs_room_above_the_zones_reserve_as_well() {
    // The reserve of Movable is a block.
    for (spare, expected) in [(BLOCK * 3 / 2, Reason::AwakeReserve), (2 * BLOCK, Reason::None)] {
        let (fake, backend) = machine();
        let used = 7 * BLOCK - spare;
        for block in 24..31 {
            let pages = used.saturating_sub((block - 24) * BLOCK).min(BLOCK);
            fake.inner().fill(block, pages, ANON, 1);
        }
        fake.inner().fill(31, BLOCK, ANON, 1);
        assert_eq!(offline(&backend, 31).reason, expected, "{spare} pages to spare");
    }
}

#[test]
fn zones_and_slices_of_a_machine_are_of_one_moment_while_another_process_switches_blocks() {
    let (fake, backend) = machine();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                fake.inner().online_blocks.insert(12, round % 2 == 0);
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        let agree = (0..60).all(|_| {
            let machine = backend.machine().unwrap();
            let off =
                machine.snapshot.slices.iter().filter(|slice| slice.state == SliceState::Offline);
            let zones: u32 = machine.zones.iter().map(|zone| zone.nr_offline).sum();
            zones as usize == off.count()
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(agree);
    });
}

#[test]
fn a_budget_is_for_all_slices_or_for_each() {
    let (_, backend) = machine();
    let empty = backend.snapshot().unwrap().slices[31].price;
    let budget = Budget::Limited(empty + empty);
    let all = backend.request(&Request { budget, ..Request::default() }).unwrap();
    assert_eq!((all.slices_done, why(&all)), (2, (Reason::OverBudget, 0)));
    let each = Request { budget, per_slice: true, max_slices: Some(3), ..Request::default() };
    assert_eq!(backend.request(&each).unwrap().slices_done, 3);
    // To a request that names its slice it is an error, with an errno of its own.
    let op = RequestOp::Offline(SliceId(20));
    let named = Request { budget: Budget::Limited(Price(1)), ..Request::new(op) };
    let refused = backend.request(&named).unwrap();
    assert_eq!(why(&refused), (Reason::OverBudget, errno(Errno::DQUOT)));
}

#[test]
fn a_second_request_at_the_same_time_is_refused_but_looking_is_not() {
    let (fake, backend) = machine();
    fake.inner().lock_held = true;
    assert_eq!(backend.request(&Request::default()).unwrap_err().kind(), BackendErrorKind::Busy);
    assert!(backend.request(&Request { dry_run: true, ..Request::default() }).is_ok());
    assert!(backend.machine().is_ok());
}

#[test]
fn who_takes_memory_away_makes_way_for_a_guard_that_waits() {
    let (fake, backend) = machine();
    assert_eq!(offline(&backend, 31).slices_done, 1);
    let mut guard = HotplugGuard::new(&backend, Some(Bytes(u64::MAX))).unwrap();
    // Another process switches blocks.
    fake.inner().lock_held = true;
    assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
    fake.inner().lock_held = false;
    assert_eq!(why(&offline(&backend, 30)), (Reason::Pressure, errno(Errno::AGAIN)));
    assert_eq!(fake.inner().offline(), [31]);
    assert_eq!(guard.watch(Duration::ZERO).unwrap().unwrap().outcome.slices_done, 1);
    assert_eq!(offline(&backend, 30).slices_done, 1);
}

#[test]
fn a_guard_that_waited_in_vain_lets_others_go_on_when_memory_is_there_again() {
    let (fake, backend) = machine();
    let mut guard = HotplugGuard::new(&backend, Some(Bytes(1 << 30))).unwrap();
    let used = (BLOCK * 20) as usize;
    let before = fake.inner().flags.clone();
    fake.inner().flags[..used].fill(ANON);
    fake.inner().lock_held = true;
    assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
    fake.inner().lock_held = false;
    fake.inner().flags = before;
    assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
    assert_eq!(offline(&backend, 31).slices_done, 1);
}

#[test]
fn a_guard_wakes_slices_as_soon_as_another_request_has_ended() {
    let fake = FakeMachine::new();
    let backend = fake.backend();
    assert_eq!(offline(&backend, 31).slices_done, 1);
    let mut guard = HotplugGuard::new(&backend, Some(Bytes(u64::MAX))).unwrap();
    fake.inner().lock_held = true;
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(60));
            fake.inner().lock_held = false;
        });
        guard.watch(Duration::from_mins(1)).unwrap().unwrap()
    });
    assert_eq!((seen.outcome.slices_done, fake.inner().offline()), (1, vec![]));
}

#[test]
fn a_guard_goes_on_after_an_error() {
    let (fake, backend) = machine();
    assert_eq!(offline(&backend, 31).slices_done, 1);
    let mut guard = HotplugGuard::new(&backend, Some(Bytes(u64::MAX))).unwrap();
    fake.inner().save_fails = true;
    assert!(guard.watch(Duration::ZERO).is_err());
    fake.inner().save_fails = false;
    assert!(guard.watch(Duration::ZERO).is_ok());
    assert!(fake.inner().offline().is_empty());
}

#[test]
fn slices_are_whole_blocks_and_change_their_size_only_while_none_is_off() {
    let (_, backend) = machine();
    for size in [0, 32 << 20, 96 << 20] {
        assert_eq!(
            backend.set_slice_bytes(Bytes(size)).unwrap_err().kind(),
            BackendErrorKind::Invalid
        );
    }
    offline(&backend, 9);
    assert_eq!(
        backend.set_slice_bytes(Bytes(128 << 20)).unwrap_err().kind(),
        BackendErrorKind::Busy
    );
}

#[test]
fn a_slice_in_two_zones_cannot_go() {
    let (fake, backend) = machine();
    // Slices of 192 MiB do not divide Normal's 24 blocks of 64 MiB; of five blocks, one has both.
    backend.set_slice_bytes(Bytes(5 * (64 << 20))).unwrap();
    assert_eq!(offline(&backend, 4).reason, Reason::ZoneEnd);
    assert_eq!(fake.inner().writes, []);
}

#[test]
fn work_adds_up_over_requests() {
    let (_, backend) = machine();
    backend.request(&Request { max_slices: Some(3), ..Request::default() }).unwrap();
    backend.request(&Request::new(RequestOp::OnlineAll)).unwrap();
    let work = backend.work().unwrap();
    assert_eq!((work.tried_slices, work.emptied_slices, work.woken_slices), (3, 3, 3));
    assert_eq!((work.page_faults, work.allocated_pages), (7, Pages(9)));
    assert!(work.price_predicted > Price::ZERO);
}

#[test]
fn pages_of_a_new_kind_in_the_middle_are_a_run_of_their_own() {
    let (fake, backend) = machine();
    fake.inner().fill(2, 3, ANON, 4);
    let contents = backend.contents(SliceId(2), ContentsDetail::default()).unwrap();
    let runs: Vec<_> =
        contents.runs.iter().map(|run| (run.class, run.pages.0, run.mappings)).collect();
    let free = BLOCK - 100;
    assert_eq!(
        runs,
        [(PageClass::Anonymous, 3, 4), (PageClass::Anonymous, 97, 1), (PageClass::Free, free, 0)]
    );
}
