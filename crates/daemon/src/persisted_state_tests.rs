//! The state file: whole or not at all, and never fatal.

use ramslice_policy::{AnyPolicy, NeverPolicy};
use ramslice_types::{NodeId, RequestOp, RequestOutcome, SliceId, ZoneNumber};

use super::*;

fn memory(time: u64) -> PersistedState {
    let key = ZoneKey { node: NodeId(0), zone: ZoneNumber(2) };
    let left = Some(ZoneBaseline { off: 3, woken_by_demand: 17 });
    PersistedState {
        boot: "b".to_owned(),
        time: Duration::from_secs(time),
        mode: DaemonMode::On,
        basis: "never".to_owned(),
        slice_bytes: Bytes(64 << 20),
        zones: vec![PersistedZone {
            key,
            policy: AnyPolicy::Never(NeverPolicy).save(),
            baseline: left,
            events: vec![
                PolicyEvent::Finished {
                    op: RequestOp::Offline(SliceId(7)),
                    outcome: RequestOutcome::default(),
                    max_slices: Some(2),
                },
                PolicyEvent::Finished {
                    op: RequestOp::OfflineFree,
                    outcome: RequestOutcome::default(),
                    max_slices: Some(2),
                },
            ],
            dropped: Pages(3),
        }],
        wake_pending: None,
        backends: vec!["kernel".to_owned()],
        what_if: WhatIfMemory::default(),
        ledger_kind: Some(LedgerKind {
            profile: "thesis-parc/parc".to_owned(),
            crc32: "01234567".to_owned(),
            granule_bytes: None,
            page_bytes: Bytes(4096),
            stock: false,
            switched: true,
        }),
        earned: EnergyTally {
            off_high_byte_us: u128::from(u64::MAX) * 7,
            steps: 9,
            ..EnergyTally::default()
        },
        would_earn: EnergyTally::default(),
        work: WorkCounters::default(),
        earned_own: Price(11),
        would_earn_own: Price(12),
        earned_windows: Some(13),
        would_earn_windows: Some(14),
        would_wake: 5,
        prices: None,
        pools: vec![ramslice_policy::PoolBook::new(Bytes(1 << 30), None)],
    }
}

#[test]
fn what_was_written_is_read_again_also_numbers_beyond_64_bits() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(read(dir.path()), FoundState::Nothing));
    for time in [1, 2] {
        write(dir.path(), &memory(time)).unwrap();
        let FoundState::Good(found) = read(dir.path()) else { panic!("not good") };
        assert_eq!(*found, memory(time));
    }
}

#[test]
fn a_file_that_was_cut_anywhere_or_has_any_byte_changed_is_not_taken() {
    let text = encode(&memory(1)).into_bytes();
    assert_eq!(decode(&text).unwrap(), memory(1));
    // The last newline is not part of the contents.
    for cut in 0..text.len() - 1 {
        assert!(decode(&text[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..text.len() - 1 {
        let mut changed = text.clone();
        changed[at] ^= 1;
        assert!(decode(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn a_damaged_file_is_set_aside_under_a_name_of_its_own_each_time() {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=3 {
        fs::write(dir.path().join(FILE), "garbage\n").unwrap();
        let FoundState::SetAside { damage: StateDamage::Head, new_path: Some(to) } =
            read(dir.path())
        else {
            panic!("taken")
        };
        assert!(to.ends_with(format!("state.json.damaged-{n}")) && to.exists());
        assert!(matches!(read(dir.path()), FoundState::Nothing));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    // Root may read any file, but no directory.
    fs::create_dir(dir.path().join(FILE)).unwrap();
    let FoundState::SetAside { damage: StateDamage::Unreadable(_), new_path: Some(to) } =
        read(dir.path())
    else {
        panic!("taken")
    };
    assert!(to.ends_with("state.json.unreadable-1") && to.is_dir());
    assert!(matches!(read(dir.path()), FoundState::Nothing));
}

#[test]
fn a_file_from_before_books_told_what_they_are_of_is_taken() {
    let text = encode(&PersistedState { ledger_kind: None, ..memory(1) });
    assert!(!text.contains("books"), "{text}");
    let found = decode(text.as_bytes()).unwrap();
    assert_eq!((found.ledger_kind, found.earned), (None, memory(1).earned));
}

#[test]
fn a_file_from_before_prices_were_watched_is_taken() {
    let text = encode(&memory(1));
    assert!(!text.contains("prices"), "{text}");
    assert_eq!(decode(text.as_bytes()).unwrap().prices, None);
}

#[test]
fn another_version_is_named_rather_than_called_damaged() {
    let text = encode(&memory(1)).replacen("\"version\":1", "\"version\":2", 1);
    let damage = decode(text.as_bytes()).unwrap_err();
    assert!(matches!(damage, StateDamage::Version { found: 2 }), "{damage}");
}

#[test]
fn a_new_file_that_was_not_finished_does_not_harm_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &memory(1)).unwrap();
    // Killed before the rename.
    fs::write(dir.path().join("state.new"), &encode(&memory(2))[..40]).unwrap();
    let FoundState::Good(found) = read(dir.path()) else { panic!("not good") };
    assert_eq!(*found, memory(1));
    write(dir.path(), &memory(3)).unwrap();
    let FoundState::Good(found) = read(dir.path()) else { panic!("not good") };
    assert_eq!(*found, memory(3));
}

#[test]
fn a_directory_that_cannot_be_written_to_is_an_error_and_the_old_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &memory(1)).unwrap();
    // A directory in the way of the new file: root may write anywhere.
    fs::create_dir(dir.path().join("state.new")).unwrap();
    assert!(write(dir.path(), &memory(2)).is_err());
    assert!(matches!(read(dir.path()), FoundState::Good(found) if *found == memory(1)));
}
