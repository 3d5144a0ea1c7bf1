//! Vendors' drivers that power DRAM segments down once their memory blocks are offline.
//!
//! Kernels of phones and tablets have them: Qualcomm's mem-offline (device tree `qcom,mem-offline`,
//! `/sys/kernel/mem-offline`) asks the power controller to end refresh of a segment when the last
//! of its blocks goes offline, and to begin it before the first comes back. Samsung's PASR driver
//! does alike in suspend.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::platform::DEVICE_TREE;
use crate::root::SystemRoot;

const MEM_OFFLINE: &str = "sys/kernel/mem-offline";
/// Where device trees have these nodes.
const PARENTS: [&str; 2] = ["", "/soc"];

/// A driver, and what it does; by a word of its device tree node's `compatible`.
const KNOWN: [(&str, &str, &str); 2] = [
    (
        "qcom,mem-offline",
        "Qualcomm mem-offline",
        "powers a segment down when all of its memory blocks are offline",
    ),
    (
        "samsung,exynos-pasr",
        "Samsung PASR",
        "takes movable memory blocks offline for suspend, and powers their segments down",
    ),
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
}

/// Looks for them.
pub(crate) fn segment_drivers(root: &SystemRoot, out: &mut MachineFindings) {
    let is_active = root.has(MEM_OFFLINE);
    for parent in PARENTS {
        let nodes = root.list(&format!("{DEVICE_TREE}{parent}")).unwrap_or_default();
        let wanted = |name: &&String| name.contains("offline") || name.contains("pasr");
        for node in nodes.iter().filter(wanted) {
            let path = format!("{DEVICE_TREE}{parent}/{node}");
            let compatible = root.texts(&format!("{path}/compatible")).unwrap_or_default();
            let known = KNOWN.iter().find(|known| compatible.iter().any(|name| name == known.0));
            let Some(&(word, name, does)) = known else { continue };
            let granule_bytes = granule(root, &format!("{path}/granule"), out);
            let is_active = is_active && word == KNOWN[0].0;
            out.segment_drivers.push(SegmentDriver {
                name,
                does,
                path: format!("/{path}"),
                granule_bytes,
                unequal_bytes: None,
                is_active,
            });
        }
    }
    if !is_active {
        return;
    }
    if !out.segment_drivers.iter().any(|driver| driver.is_active) {
        let (_, name, does) = KNOWN[0];
        let path = format!("/{MEM_OFFLINE}");
        let (granule_bytes, unequal_bytes) = (None, None);
        let driver = SegmentDriver { name, does, path, granule_bytes, unequal_bytes, is_active };
        out.segment_drivers.push(driver);
    }
    let granule_bytes = number(root, &format!("{MEM_OFFLINE}/offline_granule"), out);
    let unequal_bytes = unequal(root, out);
    for driver in out.segment_drivers.iter_mut().filter(|driver| driver.is_active) {
        driver.granule_bytes = granule_bytes.or(driver.granule_bytes);
        driver.unequal_bytes = unequal_bytes;
    }
}

/// The driver lists its segments only where their sizes differ.
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
        let shows = "how large a segment is that can be powered down";
        let gap = InputGap::new(GapKind::Damaged, "sysfs", path, shows);
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
            let shows = "how large a segment is that can be powered down";
            let gap = InputGap::new(GapKind::Damaged, "device tree", path, shows);
            out.gaps.push(gap.because("it should hold a number of MiB in four bytes"));
            None
        }
    }
}
