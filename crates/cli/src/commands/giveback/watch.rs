//! `ramslice giveback --watch`: a line again and again of how things are, and what was given back
//! since the line before.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_backend::GuestMemory;
use ramslice_types::{Backend, BackendInfo, Bytes, duration_us};
use serde::Serialize;

use super::{GivebackArgs, on};
use crate::context::{CommandContext, write_json_line};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::{TICK, interruptible};
use crate::stdout;

/// The shortest and the longest time between two lines.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_hours(1)];

/// How things are at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum GuestMoment {
    Slices {
        used_bytes: Bytes,
        free_bytes: Bytes,
        reported_bytes: Bytes,
        on_bytes: Bytes,
    },
    /// Of a kernel without ramslice.
    Blocks {
        free_bytes: Bytes,
        whole_blocks_bytes: Bytes,
        idle_cache_bytes: Bytes,
        used_cache_bytes: Bytes,
    },
}

/// What grows all the time.
#[derive(Debug, Clone, Copy, Default)]
struct GrowingSums {
    /// Reported since the driver was loaded; absent without it.
    reported: Option<Bytes>,
    /// Absent where the kernel does not count it.
    stalled: Option<Duration>,
}

impl GrowingSums {
    /// What came since. A driver that was loaded again counts from 0.
    fn since(&self, before: &Self) -> SinceLast {
        let pair = |(now, before): (Bytes, Bytes)| now.0.checked_sub(before.0).map_or(now, Bytes);
        SinceLast {
            gave_back: self.reported.map(|now| pair((now, before.reported.unwrap_or_default()))),
            stalled_us: self.stalled.zip(before.stalled).map(|(now, before)| {
                u64::try_from(now.saturating_sub(before).as_micros()).unwrap_or(u64::MAX)
            }),
        }
    }
}

/// What came since the line before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct SinceLast {
    #[serde(rename = "gave_back_bytes")]
    gave_back: Option<Bytes>,
    stalled_us: Option<u64>,
}

#[derive(Serialize)]
struct WatchDocument {
    #[serde(rename = "elapsed_us", with = "duration_us")]
    elapsed: Duration,
    #[serde(flatten)]
    moment: GuestMoment,
    /// Absent in the first line.
    #[serde(flatten)]
    since_last: Option<SinceLast>,
}

pub(super) fn run(
    args: &GivebackArgs,
    has_ramslice: bool,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let [shortest, longest] = INTERVALS;
    if !(shortest..=longest).contains(&args.interval) {
        let text = format!("--interval {:?} is out of range: from 100ms to 1h", args.interval);
        return Err(UsageError(text).into());
    }
    if context.source_path().is_some() {
        let text = "--watch does not go with --from: in a saved machine no time passes";
        return Err(UsageError(text.to_owned()).into());
    }
    let backend = if has_ramslice { Some(context.backend()?) } else { None };
    let memory = GuestMemory::under(Path::new("/"));
    interruptible(|interrupt| {
        let start = Instant::now();
        let (mut before, mut next) = (None, Duration::ZERO);
        for line in 1_u32.. {
            let (moment, sums) = look(backend.as_deref(), &memory)?;
            let document = WatchDocument {
                elapsed: start.elapsed(),
                moment,
                since_last: before.map(|before| sums.since(&before)),
            };
            before = Some(sums);
            if context.json() {
                write_json_line(out, "giveback", &document)?;
            } else {
                writeln!(out, "{}", document.text())?;
            }
            out.flush()?;
            if args.count.is_some_and(|count| u64::from(line) >= count) {
                break;
            }
            // By the clock, so that what a look takes does not add up; what was missed, as while
            // the program was stopped, is left out
            next = next.saturating_add(args.interval).max(start.elapsed());
            while start.elapsed() < next && !interrupt.requested() {
                stdout::check_reader()?;
                std::thread::sleep(next.saturating_sub(start.elapsed()).min(TICK));
            }
            if interrupt.requested() {
                break;
            }
        }
        Ok(ExitStatus::Ok)
    })
}

