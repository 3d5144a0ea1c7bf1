//! What drivers and subsystems of the running kernel say: EDAC, CXL, DAX, memory hotplug, ramslice.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, merged};
use crate::findings::{
    CxlMemory, DaxDevice, EdacModule, GapKind, HotplugFindings, InputGap, MachineFindings,
    RamsliceFindings, SideCache,
};
use crate::root::{ReadProblem, SystemRoot};
use crate::smbios::DramKind;

const EDAC: &str = "sys/devices/system/edac/mc";
const CXL: &str = "sys/bus/cxl/devices";
const DAX: &str = "sys/bus/dax/devices";
const DAX_MANAGED: &str = "sys/bus/dax/drivers/kmem";
const NODE: &str = "sys/devices/system/node";
const MEMORY: &str = "sys/devices/system/memory";
const RAMSLICE: &str = "sys/kernel/mm/ramslice";

/// A number: decimal, or hexadecimal with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A file with a size; `None` if it is absent, a gap if it cannot be understood.
fn size(
    root: &SystemRoot,
    out: &mut MachineFindings,
    input: &'static str,
    path: &str,
    unit: u64,
) -> Option<Bytes> {
    let shows = "the size of this memory";
    match root.text(path) {
        Ok(text) => match number(&text).and_then(|count| count.checked_mul(unit)) {
            Some(bytes) => Some(Bytes(bytes)),
            None => {
                let detail = format!("it should hold a number but reads `{}`", text.escape_debug());
                out.gaps.push(InputGap::new(GapKind::Damaged, input, path, shows).because(detail));
                None
            }
        },
        Err(ReadProblem::Absent) => None,
        Err(problem) => {
            out.gaps.push(InputGap::new(problem.into(), input, path, shows));
            None
        }
    }
}

/// Whether `name` is `prefix` and a number.
fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Modules by memory controller.
pub(crate) fn edac(root: &SystemRoot, out: &mut MachineFindings) {
    let shows = "how many channels and modules the memory controllers see";
    let controllers = match root.list(EDAC) {
        Ok(names) => names,
        Err(problem) => return out.gaps.push(InputGap::new(problem.into(), "EDAC", EDAC, shows)),
    };
    for controller in controllers.iter().filter(|name| numbered(name, "mc")) {
        let directory = format!("{EDAC}/{controller}");
        for module in root.list(&directory).unwrap_or_default() {
            if !numbered(&module, "dimm") && !numbered(&module, "rank") {
                continue;
            }
            let path = format!("{directory}/{module}");
            let size_bytes = size(root, out, "EDAC", &format!("{path}/size"), 1 << 20);
            let type_name = root.text(&format!("{path}/dimm_mem_type")).ok();
            out.edac.push(EdacModule {
                name: format!("{controller}/{module}"),
                size_bytes,
                dram: type_name.as_deref().map_or(DramKind::Unknown, edac_kind),
                type_name,
                location: root.text(&format!("{path}/dimm_location")).ok(),
            });
        }
    }
    if out.edac.is_empty() {
        let detail = "no driver for this machine's memory controllers is loaded";
        out.gaps.push(InputGap::new(GapKind::Absent, "EDAC", EDAC, shows).because(detail));
    }
}

/// EDAC's words for types of memory (`edac_mem_types` in Linux's `drivers/edac/edac_mc.c`).
fn edac_kind(words: &str) -> DramKind {
    match words {
        _ if words.contains("Low-Power-DDR5") => DramKind::LpDdr5,
        _ if words.contains("Low-Power-DDR") => DramKind::LpDdr,
        _ if words.contains("DDR2") || words.contains("DDR3") => DramKind::DdrWithOptionalPasr,
        _ if words.contains("DDR") => DramKind::Ddr,
        _ => DramKind::Unknown,
    }
}

/// CXL regions and memory devices.
pub(crate) fn cxl(root: &SystemRoot, out: &mut MachineFindings) {
    let names = match root.list(CXL) {
        Ok(names) => names,
        Err(problem) => {
            let shows = "CXL memory, which has DRAM and interleaving of its own";
            return out.gaps.push(InputGap::new(problem.into(), "CXL", CXL, shows));
        }
    };
    for name in names {
        let path = format!("{CXL}/{name}");
        let (region, file) = match () {
            () if numbered(&name, "region") => (true, "size"),
            () if numbered(&name, "mem") => (false, "ram/size"),
            () => continue,
        };
        let size_bytes = size(root, out, "CXL", &format!("{path}/{file}"), 1);
        let interleave_ways =
            size(root, out, "CXL", &format!("{path}/interleave_ways"), 1).map(|ways| ways.0);
        let interleave_granularity_bytes =
            size(root, out, "CXL", &format!("{path}/interleave_granularity"), 1);
        out.cxl.push(CxlMemory {
            name,
            region,
            size_bytes,
            interleave_ways,
            interleave_granularity_bytes,
        });
    }
}

