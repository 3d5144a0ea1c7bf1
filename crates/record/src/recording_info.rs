//! The description of a recording: in each part's metadata, and in `recording.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ramslice_types::{BackendInfo, Price, PriceParameter};
use serde::{Deserialize, Serialize};

use crate::SCHEMA_VERSION;
use crate::clock::ClockReading;

/// What was recorded, where and how.
///
/// In the metadata of a part each field is a key `ramslice.FIELD` whose value is JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingInfo {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The version of the tool that wrote it.
    pub tool_version: String,
    /// What was looked at: `running kernel`, or the name of a saved file.
    pub source: String,
    /// As in `6.12.117`.
    pub kernel_release: String,
    /// The kernel's build.
    pub kernel_version: String,
    /// As in `x86_64`.
    pub architecture: String,
    /// What the kernel was booted with.
    pub kernel_command_line: String,
    /// The command whose run was recorded; empty without one.
    pub command: Vec<String>,
    /// Identifies the boot: boot-time clocks of two boots cannot be compared.
    pub boot_id: String,
    /// What the kernel takes its time from, as in `tsc` or `kvm-clock`.
    pub clock_source: String,
    /// Real or virtual.
    pub platform: PlatformInfo,
    /// CPUs that were on.
    pub nr_cpus: u32,
    /// How often a sample was due.
    pub interval_us: u64,
    /// How often a census was due; null without, and in recordings made before there was any.
    #[serde(default)]
    pub census_interval_us: Option<u64>,
    /// Where events come from: trace, poll or none.
    pub events_source: String,
    /// When it began, on the clock that goes on during suspend.
    pub started_boottime_us: i64,
    /// The same moment by the calendar, in microseconds since 1970, UTC.
    pub started_realtime_us: i64,
    /// Sizes of pages, pageblocks, slices and chunks, and the totals when it began; null without
    /// slices.
    pub geometry: Option<BackendInfo>,
    /// The price model's parameters when it began.
    pub price_parameters_100cycles: BTreeMap<PriceParameter, Price>,
}

/// Whether the machine is real.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformInfo {
    /// A hypervisor is below the kernel.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// CPUs are emulated: its seconds and cycles are not those of real hardware. Null: not known.
    pub emulated: Option<bool>,
    /// The hypervisor's own name, as in `KVMKVMKVM` or `TCGTCGTCGTCG`; empty without one.
    pub hypervisor: String,
    /// Vendor and product by the firmware.
    pub product: String,
}

/// How a recording ended; missing while it is running, and after a kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// When, on the clock that goes on during suspend.
    pub boottime_us: i64,
    /// Why: `command`, `time`, `signal` or `error`.
    pub reason: String,
    /// The command's exit status; 128 and the signal's number if one ended it.
    pub command_status: Option<i32>,
    /// Samples in the directory.
    pub samples: i64,
    /// Samples that were due and came too late to be taken.
    pub missed_samples: i64,
    /// Events in the directory.
    pub events: i64,
    /// Events that the kernel had no room for.
    pub lost_events: i64,
}

impl RecordingInfo {
    /// Of the machine below `root`, which is `/` but for tests, without what a backend knows.
    pub(crate) fn of_system(root: &Path) -> Self {
        let word =
            |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default().trim().to_owned();
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let now = ClockReading::now();
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            source: "running kernel".to_owned(),
            kernel_release: text(uname.release()),
            kernel_version: text(uname.version()),
            architecture: text(uname.machine()),
            kernel_command_line: word("proc/cmdline"),
            command: Vec::new(),
            boot_id: word("proc/sys/kernel/random/boot_id"),
            clock_source: word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            platform: PlatformInfo::of(&word("proc/cpuinfo"), &hypervisor(), &word),
            nr_cpus: cpus(&word("sys/devices/system/cpu/online")),
            interval_us: 0,
            census_interval_us: None,
            events_source: "none".to_owned(),
            started_boottime_us: now.boottime_us,
            started_realtime_us: now.realtime.0,
            geometry: None,
            price_parameters_100cycles: BTreeMap::new(),
        }
    }
}

impl PlatformInfo {
    /// From `/proc/cpuinfo`, the hypervisor's name by CPUID, and the firmware's words.
    fn of(cpuinfo: &str, hypervisor: &str, word: &dyn Fn(&str) -> String) -> Self {
        let flagged = cpuinfo
            .lines()
            .filter(|line| line.starts_with("flags"))
            .any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
        let product =
            ["sys_vendor", "product_name"].map(|name| word(&format!("sys/class/dmi/id/{name}")));
        let is_virtual =
            flagged || !hypervisor.is_empty() || !word("sys/hypervisor/type").is_empty();
        let emulated = match hypervisor {
            "TCGTCGTCGTCG" => Some(true),
            "" if is_virtual => None,
            _ => Some(false),
        };
        let hypervisor = hypervisor.to_owned();
        Self { is_virtual, emulated, hypervisor, product: product.join(" ").trim().to_owned() }
    }
}

/// The hypervisor's signature, from the CPUID leaf that hypervisors answer.
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> String {
    use std::arch::x86_64::__cpuid;
    const HYPERVISOR_BIT: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR_BIT == 0 {
        return String::new();
    }
    let leaf = __cpuid(0x4000_0000);
    let bytes: Vec<u8> =
        [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
    String::from_utf8_lossy(&bytes)
        .trim_matches(|c: char| c == '\0' || c.is_whitespace())
        .to_owned()
}

/// No other architecture has such a name.
#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> String {
    String::new()
}

/// How many CPUs `0-3,6` are.
fn cpus(online: &str) -> u32 {
    online
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(last.trim().parse::<u32>().ok()? - first.trim().parse::<u32>().ok()? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_is_distinguished_from_virtualisation() {
        let nothing = |_: &str| String::new();
        let of = |flags: &str, name: &str| PlatformInfo::of(flags, name, &nothing);
        assert_eq!(of("flags : sse avx", "").emulated, Some(false));
        assert!(!of("flags : sse avx", "").is_virtual);
        assert_eq!(of("flags : hypervisor", "TCGTCGTCGTCG").emulated, Some(true));
        assert_eq!(of("flags : hypervisor", "KVMKVMKVM").emulated, Some(false));
        assert_eq!(of("flags : hypervisor", "").emulated, None);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!((cpus("0-3,6"), cpus("0"), cpus("")), (5, 1, 0));
    }

    #[test]
    fn this_machine_has_a_boot_and_a_clock() {
        let about = RecordingInfo::of_system(Path::new("/"));
        assert!(!about.boot_id.is_empty() && !about.kernel_release.is_empty());
        assert!(
            about.started_boottime_us > 0 && about.started_realtime_us > about.started_boottime_us
        );
    }
}
