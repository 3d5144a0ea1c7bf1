//! Finds names for the kernel's numbers: files by device and inode, cgroups by inode.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ramslice_types::{CgroupName, ContentsDetail, DeviceNumber, FileId, FileName, SliceContents};
use tracing::debug;

use crate::readers::KernelPaths;
use crate::readers::mounts::{Mount, mounts};

/// Finds names, and keeps those that cost a walk over all processes or all cgroups.
pub(crate) struct PageNames {
    proc: PathBuf,
    cgroups: PathBuf,
    mapped: OnceLock<BTreeMap<FileId, PathBuf>>,
    cgroup_paths: OnceLock<BTreeMap<u64, PathBuf>>,
}

impl PageNames {
    pub(crate) fn new(paths: &KernelPaths) -> Self {
        Self {
            proc: paths.proc.clone(),
            cgroups: paths.cgroups.clone(),
            mapped: OnceLock::new(),
            cgroup_paths: OnceLock::new(),
        }
    }

    /// Adds the names that can be found. None is no error: a file may have been deleted.
    pub(crate) fn add(&self, contents: &mut SliceContents, detail: ContentsDetail) {
        let mut wanted = contents.file_ids();
        let mut found = BTreeMap::new();
        if !wanted.is_empty() {
            let mapped = self.mapped.get_or_init(|| self.known_files());
            wanted.retain(|id| match mapped.get(id) {
                Some(path) => found.insert(*id, path.clone()).is_some(),
                None => true,
            });
        }
        if detail.find_files && !wanted.is_empty() {
            found.extend(self.search(wanted));
        }
        contents.files = found.into_iter().map(|(file, path)| FileName { file, path }).collect();

        let inodes: BTreeSet<u64> =
            contents.runs.iter().filter_map(|run| run.cgroup_inode).collect();
        if !inodes.is_empty() {
            let paths = self.cgroup_paths.get_or_init(|| self.known_cgroups());
            contents.cgroups = inodes
                .into_iter()
                .filter_map(|inode| Some(CgroupName { inode, path: paths.get(&inode)?.clone() }))
                .collect();
        }
    }

    /// Files that a process has mapped, and block devices.
    fn known_files(&self) -> BTreeMap<FileId, PathBuf> {
        let mut found = BTreeMap::new();
        // Not by procfs, whose minor numbers have 16 bits where the kernel's have 20.
        for line in read(&self.proc.join("partitions")).lines() {
            let mut words = line.split_whitespace();
            let number = |word: Option<&str>| word?.parse().ok();
            let (Some(major), Some(minor)) = (number(words.next()), number(words.next())) else {
                continue;
            };
            if let Some(name) = words.nth(1) {
                let device = DeviceNumber { major, minor };
                found.insert(FileId { device, inode: 0 }, Path::new("/dev").join(name));
            }
        }
        for process in entries(&self.proc) {
            let is_pid = process.file_name().is_some_and(|name| {
                name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            });
            if is_pid {
                found.extend(read(&process.join("maps")).lines().filter_map(mapping));
            }
        }
        debug!(files = found.len(), "names of mapped files");
        found
    }

    /// Walks the mounts that `wanted` are on until all are found.
    fn search(&self, mut wanted: BTreeSet<FileId>) -> BTreeMap<FileId, PathBuf> {
        let mut found = BTreeMap::new();
        for mount in mounts(&read(&self.proc.join("self/mountinfo"))) {
            let Mount { device, point, .. } = mount;
            if wanted.iter().any(|id| id.device == device && id.inode != 0) {
                debug!(point = %point.display(), "searched for inodes");
                walk(&point, device, &mut |id, path| {
                    if wanted.remove(&id) {
                        found.insert(id, path.to_owned());
                    }
                    wanted.iter().any(|id| id.device == device && id.inode != 0)
                });
            }
        }
        found
    }

    fn known_cgroups(&self) -> BTreeMap<u64, PathBuf> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.cgroups.clone()];
        while let Some(folder) = left.pop() {
            let Ok(meta) = fs::symlink_metadata(&folder) else { continue };
            if !meta.is_dir() {
                continue;
            }
            let below = folder.strip_prefix(&self.cgroups).unwrap_or(&folder);
            found.insert(meta.ino(), Path::new("/").join(below));
            left.extend(entries(&folder));
        }
        found
    }
}

