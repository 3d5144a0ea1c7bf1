//! The kernel's files of idle page tracking: `/sys/kernel/mm/page_idle/bitmap`, and
//! `/proc/kpageflags` for what a page is. See `Documentation/admin-guide/mm/idle_page_tracking.rst`
//! of the kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::ReuseError;

const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";
const FLAGS: &str = "proc/kpageflags";
/// Bits of `include/uapi/linux/kernel-page-flags.h`.
mod kpf {
    pub(super) const UPTODATE: u64 = 1 << 3;
    pub(super) const LRU: u64 = 1 << 5;
    pub(super) const ACTIVE: u64 = 1 << 6;
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const MMAP: u64 = 1 << 11;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAPBACKED: u64 = 1 << 14;
    pub(super) const COMPOUND_HEAD: u64 = 1 << 15;
    pub(super) const COMPOUND_TAIL: u64 = 1 << 16;
    pub(super) const UNEVICTABLE: u64 = 1 << 18;
}
/// Pages for which one word of the bitmap has bits.
pub(super) const WORD_PAGES: u64 = 64;
/// Bytes of a word, and of the flags of a page.
const BYTES: u64 = 8;
/// The largest folio that is looked at as one.
const MOST_FOLIO_PAGES: usize = 512;

/// What a page is, as far as sampling cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    /// It can be evicted.
    Evictable {
        /// Memory of programs or tmpfs, rather than page cache of a file.
        anon: bool,
        /// On an active list.
        active: bool,
        /// The first page of a folio of several.
        head: bool,
    },
    /// It is in use, but on no list at the moment.
    InTransit,
    /// It is free, the kernel's, locked, or represented by the head of its folio.
    Other,
}

impl PageState {
    pub(super) fn of(flags: u64) -> Self {
        if flags & kpf::COMPOUND_TAIL != 0 || flags & (kpf::BUDDY | kpf::UNEVICTABLE) != 0 {
            Self::Other
        } else if flags & kpf::LRU != 0 {
            Self::Evictable {
                anon: flags & (kpf::ANON | kpf::SWAPBACKED) != 0,
                active: flags & kpf::ACTIVE != 0,
                head: flags & kpf::COMPOUND_HEAD != 0,
            }
        } else if flags & (kpf::UPTODATE | kpf::MMAP | kpf::ANON | kpf::SWAPBACKED) != 0 {
            Self::InTransit
        } else {
            Self::Other
        }
    }
}

/// Both files.
pub(super) struct PageIdleFiles {
    bitmap: (File, PathBuf),
    flags: (File, PathBuf),
}

impl PageIdleFiles {
    /// Opens them.
    pub(super) fn open(root: &Path) -> Result<Self, ReuseError> {
        let (bitmap, flags) = (root.join(BITMAP), root.join(FLAGS));
        let opened = OpenOptions::new().read(true).write(true).open(&bitmap);
        let opened = opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ReuseError::Missing { path: bitmap.clone() },
            _ => ReuseError::io("opening", &bitmap, source),
        })?;
        let file =
            File::open(&flags).map_err(|source| ReuseError::io("opening", &flags, source))?;
        Ok(Self { bitmap: (opened, bitmap), flags: (file, flags) })
    }

    /// Words of the bitmap from number `first` on; a bit is set if its page has been idle since it
    /// was marked. Beyond the end of memory there are none.
    pub(super) fn idle(&self, first: u64, words: &mut [u64]) -> Result<(), ReuseError> {
        read(&self.bitmap, first, words)
    }

    /// Marks pages as idle: a word for 64 pages, from number `first` on.
    pub(super) fn mark(&self, first: u64, words: &[u64]) -> Result<(), ReuseError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (file, path) = &self.bitmap;
        file.write_all_at(&bytes, first * BYTES)
            .map_err(|source| ReuseError::io("writing", path, source))
    }

    /// The flags of pages from frame `first` on.
    pub(super) fn flags(&self, first: u64, flags: &mut [u64]) -> Result<(), ReuseError> {
        read(&self.flags, first, flags)
    }

    /// Pages of the folio whose head is at this frame.
    pub(super) fn folio_pages(&self, head: u64) -> Result<u64, ReuseError> {
        let mut flags = [0; MOST_FOLIO_PAGES - 1];
        self.flags(head + 1, &mut flags)?;
        let tails = flags.iter().take_while(|flags| **flags & kpf::COMPOUND_TAIL != 0).count();
        Ok(1 + tails as u64)
    }
}

/// Reads numbers of eight bytes from number `first` on; those behind the end of the file are 0.
fn read((file, path): &(File, PathBuf), first: u64, words: &mut [u64]) -> Result<(), ReuseError> {
    let mut bytes = vec![0; words.len() * BYTES as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], first * BYTES + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ReuseError::io("reading", path, source)),
        }
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(BYTES as usize)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("they are eight"));
    }
    Ok(())
}
