//! A small raster: rectangles with fractional edges, hatching, text.

use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};

use ramslice_palette::RgbColour;

/// Where a text stands relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextAnchor {
    Left,
    Right,
}

/// A typeface at a size.
pub(crate) struct FontSize<'a> {
    font: &'a FontRef<'a>,
    scale: PxScale,
}

impl<'a> FontSize<'a> {
    pub(crate) fn new(font: &'a FontRef<'a>, pixels: f32) -> Self {
        Self { font, scale: PxScale::from(pixels) }
    }

    /// Width of `text` in pixels.
    pub(crate) fn width(&self, text: &str) -> f32 {
        let font = self.font.as_scaled(self.scale);
        let (mut width, mut last) = (0.0, None);
        for id in text.chars().map(|ch| font.glyph_id(ch)) {
            width += last.map_or(0.0, |last| font.kern(last, id)) + font.h_advance(id);
            last = Some(id);
        }
        width
    }
}

/// An area in pixels; edges may lie between pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PixelRect {
    pub(crate) x: f32,
    pub(crate) y: f32,
    pub(crate) w: f32,
    pub(crate) h: f32,
}

/// The raster.
pub(crate) struct PixelCanvas {
    width: usize,
    height: usize,
    pixels: Vec<RgbColour>,
}

impl PixelCanvas {
    pub(crate) fn new(width: usize, height: usize, background: RgbColour) -> Self {
        Self { width, height, pixels: vec![background; width * height] }
    }

