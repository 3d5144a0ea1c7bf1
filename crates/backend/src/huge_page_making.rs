//! Ranges of memory that could become a huge page: which slices lie in each, what emptying them
//! costs, and why some cannot be emptied; and how a page is made of one.

use std::ops::Range;

use ramslice_types::{
    Backend, BackendError, BackendInfo, Bytes, CacheChoice, HugePagePool, NodeId, Price, Reason,
    Request, RequestOp, RequestOutcome, Slice, SliceId, SliceState, Zone,
};

use crate::huge_page_place::HugePagePlace;
use crate::whatif::ZoneKey;

/// The zone whose pages can all move.
const MOVABLE: &str = "Movable";

/// A range as long as a page, aligned to it, all of which is memory of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePageRange {
    /// Physical address.
    pub start: Bytes,
    /// The zone that all of it belongs to.
    pub zone: ZoneKey,
    /// Slices in it that are online and have to be emptied; those included that pages of the kernel
    /// kept on when they were last read.
    pub to_empty: Vec<SliceId>,
    /// Expected cost of emptying them.
    pub price: Price,
    /// What keeps a slice of it on, and which.
    pub blocked: Option<(SliceId, Reason)>,
    /// What blocks it stays, whatever becomes of the kernel's pages.
    pub blocked_for_good: bool,
    /// A slice of it failed lately, and is left alone by who does not insist.
    pub failed_lately: bool,
}

/// Every range of `page` bytes in which memory is whole; where slices are larger than that, each
/// part of one.
///
/// None are in a zone Movable for pages that do not fit into one of the allocator's blocks: these
/// cannot move, so the kernel makes none of them there.
pub fn huge_page_ranges(
    info: &BackendInfo,
    zones: &[Zone],
    slices: &[Slice],
    page: Bytes,
) -> Vec<HugePageRange> {
    let in_one_block = page <= info.chunk_bytes;
    let page = page.0;
    let movable: Vec<_> =
        zones.iter().filter(|zone| zone.name == MOVABLE).map(ZoneKey::of).collect();
    let Some(last) = slices.last() else { return Vec::new() };
    let end = info.extents(last.id).end();
    let by_id = |id: SliceId| slices.binary_search_by_key(&id, |slice| slice.id).ok();
    let mut found = Vec::new();
    for start in (0..end / page).map(|n| n * page) {
        let ids: Vec<SliceId> = info.slices_touching(start..start + page).collect();
        let within: Vec<&Slice> =
            ids.iter().filter_map(|&id| by_id(id)).map(|at| &slices[at]).collect();
        let whole = within.len() == ids.len()
            && (info.segments.is_empty() || covered(info, &ids, start..start + page) == page)
            && within.iter().all(|slice| {
                slice.present == slice.frames.unwrap_or(info.slice_pages())
                    && (slice.node, slice.zone) == (within[0].node, within[0].zone)
            });
        if whole && (in_one_block || !movable.contains(&ZoneKey::of_slice(within[0]))) {
            found.push(range(start, &within));
        }
    }
    found
}

/// Bytes of a range that these slices by a table have. Of gaps, nothing is known.
fn covered(info: &BackendInfo, ids: &[SliceId], range: Range<u64>) -> u64 {
    let part = |run: Range<u64>| run.end.min(range.end).saturating_sub(run.start.max(range.start));
    ids.iter().flat_map(|&id| info.extents(id).ranges().map(part).collect::<Vec<_>>()).sum()
}

