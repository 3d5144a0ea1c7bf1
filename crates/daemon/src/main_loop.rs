//! The main loop waits for the next step, a signal, memory pressure or the guard, and keeps
//! systemd,
//! the saved state and the status up to date. No other part of the daemon waits.

mod cold;
mod idle_cache;
mod upkeep;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ramslice_backend::WhatIfBackend;
use ramslice_types::{Backend, BackendError, BackendErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, error, info, warn};

use crate::clock::PolicyClock;
use crate::cold_automatic::{self, ColdThread};
use crate::engine::DecisionEngine;
use crate::guard_thread::GuardThread;
use crate::host_files::HostFiles;
use crate::idle_cache::IdleCache;
use crate::metrics::{DaemonMetrics, time_of_day};
use crate::metrics_server::MetricsServer;
use crate::mode::DaemonMode;
use crate::open_backend::{BackendOpener, KeepGoing, OpenedBackend};
use crate::persisted_state::{self, FoundState, PersistedState, StateDamage};
use crate::pressure_trigger::PressureTrigger;
use crate::settings::DaemonSettings;
use crate::signals::SignalFlags;
use crate::systemd::{self, SystemdWatchdog};

/// The first wait after the machine could not be read. Each further wait is twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest of these waits.
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// How long the daemon tries to wake everything before it stops. systemd waits longer.
const WAKE_AT_STOP: Duration = Duration::from_mins(1);
/// By how much a request may exceed its deadline: it ends after the page or memory block that it is
/// at.
const BEYOND_DEADLINE: Duration = Duration::from_secs(30);
/// The same when the mode is no longer on. The daemon tries again at each step.
const WAKE_AT_RELOAD: Duration = Duration::from_secs(5);
/// The pause between two of these attempts.
const WAKE_AGAIN: Duration = Duration::from_millis(200);

/// Paths that the daemon uses.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// The settings file.
    pub config: PathBuf,
    /// The directory of the saved state.
    pub state_dir: PathBuf,
    /// The directory of the status file.
    pub runtime_dir: PathBuf,
    /// `/proc/pressure/memory`; none if that file describes another machine.
    pub pressure: Option<PathBuf>,
    /// Files that describe this machine.
    pub host: HostFiles,
}

/// Everything that lasts from step to step.
struct MainLoop<'a> {
    options: &'a DaemonOptions,
    open_backend: &'a BackendOpener<'a>,
    clock: Box<dyn PolicyClock>,
    engine: DecisionEngine,
    metrics: Arc<DaemonMetrics>,
    signals: SignalFlags,
    backend: Option<OpenedBackend>,
    /// In mode observe: the open machine, on which requests are only simulated.
    what_if: Option<WhatIfBackend<Arc<dyn Backend>>>,
    /// The open backend failed, or the settings ask for another one. It and its guard stay until
    /// another one is open.
    reopen_pending: bool,
    /// A backend that another kind has replaced, now or since an earlier run, while it is to wake
    /// what it took offline: the patched kernel does not know of blocks that memory hotplug took
    /// offline.
    replaced: Option<OpenedBackend>,
    guard: Option<GuardThread>,
    trigger: Option<PressureTrigger>,
    /// Moves idle memory to cold nodes and back, if the settings ask for it.
    cold: Option<ColdThread>,
    /// Reclaims idle page cache where the kernel does not choose it by itself.
    idle_cache: Option<IdleCache>,
    next_cache_look: Option<Instant>,
    /// Why the kernel does not report tasks that wait for memory, if the settings ask for it.
    pressure_error: Option<String>,
    metrics_server: Option<MetricsServer>,
    /// The metrics cannot be served at present. The log says why.
    listen_failed: bool,
    /// The mode is no longer on, and slices that the daemon switched off are still to be woken.
    wake_pending: bool,
    /// An earlier run of this boot ended in mode on, or with slices still to be woken. Whether they
    /// are woken depends on the machine.
    earlier_wake_pending: bool,
    /// The kinds of backends by which that run may have left slices offline, until each is open.
    earlier_backends: Vec<String>,
    /// The saved state is in place but could not be read, so it must not be overwritten.
    state_unreadable: bool,
    /// Why no guard watches whether memory runs short, where one should.
    guard_error: Option<String>,
    watchdog: Arc<SystemdWatchdog>,
    next_step: Instant,
    retry_delay: Duration,
    last_error: Option<String>,
    /// The last error is that this user may not read the machine.
    permission_denied: bool,
    saved_at: Option<Instant>,
    save_failed: bool,
    status_failed: bool,
    /// The last sentence sent to systemd.
    last_status: String,
}

