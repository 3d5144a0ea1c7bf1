//! Memory blocks, the kernel's unit of hotplug: `/sys/devices/system/memory`.

use std::collections::BTreeMap;
use std::io;

use ramslice_types::{Bytes, NodeId};

use super::system_files::SystemFiles;
use crate::error::KernelError;

/// The directory of blocks.
pub(super) const MEMORY: &str = "sys/devices/system/memory";
const NODES: &str = "sys/devices/system/node";

/// What the kernel says of a block's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Its pages belong to the allocator.
    Online,
    /// The kernel is emptying it.
    GoingOffline,
    /// Taken from the allocator.
    Offline,
}

/// One memory block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryBlock {
    /// Its state.
    pub(super) state: BlockState,
    /// Its zone while it is online, if all of it is in one.
    pub(super) zone: Option<String>,
    /// The zones it may go to while it is offline; the kernel's own choice comes first.
    pub(super) choices: Vec<String>,
    /// Its NUMA node.
    pub(super) node: NodeId,
}

/// The size of a block.
pub(super) fn block_bytes(system: &dyn SystemFiles) -> Result<Bytes, KernelError> {
    let path = format!("{MEMORY}/block_size_bytes");
    let no_hotplug = |_| KernelError::NoHotplug { path: system.path(MEMORY) };
    let text = system.text(&path).map_err(no_hotplug)?;
    match u64::from_str_radix(&text, 16) {
        Ok(bytes) if bytes.is_power_of_two() => Ok(Bytes(bytes)),
        _ => Err(KernelError::NotANumber { path: system.path(&path), text }),
    }
}

/// The numbers of all blocks, in no order.
pub(super) fn numbers(system: &dyn SystemFiles) -> Result<Vec<u64>, KernelError> {
    let listed =
        system.names(MEMORY).map_err(|_| KernelError::NoHotplug { path: system.path(MEMORY) })?;
    Ok(listed.iter().filter_map(|name| name.strip_prefix("memory")?.parse().ok()).collect())
}

/// All blocks by their number, the physical address divided by the block's size.
pub(super) fn read(system: &dyn SystemFiles) -> Result<BTreeMap<u64, MemoryBlock>, KernelError> {
    let nodes = nodes(system);
    let mut found = BTreeMap::new();
    for number in numbers(system)? {
        match block(system, number, nodes.get(&number).copied().unwrap_or(NodeId(0))) {
            Ok(block) => drop(found.insert(number, block)),
            // A block that is there has zones, unless the kernel cannot take memory away.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && state(system, number).is_ok() =>
            {
                let path = system.path(&file(number, "valid_zones"));
                return Err(KernelError::NoHotremove { path });
            }
            // Blocks come and go: this one went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                let path = system.path(&file(number, "state"));
                return Err(crate::readers::sysfs::failed(
                    path,
                    crate::error::FileAccess::Read,
                    source,
                ));
            }
        }
    }
    Ok(found)
}

/// Whether a block is online, or there is no such block.
pub(super) fn is_online(blocks: &BTreeMap<u64, MemoryBlock>, number: u64) -> bool {
    blocks.get(&number).is_none_or(|block| block.state == BlockState::Online)
}

/// A file of a block.
pub(super) fn file(number: u64, name: &str) -> String {
    format!("{MEMORY}/memory{number}/{name}")
}

/// A block's state as of now.
pub(super) fn state(system: &dyn SystemFiles, number: u64) -> io::Result<BlockState> {
    Ok(match system.text(&file(number, "state"))?.as_str() {
        "online" => BlockState::Online,
        "offline" => BlockState::Offline,
        _ => BlockState::GoingOffline,
    })
}

fn block(system: &dyn SystemFiles, number: u64, node: NodeId) -> io::Result<MemoryBlock> {
    let state = state(system, number)?;
    let zones = system.text(&file(number, "valid_zones"))?;
    let words: Vec<String> = zones.split_whitespace().map(str::to_owned).collect();
    let zone = match words.as_slice() {
        [only] if state != BlockState::Offline && only != "none" => Some(only.clone()),
        _ => None,
    };
    let choices = if state == BlockState::Offline { words } else { Vec::new() };
    Ok(MemoryBlock { state, zone, choices, node })
}

/// Each node's directory links to its blocks; a kernel without NUMA has none.
fn nodes(system: &dyn SystemFiles) -> BTreeMap<u64, NodeId> {
    let mut found = BTreeMap::new();
    for name in system.names(NODES).unwrap_or_default() {
        let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else {
            continue;
        };
        for link in system.names(&format!("{NODES}/{name}")).unwrap_or_default() {
            if let Some(number) = link.strip_prefix("memory").and_then(|number| number.parse().ok())
            {
                found.insert(number, NodeId(node));
            }
        }
    }
    found
}
