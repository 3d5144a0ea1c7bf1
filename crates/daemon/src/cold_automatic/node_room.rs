//! What is free on nodes and may be filled: without waking slices that were switched off lately.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ramslice_backend::NodeMemory;
use ramslice_types::{Backend, BackendError, Bytes, SliceId, SliceState};

/// On a kernel that does not say what it keeps free, this part of a node is.
const KEPT_FREE: u64 = 64;

/// A slice that is off.
#[derive(Debug, Clone, Copy)]
struct OfflineSlice {
    node: u32,
    bytes: Bytes,
    /// When it was first seen so.
    since: Instant,
}

/// Slices that are off, and for how long.
#[derive(Debug, Default)]
pub(super) struct OfflineAges {
    slices: BTreeMap<SliceId, OfflineSlice>,
    /// The kernel's count of state changes when they were read: reading slices takes time.
    event_seq: Option<u64>,
}

/// Room by node.
#[derive(Debug, Default)]
pub(super) struct NodeRooms {
    /// None on a stock kernel.
    rooms: Option<BTreeMap<u32, Bytes>>,
}

impl NodeRooms {
    /// What may be filled of a node.
    pub(super) fn of(&self, memory: &NodeMemory) -> Bytes {
        match &self.rooms {
            Some(rooms) => rooms.get(&memory.node).copied().unwrap_or(Bytes::ZERO),
            None => memory.free - Bytes(memory.total.0 / KEPT_FREE),
        }
    }
}

impl OfflineAges {
    /// Reads what is free: of the patched kernel, what is online above its reserve, and slices that
    /// have been off for longer than `break_even`; without, no slice. On a stock kernel nothing
    /// wakes for a page.
    pub(super) fn rooms(
        &mut self,
        backend: Option<&dyn Backend>,
        break_even: Option<Duration>,
        now: Instant,
    ) -> Result<NodeRooms, BackendError> {
        let Some(backend) = backend else { return Ok(NodeRooms::default()) };
        let info = backend.info()?;
        let mut rooms: BTreeMap<u32, Bytes> = BTreeMap::new();
        for zone in backend.zones()? {
            let Ok(node) = u32::try_from(zone.node.0) else { continue };
            let kept = zone.awake_reserve_pages.max(zone.low_wmark_pages);
            *rooms.entry(node).or_default() += (zone.free_pages - kept).bytes(info.page_bytes);
        }
        if let Some(break_even) = break_even {
            self.read_slices(backend, info.event_seq, info.page_bytes, now)?;
            for slice in self.slices.values() {
                if now.saturating_duration_since(slice.since) > break_even {
                    *rooms.entry(slice.node).or_default() += slice.bytes;
                }
            }
        }
        Ok(NodeRooms { rooms: Some(rooms) })
    }

    fn read_slices(
        &mut self,
        backend: &dyn Backend,
        event_seq: u64,
        page_bytes: Bytes,
        now: Instant,
    ) -> Result<(), BackendError> {
        if self.event_seq == Some(event_seq) {
            return Ok(());
        }
        let snapshot = backend.snapshot()?;
        let off = snapshot
            .slices
            .iter()
            .filter(|slice| slice.state == SliceState::Offline && !slice.is_away());
        let slices = off.filter_map(|slice| {
            let since = self.slices.get(&slice.id).map_or(now, |before| before.since);
            let node = u32::try_from(slice.node.0).ok()?;
            Some((slice.id, OfflineSlice { node, bytes: slice.present.bytes(page_bytes), since }))
        });
        self.slices = slices.collect();
        self.event_seq = Some(snapshot.event_seq);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ramslice_backend::ReplayBackend;
    use ramslice_types::{MachineState, SliceCounters};
    use serde_json::json;

    use super::*;

    /// A machine whose node 1 has four slices of 16 MiB, of which two are off.
    pub(crate) fn machine(event_seq: u64, states: [&str; 4]) -> ReplayBackend {
        let off = states.iter().filter(|state| **state == "offline").count();
        let slice = |(id, state): (usize, &&str)| {
            json!({
                "id": id, "state": state, "reason": "none", "unreclaimable": false,
                "backoff": false, "unmovable": false, "node": 1, "zone": 3,
                "present_pages": 4096, "price_100cycles": 0, "retry_ms": 0,
                "counters": SliceCounters::default(),
            })
        };
        let state = json!({
            "schema_version": 1,
            "info": {
                "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
                "slice_bytes": 16 << 20, "chunk_bytes": 4 << 20, "nr_slices": 4, "nr_zones": 1,
                "event_seq": event_seq, "managed_pages": 16384, "free_pages": 1000,
                "offline_pages": 4096 * off, "quarantined_pages": 0, "power_driver": "none",
                "resting_bytes": 16 << 20,
            },
            "zones": [{
                "index": 0, "node": 1, "zone": 3, "name": "Movable", "nr_slices": 4,
                "nr_empty": 0, "nr_offline": off, "nr_quarantined": 0, "managed_pages": 16384,
                "free_pages": 1000, "offline_pages": 4096 * off, "awake_reserve_pages": 300,
                "low_wmark_pages": 200, "woken_by_demand": 0,
            }],
            "snapshot": {
                "event_seq": event_seq, "monotonic_us": 0,
                "slices": states.iter().enumerate().map(slice).collect::<Vec<_>>(),
            },
        });
        let state: MachineState = serde_json::from_value(state).unwrap();
        ReplayBackend::new(state)
    }

    #[test]
    fn slices_that_went_off_lately_are_no_room() {
        let node = NodeMemory { node: 1, total: Bytes(0), free: Bytes(0), regions: vec![] };
        let mut ages = OfflineAges::default();
        let (began, minute) = (Instant::now(), Duration::from_mins(1));
        let mut room = |seq, states, break_even, minutes: u32| {
            let backend = machine(seq, states);
            let rooms = ages.rooms(Some(&backend), break_even, began + minute * minutes).unwrap();
            rooms.of(&node).0 / 4096
        };
        let states = ["offline", "online", "offline", "online"];
        assert_eq!(room(1, states, Some(10 * minute), 0), 700, "what is free beyond the reserve");
        assert_eq!(room(1, states, Some(10 * minute), 10), 700);
        assert_eq!(room(1, states, Some(10 * minute), 11), 700 + 2 * 4096);
        // One wakes, another goes off
        let states = ["offline", "offline", "online", "online"];
        assert_eq!(room(2, states, Some(10 * minute), 12), 700 + 4096);
        assert_eq!(room(2, states, None, 100), 700, "without a profile, no slice is");
    }

    #[test]
    fn a_stock_kernel_keeps_a_part_free() {
        let node = NodeMemory { node: 1, total: Bytes(6400), free: Bytes(500), regions: vec![] };
        let rooms = OfflineAges::default().rooms(None, None, Instant::now()).unwrap();
        assert_eq!(rooms.of(&node), Bytes(400));
    }
}
