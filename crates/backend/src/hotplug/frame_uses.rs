//! What each page frame of the machine is used for, by `/proc/kpageflags` alone: of the patched
//! kernel and of any other.

use std::ops::Range;
use std::path::Path;

use procfs_core::Iomem;
use ramslice_types::{PageClass, PageKind, Pfn, Reason};
use rustix::param::page_size;

use super::page_use::{FolioWalk, bit};
use super::page_walk::{FLAGS, flags_error};
use super::system_files::{RealFiles, SystemFiles, read_proc};
use crate::error::KernelError;

/// Page frames read at once: 64 KiB of flags.
const BATCH: usize = 8192;

const IOMEM: &str = "proc/iomem";

/// A page frame, as far as its flags tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameUse {
    /// What becomes of it if its slice is emptied. A frame that no allocator has because it is off,
    /// or because a balloon took it, is [`PageKind::Offline`].
    pub kind: PageKind,
    /// In the page cache, mapped or not, with tmpfs and the swap cache: what `/proc/meminfo` counts
    /// as `Buffers`, `Cached` and `SwapCached`.
    pub cached: bool,
}

/// Reads page frames in order, from the first to the last that the kernel knows.
pub struct FrameUses {
    files: RealFiles,
    /// Frames with memory, ascending; empty if the kernel does not say. By their flags alone, those
    /// of holes look like what is reserved at boot.
    memory: Vec<Range<u64>>,
    walk: FolioWalk,
    /// Of the folio that the last frame is a part of.
    last: FrameUse,
    next: Pfn,
    flags: Vec<u64>,
}

impl FrameUses {
    /// Of the system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        let files = RealFiles::under(root);
        Self {
            memory: memory_ranges(&files),
            files,
            walk: FolioWalk::default(),
            last: FrameUse { kind: PageKind::Hole, cached: false },
            next: Pfn(0),
            flags: vec![0; BATCH],
        }
    }

    fn has_memory(&self, frame: u64) -> bool {
        let after = self.memory.partition_point(|range| range.end <= frame);
        self.memory.is_empty() || self.memory.get(after).is_some_and(|range| range.start <= frame)
    }

    fn of(&mut self, frame: u64, raw: u64) -> FrameUse {
        let raw = if self.has_memory(frame) { raw } else { bit::NOPAGE };
        let page = self.walk.next_page(raw, 0, false);
        if page.tail {
            return self.last;
        }
        let clean = raw & (bit::MMAP | bit::DIRTY | bit::WRITEBACK | bit::UNEVICTABLE) == 0;
        let kind = match page.class {
            PageClass::Hole => PageKind::Hole,
            PageClass::Free => PageKind::Free,
            PageClass::Foreign => PageKind::Offline,
            PageClass::Hugetlb => PageKind::Movable,
            PageClass::File if clean => PageKind::Freeable,
            _ if page.reason == Reason::None => PageKind::Movable,
            _ => PageKind::Unmovable,
        };
        let cached =
            matches!(page.class, PageClass::File | PageClass::Shmem | PageClass::SwapCache);
        self.last = FrameUse { kind, cached };
        self.last
    }
}

