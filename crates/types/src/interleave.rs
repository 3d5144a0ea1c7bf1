//! Which physical addresses a slice has.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::machine_state::BackendInfo;
use crate::units::{Bytes, SliceId};

/// Slices that take turns at physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interleave {
    /// Slices that take turns, at least 2.
    pub ways: u32,
    /// What each gets at a time; slices have a multiple of it.
    pub granularity_bytes: Bytes,
}

impl fmt::Display for Interleave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ways by {}", self.ways, self.granularity_bytes)
    }
}

/// The runs of physical addresses that a slice consists of, all of a length, a constant distance
/// apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceExtents {
    /// First address.
    pub start: u64,
    /// Length of each run.
    pub run_bytes: u64,
    /// From the beginning of a run to that of the next.
    pub stride_bytes: u64,
    /// Runs; 1 unless slices are interleaved.
    pub runs: u64,
}

impl SliceExtents {
    /// One after the last address.
    pub fn end(&self) -> u64 {
        let last = self.stride_bytes.saturating_mul(self.runs.saturating_sub(1));
        self.start.saturating_add(last).saturating_add(self.run_bytes)
    }

    /// The runs, by ascending address.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let Self { start, run_bytes, stride_bytes, runs } = *self;
        (0..runs).map(move |run| {
            let from = start.saturating_add(stride_bytes.saturating_mul(run));
            from..from.saturating_add(run_bytes)
        })
    }

    /// Whether an address of `range` belongs to it.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        // The first run that ends after the range begins.
        let passed = (range.start + 1).saturating_sub(self.start + self.run_bytes);
        let run = passed.div_ceil(self.stride_bytes.max(1));
        run < self.runs && self.start + run * self.stride_bytes < range.end
    }
}

/// First and last address, hexadecimal, and how many runs lie between.
impl fmt::Display for SliceExtents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010x}-{:010x}", self.start, self.end().saturating_sub(1))?;
        if self.runs > 1 {
            let (run, stride) = (Bytes(self.run_bytes), Bytes(self.stride_bytes));
            write!(f, " ({} runs of {run}, one every {stride})", self.runs)?;
        }
        Ok(())
    }
}

impl BackendInfo {
    /// Slices that take turns: 1 where each is contiguous.
    pub fn ways(&self) -> u32 {
        self.interleave.map_or(1, |interleave| interleave.ways.max(1))
    }

    /// Where a slice lies.
    pub fn extents(&self, slice: SliceId) -> SliceExtents {
        if !self.segments.is_empty() {
            // Past the table, where it ends.
            let end = self.segments.last().map_or(0, |last| last.start_bytes + last.bytes.0);
            let found = self.segments.get(slice.0 as usize);
            let (start, bytes) = found.map_or((end, 0), |one| (one.start_bytes, one.bytes.0));
            let runs = u64::from(bytes > 0);
            return SliceExtents { start, run_bytes: bytes, stride_bytes: bytes, runs };
        }
        let (slice_bytes, ways) = (self.slice_bytes.0, u64::from(self.ways()));
        let run_bytes =
            self.interleave.map_or(slice_bytes, |interleave| interleave.granularity_bytes.0);
        let id = u64::from(slice.0);
        let group = (id / ways).saturating_mul(slice_bytes.saturating_mul(ways));
        SliceExtents {
            start: group.saturating_add((id % ways).saturating_mul(run_bytes)),
            run_bytes,
            stride_bytes: run_bytes.saturating_mul(ways),
            runs: slice_bytes / run_bytes.max(1),
        }
    }

    /// The slices that have an address of `range`, be there memory or not, by ascending id.
    pub fn slices_touching(&self, range: Range<u64>) -> impl Iterator<Item = SliceId> {
        let ways = u64::from(self.ways());
        let group_bytes = self.slice_bytes.0.saturating_mul(ways).max(1);
        let ids = if self.segments.is_empty() {
            range.start / group_bytes * ways..range.end.div_ceil(group_bytes) * ways
        } else {
            0..self.segments.len() as u64
        };
        ids.filter_map(|id| u32::try_from(id).ok().map(SliceId))
            .filter(move |&id| self.extents(id).touches(&range))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    pub(crate) fn info(slice_mib: u64, interleave: Option<(u32, u64)>) -> BackendInfo {
        let mut info: BackendInfo = serde_json::from_value(serde_json::json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 * MIB,
            "slice_bytes": slice_mib * MIB, "chunk_bytes": 4 * MIB, "nr_slices": 8, "nr_zones": 1,
            "event_seq": 0, "managed_pages": 262_144, "free_pages": 65_536,
            "offline_pages": 0, "quarantined_pages": 0, "power_driver": "none",
        }))
        .unwrap();
        info.interleave =
            interleave.map(|(ways, mib)| Interleave { ways, granularity_bytes: Bytes(mib * MIB) });
        info
    }

    fn slice_at(info: &BackendInfo, address: u64) -> Vec<u32> {
        info.slices_touching(address..address + 1).map(|id| id.0).collect()
    }

    #[test]
    fn a_contiguous_slice_is_a_single_run() {
        let info = info(64, None);
        let extents = info.extents(SliceId(3));
        assert_eq!((extents.start, extents.end(), extents.runs), (192 * MIB, 256 * MIB, 1));
        assert_eq!(extents.to_string(), "000c000000-000fffffff");
        assert_eq!(slice_at(&info, 256 * MIB - 1), [3]);
    }

    #[test]
    fn interleaved_slices_take_turns() {
        let info = info(8, Some((2, 4)));
        let ranges = |id| info.extents(SliceId(id)).ranges().collect::<Vec<_>>();
        assert_eq!(ranges(0), [0..4 * MIB, 8 * MIB..12 * MIB]);
        assert_eq!(ranges(1), [4 * MIB..8 * MIB, 12 * MIB..16 * MIB]);
        assert_eq!(ranges(2), [16 * MIB..20 * MIB, 24 * MIB..28 * MIB]);
        assert_eq!(
            info.extents(SliceId(1)).to_string(),
            "0000400000-0000ffffff (2 runs of 4 MiB, one every 8 MiB)"
        );
    }

    #[test]
    fn every_address_belongs_to_one_slice() {
        for interleave in [None, Some((2, 2)), Some((2, 4)), Some((4, 2)), Some((4, 8))] {
            let info = info(8, interleave);
            let mut found = vec![0_u64; 16];
            for mib in 0..16 * 8 {
                let ids = slice_at(&info, mib * MIB + MIB / 2);
                assert_eq!(ids.len(), 1, "{interleave:?} at {mib} MiB");
                let at = mib * MIB..(mib + 1) * MIB;
                assert!(
                    info.extents(SliceId(ids[0]))
                        .ranges()
                        .any(|range| { range.start <= at.start && at.end <= range.end })
                );
                found[ids[0] as usize] += 1;
            }
            assert_eq!(found, vec![8; 16], "{interleave:?}");
        }
    }

    #[test]
    fn a_range_has_the_slices_whose_turn_it_is() {
        let info = info(8, Some((4, 2)));
        let touching = |start: u64, end: u64| {
            info.slices_touching(start * MIB..end * MIB).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(touching(2, 4), [1]);
        assert_eq!(touching(3, 5), [1, 2]);
        assert_eq!(touching(6, 10), [0, 3]);
        assert_eq!(touching(30, 34), [3, 4]);
        assert_eq!(touching(0, 64), (0..8).collect::<Vec<_>>());
    }
}
