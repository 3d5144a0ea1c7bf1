//! Physical memory on the terminal: a tile per slice, its area split by what the slice holds.
//!
//! A character cell shows a left and a right half, so a tile of `n` columns has `2n` picture
//! elements and straight edges; without colours a cell is the letter of one element.

use ramslice_types::{MachineState, PageComposition, PageKind, Pages, Slice};

use super::grid::{GridRow, SliceGrid};
use super::screen::{ColorDepth, OutputStyle};
use ramslice_palette::{RgbColour, ascii, color, ink};

/// Columns of the addresses on the left.
pub(super) const AXIS: u16 = 10;
/// Columns of the zone names on the right.
pub(super) const ZONES: u16 = 16;

/// A character cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenCell {
    pub(crate) ch: char,
    pub(crate) fg: Option<RgbColour>,
    pub(crate) bg: Option<RgbColour>,
}

impl ScreenCell {
    pub(super) fn plain(ch: char) -> Self {
        Self { ch, fg: None, bg: None }
    }

    /// Shows `left` beside `right`.
    pub(super) fn halves(screen: &OutputStyle, left: PageKind, right: PageKind) -> Self {
        if screen.depth == ColorDepth::None {
            return Self::plain(ascii(left));
        }
        let flat = |ch| Self { ch, fg: Some(ink(left)), bg: Some(color(left)) };
        if left != right && screen.unicode {
            return Self { ch: '▌', fg: Some(color(left)), bg: Some(color(right)) };
        }
        match (left, screen.unicode) {
            (PageKind::Hole, _) => Self::plain(' '),
            (PageKind::Offline, true) => flat('╱'),
            (PageKind::Quarantined, true) => flat('╳'),
            (PageKind::Offline | PageKind::Quarantined | PageKind::Waking, _) => flat(ascii(left)),
            _ => flat(' '),
        }
    }

    /// A line of cells as text with its escape codes.
    pub(crate) fn line(screen: &OutputStyle, cells: &[Self]) -> String {
        let mut line = String::new();
        for run in cells.chunk_by(|a, b| (a.fg, a.bg) == (b.fg, b.bg)) {
            let text: String = run.iter().map(|cell| cell.ch).collect();
            line.push_str(&screen.paint(&text, run[0].fg, run[0].bg));
        }
        line.trim_end().to_owned()
    }
}

/// Divides `n` picture elements among the kinds by their share, largest remainders first.
///
/// Unmovable memory gets an element however little it is: a single page keeps a slice on.
pub(crate) fn apportion(parts: &PageComposition, n: usize) -> Vec<PageKind> {
    let total = parts.total().0.max(1);
    let mut shares = PageKind::ALL.map(|kind| {
        let exact = u128::from(parts.get(kind).0) * n as u128;
        ((exact / u128::from(total)) as usize, (exact % u128::from(total)) as u64, kind)
    });
    let given: usize = shares.iter().map(|share| share.0).sum();
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7];
    order.sort_by_key(|&at| std::cmp::Reverse(shares[at].1));
    for &at in order.iter().take(n - given.min(n)) {
        shares[at].0 += 1;
    }
    if n >= 4 && parts.unmovable > Pages::ZERO && shares[0].0 == 0 {
        let largest = (0..shares.len()).max_by_key(|&at| shares[at].0).unwrap_or(0);
        shares[largest].0 -= 1;
        shares[0].0 = 1;
    }
    shares.iter().flat_map(|&(count, _, kind)| std::iter::repeat_n(kind, count)).take(n).collect()
}

/// The picture, `width` columns wide and of at most `max_rows` lines where that is possible.
pub(crate) fn mosaic(
    machine: &MachineState,
    screen: &OutputStyle,
    width: u16,
    max_rows: usize,
) -> Vec<Vec<ScreenCell>> {
    let room = u32::from(width.saturating_sub(AXIS + ZONES).max(8));
    let grid = SliceGrid::new(machine, SliceGrid::choose_per_row(machine, room, max_rows));
    mosaic_grid(machine, screen, room, &grid).0
}

/// The picture of a layout whose rows have `room` columns, and the columns from tile to tile.
pub(super) fn mosaic_grid(
    machine: &MachineState,
    screen: &OutputStyle,
    room: u32,
    grid: &SliceGrid<'_>,
) -> (Vec<Vec<ScreenCell>>, usize) {
    let step = (room / grid.per_row).clamp(1, 12) as usize;
    // Wide tiles are set apart by a blank column; narrow ones need every column.
    let columns = if step >= 4 { step - 1 } else { step };
    let frames = machine.info.slice_pages();
    let text = |text: String| text.chars().map(ScreenCell::plain).collect::<Vec<_>>();
    let lines = grid
        .rows
        .iter()
        .zip(grid.addresses())
        .map(|(row, address)| match row {
            GridRow::Gap => {
                text(format!("{:>width$}", if screen.unicode { "⋮" } else { ":" }, width = 9))
            }
            GridRow::Slices { zone, cells, .. } => {
                let mut line = text(format!("{address:>9} "));
                for cell in cells {
                    line.extend(tile(screen, *cell, frames, columns));
                    line.extend(std::iter::repeat_n(ScreenCell::plain(' '), step - columns));
                }
                if let Some(zone) = zone {
                    line.extend(text(format!(" {zone}")));
                }
                line
            }
        })
        .collect();
    (lines, step)
}

/// One slice, filled column by column from what keeps it on to what is free.
fn tile(
    screen: &OutputStyle,
    slice: Option<&Slice>,
    frames: Pages,
    columns: usize,
) -> Vec<ScreenCell> {
    let Some(slice) = slice else {
        return vec![ScreenCell::plain(' '); columns];
    };
    // Without colours a cell cannot show halves: one element per cell keeps small shares visible.
    if screen.depth == ColorDepth::None {
        let kinds = apportion(&slice.composition(frames), columns);
        return kinds.iter().map(|&kind| ScreenCell::halves(screen, kind, kind)).collect();
    }
    apportion(&slice.composition(frames), 2 * columns)
        .chunks(2)
        .map(|pair| ScreenCell::halves(screen, pair[0], pair[pair.len() - 1]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(unmovable: u64, movable: u64, free: u64) -> PageComposition {
        PageComposition {
            unmovable: Pages(unmovable),
            movable: Pages(movable),
            free: Pages(free),
            ..PageComposition::default()
        }
    }

    #[test]
    fn elements_follow_the_shares() {
        use PageKind::{Free, Movable, Unmovable};
        assert_eq!(apportion(&parts(25, 25, 50), 4), [Unmovable, Movable, Free, Free]);
        assert_eq!(apportion(&parts(0, 50, 50), 2), [Movable, Free]);
        assert_eq!(apportion(&parts(0, 100, 1), 3), [Movable, Movable, Movable]);
    }

    #[test]
    fn a_single_unmovable_page_is_seen() {
        assert_eq!(apportion(&parts(1, 0, 10_000), 8)[0], PageKind::Unmovable);
    }

    #[test]
    fn every_element_gets_a_kind() {
        for n in 1..40 {
            assert_eq!(apportion(&parts(33, 33, 34), n).len(), n);
        }
    }
}
