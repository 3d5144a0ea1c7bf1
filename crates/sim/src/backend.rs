//! The simulated machine as a [`Backend`]: to tools, policies and tests it behaves like a kernel.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, Price,
    PriceParameter, Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, WorkCounters,
    Zone,
};

use crate::config::{SimConfig, SimConfigError};
use crate::machine::{MemoryChange, OwnerId, PriceModel, SimMachine};

/// A [`SimMachine`] behind a lock.
///
/// Its time stands still until [`SimBackend::advance`]; only [`Backend::wait_event`] waits in real
/// time, because what it waits for is done by other threads.
pub struct SimBackend {
    machine: Mutex<SimMachine>,
    state_change: Condvar,
}

impl fmt::Debug for SimBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBackend").field("machine", &*self.lock()).finish_non_exhaustive()
    }
}

impl SimBackend {
    /// A machine after boot.
    ///
    /// # Errors
    /// If the configuration makes no machine.
    pub fn new(config: SimConfig) -> Result<Self, SimConfigError> {
        Ok(Self::of(SimMachine::new(config)?))
    }

    /// A machine that exists already.
    pub fn of(machine: SimMachine) -> Self {
        Self { machine: Mutex::new(machine), state_change: Condvar::new() }
    }

    /// Lets simulated time pass.
    pub fn advance(&self, by: Duration) {
        self.lock().advance(by);
    }

    /// Does what a load asks for.
    pub fn apply(&self, change: MemoryChange) {
        self.with(|machine| machine.apply(change));
    }

    /// The machine, for figures that a kernel does not report.
    pub fn with<T>(&self, look: impl FnOnce(&mut SimMachine) -> T) -> T {
        let mut machine = self.lock();
        let before = machine.info().event_seq;
        let found = look(&mut machine);
        if machine.info().event_seq != before {
            self.state_change.notify_all();
        }
        found
    }

    /// The machine itself.
    pub fn into_machine(self) -> SimMachine {
        self.machine.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, SimMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_slice(slice: SliceId, nr: u32) -> BackendError {
    let message =
        format!("the simulated machine has no slice {slice}: it has 0 to {}", nr.saturating_sub(1));
    BackendError::new(BackendErrorKind::NotFound, message)
}

impl Backend for SimBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        Ok(self.lock().info())
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(self.lock().zones())
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.lock().snapshot())
    }

    fn contents(
        &self,
        slice: SliceId,
        _detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        let machine = self.lock();
        machine.contents(slice).ok_or_else(|| no_slice(slice, machine.info().nr_slices))
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        request.refuse_hold("the simulator knows no memory that is gone")?;
        self.with(|machine| {
            let nr = machine.info().nr_slices;
            machine.request(request).map_err(|error| no_slice(error.0, nr))
        })
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        let machine = self.lock();
        let before = machine.info().event_seq;
        let (machine, _) = self
            .state_change
            .wait_timeout_while(machine, timeout, |machine| machine.info().event_seq == before)
            .unwrap_or_else(PoisonError::into_inner);
        let now = machine.info().event_seq;
        Ok((now != before).then_some(now))
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        Ok(self.lock().config().slice_bytes)
    }

    /// Only before anything but the kernel is in memory: owners do not know where in a slice their
    /// pages are.
    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        let mut machine = self.lock();
        let invalid = |error: SimConfigError| BackendError::new(BackendErrorKind::Invalid, error);
        if machine.info().offline_pages.0 > 0 {
            let message = "slices are off: wake them before the size changes (online --all)";
            return Err(BackendError::new(BackendErrorKind::Busy, message));
        }
        let config = machine.config().clone().with_slices_of(size);
        let mut fresh = SimMachine::new(config).map_err(invalid)?;
        if machine.owners().any(|owner| owner != OwnerId::BOOT) {
            let message = "a simulated machine keeps its slice size once memory is in use";
            return Err(BackendError::new(BackendErrorKind::Unsupported, message));
        }
        fresh.advance(machine.time());
        *fresh.prices() = *machine.prices();
        *machine = fresh;
        Ok(())
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        Ok(self.lock().prices().get(parameter))
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        PriceModel::set(self.lock().prices(), parameter, value);
        Ok(())
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        Ok(self.lock().work())
    }
}
