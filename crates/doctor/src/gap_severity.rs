//! Which gaps widen the verdict: an input that could not change it need not be looked for.

use crate::findings::{GapKind, InputGap, MachineFindings, VirtualVerdict};
use crate::verdict::{PowerDownVerdict, VerdictKind};

/// Marks the gaps that could have changed the verdict, and puts them first.
pub(crate) fn weigh(
    findings: &MachineFindings,
    verdict: &PowerDownVerdict,
    gaps: &mut Vec<InputGap>,
) {
    let machine = findings.virtual_machine.is;
    let by_nodes = findings.mpst.as_ref().is_some_and(|mpst| mpst.units().next().is_some());
    for gap in gaps.iter_mut() {
        gap.widens = match (gap.kind, gap.input) {
            _ if verdict.kind == VerdictKind::Unknown => true,
            // The hypervisor owns the DRAM, whatever the tables say about it.
            _ if machine == VirtualVerdict::Yes => false,
            (GapKind::Contradictory, _) | (GapKind::Damaged, "MPST") => true,
            (_, "cpuinfo" | "DMI names") => machine != VirtualVerdict::No,
            _ if by_nodes => false,
            (GapKind::Absent, "MPST") => verdict.kind == VerdictKind::Possible,
            // A note on how it was read.
            (GapKind::Silent, "MPST") => false,
            (_, "MPST" | "SMBIOS") => true,
            (_, "meminfo" | "EDAC" | "device tree") => findings.smbios.is_none(),
            (_, "SRAT") => findings.srat.is_none() && verdict.kind == VerdictKind::Possible,
            (_, "CXL") => gap.kind != GapKind::Absent,
            _ => false,
        };
    }
    gaps.sort_by(|a, b| (!a.widens, a).cmp(&(!b.widens, b)));
    gaps.dedup();
}
