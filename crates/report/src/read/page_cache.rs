//! What figures need of the page cache in a recording: both ratios over time, the watermarks that
//! follow them, and each of their moves.

use ramslice_record::tables::Event;
use ramslice_record::{MOVE_NOTE, PageCacheSamples, Recording};
use ramslice_types::{Bytes, LookupWindow, PageKind};

use super::error::Result;
use crate::{LookupInterval, MachineMoment, MarkMoment, PageCacheData, RecordingData};

/// Reads it; nothing of a kernel that does not count look-ups, without a daemon whose watermarks
/// follow them.
pub(super) fn read(
    name: &str,
    recording: &Recording,
    recorded: Option<&RecordingData>,
) -> Result<Option<PageCacheData>> {
    let mut begun_us = recorded.map(|recorded| (recorded.begun_seconds * 1e6).round() as i64);
    let (mut window, mut begun) = (LookupWindow::default(), 0.0);
    let (mut intervals, mut marks) = (Vec::new(), Vec::new());
    for sample in PageCacheSamples::of(recording) {
        let sample = sample?;
        let zero = *begun_us.get_or_insert(sample.boottime_us);
        let seconds = (sample.boottime_us - zero) as f64 / 1e6;
        if let Some(lookups) = sample.lookups {
            match window.add(lookups) {
                Ok(ratios) => {
                    intervals.push(LookupInterval { begun_seconds: begun, seconds, ratios });
                    begun = seconds;
                }
                Err(ramslice_types::RatioUnknown::FirstReading) => begun = seconds,
                Err(_) => {}
            }
        }
        if !sample.watermarks.is_empty() {
            let sum = |word: &str| -> Bytes {
                let found = sample.watermarks.iter().filter(|(name, _)| name.contains(word));
                found.map(|(_, &bytes)| bytes).sum()
            };
            let active = recorded.and_then(|recorded| active(recorded, seconds));
            let (low, high) = (sum("_cache_free_low_"), sum("_cache_free_high_"));
            marks.push(MarkMoment { seconds, active, low, high });
        }
    }
    let mut moves = Vec::new();
    if !marks.is_empty() {
        for event in recording.rows::<Event>() {
            let event = event?.row;
            let text = event.text.as_deref().unwrap_or_default();
            if let Some(why) = text.strip_prefix(MOVE_NOTE).filter(|_| event.kind == "note") {
                let zero = begun_us.unwrap_or(event.boottime_us);
                moves.push(((event.boottime_us - zero) as f64 / 1e6, why.to_owned()));
            }
        }
    }
    let emulated = recording.info().platform.emulated == Some(true);
    let name = name.to_owned();
    let found = !intervals.is_empty() || !marks.is_empty();
    Ok(found.then_some(PageCacheData { name, emulated, intervals, marks, moves }))
}

/// Memory that is not off, at the last moment up to then.
fn active(recorded: &RecordingData, seconds: f64) -> Option<Bytes> {
    let after = recorded.moments.partition_point(|moment| moment.seconds <= seconds);
    let moment: &MachineMoment = recorded.moments.get(after.checked_sub(1)?)?;
    let off = moment.pages.get(PageKind::Offline) + moment.pages.get(PageKind::Hole);
    Some((moment.pages.total() - off).bytes(recorded.page_bytes))
}
