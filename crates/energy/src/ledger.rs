//! The ledger: takes samples of a machine and keeps whole numbers; joules are worked out from their
//! sums.
//!
//! Because only sums of whole numbers are kept, it makes no difference how a time is cut into
//! samples.

use std::ops::Add;
use std::time::Duration;

use ramslice_types::{
    BackendInfo, Bytes, Ratio, Segment, Slice, SliceId, SliceSnapshot, SliceState, WorkCounters,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address_ranges::AddressRanges;

/// Ranges of different ways are at least about this far apart.
const WAY_DISTANCE: u64 = 1 << 54;

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnergySample {
    /// When, on the machine's own clock, whatever that shows.
    pub time: Duration,
    /// State changes so far.
    pub event_seq: u64,
    /// The size of a slice; of the largest, if a table says what slices are.
    pub slice_bytes: Bytes,
    /// Slices as a table; empty if all are of one size.
    pub segments: Vec<Segment>,
    /// Slices that take turns at addresses: 1 where each is contiguous.
    pub ways: u32,
    /// The state of each slice.
    pub states: Vec<(SliceId, SliceState)>,
    /// What is in use and may rest.
    pub resting: Bytes,
    /// Of that, what was not at rest, because it was accessed: at least this much; nothing if that
    /// is not known. See [`Self::with_unaccessed`].
    pub accessed: Option<Bytes>,
    /// What was done so far.
    pub work: WorkCounters,
}

impl EnergySample {
    /// From a snapshot, and totals and counters that were read next to it.
    ///
    /// Memory that another program took offline on a stock kernel is no part of the machine, and
    /// saves nothing.
    pub fn new(snapshot: &SliceSnapshot, info: &BackendInfo, work: WorkCounters) -> Self {
        let stock = info.is_stock();
        Self::of(snapshot, info, work, |slice| !(stock && slice.held))
    }

    /// The same without held slices, for callers that count only their own work.
    pub fn without_held(snapshot: &SliceSnapshot, info: &BackendInfo, work: WorkCounters) -> Self {
        Self::of(snapshot, info, work, |slice| !slice.held)
    }

    fn of(
        snapshot: &SliceSnapshot,
        info: &BackendInfo,
        work: WorkCounters,
        counts: impl Fn(&Slice) -> bool,
    ) -> Self {
        let slices = snapshot.slices.iter().filter(|slice| counts(slice));
        Self {
            time: snapshot.time,
            event_seq: snapshot.event_seq,
            slice_bytes: info.slice_bytes,
            segments: info.segments.clone(),
            ways: info.ways(),
            states: slices.map(|slice| (slice.id, slice.state)).collect(),
            resting: info.resting_bytes,
            accessed: None,
            work,
        }
    }

    /// With the share of the time, at most, for which nothing accessed what may rest. Nothing is
    /// known without: then it may have rested all of the time.
    #[must_use]
    pub fn with_unaccessed(mut self, share: Option<Ratio>) -> Self {
        let accessed = |share: Ratio| 1.0 - share.0.clamp(0.0, 1.0);
        self.accessed = share.map(|share| Bytes((self.resting.0 as f64 * accessed(share)) as u64));
        self
    }

    /// Bytes of slices that are off; in whole aligned units of `unit` bytes, if there is a unit.
    pub(crate) fn off_bytes(&self, unit: Option<Bytes>) -> u64 {
        let unit = unit.unwrap_or_default().0;
        self.ranges(unit, |state| state == SliceState::Offline).whole(unit).bytes()
    }

    /// Of slices in these states, for units of so many bytes.
    ///
    /// What the hardware switches as one lies within one way, so each way has addresses of its own.
    fn ranges(&self, unit: u64, wanted: impl Fn(SliceState) -> bool) -> AddressRanges {
        let (size, ways) = (self.slice_bytes.0, self.ways.max(1));
        let distance = WAY_DISTANCE - WAY_DISTANCE % unit.max(1);
        let range = |id: SliceId| {
            if !self.segments.is_empty() {
                // Of a slice past the table, nothing is known.
                let segment = self.segments.get(id.0 as usize);
                return segment.map_or(0..0, |one| {
                    one.start_bytes..one.start_bytes.saturating_add(one.bytes.0)
                });
            }
            let way = distance.saturating_mul(u64::from(id.0 % ways));
            let start = u64::from(id.0 / ways).saturating_mul(size).saturating_add(way);
            start..start.saturating_add(size)
        };
        AddressRanges::of(
            self.states
                .iter()
                .filter(|(_, state)| wanted(*state))
                .map(|(id, _)| range(*id))
                .collect(),
        )
    }
}

/// A sample that does not follow the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Its time is earlier.
    #[error(
        "a sample was taken at {now:?}, before the one at {before:?}: samples must be in order of \
         time"
    )]
    TimeWentBack {
        /// The time of the last sample.
        before: Duration,
        /// The time of this one.
        now: Duration,
    },
    /// Its number of state changes is smaller: another boot.
    #[error("state changes went back from {before} to {now}: the samples are not of one boot")]
    EventsWentBack {
        /// Those of the last sample.
        before: u64,
        /// Those of this one.
        now: u64,
    },
}

