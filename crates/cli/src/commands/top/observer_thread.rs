//! Looks at a machine in a thread of their own. On a kernel without ramslice one may walk all of
//! memory, for many seconds: keys and signals are not to wait for it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, CacheLookups, ContentsDetail, ContentsSummary,
    SliceContents, SliceId,
};

use super::activity::MachineSample;
use crate::interrupt::TICK;

/// A look.
pub(super) struct MachineObservation {
    pub(super) sample: MachineSample,
    /// Why there are no counters in it.
    pub(super) counters_error: Option<String>,
    /// Look-ups of the page cache, or why they are not counted.
    pub(super) lookups: Result<CacheLookups, String>,
}

impl MachineObservation {
    /// Looks.
    pub(super) fn read(backend: &dyn Backend) -> Result<Self> {
        // The machine bears the time at which its look began. Counters that are read after a long
        // look would be of another time, and rates are by that of the machine.
        let (work, no_counters) = match backend.work() {
            Ok(work) => (Some(work), None),
            Err(error) if error.kind() == BackendErrorKind::Permission => {
                (None, Some("only root can read what was moved and dropped".to_owned()))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let lookups = backend.cache_lookups().map_err(|error| error.to_string());
        Ok(Self {
            lookups,
            sample: MachineSample { machine: backend.machine()?, work },
            counters_error: no_counters,
        })
    }
}

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObserverRequest {
    /// The machine.
    Machine,
    /// The pages of a slice.
    Pages(SliceId),
}

/// The pages of a slice, as far as they are known.
pub(super) type Pages = Result<(SliceContents, ContentsSummary), BackendError>;

/// What was seen.
pub(super) enum ObserverAnswer {
    Machine(Box<Result<MachineObservation>>),
    Pages(SliceId, Pages),
}

/// A thread that looks. It does one thing at a time, because each may keep a CPU busy.
///
/// The thread owns the backend with others, and nothing waits for its end: what it does can be
/// broken off anywhere, as by a program that is killed. It ends after what it is at, or with the
/// program.
pub(super) struct ObserverThread {
    requests: Sender<ObserverRequest>,
    answers: Receiver<ObserverAnswer>,
    /// Since when it is at work.
    busy_since: Option<Instant>,
}

impl ObserverThread {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        let (asks, asked) = mpsc::channel();
        let (answered, answers) = mpsc::channel();
        thread::spawn(move || {
            for ask in asked {
                let answer = match ask {
                    ObserverRequest::Machine => {
                        ObserverAnswer::Machine(Box::new(MachineObservation::read(&*backend)))
                    }
                    ObserverRequest::Pages(slice) => {
                        ObserverAnswer::Pages(slice, pages(&*backend, slice))
                    }
                };
                // The screen may be gone.
                if answered.send(answer).is_err() {
                    break;
                }
            }
        });
        Self { requests: asks, answers, busy_since: None }
    }

    /// How long it has been at work; nothing if it is not.
    pub(super) fn busy_time(&self) -> Option<Duration> {
        self.busy_since.map(|since| since.elapsed())
    }

    /// Begins to look.
    pub(super) fn send_request(&mut self, ask: ObserverRequest) -> Result<()> {
        self.busy_since = Some(Instant::now());
        self.requests.send(ask).context(THREAD_ENDED)
    }

    /// What was seen, if that is known within a time.
    pub(super) fn wait_answer(&mut self, within: Duration) -> Result<Option<ObserverAnswer>> {
        match self.answers.recv_timeout(within) {
            Ok(answer) => {
                self.busy_since = None;
                Ok(Some(answer))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!(THREAD_ENDED),
        }
    }

    /// Looks at the machine and waits for it, as long as `goes_on` says so.
    pub(super) fn observe_machine(
        &mut self,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Result<MachineObservation>>> {
        self.send_request(ObserverRequest::Machine)?;
        while goes_on() {
            if let Some(ObserverAnswer::Machine(seen)) = self.wait_answer(TICK)? {
                // What ends the wait may have ended the look, too: that is no failure.
                return Ok(goes_on().then_some(*seen));
            }
        }
        Ok(None)
    }
}

/// It cannot end before the one that asks, except by a panic.
const THREAD_ENDED: &str = "looking at the machine has ended";

fn pages(backend: &dyn Backend, slice: SliceId) -> Pages {
    let contents = backend.contents(slice, ContentsDetail::default())?;
    let holdings = ContentsSummary::of(&contents);
    Ok((contents, holdings))
}

#[cfg(test)]
mod tests {
    use super::super::activity::SliceActivity;
    use super::super::background_backend::{BackgroundBackend, PAGES_PER_SECOND};
    use super::*;
    use std::cell::Cell;

    #[test]
    fn counters_are_of_the_time_at_which_a_look_began_however_long_it_took() {
        let backend = BackgroundBackend::new("guest-8g.json");
        // The first look walks all of memory, the second one does not.
        backend.set_read_duration(Duration::from_secs(13));
        let first = MachineObservation::read(&backend).unwrap();
        backend.set_read_duration(Duration::ZERO);
        backend.advance_clock(Duration::from_secs(1));
        let second = MachineObservation::read(&backend).unwrap();
        let flow = SliceActivity::between(&first.sample, &second.sample, &[]);
        assert_eq!(flow.elapsed, Duration::from_secs(14));
        assert_eq!(flow.work.unwrap().migrated.0, 14 * PAGES_PER_SECOND);
    }

    #[test]
    fn no_request_waits_for_a_look_that_is_no_longer_wanted() {
        let backend = Arc::new(BackgroundBackend::new("guest-8g.json"));
        let mut observer = ObserverThread::new(backend.clone());
        assert!(observer.observe_machine(|| true).unwrap().unwrap().is_ok());
        backend.hold_reads(true);
        let asked = Cell::new(0);
        let seen = observer.observe_machine(|| {
            asked.set(asked.get() + 1);
            asked.get() < 3
        });
        assert!(seen.unwrap().is_none());
        // Not for its thread, either.
        let begun = Instant::now();
        drop(observer);
        assert!(begun.elapsed() < Duration::from_secs(5));
        backend.hold_reads(false);
    }
}
