//! What a guest on an unpatched kernel can give back: free memory in whole blocks, which free page
//! reporting finds, and page cache that was not used lately. And what any guest has of it: how much
//! was reported in all, and how long tasks waited for memory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs_core::{FromBufRead, FromRead, Meminfo, MemoryPressure};
use ramslice_types::{Bytes, Pages};
use rustix::param::page_size;

use crate::error::{FileAccess, KernelError};

/// Order of the blocks that are reported if the kernel does not say: 2 MiB on x86-64.
const DEFAULT_ORDER: usize = 9;
const ORDER: &str = "sys/module/page_reporting/parameters/page_reporting_order";
/// Where control groups of version 2 are: alone, or beside those of version 1.
const RECLAIM: [&str; 2] = ["sys/fs/cgroup/memory.reclaim", "sys/fs/cgroup/unified/memory.reclaim"];
/// The memory controller of version 1, which has no such file.
const OLD_CONTROLLER: &str = "sys/fs/cgroup/memory";
const COMPACT: &str = "proc/sys/vm/compact_memory";
const REPORTED: &str = "sys/module/ramslice_report/parameters/reported_pages";
const PRESSURE: &str = "proc/pressure/memory";

/// How memory is used, as far as giving back is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestMemoryUse {
    /// All that the kernel has.
    pub total: Bytes,
    /// Free.
    pub free: Bytes,
    /// Free, in blocks that are large enough to be reported.
    pub whole_blocks: Bytes,
    /// Page cache that was not used lately.
    pub idle_cache: Bytes,
    /// Page cache that was.
    pub used_cache: Bytes,
    /// Whether there is swap, to which programs' memory could go.
    pub has_swap: bool,
}

impl GuestMemoryUse {
    /// Page cache, used lately or not.
    pub fn cache(&self) -> Bytes {
        self.idle_cache + self.used_cache
    }

    /// Free, but among pages in use: in blocks that are too small to be reported.
    pub fn loose(&self) -> Bytes {
        self.free.saturating_sub(self.whole_blocks)
    }
}

/// What came of reclaiming cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimedCache {
    /// So much went, whatever came meanwhile.
    pub taken: Bytes,
    /// How memory is used afterwards.
    pub now: GuestMemoryUse,
}

/// Why cache could not be reclaimed.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// Without cgroups of version 2, or on Linux before 5.19.
    #[error(
        "page cache cannot be reclaimed here, because {path} is missing: it takes Linux 5.19 or \
         later, and cgroup2 mounted on /sys/fs/cgroup; `--cache keep` does the rest",
        path = .0.display()
    )]
    NoCgroup(PathBuf),
    /// Cgroups of version 1 have the memory controller.
    #[error(
        "page cache cannot be reclaimed here, because {path} is missing: cgroups of version 1 have \
         the memory controller; with systemd, boot with systemd.unified_cgroup_hierarchy=1; \
         `--cache keep` does the rest",
        path = .0.display()
    )]
    OldCgroup(PathBuf),
    /// Reclaim could take programs' memory instead of cache.
    #[error(
        "this kernel cannot reclaim cache alone while there is swap (since 6.11 it can, by \
         swappiness=0 in memory.reclaim): keep it, with --cache keep"
    )]
    WouldSwap,
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] KernelError),
}

/// What is reclaimed at a time: a signal waits no longer than that, and older kernels take more
/// than is asked for.
const STEP: Bytes = Bytes(8 << 20);

/// The running system, or a copy of its files.
#[derive(Debug, Clone)]
pub struct GuestMemory {
    root: PathBuf,
}

impl GuestMemory {
    /// The system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// How memory is used now.
    ///
    /// # Errors
    /// What cannot be read or understood.
    pub fn look(&self) -> Result<GuestMemoryUse, KernelError> {
        let path = self.root.join("proc/meminfo");
        let info = Meminfo::from_read(self.read("proc/meminfo")?.as_bytes())
            .map_err(|source| KernelError::ProcFile { path, source })?;
        let order = self.read(ORDER).ok().and_then(|text| text.trim().parse().ok());
        let whole_blocks =
            whole_blocks(&self.read("proc/buddyinfo")?, order.unwrap_or(DEFAULT_ORDER));
        Ok(GuestMemoryUse {
            total: Bytes(info.mem_total),
            free: Bytes(info.mem_free),
            whole_blocks,
            idle_cache: Bytes(info.inactive_file.unwrap_or_default()),
            used_cache: Bytes(info.active_file.unwrap_or_default()),
            has_swap: info.swap_total > 0,
        })
    }

    /// Whether cache can be reclaimed here; nothing is.
    ///
    /// # Errors
    /// What it takes.
    pub fn check_reclaim(&self) -> Result<(), ReclaimError> {
        self.reclaim_file().map(drop)
    }

    fn reclaim_file(&self) -> Result<PathBuf, ReclaimError> {
        let paths = RECLAIM.map(|name| self.root.join(name));
        if let Some(found) = paths.iter().find(|path| path.exists()) {
            return Ok(found.clone());
        }
        let [usual, _] = paths;
        if self.root.join(OLD_CONTROLLER).exists() {
            return Err(ReclaimError::OldCgroup(usual));
        }
        Err(ReclaimError::NoCgroup(usual))
    }

