//! The loop: waits for the next look, a signal, pressure or the guard, and keeps systemd, the state and the status up
//! to date. The only part of the daemon that waits.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ramslice_backend::WhatIfBackend;
use ramslice_types::{Backend, BackendError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::guard_thread::Guarding;
use crate::host_files::Host;
use crate::metrics::{Metrics, time_of_day};
use crate::metrics_server::Serving;
use crate::mode::Mode;
use crate::open_backend::{GoesOn, Opened, Opener};
use crate::persisted_state::{self, Damage, Found, Memory};
use crate::pressure_trigger::Trigger;
use crate::price_watch::{self, Offer};
use crate::settings::{OnStop, Settings};
use crate::signals::Signals;
use crate::status;
use crate::systemd::{self, Watchdog};

/// The first wait after the machine could not be seen; then twice as long each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// How long it tries to wake everything before it ends: systemd waits for longer.
const WAKE_AT_STOP: Duration = Duration::from_mins(1);
/// The same when the mode is no longer on; it tries again at each look.
const WAKE_AT_RELOAD: Duration = Duration::from_secs(5);
/// Between two of these tries.
const WAKE_AGAIN: Duration = Duration::from_millis(200);

/// Where things are.
#[derive(Debug, Clone)]
pub struct Options {
    /// The settings.
    pub config: PathBuf,
    /// What was learned.
    pub state_dir: PathBuf,
    /// The status.
    pub runtime_dir: PathBuf,
    /// `/proc/pressure/memory`, or nothing where it would be another machine's.
    pub pressure: Option<PathBuf>,
    /// The machine's own files.
    pub host: Host,
}

/// Everything that lasts from step to step.
struct Daemon<'a> {
    options: &'a Options,
    opener: &'a Opener<'a>,
    clock: Box<dyn Clock>,
    engine: Engine,
    metrics: Arc<Metrics>,
    signals: Signals,
    opened: Option<Opened>,
    /// In mode observe: the machine that is open, on which requests are only worked out.
    what_if: Option<WhatIfBackend<Arc<dyn Backend>>>,
    /// The way that is open failed, or another one is wanted: it and its guard stay until another is open.
    stale: bool,
    guard: Option<Guarding>,
    trigger: Option<Trigger>,
    /// Why the kernel does not tell when tasks wait for memory, though somebody wants to know.
    untold: Option<String>,
    serving: Option<Serving>,
    /// Nobody serves the metrics, though somebody should, and the log says why.
    deaf: bool,
    /// The mode is no longer on, and something that the daemon switched off is to be woken still.
    owing: bool,
    /// An earlier run of this boot ended while it owed, or in mode on. What comes of it depends on the machine.
    owed: bool,
    /// What was learned before is where it would be written to, and could not be read.
    unread: bool,
    /// Why nobody watches whether memory runs short, though somebody should.
    unguarded: Option<String>,
    watchdog: Arc<Watchdog>,
    due: Instant,
    retry: Duration,
    last_error: Option<String>,
    saved_at: Option<Instant>,
    save_failed: bool,
    status_failed: bool,
    /// The sentence that systemd was told last.
    told: String,
}

/// Runs until it is told to stop.
///
/// # Errors
/// If it cannot even begin: signals, or the state directory.
pub fn run(
    options: &Options,
    settings: Settings,
    opener: &Opener<'_>,
    clock: impl FnOnce(Duration) -> Box<dyn Clock>,
) -> Result<()> {
    let signals = Signals::install()?;
    for dir in [&options.state_dir, &options.runtime_dir] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    // Two would write over each other's state, and wake what the other has switched off.
    let dir = options.state_dir.display();
    let _alone = match memory::alone(&options.state_dir) {
        Ok(None) => bail!("another ramsliced is at work with {dir}: systemctl status ramsliced"),
        Ok(lock) => lock,
        Err(error) => {
            warn!("{dir} cannot be locked against another ramsliced: {error}");
            None
        }
    };
    let mut daemon = Daemon::new(options, settings, opener, clock, signals);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = %daemon.engine.settings().mode,
        policy = %daemon.engine.settings().policy.policy,
        profile = daemon.engine.settings().energy.name(),
        "begins"
    );
    daemon.listen();
    daemon.watch_pressure();
    daemon.step();
    daemon.watchdog.started();
    systemd::ready(&daemon.sentence());
    daemon.wait_and_work();
    daemon.stop();
    Ok(())
}

