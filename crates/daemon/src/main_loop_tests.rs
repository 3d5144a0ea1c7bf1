//! The daemon on a simulated stock machine, step by step: which slices it still has to wake when
//! the machine cannot be read and after the daemon was killed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use ramslice_backend::FakeMachine;
use ramslice_sim::{SimBackend, SimConfig};
use ramslice_types::{Backend, BackendErrorKind, Bytes, Request};

use super::*;
use crate::cold_automatic::LONGEST_END;
use crate::engine::STOCK;
use crate::settings::BackendChoice;
use crate::settings_schema::limits;

/// Time that passes with each look at it.
pub(super) struct TickClock(pub(super) Cell<u64>);

impl PolicyClock for TickClock {
    fn now(&self) -> Duration {
        self.0.set(self.0.get() + 30);
        Duration::from_secs(self.0.get())
    }
}

/// A machine, and where a daemon keeps what it learned.
pub(super) struct TestPlace {
    pub(super) dir: tempfile::TempDir,
    pub(super) fake: FakeMachine,
    /// The machine cannot be opened.
    pub(super) shut: Rc<Cell<bool>>,
    opens: Rc<Cell<u32>>,
    /// The same machine as the patched kernel has it, which [`BackendChoice::Auto`] takes if
    /// `is_patched`.
    pub(super) patched: Arc<SimBackend>,
    pub(super) is_patched: Cell<bool>,
}

impl TestPlace {
    pub(super) fn new() -> Self {
        let (shut, opens) = (Rc::default(), Rc::default());
        let config = SimConfig::new(Bytes(2 << 30), Bytes(64 << 20));
        Self {
            dir: tempfile::tempdir().unwrap(),
            fake: FakeMachine::new(),
            shut,
            opens,
            patched: Arc::new(SimBackend::new(config).unwrap()),
            is_patched: Cell::new(false),
        }
    }

    /// Runs a daemon in this boot; as if it was killed afterwards.
    pub(super) fn run(
        &self,
        boot: &str,
        mode: &str,
        stop: &str,
        what: impl FnOnce(&mut MainLoop<'_>),
    ) {
        self.run_by("auto", boot, mode, stop, what);
    }

    /// The same with this backend.
    pub(super) fn run_by(
        &self,
        backend: &str,
        boot: &str,
        mode: &str,
        stop: &str,
        what: impl FnOnce(&mut MainLoop<'_>),
    ) {
        let text = format!(
            "schema_version = 1\nbackend = \"{backend}\"\nmode = \"{mode}\"\n\
             policy = \"periodic\"\n[periodic]\n\
             period_seconds = 30\n\
             [energy]\ngranularity = \"slice\"\ntime_factor = \"1\"\n[stop]\nslices = \"{stop}\"\n\
             [metrics]\nlisten = \"off\"\n"
        );
        self.with(boot, &text, |options, opener| {
            let settings = DaemonSettings::read(&options.config).unwrap();
            let clock = |last: Duration| {
                Box::new(TickClock(Cell::new(last.as_secs()))) as Box<dyn PolicyClock>
            };
            what(&mut MainLoop::new(
                options,
                settings,
                opener,
                clock,
                SignalFlags::install().unwrap(),
            ));
        });
    }

    /// What a daemon begins with in this boot.
    pub(super) fn with(
        &self,
        boot: &str,
        config: &str,
        what: impl FnOnce(&DaemonOptions, &BackendOpener<'_>),
    ) {
        let dir = self.dir.path().to_owned();
        let options = DaemonOptions {
            config: dir.join("c.toml"),
            state_dir: dir.clone(),
            runtime_dir: dir,
            pressure: None,
            host: HostFiles {
                boot: boot.to_owned(),
                vmstat: None,
                sysfs: None,
                pressure: None,
                processors: None,
                own_time: None,
                suspended: None,
            },
        };
        fs::write(&options.config, config).unwrap();
        let opener = |settings: &DaemonSettings, _: &KeepGoing| {
            if self.shut.get() {
                return Err(BackendError::new(BackendErrorKind::Failed, "it cannot be opened"));
            }
            self.opens.set(self.opens.get() + 1);
            let auto = settings.backend == BackendChoice::Auto;
            if settings.backend == BackendChoice::Kernel || auto && self.is_patched.get() {
                return Ok(OpenedBackend {
                    backend: Arc::clone(&self.patched) as Arc<dyn Backend>,
                    kind: "kernel",
                    guardable: None,
                });
            }
            let backend = Arc::new(self.fake.backend());
            Ok(OpenedBackend {
                backend: Arc::clone(&backend) as Arc<dyn Backend>,
                kind: STOCK,
                guardable: Some(backend),
            })
        };
        what(&options, &opener);
    }

    /// Runs one in mode on until slices are off, and kills it.
    pub(super) fn kill(&self, stop: &str) -> Vec<u64> {
        self.run("boot", "on", stop, |daemon| {
            daemon.step();
            daemon.step();
        });
        let off = self.fake.off();
        assert!(!off.is_empty());
        off
    }

    /// Slices that are offline by the patched kernel.
    pub(super) fn off_by_kernel(&self) -> u32 {
        self.patched.zones().unwrap().iter().map(|zone| zone.nr_offline).sum()
    }
}

/// Looks once.
pub(super) fn look(daemon: &mut MainLoop<'_>) {
    daemon.step();
}

/// Looks until one fails: one that is not old yet may stand for the present.
fn fails(daemon: &mut MainLoop<'_>) {
    while daemon.last_error.is_none() {
        daemon.step();
    }
}

#[test]
fn a_look_that_fails_leaves_guard_and_machine_until_another_is_open() {
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        assert!(daemon.guard.is_some() && !place.fake.off().is_empty());
        place.fake.hide_zones(true);
        place.shut.set(true);
        fails(daemon);
        daemon.step();
        assert!(daemon.last_error.is_some() && daemon.guard.is_some() && daemon.backend.is_some());
        // It wakes what is off by way of what was open, though nothing can be opened.
        place.fake.hide_zones(false);
        daemon.stop();
        assert_eq!((place.fake.off(), place.opens.get()), (vec![], 1));
    });
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        place.fake.hide_zones(true);
        fails(daemon);
        place.fake.hide_zones(false);
        daemon.step();
        assert!(daemon.last_error.is_none() && daemon.guard.is_some());
        assert_eq!(place.opens.get(), 2);
    });
}