    /// Reclaims so much of the cache that is used least; programs' memory stays.
    ///
    /// The kernel takes what it finds: less is no error, and ends it. Before each step, `goes_on`
    /// is asked, with what went so far.
    ///
    /// # Errors
    /// See [`ReclaimError`].
    pub fn reclaim_cache(
        &self,
        wanted: Bytes,
        before: &GuestMemoryUse,
        goes_on: &dyn Fn(Bytes) -> bool,
    ) -> Result<ReclaimedCache, ReclaimError> {
        let mut done = ReclaimedCache { taken: Bytes::ZERO, now: *before };
        while done.taken < wanted && goes_on(done.taken) {
            let part = STEP.min(wanted.saturating_sub(done.taken));
            let end = self.reclaim_at_once(part, before.has_swap)?;
            let now = self.look()?;
            // Cache may grow meanwhile, and older kernels take more than is asked for
            let gone = done.now.cache().saturating_sub(now.cache());
            let taken = if end == StepEnd::Whole { gone.max(part) } else { gone.min(part) };
            done = ReclaimedCache { taken: done.taken + taken, now };
            if end == StepEnd::Short {
                break;
            }
        }
        Ok(done)
    }

    fn reclaim_at_once(&self, bytes: Bytes, has_swap: bool) -> Result<StepEnd, ReclaimError> {
        let path = self.reclaim_file()?;
        Ok(match write_once(&path, &format!("{} swappiness=0", bytes.0)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                if has_swap {
                    return Err(ReclaimError::WouldSwap);
                }
                step_end(write_once(&path, &bytes.0.to_string()), path)?
            }
            result => step_end(result, path)?,
        })
    }

    /// Has the kernel move pages in use together, so that what is free lies in whole blocks.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn compact(&self) -> Result<(), KernelError> {
        let path = self.root.join(COMPACT);
        fs::write(&path, "1").map_err(|source| written(path, source))
    }

    /// Pages of slices that were reported since the power driver was loaded, as often as they were;
    /// absent without the driver.
    pub fn reported_in_all(&self) -> Option<Pages> {
        self.read(REPORTED).ok()?.trim().parse().ok().map(Pages)
    }

    /// How long some task waited for memory since boot; absent if the kernel does not count it.
    pub fn stalled(&self) -> Option<Duration> {
        let text = self.read(PRESSURE).ok()?;
        let pressure = MemoryPressure::from_buf_read(text.as_bytes()).ok()?;
        Some(Duration::from_micros(pressure.some.total))
    }

    fn read(&self, name: &str) -> Result<String, KernelError> {
        let path = self.root.join(name);
        fs::read_to_string(&path).map_err(|source| KernelError::File {
            path,
            access: FileAccess::Read,
            source,
        })
    }
}

/// How a step of reclaiming ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepEnd {
    /// All of it went.
    Whole,
    /// The kernel looked again and again, and found less.
    Short,
    /// A signal came.
    Interrupted,
}

fn step_end(result: io::Result<()>, path: PathBuf) -> Result<StepEnd, KernelError> {
    let Err(source) = result else { return Ok(StepEnd::Whole) };
    match source.kind() {
        // EAGAIN
        io::ErrorKind::WouldBlock => Ok(StepEnd::Short),
        io::ErrorKind::Interrupted => Ok(StepEnd::Interrupted),
        _ => Err(written(path, source)),
    }
}

/// Unlike `fs::write`, which would begin again after a signal.
fn write_once(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write(text.as_bytes()).map(drop)
}

fn written(path: PathBuf, source: io::Error) -> KernelError {
    KernelError::File { path, access: FileAccess::Write, source }
}

