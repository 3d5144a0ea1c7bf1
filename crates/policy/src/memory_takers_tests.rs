//! Who gets emptied memory: a table of cases, and that what is in use is never taken.

use proptest::prelude::*;

use super::*;

const GIB: Bytes = Bytes(1 << 30);
const SETTLE: Duration = Duration::from_mins(10);

fn config(sleep: f64, huge: f64, count: u64) -> TakersConfig {
    TakersConfig {
        values: TakerValues { sleep, host: 140.0, huge, buffers: 1000.0 },
        huge: Some(HugePageWish { page: GIB, node: None, count }),
        settle: SETTLE,
    }
}

fn pool(size: u64, in_use: u64) -> HugePagePool {
    HugePagePool { page: GIB, total: size, free: size - in_use, reserved: 0, surplus: 0 }
}

fn seen(seconds: u64, pool: HugePagePool) -> TakersObservation {
    TakersObservation {
        time: Duration::from_secs(seconds),
        pool,
        offline: OfflineTaker::Sleep,
        is_short: false,
        is_paused: false,
        refused_buffers: 0,
    }
}

/// A book of a pool of which so many pages were made, long ago.
fn book(size: u64, made: u64) -> PoolBook {
    PoolBook { made, size: Some(size), ..PoolBook::new(GIB, None) }
}

#[test]
fn the_dearest_taker_wins() {
    use PoolAction::{GiveBack, Keep, Make};
    let calm = seen(10_000, pool(2, 0));
    let short = TakersObservation { is_short: true, ..calm };
    let paused = TakersObservation { is_paused: true, ..calm };
    let refused = TakersObservation { refused_buffers: 1, ..calm };
    let host = TakersObservation { offline: OfflineTaker::Host, ..calm };
    let no_driver = TakersObservation { offline: OfflineTaker::Nothing, ..calm };
    let used = seen(10_000, pool(2, 2));
    let promised = seen(10_000, HugePagePool { reserved: 1, ..pool(2, 0) });
    let lent = seen(10_000, HugePagePool { total: 3, free: 1, surplus: 1, ..pool(2, 0) });
    let (huge, sleep) = (config(1.0, 10.0, 4), config(20.0, 10.0, 4));
    let buffers_cheap =
        TakersConfig { values: TakerValues { buffers: 5.0, ..huge.values }, ..huge.clone() };
    for (what, config, made, seen, action) in [
        ("huge is dearer than sleep", &huge, 0, calm, Make(2)),
        ("and is kept", &config(1.0, 10.0, 2), 2, calm, Keep),
        ("sleep is dearer: what was made goes", &sleep, 2, calm, GiveBack(2)),
        ("and the administrator's stay", &sleep, 1, calm, GiveBack(1)),
        ("all of them", &sleep, 0, calm, Keep),
        ("what is in use stays", &sleep, 2, used, Keep),
        ("and what a program was promised", &sleep, 2, promised, GiveBack(1)),
        ("what is lent is not counted twice", &sleep, 2, lent, Keep),
        ("nothing is made while pages are lent", &huge, 2, lent, Keep),
        ("by a tenth or nothing changes", &config(10.0, 10.5, 4), 0, calm, Keep),
        ("either way", &config(10.5, 10.0, 2), 2, calm, Keep),
        ("the host is dearer than sleep", &huge, 2, host, GiveBack(2)),
        ("without a driver nothing is gained", &config(20.0, 1.0, 4), 2, no_driver, Make(2)),
        ("tasks wait: half of it goes", &huge, 2, short, GiveBack(1)),
        ("and none is made a moment later", &huge, 2, paused, Keep),
        ("nor while they wait, if none can go", &huge, 0, short, Keep),
        ("a buffer was refused", &huge, 2, refused, GiveBack(1)),
        ("one that is worth less", &buffers_cheap, 2, refused, Make(2)),
        ("a buffer takes none of the administrator's", &huge, 0, refused, Make(2)),
        ("fewer are wanted now", &config(1.0, 10.0, 1), 2, calm, GiveBack(1)),
        ("none is wanted now", &TakersConfig { huge: None, ..huge.clone() }, 2, calm, GiveBack(2)),
    ] {
        assert_eq!(book(2, made).decide(config, &seen).action, action, "{what}");
    }
}

