//! One colour and one letter per use of a page, when a slice is drawn page by page.

use ramslice_types::{PageClass, PageFate, PageRun, Pages, Reason, SliceContents};

use ramslice_palette::RgbColour;

/// What a page looks like: what it is used for, or what keeps it where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PageStyle {
    /// Pinned, or with references that keep it where it is.
    Pinned,
    /// Slab objects.
    Slab,
    /// Page tables.
    PageTable,
    /// Other memory of the kernel.
    Kernel,
    /// Reserved at boot.
    Reserved,
    /// hugetlb pages and folios larger than a pageblock, where they stay.
    Huge,
    /// With a memory error.
    Poisoned,
    /// Given away by a balloon or virtio-mem.
    Foreign,
    /// In a block that is not to be emptied: CMA, atomic reserve, isolated, another zone.
    Barred,
    /// Anonymous memory.
    Anonymous,
    /// Page cache that would be moved.
    File,
    /// tmpfs and shared memory.
    Shmem,
    /// Swap cache, zsmalloc, balloon, hugetlb: whatever else would be moved.
    OtherMoved,
    /// Page cache that would be dropped.
    Dropped,
    /// In per-CPU lists and the like.
    Transit,
    /// Free.
    Free,
    /// Switched off.
    Off,
    /// No memory.
    Hole,
}

impl PageStyle {
    /// All, from what keeps a slice on to what is not there.
    pub(crate) const ALL: [Self; 18] = [
        Self::Pinned,
        Self::Slab,
        Self::PageTable,
        Self::Kernel,
        Self::Reserved,
        Self::Huge,
        Self::Poisoned,
        Self::Foreign,
        Self::Barred,
        Self::Anonymous,
        Self::File,
        Self::Shmem,
        Self::OtherMoved,
        Self::Dropped,
        Self::Transit,
        Self::Free,
        Self::Off,
        Self::Hole,
    ];

    /// The look of a run.
    pub(crate) fn of(run: &PageRun) -> Self {
        match (run.fate(), run.class, run.stays_for()) {
            (_, PageClass::Off, _) => Self::Off,
            (_, PageClass::Hole, _) => Self::Hole,
            (PageFate::Stays, _, Reason::HwPoison) => Self::Poisoned,
            (PageFate::Stays, _, Reason::Pinned) => Self::Pinned,
            (PageFate::Stays, _, Reason::Hugetlb | Reason::Gigantic) => Self::Huge,
            (PageFate::Stays, PageClass::Slab, _) => Self::Slab,
            (PageFate::Stays, PageClass::PageTable, _) => Self::PageTable,
            (PageFate::Stays, PageClass::Kernel, _) => Self::Kernel,
            (PageFate::Stays, PageClass::Reserved, _) => Self::Reserved,
            (PageFate::Stays, PageClass::Foreign, _) => Self::Foreign,
            (PageFate::Stays, ..) => Self::Barred,
            (PageFate::Dropped, ..) => Self::Dropped,
            (_, PageClass::Free, _) => Self::Free,
            (_, PageClass::Transit, _) => Self::Transit,
            (_, PageClass::Anonymous, _) => Self::Anonymous,
            (_, PageClass::File, _) => Self::File,
            (_, PageClass::Shmem, _) => Self::Shmem,
            _ => Self::OtherMoved,
        }
    }

    /// Words for the legend.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Slab => "slab",
            Self::PageTable => "page table",
            Self::Kernel => "other kernel memory",
            Self::Reserved => "reserved at boot",
            Self::Huge => "hugetlb, gigantic",
            Self::Poisoned => "memory error",
            Self::Foreign => "given away",
            Self::Barred => "barred block",
            Self::Anonymous => "anonymous",
            Self::File => "page cache",
            Self::Shmem => "tmpfs, shared",
            Self::OtherMoved => "other movable",
            Self::Dropped => "cache to drop",
            Self::Transit => "in transit",
            Self::Free => "free",
            Self::Off => "off",
            Self::Hole => "no memory",
        }
    }

    /// The letter where there is no colour: capitals keep the slice on.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Pinned => 'P',
            Self::Slab => 'S',
            Self::PageTable => 'T',
            Self::Kernel => 'K',
            Self::Reserved => 'R',
            Self::Huge => 'H',
            Self::Poisoned => 'X',
            Self::Foreign => 'B',
            Self::Barred => '#',
            Self::Anonymous => 'a',
            Self::File => 'f',
            Self::Shmem => 's',
            Self::OtherMoved => 'o',
            Self::Dropped => '+',
            Self::Transit => ',',
            Self::Free => '.',
            Self::Off => '/',
            Self::Hole => ' ',
        }
    }

    /// The colour: what stays is warm or dark, what moves is blue or green, what is free is grey.
    pub(crate) fn color(self) -> RgbColour {
        match self {
            Self::Pinned => RgbColour(0xc4, 0x12, 0x30),
            Self::Slab => RgbColour(0xd5, 0x5e, 0x00),
            Self::PageTable => RgbColour(0xf0, 0xa2, 0x1c),
            Self::Kernel => RgbColour(0x8a, 0x3b, 0x12),
            Self::Reserved => RgbColour(0x4e, 0x34, 0x2e),
            Self::Huge => RgbColour(0x8e, 0x3f, 0x86),
            Self::Poisoned => RgbColour(0x00, 0x00, 0x00),
            Self::Foreign => RgbColour(0xd9, 0x8c, 0xb3),
            Self::Barred => RgbColour(0xb8, 0xa1, 0x00),
            Self::Anonymous => RgbColour(0x1f, 0x66, 0xae),
            Self::File => RgbColour(0x3a, 0x9b, 0xd9),
            Self::Shmem => RgbColour(0x00, 0x80, 0x74),
            Self::OtherMoved => RgbColour(0x5b, 0x5f, 0xc7),
            Self::Dropped => RgbColour(0xa5, 0xd6, 0xf2),
            Self::Transit => RgbColour(0xc4, 0xcb, 0xd2),
            Self::Free => RgbColour(0xe9, 0xec, 0xf0),
            Self::Off => RgbColour(0x24, 0x2a, 0x33),
            Self::Hole => RgbColour(0xff, 0xff, 0xff),
        }
    }

    /// Whether it keeps the slice on.
    pub(crate) fn stays(self) -> bool {
        self <= Self::Barred
    }
}

