//! The contents of a slice, page by page, as the kernel reports them, before any summing.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::allocation_site::AllocationSite;
use crate::parse::ParseError;
use crate::reason::Reason;
use crate::slice::SliceState;
use crate::units::{Pages, Pfn, SliceId};

/// What a page frame is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageClass {
    /// In the allocator's free lists.
    Free,
    /// No visible owner: in a per-CPU list, or in transit.
    Transit,
    /// Anonymous memory of processes.
    Anonymous,
    /// Page cache of a file or block device.
    File,
    /// tmpfs and shared memory.
    Shmem,
    /// In the swap cache alone.
    SwapCache,
    /// Belongs to a driver that can move it: zsmalloc, balloon.
    MovableOps,
    /// Belongs to the hugetlb pool.
    Hugetlb,
    /// Objects of the kernel.
    Slab,
    /// Page tables.
    PageTable,
    /// Any other allocation of the kernel.
    Kernel,
    /// Reserved at boot.
    Reserved,
    /// Retired after a memory error.
    HwPoison,
    /// Given away by a balloon or virtio-mem.
    Foreign,
    /// No memory.
    Hole,
    /// In an offline or quarantined slice.
    Off,
    /// The allocator does not have it yet; on stock kernels alone.
    NotGiven,
    /// A memory block's own page descriptors, which go and come with it; on stock kernels alone.
    Memmap,
}

impl PageClass {
    /// The patched kernel's classes, in its order.
    pub const ALL: [Self; 16] = [
        Self::Free,
        Self::Transit,
        Self::Anonymous,
        Self::File,
        Self::Shmem,
        Self::SwapCache,
        Self::MovableOps,
        Self::Hugetlb,
        Self::Slab,
        Self::PageTable,
        Self::Kernel,
        Self::Reserved,
        Self::HwPoison,
        Self::Foreign,
        Self::Hole,
        Self::Off,
    ];

    /// What the kernel's number means; classes that a newer kernel may have are kernel memory.
    pub fn from_raw(raw: u8) -> Self {
        Self::ALL.get(usize::from(raw)).copied().unwrap_or(Self::Kernel)
    }

    /// Words for it, in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Transit => "in transit",
            Self::Anonymous => "anonymous memory",
            Self::File => "page cache",
            Self::Shmem => "tmpfs, shared memory",
            Self::SwapCache => "swap cache",
            Self::MovableOps => "zsmalloc or balloon",
            Self::Hugetlb => "hugetlb pool",
            Self::Slab => "slab",
            Self::PageTable => "page tables",
            Self::Kernel => "other kernel memory",
            Self::Reserved => "reserved at boot",
            Self::HwPoison => "memory error",
            Self::Foreign => "given away",
            Self::Hole => "no memory",
            Self::Off => "off",
            Self::NotGiven => "not the allocator's yet",
            Self::Memmap => "its own page descriptors",
        }
    }
}

impl fmt::Display for PageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happens to pages when their slice is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageFate {
    /// They keep the slice on.
    Stays,
    /// They are migrated.
    Moves,
    /// They are dropped.
    Dropped,
    /// There is nothing to do.
    Free,
    /// The slice is offline, or there is no memory.
    Gone,
}

impl PageFate {
    /// The word for it, in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stays => "stays",
            Self::Moves => "would be moved",
            Self::Dropped => "would be dropped",
            Self::Free => "free",
            Self::Gone => "off",
        }
    }
}

/// A property of the pages of a run; the number is the bit in the kernel's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageFlag {
    /// Clean unmapped cache: dropped, not moved.
    Drop,
    /// On the LRU lists.
    Lru,
    /// Not yet written to storage.
    Dirty,
    /// Being written to storage.
    Writeback,
    /// Its file system keeps data with it.
    Buffers,
    /// In the swap cache.
    SwapCache,
    /// Not to be reclaimed.
    Unevictable,
    /// Locked by `mlock()`.
    Mlocked,
    /// Shared by KSM.
    Ksm,
    /// Pinned for DMA.
    Pinned,
    /// With a memory error.
    HwPoison,
}

