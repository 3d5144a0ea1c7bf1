//! Bounds for a power driver that does not answer: some wait seconds for their firmware before they
//! give up, and nothing can interrupt them meanwhile.
//!
//! A request asks no more of a driver that has let it wait twice in a row, and a slice that it
//! could not wake for that reason rests, so that requests which wake whatever they can turn to
//! others first. What rests is not saved: another program, or a request that names the slice, may
//! try at once.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tracing::debug;

use super::lock;

/// A failure after so long is silence, not refusal.
const SILENCE: Duration = Duration::from_secs(1);

/// After so many in a row a request asks for nothing more: one lost message has no such effect.
const MOST_SILENCES: u32 = 2;

/// A slice rests at first for twice as long as its driver was silent, then twice as long each time.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// How often in a row the driver was silent in a request.
#[derive(Debug, Default)]
pub(super) struct DriverSilence {
    in_a_row: u32,
    last: Option<Duration>,
}

impl DriverSilence {
    /// Counts what the driver did, and how long that took.
    pub(super) fn add(&mut self, succeeded: bool, took: Duration) {
        self.last = (!succeeded && took >= SILENCE).then_some(took);
        self.in_a_row = if self.last.is_some() { self.in_a_row + 1 } else { 0 };
    }

    /// Counts a segment that it could not switch off, which is silence however long it took: it
    /// cannot refuse any more. No success ends the row, because most blocks are not a segment's
    /// last, and for those the firmware is not asked.
    pub(super) fn add_failed_switch_off(&mut self) {
        self.add(false, SILENCE);
    }

    /// How long it was silent, if it was the last time.
    pub(super) fn last(&self) -> Option<Duration> {
        self.last
    }

    /// Whether to ask it for nothing more.
    pub(super) fn is_lasting(&self) -> bool {
        self.in_a_row >= MOST_SILENCES
    }
}

#[derive(Debug)]
struct Rest {
    length: Duration,
    until: Duration,
}

/// Slices that rest, by their first block.
#[derive(Debug, Default)]
pub(super) struct RestingSlices(Mutex<BTreeMap<u64, Rest>>);

impl RestingSlices {
    /// The driver was silent for `silence` when it should have woken this slice.
    pub(super) fn add(&self, first: u64, silence: Duration, now: Duration) {
        let mut rests = lock(&self.0);
        let length = (rests.get(&first).map_or(silence, |rest| rest.length) * 2).min(LONGEST_REST);
        debug!(block = first, ?length, "its driver was silent: it is not tried for a while");
        rests.insert(first, Rest { length, until: now + length });
    }

    /// It is awake, or failed for another reason.
    pub(super) fn remove(&self, first: u64) {
        lock(&self.0).remove(&first);
    }

    /// When its rest ends or ended: 0 if it had none.
    pub(super) fn end(&self, first: u64) -> Duration {
        lock(&self.0).get(&first).map_or(Duration::ZERO, |rest| rest.until)
    }
}
