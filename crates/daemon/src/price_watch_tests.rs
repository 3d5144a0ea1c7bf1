//! Operations from what a request answers, and what is not taken.

use ramslice_calibrate::thesis;
use ramslice_types::{Backend, Reason, SliceCounters, SliceId};

use super::*;

fn slice(id: u32, state: SliceState, free: u64, mapped: u64) -> Slice {
    let counters =
        SliceCounters { free: Pages(free), anon_mapped: Pages(mapped), ..SliceCounters::default() };
    Slice { state, counters, ..Slice::unread(SliceId(id), Pages(4096)) }
}

/// Two slices, of which one goes off that has 1000 free pages, and 2000 that are mapped.
fn machine() -> (Vec<Slice>, Vec<Slice>) {
    let before =
        vec![slice(3, SliceState::Online, 1000, 2000), slice(4, SliceState::Online, 4096, 0)];
    let after = vec![slice(3, SliceState::Offline, 0, 0), before[1].clone()];
    (before, after)
}

fn truth() -> OperationCounts {
    OperationCounts {
        slices: 1,
        frames: Pages(4096),
        free: Pages(1000),
        dropped: Pages(596),
        moved: Pages(2500),
        mappings: 5000,
        ..OperationCounts::default()
    }
}

/// What the kernel would answer.
fn answer(operations: &OperationCounts, made_room: u64, factor: f64) -> RequestOutcome {
    let price = thesis().price(operations);
    RequestOutcome {
        slices_done: 1,
        price_predicted: Price(price.round() as u64),
        price_measured: Price((price * factor) as u64),
        migrated: operations.moved,
        dropped: operations.dropped + Pages(made_room),
        ..RequestOutcome::default()
    }
}

fn watching() -> PriceWatch {
    let parameters = thesis().parameters().unwrap();
    PriceWatch { saved_prices: None, watch: Ok(WatchedPrices::new(parameters)) }
}

#[test]
fn what_emptying_took_follows_from_the_answer_and_the_slices_before() {
    let (before, after) = machine();
    let slices = offlined(&before, &after);
    assert_eq!(slices.iter().map(|slice| slice.id).collect::<Vec<_>>(), [SliceId(3)]);
    assert_eq!(operations(&answer(&truth(), 0, 1.0), &slices, &thesis()), Some(truth()));
    // What was dropped beyond the slice distinguishes cache that went elsewhere from mappings.
    let elsewhere = OperationCounts { cache_targets: Pages(300), mappings: 2000, ..truth() };
    assert_eq!(operations(&answer(&elsewhere, 400, 1.0), &slices, &thesis()), Some(elsewhere));
    // Pages that were neither moved nor dropped were freed by their owners.
    let given_back = OperationCounts { dropped: Pages(500), ..truth() };
    assert_eq!(operations(&answer(&given_back, 0, 1.0), &slices, &thesis()), Some(given_back));
}

#[test]
fn figures_that_do_not_add_up_are_left_out() {
    let (before, after) = machine();
    let taken = |op, outcome: &RequestOutcome, after: &[Slice]| {
        let mut prices = watching();
        assert_eq!(prices.take(op, outcome, &before, after), prices.status().operations == 1);
        assert_eq!(prices.status().operations as u64 + prices.status().left_out, 1);
        prices.status().operations == 1
    };
    let right = answer(&truth(), 0, 1.2);
    assert!(
        taken(RequestOp::Compact, &right, &after)
            && taken(RequestOp::Offline(SliceId(3)), &right, &after)
    );
    assert!(!taken(RequestOp::Compact, &right, &before), "it is awake again");
    let both = vec![after[0].clone(), slice(4, SliceState::Offline, 0, 0)];
    assert!(!taken(RequestOp::Compact, &right, &both), "another program switched one off");
    // Without a page that moves, nothing explains so high a price.
    let empty = OperationCounts { moved: Pages(0), mappings: 0, ..truth() };
    let dear = RequestOutcome {
        price_predicted: Price(2 * right.price_predicted.0),
        ..answer(&empty, 0, 1.0)
    };
    assert!(!taken(RequestOp::Compact, &dear, &after));
    let cheap =
        RequestOutcome { price_predicted: Price(100), price_measured: Price(100), ..right.clone() };
    assert!(!taken(RequestOp::Compact, &cheap, &after));
    for measured in [0, 1, u64::MAX] {
        let absurd = RequestOutcome { price_measured: Price(measured), ..right.clone() };
        assert!(!taken(RequestOp::Compact, &absurd, &after), "{measured}");
    }
    let free = RequestOutcome { price_predicted: Price(0), ..right };
    assert!(!taken(RequestOp::Compact, &free, &after));
}

