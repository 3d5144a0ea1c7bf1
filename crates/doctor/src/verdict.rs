//! The verdict: how much could be powered down, from nothing but the findings. No I/O, no clock.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::acpi::{AcpiPowerState, MpstTable, PowerNode};
use crate::address_range::{AddressRange, covered};
use crate::findings::{GapKind, InputGap, MachineFindings, VirtualVerdict};
use crate::hole::rounded;
use crate::layout::{MemoryLayout, layout};
use crate::power_rate::{MwPerGib, PowerSaving};
use crate::sizes::{cache_bytes, has_cache, mapped_ranges, module_bytes, set_aside_bytes};
use crate::slices::{DEFAULT_SLICE, SliceAdvice, advise};

/// Of what kind the verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// Nothing can be powered down here.
    Zero,
    /// Something can, or might.
    Possible,
    /// The inputs say too little for any statement.
    Unknown,
}

/// From one size to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByteInterval {
    /// At least.
    pub low_bytes: Bytes,
    /// At most.
    pub high_bytes: Bytes,
}

/// What the machine could power down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerDownVerdict {
    /// Of what kind it is.
    pub kind: VerdictKind,
    /// The verdict in one sentence.
    pub headline: String,
    /// Why, sentence by sentence.
    pub because: Vec<String>,
    /// What is so today, whatever the hardware could do.
    pub today: String,
    /// Memory that there is.
    pub total: Option<ByteInterval>,
    /// Memory that could be powered down, given a power driver.
    pub power_down: Option<ByteInterval>,
    /// The low end as a share of the most memory that there is.
    pub low_share: Option<f64>,
    /// The high end as a share of the least memory that there is, at most 1.
    pub high_share: Option<f64>,
    /// What that would save, where a figure per GiB was given or firmware has one.
    pub savings: Vec<PowerSaving>,
    /// Memory that could go back to a hypervisor; `None` if there is none, or no way.
    pub returnable_bytes: Option<Bytes>,
    /// The smallest part that can be powered down.
    pub unit_bytes: Option<Bytes>,
    /// What that is.
    pub unit: Option<String>,
    /// The slice size to boot with.
    pub slice: SliceAdvice,
}

/// Concludes. Gaps that come up on the way are added to those of the findings.
pub(crate) fn verdict(
    findings: &mut MachineFindings,
    rate: Option<MwPerGib>,
) -> (PowerDownVerdict, MemoryLayout) {
    let (parts, gaps) = layout(findings);
    let mut verdict = match findings.virtual_machine.is {
        VirtualVerdict::Yes => virtual_machine(findings),
        _ if findings.mpst.as_ref().is_some_and(|mpst| mpst.units().next().is_some()) => {
            power_nodes(findings, &parts)
        }
        _ => {
            findings.gaps.extend(gaps);
            modules(findings, &parts)
        }
    };
    in_use(findings, &mut verdict);
    if findings.virtual_machine.is != VirtualVerdict::Yes {
        verdict.because.extend(little_managed(findings));
    }
    let guest = match findings.virtual_machine.is {
        VirtualVerdict::Contradictory => "Signs disagree whether this is a virtual machine",
        VirtualVerdict::Unknown => "No input says whether this is a virtual machine",
        VirtualVerdict::Yes | VirtualVerdict::No => "",
    };
    if verdict.kind == VerdictKind::Possible && !guest.is_empty() {
        verdict
            .because
            .push(format!("{guest}. If it is, the answer is 0 J: the DRAM is the hypervisor's."));
    }
    drivers(findings, &parts, &mut verdict);
    verdict.total = parts
        .low_total_bytes
        .zip(parts.high_total_bytes)
        .map(|(low_bytes, high_bytes)| ByteInterval { low_bytes, high_bytes });
    if let (Some(total), Some(part)) = (verdict.total, verdict.power_down) {
        verdict.low_share = Some(part.low_bytes.share_of(total.high_bytes).min(1.0));
        verdict.high_share = Some(part.high_bytes.share_of(total.low_bytes).min(1.0));
    }
    if let (Some(rate), Some(part)) = (rate, verdict.power_down) {
        verdict.savings.insert(0, PowerSaving::at(rate, part.low_bytes, part.high_bytes));
    }
    (verdict, parts)
}