/// Sums over the samples so far. They can be saved, and those of several ledgers added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EnergyTally {
    /// Time between the first and the last, on the machine's clock, in microseconds.
    pub elapsed_us: u64,
    /// Times between two samples.
    pub steps: u64,
    /// Bytes off in whole units of the hardware, times microseconds: at least this much.
    pub off_low_byte_us: u128,
    /// At most this much.
    pub off_high_byte_us: u128,
    /// Bytes in use that the hardware was told may rest, times microseconds: at most this much.
    #[serde(default)]
    pub resting_high_byte_us: u128,
    /// Of these, those of which it was sampled whether they were accessed.
    #[serde(default)]
    pub sampled_byte_us: u128,
    /// Of these, while it was accessed: at least this much.
    #[serde(default)]
    pub accessed_low_byte_us: u128,
    /// Bytes that went off, each time again: at least this much.
    pub entered_low_bytes: u64,
    /// At most this much.
    pub entered_high_bytes: u64,
    /// Bytes of slices whose emptying was tried.
    pub tried_bytes: u64,
    /// Bytes of slices that woke.
    pub woken_bytes: u64,
    /// What was done.
    pub work: WorkCounters,
    /// How often counters were smaller than before, so that what was done in between is not known.
    pub resets: u64,
}

impl Add for EnergyTally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            elapsed_us: self.elapsed_us + other.elapsed_us,
            steps: self.steps + other.steps,
            off_low_byte_us: self.off_low_byte_us + other.off_low_byte_us,
            off_high_byte_us: self.off_high_byte_us + other.off_high_byte_us,
            resting_high_byte_us: self.resting_high_byte_us + other.resting_high_byte_us,
            sampled_byte_us: self.sampled_byte_us + other.sampled_byte_us,
            accessed_low_byte_us: self.accessed_low_byte_us + other.accessed_low_byte_us,
            entered_low_bytes: self.entered_low_bytes + other.entered_low_bytes,
            entered_high_bytes: self.entered_high_bytes + other.entered_high_bytes,
            tried_bytes: self.tried_bytes + other.tried_bytes,
            woken_bytes: self.woken_bytes + other.woken_bytes,
            work: self.work.plus(&other.work),
            resets: self.resets + other.resets,
        }
    }
}

impl EnergyTally {
    /// The time, on the machine's clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.elapsed_us)
    }
}

/// The ledger under way.
#[derive(Debug, Clone)]
pub struct EnergyLedger {
    granule: Option<Bytes>,
    last: Option<EnergySample>,
    tally: EnergyTally,
}

impl EnergyLedger {
    /// An empty one. `granule` is what the hardware switches as one; without it, at least nothing
    /// and at most all that is off counts.
    pub fn new(granule: Option<Bytes>) -> Self {
        Self { granule, last: None, tally: EnergyTally::default() }
    }

    /// Adds what happened between the last sample and this one.
    ///
    /// At the low end a slice counts as offline if it is in both samples, at the high end if it is
    /// in either; unseen changes, known from the number of state changes, widen the interval.
    ///
    /// # Errors
    /// If the sample is older than the last, or of another boot; the ledger stays as it was.
    pub fn add(&mut self, sample: EnergySample) -> Result<(), LedgerError> {
        if let Some(last) = &self.last {
            self.tally = self.tally + step(last, &sample, self.granule)?;
        }
        self.last = Some(sample);
        Ok(())
    }

    /// The sums so far.
    pub fn tally(&self) -> &EnergyTally {
        &self.tally
    }

    /// The last sample.
    pub fn last(&self) -> Option<&EnergySample> {
        self.last.as_ref()
    }
}

