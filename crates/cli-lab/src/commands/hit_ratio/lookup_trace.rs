//! Counts look-ups of the page cache from the kernel's trace events.
//!
//! ```text
//! buffered read   mm_filemap_add_to_page_cache ... mm_filemap_get_pages
//!                 one mm_filemap_get_pages for each batch of a read, always up to its end
//! fault           mm_filemap_map_pages: the page was there, and with it others around it; or
//!                 mm_filemap_fault, mm_filemap_add_to_page_cache ..., and the same fault again
//! ```
//!
//! What a thread adds before its look-up is complete was absent: the first page of a batch, or the
//! page of a fault. What is read ahead with it is found later, as by the counters of the kernel. A
//! fault that had to wait for its page comes again, as `mm_filemap_map_pages` or
//! `mm_filemap_fault`, and counts once.

use std::collections::HashMap;

use ramslice_record::{TraceLine, lost_events};
use ramslice_types::{CacheLookups, Pages};

const GET_PAGES: &str = "mm_filemap_get_pages";
const MAP_PAGES: &str = "mm_filemap_map_pages";
const FAULT: &str = "mm_filemap_fault";
const ADD: &str = "mm_filemap_add_to_page_cache";
/// The events, all of the system `filemap`.
pub(super) const EVENTS: [&str; 4] = [GET_PAGES, MAP_PAGES, FAULT, ADD];

/// A file: major and minor number of its device, and inode.
type TracedFile = (u32, u32, u64);

/// Pages of a file, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageRange {
    file: TracedFile,
    first: u64,
    last: u64,
}

impl PageRange {
    fn covers(&self, file: TracedFile, page: u64) -> bool {
        self.file == file && (self.first..=self.last).contains(&page)
    }
}

/// A fault of a thread that may come again.
#[derive(Debug, Clone, Copy)]
struct PendingFault {
    file: TracedFile,
    page: u64,
    absent: bool,
}

/// What is known of a thread since its last look-up.
#[derive(Debug, Default)]
struct TracedThread {
    added: Vec<PageRange>,
    /// The batch of a read that came last.
    batch: Option<PageRange>,
    /// A fault that found its page, unless a fault of its own follows.
    mapped: Option<PageRange>,
    fault: Option<PendingFault>,
}

/// Counts look-ups, line by line.
#[derive(Debug)]
pub(super) struct TraceLookups {
    counted: CacheLookups,
    threads: HashMap<i64, TracedThread>,
    lost: i64,
    /// Devices of shared memory: it is not of the page cache of files.
    memory_devices: Vec<(u32, u32)>,
    page_bytes: u64,
}

impl TraceLookups {
    /// Leaves out files on these devices; pages are of this size.
    pub(super) fn new(memory_devices: Vec<(u32, u32)>, page_bytes: u64) -> Self {
        let (counted, threads) = (CacheLookups::default(), HashMap::new());
        Self { counted, threads, lost: 0, memory_devices, page_bytes }
    }

    /// Takes a line of the trace.
    pub(super) fn take(&mut self, line: &str) {
        if let Some(lost) = lost_events(line) {
            self.lost += lost;
            return;
        }
        let Some(TraceLine { pid, name, payload, .. }) = TraceLine::of(line, &EVENTS) else {
            return;
        };
        let Some(range) = pages(name, payload, self.page_bytes) else { return };
        if self.memory_devices.contains(&(range.file.0, range.file.1)) {
            return;
        }
        let (thread, counted) = (self.threads.entry(pid).or_default(), &mut self.counted);
        match name {
            GET_PAGES => thread.read(range, counted),
            MAP_PAGES => thread.map(range, counted),
            FAULT => thread.fault(range, counted),
            _ => thread.add(range, counted),
        }
    }

    /// What was counted, and how many events were lost.
    pub(super) fn finish(mut self) -> (CacheLookups, i64) {
        for thread in self.threads.values_mut() {
            thread.settle(&mut self.counted);
        }
        (self.counted, self.lost)
    }
}

impl TracedThread {
    /// The last fault will not come again.
    fn settle(&mut self, counted: &mut CacheLookups) {
        counted.fault += Pages(u64::from(self.mapped.take().is_some()));
        self.fault = None;
    }

    fn read(&mut self, range: PageRange, counted: &mut CacheLookups) {
        self.settle(counted);
        let goes_on = self.batch.is_some_and(|batch| {
            batch.last == range.last
                && batch.first < range.first
                && batch.covers(range.file, range.first)
        });
        if !goes_on {
            counted.read += Pages(range.last - range.first + 1);
        }
        self.batch = Some(range);
        let added = std::mem::take(&mut self.added);
        let absent = added.iter().any(|added| added.covers(range.file, range.first));
        counted.absent_read += Pages(u64::from(absent));
    }

    fn map(&mut self, range: PageRange, counted: &mut CacheLookups) {
        let again =
            self.fault.is_some_and(|fault| fault.absent && range.covers(fault.file, fault.page));
        self.settle(counted);
        self.mapped = (!again).then_some(range);
    }

    fn fault(&mut self, range: PageRange, counted: &mut CacheLookups) {
        let (file, page) = (range.file, range.first);
        let again = self
            .fault
            .is_some_and(|fault| fault.absent && (fault.file, fault.page) == (file, page));
        if again {
            self.fault = None;
            return;
        }
        // It was not among the pages around it that could be mapped.
        self.mapped = self.mapped.filter(|mapped| !mapped.covers(file, page));
        self.settle(counted);
        counted.fault += Pages(1);
        self.added.clear();
        self.fault = Some(PendingFault { file, page, absent: false });
    }

