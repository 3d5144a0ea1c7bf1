//! Cold memory: the twins of nodes, how large they are, and who gets their memory. See
//! `Documentation/ABI/testing/sysfs-kernel-mm-ramslice`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ramslice_types::Bytes;
use rustix::io::Errno;

use crate::error::{FileAccess, KernelError};
use crate::readers::numa::meminfo_bytes;
use crate::readers::sysfs::failed as sysfs_failed;

const COLD: &str = "sys/kernel/mm/ramslice/cold";

/// Who gets the memory of twins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdMode {
    /// All, after all other memory.
    Overflow,
    /// What asks for it; others only instead of an OOM kill.
    Strict,
}

impl ColdMode {
    /// The kernel's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Strict => "strict",
        }
    }
}

impl fmt::Display for ColdMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ColdMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Overflow, Self::Strict]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is no mode of cold memory: write overflow or strict"))
    }
}

/// A node and its twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdNode {
    /// The node.
    pub node: u32,
    /// Its twin: a node without CPUs.
    pub twin: u32,
    /// What the twin has.
    pub size: Bytes,
    /// Of that, what is free; all slices that are off are.
    pub free: Bytes,
    /// What is in slices that the power driver was told may rest.
    pub resting: Bytes,
    /// The most that it may have.
    pub most: Bytes,
}

/// Cold memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdState {
    /// Who gets it.
    pub mode: ColdMode,
    /// Sizes are multiples of this.
    pub unit: Bytes,
    /// Nodes that have a twin, in order.
    pub nodes: Vec<ColdNode>,
}

impl ColdState {
    /// A node whose twin can have this size.
    ///
    /// # Errors
    /// [`ColdError::NoTwin`], [`ColdError::NoMultiple`], [`ColdError::TooMuch`].
    pub fn check(&self, node: u32, size: Bytes) -> Result<&ColdNode, ColdError> {
        let Some(found) = self.nodes.iter().find(|found| found.node == node) else {
            let has: Vec<String> = self.nodes.iter().map(|node| node.node.to_string()).collect();
            return Err(ColdError::NoTwin { node, has: has.join(", ") });
        };
        check_multiple(size, self.unit)?;
        if size > found.most {
            return Err(ColdError::TooMuch { size, node, most: found.most });
        }
        Ok(found)
    }

    /// Equal parts for all twins.
    ///
    /// # Errors
    /// [`ColdError::NoMultiple`]; what [`Self::check`] says of a part.
    pub fn parts(&self, size: Bytes) -> Result<Vec<(u32, Bytes)>, ColdError> {
        let count = self.nodes.len().max(1) as u64;
        check_multiple(size, Bytes(self.unit.0 * count))?;
        let part = Bytes(size.0 / count);
        self.nodes.iter().map(|found| Ok((self.check(found.node, part)?.node, part))).collect()
    }
}

/// What may rest in all twins together; `sysfs` is ramslice's folder. Nothing without twins.
pub(crate) fn resting_bytes(sysfs: &Path) -> Result<Bytes, KernelError> {
    let folder = sysfs.join("cold");
    let mut sum = 0;
    for node in nodes_in(&folder)? {
        sum += number_in(&folder, &format!("node{node}/resting_bytes"))?;
    }
    Ok(Bytes(sum))
}

/// The nodes that are twins, with memory or without; `sysfs` is ramslice's folder.
pub(crate) fn twins(sysfs: &Path) -> Result<Vec<u32>, KernelError> {
    let folder = sysfs.join("cold");
    let nodes = nodes_in(&folder)?.into_iter();
    nodes.map(|node| Ok(number_in(&folder, &format!("node{node}/twin"))? as u32)).collect()
}

/// Nodes that have a twin; none if the folder is missing.
fn nodes_in(folder: &Path) -> Result<Vec<u32>, KernelError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|source| sysfs_failed(folder.to_owned(), FileAccess::Read, source))?,
    };
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .collect())
}

fn number_in(folder: &Path, name: &str) -> Result<u64, KernelError> {
    let path = folder.join(name);
    let text = fs::read_to_string(&path)
        .map_err(|source| sysfs_failed(path.clone(), FileAccess::Read, source))?;
    let text = text.trim();
    text.parse().map_err(|_| KernelError::NotANumber { path, text: text.to_owned() })
}

