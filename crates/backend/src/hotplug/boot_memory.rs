//! Memory that was there at boot, on kernels that never give it back.
//!
//! arm64 refuses with EPERM to take such a block offline, as a driver that listens may
//! (`prevent_bootmem_remove_notifier()` in `arch/arm64/mm/mmu.c`). The first refusal is enough to
//! know it of all of them.

use tracing::warn;

use super::blocks::{BlockState, file};
use super::request::RequestRun;

const IOMEM: &str = "proc/iomem";
/// ACPI's memory device.
const MODULE: &str = "PNP0C80";

impl RequestRun<'_> {
    /// Whether EPERM for this block means that it was there at boot. What a vendor's driver refuses
    /// says nothing about the kernel.
    pub(super) fn is_kept_since_boot(&self, number: u64) -> bool {
        self.system.architecture() == "aarch64"
            && self.backend.mem_offline().is_none()
            && self.is_plain_ram(number)
    }

    /// Remembers all blocks that were there at boot, of which one was refused, and says so once.
    pub(super) fn keep_boot_blocks(&mut self, refused: u64) {
        let online = self.scan.blocks.iter().filter(|(_, block)| block.state == BlockState::Online);
        let is_kept = |number: &u64| {
            *number == refused || (self.is_plain_ram(*number) && !self.is_module(*number))
        };
        let kept: Vec<u64> = online.map(|(&number, _)| number).filter(is_kept).collect();
        if self.scan.saved_state.boot_blocks.is_empty() {
            warn!(
                blocks = kept.len(),
                "this kernel gives no memory back that was there at boot (arm64); only memory that \
                 was added later can go offline"
            );
        }
        self.scan.saved_state.boot_blocks.extend(kept);
    }

    /// Whether the block may be of a memory module that was plugged in: firmware describes these as
    /// devices, and some describes memory of the boot so, too.
    fn is_module(&self, number: u64) -> bool {
        self.system.text(&file(number, "firmware_node/hid")).is_ok_and(|id| id == MODULE)
    }

    /// Whether no driver has added the block: drivers name what they add, as in `System RAM
    /// (kmem)`.
    fn is_plain_ram(&self, number: u64) -> bool {
        let start = number * self.scan.block_bytes.0;
        let text = self.system.text(IOMEM).unwrap_or_default();
        !text.lines().any(|line| {
            named_ram(line).is_some_and(|(first, last)| first <= start && start <= last)
        })
    }
}

/// The range of a line of `/proc/iomem` that a driver has added as memory.
fn named_ram(line: &str) -> Option<(u64, u64)> {
    let (range, name) = line.trim_start().split_once(" : ")?;
    name.strip_prefix("System RAM (")?;
    let (first, last) = range.split_once('-')?;
    Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(last, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_added_is_named_in_iomem() {
        assert_eq!(
            named_ram("  140000000-17fffffff : System RAM (kmem)"),
            Some((0x1_4000_0000, 0x1_7fff_ffff))
        );
        assert_eq!(named_ram("40000000-7fffffff : System RAM"), None);
        assert_eq!(named_ram("nonsense"), None);
    }
}
