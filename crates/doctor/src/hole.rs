//! The hole below 4 GiB, and how far two inputs may be apart before they contradict each other.

use ramslice_types::Bytes;

use crate::address_range::{AddressRange, merged};

const GIB: u64 = 1 << 30;
/// Devices have their addresses below it, memory goes on above.
const HOLE_END: u64 = 4 * GIB;
/// Tables round sizes; a larger difference is a contradiction.
const TOLERANCE: u64 = 64;

/// Whether the two differ by more than a 64th of the larger one.
pub(crate) fn differ(a: Bytes, b: Bytes) -> bool {
    a.0.abs_diff(b.0) > a.0.max(b.0) / TOLERANCE
}

/// Whether `ranges` are `memory` and, counted with it, the hole below 4 GiB: they reach from below
/// 4 GiB over it, and are larger by less than 4 GiB.
pub(crate) fn is_memory_with_hole(ranges: &[AddressRange], memory: Bytes) -> bool {
    let over = |range: &AddressRange| range.start_bytes < HOLE_END && range.end_bytes > HOLE_END;
    let ranges = merged(ranges.to_vec());
    let size: Bytes = ranges.iter().map(|range| range.size()).sum();
    ranges.iter().any(over) && size.saturating_sub(memory).0 < HOLE_END
}

/// The size of the hole below 4 GiB in these ranges: 0 if they go on through it, or do not reach
/// it.
pub(crate) fn hole_bytes(ranges: &[AddressRange]) -> Bytes {
    let ranges = merged(ranges.to_vec());
    let above = ranges.iter().any(|range| range.end_bytes > HOLE_END);
    let below = ranges.iter().filter(|range| range.start_bytes < HOLE_END);
    let end = below.map(|range| range.end_bytes.min(HOLE_END)).max();
    match end {
        Some(end) if above => Bytes(HOLE_END - end),
        _ => Bytes::ZERO,
    }
}

/// Addresses that both have.
pub(crate) fn shared_bytes(one: &[AddressRange], other: &[AddressRange]) -> Bytes {
    let (one, other) = (merged(one.to_vec()), merged(other.to_vec()));
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| {
            let (start, end) = (a.start_bytes.max(b.start_bytes), a.end_bytes.min(b.end_bytes));
            Bytes(end.saturating_sub(start))
        })
        .sum()
}

/// Boundaries of modules lie at multiples of this.
const BOUNDARY: u64 = 64 << 20;

/// `ranges` with their boundaries where they belong, if they are `memory` but for what tables
/// round: a range that ends some KiB or MiB early still is a whole module.
pub(crate) fn rounded(ranges: &[AddressRange], memory: Bytes) -> Vec<AddressRange> {
    let ranges = merged(ranges.to_vec());
    let size: Bytes = ranges.iter().map(|range| range.size()).sum();
    if size == memory || differ(size, memory) {
        return ranges;
    }
    let nearest = |address: u64| (address + BOUNDARY / 2) / BOUNDARY * BOUNDARY;
    let whole: Vec<AddressRange> = ranges
        .iter()
        .filter_map(|range| {
            let (start, end) = (nearest(range.start_bytes), nearest(range.end_bytes));
            AddressRange::sized(start, end.checked_sub(start)?)
        })
        .collect();
    let whole = merged(whole);
    // Rounding that does not give the size explains nothing.
    if whole.iter().map(|range| range.size()).sum::<Bytes>() == memory { whole } else { ranges }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start_bytes: start, end_bytes: end }
    }

    #[test]
    fn memory_with_its_hole_is_no_more_than_the_memory() {
        let through = [range(0, 35 * GIB / 4)];
        assert!(is_memory_with_hole(&through, Bytes(8 * GIB)));
        assert!(!is_memory_with_hole(&through, Bytes(4 * GIB)));
        // Below 4 GiB there is no hole to count.
        assert!(!is_memory_with_hole(&[range(0, 4 * GIB)], Bytes(2 * GIB)));
        assert_eq!(hole_bytes(&[range(0, 2 * GIB), range(4 * GIB, 9 * GIB)]), Bytes(2 * GIB));
        assert_eq!(hole_bytes(&through), Bytes::ZERO);
        assert_eq!(hole_bytes(&[range(0, 2 * GIB)]), Bytes::ZERO);
    }

    #[test]
    fn ranges_that_end_early_are_rounded_and_others_stay() {
        let early = [range(0, 32 * GIB - MIB)];
        assert_eq!(rounded(&early, Bytes(32 * GIB)), [range(0, 32 * GIB)]);
        // A hole that ends somewhere is no rounding: the size agrees.
        let around = [range(0, 2040 * MIB), range(4 * GIB, 6 * GIB + 8 * MIB)];
        assert_eq!(rounded(&around, Bytes(4 * GIB)), around);
        // Nor does rounding explain half a module.
        assert_eq!(rounded(&[range(0, GIB)], Bytes(2 * GIB)), [range(0, GIB)]);
    }

    #[test]
    fn shared_addresses_count_once() {
        assert_eq!(shared_bytes(&[range(0, 8)], &[range(4, 6), range(5, 12)]), Bytes(4));
        assert_eq!(shared_bytes(&[range(0, 4)], &[range(4, 6)]), Bytes(0));
    }
}