#[test]
fn the_guard_stays_while_the_machine_can_be_opened_again_but_not_watched() {
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        let off = place.fake.off();
        assert!(daemon.guard.is_some() && !off.is_empty());
        place.fake.hide_zones(true);
        fails(daemon);
        daemon.step();
        assert!(daemon.last_error.is_some() && place.opens.get() > 1);
        assert!(daemon.guard.is_some() && daemon.guard_error.is_some());
        assert!(daemon.metrics.text().contains("ramslice_guarded{} 0\n"));
        // It is not one of the way that is open: that gets its own as soon as it can.
        place.fake.hide_zones(false);
        daemon.step();
        let backend = daemon.backend.as_ref().unwrap().guardable.as_ref().unwrap();
        assert!(
            daemon.guard.as_ref().unwrap().watches_backend(backend) && daemon.guard_error.is_none()
        );
        assert!(daemon.metrics.text().contains("ramslice_guarded{} 1\n"));
    });
}

#[test]
fn a_guard_that_sees_nothing_is_told_of_while_the_machine_cannot_be_seen() {
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        assert!(daemon.metrics.text().contains("ramslice_guarded{} 1\n"));
        place.fake.hide_zones(true);
        place.shut.set(true);
        fails(daemon);
        // Memory is short, and the zones that slices would wake to cannot be read.
        let off = place.fake.off();
        for block in (0..32).filter(|block| !off.contains(block)) {
            place.fake.holds(block, FakeMachine::BLOCK_PAGES, 0);
        }
        let began = Instant::now();
        while daemon.guard.as_ref().is_some_and(GuardThread::is_watching) {
            assert!(began.elapsed() < Duration::from_mins(1), "it takes itself for a guard");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon.step();
        assert!(daemon.guard.is_some() && daemon.last_error.is_some());
        assert!(daemon.metrics.text().contains("ramslice_guarded{} 0\n"));
    });
}

#[test]
fn a_daemon_that_never_saw_the_machine_opens_it_to_wake_what_an_earlier_one_left_off() {
    let place = TestPlace::new();
    place.kill("auto");
    place.run("boot", "on", "auto", |daemon| {
        place.shut.set(true);
        daemon.step();
        assert!(daemon.backend.is_none());
        place.shut.set(false);
        daemon.stop();
    });
    assert!(place.fake.off().is_empty());
}

#[test]
fn what_a_killed_daemon_left_off_is_woken_by_one_in_another_mode() {
    for mode in ["observe", "off"] {
        let place = TestPlace::new();
        place.kill("auto");
        // Killed before it could wake anything, too.
        place.shut.set(true);
        place.run("boot", mode, "auto", look);
        place.shut.set(false);
        place.run("boot", mode, "auto", |daemon| {
            daemon.step();
            assert!(place.fake.off().is_empty() && daemon.guard.is_none(), "{mode}");
        });
        // Nothing is left to wake: what another program switches off now stays offline.
        let off = Request { max_slices: Some(2), ..Request::default() };
        place.fake.backend().request(&off).unwrap();
        place.run("boot", mode, "auto", look);
        assert_eq!(place.fake.off().len(), 2, "{mode}");
    }
}

