//! A simulated machine: memory blocks whose pages move when a block goes offline, with failures on
//! demand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::io::Errno;

use super::HotplugBackend;
use super::page_use::bit;
use super::system_files::{RequestLock, STATE, SystemFiles};
use crate::readers::KernelPaths;

/// Pages of a block: 64 MiB.
pub(super) const BLOCK: u64 = 16_384;
/// 2 GiB.
pub(super) const BLOCKS: u64 = 32;
pub(super) const ANON: u64 = bit::LRU | bit::ANON | bit::SWAPBACKED | bit::MMAP;
const CACHE: u64 = bit::LRU | bit::READ_IN;

#[derive(Debug, Default)]
pub(super) struct FakeState {
    pub(super) online_blocks: BTreeMap<u64, bool>,
    /// Zones by block; Movable or Normal.
    pub(super) zones: BTreeMap<u64, &'static str>,
    pub(super) flags: Vec<u64>,
    pub(super) counts: Vec<u64>,
    /// What a write of this word to this block answers.
    pub(super) failures: BTreeMap<(u64, &'static str), Errno>,
    /// Blocks that go away when they are written to.
    pub(super) vanishing_blocks: BTreeSet<u64>,
    /// Every write, in order.
    pub(super) writes: Vec<(u64, String)>,
    pub(super) saved_files: BTreeMap<String, String>,
    pub(super) save_fails: bool,
    pub(super) lock_held: bool,
    /// Blocks whose first page stays where it is: the kernel tries for ever.
    pub(super) pinned_blocks: BTreeSet<u64>,
    /// Blocks from this one on are of a second node.
    pub(super) second_node: Option<u64>,
    /// How often `MemAvailable` was read, and what is remembered.
    pub(super) meminfo_reads: u64,
    pub(super) state_reads: u64,
    /// The kernel can add memory, but not take any away.
    pub(super) without_hotremove: bool,
    /// `/sys` is mounted read-only.
    pub(super) read_only: bool,
    /// What `uname -m` prints, if it is not `x86_64`.
    pub(super) architecture: Option<&'static str>,
    /// Blocks that another program brings online as soon as they have gone.
    pub(super) brought_back: BTreeSet<u64>,
    /// Pages that each zone has and its allocator does not.
    pub(super) not_given: u64,
    /// What a CPU's list takes at once; it holds 5 pages.
    pub(super) per_cpu_batch: u64,
    /// Zones cannot be read.
    zones_unreadable: bool,
    pub(super) now_ms: u64,
    /// If set, real time passes as well, because a thread waits for it.
    real_start: Option<Instant>,
    /// What a write takes in real time.
    write_sleep: Duration,
    /// What a write takes, and one that fails beyond that.
    pub(super) write_ms: u64,
    pub(super) failure_ms: u64,
    /// Ctrl-C comes during this write, which it does not interrupt.
    pub(super) interrupting_write: Option<usize>,
    /// What reading a batch of pages takes, and how many pages' flags were read.
    pub(super) batch_ms: u64,
    pub(super) pages_read: u64,
}

/// A simulated machine of 2 GiB in blocks of 64 MiB. Its clones share it, so that a test sees what
/// the backend does.
#[derive(Debug, Clone)]
pub struct FakeMachine(Arc<Mutex<FakeState>>);

impl Default for FakeMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeMachine {
    /// Pages of a block.
    pub const BLOCK_PAGES: u64 = BLOCK;

    /// A backend whose clock runs in real time, for programs whose threads wait for each other.
    pub fn backend(&self) -> HotplugBackend {
        self.inner().real_start.get_or_insert_with(Instant::now);
        self.simulated_backend()
    }

    /// A backend whose clock advances only by what is read, written and waited for: how busy the
    /// host is does not matter.
    pub(super) fn simulated_backend(&self) -> HotplugBackend {
        self.backend_with_files(Path::new("/nonexistent"))
    }

    /// The same, with a vendor's files and others below `root`.
    pub(super) fn backend_with_files(&self, root: &Path) -> HotplugBackend {
        HotplugBackend::with_system(Box::new(self.clone()), KernelPaths::under(root))
            .expect("its blocks have a size")
    }

    /// Blocks that are off.
    pub fn off(&self) -> Vec<u64> {
        self.inner().offline()
    }

    /// Blocks from this one on are of a second node; all are in Normal.
    pub fn two_nodes(&self, first: u64) {
        let mut inner = self.inner();
        inner.second_node = Some(first);
        inner.zones.values_mut().for_each(|zone| *zone = "Normal");
    }

    /// Switches a block as another process would.
    pub fn switch_by_hand(&self, number: u64, on: bool) {
        self.inner().by_hand(number, on);
    }

