//! Wakes the slices of a request: brings their blocks online in the zones that they were in.

use std::io;

use ramslice_types::Reason;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::blocks::{self, BlockState, file};
use super::page_scan::{self, ScannedSlice};
use super::request::{RequestRun, SliceRefusal};
use crate::error::KernelError;

impl RequestRun<'_> {
    /// Gives one block back to the zone it was in.
    pub(super) fn online_block(&mut self, number: u64) -> Result<(), io::Error> {
        let zone = self.scan.zone_of_block(number).map(str::to_owned);
        let word = match zone.as_deref() {
            Some("Movable") => "online_movable",
            Some(_) => "online_kernel",
            None => "online",
        };
        let path = file(number, "state");
        let began = self.system.now();
        let result = self.system.write(&path, word);
        self.wake_silence.add(result.is_ok(), self.system.now().saturating_sub(began));
        if let Err(error) = result
            && blocks::state(self.system, number)? != BlockState::Online
        {
            return Err(error);
        }
        let now = self.system.text(&file(number, "valid_zones")).unwrap_or_default();
        if let Some(zone) = &zone
            && now != *zone
        {
            warn!(block = number, was = zone, now, "a block came back to another zone");
        }
        self.scan.saved_state.blocks.remove(&number);
        if let Some(block) = self.scan.blocks.get_mut(&number) {
            (block.state, block.zone) = (BlockState::Online, Some(now));
        }
        Ok(())
    }

    /// Wakes a slice. If a block fails, those before it stay online: more memory does no harm.
    pub(super) fn online(&mut self, part: &ScannedSlice) -> Result<(), SliceRefusal> {
        let off: Vec<u64> = self.offline_blocks(part);
        if off.is_empty() {
            return Err(SliceRefusal::new(Reason::State));
        }
        self.wake(&off)?;
        if !self.request.dry_run {
            self.scan.saved_state.failures.remove(&part.blocks[0]);
            self.backend.resting.remove(part.blocks[0]);
        }
        Ok(())
    }

    pub(super) fn wake(&mut self, numbers: &[u64]) -> Result<(), SliceRefusal> {
        if self.request.dry_run {
            return Ok(());
        }
        for &number in numbers {
            if self.system.now() >= self.limits.end {
                return Err(SliceRefusal::new(Reason::Deadline));
            }
            // The kernel does not end a write for a signal that brings a block online.
            if self.limits.is_interrupted() {
                return Err(SliceRefusal::new(Reason::Signal));
            }
            self.online_block(number).map_err(|error| {
                debug!(block = number, %error, "not brought online");
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                let reason = match errno {
                    Errno::NOENT | Errno::NODEV => Reason::State,
                    Errno::INTR => Reason::Signal,
                    Errno::NOMEM => Reason::NoRoom,
                    // A page of it was found bad while it was off: it never comes back.
                    Errno::HWPOISON => Reason::HwPoison,
                    _ => Reason::Power,
                };
                SliceRefusal { reason, errno }
            })?;
        }
        self.work.woken_slices += 1;
        Ok(())
    }

    /// Wakes all blocks that this program took offline, and none that another process did.
    pub(super) fn online_all(&mut self) -> Result<(), KernelError> {
        let mut failure = None;
        let mut parts = self.candidates()?;
        parts.retain(|part| {
            self.place.has(part.node, part.zone == "Movable")
                && part
                    .blocks
                    .iter()
                    .any(|number| self.scan.saved_state.blocks.contains_key(number))
        });
        let (all, now, resting) = (parts.len(), self.system.now(), &self.backend.resting);
        parts.retain(|part| now >= resting.end(part.blocks[0]));
        let some_rest = parts.len() < all;
        // Those that a driver was silent for come last, the one that has rested longest first.
        parts.sort_by_key(|part| resting.end(part.blocks[0]));
        while !parts.is_empty() {
            // Where least memory is left, from the lowest address. If all come back, the order does
            // not matter.
            let at = if self.request.max_slices.is_some() && !self.margins.is_empty() {
                let zones = page_scan::read_rooms(self.system, self.scan.block_pages())?;
                let key = |part: &ScannedSlice| {
                    let ratio = self.margins.ratio(&zones, part.node, part.zone == "Movable");
                    (resting.end(part.blocks[0]), ratio)
                };
                (0..parts.len()).min_by_key(|&at| key(&parts[at])).unwrap_or(0)
            } else {
                0
            };
            let part = parts.remove(at);
            let ours: Vec<u64> = self
                .offline_blocks(&part)
                .into_iter()
                .filter(|number| self.scan.saved_state.blocks.contains_key(number))
                .collect();
            if ours.is_empty() {
                continue;
            }
            if self.request.max_slices.is_some_and(|most| self.outcome.slices_done >= most) {
                break;
            }
            self.outcome.last_slice = Some(part.id);
            match self.wake(&ours) {
                Ok(()) => {
                    resting.remove(part.blocks[0]);
                    self.outcome.slices_done += 1;
                }
                Err(stop) => {
                    self.outcome.slices_failed += 1;
                    if stop.reason == Reason::Power
                        && let Some(silence) = self.wake_silence.last()
                    {
                        resting.add(part.blocks[0], silence, self.system.now());
                    }
                    let over = matches!(stop.reason, Reason::Deadline | Reason::Signal)
                        || self.wake_silence.is_lasting();
                    failure = Some(stop);
                    if over {
                        break;
                    }
                }
            }
        }
        let is_full = self.request.max_slices.is_some_and(|most| self.outcome.slices_done >= most);
        if some_rest && !is_full {
            failure.get_or_insert(SliceRefusal::new(Reason::Backoff));
        }
        if let Some(stop) = failure {
            self.stop(&stop, true);
        }
        Ok(())
    }
}
