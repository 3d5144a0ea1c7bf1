//! The simulated machine: its zones, its slices, how its kernel places memory.

use ramslice_types::{Bytes, NodeId, Pages, ZoneNumber};
use serde::Serialize;
use thiserror::Error;

/// A machine that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}: {wrong}; {allowed}")]
pub struct SimConfigError {
    what: &'static str,
    wrong: String,
    allowed: &'static str,
}

/// Where the kernel puts new memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementRule {
    /// As Linux does: anywhere that is free.
    ///
    /// A run of pages stays in the slice where the last one went, or, with the probability
    /// [`SimConfig::scatter`], goes to a slice by chance in proportion to its free memory.
    #[default]
    Stock,
    /// Memory of the kernel, which cannot move, at the lowest free addresses; all other memory as
    /// in `Stock`.
    KernelLow,
    /// Everything at the lowest addresses that are free: the best that placement alone can do.
    Packed,
}

impl SimConfigError {
    pub(crate) fn new(what: &'static str, wrong: String, allowed: &'static str) -> Self {
        Self { what, wrong, allowed }
    }
}

impl PlacementRule {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stock, Self::KernelLow, Self::Packed];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::KernelLow => "kernel-low",
            Self::Packed => "packed",
        }
    }
}

/// A zone of the simulated machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZoneConfig {
    /// Its node.
    pub node: NodeId,
    /// Its number within the node.
    pub zone: ZoneNumber,
    /// Its name.
    pub name: String,
    /// Its size: whole slices.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
}

/// The simulated machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimConfig {
    /// Size of a page.
    pub page_bytes: Bytes,
    /// The unit of slice sizes.
    pub pageblock_bytes: Bytes,
    /// Size of a slice.
    pub slice_bytes: Bytes,
    /// Neighbours that the hardware switches as one: what is off saves only where all of these are.
    pub granule_slices: u32,
    /// Its zones, by address.
    pub zones: Vec<ZoneConfig>,
    /// Reserved at boot in the first slices of each node: the kernel, and its description of each
    /// page.
    pub boot_share: f64,
    /// Where the kernel puts new memory.
    pub placement: PlacementRule,
    /// How often a run of pages goes elsewhere than the one before: 0 to 1.
    pub scatter: f64,
    /// How much of new page cache makes room for itself by recycling old cache, as reading ahead
    /// for the first time does, rather than wake memory, as writing does: 0 to 1.
    pub recycling: f64,
    /// The size of a run: the grain of the simulation. Never more than an eighth of a slice.
    pub run_bytes: Bytes,
    /// Cycles of a CPU in a second: turns prices into time.
    pub cycles_per_second: f64,
    /// Until the first page of a woken slice can be used.
    pub wake_latency_ns: f64,
    /// Decides everything that happens by chance.
    pub seed: u64,
}

/// A description of each page takes 64 of 4096 bytes; the kernel's own image and tables the rest.
const BOOT_SHARE: f64 = 0.017;
/// Linux gives out a pageblock at a time before it looks elsewhere.
const RUN: Bytes = Bytes(2 << 20);
/// The thesis' machine: 3.8 GHz (section 4.1).
const CYCLES_PER_SECOND: f64 = 3.8e9;
/// Waking takes some 610000 instructions for a GiB, `profiles/thesis-parc.toml`: about 2393 for a
/// chunk of 4 MiB, at 1.9 cycles each.
const CHUNK_WAKE_NS: f64 = 2393.0 * 1.9 / 3.8;

impl SimConfig {
    /// One node with one zone of `memory`, rounded down to slices.
    pub fn new(memory: Bytes, slice_bytes: Bytes) -> Self {
        let size = Bytes(memory.0 - memory.0 % slice_bytes.0.max(1));
        let zone =
            ZoneConfig { node: NodeId(0), zone: ZoneNumber(2), name: "Normal".to_owned(), size };
        Self {
            page_bytes: Bytes(4096),
            pageblock_bytes: Bytes(2 << 20),
            slice_bytes,
            granule_slices: 1,
            zones: vec![zone],
            boot_share: BOOT_SHARE,
            placement: PlacementRule::Stock,
            scatter: 0.2,
            recycling: 1.0,
            run_bytes: RUN,
            cycles_per_second: CYCLES_PER_SECOND,
            wake_latency_ns: CHUNK_WAKE_NS,
            seed: 1,
        }
    }