fn range(start: u64, slices: &[&Slice]) -> HugePageRange {
    let mut range = HugePageRange {
        start: Bytes(start),
        zone: ZoneKey::of_slice(slices[0]),
        to_empty: Vec::new(),
        price: Price(0),
        blocked: None,
        blocked_for_good: false,
        failed_lately: false,
    };
    for slice in slices {
        match slice.state {
            SliceState::Offline if !slice.held => continue,
            SliceState::Online => {}
            _ => {
                range.blocked = Some((slice.id, Reason::State));
                range.blocked_for_good = true;
                continue;
            }
        }
        match slice.finite_price() {
            Some(price) => {
                range.price = Price(range.price.0.saturating_add(price.0));
                range.to_empty.push(slice.id);
            }
            // It may well succeed for who asks for a page
            None if !slice.unreclaimable && !slice.unmovable => {
                range.price = Price(range.price.0.saturating_add(slice.price.0));
                range.to_empty.push(slice.id);
                range.failed_lately = true;
            }
            None => {
                range.blocked = Some((slice.id, slice.reason));
                range.blocked_for_good |= slice.unreclaimable;
                range.to_empty.push(slice.id);
            }
        }
    }
    range
}

/// Those that can be emptied, cheapest first; of equals, the highest address first, as with slices.
pub fn cheapest_first(ranges: &[HugePageRange]) -> Vec<&HugePageRange> {
    let mut free: Vec<_> = ranges.iter().filter(|range| range.blocked.is_none()).collect();
    free.sort_by_key(|range| (range.price, std::cmp::Reverse(range.start)));
    free
}

/// Empties a range and has the kernel make a page of it. What is off and no part of the page wakes
/// again. Returns why it failed, if it did.
///
/// `send` carries out each request. A page larger than the allocator's blocks is looked for among
/// ranges that are off first, on the node of this range. One that is not comes from any free block
/// of `place`.
///
/// # Errors
/// The pool cannot be read or resized; errors of `send`.
pub fn make_huge_page(
    backend: &dyn Backend,
    (page, place): (Bytes, &HugePagePlace),
    range: &HugePageRange,
    cache: CacheChoice,
    interrupted: &dyn Fn() -> bool,
    send: &mut dyn FnMut(&Request) -> Result<RequestOutcome, BackendError>,
) -> Result<Option<String>, BackendError> {
    let in_one_block = page <= backend.info()?.chunk_bytes;
    for (node, pool) in place.pools(backend, page)? {
        // One that is lent beyond the pool's size becomes one of it: nothing has to be emptied
        if (in_one_block || pool.surplus > 0) && add_page(backend, page, node)? {
            return Ok(None);
        }
    }
    let node = place.node_of(range);
    let mut off = Vec::new();
    let emptied = empty(range, cache, interrupted, send, &mut off);
    let added = match &emptied {
        Ok(None) if !in_one_block => add_page(backend, page, node),
        _ => Ok(false),
    };
    // Whatever failed, all wake
    let mut woken = Ok(());
    for id in off {
        // The page may be of it, or demand may have woken it: then it is online
        let result = send(&Request::new(RequestOp::Online(id))).map(drop);
        woken = woken.and(result);
    }
    let refused = emptied?;
    let mut made = added?;
    woken?;
    made = made || (refused.is_none() && in_one_block && add_page(backend, page, node)?);
    Ok(refused.or_else(|| (!made).then(|| "the kernel made no page of it".to_owned())))
}

/// Empties the slices of a range, adds those that are off, and returns why one could not be.
fn empty(
    range: &HugePageRange,
    cache: CacheChoice,
    interrupted: &dyn Fn() -> bool,
    send: &mut dyn FnMut(&Request) -> Result<RequestOutcome, BackendError>,
    off: &mut Vec<SliceId>,
) -> Result<Option<String>, BackendError> {
    for &id in &range.to_empty {
        let outcome = send(&Request { cache, ..Request::new(RequestOp::Offline(id)) })?;
        if outcome.slices_done == 0 {
            return Ok(Some(format!("slice {id}: {}", outcome.reason.code())));
        }
        off.push(id);
        if interrupted() {
            return Ok(Some(Reason::Signal.code()));
        }
    }
    Ok(None)
}

fn size_of_pool(
    backend: &dyn Backend,
    page: Bytes,
    node: Option<NodeId>,
) -> Result<u64, BackendError> {
    let pools = backend.huge_page_pools(node)?;
    Ok(pools.iter().find(|pool| pool.page == page).map_or(0, HugePagePool::size))
}

