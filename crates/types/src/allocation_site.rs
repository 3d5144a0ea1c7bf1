//! Which code allocated pages: records of `page_owner`, grouped by call stack.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Pages, Pfn};

/// One allocation that `page_owner` remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAllocation {
    /// Its first page frame.
    pub pfn: Pfn,
    /// It has 2^order pages.
    pub order: u32,
    /// GFP flags by name.
    pub gfp: String,
    /// Name of the process that allocated it.
    pub process: String,
    /// Its process id, as the kernel's first namespace counts.
    pub pid: u32,
    /// Functions from the innermost.
    pub stack: Vec<String>,
}

/// A process at a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProcess {
    /// Its name.
    pub name: String,
    /// One of its process ids.
    pub pid: u32,
    /// Pages it allocated there.
    pub pages: Pages,
}

/// Pages that the same code allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSite {
    /// How many.
    pub pages: Pages,
    /// In how many allocations.
    pub allocations: u64,
    /// Their orders, ascending.
    pub orders: Vec<u32>,
    /// Their GFP flags.
    pub gfp: Vec<String>,
    /// The processes, most pages first.
    pub processes: Vec<SiteProcess>,
    /// The code: functions from the innermost.
    pub stack: Vec<String>,
}

impl AllocationSite {
    /// Groups allocations by stack, most pages first. Equal ones keep the order of addresses.
    pub fn group(allocations: impl IntoIterator<Item = PageAllocation>) -> Vec<Self> {
        let mut sites: BTreeMap<Vec<String>, Self> = BTreeMap::new();
        for one in allocations {
            let site =
                sites.entry(one.stack.clone()).or_insert_with(|| Self::new(one.stack.clone()));
            site.add(Self {
                pages: Pages(1 << one.order.min(63)),
                allocations: 1,
                orders: vec![one.order],
                gfp: vec![one.gfp],
                processes: vec![SiteProcess {
                    name: one.process,
                    pid: one.pid,
                    pages: Pages(1 << one.order.min(63)),
                }],
                stack: Vec::new(),
            });
        }
        Self::sort(sites.into_values().collect())
    }

    /// The sites of several slices as one list.
    pub fn merge<'a>(lists: impl IntoIterator<Item = &'a [Self]>) -> Vec<Self> {
        let mut sites: BTreeMap<&[String], Self> = BTreeMap::new();
        for site in lists.into_iter().flatten() {
            sites
                .entry(&site.stack)
                .or_insert_with(|| Self::new(site.stack.clone()))
                .add(site.clone());
        }
        Self::sort(sites.into_values().collect())
    }

    fn new(stack: Vec<String>) -> Self {
        let (orders, gfp, processes) = (Vec::new(), Vec::new(), Vec::new());
        Self { pages: Pages::ZERO, allocations: 0, orders, gfp, processes, stack }
    }

    fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.allocations += other.allocations;
        self.orders.extend(other.orders);
        self.orders.sort_unstable();
        self.orders.dedup();
        for gfp in other.gfp {
            if !self.gfp.contains(&gfp) {
                self.gfp.push(gfp);
            }
        }
        for process in other.processes {
            match self.processes.iter_mut().find(|known| known.name == process.name) {
                Some(known) => known.pages += process.pages,
                None => self.processes.push(process),
            }
        }
    }

    fn sort(mut sites: Vec<Self>) -> Vec<Self> {
        for site in &mut sites {
            site.processes.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.name.cmp(&b.name)));
        }
        sites.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.stack.cmp(&b.stack)));
        sites
    }

    /// The most specific function: the first that does not belong to the allocator itself.
    pub fn caller(&self) -> &str {
        let specific =
            self.stack.iter().map(|line| line.split('+').next().unwrap_or(line)).find(|name| {
                !ALLOCATOR.iter().any(|prefix| name.trim_start_matches('_').starts_with(prefix))
            });
        specific.or(self.stack.first().map(String::as_str)).unwrap_or("unknown")
    }
}

/// Functions between `page_owner` and the code that asked for memory.
const ALLOCATOR: &[&str] = &[
    "set_page_owner",
    "post_alloc_hook",
    "get_page_from_freelist",
    "alloc_pages",
    "alloc_page",
    "alloc_frozen_pages",
    "folio_alloc",
    "vma_alloc_folio",
    "get_free_pages",
    "get_zeroed_page",
    "alloc_slab_page",
    "allocate_slab",
    "new_slab",
    "slab_alloc",
    "slab_alloc_node",
    "kmem_cache_alloc",
    "kmalloc",
    "do_kmalloc",
    "kvmalloc",
    "filemap_alloc_folio",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pfn: u64, order: u32, process: &str, stack: &[&str]) -> PageAllocation {
        PageAllocation {
            pfn: Pfn(pfn),
            order,
            gfp: "GFP_KERNEL".to_owned(),
            process: process.to_owned(),
            pid: 7,
            stack: stack.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    #[test]
    fn allocations_of_the_same_code_are_one_site_and_the_largest_comes_first() {
        let sites = AllocationSite::group([
            one(1, 0, "cat", &["___slab_alloc+0x1/0x2", "ext4_alloc_inode+0x3/0x4"]),
            one(8, 3, "sh", &["pte_alloc_one+0x1/0x2"]),
            one(2, 0, "find", &["___slab_alloc+0x1/0x2", "ext4_alloc_inode+0x3/0x4"]),
            one(3, 0, "find", &["___slab_alloc+0x1/0x2", "ext4_alloc_inode+0x3/0x4"]),
        ]);
        assert_eq!(sites.len(), 2);
        assert_eq!((sites[0].pages, sites[0].orders.as_slice()), (Pages(8), &[3][..]));
        assert_eq!((sites[1].pages, sites[1].allocations), (Pages(3), 3));
        assert_eq!(
            (sites[1].processes[0].name.as_str(), sites[1].processes[0].pages),
            ("find", Pages(2))
        );
        assert_eq!(sites[1].caller(), "ext4_alloc_inode");
        let merged = AllocationSite::merge([&sites[..], &sites[1..]]);
        assert_eq!((merged[1].pages, merged[1].allocations), (Pages(6), 6));
    }
}
