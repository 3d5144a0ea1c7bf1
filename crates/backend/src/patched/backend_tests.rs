//! Tests of the kernel backend over a fake tree and a fake device.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use ramslice_types::{BackendErrorKind, CacheChoice, Pages, Reason, SliceId, SliceState};
use tempfile::TempDir;

use super::*;

/// A device that answers from its fields.
#[derive(Default)]
struct FakeDevice {
    abi_version: u32,
    /// What INFO says; the rows may be more by the time of a snapshot.
    nr_slices: u32,
    rows: Vec<uapi::ramslice_slice_info>,
    snapshots: Mutex<u32>,
    max_age: Mutex<Duration>,
    requests: Mutex<Vec<uapi::ramslice_request>>,
    request_error: Option<Errno>,
    segments: Vec<uapi::ramslice_segment>,
    /// How many runs of two pages PAGES reports for any slice.
    page_runs: u32,
    pages_error: Option<Errno>,
}

impl RamsliceDevice for std::sync::Arc<FakeDevice> {
    fn info(&self, arg: &mut uapi::ramslice_info) -> io::Result<()> {
        arg.abi_version = self.abi_version;
        arg.page_bytes = 4096;
        arg.pageblock_bytes = 2 << 20;
        arg.nr_slices = self.nr_slices;
        arg.nr_segments = u32::try_from(self.segments.len()).unwrap();
        for (char, byte) in arg.power_driver.iter_mut().zip(b"none") {
            *char = std::ffi::c_char::from_ne_bytes([*byte]);
        }
        Ok(())
    }

    fn zone(&self, arg: &mut uapi::ramslice_zone_info) -> io::Result<()> {
        arg.nr_slices = arg.index;
        Ok(())
    }

    fn snapshot(
        &self,
        rows: &mut [uapi::ramslice_slice_info],
        max_age: Duration,
    ) -> (io::Result<()>, uapi::ramslice_snapshot) {
        *self.max_age.lock().unwrap() = max_age;
        *self.snapshots.lock().unwrap() += 1;
        let nr = u32::try_from(self.rows.len()).unwrap();
        let head = uapi::ramslice_snapshot {
            nr,
            event_seq: 7,
            time_ns: 1_500,
            ..uapi::ramslice_snapshot::default()
        };
        if rows.len() < self.rows.len() {
            return (Err(Errno::NOSPC.into()), head);
        }
        rows[..self.rows.len()].copy_from_slice(&self.rows);
        (Ok(()), head)
    }

    fn pages(
        &self,
        id: u32,
        first: u32,
        runs: &mut [uapi::ramslice_page_run],
    ) -> io::Result<uapi::ramslice_pages> {
        if let Some(errno) = self.pages_error {
            return Err(errno.into());
        }
        // No more than a thousand at once, as a kernel may choose.
        let nr = (self.page_runs - first / 2).min(1000);
        for (run, at) in runs.iter_mut().zip(0..nr) {
            let pfn = u64::from(id * 10_000 + first + 2 * at);
            *run = uapi::ramslice_page_run {
                pfn,
                nr_pages: 2,
                nr_maps: at,
                ..uapi::ramslice_page_run::default()
            };
        }
        let reason = uapi::RAMSLICE_REASON_SLAB;
        let nr_pages = 2 * self.page_runs;
        Ok(uapi::ramslice_pages {
            id,
            nr,
            first: first + 2 * nr,
            nr_pages,
            reason,
            ..uapi::ramslice_pages::default()
        })
    }

    fn segments(&self, rows: &mut [uapi::ramslice_segment]) -> io::Result<u32> {
        rows.copy_from_slice(&self.segments);
        Ok(u32::try_from(rows.len()).unwrap())
    }

    fn request(&self, arg: &mut uapi::ramslice_request) -> io::Result<()> {
        self.requests.lock().unwrap().push(*arg);
        match self.request_error {
            Some(errno) => Err(errno.into()),
            None => {
                (arg.status, arg.reason) = (28, uapi::RAMSLICE_REASON_OVER_BUDGET);
                (arg.nr_done, arg.last_id, arg.elapsed_ns) = (3, 12, 2_000_000);
                Ok(())
            }
        }
    }

    fn wait(&self, _timeout: Duration) -> io::Result<Option<u64>> {
        Err(io::ErrorKind::Interrupted.into())
    }
}

