//! Physical memory as a picture: a tile per slice by address, filled from the bottom with what
//! keeps the slice on, what can move, what can be dropped, what is free.

use std::io::Write;

use ab_glyph::FontRef;
use anyhow::{Context as _, Result};
use ramslice_types::{MachineState, PageKind, Pages, Slice, SliceSizes, SliceState, SliceTotals};

use super::bar::entries;
use super::canvas::{FontSize, PixelCanvas, PixelRect, TextAnchor};
use super::grid::{GridRow, SliceGrid};
use ramslice_palette::{RgbColour, color, ink};

pub(super) const PAPER: RgbColour = RgbColour(0xff, 0xff, 0xff);
pub(super) const TEXT: RgbColour = RgbColour(0x1b, 0x20, 0x27);
pub(super) const FAINT: RgbColour = RgbColour(0x66, 0x70, 0x7b);
pub(super) const EDGE: RgbColour = RgbColour(0xb9, 0xc2, 0xcb);
/// The frame of a slice that is being emptied.
const BUSY: RgbColour = RgbColour(0xf2, 0xc1, 0x2e);

pub(super) const MARGIN: f32 = 28.0;
const AXIS: f32 = 74.0;
const ZONES: f32 = 112.0;
const HEAD: f32 = 84.0;
const GAP_ROW: f32 = 26.0;
pub(super) const SWATCH: f32 = 14.0;

/// What a picture may look like.
#[derive(Debug, Clone)]
pub(crate) struct PictureOptions {
    /// Width in pixels, at least [`MIN_WIDTH`].
    pub(crate) width: u32,
    /// Heading.
    pub(crate) title: String,
}

/// The narrowest picture whose legend fits.
pub(crate) const MIN_WIDTH: u32 = 640;

/// A finished picture.
pub(crate) struct RgbPicture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    rgb: Vec<u8>,
}

impl RgbPicture {
    /// What was drawn.
    pub(super) fn of(canvas: PixelCanvas) -> Self {
        let (width, height, rgb) = canvas.into_rgb();
        Self { width, height, rgb }
    }

    /// Writes it as a PNG.
    pub(crate) fn write(&self, to: impl Write) -> Result<()> {
        let mut encoder = png::Encoder::new(to, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        Ok(writer.finish()?)
    }
}

/// Sizes of the part with the tiles that follow from the machine and the width.
struct PictureLayout<'a> {
    grid: SliceGrid<'a>,
    /// From one tile's left edge to the next.
    pitch: f32,
    gap: f32,
    tile_h: f32,
    /// From the top of the picture to below the last row.
    height: f32,
}

impl<'a> PictureLayout<'a> {
    fn new(machine: &'a MachineState, width: f32) -> Self {
        let room = width - 2.0 * MARGIN - AXIS - ZONES;
        // Tiles of 4:3; the picture is to be about half as high as wide, and a tile at least 6
        // wide.
        let size = |per_row: u32| {
            let grid = SliceGrid::new(machine, per_row);
            let pitch = (room / per_row as f32).min(96.0);
            let gap = if pitch >= 24.0 {
                4.0
            } else if pitch >= 12.0 {
                2.0
            } else {
                1.0
            };
            let tile_h = ((pitch - gap) * 0.75).round().max(5.0);
            let rows: f32 = grid
                .rows
                .iter()
                .map(|row| if matches!(row, GridRow::Gap) { GAP_ROW } else { tile_h + gap })
                .sum();
            Self { grid, pitch, gap, tile_h, height: HEAD + rows }
        };
        let most = (room / 6.0).max(4.0) as u32;
        let candidates = (2..=most.ilog2()).map(|power| size(1 << power));
        let distance = |layout: &Self| (layout.height / (width * 0.48)).ln().abs();
        candidates.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or_else(|| size(4))
    }
}

