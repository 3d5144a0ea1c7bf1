//! The parts of memory as the hardware sees them: which modules share addresses, and which parts
//! can be powered down.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::address_range::{AddressRange, covered};
use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::interleave::{InterleaveSet, sets};
use crate::read_inputs::{DMI_TABLE, SHOWS_SMBIOS};
use crate::sizes::{
    SratDomain, cache_bytes, cxl_bytes, domains, edac_bytes, has_cache, mapped_bytes, module_bytes,
    set_aside_bytes,
};
use crate::smbios::{DramKind, MemoryDevice};

/// Ranks of a module that does not report them: more than any module has by itself.
const MOST_RANKS: u64 = 8;

/// Memory whose addresses are spread over the same modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleGroup {
    /// Words for it, as in `2 interleaved modules`.
    pub name: String,
    /// Modules in it.
    pub modules: usize,
    /// Its memory.
    pub size_bytes: Bytes,
    /// Its addresses, where a table gives them.
    pub ranges: Vec<AddressRange>,
    /// Into how many parts it can fall for powering down, at most.
    pub parts: u64,
    /// What such a part is.
    pub part: &'static str,
}

impl ModuleGroup {
    /// The smallest part of it that can be powered down.
    pub fn unit(&self) -> Bytes {
        Bytes(self.size_bytes.0 / self.parts.max(1))
    }
}

/// The machine's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryLayout {
    /// The least memory that is present, by any input; `None` if no input says.
    pub low_total_bytes: Option<Bytes>,
    /// The most that is there, by any input.
    pub high_total_bytes: Option<Bytes>,
    /// Its parts.
    pub groups: Vec<ModuleGroup>,
    /// The parts come from type 20; otherwise they are the finest that are possible.
    pub interleaving_known: bool,
    /// Modules that are interleaved by their positions, but have addresses of their own: they count
    /// one by one.
    pub modules_said_interleaved: usize,
    /// DRAM of these that is a cache of other memory, which has no addresses: not in the totals.
    pub cache_bytes: Bytes,
    /// Of these, DRAM that is set aside for direct access and cannot be packed: not in the totals.
    pub set_aside_bytes: Bytes,
}

impl MemoryLayout {
    /// The most that could be powered down: all but one unit, which the kernel itself needs.
    ///
    /// The kernel is at low addresses. Where no table says which part has these, the smallest one
    /// is assumed.
    pub fn most(&self) -> Option<Bytes> {
        let total = self.high_total_bytes?;
        let units = || self.groups.iter().filter(|group| group.size_bytes > Bytes::ZERO);
        let stays = if units().all(|group| !group.ranges.is_empty()) {
            units().min_by_key(|group| group.ranges.first().copied()).map(ModuleGroup::unit)
        } else {
            units().map(ModuleGroup::unit).min()
        };
        let alone = units().count() == 1 && units().all(|group| group.parts <= 1);
        Some(if alone { Bytes::ZERO } else { total.saturating_sub(stays?) })
    }

    /// The smallest part that can be powered down.
    pub fn unit(&self) -> Option<&ModuleGroup> {
        self.groups
            .iter()
            .filter(|group| group.size_bytes > Bytes::ZERO)
            .min_by_key(|group| group.unit())
    }
}

/// Works the parts out. What had to be left open becomes a gap.
pub(crate) fn layout(findings: &MachineFindings) -> (MemoryLayout, Vec<InputGap>) {
    let mut gaps = Vec::new();
    let mut silent = |detail: &str| {
        gaps.push(
            InputGap::new(GapKind::Silent, "SMBIOS", DMI_TABLE, SHOWS_SMBIOS).because(detail),
        );
    };
    let modules: Vec<&MemoryDevice> = findings.modules().collect();
    let sets = if findings.is_doubtful("interleaving") { Vec::new() } else { sets(findings) };
    let open: Vec<&InterleaveSet> = sets.iter().filter(|set| set.is_open()).collect();
    // One alone has no other to be interleaved with.
    let said = if open.len() > 1 { open.len() } else { 0 };
    let mut out = MemoryLayout {
        interleaving_known: !sets.is_empty() && said == 0 || modules.len() == 1,
        modules_said_interleaved: said,
        ..MemoryLayout::default()
    };
    if let (Some(first), 2..) = (open.first(), said) {
        silent(&format!(
            "which modules share addresses: {said} ({} is the first) are interleaved by their \
             positions, but each has addresses of its own (type 20)",
            first.names()
        ));
    }
    let unsized_module = modules.iter().find(|module| module.size_bytes.is_none());
    if let Some(module) = unsized_module {
        silent(&format!(
            "the size of {} (type 17): the sum of the modules is no bound here",
            module.name()
        ));
    }
    if !sets.is_empty() {
        out.groups = sets.iter().map(|set| of_set(set, &modules)).collect();
    } else if module_bytes(findings).is_some() {
        if modules.len() > 1 {
            silent(
                "how addresses are interleaved over modules: no usable structures of type 20. \
                 Firmware usually interleaves what it can; no table says so",
            );
        }
        out.groups = modules.iter().map(|module| of_modules(&[module])).collect();
    } else if !findings.edac.is_empty() {
        silent("how addresses are interleaved over modules: EDAC does not report it");
        out.groups = findings.edac.iter().map(of_edac).collect();
    } else if let Some(total) = findings.mem_total_bytes {
        silent("modules and their kind: the finest that any DRAM has is taken, an eighth");
        let domains = domains(findings);
        let ranges = |at: usize| {
            domains.get(at).map_or_else(Vec::new, |domain: &SratDomain| domain.ranges.clone())
        };
        out.groups = (0..domains.len().max(1))
            .map(|at| {
                let size_bytes = if domains.len() > 1 { covered(&ranges(at)) } else { total };
                let (name, part) = ("memory of unknown kind".to_owned(), "an eighth of it");
                ModuleGroup { name, modules: 0, size_bytes, ranges: ranges(at), parts: 8, part }
            })
            .collect();
    }
    let ranks_matter =
        |module: &&MemoryDevice| module.dram.parts_of_a_rank() == 1 && module.ranks.is_none();
    if modules.iter().any(ranks_matter) {
        silent("how many ranks the modules have; from 1 to 8 is possible");
    }
    if modules.iter().any(|module| module.dram == DramKind::Unknown) {
        silent("what kind of DRAM this is; whether less than a rank can be powered down is open");
    }
    for memory in findings.cxl.iter().filter(|memory| memory.region) {
        out.groups.push(ModuleGroup {
            name: format!("CXL {}", memory.name),
            modules: usize::try_from(memory.interleave_ways.unwrap_or(1)).unwrap_or(1),
            size_bytes: memory.size_bytes.unwrap_or_default(),
            ranges: Vec::new(),
            parts: 1,
            part: "a CXL region",
        });
    }
    totals(findings, &mut out);
    (out, gaps)
}

