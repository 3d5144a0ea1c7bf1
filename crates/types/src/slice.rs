//! A slice as a snapshot shows it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::counters::{PageComposition, SliceCounters};
use crate::parse::ParseError;
use crate::reason::Reason;
use crate::units::{NodeId, Pages, Price, SliceId, ZoneNumber};

/// The state of a slice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum SliceState {
    /// Its pages belong to the allocator.
    #[default]
    Online,
    /// Isolated; pages are being moved out.
    Emptying,
    /// Empty, with the power driver.
    Offline,
    /// Powered again, chunks being released.
    Waking,
    /// Failed to wake: unusable until a reboot.
    Quarantined,
}

impl SliceState {
    /// All states, in the kernel's order.
    pub const ALL: [Self; 5] =
        [Self::Online, Self::Emptying, Self::Offline, Self::Waking, Self::Quarantined];

    /// What the kernel's number means.
    pub fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// The word for it, in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Emptying => "emptying",
            Self::Offline => "offline",
            Self::Waking => "waking",
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for SliceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SliceState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            ParseError::new(
                text,
                "a state",
                "one of online, emptying, offline, waking, quarantined",
            )
        })
    }
}

/// One slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Its id.
    pub id: SliceId,
    /// Its state.
    pub state: SliceState,
    /// Why it cannot be emptied, if known.
    pub reason: Reason,
    /// It can never be emptied; `reason` says why.
    pub unreclaimable: bool,
    /// It failed recently and is in backoff; `reason` says why.
    pub backoff: bool,
    /// It holds pages that can be neither dropped nor moved.
    pub unmovable: bool,
    /// Held: it stays offline until a request wakes it by name.
    #[serde(default)]
    pub held: bool,
    /// Its NUMA node.
    pub node: NodeId,
    /// Its zone within the node.
    pub zone: ZoneNumber,
    /// Page frames with memory.
    #[serde(rename = "present_pages")]
    pub present: Pages,
    /// Page frames, with memory or not, where slices are of unequal sizes.
    #[serde(rename = "slice_pages", default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Pages>,
    /// What emptying it is expected to cost; see [`Self::finite_price`].
    #[serde(rename = "price_100cycles")]
    pub price: Price,
    /// Counters of its pages, as they were when it was last read.
    pub counters: SliceCounters,
    /// Time until it is tried again, if `backoff`.
    #[serde(rename = "retry_ms")]
    pub retry_ms: u32,
}

impl Slice {
    /// An online slice of the first node's first zone, of which nothing is known: no counters, no
    /// price, no reason.
    pub fn unread(id: SliceId, present: Pages) -> Self {
        Self {
            id,
            state: SliceState::Online,
            reason: Reason::None,
            unreclaimable: false,
            backoff: false,
            unmovable: false,
            held: false,
            node: NodeId(0),
            zone: ZoneNumber(0),
            present,
            frames: None,
            price: Price::ZERO,
            counters: SliceCounters::default(),
            retry_ms: 0,
        }
    }

    /// Out of reach for allocations: quarantined or held.
    pub fn is_away(&self) -> bool {
        self.held || self.state == SliceState::Quarantined
    }

    /// Its pages by kind; `frames` is the full size of a slice, where all are of one.
    pub fn composition(&self, frames: Pages) -> PageComposition {
        let frames = self.frames.unwrap_or(frames);
        PageComposition::derive(self.state, &self.counters, self.present, frames)
    }

    /// Online and wholly free: can be switched off at once.
    pub fn is_empty(&self) -> bool {
        self.state == SliceState::Online
            && !self.unreclaimable
            && self.present > Pages::ZERO
            && self.counters.free >= self.present
    }

    /// The price, unless it cannot be emptied: never, not with its contents, or not yet.
    ///
    /// In these cases Eq 3.3 adds [`crate::PriceParameter::Unreclaimable`]; a sum with that
    /// offset is a place in an order, not a cost.
    pub fn finite_price(&self) -> Option<Price> {
        (!self.unreclaimable && !self.unmovable && !self.backoff).then_some(self.price)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_kernels_numbers_and_lead_back_from_their_names() {
        for (raw, state) in (0u8..).zip(SliceState::ALL) {
            assert_eq!(SliceState::from_raw(raw), Some(state));
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert_eq!(SliceState::from_raw(5), None);
    }
}
