//! Which modules share addresses.
//!
//! SMBIOS type 20 gives each module its addresses. Modules whose addresses overlap are interleaved,
//! whatever their interleave position says: between them, one address in two or more belongs to
//! each.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, merged};
use crate::findings::MachineFindings;
use crate::smbios::MemoryDevice;

/// Modules that share their addresses; a single module if it shares them with no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterleaveSet {
    /// Their names.
    pub(crate) modules: Vec<String>,
    /// Their handles.
    pub(crate) handles: Vec<u16>,
    /// The sizes of those whose size is known.
    pub(crate) sizes: Vec<Bytes>,
    /// Their addresses.
    pub(crate) ranges: Vec<AddressRange>,
    /// One has a place in an interleave.
    pub(crate) says_interleaved: bool,
}

/// All sets by address; empty unless every module has addresses.
pub(crate) fn sets(findings: &MachineFindings) -> Vec<InterleaveSet> {
    let Some(smbios) = &findings.smbios else { return Vec::new() };
    let modules: Vec<&MemoryDevice> = findings.modules().collect();
    let mapped = |module: &&MemoryDevice| {
        smbios.device_mappings.iter().any(|mapping| mapping.device == module.handle)
    };
    if !modules.iter().all(mapped) {
        return Vec::new();
    }
    let mut mappings: Vec<_> = smbios
        .device_mappings
        .iter()
        .filter_map(|mapping| {
            let module = modules.iter().find(|module| module.handle == mapping.device)?;
            Some((mapping.range, mapping, *module))
        })
        .collect();
    mappings.sort_by_key(|(range, ..)| *range);
    let mut sets: Vec<InterleaveSet> = Vec::new();
    for (range, mapping, module) in mappings {
        let says = mapping.interleave_position.is_some_and(|position| position > 0);
        // Sorted by address, it can only reach into sets that a range before it opened; a module
        // with addresses in several places (around the hole below 4 GiB) joins what these places
        // belong to.
        let joins = |set: &InterleaveSet| {
            set.handles.contains(&module.handle)
                || set.ranges.iter().any(|other| other.overlaps(range))
        };
        let (joined, apart): (Vec<InterleaveSet>, Vec<InterleaveSet>) =
            sets.into_iter().partition(joins);
        let mut set = InterleaveSet {
            modules: Vec::new(),
            handles: Vec::new(),
            sizes: Vec::new(),
            ranges: vec![range],
            says_interleaved: says,
        };
        for mut other in joined {
            set.modules.append(&mut other.modules);
            set.handles.append(&mut other.handles);
            set.sizes.append(&mut other.sizes);
            set.ranges.append(&mut other.ranges);
            set.says_interleaved |= other.says_interleaved;
        }
        if !set.handles.contains(&module.handle) {
            set.handles.push(module.handle);
            set.modules.push(module.name());
            set.sizes.extend(module.size_bytes);
        }
        set.ranges = merged(set.ranges);
        sets = apart;
        sets.push(set);
    }
    sets.sort_by_key(|set| set.ranges.first().copied());
    sets
}
