//! Which slice size to boot with. Allowed are multiples of the pageblock (admin guide,
//! "ramslice=").

use ramslice_types::Bytes;
use serde::Serialize;

use crate::address_range::{AddressRange, merged};

/// Gaps smaller than this (as below 1 MiB) are no boundary between parts.
const SMALL_GAP: u64 = 2 << 20;
/// What the kernel takes where nothing is said.
pub(crate) const DEFAULT_SLICE: Bytes = Bytes(64 << 20);

/// Advice on the slice size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceAdvice {
    /// For the kernel command line, as in `ramslice=1G`; `None` if no size helps.
    pub parameter: Option<String>,
    /// The size.
    pub slice_bytes: Option<Bytes>,
    /// Why this one, or why none.
    pub because: String,
}

impl SliceAdvice {
    /// No size helps.
    pub fn none(because: impl Into<String>) -> Self {
        Self { parameter: None, slice_bytes: None, because: because.into() }
    }

    /// This size.
    pub fn size(size: Bytes, because: impl Into<String>) -> Self {
        Self { parameter: Some(parameter(size)), slice_bytes: Some(size), because: because.into() }
    }
}

/// For the command line, in the largest unit without a fraction that the kernel understands.
fn parameter(size: Bytes) -> String {
    match size.0 {
        bytes if bytes % (1 << 30) == 0 => format!("ramslice={}G", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("ramslice={}M", bytes >> 20),
        bytes => format!("ramslice={}K", bytes >> 10),
    }
}

/// The largest size that cuts `unit`s and the ends of `ranges` nowhere: slices start at multiples
/// of their size.
pub(crate) fn fitting(unit: Option<Bytes>, ranges: &[AddressRange]) -> Option<Bytes> {
    let mut closed: Vec<AddressRange> = Vec::new();
    for range in merged(ranges.to_vec()) {
        match closed.last_mut() {
            Some(last) if range.start_bytes - last.end_bytes < SMALL_GAP => {
                last.end_bytes = range.end_bytes;
            }
            _ => closed.push(range),
        }
    }
    let ends = closed.iter().flat_map(|range| [range.start_bytes, range.end_bytes]);
    let size = ends.chain(unit.map(|unit| unit.0)).fold(0, gcd);
    (size > 0).then_some(Bytes(size))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Advice for parts whose ranges are known one by one.
pub(crate) fn advise(
    unit: Bytes,
    parts: &[Vec<AddressRange>],
    map: &[AddressRange],
    pageblock: Bytes,
    assumed: bool,
) -> SliceAdvice {
    let each: Option<Bytes> = if parts.is_empty() {
        fitting(Some(unit), map)
    } else {
        // Parts are cut one by one: merged, those that touch would lose their border.
        let sizes = parts.iter().filter_map(|ranges| fitting(None, ranges)).map(|size| size.0);
        let size = sizes.fold(if assumed { unit.0 } else { 0 }, gcd);
        (size > 0).then_some(Bytes(size))
    };
    let Some(size) = each else { return SliceAdvice::none("no boundary of any part is known") };
    if pageblock.0 == 0 || size.0 % pageblock.0 != 0 {
        return SliceAdvice::none(format!(
            "what can be powered down as one ends at multiples of {size}, not of the pageblock, \
             {pageblock}"
        ));
    }
    let mut because = match unit.0 / size.0 {
        0 | 1 => format!("what can be powered down as one has {unit}"),
        count => format!(
            "the largest size that fits the boundaries; {count} slices make {unit}, which can be \
             powered down as one"
        ),
    };
    if assumed {
        because.push_str(
            ". No table says where that begins: it is assumed that the topmost address bits \
             choose it. Should a part be larger, several slices make one",
        );
    }
    SliceAdvice::size(size, because)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const PAGEBLOCK: Bytes = Bytes(2 << 20);

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start_bytes: start, end_bytes: end }
    }

    #[test]
    fn a_size_fits_every_boundary() {
        // 16 GiB with the hole from 2 to 4 GiB, in units of 2 GiB and of 4 GiB.
        let map = [range(0, 0xa_0000), range(0x10_0000, 2 * GIB), range(4 * GIB, 18 * GIB)];
        assert_eq!(fitting(Some(Bytes(2 * GIB)), &map), Some(Bytes(2 * GIB)));
        assert_eq!(fitting(Some(Bytes(4 * GIB)), &map), Some(Bytes(2 * GIB)));
        let advice = advise(Bytes(4 * GIB), &[], &map, PAGEBLOCK, true);
        assert_eq!(advice.parameter.as_deref(), Some("ramslice=2G"));
        assert!(advice.because.contains("2 slices make 4 GiB"), "{}", advice.because);
    }

    #[test]
    fn parts_side_by_side_keep_their_border() {
        let parts = [vec![range(0, GIB)], vec![range(GIB, 2 * GIB)], vec![range(2 * GIB, 4 * GIB)]];
        let advice = advise(Bytes(GIB), &parts, &[], PAGEBLOCK, false);
        assert_eq!(advice.parameter.as_deref(), Some("ramslice=1G"));
    }

    #[test]
    fn no_size_below_the_pageblock_or_across_one() {
        let parts = [vec![range(0, GIB + 4096)], vec![range(GIB + 4096, 2 * GIB)]];
        assert_eq!(advise(Bytes(GIB), &parts, &[], PAGEBLOCK, false).parameter, None);
        let parts = [vec![range(0, 3 << 20)], vec![range(3 << 20, 6 << 20)]];
        assert_eq!(advise(Bytes(3 << 20), &parts, &[], PAGEBLOCK, false).parameter, None);
    }

    #[test]
    fn sizes_are_written_as_the_kernel_reads_them() {
        assert_eq!(parameter(Bytes(3 * GIB)), "ramslice=3G");
        assert_eq!(parameter(Bytes(1536 << 20)), "ramslice=1536M");
        assert_eq!(parameter(Bytes(512 << 10)), "ramslice=512K");
    }
}