/// Free memory in blocks of at least this order, by `/proc/buddyinfo`: a line for each zone, with
/// the number of free blocks of each order behind its name.
fn whole_blocks(buddyinfo: &str, order: usize) -> Bytes {
    let blocks = buddyinfo.lines().flat_map(|line| {
        let counts = line.split_once("zone").map_or("", |(_, rest)| rest);
        counts.split_whitespace().skip(1).enumerate().filter_map(|(at, count)| {
            let count: u64 = count.parse().ok()?;
            Some((at, count))
        })
    });
    let pages: u64 = blocks
        .filter(|&(at, _)| at >= order)
        .map(|(at, count)| count.saturating_mul(1 << at))
        .sum();
    Bytes(pages.saturating_mul(page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDDYINFO: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2
Node 0, zone    DMA32   1024     17      3      2      1      1      1      1      1      4    300
";

    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, GuestMemory) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let memory = GuestMemory::under(root.path());
        (root, memory)
    }

    fn meminfo(swap_kib: u64) -> String {
        format!(
            "MemTotal: 2097152 kB\nMemFree: 1300000 kB\nBuffers: 0 kB\nCached: 500000 kB\n\
             SwapCached: 0 kB\nActive: 1 kB\nInactive: 1 kB\nActive(file): 100000 kB\n\
             Inactive(file): 400000 kB\nSwapTotal: {swap_kib} kB\nSwapFree: 0 kB\nDirty: 0 kB\n\
             Writeback: 0 kB\nMapped: 0 kB\nSlab: 0 kB\nCommitted_AS: 0 kB\nVmallocTotal: 0 kB\n\
             VmallocUsed: 0 kB\nVmallocChunk: 0 kB\n"
        )
    }

    #[test]
    fn whole_blocks_are_those_that_are_reported() {
        let pages = (512 + 2 * 1024) + (4 * 512 + 300 * 1024);
        let page = page_size() as u64;
        assert_eq!(whole_blocks(BUDDYINFO, 9), Bytes(pages * page));
        assert_eq!(whole_blocks(BUDDYINFO, 10), Bytes((2 + 300) * 1024 * page));
        assert_eq!(whole_blocks("nonsense\n", 9), Bytes::ZERO);
    }

    #[test]
    fn memory_is_seen_as_the_kernel_counts_it() {
        let text = meminfo(0);
        let (_root, memory) =
            system(&[("proc/meminfo", &text), ("proc/buddyinfo", BUDDYINFO), (ORDER, "10\n")]);
        let found = memory.look().unwrap();
        assert_eq!(found.free, Bytes(1_300_000 << 10));
        assert_eq!(found.idle_cache, Bytes(400_000 << 10));
        assert_eq!(found.used_cache, Bytes(100_000 << 10));
        assert_eq!(found.whole_blocks, whole_blocks(BUDDYINFO, 10));
        assert!(!found.has_swap);
    }

    #[test]
    fn what_was_reported_and_how_long_tasks_waited_are_known_where_the_kernel_counts() {
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=700\n";
        let (_root, memory) = system(&[(REPORTED, "4096\n"), (PRESSURE, pressure)]);
        assert_eq!(memory.reported_in_all(), Some(Pages(4096)));
        assert_eq!(memory.stalled(), Some(Duration::from_micros(1500)));
        let (_root, memory) = system(&[]);
        assert_eq!((memory.reported_in_all(), memory.stalled()), (None, None));
    }

    #[test]
    fn cache_is_reclaimed_without_swapping() {
        for name in RECLAIM {
            let (root, memory) = system(&[(name, "")]);
            memory.check_reclaim().unwrap();
            memory.reclaim_at_once(Bytes(4096), true).unwrap();
            let text = fs::read_to_string(root.path().join(name)).unwrap();
            assert_eq!(text, "4096 swappiness=0");
        }
    }

    #[test]
    fn without_cgroups_of_version_2_it_says_what_it_takes() {
        let error = |files: &[(&str, &str)]| {
            let (_root, memory) = system(files);
            let error = memory.check_reclaim().unwrap_err().to_string();
            assert_eq!(memory.reclaim_at_once(Bytes(4096), false).unwrap_err().to_string(), error);
            error
        };
        let text = error(&[]);
        assert!(text.contains("cgroup2 mounted on /sys/fs/cgroup"), "{text}");
        let text = error(&[("sys/fs/cgroup/memory/tasks", ""), ("sys/fs/cgroup/unified/x", "")]);
        assert!(text.contains("systemd.unified_cgroup_hierarchy=1"), "{text}");
        assert!(text.contains("--cache keep"), "{text}");
    }

    #[test]
    fn less_than_was_asked_for_and_a_signal_are_no_errors() {
        let end = |kind: io::ErrorKind| step_end(Err(kind.into()), PathBuf::from("x"));
        assert_eq!(end(io::ErrorKind::WouldBlock).unwrap(), StepEnd::Short);
        assert_eq!(end(io::ErrorKind::Interrupted).unwrap(), StepEnd::Interrupted);
        assert!(end(io::ErrorKind::PermissionDenied).is_err());
        assert_eq!(step_end(Ok(()), PathBuf::from("x")).unwrap(), StepEnd::Whole);
    }

    #[test]
    fn steps_add_up_to_what_was_wanted() {
        let text = meminfo(0);
        let files = [("proc/meminfo", &*text), ("proc/buddyinfo", BUDDYINFO), (RECLAIM[0], "")];
        let (root, memory) = system(&files);
        let before = memory.look().unwrap();
        let asked = std::cell::RefCell::new(Vec::new());
        let goes_on = |so_far: Bytes| {
            asked.borrow_mut().push(so_far);
            true
        };
        let done = memory.reclaim_cache(Bytes(STEP.0 + 4096), &before, &goes_on).unwrap();
        // Cache is as it was there, but the kernel said that it took all
        assert_eq!((done.taken, done.now), (Bytes(STEP.0 + 4096), before));
        assert_eq!(*asked.borrow(), [Bytes::ZERO, STEP]);
        // Written over the longer text of the first step
        let text = fs::read_to_string(root.path().join(RECLAIM[0])).unwrap();
        assert!(text.starts_with("4096 swappiness=0"), "{text}");
        let none = memory.reclaim_cache(STEP, &before, &|_| false).unwrap();
        assert_eq!(none.taken, Bytes::ZERO);
    }
}
