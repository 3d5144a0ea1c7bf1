//! The ioctls of `/dev/ramslice`, each typed by its structure, and one of ext4.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Setter, Updater, ioctl, opcode};

use crate::patched::uapi;

const MAGIC: u8 = uapi::RAMSLICE_IOC_MAGIC as u8;

/// Numbers without a size, as `_IO()` makes them: the size is in the structure.
const INFO: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_INFO);
const ZONE: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_ZONE);
const SNAPSHOT: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_SNAPSHOT);
const REQUEST: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_REQUEST);
const PAGES: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_PAGES);
const SEGMENTS: u32 = opcode::none(MAGIC, uapi::RAMSLICE_IOC_SEGMENTS);

/// `EXT4_IOC_CHECKPOINT` of fs/ext4/ext4.h, since Linux 5.14.
const EXT4_CHECKPOINT: u32 = opcode::write::<u32>(b'f', 43);

/// The most time that the kernel may spend on reading memory for a snapshot, in milliseconds. It
/// reads what has changed first.
const READING_MS: u32 = 200;

/// Has the ext4 that this file is on write its journal to where it belongs.
pub(crate) fn ext4_checkpoint(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: EXT4_CHECKPOINT reads four bytes of flags, and 0 is none of them.
    unsafe { ioctl(fd, Setter::<EXT4_CHECKPOINT, u32>::new(0)) }.map_err(Into::into)
}

pub(crate) fn info(fd: impl AsFd, arg: &mut uapi::ramslice_info) -> io::Result<()> {
    arg.size = uapi::struct_size::<uapi::ramslice_info>();
    // SAFETY: INFO reads and writes at most `size` bytes, which is all of `arg`; every bit
    // pattern is a valid `Info`.
    unsafe { ioctl(fd, Updater::<INFO, _>::new(arg)) }.map_err(Into::into)
}

pub(crate) fn zone(fd: impl AsFd, arg: &mut uapi::ramslice_zone_info) -> io::Result<()> {
    arg.size = uapi::struct_size::<uapi::ramslice_zone_info>();
    // SAFETY: ZONE reads and writes at most `size` bytes, which is all of `arg`; every bit
    // pattern is a valid `ZoneInfo`.
    unsafe { ioctl(fd, Updater::<ZONE, _>::new(arg)) }.map_err(Into::into)
}

/// Fills `rows`, after the kernel has read memory for at most [`READING_MS`], but not what it read
/// within `max_age` and had no pages come or go; the head comes back in any case, for its `nr`
/// after `ENOSPC`.
pub(crate) fn snapshot(
    fd: impl AsFd,
    rows: &mut [uapi::ramslice_slice_info],
    max_age: Duration,
) -> (io::Result<()>, uapi::ramslice_snapshot) {
    let fresh = uapi::ramslice_snapshot {
        flags: uapi::RAMSLICE_SNAPSHOT_FRESH,
        limit_ms: READING_MS,
        max_age_ms: u32::try_from(max_age.as_millis()).unwrap_or(u32::MAX),
        ..uapi::ramslice_snapshot::default()
    };
    let (result, head) = snapshot_as(&fd, rows, fresh);
    // A kernel of before counts all the time, and knows no such flag.
    let unknown = [Errno::INVAL.raw_os_error(), Errno::TOOBIG.raw_os_error()];
    match result.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(errno) if unknown.contains(&errno) => {
            snapshot_as(&fd, rows, uapi::ramslice_snapshot::default())
        }
        _ => (result, head),
    }
}

fn snapshot_as(
    fd: impl AsFd,
    rows: &mut [uapi::ramslice_slice_info],
    wanted: uapi::ramslice_snapshot,
) -> (io::Result<()>, uapi::ramslice_snapshot) {
    let mut arg = uapi::ramslice_snapshot {
        size: uapi::struct_size::<uapi::ramslice_snapshot>(),
        entry_size: uapi::struct_size::<uapi::ramslice_slice_info>(),
        nr: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        slices: rows.as_mut_ptr().expose_provenance() as u64,
        ..wanted
    };
    // SAFETY: SNAPSHOT reads and writes at most `size` bytes of `arg`, and at most `nr` rows
    // of `entry_size` bytes at `slices`, which is no more than `rows`, borrowed for as long;
    // every bit pattern is a valid `Snapshot` or `SliceInfo`.
    let result = unsafe { ioctl(fd, Updater::<SNAPSHOT, _>::new(&mut arg)) }.map_err(Into::into);
    (result, arg)
}

pub(crate) fn request(fd: impl AsFd, arg: &mut uapi::ramslice_request) -> io::Result<()> {
    arg.size = uapi::struct_size::<uapi::ramslice_request>();
    // SAFETY: REQUEST reads and writes at most `size` bytes, which is all of `arg`; every bit
    // pattern is a valid `Request`. That it moves memory about is not visible to this process.
    unsafe { ioctl(fd, Updater::<REQUEST, _>::new(arg)) }.map_err(Into::into)
}

/// Fills `runs` with those of slice `id` from its page frame `first` on; the head says how many.
pub(crate) fn pages(
    fd: impl AsFd,
    (id, first): (u32, u32),
    runs: &mut [uapi::ramslice_page_run],
) -> io::Result<uapi::ramslice_pages> {
    let mut arg = uapi::ramslice_pages {
        size: uapi::struct_size::<uapi::ramslice_pages>(),
        id,
        entry_size: uapi::struct_size::<uapi::ramslice_page_run>(),
        nr: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        runs: runs.as_mut_ptr().expose_provenance() as u64,
        first,
        ..uapi::ramslice_pages::default()
    };
    // SAFETY: PAGES reads and writes at most `size` bytes of `arg`, and at most `nr` runs of
    // `entry_size` bytes at `runs`, which is no more than `runs`, borrowed for as long; every
    // bit pattern is a valid `PagesHead` or `PageRun`.
    unsafe { ioctl(fd, Updater::<PAGES, _>::new(&mut arg)) }?;
    Ok(arg)
}

/// Fills `rows` with the slices that a table says, and returns how many there are.
pub(crate) fn segments(fd: impl AsFd, rows: &mut [uapi::ramslice_segment]) -> io::Result<u32> {
    let mut arg = uapi::ramslice_segment_list {
        size: uapi::struct_size::<uapi::ramslice_segment_list>(),
        nr: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        segments: rows.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: SEGMENTS reads and writes at most `size` bytes of `arg`, and at most `nr` rows at
    // `segments`, which is no more than `rows`, borrowed for as long; every bit pattern is a valid
    // `SegmentList` or `Segment`.
    unsafe { ioctl(fd, Updater::<SEGMENTS, _>::new(&mut arg)) }?;
    Ok(arg.nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On most architectures `_IO(type, nr)` is the type above the number, nothing else.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    fn ioctl_numbers_carry_no_size() {
        let numbers = [INFO, ZONE, SNAPSHOT, REQUEST, PAGES, SEGMENTS];
        assert_eq!(numbers, [0xba00, 0xba01, 0xba02, 0xba03, 0xba04, 0xba05]);
    }

    #[test]
    fn another_file_refuses_the_ioctls() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = info(&file, &mut uapi::ramslice_info::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        let mut rows = [uapi::ramslice_slice_info::default(); 3];
        let (result, head) = snapshot(&file, &mut rows, Duration::ZERO);
        assert!(result.is_err());
        assert_eq!(
            (head.nr, head.entry_size),
            (3, uapi::struct_size::<uapi::ramslice_slice_info>())
        );
    }
}
