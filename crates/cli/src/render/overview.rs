//! A map that always fits: tiles as in the mosaic, or several slices to a cell; the selected one is
//! marked.

use ramslice_types::{MachineState, PageComposition, SliceId};

use super::grid::{GridRow, SliceGrid, row_addresses};
use super::mosaic::{AXIS, ScreenCell, ZONES, apportion, mosaic_grid};
use super::screen::{ColorDepth, OutputStyle};
use ramslice_palette::RgbColour;

/// The picture in at most `rows` lines of `width` columns; the cell of `selected` carries a mark.
///
/// If the slices do not fit one by one, a cell is a power of two of them, and the last line says
/// how many.
pub(crate) fn overview(
    machine: &MachineState,
    screen: &OutputStyle,
    width: u16,
    rows: usize,
    selected: SliceId,
) -> Vec<Vec<ScreenCell>> {
    let room = u32::from(width.saturating_sub(AXIS + ZONES).max(8));
    let grid = SliceGrid::new(machine, SliceGrid::choose_per_row(machine, room, rows));
    if grid.rows.len() <= rows {
        let (mut lines, step) = mosaic_grid(machine, screen, room, &grid);
        let per_row = grid.per_row;
        for (line, row) in lines.iter_mut().zip(&grid.rows) {
            let GridRow::Slices { cells, .. } = row else { continue };
            let here = |slice: &&ramslice_types::Slice| slice.id == selected;
            if cells.iter().flatten().any(here) {
                mark(screen, line, usize::from(AXIS) + step * (selected.0 % per_row) as usize);
            }
        }
        return lines;
    }
    coarse(machine, screen, room, rows, selected)
}

/// Puts the mark at `column`.
fn mark(screen: &OutputStyle, line: &mut [ScreenCell], column: usize) {
    let Some(cell) = line.get_mut(column) else { return };
    *cell = match screen.depth {
        ColorDepth::None => ScreenCell { ch: '@', fg: None, bg: None },
        _ => {
            let ch = if screen.unicode { '◆' } else { '@' };
            ScreenCell { ch, fg: Some(RgbColour(0, 0, 0)), bg: Some(RgbColour(0xff, 0xd4, 0x00)) }
        }
    };
}

/// The picture with several slices to a cell.
fn coarse(
    machine: &MachineState,
    screen: &OutputStyle,
    room: u32,
    rows: usize,
    selected: SliceId,
) -> Vec<Vec<ScreenCell>> {
    let text = |text: String| {
        text.chars().map(|ch| ScreenCell { ch, fg: None, bg: None }).collect::<Vec<_>>()
    };
    let columns = 1 << room.ilog2();
    let frames = machine.info.slice_pages();
    let mut per_cell = 2;
    loop {
        // Cells that have slices, by number; a gap in the numbers of lines is a gap in the address
        // map.
        let mut cells: Vec<(u32, PageComposition)> = Vec::new();
        for slice in &machine.snapshot.slices {
            let number = slice.id.0 / per_cell;
            if cells.last().is_none_or(|(last, _)| *last != number) {
                cells.push((number, PageComposition::default()));
            }
            if let Some((_, parts)) = cells.last_mut() {
                *parts += slice.composition(frames);
            }
        }
        let mut lines: Vec<(u32, Vec<ScreenCell>)> = Vec::new();
        let mut starts = Vec::new();
        for (number, parts) in &cells {
            let (line, column) = (number / columns, (number % columns) as usize);
            if lines.last().is_none_or(|(last, _)| *last != line) {
                let first = SliceId(line * columns * per_cell);
                starts.push(machine.info.extents(first).start);
                let blank = ScreenCell { ch: ' ', fg: None, bg: None };
                lines.push((line, vec![blank; usize::from(AXIS) + columns as usize]));
            }
            if let Some((_, glyphs)) = lines.last_mut() {
                glyphs[usize::from(AXIS) + column] = cell(screen, parts);
                if selected.0 / per_cell == *number {
                    mark(screen, glyphs, usize::from(AXIS) + column);
                }
            }
        }
        if lines.len() < rows || lines.len() <= 1 {
            for ((_, glyphs), address) in lines.iter_mut().zip(row_addresses(&starts)) {
                let axis = text(format!("{address:>9} "));
                glyphs.splice(..usize::from(AXIS), axis);
            }
            let mut picture: Vec<Vec<ScreenCell>> =
                lines.into_iter().map(|(_, glyphs)| glyphs).collect();
            picture.push(text(format!("{:>9} a cell is {per_cell} slices", "")));
            return picture;
        }
        per_cell *= 2;
    }
}

/// What most of the memory of a cell is.
fn cell(screen: &OutputStyle, parts: &PageComposition) -> ScreenCell {
    let halves = apportion(parts, if screen.depth == ColorDepth::None { 1 } else { 2 });
    ScreenCell::halves(screen, halves[0], halves[halves.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::MachineState;

    fn machine() -> MachineState {
        let file = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
            .join("tests/data/guest-8g.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    /// 6144 slices: the same memory many times over.
    fn large() -> MachineState {
        let mut machine = machine();
        let slices = machine.snapshot.slices.clone();
        machine.snapshot.slices = (0..6144u32)
            .map(|id| {
                let mut slice = slices[id as usize % slices.len()].clone();
                slice.id = SliceId(id);
                slice
            })
            .collect();
        machine
    }

    fn marks(lines: &[Vec<ScreenCell>]) -> usize {
        lines.iter().flatten().filter(|glyph| matches!(glyph.ch, '@' | '◆')).count()
    }

    #[test]
    fn any_number_of_slices_fits_and_the_selected_one_is_marked_once() {
        for machine in [machine(), large()] {
            for (width, rows) in [(80, 5), (80, 3), (200, 40), (30, 4), (10, 2)] {
                for id in [0, 64, machine.snapshot.slices.len() as u32 - 1] {
                    let selected =
                        machine.snapshot.slices[id as usize % machine.snapshot.slices.len()].id;
                    for screen in [
                        OutputStyle::plain(),
                        OutputStyle {
                            depth: ColorDepth::True,
                            unicode: true,
                            ..OutputStyle::plain()
                        },
                    ] {
                        let lines = overview(&machine, &screen, width, rows, selected);
                        assert!(lines.len() <= rows, "{} lines in {rows}", lines.len());
                        assert_eq!(marks(&lines), 1, "{width}x{rows}, slice {selected}");
                    }
                }
            }
        }
    }

    #[test]
    fn where_there_is_room_it_is_the_usual_map() {
        let machine = machine();
        let usual = super::super::mosaic(&machine, &OutputStyle::plain(), 80, 20);
        let mut with_mark = overview(&machine, &OutputStyle::plain(), 80, 20, SliceId(0));
        assert_eq!(marks(&with_mark), 1);
        for (line, other) in with_mark.iter_mut().zip(&usual) {
            for (glyph, other) in line.iter_mut().zip(other).filter(|(glyph, _)| glyph.ch == '@') {
                *glyph = *other;
            }
        }
        assert_eq!(with_mark, usual);
    }
}
