//! What the machine reports besides its slices: its boot, and what all processes do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs_core::{FromRead, MemoryPressure};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// Where the machine's own files are, and which boot it is. Tests have them elsewhere.
#[derive(Debug, Clone)]
pub struct HostFiles {
    /// The id of the boot.
    pub boot: String,
    /// `/proc/vmstat`; none if that file describes another machine.
    pub vmstat: Option<PathBuf>,
    /// The directory of ramslice in sysfs; none if it describes another machine.
    pub sysfs: Option<PathBuf>,
    /// `/proc/pressure/memory`; none if that file describes another machine.
    pub pressure: Option<PathBuf>,
    /// `/proc/stat`; none if that file describes another machine.
    pub processors: Option<PathBuf>,
    /// The CPU time of this process with all threads; none if it runs on another machine.
    pub own_time: Option<fn() -> Duration>,
    /// How long this machine has been suspended since its boot; none if it runs on another machine.
    pub suspended: Option<fn() -> Duration>,
}

impl HostFiles {
    /// This machine.
    pub fn here() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            vmstat: Some("/proc/vmstat".into()),
            sysfs: Some("/sys/kernel/mm/ramslice".into()),
            pressure: Some(crate::pressure_trigger::PATH.into()),
            processors: Some("/proc/stat".into()),
            own_time: Some(own_time),
            suspended: Some(suspended),
        }
    }
}

/// How long at least one task has waited for memory since the boot; none on a kernel without
/// pressure information.
pub(crate) fn waited_for_memory(path: &Path) -> Option<Duration> {
    let pressure = MemoryPressure::from_file(path).ok()?;
    Some(Duration::from_micros(pressure.some.total))
}

/// How long the processors have worked since the boot but for what runs at low priority, and of how
/// much time; both as sums over them. None if the file does not say.
pub(crate) fn processors_worked(path: &Path) -> Option<(Duration, Duration)> {
    let mut line = String::new();
    BufReader::new(fs::File::open(path).ok()?).read_line(&mut line).ok()?;
    let ticks = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map(|word| word.parse::<u64>().ok())
        .collect::<Option<Vec<_>>>()?;
    let &[user, nice, system, idle, io_wait, irq, soft_irq, steal] = ticks.as_slice() else {
        return None;
    };
    let busy = user + system + irq + soft_irq + steal;
    let second = clock_ticks_per_second() as f64;
    Some(
        [busy, busy + nice + idle + io_wait]
            .map(|ticks| Duration::from_secs_f64(ticks as f64 / second))
            .into(),
    )
}

fn own_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// The monotonic clock stands still meanwhile. It is read first, so that the time between the two
/// never makes the result negative.
fn suspended() -> Duration {
    let monotonic = clock(ClockId::Monotonic);
    clock(ClockId::Boottime).saturating_sub(monotonic)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_memory_is_that_of_some_task() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=700\n";
        fs::write(file.path(), text).unwrap();
        assert_eq!(waited_for_memory(file.path()), Some(Duration::from_micros(1500)));
        fs::write(file.path(), "some\n").unwrap();
        assert_eq!(waited_for_memory(file.path()), None);
    }

    #[test]
    fn processors_work_but_at_low_priority() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // user, nice, system, idle, waiting, interrupts and stolen; guests are part of user
        fs::write(file.path(), "cpu  100 900 50 2000 300 20 10 20 60 0\ncpu0 1 1\n").unwrap();
        let second = clock_ticks_per_second() as f64;
        let [busy, all] = [200.0, 3400.0].map(|ticks| Duration::from_secs_f64(ticks / second));
        assert_eq!(processors_worked(file.path()), Some((busy, all)));
        for text in ["cpu  1 2 3\n", "cpu  1 2 3 4 5 6 7 many\n", "intr 1\n", ""] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(processors_worked(file.path()), None, "{text}");
        }
    }
}
