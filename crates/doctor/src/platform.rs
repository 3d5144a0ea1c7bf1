//! What kind of machine it is: virtual or not, its board, and how memory goes back to a hypervisor.

use crate::findings::{
    DeviceTree, GapKind, InputGap, MachineFindings, MemoryReturn, VirtualMachine, VirtualSign,
    VirtualVerdict,
};
use crate::read_inputs::{CPUINFO, DMI_TABLE};
use crate::root::{ReadProblem, SystemRoot};

pub(crate) const DEVICE_TREE: &str = "sys/firmware/devicetree/base";
const DMI_ID: &str = "sys/class/dmi/id";
const XEN: &str = "sys/hypervisor/type";
const VIRTIO: &str = "sys/bus/virtio/devices";
const SHOWS_VIRTUAL: &str = "whether this is a virtual machine, whose DRAM is the hypervisor's";

/// Makers and products that are virtual machines, by the beginning of a DMI text.
const VIRTUAL_NAMES: [(&str, &str); 17] = [
    ("KVM", "KVM"),
    ("OpenStack", "OpenStack"),
    ("KubeVirt", "KubeVirt"),
    ("Amazon EC2", "Amazon EC2"),
    ("QEMU", "QEMU"),
    ("VMware", "VMware"),
    ("VMW", "VMware"),
    ("innotek GmbH", "VirtualBox"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Bochs", "Bochs"),
    ("Parallels", "Parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "Hyper-V"),
    ("Apple Virtualization", "Apple"),
    ("Google Compute Engine", "Google Compute Engine"),
    // Microsoft's own name for its guests; its laptops have others.
    ("Virtual Machine", "Hyper-V"),
];

/// The board, if firmware gives a device tree. Machines with ACPI have none, so its absence is no
/// gap there.
pub(crate) fn device_tree(root: &SystemRoot, out: &mut MachineFindings) {
    let model = root.text(&format!("{DEVICE_TREE}/model"));
    let compatible = root.texts(&format!("{DEVICE_TREE}/compatible"));
    match (model, compatible) {
        (Err(ReadProblem::Absent), Err(ReadProblem::Absent)) => {
            if out.smbios.is_none() && out.srat.is_none() {
                let shows = "what board this is";
                out.gaps.push(InputGap::new(GapKind::Absent, "device tree", DEVICE_TREE, shows));
            }
        }
        (model, compatible) => {
            let compatible = compatible.unwrap_or_default();
            out.device_tree = Some(DeviceTree { model: model.ok(), compatible });
        }
    }
}

/// Collects the signs and concludes.
pub(crate) fn virtual_machine(root: &SystemRoot, out: &mut MachineFindings) {
    let mut signs = Vec::new();
    let mut hypervisor = None;
    processor(root, out, &mut signs);
    if let Ok(text) = root.text(XEN) {
        hypervisor = Some(text.clone());
        signs.push(sign(XEN, format!("a hypervisor of type {text}"), Some(true), true));
    }
    hypervisor_node(root, &mut signs);
    for name in out.device_tree.iter().flat_map(|tree| &tree.compatible) {
        if name == "linux,dummy-virt" || name.starts_with("qemu,") {
            signs.push(sign(DEVICE_TREE, format!("a virtual board, {name}"), Some(true), true));
        }
    }
    let mut texts = Vec::new();
    for file in ["sys_vendor", "product_name", "board_vendor", "bios_vendor"] {
        let path = format!("{DMI_ID}/{file}");
        texts.extend(root.text(&path).ok().map(|text| (path, text)));
    }
    if let Some(smbios) = &out.smbios {
        if smbios.virtual_machine {
            signs.push(sign(
                DMI_TABLE,
                "the firmware says that it is virtual".to_owned(),
                Some(true),
                true,
            ));
        }
        if texts.is_empty() {
            let strings = [&smbios.manufacturer, &smbios.product, &smbios.firmware_vendor];
            texts.extend(
                strings.into_iter().flatten().map(|text| (DMI_TABLE.to_owned(), text.clone())),
            );
        }
    }
    if texts.is_empty() {
        out.gaps.push(InputGap::new(GapKind::Absent, "DMI names", DMI_ID, SHOWS_VIRTUAL));
    }
    // Whole machines that clouds rent have the cloud's name, too.
    let metal = texts.iter().any(|(_, text)| text.contains(".metal"));
    for (path, text) in &texts {
        let known = VIRTUAL_NAMES.iter().find(|(start, _)| text.starts_with(start));
        if let Some((_, name)) = known.filter(|_| !metal) {
            hypervisor.get_or_insert_with(|| (*name).to_owned());
            signs.push(sign(
                path,
                format!("`{text}`, a name of virtual machines"),
                Some(true),
                false,
            ));
        }
    }
    if let (Some((path, text)), true) =
        (texts.first(), signs.iter().all(|sign| sign.virtual_machine != Some(true)))
    {
        signs.push(sign(path, format!("`{text}`, no name of virtual machines"), None, false));
    }
    let says = |yes: bool, decides: bool| {
        signs.iter().any(|sign| sign.virtual_machine == Some(yes) && (sign.decides || !decides))
    };
    let is = match (says(true, true), says(true, false), says(false, true)) {
        (true, _, false) | (_, true, false) => VirtualVerdict::Yes,
        (false, false, true) => VirtualVerdict::No,
        (_, true, true) => VirtualVerdict::Contradictory,
        _ => VirtualVerdict::Unknown,
    };
    if is == VirtualVerdict::Contradictory {
        let detail = "the processor denies a hypervisor, other signs are for one";
        let gap = InputGap::new(GapKind::Contradictory, "virtual machine", CPUINFO, SHOWS_VIRTUAL);
        out.gaps.push(gap.because(detail));
    }
    out.virtual_machine = VirtualMachine { is, hypervisor, signs };
}

/// The primary VM of Gunyah, `VMID_HLOS` in its resource manager: Android or Linux itself, which
/// has the machine's memory one to one.
const GUNYAH_PRIMARY: u32 = 3;

/// The hypervisor that a device tree names. Gunyah, once called Haven, names itself to the primary
/// VM, too, whose memory is the machine's own.
fn hypervisor_node(root: &SystemRoot, signs: &mut Vec<VirtualSign>) {
    let node = format!("{DEVICE_TREE}/hypervisor");
    let path = format!("{node}/compatible");
    let Ok(names) = root.texts(&path) else { return };
    let text = names.join(", ");
    if !names.iter().any(|name| name.contains("gunyah") || name.contains("haven")) {
        signs.push(sign(&path, format!("a hypervisor compatible with {text}"), Some(true), true));
        return;
    }
    let vmid = root.bytes(&format!("{node}/qcom,gunyah-vm/qcom,vmid")).ok();
    let vmid = vmid.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let (says, virtual_machine) = match vmid {
        None => (format!("Gunyah ({text}), which names itself to the primary VM, too"), None),
        Some(GUNYAH_PRIMARY) => {
            (format!("the primary VM of Gunyah ({text}): memory is the machine's own"), None)
        }
        Some(vmid) => (format!("VM {vmid} of Gunyah ({text})"), Some(true)),
    };
    signs.push(sign(&path, says, virtual_machine, virtual_machine.is_some()));
}

fn sign(path: &str, says: String, virtual_machine: Option<bool>, decides: bool) -> VirtualSign {
    VirtualSign { path: format!("/{path}"), says, virtual_machine, decides }
}

/// The hypervisor flag of x86 processors.
fn processor(root: &SystemRoot, out: &mut MachineFindings, signs: &mut Vec<VirtualSign>) {
    let gap = |kind| InputGap::new(kind, "cpuinfo", CPUINFO, SHOWS_VIRTUAL);
    match root.text(CPUINFO) {
        Err(problem) => out.gaps.push(gap(problem.into())),
        Ok(text) => {
            let flags = text.lines().find_map(|line| {
                let (name, flags) = line.split_once(':')?;
                (name.trim() == "flags").then_some(flags)
            });
            match flags {
                None => {
                    out.gaps.push(
                        gap(GapKind::Silent)
                            .because("this architecture has no hypervisor flag there"),
                    );
                }
                Some(flags) => {
                    let guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
                    let says =
                        if guest { "the hypervisor flag is set" } else { "no hypervisor flag" };
                    signs.push(sign(CPUINFO, says.to_owned(), Some(guest), true));
                }
            }
        }
    }
}

/// Devices and drivers by which memory goes back.
pub(crate) fn give_back(root: &SystemRoot, out: &mut MachineFindings) {
    // Device numbers and feature bits: virtio specification 1.3, sections 5, 5.5.3 and 5.15.
    for name in root.list(VIRTIO).unwrap_or_default() {
        let path = format!("{VIRTIO}/{name}");
        let device = root.text(&format!("{path}/device")).unwrap_or_default();
        match device.as_str() {
            "0x0005" => {
                let features = root.text(&format!("{path}/features")).unwrap_or_default();
                let reporting = features.as_bytes().get(5) == Some(&b'1');
                let name = if reporting {
                    "virtio balloon with free page reporting"
                } else {
                    "virtio balloon without free page reporting"
                };
                out.give_back.push(MemoryReturn {
                    name,
                    path: format!("/{path}"),
                    by_itself: reporting,
                });
            }
            "0x0018" => {
                let (name, path) = ("virtio-mem", format!("/{path}"));
                out.give_back.push(MemoryReturn { name, path, by_itself: false });
            }
            _ => {}
        }
    }
    for (name, path) in [
        ("Xen balloon", "sys/devices/system/xen_memory/xen_memory0"),
        ("Hyper-V balloon", "sys/bus/vmbus/drivers/hv_balloon"),
        ("VMware balloon", "sys/module/vmw_balloon"),
    ] {
        if root.has(path) {
            out.give_back.push(MemoryReturn { name, path: format!("/{path}"), by_itself: false });
        }
    }
    if out.virtual_machine.is != VirtualVerdict::No && out.give_back.is_empty() {
        let shows = "by what this guest could give memory back";
        out.gaps.push(InputGap::new(GapKind::Absent, "balloon or virtio-mem", VIRTIO, shows));
    }
}