/// The looks that occur, with their pages, in the order of [`PageStyle::ALL`].
pub(crate) fn tally(contents: &SliceContents) -> Vec<(PageStyle, Pages)> {
    PageStyle::ALL
        .into_iter()
        .map(|look| {
            let pages = contents
                .runs
                .iter()
                .filter(|run| PageStyle::of(run) == look)
                .map(|run| run.pages)
                .sum();
            (look, pages)
        })
        .filter(|&(_, pages)| pages > Pages::ZERO)
        .collect()
}

/// Cells of `per_cell` pages: what keeps the slice on wins, otherwise the most frequent.
pub(crate) fn cells(contents: &SliceContents, per_cell: u64) -> Vec<PageStyle> {
    let pages: Vec<PageStyle> = contents
        .runs
        .iter()
        .flat_map(|run| std::iter::repeat_n(PageStyle::of(run), run.pages.0 as usize))
        .collect();
    pages
        .chunks(per_cell.max(1) as usize)
        .map(|cell| {
            let count = |look: &PageStyle| cell.iter().filter(|other| *other == look).count();
            let weigh = |look: &PageStyle| (look.stays(), count(look), std::cmp::Reverse(*look));
            cell.iter().copied().max_by_key(weigh).unwrap_or(PageStyle::Hole)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{Pfn, SliceId, SliceState};

    fn contents(runs: &[(u64, PageClass, Reason)]) -> SliceContents {
        let mut pfn = 0;
        let runs = runs
            .iter()
            .map(|&(pages, class, reason)| {
                pfn += pages;
                PageRun { reason, ..PageRun::of_class(Pfn(pfn - pages), Pages(pages), class) }
            })
            .collect();
        let (slice, state, reason) = (SliceId(3), SliceState::Online, Reason::None);
        SliceContents { slice, state, reason, runs, files: vec![], cgroups: vec![], sites: None }
    }

    #[test]
    fn a_single_page_that_stays_is_seen_in_its_cell() {
        let contents = contents(&[
            (63, PageClass::Anonymous, Reason::None),
            (1, PageClass::Anonymous, Reason::Pinned),
            (40, PageClass::Free, Reason::None),
            (24, PageClass::Anonymous, Reason::None),
        ]);
        assert_eq!(cells(&contents, 64), [PageStyle::Pinned, PageStyle::Free]);
        assert_eq!(cells(&contents, 1).len(), 128);
        assert_eq!(tally(&contents)[0], (PageStyle::Pinned, Pages(1)));
    }

    #[test]
    fn letters_and_colours_are_distinct() {
        let mut letters: Vec<char> = PageStyle::ALL.iter().map(|look| look.letter()).collect();
        letters.sort_unstable();
        assert!(letters.windows(2).all(|pair| pair[0] != pair[1]));
        for (at, a) in PageStyle::ALL.iter().enumerate() {
            for b in &PageStyle::ALL[at + 1..] {
                let parts = |RgbColour(red, green, blue): RgbColour| [red, green, blue];
                let pairs = parts(a.color()).into_iter().zip(parts(b.color()));
                let far = pairs.map(|(one, other)| u32::from(one.abs_diff(other))).sum::<u32>();
                assert!(far >= 24, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn styles_of_pages_that_stay_come_first() {
        assert!(PageStyle::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            PageStyle::ALL
                .iter()
                .all(|look| look.stays() == (look.letter().is_uppercase() || look.letter() == '#'))
        );
    }
}
