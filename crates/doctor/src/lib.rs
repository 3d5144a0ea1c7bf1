//! What a machine could power down, read from its firmware tables and from sysfs.
//!
//! Four layers, each using only the one before: parsers over bytes ([`smbios`], [`acpi`]); a
//! [`SystemRoot`] to read below, live or captured; [`MachineFindings`] with a [`InputGap`] for
//! whatever was absent, unreadable, damaged or contradictory; and a [`PowerDownVerdict`], a pure
//! function of the findings. [`examine`] is all of them.

pub mod acpi;
mod address_range;
mod capture;
mod contradictions;
mod ddr_regions;
mod evidence;
mod findings;
mod gap_severity;
mod hole;
mod interleave;
mod layout;
mod platform;
mod power_rate;
mod read_inputs;
mod root;
mod segments;
mod sizes;
mod slices;
pub mod smbios;
mod sysfs;
pub mod table_fields;
mod verdict;

use serde::Serialize;

pub use address_range::AddressRange;
pub use capture::{CaptureSummary, capture};
pub use ddr_regions::DdrRegions;
pub use evidence::{EvidenceLine, evidence};
pub use findings::{
    CxlMemory, DaxDevice, DeviceTree, EdacModule, GapKind, HotplugFindings, InputGap,
    MachineFindings, MemoryReturn, RamsliceFindings, SideCache, VirtualMachine, VirtualSign,
    VirtualVerdict,
};
pub use layout::{MemoryLayout, ModuleGroup};
pub use power_rate::{MwPerGib, MwPerGibError, PowerSaving};
pub use root::{ReadProblem, RootError, SystemRoot, is_capture};
pub use segments::SegmentDriver;
pub use slices::SliceAdvice;
pub use verdict::{ByteInterval, PowerDownVerdict, VerdictKind};

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoctorReport {
    /// What could be powered down.
    pub verdict: PowerDownVerdict,
    /// What the verdict rests on, one line each.
    pub evidence: Vec<EvidenceLine>,
    /// What was missing.
    pub gaps: Vec<InputGap>,
    /// The parts of memory.
    pub layout: MemoryLayout,
    /// Everything that was read.
    pub findings: MachineFindings,
}

/// Reads everything below `root` and concludes. With `rate`, also what it would save.
pub fn examine(root: &SystemRoot, rate: Option<MwPerGib>) -> DoctorReport {
    conclude(read_inputs::gather(root), rate)
}

/// The devices by which a guest can give memory back to its host.
pub fn ways_to_give_back(root: &SystemRoot) -> Vec<MemoryReturn> {
    let mut findings = MachineFindings::default();
    platform::give_back(root, &mut findings);
    findings.give_back
}

/// Concludes from findings.
pub fn conclude(mut findings: MachineFindings, rate: Option<MwPerGib>) -> DoctorReport {
    contradictions::find(&mut findings);
    let (verdict, layout) = verdict::verdict(&mut findings, rate);
    let mut gaps = std::mem::take(&mut findings.gaps);
    gap_severity::weigh(&findings, &verdict, &mut gaps);
    let evidence = evidence(&findings, &layout);
    DoctorReport { verdict, evidence, gaps, layout, findings }
}