#[test]
fn a_size_that_another_program_gave_the_pool_is_the_administrators() {
    let mut book = book(2, 2);
    let decision = book.decide(&config(20.0, 10.0, 4), &seen(10_000, pool(3, 0)));
    assert_eq!((decision.action, book.made()), (PoolAction::Keep, 0));
}

#[test]
fn after_a_page_was_given_back_none_is_made_for_the_settling_time() {
    let config = config(1.0, 10.0, 2);
    let mut book = book(2, 2);
    let refused = TakersObservation { refused_buffers: 1, ..seen(10_000, pool(2, 0)) };
    let action = book.decide(&config, &refused).action;
    book.finished(action, &pool(1, 0), false, refused.time, SETTLE);
    assert_eq!(book.made(), 1);
    for time in [10_001, 10_300, 10_599] {
        let decision = book.decide(&config, &seen(time, pool(1, 0)));
        assert_eq!(decision.action, PoolAction::Keep, "{time}");
        assert!(decision.why.to_string().contains("settles for another"), "{}", decision.why);
    }
    let again = book.decide(&config, &seen(10_600, pool(1, 0)));
    assert_eq!(again.action, PoolAction::Make(1));
}

#[test]
fn a_page_that_was_made_stays_for_the_settling_time_though_sleep_is_dearer() {
    let mut book = book(0, 0);
    let made = book.decide(&config(1.0, 10.0, 2), &seen(10_000, pool(0, 0))).action;
    book.finished(made, &pool(2, 0), false, Duration::from_secs(10_000), SETTLE);
    let sleep = config(20.0, 10.0, 2);
    assert_eq!(book.decide(&sleep, &seen(10_599, pool(2, 0))).action, PoolAction::Keep);
    assert_eq!(book.decide(&sleep, &seen(10_600, pool(2, 0))).action, PoolAction::GiveBack(2));
}

#[test]
fn what_cannot_be_made_is_tried_less_and_less_often() {
    let (config, mut book) = (config(1.0, 10.0, 1), book(0, 0));
    let (mut tries, mut day) = (Vec::new(), 0);
    while day < 86_400 {
        let look = seen(day, pool(0, 0));
        let action = book.decide(&config, &look).action;
        if action != PoolAction::Keep {
            tries.push(day);
            book.finished(action, &look.pool, true, look.time, SETTLE);
        }
        day += 30;
    }
    assert_eq!(tries[..5], [0, 600, 1800, 4200, 9000]);
    assert!(tries.len() < 10, "{tries:?}");
    // Other settings are tried at once
    book.retry();
    assert_eq!(book.decide(&config, &seen(day, pool(0, 0))).action, PoolAction::Make(1));
}

/// What may happen between two looks.
#[derive(Debug, Clone)]
enum Happens {
    Use(u64),
    Release(u64),
    Promise(u64),
    Administrator(u64),
    Short,
    Refused,
    Values(f64, f64, u64),
    Nothing,
}

#[test]
fn a_wish_for_another_node_is_none_for_this_one() {
    let mut config = config(1.0, 10.0, 4);
    let calm = seen(10_000, pool(2, 0));
    config.huge = Some(HugePageWish { node: Some(NodeId(1)), ..config.huge.unwrap() });
    // What was made for the whole pool is no longer wanted there
    assert_eq!(book(2, 2).decide(&config, &calm).action, PoolAction::GiveBack(2));
    let mut other = PoolBook::new(GIB, Some(NodeId(0)));
    assert_eq!(other.decide(&config, &calm).action, PoolAction::Keep);
    let mut there = PoolBook::new(GIB, Some(NodeId(1)));
    assert_eq!(there.decide(&config, &calm).action, PoolAction::Make(2));
}