/// Runs until a signal asks the daemon to stop.
///
/// # Errors
/// If the daemon cannot start: signal handlers or the state directory fail.
pub fn run(
    options: &DaemonOptions,
    settings: DaemonSettings,
    opener: &BackendOpener<'_>,
    clock: impl FnOnce(Duration) -> Box<dyn PolicyClock>,
) -> Result<()> {
    let signals = SignalFlags::install()?;
    for dir in [&options.state_dir, &options.runtime_dir] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    // Two daemons would overwrite each other's state and wake what the other one switched off.
    let dir = options.state_dir.display();
    let _alone = match persisted_state::lock_directory(&options.state_dir) {
        Ok(None) => bail!("another ramsliced is at work with {dir}: systemctl status ramsliced"),
        Ok(lock) => lock,
        Err(error) => {
            warn!("{dir} cannot be locked against another ramsliced: {error}");
            None
        }
    };
    let mut daemon = MainLoop::new(options, settings, opener, clock, signals);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = %daemon.engine.settings().mode,
        policy = %daemon.engine.settings().policy.policy,
        profile = daemon.engine.settings().worth.name(),
        "begins"
    );
    daemon.warn_of_settings();
    daemon.listen();
    daemon.watch_pressure();
    daemon.step();
    if let Some(error) = daemon.lacks_privileges(rustix::process::geteuid().is_root()) {
        bail!("{error}");
    }
    daemon.watchdog.started();
    systemd::ready(&daemon.sentence());
    daemon.wait_and_work();
    daemon.stop();
    Ok(())
}

/// Wakes what an earlier run of this boot left offline on a stock kernel, with default settings.
///
/// The settings file is wrong, so no daemon will run to wake these slices. The patched kernel wakes
/// slices by itself, so there they stay offline.
///
/// # Errors
/// If signals cannot be handled.
pub fn wake_left_offline(
    options: &DaemonOptions,
    opener: &BackendOpener<'_>,
    clock: fn(Duration) -> Box<dyn PolicyClock>,
) -> Result<()> {
    // An operator may try settings by hand while the service runs, or before its first run.
    let _alone = match persisted_state::lock_directory(&options.state_dir) {
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(lock) => lock,
        // Slices are woken nevertheless: waking twice does no harm.
        Err(error) => {
            warn!(
                "{} cannot be locked against another ramsliced: {error}",
                options.state_dir.display()
            );
            None
        }
    };
    if options.host.vmstat.is_some() {
        cold_automatic::remove_left_behind(
            Path::new("/"),
            &options.runtime_dir,
            &options.host.boot,
        );
    }
    let mut daemon =
        MainLoop::new(options, DaemonSettings::defaults(), opener, clock, SignalFlags::install()?);
    let earlier_wake_pending = daemon.earlier_wake_pending;
    if earlier_wake_pending && daemon.open().is_ok() {
        let mut backends = daemon.backend.iter().chain(&daemon.replaced);
        if backends.any(|opened| opened.guardable.is_some()) {
            daemon.stop();
        }
    }
    Ok(())
}

/// The saved state, and whether it could not be read and must not be overwritten.
fn saved_state(dir: &Path) -> (Option<PersistedState>, bool) {
    let file = dir.join(persisted_state::FILE);
    let file = file.display();
    match persisted_state::read(dir) {
        FoundState::Good(memory) => return (Some(*memory), false),
        FoundState::Nothing => info!(dir = %dir.display(), "nothing was learned before"),
        FoundState::SetAside { damage, new_path: Some(to) } => {
            error!("{file}: {damage}; it was set aside as {}; learning again", to.display());
        }
        FoundState::SetAside { damage: StateDamage::Unreadable(source), new_path: None } => {
            error!(
                "{file}: it cannot be read: {source}; nothing is saved while it is there; \
                 learning again"
            );
            return (None, true);
        }
        FoundState::SetAside { damage, new_path: None } => {
            error!("{file}: {damage}, and it could not be set aside; learning again");
        }
    }
    (None, false)
}

