//! What a backend reports about the whole machine; as JSON, the file that `ramslice --from` reads.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contents::SliceContents;
use crate::interleave::Interleave;
use crate::physical::Hertz;
use crate::price::PriceParameter;
use crate::segments::Segment;
use crate::slice::Slice;
use crate::units::{Bytes, NodeId, Pages, Price, ZoneIndex, ZoneNumber, duration_us};

/// Version of the JSON that this crate's types become. Raised when a field changes its
/// meaning or goes; new fields do not raise it, and readers skip fields they do not know.
pub const SCHEMA_VERSION: u32 = 1;

/// Name of the power driver that reports slices to the host of a virtual machine.
const REPORTING_DRIVER: &str = "report";

/// What the kernel offers, and its totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendInfo {
    /// Version of the kernel's interface; 0 if a stock kernel has none.
    pub abi_version: u32,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// What the kernel keeps a summary of; unit of slice sizes.
    pub pageblock_bytes: Bytes,
    /// Size of a slice; of the largest, if a table says what slices are.
    pub slice_bytes: Bytes,
    /// How slices take turns at physical addresses; `None` if each is contiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
    /// Slices as a table, by ascending address; the index is the id. Empty if all are of one size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Unit in which a slice wakes.
    pub chunk_bytes: Bytes,
    /// Slices that a snapshot has.
    pub nr_slices: u32,
    /// Zones.
    pub nr_zones: u32,
    /// State changes so far.
    pub event_seq: u64,
    /// Pages of all zones, online or offline.
    pub managed_pages: Pages,
    /// Free and online.
    pub free_pages: Pages,
    /// Free, but in offline slices.
    pub offline_pages: Pages,
    /// Lost to slices that failed to wake.
    pub quarantined_pages: Pages,
    /// In held slices; not in `managed_pages`.
    #[serde(default)]
    pub held_pages: Pages,
    /// Of twins, what is in slices that the power driver was told may rest; all of it is in use.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub resting_bytes: Bytes,
    /// Name of the power driver; `none` without one.
    pub power_driver: String,
    /// Cycles in a millisecond of CPU time, in which measured prices are counted whatever the CPUs'
    /// current frequency; `None` if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_khz: Option<u64>,
}

fn is_nothing(size: &Bytes) -> bool {
    size.0 == 0
}

impl BackendInfo {
    /// Whether it is a stock kernel, which keeps no summaries of pageblocks.
    pub fn is_stock(&self) -> bool {
        self.abi_version == 0
    }

    /// The clock of measured prices.
    pub fn clock(&self) -> Option<Hertz> {
        self.clock_khz.filter(|&khz| khz > 0).map(|khz| Hertz(khz as f64 * 1e3))
    }

    /// Page frames in a slice; of the largest, if a table says what slices are.
    pub fn slice_pages(&self) -> Pages {
        self.slice_bytes.pages(self.page_bytes)
    }

    /// Pages in use: neither free nor offline.
    pub fn used_pages(&self) -> Pages {
        self.managed_pages - self.free_pages - self.offline_pages
    }

    /// Whether slices that are off are reported to the host of this virtual machine.
    pub fn reports_to_host(&self) -> bool {
        self.power_driver == REPORTING_DRIVER
    }

    /// Pages of slices that are off and were reported to the host.
    pub fn reported_pages(&self) -> Pages {
        if self.reports_to_host() { self.offline_pages } else { Pages::ZERO }
    }

    /// Pages that are on: neither off nor lost.
    pub fn on_pages(&self) -> Pages {
        self.managed_pages - self.offline_pages
    }

    /// c = offline / (free + offline), the share of free memory that is offline; 0 when none is
    /// free.
    pub fn offline_ratio(&self) -> f64 {
        self.offline_pages.share_of(self.free_pages + self.offline_pages)
    }
}

/// One zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Its position in [`crate::Backend::zones`].
    pub index: ZoneIndex,
    /// Its NUMA node.
    pub node: NodeId,
    /// Its number within the node.
    pub zone: ZoneNumber,
    /// Its name, as in `Normal`.
    pub name: String,
    /// Slices that belong to it.
    pub nr_slices: u32,
    /// Of these online and wholly free.
    pub nr_empty: u32,
    /// Of these offline.
    pub nr_offline: u32,
    /// Of these quarantined.
    pub nr_quarantined: u32,
    /// Of those offline, held.
    #[serde(default)]
    pub nr_held: u32,
    /// Pages the allocator manages, online or offline.
    pub managed_pages: Pages,
    /// Free and online.
    pub free_pages: Pages,
    /// Free, but in offline slices.
    pub offline_pages: Pages,
    /// The floor under `free_pages`: this much is never switched off by a request.
    pub awake_reserve_pages: Pages,
    /// Below this, allocations wake slices themselves.
    pub low_wmark_pages: Pages,
    /// Slices woken by allocations since boot.
    pub woken_by_demand: u64,
}

