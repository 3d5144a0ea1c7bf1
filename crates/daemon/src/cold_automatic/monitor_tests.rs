//! Ticks over files as the kernel has them: what is set up, when it moves, and when it is removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ramslice_types::Bytes;

use super::ColdRequest;
use super::group_limits::tests::settings;
use super::monitor::ColdMonitor;
use super::node_room::tests::machine;
use super::ownership::KdamondOwnership;
use super::report::{ColdStatus, ColdWord};

const ADMIN: &str = "sys/kernel/mm/damon/admin/kdamonds";
const NODES: &str = "sys/devices/system/node";

/// A machine with CPUs on node 0 and none on node 1, and a daemon that looks at it each 10 s.
struct TestHost {
    root: tempfile::TempDir,
    monitor: ColdMonitor,
    request: ColdRequest,
    now: Instant,
}

impl TestHost {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let request = ColdRequest {
            settings: Ok(settings(&["/kept", "/absent"], &[])),
            backend: None,
            break_even: Err("there is no profile".to_owned()),
            slice_break_even: None,
        };
        let monitor = monitor(root.path());
        let host = Self { root, monitor, request, now: Instant::now() };
        for (name, text) in [("online", "0-1"), ("has_memory", "0-1"), ("has_cpu", "0")] {
            host.put(&format!("{NODES}/{name}"), text);
        }
        host.put("sys/devices/system/memory/block_size_bytes", "8000000\n");
        for node in 0..2 {
            let folder = format!("{NODES}/node{node}");
            host.put(&format!("{folder}/distance"), ["10 20", "20 10"][node]);
            host.put(&format!("{folder}/memory{node}/state"), "online\n");
            host.free(node, 512);
        }
        host.put(&format!("{ADMIN}/nr_kdamonds"), "0\n");
        for index in 0..4 {
            let pid = 100 + index;
            host.kdamond(index as usize, pid);
            host.cpu(pid, 0);
        }
        host.group("kept/below");
        host
    }

    /// A control group, with those above it.
    fn group(&self, path: &str) {
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            self.put(&format!("sys/fs/cgroup/{}/memory.current", &path[..at]), "0\n");
        }
    }

    fn kdamond(&self, index: usize, pid: u32) {
        let context = format!("{ADMIN}/{index}/contexts/0");
        self.put(&format!("{ADMIN}/{index}/state"), "off\n");
        self.put(&format!("{ADMIN}/{index}/pid"), &format!("{pid}\n"));
        self.put(&format!("{ADMIN}/{index}/contexts/nr_contexts"), "0\n");
        self.put(&format!("{context}/avail_operations"), "vaddr\nfvaddr\npaddr\n");
        for name in "operations monitoring_attrs/intervals/sample_us \
            monitoring_attrs/intervals/aggr_us monitoring_attrs/intervals/update_us \
            monitoring_attrs/nr_regions/min monitoring_attrs/nr_regions/max targets/nr_targets \
            targets/0/regions/nr_regions targets/0/regions/0/start targets/0/regions/0/end \
            schemes/nr_schemes"
            .split_whitespace()
        {
            self.put(&format!("{context}/{name}"), "0\n");
        }
        for name in "action target_nid access_pattern/sz/min access_pattern/sz/max \
            access_pattern/nr_accesses/min access_pattern/nr_accesses/max access_pattern/age/min \
            access_pattern/age/max quotas/bytes quotas/ms quotas/reset_interval_ms \
            quotas/weights/sz_permil quotas/weights/nr_accesses_permil quotas/weights/age_permil \
            filters/nr_filters stats/sz_tried stats/sz_applied stats/qt_exceeds \
            tried_regions/0/start tried_regions/0/end tried_regions/0/nr_accesses"
            .split_whitespace()
        {
            for scheme in 0..2 {
                self.put(&format!("{context}/schemes/{scheme}/{name}"), "0\n");
            }
        }
        for filter in 0..8 {
            for name in ["type", "matching", "memcg_path"] {
                self.put(&format!("{context}/schemes/0/filters/{filter}/{name}"), "0\n");
            }
        }
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.root.path().join(ADMIN).join(name)).unwrap().trim().to_owned()
    }

    fn action(&self, index: usize) -> String {
        self.text(&format!("{index}/contexts/0/schemes/0/action"))
    }

    /// What is free of 1 GiB.
    fn free(&self, node: usize, mib: u64) {
        let text = format!(
            "Node {node} MemTotal: {} kB\nNode {node} MemFree: {} kB\n",
            1 << 20,
            mib << 10
        );
        self.put(&format!("{NODES}/node{node}/meminfo"), &text);
    }

    /// CPU time in seconds so far.
    fn cpu(&self, pid: u32, seconds: u64) {
        let ticks = seconds * rustix::param::clock_ticks_per_second();
        let text = format!(
            "{pid} (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 {ticks} 0 0 20 0 1 0 5000 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        self.put(&format!("proc/{pid}/stat"), &text);
    }

    fn tick(&mut self) -> ColdStatus {
        self.now += Duration::from_secs(10);
        self.monitor.tick(&self.request, self.now).0
    }

    /// Ticks after which it moves.
    fn running() -> Self {
        let mut host = Self::new();
        host.tick();
        assert_eq!(host.tick().state, ColdWord::Running);
        host
    }
}