impl PageFlag {
    /// All flags, in the order of the kernel's bits.
    pub const ALL: [Self; 11] = [
        Self::Drop,
        Self::Lru,
        Self::Dirty,
        Self::Writeback,
        Self::Buffers,
        Self::SwapCache,
        Self::Unevictable,
        Self::Mlocked,
        Self::Ksm,
        Self::Pinned,
        Self::HwPoison,
    ];
}

/// A set of [`PageFlag`]; in JSON, the list of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PageFlags(u32);

impl PageFlags {
    /// The kernel's bits; those it does not know are left out.
    pub fn from_raw(raw: u32) -> Self {
        Self(raw & ((1 << PageFlag::ALL.len()) - 1))
    }

    /// Whether `flag` is in it.
    pub fn has(self, flag: PageFlag) -> bool {
        self.0 & (1 << flag as u32) != 0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<PageFlag> for PageFlags {
    fn from_iter<I: IntoIterator<Item = PageFlag>>(iter: I) -> Self {
        Self(iter.into_iter().fold(0, |bits, flag| bits | 1 << flag as u32))
    }
}

impl Serialize for PageFlags {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(PageFlag::ALL.into_iter().filter(|&flag| self.has(flag)))
    }
}

impl<'de> Deserialize<'de> for PageFlags {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<PageFlag>::deserialize(from)?.into_iter().collect())
    }
}

/// A device number; `8:1` in JSON and in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (major, minor) = text.split_once(':')?;
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse()
            .ok_or_else(|| ParseError::new(text, "a device number", "write major:minor, as in 8:1"))
    }
}

impl Serialize for DeviceNumber {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A file as the kernel identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// The file system's device.
    pub device: DeviceNumber,
    /// The inode; 0 is the block device itself.
    pub inode: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inode {
            0 => f.pad(&format!("block device {}", self.device)),
            inode => f.pad(&format!("inode {inode} of device {}", self.device)),
        }
    }
}

/// Neighbouring page frames with equal properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// The first.
    pub pfn: Pfn,
    /// How many.
    pub pages: Pages,
    /// What they are used for.
    pub class: PageClass,
    /// Why they keep the slice online for as long as their use does not change; [`Reason::None`] if
    /// they do not, or only at this moment: see [`stays_for`](Self::stays_for).
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Reason,
    /// Their properties.
    #[serde(default, skip_serializing_if = "PageFlags::is_empty")]
    pub flags: PageFlags,
    /// The folios or free blocks of the run have 2^order pages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub order: u32,
    /// Mappings of each folio.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mappings: u32,
    /// References to each folio that have no known holder.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extra_references: u32,
    /// The file whose cache they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
    /// Inode of the cgroup that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_inode: Option<u64>,
}

fn is_none(reason: &Reason) -> bool {
    *reason == Reason::None
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl PageRun {
    /// A run of single pages of a class, of which nothing else is known.
    pub fn of_class(pfn: Pfn, pages: Pages, class: PageClass) -> Self {
        Self {
            pfn,
            pages,
            class,
            reason: Reason::None,
            flags: PageFlags::default(),
            order: 0,
            mappings: 0,
            extra_references: 0,
            file: None,
            cgroup_inode: None,
        }
    }

    /// Whether an unknown holder references them at this moment, for example a pipe that borrowed
    /// them. Page cache is read all the time, so its references say nothing.
    fn is_lent(&self) -> bool {
        self.class == PageClass::Anonymous
            && self.flags.has(PageFlag::Lru)
            && self.extra_references > 0
    }

    /// Why they keep the slice online, as a request would report at this moment; [`Reason::None`]
    /// if they do not.
    pub fn stays_for(&self) -> Reason {
        match self.reason {
            Reason::None if self.is_lent() => Reason::Pinned,
            reason => reason,
        }
    }

    /// What happens to them when the slice is emptied.
    pub fn fate(&self) -> PageFate {
        match self.class {
            PageClass::Off => PageFate::Gone,
            _ if self.stays_for() != Reason::None => PageFate::Stays,
            PageClass::Free | PageClass::Transit => PageFate::Free,
            PageClass::Hole | PageClass::Memmap => PageFate::Gone,
            _ if self.flags.has(PageFlag::Drop) => PageFate::Dropped,
            _ => PageFate::Moves,
        }
    }

    /// One past the last page frame.
    pub fn end(&self) -> Pfn {
        Pfn(self.pfn.0 + self.pages.0)
    }

    /// Folios in the run; one that is cut counts as one.
    pub fn folios(&self) -> u64 {
        self.pages.0.div_ceil(1 << self.order.min(63))
    }

    /// Mappings of all its folios.
    pub fn all_mappings(&self) -> u64 {
        u64::from(self.mappings) * self.folios()
    }
}

/// A path that leads to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileName {
    /// The file.
    #[serde(flatten)]
    pub file: FileId,
    /// One of its paths.
    pub path: PathBuf,
}