    fn add(&mut self, range: PageRange, counted: &mut CacheLookups) {
        match &mut self.fault {
            Some(fault) => {
                if !fault.absent && range.covers(fault.file, fault.page) {
                    fault.absent = true;
                    counted.absent_fault += Pages(1);
                }
            }
            None => self.added.push(range),
        }
        // A write adds pages without looking any up: they would pile up.
        if self.added.len() > 4096 {
            self.added.drain(..2048);
        }
    }
}

/// `dev=8:1 ino=1a ofs=0-4095` of a range, `ofs=4096` of a page, and with `order=` of a folio.
fn pages(name: &str, payload: &str, page_bytes: u64) -> Option<PageRange> {
    let text = payload.replace('=', " ");
    let mut words = text.split_whitespace();
    let (mut device, mut inode, mut offset, mut order) = (None, None, None, 0);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "dev" => device = value.split_once(':'),
            "ino" => inode = u64::from_str_radix(value, 16).ok(),
            "ofs" => offset = Some(value),
            "order" => order = value.parse().ok()?,
            _ => {}
        }
    }
    let (major, minor) = device?;
    let file = (major.parse().ok()?, minor.parse().ok()?, inode?);
    let page = |bytes: &str| bytes.parse::<u64>().ok().map(|bytes| bytes / page_bytes);
    let (first, last) = match offset?.split_once('-') {
        Some((from, to)) => (page(from)?, page(to)?),
        None => {
            let first = page(offset?)?;
            (first, first + if name == ADD { (1u64 << order) - 1 } else { 0 })
        }
    };
    (first <= last).then_some(PageRange { file, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(events: &[(i64, &str, &str)], page_bytes: u64) -> CacheLookups {
        let mut lookups = TraceLookups::new(vec![(0, 1)], page_bytes);
        for (pid, name, payload) in events {
            lookups.take(&format!("   cat-{pid}   [001] ..... 12.345678: {name}: {payload}"));
        }
        let (counted, lost) = lookups.finish();
        assert_eq!(lost, 0);
        counted
    }

    fn sums(events: &[(i64, &str, &str)]) -> [u64; 4] {
        let found = counted(events, 4096);
        [found.read.0, found.absent_read.0, found.fault.0, found.absent_fault.0]
    }

    #[test]
    fn a_read_that_misses_counts_its_first_page_and_not_what_is_read_ahead() {
        let events = [
            (7, ADD, "dev 8:1 ino 1a pfn=0x1234 ofs=0 order=2"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x1238 ofs=16384 order=0"),
            // Another thread's
            (8, ADD, "dev 8:1 ino 1a pfn=0x1239 ofs=20480 order=0"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=0-8191"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=8192-16383"),
        ];
        assert_eq!(sums(&events), [4, 1, 0, 0]);
        // Behind a page that is there, pages are added ahead of need.
        let ahead = [
            (7, ADD, "dev 8:1 ino 1a pfn=0x1238 ofs=4096 order=0"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=0-8191"),
        ];
        assert_eq!(sums(&ahead), [2, 0, 0, 0]);
    }

    #[test]
    fn batches_of_one_read_count_once_and_the_same_read_again_counts_again() {
        let events = [
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=0-131071"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=61440-131071"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x1238 ofs=122880 order=1"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=122880-131071"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=0-131071"),
        ];
        assert_eq!(sums(&events), [64, 1, 0, 0]);
    }

    #[test]
    fn a_fault_counts_once_whether_it_hits_misses_or_comes_again() {
        let hit = [(7, MAP_PAGES, "dev=8:1 ino=1a ofs=0-65535")];
        assert_eq!(sums(&hit), [0, 0, 1, 0]);
        // Pages around it were mapped, and its own was missing; then it comes again.
        let miss = [
            (7, MAP_PAGES, "dev=8:1 ino=1a ofs=0-65535"),
            (7, FAULT, "dev=8:1 ino=1a ofs=4096"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x1 ofs=4096 order=0"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x2 ofs=8192 order=0"),
            (7, MAP_PAGES, "dev=8:1 ino=1a ofs=0-65535"),
        ];
        assert_eq!(sums(&miss), [0, 0, 1, 1]);
        let written = [
            (7, FAULT, "dev=8:1 ino=1a ofs=4096"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x1 ofs=4096 order=0"),
            (7, FAULT, "dev=8:1 ino=1a ofs=4096"),
            (7, FAULT, "dev=8:1 ino=1a ofs=8192"),
        ];
        assert_eq!(sums(&written), [0, 0, 2, 1]);
        // A fault that found its page reads ahead.
        let ahead = [
            (7, FAULT, "dev=8:1 ino=1a ofs=4096"),
            (7, ADD, "dev 8:1 ino 1a pfn=0x1 ofs=65536 order=4"),
            (7, MAP_PAGES, "dev=8:1 ino=1a ofs=0-65535"),
        ];
        assert_eq!(sums(&ahead), [0, 0, 2, 0]);
    }

    #[test]
    fn pages_are_of_the_size_of_the_machines() {
        let read = (7, GET_PAGES, "dev=8:1 ino=1a ofs=0-131071");
        let found = [4096, 16 << 10, 64 << 10].map(|bytes| counted(&[read], bytes).read.0);
        assert_eq!(found, [32, 8, 2]);
    }

    #[test]
    fn shared_memory_and_what_is_no_event_count_nothing() {
        let shared = [
            (7, MAP_PAGES, "dev=0:1 ino=1a ofs=0-65535"),
            (7, GET_PAGES, "dev=8:1 ino=1a ofs=x"),
            (7, "sched_switch", "prev=cat"),
        ];
        assert_eq!(sums(&shared), [0; 4]);
        let mut lookups = TraceLookups::new(Vec::new(), 4096);
        lookups.take("CPU:1 [LOST 345 EVENTS]");
        assert_eq!(lookups.finish().1, 345);
    }
}