fn check_multiple(size: Bytes, unit: Bytes) -> Result<(), ColdError> {
    let rest = size.0 % unit.0.max(1);
    if rest == 0 {
        return Ok(());
    }
    Err(ColdError::NoMultiple { size, unit, lower: Bytes(size.0 - rest) })
}

/// What the kernel's errno means for a change of a size; all is as before.
fn why_kept(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOSPC => {
            "too few memory blocks can be emptied; `ramslice explain` says what is in the way"
        }
        Errno::BUSY => {
            "another change is under way, or a block could not be emptied for now; try again"
        }
        Errno::TIMEDOUT => "it took too long; give it more time with --deadline",
        Errno::INTR => "it was interrupted",
        Errno::NOMEM => "there is no memory to work with",
        Errno::OPNOTSUPP => "slices and memory blocks do not fit in each other",
        Errno::INVAL | Errno::RANGE | Errno::NODEV => {
            "its limits have changed meanwhile; look at `ramslice cold`, and try again"
        }
        Errno::PERM => "something that listens to memory hotplug does not allow it",
        _ => return None,
    })
}

/// Why cold memory cannot be had, or not as asked.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    /// The kernel has none.
    #[error(
        "this kernel has no cold memory ({path} is missing): boot a kernel with \
         CONFIG_RAMSLICE_COLD, and add `ramslice_cold=0` to its command line",
        path = .0.display()
    )]
    Missing(PathBuf),
    /// There is no such node, or it has no twin.
    #[error("node {node} has no cold memory: nodes that have are {has}")]
    NoTwin {
        /// The node.
        node: u32,
        /// Those that have.
        has: String,
    },
    /// Not a multiple of the unit.
    #[error(
        "a size of {} is no multiple of {}: write {} or {}",
        .size.typed(), .unit.typed(), .lower.typed(),
        Bytes(.lower.0.saturating_add(.unit.0)).typed()
    )]
    NoMultiple {
        /// What was asked for.
        size: Bytes,
        /// What sizes are multiples of.
        unit: Bytes,
        /// The next size below.
        lower: Bytes,
    },
    /// More than three quarters.
    #[error(
        "{} of cold memory is too much for node {node}: at most {}",
        .size.typed(), .most.typed()
    )]
    TooMuch {
        /// What was asked for.
        size: Bytes,
        /// The node.
        node: u32,
        /// What is allowed.
        most: Bytes,
    },
    /// The file of the mode holds another word.
    #[error("{path} should read overflow or strict, but reads `{text}`", path = .path.display())]
    UnknownMode {
        /// The file.
        path: PathBuf,
        /// What it reads.
        text: String,
    },
    /// The kernel began and could not; nothing has changed.
    #[error("node {node} keeps {size} of cold memory: {why}")]
    Kept {
        /// The node.
        node: u32,
        /// What its twin has, as before.
        size: Bytes,
        /// Why.
        why: &'static str,
    },
    /// Any other failure.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The running system, or a copy of its files.
#[derive(Debug, Clone)]
pub struct ColdMemory {
    root: PathBuf,
}

