//! A scan of the machine: its blocks, zones and pages, and the slices that they make up.

use std::collections::BTreeMap;
use std::time::Duration;

use procfs_core::Meminfo;
use ramslice_types::{
    BackendInfo, Bytes, NodeId, PageClass, Pages, Pfn, Price, Reason, Slice, SliceId, SliceState,
    Zone, ZoneIndex, ZoneNumber,
};

use super::blocks::{self, BlockState, MemoryBlock};
use super::hotplug_state::HotplugState;
use super::page_use::PageSum;
use super::page_walk::{FLAGS, WalkedBlock, memmap_on_memory, walk_pages};
use super::place_margins::{PlaceMargins, ZoneSize};
use super::price;
use super::system_files::{SystemFiles, read_proc};
use super::zones::{self, ZoneInfo, ZoneRoom};
use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// A slice as the scan found it.
#[derive(Debug, Clone)]
pub(super) struct ScannedSlice {
    pub(super) id: SliceId,
    pub(super) state: SliceState,
    pub(super) blocks: Vec<u64>,
    pub(super) node: NodeId,
    /// The zone of its blocks.
    pub(super) zone: String,
    pub(super) sum: PageSum,
    pub(super) price: Price,
}

/// Blocks, zones and pages at one moment.
#[derive(Debug, Clone)]
pub(super) struct PageScan {
    pub(super) time: Duration,
    /// When reading pages began, and how long the scan took.
    pub(super) scan_start: Duration,
    pub(super) scan_duration: Duration,
    pub(super) page_bytes: Bytes,
    pub(super) block_bytes: Bytes,
    pub(super) blocks_per_slice: u64,
    pub(super) blocks: BTreeMap<u64, MemoryBlock>,
    pub(super) zones: Vec<ZoneInfo>,
    /// The allocator has less memory than `MemTotal`.
    pub(super) short_of_total: bool,
    /// Blocks that are added may hold their own page descriptors.
    pub(super) memmap_on_memory: bool,
    pub(super) scanned_slices: Vec<ScannedSlice>,
    pub(super) saved_state: HotplugState,
    /// The scan covered all pages, not only those of some slices.
    pub(super) complete: bool,
}

/// States of slices by ascending id: all that is known without reading pages.
pub(super) fn states(blocks: &BTreeMap<u64, MemoryBlock>, per_slice: u64) -> Vec<SliceState> {
    let mut slices: BTreeMap<u64, Vec<&MemoryBlock>> = BTreeMap::new();
    for (number, block) in blocks {
        slices.entry(number / per_slice).or_default().push(block);
    }
    slices.values().map(|blocks| state(blocks)).collect()
}

fn state(blocks: &[&MemoryBlock]) -> SliceState {
    if blocks.iter().any(|block| block.state == BlockState::GoingOffline) {
        SliceState::Emptying
    } else if blocks.iter().all(|block| block.state == BlockState::Offline) {
        SliceState::Offline
    } else {
        SliceState::Online
    }
}

/// Reads the room that zones with memory have for pages that move; `block` is the size of a block.
pub(super) fn read_rooms(
    system: &dyn SystemFiles,
    block: Pages,
) -> Result<Vec<ZoneRoom>, KernelError> {
    let zones = read_zones(system)?;
    Ok(zones
        .iter()
        .filter(|zone| zone.managed > Pages::ZERO)
        .map(|zone| zone.room(block))
        .collect())
}

/// Reads all zones from `/proc/zoneinfo`.
pub(super) fn read_zones(system: &dyn SystemFiles) -> Result<Vec<ZoneInfo>, KernelError> {
    let path = "proc/zoneinfo";
    let text =
        system.text(path).map_err(|source| failed(system.path(path), FileAccess::Read, source))?;
    Ok(zones::parse(&text))
}

/// Reads `MemAvailable`.
pub(super) fn available(system: &dyn SystemFiles) -> Result<Bytes, KernelError> {
    let path = "proc/meminfo";
    read_proc::<Meminfo>(system, path)?
        .mem_available
        .map(Bytes)
        .ok_or_else(|| KernelError::NoCounter { path: system.path(path), name: "MemAvailable" })
}

