//! Slices laid out by physical address: rows of equal size, gaps in the address map left out.

use ramslice_types::{Bytes, MachineState, Slice, SliceId};

/// A row of the picture.
#[derive(Debug)]
pub(crate) enum GridRow<'a> {
    /// `cells` slices from `start`; `None` where the address map has no slice.
    Slices { start: u64, zone: Option<String>, cells: Vec<Option<&'a Slice>> },
    /// A stretch of whole rows without memory.
    Gap,
}

/// The picture's rows.
#[derive(Debug)]
pub(crate) struct SliceGrid<'a> {
    pub(crate) per_row: u32,
    pub(crate) rows: Vec<GridRow<'a>>,
}

impl<'a> SliceGrid<'a> {
    /// Where the rows of slices begin, as text; a gap has none.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let start = |row: &GridRow<'_>| match row {
            GridRow::Gap => None,
            GridRow::Slices { start, .. } => Some(*start),
        };
        let mut texts =
            row_addresses(&self.rows.iter().filter_map(start).collect::<Vec<_>>()).into_iter();
        let text = |row: &GridRow<'_>| start(row).and_then(|_| texts.next()).unwrap_or_default();
        self.rows.iter().map(text).collect()
    }

    /// Lays out the machine's slices, `per_row` to a row; rows start at multiples of it.
    pub(crate) fn new(machine: &'a MachineState, per_row: u32) -> Self {
        let per_row = per_row.max(1);
        let mut rows: Vec<GridRow<'a>> = Vec::new();
        let (mut last, mut last_zone) = (None, String::new());
        for slice in &machine.snapshot.slices {
            let number = slice.id.0 / per_row;
            if last != Some(number) {
                if last.is_some_and(|last| number > last + 1) {
                    rows.push(GridRow::Gap);
                }
                // Named in the row that begins in it.
                let zone = format!("node {} {}", slice.node, machine.zone_name(slice));
                let label = (zone != last_zone).then(|| zone.clone());
                last_zone = zone;
                rows.push(GridRow::Slices {
                    start: machine.info.extents(SliceId(number * per_row)).start,
                    zone: label,
                    cells: vec![None; per_row as usize],
                });
                last = Some(number);
            }
            if let Some(GridRow::Slices { cells, .. }) = rows.last_mut() {
                cells[(slice.id.0 % per_row) as usize] = Some(slice);
            }
        }
        Self { per_row, rows }
    }

    /// The smallest power of two, at least 4, that makes no more than `max_rows`; at most `most`.
    pub(crate) fn choose_per_row(machine: &MachineState, most: u32, max_rows: usize) -> u32 {
        let most = 1 << most.max(4).ilog2();
        let fits = |&per_row: &u32| {
            per_row >= most || SliceGrid::new(machine, per_row).rows.len() <= max_rows
        };
        (2..u32::BITS).map(|power| 1 << power).find(fits).unwrap_or(most)
    }
}

/// An address as people say it, exactly: `4 GiB`, `4.5 GiB`, `4128 MiB`.
pub(crate) fn address(start: u64) -> String {
    const GIB: u64 = 1 << 30;
    if start < GIB {
        return Bytes(start).to_string();
    }
    if start.is_multiple_of(GIB / 8) {
        return format!("{} GiB", start as f64 / GIB as f64);
    }
    format!("{} MiB", start >> 20)
}

/// The addresses of rows, in one unit and exactly: GiB if each is a multiple of an eighth of one,
/// otherwise MiB, of which every pageblock is a multiple.
pub(crate) fn row_addresses(starts: &[u64]) -> Vec<String> {
    const GIB: u64 = 1 << 30;
    let is_large = starts.iter().any(|&start| start >= GIB);
    let in_gib = is_large && starts.iter().all(|start| start.is_multiple_of(GIB / 8));
    let text = |&start: &u64| {
        if in_gib {
            format!("{} GiB", start as f64 / GIB as f64)
        } else {
            format!("{} MiB", start >> 20)
        }
    };
    starts.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_rows_have_one_unit() {
        assert_eq!(row_addresses(&[0, 1 << 29, 3 << 29]), ["0 GiB", "0.5 GiB", "1.5 GiB"]);
        assert_eq!(row_addresses(&[0, 1 << 29]), ["0 MiB", "512 MiB"]);
        assert_eq!(row_addresses(&[1 << 30, (1 << 30) + (32 << 20)]), ["1024 MiB", "1056 MiB"]);
    }

    #[test]
    fn addresses_are_exact() {
        for (start, text) in [
            (0, "0 B"),
            (512 << 20, "512 MiB"),
            (1 << 30, "1 GiB"),
            (9 << 29, "4.5 GiB"),
            ((4 << 30) + (32 << 20), "4128 MiB"),
        ] {
            assert_eq!(address(start), text);
        }
    }
}
