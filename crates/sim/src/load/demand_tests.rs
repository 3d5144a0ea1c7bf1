//! What a recorded load asks for: growth, release, use and what was dropped.

use super::*;

fn moment(anonymous: u64, cache: u64) -> RecordedMoment {
    RecordedMoment { pages: [100, anonymous, 0, cache, 0], ..RecordedMoment::default() }
}

fn demand(order: ReleaseOrder) -> ProgramDemand {
    ProgramDemand::new(moment(0, 1000), [order; KINDS.len()], 10, 1000)
}

/// Levels that are set, without those that have no owner.
fn levels(changes: &[MemoryChange]) -> Vec<(u32, u64)> {
    let level = |change: &MemoryChange| match change {
        MemoryChange::Level { owner, pages, .. } => Some((owner.0, *pages)),
        _ => None,
    };
    changes.iter().filter_map(level).collect()
}

#[test]
fn who_ends_gives_back_what_it_took() {
    let mut demand = demand(ReleaseOrder::Matching);
    assert_eq!(levels(&demand.step(moment(2500, 1000))), [(100, 1000), (101, 1000), (102, 500)]);
    assert_eq!(levels(&demand.step(moment(2900, 1000))), [(103, 400)]);
    // 2500 pages go: those that came at once, not the newest ones.
    assert_eq!(levels(&demand.step(moment(400, 1000))), [(102, 0), (101, 0), (100, 0)]);
    assert_eq!(levels(&demand.step(moment(100, 1000))), [(103, 100)]);
}

#[test]
fn the_newest_the_oldest_or_a_part_of_each_goes_first() {
    for (order, expected) in [
        (ReleaseOrder::Newest, vec![(101, 50)]),
        (ReleaseOrder::Oldest, vec![(1, 0), (100, 0), (101, 150)]),
        (ReleaseOrder::Any, vec![(1, 0), (100, 50), (101, 100)]),
    ] {
        let mut demand = demand(order);
        demand.step(moment(100, 1000));
        demand.step(moment(300, 1000));
        assert_eq!(levels(&demand.step(moment(150, 1000))), expected, "{order:?}");
    }
}

#[test]
fn cache_that_was_dropped_is_wanted_all_the_same() {
    let mut demand = demand(ReleaseOrder::Newest);
    let now = RecordedMoment { dropped: 400, ..moment(0, 600) };
    assert_eq!(levels(&demand.step(now)), []);
    // Half of what was dropped comes back, and the kernel notices.
    let now = RecordedMoment { dropped: 400, refaulted: 200, ..moment(0, 800) };
    let changes = demand.step(now);
    assert_eq!(levels(&changes), []);
    assert_eq!(changes, [MemoryChange::Read { owner: OwnerId(3), pages: 500 }]);
}

#[test]
fn with_statistics_what_was_deleted_is_known_apart_from_what_is_new() {
    let mut demand = demand(ReleaseOrder::Oldest);
    let mut first = RecordedMoment { moved: Some((0, 0)), ..moment(0, 1000) };
    demand.step(first);
    // 300 pages were written, and yet there are no more: as many were deleted.
    first.moved = Some((0, 300));
    assert_eq!(levels(&demand.step(first)), [(3, 700), (100, 300)]);
}

#[test]
fn what_woke_slices_and_is_free_again_was_wanted_for_a_moment() {
    let mut demand = demand(ReleaseOrder::Newest);
    let now = RecordedMoment { woken: 2, spare: 700, ..moment(0, 1000) };
    assert_eq!(levels(&demand.step(now)), [(99, 700), (99, 0)]);
    // Without a wake it is unknown: as much as the last time, or as there was room for.
    assert_eq!(levels(&demand.step(RecordedMoment { spare: 900, ..now })), [(99, 700), (99, 0)]);
    assert_eq!(levels(&demand.step(RecordedMoment { spare: 300, ..now })), [(99, 300), (99, 0)]);
}

#[test]
fn of_deleted_files_what_was_dropped_before_is_not_wanted_any_more() {
    let last = |stored| {
        let mut demand = demand(ReleaseOrder::Oldest);
        let first = RecordedMoment { moved: Some((0, 0)), stored, ..moment(0, 1000) };
        demand.step(first);
        demand.step(RecordedMoment {
            dropped: 400,
            ..RecordedMoment { moved: Some((0, 0)), stored, ..moment(0, 600) }
        });
        // A file of 500 pages goes, of which 100 were still in the cache.
        let stored = stored.map(|stored| stored - 500);
        let after =
            RecordedMoment { dropped: 400, moved: Some((0, 100)), stored, ..moment(0, 600) };
        let left = levels(&demand.step(after)).into_iter().find(|(owner, _)| *owner == 3);
        left.map(|(_, pages)| pages)
    };
    // The file systems say how much: all that had been dropped, and 100 of the rest for what
    // was written.
    assert_eq!(last(Some(5000)), Some(500));
    // It is not recorded: of the dropped cache, the same share as of the cache that was not
    // dropped.
    assert_eq!(last(None), Some(834));
}

#[test]
fn what_is_used_is_of_files_that_came_at_once_and_is_read_on_when_it_is_used_often() {
    let mut demand = demand(ReleaseOrder::Any);
    let at = |cache, written, uses, activated| RecordedMoment {
        moved: Some((0, written)),
        active: Some((activated, cache - activated)),
        uses: Some(uses),
        activated,
        ..moment(0, cache)
    };
    demand.step(at(1000, 0, (0, 0), 0));
    demand.step(at(1900, 900, (0, 0), 0));
    let reads = |changes: Vec<MemoryChange>| -> Vec<(u32, u64)> {
        let read = |change: MemoryChange| match change {
            MemoryChange::Read { owner, pages } => Some((owner.0, pages)),
            _ => None,
        };
        changes.into_iter().filter_map(read).collect()
    };
    assert_eq!(reads(demand.step(at(1900, 900, (900, 0), 0))), [(100, 900)]);
    assert_eq!(reads(demand.step(at(1900, 900, (0, 0), 900))), [(100, 900)]);
    assert_eq!(reads(demand.step(at(1900, 900, (0, 900), 900))), [(100, 900)]);
    // No more of it can be seen; it goes on.
    assert_eq!(reads(demand.step(at(1900, 900, (0, 900), 900))), [(100, 900)]);
}