    fn blend(&mut self, x: i64, y: i64, color: RgbColour, share: f32) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x < self.width && y < self.height && share > 0.0 {
            let pixel = &mut self.pixels[y * self.width + x];
            *pixel = pixel.mix(color, share);
        }
    }

    /// Calls `paint` with every pixel of `area` and how much of it the area covers.
    fn cover(area: PixelRect, mut paint: impl FnMut(i64, i64, f32)) {
        let overlap = |cell: i64, from: f32, length: f32| {
            ((cell as f32 + 1.0).min(from + length) - (cell as f32).max(from)).max(0.0)
        };
        for y in area.y.floor() as i64..(area.y + area.h).ceil() as i64 {
            for x in area.x.floor() as i64..(area.x + area.w).ceil() as i64 {
                paint(x, y, overlap(x, area.x, area.w) * overlap(y, area.y, area.h));
            }
        }
    }

    /// Fills an area.
    pub(crate) fn fill(&mut self, area: PixelRect, color: RgbColour) {
        Self::cover(area, |x, y, share| self.blend(x, y, color, share));
    }

    /// Draws lines at 45 degrees over an area, `pitch` pixels apart and `weight` wide.
    pub(crate) fn hatch(&mut self, area: PixelRect, color: RgbColour, pitch: f32, weight: f32) {
        Self::cover(area, |x, y, share| {
            // Distance of the pixel's centre from the nearest line, counted across the lines.
            let across = (x as f32 + y as f32 + 1.0) * std::f32::consts::FRAC_1_SQRT_2;
            let from_line = (across.rem_euclid(pitch) - pitch / 2.0).abs();
            self.blend(x, y, color, share * (weight / 2.0 + 0.5 - from_line).clamp(0.0, 1.0));
        });
    }

    /// Draws a frame of `weight` pixels inside an area.
    pub(crate) fn frame(&mut self, area: PixelRect, color: RgbColour, weight: f32) {
        let PixelRect { x, y, w, h } = area;
        self.fill(PixelRect { h: weight, ..area }, color);
        self.fill(PixelRect { y: y + h - weight, h: weight, ..area }, color);
        self.fill(PixelRect { y: y + weight, w: weight, h: h - 2.0 * weight, x }, color);
        self.fill(
            PixelRect { x: x + w - weight, y: y + weight, w: weight, h: h - 2.0 * weight },
            color,
        );
    }

    /// Draws both diagonals of an area, `weight` pixels wide.
    pub(crate) fn cross(&mut self, area: PixelRect, color: RgbColour, weight: f32) {
        let PixelRect { x, y, w, h } = area;
        let length = w.hypot(h).max(f32::MIN_POSITIVE);
        Self::cover(area, |px, py, share| {
            let (dx, dy) = (px as f32 + 0.5 - x - w / 2.0, py as f32 + 0.5 - y - h / 2.0);
            // Distances from the two lines through the centre.
            let from_line = ((dx * h - dy * w).abs()).min((dx * h + dy * w).abs()) / length;
            self.blend(px, py, color, share * (weight / 2.0 + 0.5 - from_line).clamp(0.0, 1.0));
        });
    }

    /// Takes the corners off an area by painting them in the background's colour.
    pub(crate) fn round(&mut self, area: PixelRect, radius: f32, background: RgbColour) {
        let PixelRect { x, y, w, h } = area;
        for (cx, cy, left, top) in [
            (x + radius, y + radius, x, y),
            (x + w - radius, y + radius, x + w - radius, y),
            (x + radius, y + h - radius, x, y + h - radius),
            (x + w - radius, y + h - radius, x + w - radius, y + h - radius),
        ] {
            Self::cover(PixelRect { x: left, y: top, w: radius, h: radius }, |px, py, share| {
                let distance = (px as f32 + 0.5 - cx).hypot(py as f32 + 0.5 - cy);
                self.blend(
                    px,
                    py,
                    background,
                    share.min((distance - radius + 0.5).clamp(0.0, 1.0)),
                );
            });
        }
    }

    /// Writes a line of text whose baseline is at `y`; returns its width.
    pub(crate) fn text(
        &mut self,
        face: &FontSize<'_>,
        (x, y): (f32, f32),
        anchor: TextAnchor,
        color: RgbColour,
        text: &str,
    ) -> f32 {
        let font = face.font.as_scaled(face.scale);
        let width = face.width(text);
        let mut at = if anchor == TextAnchor::Right { x - width } else { x };
        let mut last = None;
        for id in text.chars().map(|ch| font.glyph_id(ch)) {
            at += last.map_or(0.0, |last| font.kern(last, id));
            if let Some(outline) =
                face.font.outline_glyph(id.with_scale_and_position(face.scale, point(at, y)))
            {
                let bounds = outline.px_bounds();
                outline.draw(|px, py, share| {
                    let (left, top) = (bounds.min.x as i64, bounds.min.y as i64);
                    self.blend(left + i64::from(px), top + i64::from(py), color, share);
                });
            }
            at += font.h_advance(id);
            last = Some(id);
        }
        width
    }

    /// Width, height and the pixels as bytes, row by row.
    pub(crate) fn into_rgb(self) -> (u32, u32, Vec<u8>) {
        let bytes = self.pixels.iter().flat_map(|pixel| [pixel.0, pixel.1, pixel.2]).collect();
        (self.width as u32, self.height as u32, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: RgbColour = RgbColour(255, 255, 255);
    const BLACK: RgbColour = RgbColour(0, 0, 0);

    #[test]
    fn half_a_pixel_is_half_as_dark() {
        let mut canvas = PixelCanvas::new(2, 2, WHITE);
        canvas.fill(PixelRect { x: 0.0, y: 0.0, w: 1.0, h: 1.5 }, BLACK);
        assert_eq!(canvas.pixels, [BLACK, WHITE, RgbColour(128, 128, 128), WHITE]);
    }

    #[test]
    fn drawing_outside_is_cut_off() {
        let mut canvas = PixelCanvas::new(1, 1, WHITE);
        canvas.fill(PixelRect { x: -5.0, y: -5.0, w: 20.0, h: 20.0 }, BLACK);
        assert_eq!(canvas.into_rgb(), (1, 1, vec![0, 0, 0]));
    }
}