fn monitor(root: &Path) -> ColdMonitor {
    let runtime = root.join("run");
    fs::create_dir_all(&runtime).unwrap();
    ColdMonitor::new(root, KdamondOwnership::new(&runtime, "boot"))
}

#[test]
fn it_counts_until_quotas_hold_and_then_moves() {
    let mut host = TestHost::new();
    let status = host.tick();
    assert_eq!((status.state, host.text("nr_kdamonds").as_str()), (ColdWord::Running, "2"));
    assert_eq!([host.action(0), host.action(1)], ["stat", "stat"]);
    host.tick();
    assert_eq!([host.action(0), host.action(1)], ["migrate_cold", "migrate_hot"]);
    for (name, value) in [
        ("0/contexts/0/schemes/0/target_nid", "1"),
        ("0/contexts/0/targets/0/regions/0/end", "134217728"),
        ("0/contexts/0/schemes/0/filters/nr_filters", "3"),
        ("0/contexts/0/schemes/0/filters/1/memcg_path", "/kept/below"),
        ("1/contexts/0/schemes/0/target_nid", "0"),
        ("1/contexts/0/targets/0/regions/0/start", "134217728"),
        ("1/contexts/0/schemes/0/access_pattern/nr_accesses/min", "5"),
        ("1/contexts/0/schemes/0/filters/2/type", "young"),
        ("1/contexts/0/schemes/0/filters/2/matching", "N"),
    ] {
        assert_eq!(host.text(name), value, "{name}");
    }
    assert_eq!(status.idle_basis.unwrap(), "cold.idle alone: there is no profile");
}

#[test]
fn what_moved_is_counted_also_after_it_was_set_up_again() {
    let mut host = TestHost::running();
    let stats = format!("{ADMIN}/0/contexts/0/schemes/0/stats/sz_applied");
    host.put(&stats, "8192\n");
    assert_eq!(host.tick().nodes[0].moved_to_cold_bytes, Bytes(8192));
    let wanted = host.request.settings.clone();
    host.request.settings = Err("off".to_owned());
    assert_eq!(host.tick().state, ColdWord::Off);
    assert_eq!((host.text("nr_kdamonds").as_str(), host.text("0/state").as_str()), ("0", "off"));
    host.request.settings = wanted;
    assert_eq!(host.tick().nodes[0].moved_to_cold_bytes, Bytes(8192));
    assert_eq!(host.tick().nodes[0].moved_to_cold_bytes, Bytes(16384));
}

#[test]
fn a_full_node_takes_nothing_and_gives_back() {
    let mut host = TestHost::running();
    host.free(1, 20);
    let status = host.tick();
    assert_eq!(status.state, ColdWord::PausedFull);
    assert_eq!([host.action(0), host.action(1)], ["stat", "migrate_hot"]);
    host.free(1, 512);
    assert_eq!(host.tick().state, ColdWord::Running);
    assert_eq!(host.action(0), "migrate_cold");
}

#[test]
fn too_much_cpu_time_stops_all_moves_and_at_last_the_kdamonds() {
    let mut host = TestHost::running();
    let mut words = Vec::new();
    for seconds in 1..7 {
        host.cpu(100, seconds);
        words.push((host.tick().state, host.text("nr_kdamonds")));
    }
    assert_eq!(words[0], (ColdWord::PausedCpu, "2".to_owned()));
    assert_eq!(words[5], (ColdWord::PausedCpu, "0".to_owned()));
}

#[test]
fn without_a_measure_of_its_cpu_time_nothing_runs() {
    let mut host = TestHost::new();
    fs::remove_dir_all(host.root.path().join("proc")).unwrap();
    let status = host.tick();
    assert_eq!(status.state, ColdWord::NotAvailable);
    assert!(status.why.contains("ProtectProc=default"), "{}", status.why);
    assert_eq!(host.text("nr_kdamonds"), "0");
}

