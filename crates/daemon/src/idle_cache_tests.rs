//! Idle cache of a system that is a directory of files.

use std::fs;

use super::*;

const STEP: Duration = Duration::from_secs(15);
const SETTINGS: IdleCacheSettings =
    IdleCacheSettings { after: Some(Duration::from_mins(1)), compact: true };
const RECLAIM: &str = "sys/fs/cgroup/memory.reclaim";
const BALLOON: &str = "sys/bus/virtio/devices/virtio0";
const COMPACT: &str = "proc/sys/vm/compact_memory";

struct System {
    root: tempfile::TempDir,
    cache: IdleCache,
    time: Duration,
}

impl System {
    fn new() -> Self {
        Self::with(&[])
    }

    /// With these files besides.
    fn with(files: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dirs = ["proc/sys/vm", "proc/pressure", "sys/fs/cgroup", "sys/kernel/mm"];
        for dir in dirs.iter().chain(files) {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for name in [RECLAIM, COMPACT] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let cache = IdleCache::under(root.path());
        fs::create_dir_all(root.path().join(BALLOON)).unwrap();
        let system = Self { root, cache, time: Duration::from_hours(1) };
        system.write(&format!("{BALLOON}/device"), "0x0005\n");
        system.write(&format!("{BALLOON}/features"), "0000010000000000\n");
        // Nothing of what is free lies in whole blocks
        system.write("proc/buddyinfo", "");
        system.stalls(0);
        system.cache(80);
        system
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root.path().join(name), text).unwrap();
    }

    fn written(&self, name: &str) -> String {
        fs::read_to_string(self.root.path().join(name)).unwrap()
    }

    fn stalls(&self, micros: u64) {
        let rest = format!("avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n");
        self.write("proc/pressure/memory", &format!("some {rest}full {rest}"));
    }

    /// So many MiB of cache are on the inactive list, and 100 MiB are free.
    fn cache(&self, mib: u64) {
        let kib = mib << 10;
        self.write(
            "proc/meminfo",
            &format!(
                "MemTotal: 2097152 kB\nMemFree: 102400 kB\nBuffers: 0 kB\nCached: {kib} kB\n\
                 SwapCached: 0 kB\nActive: 1 kB\nInactive: 1 kB\nActive(file): 100000 kB\n\
                 Inactive(file): {kib} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nDirty: 0 kB\n\
                 Writeback: 0 kB\nMapped: 0 kB\nSlab: 0 kB\nCommitted_AS: 0 kB\n\
                 VmallocTotal: 0 kB\nVmallocUsed: 0 kB\nVmallocChunk: 0 kB\n"
            ),
        );
        let pages = (kib << 10) / page_size() as u64;
        self.write(
            "proc/vmstat",
            &format!(
                "nr_inactive_file {pages}\npgpgin 0\nnr_dirtied 0\npgdeactivate 0\n\
                 workingset_refault_file 0\n"
            ),
        );
    }

    fn steps(&mut self, count: u32, mode: DaemonMode) -> IdleCacheStatus {
        self.cache.set(SETTINGS, mode);
        for _ in 0..count {
            self.time += STEP;
            self.cache.step(self.time, mode, &|| true);
        }
        self.cache.status()
    }
}

#[test]
fn what_was_not_read_for_a_minute_is_reclaimed_in_steps_and_memory_compacted() {
    let mut system = System::new();
    assert_eq!(system.steps(4, DaemonMode::On).why, "the cache was watched for 45 of 60 s");
    assert_eq!(system.written(RECLAIM), "");
    let status = system.steps(1, DaemonMode::On);
    assert_eq!(system.written(RECLAIM), format!("{} swappiness=0", 8 << 20));
    assert_eq!(system.written(COMPACT), "1");
    assert_eq!((status.state, status.after_seconds), ("works", Some(60.0)));
    assert_eq!(
        status.why,
        "reclaimed 80 MiB of page cache not read for 60 s; compacted memory: 100 MiB of 100 MiB \
         are left among pages in use"
    );
    // A minute has to pass, and as it brought nothing, another one
    system.write(COMPACT, "");
    system.steps(7, DaemonMode::On);
    assert_eq!(system.written(COMPACT), "");
    system.steps(1, DaemonMode::On);
    assert_eq!(system.written(COMPACT), "1");
    assert_eq!(system.cache.pause(), Some(STEP));
}

