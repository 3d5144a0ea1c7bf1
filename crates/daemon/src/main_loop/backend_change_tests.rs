//! What is offline by one kind of backend when the settings ask for another one: at a reload, and
//! at the start after the daemon was killed.

use std::cell::Cell;

use ramslice_types::{Backend, Request};

use super::tests::{TestPlace, TickClock, look};
use super::*;

/// Reads the settings again, with the patched kernel's backend.
fn reload_by_kernel(daemon: &mut MainLoop<'_>) {
    let text = fs::read_to_string(&daemon.options.config).unwrap();
    fs::write(&daemon.options.config, text.replace("backend = \"auto\"", "backend = \"kernel\""))
        .unwrap();
    daemon.reload();
}

#[test]
fn what_the_stock_backend_took_offline_is_woken_when_the_kernels_replaces_it() {
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        let off = place.fake.off();
        assert!(!off.is_empty() && daemon.guard.is_some());
        place.fake.wakes(off[0], false);
        reload_by_kernel(daemon);
        daemon.step();
        assert!(
            daemon.backend.as_ref().unwrap().guardable.is_none() && daemon.last_error.is_none()
        );
        // What does not wake is guarded, and tried again at each step.
        assert!(daemon.guard.is_some() && place.fake.off() == off[..1]);
        place.fake.wakes(off[0], true);
        daemon.step();
        assert!(daemon.guard.is_none() && place.fake.off().is_empty());
    });
}

#[test]
fn a_daemon_that_stops_right_after_its_backend_changed_wakes_what_the_first_took_offline() {
    for (stop, stays) in [("auto", false), ("leave", true)] {
        let place = TestPlace::new();
        place.run("boot", "on", stop, |daemon| {
            daemon.step();
            assert!(!place.fake.off().is_empty());
            reload_by_kernel(daemon);
            daemon.stop();
        });
        assert_eq!(!place.fake.off().is_empty(), stays, "{stop}");
    }
}

#[test]
fn what_a_killed_daemon_took_offline_by_memory_hotplug_is_woken_by_one_with_the_kernels_backend() {
    for mode in ["on", "observe", "off"] {
        let place = TestPlace::new();
        let off = place.kill("auto");
        place.fake.wakes(off[0], false);
        // Killed before it could open anything, too.
        place.shut.set(true);
        place.run_by("kernel", "boot", mode, "auto", look);
        place.shut.set(false);
        for _ in 0..2 {
            place.run_by("kernel", "boot", mode, "auto", |daemon| {
                daemon.step();
                assert!(daemon.backend.as_ref().unwrap().guardable.is_none(), "{mode}");
                // What does not wake is guarded, tried again, and known to the next run.
                assert!(daemon.guard.is_some() && place.fake.off() == off[..1], "{mode}");
            });
        }
        place.fake.wakes(off[0], true);
        place.run_by("kernel", "boot", mode, "auto", |daemon| {
            daemon.step();
            assert!(daemon.guard.is_none() && place.fake.off().is_empty(), "{mode}");
        });
        // Nothing is left to wake: what another program switches off now stays offline.
        let off = Request { max_slices: Some(2), ..Request::default() };
        place.fake.backend().request(&off).unwrap();
        place.run_by("kernel", "boot", mode, "auto", look);
        assert_eq!(place.fake.off().len(), 2, "{mode}");
    }
}

#[test]
fn it_is_woken_when_the_daemon_stops_or_its_settings_do_not_hold_and_stays_off_as_they_say() {
    for (stop, stays) in [("auto", false), ("leave", true)] {
        let place = TestPlace::new();
        place.kill("auto");
        place.run_by("kernel", "boot", "on", stop, |daemon| {
            daemon.stop();
        });
        assert_eq!(!place.fake.off().is_empty(), stays, "{stop}");
    }
    let place = TestPlace::new();
    place.kill("auto");
    place.is_patched.set(true);
    place.with("boot", "", |options, opener| {
        wake_left_offline(options, opener, |_| Box::new(TickClock(Cell::new(0)))).unwrap();
    });
    assert!(place.fake.off().is_empty());
    // Of another boot, nothing is left.
    let place = TestPlace::new();
    let off = place.kill("auto");
    place.run_by("kernel", "another", "on", "auto", look);
    assert_eq!(place.fake.off(), off);
}

#[test]
fn what_a_killed_daemon_left_off_by_the_kernel_stays_so_with_memory_hotplug_or_wakes_as_is_set() {
    for (stop, stays) in [("auto", true), ("wake", false)] {
        let place = TestPlace::new();
        place.run_by("kernel", "boot", "on", stop, |daemon| {
            daemon.step();
            daemon.step();
        });
        let off = place.off_by_kernel();
        assert!(off > 0);
        place.run_by("stock", "boot", "on", stop, |daemon| {
            daemon.step();
            assert_eq!(place.off_by_kernel(), if stays { off } else { 0 }, "{stop}");
            // Its slices are none of these.
            let others = "ramslice_woken_slices_total{mode=\"on\",cause=\"others\"} 0\n";
            let text = daemon.metrics.text();
            assert!(text.contains(others), "{text}");
            daemon.stop();
        });
        assert_eq!(place.off_by_kernel(), if stays { off } else { 0 }, "{stop}");
    }
}

/// A machine whose kernel has no ramslice, with settings that give back its cache alone.
fn only_cache(daemon: &mut MainLoop<'_>, root: &Path) {
    daemon.idle_cache = Some(IdleCache::under(root));
    let text = fs::read_to_string(&daemon.options.config).unwrap();
    let text = text.replace("backend = \"auto\"", "backend = \"kernel\"");
    fs::write(&daemon.options.config, text + "[idle_cache]\nafter_seconds = 20\n").unwrap();
    daemon.reload();
    assert!(daemon.has_only_cache());
}

#[test]
fn what_is_offline_by_memory_hotplug_is_woken_by_a_daemon_that_gives_back_cache_alone() {
    let root = tempfile::tempdir().unwrap();
    let place = TestPlace::new();
    place.run("boot", "on", "auto", |daemon| {
        daemon.step();
        assert!(!place.fake.off().is_empty());
        only_cache(daemon, root.path());
        daemon.step();
        assert!(place.fake.off().is_empty() && daemon.backend.is_none() && daemon.guard.is_none());
        let status = fs::read_to_string(place.dir.path().join("status.json")).unwrap();
        assert!(status.contains("\"a kernel without ramslice: "), "{status}");
        assert_eq!(daemon.last_error, None);
    });
    let place = TestPlace::new();
    let off = place.kill("auto");
    place.fake.wakes(off[0], false);
    place.run("boot", "on", "auto", |daemon| {
        only_cache(daemon, root.path());
        daemon.step();
        // What does not wake is guarded, and tried again at each step
        assert!(daemon.guard.is_some() && place.fake.off() == off[..1]);
        place.fake.wakes(off[0], true);
        daemon.step();
        assert!(daemon.guard.is_none() && place.fake.off().is_empty());
    });
    let place = TestPlace::new();
    let off = place.kill("leave");
    place.run("boot", "on", "leave", |daemon| {
        only_cache(daemon, root.path());
        daemon.step();
        assert_eq!(place.fake.off(), off);
    });
}
