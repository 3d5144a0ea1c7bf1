//! The ledger counts what was off for sure, and what may have been.

use proptest::prelude::*;
use ramslice_types::{Pages, Ratio};

use super::*;
use SliceState::{Emptying, Offline, Online, Waking};

const MIB: u64 = 1 << 20;

fn sample(second: u64, event_seq: u64, states: &[SliceState]) -> EnergySample {
    EnergySample {
        time: Duration::from_secs(second),
        event_seq,
        slice_bytes: Bytes(MIB),
        segments: Vec::new(),
        ways: 1,
        states: (0..).map(SliceId).zip(states.iter().copied()).collect(),
        resting: Bytes::ZERO,
        accessed: None,
        work: WorkCounters::default(),
    }
}

/// A machine whose slices are all offline; another program took the second one offline.
fn snapshot() -> SliceSnapshot {
    let slice =
        |id: u32| Slice { state: Offline, held: id == 1, ..Slice::unread(SliceId(id), Pages(256)) };
    SliceSnapshot { event_seq: 0, time: Duration::ZERO, slices: (0..3).map(slice).collect() }
}

fn info(abi_version: u32) -> BackendInfo {
    BackendInfo {
        abi_version,
        page_bytes: Bytes(4096),
        pageblock_bytes: Bytes(MIB),
        slice_bytes: Bytes(MIB),
        interleave: None,
        segments: Vec::new(),
        chunk_bytes: Bytes(MIB),
        nr_slices: 3,
        nr_zones: 1,
        event_seq: 0,
        managed_pages: Pages(512),
        free_pages: Pages(0),
        offline_pages: Pages(512),
        quarantined_pages: Pages(0),
        held_pages: Pages(256),
        resting_bytes: Bytes(0),
        power_driver: "none".to_owned(),
        clock_khz: None,
    }
}

#[test]
fn what_another_program_took_offline_on_a_stock_kernel_saves_nothing() {
    let off = |sample: EnergySample| sample.off_bytes(None) / MIB;
    assert_eq!(off(EnergySample::new(&snapshot(), &info(0), WorkCounters::default())), 2);
    // On a patched kernel a request holds it: it is off, though a daemon did not earn that.
    assert_eq!(off(EnergySample::new(&snapshot(), &info(1), WorkCounters::default())), 3);
    assert_eq!(off(EnergySample::without_held(&snapshot(), &info(1), WorkCounters::default())), 2);
    let later = |second| SliceSnapshot { time: Duration::from_secs(second), ..snapshot() };
    let samples =
        [0, 10].map(|second| EnergySample::new(&later(second), &info(0), WorkCounters::default()));
    assert_eq!(mib_seconds(&kept(1, &samples)), (20, 20));
}

fn mib_seconds(tally: &EnergyTally) -> (u128, u128) {
    let unit = u128::from(MIB) * 1_000_000;
    (tally.off_low_byte_us / unit, tally.off_high_byte_us / unit)
}

fn kept(granule_mib: u64, samples: &[EnergySample]) -> EnergyTally {
    let mut ledger = EnergyLedger::new(Some(Bytes(granule_mib * MIB)));
    for sample in samples {
        ledger.add(sample.clone()).unwrap();
    }
    *ledger.tally()
}

#[test]
fn a_slice_counts_surely_where_both_samples_have_it_off() {
    let tally = kept(
        1,
        &[sample(0, 4, &[Offline, Offline, Online]), sample(10, 8, &[Offline, Online, Offline])],
    );
    assert_eq!(mib_seconds(&tally), (10, 30));
    assert_eq!((tally.entered_low_bytes, tally.entered_high_bytes), (MIB, MIB));
}

#[test]
fn slices_count_only_in_whole_aligned_units_of_the_hardware() {
    let off = [Online, Offline, Offline, Online, Offline, Offline];
    let tally = kept(2, &[sample(0, 0, &off), sample(10, 0, &off)]);
    assert_eq!(mib_seconds(&tally), (20, 20), "slices 1 and 2 lie in two units, 4 and 5 in one");
    let tally = kept(4, &[sample(0, 0, &off), sample(10, 0, &off)]);
    assert_eq!(mib_seconds(&tally), (0, 0));
}

