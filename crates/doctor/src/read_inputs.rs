//! Reads every input below a root. Draws no conclusions, and records every missing input.

use ramslice_types::Bytes;

use crate::acpi;
use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::root::SystemRoot;
use crate::smbios;
use crate::table_fields::TableFlaw;
use crate::{ddr_regions, platform, segments, sysfs};

pub(crate) const DMI_TABLE: &str = "sys/firmware/dmi/tables/DMI";
pub(crate) const CPUINFO: &str = "proc/cpuinfo";
pub(crate) const MEMINFO: &str = "proc/meminfo";
pub(crate) const MPST: &str = "sys/firmware/acpi/tables/MPST";
pub(crate) const SRAT: &str = "sys/firmware/acpi/tables/SRAT";
pub(crate) const HMAT: &str = "sys/firmware/acpi/tables/HMAT";
const HUGE_PAGE: &str = "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// Damage beyond this many places is only counted.
const FLAWS_SHOWN: usize = 3;

/// Reads everything.
pub(crate) fn gather(root: &SystemRoot) -> MachineFindings {
    let mut out = MachineFindings::default();
    meminfo(root, &mut out);
    let (text, shows) = (HUGE_PAGE, "the unit of slice sizes (2 MiB is taken)");
    match root.text(text).map(|text| text.parse().ok().filter(|&bytes| bytes > 0)) {
        Ok(Some(bytes)) => out.pageblock_bytes = Some(Bytes(bytes)),
        Ok(None) => out.gaps.push(InputGap::new(GapKind::Damaged, "huge pages", text, shows)),
        Err(problem) => out.gaps.push(InputGap::new(problem.into(), "huge pages", text, shows)),
    }
    out.smbios = table(root, &mut out.gaps, "SMBIOS", DMI_TABLE, SHOWS_SMBIOS, |bytes| {
        let (smbios, flaws) = smbios::parse(bytes);
        (Some(smbios), flaws)
    });
    out.mpst = table(root, &mut out.gaps, "MPST", MPST, SHOWS_MPST, acpi::parse_mpst);
    out.srat = table(root, &mut out.gaps, "SRAT", SRAT, SHOWS_SRAT, acpi::parse_srat);
    out.hmat = table(root, &mut out.gaps, "HMAT", HMAT, SHOWS_HMAT, acpi::parse_hmat);
    sysfs::edac(root, &mut out);
    sysfs::cxl(root, &mut out);
    sysfs::dax(root, &mut out);
    sysfs::side_caches(root, &mut out);
    sysfs::hotplug(root, &mut out);
    sysfs::ramslice(root, &mut out);
    platform::device_tree(root, &mut out);
    segments::segment_drivers(root, &mut out);
    ddr_regions::ddr_regions(root, &mut out);
    platform::virtual_machine(root, &mut out);
    platform::give_back(root, &mut out);
    out
}

pub(crate) const SHOWS_SMBIOS: &str = "which modules there are, of what kind, with how many \
                                       ranks, and how addresses are interleaved over them";
pub(crate) const SHOWS_MPST: &str =
    "which address ranges the firmware can power down as one, and what that saves";
const SHOWS_SRAT: &str = "which addresses belong to which socket or memory device";
const SHOWS_HMAT: &str = "whether DRAM is a cache in front of other memory";
const SHOWS_MEMINFO: &str = "how much memory there is and how much of it is in use";

/// Reads a firmware table, and reports what is wrong with it.
fn table<T>(
    root: &SystemRoot,
    gaps: &mut Vec<InputGap>,
    input: &'static str,
    path: &str,
    would_tell: &'static str,
    parse: impl Fn(&[u8]) -> (Option<T>, Vec<TableFlaw>),
) -> Option<T> {
    let gap = |kind| InputGap::new(kind, input, path, would_tell);
    match root.bytes(path) {
        Err(problem) => {
            gaps.push(gap(problem.into()));
            None
        }
        Ok(bytes) => {
            let (parsed, flaws) = parse(&bytes);
            let (notes, flaws): (Vec<TableFlaw>, Vec<TableFlaw>) =
                flaws.into_iter().partition(|flaw| flaw.harmless);
            for (kind, flaws) in [(GapKind::Damaged, flaws), (GapKind::Silent, notes)] {
                let more = flaws.len().saturating_sub(FLAWS_SHOWN);
                let mut problems: Vec<String> =
                    flaws.iter().take(FLAWS_SHOWN).map(TableFlaw::to_string).collect();
                if more > 0 {
                    problems.push(format!("{more} more"));
                }
                if !problems.is_empty() {
                    gaps.push(gap(kind).because(problems.join("; ")));
                }
            }
            parsed
        }
    }
}

fn meminfo(root: &SystemRoot, out: &mut MachineFindings) {
    let gap = |kind| InputGap::new(kind, "meminfo", MEMINFO, SHOWS_MEMINFO);
    let text = match root.text(MEMINFO) {
        Ok(text) => text,
        Err(problem) => return out.gaps.push(gap(problem.into())),
    };
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024).map(Bytes)
    };
    out.mem_total_bytes = field("MemTotal");
    out.mem_available_bytes = field("MemAvailable");
    if out.mem_total_bytes.is_none() {
        out.gaps.push(gap(GapKind::Damaged).because("it has no line `MemTotal: N kB`"));
    }
}
