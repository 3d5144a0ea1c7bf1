//! Which modules share addresses.
//!
//! SMBIOS type 20 gives each module its addresses. Modules whose addresses overlap are interleaved:
//! between them, one address in two or more belongs to each. Their addresses may be those of all of
//! them, or as many as one of them has. Some firmware says that modules are interleaved, but gives
//! each addresses of its own, one after the other: then it is open which of them share addresses.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, covered, merged};
use crate::findings::MachineFindings;
use crate::hole::{rounded, shared_bytes};
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
    /// All say that they are not interleaved.
    pub(crate) says_apart: bool,
}

impl InterleaveSet {
    /// All modules together; `None` if the size of one is not known.
    pub(crate) fn size(&self) -> Option<Bytes> {
        (self.sizes.len() == self.modules.len()).then(|| self.sizes.iter().copied().sum())
    }

    /// The addresses that it has.
    pub(crate) fn span(&self) -> Bytes {
        covered(&self.ranges)
    }

    /// Its modules in words: the first of them, and how many there are.
    pub(crate) fn names(&self) -> String {
        match self.modules.as_slice() {
            [] => "no module".to_owned(),
            [only] => only.clone(),
            [first, ..] => format!("{} modules ({first} is the first)", self.modules.len()),
        }
    }

    /// It is said to be interleaved, but shares addresses with no other module.
    pub(crate) fn is_open(&self) -> bool {
        self.says_interleaved && self.modules.len() == 1
    }
}

/// Where firmware rounds, neighbours may overlap by less than this; that is no sharing.
const SLIVER: Bytes = Bytes(16 << 20);

fn overlap(one: &[AddressRange], other: AddressRange) -> bool {
    let least = one.iter().map(|range| range.size()).min().unwrap_or_default().min(other.size());
    shared_bytes(one, &[other]) > SLIVER.min(Bytes(least.0 / 16))
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
        let apart = mapping.interleave_position == Some(0);
        // Sorted by address, it can only reach into sets that a range before it opened; a module
        // with addresses in several places (around the hole below 4 GiB) joins what these places
        // belong to.
        let joins = |set: &InterleaveSet| {
            set.handles.contains(&module.handle) || overlap(&set.ranges, range)
        };
        let (joined, others): (Vec<InterleaveSet>, Vec<InterleaveSet>) =
            sets.into_iter().partition(joins);
        let mut set = InterleaveSet {
            modules: Vec::new(),
            handles: Vec::new(),
            sizes: Vec::new(),
            ranges: vec![range],
            says_interleaved: says,
            says_apart: apart,
        };
        for mut other in joined {
            set.modules.append(&mut other.modules);
            set.handles.append(&mut other.handles);
            set.sizes.append(&mut other.sizes);
            set.ranges.append(&mut other.ranges);
            set.says_interleaved |= other.says_interleaved;
            set.says_apart &= other.says_apart;
        }
        if !set.handles.contains(&module.handle) {
            set.handles.push(module.handle);
            set.modules.push(module.name());
            set.sizes.extend(module.size_bytes);
        }
        set.ranges = merged(set.ranges);
        sets = others;
        sets.push(set);
    }
    for set in &mut sets {
        if let Some(size) = set.size() {
            set.ranges = rounded(&set.ranges, size);
        }
    }
    sets.sort_by_key(|set| set.ranges.first().copied());
    sets
}