fn tree() -> (TempDir, KernelPaths) {
    let dir = TempDir::new().unwrap();
    let paths = KernelPaths::under(dir.path());
    (dir, paths)
}

fn with_fake(
    fake: FakeDevice,
) -> (TempDir, std::sync::Arc<FakeDevice>, Result<PatchedBackend, KernelError>) {
    let (dir, paths) = tree();
    let fake = std::sync::Arc::new(FakeDevice { abi_version: fake.abi_version.max(1), ..fake });
    let backend = PatchedBackend::with_device(paths, Box::new(fake.clone()));
    (dir, fake, backend)
}

fn row(id: u32, state: u8) -> uapi::ramslice_slice_info {
    uapi::ramslice_slice_info { id, state, ..uapi::ramslice_slice_info::default() }
}

#[test]
fn a_kernel_without_ramslice_is_distinguished_from_one_with_it_disabled() {
    let (_dir, paths) = tree();
    let error = PatchedBackend::open_at(paths.clone()).err().unwrap();
    assert!(matches!(error, KernelError::NotSupported { .. }), "{error}");
    assert!(error.to_string().contains("make shell") && !error.to_string().contains('\n'));

    fs::create_dir_all(&paths.sysfs).unwrap();
    fs::write(paths.sysfs.join("enabled"), "0\n").unwrap();
    let error = PatchedBackend::open_at(paths.clone()).err().unwrap();
    assert_eq!(error.kind(), BackendErrorKind::Disabled);
    assert!(error.to_string().contains("ramslice=off"), "{error}");

    fs::write(paths.sysfs.join("enabled"), "1\n").unwrap();
    let error = PatchedBackend::open_at(paths).err().unwrap();
    assert!(matches!(error, KernelError::NoDevice { .. }), "{error}");
}

#[test]
fn the_clock_of_measured_prices_is_the_one_that_the_kernel_reports() {
    let clock = |text: Option<&str>| {
        let (_dir, paths) = tree();
        fs::create_dir_all(&paths.sysfs).unwrap();
        if let Some(text) = text {
            fs::write(paths.sysfs.join("clock_khz"), text).unwrap();
        }
        let fake = std::sync::Arc::new(FakeDevice { abi_version: 1, ..FakeDevice::default() });
        PatchedBackend::with_device(paths, Box::new(fake)).unwrap().info().unwrap().clock_khz
    };
    assert_eq!((clock(Some("2095078\n")), clock(None)), (Some(2_095_078), None));
}

#[test]
fn a_file_that_is_no_device_is_an_error_with_its_path() {
    let (_dir, paths) = tree();
    fs::create_dir_all(paths.device.parent().unwrap()).unwrap();
    fs::write(&paths.device, "").unwrap();
    let error = PatchedBackend::open_at(paths.clone()).err().unwrap();
    assert!(error.to_string().contains(paths.device.to_str().unwrap()), "{error}");
}

