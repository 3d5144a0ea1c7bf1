//! The findings as lines to read: the input, what it says, what follows.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::acpi::PowerNode;
use crate::address_range::covered;
use crate::findings::{MachineFindings, VirtualVerdict};
use crate::interleave::sets;
use crate::layout::{MemoryLayout, ModuleGroup};
use crate::read_inputs::{DMI_TABLE, HMAT, MEMINFO, MPST, SRAT};
use crate::sizes::{domains, mapped_bytes};
use crate::smbios::{MemoryDevice, MemoryRole};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceLine {
    /// The input.
    pub input: &'static str,
    /// Where it was read.
    pub path: String,
    /// What the detector reports.
    pub says: String,
    /// What follows from it.
    pub so: String,
}

/// All that was found, in the order of its weight.
pub fn evidence(findings: &MachineFindings, layout: &MemoryLayout) -> Vec<EvidenceLine> {
    let mut out = Vec::new();
    let mut add = |input, path: &str, says: String, so: &str| {
        let path = format!("/{}", path.trim_start_matches('/'));
        // Whatever is in a table or file: no control characters reach the screen.
        let says = says.replace(|c: char| c.is_control(), " ");
        out.push(EvidenceLine { input, path, says, so: so.to_owned() });
    };
    let machine = &findings.virtual_machine;
    for sign in &machine.signs {
        let so = match (sign.virtual_machine, machine.is) {
            (_, VirtualVerdict::Contradictory) => "signs disagree",
            (Some(true), _) => "virtual machine",
            (Some(false), _) => "no virtual machine",
            (None, _) => "no sign of a virtual machine",
        };
        add("machine", &sign.path, sign.says.clone(), so);
    }
    if let Some(tree) = &findings.device_tree {
        let model = tree.model.clone().or_else(|| tree.compatible.first().cloned());
        add("machine", "sys/firmware/devicetree/base", model.unwrap_or_default(), "board");
    }
    for driver in &findings.segment_drivers {
        let of = match (driver.unequal_bytes, driver.granule_bytes) {
            (Some((least, most)), _) => format!(", units of {least} to {most}"),
            (None, Some(size)) => format!(", units of {size}"),
            (None, None) => String::new(),
        };
        let so = match (driver.is_active, driver.by_hotplug) {
            (true, true) => "powers segments down by memory hotplug",
            (true, false) => "powers down what it empties itself",
            (false, _) => "not in the running kernel",
        };
        add("segments", &driver.path, format!("{}{of}", driver.name), so);
    }
    if let Some(found) = &findings.ddr_regions {
        let sizes = match found.segment_bytes {
            Some((least, most)) if least < most => format!(" of {least} to {most}"),
            Some((size, _)) => format!(" of {size}"),
            None => String::new(),
        };
        let says = format!("{} regions, {} whole segments{sizes}", found.regions, found.segments);
        let so = if found.segments > 0 {
            "slices by ramslice=firmware, without ACPI"
        } else {
            "nothing to power down"
        };
        add("segments", &found.path, says, so);
    }
    for way in &findings.give_back {
        let so = if way.by_itself {
            "free memory goes back by itself"
        } else {
            "goes back when the hypervisor asks"
        };
        add("give back", &way.path, way.name.to_owned(), so);
    }
    if let Some(total) = findings.mem_total_bytes {
        let available = findings.mem_available_bytes;
        let so =
            available.map_or_else(String::new, |bytes| format!("{bytes} available at this moment"));
        add("memory", MEMINFO, format!("{total} managed by the kernel"), &so);
    }
    smbios(findings, &mut add);
    if let Some(mpst) = &findings.mpst {
        let usable = mpst.units().count();
        let sizes: Bytes = mpst.units().map(PowerNode::size).sum();
        let says =
            format!("{} power nodes; {usable} of {sizes} can be powered down", mpst.nodes.len());
        add(
            "power nodes",
            MPST,
            says,
            if usable > 0 { "firmware can do it" } else { "nothing to power down" },
        );
    }
    if findings.srat.is_some() {
        let domains = domains(findings);
        let sizes: Vec<String> =
            domains.iter().map(|domain| covered(&domain.ranges).to_string()).collect();
        let so = if domains.len() > 1 {
            "not interleaved over sockets"
        } else {
            "interleaving stays open"
        };
        add("domains", SRAT, format!("{} of memory: {}", domains.len(), sizes.join(", ")), so);
    }
    if let Some(hmat) = &findings.hmat {
        for cache in &hmat.caches {
            let says =
                format!("{} of memory-side cache before domain {}", cache.size_bytes, cache.domain);
            add("kinds of memory", HMAT, says, "that DRAM has no addresses: not to be packed");
        }
        if hmat.caches.is_empty() {
            let says = format!(
                "{} memory domains; tables of latency or bandwidth: {}",
                hmat.domains.len(),
                hmat.latency_tables
            );
            add("kinds of memory", HMAT, says, "no DRAM is a cache of other memory");
        }
    }
    for cache in &findings.side_caches {
        let path = format!("sys/devices/system/node/{}/memory_side_cache", cache.node);
        let says = format!("{} of memory-side cache before {}", cache.size_bytes, cache.node);
        add("kinds of memory", &path, says, "what is behind it need not be DRAM");
    }
    for memory in &findings.cxl {
        let size =
            memory.size_bytes.map_or_else(|| "unknown size".to_owned(), |size| size.to_string());
        let ways = memory.interleave_ways.unwrap_or(1);
        let granularity = memory.interleave_granularity_bytes;
        let every = granularity.map_or_else(String::new, |bytes| format!(" every {bytes}"));
        let says = if ways > 1 { format!("{size}, over {ways} devices{every}") } else { size };
        let so = if memory.region { "DRAM of its own" } else { "part of a region, or not in use" };
        add("CXL", &format!("sys/bus/cxl/devices/{}", memory.name), says, so);
    }
    for device in &findings.dax {
        let says =
            device.size_bytes.map_or_else(|| "unknown size".to_owned(), |size| size.to_string());
        let so = if device.persistent {
            "persistent memory: not counted"
        } else if device.managed {
            "the kernel has it as memory"
        } else {
            "set aside: not to be packed"
        };
        add("DAX", &format!("sys/bus/dax/devices/{}", device.name), says, so);
    }
    for module in &findings.edac {
        let size =
            module.size_bytes.map_or_else(|| "unknown size".to_owned(), |size| size.to_string());
        let kind = module.type_name.as_deref().unwrap_or("unknown type");
        let place = module.location.as_deref().unwrap_or("unknown place");
        add(
            "EDAC",
            &format!("sys/devices/system/edac/mc/{}", module.name),
            format!("{size} of {kind}"),
            place,
        );
    }
    let by_nodes = findings.mpst.as_ref().is_some_and(|mpst| mpst.units().next().is_some());
    if machine.is != VirtualVerdict::Yes && !by_nodes {
        let alike = |group: &ModuleGroup| (group.size_bytes, group.parts, group.part);
        for groups in together(layout.groups.iter().collect(), |group| alike(group)) {
            let first = groups[0];
            let parts = if first.parts > 1 {
                format!(", at most {} parts", first.parts)
            } else {
                String::new()
            };
            let names = names(groups.iter().map(|group| group.name.clone()));
            let each = if groups.len() > 1 { " each" } else { "" };
            add(
                "layout",
                DMI_TABLE,
                format!("{}{parts}{each}: {names}", first.size_bytes),
                first.part,
            );
        }
    }
    if let Some(hotplug) = &findings.hotplug {
        let block =
            hotplug.block_bytes.map_or_else(|| "unknown size".to_owned(), |size| size.to_string());
        let says = format!("{} blocks of {block}", hotplug.blocks);
        add("memory hotplug", "sys/devices/system/memory", says, "what any kernel could take away");
    }
    if let Some(ramslice) = &findings.ramslice {
        let size = match (ramslice.slice_bytes, ramslice.nr_segments) {
            (None, _) => String::new(),
            (Some(size), None) => format!(", slices of {size}"),
            (Some(size), Some(nr)) => format!(", {nr} slices by a table, the largest of {size}"),
        };
        let driver = ramslice.power_driver.as_deref().unwrap_or("none");
        let on = if ramslice.enabled == Some(true) { "on" } else { "off" };
        let so = match ramslice.real_driver() {
            Some("report") => "slices that are off go to the host",
            Some(_) => "can power down",
            None => "powers nothing down",
        };
        add("ramslice", "sys/kernel/mm/ramslice", format!("{on}{size}, power driver {driver}"), so);
    }
    out
}