#[test]
fn what_went_is_counted_and_no_more_is_asked_for() {
    let mut system = System::new();
    system.steps(4, DaemonMode::On);
    let root = system.root.path().to_owned();
    let asked = std::cell::Cell::new(0_u64);
    // Each time the kernel takes 30 MiB
    system.time += STEP;
    system.cache.step(system.time, DaemonMode::On, &|| {
        asked.set(asked.get() + 1);
        let text = fs::read_to_string(root.join("proc/meminfo")).unwrap();
        let kib =
            |times| format!("Inactive(file): {} kB", 81_920_u64.saturating_sub(times * 30_720));
        let [was, is] = [asked.get() - 1, asked.get()].map(kib);
        fs::write(root.join("proc/meminfo"), text.replace(&was, &is)).unwrap();
        true
    });
    assert_eq!(system.cache.status().reclaimed_bytes, Bytes(80 << 20));
    // Before each of three requests, and before the compaction
    assert_eq!(asked.get(), 4);
}

#[test]
fn an_end_of_the_daemon_ends_it_between_two_steps() {
    let mut system = System::new();
    system.steps(4, DaemonMode::On);
    system.time += STEP;
    system.cache.step(system.time, DaemonMode::On, &|| false);
    assert_eq!((system.written(RECLAIM), system.written(COMPACT)), (String::new(), String::new()));
}

#[test]
fn mode_observe_says_what_would_go() {
    let mut system = System::new();
    let status = system.steps(5, DaemonMode::Observe);
    assert_eq!(
        status.why,
        "would reclaim 80 MiB of page cache not read for 60 s; would compact memory"
    );
    assert_eq!((status.reclaimed_bytes, system.written(RECLAIM)), (Bytes::ZERO, String::new()));
}

#[test]
fn nothing_goes_while_tasks_wait_for_memory() {
    let mut system = System::new();
    system.steps(4, DaemonMode::On);
    system.stalls(20_000);
    assert_eq!(system.steps(1, DaemonMode::On).why, "tasks waited for memory for 20 ms");
    assert_eq!(system.written(RECLAIM), "");
}

#[test]
fn it_has_nothing_to_do_where_the_settings_or_the_kernel_say_so() {
    let mut system = System::new();
    assert_eq!(system.steps(9, DaemonMode::Off).state, "off");
    system.cache.set(IdleCacheSettings::default(), DaemonMode::On);
    assert_eq!((system.cache.status().state, system.cache.pause()), ("off", None));
    let mut patched = System::with(&[RAMSLICE]);
    assert_eq!(patched.steps(9, DaemonMode::On).state, "kernel");
    assert!(!patched.cache.is_wanted(SETTINGS) && system.cache.is_wanted(SETTINGS));
    for system in [system, patched] {
        assert_eq!(system.written(RECLAIM), "");
    }
}

#[test]
fn what_cannot_be_reclaimed_is_said_and_tried_again() {
    let mut system = System::new();
    fs::remove_file(system.root.path().join(RECLAIM)).unwrap();
    let status = system.steps(5, DaemonMode::On);
    assert_eq!(status.state, "fails");
    assert!(status.why.contains("memory.reclaim is missing"), "{}", status.why);
    // What takes no cache goes on
    assert_eq!(system.written(COMPACT), "1");
    system.write(RECLAIM, "");
    assert_eq!(system.steps(1, DaemonMode::On).state, "works");
}

#[test]
fn nothing_goes_where_no_host_would_hear_of_it_until_a_device_comes() {
    let mut system = System::new();
    system.write(&format!("{BALLOON}/features"), "0000000000000000\n");
    let status = system.steps(9, DaemonMode::On);
    assert_eq!(
        (status.state, status.why.as_str()),
        ("off", "no device of this machine reports free memory to a host")
    );
    assert_eq!((system.written(RECLAIM), system.written(COMPACT)), (String::new(), String::new()));
    system.write(&format!("{BALLOON}/features"), "0000010000000000\n");
    assert_eq!(system.steps(1, DaemonMode::On).state, "works");
}
