//! Findings, input by input, and what is missing.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::acpi::{HmatTable, MpstTable, SratTable};
use crate::address_range::AddressRange;
use crate::ddr_regions::DdrRegions;
use crate::root::ReadProblem;
use crate::segments::SegmentDriver;
use crate::smbios::{DramKind, MemoryRole, SmbiosTable};

/// Everything that the inputs say. Information that an input lacks is in `gaps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MachineFindings {
    /// Memory that the kernel manages (`/proc/meminfo`).
    pub mem_total_bytes: Option<Bytes>,
    /// Of it, what could be used without swapping.
    pub mem_available_bytes: Option<Bytes>,
    /// The unit of slice sizes, as far as it is visible from outside: the size of a huge page.
    pub pageblock_bytes: Option<Bytes>,
    /// SMBIOS types 0, 1 and 16 to 20.
    pub smbios: Option<SmbiosTable>,
    /// Memory power nodes.
    pub mpst: Option<MpstTable>,
    /// Ranges and their domains.
    pub srat: Option<SratTable>,
    /// Kinds of memory.
    pub hmat: Option<HmatTable>,
    /// Memory-side caches in sysfs.
    pub side_caches: Vec<SideCache>,
    /// Virtual machine or not, and who says so.
    pub virtual_machine: VirtualMachine,
    /// By what memory can be given back to a hypervisor.
    pub give_back: Vec<MemoryReturn>,
    /// Modules as drivers of memory controllers see them.
    pub edac: Vec<EdacModule>,
    /// CXL memory.
    pub cxl: Vec<CxlMemory>,
    /// Memory that is set aside for direct access.
    pub dax: Vec<DaxDevice>,
    /// The board, where firmware gives a device tree.
    pub device_tree: Option<DeviceTree>,
    /// Vendors' drivers that power DRAM segments down.
    pub segment_drivers: Vec<SegmentDriver>,
    /// DRAM segments by the device tree.
    pub ddr_regions: Option<DdrRegions>,
    /// Memory hotplug.
    pub hotplug: Option<HotplugFindings>,
    /// The running kernel's ramslice.
    pub ramslice: Option<RamsliceFindings>,
    /// What was absent, unreadable, damaged or contradictory; a report has them at its top.
    #[serde(skip)]
    pub gaps: Vec<InputGap>,
}

/// Virtual machine or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VirtualMachine {
    /// The conclusion.
    pub is: VirtualVerdict,
    /// The hypervisor, if it gives its name.
    pub hypervisor: Option<String>,
    /// Who says what.
    pub signs: Vec<VirtualSign>,
}

/// The conclusion from all signs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VirtualVerdict {
    /// A hypervisor is between us and the DRAM.
    Yes,
    /// There is none.
    No,
    /// Signs disagree.
    Contradictory,
    /// No sign either way.
    #[default]
    Unknown,
}

/// One sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VirtualSign {
    /// Where.
    pub path: String,
    /// What the detector reports.
    pub says: String,
    /// For or against a virtual machine; `None` if it says neither.
    pub virtual_machine: Option<bool>,
    /// It decides; others are names that could be chosen freely.
    pub decides: bool,
}

/// A way to give memory back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryReturn {
    /// Its name.
    pub name: &'static str,
    /// Where it was found.
    pub path: String,
    /// Free memory goes back without the hypervisor asking.
    pub by_itself: bool,
}

impl MemoryReturn {
    /// A balloon with free page reporting; whether Hyper-V's host takes reports cannot be seen.
    pub fn may_take_reports(&self) -> bool {
        self.by_itself || self.name.starts_with("Hyper-V")
    }
}

/// A module as EDAC sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EdacModule {
    /// Memory controller and module, as in `mc0/dimm1`.
    pub name: String,
    /// Its size.
    pub size_bytes: Option<Bytes>,
    /// Its type, in EDAC's words.
    pub type_name: Option<String>,
    /// What that means for powering down.
    pub dram: DramKind,
    /// Its place, as in `channel 0 slot 1`.
    pub location: Option<String>,
}

/// A cache of DRAM in front of other memory, as sysfs shows it for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideCache {
    /// The node, as in `node0`.
    pub node: String,
    /// The size of all its levels.
    pub size_bytes: Bytes,
}

/// A CXL region or memory device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CxlMemory {
    /// Its name, as in `region0` or `mem0`.
    pub name: String,
    /// It is a region, which has addresses; a device alone has not.
    pub region: bool,
    /// Its volatile memory.
    pub size_bytes: Option<Bytes>,
    /// Devices that its addresses alternate over.
    pub interleave_ways: Option<u64>,
    /// After how many bytes they do.
    pub interleave_granularity_bytes: Option<Bytes>,
}

