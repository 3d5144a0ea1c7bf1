//! What `/proc/kpageflags` and `/proc/kpagecount` say about a page, in the terms of the patched
//! kernel.

use ramslice_types::{PageClass, PageFlag, PageFlags, Pages, Reason, SliceCounters};

/// Bits of `/proc/kpageflags` (`Documentation/admin-guide/mm/pagemap.rst`). Those from 32 on are in
/// `include/linux/kernel-page-flags.h` alone, and procfs does not have them.
pub(super) mod bit {
    use procfs_core::PhysicalPageFlags as Flags;

    /// The content has been read.
    pub(crate) const READ_IN: u64 = Flags::UPTODATE.bits();
    pub(crate) const DIRTY: u64 = Flags::DIRTY.bits();
    pub(crate) const LRU: u64 = Flags::LRU.bits();
    pub(crate) const SLAB: u64 = Flags::SLAB.bits();
    pub(crate) const WRITEBACK: u64 = Flags::WRITEBACK.bits();
    pub(crate) const BUDDY: u64 = Flags::BUDDY.bits();
    pub(crate) const MMAP: u64 = Flags::MMAP.bits();
    pub(crate) const ANON: u64 = Flags::ANON.bits();
    pub(crate) const SWAPCACHE: u64 = Flags::SWAPCACHE.bits();
    pub(crate) const SWAPBACKED: u64 = Flags::SWAPBACKED.bits();
    pub(crate) const COMPOUND_HEAD: u64 = Flags::COMPOUND_HEAD.bits();
    pub(crate) const COMPOUND_TAIL: u64 = Flags::COMPOUND_TAIL.bits();
    pub(crate) const HUGE: u64 = Flags::HUGE.bits();
    pub(crate) const UNEVICTABLE: u64 = Flags::UNEVICTABLE.bits();
    pub(crate) const HWPOISON: u64 = Flags::HWPOISON.bits();
    pub(crate) const NOPAGE: u64 = Flags::NOPAGE.bits();
    pub(crate) const KSM: u64 = Flags::KSM.bits();
    pub(crate) const OFFLINE: u64 = Flags::OFFLINE.bits();
    pub(crate) const PGTABLE: u64 = Flags::PGTABLE.bits();
    pub(crate) const RESERVED: u64 = 1 << 32;
    pub(crate) const MLOCKED: u64 = 1 << 33;
    pub(crate) const PRIVATE: u64 = 1 << 35;
    pub(crate) const OWNER_PRIVATE: u64 = 1 << 37;
}

/// Pages of a folio of a pageblock on x86-64; one larger is gigantic.
const PAGEBLOCK: u64 = 512;

/// Whether a page shows nothing of its use: either the kernel uses it, or it is free in a CPU's
/// list, or the allocator does not have it yet.
pub(super) fn is_bare(flags: u64) -> bool {
    flags & !(bit::COMPOUND_HEAD | bit::COMPOUND_TAIL) == 0
}

/// What a page is used for, and whether it can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageUse {
    pub(super) class: PageClass,
    /// Why it keeps its block on.
    pub(super) reason: Reason,
    pub(super) flags: PageFlags,
    pub(super) mappings: u64,
    /// A part of the folio before it.
    pub(super) tail: bool,
    /// Either the kernel uses it, or it is free in a CPU's list. User space cannot know which.
    pub(super) unknown_use: bool,
}

impl PageUse {
    /// A page that no program and no allocator has: `reason` keeps its block on, if any does.
    pub(super) fn without_owner(class: PageClass, reason: Reason) -> Self {
        let flags = PageFlags::default();
        Self { class, reason, flags, mappings: 0, tail: false, unknown_use: false }
    }

    /// Whether its use is unknown and it may keep its block on.
    pub(super) fn may_stay(&self) -> bool {
        self.unknown_use && self.reason == Reason::Unmovable
    }
}

/// Goes through pages in order; a tail is what its head is.
#[derive(Debug, Default)]
pub(super) struct FolioWalk {
    head: Option<PageUse>,
    /// Pages of the folio so far.
    length: u64,
}