#[test]
fn a_book_that_was_saved_without_a_node_is_of_the_whole_pool() {
    let text = serde_json::to_string(&book(3, 1)).unwrap();
    assert!(!text.contains("node"), "{text}");
    assert_eq!(serde_json::from_str::<PoolBook>(&text).unwrap(), book(3, 1));
    let on_node = PoolBook { node: Some(NodeId(1)), ..book(3, 1) };
    let text = serde_json::to_string(&on_node).unwrap();
    assert_eq!(serde_json::from_str::<PoolBook>(&text).unwrap(), on_node);
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0..4u64).prop_map(Happens::Use),
        (0..4u64).prop_map(Happens::Release),
        (0..3u64).prop_map(Happens::Promise),
        (0..6u64).prop_map(Happens::Administrator),
        Just(Happens::Short),
        Just(Happens::Refused),
        (0.0..30.0, 0.0..30.0, 0..8u64)
            .prop_map(|(sleep, huge, count)| Happens::Values(sleep, huge, count)),
        Just(Happens::Nothing),
    ]
}

proptest! {
    #[test]
    fn what_is_in_use_or_the_administrators_is_never_taken_and_nothing_flaps(
        events in prop::collection::vec((happens(), 1..400u64, 0..5u64), 1..80)
    ) {
        let mut config = config(1.0, 10.0, 3);
        let mut book = PoolBook::new(GIB, None);
        let (mut size, mut used, mut promised, mut administrators) = (0u64, 0u64, 0u64, 0u64);
        let (mut time, mut given_back_at, mut made_at) = (0, None, None);
        for (event, seconds, room) in events {
            time += seconds;
            let (mut short, mut refused) = (false, 0);
            match event {
                Happens::Use(n) => used = (used + n).min(size),
                Happens::Release(n) => used = used.saturating_sub(n),
                Happens::Promise(n) => promised = n,
                // As the kernel does: no fewer than are in use
                Happens::Administrator(n) if n != size && n >= used => {
                    size = n;
                    administrators = n;
                }
                Happens::Short => short = true,
                Happens::Refused => refused = 1,
                Happens::Values(sleep, huge, count) => {
                    config.values = TakerValues { sleep, huge, ..config.values };
                    config.huge = Some(HugePageWish { page: GIB, node: None, count });
                }
                Happens::Administrator(_) | Happens::Nothing => {}
            }
            promised = promised.min(size - used);
            let state = |size| HugePagePool { reserved: promised, ..pool(size, used) };
            let look = TakersObservation {
                is_short: short,
                refused_buffers: refused,
                ..seen(time, state(size))
            };
            let decision = book.decide(&config, &look);
            let mut after = size;
            match decision.action {
                PoolAction::Keep => {}
                PoolAction::Make(pages) => {
                    prop_assert!(pages > 0);
                    prop_assert!(size + pages <= config.huge.unwrap().count);
                    prop_assert!(!short);
                    if let Some(at) = given_back_at {
                        prop_assert!(time - at >= SETTLE.as_secs(), "made {time}, given {at}");
                    }
                    after = size + pages.min(room);
                    made_at = if after > size { Some(time) } else { made_at };
                }
                PoolAction::GiveBack(pages) => {
                    prop_assert!(pages > 0);
                    prop_assert!(used + promised + pages <= size, "{pages} of {look:?}");
                    prop_assert!(size - pages >= administrators, "{pages} of {administrators}");
                    if let (TakerReason::OfflineIsDearer(_), Some(at)) = (decision.why, made_at) {
                        prop_assert!(time - at >= SETTLE.as_secs(), "gone {time}, made {at}");
                    }
                    after = size - pages;
                    given_back_at = Some(time);
                }
            }
            let is_refused = matches!(decision.action, PoolAction::Make(pages) if pages > room);
            book.finished(decision.action, &state(after), is_refused, look.time, SETTLE);
            size = after;
            prop_assert_eq!(size - book.made(), administrators);
        }
    }
}
