//! Vendors' drivers that power DRAM segments down.
//!
//! Kernels of phones and tablets have them. Qualcomm's mem-offline asks the power controller to end
//! refresh of a segment when the last of its memory blocks goes offline, and to begin it before the
//! first comes back. Samsung's, and `mtkpasr`, empty segments by themselves, when the machine
//! suspends or its screen goes off, and end refresh of these alone: what `ramslice` takes offline
//! stays powered.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::platform::DEVICE_TREE;
use crate::root::SystemRoot;

const MEM_OFFLINE: &str = "sys/kernel/mem-offline";
const EXYNOS_PASR: &str = "sys/bus/platform/drivers/exynos-pasr";
const MTKPASR: &str = "sys/power/mtkpasr";
/// Where device trees have their nodes.
const PARENTS: [&str; 3] = ["", "/soc", "/reserved-memory"];
/// Parts of these nodes' names: no others are read.
const NODES: [&str; 3] = ["offline", "pasr", "lowpower"];
/// Kernels with `mtkpasr` have pages of this size, its unit.
const MTK_PAGE: u64 = 4096;
const SHOWS: &str = "how large a segment is that can be powered down";

/// A driver that is known.
struct KnownDriver {
    name: &'static str,
    does: &'static str,
    /// In its device tree node.
    compatible: &'static str,
    /// A directory that only kernels with the driver have.
    directory: &'static str,
    by_hotplug: bool,
}

const KNOWN: [KnownDriver; 3] = [
    KnownDriver {
        name: "Qualcomm mem-offline",
        does: "powers a segment down when all of its memory blocks are offline",
        compatible: "qcom,mem-offline",
        directory: MEM_OFFLINE,
        by_hotplug: true,
    },
    KnownDriver {
        name: "Samsung PASR",
        does: "takes movable memory blocks offline for suspend, and ends their refresh",
        compatible: "samsung,exynos-pasr",
        directory: EXYNOS_PASR,
        by_hotplug: false,
    },
    KnownDriver {
        name: "MediaTek PASR",
        does: "empties segments when the screen goes off or for suspend, and ends their refresh",
        compatible: "mediatek,memory-lowpower",
        directory: MTKPASR,
        by_hotplug: false,
    },
];

/// A vendor's driver for DRAM segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentDriver {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Its node in the device tree or in sysfs.
    pub path: String,
    /// The unit of a segment's size; `None` if not given.
    pub granule_bytes: Option<Bytes>,
    /// The smallest and the largest segment, if their sizes differ.
    pub unequal_bytes: Option<(Bytes, Bytes)>,
    /// The running kernel has it; otherwise the device tree alone names it.
    pub is_active: bool,
    /// It powers down what memory hotplug takes offline; otherwise only what it emptied itself.
    pub by_hotplug: bool,
}

/// Looks for them.
pub(crate) fn segment_drivers(root: &SystemRoot, out: &mut MachineFindings) {
    let nodes = nodes(root);
    for known in &KNOWN {
        let node =
            nodes.iter().find(|(_, names)| names.iter().any(|name| name == known.compatible));
        let is_active = root.has(known.directory);
        if node.is_none() && !is_active {
            continue;
        }
        let path = node.map_or(known.directory, |(path, _)| path);
        let (granule_bytes, unequal_bytes) = match known.directory {
            MEM_OFFLINE => qualcomm(root, node.map(|(path, _)| path.as_str()), is_active, out),
            MTKPASR if is_active => banks(root, out),
            EXYNOS_PASR => (out.hotplug.as_ref().and_then(|hotplug| hotplug.block_bytes), None),
            _ => (None, None),
        };
        out.segment_drivers.push(SegmentDriver {
            name: known.name,
            does: known.does,
            path: format!("/{path}"),
            granule_bytes,
            unequal_bytes,
            is_active,
            by_hotplug: known.by_hotplug,
        });
    }
}

/// Device tree nodes that may be a driver's, and what they are compatible with.
fn nodes(root: &SystemRoot) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for parent in PARENTS {
        let names = root.list(&format!("{DEVICE_TREE}{parent}")).unwrap_or_default();
        for name in names.iter().filter(|name| NODES.iter().any(|part| name.contains(part))) {
            let path = format!("{DEVICE_TREE}{parent}/{name}");
            let compatible = root.texts(&format!("{path}/compatible")).unwrap_or_default();
            found.push((path, compatible));
        }
    }
    found
}