fn empty(kind: VerdictKind, headline: String, slice: SliceAdvice) -> PowerDownVerdict {
    let zero = ByteInterval { low_bytes: Bytes::ZERO, high_bytes: Bytes::ZERO };
    PowerDownVerdict {
        kind,
        headline,
        because: Vec::new(),
        today: String::new(),
        total: None,
        power_down: (kind != VerdictKind::Unknown).then_some(zero),
        low_share: None,
        high_share: None,
        savings: Vec::new(),
        returnable_bytes: None,
        unit_bytes: None,
        unit: None,
        slice,
    }
}

fn pageblock(findings: &MachineFindings) -> Bytes {
    findings.pageblock_bytes.unwrap_or(Bytes(2 << 20))
}

/// Small, because the host takes memory back in any size: one chunk, the unit in which slices wake.
const GIVE_BACK_SLICE: Bytes = Bytes(4 << 20);

/// What to write on the host, so that guests can give memory back.
const HOST_OFFERS: &str = "A host takes free memory back with `-device \
     virtio-balloon-pci,free-page-reporting=on` (QEMU), `<memballoon model='virtio' \
     freePageReporting='on'/>` (libvirt) or `\"free_page_reporting\": true` of its balloon \
     (Firecracker).";

/// In a virtual machine: nothing here, but perhaps something for the host.
fn virtual_machine(findings: &MachineFindings) -> PowerDownVerdict {
    let name = findings.virtual_machine.hypervisor.as_deref();
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let headline = format!(
        "0 J possible here, because this is a virtual machine{name}: its DRAM belongs to the \
         hypervisor, and what looks like memory here lies anywhere in it."
    );
    let ways: Vec<&str> = findings.give_back.iter().map(|way| way.name).collect();
    if ways.is_empty() {
        let because = "nothing is powered down here, and there is no way to give memory back";
        let mut verdict = empty(VerdictKind::Zero, headline, SliceAdvice::none(because));
        verdict.because.push(
            "The hypervisor could have memory back with a balloon or virtio-mem, but this guest \
             has neither."
                .to_owned(),
        );
        verdict.because.push(HOST_OFFERS.to_owned());
        return verdict;
    }
    let size = GIVE_BACK_SLICE.0.div_ceil(pageblock(findings).0.max(1)) * pageblock(findings).0;
    let slice = SliceAdvice::size(
        Bytes(size),
        "for giving memory back the choice is free; small slices empty easily",
    );
    let mut verdict = empty(VerdictKind::Zero, headline, slice);
    let available = findings.mem_available_bytes;
    let most =
        available.map_or_else(String::new, |bytes| format!(", at this moment at most {bytes}"));
    verdict.because.push(format!(
        "The hypervisor can have memory back by {}{most}. What the host then saves cannot be seen \
         from here: ask its `ramslice doctor`.",
        ways.join(", ")
    ));
    let driver = findings.ramslice.as_ref().and_then(|ramslice| ramslice.real_driver());
    let next_step = if !findings.give_back.iter().any(|way| way.by_itself) {
        HOST_OFFERS
    } else if driver == Some("report") {
        "Whole slices go there at once: `ramslice giveback` says how much, and gives more."
    } else if findings.ramslice.is_some() {
        "Whole slices go there at once with `modprobe ramslice_report` and `ramslice giveback \
         --now`."
    } else {
        "`ramslice giveback` says what could go at this moment, and with `--now` gives it back."
    };
    verdict.because.push(next_step.to_owned());
    verdict.returnable_bytes = available;
    verdict
}