#[test]
fn kdamonds_that_cannot_be_written_down_do_not_stay() {
    let mut host = TestHost::new();
    let runtime = host.root.path().join("run");
    // As if the file system was full for what is longer than before they are set up.
    let ownership = KdamondOwnership::new(&runtime, "boot").written_by(|path, text| {
        if text.ends_with(b"null}") {
            return fs::write(path, text);
        }
        Err(std::io::ErrorKind::StorageFull.into())
    });
    host.monitor = ColdMonitor::new(host.root.path(), ownership);
    let status = host.tick();
    assert_eq!(status.state, ColdWord::NotAvailable);
    assert!(status.why.contains("cannot be written down"), "{}", status.why);
    assert_eq!((host.text("nr_kdamonds").as_str(), host.text("0/state").as_str()), ("0", "off"));
    assert!(!KdamondOwnership::file(&runtime).exists());
}

#[test]
fn kdamonds_that_cannot_be_removed_at_once_are_removed_later() {
    let mut host = TestHost::new();
    host.put(&format!("{ADMIN}/0/pid"), "?\n");
    assert_eq!(host.tick().state, ColdWord::NotAvailable);
    assert_eq!(host.text("nr_kdamonds"), "2");
    host.put(&format!("{ADMIN}/0/pid"), "100\n");
    host.monitor.remove();
    assert_eq!((host.text("nr_kdamonds").as_str(), host.text("1/state").as_str()), ("0", "off"));
}

#[test]
fn kdamonds_of_others_are_refused_and_tried_again_a_minute_later() {
    let mut host = TestHost::new();
    host.put(&format!("{ADMIN}/nr_kdamonds"), "1\n");
    assert_eq!(host.tick().state, ColdWord::Refused);
    assert_eq!(host.text("nr_kdamonds"), "1");
    host.put(&format!("{ADMIN}/nr_kdamonds"), "0\n");
    let words: Vec<ColdWord> = (0..7).map(|_| host.tick().state).collect();
    assert_eq!((words[0], words[6]), (ColdWord::Refused, ColdWord::Running));
}

#[test]
fn kdamonds_that_others_took_over_are_left_to_them() {
    let mut host = TestHost::running();
    host.put(&format!("{ADMIN}/1/pid"), "999\n");
    assert_eq!(host.tick().state, ColdWord::Refused);
    host.monitor.remove();
    assert_eq!(host.text("nr_kdamonds"), "2");
}

#[test]
fn after_a_crash_the_next_run_removes_its_own_and_no_others() {
    for (pid, left) in [(101, "0"), (999, "2")] {
        let mut host = TestHost::running();
        // As if it was killed
        host.monitor = monitor(host.root.path());
        host.put(&format!("{ADMIN}/1/pid"), &format!("{pid}\n"));
        host.request.settings = Err("off".to_owned());
        assert_eq!(host.tick().state, ColdWord::Off);
        assert_eq!(host.text("nr_kdamonds"), left);
    }
}

#[test]
fn a_machine_without_such_a_node_says_what_to_do() {
    let mut host = TestHost::new();
    host.put(&format!("{NODES}/has_memory"), "0\n");
    let status = host.tick();
    assert_eq!(status.state, ColdWord::NotAvailable);
    assert!(status.why.contains("ramslice cold --size"), "{}", status.why);
}

#[test]
fn a_page_stays_for_as_long_as_pays_by_the_profile() {
    let mut host = TestHost::new();
    host.request.break_even = Ok((Duration::from_mins(22), "ddr5-modes/power-down".to_owned()));
    let status = host.tick();
    assert_eq!(status.idle_seconds, Some(1320.0));
    assert!(status.idle_basis.unwrap().contains("ddr5-modes/power-down"));
    assert_eq!(host.text("0/contexts/0/schemes/0/access_pattern/age/min"), "660");
}