/// The unit of a segment's size, and the smallest and the largest if they differ.
type SegmentSizes = (Option<Bytes>, Option<(Bytes, Bytes)>);

/// mem-offline has a granule in its node, and another in sysfs once it runs.
fn qualcomm(
    root: &SystemRoot,
    node: Option<&str>,
    is_active: bool,
    out: &mut MachineFindings,
) -> SegmentSizes {
    let in_node = node.and_then(|node| granule(root, &format!("{node}/granule"), out));
    if !is_active {
        return (in_node, None);
    }
    let running = number(root, &format!("{MEM_OFFLINE}/offline_granule"), out);
    (running.or(in_node), unequal(root, out))
}

/// `mtkpasr` lists its segments as `Bank[N] - start_pfn[FIRST] end_pfn[LAST] ...`, in
/// hexadecimal, with or without 0x.
fn banks(root: &SystemRoot, out: &mut MachineFindings) -> SegmentSizes {
    let path = format!("{MTKPASR}/membank");
    let Ok(text) = root.text(&path) else { return (None, None) };
    let pfn = |line: &str, name: &str| {
        let (_, rest) = line.split_once(name)?;
        let (digits, _) = rest.strip_prefix('[')?.split_once(']')?;
        u64::from_str_radix(digits.trim().trim_start_matches("0x"), 16).ok()
    };
    let size = |line: &str| {
        let pages = pfn(line, "end_pfn")?.checked_sub(pfn(line, "start_pfn")?)?.checked_add(1)?;
        pages.checked_mul(MTK_PAGE).map(Bytes)
    };
    let lines = text.lines().filter(|line| line.trim_start().starts_with("Bank["));
    let sizes: Vec<Option<Bytes>> = lines.map(size).collect();
    if sizes.contains(&None) {
        let gap = InputGap::new(GapKind::Damaged, "sysfs", &path, SHOWS);
        out.gaps
            .push(gap.because("a bank should have a first and a last page frame in hexadecimal"));
    }
    let sizes: Vec<Bytes> = sizes.into_iter().flatten().collect();
    match (sizes.iter().min(), sizes.iter().max()) {
        (Some(&least), Some(&most)) if least < most => (None, Some((least, most))),
        (least, _) => (least.copied(), None),
    }
}

/// mem-offline lists its segments only where their sizes differ.
fn unequal(root: &SystemRoot, out: &mut MachineFindings) -> Option<(Bytes, Bytes)> {
    let folder = format!("{MEM_OFFLINE}/seg_info");
    let names = root.list(&folder).unwrap_or_default();
    let sizes: Vec<Bytes> = names
        .iter()
        .filter_map(|name| number(root, &format!("{folder}/{name}/seg_size"), out))
        .collect();
    Some((*sizes.iter().min()?, *sizes.iter().max()?)).filter(|(least, most)| least < most)
}

/// In bytes, as text.
fn number(root: &SystemRoot, path: &str, out: &mut MachineFindings) -> Option<Bytes> {
    let text = root.text(path).ok()?;
    let bytes = text.trim().parse().ok().filter(|&bytes| bytes > 0);
    if bytes.is_none() {
        let gap = InputGap::new(GapKind::Damaged, "sysfs", path, SHOWS);
        out.gaps.push(gap.because("it should hold a number of bytes"));
    }
    bytes.map(Bytes)
}

/// In MiB, as a cell of a device tree: four bytes, the highest first.
fn granule(root: &SystemRoot, path: &str, out: &mut MachineFindings) -> Option<Bytes> {
    let bytes = root.bytes(path).ok()?;
    let mib = <[u8; 4]>::try_from(bytes.as_slice()).ok().map(u32::from_be_bytes);
    match mib.filter(|&mib| mib > 0) {
        Some(mib) => Some(Bytes(u64::from(mib) << 20)),
        None => {
            let gap = InputGap::new(GapKind::Damaged, "device tree", path, SHOWS);
            out.gaps.push(gap.because("it should hold a number of MiB in four bytes"));
            None
        }
    }
}
