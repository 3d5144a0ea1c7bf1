//! The per-slice counters, and what they mean for emptying the slice.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::slice::SliceState;
use crate::units::Pages;

/// What the kernel counts per slice; definitions are in the kernel's design document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SliceCounters {
    /// In the buddy allocator's lists.
    #[serde(rename = "free_pages")]
    pub free: Pages,
    /// On the anonymous LRU lists, with tmpfs.
    #[serde(rename = "lru_anon_pages")]
    pub lru_anon: Pages,
    /// On the file LRU lists.
    #[serde(rename = "lru_file_pages")]
    pub lru_file: Pages,
    /// Anonymous, mapped at least once.
    #[serde(rename = "anon_mapped_pages")]
    pub anon_mapped: Pages,
    /// File or tmpfs, mapped at least once.
    #[serde(rename = "file_mapped_pages")]
    pub file_mapped: Pages,
    /// All page cache, with tmpfs.
    #[serde(rename = "file_pages")]
    pub file: Pages,
    /// tmpfs and shared memory.
    #[serde(rename = "shmem_pages")]
    pub shmem: Pages,
    /// Waiting to be written to storage.
    #[serde(rename = "dirty_pages")]
    pub dirty: Pages,
    /// Being written to storage.
    #[serde(rename = "writeback_pages")]
    pub writeback: Pages,
    /// Of those on the LRU lists, in folios of a pageblock.
    #[serde(rename = "huge_pages")]
    pub huge: Pages,
}

impl SliceCounters {
    /// Each counter with its name in JSON.
    pub fn named(&self) -> [(&'static str, Pages); 10] {
        [
            ("free_pages", self.free),
            ("lru_anon_pages", self.lru_anon),
            ("lru_file_pages", self.lru_file),
            ("anon_mapped_pages", self.anon_mapped),
            ("file_mapped_pages", self.file_mapped),
            ("file_pages", self.file),
            ("shmem_pages", self.shmem),
            ("dirty_pages", self.dirty),
            ("writeback_pages", self.writeback),
            ("huge_pages", self.huge),
        ]
    }
}

/// What happens to a page when its slice is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageKind {
    /// Can be neither moved nor dropped: it keeps its slice online.
    Unmovable,
    /// Can be migrated.
    Movable,
    /// Clean unmapped page cache: can be dropped.
    Freeable,
    /// Unused.
    Free,
    /// In a slice that is being given back to the allocator.
    Waking,
    /// In an offline slice.
    Offline,
    /// In a slice that failed to wake.
    Quarantined,
    /// A page frame without memory.
    Hole,
}

impl PageKind {
    /// All kinds, from pages that keep a slice online to holes.
    pub const ALL: [Self; 8] = [
        Self::Unmovable,
        Self::Movable,
        Self::Freeable,
        Self::Free,
        Self::Waking,
        Self::Offline,
        Self::Quarantined,
        Self::Hole,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Freeable => "freeable",
            Self::Free => "free",
            Self::Waking => "waking",
            Self::Offline => "offline",
            Self::Quarantined => "quarantined",
            Self::Hole => "hole",
        }
    }
}

/// Pages by [`PageKind`]; the kinds do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageComposition {
    /// [`PageKind::Unmovable`].
    #[serde(rename = "unmovable_pages")]
    pub unmovable: Pages,
    /// [`PageKind::Movable`].
    #[serde(rename = "movable_pages")]
    pub movable: Pages,
    /// [`PageKind::Freeable`].
    #[serde(rename = "freeable_pages")]
    pub freeable: Pages,
    /// [`PageKind::Free`].
    #[serde(rename = "free_pages")]
    pub free: Pages,
    /// [`PageKind::Waking`].
    #[serde(rename = "waking_pages")]
    pub waking: Pages,
    /// [`PageKind::Offline`].
    #[serde(rename = "offline_pages")]
    pub offline: Pages,
    /// [`PageKind::Quarantined`].
    #[serde(rename = "quarantined_pages")]
    pub quarantined: Pages,
    /// [`PageKind::Hole`].
    #[serde(rename = "hole_pages")]
    pub hole: Pages,
}

