//! How page cache was used, page by page, as `/proc/kpageflags` shows it: the kernel counts what is
//! used for the second time, and of what is used for the first time it only makes a mark.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ramslice_types::{BackendInfo, SliceSnapshot, SliceState};

use crate::error::WriteError;
use crate::tables::signed;

/// Bits of `include/uapi/linux/kernel-page-flags.h`.
const REFERENCED: u64 = 1 << 2;
const LRU: u64 = 1 << 5;
const ACTIVE: u64 = 1 << 6;
const ANON: u64 = 1 << 12;
const SWAPBACKED: u64 = 1 << 14;
/// Bytes for a page.
const FLAGS: usize = 8;

/// Fails as [`count`] would if pages cannot be looked at.
pub(crate) fn probe(path: &Path) -> Result<(), WriteError> {
    let mut page = [0; FLAGS];
    let read = File::open(path).and_then(|file| read_up_to(&file, &mut page, 0));
    read.map(drop).map_err(|source| WriteError::io("reading", path, source))
}

/// Pages of files in the slices that are on: those that were used once and are not active, and
/// those that are active and were used since.
pub(crate) fn count(
    path: &Path,
    snapshot: &SliceSnapshot,
    info: &BackendInfo,
) -> Result<(i64, i64), WriteError> {
    let error = |source| WriteError::io("reading", path, source);
    let file = File::open(path).map_err(error)?;
    let page_bytes = info.page_bytes.0.max(1);
    let mut buffer = Vec::new();
    let (mut once, mut busy) = (0, 0);
    for slice in snapshot.slices.iter().filter(|slice| slice.state == SliceState::Online) {
        let extents = info.extents(slice.id);
        // Interleaved slices have many runs, and those of a table differ in size.
        for range in extents.ranges() {
            let [first, end] = [range.start, range.end].map(|address| address / page_bytes);
            buffer.resize(usize::try_from(end.saturating_sub(first)).unwrap_or(0) * FLAGS, 0);
            let read = read_up_to(&file, &mut buffer, first * FLAGS as u64).map_err(error)?;
            let flags = buffer[..read].chunks_exact(FLAGS);
            for flags in
                flags.map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("they are eight")))
            {
                once += u64::from(is_of_file(flags, REFERENCED));
                busy += u64::from(is_of_file(flags, ACTIVE | REFERENCED));
            }
        }
    }
    Ok((signed(once), signed(busy)))
}

/// A page of a file that was used as these flags say.
fn is_of_file(flags: u64, used: u64) -> bool {
    flags & (LRU | REFERENCED | ACTIVE | ANON | SWAPBACKED) == LRU | used
}

/// Memory may end within the last slice, and so does the file.
fn read_up_to(file: &File, buffer: &mut [u8], start: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], start + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ramslice_types::{Bytes, Interleave, Pages, Segment, Slice, SliceId};

    use super::*;

    /// Slices of 4 MiB, two of them on.
    fn machine(on: [u32; 2]) -> (SliceSnapshot, BackendInfo) {
        let info = serde_json::from_value(serde_json::json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
            "slice_bytes": 4 << 20, "chunk_bytes": 2 << 20, "nr_slices": 4, "nr_zones": 1,
            "event_seq": 0, "managed_pages": 4096, "free_pages": 0, "offline_pages": 2048,
            "quarantined_pages": 0, "power_driver": "none",
        }));
        let slices = on.map(|id| Slice::unread(SliceId(id), Pages(1024))).into();
        (SliceSnapshot { event_seq: 0, time: Duration::ZERO, slices }, info.unwrap())
    }

    #[test]
    fn cache_counts_where_interleaved_slices_and_those_of_a_table_lie() {
        // 16 MiB: in each 2 MiB, twice as many pages of either half were used as in those before.
        let flags = |page: u64| {
            let used = page % 256 < 1 << (page / 256 / 2);
            (LRU | if used { REFERENCED } else { 0 }).to_ne_bytes()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), (0..4096).flat_map(flags).collect::<Vec<_>>()).unwrap();
        let count_of = |(snapshot, info)| count(file.path(), &snapshot, &info).unwrap().0;
        let pages = |mib: &[u32]| mib.iter().map(|mib| 1 << (mib / 2)).sum::<i64>();

        let contiguous = machine([0, 2]);
        assert_eq!(count_of(contiguous), pages(&[0, 1, 2, 3, 8, 9, 10, 11]));
        let (snapshot, mut info) = machine([1, 3]);
        info.interleave = Some(Interleave { ways: 2, granularity_bytes: Bytes(2 << 20) });
        assert_eq!(count_of((snapshot, info)), pages(&[2, 3, 6, 7, 10, 11, 14, 15]));
        let (snapshot, mut info) = machine([0, 2]);
        let segment =
            |mib: u64, size: u64| Segment { start_bytes: mib << 20, bytes: Bytes(size << 20) };
        info.segments = vec![segment(0, 6), segment(6, 2), segment(8, 8)];
        let mib = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(count_of((snapshot, info)), pages(&mib));
    }

    #[test]
    fn cache_counts_by_its_use_and_other_memory_does_not() {
        let once = |flags| is_of_file(flags, REFERENCED);
        assert!(once(LRU | REFERENCED | 1 << 3));
        for flags in [0, LRU, REFERENCED, LRU | ACTIVE, LRU | REFERENCED | ACTIVE] {
            assert!(!once(flags), "{flags:#x}");
        }
        assert!(
            !once(LRU | REFERENCED | ANON | SWAPBACKED) && !once(LRU | REFERENCED | SWAPBACKED)
        );
        assert!(is_of_file(LRU | REFERENCED | ACTIVE, REFERENCED | ACTIVE));
    }
}
