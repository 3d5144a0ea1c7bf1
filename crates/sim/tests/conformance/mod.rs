//! What every [`Backend`] must do, whatever is behind it: one check per clause.
//!
//! A check gets a backend, may switch slices, and wakes everything at its end. On a running kernel other programs
//! allocate meanwhile: where a figure may move by itself, `quiet` tells whether it may not.

use std::time::Duration;

use ramslice_types::{
    Backend, Budget, Detail, ErrorKind, Machine, NodeId, Op, Pages, Price, PriceParameter, Reason, Request,
    Slice, SliceId, SliceState,
};

/// A backend under test.
pub(crate) struct Subject<'a> {
    /// The backend.
    pub(crate) backend: &'a dyn Backend,
    /// Nothing but the test changes it.
    pub(crate) quiet: bool,
}

/// All checks, by name.
pub(crate) const CHECKS: &[(&str, fn(&Subject<'_>))] = &[
    ("sums_agree", sums_agree),
    ("a_slice_goes_off_and_comes_back", a_slice_goes_off_and_comes_back),
    ("a_wrong_state_is_refused_not_failed", a_wrong_state_is_refused_not_failed),
    ("an_unknown_slice_is_not_found", an_unknown_slice_is_not_found),
    ("a_dry_run_changes_nothing", a_dry_run_changes_nothing),
    ("budgets_hold", budgets_hold),
    ("at_most_so_many_slices", at_most_so_many_slices),
    ("compaction_keeps_the_reserve_and_what_is_in_use", compaction_keeps_the_reserve_and_what_is_in_use),
    ("an_unknown_node_has_no_slices", an_unknown_node_has_no_slices),
    ("waiting_ends_with_the_time_or_a_change", waiting_ends_with_the_time_or_a_change),
    ("contents_are_complete", contents_are_complete),
    ("work_only_grows", work_only_grows),
    ("price_parameters_are_kept", price_parameters_are_kept),
];

/// Runs all checks.
pub(crate) fn run(subject: &Subject<'_>) {
    for (name, check) in CHECKS {
        println!("  {name}");
        check(subject);
        subject.backend.request(&Request::new(Op::OnlineAll)).unwrap();
    }
}

impl Subject<'_> {
    fn machine(&self) -> Machine {
        self.backend.machine().unwrap()
    }

    fn slice(&self, id: SliceId) -> Slice {
        let slices = self.backend.snapshot().unwrap().slices;
        slices.into_iter().find(|slice| slice.id == id).unwrap()
    }

    fn offline(&self) -> usize {
        let slices = self.backend.snapshot().unwrap().slices;
        slices.iter().filter(|slice| slice.state == SliceState::Offline).count()
    }

    /// An empty slice whose zone can spare it.
    fn empty_slice(&self) -> Slice {
        let machine = self.machine();
        let spare = |slice: &&Slice| {
            let zone = machine.zone_of(slice).unwrap();
            slice.is_empty() && zone.free_pages > zone.awake_reserve_pages + slice.present * 2
        };
        machine
            .snapshot
            .slices
            .iter()
            .rev()
            .find(spare)
            .expect("the machine has empty slices to spare")
            .clone()
    }

    /// On a machine that others use, figures may differ by this much.
    fn slack(&self) -> u64 {
        if self.quiet { 0 } else { self.machine().info.managed_pages.0 / 20 }
    }
}

fn sums_agree(subject: &Subject<'_>) {
    let machine = subject.machine();
    let (info, slices) = (&machine.info, &machine.snapshot.slices);
    assert_eq!(info.nr_slices as usize, slices.len());
    assert_eq!(info.nr_zones as usize, machine.zones.len());
    assert!(slices.windows(2).all(|pair| pair[0].id < pair[1].id), "slices are in order of their ids");
    for zone in &machine.zones {
        let own: Vec<_> =
            slices.iter().filter(|slice| (slice.node, slice.zone) == (zone.node, zone.zone)).collect();
        assert_eq!(own.len(), zone.nr_slices as usize, "slices of zone {}", zone.name);
        if subject.quiet {
            assert_eq!(own.iter().filter(|slice| slice.is_empty()).count(), zone.nr_empty as usize);
            let free: Pages = own.iter().map(|slice| slice.counters.free).sum();
            assert_eq!(free, zone.free_pages, "free pages of zone {}", zone.name);
        }
    }
    let managed: Pages = machine.zones.iter().map(|zone| zone.managed_pages).sum();
    assert_eq!(managed, info.managed_pages);
    for slice in slices {
        assert_eq!(slice.composition(info.slice_pages()).total(), info.slice_pages());
        assert!(slice.counters.free <= slice.present);
    }
}

fn a_slice_goes_off_and_comes_back(subject: &Subject<'_>) {
    let slice = subject.empty_slice();
    let before = subject.machine().info;
    let outcome = subject.backend.request(&Request::new(Op::Offline(slice.id))).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!((outcome.slices_done, outcome.last_slice), (1, Some(slice.id)));
    assert_eq!(subject.slice(slice.id).state, SliceState::Offline);
    let off = subject.machine().info;
    assert_eq!(off.offline_pages, before.offline_pages + slice.present);
    assert!(off.event_seq > before.event_seq);
    assert!(off.used_pages().0.abs_diff(before.used_pages().0) <= subject.slack());

    let outcome = subject.backend.request(&Request::new(Op::Online(slice.id))).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(subject.slice(slice.id).state, SliceState::Online);
    let on = subject.machine().info;
    assert_eq!(on.offline_pages, before.offline_pages);
    assert!(on.free_pages.0.abs_diff(before.free_pages.0) <= subject.slack());
    assert!(on.event_seq > off.event_seq);
}

fn a_wrong_state_is_refused_not_failed(subject: &Subject<'_>) {
    let slice = subject.empty_slice();
    let on = subject.backend.request(&Request::new(Op::Online(slice.id))).unwrap();
    assert_eq!((on.slices_failed, on.reason), (1, Reason::State));
    assert!(subject.backend.request(&Request::new(Op::Offline(slice.id))).unwrap().is_ok());
    let twice = subject.backend.request(&Request::new(Op::Offline(slice.id))).unwrap();
    assert_eq!((twice.slices_done, twice.reason), (0, Reason::State));
    assert!(!twice.is_ok());
    let boot = subject.machine().snapshot.slices.into_iter().find(|slice| slice.unreclaimable);
    if let Some(boot) = boot {
        let refused = subject.backend.request(&Request::new(Op::Offline(boot.id))).unwrap();
        assert_eq!((refused.slices_done, refused.reason), (0, boot.reason));
    }
}

fn an_unknown_slice_is_not_found(subject: &Subject<'_>) {
    for op in [Op::Offline(SliceId(u32::MAX)), Op::Online(SliceId(u32::MAX))] {
        let error = subject.backend.request(&Request::new(op)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

fn a_dry_run_changes_nothing(subject: &Subject<'_>) {
    let before = subject.machine();
    for op in [Op::Compact, Op::OfflineFree] {
        let outcome = subject.backend.request(&Request { dry_run: true, ..Request::new(op) }).unwrap();
        assert!(outcome.slices_done > 0, "{op:?} would find something: {outcome:?}");
        assert_eq!((outcome.migrated, outcome.dropped), (Pages(0), Pages(0)));
    }
    assert_eq!(subject.offline(), 0);
    if subject.quiet {
        assert_eq!(subject.machine(), before);
    }
}

fn budgets_hold(subject: &Subject<'_>) {
    let compact = |budget, per_slice| {
        let request = Request { budget: Budget::Limited(budget), per_slice, ..Request::new(Op::Compact) };
        subject.backend.request(&request).unwrap()
    };
    let nothing = compact(Price(0), false);
    assert_eq!((nothing.slices_done, nothing.reason), (0, Reason::OverBudget), "{nothing:?}");
    assert!(nothing.ran_to_its_end());
    let price = subject.empty_slice().price;
    let two = compact(price * 2 + Price(price.0 / 2), false);
    assert!((1..=2).contains(&two.slices_done), "{two:?}");
    assert!(two.price_predicted <= price * 2 + Price(price.0 / 2));
    let each = compact(price, true);
    assert!(each.price_predicted <= price * u64::from(each.slices_done), "{each:?}");
}

fn at_most_so_many_slices(subject: &Subject<'_>) {
    for op in [Op::Compact, Op::OfflineFree] {
        let request = Request { max_slices: Some(2), ..Request::new(op) };
        let outcome = subject.backend.request(&request).unwrap();
        assert_eq!(outcome.slices_done, 2, "{op:?}: {outcome:?}");
        assert_eq!(subject.offline(), 2);
        subject.backend.request(&Request::new(Op::OnlineAll)).unwrap();
    }
}

fn compaction_keeps_the_reserve_and_what_is_in_use(subject: &Subject<'_>) {
    let before = subject.machine();
    let needed = |machine: &Machine| {
        let frames = machine.info.slice_pages();
        let parts = machine.snapshot.slices.iter().map(|slice| slice.composition(frames));
        parts.map(|parts| parts.movable + parts.unmovable).sum::<Pages>()
    };
    let outcome = subject.backend.request(&Request::new(Op::Compact)).unwrap();
    let after = subject.machine();
    assert!(outcome.slices_done > 0, "{outcome:?}");
    assert_eq!(subject.offline(), outcome.slices_done as usize);
    for zone in after.zones.iter().filter(|zone| zone.nr_offline > 0) {
        assert!(zone.free_pages.0 + subject.slack() >= zone.awake_reserve_pages.0, "{zone:?}");
    }
    assert!(needed(&after).0.abs_diff(needed(&before).0) <= subject.slack());
    for slice in &after.snapshot.slices {
        assert!(!(slice.unreclaimable && slice.state == SliceState::Offline), "{slice:?}");
    }
    // Prices change while memory is packed, so a second request may find more; but it comes to an end.
    if subject.quiet {
        let more = || subject.backend.request(&Request::new(Op::Compact)).unwrap().slices_done;
        assert!((0..50).any(|_| more() == 0), "compaction does not come to an end");
    }
    subject.backend.request(&Request::new(Op::OnlineAll)).unwrap();
    assert_eq!(subject.offline(), 0);
    assert_eq!(subject.machine().info.offline_pages, Pages(0));
}

fn an_unknown_node_has_no_slices(subject: &Subject<'_>) {
    let request = Request { node: Some(NodeId(4711)), ..Request::new(Op::Compact) };
    match subject.backend.request(&request) {
        Ok(outcome) => assert_eq!(outcome.slices_done, 0),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid), "{error}"),
    }
    assert_eq!(subject.offline(), 0);
}

fn waiting_ends_with_the_time_or_a_change(subject: &Subject<'_>) {
    if subject.quiet {
        assert_eq!(subject.backend.wait_event(Duration::from_millis(10)).unwrap(), None);
    }
    let slice = subject.empty_slice();
    let seen = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| subject.backend.wait_event(Duration::from_secs(30)).unwrap());
        // Whoever waits may not have begun yet: change states until it has seen one.
        while !waiting.is_finished() {
            subject.backend.request(&Request::new(Op::Offline(slice.id))).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            subject.backend.request(&Request::new(Op::Online(slice.id))).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        waiting.join().unwrap()
    });
    assert!(seen.is_some_and(|seq| seq > 0), "{seen:?}");
}

