//! DRAM segments by a device tree: the node `ddr-regions` that Qualcomm's bootloaders add.
//!
//! There is no binding. Its properties `region0` to `region9` have five numbers of 64 bits each:
//! address, length, offset of the first whole segment, that segment's index, and the size of
//! segments in MiB, 0 where memory does not power down. The kernel's `ramslice=firmware` reads the
//! same.

use ramslice_types::Bytes;
use serde::Serialize;

use crate::findings::{GapKind, InputGap, MachineFindings};
use crate::platform::DEVICE_TREE;
use crate::root::{ReadProblem, SystemRoot};

const SHOWS: &str = "which address ranges the hardware can power down as one";
/// As many as are read by Qualcomm's driver, and by the kernel.
const MOST_REGIONS: u32 = 10;

/// What the node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DdrRegions {
    /// Where it is.
    pub path: String,
    /// Its regions.
    pub regions: u32,
    /// Whole segments in them that power down.
    pub segments: u64,
    /// The smallest and the largest of these.
    pub segment_bytes: Option<(Bytes, Bytes)>,
}

/// Looks for the node.
pub(crate) fn ddr_regions(root: &SystemRoot, out: &mut MachineFindings) {
    let path = format!("{DEVICE_TREE}/ddr-regions");
    if !root.has(&path) {
        return;
    }
    let mut found =
        DdrRegions { path: format!("/{path}"), regions: 0, segments: 0, segment_bytes: None };
    for number in 0..MOST_REGIONS {
        let file = format!("{path}/region{number}");
        let gap = |kind| InputGap::new(kind, "device tree", &file, SHOWS);
        let bytes = match root.bytes(&file) {
            Ok(bytes) => bytes,
            Err(ReadProblem::Absent) => break,
            Err(problem) => {
                out.gaps.push(gap(problem.into()));
                break;
            }
        };
        let Some((segments, size)) = whole_segments(&bytes) else {
            let problem = "it should hold five numbers of 64 bits, of memory that can be";
            out.gaps.push(gap(GapKind::Damaged).because(problem));
            continue;
        };
        found.regions += 1;
        if segments > 0 {
            found.segments = found.segments.saturating_add(segments);
            let (least, most) = found.segment_bytes.unwrap_or((size, size));
            found.segment_bytes = Some((least.min(size), most.max(size)));
        }
    }
    out.ddr_regions = Some(found);
}

/// How many whole segments a region has, and their size; `None` if it cannot be.
fn whole_segments(region: &[u8]) -> Option<(u64, Bytes)> {
    let (numbers, []) = region.as_chunks::<8>() else { return None };
    let [start, bytes, offset, _, granule_mib] = <[[u8; 8]; 5]>::try_from(numbers).ok()?;
    let bytes = u64::from_be_bytes(bytes);
    u64::from_be_bytes(start).checked_add(bytes)?;
    let granule = u64::from_be_bytes(granule_mib).checked_mul(1 << 20)?;
    let usable = bytes.saturating_sub(u64::from_be_bytes(offset));
    Some((usable.checked_div(granule).unwrap_or(0), Bytes(granule)))
}
