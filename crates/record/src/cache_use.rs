//! How page cache was used, page by page, as `/proc/kpageflags` shows it: the kernel counts what is
//! used for the second time, and of what is used for the first time it only makes a mark.

use std::fs::File;
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

/// Pages of files in the slices that are on: those that were used once and are not active, and
/// those that are active and were used since.
pub(crate) fn count(
    path: &Path,
    snapshot: &SliceSnapshot,
    info: &BackendInfo,
) -> Result<(i64, i64), WriteError> {
    let error = |source| WriteError::io("reading", path, source);
    let file = File::open(path).map_err(error)?;
    let pages = info.slice_pages().0;
    let mut buffer = vec![0; usize::try_from(pages).unwrap_or(0) * FLAGS];
    let (mut once, mut busy) = (0, 0);
    for slice in snapshot.slices.iter().filter(|slice| slice.state == SliceState::Online) {
        let start = u64::from(slice.id.0) * pages * FLAGS as u64;
        let read = read_up_to(&file, &mut buffer, start).map_err(error)?;
        let flags = buffer[..read].chunks_exact(FLAGS);
        for flags in
            flags.map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("they are eight")))
        {
            once += u64::from(is_of_file(flags, REFERENCED));
            busy += u64::from(is_of_file(flags, ACTIVE | REFERENCED));
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
        match file.read_at(&mut buffer[read..], start + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

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