/// Wakes what an earlier run of this boot has left off on a stock kernel, as with default settings: there are none that hold, so
/// nobody else would. The patched kernel wakes by itself, and what is owed there stays so.
///
/// # Errors
/// If signals cannot be handled.
pub fn wake_owed(
    options: &Options,
    opener: &Opener<'_>,
    clock: fn(Duration) -> Box<dyn Clock>,
) -> Result<()> {
    // Somebody may try settings by hand while the service is at work, or before anything ever was.
    let _alone = match memory::alone(&options.state_dir) {
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(lock) => lock,
        // What is off wakes nevertheless: waking twice does no harm
        Err(error) => {
            warn!(
                "{} cannot be locked against another ramsliced: {error}",
                options.state_dir.display()
            );
            None
        }
    };
    let mut daemon = Daemon::new(options, Settings::defaults(), opener, clock, Signals::install()?);
    let owed = daemon.owed;
    if owed
        && daemon.open().is_ok()
        && daemon.opened.as_ref().is_some_and(|opened| opened.guarded.is_some())
    {
        daemon.stop();
    }
    Ok(())
}

/// What was learned before; and whether it must not be written over, for it could not be read.
fn remembered(dir: &Path) -> (Option<Memory>, bool) {
    let file = dir.join(memory::FILE);
    let file = file.display();
    match memory::read(dir) {
        Found::Good(memory) => return (Some(*memory), false),
        Found::Nothing => info!(dir = %dir.display(), "nothing was learned before"),
        Found::SetAside { damage, to: Some(to) } => {
            error!("{file}: {damage}; it was set aside as {}, learning anew", to.display());
        }
        Found::SetAside { damage: Damage::Unreadable(source), to: None } => {
            error!(
                "{file}: it cannot be read: {source}; nothing is saved as long as it is there, learning anew"
            );
            return (None, true);
        }
        Found::SetAside { damage, to: None } => {
            error!("{file}: {damage}, and it could not be set aside; learning anew");
        }
    }
    (None, false)
}

impl<'a> Daemon<'a> {
    /// With what an earlier run remembered. Nothing is opened yet.
    fn new(
        options: &'a Options,
        settings: Settings,
        opener: &'a Opener<'a>,
        clock: impl FnOnce(Duration) -> Box<dyn Clock>,
        signals: Signals,
    ) -> Self {
        let (mut saved, unread) = remembered(&options.state_dir);
        let clock = clock(saved.as_ref().map_or(Duration::ZERO, |saved| saved.time));
        if let Some(saved) = saved.as_mut().filter(|saved| clock.now() < saved.time) {
            // It waits for times that are yet to come.
            saved.forget_learned(clock.now());
        }
        let owed =
            saved.as_ref().is_some_and(|saved| saved.boot == options.host.boot && saved.owes());
        let metrics = Arc::new(Metrics::new());
        let stop = Arc::clone(&signals.stop);
        Self {
            engine: Engine::new(settings, saved, options.host.clone(), Arc::clone(&metrics), stop),
            options,
            opener,
            clock,
            metrics,
            signals,
            opened: None,
            what_if: None,
            stale: false,
            guard: None,
            trigger: None,
            untold: None,
            serving: None,
            deaf: false,
            owing: false,
            owed,
            unread,
            unguarded: None,
            watchdog: Arc::new(Watchdog::of_environment()),
            due: Instant::now(),
            retry: FIRST_RETRY,
            last_error: None,
            saved_at: None,
            save_failed: false,
            status_failed: false,
            told: String::new(),
        }
    }
}