impl<'a> MainLoop<'a> {
    /// Takes up the state that an earlier run saved. Does not open the machine yet.
    fn new(
        options: &'a DaemonOptions,
        settings: DaemonSettings,
        opener: &'a BackendOpener<'a>,
        clock: impl FnOnce(Duration) -> Box<dyn PolicyClock>,
        signals: SignalFlags,
    ) -> Self {
        let (mut saved, state_unreadable) = saved_state(&options.state_dir);
        let clock = clock(saved.as_ref().map_or(Duration::ZERO, |saved| saved.time));
        if let Some(saved) = saved.as_mut().filter(|saved| clock.now() < saved.time) {
            // Its times are in the future: policies would wait for them.
            saved.forget_learned(clock.now());
        }
        let earlier = saved
            .as_ref()
            .filter(|saved| saved.boot == options.host.boot && saved.wake_is_pending());
        let earlier_wake_pending = earlier.is_some();
        let earlier_backends = earlier.map(|saved| saved.backends.clone()).unwrap_or_default();
        let metrics = Arc::new(DaemonMetrics::new());
        let stop = Arc::clone(&signals.stop);
        Self {
            engine: DecisionEngine::new(
                settings,
                saved,
                options.host.clone(),
                Arc::clone(&metrics),
                stop,
            ),
            options,
            open_backend: opener,
            clock,
            metrics,
            signals,
            backend: None,
            what_if: None,
            reopen_pending: false,
            replaced: None,
            guard: None,
            trigger: None,
            cold: None,
            idle_cache: options.host.vmstat.is_some().then(|| IdleCache::under(Path::new("/"))),
            next_cache_look: None,
            pressure_error: None,
            metrics_server: None,
            listen_failed: false,
            wake_pending: false,
            earlier_wake_pending,
            earlier_backends,
            state_unreadable,
            guard_error: None,
            watchdog: Arc::new(SystemdWatchdog::of_environment()),
            next_step: Instant::now(),
            retry_delay: FIRST_RETRY,
            last_error: None,
            permission_denied: false,
            saved_at: None,
            save_failed: false,
            status_failed: false,
            last_status: String::new(),
        }
    }
}

