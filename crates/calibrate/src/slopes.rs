//! Model A: slopes of dedicated experiments, each for one parameter (thesis §4.2.2, Figures 4.3 and
//! 4.4).

use std::collections::{BTreeMap, BTreeSet};

use crate::coefficients::ModelCoefficients;
use crate::sample::{CalibrationSample, SampleOrigin, ThesisExperiment};

/// What the thesis measured inside its kernel's search for destinations (Table 4.2, column A, from
/// Table 4.1), which cannot be measured from outside. Units of 100 cycles.
const ALLOC_BUDDY: f64 = 1.0;
const ALLOC_CACHE: f64 = 32.0;

/// Model A, from the samples of its experiments; `None` if one of them is missing.
///
/// A page dropped costs the slope over slices from few pages of cache to many. The same slope for
/// pages mapped 1, 2, 4 and 8 times is a line over the number of mappings: its slope is a mapping's
/// cost, its start a page's. Empty slices of several sizes give the rest.
pub fn slopes(samples: &[CalibrationSample]) -> Option<ModelCoefficients> {
    let of = |wanted: ThesisExperiment| {
        samples.iter().filter(move |sample| {
            sample.origin == SampleOrigin::Artificial(wanted)
                && sample.operations.cache_targets.0 == 0
        })
    };
    let empty: Vec<_> = of(ThesisExperiment::Empty)
        .map(|sample| (sample.operations.frames.0 as f64 / 1024.0, sample.measured.0 as f64))
        .collect();
    let cache: Vec<_> = of(ThesisExperiment::Cache)
        .map(|sample| (sample.operations.dropped.0 as f64, sample.measured.0 as f64))
        .collect();
    let counts: BTreeSet<u32> = samples
        .iter()
        .filter_map(|sample| match sample.origin {
            SampleOrigin::Artificial(ThesisExperiment::Mapped(count)) => Some(count),
            _ => None,
        })
        .collect();
    let per_page: BTreeMap<u32, f64> = counts
        .into_iter()
        .filter_map(|count| {
            let points: Vec<_> = of(ThesisExperiment::Mapped(count))
                .map(|sample| (sample.operations.moved.0 as f64, sample.measured.0 as f64))
                .collect();
            Some((count, line(&points)?.1))
        })
        .collect();
    let mapped: Vec<_> =
        per_page.into_iter().map(|(count, slope)| (f64::from(count), slope)).collect();

    let (isolate_slice, isolate_page) = line(&empty)?;
    let (migrate_page, migrate_mapping) = line(&mapped)?;
    Some(ModelCoefficients {
        isolate_slice,
        isolate_page,
        drop_page: line(&cache)?.1,
        migrate_page,
        migrate_mapping,
        alloc_buddy: ALLOC_BUDDY,
        alloc_cache: ALLOC_CACHE,
    })
}

/// Start and slope of the line through these points with the least squares; `None` if they have one
/// x.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (x, y) = (x / n, y / n);
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if !spread.is_finite() || spread <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    Some((y - slope * x, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        assert_eq!(line(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]), Some((3.0, 2.0)));
        assert_eq!(line(&[(1.0, 5.0), (1.0, 7.0)]), None);
        assert_eq!(line(&[]), None);
    }
}