/// Fails if the caller wants to end a scan that may take long.
fn check_may_continue(
    system: &dyn SystemFiles,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), KernelError> {
    if goes_on() {
        return Ok(());
    }
    Err(failed(system.path(FLAGS), FileAccess::Read, std::io::ErrorKind::Interrupted.into()))
}

impl PageScan {
    /// Reads blocks and zones, but no pages: quick, and enough to wake slices.
    pub(super) fn without_pages(
        system: &dyn SystemFiles,
        block: Bytes,
        page: Bytes,
    ) -> Result<Self, KernelError> {
        let time = system.now();
        // Before a block goes offline, its zone is saved: the saved state has a zone for each block
        // that is seen offline here.
        let blocks = blocks::read(system)?;
        let store = HotplugState::read(system)?;
        let blocks_per_slice = store.blocks_per_slice(block);
        let mut scan = Self {
            time,
            scan_start: time,
            scan_duration: Duration::ZERO,
            page_bytes: page,
            block_bytes: block,
            blocks_per_slice,
            blocks,
            zones: read_zones(system)?,
            short_of_total: false,
            memmap_on_memory: memmap_on_memory(system),
            scanned_slices: Vec::new(),
            saved_state: store,
            complete: false,
        };
        scan.short_of_total = scan.is_short_of_total(system);
        for (id, blocks) in scan.slices_of_blocks() {
            let part = scan.scan_slice(system, id, blocks, false)?;
            scan.scanned_slices.push(part);
        }
        Ok(scan)
    }

    /// Reads the pages of the wanted slices, and asks `goes_on` before each.
    pub(super) fn scan_pages(
        &mut self,
        system: &dyn SystemFiles,
        wanted: impl Fn(&Self, &ScannedSlice) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), KernelError> {
        self.complete = true;
        for at in 0..self.scanned_slices.len() {
            if !wanted(self, &self.scanned_slices[at]) {
                self.complete = false;
                continue;
            }
            check_may_continue(system, goes_on)?;
            let ScannedSlice { id, blocks, .. } = &self.scanned_slices[at];
            self.scanned_slices[at] = self.scan_slice(system, *id, blocks.clone(), true)?;
        }
        self.scan_duration = system.now().saturating_sub(self.time);
        Ok(())
    }