impl FolioWalk {
    /// The next page. `movable`: in a zone that has nothing but movable pages.
    pub(super) fn next_page(&mut self, flags: u64, mappings: u64, movable: bool) -> PageUse {
        let tail = flags & bit::COMPOUND_TAIL != 0;
        self.length = if tail { self.length + 1 } else { 1 };
        let mut page = match self.head {
            Some(head) if tail => PageUse { mappings, tail, ..head },
            _ => PageUse { tail, ..classify(flags, mappings, movable) },
        };
        if page.class == PageClass::Hugetlb && self.length > PAGEBLOCK {
            page.reason = Reason::Gigantic;
        }
        // What follows is a folio of its own unless it says that it is a tail.
        self.head = Some(page);
        page
    }
}

fn classify(raw: u64, mappings: u64, movable: bool) -> PageUse {
    let has = |bits: u64| raw & bits != 0;
    let cached = has(bit::LRU | bit::ANON | bit::MMAP | bit::READ_IN | bit::SWAPBACKED);
    let (class, reason) = match () {
        () if has(bit::NOPAGE) => (PageClass::Hole, Reason::Hole),
        () if has(bit::HWPOISON) => (PageClass::HwPoison, Reason::HwPoison),
        () if has(bit::BUDDY) => (PageClass::Free, Reason::None),
        () if has(bit::RESERVED) => (PageClass::Reserved, Reason::Boot),
        () if has(bit::OFFLINE) => (PageClass::Foreign, Reason::ForeignOffline),
        () if has(bit::SLAB) => (PageClass::Slab, Reason::Slab),
        () if has(bit::PGTABLE) => (PageClass::PageTable, Reason::PageTable),
        // They move, but into free pages of the pool if it has any, and the kernel dissolves the
        // free ones of a block that goes offline: the pool would stay smaller even after the block
        // is back. Flags do not show which are in use without being mapped, either.
        () if has(bit::HUGE) => (PageClass::Hugetlb, Reason::Hugetlb),
        () if has(bit::ANON) => (PageClass::Anonymous, Reason::None),
        () if has(bit::SWAPCACHE) => (PageClass::SwapCache, Reason::None),
        () if cached && has(bit::SWAPBACKED) => (PageClass::Shmem, Reason::None),
        () if cached => (PageClass::File, Reason::None),
        () if movable => (PageClass::Transit, Reason::None),
        () => (PageClass::Kernel, Reason::Unmovable),
    };
    PageUse {
        class,
        reason,
        flags: flags(raw, class),
        mappings,
        tail: false,
        unknown_use: is_bare(raw),
    }
}

