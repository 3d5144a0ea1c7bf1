//! The pages of a slice as runs of similar pages, and the cgroups that they are charged to.

use ramslice_types::{PageClass, PageRun, Pages, Pfn, Reason, SliceContents, SliceId};

use super::blocks::BlockState;
use super::page_scan::PageScan;
use super::page_walk::walk_pages;
use super::system_files::SystemFiles;
use crate::error::KernelError;

const CGROUPS: &str = "proc/kpagecgroup";

impl PageScan {
    /// The pages of a slice as runs of similar pages.
    pub(super) fn contents(
        &self,
        system: &dyn SystemFiles,
        id: SliceId,
    ) -> Result<SliceContents, KernelError> {
        let part = self.scanned_slices.iter().find(|part| part.id == id);
        let part = part.ok_or_else(|| KernelError::NotFound { what: format!("slice {id}") })?;
        let mut runs: Vec<PageRun> = Vec::new();
        for &number in &part.blocks {
            let block = self.walked_block(number);
            let (first, pages) = (block.first, block.pages);
            if self.blocks[&number].state == BlockState::Offline {
                push(&mut runs, PageRun::of_class(first, pages, PageClass::Off));
                continue;
            }
            let cgroups = cgroups(system, first, pages.0);
            walk_pages(system, &block, &mut |pfn, page| {
                let mut one = PageRun::of_class(Pfn(pfn), Pages(1), page.class);
                (one.reason, one.flags) = (page.reason, page.flags);
                if page.may_stay() && part.sum.perhaps_free > Pages::ZERO {
                    (one.class, one.reason) = (PageClass::Transit, Reason::None);
                }
                one.mappings = u32::try_from(page.mappings).unwrap_or(u32::MAX);
                let charged =
                    cgroups.get((pfn - first.0) as usize).copied().filter(|&inode| inode != 0);
                one.cgroup_inode =
                    charged.filter(|_| !matches!(page.class, PageClass::Free | PageClass::Hole));
                push(&mut runs, one);
            })?;
        }
        let (state, reason) = (part.state, self.slice(part).reason);
        Ok(SliceContents {
            slice: id,
            state,
            reason,
            runs,
            files: Vec::new(),
            cgroups: Vec::new(),
            sites: None,
        })
    }
}

/// The cgroups of pages; empty if the kernel does not track them.
fn cgroups(system: &dyn SystemFiles, first: Pfn, pages: u64) -> Vec<u64> {
    let mut words = vec![0; pages as usize];
    let read = system.words(CGROUPS, first.0, &mut words).unwrap_or(0);
    words.truncate(read);
    words
}

/// Appends a run, or extends the last one if both are alike.
fn push(runs: &mut Vec<PageRun>, next: PageRun) {
    if let Some(last) = runs.last_mut() {
        let grown = PageRun { pfn: last.pfn, pages: last.pages, ..next.clone() };
        if last.end() == next.pfn && *last == grown {
            last.pages += next.pages;
            return;
        }
    }
    runs.push(next);
}
