//! Rows of the table of `/proc/vmstat` that are from other files: how long tasks waited, what took
//! the processors' time, and how far away pages were that had to be read again.

use std::fs;
use std::path::Path;

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use crate::proc_statistics::StatisticLine;

const REFAULTS: &str = "sys/kernel/mm/ramslice/refault_distances";
/// Of `/proc/pressure`: what waited for memory, and what waited for disks.
const RESOURCES: [&str; 2] = ["memory", "io"];
/// What `/proc/stat` counts in: hundredths of a second, on all architectures with ramslice.
const TICK_US: i64 = 10_000;

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
    let text = fs::read_to_string(root.join("proc/stat")).unwrap_or_default();
    if let Some(times) = text.lines().next().and_then(processor_times) {
        found.extend(times);
        found.push(microseconds("recorder_cpu_us", own_cpu_us()));
    }
    let text = fs::read_to_string(root.join("proc/self/statm")).unwrap_or_default();
    found.extend(private_memory(&text));
    found
}

/// `size resident shared …`, in pages: what is not of files goes when this process ends.
fn private_memory(statm: &str) -> Option<StatisticLine> {
    let pages: Vec<i64> = statm.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { return None };
    let value = (resident - shared).saturating_mul(i64::try_from(page_size()).ok()?);
    Some(StatisticLine { name: "recorder_private_bytes".to_owned(), value, unit: "bytes" })
}

fn microseconds(name: &str, value: i64) -> StatisticLine {
    StatisticLine { name: name.to_owned(), value, unit: "us" }
}

/// `cpu user nice system idle iowait irq softirq …`, in ticks of all processors: what programs
/// took, what the kernel did, and when there was nothing to do.
fn processor_times(line: &str) -> Option<[StatisticLine; 3]> {
    let words = line.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<i64> = words.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, waiting, irq, softirq, ..] = ticks[..] else { return None };
    Some([
        microseconds("cpu_user_us", (user + nice) * TICK_US),
        microseconds("cpu_kernel_us", (system + irq + softirq) * TICK_US),
        microseconds("cpu_idle_us", (idle + waiting) * TICK_US),
    ])
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
        put("proc/stat", "cpu  10 1 20 900 5 2 3 0 0 0\ncpu0 10 1 20 900 5 2 3 0 0 0\n");
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