#[test]
fn only_requests_that_emptied_all_that_they_tried_tell_what_it_costs() {
    let done = RequestOutcome { slices_done: 2, ..RequestOutcome::default() };
    let can_learn = PriceWatch::can_learn_from;
    for op in [RequestOp::Compact, RequestOp::OfflineFree, RequestOp::Offline(SliceId(1))] {
        assert!(can_learn(op, &done), "{op:?}");
    }
    let within = RequestOutcome { status_errno: 28, reason: Reason::OverBudget, ..done.clone() };
    assert!(can_learn(RequestOp::Compact, &within));
    assert!(
        !can_learn(RequestOp::OnlineAll, &done) && !can_learn(RequestOp::Online(SliceId(1)), &done)
    );
    assert!(!can_learn(RequestOp::Compact, &RequestOutcome::default()));
    assert!(
        !can_learn(RequestOp::Compact, &RequestOutcome { slices_failed: 1, ..done.clone() }),
        "paid for, but not by slice"
    );
    assert!(!can_learn(
        RequestOp::Compact,
        &RequestOutcome { status_errno: 4, reason: Reason::Signal, ..done }
    ));
}

#[test]
fn an_offer_that_cannot_be_written_says_so_and_is_tried_again_later() {
    let (before, after) = machine();
    let mut prices = watching();
    let size = ramslice_types::Bytes(16 << 20);
    let info = ramslice_sim::SimBackend::new(ramslice_sim::SimConfig::new(size * 16, size))
        .unwrap()
        .info()
        .unwrap();
    let run = |prices: &mut PriceWatch, count| {
        for at in 0..count {
            let operations = OperationCounts { mappings: 2500 + 100 * at, ..truth() };
            assert!(prices.take(RequestOp::Compact, &answer(&operations, 0, 1.4), &before, &after));
        }
    };
    run(&mut prices, 12);
    assert_eq!(prices.status().state, "waiting");
    assert!(prices.status().text.contains("it takes 20"), "{}", prices.status().text);
    run(&mut prices, 8);
    assert!(matches!(prices.offer(&info), Some(PriceOffer::Write(_))));
    prices.not_written("the disk is full".to_owned());
    assert!(prices.status().text.contains("the disk is full") && prices.status().install.is_none());
    assert!(prices.offer(&info).is_none());
    run(&mut prices, 20);
    assert!(matches!(prices.offer(&info), Some(PriceOffer::Write(_))));
}

#[test]
fn what_costs_now_this_now_that_is_not_offered_and_the_reason_is_told() {
    let (before, after) = machine();
    let mut prices = watching();
    let size = ramslice_types::Bytes(16 << 20);
    let info = ramslice_sim::SimBackend::new(ramslice_sim::SimConfig::new(size * 16, size))
        .unwrap()
        .info()
        .unwrap();
    for at in 0..24 {
        let operations = OperationCounts { mappings: 2500 + 100 * at, ..truth() };
        let factor = [1.5, 20.0, 4.0, 100.0][at as usize / 2 % 4];
        assert!(prices.take(RequestOp::Compact, &answer(&operations, 0, factor), &before, &after));
    }
    assert!(matches!(prices.offer(&info), Some(PriceOffer::Remove)), "what an earlier run left");
    let status = prices.status();
    assert_eq!((status.state, status.install, status.refitted), ("refit", None, None));
    assert!(status.text.contains("nothing is offered: half of the operations"), "{}", status.text);
    assert!(prices.offer(&info).is_none());
}
