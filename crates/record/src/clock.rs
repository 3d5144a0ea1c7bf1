//! The clocks: one that goes on during suspend, and the calendar, read together.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::schema::WallTime;

/// The same moment on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// `CLOCK_BOOTTIME`, in microseconds.
    pub boottime_us: i64,
    /// `CLOCK_REALTIME`.
    pub realtime: WallTime,
}

impl ClockReading {
    /// Now.
    pub fn now() -> Self {
        Self {
            boottime_us: microseconds(clock_gettime(ClockId::Boottime)),
            realtime: WallTime(microseconds(clock_gettime(ClockId::Realtime))),
        }
    }

    /// The calendar time at another moment, if the clock was not set in between.
    pub fn realtime_at(&self, boottime_us: i64) -> WallTime {
        WallTime(self.realtime.0 - (self.boottime_us - boottime_us))
    }
}

fn microseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}
