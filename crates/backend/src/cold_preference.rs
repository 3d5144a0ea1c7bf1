//! Where the memory of a whole program goes that is to be cold: twins of the patched kernel, or on
//! any kernel the lowest memory tier. The C library `libramslice-cold` has the same rules.

use std::fs;
use std::io;
use std::path::Path;

use ramslice_types::Bytes;
use rustix::io::Errno;

use crate::cold_memory::{ColdError, ColdMemory};
use crate::readers::numa::parse_nodes;
use crate::sys::memory_policy::prefer_nodes;

const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// Whose memory is cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdSource {
    /// Twins, which `mmap(MAP_COLD)` asks for.
    Twins,
    /// Nodes without CPUs of the lowest of several memory tiers, which take a memory policy.
    LowestTier,
}

/// Nodes that a program is to prefer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdPreference {
    /// Whose they are.
    pub source: ColdSource,
    /// Their numbers, ascending; at least one.
    pub nodes: Vec<u32>,
}

/// Why a program cannot have cold memory.
#[derive(Debug, thiserror::Error)]
pub enum PreferenceError {
    /// The machine has none.
    #[error(
        "this machine has no cold memory: boot the patched kernel with `ramslice_cold=2G` on its \
         command line, or have a node without CPUs in a slower memory tier (/{TIERS})"
    )]
    Nowhere,
    /// All twins are empty.
    #[error("cold memory has no size so far: give it one, as in `ramslice cold --size 2G`")]
    Unsized,
    /// What the kernel says about twins cannot be read.
    #[error(transparent)]
    Twins(#[from] ColdError),
    /// Its cpuset is without them.
    #[error(
        "this process may not use node {}: Mems_allowed_list in /proc/self/status has its \
         cpuset's nodes", numbers(.nodes)
    )]
    Excluded {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// Policies are forbidden, or are not there.
    #[error("memory policies are not allowed here, as in most containers: set_mempolicy() failed")]
    Refused(#[source] io::Error),
}

impl ColdPreference {
    /// Cold memory of the system whose files are below `root`.
    ///
    /// # Errors
    /// [`PreferenceError::Nowhere`], [`PreferenceError::Unsized`], [`PreferenceError::Twins`].
    pub fn find(root: &Path) -> Result<Self, PreferenceError> {
        let found = match ColdMemory::under(root).look() {
            Ok(state) if !state.nodes.is_empty() => {
                let sized = state.nodes.iter().filter(|node| node.size > Bytes(0));
                let nodes: Vec<u32> = sized.map(|node| node.twin).collect();
                if nodes.is_empty() {
                    return Err(PreferenceError::Unsized);
                }
                Self { source: ColdSource::Twins, nodes }
            }
            Ok(_) | Err(ColdError::Missing(_)) => {
                Self { source: ColdSource::LowestTier, nodes: lowest_tier(root) }
            }
            Err(error) => return Err(error.into()),
        };
        if found.nodes.is_empty() { Err(PreferenceError::Nowhere) } else { Ok(found.ascending()) }
    }

    fn ascending(mut self) -> Self {
        self.nodes.sort_unstable();
        self
    }

    /// Has all that this thread allocates go there while there is room, and what it executes.
    /// Otherwise it goes to the nearest node that has room.
    ///
    /// # Errors
    /// [`PreferenceError::Excluded`], [`PreferenceError::Refused`].
    pub fn apply(&self) -> Result<(), PreferenceError> {
        prefer_nodes(&self.nodes).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::INVAL) => PreferenceError::Excluded { nodes: self.nodes.clone() },
            _ => PreferenceError::Refused(source),
        })
    }

    /// The nodes as text: `1`, or `2 and 3`.
    pub fn numbers(&self) -> String {
        numbers(&self.nodes)
    }
}

fn numbers(nodes: &[u32]) -> String {
    let words: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// Nodes without CPUs of the lowest tier; none if there is one tier. Then nothing says which node
/// is slower: one without CPUs may be the fastest.
fn lowest_tier(root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(root.join(TIERS)).into_iter().flatten().flatten();
    // The higher its number, the slower a tier
    let mut tiers: Vec<(u32, Vec<u32>)> = entries
        .filter_map(|entry| {
            let tier = entry.file_name().to_str()?.strip_prefix("memory_tier")?.parse().ok()?;
            Some((tier, list(&entry.path().join("nodelist"))))
        })
        .filter(|(_, nodes)| !nodes.is_empty())
        .collect();
    tiers.sort_unstable();
    let with_cpus = list(&root.join(NODES).join("has_cpu"));
    match tiers.pop() {
        Some((_, nodes)) if !tiers.is_empty() => {
            nodes.into_iter().filter(|node| !with_cpus.contains(node)).collect()
        }
        _ => Vec::new(),
    }
}

/// Nodes by a list of the kernel, as in `0-1,3`; none if it cannot be read.
fn list(path: &Path) -> Vec<u32> {
    fs::read_to_string(path).ok().and_then(|text| parse_nodes(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn twins(sizes: [&str; 2]) -> tempfile::TempDir {
        const COLD: &str = "sys/kernel/mm/ramslice/cold";
        let mut files = vec![
            (format!("{COLD}/mode"), "overflow\n"),
            (format!("{COLD}/unit_bytes"), "134217728\n"),
        ];
        for (node, size) in sizes.into_iter().enumerate() {
            files.push((format!("{COLD}/node{node}/bytes"), size));
            files.push((format!("{COLD}/node{node}/max_bytes"), "1073741824\n"));
            files.push((format!("{COLD}/node{node}/resting_bytes"), "0\n"));
            files.push((format!("{COLD}/node{node}/twin"), ["3\n", "2\n"][node]));
        }
        let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        machine(&files)
    }

    fn tiers(lowest: &str) -> tempfile::TempDir {
        machine(&[
            ("sys/devices/system/node/has_cpu", "0-1\n"),
            ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0\n"),
            ("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", lowest),
            ("sys/devices/virtual/memory_tiering/uevent", ""),
        ])
    }

    fn found(root: &tempfile::TempDir) -> Result<(ColdSource, Vec<u32>), String> {
        let found = ColdPreference::find(root.path());
        found.map(|found| (found.source, found.nodes)).map_err(|error| error.to_string())
    }

    #[test]
    fn twins_that_have_a_size_come_first() {
        assert_eq!(found(&twins(["134217728\n"; 2])), Ok((ColdSource::Twins, vec![2, 3])));
        assert_eq!(found(&twins(["134217728\n", "0\n"])), Ok((ColdSource::Twins, vec![3])));
        let error = found(&twins(["0\n"; 2])).unwrap_err();
        assert!(error.contains("ramslice cold --size 2G"), "{error}");
    }

    #[test]
    fn otherwise_it_is_what_has_no_cpus_of_the_lowest_tier() {
        assert_eq!(found(&tiers("1-3,5\n")), Ok((ColdSource::LowestTier, vec![2, 3, 5])));
        for lowest in ["1\n", "\n"] {
            assert!(found(&tiers(lowest)).unwrap_err().contains("no cold memory"));
        }
    }

    #[test]
    fn a_machine_that_has_none_is_told_what_to_do() {
        let error = found(&machine(&[])).unwrap_err();
        assert!(error.contains("ramslice_cold=2G"), "{error}");
    }

    #[test]
    fn nodes_are_listed_in_words() {
        assert_eq!(numbers(&[1]), "1");
        assert_eq!(numbers(&[1, 2, 5]), "1, 2 and 5");
    }
}
