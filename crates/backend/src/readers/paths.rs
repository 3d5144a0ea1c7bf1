//! Where the kernel's files are; elsewhere in tests.

use std::path::{Path, PathBuf};

/// The device and the sysfs directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPaths {
    /// The character device that takes requests.
    pub device: PathBuf,
    /// The directory of one-value files.
    pub sysfs: PathBuf,
    /// The list of groups, to name the one that may use the device.
    pub groups: PathBuf,
    /// Who allocated each page; only there if the kernel tracks it.
    pub page_owner: PathBuf,
    /// The process file system, for the names of mapped files and for mount points.
    pub proc: PathBuf,
    /// Statistics about slices in debugfs; for root only.
    pub statistics: PathBuf,
    /// Energy meters.
    pub powercap: PathBuf,
    /// The cgroup file system.
    pub cgroups: PathBuf,
    /// What a vendor's driver for DRAM segments reports.
    pub mem_offline: PathBuf,
    /// The pools of huge pages.
    pub huge_pages: PathBuf,
    /// NUMA nodes, each with its part of the pools of huge pages.
    pub nodes: PathBuf,
}

impl KernelPaths {
    /// Those of the running system.
    pub fn system() -> Self {
        Self::under(Path::new("/"))
    }

    /// The same below another root.
    pub fn under(root: &Path) -> Self {
        Self {
            device: root.join("dev/ramslice"),
            sysfs: root.join("sys/kernel/mm/ramslice"),
            groups: root.join("etc/group"),
            page_owner: root.join("sys/kernel/debug/page_owner"),
            proc: root.join("proc"),
            statistics: root.join("sys/kernel/debug/ramslice"),
            powercap: root.join("sys/class/powercap"),
            cgroups: root.join("sys/fs/cgroup"),
            mem_offline: root.join("sys/kernel/mem-offline"),
            huge_pages: root.join("sys/kernel/mm/hugepages"),
            nodes: root.join("sys/devices/system/node"),
        }
    }
}
