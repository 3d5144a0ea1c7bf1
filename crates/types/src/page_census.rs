//! Every page of a machine by use, and how far the pages that stay are scattered.
//!
//! The kinds are those that the daemon of Sivakumar's thesis counts for each bank (Virginia Tech
//! 2007, section 3.7), and all others, so that they add up. c and removable sections are those of
//! Adaptive-Buddy, section V.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, BackendError, BackendErrorKind};
use crate::contents::{ContentsDetail, PageClass, PageFate, PageFlag, PageRun, SliceContents};
use crate::machine_state::{MachineState, Zone};
use crate::slice::{Slice, SliceState};
use crate::units::{Bytes, Pages, SliceId, ZoneIndex};

/// The kernel's unit of memory hotplug on x86-64; removable ones are counted, as in the papers.
pub const SECTION_BYTES: Bytes = Bytes(128 << 20);

/// Pages of a slice. Those before `lru` do not overlap and add up to its page frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Free, or in transit.
    #[serde(rename = "free_pages")]
    pub free: Pages,
    /// Anonymous memory of processes.
    #[serde(rename = "anonymous_pages")]
    pub anonymous: Pages,
    /// Page cache of files.
    #[serde(rename = "cache_pages")]
    pub cache: Pages,
    /// tmpfs and shared memory.
    #[serde(rename = "shmem_pages")]
    pub shmem: Pages,
    /// In the swap cache alone.
    #[serde(rename = "swap_cache_pages")]
    pub swap_cache: Pages,
    /// Page cache of block devices.
    #[serde(rename = "buffer_pages")]
    pub buffer: Pages,
    /// zsmalloc, balloon, hugetlb pool.
    #[serde(rename = "other_movable_pages")]
    pub other_movable: Pages,
    /// Objects of the kernel.
    #[serde(rename = "slab_pages")]
    pub slab: Pages,
    /// Page tables.
    #[serde(rename = "page_table_pages")]
    pub page_table: Pages,
    /// Any other that is not a program's.
    #[serde(rename = "other_unmovable_pages")]
    pub other_unmovable: Pages,
    /// In an offline slice, or no memory.
    #[serde(rename = "off_pages")]
    pub off: Pages,
    /// Of all these, on the LRU lists.
    #[serde(rename = "lru_pages")]
    pub lru: Pages,
    /// Of all these, those that can neither be moved nor dropped, of whatever kind.
    #[serde(rename = "staying_pages")]
    pub staying: Pages,
}

impl PageCounts {
    /// Counts the pages of a slice.
    pub fn of(contents: &SliceContents) -> Self {
        let mut counts = Self::default();
        for run in &contents.runs {
            let kind = match run.class {
                PageClass::Free | PageClass::Transit => &mut counts.free,
                PageClass::Anonymous => &mut counts.anonymous,
                PageClass::File if run.file.is_some_and(|file| file.inode == 0) => {
                    &mut counts.buffer
                }
                PageClass::File => &mut counts.cache,
                PageClass::Shmem => &mut counts.shmem,
                PageClass::SwapCache => &mut counts.swap_cache,
                PageClass::MovableOps | PageClass::Hugetlb => &mut counts.other_movable,
                PageClass::Slab => &mut counts.slab,
                PageClass::PageTable => &mut counts.page_table,
                PageClass::Kernel
                | PageClass::Reserved
                | PageClass::HwPoison
                | PageClass::Foreign
                | PageClass::NotGiven => &mut counts.other_unmovable,
                PageClass::Hole | PageClass::Off | PageClass::Memmap => &mut counts.off,
            };
            *kind += run.pages;
            if run.flags.has(PageFlag::Lru) {
                counts.lru += run.pages;
            }
            if stays(run) {
                counts.staying += run.pages;
            }
        }
        counts
    }

    /// Pages in use.
    pub fn used(&self) -> Pages {
        [
            self.anonymous,
            self.cache,
            self.shmem,
            self.swap_cache,
            self.buffer,
            self.other_movable,
            self.slab,
            self.page_table,
            self.other_unmovable,
        ]
        .into_iter()
        .sum()
    }

