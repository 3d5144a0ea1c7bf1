//! What a machine could power down at all, read from its firmware tables and from sysfs.
//!
//! Four layers, each using only the one before: parsers over bytes ([`smbios`], [`acpi`]); a [`Root`] to read
//! below, live or captured; [`Findings`] with a [`Gap`] for whatever was absent, unreadable, damaged or
//! contradictory; and a [`Verdict`], a pure function of the findings. [`examine`] is all of them.

pub mod acpi;
pub mod bytes;
mod capture;
mod checks;
mod evidence;
mod findings;
mod gather;
mod interleave;
mod layout;
mod machine;
mod range;
mod root;
mod saving;
mod slices;
pub mod smbios;
mod sysfs;
mod verdict;
mod weigh;

use serde::Serialize;

pub use capture::{Captured, capture};
pub use evidence::{Evidence, evidence};
pub use findings::{
    CxlMemory, DaxDevice, DeviceTree, EdacModule, Findings, Gap, GapKind, GiveBack, Hotplug,
    Ramslice, Sign, Virtual, VirtualMachine,
};
pub use layout::{Group, Layout};
pub use range::Range;
pub use root::{Problem, Root, RootError};
pub use saving::{MwPerGib, MwPerGibError, Saving};
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
    conclude(gather::gather(root), rate)
}

/// Concludes from findings.
pub fn conclude(mut findings: Findings, rate: Option<MwPerGib>) -> Report {
    checks::check(&mut findings);
    let (verdict, layout) = verdict::verdict(&mut findings, rate);
    let mut gaps = std::mem::take(&mut findings.gaps);
    weigh::weigh(&findings, &verdict, &mut gaps);
    let evidence = evidence(&findings, &layout);
    Report { verdict, evidence, gaps, layout, findings }
}
