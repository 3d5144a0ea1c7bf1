//! The time by which policies decide: the time of day, but it never goes back and never leaps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

/// A clock that was set back by more than this was wrong before. Time zones differ by less.
const MOST_AHEAD: Duration = Duration::from_hours(26);

/// A clock for policies.
pub trait PolicyClock {
    /// The time since 1970. It goes on across restarts and never goes back.
    fn now(&self) -> Duration;
}

/// The time of day when it was made plus the time since then, so that setting the clock does not
/// matter.
#[derive(Debug)]
pub struct DayClock {
    began: Duration,
    boot: Duration,
}

impl DayClock {
    /// Starts now, or at `last`, the time that an earlier run saved, if that is later. If `last` is
    /// so
    /// far ahead that the clock must have been wrong then, it is ignored: the time would stay
    /// wrong.
    pub fn after(last: Duration) -> Self {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = last.saturating_sub(day);
        if ahead > MOST_AHEAD {
            warn!(
                hours = ahead.as_secs() / 3600,
                "the clock was ahead when the state was saved: continuing with the time of day"
            );
        }
        Self { began: if ahead > MOST_AHEAD { day } else { day.max(last) }, boot: since_boot() }
    }
}

impl PolicyClock for DayClock {
    fn now(&self) -> Duration {
        self.began + since_boot().saturating_sub(self.boot)
    }
}

/// The time since boot, including suspension.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_where_an_earlier_run_was_though_the_day_was_set_back_meanwhile() {
        let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_hours(1);
        let clock = DayClock::after(later);
        let (first, second) = (clock.now(), clock.now());
        assert!(first >= later && second >= first && second < later + Duration::from_mins(10));
    }

    #[test]
    fn a_clock_that_was_years_ahead_does_not_stay_so() {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = DayClock::after(day + Duration::from_hours(24 * 365)).now();
        assert!(now >= day && now < day + Duration::from_mins(10));
    }
}