    /// All page frames of the slice.
    pub fn frames(&self) -> Pages {
        self.used() + self.free + self.off
    }
}

/// A slice of a census.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceCensus {
    /// Its id.
    pub slice: SliceId,
    /// Its state when it was read.
    pub state: SliceState,
    /// Its pages.
    #[serde(flatten)]
    pub pages: PageCounts,
}

/// How far pages that stay are scattered over a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneCensus {
    /// The zone.
    #[serde(rename = "zone_index")]
    pub index: ZoneIndex,
    /// Memory sections with memory. One that two zones share is counted with the lower.
    pub sections: u64,
    /// Of these, sections without a page that stays: hotplug could remove them.
    pub removable_sections: u64,
    /// Slices that hold a page that stays, or can never be switched off.
    pub staying_slices: u64,
    /// The fewest slices that could hold them.
    pub least_staying_slices: u64,
    /// Pages that stay.
    pub staying_pages: Pages,
    /// The most slices that could be offline with as much memory in use: whole slices of free
    /// memory beyond the awake reserve and a chunk, limited to slices that can be emptied at all.
    pub offline_bound_pages: Pages,
}

/// Sums over all zones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CensusTotals {
    /// c = offline / (free + offline).
    pub offline_ratio: f64,
    /// The highest value that c could have with as much memory in use.
    pub offline_ratio_bound: f64,
    /// Slices that hold a page that stays, or can never be switched off.
    pub slices_staying: u64,
    /// The fewest that could hold them all, wherever they are.
    pub slices_staying_least: u64,
    /// Of `slices_staying`: they can never be switched off.
    pub slices_unreclaimable: u64,
    /// Slices whose pages are unknown.
    pub slices_unknown: u64,
    /// Pages that stay.
    pub staying_pages: Pages,
    /// Memory sections with memory.
    pub sections: u64,
    /// Of these without a page that stays.
    pub sections_removable: u64,
}

/// Every page of a machine, slice by slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageCensus {
    /// The slices by ascending id.
    pub slices: Vec<SliceCensus>,
    /// All zones.
    pub zones: Vec<ZoneCensus>,
}

