//! Notifies systemd: ready, reloading, stopping, alive. Without systemd this does nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// How long the watchdog's thread waits at most if nothing happens.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// What sends notifications to systemd.
type NotificationSender = Box<dyn Fn(&[NotifyState<'_>]) + Send + Sync>;

/// The watchdog, if systemd wants one.
///
/// The main loop notifies systemd between its tasks. While a request runs it cannot: so it says
/// before how long the task may take at most, and until then a thread of this watchdog notifies
/// systemd. A task that takes longer has hung, and systemd ends the daemon.
pub struct SystemdWatchdog {
    shared: Arc<WatchdogShared>,
}

struct WatchdogShared {
    interval: Option<Duration>,
    /// The daemon is not ready so far: systemd waits for it, but not for ever.
    is_starting: AtomicBool,
    times: Mutex<WatchdogTimes>,
    changed: Condvar,
    send: NotificationSender,
}

struct WatchdogTimes {
    last_notification: Instant,
    /// Until then, the main loop may be busy.
    busy_until: Option<Instant>,
    ended: bool,
}

impl SystemdWatchdog {
    /// As systemd's environment asks for.
    pub fn of_environment() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        Self::with_sender(interval, Box::new(notify))
    }

    /// Notifies by way of `send` at each interval, if there is one.
    pub(crate) fn with_sender(interval: Option<Duration>, send: NotificationSender) -> Self {
        let times =
            WatchdogTimes { last_notification: Instant::now(), busy_until: None, ended: false };
        let shared = Arc::new(WatchdogShared {
            interval,
            is_starting: AtomicBool::new(true),
            times: Mutex::new(times),
            changed: Condvar::new(),
            send,
        });
        if let Some(interval) = interval {
            let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn({
                let shared = Arc::clone(&shared);
                move || shared.notify_while_busy(interval)
            });
            if let Err(error) = thread {
                tracing::warn!(
                    "no thread notifies systemd during long requests, which may end the daemon: \
                     {error}"
                );
            }
        }
        Self { shared }
    }

    /// The daemon is ready.
    pub fn started(&self) {
        self.shared.is_starting.store(false, Ordering::Relaxed);
    }

    /// Notifies systemd that the daemon is alive, if that is due. Returns how long the next wait
    /// may be at most. While the daemon starts, this asks systemd for more time.
    pub fn notify_if_due(&self) -> Duration {
        let Some(interval) = self.shared.interval else { return Duration::MAX };
        self.shared.notify_if_due(&mut self.shared.lock(), interval)
    }

    /// The caller is busy until the result is dropped, but no longer than this. Systemd is notified
    /// meanwhile.
    #[must_use]
    pub fn busy(&self, at_most: Duration) -> BusyTime {
        let until = Instant::now() + at_most;
        let mut times = self.shared.lock();
        let before = times.busy_until;
        times.busy_until = Some(before.map_or(until, |before| before.max(until)));
        self.shared.changed.notify_all();
        BusyTime { shared: Arc::clone(&self.shared), before }
    }
}

impl Drop for SystemdWatchdog {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}

impl WatchdogShared {
    fn lock(&self) -> MutexGuard<'_, WatchdogTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_if_due(&self, times: &mut WatchdogTimes, interval: Duration) -> Duration {
        if times.last_notification.elapsed() >= interval {
            (self.send)(&[NotifyState::Watchdog]);
            if self.is_starting.load(Ordering::Relaxed) {
                let more = u32::try_from((interval * 3).as_micros()).unwrap_or(u32::MAX);
                (self.send)(&[NotifyState::ExtendTimeoutUsec(more)]);
            }
            times.last_notification = Instant::now();
        }
        interval.saturating_sub(times.last_notification.elapsed())
    }

    fn notify_while_busy(&self, interval: Duration) {
        let mut times = self.lock();
        while !times.ended {
            let is_busy = times.busy_until.is_some_and(|until| Instant::now() < until);
            let wait =
                if is_busy { self.notify_if_due(&mut times, interval) } else { LONGEST_WAIT };
            times = self
                .changed
                .wait_timeout(times, wait)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(times, _)| times);
        }
    }
}

/// A task of the main loop that may take long. It ends when this is dropped.
pub struct BusyTime {
    shared: Arc<WatchdogShared>,
    /// A longer task that this one is a part of.
    before: Option<Instant>,
}

impl Drop for BusyTime {
    fn drop(&mut self) {
        self.shared.lock().busy_until = self.before;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_busy_daemon_is_alive_for_as_long_as_it_may_be_and_no_longer() {
        let count = Arc::new(AtomicU32::new(0));
        let interval = Duration::from_millis(20);
        let watchdog = SystemdWatchdog::with_sender(Some(interval), {
            let count = Arc::clone(&count);
            Box::new(move |_| {
                let _ = count.fetch_add(1, Ordering::Relaxed);
            })
        });
        watchdog.started();
        std::thread::sleep(interval * 5);
        assert_eq!(count.load(Ordering::Relaxed), 0, "the main loop itself is to notify systemd");
        let began = Instant::now();
        let busy = watchdog.busy(Duration::from_secs(1));
        while count.load(Ordering::Relaxed) < 3 {
            assert!(began.elapsed() < Duration::from_mins(1), "it looks dead while it is busy");
            std::thread::sleep(interval);
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()) + interval * 5);
        let after = count.load(Ordering::Relaxed);
        std::thread::sleep(interval * 5);
        assert_eq!(count.load(Ordering::Relaxed), after, "it hangs and looks alive");
        drop(busy);
    }
}
