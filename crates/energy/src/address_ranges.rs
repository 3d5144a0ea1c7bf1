//! Sets of physical addresses as sorted ranges that do not touch.

use std::ops::Range;

/// Addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AddressRanges(Vec<Range<u64>>);

impl AddressRanges {
    /// All addresses of `ranges`, which may come in any order and overlap.
    pub(crate) fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// Those that fill aligned units of `granule` bytes.
    pub(crate) fn whole(&self, granule: u64) -> Self {
        let inner = |range: &Range<u64>| {
            let start = range.start.checked_next_multiple_of(granule)?;
            let end = range.end - range.end % granule;
            (start < end).then_some(start..end)
        };
        if granule == 0 { self.clone() } else { Self(self.0.iter().filter_map(inner).collect()) }
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Addresses in both.
    pub(crate) fn both(&self, other: &Self) -> Self {
        let mut found = Vec::new();
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            let common = a.start.max(b.start)..a.end.min(b.end);
            if !common.is_empty() {
                found.push(common);
            }
            if a.end <= b.end {
                mine.next()
            } else {
                theirs.next()
            };
        }
        Self(found)
    }

    /// Addresses in either.
    pub(crate) fn either(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "sets of one range")]
    fn only_aligned_whole_units_count() {
        let off = AddressRanges::of(vec![30..40, 10..30, 60..70, 68..95]);
        assert_eq!(off, AddressRanges(vec![10..40, 60..95]));
        assert_eq!(off.whole(20), AddressRanges(vec![20..40, 60..80]));
        assert_eq!(off.whole(50), AddressRanges::default());
        assert_eq!(off.whole(0).bytes(), 65);
        assert_eq!(AddressRanges::of(vec![10..25]).whole(10), AddressRanges(vec![10..20]));
    }

    #[test]
    fn sets_meet_and_join() {
        let (a, b) =
            (AddressRanges::of(vec![0..10, 20..30]), AddressRanges::of(vec![5..22, 29..40]));
        assert_eq!(a.both(&b), AddressRanges(vec![5..10, 20..22, 29..30]));
        assert_eq!(a.either(&b).bytes(), 40);
        assert_eq!(a.both(&AddressRanges::default()), AddressRanges::default());
    }
}