/// The least and the most that inputs give. Whatever the others say, there is no more than the
/// modules have, and nothing but they is DRAM.
fn totals(findings: &MachineFindings, out: &mut MemoryLayout) {
    let cxl = cxl_bytes(findings);
    (out.cache_bytes, out.set_aside_bytes) = (cache_bytes(findings), set_aside_bytes(findings));
    let dram = |size: Bytes| {
        (size.saturating_sub(out.cache_bytes) + cxl).saturating_sub(out.set_aside_bytes)
    };
    // Behind a cache, addresses and what the kernel has may be of other memory than DRAM.
    let behind = has_cache(findings);
    let modules = module_bytes(findings).map(dram);
    let mapped = mapped_bytes(findings).filter(|_| !behind).map(dram);
    let seen = edac_bytes(findings).filter(|seen| *seen > Bytes::ZERO).map(dram);
    let of_firmware: Vec<Bytes> = [modules, mapped, seen].into_iter().flatten().collect();
    let doubtful = findings.is_doubtful("memory size");
    // What firmware keeps for itself is missing from the kernel's figure, so this one only counts
    // in need. It has neither what is a cache nor what is set aside.
    let of_kernel = findings.mem_total_bytes.filter(|_| !behind);
    let all = of_firmware.iter().copied().chain(of_kernel);
    (out.low_total_bytes, out.high_total_bytes) = match of_firmware.first() {
        Some(&first) if !doubtful => (Some(first), Some(first)),
        _ => (all.clone().min(), all.max()),
    };
    if let Some(most) = modules {
        out.high_total_bytes = Some(most);
        out.low_total_bytes = out.low_total_bytes.map(|least| least.min(most));
    }
}

fn of_set(set: &InterleaveSet, modules: &[&MemoryDevice]) -> ModuleGroup {
    let members: Vec<&MemoryDevice> =
        modules.iter().copied().filter(|module| set.handles.contains(&module.handle)).collect();
    let size_bytes = set.size().unwrap_or_else(|| set.span());
    ModuleGroup { ranges: set.ranges.clone(), size_bytes, ..of_modules(&members) }
}

/// Modules that share addresses. Ranks need not be interleaved even if modules are, so as many
/// parts are possible as the modules have ranks.
fn of_modules(modules: &[&MemoryDevice]) -> ModuleGroup {
    let kind = modules.first().map_or("memory", |module| module.type_name);
    let segments = modules.iter().map(|module| module.dram.parts_of_a_rank()).max().unwrap_or(1);
    let ranks =
        modules.iter().map(|module| module.ranks.map_or(MOST_RANKS, u64::from)).max().unwrap_or(1);
    let (parts, part) = match (segments, ranks) {
        (1, 1) => {
            (1, if modules.len() == 1 { "a module" } else { "all interleaved modules together" })
        }
        (1, ranks) => {
            (ranks, if modules.len() == 1 { "a rank" } else { "a rank of each interleaved module" })
        }
        (segments, _) => {
            let one = "an eighth of the module's rows";
            (
                segments,
                if modules.len() == 1 {
                    one
                } else {
                    "an eighth of the rows of all interleaved modules"
                },
            )
        }
    };
    let name = match modules {
        [only] => only.name(),
        _ => format!("{} interleaved modules ({kind})", modules.len()),
    };
    let size_bytes = modules.iter().filter_map(|module| module.size_bytes).sum();
    ModuleGroup { name, modules: modules.len(), size_bytes, ranges: Vec::new(), parts, part }
}

fn of_edac(module: &crate::findings::EdacModule) -> ModuleGroup {
    let segments = module.dram.parts_of_a_rank();
    let rank = module.name.contains("rank");
    let (parts, part) = match (segments, rank) {
        (1, true) => (1, "a rank"),
        (1, false) => (MOST_RANKS, "a rank"),
        (segments, _) => (segments, "an eighth of the module's rows"),
    };
    ModuleGroup {
        name: module.name.clone(),
        modules: 1,
        size_bytes: module.size_bytes.unwrap_or_default(),
        ranges: Vec::new(),
        parts,
        part,
    }
}