#[test]
fn of_interleaved_slices_a_unit_has_those_of_one_way() {
    let of_ways = |ways, granule, off: [SliceState; 8]| {
        let at = |second| EnergySample { ways, ..sample(second, 0, &off) };
        mib_seconds(&kept(granule, &[at(0), at(10)])).0
    };
    let neighbours = [Offline, Offline, Online, Online, Online, Online, Online, Online];
    let one_way = [Offline, Online, Offline, Online, Online, Online, Online, Online];
    let unaligned = [Online, Online, Offline, Online, Offline, Online, Online, Online];
    assert_eq!([neighbours, one_way, unaligned].map(|off| of_ways(1, 2, off)), [20, 0, 0]);
    assert_eq!([neighbours, one_way, unaligned].map(|off| of_ways(2, 2, off)), [0, 20, 0]);
    // The last of one way and the first of the next are no neighbours.
    let ends = [Online, Offline, Online, Online, Online, Online, Offline, Online];
    assert_eq!(of_ways(2, 2, ends), 0);
    for ways in [1, 2, 4] {
        assert_eq!(of_ways(ways, 1, unaligned), 20, "a unit of a slice");
        assert_eq!(of_ways(ways, 3, [Offline; 8]), u128::from(8 / ways / 3 * 3 * ways * 10));
    }
}

#[test]
fn an_unknown_unit_makes_everything_and_nothing_possible() {
    let mut ledger = EnergyLedger::new(None);
    ledger.add(sample(0, 0, &[Offline; 3])).unwrap();
    ledger.add(sample(10, 0, &[Offline; 3])).unwrap();
    assert_eq!(mib_seconds(ledger.tally()), (0, 30));
}

#[test]
fn unseen_changes_widen_the_figure() {
    let off = [Offline, Offline, Offline, Online, Online];
    // Four changes: one slice woke and went off again, perhaps.
    let tally = kept(1, &[sample(0, 10, &off), sample(10, 14, &off)]);
    assert_eq!(mib_seconds(&tally), (10, 50));
    // Two changes that are seen widen nothing further.
    let seen = [Offline, Offline, Offline, Offline, Online];
    let tally = kept(1, &[sample(0, 10, &off), sample(10, 12, &seen)]);
    assert_eq!(mib_seconds(&tally), (30, 40));
}

#[test]
fn a_slice_on_its_way_saves_nothing() {
    let tally = kept(1, &[sample(0, 0, &[Emptying, Waking]), sample(10, 0, &[Emptying, Waking])]);
    assert_eq!(mib_seconds(&tally), (0, 0));
}

#[test]
fn samples_out_of_order_or_of_another_boot_are_refused_and_change_nothing() {
    let mut ledger = EnergyLedger::new(None);
    ledger.add(sample(10, 5, &[Online])).unwrap();
    let before = *ledger.tally();
    assert!(matches!(ledger.add(sample(9, 5, &[Online])), Err(LedgerError::TimeWentBack { .. })));
    assert!(matches!(
        ledger.add(sample(11, 4, &[Online])),
        Err(LedgerError::EventsWentBack { .. })
    ));
    assert_eq!((*ledger.tally(), ledger.last().unwrap().event_seq), (before, 5));
}

#[test]
fn counters_that_were_set_back_are_noticed() {
    let with = |second, migrated| EnergySample {
        work: WorkCounters { migrated_pages: Pages(migrated), ..WorkCounters::default() },
        ..sample(second, 0, &[Online])
    };
    let tally = kept(1, &[with(0, 100), with(1, 150), with(2, 10), with(3, 15)]);
    assert_eq!((tally.work.migrated_pages, tally.resets), (Pages(55), 1));
}