/// Draws the machine.
pub(crate) fn draw(machine: &MachineState, options: &PictureOptions) -> Result<RgbPicture> {
    let regular =
        FontRef::try_from_slice(dejavu::sans::regular()).context("reading the built-in font")?;
    let bold =
        FontRef::try_from_slice(dejavu::sans::bold()).context("reading the built-in font")?;
    let (title, body, small) =
        (FontSize::new(&bold, 22.0), FontSize::new(&regular, 15.0), FontSize::new(&regular, 13.0));

    let width = options.width.max(MIN_WIDTH);
    let layout = PictureLayout::new(machine, width as f32);
    let census = SliceTotals::of(&machine.snapshot.slices, machine.info.slice_pages());
    let wide = layout.pitch * layout.grid.per_row as f32 - layout.gap;
    let foot = PictureFoot::new(machine, &census, &small, width as f32 - 2.0 * MARGIN - AXIS);
    let height = (layout.height + foot.height()) as usize;
    let mut canvas = PixelCanvas::new(width as usize, height, PAPER);

    canvas.text(&title, (MARGIN, MARGIN + 14.0), TextAnchor::Left, TEXT, &options.title);
    canvas.text(
        &body,
        (MARGIN, MARGIN + 37.0),
        TextAnchor::Left,
        FAINT,
        &subtitle(machine, &census),
    );

    let left = MARGIN + AXIS;
    let mut y = HEAD;
    for (row, address) in layout.grid.rows.iter().zip(layout.grid.addresses()) {
        match row {
            GridRow::Gap => {
                for step in [-6.0, 0.0, 6.0] {
                    let dot = PixelRect {
                        x: left - 22.0,
                        y: y + GAP_ROW / 2.0 + step - 3.0,
                        w: 2.0,
                        h: 2.0,
                    };
                    canvas.fill(dot, FAINT);
                }
                let at = (left, y + GAP_ROW / 2.0 + 3.0);
                canvas.text(&small, at, TextAnchor::Left, FAINT, "no memory at these addresses");
                y += GAP_ROW;
            }
            GridRow::Slices { start, zone, cells } => {
                let baseline = y + layout.tile_h / 2.0 + 5.0;
                // Low rows: a label on every row would run into the next.
                let every = (18.0 / (layout.tile_h + layout.gap)).ceil() as u64;
                let row_bytes = machine.info.slice_bytes.0 * u64::from(layout.grid.per_row);
                if (start / row_bytes.max(1)).is_multiple_of(every) {
                    canvas.text(
                        &small,
                        (left - 12.0, baseline),
                        TextAnchor::Right,
                        FAINT,
                        &address,
                    );
                }
                for (at, slice) in cells.iter().enumerate() {
                    let Some(slice) = slice else { continue };
                    let x = left + (at as f32 * layout.pitch).round();
                    let next = left + ((at + 1) as f32 * layout.pitch).round();
                    let area = PixelRect { x, y, w: next - x - layout.gap, h: layout.tile_h };
                    tile(&mut canvas, area, slice, machine.info.slice_pages());
                }
                if let Some(zone) = zone {
                    let x = left + layout.pitch * layout.grid.per_row as f32 + 8.0;
                    canvas.text(&small, (x, baseline), TextAnchor::Left, FAINT, zone);
                }
                y += layout.tile_h + layout.gap;
            }
        }
    }
    foot.draw(&mut canvas, &small, (left, y), wide);

    Ok(RgbPicture::of(canvas))
}

fn subtitle(machine: &MachineState, census: &SliceTotals) -> String {
    let info = &machine.info;
    format!(
        "{} in {} {}  ·  {} slices off  ·  {:.0} % of free memory off",
        info.managed_pages.bytes(info.page_bytes),
        machine.snapshot.slices.len(),
        SliceSizes(info),
        census.in_state(SliceState::Offline),
        100.0 * info.offline_ratio(),
    )
}

/// One slice: its kinds as layers whose areas are their shares.
fn tile(canvas: &mut PixelCanvas, area: PixelRect, slice: &Slice, frames: Pages) {
    let parts = slice.composition(frames);
    let mut bottom = area.y + area.h;
    for kind in PageKind::ALL {
        let mut height = area.h * parts.get(kind).share_of(parts.total()) as f32;
        // One page of unmovable memory keeps a slice on: it must be seen.
        if kind == PageKind::Unmovable && height > 0.0 {
            height = height.max(2.0);
        }
        let height = height.min(bottom - area.y);
        let layer = PixelRect { y: bottom - height, h: height, ..area };
        canvas.fill(layer, color(kind));
        let weight = if area.w >= 20.0 { 1.4 } else { 1.0 };
        let pitch = if area.w >= 20.0 { 6.0 } else { 4.0 };
        match kind {
            PageKind::Offline | PageKind::Waking => canvas.hatch(layer, ink(kind), pitch, weight),
            PageKind::Hole if height > 0.0 => canvas.hatch(layer, EDGE, pitch, 0.6),
            _ => {}
        }
        bottom -= height;
    }
    match slice.state {
        SliceState::Emptying | SliceState::Waking => canvas.frame(area, BUSY, 2.0),
        SliceState::Quarantined => canvas.cross(area, ink(PageKind::Quarantined), 1.6),
        SliceState::Online | SliceState::Offline => {}
    }
    if area.w >= 20.0 {
        canvas.round(area, 3.0, PAPER);
    }
}

/// A kind in the bar or beside its name.
fn swatch(canvas: &mut PixelCanvas, area: PixelRect, kind: PageKind) {
    canvas.fill(area, color(kind));
    match kind {
        PageKind::Offline | PageKind::Waking => canvas.hatch(area, ink(kind), 6.0, 1.4),
        PageKind::Quarantined if area.w <= SWATCH => canvas.cross(area, ink(kind), 1.6),
        _ => {}
    }
}

/// An entry of the legend: what stands before the name, the name, the size.
struct LegendEntry {
    kind: Option<PageKind>,
    name: &'static str,
    size: String,
}

/// The whole machine as a bar, and the legend with the totals below it.
struct PictureFoot {
    bar: Vec<(PageKind, f32)>,
    lines: Vec<Vec<LegendEntry>>,
}

