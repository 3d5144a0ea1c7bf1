//! Limits of time as typed, and the part of a recording that they choose.

use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, SecondsFormat};
use ramslice_cli::exit::UsageError;
use ramslice_record::tables::Sample;
use ramslice_record::{Recording, RecordingTable, TableRow};
use ramslice_types::parse_duration;

use crate::recordings::unreplayable_error;

/// A limit as typed.
#[derive(Debug, Clone)]
pub(super) struct TimeLimit {
    text: String,
    moment: LimitMoment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitMoment {
    SinceBegin(Duration),
    /// Microseconds since 1970, UTC.
    Calendar(i64),
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            LimitMoment::Calendar(time.timestamp_micros())
        } else if let Ok(time) = parse_duration(text) {
            LimitMoment::SinceBegin(time)
        } else if matches!(text, "0" | "0ms" | "0s" | "0m" | "0min" | "0h") {
            LimitMoment::SinceBegin(Duration::ZERO)
        } else {
            return Err(format!(
                "`{text}` is not a time: write how long after the recording's begin, as in 90s or \
                 5m, or a calendar time by RFC 3339, as in 2026-11-21T20:59:59Z"
            ));
        };
        Ok(Self { text: text.to_owned(), moment })
    }
}

/// The two clocks of a recording, of which only that since boot never runs backwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordingTimes {
    begin_boottime_us: i64,
    begin_realtime_us: i64,
}

impl RecordingTimes {
    pub(super) fn of(recording: &Recording) -> Self {
        let info = recording.info();
        Self {
            begin_boottime_us: info.started_boottime_us,
            begin_realtime_us: info.started_realtime_us,
        }
    }

    /// Microseconds since 1970, by the calendar at the recording's begin.
    fn calendar_us(&self, boottime_us: i64) -> i64 {
        boottime_us.saturating_sub(self.begin_boottime_us).saturating_add(self.begin_realtime_us)
    }

    /// The same in milliseconds.
    pub(super) fn calendar_ms(&self, boottime_us: i64) -> i64 {
        self.calendar_us(boottime_us).div_euclid(1000)
    }

    fn boottime_us(&self, moment: LimitMoment) -> i64 {
        let since_begin_us = match moment {
            LimitMoment::SinceBegin(time) => i64::try_from(time.as_micros()).unwrap_or(i64::MAX),
            LimitMoment::Calendar(time) => time.saturating_sub(self.begin_realtime_us),
        };
        self.begin_boottime_us.saturating_add(since_begin_us)
    }

    /// What is within the limits; everything without them.
    pub(super) fn span(
        &self,
        recording: &Recording,
        begin: Option<&TimeLimit>,
        end: Option<&TimeLimit>,
    ) -> Result<TimeSpan> {
        let mut span = TimeSpan { first_us: i64::MIN, last_us: i64::MAX };
        if begin.is_none() && end.is_none() {
            return Ok(span);
        }
        let over_us = end_of(recording)?.max(self.begin_boottime_us);
        for (name, limit, at_us) in
            [("--begin", begin, &mut span.first_us), ("--end", end, &mut span.last_us)]
        {
            let Some(limit) = limit else { continue };
            *at_us = self.boottime_us(limit.moment);
            // The length is known by its seconds: 121s is still within 120.9 s.
            if *at_us < self.begin_boottime_us || *at_us >= over_us.saturating_add(1_000_000) {
                return Err(self.outside(name, limit, over_us).into());
            }
        }
        match (begin, end) {
            (Some(begin), Some(end)) if span.first_us > span.last_us => {
                let (begin, end) = (&begin.text, &end.text);
                Err(UsageError(format!("--begin {begin} is after --end {end}")).into())
            }
            _ => Ok(span),
        }
    }

    fn outside(&self, name: &str, limit: &TimeLimit, over_us: i64) -> UsageError {
        let date = |boottime_us| {
            let time = DateTime::from_timestamp_micros(self.calendar_us(boottime_us));
            time.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
        };
        UsageError(format!(
            "{name} {} is outside the recording, which lasts {:.1} s, from {} to {}",
            limit.text,
            (over_us - self.begin_boottime_us) as f64 / 1e6,
            date(self.begin_boottime_us),
            date(over_us),
        ))
    }
}

/// The time of the last sample, or of the end if that was written.
fn end_of(recording: &Recording) -> Result<i64> {
    let mut last_us = recording.end().map_or(i64::MIN, |end| end.boottime_us);
    for located in recording.rows::<Sample>() {
        last_us = last_us.max(located.map_err(unreplayable_error)?.row.boottime_us);
    }
    Ok(last_us)
}

/// A part of a recording, both ends included, on the clock since boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeSpan {
    first_us: i64,
    last_us: i64,
}

impl TimeSpan {
    /// The rows of a table that are within.
    pub(super) fn rows<R: TableRow>(
        self,
        recording: &Recording,
    ) -> impl Iterator<Item = Result<R>> + use<R> {
        recording
            .rows::<R>()
            .map(|located| Ok(located.map_err(unreplayable_error)?.row))
            // Events of two CPUs may be out of order: one that is later is not yet the end.
            .take_while(move |row: &Result<R>| {
                R::TABLE == RecordingTable::Events
                    || row.as_ref().map_or(true, |row| row.boottime_us() <= self.last_us)
            })
            .filter(move |row| {
                row.as_ref()
                    .map_or(true, |row| (self.first_us..=self.last_us).contains(&row.boottime_us()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_time_since_the_begin_or_a_date() {
        let moment = |text: &str| text.parse::<TimeLimit>().map(|limit| limit.moment);
        let since_begin = |ms| Ok(LimitMoment::SinceBegin(Duration::from_millis(ms)));
        for begin in ["0", "0ms", "0s", "0m", "0min", "0h"] {
            assert_eq!(moment(begin), since_begin(0), "{begin}");
        }
        assert_eq!(moment("90"), since_begin(90_000));
        assert_eq!(moment("1500ms"), since_begin(1500));
        let date = Ok(LimitMoment::Calendar(1_700_000_000_500_000));
        assert_eq!(moment("2023-11-14T22:13:20.5Z"), date);
        assert_eq!(moment("2023-11-14T23:13:20.5+01:00"), date);
        for wrong in ["", "-1", "0x", "10:30", "2023-11-14", "soon"] {
            let refusal = moment(wrong).unwrap_err();
            assert!(refusal.starts_with(&format!("`{wrong}` is not a time: ")), "{refusal}");
        }
    }
}
