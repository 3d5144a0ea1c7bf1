//! A snapshot summed up: slices by state, pages by kind.

use serde::{Deserialize, Serialize};

use crate::counters::PageComposition;
use crate::slice::{Slice, SliceState};
use crate::units::Pages;

/// How many slices are in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCount {
    /// The state.
    pub state: SliceState,
    /// Slices in it.
    pub slices: u32,
}

/// The sum over some slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceTotals {
    /// Slices by state, in the order of [`SliceState::ALL`].
    pub states: Vec<StateCount>,
    /// Slices online and wholly free.
    pub empty_slices: u32,
    /// Slices that can never be emptied.
    pub unreclaimable_slices: u32,
    /// Pages by kind.
    pub pages: PageComposition,
}

impl SliceTotals {
    /// Sums up `slices`, each of `frames` page frames.
    pub fn of<'a>(slices: impl IntoIterator<Item = &'a Slice>, frames: Pages) -> Self {
        let mut census = Self {
            states: SliceState::ALL.map(|state| StateCount { state, slices: 0 }).to_vec(),
            empty_slices: 0,
            unreclaimable_slices: 0,
            pages: PageComposition::default(),
        };
        for slice in slices {
            census.states[slice.state as usize].slices += 1;
            census.empty_slices += u32::from(slice.is_empty());
            census.unreclaimable_slices += u32::from(slice.unreclaimable);
            census.pages += slice.composition(frames);
        }
        census
    }

    /// Slices in `state`.
    pub fn in_state(&self, state: SliceState) -> u32 {
        self.states.iter().find(|count| count.state == state).map_or(0, |count| count.slices)
    }
}
