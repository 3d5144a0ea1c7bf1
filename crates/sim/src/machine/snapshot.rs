//! The machine as a backend reports it: the same figures as a kernel.

use ramslice_policy::SliceRow;
use ramslice_types::{
    BackendInfo, Bytes, PageClass, PageFlag, PageRun, Pages, Pfn, Reason, Slice, SliceContents,
    SliceCounters, SliceId, SliceSnapshot, SliceState, Zone, ZoneIndex,
};

use super::{OwnerClass, SimMachine, SliceCell};

impl SimMachine {
    pub(crate) fn info(&self) -> BackendInfo {
        let sum = |of: fn(&super::SimZone) -> u64| Pages(self.zones.iter().map(of).sum());
        BackendInfo {
            abi_version: 1,
            page_bytes: self.config.page_bytes,
            pageblock_bytes: self.config.pageblock_bytes,
            slice_bytes: self.config.slice_bytes,
            interleave: None,
            segments: Vec::new(),
            chunk_bytes: self.config.pageblock_bytes * 2,
            nr_slices: self.cells.len() as u32,
            nr_zones: self.zones.len() as u32,
            event_seq: self.event_seq,
            managed_pages: sum(|zone| zone.managed),
            free_pages: sum(|zone| zone.free),
            offline_pages: sum(|zone| zone.offline),
            quarantined_pages: Pages::ZERO,
            held_pages: Pages(0),
            resting_bytes: Bytes(0),
            power_driver: "simulated".to_owned(),
            clock_khz: Some((self.config.cycles_per_second / 1e3).round() as u64),
        }
    }

    pub(crate) fn zones(&self) -> Vec<Zone> {
        let both = self.zones.iter().zip(&self.config.zones);
        let zone =
            |(index, (state, config)): (usize, (&super::SimZone, &crate::config::ZoneConfig))| {
                Zone {
                    index: ZoneIndex(index as u32),
                    node: config.node,
                    zone: config.zone,
                    name: config.name.clone(),
                    nr_slices: state.end - state.first,
                    nr_empty: state.nr_empty,
                    nr_offline: state.nr_offline,
                    nr_quarantined: 0,
                    nr_held: 0,
                    managed_pages: Pages(state.managed),
                    free_pages: Pages(state.free),
                    offline_pages: Pages(state.offline),
                    awake_reserve_pages: Pages(state.reserve),
                    low_wmark_pages: Pages(state.low_wmark),
                    woken_by_demand: state.woken_by_demand,
                }
            };
        both.enumerate().map(zone).collect()
    }

    /// All slices as they are now.
    pub fn snapshot(&self) -> SliceSnapshot {
        let slices = (0..self.cells.len()).map(|at| self.slice(at)).collect();
        SliceSnapshot { event_seq: self.event_seq, time: self.time(), slices }
    }

    fn slice(&self, at: usize) -> Slice {
        let cell = &self.cells[at];
        let zone = &self.config.zones[cell.zone as usize];
        let backoff = cell.retry_us > self.time_us;
        let reason = match cell.reason {
            Reason::None if cell.unmovable > 0 => Reason::Slab,
            Reason::Pinned if !backoff => Reason::None,
            reason => reason,
        };
        Slice {
            id: SliceId(at as u32),
            state: cell.state,
            reason,
            unreclaimable: cell.boot,
            backoff,
            unmovable: cell.unmovable > 0,
            held: false,
            node: zone.node,
            zone: zone.zone,
            present: Pages(cell.present.into()),
            frames: None,
            price: self.price(at),
            counters: counters(cell),
            retry_ms: (cell.retry_us.saturating_sub(self.time_us) / 1000) as u32,
        }
    }

    /// One row per slice, as policies take them.
    pub fn rows(&self, rows: &mut Vec<SliceRow>) {
        rows.clear();
        rows.extend(self.cells.iter().enumerate().map(|(at, cell)| {
            let stays = cell.boot || cell.unmovable > 0 || cell.retry_us > self.time_us;
            SliceRow {
                id: SliceId(at as u32),
                state: cell.state,
                price: (!stays).then(|| self.price(at)),
                present: Pages(cell.present.into()),
                free: Pages(cell.free.into()),
                freeable: Pages(cell.freeable.into()),
            }
        }));
    }

    /// A slice page by page: owners one after another, then what is free.
    pub(crate) fn contents(&self, id: SliceId) -> Option<SliceContents> {
        let at = id.0 as usize;
        let cell = self.cells.get(at)?;
        let mut next = u64::from(id.0) * self.config.slice_pages().0;
        let mut runs = Vec::new();
        let mut push = |pages: u32, class, reason, flags: &[PageFlag], mappings| {
            if pages > 0 {
                runs.push(PageRun {
                    pfn: Pfn(next),
                    pages: Pages(pages.into()),
                    class,
                    reason,
                    flags: flags.iter().copied().collect(),
                    order: 0,
                    mappings,
                    extra_references: u32::from(flags.contains(&PageFlag::Pinned)),
                    file: None,
                    cgroup_inode: None,
                });
                next += u64::from(pages);
            }
        };
        for (class, maps, pages, dirty) in self.holdings(at) {
            use PageFlag::{Dirty, Drop, Lru, Pinned};
            match class {
                OwnerClass::Anon => push(pages, PageClass::Anonymous, Reason::None, &[Lru], maps),
                OwnerClass::Pinned => {
                    push(pages, PageClass::Anonymous, Reason::Pinned, &[Lru, Pinned], maps);
                }
                OwnerClass::Shmem => push(pages, PageClass::Shmem, Reason::None, &[Lru], maps),
                OwnerClass::File => {
                    push(pages - dirty, PageClass::File, Reason::None, &[Lru, Drop], 0);
                    push(dirty, PageClass::File, Reason::None, &[Lru, Dirty], 0);
                }
                OwnerClass::FileMapped => push(pages, PageClass::File, Reason::None, &[Lru], maps),
                OwnerClass::Unmovable if cell.boot => {
                    push(pages, PageClass::Reserved, Reason::Boot, &[], 0);
                }
                OwnerClass::Unmovable => push(pages, PageClass::Slab, Reason::Slab, &[], 0),
            }
        }
        push(cell.free, PageClass::Free, Reason::None, &[], 0);
        if cell.state == SliceState::Offline {
            push(cell.present, PageClass::Off, Reason::None, &[], 0);
        }
        Some(SliceContents {
            slice: id,
            state: cell.state,
            reason: self.slice(at).reason,
            runs,
            files: Vec::new(),
            cgroups: Vec::new(),
            sites: None,
        })
    }
}

fn counters(cell: &SliceCell) -> SliceCounters {
    let pages = |pages: u32| Pages(pages.into());
    SliceCounters {
        free: pages(cell.free),
        lru_anon: pages(cell.anon) + pages(cell.shmem),
        lru_file: pages(cell.freeable) + pages(cell.dirty) + pages(cell.file_mapped),
        anon_mapped: pages(cell.anon),
        file_mapped: pages(cell.file_mapped),
        file: Pages(cell.cache()) + pages(cell.shmem),
        shmem: pages(cell.shmem),
        dirty: pages(cell.dirty),
        writeback: Pages::ZERO,
        huge: Pages::ZERO,
    }
}
