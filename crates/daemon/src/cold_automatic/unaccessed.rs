//! For how much of the time memory of cold nodes was not accessed, as far as DAMON's samples say:
//! the most that its slices can have rested.

use std::ops::Range;

use ramslice_backend::SampledRegion;
use ramslice_types::{Backend, BackendError, Ratio, SliceState};

/// Where the slices of a node lie that may rest; `None` for a kernel or driver by which none does.
///
/// # Errors
/// What the backend cannot read.
pub(super) fn resting_slices(
    backend: Option<&dyn Backend>,
    node: u32,
) -> Result<Option<Vec<Vec<Range<u64>>>>, BackendError> {
    let Some(backend) = backend else { return Ok(None) };
    let info = backend.info()?;
    if info.resting_bytes.0 == 0 {
        return Ok(None);
    }
    let snapshot = backend.snapshot()?;
    let slices = snapshot.slices.iter().filter(|slice| {
        let of_node = u32::try_from(slice.node.0) == Ok(node);
        of_node && slice.state == SliceState::Online && !slice.unreclaimable
    });
    Ok(Some(slices.map(|slice| info.extents(slice.id).ranges().collect()).collect()))
}

/// A sum over slices, weighted by their bytes, which sums of other nodes can be added to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UnaccessedSum {
    bytes: u64,
    unaccessed_bytes: f64,
}

impl UnaccessedSum {
    /// Adds slices. One is touched when any of its memory is: so a slice was without access in at
    /// most as many samples as the busiest region that lies in it. A region that lies in others,
    /// too, may have been sampled there. Where nothing was sampled, nothing is known, and it counts
    /// as never accessed.
    pub(super) fn add(
        &mut self,
        slices: &[Vec<Range<u64>>],
        regions: &[SampledRegion],
        samples: u32,
    ) {
        for slice in slices {
            let inside = |region: &&SampledRegion| {
                let range = &region.range;
                slice.iter().any(|run| run.start <= range.start && range.end <= run.end)
            };
            let busiest =
                regions.iter().filter(inside).map(|region| region.accesses).max().unwrap_or(0);
            let bytes: u64 = slice.iter().map(|run| run.end - run.start).sum();
            let share = 1.0 - f64::from(busiest.min(samples)) / f64::from(samples.max(1));
            self.bytes += bytes;
            self.unaccessed_bytes += share * bytes as f64;
        }
    }

    /// The share of the time; nothing without a slice.
    pub(super) fn share(&self) -> Option<Ratio> {
        (self.bytes > 0).then(|| Ratio(self.unaccessed_bytes / self.bytes as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_was_accessed_at_least_as_often_as_its_busiest_region() {
        let region = |range, accesses| SampledRegion { range, accesses };
        let regions =
            [region(0..100, 20), region(100..150, 1), region(150..250, 5), region(250..280, 2)];
        let share = |slices: &[&[(u64, u64)]]| {
            let runs =
                |slice: &&[(u64, u64)]| slice.iter().map(|&(start, end)| start..end).collect();
            let slices: Vec<Vec<Range<u64>>> = slices.iter().map(runs).collect();
            let mut sum = UnaccessedSum::default();
            sum.add(&slices, &regions, 20);
            sum.share().map(|share| share.0)
        };
        assert_eq!(share(&[&[(0, 100)]]), Some(0.0));
        assert_eq!(share(&[&[(100, 200)]]), Some(0.95), "half of the busier one lies beyond");
        assert_eq!(share(&[&[(100, 250)]]), Some(0.75));
        // Runs of an interleaved slice, and one of which nothing is known
        assert_eq!(share(&[&[(100, 160), (240, 300)]]), Some(0.9));
        assert_eq!(share(&[&[(400, 500)]]), Some(1.0));
        assert_eq!(share(&[&[(0, 100)], &[(300, 400)]]), Some(0.5));
        assert_eq!(share(&[]), None);
    }
}