/// Where firmware describes memory power nodes.
fn power_nodes(findings: &MachineFindings, parts: &MemoryLayout) -> PowerDownVerdict {
    let nodes: Vec<_> = findings.mpst.iter().flat_map(MpstTable::units).collect();
    let ranges: Vec<Vec<AddressRange>> = nodes.iter().map(|node| node.ranges.clone()).collect();
    let all: Vec<AddressRange> = ranges.iter().flatten().copied().collect();
    // The kernel is at low addresses, and its node stays on.
    let stays = nodes.iter().min_by_key(|node| node.ranges.first().copied());
    let unmanaged = parts.high_total_bytes.is_some_and(|total| total > covered(&all));
    let lowest_is_managed =
        all.iter().map(|range| range.start_bytes).min() == Some(0) || !unmanaged;
    let kept = stays.filter(|_| lowest_is_managed).map_or(Bytes::ZERO, |node| node.size());
    // However many addresses nodes have, there is no more than the modules.
    let most = parts.high_total_bytes.unwrap_or(Bytes(u64::MAX)).min(covered(&all));
    let high_bytes = most.saturating_sub(kept);
    let doubtful = ["MPST", "memory size"].iter().any(|input| findings.is_doubtful(input))
        || findings.virtual_machine.is != VirtualVerdict::No;
    let low_bytes = if doubtful { Bytes::ZERO } else { high_bytes };
    if high_bytes == Bytes::ZERO {
        let headline =
            "0 J possible here, because the only memory power node holds the kernel itself (MPST).";
        return empty(
            VerdictKind::Zero,
            headline.to_owned(),
            SliceAdvice::none("there is nothing to power down"),
        );
    }
    let unit = nodes.iter().map(|node| node.size()).min().unwrap_or_default();
    let mut out = empty(
        VerdictKind::Possible,
        String::new(),
        by_firmware(&nodes, pageblock(findings))
            .unwrap_or_else(|| advise(unit, &ranges, &[], pageblock(findings), false)),
    );
    let by_hardware =
        nodes.iter().all(|node| node.states.iter().any(|state| !state.triggered_by_os));
    let how = if by_hardware { "hardware does it by itself" } else { GIVEN_A_DRIVER };
    out.headline = headline(low_bytes, high_bytes, parts, how);
    out.power_down = Some(ByteInterval { low_bytes, high_bytes });
    (out.unit_bytes, out.unit) = (Some(unit), Some("a memory power node".to_owned()));
    out.because.push(format!(
        "Firmware has {} memory power nodes that the operating system may power down (ACPI MPST), \
         of {unit} or more. The one with the lowest addresses holds the kernel and stays on.",
        nodes.len()
    ));
    out.because.push(
        if by_hardware {
            "Hardware powers a node down by itself once it is idle: emptying it is enough."
        } else {
            "The operating system has to ask for it, through the platform communication channel. \
             Linux has no driver for that: a power driver has to be written."
        }
        .to_owned(),
    );
    if doubtful {
        out.because.push(
            "Tables are damaged or disagree, or this may be a virtual machine: so the low end is \
             0."
            .to_owned(),
        );
    }
    let stays = stays.filter(|_| lowest_is_managed).map(|node| node.id);
    let states =
        nodes.iter().filter(|node| Some(node.id) != stays).filter_map(|node| node.deepest());
    let high_mw = states.filter_map(AcpiPowerState::saving_mw).sum();
    out.savings.push(PowerSaving::of_firmware(high_mw));
    out
}

/// Slices as the table of memory power nodes says, where these are of unequal sizes and each is a
/// range of whole pageblocks; `None` where slices of one size are as good.
fn by_firmware(nodes: &[&PowerNode], pageblock: Bytes) -> Option<SliceAdvice> {
    let sizes = || nodes.iter().map(|node| node.size());
    let (least, most) = (sizes().min()?, sizes().max()?);
    let is_slice = |node: &&PowerNode| match *node.ranges.as_slice() {
        [range] => [range.start_bytes, range.end_bytes]
            .iter()
            .all(|end| pageblock.0 > 0 && end.is_multiple_of(pageblock.0)),
        _ => false,
    };
    (least != most && nodes.iter().all(is_slice)).then(|| SliceAdvice {
        parameter: Some("ramslice=firmware".to_owned()),
        slice_bytes: None,
        because: format!(
            "{} memory power nodes, of {least} to {most}, are a slice each (ACPI MPST)",
            nodes.len()
        ),
    })
}

