//! Reads the pages of a block: `/proc/kpageflags` and `/proc/kpagecount`.

use ramslice_types::{PageClass, Pages, Pfn, Reason};

use super::not_given::NotGiven;
use super::page_scan::PageScan;
use super::page_use::{FolioWalk, PageUse, bit};
use super::system_files::SystemFiles;
use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

pub(super) const FLAGS: &str = "proc/kpageflags";
const COUNTS: &str = "proc/kpagecount";

/// Pages read at once: 64 KiB of flags.
const BATCH: u64 = 8192;

/// `struct page`, which describes a page.
const PAGE_DESCRIPTOR_BYTES: u64 = 64;

/// An online block whose pages are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkedBlock {
    pub(super) first: Pfn,
    pub(super) pages: Pages,
    /// Its zone has nothing but movable pages.
    pub(super) movable: bool,
    pub(super) not_given: Option<NotGiven>,
    /// Pages at its beginning that may hold its own page descriptors.
    pub(super) memmap: Pages,
}

/// Calls `each` with every page of an online block.
pub(super) fn walk_pages(
    system: &dyn SystemFiles,
    block: &WalkedBlock,
    each: &mut dyn FnMut(u64, &PageUse),
) -> Result<(), KernelError> {
    let (first, pages) = (block.first, block.pages.0);
    let not_given = PageUse::without_owner(PageClass::NotGiven, Reason::NotGiven);
    let memmap = PageUse::without_owner(PageClass::Memmap, Reason::None);
    let mut memmap_left = block.memmap.0;
    let mut walk = FolioWalk::default();
    let mut flags = vec![0; BATCH as usize];
    let mut counts = vec![0; BATCH as usize];
    let mut at = 0;
    while at < pages {
        let length = BATCH.min(pages - at) as usize;
        let read = system
            .words(FLAGS, first.0 + at, &mut flags[..length])
            .map_err(|e| flags_error(system, FLAGS, e))?;
        let counted = system
            .words(COUNTS, first.0 + at, &mut counts[..length])
            .map_err(|e| flags_error(system, COUNTS, e))?;
        // Past the last page frame there is no memory.
        flags[read..length].fill(bit::NOPAGE);
        counts[counted..length].fill(0);
        let mut not_given_left = 0;
        for offset in 0..length {
            let (pfn, raw) = (first.0 + at + offset as u64, flags[offset]);
            if not_given_left == 0
                && let Some(kind) = block.not_given
            {
                not_given_left = kind.pages_at(pfn, &flags[offset..length]);
            }
            let page = walk.next_page(raw, counts[offset], block.movable);
            if !is_descriptor(raw) {
                memmap_left = 0;
            }
            if not_given_left > 0 {
                not_given_left -= 1;
                each(pfn, &not_given);
            } else if memmap_left > 0 {
                memmap_left -= 1;
                each(pfn, &memmap);
            } else {
                each(pfn, &page);
            }
        }
        at += length as u64;
    }
    Ok(())
}

/// Why a file with a word for each page cannot be read.
pub(super) fn flags_error(
    system: &dyn SystemFiles,
    path: &str,
    source: std::io::Error,
) -> KernelError {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => {
            KernelError::PagesPermission { path: system.path(path) }
        }
        std::io::ErrorKind::NotFound => KernelError::NoPageFlags { path: system.path(path) },
        _ => failed(system.path(path), FileAccess::Read, source),
    }
}

/// Whether a page has the flags of a block's own page descriptors. Until Linux 6.10 these are
/// reserved, too.
fn is_descriptor(flags: u64) -> bool {
    flags & !bit::RESERVED == bit::OWNER_PRIVATE
}

impl PageScan {
    /// What reading a block's pages needs to know of it.
    pub(super) fn walked_block(&self, number: u64) -> WalkedBlock {
        let zone = self.zone_of_block(number);
        let node = self.blocks.get(&number).map(|block| block.node);
        let info = node.zip(zone).and_then(|(node, name)| self.zone(node, name));
        let descriptors = self.block_pages().0 * PAGE_DESCRIPTOR_BYTES / self.page_bytes.0;
        WalkedBlock {
            first: self.first_pfn(number),
            pages: self.block_pages(),
            movable: zone == Some("Movable"),
            not_given: info.and_then(|zone| NotGiven::of(zone, self.short_of_total)),
            memmap: Pages(if self.memmap_on_memory { descriptors } else { 0 }),
        }
    }
}

/// Whether blocks that are added hold their own page descriptors.
pub(super) fn memmap_on_memory(system: &dyn SystemFiles) -> bool {
    system
        .text("sys/module/memory_hotplug/parameters/memmap_on_memory")
        .is_ok_and(|word| matches!(word.as_str(), "Y" | "1" | "force"))
}
