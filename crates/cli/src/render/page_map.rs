//! One slice on the terminal, a cell for a page or a few of them, row by row from its first
//! address.

use ramslice_types::{Bytes, SliceContents};

use super::grid::address;
use super::mosaic::ScreenCell;
use super::page_style::{PageStyle, cells, tally};
use super::screen::{ColorDepth, OutputStyle};

/// Columns of the addresses on the left.
const AXIS: u16 = 12;

/// Pages per picture element and elements per row, so that there are at most `max_rows`.
fn layout(pages: u64, elements: u64, max_rows: usize) -> (u64, u64) {
    let per_row = 1 << elements.max(8).ilog2();
    let mut per_cell = 1;
    while pages.div_ceil(per_cell * per_row) > max_rows as u64 {
        per_cell *= 2;
    }
    (per_cell, per_row)
}

/// The picture, in rows of a power of two of pages.
pub(crate) fn page_map(
    contents: &SliceContents,
    page_bytes: Bytes,
    screen: &OutputStyle,
    width: u16,
    max_rows: usize,
) -> Vec<Vec<ScreenCell>> {
    let colored = screen.depth != ColorDepth::None;
    // With colours a character cell shows two elements side by side.
    let halves = if colored && screen.unicode { 2 } else { 1 };
    let room = u64::from(width.saturating_sub(AXIS).max(8)) * halves;
    let pages = contents.frames().0;
    let (per_cell, per_row) = layout(pages, room, max_rows);
    let start = contents.runs.first().map_or(0, |run| run.pfn.0);
    let each = if per_cell == 1 { "a page".to_owned() } else { format!("{per_cell} pages") };
    let text = |text: String| text.chars().map(ScreenCell::plain).collect::<Vec<_>>();

    let mut lines = vec![text(format!("{:>11} each cell is {each}", ""))];
    for (row, looks) in cells(contents, per_cell).chunks(per_row as usize).enumerate() {
        let pfn = start + row as u64 * per_row * per_cell;
        let mut line = text(format!("{:>11} ", address(pfn * page_bytes.0)));
        line.extend(looks.chunks(halves as usize).map(|pair| glyph(screen, pair)));
        lines.push(line);
    }
    lines
}

/// One or two elements in a character cell.
fn glyph(screen: &OutputStyle, pair: &[PageStyle]) -> ScreenCell {
    let (left, right) = (pair[0], pair[pair.len() - 1]);
    if screen.depth == ColorDepth::None {
        return ScreenCell::plain(left.letter());
    }
    if pair.len() < 2 {
        return ScreenCell { ch: ' ', fg: None, bg: Some(left.color()) };
    }
    ScreenCell { ch: '▌', fg: Some(left.color()), bg: Some(right.color()) }
}

/// The looks that occur, with letter or colour and pages, on as many lines as it takes.
pub(crate) fn page_legend(
    contents: &SliceContents,
    screen: &OutputStyle,
    width: u16,
) -> Vec<Vec<ScreenCell>> {
    let mut lines: Vec<Vec<ScreenCell>> = vec![Vec::new()];
    for (look, pages) in tally(contents) {
        let mut entry = match screen.depth {
            ColorDepth::None => vec![ScreenCell::plain(look.letter())],
            _ => vec![ScreenCell { ch: ' ', fg: None, bg: Some(look.color()) }; 2],
        };
        entry.extend(format!(" {} {pages}", look.name()).chars().map(ScreenCell::plain));
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            *line = entry;
        } else if line.len() + 3 + entry.len() <= usize::from(width) {
            line.extend("   ".chars().map(ScreenCell::plain));
            line.extend(entry);
        } else {
            lines.push(entry);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::layout;

    #[test]
    fn a_slice_of_any_size_fits() {
        for (pages, elements) in [(512, 88), (8192, 88), (8192, 176), (262_144, 30), (1, 88)] {
            let (per_cell, per_row) = layout(pages, elements, 32);
            assert!(pages.div_ceil(per_cell * per_row) <= 32);
            assert!(per_row <= elements);
        }
        assert_eq!(layout(8192, 88, 32), (4, 64));
    }
}