fn flags(raw: u64, class: PageClass) -> PageFlags {
    let swap_backed = raw & (bit::SWAPBACKED | bit::ANON) != 0;
    let flag = |bits: u64, flag: PageFlag| (raw & bits != 0).then_some(flag);
    if matches!(class, PageClass::Free | PageClass::Hole | PageClass::Reserved | PageClass::Kernel)
    {
        return PageFlags::default();
    }
    // A stock kernel moves clean cache, too: nothing is ever marked to be dropped.
    [
        flag(bit::LRU, PageFlag::Lru),
        flag(bit::DIRTY, PageFlag::Dirty).filter(|_| !swap_backed),
        flag(bit::WRITEBACK, PageFlag::Writeback),
        flag(bit::PRIVATE, PageFlag::Buffers).filter(|_| class == PageClass::File),
        flag(bit::SWAPCACHE, PageFlag::SwapCache).filter(|_| swap_backed),
        flag(bit::UNEVICTABLE, PageFlag::Unevictable),
        flag(bit::MLOCKED, PageFlag::Mlocked),
        flag(bit::KSM, PageFlag::Ksm),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What a range of pages holds, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageSum {
    pub(super) counters: SliceCounters,
    pub(super) present: Pages,
    /// Pages to migrate, and all their mappings.
    pub(super) moves: Pages,
    pub(super) mappings: u64,
    /// Pages of unknown use, until [`PageSum::finish`] has decided on them.
    pub(super) unknown_use: Pages,
    /// Those of them that are counted as free because CPUs' lists may hold that many.
    pub(super) perhaps_free: Pages,
    /// Pages that cannot move, and the reason that is hardest to remove.
    pub(super) staying: Pages,
    pub(super) reason: Reason,
}

impl PageSum {
    /// Adds a page.
    pub(super) fn add(&mut self, page: &PageUse) {
        let one = Pages(1);
        if matches!(page.class, PageClass::Hole | PageClass::Memmap) {
            self.raise_reason(page.reason);
            return;
        }
        self.present += one;
        if page.may_stay() {
            self.unknown_use += one;
            return;
        }
        if page.reason != Reason::None {
            self.staying += one;
            self.raise_reason(page.reason);
            return;
        }
        let counters = &mut self.counters;
        let mapped = page.mappings > 0;
        match page.class {
            PageClass::Free | PageClass::Transit => {
                counters.free += one;
                return;
            }
            PageClass::Anonymous | PageClass::SwapCache => {
                counters.lru_anon += one;
                counters.anon_mapped += Pages(u64::from(mapped));
            }
            PageClass::Shmem => {
                counters.lru_anon += one;
                counters.file += one;
                counters.shmem += one;
                counters.file_mapped += Pages(u64::from(mapped));
            }
            _ => {
                counters.lru_file += one;
                counters.file += one;
                counters.file_mapped += Pages(u64::from(mapped));
            }
        }
        if page.class == PageClass::File && !mapped {
            counters.dirty += Pages(u64::from(page.flags.has(PageFlag::Dirty)));
            counters.writeback += Pages(u64::from(page.flags.has(PageFlag::Writeback)));
        }
        self.moves += one;
        self.mappings += page.mappings;
    }

    /// Adds another range.
    pub(super) fn merge(&mut self, other: &Self) {
        let (into, from) = (&mut self.counters, &other.counters);
        into.free += from.free;
        into.lru_anon += from.lru_anon;
        into.lru_file += from.lru_file;
        into.anon_mapped += from.anon_mapped;
        into.file_mapped += from.file_mapped;
        into.file += from.file;
        into.shmem += from.shmem;
        into.dirty += from.dirty;
        into.writeback += from.writeback;
        self.present += other.present;
        self.moves += other.moves;
        self.mappings += other.mappings;
        self.unknown_use += other.unknown_use;
        self.staying += other.staying;
        self.raise_reason(other.reason);
    }

    /// Counts pages of unknown use as free if the CPUs' lists may hold that many: then they are no
    /// reason not to try. The kernel drains these lists first, and looks at what is left before it
    /// moves a page.
    pub(super) fn finish(&mut self, per_cpu: Pages) {
        if self.unknown_use <= per_cpu {
            self.counters.free += self.unknown_use;
            self.perhaps_free = self.unknown_use;
        } else {
            self.staying += self.unknown_use;
            self.raise_reason(Reason::Unmovable);
        }
        self.unknown_use = Pages::ZERO;
    }

    /// Whether it can never be emptied.
    pub(super) fn never_emptied(&self) -> bool {
        matches!(
            self.reason,
            Reason::Hole
                | Reason::ZoneEnd
                | Reason::ZoneEdge
                | Reason::Boot
                | Reason::BootMemory
                | Reason::HwPoison
                | Reason::ForeignOffline
        )
    }

    /// Keeps the reason that is hardest to remove.
    pub(super) fn raise_reason(&mut self, reason: Reason) {
        let rank = |reason: Reason| match reason {
            Reason::None => 0,
            Reason::Unmovable => 1,
            Reason::PageTable => 2,
            Reason::Slab => 3,
            Reason::Hugetlb => 4,
            Reason::Gigantic => 5,
            Reason::NotGiven => 6,
            _ => 7,
        };
        if rank(reason) > rank(self.reason) {
            self.reason = reason;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(flags: u64, mappings: u64) -> PageUse {
        FolioWalk::default().next_page(flags, mappings, false)
    }

    #[test]
    fn every_page_has_the_class_and_the_reason_of_the_patched_kernel() {
        let anon = bit::LRU | bit::ANON | bit::SWAPBACKED | bit::MMAP;
        for (flags, class, reason) in [
            (bit::NOPAGE, PageClass::Hole, Reason::Hole),
            (bit::BUDDY, PageClass::Free, Reason::None),
            (bit::RESERVED, PageClass::Reserved, Reason::Boot),
            (bit::SLAB, PageClass::Slab, Reason::Slab),
            (bit::PGTABLE, PageClass::PageTable, Reason::PageTable),
            (bit::HUGE | bit::COMPOUND_HEAD, PageClass::Hugetlb, Reason::Hugetlb),
            (anon, PageClass::Anonymous, Reason::None),
            (anon & !bit::LRU, PageClass::Anonymous, Reason::None),
            (bit::LRU | bit::READ_IN, PageClass::File, Reason::None),
            (bit::LRU | bit::READ_IN | bit::SWAPBACKED, PageClass::Shmem, Reason::None),
            (bit::OFFLINE, PageClass::Foreign, Reason::ForeignOffline),
            (bit::HWPOISON | bit::LRU, PageClass::HwPoison, Reason::HwPoison),
            (0, PageClass::Kernel, Reason::Unmovable),
        ] {
            let page = one(flags, 0);
            assert_eq!((page.class, page.reason), (class, reason), "{flags:#x}");
        }
    }

    #[test]
    fn a_tail_is_what_its_head_is_although_its_flags_do_not_say() {
        let mut walk = FolioWalk::default();
        walk.next_page(bit::COMPOUND_HEAD | bit::LRU | bit::ANON, 1, false);
        let tail = walk.next_page(bit::COMPOUND_TAIL, 1, false);
        assert_eq!(
            (tail.class, tail.reason, tail.tail),
            (PageClass::Anonymous, Reason::None, true)
        );
        assert_eq!(walk.next_page(0, 0, false).class, PageClass::Kernel);
    }

    #[test]
    fn a_page_of_the_hugetlb_pool_stays_whether_anybody_maps_it_or_not() {
        for mappings in [0, 1] {
            let mut sum = PageSum::default();
            let mut walk = FolioWalk::default();
            sum.add(&walk.next_page(bit::HUGE | bit::COMPOUND_HEAD, mappings, true));
            for _ in 1..PAGEBLOCK {
                sum.add(&walk.next_page(bit::COMPOUND_TAIL, mappings, true));
            }
            assert_eq!(
                (sum.staying, sum.reason, sum.never_emptied()),
                (Pages(PAGEBLOCK), Reason::Hugetlb, false)
            );
        }
    }

    #[test]
    fn a_huge_page_of_more_than_a_pageblock_stays() {
        let mut walk = FolioWalk::default();
        let mut last = walk.next_page(bit::HUGE | bit::COMPOUND_HEAD, 0, false);
        for _ in 0..PAGEBLOCK {
            last = walk.next_page(bit::HUGE | bit::COMPOUND_TAIL, 0, false);
        }
        assert_eq!(last.reason, Reason::Gigantic);
    }

    #[test]
    fn a_few_unknown_pages_may_be_in_the_cpus_lists_but_many_are_the_kernels() {
        let mut sum = PageSum::default();
        for _ in 0..10 {
            sum.add(&one(0, 0));
        }
        let (mut few, mut many) = (sum, sum);
        few.finish(Pages(10));
        assert_eq!(
            (few.counters.free, few.staying, few.reason),
            (Pages(10), Pages(0), Reason::None)
        );
        many.finish(Pages(9));
        assert_eq!(
            (many.counters.free, many.staying, many.reason),
            (Pages(0), Pages(10), Reason::Unmovable)
        );
    }

    #[test]
    fn in_a_movable_zone_unknown_pages_are_on_their_way() {
        assert_eq!(FolioWalk::default().next_page(0, 0, true).class, PageClass::Transit);
    }

    #[test]
    fn what_can_never_be_emptied_outweighs_what_may_go() {
        let mut sum = PageSum::default();
        for flags in [bit::SLAB, bit::RESERVED, bit::PGTABLE] {
            sum.add(&one(flags, 0));
        }
        assert_eq!((sum.reason, sum.never_emptied(), sum.staying), (Reason::Boot, true, Pages(3)));
    }
}