/// What really happened: states at each second, one change at a time where they differ.
fn history() -> impl Strategy<Value = Vec<Vec<SliceState>>> {
    let step = (0usize..4, any::<bool>());
    (prop::collection::vec(step, 1..40), prop::collection::vec(0usize..4, 4)).prop_map(
        |(steps, first)| {
            let cycle = [Online, Emptying, Offline, Waking];
            let mut places: Vec<usize> = first;
            let mut states = vec![places.iter().map(|place| cycle[*place]).collect::<Vec<_>>()];
            for (slice, moves) in steps {
                if moves {
                    places[slice] = (places[slice] + 1) % 4;
                }
                states.push(places.iter().map(|place| cycle[*place]).collect());
            }
            states
        },
    )
}

proptest! {
    /// A ledger that sees only some of the moments holds what one that sees all of them counts.
    #[test]
    fn what_was_really_off_lies_in_the_figure(states in history(),
        seen in prop::collection::vec(any::<bool>(), 41), unit in 1u64..3) {
        let mut seq = 0;
        let samples: Vec<EnergySample> = states
            .iter()
            .enumerate()
            .map(|(second, now)| {
                seq += u64::from(second > 0 && states[second - 1] != *now);
                sample(second as u64, seq, now)
            })
            .collect();
        // Each state lasts from its sample to the next.
        let truth: u128 = samples[..samples.len() - 1]
            .iter()
            .map(|sample| u128::from(sample.off_bytes(Some(Bytes(unit * MIB)))) * 1_000_000)
            .sum();
        let last = samples.len() - 1;
        let some: Vec<EnergySample> = samples
            .iter()
            .enumerate()
            .filter(|(at, _)| *at == 0 || *at == last || seen[*at])
            .map(|(_, sample)| sample.clone())
            .collect();
        let tally = kept(unit, &some);
        prop_assert!(tally.off_low_byte_us <= truth && truth <= tally.off_high_byte_us,
            "{} <= {} <= {}", tally.off_low_byte_us, truth, tally.off_high_byte_us);
    }

    /// Sums of parts are the sum of the whole.
    #[test]
    fn it_makes_no_difference_where_a_ledger_is_cut(states in history(),
        cut in any::<prop::sample::Index>()) {
        let samples: Vec<EnergySample> = states
            .iter()
            .enumerate()
            .map(|(second, now)| sample(second as u64, 4 * second as u64, now))
            .collect();
        let at = cut.index(samples.len());
        let (one, other) = (kept(1, &samples[..=at]), kept(1, &samples[at..]));
        prop_assert_eq!(one + other, kept(1, &samples));
    }
}

#[test]
fn what_may_rest_counts_at_the_most_that_was_seen() {
    let rests =
        |second, mib| EnergySample { resting: Bytes(mib * MIB), ..sample(second, 0, &[Online]) };
    let tally = kept(1, &[rests(0, 2), rests(10, 3), rests(20, 0), rests(30, 0)]);
    assert_eq!(tally.resting_high_byte_us / (u128::from(MIB) * 1_000_000), 30 + 30);
}

#[test]
fn what_was_accessed_counts_at_the_least_that_was_seen() {
    let rests = |second, mib, share: Option<f64>| {
        let sample = EnergySample { resting: Bytes(mib * MIB), ..sample(second, 0, &[Online]) };
        sample.with_unaccessed(share.map(Ratio))
    };
    let samples = [
        rests(0, 8, None),
        rests(10, 8, Some(0.75)),
        rests(20, 4, Some(0.0)),
        rests(30, 4, Some(2.0)),
    ];
    let mib_s = |byte_us: u128| byte_us / (u128::from(MIB) * 1_000_000);
    let tally = kept(1, &samples);
    assert_eq!(mib_s(tally.resting_high_byte_us), 80 + 80 + 40);
    assert_eq!(mib_s(tally.sampled_byte_us), 80 + 40);
    assert_eq!(mib_s(tally.accessed_low_byte_us), 2 * 10);
}
