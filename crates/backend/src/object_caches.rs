//! The kernel's caches of objects (slab), shrunk so that pages of theirs become free.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use procfs_core::{FromRead, Meminfo};
use ramslice_types::{Bytes, Pages};
use rustix::param::page_size;
use serde::Serialize;
use tracing::debug;

use crate::error::{FileAccess, KernelError};

/// The kernel frees dentries and inodes only after every CPU has passed a quiescent state (RCU):
/// looks at the slab until it no longer falls, this far apart, and so many at most.
const SETTLE_TIME: Duration = Duration::from_millis(50);
const SETTLE_LOOKS: u32 = 20;

/// What is shrunk, from what costs nothing to what costs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShrinkStep {
    /// Slabs without any object, of which each cache keeps some for the next allocation.
    EmptySlabs,
    /// Objects that the kernel can make again: dentries, inodes, what file systems know of extents.
    Objects,
    /// All clean page cache first, because an inode stays while the cache of its file does.
    CacheAndObjects,
}

/// Pages of slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlabPages {
    /// Of caches that the kernel can shrink, though not each of their objects.
    pub reclaimable: Pages,
    /// All.
    pub all: Pages,
}

/// The object caches of the running system, or of a copy of its files.
///
/// All caches are shrunk as a whole by `drop_caches`. Gentler ways do not free pages: a slab holds
/// 10 to 40 objects, which are used at different times, and goes when the last of them does. To
/// drop the oldest half of all objects, by the `scan` files of debugfs (`CONFIG_SHRINKER_DEBUG`,
/// which no distribution has to enable), frees one page of 21 dentries in two million. What
/// `memory.reclaim` takes is mostly page cache and programs' memory, and of objects a small share
/// as old.
#[derive(Debug, Clone)]
pub struct ObjectCaches {
    root: PathBuf,
}

impl ObjectCaches {
    /// Those of the system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// How much memory they have.
    ///
    /// # Errors
    /// What cannot be read or understood.
    pub fn pages(&self) -> Result<SlabPages, KernelError> {
        let path = self.root.join("proc/meminfo");
        let text = fs::read_to_string(&path).map_err(|source| KernelError::File {
            path: path.clone(),
            access: FileAccess::Read,
            source,
        })?;
        let info = Meminfo::from_read(text.as_bytes())
            .map_err(|source| KernelError::ProcFile { path, source })?;
        let pages = |bytes| Bytes(bytes).pages(Bytes(page_size() as u64));
        Ok(SlabPages {
            reclaimable: pages(info.s_reclaimable.unwrap_or_default()),
            all: pages(info.slab),
        })
    }

    /// Shrinks them, and returns how many pages that freed, as far as the totals say: others
    /// allocate meanwhile.
    ///
    /// Dirty inodes stay: what calls this writes them first.
    ///
    /// # Errors
    /// `drop_caches` cannot be written, or the totals cannot be read.
    pub fn shrink(&self, step: ShrinkStep) -> Result<Pages, KernelError> {
        let before = self.pages()?.all;
        match step {
            ShrinkStep::EmptySlabs => {}
            ShrinkStep::Objects => self.drop_caches("2")?,
            ShrinkStep::CacheAndObjects => self.drop_caches("3")?,
        }
        if step != ShrinkStep::EmptySlabs {
            self.settle()?;
        }
        // After objects went, each cache keeps some of the slabs that they leave behind
        self.release_empty_slabs();
        Ok(before.saturating_sub(self.pages()?.all))
    }

    fn drop_caches(&self, what: &str) -> Result<(), KernelError> {
        let path = self.root.join("proc/sys/vm/drop_caches");
        fs::write(&path, what).map_err(|source| KernelError::File {
            path,
            access: FileAccess::Write,
            source,
        })
    }

    fn settle(&self) -> Result<(), KernelError> {
        let mut before = self.pages()?.all;
        for _ in 0..SETTLE_LOOKS {
            sleep(SETTLE_TIME);
            let now = self.pages()?.all;
            if now >= before {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// What cannot be written is left out: kernels with `CONFIG_SLUB_TINY` keep no empty slabs.
    fn release_empty_slabs(&self) {
        let folder = self.root.join("sys/kernel/slab");
        let Ok(entries) = fs::read_dir(&folder) else {
            debug!(folder = %folder.display(), "this kernel shows no caches of objects");
            return;
        };
        // Caches that share their slabs are links to the one that has them
        let caches = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for cache in caches {
            if let Err(error) = fs::write(cache.path().join("shrink"), "1") {
                debug!(cache = %cache.path().display(), %error, "its empty slabs stay");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const DROP: &str = "proc/sys/vm/drop_caches";

    fn system() -> (tempfile::TempDir, ObjectCaches) {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/meminfo",
            "MemTotal: 2097152 kB\nMemFree: 1300000 kB\nBuffers: 0 kB\nCached: 500000 kB\n\
             SwapCached: 0 kB\nActive: 1 kB\nInactive: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n\
             Dirty: 0 kB\nWriteback: 0 kB\nMapped: 0 kB\nSlab: 1000 kB\nSReclaimable: 600 kB\n\
             SUnreclaim: 400 kB\nCommitted_AS: 0 kB\nVmallocTotal: 0 kB\nVmallocUsed: 0 kB\n\
             VmallocChunk: 0 kB\n",
        );
        put(DROP, "");
        put("sys/kernel/slab/dentry/shrink", "");
        symlink("dentry", root.path().join("sys/kernel/slab/alias")).unwrap();
        let caches = ObjectCaches::under(root.path());
        (root, caches)
    }

    fn read(root: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(root.path().join(name)).unwrap()
    }

    #[test]
    fn slab_is_counted_as_the_kernel_does() {
        let (_root, caches) = system();
        let in_kib = |kib: u64| Bytes(kib << 10).pages(Bytes(page_size() as u64));
        let found = caches.pages().unwrap();
        assert_eq!(found, SlabPages { reclaimable: in_kib(600), all: in_kib(1000) });
    }

    #[test]
    fn each_step_takes_as_much_as_it_says() {
        for (step, written) in [
            (ShrinkStep::EmptySlabs, ""),
            (ShrinkStep::Objects, "2"),
            (ShrinkStep::CacheAndObjects, "3"),
        ] {
            let (root, caches) = system();
            assert_eq!(caches.shrink(step).unwrap(), Pages::ZERO);
            assert_eq!(read(&root, DROP), written, "{step:?}");
            assert_eq!(read(&root, "sys/kernel/slab/dentry/shrink"), "1", "{step:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_named_and_a_kernel_may_show_no_caches() {
        let (root, caches) = system();
        fs::remove_dir_all(root.path().join("sys")).unwrap();
        caches.shrink(ShrinkStep::EmptySlabs).unwrap();
        fs::remove_file(root.path().join(DROP)).unwrap();
        fs::create_dir(root.path().join(DROP)).unwrap();
        let text = caches.shrink(ShrinkStep::Objects).unwrap_err().to_string();
        assert!(text.contains("drop_caches"), "{text}");
    }
}