/// Where only the modules are known, or less.
fn modules(findings: &MachineFindings, parts: &MemoryLayout) -> PowerDownVerdict {
    let (Some(high_bytes), Some(group)) = (parts.most(), parts.unit()) else {
        let headline = if has_cache(findings) {
            "No verdict: DRAM is a cache of other memory here, so that what the kernel has need \
             not be DRAM, and no input says what DRAM there is."
        } else {
            "No verdict: no input says what memory this machine has."
        };
        let slice = SliceAdvice::none("nothing is known of the memory");
        return empty(VerdictKind::Unknown, headline.to_owned(), slice);
    };
    // A table that is there but cannot be read may name power nodes.
    let unusable = |kind| !matches!(kind, GapKind::Absent | GapKind::Silent);
    let nodes_open = findings.gaps.iter().any(|gap| gap.input == "MPST" && unusable(gap.kind));
    let total = parts.high_total_bytes.unwrap_or_default();
    let high_bytes = if nodes_open { total } else { high_bytes };
    if total == Bytes::ZERO && left_out(parts).is_some() {
        let headline = "0 J possible here, because all of its DRAM is a cache of other memory \
                        (HMAT) or set aside (DAX).";
        let slice = SliceAdvice::none("there is no DRAM that could be packed");
        let mut out = empty(VerdictKind::Zero, headline.to_owned(), slice);
        out.because.extend(left_out(parts));
        return out;
    }
    if high_bytes == Bytes::ZERO {
        let why = if group.modules > 1 {
            format!(
                "the addresses of all {} modules are interleaved, so that any slice touches every \
                 one of them",
                group.modules
            )
        } else {
            "it has one module with one rank, which is never empty".to_owned()
        };
        let headline =
            format!("0 J possible here, because {why}. Its DRAM has no mode for less than a rank.");
        let mut out = empty(
            VerdictKind::Zero,
            headline,
            SliceAdvice::none("a slice would have to be all of memory to be a whole rank"),
        );
        if group.modules > 1 {
            out.because.push(
                "If firmware's setup can switch interleaving off (channel, rank or bank \
                 interleaving, NUMA nodes per socket), do so and ask again. It costs memory \
                 bandwidth."
                    .to_owned(),
            );
        }
        (out.unit_bytes, out.unit) = (Some(group.unit()), Some(group.part.to_owned()));
        return out;
    }
    let map = address_map(findings);
    // Modules that share the addresses of one of them reach further than these.
    let whole = |group: &&crate::layout::ModuleGroup| {
        group.parts == 1 && !group.ranges.is_empty() && covered(&group.ranges) == group.size_bytes
    };
    let known = parts.groups.iter().all(|group| whole(&group));
    let ranges: Vec<Vec<AddressRange>> =
        parts.groups.iter().map(|group| group.ranges.clone()).collect();
    let exact: &[Vec<AddressRange>] = if known { &ranges } else { &[] };
    let slice = if parts.groups.iter().any(|group| group.modules == 0) {
        SliceAdvice::none("no table says what DRAM this is; its data sheet has the size of a rank")
    } else {
        advise(group.unit(), exact, &map, pageblock(findings), !known)
    };
    let mut out = empty(
        VerdictKind::Possible,
        headline(Bytes::ZERO, high_bytes, parts, GIVEN_A_DRIVER),
        slice,
    );
    out.power_down = Some(ByteInterval { low_bytes: Bytes::ZERO, high_bytes });
    (out.unit_bytes, out.unit) = (Some(group.unit()), Some(group.part.to_owned()));
    out.because.push(low_end(findings));
    if nodes_open {
        (out.unit_bytes, out.unit) = (None, None);
        out.slice =
            SliceAdvice::none("the table of memory power nodes is there, but cannot be used");
        out.because.push(
            "The table of memory power nodes (ACPI MPST) is there, but cannot be used. It may \
             name parts of any size, so that the high end is all of memory."
                .to_owned(),
        );
        return out;
    }
    out.because.extend(left_out(parts));
    out.because.push(format!(
        "The high end takes everything that is open for the best: then {} ({}) can be powered \
         down at a time, and only the one with the kernel stays on.",
        group.unit(),
        group.part
    ));
    if parts.modules_said_interleaved > 0 {
        out.because.push(format!(
            "Firmware says that {} modules are interleaved, but gives each addresses of its own: \
             likely they are, and then no slice is a module of its own; the high end is for the \
             case that they are not.",
            parts.modules_said_interleaved
        ));
    } else if !parts.interleaving_known {
        out.because.push(
            "How addresses are interleaved is not known. If they change over all modules every \
             few KiB, as is usual, no slice is a module of its own."
                .to_owned(),
        );
    }
    out
}