impl Daemon<'_> {
    fn wait_and_work(&mut self) {
        loop {
            let longest = self.watchdog.feed();
            let pressed =
                self.wait(self.due.saturating_duration_since(Instant::now()).min(longest));
            self.signals.drain();
            if self.signals.stop.load(Ordering::Relaxed) {
                return;
            }
            if self.signals.reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            let now = self.clock.now();
            let (woken, failed) = self.guard.as_ref().map_or_else(Default::default, Guarding::take);
            self.metrics.failed(failed);
            if woken > 0 {
                self.engine.woken_by_guard(woken, now);
                self.due = Instant::now();
            }
            if pressed && self.guard.as_ref().is_some_and(Guarding::watches) {
                self.engine.stalled();
            } else if pressed {
                let real = self.opened.as_ref().map(|opened| &*opened.backend);
                let what_if = self.what_if.as_ref().map(|what_if| what_if as &dyn Backend);
                self.engine.pressure(what_if.or(real), now);
                self.due = Instant::now();
                self.watchdog.feed();
            }
            if Instant::now() >= self.due {
                self.step();
            }
        }
    }

    /// Waits for at most this long. Says whether tasks wait for memory.
    fn wait(&mut self, longest: Duration) -> bool {
        let timeout = Timespec::try_from(longest.min(Duration::from_hours(1))).ok();
        let trigger = self.trigger.as_ref().map_or(self.signals.woken.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::from_borrowed_fd(self.signals.woken.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(trigger, PollFlags::PRI),
        ];
        // A signal that breaks it off has left its byte.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return false;
        }
        let said = fds[1].revents();
        if self.trigger.is_some() && said.contains(PollFlags::ERR) {
            warn!("the kernel no longer tells of tasks that wait for memory");
            self.trigger = None;
            self.metrics.set_told(Some(false));
            return false;
        }
        self.trigger.is_some() && said.contains(PollFlags::PRI)
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
                    info!("the machine is seen again");
                }
                self.retry = FIRST_RETRY;
                self.due = began + period;
                if self.owing {
                    self.wake_all(WAKE_AT_RELOAD);
                }
                self.guard();
            }
            Err(error) => {
                let text = error.to_string();
                // Said once, not at every try.
                if self.last_error.as_ref() == Some(&text) {
                    debug!(%error, retry = ?self.retry, "still not");
                } else {
                    warn!(%error, "the machine cannot be seen: trying again, at longer and longer intervals");
                }
                self.engine.lost(&error);
                self.stale = true;
                // What is open still guards, or somebody is to know that it does not.
                self.guard();
                self.last_error = Some(text);
                self.due = Instant::now() + self.retry.max(period.min(FIRST_RETRY));
                self.retry = (self.retry * 2).min(LONGEST_RETRY);
            }
        }
        if self.serving.is_none() {
            self.listen();
        }
        if self.trigger.is_none() {
            self.watch_pressure();
        }
        self.offer_prices();
        self.save_if_due();
        self.tell();
        if decided {
            // Whoever sees that finds what was learned and the status as of this look.
            self.metrics.stepped(began.elapsed(), time_of_day(), period);
        }
        self.watchdog.feed();
    }

    /// Prices that no longer hold: what fits them, for the operator to install.
    fn offer_prices(&mut self) {
        let path = self.options.state_dir.join(prices::FILE);
        match self.engine.offer() {
            None => {}
            Some(Offer::Write(text)) => match memory::replace(&path, &text) {
                Ok(()) => self.engine.prices().written(&path),
                Err(error) => {
                    let text = format!("{} cannot be written: {error}", path.display());
                    warn!("prices no longer hold, and {text}");
                    self.engine.prices().not_written(text);
                }
            },
            Some(Offer::Remove) => match fs::remove_file(&path) {
                Ok(()) => info!("{} is of the past and was removed", path.display()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => warn!("{} is of the past, but stays: {error}", path.display()),
            },
        }
    }

    fn try_step(&mut self, now: Duration) -> Result<(), BackendError> {
        self.open()?;
        self.guard();
        // Only slices that really go off need a guard.
        let mode = self.engine.settings().mode;
        self.engine.set_unguarded(self.unguarded.clone().filter(|_| mode == Mode::On));
        let Some(opened) = &self.opened else { return Ok(()) };
        match mode {
            Mode::On => self.engine.step(&*opened.backend, opened.way, now),
            Mode::Off => self.engine.watch(&*opened.backend, opened.way, now),
            Mode::Observe => {
                if self.what_if.is_none() {
                    let info = opened
                        .backend
                        .info()
                        .inspect_err(|error| self.metrics.look(Duration::ZERO, Some(error)))?;
                    let memory = self.engine.remembered_what_if(&info).unwrap_or_default();
                    let backend = Arc::clone(&opened.backend);
                    self.what_if = Some(WhatIfBackend::with_memory(backend, memory));
                }
                let Some(what_if) = &self.what_if else { return Ok(()) };
                self.engine.step(what_if, opened.way, now)
            }
        }
    }

    /// Opens the machine if it is not open, or anew if it failed. Until that succeeds, what was open still guards and wakes.
    fn open(&mut self) -> Result<(), BackendError> {
        if self.opened.is_some() && !self.stale {
            return Ok(());
        }
        let (stop, watchdog) = (Arc::clone(&self.signals.stop), Arc::clone(&self.watchdog));
        let goes_on: GoesOn = Arc::new(move || {
            watchdog.feed();
            !stop.load(Ordering::Relaxed)
        });
        let opened = (self.opener)(self.engine.settings(), &goes_on)
            .inspect_err(|error| self.metrics.look(Duration::ZERO, Some(error)))?;
        // The guard of the way before stays until this one has its own: opening asks less of the machine than watching it.
        let backend = Arc::clone(&opened.backend);
        self.what_if = self.what_if.take().map(|what_if| what_if.around(backend));
        self.opened = Some(opened);
        self.stale = false;
        if std::mem::take(&mut self.owed)
            && self.engine.settings().mode != Mode::On
            && self.wakes_at_stop()
        {
            info!("an earlier run left slices off: they are to wake, for the mode is no longer on");
            self.owing = true;
        }
        self.guard();
        Ok(())
    }

    /// On a stock kernel somebody has to wake slices, as long as the daemon has any off.
    fn guard(&mut self) {
        let wanted = self.engine.settings().mode == Mode::On || self.owing;
        let guarded =
            self.opened.as_ref().and_then(|opened| opened.guarded.clone()).filter(|_| wanted);
        let before = self.unguarded.take();
        match (guarded, &self.guard) {
            (None, _) => self.guard = None,
            (Some(backend), Some(guard)) if guard.watches() && guard.is_of(&backend) => {}
            (Some(backend), _) => {
                // One that only meets errors goes on trying until there is another, and so does one of the way before: requests of
                // this one do not see that it waits.
                let started = self.signals.waker.try_clone().map_err(|error| error.to_string());
                match started.and_then(|tell| {
                    Guarding::start(backend, tell).map_err(|error| error.to_string())
                }) {
                    Ok(guard) => {
                        info!(floor = %guard.floor(), "a stock kernel: slices wake when less than this is available");
                        self.guard = Some(guard);
                    }
                    Err(error) => {
                        // Said once, not at every try.
                        if before.as_ref() != Some(&error) {
                            warn!(
                                error,
                                "nobody watches whether memory runs short: no slice is switched off"
                            );
                        }
                        self.unguarded = Some(error);
                    }
                }
            }
        }
        self.metrics.set_guarded(match (&self.guard, &self.unguarded) {
            (_, Some(_)) => Some(false),
            (guard, None) => guard.as_ref().map(|_| true),
        });
    }

    fn reload(&mut self) {
        systemd::reloading();
        let read = Settings::read(&self.options.config).map_err(|error| error.lines());
        match read.and_then(|settings| {
            self.engine.fits(&settings).map(|()| settings).map_err(|error| vec![error])
        }) {
            Ok(settings) => {
                let before = self.engine.settings().clone();
                if settings.mode == Mode::On {
                    self.owing = false;
                } else if before.mode == Mode::On && self.wakes_at_stop() {
                    self.wake_all(WAKE_AT_RELOAD);
                }
                if settings.mode != before.mode {
                    self.what_if = None;
                }
                self.engine.set_settings(settings);
                let now = self.engine.settings();
                if now.listen != before.listen {
                    self.serving = None;
                    self.deaf = false;
                    self.listen();
                }
                if self.engine.settings().pressure != before.pressure {
                    self.watch_pressure();
                }
                let now = self.engine.settings();
                if (now.backend, now.look_share) != (before.backend, before.look_share) {
                    self.stale = true;
                }
                self.metrics.reloaded(true);
                info!(mode = %self.engine.settings().mode, "the settings were read again");
                self.due = Instant::now();
            }
            Err(lines) => {
                self.metrics.reloaded(false);
                for line in lines {
                    error!("the settings are refused, the old ones stay: {line}");
                }
            }
        }
        systemd::ready(&self.sentence());
    }

    /// Serves metrics, if they are wanted; each look tries again.
    fn listen(&mut self) {
        let Some(address) = self.engine.settings().listen else { return };
        match Serving::start(address, Arc::clone(&self.metrics)) {
            Ok(serving) => {
                info!("metrics at http://{}/metrics", serving.address());
                if !serving.address().ip().is_loopback() && !self.deaf {
                    info!(
                        "the service as it is installed lets nobody else in: see IPAddressAllow= in its unit"
                    );
                }
                self.serving = Some(serving);
                self.deaf = false;
            }
            Err(error) if !self.deaf => {
                error!("no metrics until it succeeds: cannot listen at {address}: {error}");
                self.deaf = true;
            }
            Err(_) => {}
        }
    }

    fn watch_pressure(&mut self) {
        self.trigger = None;
        let pressure = self.engine.settings().pressure;
        let (Some(path), Some(stall)) = (&self.options.pressure, pressure.stall) else {
            return self.metrics.set_told(None);
        };
        match Trigger::open(path, stall, pressure.window) {
            Ok(trigger) => {
                self.trigger = Some(trigger);
                self.untold = None;
            }
            Err(error) => {
                let error = format!("{}: {error}", path.display());
                // Said once, not at every try.
                if self.untold.as_ref() != Some(&error) {
                    info!("{error}; the daemon does not see when tasks wait for memory");
                }
                self.untold = Some(error);
            }
        }
        self.metrics.set_told(Some(self.trigger.is_some()));
    }

    fn wakes_at_stop(&self) -> bool {
        let stock = self.opened.as_ref().is_some_and(|opened| opened.guarded.is_some());
        match self.engine.settings().on_stop {
            OnStop::Leave => false,
            OnStop::Wake => true,
            OnStop::Auto => stock,
        }
    }

    /// Wakes what is off. Another program's request may be in the way, and may take its time.
    fn wake_all(&mut self, within: Duration) {
        self.owing = true;
        let opening = self.open();
        let Some(opened) = &self.opened else {
            let why = opening.err().map_or_else(String::new, |error| error.to_string());
            warn!(why, "no slice could be woken; `ramslice online --all` tries again");
            return;
        };
        // It would be in the way, and is back if something stays off.
        self.guard = None;
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.owing = !self.engine.wake_all(&*opened.backend, left.max(WAKE_AGAIN));
            if !self.owing {
                return;
            }
            if left <= WAKE_AGAIN {
                warn!("not all slices could be woken; `ramslice online --all` tries again");
                return self.guard();
            }
            std::thread::sleep(WAKE_AGAIN);
        }
    }

    fn save_if_due(&mut self) {
        let every = self.engine.settings().save;
        if self.saved_at.is_none_or(|at| at.elapsed() >= every) || self.engine.acted() {
            self.save(self.owing || self.owed || self.engine.settings().mode == Mode::On);
        }
    }

    /// `owes`: whoever begins next in another mode is to wake what is off, if the settings say so.
    fn save(&mut self, owes: bool) {
        let Some(memory) = self.engine.memory() else { return };
        let mut memory = Memory { owing: Some(owes), ..memory };
        if let Some(what_if) = &self.what_if {
            memory.shadow = what_if.memory();
        }
        self.saved_at = Some(Instant::now());
        let dir = &self.options.state_dir;
        self.unread = self.unread && dir.join(memory::FILE).exists();
        if self.unread {
            return self.metrics.saved(false);
        }
        let result = memory::write(dir, &memory);
        self.metrics.saved(result.is_ok());
        let failed = result.is_err();
        match result {
            Ok(()) if self.save_failed => info!("what was learned can be written again"),
            Err(error) if !self.save_failed => {
                error!(
                    "what was learned cannot be written to {}: {error}",
                    self.options.state_dir.display()
                );
            }
            _ => {}
        }
        self.save_failed = failed;
    }

    /// The status file, and a sentence for systemd.
    fn tell(&mut self) {
        let next = self.due.saturating_duration_since(Instant::now());
        let result = self.engine.status(next).write(&self.options.runtime_dir);
        if let (Err(error), false) = (&result, self.status_failed) {
            warn!(
                "the status cannot be written to {}: {error}",
                self.options.runtime_dir.display()
            );
        }
        self.status_failed = result.is_err();
        let sentence = self.sentence();
        if sentence != self.told {
            systemd::status(&sentence);
            self.told = sentence;
        }
    }

    fn sentence(&self) -> String {
        let status = self.engine.status(Duration::ZERO);
        format!("{}: {}", status.mode, status.why)
    }

    fn stop(&mut self) {
        systemd::stopping();
        let on = self.engine.settings().mode == Mode::On;
        if (on || self.owed) && self.open().is_err() {
            debug!("the machine cannot be opened anew: what was open has to do");
        }
        let wakes = self.owing || on && self.wakes_at_stop();
        if wakes {
            self.wake_all(WAKE_AT_STOP);
        }
        self.guard = None;
        self.save(if wakes { self.owing } else { self.owed || on });
        // Whoever reads it would take it for the present.
        let _ = fs::remove_file(self.options.runtime_dir.join(status::FILE));
        info!("stopped");
    }
}

#[cfg(test)]
#[path = "main_loop_tests.rs"]
mod tests;
