//! The daemon as a process, on a simulated machine whose time runs fast: signals, reload, systemd,
//! kill, memory.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ramslice_calibrate::{SamplesFile, everyday};
use ramsliced::persisted_state::{self, PersistedState};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// For what takes no time on an idle machine. A busy one may take long.
const PATIENCE: Duration = Duration::from_mins(2);

fn simulated() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_ramsliced")).parent().unwrap().join("examples/simulated")
}

/// Waits until `found` has something.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory with settings, state and status.
struct DaemonPlace {
    dir: tempfile::TempDir,
    /// What systemd was notified of. It is read all the time, as systemd does: the queue is short,
    /// and a notification would wait.
    notifications: Receiver<String>,
}

struct DaemonProcess {
    child: Child,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl DaemonPlace {
    fn new(mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notify = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let (send, notifications) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = notify.recv(&mut bytes) {
                if send.send(String::from_utf8_lossy(&bytes[..read]).into_owned()).is_err() {
                    break;
                }
            }
        });
        let place = Self { dir, notifications };
        place.configure(mode, "");
        place
    }

    fn configure(&self, mode: &str, tables: &str) {
        let text = format!(
            "schema_version = 1\nmode = \"{mode}\"\nperiod_seconds = 0.05\n\
             [energy]\ngranularity = \"slice\"\ntime_factor = \"1\"\n\
             [state]\nsave_seconds = 0\n[metrics]\nlisten = \"127.0.0.1:0\"\n{tables}"
        );
        fs::write(self.path("c.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, slices: u32) -> DaemonProcess {
        self.start_with(slices, ["--speed", "600"])
    }

    /// Starts a daemon whose time passes as these words say.
    fn start_with(&self, slices: u32, time: [&str; 2]) -> DaemonProcess {
        let mut child = Command::new(simulated())
            .args(time)
            .args(["--slices", &slices.to_string(), "--config"])
            .arg(self.path("c.toml"))
            .arg("--dir")
            .arg(self.dir.path())
            .env("NOTIFY_SOCKET", self.path("notify"))
            .env("WATCHDOG_USEC", "600000")
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("cargo builds the example before the tests");
        let (send, log) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        DaemonProcess { child, log, seen: Vec::new() }
    }

    fn status(&self) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.path("status.json")).ok()?).ok()
    }

    /// The status of this daemon once it is so.
    fn status_when(
        &self,
        daemon: &DaemonProcess,
        what: &str,
        so: impl Fn(&Value) -> bool,
    ) -> Value {
        until(what, || {
            self.status().filter(|status| status["pid"] == daemon.child.id() && so(status))
        })
    }

    /// Waits until systemd was notified of this.
    fn wait_notified(&self, word: &str) {
        until(word, || self.notifications.try_iter().find(|text| text.contains(word)));
    }
}

impl DaemonProcess {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line of the log.
    fn says(&mut self, words: &str) -> String {
        until(words, || {
            let line = self.log.try_recv().ok()?;
            self.seen.push(line.clone());
            line.contains(words).then_some(line)
        })
    }

    fn ends(&mut self) -> ExitStatus {
        until("the end", || self.child.try_wait().unwrap())
    }

