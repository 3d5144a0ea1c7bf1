//! Which mappings of QEMU are the guest's memory: as its monitor says, or by their size.

use std::ops::Range;

use ramslice_backend::ProcessMapping;
use ramslice_types::Bytes;
use serde_json::Value;

use super::qmp::{QmpError, QmpMonitor};
use crate::exit::UsageError;

/// A part of the guest's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryBlock {
    /// QEMU's name for it; absent if it was found by its size.
    pub(super) name: Option<String>,
    pub(super) size: Bytes,
    /// Where QEMU has it; its monitor says so since version 8.
    address: Option<u64>,
}

/// The blocks that are the guest's memory, as the monitor says.
pub(super) fn ask(monitor: &mut QmpMonitor) -> Result<Vec<MemoryBlock>, QmpError> {
    let backends = monitor.execute("query-memdev", &serde_json::json!({}))?;
    Ok(blocks(&backends, &monitor.human("info ramblock")?))
}

/// Memory backends that the guest has: of the blocks, others are video memory and firmware, and of
/// the backends, one that no machine uses has no block.
fn blocks(backends: &Value, ramblocks: &str) -> Vec<MemoryBlock> {
    let backends = backends.as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = ramblocks.lines();
    let has_address = lines.next().is_some_and(|head| head.contains("HVA"));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Size of a page in two words, offset, used, total; address and rights
            let behind = if has_address { 7 } else { 5 };
            let (name, figures) = words.split_at(words.len().checked_sub(behind)?);
            let name = name.join(" ");
            let id = name.strip_prefix("/objects/").unwrap_or(&name);
            backends.iter().find(|backend| backend["id"] == id)?;
            Some(MemoryBlock {
                size: Bytes(hexadecimal(figures[4])?),
                address: if has_address { Some(hexadecimal(figures[5])?) } else { None },
                name: Some(id.to_owned()),
            })
        })
        .collect()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The block that a process without a monitor can only have: the largest mapping of data, or the
/// one of this size.
pub(super) fn guess(
    mappings: &[ProcessMapping],
    size: Option<Bytes>,
) -> Result<MemoryBlock, UsageError> {
    let largest = mappings.iter().filter(|one| one.is_data).map(ProcessMapping::size).max();
    let Some(largest) = largest else {
        return Err(UsageError("it has no memory: is it a process of the kernel?".to_owned()));
    };
    let size = size.unwrap_or(largest);
    Ok(MemoryBlock { name: None, size, address: None })
}

impl MemoryBlock {
    fn addresses(&self) -> Option<Range<u64>> {
        let start = self.address?;
        Some(start..start.saturating_add(self.size.0))
    }