fn read(path: &Path) -> String {
    // Processes come and go, and a path need not be UTF-8.
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|list| list.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// The file of a line of `/proc/PID/maps`, where the device is in hexadecimal.
///
/// Not by procfs, which gives up on a whole process at the first line that it does not know.
fn mapping(line: &str) -> Option<(FileId, PathBuf)> {
    let mut words = line.splitn(6, ' ');
    let (device, inode) = (words.nth(3)?, words.next()?);
    let path = words.next()?.trim_start();
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let device = DeviceNumber { major: hex(major)?, minor: hex(minor)? };
    let inode = inode.parse().ok().filter(|&inode| inode != 0)?;
    (!path.is_empty()).then(|| (FileId { device, inode }, PathBuf::from(path)))
}

/// Calls `visit` with every file of `device` below `folder` while it returns true.
fn walk(folder: &Path, device: DeviceNumber, visit: &mut dyn FnMut(FileId, &Path) -> bool) -> bool {
    for path in entries(folder) {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let own = DeviceNumber {
            major: rustix::fs::major(meta.dev()),
            minor: rustix::fs::minor(meta.dev()),
        };
        if own != device {
            continue;
        }
        if !visit(FileId { device, inode: meta.ino() }, &path) {
            return false;
        }
        if meta.is_dir() && !walk(&path, device, visit) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{PageClass, PageFlags, PageRun, Pages, Pfn, Reason, SliceId, SliceState};

    fn run(file: Option<FileId>, cgroup_inode: Option<u64>) -> PageRun {
        PageRun {
            pfn: Pfn(0),
            pages: Pages(1),
            class: PageClass::File,
            reason: Reason::None,
            flags: PageFlags::default(),
            order: 0,
            mappings: 0,
            extra_references: 0,
            file,
            cgroup_inode,
        }
    }

    fn contents(runs: Vec<PageRun>) -> SliceContents {
        let (slice, state, reason) = (SliceId(0), SliceState::Online, Reason::None);
        SliceContents { slice, state, reason, runs, files: vec![], cgroups: vec![], sites: None }
    }

    #[test]
    fn a_mapped_file_has_its_name_with_blanks() {
        let line = "7f00-7f10 r-xp 00000000 fe:10 1234                       /usr/lib/a b.so";
        let id = FileId { device: DeviceNumber { major: 254, minor: 16 }, inode: 1234 };
        assert_eq!(mapping(line), Some((id, PathBuf::from("/usr/lib/a b.so"))));
        assert_eq!(mapping("7f00-7f10 rw-p 00000000 00:00 0 "), None);
        assert_eq!(mapping("7f00-7f10 rw-p 00000000 00:00 0          [heap]"), None);
    }

    #[test]
    fn names_come_from_processes_disks_and_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        let paths = KernelPaths::under(dir.path());
        fs::create_dir_all(paths.proc.join("17")).unwrap();
        fs::create_dir_all(paths.proc.join("not-a-process")).unwrap();
        fs::write(paths.proc.join("17/maps"), "1-2 r--p 00000000 08:01 77    /lib/x\n").unwrap();
        fs::write(
            paths.proc.join("partitions"),
            "major minor  #blocks  name\n\n 254  0  1024 vda\n",
        )
        .unwrap();
        fs::create_dir_all(paths.cgroups.join("user.slice/a")).unwrap();
        let inode = fs::metadata(paths.cgroups.join("user.slice/a")).unwrap().ino();
        let file = FileId { device: DeviceNumber { major: 8, minor: 1 }, inode: 77 };
        let disk = FileId { device: DeviceNumber { major: 254, minor: 0 }, inode: 0 };
        let gone = FileId { inode: 78, ..file };
        let mut found = contents(vec![
            run(Some(file), Some(inode)),
            run(Some(disk), None),
            run(Some(gone), Some(1)),
        ]);
        PageNames::new(&paths).add(&mut found, ContentsDetail::default());
        assert_eq!(found.file_name(file), "/lib/x");
        assert_eq!(found.file_name(disk), "/dev/vda");
        assert_eq!(found.file_name(gone), "inode 78 of device 8:1");
        assert_eq!(found.cgroup_name(inode), "/user.slice/a");
        assert_eq!(found.cgroups.len(), 1);
    }

    #[test]
    fn a_search_finds_files_that_no_process_has_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let paths = KernelPaths::under(&dir.path().join("root"));
        let data = dir.path().join("data");
        fs::create_dir_all(paths.proc.join("self")).unwrap();
        fs::create_dir_all(data.join("below")).unwrap();
        fs::write(data.join("below/file"), "x").unwrap();
        let meta = fs::metadata(data.join("below/file")).unwrap();
        let device = DeviceNumber {
            major: rustix::fs::major(meta.dev()),
            minor: rustix::fs::minor(meta.dev()),
        };
        let line = format!("1 2 {device} / {} rw - ext4 /dev/x rw\n", data.display());
        fs::write(paths.proc.join("self/mountinfo"), line).unwrap();
        let file = FileId { device, inode: meta.ino() };
        let mut found = contents(vec![run(Some(file), None)]);
        let names = PageNames::new(&paths);
        names.add(&mut found, ContentsDetail::default());
        assert!(found.files.is_empty(), "a search is made only if asked for");
        names.add(&mut found, ContentsDetail { find_files: true, ..ContentsDetail::default() });
        assert_eq!(found.file_name(file), data.join("below/file").display().to_string());
    }
}
