//! Points by family and series, as many families at a time as memory is given for.
//!
//! `OpenMetrics` wants each series in one piece, a recording has a row of all series after another.
//! Where not all points fit, the last families wait for another pass over the table.

use std::collections::BTreeMap;

/// Points kept at a time: 128 MiB.
pub(super) const MOST_POINTS: usize = 8 << 20;

/// A value and when it was, in milliseconds since 1970: finer than Prometheus has it is pointless.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SeriesPoint {
    pub(super) time_ms: i64,
    pub(super) value: f64,
}

/// The series of a family by their labels, as text in braces.
pub(super) type FamilySeries = BTreeMap<String, Vec<SeriesPoint>>;

/// The points of a pass.
pub(super) struct PointTable {
    families: BTreeMap<usize, FamilySeries>,
    first: usize,
    /// Families from here on are left to the next pass.
    end: usize,
    nr_points: usize,
    most_points: usize,
}

impl PointTable {
    /// For the families from number `first` on.
    pub(super) fn new(first: usize, most_points: usize) -> Self {
        Self { families: BTreeMap::new(), first, end: usize::MAX, nr_points: 0, most_points }
    }

    /// Adds a point to a series; of points within a millisecond the last one stays.
    pub(super) fn add(&mut self, family: usize, labels: &str, point: SeriesPoint) {
        if !(self.first..self.end).contains(&family) {
            return;
        }
        let series = self.families.entry(family).or_default();
        if !series.contains_key(labels) {
            series.insert(labels.to_owned(), Vec::new());
        }
        let points = series.get_mut(labels).expect("it was put there");
        match points.last_mut() {
            Some(last) if last.time_ms >= point.time_ms => last.value = point.value,
            _ => {
                points.push(point);
                self.nr_points += 1;
            }
        }
        while self.nr_points > self.most_points && self.families.len() > 1 {
            let (family, dropped) = self.families.pop_last().expect("there are two at least");
            self.nr_points -= dropped.values().map(Vec::len).sum::<usize>();
            self.end = family;
        }
    }

    /// The families by number, and the first of the next pass if one is needed.
    pub(super) fn into_families(self) -> (BTreeMap<usize, FamilySeries>, Option<usize>) {
        (self.families, (self.end != usize::MAX).then_some(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_give_each_family_once_however_little_memory_there_is() {
        let mut expected = BTreeMap::new();
        for family in 0..7 {
            let points = (0..10).map(|time_ms| SeriesPoint { time_ms, value: family as f64 });
            expected.insert(family, FamilySeries::from([("{}".to_owned(), points.collect())]));
        }
        for (most_points, passes) in [(1, 7), (25, 4), (69, 2), (70, 1), (MOST_POINTS, 1)] {
            let (mut found, mut next, mut nr_passes) = (BTreeMap::new(), Some(0), 0);
            while let Some(first) = next {
                let mut table = PointTable::new(first, most_points);
                for time_ms in 0..10 {
                    for family in 0..7 {
                        table.add(family, "{}", SeriesPoint { time_ms, value: family as f64 });
                    }
                }
                let (families, another) = table.into_families();
                for (family, series) in families {
                    assert!(found.insert(family, series).is_none(), "family {family} twice");
                }
                (next, nr_passes) = (another, nr_passes + 1);
            }
            assert_eq!((&found, nr_passes), (&expected, passes), "{most_points} points");
        }
    }

    #[test]
    fn times_of_a_series_rise() {
        let mut table = PointTable::new(0, MOST_POINTS);
        for (time_ms, value) in [(5, 1.0), (5, 2.0), (6, 3.0)] {
            table.add(0, "", SeriesPoint { time_ms, value });
        }
        let (families, _) = table.into_families();
        let points = [(5, 2.0), (6, 3.0)].map(|(time_ms, value)| SeriesPoint { time_ms, value });
        assert_eq!(families[&0][""], points);
    }
}