fn smbios(findings: &MachineFindings, add: &mut impl FnMut(&'static str, &str, String, &str)) {
    let Some(smbios) = &findings.smbios else { return };
    let alike =
        |module: &MemoryDevice| (module.size_bytes, module.type_name, module.ranks, module.role);
    for modules in together(smbios.devices.iter().collect(), |module| alike(module)) {
        let first = modules[0];
        let ranks = match first.ranks {
            None => "ranks unknown".to_owned(),
            Some(1) => "1 rank".to_owned(),
            Some(ranks) => format!("{ranks} ranks"),
        };
        let so = match (first.role, first.dram.parts_of_a_rank()) {
            (MemoryRole::Persistent, _) => "persistent memory: not counted",
            (MemoryRole::Other, _) => "no system memory: not counted",
            (_, 1) => "powers down by whole ranks",
            _ => "may power down parts of a rank",
        };
        let each = if modules.len() > 1 { " each" } else { "" };
        let names = names(modules.iter().map(|module| module.name()));
        add("module", DMI_TABLE, format!("{first}, {ranks}{each}: {names}"), so);
    }
    if smbios.empty_sockets > 0 {
        let says = counted(smbios.empty_sockets, "socket is empty", "sockets are empty");
        add("module", DMI_TABLE, says, "");
    }
    for array in smbios.arrays.iter().filter(|array| array.system_memory) {
        let modules = || findings.modules().filter(|module| module.array == array.handle);
        let size: Bytes = modules().filter_map(|module| module.size_bytes).sum();
        let over = array.capacity_bytes.is_some_and(|most| size > most);
        if over || modules().count() > usize::from(array.sockets) {
            let most =
                array.capacity_bytes.map_or_else(String::new, |most| format!(" at most {most} in"));
            let says = format!(
                "{most} {} sockets (type 16), with {} modules of {size}",
                array.sockets,
                modules().count()
            );
            add("module", DMI_TABLE, says.trim().to_owned(), "the modules count");
        }
    }
    if let Some(mapped) = mapped_bytes(findings) {
        // Firmware also writes the number of sockets there, or 255: no row of what is plugged in.
        let modules = findings.modules().count();
        let widths = smbios.array_mappings.iter().filter_map(|mapping| mapping.partition_width);
        let so = match widths.filter(|&width| usize::from(width) <= modules).max() {
            Some(width @ 2..) => {
                format!("{width} modules form a row, says type 19: likely interleaved")
            }
            _ => "says nothing of interleaving".to_owned(),
        };
        let ranges = counted(smbios.array_mappings.len(), "range", "ranges");
        let says = format!("{mapped} in {ranges} (type 19)");
        add("addresses", DMI_TABLE, says, &so);
    }
    for set in sets(findings) {
        let range = set.ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let says = format!("{range} (type 20): {}", names(set.modules.iter().cloned()));
        let so = if set.modules.len() > 1 {
            "interleaved: powered down together"
        } else if set.is_open() {
            "interleaved by its position, with addresses of its own"
        } else {
            "a module by itself"
        };
        add("addresses", DMI_TABLE, says, so);
    }
    if smbios.unused_mappings > 0 {
        let mappings = counted(smbios.unused_mappings, "mapping", "mappings");
        let says = format!("{mappings} of empty sockets or without addresses (types 19 and 20)");
        add("addresses", DMI_TABLE, says, "not counted");
    }
    if !smbios.errors.is_empty() {
        add(
            "module",
            DMI_TABLE,
            format!("{} memory errors (type 18)", smbios.errors.len()),
            "replace before saving",
        );
    }
}

/// Names beyond this many are only counted.
const NAMES_TOLD: usize = 8;

/// A number and what it counts.
fn counted(count: usize, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

/// `A1, A2, A3`, or the first of them and how many more.
fn names(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(NAMES_TOLD);
    all.truncate(NAMES_TOLD);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    all.join(", ") + &tail
}

/// Those that are alike in one list each, in the order of the first of them.
fn together<T: Copy, K: PartialEq>(items: Vec<T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut out: Vec<Vec<T>> = Vec::new();
    for item in items {
        match out.iter_mut().find(|list| key(&list[0]) == key(&item)) {
            Some(list) => list.push(item),
            None => out.push(vec![item]),
        }
    }
    out
}