    fn scrape(&mut self) -> String {
        let line = self.says("metrics at http://");
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn offline(status: &Value) -> u64 {
    status["zones"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|zone| zone["nr_offline"].as_u64())
        .sum()
}

#[test]
fn systemd_is_told_that_it_is_ready_alive_reloading_and_stopping() {
    let place = DaemonPlace::new("on");
    let mut daemon = place.start(64);
    place.wait_notified("READY=1");
    place.wait_notified("WATCHDOG=1");
    place.configure("observe", "");
    daemon.signal(Signal::HUP);
    place.wait_notified("RELOADING=1\nMONOTONIC_USEC=");
    place.wait_notified("READY=1\nSTATUS=observe");
    daemon.signal(Signal::TERM);
    place.wait_notified("STOPPING=1");
    assert!(daemon.ends().success());
    assert!(place.status().is_none(), "a status of the past was left behind");
}

#[test]
fn settings_that_are_wrong_are_refused_at_reload_and_the_old_ones_stay() {
    let place = DaemonPlace::new("on");
    let mut daemon = place.start(64);
    place.status_when(&daemon, "slices off", |status| offline(status) > 0);
    place.configure("onn", "");
    daemon.signal(Signal::HUP);
    let line = daemon.says("refused");
    assert!(line.contains("c.toml:2:8") && line.contains("`observe`, `on`, `off`"), "{line}");
    let steps = fs::metadata(place.path("status.json")).unwrap().modified().unwrap();
    let status = place.status_when(&daemon, "another step", |_| {
        fs::metadata(place.path("status.json")).unwrap().modified().unwrap() > steps
    });
    assert_eq!(status["mode"], "on");
    // Room for a slice between the watermarks: only the machine knows how large one is.
    let text = fs::read_to_string(place.path("c.toml")).unwrap().replace("onn", "on").replacen(
        '\n',
        "\npolicy = \"watermarks\"\n",
        1,
    );
    fs::write(
        place.path("c.toml"),
        text + "[watermarks]\nfree_low_mib = 100\nfree_high_mib = 101\n",
    )
    .unwrap();
    daemon.signal(Signal::HUP);
    let line = daemon.says("refused");
    assert!(line.contains("c.toml:") && line.contains("plus the size of a slice"), "{line}");
    let seen = place.status().unwrap()["written_unix_seconds"].as_f64();
    let status = place
        .status_when(&daemon, "another step", |now| now["written_unix_seconds"].as_f64() > seen);
    assert_eq!((&status["policy"], &status["machine"]["ok"]), (&"governor".into(), &true.into()));
    place.configure("observe", "");
    daemon.signal(Signal::HUP);
    place.status_when(&daemon, "the new mode", |status| status["mode"] == "observe");
    // And at the start there is nothing to stay with.
    place.configure("onn", "");
    assert_eq!(place.start(64).ends().code(), Some(2));
}

#[test]
fn stopping_wakes_slices_or_leaves_them_as_the_settings_say() {
    for (slices, woken) in [("wake", true), ("leave", false), ("auto", false)] {
        let place = DaemonPlace::new("on");
        place.configure("on", &format!("[stop]\nslices = \"{slices}\""));
        let mut daemon = place.start(64);
        place.status_when(&daemon, "slices off", |status| offline(status) > 0);
        daemon.signal(Signal::TERM);
        daemon.says("stopped");
        assert!(daemon.ends().success());
        let reported = daemon.seen.iter().any(|line| line.contains("slices were woken"));
        assert_eq!(reported, woken, "{slices}: {:?}", daemon.seen);
    }
}

#[test]
fn killed_again_and_again_it_never_finds_its_state_damaged_and_the_joules_only_grow() {
    let place = DaemonPlace::new("on");
    let mut saved = 0.0;
    for round in 0..8 {
        let mut daemon = place.start(64);
        let status = place.status_when(&daemon, "joules", |status| {
            status["earned"]["saved_joules"]["low"].as_f64().is_some_and(|now| now > saved)
        });
        let before = saved;
        saved = status["earned"]["saved_joules"]["low"].as_f64().unwrap();
        // At an odd moment, perhaps while it writes.
        std::thread::sleep(Duration::from_millis(37 * round % 101));
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
        // It is dead: its log ends.
        daemon.seen.extend(daemon.log.iter());
        let first = daemon.seen.iter().any(|line| line.contains("nothing was learned before"));
        assert_eq!(first, round == 0, "{:?}", daemon.seen);
        assert!(
            !daemon.seen.iter().any(|line| line.contains("learning again")),
            "{:?}",
            daemon.seen
        );
        assert!(saved > before);
    }
    let names: Vec<String> = fs::read_dir(place.dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.contains("damaged")), "{names:?}");
}

#[test]
fn a_damaged_state_is_set_aside_and_named_and_learning_starts_over() {
    let place = DaemonPlace::new("on");
    fs::write(
        place.path("state.json"),
        "{\"format\":\"ramsliced-state\",\"version\":1,\"bytes\":9,\"crc32\":\"0\"}\n",
    )
    .unwrap();
    let mut daemon = place.start(64);
    let line = daemon.says("learning again");
    assert!(line.contains("state.json.damaged-1") && line.contains('9'), "{line}");
    place.status_when(&daemon, "a look", |status| status["machine"]["ok"] == true);
    assert!(place.path("state.json.damaged-1").exists());
}

/// States that the daemons of released versions saved; the settings of each lie beside it.
fn kept_states() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb/upgrades");
    let versions = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = versions.flat_map(|version| fs::read_dir(version).unwrap());
    let mut states: Vec<PathBuf> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    states.sort();
    states
}

fn steps(state: &PersistedState) -> u64 {
    state.earned.steps + state.would_earn.steps
}

#[test]
fn the_state_of_every_released_version_is_taken_over_with_its_settings() {
    let states = kept_states();
    assert!(states.len() > 5, "{states:?}");
    for path in states {
        let file = path.display();
        let text = fs::read(&path).unwrap();
        let kept = persisted_state::decode(&text).unwrap_or_else(|why| panic!("{file}: {why}"));
        let place = DaemonPlace::new("on");
        fs::copy(path.with_extension("toml"), place.path("c.toml")).unwrap();
        fs::write(place.path("state.json"), text).unwrap();
        let mut daemon = place.start(16);
        let now = until("a later state", || {
            let now = persisted_state::decode(&fs::read(place.path("state.json")).ok()?).ok()?;
            (steps(&now) > steps(&kept) && now.boot != kept.boot).then_some(now)
        });
        assert!(now.time > kept.time, "{file}");
        for (now, kept) in [(&now.earned, &kept.earned), (&now.would_earn, &kept.would_earn)] {
            assert!(now.off_high_byte_us >= kept.off_high_byte_us, "{file}");
        }
        daemon.signal(Signal::TERM);
        daemon.says("stopped");
        // What was for other settings or another kernel is learned again, and only that.
        let lost = |line: &&String| {
            ["nothing was learned before", "set aside"].iter().any(|words| line.contains(words))
                || line.contains("learning again") && !line.contains("was for other")
        };
        assert_eq!(daemon.seen.iter().find(lost), None, "{file}");
    }
}

