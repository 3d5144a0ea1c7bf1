//! The pages that are really there: read back from the kernel, not from what was tried.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use procfs_core::process::{MemoryMaps, MemoryPageFlags, Status};
use procfs_core::{FromRead, Meminfo};
use ramslice_types::Bytes;
use serde::Serialize;

use crate::error::FragmentError;

/// Base pages of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PagesByKind {
    /// To be freed.
    pub free_pages: u64,
    /// Anonymous.
    pub anon_pages: u64,
    /// Of the file.
    pub file_pages: u64,
}

/// The pages that were made, and those that are there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageAccount {
    /// Size of a base page.
    pub page_bytes: u64,
    /// Steps walked; each decides for one page of each kind, or for one huge page's worth.
    pub steps: u64,
    /// Size of what a step decides about.
    pub step_bytes: u64,
    /// Pages that were touched. In huge pages, all pages of one that was touched.
    pub touched: PagesByKind,
    /// Of the area to be freed, pages that were there when it was freed, by pagemap.
    pub freed_pages: u64,
    /// Anonymous pages that are there, by pagemap.
    pub anon_present_pages: u64,
    /// Anonymous pages that are in swap, by pagemap.
    pub anon_swapped_pages: u64,
    /// Of the anonymous pages, those in huge pages, by smaps.
    pub anon_huge_pages: u64,
    /// Processes that map the anonymous pages.
    pub processes: u64,
    /// How many processes map an anonymous page on average: resident over proportional set size, by
    /// smaps.
    pub mappings_per_anon_page: Option<f64>,
    /// File pages in the page cache, by mincore. They are not mapped.
    pub file_present_pages: u64,
    /// The kernel's page tables of this process; each of the others has about as many.
    pub page_table_bytes: u64,
    /// The same in equal parts of the walk, first to last: a gradient shows here.
    pub bins: Vec<WalkBin>,
}

/// A part of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WalkBin {
    /// Its first step.
    pub first_step: u64,
    /// Its number of steps.
    pub steps: u64,
    /// Pages that were touched.
    pub touched: PagesByKind,
    /// Anonymous pages that are there.
    pub anon_present_pages: u64,
    /// File pages in the page cache.
    pub file_present_pages: u64,
}

/// Bits of an entry of `/proc/PID/pagemap`.
const PRESENT: u64 = MemoryPageFlags::PRESENT.bits();
const SWAPPED: u64 = MemoryPageFlags::SWAP.bits();

/// Whether each page of a range of addresses is there, or in swap.
pub(crate) struct ResidencyMap {
    entries: Vec<u64>,
}

impl ResidencyMap {
    pub(crate) fn read(addresses: &Range<usize>, page_bytes: usize) -> Result<Self, FragmentError> {
        let path = Path::new("/proc/self/pagemap");
        let failed =
            |source| FragmentError::File { action: "reading", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let pages = (addresses.end - addresses.start) / page_bytes;
        let mut bytes = vec![0; pages * 8];
        file.read_exact_at(&mut bytes, (addresses.start / page_bytes * 8) as u64)
            .map_err(failed)?;
        let entries = bytes.as_chunks().0.iter().map(|&entry| u64::from_ne_bytes(entry)).collect();
        Ok(Self { entries })
    }

    /// Pages there among these, by position.
    pub(crate) fn present(&self, pages: Range<usize>) -> u64 {
        self.entries[pages].iter().filter(|&&entry| entry & PRESENT != 0).count() as u64
    }

    pub(crate) fn all_present(&self) -> u64 {
        self.present(0..self.entries.len())
    }

    pub(crate) fn swapped(&self) -> u64 {
        self.entries.iter().filter(|&&entry| entry & PRESENT == 0 && entry & SWAPPED != 0).count()
            as u64
    }
}

/// One mapping in `/proc/self/smaps`, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SmapsEntry {
    /// Resident.
    pub(crate) rss: u64,
    /// Resident, divided among the processes that map it.
    pub(crate) pss: u64,
    /// Resident in huge pages.
    pub(crate) huge: u64,
}