/// The path of a cgroup below the cgroup file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupName {
    /// Its inode.
    pub inode: u64,
    /// Its path; `/` is the root.
    pub path: PathBuf,
}

/// What to look up in addition to the pages themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentsDetail {
    /// Read from `page_owner` which code allocated the pages that stay, or all pages if none stays.
    pub sites: bool,
    /// Search whole file systems for the paths of files that no process has mapped.
    pub find_files: bool,
}

/// The contents of a slice, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceContents {
    /// The slice.
    pub slice: SliceId,
    /// Its state.
    pub state: SliceState,
    /// The slice's own reason, as in a snapshot.
    pub reason: Reason,
    /// Its pages in order; none is left out.
    pub runs: Vec<PageRun>,
    /// Names of files among the runs, where they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileName>,
    /// Names of cgroups among the runs, where they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupName>,
    /// The code that allocated the pages that stay, most pages first; absent while `page_owner` is
    /// off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<AllocationSite>>,
}

impl SliceContents {
    /// Page frames of the slice.
    pub fn frames(&self) -> Pages {
        self.runs.iter().map(|run| run.pages).sum()
    }

    /// Runs that keep the slice online.
    pub fn blocking(&self) -> impl Iterator<Item = &PageRun> {
        self.runs.iter().filter(|run| run.fate() == PageFate::Stays)
    }

    /// Runs whose allocation sites are of interest: those that stay, or all if none stays.
    pub fn suspects(&self) -> Vec<&PageRun> {
        let blocking: Vec<&PageRun> = self.blocking().collect();
        if !blocking.is_empty() {
            return blocking;
        }
        self.runs
            .iter()
            .filter(|run| matches!(run.fate(), PageFate::Moves | PageFate::Dropped))
            .collect()
    }

    /// The files among the runs.
    pub fn file_ids(&self) -> BTreeSet<FileId> {
        self.runs.iter().filter_map(|run| run.file).collect()
    }

    /// A file's path, or what the kernel knows of it.
    pub fn file_name(&self, id: FileId) -> String {
        let found = self.files.iter().find(|name| name.file == id);
        found.map_or_else(|| id.to_string(), |name| name.path.display().to_string())
    }

    /// A cgroup's path, or its inode.
    pub fn cgroup_name(&self, inode: u64) -> String {
        let found = self.cgroups.iter().find(|name| name.inode == inode);
        found.map_or_else(
            || format!("cgroup with inode {inode}"),
            |name| name.path.display().to_string(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_a_list_of_names_in_json() {
        let flags = PageFlags::from_raw(0b10_0000_0110);
        assert_eq!(serde_json::to_string(&flags).unwrap(), r#"["lru","dirty","pinned"]"#);
        assert_eq!(
            serde_json::from_str::<PageFlags>(r#"["lru","dirty","pinned"]"#).unwrap(),
            flags
        );
        assert!(flags.has(PageFlag::Pinned) && !flags.has(PageFlag::Drop));
    }

    #[test]
    fn flags_of_a_newer_kernel_are_left_out() {
        assert_eq!(PageFlags::from_raw(1 << 31), PageFlags::default());
        assert_eq!(PageClass::from_raw(200), PageClass::Kernel);
    }

    #[test]
    fn device_numbers_lead_back_from_their_text() {
        let device = DeviceNumber { major: 254, minor: 16 };
        assert_eq!(device.to_string().parse(), Ok(device));
        for text in ["", "8", "8:", ":1", "a:b", "8:1:2"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
    }
}
