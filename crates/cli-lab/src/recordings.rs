//! Recordings as machines: the last sample for commands that look once, each in turn for `top`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ramslice_backend::{ProcessorKind, ReplayBackend};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::UsageError;
use ramslice_cli::ledger_options::TimeFactorOptions;
use ramslice_energy::SampleClock;
use ramslice_record::{PageCacheSamples, PlatformInfo, ReadError, Recording, RecordingInfo};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, CacheLookups, ContentsDetail,
    MachineState, Price, PriceParameter, Request, RequestOutcome, SliceContents, SliceId,
    SliceSnapshot, WorkCounters, Zone,
};

/// The recording given with --from.
pub(crate) fn open_recording(context: &CommandContext) -> Result<Recording> {
    let dir = recording_path(context)?;
    Ok(Recording::open(dir).map_err(unreplayable_error)?)
}

/// The file or directory given with --from; an error if there is none.
pub(crate) fn recording_path(context: &CommandContext) -> Result<&Path, UsageError> {
    context.source_path().ok_or_else(|| {
        UsageError(
            "name a recording with --from DIR; `ramslice` looks at the running machine".to_owned(),
        )
    })
}

/// The machine at a recording's last sample.
pub(crate) fn open_last(dir: &Path) -> Result<Box<dyn Backend>> {
    let machine = Recording::open(dir).and_then(|recording| recording.last_machine());
    let (machine, work) = machine.map_err(unreplayable_error)?;
    Ok(Box::new(ReplayBackend::with_work(machine, work)))
}

/// A recording of another version, or none at all, is unsupported, as a saved file would be.
pub(crate) fn unreplayable_error(error: ReadError) -> BackendError {
    let kind = if matches!(error, ReadError::Io { .. }) {
        BackendErrorKind::Failed
    } else {
        BackendErrorKind::Unsupported
    };
    BackendError::new(kind, error)
}

/// What ran the recorded machine, as far as the recording says.
fn processor(platform: &PlatformInfo) -> ProcessorKind {
    let name = || platform.hypervisor.clone();
    match platform.emulated {
        Some(true) => ProcessorKind::Emulated(name()),
        Some(false) if platform.is_virtual => ProcessorKind::Virtual(name()),
        Some(false) => ProcessorKind::Real,
        None => ProcessorKind::Unknown,
    }
}

/// The clock of a recording.
///
/// # Errors
/// If its seconds may not be real and nothing says how slow the machine was.
pub(crate) fn clock_of(factor: &TimeFactorOptions, about: &RecordingInfo) -> Result<SampleClock> {
    factor.clock(&processor(&about.platform), "the recorded machine")
}

/// A sample, or why there is none.
type RecordedSample = Result<PlayedSample, ReadError>;

/// A machine, what had been done by then, and look-ups of the page cache, as far as the recording
/// has them.
struct PlayedSample {
    machine: MachineState,
    work: Option<WorkCounters>,
    lookups: Option<CacheLookups>,
}

/// Samples read ahead of the one that is shown.
const AHEAD: usize = 4;

/// A machine that is at the next sample of a recording each time it is looked at.
///
/// A thread reads ahead, so that memory holds a few samples whatever the recording's length.
pub(crate) struct RecordingPlayer {
    position: Mutex<PlayerPosition>,
    finished: Arc<AtomicBool>,
}

struct PlayerPosition {
    samples: Receiver<RecordedSample>,
    /// The sample to show next; nothing after the last.
    next: Option<RecordedSample>,
    current: Option<ReplayBackend>,
    /// Of the sample that is shown.
    lookups: Option<CacheLookups>,
}

impl RecordingPlayer {
    pub(crate) fn start(recording: Recording) -> Self {
        let (send, samples) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            let mut machines = recording.machines();
            let mut cache = PageCacheSamples::of(&recording);
            while let Some(machine) = machines.next() {
                let message = machine.and_then(|machine| {
                    let lookups = match machines.boottime_us() {
                        Some(time) => cache.at(time)?.and_then(|sample| sample.lookups),
                        None => None,
                    };
                    // Without figures of work there are no rates, as on a machine without root.
                    Ok(PlayedSample { machine, work: machines.work().ok(), lookups })
                });
                let failed = message.is_err();
                if send.send(message).is_err() || failed {
                    return;
                }
            }
            if machines.skipped() > 0 {
                tracing::warn!(
                    "{} samples are not whole and were passed over: see `ramslice-lab record \
                     --check`",
                    machines.skipped()
                );
            }
        });
        let next = samples.recv().ok();
        let position = PlayerPosition { samples, next, current: None, lookups: None };
        let position = Mutex::new(position);
        Self { position, finished: Arc::new(AtomicBool::new(false)) }
    }

    /// Whether the last sample has been shown.
    pub(crate) fn finished_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.finished)
    }

    /// The machine at the sample that is shown.
    fn with_current<T>(
        &self,
        ask: impl FnOnce(&ReplayBackend) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        match &position.current {
            Some(machine) => ask(machine),
            None => {
                Err(BackendError::new(BackendErrorKind::Failed, "no sample has been shown so far"))
            }
        }
    }
}

impl Backend for RecordingPlayer {
    fn machine(&self) -> Result<MachineState, BackendError> {
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sampled) = position.next.take() {
            let PlayedSample { machine, work, lookups } = sampled.map_err(unreplayable_error)?;
            position.current = Some(ReplayBackend::with_work(machine, work));
            position.lookups = lookups;
            position.next = position.samples.recv().ok();
            self.finished.store(position.next.is_none(), Ordering::Relaxed);
        }
        match &position.current {
            Some(machine) => machine.machine(),
            None => {
                let message = "the recording has no sample with slices";
                Err(BackendError::new(BackendErrorKind::Unsupported, message))
            }
        }
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        // Asked for before the machine is: of the sample that comes next.
        let position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let work = match &position.next {
            Some(Ok(sample)) => sample.work,
            Some(Err(_)) => None,
            None => {
                return position
                    .current
                    .as_ref()
                    .map_or(Ok(WorkCounters::default()), Backend::work);
            }
        };
        work.ok_or_else(|| {
            let message = "what the kernel had done was not recorded";
            BackendError::new(BackendErrorKind::Unsupported, message)
        })
    }

    fn cache_lookups(&self) -> Result<CacheLookups, BackendError> {
        // As for work, of the sample that comes next.
        let position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let lookups = match &position.next {
            Some(Ok(sample)) => sample.lookups,
            Some(Err(_)) => None,
            None => position.lookups,
        };
        lookups.ok_or_else(|| {
            let message = "look-ups of the page cache were not recorded: the kernel did not count \
                           them, or there are no statistics";
            BackendError::new(BackendErrorKind::Unsupported, message)
        })
    }

    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.with_current(Backend::info)
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        self.with_current(Backend::zones)
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        self.with_current(Backend::snapshot)
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.with_current(|machine| machine.contents(slice, detail))
    }

    fn request(&self, _: &Request) -> Result<RequestOutcome, BackendError> {
        Err(unchangeable_error())
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        std::thread::sleep(timeout);
        Ok(None)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.with_current(Backend::slice_bytes)
    }

    fn set_slice_bytes(&self, _: Bytes) -> Result<(), BackendError> {
        Err(unchangeable_error())
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.with_current(|machine| machine.price_parameter(parameter))
    }

    fn set_price_parameter(&self, _: PriceParameter, _: Price) -> Result<(), BackendError> {
        Err(unchangeable_error())
    }
}

fn unchangeable_error() -> BackendError {
    BackendError::new(BackendErrorKind::Unsupported, "a recording cannot be changed")
}
