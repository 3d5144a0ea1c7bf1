//! The pages of a slice summed up: which stay and why, which would be moved or dropped, and their
//! owners.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::contents::{FileId, PageClass, PageFate, PageFlag, PageRun, SliceContents};
use crate::reason::Reason;
use crate::units::{Pages, Pfn};

/// Pages of one class and one fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageGroup {
    /// What happens to them when the slice is emptied.
    pub fate: PageFate,
    /// What they are used for.
    pub class: PageClass,
    /// Why they stay; [`Reason::None`] if they do not stay.
    pub reason: Reason,
    /// How many.
    pub pages: Pages,
    /// Of these pinned.
    #[serde(rename = "pinned_pages")]
    pub pinned: Pages,
    /// Of these, in folios with a reference that has no known holder.
    #[serde(rename = "referenced_pages")]
    pub referenced: Pages,
    /// Of these in folios that are mapped.
    #[serde(rename = "mapped_pages")]
    pub mapped: Pages,
    /// Of these locked by `mlock()`.
    #[serde(rename = "mlocked_pages")]
    pub mlocked: Pages,
    /// Of these dirty or being written.
    #[serde(rename = "unwritten_pages")]
    pub unwritten: Pages,
    /// The first of them.
    pub first_pfn: Pfn,
}

/// Pages that belong to one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerPages<T> {
    /// The owner.
    pub owner: T,
    /// Its pages.
    pub pages: Pages,
    /// Of these, pages that stay.
    #[serde(rename = "staying_pages")]
    pub staying: Pages,
    /// Of these, mapped.
    #[serde(rename = "mapped_pages")]
    pub mapped: Pages,
    /// Of these, locked by `mlock()`.
    #[serde(rename = "mlocked_pages")]
    pub mlocked: Pages,
}

/// A slice's pages by use, file and cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentsSummary {
    /// Pages that stay come first, then groups by number of pages.
    pub groups: Vec<PageGroup>,
    /// Files with pages in it, most pages first.
    pub files: Vec<OwnerPages<FileId>>,
    /// Cgroups with pages in it by inode, most pages first.
    pub cgroups: Vec<OwnerPages<u64>>,
}

impl ContentsSummary {
    /// Sums up.
    pub fn of(contents: &SliceContents) -> Self {
        let mut groups: Vec<PageGroup> = Vec::new();
        for run in &contents.runs {
            let key = (run.fate(), run.class, run.stays_for());
            let at = groups.iter().position(|group| (group.fate, group.class, group.reason) == key);
            let group = match at {
                Some(at) => &mut groups[at],
                None => {
                    groups.push(PageGroup {
                        fate: key.0,
                        class: run.class,
                        reason: key.2,
                        pages: Pages::ZERO,
                        pinned: Pages::ZERO,
                        referenced: Pages::ZERO,
                        mapped: Pages::ZERO,
                        mlocked: Pages::ZERO,
                        unwritten: Pages::ZERO,
                        first_pfn: run.pfn,
                    });
                    groups.last_mut().expect("one was added")
                }
            };
            let has = |flag| run.flags.has(flag);
            let when = |yes| if yes { run.pages } else { Pages::ZERO };
            group.pages += run.pages;
            group.pinned += when(has(PageFlag::Pinned));
            group.referenced += when(run.extra_references > 0);
            group.mapped += when(run.mappings > 0);
            group.mlocked += when(has(PageFlag::Mlocked));
            group.unwritten += when(has(PageFlag::Dirty) || has(PageFlag::Writeback));
        }
        groups.sort_by(|a, b| (a.fate, b.pages, a.class).cmp(&(b.fate, a.pages, b.class)));
        Self {
            groups,
            files: holdings(contents, |run| run.file),
            cgroups: holdings(contents, |run| run.cgroup_inode),
        }
    }

    /// Groups that keep the slice online.
    pub fn staying(&self) -> impl Iterator<Item = &PageGroup> {
        self.groups.iter().filter(|group| group.fate == PageFate::Stays)
    }

    /// Pages of this fate.
    pub fn pages(&self, fate: PageFate) -> Pages {
        self.groups.iter().filter(|group| group.fate == fate).map(|group| group.pages).sum()
    }

    /// Pages of this class.
    pub fn pages_of(&self, class: PageClass) -> Pages {
        self.groups.iter().filter(|group| group.class == class).map(|group| group.pages).sum()
    }

    /// Pages that stay, by reason, most pages first.
    pub fn reasons(&self) -> Vec<(Reason, Pages)> {
        let mut found: Vec<(Reason, Pages)> = Vec::new();
        for group in self.staying() {
            match found.iter_mut().find(|(reason, _)| *reason == group.reason) {
                Some((_, pages)) => *pages += group.pages,
                None => found.push((group.reason, group.pages)),
            }
        }
        found.sort_by_key(|&(reason, pages)| (std::cmp::Reverse(pages), reason.raw()));
        found
    }
}