    /// Brings a scan up to date: reads blocks, zones and the saved state again, but pages only
    /// where blocks have changed their state. Returns false if slices have other bounds now, so
    /// that a full scan is needed.
    pub(super) fn refresh(
        &mut self,
        system: &dyn SystemFiles,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, KernelError> {
        self.time = system.now();
        let before = std::mem::replace(&mut self.blocks, blocks::read(system)?);
        self.saved_state = HotplugState::read(system)?;
        self.zones = read_zones(system)?;
        self.short_of_total = self.is_short_of_total(system);
        let slices = self.slices_of_blocks();
        let same = slices.len() == self.scanned_slices.len()
            && slices
                .iter()
                .zip(&self.scanned_slices)
                .all(|((id, blocks), part)| *id == part.id && *blocks == part.blocks);
        if !same || self.saved_state.blocks_per_slice(self.block_bytes) != self.blocks_per_slice {
            return Ok(false);
        }
        for at in 0..self.scanned_slices.len() {
            let part = &self.scanned_slices[at];
            let was = |number: &u64| before.get(number).map(|block| block.state);
            let is = |number: &u64| self.blocks.get(number).map(|block| block.state);
            let changed = part.blocks.iter().any(|number| was(number) != is(number));
            if changed || state(&self.blocks_numbered(&part.blocks)) != part.state {
                check_may_continue(system, goes_on)?;
                self.scanned_slices[at] =
                    self.scan_slice(system, part.id, part.blocks.clone(), true)?;
            } else {
                // Price parameters may have changed.
                let price = self.price(&part.sum);
                self.scanned_slices[at].price = price;
            }
        }
        Ok(true)
    }

    /// The blocks of each slice, by ascending id.
    fn slices_of_blocks(&self) -> Vec<(SliceId, Vec<u64>)> {
        let mut slices: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for &number in self.blocks.keys() {
            slices.entry(number / self.blocks_per_slice).or_default().push(number);
        }
        slices.into_iter().map(|(id, blocks)| (SliceId(id as u32), blocks)).collect()
    }

    fn blocks_numbered(&self, numbers: &[u64]) -> Vec<&MemoryBlock> {
        numbers.iter().filter_map(|number| self.blocks.get(number)).collect()
    }

    fn price(&self, sum: &PageSum) -> Price {
        let stays = sum.never_emptied() || sum.staying > Pages::ZERO;
        price::slice(self.saved_state.prices(), self.frames(), sum, stays)
    }

    /// Pages of a block.
    pub(super) fn block_pages(&self) -> Pages {
        self.block_bytes.pages(self.page_bytes)
    }

    fn frames(&self) -> Pages {
        Pages(self.block_pages().0 * self.blocks_per_slice)
    }

    pub(super) fn first_pfn(&self, block: u64) -> Pfn {
        Pfn(block * self.block_pages().0)
    }

    pub(super) fn zone(&self, node: NodeId, name: &str) -> Option<&ZoneInfo> {
        self.zones.iter().find(|zone| zone.node == node && zone.name == name)
    }

    /// The zone that a block is in, or was in before it went offline.
    pub(super) fn zone_of_block(&self, number: u64) -> Option<&str> {
        let block = self.blocks.get(&number)?;
        let remembered = self.saved_state.blocks.get(&number).map(String::as_str);
        match block.state {
            BlockState::Offline => remembered.or_else(|| block.choices.first().map(String::as_str)),
            _ => block.zone.as_deref(),
        }
    }

    /// A slice as it is now; `walks` says whether to read its pages.
    pub(super) fn scan_slice(
        &self,
        system: &dyn SystemFiles,
        id: SliceId,
        numbers: Vec<u64>,
        walks: bool,
    ) -> Result<ScannedSlice, KernelError> {
        let members = self.blocks_numbered(&numbers);
        let state = state(&members);
        let node = members.first().map_or(NodeId(0), |block| block.node);
        let mut zone = None;
        let mut sum = PageSum::default();
        for &number in &numbers {
            let (Some(block), here) = (self.blocks.get(&number), self.zone_of_block(number)) else {
                continue;
            };
            // A block in two zones has no zone name. A slice in two zones or nodes cannot go
            // offline.
            if here.is_none() || zone.is_some_and(|zone| Some(zone) != here) || block.node != node {
                sum.raise_reason(Reason::ZoneEnd);
            }
            zone = zone.or(here);
            if block.state != BlockState::Offline && self.saved_state.boot_blocks.contains(&number)
            {
                sum.raise_reason(Reason::BootMemory);
            }
            if block.state != BlockState::Offline && walks {
                sum.merge(&self.block_sum(system, number)?);
            } else if state == SliceState::Offline {
                sum.present += self.block_pages();
            }
        }
        let zone =
            zone.map_or_else(|| self.zone_at(node, self.first_pfn(numbers[0])), str::to_owned);
        let online =
            numbers.iter().filter(|number| self.blocks[number].state == BlockState::Online);
        if let Some(info) = self.zone(node, &zone) {
            // The lists may have grown by a batch since they were looked at.
            sum.finish(info.per_cpu + info.per_cpu_batch);
            for &number in online {
                let first = self.first_pfn(number);
                if info.would_lose_end(first, Pfn(first.0 + self.block_pages().0)) {
                    sum.raise_reason(Reason::ZoneEdge);
                }
            }
        } else {
            sum.finish(Pages::ZERO);
        }
        let price = self.price(&sum);
        Ok(ScannedSlice { id, state, blocks: numbers, node, zone, sum, price })
    }

    /// Reads a slice's pages again, and keeps the result.
    pub(super) fn rescan_slice(
        &mut self,
        system: &dyn SystemFiles,
        id: SliceId,
    ) -> Result<ScannedSlice, KernelError> {
        let at = self.scanned_slices.iter().position(|part| part.id == id);
        let at = at.ok_or_else(|| KernelError::NotFound { what: format!("slice {id}") })?;
        self.scanned_slices[at] =
            self.scan_slice(system, id, self.scanned_slices[at].blocks.clone(), true)?;
        Ok(self.scanned_slices[at].clone())
    }

    /// Sums up the pages of a block.
    pub(super) fn block_sum(
        &self,
        system: &dyn SystemFiles,
        number: u64,
    ) -> Result<PageSum, KernelError> {
        let mut sum = PageSum::default();
        walk_pages(system, &self.walked_block(number), &mut |_, page| sum.add(page))?;
        Ok(sum)
    }

    /// Page frames of a block that are in use and could move.
    pub(super) fn users(
        &self,
        system: &dyn SystemFiles,
        number: u64,
    ) -> Result<Vec<u64>, KernelError> {
        let mut found = Vec::new();
        let block = WalkedBlock { movable: false, ..self.walked_block(number) };
        walk_pages(system, &block, &mut |pfn, page| {
            let ownerless =
                matches!(page.class, PageClass::Free | PageClass::Hole | PageClass::Memmap);
            if !ownerless && !page.unknown_use && page.reason == Reason::None {
                found.push(pfn);
            }
        })?;
        Ok(found)
    }

    /// Whether the allocator has less memory than `MemTotal`, which includes what it gets later.
    fn is_short_of_total(&self, system: &dyn SystemFiles) -> bool {
        let managed: Pages = self.zones.iter().map(|zone| zone.managed).sum();
        read_proc::<Meminfo>(system, "proc/meminfo")
            .is_ok_and(|meminfo| meminfo.mem_total > managed.bytes(self.page_bytes).0)
    }

    /// The zone whose bounds include a page frame.
    fn zone_at(&self, node: NodeId, pfn: Pfn) -> String {
        let inside = |zone: &&ZoneInfo| {
            zone.node == node && zone.start <= pfn && pfn.0 < zone.start.0 + zone.spanned.0
        };
        let first =
            || self.zones.iter().find(|zone| zone.node == node && zone.managed > Pages::ZERO);
        self.zones
            .iter()
            .find(inside)
            .or_else(first)
            .map(|zone| zone.name.clone())
            .unwrap_or_default()
    }

    pub(super) fn zone_number(&self, part: &ScannedSlice) -> ZoneNumber {
        self.zone(part.node, &part.zone).map_or(ZoneNumber(0), |zone| zone.number)
    }

    /// Pages of the allocator, and those that this program has taken offline.
    pub(super) fn managed(&self) -> Pages {
        self.zones.iter().map(|zone| zone.managed).sum::<Pages>()
            + self.offline_pages(|number| self.is_ours(number))
    }

    /// Whether this program has taken a block offline. Any other block stays offline until a
    /// request names it.
    fn is_ours(&self, number: u64) -> bool {
        self.saved_state.blocks.contains_key(&number)
    }

    /// Blocks of ours that another process has brought online again, or that are gone. If one of
    /// them goes offline again, it is not by this program.
    pub(super) fn blocks_online_again(&self) -> Vec<u64> {
        self.saved_state
            .blocks
            .keys()
            .filter(|number| blocks::is_online(&self.blocks, **number))
            .copied()
            .collect()
    }

    /// Whether a slice is offline, and not by this program alone.
    fn is_held(&self, part: &ScannedSlice) -> bool {
        part.state == SliceState::Offline && !part.blocks.iter().all(|&number| self.is_ours(number))
    }

    /// Pages of offline blocks.
    fn offline_pages(&self, wanted: impl Fn(u64) -> bool) -> Pages {
        let off = self
            .blocks
            .iter()
            .filter(|(number, block)| block.state == BlockState::Offline && wanted(**number));
        Pages(off.count() as u64 * self.block_pages().0)
    }

    fn is_in_zone(&self, number: u64, zone: &ZoneInfo) -> bool {
        let node = self.blocks.get(&number).map(|block| block.node);
        node == Some(zone.node) && self.zone_of_block(number) == Some(&zone.name)
    }

    /// Pages of a zone that this program has taken offline.
    pub(super) fn offline_pages_of(&self, zone: &ZoneInfo) -> Pages {
        self.offline_pages(|number| self.is_ours(number) && self.is_in_zone(number, zone))
    }

    /// The margins of the machine's places.
    pub(super) fn margins(&self) -> PlaceMargins {
        PlaceMargins::of(self.zones.iter().map(|zone| {
            let off = self.offline_pages_of(zone);
            ZoneSize {
                node: zone.node,
                movable: zone.is_movable(),
                pages: zone.managed + off,
                offline: off,
            }
        }))
    }

    /// Zones with memory that is online or offline.
    fn populated(&self) -> impl Iterator<Item = &ZoneInfo> {
        let some = |zone: &&ZoneInfo| {
            zone.managed + self.offline_pages(|number| self.is_in_zone(number, zone)) > Pages::ZERO
        };
        self.zones.iter().filter(some)
    }

    /// `clock_khz` counts measured prices unless an earlier clock is saved.
    pub(super) fn info(&self, event_seq: u64, clock_khz: u64) -> BackendInfo {
        BackendInfo {
            // This kernel has no interface of ours.
            abi_version: 0,
            page_bytes: self.page_bytes,
            pageblock_bytes: Bytes(2 << 20),
            slice_bytes: Bytes(self.block_bytes.0 * self.blocks_per_slice),
            interleave: None,
            segments: Vec::new(),
            chunk_bytes: self.block_bytes,
            nr_slices: self.scanned_slices.len() as u32,
            nr_zones: self.populated().count() as u32,
            event_seq,
            managed_pages: self.managed(),
            free_pages: self.zones.iter().map(|zone| zone.free).sum(),
            offline_pages: self.offline_pages(|number| self.is_ours(number)),
            quarantined_pages: Pages::ZERO,
            held_pages: self.offline_pages(|number| !self.is_ours(number)),
            resting_bytes: Bytes(0),
            power_driver: "memory-hotplug".to_owned(),
            clock_khz: Some(self.saved_state.clock_khz.unwrap_or(clock_khz)),
        }
    }

    pub(super) fn zones(&self) -> Vec<Zone> {
        let row = |(index, zone): (u32, &ZoneInfo)| {
            let mine = || {
                self.scanned_slices
                    .iter()
                    .filter(|part| part.node == zone.node && part.zone == zone.name)
            };
            let count = |wanted: &dyn Fn(&ScannedSlice) -> bool| {
                mine().filter(|part| wanted(part)).count() as u32
            };
            let offline = self.offline_pages_of(zone);
            Zone {
                index: ZoneIndex(index),
                node: zone.node,
                zone: zone.number,
                name: zone.name.clone(),
                nr_slices: mine().count() as u32,
                nr_empty: count(&|part| self.slice(part).is_empty()),
                nr_offline: count(&|part| part.state == SliceState::Offline),
                nr_quarantined: 0,
                nr_held: count(&|part| self.is_held(part)),
                managed_pages: zone.managed + offline,
                free_pages: zone.free,
                offline_pages: offline,
                awake_reserve_pages: zone.awake_reserve(self.block_pages()),
                low_wmark_pages: zone.low,
                // The kernel wakes no slice itself; those that a guard woke count as woken on
                // request.
                woken_by_demand: 0,
            }
        };
        (0..).zip(self.populated()).map(row).collect()
    }

    pub(super) fn slices(&self) -> Vec<Slice> {
        self.scanned_slices.iter().map(|part| self.slice(part)).collect()
    }

    pub(super) fn slice(&self, part: &ScannedSlice) -> Slice {
        let backoff = self.saved_state.backoff(part.blocks[0], self.time);
        let backoff = backoff.filter(|_| part.state == SliceState::Online);
        let reason = match (part.sum.reason, backoff) {
            (Reason::None, Some((failure, _))) => failure.reason,
            (reason, _) => reason,
        };
        let sum = if part.state == SliceState::Offline {
            PageSum { present: part.sum.present, ..PageSum::default() }
        } else {
            part.sum
        };
        Slice {
            id: part.id,
            state: part.state,
            reason,
            unreclaimable: part.sum.never_emptied(),
            backoff: backoff.is_some(),
            unmovable: sum.staying > Pages::ZERO,
            node: part.node,
            zone: self.zone_number(part),
            present: sum.present,
            frames: None,
            price: part.price,
            counters: sum.counters,
            retry_ms: backoff.map_or(0, |(_, left)| u32::try_from(left).unwrap_or(u32::MAX)),
            held: self.is_held(part),
        }
    }
}
