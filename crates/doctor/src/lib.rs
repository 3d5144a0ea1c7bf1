//! What a machine could power down at all, read from its firmware tables and from sysfs.
//!
//! Four layers, each using only the one before: parsers over bytes ([`smbios`], [`acpi`]); a [`Root`] to read
//! below, live or captured; [`Findings`] with a [`Gap`] for whatever was absent, unreadable, damaged or
//! contradictory; and a [`Verdict`], a pure function of the findings. [`examine`] is all of them.

pub mod acpi;
mod address_range;
mod capture;
mod checks;
mod evidence;
mod findings;
mod gap_severity;
mod interleave;
mod layout;
mod platform;
mod power_rate;
mod read_inputs;
mod root;
mod slices;
pub mod smbios;
mod sysfs;
pub mod table_fields;
mod verdict;

use serde::Serialize;

pub use address_range::Range;
pub use capture::{Captured, capture};
pub use evidence::{Evidence, evidence};
pub use findings::{
    CxlMemory, DaxDevice, DeviceTree, EdacModule, Findings, Gap, GapKind, GiveBack, Hotplug,
    Ramslice, Sign, Virtual, VirtualMachine,
};
pub use layout::{Group, Layout};
pub use power_rate::{MwPerGib, MwPerGibError, Saving};
pub use root::{Problem, Root, RootError};
pub use slices::SliceAdvice;
pub use verdict::{Interval, Kind, Verdict};

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What could be powered down.
    pub verdict: Verdict,
    /// What the verdict rests on, one line each.
    pub evidence: Vec<Evidence>,
    /// What was missing.
    pub gaps: Vec<Gap>,
    /// The parts of memory.
    pub layout: Layout,
    /// Everything that was read.
    pub findings: Findings,
}

/// Reads everything below `root` and concludes. With `rate`, also what it would save.
pub fn examine(root: &Root, rate: Option<MwPerGib>) -> Report {
    conclude(read_inputs::gather(root), rate)
}

/// Concludes from findings.
pub fn conclude(mut findings: Findings, rate: Option<MwPerGib>) -> Report {
    checks::check(&mut findings);
    let (verdict, layout) = verdict::verdict(&mut findings, rate);
    let mut gaps = std::mem::take(&mut findings.gaps);
    gap_severity::weigh(&findings, &verdict, &mut gaps);
    let evidence = evidence(&findings, &layout);
    Report { verdict, evidence, gaps, layout, findings }
}
