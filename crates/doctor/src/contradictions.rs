//! Finds inputs that contradict each other. Neither is corrected: both statements become a gap.
//!
//! "Contradictory" is said only of what cannot both be true. Firmware often says less than there
//! is, counts the hole below 4 GiB as memory, or rounds: that is no contradiction.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, covered};
use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::hole::{differ, hole_bytes, is_memory_with_hole, shared_bytes};
use crate::interleave::{InterleaveSet, sets};
use crate::read_inputs::{DMI_TABLE, MEMINFO, MPST, SHOWS_MPST, SHOWS_SMBIOS, SRAT};
use crate::sizes::{
    cache_bytes, cxl_bytes, domains, edac_bytes, has_cache, mapped_bytes, mapped_ranges,
    mapped_to_no_size, module_bytes, persistent_bytes,
};

/// What a contradiction makes doubtful: the input, where it is, and what it would show.
type Doubt = (&'static str, &'static str, &'static str);

const SHOWS_SOCKETS: &str = "which addresses belong to which socket";
const SIZES: Doubt = ("memory size", DMI_TABLE, SHOWS_SMBIOS);
const KERNEL: Doubt = ("memory size", MEMINFO, "how much memory there is");
const INTERLEAVING: Doubt = ("interleaving", DMI_TABLE, SHOWS_SMBIOS);
const SOCKETS: Doubt = ("interleaving", SRAT, SHOWS_SOCKETS);
const DOMAINS: Doubt = ("SRAT", SRAT, SHOWS_SOCKETS);
const NODES: Doubt = ("MPST", MPST, SHOWS_MPST);

/// Gaps as they are found.
struct Contradictions(Vec<InputGap>);

impl Contradictions {
    /// `one` and `other` cannot both be true.
    fn add(&mut self, (input, path, shows): Doubt, one: String, other: String) {
        let gap = InputGap::new(GapKind::Contradictory, input, path, shows);
        self.0.push(gap.between([one, other]));
    }
}

/// Adds a gap for each contradiction.
pub(crate) fn find(findings: &mut MachineFindings) {
    let mut found = Contradictions(Vec::new());
    if let Some(no_size) = mapped_to_no_size(findings) {
        let detail = format!("{no_size} (type 19) is no size of this memory: not used");
        let gap = InputGap::new(GapKind::Damaged, "addresses", DMI_TABLE, SHOWS_SMBIOS);
        found.0.push(gap.because(detail));
    }
    sizes(findings, &mut found);
    mappings(findings, &mut found);
    sockets(findings, &mut found);
    power_nodes(findings, &mut found);
    findings.gaps.append(&mut found.0);
}

/// Totals: modules, addresses, controllers, the kernel.
fn sizes(findings: &MachineFindings, found: &mut Contradictions) {
    let modules = module_bytes(findings);
    if let (Some(modules), Some(mapped)) = (modules, mapped_bytes(findings)) {
        // Persistent memory may have addresses, too.
        let most = modules + persistent_bytes(findings);
        let explained = mapped <= most
            || !differ(most, mapped)
            || has_cache(findings)
            || is_memory_with_hole(&mapped_ranges(findings), most);
        if !explained {
            found.add(
                SIZES,
                format!("modules have {modules} (type 17)"),
                format!("addresses are for {mapped} (type 19)"),
            );
        }
    }
    if let (Some(modules), Some(managed)) = (modules, findings.mem_total_bytes) {
        // A cache has no addresses. Persistent memory is the kernel's behind a cache or by DAX.
        let other = has_cache(findings) || findings.dax.iter().any(|device| device.managed);
        let persistent = if other { persistent_bytes(findings) } else { Bytes::ZERO };
        let most = modules.saturating_sub(cache_bytes(findings)) + cxl_bytes(findings) + persistent;
        if managed > most {
            found.add(
                KERNEL,
                format!("the kernel manages {managed}"),
                format!("modules have {most} (type 17)"),
            );
        }
    }
    if let (Some(modules), Some(seen)) = (modules, edac_bytes(findings))
        && differ(modules, seen)
    {
        found.add(
            SIZES,
            format!("modules have {modules} (type 17)"),
            format!("memory controllers see {seen} (EDAC)"),
        );
    }
}

/// What type 20 says of modules.
fn mappings(findings: &MachineFindings, found: &mut Contradictions) {
    if let Some(smbios) = &findings.smbios {
        let unknown = smbios
            .device_mappings
            .iter()
            .filter(|mapping| !smbios.devices.iter().any(|device| device.handle == mapping.device));
        if let count @ 1.. = unknown.count() {
            found.add(
                INTERLEAVING,
                format!("{count} mappings are of devices with addresses (type 20)"),
                "there are no such devices (type 17)".to_owned(),
            );
        }
    }
    for set in sets(findings) {
        if let Some(size) = set.size()
            && set.span() > size
            && differ(size, set.span())
            && !is_memory_with_hole(&set.ranges, size)
        {
            found.add(
                INTERLEAVING,
                format!("addresses of {} are mapped to {} (type 20)", set.span(), set.names()),
                format!("there is a size of {size} (type 17)"),
            );
        }
        if set.modules.len() > 1 && set.says_apart {
            found.add(
                INTERLEAVING,
                format!("{} are not interleaved, by their positions (type 20)", set.names()),
                "they share addresses (type 20)".to_owned(),
            );
        }
    }
}

/// What SRAT says against modules and the kernel.
fn sockets(findings: &MachineFindings, found: &mut Contradictions) {
    let domains = domains(findings);
    let all: Vec<AddressRange> =
        domains.iter().flat_map(|domain| domain.ranges.iter().copied()).collect();
    // SMBIOS often numbers modules without the hole, so that the two are shifted by it.
    let shift = hole_bytes(&all);
    let several = |set: &InterleaveSet| set.modules.len() > 1;
    for set in sets(findings).into_iter().filter(several) {
        let touched = domains.iter().filter(|domain| {
            shared_bytes(&domain.ranges, &set.ranges) > shift.max(Bytes(set.span().0 / 64))
        });
        if let count @ 2.. = touched.count() {
            found.add(
                SOCKETS,
                format!("{} are interleaved with each other (type 20)", set.names()),
                format!("their addresses are in {count} domains (SRAT)"),
            );
        }
    }
    if let Some(managed) = findings.mem_total_bytes
        && !all.is_empty()
        && covered(&all) < managed
    {
        found.add(
            DOMAINS,
            format!("domains have {} (SRAT)", covered(&all)),
            format!("the kernel manages {managed}"),
        );
    }
}

/// What MPST says of itself and against the rest.
fn power_nodes(findings: &MachineFindings, found: &mut Contradictions) {
    let Some(mpst) = &findings.mpst else { return };
    let nodes: Vec<AddressRange> = mpst.nodes.iter().flat_map(|node| node.ranges.clone()).collect();
    let size = covered(&nodes);
    let there = [module_bytes(findings), findings.mem_total_bytes].into_iter().flatten().max();
    if let Some(there) = there
        && size > there
        && differ(size, there)
    {
        found.add(
            NODES,
            format!("power nodes have {size} (MPST)"),
            format!("there is memory of {there}"),
        );
    }
    for node in &mpst.nodes {
        if node.deepest().is_some_and(|state| state.saving_mw().is_none()) {
            found.add(
                NODES,
                format!("node {} needs some power (MPST)", node.id),
                format!("node {} saves more than 100% of it (MPST)", node.id),
            );
        }
    }
    if let Some((one, other)) = mpst.nesting().crossing {
        found.add(
            NODES,
            format!("nodes {one} and {other} share a part of their addresses (MPST)"),
            "neither is inside the other (MPST)".to_owned(),
        );
    }
}
