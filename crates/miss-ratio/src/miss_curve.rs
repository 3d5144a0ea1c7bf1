//! A curve: misses, or their share, by memory.

/// Misses by the memory that there is; it never rises, and is known from its first point to its
/// last one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MissCurve {
    /// Pages of memory, ascending, and the misses there.
    points: Vec<(f64, f64)>,
}

impl MissCurve {
    /// The curve through these points, given by ascending memory. Misses that rise with memory are
    /// lowered to what was there before.
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut found: Vec<(f64, f64)> = Vec::new();
        for (pages, misses) in points {
            match found.last_mut() {
                Some(last) if pages <= last.0 => last.1 = last.1.min(misses),
                Some(&mut last) => found.push((pages, misses.min(last.1))),
                None => found.push((pages, misses)),
            }
        }
        Self { points: found }
    }

    /// Its points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// The least memory at which it is known, in pages; nothing if it is known nowhere.
    pub fn begin(&self) -> Option<f64> {
        self.points.first().map(|point| point.0)
    }

    /// The misses with so many pages, straight between points; nothing where it is not known.
    pub fn at(&self, pages: f64) -> Option<f64> {
        let above = self.points.partition_point(|point| point.0 < pages);
        let high = self.points.get(above)?;
        if high.0 <= pages {
            return Some(high.1);
        }
        let low = self.points.get(above.checked_sub(1)?)?;
        let share = (pages - low.0) / (high.0 - low.0);
        Some(low.1 + (high.1 - low.1) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_known_between_its_ends_and_never_rises() {
        let curve = MissCurve::new([(2.0, 8.0), (4.0, 4.0), (4.0, 5.0), (6.0, 9.0)]);
        assert_eq!(curve.at(1.9), None);
        assert_eq!(curve.at(2.0), Some(8.0));
        assert_eq!(curve.at(3.0), Some(6.0));
        assert_eq!((curve.at(5.0), curve.at(6.0)), (Some(4.0), Some(4.0)));
        assert_eq!(curve.at(6.1), None);
        assert_eq!((curve.begin(), curve.points().last()), (Some(2.0), Some(&(6.0, 4.0))));
        assert_eq!(MissCurve::default().at(0.0), None);
    }
}
