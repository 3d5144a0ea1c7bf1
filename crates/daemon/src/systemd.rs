//! Notifies systemd: ready, reloading, stopping, alive. Without systemd this does nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd could not be notified");
    }
}

/// The daemon is ready, or has reloaded its settings. `status` is a sentence for `systemctl
/// status`.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The daemon reloads its settings. [`ready`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The daemon stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// A sentence for `systemctl status`.
pub fn status(text: &str) {
    notify(&[NotifyState::Status(text)]);
}

/// The watchdog, if systemd wants one.
#[derive(Debug)]
pub struct SystemdWatchdog {
    interval: Option<Duration>,
    /// The daemon is not ready so far: systemd waits for it, but not for ever.
    is_starting: AtomicBool,
    last_notification: Mutex<Instant>,
}

impl SystemdWatchdog {
    /// As systemd's environment asks for.
    pub fn of_environment() -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        Self {
            interval: every,
            is_starting: AtomicBool::new(true),
            last_notification: Mutex::new(Instant::now()),
        }
    }

    /// The daemon is ready.
    pub fn started(&self) {
        self.is_starting.store(false, Ordering::Relaxed);
    }

    /// Notifies systemd that the daemon is alive, if that is due. Returns how long the next wait
    /// may
    /// be at most. While the daemon starts, this asks systemd for more time.
    pub fn notify_if_due(&self) -> Duration {
        let Some(every) = self.interval else { return Duration::MAX };
        let mut last = self.last_notification.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= every {
            notify(&[NotifyState::Watchdog]);
            if self.is_starting.load(Ordering::Relaxed) {
                let more = u32::try_from((every * 3).as_micros()).unwrap_or(u32::MAX);
                notify(&[NotifyState::ExtendTimeoutUsec(more)]);
            }
            *last = Instant::now();
        }
        every.saturating_sub(last.elapsed())
    }
}