impl SmapsEntry {
    /// Of the mapping at exactly these addresses.
    pub(crate) fn read(addresses: &Range<usize>) -> Result<Self, FragmentError> {
        let path = Path::new("/proc/self/smaps");
        Self::find(&read::<MemoryMaps>(path)?, addresses)
            .ok_or_else(|| FragmentError::Missing { path: path.to_owned(), name: "the area" })
    }

    fn find(mappings: &MemoryMaps, addresses: &Range<usize>) -> Option<Self> {
        let wanted = (addresses.start as u64, addresses.end as u64);
        let mapping = mappings.iter().find(|mapping| mapping.address == wanted)?;
        let kib = |name: &str| mapping.extension.map.get(name).map_or(0, |bytes| bytes / 1024);
        Some(Self { rss: kib("Rss"), pss: kib("Pss"), huge: kib("AnonHugePages") })
    }

    /// How many processes map a page on average.
    pub(crate) fn mappings(&self) -> Option<f64> {
        (self.pss > 0).then(|| self.rss as f64 / self.pss as f64)
    }
}

/// Reads a file of `/proc`.
fn read<T: FromRead>(path: &Path) -> Result<T, FragmentError> {
    T::from_file(path).map_err(|source| FragmentError::File {
        action: "reading",
        path: path.to_owned(),
        source: std::io::Error::other(source),
    })
}

/// `MemAvailable`.
pub(crate) fn available_memory() -> Result<Bytes, FragmentError> {
    let path = Path::new("/proc/meminfo");
    let available = read::<Meminfo>(path)?.mem_available.map(Bytes);
    available.ok_or_else(|| FragmentError::Missing { path: path.to_owned(), name: "MemAvailable" })
}

/// Bytes of this process's page tables.
pub(crate) fn page_table_bytes() -> Result<u64, FragmentError> {
    let path = Path::new("/proc/self/status");
    let kib = read::<Status>(path)?.vmpte;
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| FragmentError::Missing { path: path.to_owned(), name: "VmPTE" })
}

/// The file's pages in the cache, by position.
pub(crate) fn cached(
    file: &File,
    bytes: usize,
    page_bytes: usize,
) -> Result<Vec<bool>, FragmentError> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let pages =
        crate::sys::cached(file, bytes, page_bytes).map_err(FragmentError::system("mincore"))?;
    Ok(pages.into_iter().map(|page| page & 1 != 0).collect())
}

/// How many are set.
pub(crate) fn count(pages: &[bool]) -> u64 {
    pages.iter().filter(|&&page| page).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f00-7f80 rw-p 00000000 00:00 0 \nSize:   4 kB\nRss:   400 kB\nPss:   100 kB\nPss_Dirty:  1 \
                         kB\nAnonHugePages:  200 kB\nVmFlags: rd wr mr\n8000-9000 r--p 00000000 \
                         00:00 0   /a: b\nRss:   1 kB\nPss:  1 kB\n";

    #[test]
    fn figures_are_those_of_the_mapping_alone() {
        let mappings = MemoryMaps::from_read(SMAPS.as_bytes()).unwrap();
        let found = SmapsEntry::find(&mappings, &(0x7f00..0x7f80)).unwrap();
        assert_eq!(found, SmapsEntry { rss: 400, pss: 100, huge: 200 });
        assert_eq!(found.mappings(), Some(4.0));
        assert_eq!(SmapsEntry::find(&mappings, &(0x8000..0x9000)).unwrap().rss, 1);
        assert_eq!(SmapsEntry::find(&mappings, &(0x7f00..0x9000)), None);
    }

    #[test]
    fn this_process_has_memory_available_and_page_tables() {
        assert!(available_memory().unwrap() > Bytes::ZERO);
        assert!(page_table_bytes().unwrap() > 0);
        let missing = Path::new("/proc/self/nowhere");
        assert!(matches!(read::<Meminfo>(missing), Err(FragmentError::File { .. })));
    }
}