    /// Fills a block with this many pages of programs and of unmapped cache; the rest is free.
    pub fn holds(&self, number: u64, programs: u64, cache: u64) {
        let mut inner = self.inner();
        inner.fill(number, BLOCK, bit::BUDDY, 0);
        inner.fill(number, programs + cache, CACHE, 0);
        inner.fill(number, programs, ANON, 1);
    }

    /// Sets whether a block can wake; if not, the kernel lacks memory for it.
    pub fn wakes(&self, number: u64, wakes: bool) {
        let failures = &mut self.inner().failures;
        failures.remove(&(number, "online"));
        failures.extend((!wakes).then_some(((number, "online"), Errno::NOMEM)));
    }

    /// Sets how long the switching of a block really takes.
    pub fn switches_in(&self, time: Duration) {
        self.inner().write_sleep = time;
    }

    /// Sets whether its zones are unreadable.
    pub fn hide_zones(&self, blind: bool) {
        self.inner().zones_unreadable = blind;
    }

    /// Blocks 0 to 23 in Normal, the rest in Movable; block 0 reserved at boot, block 1 with slab,
    /// blocks 2 to 5 with 100, 200, 300 and 400 anonymous pages.
    pub fn new() -> Self {
        let pages = (BLOCK * BLOCKS) as usize;
        let mut inner = FakeState {
            online_blocks: (0..BLOCKS).map(|number| (number, true)).collect(),
            zones: (0..BLOCKS)
                .map(|number| (number, if number < 24 { "Normal" } else { "Movable" }))
                .collect(),
            flags: vec![bit::BUDDY; pages],
            counts: vec![0; pages],
            ..FakeState::default()
        };
        inner.fill(0, 50, bit::RESERVED, 0);
        inner.fill(1, 10, bit::SLAB, 0);
        for number in 2..6 {
            inner.fill(number, (number - 1) * 100, ANON, 1);
        }
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Lets time pass.
    #[cfg(test)]
    pub(super) fn advance(&self, time: Duration) {
        self.inner().now_ms += u64::try_from(time.as_millis()).unwrap();
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }
}

impl FakeState {
    /// Makes the first `pages` of a block pages of this kind.
    pub(super) fn fill(&mut self, block: u64, pages: u64, flags: u64, count: u64) {
        let first = (block * BLOCK) as usize;
        self.flags[first..first + pages as usize].fill(flags);
        self.counts[first..first + pages as usize].fill(count);
    }

    /// Switches a block as another process would.
    pub(super) fn by_hand(&mut self, number: u64, on: bool) {
        self.online_blocks.insert(number, on);
        self.fill(number, BLOCK, if on { bit::BUDDY } else { bit::NOPAGE }, 0);
    }

    pub(super) fn offline(&self) -> Vec<u64> {
        self.online_blocks
            .iter()
            .filter(|(_, online)| !**online)
            .map(|(&number, _)| number)
            .collect()
    }

    fn node(&self, block: u64) -> u32 {
        u32::from(self.second_node.is_some_and(|first| block >= first))
    }

    /// Free pages and pages of cache of each block that is online.
    fn page_counts(&self) -> BTreeMap<u64, (u64, u64)> {
        let online = self.online_blocks.iter().filter(|(_, online)| **online);
        let counts = online.map(|(&number, _)| {
            let (mut free, mut cache) = (0, 0);
            for &flags in self.block(number) {
                free += u64::from(flags == bit::BUDDY);
                cache += u64::from(flags == CACHE);
            }
            (number, (free, cache))
        });
        counts.collect()
    }

    fn block(&self, number: u64) -> &[u64] {
        &self.flags[(number * BLOCK) as usize..((number + 1) * BLOCK) as usize]
    }

