//! Finds inputs that contradict each other. Neither is corrected: the contradiction becomes a gap.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, covered, merged};
use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::interleave::sets;
use crate::read_inputs::{DMI_TABLE, MEMINFO, MPST, SHOWS_MPST, SHOWS_SMBIOS, SRAT};

/// Tables round sizes; a larger difference is a contradiction.
const TOLERANCE: u64 = 64;

/// Whether the two differ by more than a 64th of the larger one.
fn differ(a: Bytes, b: Bytes) -> bool {
    a.0.abs_diff(b.0) > a.0.max(b.0) / TOLERANCE
}

/// Sizes of all modules; `None` if there is none or one has no size.
pub(crate) fn module_bytes(findings: &MachineFindings) -> Option<Bytes> {
    let sizes: Option<Vec<Bytes>> = findings.modules().map(|module| module.size_bytes).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.into_iter().sum())
}

/// Addresses that arrays are mapped to; `None` without any.
pub(crate) fn mapped_bytes(findings: &MachineFindings) -> Option<Bytes> {
    let mappings = &findings.smbios.as_ref()?.array_mappings;
    let ranges: Vec<AddressRange> = mappings.iter().map(|mapping| mapping.range).collect();
    (!ranges.is_empty()).then(|| covered(&ranges))
}

/// CXL memory that has addresses.
pub(crate) fn cxl_bytes(findings: &MachineFindings) -> Bytes {
    findings.cxl.iter().filter(|memory| memory.region).filter_map(|memory| memory.size_bytes).sum()
}

/// Persistent memory in modules. It may serve as ordinary memory behind a cache of DRAM, and be
/// handed out by DAX.
fn persistent_bytes(findings: &MachineFindings) -> Bytes {
    let devices = findings.smbios.iter().flat_map(|smbios| &smbios.devices);
    devices.filter(|device| device.persistent).filter_map(|device| device.size_bytes).sum()
}

/// DRAM that is a cache of other memory (HMAT), and so has no addresses, if it can be among the
/// modules: a processor may have its own in addition.
pub(crate) fn cache_bytes(findings: &MachineFindings) -> Bytes {
    let cache: Bytes =
        findings.hmat.iter().flat_map(|hmat| &hmat.caches).map(|cache| cache.size_bytes).sum();
    let (Some(modules), Some(managed)) = (module_bytes(findings), findings.mem_total_bytes) else {
        return cache;
    };
    let listed = modules + cxl_bytes(findings) + persistent_bytes(findings);
    // Without the cache the kernel could not have as much as it has, but with it: the cache is not
    // in the list.
    let beside = managed <= listed && managed > listed.saturating_sub(cache);
    if beside { Bytes::ZERO } else { cache }
}

/// DRAM that is set aside for direct access: what persistent memory cannot account for, and the
/// kernel does not have.
pub(crate) fn set_aside_bytes(findings: &MachineFindings) -> Bytes {
    let devices = findings.dax.iter().filter(|device| !device.managed);
    let all: Bytes = devices.filter_map(|device| device.size_bytes).sum();
    all.saturating_sub(persistent_bytes(findings))
}

/// Whether DRAM is a cache of other memory, so that the kernel's memory need not be DRAM.
pub(crate) fn has_cache(findings: &MachineFindings) -> bool {
    findings.hmat.as_ref().is_some_and(|hmat| !hmat.caches.is_empty())
}

