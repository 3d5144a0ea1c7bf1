//! One slice as a picture: a square for a page or a few of them, row by row from its first address.

use ab_glyph::FontRef;
use anyhow::{Context as _, Result};
use ramslice_types::{MachineState, Pages, SliceContents};

use super::canvas::{FontSize, PixelCanvas, PixelRect, TextAnchor};
use super::grid::address;
use super::page_style::{PageStyle, cells, tally};
use super::png::{EDGE, FAINT, MARGIN, MIN_WIDTH, PAPER, PictureOptions, RgbPicture, SWATCH, TEXT};

const AXIS: f32 = 86.0;
const HEAD: f32 = 84.0;
/// Rows of squares, at most.
const MAX_ROWS: u64 = 128;
/// Squares are at least this wide.
const MIN_PITCH: f32 = 7.0;

/// Draws the slice.
pub(crate) fn draw(
    machine: &MachineState,
    contents: &SliceContents,
    options: &PictureOptions,
) -> Result<RgbPicture> {
    let regular =
        FontRef::try_from_slice(dejavu::sans::regular()).context("reading the built-in font")?;
    let bold =
        FontRef::try_from_slice(dejavu::sans::bold()).context("reading the built-in font")?;
    let (title, body, small) =
        (FontSize::new(&bold, 22.0), FontSize::new(&regular, 15.0), FontSize::new(&regular, 13.0));

    let width = options.width.max(MIN_WIDTH) as f32;
    let room = width - 2.0 * MARGIN - AXIS;
    let pages = contents.frames().0.max(1);
    // Twice as wide as high, in powers of two, with squares that can be distinguished.
    let most = 1 << ((room / MIN_PITCH).max(8.0) as u64).ilog2();
    let per_row: u64 = (1 << (pages.isqrt().max(8).ilog2() + 1)).min(most);
    let mut per_cell: u64 = 1;
    while pages.div_ceil(per_cell * per_row) > MAX_ROWS {
        per_cell *= 2;
    }
    let pitch = (room / per_row as f32).floor().min(24.0);
    let gap = if pitch >= 6.0 { 1.0 } else { 0.0 };
    let rows = pages.div_ceil(per_cell * per_row);
    let wide = pitch * per_row as f32 - gap;

    let legend = lines(&tally(contents), &small, width - 2.0 * MARGIN - AXIS);
    let height = HEAD + pitch * rows as f32 + 22.0 + 24.0 * legend.len() as f32 + MARGIN - 8.0;
    let mut canvas = PixelCanvas::new(width as usize, height.ceil() as usize, PAPER);
    canvas.text(&title, (MARGIN, MARGIN + 14.0), TextAnchor::Left, TEXT, &options.title);
    let subtitle = subtitle(machine, contents, per_cell);
    canvas.text(&body, (MARGIN, MARGIN + 37.0), TextAnchor::Left, FAINT, &subtitle);

    let left = MARGIN + AXIS;
    let start = contents.runs.first().map_or(0, |run| run.pfn.0);
    // A label where there is room for one, at the beginning of every 2^n rows.
    let every = ((18.0 / pitch).ceil() as u64).next_power_of_two();
    for (row, looks) in (0u64..).zip(cells(contents, per_cell).chunks(per_row as usize)) {
        let y = HEAD + row as f32 * pitch;
        if row.is_multiple_of(every) {
            let pfn = start + row * per_row * per_cell;
            let label = address(pfn * machine.info.page_bytes.0);
            canvas.text(&small, (left - 12.0, y + 10.0), TextAnchor::Right, FAINT, &label);
        }
        for (column, look) in looks.iter().enumerate() {
            let x = left + column as f32 * pitch;
            square(&mut canvas, PixelRect { x, y, w: pitch - gap, h: pitch - gap }, *look);
        }
    }
    let frame = PixelRect {
        x: left - 2.0,
        y: HEAD - 2.0,
        w: wide + 4.0,
        h: pitch * rows as f32 - gap + 4.0,
    };
    canvas.frame(frame, EDGE, 1.0);

    let mut y = HEAD + pitch * rows as f32 + 22.0;
    for line in &legend {
        let mut x = left;
        for (look, pages, entry) in line {
            let area = PixelRect { x, y, w: SWATCH, h: SWATCH };
            square(&mut canvas, area, *look);
            if matches!(look, PageStyle::Free | PageStyle::Hole) {
                canvas.frame(area, EDGE, 1.0);
            }
            let name = x + SWATCH + 6.0;
            let after = name
                + 5.0
                + canvas.text(&small, (name, y + 12.0), TextAnchor::Left, TEXT, look.name());
            canvas.text(&small, (after, y + 12.0), TextAnchor::Left, FAINT, &pages.to_string());
            x += entry;
        }
        y += 24.0;
    }
    Ok(RgbPicture::of(canvas))
}

fn square(canvas: &mut PixelCanvas, area: PixelRect, look: PageStyle) {
    canvas.fill(area, look.color());
}

fn subtitle(machine: &MachineState, contents: &SliceContents, per_cell: u64) -> String {
    let stays: Pages = contents.blocking().map(|run| run.pages).sum();
    let each = if per_cell == 1 { "a page".to_owned() } else { format!("{per_cell} pages") };
    let keep = match stays.0 {
        0 => "nothing keeps it on".to_owned(),
        1 => "1 page keeps it on".to_owned(),
        pages => format!("{pages} pages keep it on"),
    };
    let size = machine.info.bytes_of(contents.slice);
    format!("{size}, {}  ·  a square is {each}  ·  {keep}", contents.state)
}

/// Entries of the legend with their widths, broken into lines.
fn lines(
    tally: &[(PageStyle, Pages)],
    face: &FontSize<'_>,
    room: f32,
) -> Vec<Vec<(PageStyle, Pages, f32)>> {
    let mut lines: Vec<Vec<(PageStyle, Pages, f32)>> = vec![Vec::new()];
    let mut x = 0.0;
    for &(look, pages) in tally {
        let entry =
            SWATCH + 6.0 + face.width(look.name()) + 5.0 + face.width(&pages.to_string()) + 18.0;
        if x + entry > room && x > 0.0 {
            lines.push(Vec::new());
            x = 0.0;
        }
        x += entry;
        lines.last_mut().expect("there is a line").push((look, pages, entry));
    }
    lines
}