#[test]
fn permission_errors_name_the_group() {
    let (_dir, paths) = tree();
    fs::create_dir_all(paths.device.parent().unwrap()).unwrap();
    fs::create_dir_all(paths.groups.parent().unwrap()).unwrap();
    fs::write(&paths.device, "").unwrap();
    fs::set_permissions(&paths.device, fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(&paths.groups, "root:x:0:\nramslice:x:977:alice\n").unwrap();
    assert_eq!(group_name(&paths, 977).as_deref(), Some("ramslice"));
    assert_eq!(group_name(&paths, 5), None);
    assert!(permission_hint(&paths).contains("sudo"));
    // Root opens anything: only another user sees the error itself.
    match open_device(&paths, FileAccess::Write) {
        Err(error) => assert_eq!(error.kind(), BackendErrorKind::Permission),
        Ok(_) => eprintln!("skipped the open: running as root"),
    }
}

#[test]
fn another_interface_version_names_the_older_side() {
    let (_dir, _, newer) = with_fake(FakeDevice { abi_version: 2, ..FakeDevice::default() });
    let error = newer.err().unwrap();
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
    assert!(error.to_string().ends_with("update the tools"), "{error}");
}

#[test]
fn slices_by_a_table_have_the_sizes_that_it_says() {
    let segment =
        |mib: u64, size: u64| uapi::ramslice_segment { start_bytes: mib << 20, bytes: size << 20 };
    let mut rows = vec![row(0, 0), row(1, 2)];
    for (row, mib) in rows.iter_mut().zip([64, 6]) {
        row.nr_pages = mib << 8;
    }
    let (_dir, _, backend) = with_fake(FakeDevice {
        nr_slices: 2,
        rows,
        segments: vec![segment(128, 64), segment(512, 6), segment(2048, 512)],
        ..FakeDevice::default()
    });
    let backend = backend.unwrap();
    let info = backend.info().unwrap();
    assert_eq!(info.segments.len(), 3);
    assert_eq!(info.extents(SliceId(1)).start, 512 << 20);
    let snapshot = backend.snapshot().unwrap();
    for (slice, mib) in snapshot.slices.iter().zip([64, 6]) {
        assert_eq!(slice.frames, Some(Pages(mib << 8)));
        assert_eq!(slice.composition(Pages(512 << 8)).hole, Pages::ZERO);
    }
}

#[test]
fn snapshots_say_how_old_what_they_read_may_be() {
    let (_dir, fake, backend) = with_fake(FakeDevice::default());
    let backend = backend.unwrap();
    backend.snapshot().unwrap();
    assert_eq!(*fake.max_age.lock().unwrap(), MAX_AGE);
    backend.with_max_age(Duration::from_secs(9)).snapshot().unwrap();
    assert_eq!(*fake.max_age.lock().unwrap(), Duration::from_secs(9));
}

#[test]
fn a_snapshot_that_does_not_fit_is_taken_again() {
    let rows = vec![row(4, 0), row(5, 2), row(9, 1)];
    let (_dir, fake, backend) =
        with_fake(FakeDevice { nr_slices: 2, rows, ..FakeDevice::default() });
    let snapshot = backend.unwrap().snapshot().unwrap();
    assert_eq!(*fake.snapshots.lock().unwrap(), 2);
    assert_eq!((snapshot.event_seq, snapshot.time), (7, Duration::from_nanos(1_500)));
    assert_eq!(snapshot.slices[2].id, SliceId(9));
    assert_eq!(snapshot.slices[1].state, SliceState::Offline);
}

#[test]
fn a_snapshot_with_fewer_rows_than_announced_is_cut() {
    let (_dir, _, backend) =
        with_fake(FakeDevice { nr_slices: 5, rows: vec![row(1, 0)], ..FakeDevice::default() });
    assert_eq!(backend.unwrap().snapshot().unwrap().slices.len(), 1);
}

#[test]
fn an_unknown_state_is_an_error_but_an_unknown_reason_is_shown() {
    let mut rows = vec![row(1, 0)];
    rows[0].reason = 99;
    let (_dir, _, backend) =
        with_fake(FakeDevice { nr_slices: 1, rows: rows.clone(), ..FakeDevice::default() });
    assert_eq!(backend.unwrap().snapshot().unwrap().slices[0].reason, Reason::Unknown(99));
    rows[0].state = 5;
    let (_dir, _, backend) = with_fake(FakeDevice { nr_slices: 1, rows, ..FakeDevice::default() });
    assert_eq!(backend.unwrap().snapshot().unwrap_err().kind(), BackendErrorKind::Unsupported);
}

#[test]
fn a_request_reaches_the_kernel_with_its_limits_and_brings_the_outcome_back() {
    let (_dir, fake, backend) = with_fake(FakeDevice::default());
    let request = Request {
        cache: CacheChoice::Keep,
        max_slices: Some(3),
        deadline: Some(Duration::from_micros(10)),
        ..Request::new(RequestOp::Compact)
    };
    let outcome = backend.unwrap().run(&fake, &request).unwrap();
    let sent = fake.requests.lock().unwrap()[0];
    assert_eq!((sent.op, sent.flags), (uapi::RAMSLICE_OP_COMPACT, uapi::RAMSLICE_REQ_KEEP_CACHE));
    assert_eq!((sent.node, sent.zone), (uapi::RAMSLICE_ANY, uapi::RAMSLICE_ANY));
    assert_eq!((sent.budget, sent.max_slices, sent.deadline_ms), (uapi::RAMSLICE_UNLIMITED, 3, 1));
    assert_eq!((outcome.reason, outcome.slices_done), (Reason::OverBudget, 3));
    assert_eq!(outcome.elapsed, Duration::from_millis(2));
    assert_eq!(outcome.last_slice, Some(SliceId(12)));
    let flags = CacheChoice::ALL
        .map(|cache| convert::request(&Request { cache, ..Request::default() }).flags);
    assert_eq!(flags, [0, uapi::RAMSLICE_REQ_KEEP_CACHE, uapi::RAMSLICE_REQ_AUTO_CACHE]);
    let idle = uapi::ramslice_request { last_id: u32::MAX, ..uapi::ramslice_request::default() };
    assert_eq!(convert::outcome(&idle).last_slice, None);
}

#[test]
fn each_errno_of_a_request_has_its_meaning() {
    for (errno, kind) in [
        (Errno::NOENT, BackendErrorKind::NotFound),
        (Errno::BUSY, BackendErrorKind::Busy),
        (Errno::INVAL, BackendErrorKind::Invalid),
        (Errno::TOOBIG, BackendErrorKind::Invalid),
        (Errno::INTR, BackendErrorKind::Interrupted),
        (Errno::IO, BackendErrorKind::Failed),
    ] {
        let (_dir, fake, backend) =
            with_fake(FakeDevice { request_error: Some(errno), ..FakeDevice::default() });
        let error =
            backend.unwrap().run(&fake, &Request::new(RequestOp::Offline(SliceId(7)))).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        if errno == Errno::NOENT {
            assert!(error.to_string().contains("slice 7"), "{error}");
        }
    }
}

#[test]
fn a_signal_during_a_wait_is_no_event_and_no_error() {
    let (_dir, _, backend) = with_fake(FakeDevice::default());
    assert_eq!(backend.unwrap().wait_event(Duration::from_secs(1)).unwrap(), None);
}

#[test]
fn sysfs_values_are_read_and_written() {
    let (_dir, _, backend) = with_fake(FakeDevice::default());
    let backend = backend.unwrap();
    let file = backend.paths.sysfs.join("price/drop_page");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "39\n").unwrap();
    assert_eq!(backend.price_parameter(PriceParameter::DropPage).unwrap(), Price(39));
    backend.set_price_parameter(PriceParameter::DropPage, Price(7)).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "7\n");
    fs::write(&file, "many\n").unwrap();
    let error = backend.price_parameter(PriceParameter::DropPage).unwrap_err().to_string();
    assert!(error.contains("price/drop_page") && error.contains("`many`"), "{error}");
}

