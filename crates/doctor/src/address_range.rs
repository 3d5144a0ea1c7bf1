//! Ranges of physical addresses.

use std::fmt;

use ramslice_types::Bytes;
use serde::{Deserialize, Serialize};

/// Physical addresses from `start_bytes` up to, not including, `end_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address.
    pub start_bytes: u64,
    /// One past the last address.
    pub end_bytes: u64,
}

impl AddressRange {
    /// From a first address and a length; `None` when it is empty or passes the end of the address
    /// space.
    pub fn sized(start: u64, length: u64) -> Option<Self> {
        let end = start.checked_add(length)?;
        (end > start).then_some(Self { start_bytes: start, end_bytes: end })
    }

    /// How long it is.
    pub fn size(self) -> Bytes {
        Bytes(self.end_bytes.saturating_sub(self.start_bytes))
    }

    /// Whether they share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.start_bytes < other.end_bytes && other.start_bytes < self.end_bytes
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: Self) -> bool {
        self.start_bytes <= other.start_bytes && other.end_bytes <= self.end_bytes
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start_bytes, self.end_bytes.saturating_sub(1))
    }
}

/// Sorted, with those that touch or overlap made one.
pub(crate) fn merged(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    ranges.sort_unstable();
    let mut out: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start_bytes <= last.end_bytes => {
                last.end_bytes = last.end_bytes.max(range.end_bytes);
            }
            _ => out.push(range),
        }
    }
    out
}

/// The addresses that at least one of them has.
pub(crate) fn covered(ranges: &[AddressRange]) -> Bytes {
    merged(ranges.to_vec()).into_iter().map(AddressRange::size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start_bytes: start, end_bytes: end }
    }

    #[test]
    fn ranges_that_overlap_count_once() {
        assert_eq!(covered(&[range(4, 8), range(0, 5), range(10, 12)]), Bytes(10));
        assert_eq!(merged(vec![range(4, 8), range(0, 4)]), [range(0, 8)]);
    }

    #[test]
    fn a_range_past_the_end_of_addresses_is_none() {
        assert_eq!(AddressRange::sized(u64::MAX, 2), None);
        assert_eq!(AddressRange::sized(7, 0), None);
    }
}