#[test]
fn the_state_of_a_newer_version_is_set_aside_and_the_log_says_which_versions_they_are() {
    let place = DaemonPlace::new("on");
    let known = persisted_state::VERSION;
    let text = fs::read_to_string(&kept_states()[0]).unwrap().replacen(
        &format!("\"version\":{known},"),
        &format!("\"version\":{},", known + 1),
        1,
    );
    fs::write(place.path("state.json"), &text).unwrap();
    let mut daemon = place.start(16);
    let line = daemon.says("set aside");
    let why = format!("it has version {}; this daemon knows {known}", known + 1);
    assert!(line.contains(&why) && line.contains("learning again"), "{line}");
    assert_eq!(fs::read_to_string(place.path("state.json.damaged-1")).unwrap(), text);
    place.status_when(&daemon, "a look", |status| status["machine"]["ok"] == true);
}

#[test]
fn a_machine_that_vanishes_is_waited_for() {
    let place = DaemonPlace::new("on");
    fs::write(place.path("fail"), "the device is gone").unwrap();
    let mut daemon = place.start(64);
    daemon.says("the machine cannot be read");
    let status = place.status_when(&daemon, "the error", |status| status["machine"]["ok"] == false);
    assert!(status["why"].as_str().unwrap().contains("the device is gone"), "{status}");
    place.wait_notified("READY=1");
    fs::remove_file(place.path("fail")).unwrap();
    place.status_when(&daemon, "slices off", |status| offline(status) > 0);
    fs::write(place.path("fail"), "gone again").unwrap();
    place.status_when(&daemon, "the error", |status| status["machine"]["ok"] == false);
    fs::remove_file(place.path("fail")).unwrap();
    place.status_when(&daemon, "the machine", |status| status["machine"]["ok"] == true);
}

#[test]
fn it_holds_less_than_8_mib_of_its_own_with_6144_slices() {
    let place = DaemonPlace::new("on");
    let mut daemon = place.start(6144);
    place.status_when(&daemon, "slices off", |status| offline(status) > 1000);
    // Fully grown: after the first looks, with a scrape.
    std::thread::sleep(Duration::from_secs(3));
    let text = daemon.scrape();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name));
        line.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok()).expect(name)
    };
    assert!(value("ramslice_steps_total") > 3.0);
    assert!((value("ramslice_period_seconds") - 0.05).abs() < 1e-9);
    let resident_mib = value("ramslice_process_resident_bytes") / f64::from(1 << 20);
    // The simulated machine is in the same process. Its program, not optimised, is left out.
    let own_mib = anonymous_mib(&daemon);
    assert!(own_mib > 1.0 && own_mib < 8.0, "{own_mib} MiB");
    assert!(resident_mib > own_mib, "{resident_mib} MiB, of which {own_mib} are its own");
}

/// What the process holds that is no page of its program or of a library.
fn anonymous_mib(daemon: &DaemonProcess) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<f64>().unwrap() / 1024.0
}

#[test]
fn prices_that_drift_are_offered_as_a_file_that_goes_when_they_hold_again() {
    let place = DaemonPlace::new("on");
    place.configure("on", "[periodic]\nperiod_seconds = 30.0\n");
    let settings = fs::read_to_string(place.path("c.toml")).unwrap();
    fs::write(
        place.path("c.toml"),
        settings.replace("mode = \"on\"", "mode = \"on\"\npolicy = \"periodic\""),
    )
    .unwrap();
    let file = place.path("prices.json");
    fs::write(&file, "left by an earlier run").unwrap();
    fs::write(place.path("dearer"), "1.6").unwrap();
    // Enough requests for new prices take so many steps, on a slow machine, too.
    let mut daemon = place.start_with(64, ["--advance", "30"]);
    daemon.says("is out of date");
    assert!(!file.exists());
    let line = daemon.says("no longer hold");
    let install = format!("ramslice-lab calibrate --from {} --install", file.display());
    assert!(line.contains(&install), "{line}");
    let status =
        place.status_when(&daemon, "an offer", |status| !status["prices"]["install"].is_null());
    assert_eq!(
        (&status["prices"]["state"], &status["prices"]["install"]),
        (&"refit".into(), &install.into())
    );
    let saved: SamplesFile = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let report = everyday(&saved.samples).unwrap();
    assert_eq!(report.is_better(), Some(true));
    let refitted =
        serde_json::to_value(report.fitted_model().coefficients_100cycles.parameters()).unwrap();
    for name in ["isolate_slice", "drop_page", "migrate_page"] {
        assert!(
            refitted[name].as_u64() > status["prices"]["price_parameters_100cycles"][name].as_u64()
        );
    }

    fs::remove_file(place.path("dearer")).unwrap();
    daemon.says("hold again");
    until("the offer to be withdrawn", || (!file.exists()).then_some(()));
    place.status_when(&daemon, "no offer", |status| {
        status["prices"]["state"] == "steady" && status["prices"]["install"].is_null()
    });
    daemon.signal(Signal::TERM);
    assert!(daemon.ends().success());
}