#[test]
fn a_missing_sysfs_file_is_named_and_not_created() {
    let (_dir, _, backend) = with_fake(FakeDevice::default());
    let backend = backend.unwrap();
    let error = backend.set_slice_bytes(Bytes(64 << 20)).unwrap_err().to_string();
    assert!(error.contains("slice_bytes"), "{error}");
    assert!(!backend.paths.sysfs.join("slice_bytes").exists());
}

#[test]
fn the_pages_of_a_slice_are_collected_over_several_calls() {
    let (_dir, _, backend) = with_fake(FakeDevice { page_runs: 2500, ..FakeDevice::default() });
    let contents = backend.unwrap().contents(SliceId(7), ContentsDetail::default()).unwrap();
    assert_eq!(
        (contents.slice, contents.state, contents.reason),
        (SliceId(7), SliceState::Online, Reason::Slab)
    );
    assert_eq!(contents.runs.len(), 2500);
    assert_eq!(contents.frames(), ramslice_types::Pages(5000));
    assert!(contents.runs.windows(2).all(|pair| pair[0].end() == pair[1].pfn));
    assert_eq!(contents.sites, None);
}

#[test]
fn a_refusal_to_show_pages_names_its_cause() {
    for (errno, kind, text) in [
        (Errno::PERM, BackendErrorKind::Permission, "only root"),
        (Errno::NOTTY, BackendErrorKind::Unsupported, "older than these tools"),
        (Errno::NOENT, BackendErrorKind::NotFound, "no slice 7"),
    ] {
        let (_dir, _, backend) =
            with_fake(FakeDevice { pages_error: Some(errno), ..FakeDevice::default() });
        let error = backend.unwrap().contents(SliceId(7), ContentsDetail::default()).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
}
