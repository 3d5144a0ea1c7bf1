//! Where a vendor's driver saves nothing: slices that are a part of a DRAM segment, and offline
//! blocks whose segment stays on.

use ramslice_types::Bytes;
use tracing::{debug, warn};

use super::HotplugBackend;
use crate::readers::{self, MemOffline};

const SOURCE: &str = "/sys/kernel/mem-offline";

impl HotplugBackend {
    pub(super) fn mem_offline(&self) -> Option<MemOffline> {
        readers::mem_offline(&self.paths).unwrap_or_else(|error| {
            debug!(%error, "the driver's files are not used");
            None
        })
    }

    /// Warns if a slice of this size may be a part of a segment.
    pub(super) fn warn_of_partial_segments(&self, slice: Bytes) {
        let Some(driver) = self.mem_offline() else { return };
        if let Some(text) = partial_segments(&driver, slice, self.block_bytes) {
            warn!("{text}");
        }
    }

    /// Those of these offline blocks to which the driver still gives power. Only its own files show
    /// that: when it learns that the firmware does not follow, it is too late to refuse.
    pub(super) fn powered_blocks(&self, offline: &[u64]) -> Vec<u64> {
        let Some(driver) = self.mem_offline() else { return Vec::new() };
        let is_on = |number: &&u64| {
            driver.blocks.get(number).is_some_and(|block| block.is_on == Some(true))
        };
        offline.iter().filter(is_on).copied().collect()
    }
}

/// What to say of slices that may be a part of a segment.
pub(super) fn partial_segments(driver: &MemOffline, slice: Bytes, block: Bytes) -> Option<String> {
    let (smallest, largest) = driver.segment_sizes()?;
    if driver.slices_have_whole_segments(slice, block) {
        return None;
    }
    let sizes = if smallest == largest {
        format!("have {largest}")
    } else {
        format!("are not equal, from {smallest} to {largest}")
    };
    let advice = match driver.whole_slice(block) {
        Some(size) => format!(
            "`ramslice slices --resize {}` makes slices of whole segments",
            size.to_string().replace(' ', "")
        ),
        None => "no small size of slices has whole segments".to_owned(),
    };
    Some(format!(
        "a slice of {slice} may be a part of a DRAM segment: these {sizes} ({SOURCE}). The driver \
         switches off none before its last block is offline; {advice}"
    ))
}