    /// The mappings that it consists of.
    pub(super) fn mappings<'a>(
        &self,
        all: &'a [ProcessMapping],
    ) -> Result<Vec<&'a ProcessMapping>, UsageError> {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        if let Some(addresses) = self.addresses() {
            let inside: Vec<&ProcessMapping> = all
                .iter()
                .filter(|one| {
                    one.addresses.start < addresses.end && addresses.start < one.addresses.end
                })
                .collect();
            // QEMU in a sandbox of its own, or another process than that of the monitor
            return if inside.is_empty() {
                Err(UsageError(format!(
                    "nothing is mapped at {:#x}, where the monitor says that memory{name} is: it \
                     is another process' monitor",
                    addresses.start
                )))
            } else {
                Ok(inside)
            };
        }
        let same: Vec<&ProcessMapping> =
            all.iter().filter(|one| one.is_data && one.size() == self.size).collect();
        match same.len() {
            1 => Ok(same),
            0 => {
                let mut sizes: Vec<Bytes> =
                    all.iter().filter(|one| one.is_data).map(ProcessMapping::size).collect();
                sizes.sort_by(|a, b| b.cmp(a));
                sizes.truncate(3);
                let sizes: Vec<String> = sizes.into_iter().map(Bytes::typed).collect();
                Err(UsageError(format!(
                    "it has no mapping of {}, the size of the guest's memory{name}; its largest \
                     are {}",
                    self.size.typed(),
                    sizes.join(", ")
                )))
            }
            count => Err(UsageError(format!(
                "it has {count} mappings of {}, and any may be the guest's memory{name}: name \
                 QEMU's monitor, with --qmp{}",
                self.size.typed(),
                if self.name.is_some() { ", of QEMU 8 or later" } else { "" }
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // As QEMU 10 prints it, with fewer blanks
    const RAMBLOCKS: &str = "\
 Block Name PSize Offset Used Total HVA RO\r
 pc.ram 4 KiB 0x0000000004000000 0x0000000010000000 0x0000000010000000 0x00007f1a0fe00000 rw\r
 /objects/two 2 MiB 0x0000000004000000 0x0000000000200000 0x0000000000200000 0x00007f1a5fe00000 rw\r
 vga.vram 4 KiB 0x0000000014000000 0x0000000001000000 0x0000000001000000 0x00007f1a70200000 rw\r
 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007f1a27e00000 rw\r
 pc.bios 4 KiB 0x0000000014000000 0x0000000000040000 0x0000000000040000 0x00007f1a70200000 ro\r
";

    /// The same as QEMU 7 prints it: without the last two columns.
    fn without_addresses() -> String {
        RAMBLOCKS
            .lines()
            .map(|line| line.rsplitn(3, ' ').last().unwrap().to_owned() + "\n")
            .collect()
    }

    fn backends() -> Value {
        json!([
            { "id": "unused", "size": 67_108_864 },
            { "id": "pc.ram", "size": 268_435_456 },
            { "id": "two", "size": 2_097_152 },
        ])
    }

    fn mapping(start: u64, size: u64) -> ProcessMapping {
        ProcessMapping {
            addresses: start..start + size,
            is_data: true,
            resident: Bytes::ZERO,
            huge: Bytes::ZERO,
            swapped: Bytes::ZERO,
            is_locked: false,
            file: None,
        }
    }

    #[test]
    fn the_guests_memory_is_that_of_the_backends_in_use() {
        let found = blocks(&backends(), RAMBLOCKS);
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!((first.name.as_deref(), first.size), (Some("pc.ram"), Bytes(256 << 20)));
        assert_eq!(first.address, Some(0x7f1a_0fe0_0000));
        assert_eq!((second.name.as_deref(), second.size), (Some("two"), Bytes(2 << 20)));
    }

    #[test]
    fn an_older_monitor_gives_no_addresses() {
        let text = without_addresses();
        let found = blocks(&backends(), &text);
        assert_eq!(found.len(), 2, "{text}");
        assert_eq!((found[0].size, found[0].address), (Bytes(256 << 20), None));
    }

    #[test]
    fn a_block_consists_of_the_mappings_at_its_address() {
        let block = &blocks(&backends(), RAMBLOCKS)[0];
        let start = 0x7f1a_0fe0_0000;
        let half = 128 << 20;
        let all = [
            mapping(start - 4096, 4096),
            mapping(start, half),
            mapping(start + half, half),
            mapping(start + 2 * half, 4096),
        ];
        assert_eq!(block.mappings(&all).unwrap(), [&all[1], &all[2]]);
        let error = block.mappings(&all[..1]).unwrap_err().to_string();
        assert!(error.contains("another process' monitor"), "{error}");
    }

    #[test]
    fn without_a_monitor_it_is_the_largest_mapping_or_the_one_of_a_size() {
        let mut all = vec![mapping(0, 4096), mapping(1 << 30, 1 << 30), mapping(1 << 40, 2 << 20)];
        // As that of translated code
        all.push(ProcessMapping { is_data: false, ..mapping(1 << 50, 1 << 40) });
        let block = guess(&all, None).unwrap();
        assert_eq!(block.mappings(&all).unwrap(), [&all[1]]);
        let block = guess(&all, Some(Bytes(2 << 20))).unwrap();
        assert_eq!(block.mappings(&all).unwrap(), [&all[2]]);
        let block = guess(&all, Some(Bytes(512 << 20))).unwrap();
        let error = block.mappings(&all).unwrap_err().to_string();
        assert!(error.contains("no mapping of 512MiB"), "{error}");
        assert!(error.ends_with("largest are 1GiB, 2MiB, 4KiB"), "{error}");
        assert!(guess(&[], None).is_err());
    }

    #[test]
    fn memories_of_several_guests_are_not_mixed_up() {
        let all = [mapping(1 << 30, 1 << 30), mapping(4 << 30, 1 << 30)];
        let error = guess(&all, None).unwrap().mappings(&all).unwrap_err().to_string();
        assert!(error.contains("2 mappings of 1GiB") && error.contains("--qmp"), "{error}");
    }
}