impl PictureFoot {
    fn new(machine: &MachineState, census: &SliceTotals, face: &FontSize<'_>, width: f32) -> Self {
        let kinds = entries(&census.pages, machine.info.page_bytes);
        let total: u64 = kinds.iter().map(|(_, size)| size.0).sum();
        let bar =
            kinds.iter().map(|(kind, size)| (*kind, size.0 as f32 / total.max(1) as f32)).collect();
        let mut legend: Vec<LegendEntry> = kinds
            .iter()
            .map(|(kind, size)| LegendEntry {
                kind: Some(*kind),
                name: kind.name(),
                size: size.to_string(),
            })
            .collect();
        let busy = census.in_state(SliceState::Emptying);
        if busy > 0 {
            let size = if busy == 1 { "1 slice".to_owned() } else { format!("{busy} slices") };
            legend.push(LegendEntry { kind: None, name: "being emptied", size });
        }
        let mut lines: Vec<Vec<LegendEntry>> = vec![Vec::new()];
        let mut x = 0.0;
        for entry in legend {
            let w = entry.width(face);
            if x + w > width && x > 0.0 {
                lines.push(Vec::new());
                x = 0.0;
            }
            x += w;
            lines.last_mut().expect("there is a line").push(entry);
        }
        Self { bar, lines }
    }

    fn height(&self) -> f32 {
        22.0 + 12.0 + 10.0 + 24.0 * self.lines.len() as f32 + MARGIN - 8.0
    }

    fn draw(
        &self,
        canvas: &mut PixelCanvas,
        face: &FontSize<'_>,
        (left, top): (f32, f32),
        width: f32,
    ) {
        let top = top + 22.0;
        let mut x = left;
        for (kind, share) in &self.bar {
            swatch(canvas, PixelRect { x, y: top, w: width * share, h: 12.0 }, *kind);
            x += width * share;
        }
        canvas.round(PixelRect { x: left, y: top, w: width, h: 12.0 }, 3.0, PAPER);

        for (line, y) in self.lines.iter().zip((0..).map(|line| top + 22.0 + 24.0 * line as f32)) {
            let mut x = left;
            for entry in line {
                let area = PixelRect { x, y, w: SWATCH, h: SWATCH };
                match entry.kind {
                    Some(kind) => swatch(canvas, area, kind),
                    None => canvas.fill(area, color(PageKind::Free)),
                }
                match entry.kind {
                    Some(PageKind::Free) => canvas.frame(area, EDGE, 1.0),
                    None => canvas.frame(area, BUSY, 2.0),
                    Some(_) => {}
                }
                canvas.round(area, 2.0, PAPER);
                let (name, baseline) = (x + SWATCH + 6.0, y + 12.0);
                let size = name
                    + 5.0
                    + canvas.text(face, (name, baseline), TextAnchor::Left, TEXT, entry.name);
                canvas.text(face, (size, baseline), TextAnchor::Left, FAINT, &entry.size);
                x += entry.width(face);
            }
        }
    }
}

impl LegendEntry {
    /// With the space to the next.
    fn width(&self, face: &FontSize<'_>) -> f32 {
        SWATCH + 6.0 + face.width(self.name) + 5.0 + face.width(&self.size) + 18.0
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ramslice_backend::ReplayBackend;
    use ramslice_types::Backend;

    use super::*;

    fn machine() -> MachineState {
        let fixture = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
            .join("tests/data/guest-8g.json");
        ReplayBackend::open(&fixture).unwrap().machine().unwrap()
    }

    #[test]
    fn the_picture_is_as_wide_as_asked_and_shows_every_kind() {
        let options = PictureOptions { width: 900, title: "Title".to_owned() };
        let picture = draw(&machine(), &options).unwrap();
        assert_eq!(picture.width, 900);
        for kind in [
            PageKind::Unmovable,
            PageKind::Movable,
            PageKind::Freeable,
            PageKind::Free,
            PageKind::Offline,
        ] {
            let RgbColour(r, g, b) = color(kind);
            let pixels = picture.rgb.chunks(3).filter(|pixel| *pixel == [r, g, b]).count();
            assert!(pixels > 200, "{kind:?}: {pixels} pixels");
        }
    }

    #[test]
    fn any_number_of_slices_gives_a_picture_of_bounded_size() {
        for slices in [0, 1, 3, 5000] {
            let mut machine = machine();
            let row = machine.snapshot.slices[40].clone();
            machine.snapshot.slices = (0..slices)
                .map(|id| Slice { id: ramslice_types::SliceId(id), ..row.clone() })
                .collect();
            let picture =
                draw(&machine, &PictureOptions { width: 800, title: String::new() }).unwrap();
            assert!((100..2000).contains(&picture.height), "{slices}: {}", picture.height);
        }
    }

    #[test]
    fn the_file_is_a_png() {
        let mut file = Vec::new();
        draw(&machine(), &PictureOptions { width: 640, title: String::new() })
            .unwrap()
            .write(&mut file)
            .unwrap();
        let header = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        assert_eq!(header.info().width, 640);
    }
}