    fn switch(&mut self, number: u64, word: &str) -> Result<(), Errno> {
        self.now_ms += self.write_ms;
        self.writes.push((number, word.to_owned()));
        if self.vanishing_blocks.contains(&number) {
            self.online_blocks.remove(&number);
            return Err(Errno::NODEV);
        }
        let failure = self
            .failures
            .iter()
            .find(|((block, prefix), _)| *block == number && word.starts_with(prefix));
        if let Some((_, &errno)) = failure {
            self.now_ms += self.failure_ms;
            return Err(errno);
        }
        match word {
            "offline" => self.empty(number),
            "online_movable" | "online_kernel" | "online" => {
                self.fill(number, BLOCK, bit::BUDDY, 0);
                self.zones
                    .insert(number, if word == "online_movable" { "Movable" } else { "Normal" });
                self.online_blocks.insert(number, true);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// As the kernel does: moves all pages, or stops at the first that cannot move.
    fn empty(&mut self, number: u64) -> Result<(), Errno> {
        let stays = bit::RESERVED | bit::SLAB | bit::PGTABLE;
        if self.block(number).iter().any(|&flags| flags & stays != 0 || flags == 0) {
            return Err(Errno::BUSY);
        }
        let range = (number * BLOCK) as usize..((number + 1) * BLOCK) as usize;
        let moving: Vec<usize> =
            range.clone().filter(|&pfn| self.flags[pfn] != bit::BUDDY).collect();
        let movable = self.zones[&number] == "Movable";
        let mut targets: Vec<usize> = (0..self.flags.len())
            .rev()
            .filter(|pfn| movable || self.zones[&(*pfn as u64 / BLOCK)] != "Movable")
            .filter(|pfn| !range.contains(pfn) && self.flags[*pfn] == bit::BUDDY)
            .filter(|pfn| {
                self.second_node.is_none() || self.node(*pfn as u64 / BLOCK) != self.node(number)
            })
            .filter(|pfn| self.online_blocks.get(&(*pfn as u64 / BLOCK)).copied().unwrap_or(false))
            .take(moving.len())
            .collect();
        let pinned = self.pinned_blocks.contains(&number);
        for from in moving.into_iter().skip(usize::from(pinned)) {
            let to = targets.pop().ok_or(Errno::NOMEM)?;
            (self.flags[to], self.counts[to]) = (self.flags[from], self.counts[from]);
            self.flags[from] = bit::BUDDY;
        }
        if pinned {
            return Err(Errno::INTR);
        }
        if !self.brought_back.contains(&number) {
            self.fill(number, BLOCK, bit::NOPAGE, 0);
            self.online_blocks.insert(number, false);
        }
        Ok(())
    }

    fn zoneinfo(&self) -> String {
        let mut text = String::new();
        let two = self.second_node.is_some();
        let counts = self.page_counts();
        for (node, name) in
            [(0, "DMA"), (0, "Normal"), (0, "Movable"), (1, "Normal"), (1, "Movable")]
        {
            let mine = |number: &u64| (self.node(*number), self.zones[number]) == (node, name);
            let of_zone: Vec<u64> = self.zones.keys().copied().filter(mine).collect();
            // Zones of the only node are there without any memory, too.
            if node == 1 && (!two || of_zone.is_empty()) {
                continue;
            }
            let (mut blocks, mut free, mut cache) = (0, 0, 0);
            for (more_free, more_cache) in of_zone.iter().filter_map(|number| counts.get(number)) {
                blocks += 1;
                free += more_free;
                cache += more_cache;
            }
            let (first, last) = (
                of_zone.first().map_or(0, |first| *first),
                of_zone.last().map_or(0, |last| last + 1),
            );
            text += &format!(
                "Node {node}, zone {name}\n  pages free     {}\n        min      100\n        \
                 low      200\n        high     300\n        spanned  {}\n        \
                 present  {}\n        managed  {}\n        protection: (0, 0)\n      \
                 nr_zone_inactive_file {}\n  pagesets\n    \
                 cpu: 0\n     count: 5\n     batch: {}\n  start_pfn: {}\n",
                free,
                (last - first) * BLOCK,
                blocks * BLOCK,
                (blocks * BLOCK).saturating_sub(self.not_given),
                cache,
                self.per_cpu_batch,
                first * BLOCK,
            );
        }
        text
    }
}

/// `/proc/meminfo` with this much available; the other lines are those that its parser requires.
fn meminfo_text(available_kib: u64, total_kib: u64) -> String {
    let others = [
        "MemFree",
        "Buffers",
        "Cached",
        "SwapCached",
        "Active",
        "Inactive",
        "SwapTotal",
        "SwapFree",
        "Dirty",
        "Writeback",
        "Mapped",
        "Slab",
        "Committed_AS",
        "VmallocTotal",
        "VmallocUsed",
        "VmallocChunk",
    ];
    let mut text = format!("MemTotal: {total_kib} kB\nMemAvailable: {available_kib} kB\n");
    for name in others {
        text += &format!("{name}: 0 kB\n");
    }
    text
}

impl SystemFiles for FakeMachine {
    fn text(&self, path: &str) -> io::Result<String> {
        let mut inner = self.inner();
        inner.now_ms += 1;
        inner.state_reads += u64::from(path == STATE);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        if let Some(text) = inner.saved_files.get(path) {
            return Ok(text.clone());
        }
        if let Some(rest) = path.strip_prefix("sys/devices/system/memory/memory") {
            let (number, file) = rest.split_once('/').ok_or_else(missing)?;
            let number = number.parse().map_err(|_| missing())?;
            let online = *inner.online_blocks.get(&number).ok_or_else(missing)?;
            return Ok(match file {
                "state" if online => "online".to_owned(),
                "state" => "offline".to_owned(),
                "valid_zones" if inner.without_hotremove => return Err(missing()),
                _ if online => inner.zones[&number].to_owned(),
                // What the kernel would choose by itself is not always what it was.
                _ => "Normal Movable".to_owned(),
            });
        }
        Ok(match path {
            "sys/devices/system/memory/block_size_bytes" => "4000000".to_owned(),
            "proc/zoneinfo" if inner.zones_unreadable => return Err(Errno::IO.into()),
            "proc/zoneinfo" => inner.zoneinfo(),
            "proc/meminfo" => {
                inner.meminfo_reads += 1;
                let pages: u64 =
                    inner.page_counts().values().map(|(free, cache)| free + cache).sum();
                let online = inner.online_blocks.values().filter(|online| **online).count() as u64;
                meminfo_text(pages * 4, online * BLOCK * 4)
            }
            "proc/vmstat" => "pgmigrate_success 0\npgfault 7\npgalloc_normal 9".to_owned(),
            "proc/cpuinfo" => "processor : 0\ncpu MHz : 1000.0".to_owned(),
            _ => return Err(missing()),
        })
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let number =
            path.split('/').nth(4).and_then(|name| name.strip_prefix("memory")?.parse().ok());
        let number = number.unwrap();
        let sleep = self.inner().write_sleep;
        std::thread::sleep(sleep);
        let (result, pinned) = {
            let mut inner = self.inner();
            (inner.switch(number, text), inner.pinned_blocks.contains(&number))
        };
        if pinned && text == "offline" {
            // As the kernel: until a signal comes.
            poll(&mut [], Some(&Timespec { tv_sec: 60, tv_nsec: 0 }))?;
        }
        Ok(result?)
    }

    fn check_writable(&self, path: &str) -> io::Result<()> {
        if self.inner().read_only && path.starts_with("sys/") {
            return Err(Errno::ROFS.into());
        }
        Ok(())
    }

    fn architecture(&self) -> String {
        self.inner().architecture.unwrap_or("x86_64").to_owned()
    }

    fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let inner = self.inner();
        if directory == "sys/devices/system/node" {
            return Ok(inner
                .second_node
                .map_or(Vec::new(), |_| vec!["node0".to_owned(), "node1".to_owned()]));
        }
        if let Some(node) = directory.strip_prefix("sys/devices/system/node/node") {
            let mine = inner
                .online_blocks
                .keys()
                .filter(|number| inner.node(**number).to_string() == node);
            return Ok(mine.map(|number| format!("memory{number}")).collect());
        }
        if directory != "sys/devices/system/memory" {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut names = vec!["block_size_bytes".to_owned(), "probe".to_owned()];
        names.extend(inner.online_blocks.keys().map(|number| format!("memory{number}")));
        Ok(names)
    }

    fn words(&self, path: &str, first: u64, into: &mut [u64]) -> io::Result<usize> {
        let mut inner = self.inner();
        inner.now_ms += inner.batch_ms;
        inner.pages_read += if path == "proc/kpageflags" { into.len() as u64 } else { 0 };
        let from = match path {
            "proc/kpageflags" => &inner.flags,
            "proc/kpagecount" => &inner.counts,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        let rest = &from[(first as usize).min(from.len())..];
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn save(&self, path: &str, text: &str) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.save_fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.saved_files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn lock(&self) -> io::Result<Option<RequestLock>> {
        // Requests of one process follow one another in these tests.
        Ok((!self.inner().lock_held).then(|| Box::new(()) as RequestLock))
    }

    fn now(&self) -> Duration {
        let mut inner = self.inner();
        inner.now_ms += 1;
        Duration::from_millis(inner.now_ms)
            + inner.real_start.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn pause(&self, time: Duration) {
        let mut inner = self.inner();
        if inner.real_start.is_some() {
            drop(inner);
            std::thread::sleep(time);
        } else {
            inner.now_ms += u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        }
    }

    fn cpu_time(&self) -> Duration {
        Duration::from_millis(self.inner().now_ms)
    }

    fn is_interrupted(&self) -> bool {
        let inner = self.inner();
        inner.interrupting_write.is_some_and(|at| inner.writes.len() >= at)
    }

    fn path(&self, path: &str) -> PathBuf {
        Path::new("/").join(path)
    }
}

/// What the backend remembers.
#[cfg(test)]
pub(super) fn saved_state(fake: &FakeMachine) -> String {
    fake.inner().saved_files.get(STATE).cloned().unwrap_or_default()
}