/// Why nothing is promised.
fn low_end(findings: &MachineFindings) -> String {
    match findings.segment_drivers.first() {
        None => {
            let is_silent = |gap: &InputGap| gap.input == "MPST" && gap.kind == GapKind::Absent;
            format!(
                "The low end is 0, because no table names a way to power memory down (ACPI MPST): \
                 it is for the memory controller, and Linux itself has no driver that does it. \
                 Vendors' kernels for some phones and tablets have one; none was found here.{}",
                if findings.ddr_regions.as_ref().is_some_and(|found| found.segments > 0) {
                    " The device tree has the hardware's segments (ddr-regions), which \
                     `ramslice=firmware` makes slices."
                } else if findings.gaps.iter().any(is_silent) {
                    " So the hardware's segments, which power down as one, cannot be known from \
                     firmware."
                } else {
                    ""
                }
            )
        }
        Some(driver) => {
            // What hotplug does not power down says nothing about slices.
            let unit = match (driver.unequal_bytes, driver.granule_bytes, driver.by_hotplug) {
                (Some((least, most)), _, true) => format!(
                    " Its segments differ, from {least} to {most}; slices should have {most}, or \
                     a multiple of it."
                ),
                (None, Some(size), true) => {
                    format!(" Its segments have multiples of {size}, and slices should, too.")
                }
                (Some((least, most)), _, false) => {
                    format!(" Its segments have from {least} to {most}.")
                }
                (None, Some(size), false) => format!(" Its segments have {size} each."),
                (None, None, _) => String::new(),
            };
            let here = match (driver.is_active, driver.by_hotplug) {
                (true, true) => {
                    "The running kernel has it: `ramslice --backend stock offline` is all it \
                     needs. The low end is 0, because nothing here shows which blocks make a \
                     segment."
                }
                (true, false) => {
                    "The running kernel has it, and it acts by itself. The low end is 0, because \
                     it leaves powered what `ramslice` takes offline."
                }
                (false, _) => "The low end is 0, because the running kernel does not have it.",
            };
            format!("The vendor's driver {} {}.{unit} {here}", driver.name, driver.does)
        }
    }
}

/// DRAM that is there but not in the figures, and why.
fn left_out(parts: &MemoryLayout) -> Option<String> {
    let excluded = [
        (parts.cache_bytes, "is a cache before other memory and has no addresses (HMAT)"),
        (parts.set_aside_bytes, "is set aside for direct access (DAX)"),
    ];
    let excluded: Vec<String> = excluded
        .into_iter()
        .filter(|(size, _)| *size > Bytes::ZERO)
        .map(|(size, why)| format!("{size} {why}"))
        .collect();
    (!excluded.is_empty())
        .then(|| format!("Of the DRAM, {}: that cannot be packed.", excluded.join(", and ")))
}

/// Where memory is, by the best table there is.
fn address_map(findings: &MachineFindings) -> Vec<AddressRange> {
    let of_smbios = || {
        let ranges = mapped_ranges(findings);
        module_bytes(findings).map_or_else(|| ranges.clone(), |memory| rounded(&ranges, memory))
    };
    let of_srat = || {
        let memory = findings.srat.iter().flat_map(|srat| &srat.memory);
        memory.filter(|memory| !memory.hot_pluggable).map(|memory| memory.range)
    };
    let of_blocks = || findings.hotplug.iter().flat_map(|hotplug| hotplug.ranges.clone());
    // Blocks show the hole below 4 GiB, which type 19 often leaves out.
    [of_blocks().collect(), of_srat().collect(), of_smbios()]
        .into_iter()
        .find(|ranges| !ranges.is_empty())
        .unwrap_or_default()
}

const GIVEN_A_DRIVER: &str = "given a power driver";

/// `Between A and B of C (x to y%) could be powered down when empty, given a power driver.`
fn headline(low: Bytes, high: Bytes, parts: &MemoryLayout, how: &str) -> String {
    let (low_total, high_total) = (parts.low_total_bytes, parts.high_total_bytes);
    let of = match (low_total, high_total) {
        (Some(least), Some(most)) if least == most => format!(" of {most}"),
        (Some(least), Some(most)) => format!(" of {least} to {most}"),
        _ => String::new(),
    };
    let percent = |part: Bytes, whole: Option<Bytes>| {
        whole.map(|whole| part.share_of(whole).min(1.0) * 100.0)
    };
    let share = match (percent(low, high_total), percent(high, low_total)) {
        (Some(from), Some(to)) if (from - to).abs() < 0.5 => format!(" ({to:.0}%)"),
        (Some(from), Some(to)) => format!(" ({from:.0} to {to:.0}%)"),
        _ => String::new(),
    };
    if low == high {
        return format!("{high}{of}{share} could be powered down when empty, {how}.");
    }
    format!("Between {low} and {high}{of}{share} could be powered down when empty, {how}.")
}

