//! What systemd is told: ready, reloading, stopping, alive. Without systemd nobody is told anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// The daemon is ready, or has reloaded its settings; with a sentence for `systemctl status`.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It reloads its settings. [`ready`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// It stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// A sentence for `systemctl status`.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// The watchdog, if systemd wants one.
#[derive(Debug)]
pub struct Watchdog {
    every: Option<Duration>,
    /// Until it is ready, systemd waits for it, but not for ever.
    starting: AtomicBool,
    last: Mutex<Instant>,
}

impl Watchdog {
    /// As the environment says.
    pub fn of_environment() -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        Self { every, starting: AtomicBool::new(true), last: Mutex::new(Instant::now()) }
    }

    /// The daemon is ready.
    pub fn started(&self) {
        self.starting.store(false, Ordering::Relaxed);
    }

    /// Says that the daemon is alive, if it is time, and how long the next wait may be at most. While it starts, systemd is asked
    /// for more time.
    pub fn feed(&self) -> Duration {
        let Some(every) = self.every else { return Duration::MAX };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= every {
            tell(&[NotifyState::Watchdog]);
            if self.starting.load(Ordering::Relaxed) {
                let more = u32::try_from((every * 3).as_micros()).unwrap_or(u32::MAX);
                tell(&[NotifyState::ExtendTimeoutUsec(more)]);
            }
            *last = Instant::now();
        }
        every.saturating_sub(last.elapsed())
    }
}