/// Memory set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaxDevice {
    /// Its name, as in `dax0.0`.
    pub name: String,
    /// Its size.
    pub size_bytes: Option<Bytes>,
    /// The node that it would belong to.
    pub target_node: Option<String>,
    /// Its driver is `kmem`, which makes it the kernel's memory.
    pub managed: bool,
    /// It is on a bus of persistent memory.
    pub persistent: bool,
}

/// The board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceTree {
    /// Its name.
    pub model: Option<String>,
    /// What it is compatible with, most special first.
    pub compatible: Vec<String>,
}

/// Memory hotplug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HotplugFindings {
    /// Unit in which a kernel without ramslice takes memory away.
    pub block_bytes: Option<Bytes>,
    /// Blocks that have memory.
    pub blocks: usize,
    /// Addresses with memory, to a block.
    pub ranges: Vec<AddressRange>,
}

/// ramslice in the running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RamsliceFindings {
    /// Whether it is on.
    pub enabled: Option<bool>,
    /// Size of a slice; of the largest, if a table says what slices are.
    pub slice_bytes: Option<Bytes>,
    /// Slices that a table says; none if all are of one size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr_segments: Option<u64>,
    /// Name of the power driver.
    pub power_driver: Option<String>,
}

impl RamsliceFindings {
    /// Drivers that stand in for hardware: the simulated controller, and the one that holes a
    /// guest's memory.
    const STAND_INS: [&'static str; 2] = ["sim", "holes"];

    /// The power driver, unless there is none or it stands in for hardware.
    pub fn real_driver(&self) -> Option<&str> {
        let name = self.power_driver.as_deref()?;
        (self.enabled == Some(true) && name != "none" && !Self::STAND_INS.contains(&name))
            .then_some(name)
    }
}

/// Why an input is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GapKind {
    /// Two inputs cannot both be right.
    Contradictory,
    /// It is there, but a part of it makes no sense.
    Damaged,
    /// It is there, but not for this user.
    Permission,
    /// It is there, but reading failed.
    Unreadable,
    /// It is not there.
    Absent,
    /// It is there, but leaves open what matters here.
    Silent,
}

impl GapKind {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Contradictory => "contradictory",
            Self::Damaged => "damaged",
            Self::Permission => "permission denied",
            Self::Unreadable => "unreadable",
            Self::Absent => "absent",
            Self::Silent => "not stated",
        }
    }
}

impl From<ReadProblem> for GapKind {
    fn from(problem: ReadProblem) -> Self {
        match problem {
            ReadProblem::Absent => Self::Absent,
            ReadProblem::Permission => Self::Permission,
            ReadProblem::Unreadable => Self::Unreadable,
        }
    }
}

/// Information that an input did not give.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct InputGap {
    /// What kind.
    pub kind: GapKind,
    /// The input.
    pub input: &'static str,
    /// Where it would have been, from the root.
    pub path: String,
    /// What is wrong; empty if the kind says it all.
    pub detail: String,
    /// The two statements that cannot both be true, if it is a contradiction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statements: Option<[String; 2]>,
    /// What the input would have shown.
    pub would_tell: &'static str,
    /// It could have made the verdict narrower.
    pub widens: bool,
}

impl InputGap {
    /// A gap without more to say.
    pub fn new(kind: GapKind, input: &'static str, path: &str, would_tell: &'static str) -> Self {
        Self {
            kind,
            input,
            path: format!("/{path}"),
            detail: String::new(),
            statements: None,
            would_tell,
            widens: false,
        }
    }

    /// The same with two statements that cannot both be true.
    #[must_use]
    pub fn between(self, statements: [String; 2]) -> Self {
        let detail = statements.join(", but ");
        Self { detail, statements: Some(statements), ..self }
    }

    /// The same with what is wrong.
    #[must_use]
    pub fn because(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }
}

impl MachineFindings {
    /// Modules that are DRAM.
    pub fn modules(&self) -> impl Iterator<Item = &crate::smbios::MemoryDevice> {
        let devices = self.smbios.iter().flat_map(|smbios| &smbios.devices);
        devices.filter(|device| device.role == MemoryRole::Dram)
    }

    /// Whether something said that its input is damaged or contradictory.
    pub fn is_doubtful(&self, input: &str) -> bool {
        let doubtful = |kind| matches!(kind, GapKind::Contradictory | GapKind::Damaged);
        self.gaps.iter().any(|gap| gap.input == input && doubtful(gap.kind))
    }
}
