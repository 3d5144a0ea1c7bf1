//! What a process holds of its mappings: `/proc/PID/smaps`, and the files behind them.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs_core::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps, VmFlags};
use procfs_core::{FromBufRead, ProcError};
use ramslice_types::Bytes;

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Why it is not known what a process holds.
#[derive(Debug, thiserror::Error)]
pub enum ProcessMemoryError {
    /// It is not there.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// It is another user's.
    #[error(
        "permission denied reading {path}: process {pid} belongs to another user: use sudo",
        path = .path.display()
    )]
    Permission {
        /// The process.
        pid: u32,
        /// Its file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("reading {path} failed", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what the kernel writes.
    #[error("{path} cannot be understood", path = .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ProcError,
    },
}

/// The file behind a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Its name, as the process saw it.
    pub path: PathBuf,
    /// Its number on its file system.
    pub inode: u64,
}

/// A range of a process' addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMapping {
    /// Where it is.
    pub addresses: Range<u64>,
    /// For reading and writing, and not for running.
    pub is_data: bool,
    /// In memory, huge pages of any kind included.
    pub resident: Bytes,
    /// Of it, transparent huge pages of anonymous memory.
    pub huge: Bytes,
    /// Swapped out.
    pub swapped: Bytes,
    /// Whether it is locked in memory.
    pub is_locked: bool,
    /// Absent for anonymous memory.
    pub file: Option<MappedFile>,
}

impl ProcessMapping {
    /// How long it is.
    pub fn size(&self) -> Bytes {
        Bytes(self.addresses.end - self.addresses.start)
    }
}

/// A running process, or a copy of its files.
#[derive(Debug, Clone)]
pub struct ProcessMemory {
    pid: u32,
    folder: PathBuf,
}

impl ProcessMemory {
    /// The process of this number on the system whose files are below `root`.
    pub fn under(root: &Path, pid: u32) -> Self {
        Self { pid, folder: root.join("proc").join(pid.to_string()) }
    }

    /// Its name; empty if it cannot be read.
    pub fn name(&self) -> String {
        fs::read_to_string(self.folder.join("comm")).unwrap_or_default().trim().to_owned()
    }

    /// All its mappings, by address.
    ///
    /// # Errors
    /// See [`ProcessMemoryError`].
    pub fn mappings(&self) -> Result<Vec<ProcessMapping>, ProcessMemoryError> {
        let path = self.folder.join("smaps");
        let file = File::open(&path).map_err(|error| self.failed(path.clone(), error))?;
        let maps = MemoryMaps::from_buf_read(BufReader::new(file))
            .map_err(|source| ProcessMemoryError::Parse { path: path.clone(), source })?;
        Ok(maps.iter().map(mapping).collect())
    }

    /// The room that a file takes which the process has open; absent if it has not.
    ///
    /// By the open file, because its name may have been removed, or lie in another container.
    ///
    /// # Errors
    /// See [`ProcessMemoryError`].
    pub fn open_file_room(&self, wanted: &MappedFile) -> Result<Option<Bytes>, ProcessMemoryError> {
        let path = self.folder.join("fd");
        let entries = fs::read_dir(&path).map_err(|error| self.failed(path.clone(), error))?;
        // Files come and go meanwhile
        let mut found: Vec<fs::Metadata> = entries
            .flatten()
            .filter(|entry| fs::read_link(entry.path()).is_ok_and(|name| name == wanted.path))
            .filter_map(|entry| fs::metadata(entry.path()).ok())
            .collect();
        // Names of memfd files may be equal; inodes of an overlay differ from those in smaps
        if found.len() > 1 {
            found.retain(|about| about.ino() == wanted.inode);
        }
        Ok(found.first().map(|about| Bytes(about.blocks() * BLOCK_BYTES)))
    }

    fn failed(&self, path: PathBuf, source: io::Error) -> ProcessMemoryError {
        match source.kind() {
            io::ErrorKind::NotFound => ProcessMemoryError::NoProcess { pid: self.pid },
            io::ErrorKind::PermissionDenied => {
                ProcessMemoryError::Permission { pid: self.pid, path }
            }
            _ => ProcessMemoryError::Read { path, source },
        }
    }
}

