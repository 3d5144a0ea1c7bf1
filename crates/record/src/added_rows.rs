//! Rows of the table of `/proc/vmstat` that are from other files: how long tasks waited, what took
//! the processors' time, and how far away pages were that had to be read again.

use std::fs;
use std::path::Path;

use procfs_core::process::StatM;
use procfs_core::{CpuTime, ExplicitSystemInfo, FromRead, FromReadSI, KernelStats};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::{ClockId, clock_gettime};

use crate::proc_statistics::StatisticLine;

const REFAULTS: &str = "sys/kernel/mm/ramslice/refault_distances";
/// Of `/proc/pressure`: what waited for memory, and what waited for disks.
const RESOURCES: [&str; 2] = ["memory", "io"];

/// The rows of what is there: kernels without ramslice have no distances, and pressure may be left
/// out or off.
pub(crate) fn lines(root: &Path) -> Vec<StatisticLine> {
    let mut found = Vec::new();
    for kind in ["file", "anon"] {
        let text = fs::read_to_string(root.join(REFAULTS).join(kind)).unwrap_or_default();
        let counts = text.split_whitespace().map_while(|word| word.parse::<i64>().ok());
        // The first one says that they are counted.
        found.extend(counts.enumerate().filter(|(order, count)| *order == 0 || *count > 0).map(
            |(order, value)| StatisticLine {
                name: format!("ramslice_refault_{kind}_order_{order}"),
                value,
                unit: "count",
            },
        ));
    }
    for resource in RESOURCES {
        let text = fs::read_to_string(root.join("proc/pressure").join(resource));
        for line in text.unwrap_or_default().lines() {
            found.extend(pressure(resource, line));
        }
    }
    if let Ok(stat) = KernelStats::from_file(root.join("proc/stat"), &system()) {
        found.extend(processor_times(&stat.total));
        found.push(microseconds("recorder_cpu_us", own_cpu_us()));
    }
    if let Ok(memory) = StatM::from_file(root.join("proc/self/statm")) {
        found.extend(private_memory(&memory));
    }
    found
}

/// What is not of files goes when this process ends.
fn private_memory(memory: &StatM) -> Option<StatisticLine> {
    let pages = memory.resident.saturating_sub(memory.shared);
    let value = i64::try_from(pages.checked_mul(page_size() as u64)?).ok()?;
    Some(StatisticLine { name: "recorder_private_bytes".to_owned(), value, unit: "bytes" })
}

fn microseconds(name: &str, value: i64) -> StatisticLine {
    StatisticLine { name: name.to_owned(), value, unit: "us" }
}

/// Time of all processors: what programs took, what the kernel did, and when there was nothing to
/// do.
fn processor_times(all: &CpuTime) -> [StatisticLine; 3] {
    let interrupts = all.irq.unwrap_or_default() + all.softirq.unwrap_or_default();
    let tick_us = 1_000_000 / clock_ticks_per_second();
    let times = [
        ("cpu_user_us", all.user + all.nice),
        ("cpu_kernel_us", all.system + interrupts),
        ("cpu_idle_us", all.idle + all.iowait.unwrap_or_default()),
    ];
    times.map(|(name, ticks)| microseconds(name, i64::try_from(ticks * tick_us).unwrap_or(0)))
}

/// This system, as parsers want to know it; the time of its boot is not asked for.
fn system() -> ExplicitSystemInfo {
    ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: clock_ticks_per_second(),
        page_size: page_size() as u64,
        is_little_endian: cfg!(target_endian = "little"),
    }
}

/// CPU time of this process so far.
fn own_cpu_us() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`.
fn pressure(resource: &str, line: &str) -> Option<StatisticLine> {
    let (share, rest) = line.split_once(' ')?;
    let value = rest.rsplit_once("total=")?.1.trim().parse().ok()?;
    Some(StatisticLine { name: format!("pressure_{resource}_{share}_us"), value, unit: "us" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_entries_without_refaults_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        assert!(lines(root.path()).is_empty());
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/kernel/mm/ramslice/refault_distances/file", "0 0 7 0 1\n");
        put("sys/kernel/mm/ramslice/refault_distances/anon", "2 0\n");
        put(
            "proc/pressure/io",
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 \
             avg300=0.00 total=5\n",
        );
        put(
            "proc/stat",
            "cpu  10 1 20 900 5 2 3 0 0 0\ncpu0 10 1 20 900 5 2 3 0 0 0\nctxt 1\nbtime 2\n\
             processes 3\n",
        );
        put("proc/self/statm", "900 20 15 3 0 40 0\n");
        let found = lines(root.path());
        let (found, own) = found.split_at(found.len() - 2);
        assert!(own[0].name == "recorder_cpu_us" && own[0].value > 0, "{own:?}");
        assert_eq!(own[1].name, "recorder_private_bytes");
        assert_eq!(own[1].value, 5 * i64::try_from(page_size()).unwrap());
        let seen: Vec<_> = found.iter().map(|line| (line.name.as_str(), line.value)).collect();
        assert_eq!(
            seen,
            [
                ("ramslice_refault_file_order_0", 0),
                ("ramslice_refault_file_order_2", 7),
                ("ramslice_refault_file_order_4", 1),
                ("ramslice_refault_anon_order_0", 2),
                ("pressure_io_some_us", 12),
                ("pressure_io_full_us", 5),
                ("cpu_user_us", 110_000),
                ("cpu_kernel_us", 250_000),
                ("cpu_idle_us", 9_050_000),
            ]
        );
        assert!(found[5].unit == "us" && found[0].unit == "count");
    }
}