impl ColdMemory {
    /// The system whose files are below `root`.
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// How things are.
    ///
    /// # Errors
    /// [`ColdError::Missing`], or what cannot be read.
    pub fn look(&self) -> Result<ColdState, ColdError> {
        let folder = self.root.join(COLD);
        let mode = match fs::read_to_string(folder.join("mode")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ColdError::Missing(folder));
            }
            read => {
                read.map_err(|source| sysfs_failed(folder.join("mode"), FileAccess::Read, source))?
            }
        };
        let mode = mode.trim().parse().map_err(|_| ColdError::UnknownMode {
            path: folder.join("mode"),
            text: mode.trim().to_owned(),
        })?;
        let mut nodes = nodes_in(&folder)?
            .into_iter()
            .map(|node| self.look_at(node))
            .collect::<Result<Vec<_>, KernelError>>()?;
        nodes.sort_by_key(|node| node.node);
        Ok(ColdState { mode, unit: Bytes(self.number("unit_bytes")?), nodes })
    }

    /// What the twin of a node has now, as it changes.
    pub fn size(&self, node: u32) -> Option<Bytes> {
        self.number(&format!("node{node}/bytes")).ok().map(Bytes)
    }

    /// Who gets it from now on.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn set_mode(&self, mode: ColdMode) -> Result<(), KernelError> {
        self.write("mode", mode.name())
            .map_err(|(path, source)| sysfs_failed(path, FileAccess::Write, source))
    }

    /// How long a change of a size may take.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn deadline(&self) -> Result<Duration, KernelError> {
        self.number("deadline_ms").map(Duration::from_millis)
    }

    /// A change of a size gives up after this time.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), KernelError> {
        self.write("deadline_ms", &deadline.as_millis().to_string())
            .map_err(|(path, source)| sysfs_failed(path, FileAccess::Write, source))
    }

    /// Gives the twin of a node this much of its memory, or takes some back. Returns when that is
    /// done; after an error every block is where it was.
    ///
    /// # Errors
    /// See [`ColdState::check`]; [`ColdError::Kept`], or what cannot be written.
    pub fn resize(&self, state: &ColdState, node: u32, size: Bytes) -> Result<(), ColdError> {
        let before = state.check(node, size)?.size;
        let Err((path, source)) = self.write(&format!("node{node}/bytes"), &size.0.to_string())
        else {
            return Ok(());
        };
        match Errno::from_io_error(&source).and_then(why_kept) {
            Some(why) => {
                Err(ColdError::Kept { node, size: self.size(node).unwrap_or(before), why })
            }
            None => Err(sysfs_failed(path, FileAccess::Write, source).into()),
        }
    }

    fn look_at(&self, node: u32) -> Result<ColdNode, KernelError> {
        let number = |name: &str| self.number(&format!("node{node}/{name}"));
        let twin = number("twin")? as u32;
        Ok(ColdNode {
            node,
            twin,
            size: Bytes(number("bytes")?),
            free: self.free_of(twin)?,
            resting: Bytes(number("resting_bytes")?),
            most: Bytes(number("max_bytes")?),
        })
    }

    /// Free memory of a node; none while it has no memory and no folder.
    fn free_of(&self, node: u32) -> Result<Bytes, KernelError> {
        let path = self.root.join(format!("sys/devices/system/node/node{node}/meminfo"));
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes(0)),
            read => read.map_err(|source| sysfs_failed(path.clone(), FileAccess::Read, source))?,
        };
        meminfo_bytes(&text, "MemFree:")
            .ok_or_else(|| KernelError::NotANumber { path, text: text.trim().to_owned() })
    }

    fn number(&self, name: &str) -> Result<u64, KernelError> {
        number_in(&self.root.join(COLD), name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), (PathBuf, io::Error)> {
        let path = self.root.join(COLD).join(name);
        // In one call, which a signal may end: write_all would begin again.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| io::Write::write(&mut file, text.as_bytes()));
        written.map(drop).map_err(|source| (path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let cold = root.path().join(COLD);
        for (name, text) in [
            ("mode", "strict\n"),
            ("unit_bytes", "134217728\n"),
            ("node0/bytes", "268435456\n"),
            ("node0/max_bytes", "1610612736\n"),
            ("node0/resting_bytes", "134217728\n"),
            ("node0/twin", "1\n"),
        ] {
            let path = cold.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let node = root.path().join("sys/devices/system/node/node1");
        fs::create_dir_all(&node).unwrap();
        fs::write(
            node.join("meminfo"),
            "Node 1 MemTotal:         262144 kB\nNode 1 MemFree:          200000 kB\n",
        )
        .unwrap();
        root
    }

    #[test]
    fn a_machine_is_read() {
        let root = machine();
        let state = ColdMemory::under(root.path()).look().unwrap();
        assert_eq!(state.mode, ColdMode::Strict);
        assert_eq!(state.unit, Bytes(128 << 20));
        let node = ColdNode {
            node: 0,
            twin: 1,
            size: Bytes(256 << 20),
            free: Bytes(200_000 << 10),
            resting: Bytes(128 << 20),
            most: Bytes(1536 << 20),
        };
        assert_eq!(state.nodes, [node]);
    }

    #[test]
    fn what_rests_is_summed_over_twins_and_nothing_without() {
        let root = machine();
        let sysfs = root.path().join("sys/kernel/mm/ramslice");
        assert_eq!(resting_bytes(&sysfs).unwrap(), Bytes(128 << 20));
        let other = sysfs.join("cold/node2");
        fs::create_dir(&other).unwrap();
        assert!(resting_bytes(&sysfs).unwrap_err().to_string().contains("node2/resting_bytes"));
        fs::write(other.join("resting_bytes"), "4096\n").unwrap();
        assert_eq!(resting_bytes(&sysfs).unwrap(), Bytes((128 << 20) + 4096));
        assert_eq!(resting_bytes(root.path()).unwrap(), Bytes(0));
    }

    #[test]
    fn what_cannot_be_is_refused_before_the_kernel_is_asked() {
        let root = machine();
        let cold = ColdMemory::under(root.path());
        let state = cold.look().unwrap();
        let refused = |node, size| cold.resize(&state, node, Bytes(size)).unwrap_err().to_string();
        assert_eq!(
            refused(0, 100 << 20),
            "a size of 100MiB is no multiple of 128MiB: write 0 or 128MiB"
        );
        assert_eq!(
            refused(0, 2 << 30),
            "2GiB of cold memory is too much for node 0: at most 1536MiB"
        );
        assert_eq!(refused(3, 0), "node 3 has no cold memory: nodes that have are 0");
        assert_eq!(cold.size(0), Some(Bytes(256 << 20)));
        cold.resize(&state, 0, Bytes(512 << 20)).unwrap();
        assert_eq!(cold.size(0), Some(Bytes(512 << 20)));
    }

    #[test]
    fn parts_are_equal_and_whole_units() {
        let node = |node| ColdNode {
            node,
            twin: node + 2,
            size: Bytes(0),
            free: Bytes(0),
            resting: Bytes(0),
            most: Bytes(1 << 30),
        };
        let unit = Bytes(128 << 20);
        let state = ColdState { mode: ColdMode::Overflow, unit, nodes: vec![node(0), node(1)] };
        let part = Bytes(512 << 20);
        assert_eq!(state.parts(Bytes(1 << 30)).unwrap(), [(0, part), (1, part)]);
        let refused = |mib: u64| state.parts(Bytes(mib << 20)).unwrap_err().to_string();
        assert_eq!(
            refused(640),
            "a size of 640MiB is no multiple of 256MiB: write 512MiB or 768MiB"
        );
        assert_eq!(refused(4096), "2GiB of cold memory is too much for node 0: at most 1GiB");
    }

    #[test]
    fn each_errno_has_a_sentence() {
        for errno in [
            Errno::NOSPC,
            Errno::BUSY,
            Errno::TIMEDOUT,
            Errno::INTR,
            Errno::NOMEM,
            Errno::OPNOTSUPP,
            Errno::INVAL,
            Errno::RANGE,
            Errno::NODEV,
            Errno::PERM,
        ] {
            assert!(why_kept(errno).is_some(), "{errno}");
        }
        assert_eq!(why_kept(Errno::IO), None);
    }

    #[test]
    fn what_the_kernel_does_not_write_is_named() {
        let root = machine();
        fs::write(root.path().join(COLD).join("mode"), "cool\n").unwrap();
        let error = ColdMemory::under(root.path()).look().unwrap_err().to_string();
        assert!(error.ends_with("cold/mode should read overflow or strict, but reads `cool`"));
        fs::write(root.path().join(COLD).join("mode"), "strict\n").unwrap();
        fs::write(root.path().join("sys/devices/system/node/node1/meminfo"), "odd\n").unwrap();
        let error = ColdMemory::under(root.path()).look().unwrap_err().to_string();
        assert!(error.contains("node1/meminfo"), "{error}");
    }

    #[test]
    fn a_kernel_without_it_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let error = ColdMemory::under(root.path()).look().unwrap_err().to_string();
        assert!(error.contains("ramslice_cold=0"), "{error}");
    }

    #[test]
    fn modes_are_the_kernels_words() {
        for mode in [ColdMode::Overflow, ColdMode::Strict] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("cool".parse::<ColdMode>().unwrap_err().contains("overflow or strict"));
    }
}