fn contents_are_complete(subject: &Subject<'_>) {
    let slices = subject.machine().snapshot.slices;
    let frames = subject.backend.info().unwrap().slice_pages();
    let mut told = 0;
    for slice in slices.iter().step_by(slices.len().div_ceil(8)) {
        match subject.backend.contents(slice.id, Detail::default()) {
            Ok(contents) => {
                assert_eq!(contents.slice, slice.id);
                assert_eq!(contents.frames(), frames);
                assert!(contents.runs.windows(2).all(|pair| pair[0].end() == pair[1].pfn), "no gaps");
                told += 1;
            }
            // A saved machine has only the slices that were saved with their pages.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    }
    println!("    {told} slices told");
}

fn work_only_grows(subject: &Subject<'_>) {
    let before = match subject.backend.work() {
        Ok(work) => work,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    };
    let outcome =
        subject.backend.request(&Request { max_slices: Some(3), ..Request::new(Op::Compact) }).unwrap();
    let done = subject.backend.work().unwrap().since(&before).expect("counters only grow");
    assert_eq!(done.emptied_slices, u64::from(outcome.slices_done));
    assert_eq!((done.migrated_pages, done.dropped_pages), (outcome.migrated, outcome.dropped));
    subject.backend.request(&Request::new(Op::OnlineAll)).unwrap();
    let woken = subject.backend.work().unwrap().since(&before).unwrap().woken_slices;
    assert!(woken >= u64::from(outcome.slices_done));
}

fn price_parameters_are_kept(subject: &Subject<'_>) {
    for parameter in PriceParameter::ALL {
        let Ok(before) = subject.backend.price_parameter(parameter) else { continue };
        subject.backend.set_price_parameter(parameter, before + Price(7)).unwrap();
        assert_eq!(subject.backend.price_parameter(parameter).unwrap(), before + Price(7), "{parameter:?}");
        subject.backend.set_price_parameter(parameter, before).unwrap();
    }
}