impl PageCensus {
    /// Reads every page of `machine`, which was read a moment ago; calls `between` after each
    /// slice.
    ///
    /// Slices whose pages the system does not know are left out.
    ///
    /// # Errors
    /// If pages cannot be read, and those of `between`.
    pub fn take<E: From<BackendError>>(
        backend: &dyn Backend,
        machine: &MachineState,
        mut between: impl FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        let in_section = SECTION_BYTES.pages(machine.info.page_bytes).0.max(1);
        let (mut slices, mut sections) = (Vec::new(), SectionMap::new());
        for slice in &machine.snapshot.slices {
            match backend.contents(slice.id, ContentsDetail::default()) {
                Ok(contents) => {
                    let pages = PageCounts::of(&contents);
                    slices.push(SliceCensus { slice: slice.id, state: contents.state, pages });
                    let zone = machine.zone_of(slice).map_or(ZoneIndex(0), |zone| zone.index);
                    contents
                        .runs
                        .iter()
                        .for_each(|run| add_sections(&mut sections, run, zone, in_section));
                }
                Err(error) if error.kind() == BackendErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            between()?;
        }
        let zones =
            machine.zones.iter().map(|zone| of_zone(machine, zone, &slices, &sections)).collect();
        Ok(Self { slices, zones })
    }

    /// All zones together, with the machine that the census is of.
    pub fn totals(&self, machine: &MachineState) -> CensusTotals {
        let scatter = PinnedScatter::of(machine, &self.slices, |_| true);
        let (info, zones) = (&machine.info, || self.zones.iter());
        CensusTotals {
            offline_ratio: info.offline_ratio(),
            offline_ratio_bound: zones()
                .map(|zone| zone.offline_bound_pages)
                .sum::<Pages>()
                .share_of(info.free_pages + info.offline_pages),
            slices_staying: scatter.slices,
            slices_staying_least: scatter.least,
            slices_unreclaimable: scatter.fixed,
            slices_unknown: (machine.snapshot.slices.len() as u64)
                .saturating_sub(self.slices.len() as u64),
            staying_pages: scatter.pages,
            sections: zones().map(|zone| zone.sections).sum(),
            sections_removable: zones().map(|zone| zone.removable_sections).sum(),
        }
    }
}

/// Whether pages keep their slice online. A hole does, too, but is no page.
fn stays(run: &PageRun) -> bool {
    run.class != PageClass::Hole && run.fate() == PageFate::Stays
}

/// Memory sections with memory: the zone, and whether a page stays.
type SectionMap = BTreeMap<u64, (ZoneIndex, bool)>;

fn add_sections(sections: &mut SectionMap, run: &PageRun, zone: ZoneIndex, in_section: u64) {
    if run.class == PageClass::Hole || run.pages == Pages::ZERO {
        return;
    }
    for section in run.pfn.0 / in_section..=(run.end().0 - 1) / in_section {
        sections.entry(section).or_insert((zone, false)).1 |= stays(run);
    }
}

fn of_zone(
    machine: &MachineState,
    zone: &Zone,
    slices: &[SliceCensus],
    sections: &SectionMap,
) -> ZoneCensus {
    let here = |slice: &Slice| slice.node == zone.node && slice.zone == zone.zone;
    let scatter = PinnedScatter::of(machine, slices, here);
    let of_zone = || sections.values().filter(|(index, _)| *index == zone.index);
    let frames = machine.info.slice_pages().0.max(1);
    // As in the kernel: slices that can never be emptied stay online, and the awake reserve with
    // the chunk above it
    let could =
        machine.snapshot.slices.iter().filter(|slice| here(slice) && can_be_off(slice)).count()
            as u64;
    let chunk = Pages(machine.info.chunk_bytes.0 / machine.info.page_bytes.0.max(1));
    ZoneCensus {
        index: zone.index,
        sections: of_zone().count() as u64,
        removable_sections: of_zone().filter(|(_, stays)| !stays).count() as u64,
        staying_slices: scatter.slices,
        least_staying_slices: scatter.least,
        staying_pages: scatter.pages,
        offline_bound_pages: offline_bound(
            zone.free_pages + zone.offline_pages,
            zone.awake_reserve_pages + chunk,
            Pages(frames),
            could,
        ),
    }
}

fn can_be_off(slice: &Slice) -> bool {
    !slice.unreclaimable && slice.state != SliceState::Quarantined
}

/// Whole slices of the `free` pages beyond the `kept` ones, limited to the slices that could ever
/// be offline.
fn offline_bound(free: Pages, kept: Pages, slice: Pages, could: u64) -> Pages {
    slice * (free.saturating_sub(kept).0 / slice.0).min(could)
}

/// Pages that stay, and the slices that they keep online.
struct PinnedScatter {
    slices: u64,
    least: u64,
    fixed: u64,
    pages: Pages,
}

impl PinnedScatter {
    /// Sums over the slices that `here` selects.
    fn of(machine: &MachineState, counted: &[SliceCensus], here: impl Fn(&Slice) -> bool) -> Self {
        let (mut fixed, mut with_staying) = (0, 0);
        let (mut there, mut elsewhere, mut room) = (Pages::ZERO, Pages::ZERO, Pages::ZERO);
        for one in counted {
            // Both are by ascending id.
            let found = machine.snapshot.slices.binary_search_by_key(&one.slice, |slice| slice.id);
            let Some(slice) =
                found.ok().map(|at| &machine.snapshot.slices[at]).filter(|slice| here(slice))
            else {
                continue;
            };
            if slice.state == SliceState::Quarantined {
                // Quarantined: it holds nothing, and nothing fits in.
            } else if slice.unreclaimable {
                fixed += 1;
                there += one.pages.staying;
                room += one.pages.frames() - one.pages.off - one.pages.staying;
            } else {
                with_staying += u64::from(one.pages.staying > Pages::ZERO);
                elsewhere += one.pages.staying;
            }
        }
        Self {
            slices: fixed + with_staying,
            least: least(machine.info.slice_pages(), fixed, room, elsewhere),
            fixed,
            pages: there + elsewhere,
        }
    }
}

/// The fewest slices for pages that stay: `fixed` slices stay online anyway; `elsewhere` pages fit
/// into their `room`, or need more slices of `frames` each.
fn least(frames: Pages, fixed: u64, room: Pages, elsewhere: Pages) -> u64 {
    fixed + elsewhere.saturating_sub(room).0.div_ceil(frames.0.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::units::Pfn;

    fn run(pfn: u64, pages: u64, class: &str, reason: Reason) -> PageRun {
        serde_json::from_value(serde_json::json!({
            "pfn": Pfn(pfn), "pages": pages, "class": class, "reason": reason,
        }))
        .unwrap()
    }

    #[test]
    fn what_stays_fits_into_slices_that_stay_on_anyway_or_needs_more() {
        let least = |elsewhere| least(Pages(100), 2, Pages(50), Pages(elsewhere));
        assert_eq!([0, 50, 51, 150, 151].map(least), [2, 2, 3, 3, 4]);
        assert_eq!(super::least(Pages(100), 0, Pages(0), Pages(1)), 1);
    }

    #[test]
    fn at_best_whole_slices_beyond_the_reserve_are_off_and_only_those_that_can_be() {
        let bound = |free, could| offline_bound(Pages(free), Pages(150), Pages(100), could).0;
        assert_eq!([bound(100, 9), bound(249, 9), bound(250, 9), bound(1150, 9)], [0, 0, 100, 900]);
        assert_eq!(bound(1150, 4), 400);
    }

    #[test]
    fn a_section_is_removable_unless_a_page_of_it_stays() {
        let mut sections = SectionMap::new();
        let zone = ZoneIndex(1);
        for run in [
            run(0, 10, "kernel", Reason::None),
            run(10, 5, "slab", Reason::Slab),
            run(20, 25, "kernel", Reason::None),
        ] {
            add_sections(&mut sections, &run, zone, 16);
        }
        // A run that ends with its section does not touch the next one, and a run without memory
        // touches none.
        add_sections(&mut sections, &run(48, 16, "kernel", Reason::None), zone, 16);
        add_sections(&mut sections, &run(64, 16, "hole", Reason::Hole), zone, 16);
        // A section belongs to the first zone that has a page in it.
        add_sections(&mut sections, &run(63, 1, "kernel", Reason::None), ZoneIndex(2), 16);
        let stays = [true, false, false, false];
        assert_eq!(sections, (0..).zip(stays.map(|stays| (zone, stays))).collect());
    }

    #[test]
    fn kinds_add_up_and_buffers_are_distinguished_from_files() {
        let mut file = run(7, 4, "file", Reason::None);
        file.file =
            serde_json::from_value(serde_json::json!({"device": "8:1", "inode": 9})).unwrap();
        let mut buffer = run(11, 2, "file", Reason::Pinned);
        buffer.file =
            serde_json::from_value(serde_json::json!({"device": "8:1", "inode": 0})).unwrap();
        buffer.flags = [PageFlag::Lru].into_iter().collect();
        let contents = SliceContents {
            slice: SliceId(0),
            state: SliceState::Online,
            reason: Reason::None,
            runs: vec![
                run(0, 4, "free", Reason::None),
                run(4, 1, "transit", Reason::None),
                run(5, 2, "page-table", Reason::Slab),
                file,
                buffer,
                run(13, 3, "hole", Reason::Hole),
            ],
            files: Vec::new(),
            cgroups: Vec::new(),
            sites: None,
        };
        let counts = PageCounts::of(&contents);
        assert_eq!(counts.frames(), contents.frames());
        assert_eq!((counts.free, counts.page_table, counts.off), (Pages(5), Pages(2), Pages(3)));
        assert_eq!((counts.cache, counts.buffer, counts.lru), (Pages(4), Pages(2), Pages(2)));
        // A pinned cache page stays like a kernel page.
        assert_eq!(counts.staying, Pages(4));
    }
}