#[test]
fn what_does_not_wake_is_guarded_and_tried_again() {
    let place = TestPlace::new();
    let off = place.kill("auto");
    place.fake.wakes(off[0], false);
    place.run("boot", "observe", "auto", |daemon| {
        daemon.step();
        assert_eq!(place.fake.off(), off[..1]);
        assert!(daemon.guard.is_some() && daemon.wake_pending);
        let failed = "ramslice_failed_slices_total{reason=\"no-room\"} ";
        assert!(daemon.metrics.text().contains(failed), "{}", daemon.metrics.text());
        place.fake.wakes(off[0], true);
        daemon.step();
        assert!(place.fake.off().is_empty() && daemon.guard.is_none());
    });
}

#[test]
fn what_a_killed_daemon_left_off_wakes_when_the_settings_no_longer_hold() {
    let place = TestPlace::new();
    place.kill("auto");
    place.with("boot", "", |options, opener| {
        wake_left_offline(options, opener, |_| Box::new(TickClock(Cell::new(0)))).unwrap();
    });
    assert!(place.fake.off().is_empty());
    // It is woken once: what another program switches off now stays offline.
    place.fake.backend().request(&Request { max_slices: Some(2), ..Request::default() }).unwrap();
    place.with("boot", "", |options, opener| {
        wake_left_offline(options, opener, |_| Box::new(TickClock(Cell::new(0)))).unwrap();
    });
    assert_eq!(place.fake.off().len(), 2);
}

#[test]
fn settings_that_are_tried_by_hand_wake_nothing_of_a_daemon_that_runs() {
    let place = TestPlace::new();
    let off = place.kill("auto");
    let running = persisted_state::lock_directory(place.dir.path()).unwrap().unwrap();
    let wake = || {
        place.with("boot", "", |options, opener| {
            wake_left_offline(options, opener, |_| Box::new(TickClock(Cell::new(0)))).unwrap();
        });
    };
    wake();
    assert_eq!(place.fake.off(), off);
    drop(running);
    wake();
    assert!(place.fake.off().is_empty());
}

#[test]
fn without_the_permission_to_read_the_machine_only_root_waits() {
    let place = TestPlace::new();
    let text = "schema_version = 1\n[metrics]\nlisten = \"off\"\n";
    for (kind, ends) in [(BackendErrorKind::Permission, true), (BackendErrorKind::Failed, false)] {
        place.with("boot", text, |options, _| {
            let opener = |_: &DaemonSettings, _: &KeepGoing| {
                Err(BackendError::new(kind, "only root may: use sudo"))
            };
            let settings = DaemonSettings::read(&options.config).unwrap();
            let clock = |_: Duration| Box::new(TickClock(Cell::new(0))) as Box<dyn PolicyClock>;
            let signals = SignalFlags::install().unwrap();
            let mut daemon = MainLoop::new(options, settings, &opener, clock, signals);
            daemon.step();
            let why = ends.then_some("only root may: use sudo");
            assert_eq!(daemon.lacks_privileges(false), why);
            // A kernel that is locked down may open up again.
            assert_eq!(daemon.lacks_privileges(true), None);
        });
    }
}

#[test]
fn systemd_takes_a_daemon_for_alive_while_a_request_runs_for_longer_than_its_watchdog() {
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        let count = Arc::new(AtomicU32::new(0));
        let send = {
            let count = Arc::clone(&count);
            move |_: &[sd_notify::NotifyState<'_>]| {
                let _ = count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let every = Some(Duration::from_millis(100));
        daemon.watchdog = Arc::new(SystemdWatchdog::with_sender(every, Box::new(send)));
        daemon.watchdog.started();
        place.fake.switches_in(Duration::from_secs(3));
        daemon.step();
        assert!(!place.fake.off().is_empty());
        let offlining = count.swap(0, Ordering::Relaxed);
        daemon.stop();
        let waking = count.load(Ordering::Relaxed);
        // One each would come from between two tasks.
        assert!(offlining > 5 && waking > 5, "{offlining} {waking}");
    });
}

#[test]
fn the_packaged_unit_waits_for_the_longest_request_and_for_waking_everything() {
    let unit = include_str!("../../../packaging/systemd/ramsliced.service");
    let seconds = |name: &str| {
        let value = unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim_end_matches('s').parse::<u64>().unwrap()
    };
    let [_, longest] = limits("requests.deadline_seconds");
    let at_stop = WAKE_AT_STOP.max(LONGEST_END).as_secs();
    let stop = longest as u64 + at_stop + BEYOND_DEADLINE.as_secs();
    assert!(seconds("TimeoutStopSec=") >= stop, "{stop} s");
}