impl MainLoop<'_> {
    fn wait_and_work(&mut self) {
        loop {
            let longest = self.watchdog.notify_if_due();
            let until_step = self.next_step.saturating_duration_since(Instant::now());
            let pressed = self.wait(until_step.min(longest).min(self.until_cache_look()));
            self.signals.drain();
            if self.signals.stop.load(Ordering::Relaxed) {
                return;
            }
            if self.signals.reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            let now = self.clock.now();
            let (woken, failed) =
                self.guard.as_ref().map_or_else(Default::default, GuardThread::take);
            self.metrics.failed(failed);
            if woken > 0 {
                self.engine.add_guard_wake(woken, now);
                self.next_step = Instant::now();
            }
            if pressed && self.guard.as_ref().is_some_and(GuardThread::is_watching) {
                self.engine.stalled();
            } else if pressed {
                let real = self.backend.as_ref().map(|opened| &*opened.backend);
                let what_if = self.what_if.as_ref().map(|what_if| what_if as &dyn Backend);
                let busy = self.watchdog.busy(self.engine.settings().deadline + BEYOND_DEADLINE);
                self.engine.pressure(what_if.or(real), now);
                drop(busy);
                self.next_step = Instant::now();
                self.watchdog.notify_if_due();
            }
            self.look_at_cache();
            if Instant::now() >= self.next_step {
                self.step();
            }
        }
    }

    /// Waits at most this long. Returns whether tasks wait for memory.
    fn wait(&mut self, longest: Duration) -> bool {
        let timeout = Timespec::try_from(longest.min(Duration::from_hours(1))).ok();
        let trigger = self.trigger.as_ref().map_or(self.signals.wake_pipe.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::from_borrowed_fd(self.signals.wake_pipe.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(trigger, PollFlags::PRI),
        ];
        // A signal that interrupts it has left a byte in the socket.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return false;
        }
        let said = fds[1].revents();
        if self.trigger.is_some() && said.contains(PollFlags::ERR) {
            warn!("the kernel no longer reports tasks that wait for memory");
            self.trigger = None;
            self.metrics.set_pressure_watched(Some(false));
            return false;
        }
        self.trigger.is_some() && said.contains(PollFlags::PRI)
    }

    /// Why waiting will not help: the machine is closed to this user.
    fn lacks_privileges(&self, is_root: bool) -> Option<&str> {
        if is_root || !self.permission_denied {
            return None;
        }
        self.last_error.as_deref()
    }

    fn step(&mut self) {
        let began = Instant::now();
        let period = self.engine.settings().period;
        let now = self.clock.now();
        let seen = self.try_step(now);
        let decided = seen.is_ok();
        match seen {
            Ok(()) => {
                if self.last_error.take().is_some() {
                    info!("the machine can be read again");
                }
                self.retry_delay = FIRST_RETRY;
                self.next_step = began + period;
                if self.wake_pending {
                    self.wake_all(WAKE_AT_RELOAD);
                }
                self.guard();
            }
            Err(error) => {
                let text = error.to_string();
                // Logged once, not at every attempt, and not if the end of the daemon cut it short.
                if self.signals.stop.load(Ordering::Relaxed) {
                    debug!(%error, "the machine was not read: the daemon ends");
                } else if self.last_error.as_ref() == Some(&text) {
                    debug!(%error, retry = ?self.retry_delay, "the machine still cannot be read");
                } else {
                    warn!(%error, "the machine cannot be read: trying again at growing intervals");
                }
                self.engine.set_error(&error);
                self.permission_denied = error.kind() == BackendErrorKind::Permission;
                self.reopen_pending = true;
                // The guard of the open backend goes on, or the metrics show that it does not.
                self.guard();
                self.last_error = Some(text);
                self.next_step = Instant::now() + self.retry_delay.max(period.min(FIRST_RETRY));
                self.retry_delay = (self.retry_delay * 2).min(LONGEST_RETRY);
            }
        }
        if self.metrics_server.is_none() {
            self.listen();
        }
        if self.trigger.is_none() {
            self.watch_pressure();
        }
        self.steer_cold();
        self.offer_prices();
        self.save_if_due();
        self.report_status();
        if decided {
            // Last, so that a reader of this metric finds the state and status of this step.
            self.metrics.stepped(began.elapsed(), time_of_day(), period);
        }
        self.watchdog.notify_if_due();
    }

    fn try_step(&mut self, now: Duration) -> Result<(), BackendError> {
        if self.has_only_cache() {
            self.do_without_slices();
            return Ok(());
        }
        self.open()?;
        self.wake_replaced(WAKE_AT_RELOAD);
        self.guard();
        // Only slices that really go offline need a guard.
        let mode = self.engine.settings().mode;
        self.engine.set_guard_error(self.guard_error.clone().filter(|_| mode == DaemonMode::On));
        let Some(opened) = &self.backend else { return Ok(()) };
        let _busy = self.watchdog.busy(self.engine.longest_requests() + BEYOND_DEADLINE);
        match mode {
            DaemonMode::On => self.engine.step(&*opened.backend, opened.kind, now),
            DaemonMode::Off => self.engine.watch(&*opened.backend, opened.kind, now),
            DaemonMode::Observe => {
                if self.what_if.is_none() {
                    let info = opened
                        .backend
                        .info()
                        .inspect_err(|error| self.metrics.look(Duration::ZERO, Some(error)))?;
                    let memory = self.engine.saved_what_if(&info).unwrap_or_default();
                    let backend = Arc::clone(&opened.backend);
                    self.what_if = Some(WhatIfBackend::with_memory(backend, memory));
                }
                let Some(what_if) = &self.what_if else { return Ok(()) };
                self.engine.step(what_if, opened.kind, now)
            }
        }
    }

    /// Opens the machine if it is not open, or again if it failed. Until that succeeds, the backend
    /// that was open goes on guarding and waking.
    fn open(&mut self) -> Result<(), BackendError> {
        if self.backend.is_some() && !self.reopen_pending {
            return Ok(());
        }
        let opened = (self.open_backend)(self.engine.settings(), &self.keep_going())
            .inspect_err(|error| self.metrics.look(Duration::ZERO, Some(error)))?;
        let kind = opened.kind;
        // The guard of the previous backend stays until this one has its own: a machine that can
        // be opened cannot always be watched.
        let backend = Arc::clone(&opened.backend);
        self.what_if = self.what_if.take().map(|what_if| what_if.around(backend));
        let becomes_stock = opened.guardable.is_some();
        let before = self.backend.replace(opened).filter(|_| !becomes_stock);
        let leaves_stock = before.is_some_and(|before| self.leave_stock(before));
        if !leaves_stock && self.replaced.take_if(|replaced| replaced.kind == kind).is_some() {
            // The same kind again, which knows what is offline.
            self.wake_pending |= self.engine.settings().mode != DaemonMode::On;
        }
        self.reopen_pending = false;
        let earlier = std::mem::take(&mut self.earlier_backends);
        // Older state does not name the backend.
        let of_this = earlier.is_empty() || earlier.iter().any(|earlier| earlier == kind);
        if std::mem::take(&mut self.earlier_wake_pending)
            && of_this
            && self.engine.settings().mode != DaemonMode::On
            && self.wakes_at_stop()
        {
            info!(
                "an earlier run left slices offline: they are woken, because the mode is no \
                 longer on"
            );
            self.wake_pending = true;
        }
        for other in earlier.into_iter().filter(|earlier| earlier != kind) {
            self.take_over(other);
        }
        self.guard();
        Ok(())
    }

    /// The backend is no longer used. Whether it may have blocks of a stock kernel offline: they
    /// are woken, if the settings say so.
    fn leave_stock(&mut self, before: OpenedBackend) -> bool {
        // Without a guard, this daemon has nothing offline by memory hotplug.
        if self.guard.is_none() || before.guardable.is_none() {
            return false;
        }
        if self.wakes(true) {
            info!("the stock backend is no longer used: what it took offline is woken");
            self.replaced = Some(before);
            self.wake_pending = false;
        } else {
            warn!(
                "the stock backend is no longer used: by stop.slices, what it took offline stays \
                 so, and nothing wakes it when memory runs short"
            );
        }
        true
    }

    /// What long reads ask whether to go on.
    fn keep_going(&self) -> KeepGoing {
        let (stop, watchdog) = (Arc::clone(&self.signals.stop), Arc::clone(&self.watchdog));
        Arc::new(move || {
            watchdog.notify_if_due();
            !stop.load(Ordering::Relaxed)
        })
    }

    /// Starts the guard that a stock kernel needs while the daemon has slices offline, or ends it.
    fn guard(&mut self) {
        let wanted = self.engine.settings().mode == DaemonMode::On || self.wake_pending;
        let guardable = self
            .backend
            .as_ref()
            .and_then(|opened| opened.guardable.clone())
            .filter(|_| wanted)
            .or_else(|| self.replaced.as_ref().and_then(|before| before.guardable.clone()));
        let before = self.guard_error.take();
        match (guardable, &self.guard) {
            (None, _) => self.guard = None,
            (Some(backend), Some(guard))
                if guard.is_watching() && guard.watches_backend(&backend) => {}
            (Some(backend), _) => {
                // A guard that only meets errors is replaced but goes on until then. So is one of
                // the previous backend, because requests to this one do not make way for it.
                let started = self.signals.waker.try_clone().map_err(|error| error.to_string());
                match started.and_then(|waker| {
                    GuardThread::start(backend, waker).map_err(|error| error.to_string())
                }) {
                    Ok(guard) => {
                        info!(floor = %guard.floor(), "a stock kernel: slices wake when less than \
                            this is available");
                        self.guard = Some(guard);
                    }
                    Err(error) => {
                        // Logged once, not at every attempt.
                        if before.as_ref() != Some(&error) {
                            warn!(
                                error,
                                "no guard watches whether memory runs short: no slice is switched \
                                 off"
                            );
                        }
                        self.guard_error = Some(error);
                    }
                }
            }
        }
        self.metrics.set_guarded(match (&self.guard, &self.guard_error) {
            (_, Some(_)) => Some(false),
            (guard, None) => guard.as_ref().map(|_| true),
        });
    }
}

#[cfg(test)]
mod backend_change_tests;
#[cfg(test)]
#[path = "main_loop_tests.rs"]
mod tests;
