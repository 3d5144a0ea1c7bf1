//! How much memory each input states.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, covered, merged};
use crate::findings::MachineFindings;
use crate::smbios::MemoryRole;

/// Sizes of all modules; `None` if there is none or one has no size.
pub(crate) fn module_bytes(findings: &MachineFindings) -> Option<Bytes> {
    let sizes: Option<Vec<Bytes>> = findings.modules().map(|module| module.size_bytes).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.into_iter().sum())
}

/// The ranges that arrays are mapped to (type 19).
pub(crate) fn mapped_ranges(findings: &MachineFindings) -> Vec<AddressRange> {
    let mappings = findings.smbios.iter().flat_map(|smbios| &smbios.array_mappings);
    merged(mappings.map(|mapping| mapping.range).collect())
}

/// So many times what the modules have is no statement about memory, but a mistaken unit.
const NO_SIZE: u64 = 64;

/// Addresses that arrays are mapped to; `None` without any, or if they are no size.
pub(crate) fn mapped_bytes(findings: &MachineFindings) -> Option<Bytes> {
    let ranges = mapped_ranges(findings);
    let usable = !ranges.is_empty() && mapped_to_no_size(findings).is_none();
    usable.then(|| covered(&ranges))
}

/// What arrays are mapped to, if that is no size of memory.
pub(crate) fn mapped_to_no_size(findings: &MachineFindings) -> Option<Bytes> {
    let mapped = covered(&mapped_ranges(findings));
    module_bytes(findings).filter(|modules| mapped.0 / NO_SIZE > modules.0).map(|_| mapped)
}

/// Memory as its controllers see it (EDAC); `None` without any, or if a size is missing.
pub(crate) fn edac_bytes(findings: &MachineFindings) -> Option<Bytes> {
    let sizes: Option<Vec<Bytes>> = findings.edac.iter().map(|module| module.size_bytes).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.into_iter().sum())
}

/// CXL memory that has addresses.
pub(crate) fn cxl_bytes(findings: &MachineFindings) -> Bytes {
    findings.cxl.iter().filter(|memory| memory.region).filter_map(|memory| memory.size_bytes).sum()
}

/// Persistent memory in modules. It may serve as ordinary memory behind a cache of DRAM, and be
/// handed out by DAX.
pub(crate) fn persistent_bytes(findings: &MachineFindings) -> Bytes {
    let devices = findings.smbios.iter().flat_map(|smbios| &smbios.devices);
    devices
        .filter(|device| device.role == MemoryRole::Persistent)
        .filter_map(|device| device.size_bytes)
        .sum()
}

/// Whether DRAM is a cache of other memory, so that the kernel's memory need not be DRAM.
pub(crate) fn has_cache(findings: &MachineFindings) -> bool {
    findings.hmat.as_ref().is_some_and(|hmat| !hmat.caches.is_empty())
        || !findings.side_caches.is_empty()
}

/// DRAM that is a cache of other memory, and so has no addresses, if it can be among the modules: a
/// processor may have its own in addition. HMAT says it, and sysfs to all users.
pub(crate) fn cache_bytes(findings: &MachineFindings) -> Bytes {
    let of_hmat: Bytes =
        findings.hmat.iter().flat_map(|hmat| &hmat.caches).map(|cache| cache.size_bytes).sum();
    let of_sysfs: Bytes = findings.side_caches.iter().map(|cache| cache.size_bytes).sum();
    let cache = of_hmat.max(of_sysfs);
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
    let devices = findings.dax.iter().filter(|device| !device.managed && !device.persistent);
    let all: Bytes = devices.filter_map(|device| device.size_bytes).sum();
    all.saturating_sub(persistent_bytes(findings))
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
