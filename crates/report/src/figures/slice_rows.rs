//! Slices by address as the rows of a drawing, and what they are over time as tiles.

use std::collections::BTreeSet;

use crate::chart::{ChartAxis, ChartPanel};

/// Rows that the eye can distinguish.
const ROWS: usize = 260;

/// The class of what is off, without an outline: between rows that touch there would be lines.
pub(super) const OFF: &str = "p-off";

/// The class of a key in the legend: what is off needs an outline there, to be seen on a dark page.
pub(super) fn key_class(class: &'static str) -> &'static str {
    if class == OFF { "k-offline" } else { class }
}

/// Slices as rows, the lowest address at the bottom; with too many of them, several to a row.
pub(super) struct SliceRows {
    ids: Vec<u32>,
    together: usize,
}

impl SliceRows {
    /// Rows for all of `ids`, in any order.
    pub(super) fn of(ids: impl Iterator<Item = u32>) -> Self {
        // A slice is named again with each of its changes.
        let ids: Vec<u32> = ids.collect::<BTreeSet<_>>().into_iter().collect();
        let together = ids.len().div_ceil(ROWS).max(1);
        Self { ids, together }
    }

    /// How many slices there are.
    pub(super) fn slices(&self) -> usize {
        self.ids.len()
    }

    /// How many slices share a row.
    pub(super) fn together(&self) -> usize {
        self.together
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        self.ids.len().div_ceil(self.together).max(1)
    }

    /// The row of a slice that is one of them.
    pub(super) fn row(&self, id: u32) -> usize {
        self.ids.partition_point(|&one| one < id) / self.together
    }

    /// The axis, with the slices' ids.
    pub(super) fn axis(&self) -> ChartAxis {
        let rows = self.count();
        let label = match self.together {
            1 => "slices, by address".to_owned(),
            together => format!("slices, {together} to a row"),
        };
        let mut axis = ChartAxis::new((0.0, rows as f64), label);
        let every = rows.div_ceil(6).max(1);
        let id =
            |row: usize| self.ids.get(row * self.together).map_or_else(String::new, u32::to_string);
        axis.marks = Some((0..rows).step_by(every).map(|row| (row as f64, id(row))).collect());
        axis
    }

    /// Pixels for all rows.
    pub(super) fn height(&self) -> f64 {
        (self.count() as f64 * 3.0).clamp(160.0, 420.0)
    }
}

/// What each row is at each moment, in order; a moment lasts until the next, the last until `end`.
pub(super) type TileGrid<L> = Vec<(f64, Vec<L>)>;

/// Draws as one element where rows are `level`.
pub(super) fn draw<L: Copy + PartialEq>(
    panel: &mut ChartPanel,
    grid: &[(f64, Vec<L>)],
    end: f64,
    level: L,
    class: &str,
) {
    let mut tiles = Vec::new();
    for row in 0..grid.first().map_or(0, |(_, column)| column.len()) {
        let mut from: Option<f64> = None;
        for (seconds, column) in grid {
            match (from, column[row] == level) {
                (None, true) => from = Some(*seconds),
                (Some(start), false) => {
                    tiles.push(tile(panel, row, start, *seconds));
                    from = None;
                }
                _ => {}
            }
        }
        if let Some(start) = from {
            tiles.push(tile(panel, row, start, end));
        }
    }
    panel.svg.tiles(class, &tiles);
}

fn tile(panel: &ChartPanel, row: usize, from: f64, to: f64) -> (f64, f64, f64, f64) {
    let (left, top) = panel.at(from, row as f64 + 1.0);
    let (right, bottom) = panel.at(to, row as f64);
    // Neighbours touch without a seam.
    (left, top, (right - left).max(0.5), bottom - top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_rows_when_there_are_too_many() {
        let few = SliceRows::of([7, 3, 3, 9].into_iter());
        assert_eq!((few.slices(), few.count(), few.together()), (3, 3, 1));
        assert_eq!([3, 7, 9].map(|id| few.row(id)), [0, 1, 2]);
        let many = SliceRows::of(0..1000);
        assert_eq!((many.count(), many.together()), (250, 4));
        assert_eq!([0, 3, 4, 999].map(|id| many.row(id)), [0, 0, 1, 249]);
        let none = SliceRows::of(std::iter::empty());
        assert_eq!((none.count(), none.axis().marks.unwrap().len()), (1, 1));
    }
}