/// Memory set aside for direct access.
pub(crate) fn dax(root: &SystemRoot, out: &mut MachineFindings) {
    let names = match root.list(DAX) {
        Ok(names) => names,
        Err(problem) => {
            let shows = "memory that is set aside and cannot be packed";
            return out.gaps.push(InputGap::new(problem.into(), "DAX", DAX, shows));
        }
    };
    // Without the driver there is none of these.
    let managed = root.list(DAX_MANAGED).unwrap_or_default();
    for name in names.into_iter().filter(|name| name.starts_with("dax")) {
        let managed = managed.contains(&name);
        let size_bytes = size(root, out, "DAX", &format!("{DAX}/{name}/size"), 1);
        let target_node = root.text(&format!("{DAX}/{name}/target_node")).ok();
        // Devices of persistent memory hang below their bus: .../ndbus0/region0/dax0.0
        let place = root.link(&format!("{DAX}/{name}")).unwrap_or_default();
        let persistent = place.split('/').any(|part| numbered(part, "ndbus"));
        out.dax.push(DaxDevice { name, size_bytes, target_node, managed, persistent });
    }
}

/// Memory-side caches by node: all users may read them, unlike HMAT. Few machines have any, so that
/// none is no gap.
pub(crate) fn side_caches(root: &SystemRoot, out: &mut MachineFindings) {
    for node in
        root.list(NODE).unwrap_or_default().into_iter().filter(|name| numbered(name, "node"))
    {
        let directory = format!("{NODE}/{node}/memory_side_cache");
        let levels = root.list(&directory).unwrap_or_default();
        let mut size_bytes = Bytes::ZERO;
        for level in levels.iter().filter(|name| numbered(name, "index")) {
            let size =
                size(root, out, "memory-side cache", &format!("{directory}/{level}/size"), 1);
            size_bytes += size.unwrap_or_default();
        }
        if size_bytes > Bytes::ZERO {
            out.side_caches.push(SideCache { node, size_bytes });
        }
    }
}

/// Memory blocks.
pub(crate) fn hotplug(root: &SystemRoot, out: &mut MachineFindings) {
    let shows = "whether a kernel without ramslice could take memory away, and in what units";
    let names = match root.list(MEMORY) {
        Ok(names) => names,
        Err(problem) => {
            return out.gaps.push(InputGap::new(problem.into(), "memory hotplug", MEMORY, shows));
        }
    };
    let path = format!("{MEMORY}/block_size_bytes");
    let block = match root.text(&path) {
        // Hexadecimal without 0x.
        Ok(text) => {
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().filter(|&bytes| bytes > 0)
        }
        Err(_) => None,
    };
    if block.is_none() {
        out.gaps.push(
            InputGap::new(GapKind::Damaged, "memory hotplug", &path, shows)
                .because("no size of a block"),
        );
    }
    let numbers: Vec<u64> =
        names.iter().filter_map(|name| name.strip_prefix("memory")?.parse().ok()).collect();
    let range = |number: &u64| AddressRange::sized(number.checked_mul(block?)?, block?);
    out.hotplug = Some(HotplugFindings {
        block_bytes: block.map(Bytes),
        blocks: numbers.len(),
        ranges: merged(numbers.iter().filter_map(range).collect()),
    });
}

/// The running kernel's ramslice. These files hold one value each, and a captured tree has no other
/// way.
pub(crate) fn ramslice(root: &SystemRoot, out: &mut MachineFindings) {
    let path = |name: &str| format!("{RAMSLICE}/{name}");
    let shows = "the slices and the power driver of the running kernel";
    let enabled = match root.text(&path("enabled")) {
        Ok(text) => match text.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        },
        Err(problem) => {
            return out.gaps.push(InputGap::new(
                problem.into(),
                "ramslice",
                &path("enabled"),
                shows,
            ));
        }
    };
    let power_driver = root.text(&path("power_driver")).ok();
    let slice_bytes = size(root, out, "ramslice", &path("slice_bytes"), 1);
    // A kernel from before it could do that has no such file; 0 says that all are of one size.
    let nr_segments = root.text(&path("nr_segments")).ok().and_then(|text| number(&text));
    let nr_segments = nr_segments.filter(|&nr| nr > 0);
    if enabled.is_none() || (enabled == Some(true) && power_driver.is_none()) {
        out.gaps.push(InputGap::new(GapKind::Damaged, "ramslice", RAMSLICE, shows));
    }
    out.ramslice = Some(RamsliceFindings { enabled, slice_bytes, nr_segments, power_driver });
}
