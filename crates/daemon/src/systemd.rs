//! What systemd is told: ready, reloading, stopping, alive. Without systemd nobody is told anything.

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
    last: Instant,
}

impl Watchdog {
    /// As the environment says.
    pub fn of_environment() -> Self {
        Self { every: sd_notify::watchdog_enabled().map(|limit| limit / 3), last: Instant::now() }
    }

    /// Says that the daemon is alive, if it is time, and how long the next wait may be at most.
    pub fn feed(&mut self) -> Duration {
        let Some(every) = self.every else { return Duration::MAX };
        if self.last.elapsed() >= every {
            tell(&[NotifyState::Watchdog]);
            self.last = Instant::now();
        }
        every.saturating_sub(self.last.elapsed())
    }
}
