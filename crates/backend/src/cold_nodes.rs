//! Nodes whose memory is for what is rarely used, each with the node that it serves: twins of the
//! patched kernel, or on any kernel nodes without CPUs. And where their memory is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ramslice_types::Bytes;

use crate::error::{FileAccess, KernelError};
use crate::readers::numa::{meminfo_bytes, parse_nodes};
use crate::readers::sysfs::failed as sysfs_failed;

const NODES: &str = "sys/devices/system/node";
const BLOCKS: &str = "sys/devices/system/memory";
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// A node with CPUs, and the one that takes what is rarely used there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdPair {
    /// The node with CPUs.
    pub hot: NodeMemory,
    /// The node without.
    pub cold: NodeMemory,
}

/// Memory of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    /// The node.
    pub node: u32,
    /// What it has.
    pub total: Bytes,
    /// Of that, what is free; on the patched kernel with slices that are off.
    pub free: Bytes,
    /// Its memory blocks as physical addresses, ascending, those side by side as one.
    pub regions: Vec<Range<u64>>,
}

/// Finds these nodes.
#[derive(Debug, Clone)]
pub struct ColdNodes {
    root: PathBuf,
}

impl ColdNodes {
    /// Those of the system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// For each node with CPUs its nearest node without, if that has memory and is in no faster
    /// tier. A node without CPUs serves the node with CPUs that is nearest to it.
    ///
    /// # Errors
    /// What cannot be read. A system without NUMA has no pairs.
    pub fn pairs(&self) -> Result<Vec<ColdPair>, KernelError> {
        let with_memory = self.list("has_memory")?;
        let with_cpus = self.list("has_cpu")?;
        let tiers = self.tiers();
        let mut nearest: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for &cold in with_memory.iter().filter(|node| !with_cpus.contains(node)) {
            let distances = self.distances(cold)?;
            let far = |&node: &u32| distances.get(&node).copied().unwrap_or(u32::MAX);
            let hot = with_cpus.iter().copied().filter(|node| with_memory.contains(node));
            let Some(hot) = hot.min_by_key(|node| (far(node), *node)) else { continue };
            // Tiers with higher numbers are slower.
            if let (Some(cold), Some(hot)) = (tiers.get(&cold), tiers.get(&hot))
                && cold < hot
            {
                continue;
            }
            let found = (far(&hot), cold);
            nearest.entry(hot).and_modify(|best| *best = found.min(*best)).or_insert(found);
        }
        nearest
            .into_iter()
            .map(|(hot, (_, cold))| {
                Ok(ColdPair { hot: self.memory(hot)?, cold: self.memory(cold)? })
            })
            .collect()
    }

    fn memory(&self, node: u32) -> Result<NodeMemory, KernelError> {
        let path = self.root.join(NODES).join(format!("node{node}/meminfo"));
        let text = read(&path)?;
        let field = |name: &str| {
            meminfo_bytes(&text, name)
                .ok_or_else(|| KernelError::NotANumber { path: path.clone(), text: text.clone() })
        };
        let (total, free) = (field("MemTotal:")?, field("MemFree:")?);
        Ok(NodeMemory { node, total, free, regions: self.regions(node)? })
    }