impl Zone {
    /// c = offline / (free + offline) of this zone.
    pub fn offline_ratio(&self) -> f64 {
        self.offline_pages.share_of(self.free_pages + self.offline_pages)
    }
}

/// All slices: their states at one moment, and what each held when it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSnapshot {
    /// State changes so far; none happened while the slices were read.
    pub event_seq: u64,
    /// When it was taken, on the kernel's monotonic clock.
    #[serde(rename = "monotonic_us", with = "duration_us")]
    pub time: Duration,
    /// The slices by ascending id.
    pub slices: Vec<Slice>,
}

/// A machine at one moment: the head of `ramslice status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What the kernel offers.
    pub info: BackendInfo,
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Its slices.
    pub snapshot: SliceSnapshot,
    /// The price model's parameters, where they could be read.
    #[serde(default, rename = "price_parameters_100cycles")]
    pub price_parameters: BTreeMap<PriceParameter, Price>,
    /// The contents of some slices, page by page: saved only on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<SliceContents>,
}

impl MachineState {
    /// The zone of a slice, by node and number.
    pub fn zone_of(&self, slice: &Slice) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.node == slice.node && zone.zone == slice.zone)
    }

    /// Checks that the figures of a saved machine are possible. The error names the slice and the
    /// figure that is not.
    ///
    /// Drawing and simulation rely on slices holding no more pages than they have. Counters may
    /// exceed that slightly, because pages come and go while they are read.
    pub fn check(&self) -> Result<(), String> {
        let BackendInfo { page_bytes, slice_bytes, .. } = self.info;
        if !page_bytes.0.is_power_of_two() {
            return Err(format!("page_bytes is {}: it must be a power of two", page_bytes.0));
        }
        if slice_bytes < page_bytes {
            return Err(format!("slice_bytes is {}: a slice has at least a page", slice_bytes.0));
        }
        let frames = self.info.slice_pages();
        let beyond = |what: String, pages: Pages, most: Pages| {
            if pages > most {
                Err(format!("{what} is {pages}: a slice has {frames} pages"))
            } else {
                Ok(())
            }
        };
        for slice in &self.snapshot.slices {
            beyond(format!("slice {}: present_pages", slice.id), slice.present, frames)?;
            for (name, pages) in slice.counters.named() {
                beyond(format!("slice {}: {name}", slice.id), pages, frames + frames)?;
            }
        }
        for contents in &self.contents {
            let pages =
                contents.runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.pages.0));
            beyond(
                format!("slice {}: the sum of pages in its contents", contents.slice),
                Pages(pages),
                frames,
            )?;
        }
        Ok(())
    }

    /// The name of a slice's zone; its number when the zone is not listed.
    pub fn zone_name(&self, slice: &Slice) -> String {
        self.zone_of(slice).map_or_else(|| format!("zone {}", slice.zone), |zone| zone.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of one slice of 100 pages, and what is wrong with it after `change`.
    fn checked(change: impl Fn(&mut MachineState)) -> Result<(), String> {
        let text = r#"{"schema_version": 1,
            "info": {"abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 409600,
                "slice_bytes": 409600,
                "chunk_bytes": 409600, "nr_slices": 1, "nr_zones": 0, "event_seq": 0,
                    "managed_pages": 100,
                "free_pages": 0, "offline_pages": 0, "quarantined_pages": 0,
                "power_driver": "none"},
            "zones": [], "snapshot": {"event_seq": 0, "monotonic_us": 0, "slices": [
                {"id": 7, "state": "online", "reason": "none", "unreclaimable": false,
                    "backoff": false,
                "unmovable": false, "node": 0, "zone": 1, "present_pages": 100,
                    "price_100cycles": 0, "retry_ms": 0,
                "counters": {"free_pages": 100, "lru_anon_pages": 0, "lru_file_pages": 0,
                    "anon_mapped_pages": 0,
                    "file_mapped_pages": 0, "file_pages": 0, "shmem_pages": 0, "dirty_pages": 0,
                    "writeback_pages": 0, "huge_pages": 0}}]}}"#;
        let mut machine: MachineState = serde_json::from_str(text).unwrap();
        change(&mut machine);
        machine.check()
    }

    #[test]
    fn a_figure_that_cannot_be_true_is_named_with_its_slice() {
        assert_eq!(checked(|_| ()), Ok(()));
        let error =
            checked(|machine| machine.snapshot.slices[0].present = Pages(u64::MAX)).unwrap_err();
        assert_eq!(error, "slice 7: present_pages is 18446744073709551615: a slice has 100 pages");
        let error =
            checked(|machine| machine.snapshot.slices[0].counters.dirty = Pages(201)).unwrap_err();
        assert_eq!(error, "slice 7: dirty_pages is 201: a slice has 100 pages");
        assert!(
            checked(|machine| machine.info.slice_bytes = Bytes(0))
                .unwrap_err()
                .contains("slice_bytes is 0")
        );
        assert!(
            checked(|machine| machine.info.page_bytes = Bytes(0))
                .unwrap_err()
                .contains("page_bytes is 0")
        );
    }
}