fn holdings<T: Ord + Copy>(
    contents: &SliceContents,
    owner: impl Fn(&PageRun) -> Option<T>,
) -> Vec<OwnerPages<T>> {
    let mut found: BTreeMap<T, OwnerPages<T>> = BTreeMap::new();
    for run in &contents.runs {
        let Some(owner) = owner(run) else { continue };
        let (staying, mapped, mlocked) = (Pages::ZERO, Pages::ZERO, Pages::ZERO);
        let empty = OwnerPages { owner, pages: Pages::ZERO, staying, mapped, mlocked };
        let holding = found.entry(owner).or_insert(empty);
        let when = |yes| if yes { run.pages } else { Pages::ZERO };
        holding.pages += run.pages;
        holding.staying += when(run.fate() == PageFate::Stays);
        holding.mapped += when(run.mappings > 0);
        holding.mlocked += when(run.flags.has(PageFlag::Mlocked));
    }
    let mut found: Vec<OwnerPages<T>> = found.into_values().collect();
    found.sort_by_key(|holding| std::cmp::Reverse((holding.staying, holding.pages)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageFlags, SliceId, SliceState};

    fn run(pfn: u64, pages: u64, class: PageClass, reason: Reason, flags: &[PageFlag]) -> PageRun {
        PageRun {
            pfn: Pfn(pfn),
            pages: Pages(pages),
            class,
            reason,
            flags: flags.iter().copied().collect::<PageFlags>(),
            order: 0,
            mappings: u32::from(class == PageClass::Anonymous),
            extra_references: 0,
            file: None,
            cgroup_inode: None,
        }
    }

    fn contents() -> SliceContents {
        let runs = vec![
            run(0, 10, PageClass::Free, Reason::None, &[]),
            run(10, 3, PageClass::Anonymous, Reason::Pinned, &[PageFlag::Lru, PageFlag::Pinned]),
            run(13, 7, PageClass::Anonymous, Reason::None, &[PageFlag::Lru]),
            run(20, 5, PageClass::File, Reason::None, &[PageFlag::Lru, PageFlag::Drop]),
            run(25, 8, PageClass::Slab, Reason::Slab, &[]),
            run(33, 2, PageClass::Transit, Reason::None, &[]),
            run(35, 1, PageClass::Slab, Reason::Slab, &[]),
        ];
        let (slice, state, reason) = (SliceId(3), SliceState::Online, Reason::Slab);
        SliceContents { slice, state, reason, runs, files: vec![], cgroups: vec![], sites: None }
    }

    #[test]
    fn what_stays_comes_first_and_nothing_is_left_out() {
        let contents = contents();
        let holdings = ContentsSummary::of(&contents);
        let order: Vec<(PageFate, Pages)> =
            holdings.groups.iter().map(|group| (group.fate, group.pages)).collect();
        assert_eq!(
            order,
            [
                (PageFate::Stays, Pages(9)),
                (PageFate::Stays, Pages(3)),
                (PageFate::Moves, Pages(7)),
                (PageFate::Dropped, Pages(5)),
                (PageFate::Free, Pages(10)),
                (PageFate::Free, Pages(2)),
            ]
        );
        assert_eq!(holdings.reasons(), [(Reason::Slab, Pages(9)), (Reason::Pinned, Pages(3))]);
        assert_eq!(holdings.groups[1].pinned, Pages(3));
        assert_eq!(
            holdings.groups.iter().map(|group| group.pages).sum::<Pages>(),
            contents.frames()
        );
    }

    #[test]
    fn a_page_of_an_isolated_block_stays_even_if_it_is_free() {
        let free = run(0, 4, PageClass::Free, Reason::Cma, &[]);
        assert_eq!(free.fate(), PageFate::Stays);
    }

    /// The same pages as a request would judge them at this moment: it is refused with `pinned`.
    #[test]
    fn anonymous_pages_lent_to_another_holder_stay_and_are_pinned() {
        let lent = |class, flags: &[PageFlag]| PageRun {
            extra_references: 1,
            ..run(0, 64, class, Reason::None, flags)
        };
        let anon = lent(PageClass::Anonymous, &[PageFlag::Lru]);
        assert_eq!((anon.fate(), anon.stays_for()), (PageFate::Stays, Reason::Pinned));
        let mut contents = contents();
        contents.runs = vec![anon];
        let holdings = ContentsSummary::of(&contents);
        assert_eq!(holdings.reasons(), [(Reason::Pinned, Pages(64))]);
        assert_eq!(contents.blocking().count(), 1);
        // Page cache is read all the time, and a page in a per-CPU batch is on no list yet.
        for moves in [lent(PageClass::File, &[PageFlag::Lru]), lent(PageClass::Anonymous, &[])] {
            assert_eq!((moves.fate(), moves.stays_for()), (PageFate::Moves, Reason::None));
        }
        // Another reason is reported first.
        let poisoned = PageRun { reason: Reason::HwPoison, ..contents.runs[0].clone() };
        assert_eq!(poisoned.stays_for(), Reason::HwPoison);
    }

    #[test]
    fn suspects_are_what_stays_otherwise_all_that_is_held() {
        let mut contents = contents();
        assert_eq!(contents.suspects().len(), 3);
        contents.runs.retain(|run| run.fate() != PageFate::Stays);
        assert_eq!(contents.suspects().iter().map(|run| run.pages).sum::<Pages>(), Pages(12));
    }
}
