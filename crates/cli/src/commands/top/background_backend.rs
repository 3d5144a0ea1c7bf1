//! For tests: a machine at which looking takes long, as where all of memory has to be walked.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use ramslice_backend::ReplayBackend;
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, MachineState,
    Pages, Price, PriceParameter, Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot,
    WorkCounters, Zone,
};

/// Pages that are moved in a second.
pub(super) const PAGES_PER_SECOND: u64 = 100;
/// Longer than any test takes; then a test that waits for the looks fails instead of hanging.
const LONGEST: Duration = Duration::from_secs(30);

/// A file of this crate's tests.
pub(super) fn test_file(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/data").join(name)
}

/// A saved machine whose looks wait until they may go on.
pub(super) struct BackgroundBackend {
    machine: ReplayBackend,
    state: Mutex<BackgroundState>,
    state_change: Condvar,
}

#[derive(Default)]
struct BackgroundState {
    is_held: bool,
    /// The machine's clock, which a look moves by so much.
    clock: Duration,
    read_duration: Duration,
    reads: u32,
}

impl BackgroundBackend {
    pub(super) fn new(file: &str) -> Self {
        let machine = ReplayBackend::open(&test_file(file)).unwrap();
        Self { machine, state: Mutex::default(), state_change: Condvar::new() }
    }

    /// From now on looks do not end, or do again.
    pub(super) fn hold_reads(&self, held: bool) {
        self.state.lock().unwrap().is_held = held;
        self.state_change.notify_all();
    }

    /// Looks take so long by the machine's clock.
    pub(super) fn set_read_duration(&self, time: Duration) {
        self.state.lock().unwrap().read_duration = time;
    }

    /// Time passes.
    pub(super) fn advance_clock(&self, time: Duration) {
        self.state.lock().unwrap().clock += time;
    }

    /// How many looks have begun.
    pub(super) fn reads(&self) -> u32 {
        self.state.lock().unwrap().reads
    }
}

impl Backend for BackgroundBackend {
    fn machine(&self) -> Result<MachineState, BackendError> {
        let mut machine = self.machine.machine()?;
        let mut state = self.state.lock().unwrap();
        state.reads += 1;
        machine.snapshot.time = state.clock;
        let (mut state, late) =
            self.state_change.wait_timeout_while(state, LONGEST, |state| state.is_held).unwrap();
        if late.timed_out() {
            return Err(BackendError::new(
                BackendErrorKind::Failed,
                "the look was never let go on",
            ));
        }
        let takes = state.read_duration;
        state.clock += takes;
        Ok(machine)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        let millis = self.state.lock().unwrap().clock.as_millis() as u64;
        Ok(WorkCounters {
            migrated_pages: Pages(millis * PAGES_PER_SECOND / 1000),
            ..WorkCounters::default()
        })
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.machine.contents(slice, detail)
    }

    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.machine.info()
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        self.machine.zones()
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        self.machine.snapshot()
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        self.machine.request(request)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        self.machine.wait_event(timeout)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.machine.slice_bytes()
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.machine.set_slice_bytes(size)
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.machine.price_parameter(parameter)
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.machine.set_price_parameter(parameter, value)
    }
}