    fn regions(&self, node: u32) -> Result<Vec<Range<u64>>, KernelError> {
        let path = self.root.join(BLOCKS).join("block_size_bytes");
        let text = read(&path)?;
        let size = u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| KernelError::NotANumber { path, text: text.clone() })?;
        let folder = self.root.join(NODES).join(format!("node{node}"));
        let entries = fs::read_dir(&folder)
            .map_err(|source| sysfs_failed(folder, FileAccess::Read, source))?;
        let mut blocks: Vec<u64> = entries
            .filter_map(|entry| {
                entry.ok()?.file_name().to_str()?.strip_prefix("memory")?.parse().ok()
            })
            .collect();
        blocks.sort_unstable();
        let mut regions: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            let start = block.saturating_mul(size);
            match regions.last_mut() {
                Some(last) if last.end == start => last.end = start + size,
                _ => regions.push(start..start + size),
            }
        }
        Ok(regions)
    }

    /// How far each node is from this one.
    fn distances(&self, node: u32) -> Result<BTreeMap<u32, u32>, KernelError> {
        let path = self.root.join(NODES).join(format!("node{node}/distance"));
        let text = read(&path)?;
        let found: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
        let found = found.map_err(|_| KernelError::NotANumber { path, text: text.clone() })?;
        // One for each node that is online, in order
        Ok(self.list("online")?.into_iter().zip(found).collect())
    }

    /// The tier of each node; empty on kernels before 6.1.
    fn tiers(&self) -> BTreeMap<u32, u32> {
        let mut tiers = BTreeMap::new();
        for entry in fs::read_dir(self.root.join(TIERS)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let tier =
                name.to_str().and_then(|name| name.strip_prefix("memory_tier")?.parse().ok());
            let nodes = fs::read_to_string(entry.path().join("nodelist")).ok();
            if let (Some(tier), Some(nodes)) = (tier, nodes.as_deref().and_then(parse_nodes)) {
                tiers.extend(nodes.into_iter().map(|node| (node, tier)));
            }
        }
        tiers
    }

    /// Nodes by a list of the kernel, as in `0-1,3`; none where there is no such file.
    fn list(&self, name: &str) -> Result<Vec<u32>, KernelError> {
        let path = self.root.join(NODES).join(name);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|source| sysfs_failed(path.clone(), FileAccess::Read, source))?,
        };
        parse_nodes(&text)
            .ok_or_else(|| KernelError::NotANumber { path, text: text.trim().to_owned() })
    }
}

fn read(path: &Path) -> Result<String, KernelError> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| sysfs_failed(path.to_owned(), FileAccess::Read, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Nodes 0 and 1 with CPUs; 2 and 3 without, node 2 near to 1 and 3 near to 0.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| put(root.path(), name, text);
        for (name, text) in [("online", "0-3"), ("has_memory", "0-3"), ("has_cpu", "0-1")] {
            at(&format!("{NODES}/{name}"), text);
        }
        at(&format!("{BLOCKS}/block_size_bytes"), "8000000\n");
        let rows = ["10 20 30 15", "20 10 15 30", "30 15 10 40", "15 30 40 10"];
        for (node, distance) in rows.into_iter().enumerate() {
            let folder = format!("{NODES}/node{node}");
            at(&format!("{folder}/distance"), distance);
            let meminfo = format!("Node {node} MemTotal: 2048 kB\nNode {node} MemFree: 1024 kB\n");
            at(&format!("{folder}/meminfo"), &meminfo);
            for block in [2 * node, 2 * node + 1, 2 * node + 20] {
                at(&format!("{folder}/memory{block}/state"), "online\n");
            }
        }
        root
    }

    fn partners(root: &Path) -> Vec<(u32, u32)> {
        let pairs = ColdNodes::under(root).pairs().unwrap();
        pairs.iter().map(|pair| (pair.hot.node, pair.cold.node)).collect()
    }

    #[test]
    fn each_node_has_the_nearest_one_without_cpus() {
        let root = machine();
        let pairs = ColdNodes::under(root.path()).pairs().unwrap();
        assert_eq!(partners(root.path()), [(0, 3), (1, 2)]);
        let cold = NodeMemory {
            node: 3,
            total: Bytes(2 << 20),
            free: Bytes(1 << 20),
            regions: vec![6 << 27..8 << 27, 26 << 27..27 << 27],
        };
        assert_eq!(pairs[0].cold, cold);
    }

    #[test]
    fn faster_memory_without_cpus_is_no_place_for_what_is_rarely_used() {
        let root = machine();
        put(root.path(), &format!("{TIERS}/memory_tier4/nodelist"), "0-2\n");
        put(root.path(), &format!("{TIERS}/memory_tier2/nodelist"), "3\n");
        assert_eq!(partners(root.path()), [(1, 2)]);
    }

    #[test]
    fn nodes_without_memory_and_machines_without_nodes_have_none() {
        let root = machine();
        put(root.path(), &format!("{NODES}/has_memory"), "0-1\n");
        assert_eq!(partners(root.path()), []);
        assert_eq!(partners(tempfile::tempdir().unwrap().path()), []);
    }
}