/// One more page for the pool, or for its part on a node, if there is room for it. What the pool
/// was given counts: what is lent beyond that goes when it is no longer in use.
fn add_page(
    backend: &dyn Backend,
    page: Bytes,
    node: Option<NodeId>,
) -> Result<bool, BackendError> {
    let before = size_of_pool(backend, page, node)?;
    backend.resize_huge_page_pool(page, node, before + 1)?;
    Ok(size_of_pool(backend, page, node)? > before)
}

#[cfg(test)]
mod tests {
    use ramslice_types::{BackendErrorKind, HugePageNode, Pages};

    use super::*;
    use crate::huge_page_test_backend::{NodePool, StayingBackend};

    const MIB: u64 = 1 << 20;

    fn info(slice_mib: u64) -> BackendInfo {
        serde_json::from_value(serde_json::json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 * MIB,
            "slice_bytes": slice_mib * MIB, "chunk_bytes": 4 * MIB, "nr_slices": 8, "nr_zones": 1,
            "event_seq": 0, "managed_pages": 262_144, "free_pages": 65_536,
            "offline_pages": 0, "quarantined_pages": 0, "power_driver": "none",
        }))
        .unwrap()
    }

    fn slice(id: u32, slice_mib: u64, price: u64) -> Slice {
        Slice { price: Price(price), ..Slice::unread(SliceId(id), Pages(slice_mib * 256)) }
    }

    #[test]
    fn a_range_needs_all_of_its_slices() {
        let mut slices: Vec<_> = (0..6).map(|id| slice(id, 64, 10)).collect();
        slices.remove(2);
        let found = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        let starts: Vec<_> = found.iter().map(|range| range.start.0 / MIB).collect();
        assert_eq!(starts, [0, 256]);
        assert_eq!(found[1].to_empty, [SliceId(4), SliceId(5)]);
        assert_eq!(found[1].price, Price(20));
    }

    #[test]
    fn what_is_off_costs_nothing_and_what_is_held_stays() {
        let mut slices: Vec<_> = (0..4).map(|id| slice(id, 64, 10)).collect();
        slices[0].state = SliceState::Offline;
        slices[2] = Slice { state: SliceState::Offline, held: true, ..slices[2].clone() };
        let found = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        assert_eq!((found[0].price, found[0].blocked), (Price(10), None));
        assert_eq!(found[1].blocked, Some((SliceId(2), Reason::State)));
        assert_eq!(cheapest_first(&found).len(), 1);
    }

    #[test]
    fn zone_movable_has_no_range_for_a_page_larger_than_a_block() {
        let zone = |node: i32, name: &str| -> Zone {
            serde_json::from_value(serde_json::json!({
                "index": node, "node": node, "zone": 2, "name": name, "nr_slices": 2,
                "nr_empty": 0, "nr_offline": 0, "nr_quarantined": 0, "managed_pages": 0,
                "free_pages": 0, "offline_pages": 0, "awake_reserve_pages": 0,
                "low_wmark_pages": 0, "woken_by_demand": 0,
            }))
            .unwrap()
        };
        let zones = [zone(0, "Normal"), zone(1, "Movable")];
        let slices = [0_u32, 1, 2, 3].map(|id| Slice {
            node: NodeId(id.cast_signed() / 2),
            zone: zones[0].zone,
            ..slice(id, 64, 10)
        });
        let starts = |mib: u64| -> Vec<_> {
            let found = huge_page_ranges(&info(64), &zones, &slices, Bytes(mib * MIB));
            found.iter().map(|range| range.start.0 / MIB).collect()
        };
        assert_eq!(starts(128), [0]);
        assert_eq!(starts(4).len(), 64);
    }

    #[test]
    fn a_large_slice_has_several_ranges() {
        let slices = [slice(0, 256, 10), slice(1, 256, 7)];
        let found = huge_page_ranges(&info(256), &[], &slices, Bytes(128 * MIB));
        assert_eq!(found.len(), 4);
        let starts: Vec<_> = cheapest_first(&found).iter().map(|r| r.start.0 / MIB).collect();
        assert_eq!(starts, [384, 256, 128, 0]);
    }

    #[test]
    fn a_slice_that_failed_lately_is_tried_last() {
        let mut slices: Vec<_> = (0..4).map(|id| slice(id, 64, 10)).collect();
        slices[3] = Slice { backoff: true, price: Price(1_000_000_010), ..slices[3].clone() };
        let found = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        let starts: Vec<_> = cheapest_first(&found).iter().map(|r| r.start.0 / MIB).collect();
        assert_eq!(starts, [0, 128]);
        assert_eq!(found[1].to_empty, [SliceId(2), SliceId(3)]);
        assert_eq!((found[0].failed_lately, found[1].failed_lately), (false, true));
    }

    #[test]
    fn the_reason_is_that_of_a_slice_that_blocks() {
        let mut slices: Vec<_> = (0..2).map(|id| slice(id, 64, 10)).collect();
        slices[1].unreclaimable = true;
        slices[1].reason = Reason::BootMemory;
        let found = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        assert_eq!(found[0].blocked, Some((SliceId(1), Reason::BootMemory)));
        assert!(found[0].blocked_for_good);
    }

    #[test]
    fn pages_of_the_kernel_may_go_and_the_range_is_known_whole() {
        let mut slices: Vec<_> = (0..2).map(|id| slice(id, 64, 10)).collect();
        slices[1] = Slice { unmovable: true, reason: Reason::Slab, ..slices[1].clone() };
        let found = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        assert_eq!(found[0].blocked, Some((SliceId(1), Reason::Slab)));
        assert!(!found[0].blocked_for_good);
        assert_eq!(found[0].to_empty, [SliceId(0), SliceId(1)]);
        assert_eq!(cheapest_first(&found).len(), 0);
    }

    /// A machine with a pool of pages of 128 MiB.
    fn with_pool(total: u64, surplus: u64) -> StayingBackend {
        let page = Bytes(128 * MIB);
        let pool = HugePagePool { page, total, free: 0, reserved: 0, surplus };
        StayingBackend {
            info: Some(info(64)),
            pool: Some(pool).into(),
            ..StayingBackend::default()
        }
    }

    #[test]
    fn slices_wake_again_though_a_request_fails() {
        let slices = [slice(0, 64, 10), slice(1, 64, 10)];
        let ranges = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        let mut sent = Vec::new();
        let result = make_huge_page(
            &with_pool(0, 0),
            (Bytes(128 * MIB), &HugePagePlace::default()),
            &ranges[0],
            CacheChoice::Auto,
            &|| false,
            &mut |request| {
                sent.push(request.op);
                if sent.len() == 2 {
                    return Err(BackendError::new(BackendErrorKind::Busy, "another request"));
                }
                Ok(RequestOutcome { slices_done: 1, ..RequestOutcome::default() })
            },
        );
        assert_eq!(result.unwrap_err().kind(), BackendErrorKind::Busy);
        let first = ranges[0].to_empty[0];
        assert_eq!(sent[0], RequestOp::Offline(first));
        assert_eq!(sent[2..], [RequestOp::Online(first)]);
    }

    /// Nodes with so many lent pages and so much room each; the last one is cold.
    fn with_nodes(nodes: &[(u64, u64)]) -> StayingBackend {
        let page = Bytes(128 * MIB);
        let parts = nodes.iter().zip(0..).map(|(&(surplus, room), node)| NodePool {
            node: HugePageNode { node: NodeId(node), is_cold: node as usize == nodes.len() - 1 },
            pool: HugePagePool { page, total: surplus, free: 0, reserved: 0, surplus },
            room,
        });
        StayingBackend {
            info: Some(info(64)),
            node_pools: parts.collect::<Vec<_>>().into(),
            ..StayingBackend::default()
        }
    }

    /// Makes a page of a range of node 1, and returns whether it was made, the size of each node's
    /// part then, and how many requests were sent.
    fn make_on_node_1(
        machine: &StayingBackend,
        page_mib: u64,
        named: Option<i32>,
    ) -> (bool, Vec<u64>, usize) {
        let slices = [0, 1].map(|id| Slice { node: NodeId(1), ..slice(id, 64, 10) });
        let ranges = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        let place = HugePagePlace::read(machine, named.map(NodeId)).unwrap();
        for part in machine.node_pools.lock().unwrap().iter_mut() {
            part.pool.page = Bytes(page_mib * MIB);
        }
        let mut sent = 0;
        let refused = make_huge_page(
            machine,
            (Bytes(page_mib * MIB), &place),
            &ranges[0],
            CacheChoice::Auto,
            &|| false,
            &mut |_| {
                sent += 1;
                Ok(RequestOutcome { slices_done: 1, ..RequestOutcome::default() })
            },
        );
        let parts = machine.node_pools.lock().unwrap();
        let sizes = parts.iter().map(|part| part.pool.size()).collect();
        (refused.unwrap().is_none(), sizes, sent)
    }

    #[test]
    fn a_page_belongs_to_the_node_whose_range_was_emptied_named_or_not() {
        for named in [None, Some(1)] {
            // The kernel would make it on node 0
            let done = make_on_node_1(&with_nodes(&[(0, 9), (0, 9), (0, 9)]), 128, named);
            assert_eq!(done, (true, vec![0, 1, 0], 4));
        }
    }

    #[test]
    fn a_page_that_its_node_has_no_room_for_is_not_made_on_another() {
        for named in [None, Some(1)] {
            let done = make_on_node_1(&with_nodes(&[(0, 9), (0, 0), (0, 9)]), 128, named);
            assert_eq!(done, (false, vec![0, 0, 0], 4));
        }
    }

    #[test]
    fn a_page_that_is_lent_on_another_node_is_not_that_of_the_named_one() {
        let machine = with_nodes(&[(2, 9), (0, 9), (2, 9)]);
        assert_eq!(make_on_node_1(&machine, 128, Some(1)), (true, vec![0, 1, 0], 4));
        // Of those that are not cold, any node may have it
        assert_eq!(make_on_node_1(&machine, 128, None), (true, vec![1, 1, 0], 0));
    }

    #[test]
    fn small_pages_are_spread_over_nodes_but_for_cold_ones() {
        let machine = with_nodes(&[(0, 2), (0, 3), (0, 9)]);
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(make_on_node_1(&machine, 2, None).1);
        }
        assert_eq!(seen[..2], [[1, 0, 0], [1, 1, 0]]);
        // The other takes what one has no room for; then a range is emptied in vain
        assert_eq!(seen[4..], [[2, 3, 0], [2, 3, 0]]);
        let machine = with_nodes(&[(0, 2), (0, 3), (0, 9)]);
        assert_eq!(make_on_node_1(&machine, 2, Some(2)).1, [0, 0, 1]);
    }

    #[test]
    fn a_page_that_is_lent_beyond_the_pool_becomes_one_of_it() {
        let machine = with_pool(8, 4);
        let slices = [slice(0, 64, 10), slice(1, 64, 10)];
        let ranges = huge_page_ranges(&info(64), &[], &slices, Bytes(128 * MIB));
        let refused = make_huge_page(
            &machine,
            (Bytes(128 * MIB), &HugePagePlace::default()),
            &ranges[0],
            CacheChoice::Auto,
            &|| false,
            &mut |_| unreachable!("nothing has to be emptied"),
        );
        assert_eq!(refused.unwrap(), None);
        let found = machine.pool.lock().unwrap().unwrap();
        assert_eq!((found.size(), found.total), (5, 8));
    }
}