fn mapping(map: &MemoryMap) -> ProcessMapping {
    let bytes = |name: &str| Bytes(map.extension.map.get(name).copied().unwrap_or_default());
    let perms = map.perms;
    let file = match &map.pathname {
        MMapPath::Path(path) => Some(MappedFile { path: path.clone(), inode: map.inode }),
        _ => None,
    };
    ProcessMapping {
        addresses: map.address.0..map.address.1,
        is_data: perms.contains(MMPermissions::READ | MMPermissions::WRITE)
            && !perms.contains(MMPermissions::EXECUTE),
        // Rss leaves out pages of hugetlbfs
        resident: bytes("Rss") + bytes("Shared_Hugetlb") + bytes("Private_Hugetlb"),
        huge: bytes("AnonHugePages"),
        swapped: bytes("Swap"),
        is_locked: map.extension.vm_flags.contains(VmFlags::LO),
        file,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SMAPS: &str = "\
7f1a0fe00000-7f1a1fe00000 rw-p 00000000 00:00 0 
Size:             262144 kB
Rss:               10240 kB
AnonHugePages:      8192 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:               1024 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac lo sd hg 
7f1a20000000-7f1a20200000 rw-s 00000000 00:0f 77                         /dev/hugepages/a guest
Size:               2048 kB
Rss:                   0 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
VmFlags: rd wr sh mr mw me ms ht 
7f1a30000000-7f1a30001000 r-xp 00000000 fe:01 78                         /usr/bin/qemu
Rss:                   4 kB
";

    fn process(smaps: &str) -> (tempfile::TempDir, ProcessMemory) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/42");
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("smaps"), smaps).unwrap();
        let process = ProcessMemory::under(root.path(), 42);
        (root, process)
    }

    #[test]
    fn what_is_held_of_each_mapping_is_as_the_kernel_says() {
        let (_root, process) = process(SMAPS);
        let found = process.mappings().unwrap();
        let [anonymous, huge_file, program] = &found[..] else { panic!("{found:?}") };
        assert_eq!(anonymous.addresses, 0x7f1a_0fe0_0000..0x7f1a_1fe0_0000);
        assert_eq!(anonymous.size(), Bytes(256 << 20));
        assert_eq!(anonymous.resident, Bytes(10 << 20));
        assert_eq!(anonymous.huge, Bytes(8 << 20));
        assert_eq!(anonymous.swapped, Bytes(1 << 20));
        assert!(anonymous.is_data && anonymous.is_locked && anonymous.file.is_none());
        assert_eq!(huge_file.resident, Bytes(2 << 20));
        assert_eq!(
            huge_file.file,
            Some(MappedFile { path: "/dev/hugepages/a guest".into(), inode: 77 })
        );
        assert!(huge_file.is_data && !huge_file.is_locked && !program.is_data);
    }

    #[test]
    fn the_room_of_a_file_is_that_of_the_open_one() {
        let (root, process) = process("");
        let path = root.path().join("memory");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        io::Write::write_all(&mut &file, &[1; 8192]).unwrap();
        file.sync_all().unwrap();
        let inode = file.metadata().unwrap().ino();
        symlink(&path, root.path().join("proc/42/fd/7")).unwrap();
        let taken = |path: &Path, inode| {
            process.open_file_room(&MappedFile { path: path.to_owned(), inode }).unwrap()
        };
        assert_eq!(taken(&path, inode), Some(Bytes(8192)));
        assert_eq!(taken(&path, inode + 1), Some(Bytes(8192)));
        assert_eq!(taken(Path::new("/another"), inode), None);
        // With two of one name, it is the one of this inode
        symlink(&path, root.path().join("proc/42/fd/8")).unwrap();
        assert_eq!(taken(&path, inode), Some(Bytes(8192)));
        assert_eq!(taken(&path, inode + 1), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let root = tempfile::tempdir().unwrap();
        let process = ProcessMemory::under(root.path(), 42);
        let error = process.mappings().unwrap_err();
        assert_eq!(error.to_string(), "there is no process 42");
        let refused = process.failed("x".into(), io::ErrorKind::PermissionDenied.into());
        assert!(refused.to_string().contains("use sudo"), "{refused}");
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused_with_its_path() {
        let (_root, process) = process("Rss: 4 kB\n");
        let error = process.mappings().unwrap_err().to_string();
        assert!(error.contains("proc/42/smaps cannot be understood"), "{error}");
    }
}