/// What programs and the kernel use now cannot be empty.
fn in_use(findings: &MachineFindings, verdict: &mut PowerDownVerdict) {
    let (Some(available), Some(part)) = (findings.mem_available_bytes, verdict.power_down) else {
        return;
    };
    if part.high_bytes > available {
        verdict.because.push(format!(
            "At this moment {available} could be empty; the rest is in use, whatever the hardware \
             can do."
        ));
    }
}

/// Why the kernel may have less than half of the modules, which is no contradiction.
fn little_managed(findings: &MachineFindings) -> Option<String> {
    let (modules, managed) = (module_bytes(findings)?, findings.mem_total_bytes?);
    // What has no addresses or is set aside has a sentence of its own.
    let apart = cache_bytes(findings) + set_aside_bytes(findings);
    let expected = modules.saturating_sub(apart);
    if managed.0 >= expected.0 / 2 {
        return None;
    }
    let blocks: Bytes = findings.hotplug.iter().map(|hotplug| covered(&hotplug.ranges)).sum();
    let why = if blocks.0 >= expected.0 / 2 {
        format!(
            "it has memory blocks for {blocks}, of which the rest is offline, reserved since boot, \
             or not initialised yet"
        )
    } else {
        "`mem=` on its command line, mirrored memory, a hypervisor that keeps the rest, or a \
         kernel that saves the memory of a crashed one explain that"
            .to_owned()
    };
    Some(format!(
        "The kernel manages {managed}, less than half of what the modules have ({expected}): \
         {why}. Only memory that the kernel manages can be emptied."
    ))
}

/// What the running kernel has, and whether it agrees.
fn drivers(findings: &mut MachineFindings, parts: &MemoryLayout, verdict: &mut PowerDownVerdict) {
    let ramslice = findings.ramslice.clone();
    let driver = ramslice.as_ref().and_then(|ramslice| ramslice.real_driver()).map(str::to_owned);
    if ramslice.is_none() && verdict.slice.parameter.is_some() {
        verdict.slice.because.push_str("; it takes the patched kernel");
    }
    verdict.today = match (&ramslice, &driver) {
        (Some(_), Some(driver)) => format!("The running kernel has the power driver `{driver}`."),
        (None, _) => "Nothing is powered down today: as far as can be seen, the running kernel \
                      has no ramslice."
            .to_owned(),
        (Some(ramslice), _) if ramslice.enabled == Some(false) => {
            "Nothing is powered down today: ramslice is switched off in the running kernel."
                .to_owned()
        }
        (Some(ramslice), None) => match ramslice.power_driver.as_deref() {
            None | Some("none") => "Nothing is powered down today: the running kernel has \
                                    ramslice, but no power driver."
                .to_owned(),
            Some(name) => format!(
                "Nothing is powered down today: the running kernel's power driver `{name}` stands \
                 in for hardware."
            ),
        },
    };
    let Some(driver) = driver else { return };
    if verdict.kind == VerdictKind::Zero && findings.virtual_machine.is != VirtualVerdict::Yes {
        let slice = ramslice.and_then(|ramslice| ramslice.slice_bytes).unwrap_or(DEFAULT_SLICE);
        let high_bytes = parts.high_total_bytes.unwrap_or_default().saturating_sub(slice);
        let detail = format!(
            "tables say that nothing can be powered down, the power driver `{driver}` says \
             otherwise"
        );
        let shows = "what the hardware can do";
        let gap = InputGap::new(
            GapKind::Contradictory,
            "power driver",
            "sys/kernel/mm/ramslice/power_driver",
            shows,
        );
        findings.gaps.push(gap.because(detail));
        let before = std::mem::replace(
            &mut verdict.headline,
            headline(Bytes::ZERO, high_bytes, parts, GIVEN_A_DRIVER),
        );
        verdict.because.insert(0, format!("By the tables alone: {before}"));
        verdict.kind = VerdictKind::Possible;
        verdict.power_down = Some(ByteInterval { low_bytes: Bytes::ZERO, high_bytes });
        verdict.slice =
            SliceAdvice::size(slice, "what the running kernel has; the power driver accepted it");
    }
}