fn look(backend: Option<&dyn Backend>, memory: &GuestMemory) -> Result<(GuestMoment, GrowingSums)> {
    let stalled = memory.stalled();
    let Some(backend) = backend else {
        let now = memory.look()?;
        let moment = GuestMoment::Blocks {
            free_bytes: now.free,
            whole_blocks_bytes: now.whole_blocks,
            idle_cache_bytes: now.idle_cache,
            used_cache_bytes: now.used_cache,
        };
        return Ok((moment, GrowingSums { reported: None, stalled }));
    };
    let info = backend.info()?;
    let reported = memory.reported_in_all().map(|pages| pages.bytes(info.page_bytes));
    Ok((moment(&info), GrowingSums { reported, stalled }))
}

fn moment(info: &BackendInfo) -> GuestMoment {
    GuestMoment::Slices {
        used_bytes: info.used_pages().bytes(info.page_bytes),
        free_bytes: info.free_pages.bytes(info.page_bytes),
        reported_bytes: info.reported_pages().bytes(info.page_bytes),
        on_bytes: on(info),
    }
}

impl WatchDocument {
    fn text(&self) -> String {
        let mut text = format!("{:.1} s: ", self.elapsed.as_secs_f64());
        text.push_str(&match self.moment {
            GuestMoment::Slices { used_bytes, reported_bytes, on_bytes, .. } => {
                format!("{used_bytes} used, {on_bytes} on, {reported_bytes} reported")
            }
            GuestMoment::Blocks { free_bytes, whole_blocks_bytes, idle_cache_bytes, .. } => {
                format!(
                    "{free_bytes} free, {whole_blocks_bytes} of it in whole blocks, \
                     {idle_cache_bytes} of idle cache"
                )
            }
        });
        let Some(since) = self.since_last else { return text };
        if let Some(bytes) = since.gave_back {
            text.push_str(&format!("; gave back {bytes}"));
        }
        if let Some(time_us) = since.stalled_us {
            text.push_str(&format!("; tasks stalled {:.3} s", time_us as f64 / 1e6));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: GuestMoment = GuestMoment::Slices {
        used_bytes: Bytes(200 << 20),
        free_bytes: Bytes(56 << 20),
        reported_bytes: Bytes(768 << 20),
        on_bytes: Bytes(256 << 20),
    };

    fn document(since_last: Option<SinceLast>) -> WatchDocument {
        WatchDocument { elapsed: Duration::from_millis(1500), moment: MOMENT, since_last }
    }

    fn sums(reported_mib: u64, stalled_ms: u64) -> GrowingSums {
        GrowingSums {
            reported: Some(Bytes(reported_mib << 20)),
            stalled: Some(Duration::from_millis(stalled_ms)),
        }
    }

    #[test]
    fn a_line_says_how_things_are_and_what_came_since_the_one_before() {
        assert_eq!(document(None).text(), "1.5 s: 200 MiB used, 256 MiB on, 768 MiB reported");
        let since = sums(80, 30).since(&sums(16, 25));
        assert_eq!(
            document(Some(since)).text(),
            "1.5 s: 200 MiB used, 256 MiB on, 768 MiB reported; gave back 64 MiB; tasks stalled \
             0.005 s"
        );
        let json = serde_json::to_value(document(Some(since))).unwrap();
        assert_eq!(json["gave_back_bytes"], 64 << 20);
        assert_eq!(json["stalled_us"], 5000);
        assert_eq!(json["elapsed_us"], 1_500_000);
        let first = serde_json::to_value(document(None)).unwrap();
        assert!(first.get("gave_back_bytes").is_none(), "{first}");
    }

    #[test]
    fn a_driver_that_is_loaded_meanwhile_counts_from_nothing() {
        let none = GrowingSums::default();
        assert_eq!(none.since(&sums(16, 1)), SinceLast { gave_back: None, stalled_us: None });
        assert_eq!(sums(16, 1).since(&none).gave_back, Some(Bytes(16 << 20)));
        assert_eq!(sums(16, 1).since(&sums(99, 0)).gave_back, Some(Bytes(16 << 20)));
    }
}