#[test]
fn a_second_daemon_does_not_even_begin() {
    let place = TestPlace::new();
    let running = persisted_state::lock_directory(place.dir.path()).unwrap();
    place.with("boot", "", |options, opener| {
        let clock = |_| Box::new(TickClock(Cell::new(0))) as Box<dyn PolicyClock>;
        let error = run(options, DaemonSettings::defaults(), opener, clock).unwrap_err();
        assert!(error.to_string().contains("another ramsliced is at work"), "{error}");
    });
    assert!(running.is_some() && place.opens.get() == 0);
}

#[test]
fn what_was_learned_at_a_future_time_is_learned_again_and_what_was_counted_stays() {
    let place = TestPlace::new();
    place.run("boot", "on", "leave", |daemon| {
        for _ in 0..20 {
            daemon.step();
        }
        daemon.stop();
    });
    let FoundState::Good(before) = persisted_state::read(place.dir.path()) else {
        panic!("nothing is saved")
    };
    let ahead =
        PersistedState { time: before.time + Duration::from_hours(24 * 365), ..*before.clone() };
    persisted_state::write(place.dir.path(), &ahead).unwrap();
    place.with("boot", "schema_version = 1\nmode = \"on\"\n", |options, opener| {
        let clock = |_| Box::new(TickClock(Cell::new(1000))) as Box<dyn PolicyClock>;
        let settings = DaemonSettings::read(&options.config).unwrap();
        let daemon =
            MainLoop::new(options, settings, opener, clock, SignalFlags::install().unwrap());
        let memory = daemon.engine.persisted_state().unwrap();
        assert!(
            memory.time < before.time + Duration::from_hours(1) && memory.basis.is_empty(),
            "{memory:?}"
        );
        assert_eq!(memory.earned, before.earned);
    });
}

#[test]
fn the_kernel_is_asked_again_until_it_tells_when_tasks_wait_for_memory() {
    let place = TestPlace::new();
    place.with("boot", "schema_version = 1\n[metrics]\nlisten = \"off\"\n", |options, opener| {
        let file = place.dir.path().join("memory");
        let options = &DaemonOptions { pressure: Some(file.clone()), ..options.clone() };
        let settings = DaemonSettings::read(&options.config).unwrap();
        let clock = |_| Box::new(TickClock(Cell::new(0))) as Box<dyn PolicyClock>;
        let mut daemon =
            MainLoop::new(options, settings, opener, clock, SignalFlags::install().unwrap());
        let assert_reported = |daemon: &MainLoop<'_>, value| {
            let text = daemon.metrics.text();
            assert!(text.contains(&format!("ramslice_pressure_watched{{}} {value}\n")), "{text}");
        };
        daemon.step();
        assert_reported(&daemon, 0);
        fs::write(&file, "").unwrap();
        daemon.step();
        assert_reported(&daemon, 1);
    });
}

#[test]
fn a_reload_that_is_refused_is_counted_and_the_old_settings_stay() {
    let place = TestPlace::new();
    place.run("boot", "observe", "auto", |daemon| {
        fs::write(&daemon.options.config, "schema_version = 1\nmode = \"of\"\n").unwrap();
        daemon.reload();
        assert!(daemon.metrics.text().contains("ramslice_reloads_total{result=\"refused\"} 1\n"));
        assert_eq!(daemon.engine.settings().mode, DaemonMode::Observe);
    });
}

#[test]
fn it_stays_off_if_the_settings_say_so_or_the_daemon_had_ended_in_order() {
    let place = TestPlace::new();
    let off = place.kill("leave");
    place.run("boot", "observe", "leave", look);
    assert_eq!(place.fake.off(), off);

    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        daemon.stop();
    });
    assert!(place.fake.off().is_empty());
    place.fake.backend().request(&Request { max_slices: Some(2), ..Request::default() }).unwrap();
    place.run("boot", "observe", "auto", look);
    assert_eq!(place.fake.off().len(), 2);

    // Of another boot, nothing is left.
    let place = TestPlace::new();
    let off = place.kill("auto");
    place.run("another", "observe", "auto", look);
    assert_eq!(place.fake.off(), off);
}

#[test]
fn what_was_learned_and_can_neither_be_read_nor_set_aside_is_not_written_over() {
    let place = TestPlace::new();
    let file = place.dir.path().join(persisted_state::FILE);
    fs::create_dir(&file).unwrap();
    for n in 1..1000 {
        fs::write(place.dir.path().join(format!("{}.unreadable-{n}", persisted_state::FILE)), "")
            .unwrap();
    }
    place.run("boot", "observe", "auto", |daemon| {
        daemon.step();
        assert!(file.is_dir());
        assert!(
            daemon.metrics.text().contains("ramslice_state_saves_total{result=\"failed\"} 1\n")
        );
        // Once the file is gone, the state is saved again.
        fs::remove_dir(&file).unwrap();
        daemon.stop();
    });
    assert!(matches!(persisted_state::read(place.dir.path()), FoundState::Good(_)));
}