#[test]
fn groups_with_a_rate_of_their_own_have_a_kdamond_of_their_own() {
    let mut host = TestHost::new();
    host.group("slow/below");
    let settings = host.request.settings.as_mut().unwrap();
    settings.except = vec!["/kept/below".to_owned()];
    settings.rate_by_group = BTreeMap::from([
        ("/absent".to_owned(), Bytes(1 << 20)),
        ("/slow".to_owned(), Bytes(2 << 20)),
    ]);
    host.tick();
    host.tick();
    assert_eq!(host.text("nr_kdamonds"), "4");
    let scheme = |host: &TestHost, index: u32, name: &str| {
        host.text(&format!("{index}/contexts/0/schemes/0/{name}"))
    };
    let mib =
        |host: &TestHost, index| scheme(host, index, "quotas/bytes").parse::<u64>().unwrap() >> 20;
    assert_eq!([0, 1, 2, 3].map(|index| mib(&host, index)), [13, 1, 2, 16], "together the rate");
    let left_out = |host: &TestHost, index: u32| -> Vec<String> {
        let number: usize = scheme(host, index, "filters/nr_filters").parse().unwrap();
        let path = |at| scheme(host, index, &format!("filters/{at}/memcg_path"));
        (0..number - 1).map(path).collect()
    };
    assert_eq!(left_out(&host, 0), ["/kept/below", "/slow", "/slow/below"]);
    assert_eq!(left_out(&host, 1), ["/", "/kept", "/kept/below", "/slow", "/slow/below"]);
    assert_eq!(left_out(&host, 2), ["/", "/kept", "/kept/below"]);
    assert_eq!(left_out(&host, 3), ["/kept/below"], "on the way back");
    assert_eq!(
        [0, 1, 2, 3].map(|index| host.action(index)),
        ["migrate_cold", "migrate_cold", "migrate_cold", "migrate_hot"]
    );

    // Sums are those of all kdamonds of a direction
    for index in 0..4 {
        host.put(&format!("{ADMIN}/{index}/contexts/0/schemes/0/stats/sz_applied"), "4096\n");
    }
    let node = host.tick().nodes.remove(0);
    assert_eq!((node.moved_to_cold_bytes, node.moved_back_bytes), (Bytes(3 * 4096), Bytes(4096)));
    // A group that comes or goes is told; nothing is set up again
    host.group("slow/more");
    host.tick();
    assert_eq!(left_out(&host, 0), ["/kept/below", "/slow", "/slow/below", "/slow/more"]);
    assert_eq!([host.action(0), host.action(2)], ["migrate_cold", "migrate_cold"]);
    // With fewer rates it is set up again, and the sums stay
    host.request.settings.as_mut().unwrap().rate_by_group.remove("/absent");
    let status = host.tick();
    assert_eq!(host.text("nr_kdamonds"), "3", "{status:?}");
    assert_eq!([host.action(0), host.action(2)], ["stat", "stat"], "until quotas hold again");
    assert_eq!(host.tick().nodes[0].moved_to_cold_bytes, Bytes(5 * 4096));
}

#[test]
fn groups_have_their_part_of_what_there_is_room_for() {
    let mut host = TestHost::new();
    host.group("slow");
    let settings = host.request.settings.as_mut().unwrap();
    settings.rate_by_group = BTreeMap::from([("/slow".to_owned(), Bytes(32 << 20))]);
    host.tick();
    let bytes = |host: &TestHost, index: u32| {
        host.text(&format!("{index}/contexts/0/schemes/0/quotas/bytes")).parse::<u64>().unwrap()
    };
    assert_eq!([0, 1].map(|index| bytes(&host, index) >> 20), [4, 12], "three quarters at most");
    // Little is free: the rate of all is less
    host.free(1, 80);
    let all = host.tick().nodes[0].to_cold_bytes_per_second.unwrap();
    assert!(all < Bytes(16 << 20), "{all}");
    assert_eq!(bytes(&host, 0) + bytes(&host, 1), all.0);
    assert_eq!(bytes(&host, 1) >> 10, (all.0 * 3 / 4) >> 10);
}

#[test]
fn accesses_to_slices_that_may_rest_are_told() {
    let mut host = TestHost::running();
    assert_eq!(host.tick().unaccessed_ratio, None, "a stock kernel has no slices");
    // Slices of 16 MiB from address 0 on, of which two are on
    let machine = machine(1, ["offline", "online", "offline", "online"]);
    host.request.backend = Some(Arc::new(machine));
    let folder = "1/contexts/0/schemes/1/tried_regions/0";
    for (name, value) in [("start", 16 << 20), ("end", 20 << 20), ("nr_accesses", 5)] {
        host.put(&format!("{ADMIN}/{folder}/{name}"), &format!("{value}\n"));
    }
    let status = host.tick();
    // One was accessed in 5 of 20 samples, the other in none
    assert_eq!(status.unaccessed_ratio, Some(0.875), "{status:?}");
    // It is looked at again half a minute later
    host.put(&format!("{ADMIN}/{folder}/start"), "?\n");
    assert_eq!(host.tick().unaccessed_ratio, Some(0.875));
    host.tick();
    let status = host.tick();
    assert_eq!((status.unaccessed_ratio, host.text("nr_kdamonds").as_str()), (None, "2"));
}
