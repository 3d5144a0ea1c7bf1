//! What the main loop keeps up to date: settings, metrics server, pressure trigger, saved state,
//! status and price file; and how it wakes slices and stops.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ramslice_types::Backend;
use tracing::{debug, error, info, warn};

use super::{BEYOND_DEADLINE, MainLoop, WAKE_AGAIN, WAKE_AT_RELOAD, WAKE_AT_STOP};
use crate::engine::STOCK;
use crate::metrics_server::MetricsServer;
use crate::mode::DaemonMode;
use crate::persisted_state::{self, PersistedState};
use crate::pressure_trigger::PressureTrigger;
use crate::price_watch::{self, PriceOffer};
use crate::settings::{BackendChoice, DaemonSettings, OnStop};
use crate::settings_warnings::memory_of_machine;
use crate::status::{self, DaemonStatus};
use crate::systemd;

impl MainLoop<'_> {
    /// Offers new prices in a file for the operator to install, if those in force no longer hold.
    pub(super) fn offer_prices(&mut self) {
        let path = self.options.state_dir.join(price_watch::FILE);
        match self.engine.offer() {
            None => {}
            Some(PriceOffer::Write(text)) => match persisted_state::replace(&path, &text) {
                Ok(()) => self.engine.prices().written(&path),
                Err(error) => {
                    let text = format!("{} cannot be written: {error}", path.display());
                    warn!("prices no longer hold, and {text}");
                    self.engine.prices().not_written(text);
                }
            },
            Some(PriceOffer::Remove) => match fs::remove_file(&path) {
                Ok(()) => info!("{} is out of date and was removed", path.display()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    warn!("{} is out of date and cannot be removed: {error}", path.display());
                }
            },
        }
    }

    pub(super) fn reload(&mut self) {
        systemd::reloading();
        let read = DaemonSettings::read(&self.options.config).map_err(|error| error.lines());
        match read.and_then(|settings| {
            self.engine.fits(&settings).map(|()| settings).map_err(|error| vec![error])
        }) {
            Ok(settings) => {
                let before = self.engine.settings().clone();
                if settings.mode == DaemonMode::On {
                    self.wake_pending = false;
                } else if before.mode == DaemonMode::On && self.wakes_at_stop() {
                    self.wake_all(WAKE_AT_RELOAD);
                }
                let size = |settings: &DaemonSettings| {
                    let plan = settings.worth.power();
                    (settings.resize_slices, plan.map(|plan| (plan.name(), plan.unit())))
                };
                if settings.mode != before.mode || size(&settings) != size(&before) {
                    self.what_if = None;
                }
                self.engine.set_settings(settings);
                self.warn_of_settings();
                let now = self.engine.settings();
                if now.listen != before.listen {
                    self.metrics_server = None;
                    self.listen_failed = false;
                    self.listen();
                }
                if self.engine.settings().pressure != before.pressure {
                    self.watch_pressure();
                }
                let now = self.engine.settings();
                if (now.backend, now.look_share) != (before.backend, before.look_share) {
                    self.reopen_pending = true;
                }
                self.metrics.reloaded(true);
                info!(mode = %self.engine.settings().mode, "the settings were read again");
                self.next_step = Instant::now();
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

    /// Logs what is probably not meant as it is set.
    pub(super) fn warn_of_settings(&self) {
        for warning in self.engine.settings().warnings(memory_of_machine()) {
            warn!("{warning}");
        }
    }

    /// Serves metrics if the settings ask for it. Each step tries again.
    pub(super) fn listen(&mut self) {
        let Some(address) = self.engine.settings().listen else { return };
        match MetricsServer::start(address, Arc::clone(&self.metrics)) {
            Ok(serving) => {
                info!("metrics at http://{}/metrics", serving.address());
                self.metrics_server = Some(serving);
                self.listen_failed = false;
            }
            Err(error) if !self.listen_failed => {
                error!("no metrics for now: cannot listen at {address}: {error}");
                self.listen_failed = true;
            }
            Err(_) => {}
        }
    }

    pub(super) fn watch_pressure(&mut self) {
        self.trigger = None;
        let pressure = self.engine.settings().pressure;
        let (Some(path), Some(stall)) = (&self.options.pressure, pressure.stall) else {
            return self.metrics.set_pressure_watched(None);
        };
        match PressureTrigger::open(path, stall, pressure.window) {
            Ok(trigger) => {
                self.trigger = Some(trigger);
                self.pressure_error = None;
            }
            Err(error) => {
                let error = format!("{}: {error}", path.display());
                // Logged once, not at every attempt.
                if self.pressure_error.as_ref() != Some(&error) {
                    info!("{error}; the daemon does not notice when tasks wait for memory");
                }
                self.pressure_error = Some(error);
            }
        }
        self.metrics.set_pressure_watched(Some(self.trigger.is_some()));
    }

    pub(super) fn wakes_at_stop(&self) -> bool {
        self.wakes(self.backend.as_ref().is_some_and(|opened| opened.guardable.is_some()))
    }

    /// Whether slices are woken that are offline by a backend of this kind, once it acts no longer.
    pub(super) fn wakes(&self, is_stock: bool) -> bool {
        match self.engine.settings().on_stop {
            OnStop::Leave => false,
            OnStop::Wake => true,
            OnStop::Auto => is_stock,
        }
    }

    /// Takes over what an earlier run of this boot left offline by another kind of backend than the
    /// open one, which does not know of it.
    pub(super) fn take_over(&mut self, kind: String) {
        let backend = if kind == STOCK { BackendChoice::Stock } else { BackendChoice::Kernel };
        let settings = DaemonSettings { backend, ..self.engine.settings().clone() };
        let found = (self.open_backend)(&settings, &self.keep_going()).and_then(|opened| {
            let zones = opened.backend.zones()?;
            Ok((opened, zones.iter().map(|zone| zone.nr_offline).sum::<u32>()))
        });
        match found {
            Ok((_, 0)) => {}
            Ok((opened, slices)) if self.wakes(opened.guardable.is_some()) => {
                info!(
                    backend = kind,
                    slices, "an earlier run left slices offline by another backend: they are woken"
                );
                self.replaced = Some(opened);
            }
            Ok((opened, slices)) if opened.guardable.is_some() => {
                warn!(
                    slices,
                    "an earlier run left slices offline by the stock backend: by stop.slices, \
                     they stay so, and nothing wakes them when memory runs short"
                );
            }
            Ok((_, slices)) => {
                info!(
                    slices,
                    "an earlier run left slices offline by the patched kernel: they stay so until \
                     it wakes them because memory is wanted"
                );
            }
            Err(error) => {
                warn!(
                    backend = kind,
                    %error,
                    "an earlier run may have left slices offline by another backend, which cannot \
                     be read: the next start tries again"
                );
                self.earlier_backends.push(kind);
            }
        }
    }

    /// Wakes every slice that is offline. Another program's request may delay this.
    pub(super) fn wake_all(&mut self, within: Duration) {
        self.wake_pending = true;
        let opening = self.open();
        let Some(opened) = &self.backend else {
            let why = opening.err().map_or_else(String::new, |error| error.to_string());
            warn!(why, "no slice could be woken; `ramslice online --all` tries again");
            return;
        };
        let backend = Arc::clone(&opened.backend);
        self.wake_pending = !self.wake_all_of(&*backend, within);
        if self.wake_pending {
            warn!("not all slices could be woken; `ramslice online --all` tries again");
            self.guard();
        }
    }

    /// Wakes what a backend took offline that another kind has replaced. Until all of it is online,
    /// each step tries again, and a guard watches over blocks of a stock backend.
    pub(super) fn wake_replaced(&mut self, within: Duration) {
        let Some(before) = self.replaced.take() else { return };
        if self.wake_all_of(&*before.backend, within) {
            return;
        }
        warn!(
            backend = before.kind,
            "not all slices could be woken that another backend took offline; each step tries again"
        );
        self.replaced = Some(before);
        self.guard();
    }

    /// Returns whether all of the backend's slices are awake.
    fn wake_all_of(&mut self, backend: &dyn Backend, within: Duration) -> bool {
        // The guard would be in the way. The caller starts it again if something stays offline.
        self.guard = None;
        let until = Instant::now() + within;
        let _busy = self.watchdog.busy(within + BEYOND_DEADLINE);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.engine.wake_all(backend, left.max(WAKE_AGAIN)) {
                return true;
            }
            if left <= WAKE_AGAIN {
                return false;
            }
            std::thread::sleep(WAKE_AGAIN);
        }
    }

    pub(super) fn save_if_due(&mut self) {
        let every = self.engine.settings().save;
        if self.saved_at.is_none_or(|at| at.elapsed() >= every) || self.engine.has_acted() {
            self.save(
                self.wake_pending
                    || self.replaced.is_some()
                    || self.earlier_wake_pending
                    || !self.earlier_backends.is_empty()
                    || self.engine.settings().mode == DaemonMode::On,
            );
        }
    }

    /// Saves the state. `wake_pending`: a later run in another mode is to wake what is offline, if
    /// its settings say so.
    pub(super) fn save(&mut self, wake_pending: bool) {
        let Some(memory) = self.engine.persisted_state() else { return };
        let acts = self.wake_pending || self.engine.settings().mode == DaemonMode::On;
        let open = self.backend.as_ref().filter(|_| acts).into_iter().chain(&self.replaced);
        let mut backends = self.earlier_backends.clone();
        backends.extend(open.map(|opened| opened.kind.to_owned()));
        let mut memory = PersistedState { wake_pending: Some(wake_pending), backends, ..memory };
        if let Some(what_if) = &self.what_if {
            memory.what_if = what_if.memory();
        }
        self.saved_at = Some(Instant::now());
        let dir = &self.options.state_dir;
        self.state_unreadable = self.state_unreadable && dir.join(persisted_state::FILE).exists();
        if self.state_unreadable {
            return self.metrics.saved(false);
        }
        let result = persisted_state::write(dir, &memory);
        self.metrics.saved(result.is_ok());
        let failed = result.is_err();
        match result {
            Ok(()) if self.save_failed => info!("the state can be written again"),
            Err(error) if !self.save_failed => {
                error!(
                    "the state cannot be written to {}: {error}",
                    self.options.state_dir.display()
                );
            }
            _ => {}
        }
        self.save_failed = failed;
    }

    /// Writes the status file, and sends a sentence to systemd.
    pub(super) fn report_status(&mut self) {
        let next = self.next_step.saturating_duration_since(Instant::now());
        let status = self.status(next);
        let result = status.write(&self.options.runtime_dir);
        if let (Err(error), false) = (&result, self.status_failed) {
            warn!(
                "the status cannot be written to {}: {error}",
                self.options.runtime_dir.display()
            );
        }
        self.status_failed = result.is_err();
        let sentence = sentence(&status);
        if sentence != self.last_status {
            systemd::status(&sentence);
            self.last_status = sentence;
        }
    }

    fn status(&self, next: Duration) -> DaemonStatus {
        let mut status = DaemonStatus {
            cold: self.cold_status(),
            idle_cache: self.idle_cache_status(),
            ..self.engine.status(next)
        };
        if self.has_only_cache() {
            status.why = format!("a kernel without ramslice: {}", status.idle_cache.why);
        }
        status
    }

    pub(super) fn sentence(&self) -> String {
        sentence(&self.status(Duration::ZERO))
    }

    pub(super) fn stop(&mut self) {
        systemd::stopping();
        // While slices wake.
        if let Some(cold) = &self.cold {
            cold.begin_end();
        }
        let on = self.engine.settings().mode == DaemonMode::On;
        if (on || self.earlier_wake_pending) && self.open().is_err() {
            debug!("the machine cannot be opened again: the backend that is open is used");
        }
        let wakes = self.wake_pending || on && self.wakes_at_stop();
        let until = Instant::now() + WAKE_AT_STOP;
        self.wake_replaced(WAKE_AT_STOP);
        if wakes {
            self.wake_all(until.saturating_duration_since(Instant::now()));
        }
        self.guard = None;
        self.cold = None;
        let is_left = if wakes { self.wake_pending } else { self.earlier_wake_pending || on };
        self.save(is_left || self.replaced.is_some() || !self.earlier_backends.is_empty());
        // A reader would take it for current.
        let _ = fs::remove_file(self.options.runtime_dir.join(status::FILE));
        if let Some(given_back) = self.engine.given_back() {
            info!("so far, the daemon {}", given_back.sentence);
        }
        info!("stopped");
    }
}

/// What systemd is told.
fn sentence(status: &DaemonStatus) -> String {
    format!("{}: {}", status.mode, status.why)
}