    /// The same with the coarse grain: runs of a thirty-second of a slice, for terabytes and
    /// fleets.
    #[must_use]
    pub fn coarse(self) -> Self {
        Self { run_bytes: Bytes(self.slice_bytes.0 / 32).max(self.page_bytes), ..self }
    }

    /// The same with slices of another size; what the hardware switches as one stays.
    pub(crate) fn with_slices_of(self, size: Bytes) -> Self {
        let granule = self.slice_bytes.0 * u64::from(self.granule_slices);
        let slices = granule.checked_div(size.0).unwrap_or(1).max(1);
        let granule_slices = u32::try_from(slices).unwrap_or(u32::MAX);
        Self { slice_bytes: size, granule_slices, ..self }
    }

    /// All memory.
    pub fn memory(&self) -> Bytes {
        self.zones.iter().map(|zone| zone.size).sum()
    }

    /// Page frames in a slice.
    pub fn slice_pages(&self) -> Pages {
        self.slice_bytes.pages(self.page_bytes)
    }

    /// Pages in a run.
    pub(crate) fn run_pages(&self) -> u64 {
        self.run_bytes.min(Bytes(self.slice_bytes.0 / 8)).pages(self.page_bytes).0.max(1)
    }

    pub(crate) fn check(&self) -> Result<(), SimConfigError> {
        let error = |what, wrong: String, allowed| Err(SimConfigError { what, wrong, allowed });
        let block = self.pageblock_bytes.0;
        if block == 0 || self.page_bytes.0 == 0 || !block.is_multiple_of(self.page_bytes.0) {
            return error(
                "pageblock",
                self.pageblock_bytes.to_string(),
                "it is a multiple of the page",
            );
        }
        if self.slice_bytes.0 == 0 || !self.slice_bytes.0.is_multiple_of(block) {
            return error(
                "slice size",
                self.slice_bytes.to_string(),
                "it is a multiple of the pageblock, 2 MiB",
            );
        }
        if self.granule_slices == 0 {
            return error("granule", "0 slices".to_owned(), "it has at least one");
        }
        if self.slice_pages().0 > u64::from(u32::MAX) {
            return error(
                "slice size",
                self.slice_bytes.to_string(),
                "a slice has less than 2^32 pages",
            );
        }
        if let Some(zone) = self
            .zones
            .iter()
            .find(|zone| zone.size.0 == 0 || !zone.size.0.is_multiple_of(self.slice_bytes.0))
        {
            if zone.size.0 == 0 {
                let wrong =
                    format!("zone {} has less than a slice of {}", zone.name, self.slice_bytes);
                return error(
                    "memory",
                    wrong,
                    "it has at least one, and a size without a unit is in bytes",
                );
            }
            let wrong = format!("zone {} of {}", zone.name, zone.size);
            return error("memory", wrong, "a zone consists of whole slices");
        }
        if self.zones.is_empty() || self.memory().0 / self.slice_bytes.0 > 1 << 20 {
            return error("memory", self.memory().to_string(), "there are 1 to 1048576 slices");
        }
        for (what, share) in [
            ("boot share", self.boot_share),
            ("scatter", self.scatter),
            ("recycling", self.recycling),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return error(what, share.to_string(), "it lies between 0 and 1");
            }
        }
        if !(self.cycles_per_second > 0.0 && self.cycles_per_second.is_finite()) {
            return error(
                "cycles per second",
                self.cycles_per_second.to_string(),
                "they are a number above 0",
            );
        }
        if !(self.wake_latency_ns >= 0.0 && self.wake_latency_ns.is_finite()) {
            return error(
                "wake latency",
                self.wake_latency_ns.to_string(),
                "it is a number of ns, 0 or more",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_is_named_with_what_is_allowed() {
        let good = SimConfig::new(Bytes(8 << 30), Bytes(64 << 20));
        assert_eq!(good.check(), Ok(()));
        for (config, what) in [
            (SimConfig { slice_bytes: Bytes(3 << 19), ..good.clone() }, "slice size"),
            (SimConfig::new(Bytes(1 << 20), Bytes(64 << 20)), "memory"),
            (SimConfig { granule_slices: 0, ..good.clone() }, "granule"),
            (SimConfig { scatter: 1.5, ..good.clone() }, "scatter"),
            (SimConfig { boot_share: f64::NAN, ..good.clone() }, "boot share"),
            (SimConfig { cycles_per_second: 0.0, ..good.clone() }, "cycles per second"),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(what) && error.contains(';'), "{error}");
        }
    }
}