impl PageComposition {
    /// What `present` pages are in a slice of this state; `frames` is the slice's full size.
    ///
    /// freeable = file − `file_mapped` − shmem − dirty − writeback; movable is the rest of
    /// the LRU; unmovable is the rest of the slice. Pages are read without a lock, so
    /// each difference stops at zero and the parts always add up to `frames`.
    pub fn derive(
        state: SliceState,
        counters: &SliceCounters,
        present: Pages,
        frames: Pages,
    ) -> Self {
        let hole = frames - present;
        let whole = |kind: fn(&mut Self) -> &mut Pages| {
            let mut composition = Self { hole, ..Self::default() };
            *kind(&mut composition) = present;
            composition
        };
        match state {
            SliceState::Offline => return whole(|c| &mut c.offline),
            SliceState::Quarantined => return whole(|c| &mut c.quarantined),
            SliceState::Online | SliceState::Emptying | SliceState::Waking => {}
        }
        let free = counters.free.min(present);
        let lru = (counters.lru_anon + counters.lru_file).min(present - free);
        let cache = counters.file - counters.file_mapped - counters.shmem;
        let freeable = (cache - counters.dirty - counters.writeback).min(lru);
        let rest = present - free - lru;
        let waking = state == SliceState::Waking;
        Self {
            // While a slice wakes, the chunks not yet released have no owner.
            unmovable: if waking { Pages::ZERO } else { rest },
            waking: if waking { rest } else { Pages::ZERO },
            movable: lru - freeable,
            freeable,
            free,
            hole,
            ..Self::default()
        }
    }

    /// The pages of one kind.
    pub fn get(&self, kind: PageKind) -> Pages {
        match kind {
            PageKind::Unmovable => self.unmovable,
            PageKind::Movable => self.movable,
            PageKind::Freeable => self.freeable,
            PageKind::Free => self.free,
            PageKind::Waking => self.waking,
            PageKind::Offline => self.offline,
            PageKind::Quarantined => self.quarantined,
            PageKind::Hole => self.hole,
        }
    }

    /// Everything, holes included.
    pub fn total(&self) -> Pages {
        PageKind::ALL.iter().map(|&kind| self.get(kind)).sum()
    }

    /// Pages in use: freeable, movable and unmovable.
    pub fn used(&self) -> Pages {
        self.freeable + self.movable + self.unmovable
    }
}

impl AddAssign for SliceCounters {
    fn add_assign(&mut self, other: Self) {
        self.free += other.free;
        self.lru_anon += other.lru_anon;
        self.lru_file += other.lru_file;
        self.anon_mapped += other.anon_mapped;
        self.file_mapped += other.file_mapped;
        self.file += other.file;
        self.shmem += other.shmem;
        self.dirty += other.dirty;
        self.writeback += other.writeback;
        self.huge += other.huge;
    }
}

impl AddAssign for PageComposition {
    fn add_assign(&mut self, other: Self) {
        self.unmovable += other.unmovable;
        self.movable += other.movable;
        self.freeable += other.freeable;
        self.free += other.free;
        self.waking += other.waking;
        self.offline += other.offline;
        self.quarantined += other.quarantined;
        self.hole += other.hole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> SliceCounters {
        SliceCounters {
            free: Pages(100),
            lru_anon: Pages(300),
            lru_file: Pages(200),
            anon_mapped: Pages(290),
            file_mapped: Pages(40),
            file: Pages(220),
            shmem: Pages(20),
            dirty: Pages(6),
            writeback: Pages(4),
            huge: Pages(0),
        }
    }

    #[test]
    fn freeable_excludes_mapped_tmpfs_dirty_and_written_back() {
        let parts =
            PageComposition::derive(SliceState::Online, &counters(), Pages(700), Pages(1000));
        assert_eq!(parts.freeable, Pages(220 - 40 - 20 - 6 - 4));
        assert_eq!(parts.movable, Pages(500 - 150));
        assert_eq!(parts.unmovable, Pages(100));
        assert_eq!(parts.hole, Pages(300));
        assert_eq!(parts.total(), Pages(1000));
    }

    #[test]
    fn parts_add_up_whatever_the_counters_say() {
        for state in SliceState::ALL {
            for (present, dirty) in [(0, 0), (450, 0), (700, 10_000), (1000, 1)] {
                let counters = SliceCounters { dirty: Pages(dirty), ..counters() };
                let parts = PageComposition::derive(state, &counters, Pages(present), Pages(1000));
                assert_eq!(parts.total(), Pages(1000), "{state:?} {present} {dirty}");
            }
        }
    }

    #[test]
    fn a_waking_slice_has_no_unmovable_pages() {
        let parts =
            PageComposition::derive(SliceState::Waking, &counters(), Pages(700), Pages(700));
        assert_eq!((parts.unmovable, parts.waking), (Pages(0), Pages(100)));
    }
}