/// Those of `/proc/iomem`, which shows addresses to root alone.
fn memory_ranges(files: &dyn SystemFiles) -> Vec<Range<u64>> {
    let page_bytes = page_size() as u64;
    let Ok(Iomem(entries)) = read_proc::<Iomem>(files, IOMEM) else { return Vec::new() };
    let mut ranges: Vec<Range<u64>> = entries
        .iter()
        .map(|(_, entry)| entry)
        .filter(|entry| entry.name.starts_with("System RAM") && entry.address.1 > 0)
        .map(|entry| entry.address.0 / page_bytes..(entry.address.1 + 1).div_ceil(page_bytes))
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

impl Iterator for FrameUses {
    /// Some thousand frames, or why they cannot be read.
    type Item = Result<Vec<FrameUse>, KernelError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut flags = std::mem::take(&mut self.flags);
        let read = self.files.words(FLAGS, self.next.0, &mut flags);
        let frames = match read {
            Ok(0) => None,
            Ok(read) => {
                let frames = (self.next.0..).zip(&flags[..read]);
                Some(Ok(frames.map(|(frame, raw)| self.of(frame, *raw)).collect()))
            }
            Err(source) => Some(Err(flags_error(&self.files, FLAGS, source))),
        };
        self.next = Pfn(self.next.0 + BATCH as u64);
        self.flags = flags;
        frames
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn uses(words: &[u64]) -> Vec<FrameUse> {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("proc")).expect("a folder");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(root.path().join(FLAGS), bytes).expect("a file");
        FrameUses::under(root.path()).flat_map(|part| part.expect("frames")).collect()
    }

    fn kinds(words: &[u64]) -> Vec<PageKind> {
        uses(words).iter().map(|frame| frame.kind).collect()
    }

    #[test]
    fn each_frame_has_the_kind_that_decides_about_its_slice() {
        let cache = bit::LRU | bit::READ_IN;
        assert_eq!(
            kinds(&[
                bit::NOPAGE,
                bit::RESERVED,
                bit::SLAB,
                0,
                bit::ANON | bit::LRU | bit::SWAPBACKED,
                cache | bit::DIRTY,
                cache | bit::MMAP,
                cache,
                bit::BUDDY,
                bit::OFFLINE,
                bit::HUGE | bit::COMPOUND_HEAD,
            ]),
            [
                PageKind::Hole,
                PageKind::Unmovable,
                PageKind::Unmovable,
                PageKind::Unmovable,
                PageKind::Movable,
                PageKind::Movable,
                PageKind::Movable,
                PageKind::Freeable,
                PageKind::Free,
                PageKind::Offline,
                PageKind::Movable,
            ]
        );
    }

    #[test]
    fn what_is_reserved_where_no_memory_is_is_a_hole() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("proc")).expect("a folder");
        let bytes: Vec<u8> =
            [bit::RESERVED; 4].iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(root.path().join(FLAGS), bytes).expect("a file");
        let page_bytes = page_size() as u64;
        let iomem = format!(
            "00000000-{:08x} : System RAM\n{:08x}-{:08x} : PCI Bus 0000:00\n\
             {:08x}-{:08x} : System RAM (kmem)\n",
            page_bytes - 1,
            page_bytes,
            3 * page_bytes - 1,
            3 * page_bytes,
            4 * page_bytes - 1,
        );
        fs::write(root.path().join(IOMEM), iomem).expect("a file");
        let found: Vec<PageKind> = FrameUses::under(root.path())
            .flat_map(|part| part.expect("frames"))
            .map(|frame| frame.kind)
            .collect();
        let (used, hole) = (PageKind::Unmovable, PageKind::Hole);
        assert_eq!(found, [used, hole, hole, used]);
    }

    #[test]
    fn a_tail_is_what_its_head_is_across_two_reads() {
        let mut words = vec![bit::BUDDY; BATCH - 1];
        words.push(bit::LRU | bit::READ_IN | bit::COMPOUND_HEAD);
        words.extend([bit::COMPOUND_TAIL; 3]);
        let found = kinds(&words);
        assert_eq!(found.len(), BATCH + 3);
        assert_eq!(
            found[BATCH - 2..],
            [
                PageKind::Free,
                PageKind::Freeable,
                PageKind::Freeable,
                PageKind::Freeable,
                PageKind::Freeable,
            ]
        );
    }

    #[test]
    fn cache_is_what_meminfo_counts_as_cache() {
        let cached = |word| uses(&[word])[0].cached;
        assert!(cached(bit::LRU | bit::READ_IN | bit::MMAP));
        assert!(cached(bit::LRU | bit::READ_IN | bit::SWAPBACKED));
        assert!(!cached(bit::LRU | bit::ANON | bit::SWAPBACKED));
        assert!(!cached(bit::SLAB));
    }

    #[test]
    fn without_page_flags_it_says_what_is_missing() {
        let root = tempfile::tempdir().expect("a folder");
        let error = FrameUses::under(root.path()).next().expect("an answer").expect_err("no file");
        assert!(matches!(error, KernelError::NoPageFlags { .. }), "{error}");
    }
}