fn step(
    last: &EnergySample,
    now: &EnergySample,
    granule: Option<Bytes>,
) -> Result<EnergyTally, LedgerError> {
    let Some(elapsed) = now.time.checked_sub(last.time) else {
        return Err(LedgerError::TimeWentBack { before: last.time, now: now.time });
    };
    if now.event_seq < last.event_seq {
        return Err(LedgerError::EventsWentBack { before: last.event_seq, now: now.event_seq });
    }
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let unit = granule.unwrap_or_default().0;
    let off = |sample: &EnergySample| sample.ranges(unit, |state| state == SliceState::Offline);
    let (before, after) = (off(last), off(now));
    let both = before.both(&after).whole(unit);
    // A unit may have been off as a whole in between, though at no end were all of its slices.
    let possible = before.either(&after).either(&passed_by(last, now, unit)).whole(unit);
    // A slice that was off, on and off again, or the other way round, changed its state twice at
    // least.
    let unseen = (now.event_seq - last.event_seq).saturating_sub(fewest_changes(last, now)) / 2;
    let spare = unseen.saturating_mul(unit.max(now.slice_bytes.0).max(last.slice_bytes.0));
    let all = now.ranges(unit, |_| true).either(&last.ranges(unit, |_| true)).bytes();
    let low = if granule.is_some() { both.bytes().saturating_sub(spare) } else { 0 };
    let high = possible.bytes().saturating_add(spare).min(all);
    let entered = after.whole(unit).bytes() - both.bytes();
    let perhaps = (possible.bytes() - before.whole(unit).bytes()).saturating_add(spare);
    let (work, resets) = match now.work.since(&last.work) {
        Some(work) => (work, 0),
        None => (WorkCounters::default(), 1),
    };
    let byte_us = |bytes: Bytes| u128::from(bytes.0) * u128::from(elapsed_us);
    let resting_high_byte_us = byte_us(last.resting.max(now.resting));
    let accessed = last.accessed.zip(now.accessed).map(|(before, after)| before.min(after));
    Ok(EnergyTally {
        elapsed_us,
        steps: 1,
        off_low_byte_us: u128::from(low) * u128::from(elapsed_us),
        off_high_byte_us: u128::from(high) * u128::from(elapsed_us),
        resting_high_byte_us,
        sampled_byte_us: accessed.map_or(0, |_| resting_high_byte_us),
        accessed_low_byte_us: byte_us(accessed.unwrap_or_default()),
        entered_low_bytes: if granule.is_some() { entered } else { 0 },
        entered_high_bytes: perhaps,
        tried_bytes: work.tried_slices.saturating_mul(now.slice_bytes.0),
        woken_bytes: work.woken_slices.saturating_mul(now.slice_bytes.0),
        work,
        resets,
    })
}

/// Slices of both samples: id, state in the one, state in the other.
fn pairs<'a>(
    last: &'a EnergySample,
    now: &'a EnergySample,
) -> impl Iterator<Item = (SliceId, SliceState, SliceState)> + 'a {
    let mut before = last.states.iter().peekable();
    let same = last.slice_bytes == now.slice_bytes;
    now.states.iter().filter(move |_| same).filter_map(move |(id, state)| {
        while before.next_if(|(other, _)| other < id).is_some() {}
        let (_, was) = before.next_if(|(other, _)| other == id)?;
        Some((*id, *was, *state))
    })
}

/// Slices that were off in between, seen so in neither sample.
fn passed_by(last: &EnergySample, now: &EnergySample, unit: u64) -> AddressRanges {
    use SliceState::{Emptying, Online, Quarantined, Waking};
    let passed = |was, is| matches!((was, is), (Online | Emptying, Waking | Quarantined));
    let found: Vec<SliceId> =
        pairs(last, now).filter(|(_, was, is)| passed(*was, *is)).map(|(id, ..)| id).collect();
    let only = EnergySample {
        states: found.into_iter().map(|id| (id, SliceState::Offline)).collect(),
        ..now.clone()
    };
    only.ranges(unit, |_| true)
}

/// The fewest state changes that lead from one sample to the other.
fn fewest_changes(last: &EnergySample, now: &EnergySample) -> u64 {
    let place = |state| match state {
        SliceState::Online => Some(0),
        SliceState::Emptying => Some(1),
        SliceState::Offline => Some(2),
        SliceState::Waking => Some(3),
        SliceState::Quarantined => None,
    };
    pairs(last, now)
        .map(|(_, was, is)| match (place(was), place(is)) {
            _ if was == is => 0,
            // Given up.
            (Some(1), Some(0)) => 1,
            (Some(from), Some(to)) => (to + 4 - from) % 4,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
