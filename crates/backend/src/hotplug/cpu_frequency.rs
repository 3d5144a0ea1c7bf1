//! The clock that converts CPU time to cycles: one fixed figure, although the CPUs change their
//! frequency all the time.

use procfs_core::CpuInfo;

use super::system_files::{SystemFiles, read_proc};

/// If there is none: one cycle per nanosecond, as in the patched kernel.
const NONE_KHZ: u64 = 1_000_000;

/// The first CPU's base frequency; without that its highest, and without that its present one.
pub(super) fn read(system: &dyn SystemFiles) -> u64 {
    let fixed = ["base_frequency", "cpuinfo_max_freq"].into_iter().find_map(|name| {
        system.text(&format!("sys/devices/system/cpu/cpu0/cpufreq/{name}")).ok()?.parse().ok()
    });
    fixed.or_else(|| now(system)).filter(|&khz| khz > 0).unwrap_or(NONE_KHZ)
}

fn now(system: &dyn SystemFiles) -> Option<u64> {
    let info = read_proc::<CpuInfo>(system, "proc/cpuinfo").ok()?;
    Some((info.get_field(0, "cpu MHz")?.parse::<f64>().ok()? * 1e3) as u64)
}