/// Adds a gap for each contradiction.
pub(crate) fn check(findings: &mut MachineFindings) {
    let mut gaps = Vec::new();
    let mut contradiction = |input, path: &str, shows, detail: String| {
        gaps.push(InputGap::new(GapKind::Contradictory, input, path, shows).because(detail));
    };
    let modules = module_bytes(findings);
    // A cache has no addresses.
    let without_cache = modules.map(|modules| modules.saturating_sub(cache_bytes(findings)));
    if let (Some(modules), Some(mapped)) = (modules, mapped_bytes(findings))
        && differ(modules, mapped)
        && !has_cache(findings)
    {
        let detail =
            format!("modules have {modules} (type 17), but addresses are for {mapped} (type 19)");
        contradiction("memory size", DMI_TABLE, SHOWS_SMBIOS, detail);
    }
    if let Some(smbios) = &findings.smbios {
        for array in smbios.arrays.iter().filter(|array| array.system_memory) {
            let members = || smbios.devices.iter().filter(|device| device.array == array.handle);
            let sum: Bytes = members().filter_map(|device| device.size_bytes).sum();
            if let Some(capacity) = array.capacity_bytes.filter(|&capacity| sum > capacity) {
                let detail = format!(
                    "an array for at most {capacity} (type 16) has modules of {sum} (type 17)"
                );
                contradiction("memory size", DMI_TABLE, SHOWS_SMBIOS, detail);
            }
            if members().count() > usize::from(array.sockets) {
                let detail = format!(
                    "an array with {} sockets has {} modules",
                    array.sockets,
                    members().count()
                );
                contradiction("memory size", DMI_TABLE, SHOWS_SMBIOS, detail);
            }
        }
        let unknown = smbios
            .device_mappings
            .iter()
            .filter(|mapping| !smbios.devices.iter().any(|device| device.handle == mapping.device));
        if let count @ 1.. = unknown.count() {
            let detail =
                format!("{count} mappings (type 20) are of modules that are not there (type 17)");
            contradiction("interleaving", DMI_TABLE, SHOWS_SMBIOS, detail);
        }
    }
    if let (Some(modules), Some(managed)) = (without_cache, findings.mem_total_bytes) {
        let most = modules + cxl_bytes(findings);
        let there = most.saturating_sub(set_aside_bytes(findings));
        // Persistent memory becomes the kernel's behind a cache or by DAX.
        let other = has_cache(findings) || findings.dax.iter().any(|device| device.managed);
        let most = if other { most + persistent_bytes(findings) } else { most };
        if managed > most {
            let detail = format!("the kernel manages {managed}, but modules have {most}");
            contradiction("memory size", MEMINFO, "how much memory there is", detail);
        } else if managed.0 < there.0 / 2 {
            let detail = format!("the kernel manages only {managed} of {there}");
            contradiction("memory size", MEMINFO, "how much memory there is", detail);
        }
    }
    let seen: Option<Vec<Bytes>> = findings.edac.iter().map(|module| module.size_bytes).collect();
    if let (Some(modules), Some(seen)) = (modules, seen.filter(|seen| !seen.is_empty())) {
        let seen: Bytes = seen.into_iter().sum();
        if differ(modules, seen) {
            let detail = format!(
                "modules have {modules} (SMBIOS), but memory controllers see {seen} (EDAC)"
            );
            contradiction("memory size", DMI_TABLE, SHOWS_SMBIOS, detail);
        }
    }
    let domains = domains(findings);
    let sets = sets(findings);
    let alone: Vec<&str> = sets
        .iter()
        .filter(|set| set.says_interleaved && set.modules.len() == 1)
        .map(|set| set.modules[0].as_str())
        .collect();
    if let [first, ..] = alone.as_slice() {
        let detail = format!(
            "{} modules ({first} is the first) have a place in an interleave, but no module shares \
             their addresses (type 20)",
            alone.len()
        );
        contradiction("interleaving", DMI_TABLE, SHOWS_SMBIOS, detail);
    }
    for set in sets {
        let size: Bytes = set.sizes.iter().copied().sum();
        let span = covered(&set.ranges);
        if set.sizes.len() == set.modules.len() && differ(size, span) {
            let detail =
                format!("addresses of {span} are mapped to modules of {size} (type 20 and 17)");
            contradiction("interleaving", DMI_TABLE, SHOWS_SMBIOS, detail);
        }
        let touched = domains.iter().filter(|domain| {
            domain.ranges.iter().any(|range| set.ranges.iter().any(|other| other.overlaps(*range)))
        });
        if let count @ 2.. = touched.count() {
            let detail =
                format!("modules interleaved with each other (type 20) are in {count} domains");
            contradiction("interleaving", SRAT, "which addresses belong to which socket", detail);
        }
    }
    if let (Some(srat), Some(managed)) = (&findings.srat, findings.mem_total_bytes) {
        let ranges: Vec<AddressRange> = srat.memory.iter().map(|memory| memory.range).collect();
        if !ranges.is_empty() && covered(&ranges) < managed {
            let detail =
                format!("domains have {}, but the kernel manages {managed}", covered(&ranges));
            contradiction("SRAT", SRAT, "which addresses belong to which socket", detail);
        }
    }
    if let Some(mpst) = &findings.mpst {
        let nodes: Vec<AddressRange> =
            mpst.nodes.iter().flat_map(|node| node.ranges.clone()).collect();
        let most = [modules, findings.mem_total_bytes].into_iter().flatten().max();
        if let Some(most) =
            most.filter(|&most| covered(&nodes) > most && differ(covered(&nodes), most))
        {
            let detail =
                format!("power nodes have {}, but there is memory of {most}", covered(&nodes));
            contradiction("MPST", MPST, SHOWS_MPST, detail);
        }
        for node in &mpst.nodes {
            if node.deepest().is_some_and(|state| state.saving_mw().is_none()) {
                let detail = format!("node {} saves more than 100%", node.id);
                contradiction("MPST", MPST, SHOWS_MPST, detail);
            }
        }
        if let Some((one, other)) = mpst.nesting().crossing {
            let detail = format!("nodes {one} and {other} share a part of their addresses");
            contradiction("MPST", MPST, SHOWS_MPST, detail);
        }
    }
    findings.gaps.append(&mut gaps);
}

/// A domain of the SRAT that has memory which is there.
pub(crate) struct SratDomain {
    pub(crate) ranges: Vec<AddressRange>,
}

/// Domains by number. Ranges for memory that may be added later do not count.
pub(crate) fn domains(findings: &MachineFindings) -> Vec<SratDomain> {
    let memory = findings.srat.iter().flat_map(|srat| &srat.memory);
    let mut by_number = std::collections::BTreeMap::<u32, Vec<AddressRange>>::new();
    for affinity in memory.filter(|affinity| !affinity.non_volatile && !affinity.hot_pluggable) {
        by_number.entry(affinity.domain).or_default().push(affinity.range);
    }
    by_number.into_values().map(|ranges| SratDomain { ranges: merged(ranges) }).collect()
}
