//! Slices that a table says, of unequal sizes.

use serde::{Deserialize, Serialize};

use crate::machine_state::BackendInfo;
use crate::units::{Bytes, Pages, SliceId};

/// A range of physical addresses that is one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// First address.
    pub start_bytes: u64,
    /// Length.
    pub bytes: Bytes,
}

impl BackendInfo {
    /// The size of a slice; zero if a table has none of this id.
    pub fn bytes_of(&self, slice: SliceId) -> Bytes {
        let extents = self.extents(slice);
        Bytes(extents.run_bytes.saturating_mul(extents.runs))
    }

    /// Page frames of a slice by a table; `None` where all are of one size.
    pub fn frames_of(&self, slice: SliceId) -> Option<Pages> {
        let segment = self.segments.get(slice.0 as usize);
        segment.map(|segment| segment.bytes.pages(self.page_bytes))
    }

    /// The size of so many slices; `None` where they are of unequal sizes.
    pub fn bytes_of_any(&self, slices: u32) -> Option<Bytes> {
        let bytes = u64::from(slices).saturating_mul(self.slice_bytes.0);
        self.segments.is_empty().then_some(Bytes(bytes))
    }

    /// The smallest and the largest slice by a table; `None` without one.
    pub fn segment_sizes(&self) -> Option<(Bytes, Bytes)> {
        let sizes = || self.segments.iter().map(|segment| segment.bytes);
        Some((sizes().min()?, sizes().max()?))
    }
}

/// How slices are divided, for people: `slices of 64 MiB, interleaved 2 ways by 4 MiB`.
pub struct SliceSizes<'a>(pub &'a BackendInfo);

impl std::fmt::Display for SliceSizes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let info = self.0;
        match info.segment_sizes() {
            Some((least, most)) if least == most => write!(f, "slices of {most} by a table"),
            Some((least, most)) => write!(f, "slices of {least} to {most} by a table"),
            None => {
                write!(f, "slices of {}", info.slice_bytes)?;
                info.interleave.map_or(Ok(()), |how| write!(f, ", interleaved {how}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleave::tests::info;

    const MIB: u64 = 1 << 20;

    fn by_table() -> BackendInfo {
        let mut info = info(192, None);
        let segment = |start, mib| Segment { start_bytes: start * MIB, bytes: Bytes(mib * MIB) };
        info.segments = vec![segment(64, 64), segment(128, 192), segment(512, 6)];
        info
    }

    #[test]
    fn a_slice_lies_where_its_segment_does() {
        let info = by_table();
        for (id, start, end) in [(0, 64, 128), (1, 128, 320), (2, 512, 518)] {
            let ranges: Vec<_> = info.extents(SliceId(id)).ranges().collect();
            assert_eq!(ranges, vec![start * MIB..end * MIB]);
        }
        assert_eq!(info.extents(SliceId(1)).to_string(), "0008000000-0013ffffff");
        assert_eq!(info.bytes_of(SliceId(2)), Bytes(6 * MIB));
        assert_eq!(info.bytes_of(SliceId(3)), Bytes::ZERO);
        assert_eq!(info.bytes_of_any(2), None);
        assert_eq!(info.frames_of(SliceId(2)), Some(Pages(6 * MIB / 4096)));
        assert_eq!(
            (info.frames_of(SliceId(3)), self::info(64, None).frames_of(SliceId(0))),
            (None, None)
        );
        assert_eq!(self::info(64, None).bytes_of_any(2), Some(Bytes(128 * MIB)));
    }

    #[test]
    fn a_range_has_the_segments_that_it_touches() {
        let info = by_table();
        let touching = |start: u64, end: u64| {
            info.slices_touching(start * MIB..end * MIB).map(|id| id.0).collect::<Vec<_>>()
        };
        assert!(touching(0, 64).is_empty());
        assert_eq!(touching(0, 65), [0]);
        assert_eq!(touching(127, 129), [0, 1]);
        assert!(touching(320, 512).is_empty());
        assert_eq!(touching(0, 1024), [0, 1, 2]);
    }

    #[test]
    fn sizes_are_said_as_they_are() {
        let mut info = by_table();
        assert_eq!(SliceSizes(&info).to_string(), "slices of 6 MiB to 192 MiB by a table");
        info.segments.truncate(1);
        assert_eq!(SliceSizes(&info).to_string(), "slices of 64 MiB by a table");
        let equal = self::info(64, Some((2, 4)));
        assert_eq!(SliceSizes(&equal).to_string(), "slices of 64 MiB, interleaved 2 ways by 4 MiB");
    }
}
