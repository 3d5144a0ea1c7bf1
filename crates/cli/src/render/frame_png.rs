//! All memory as a picture, a pixel for each page frame, row by row from the first address.
//!
//! Like the memory bitmaps of "Dynamic Memory Management" (IIT Kanpur), which had free memory
//! white, page cache grey and the rest black.

use std::io::Write;

use anyhow::Result;
use ramslice_backend::FrameUse;
use ramslice_palette::{RgbColour, color};
use ramslice_types::{PageKind, Pages};

use super::png::EDGE;

/// Marks rows that were left out, because there is no memory at their addresses.
const GAP: u8 = PageKind::ALL.len() as u8;
/// What the picture has for a frame of the page cache in shades of grey.
const CACHE: u8 = GAP + 1;

/// How frames are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameColours {
    /// As the other maps: by what becomes of a page.
    Kinds,
    /// Free white, page cache grey, the rest black.
    Grey,
}

impl FrameColours {
    /// The colour of each byte of a picture.
    fn palette(self) -> Vec<u8> {
        let shade = |level: u8| RgbColour(level, level, level);
        let of = |kind: PageKind| match (self, kind) {
            (Self::Kinds, kind) => color(kind),
            (Self::Grey, PageKind::Free | PageKind::Offline) => shade(255),
            (Self::Grey, PageKind::Hole) => shade(230),
            (Self::Grey, _) => shade(0),
        };
        let colours = PageKind::ALL.into_iter().map(of).chain([EDGE, shade(128)]);
        colours.flat_map(|RgbColour(red, green, blue)| [red, green, blue]).collect()
    }

    fn byte(self, frame: FrameUse) -> u8 {
        match self {
            Self::Grey if frame.cached => CACHE,
            _ => index(frame.kind) as u8,
        }
    }
}

fn index(kind: PageKind) -> usize {
    PageKind::ALL.iter().position(|one| *one == kind).expect("every kind is among all kinds")
}

/// A picture that grows by frames: a byte a pixel, so that 64 GiB are 16 MiB.
pub(crate) struct FramePicture {
    colours: FrameColours,
    width: usize,
    pixels: Vec<u8>,
    row: Vec<FrameUse>,
    in_gap: bool,
    counts: [u64; PageKind::ALL.len()],
}

impl FramePicture {
    /// An empty one; `width` in pixels.
    pub(crate) fn new(width: u32, colours: FrameColours) -> Self {
        let width = width.max(1) as usize;
        Self {
            colours,
            width,
            pixels: Vec::new(),
            row: Vec::with_capacity(width),
            in_gap: false,
            counts: [0; PageKind::ALL.len()],
        }
    }

    /// The next frames.
    pub(crate) fn add(&mut self, frames: &[FrameUse]) {
        for frame in frames {
            self.counts[index(frame.kind)] += 1;
            self.row.push(*frame);
            if self.row.len() == self.width {
                self.end_row();
            }
        }
    }

    /// Rows without any memory become one line, however many follow each other.
    fn end_row(&mut self) {
        let is_gap = self.row.iter().all(|frame| frame.kind == PageKind::Hole);
        if is_gap && !self.in_gap {
            self.pixels.extend(std::iter::repeat_n(GAP, self.width));
        } else if !is_gap {
            let hole = index(PageKind::Hole) as u8;
            let missing = self.width - self.row.len();
            self.pixels.extend(self.row.iter().map(|frame| self.colours.byte(*frame)));
            self.pixels.extend(std::iter::repeat_n(hole, missing));
        }
        self.in_gap = is_gap;
        self.row.clear();
    }

    /// Frames of each kind so far.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (PageKind, Pages)> {
        PageKind::ALL.into_iter().zip(self.counts.map(Pages))
    }

    /// Ends the last row. Returns width and height in pixels.
    pub(crate) fn finish(&mut self) -> (u32, u32) {
        if !self.row.is_empty() {
            self.end_row();
        }
        if self.in_gap {
            self.pixels.truncate(self.pixels.len() - self.width);
            self.in_gap = false;
        }
        (self.width as u32, (self.pixels.len() / self.width) as u32)
    }

    /// Writes it as a PNG. It is finished, and has a row.
    pub(crate) fn write(&self, to: impl Write) -> Result<()> {
        let height = (self.pixels.len() / self.width) as u32;
        let mut encoder = png::Encoder::new(to, self.width as u32, height);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(self.colours.palette());
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(kinds: &[PageKind]) -> Vec<FrameUse> {
        kinds.iter().map(|kind| FrameUse { kind: *kind, cached: false }).collect()
    }

    fn decoded(picture: &FramePicture) -> (u32, u32, Vec<u8>) {
        let mut file = Vec::new();
        picture.write(&mut file).expect("a picture");
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("a frame");
        (info.width, info.height, pixels)
    }

    #[test]
    fn a_pixel_is_a_page_in_row_major_order() {
        let mut picture = FramePicture::new(2, FrameColours::Kinds);
        let kinds = [PageKind::Unmovable, PageKind::Free, PageKind::Offline];
        picture.add(&frames(&kinds[..1]));
        picture.add(&frames(&kinds[1..]));
        assert_eq!(picture.finish(), (2, 2));
        let (width, height, pixels) = decoded(&picture);
        assert_eq!((width, height), (2, 2));
        let expected: Vec<u8> = [kinds[0], kinds[1], kinds[2], PageKind::Hole]
            .into_iter()
            .flat_map(|kind| {
                let RgbColour(red, green, blue) = color(kind);
                [red, green, blue]
            })
            .collect();
        assert_eq!(pixels, expected);
    }

    #[test]
    fn rows_without_memory_are_one_line_and_none_at_the_end() {
        let mut picture = FramePicture::new(4, FrameColours::Kinds);
        picture.add(&frames(&[PageKind::Free; 4]));
        picture.add(&frames(&[PageKind::Hole; 400]));
        picture.add(&frames(&[PageKind::Free; 4]));
        picture.add(&frames(&[PageKind::Hole; 42]));
        assert_eq!(picture.finish(), (4, 3));
        let (_, _, pixels) = decoded(&picture);
        let RgbColour(red, green, blue) = EDGE;
        assert_eq!(pixels[4 * 3..4 * 3 + 3], [red, green, blue]);
        let counts: Vec<_> = picture.counts().filter(|(_, pages)| pages.0 > 0).collect();
        assert_eq!(counts, [(PageKind::Free, Pages(8)), (PageKind::Hole, Pages(442))]);
    }

    #[test]
    fn in_grey_free_is_white_cache_grey_and_the_rest_black() {
        let mut picture = FramePicture::new(4, FrameColours::Grey);
        picture.add(&frames(&[PageKind::Free, PageKind::Unmovable, PageKind::Movable]));
        picture.add(&[FrameUse { kind: PageKind::Movable, cached: true }]);
        picture.finish();
        let (_, _, pixels) = decoded(&picture);
        let shades: Vec<u8> = pixels.chunks(3).map(|pixel| pixel[0]).collect();
        assert_eq!(shades, [255, 0, 0, 128]);
    }
}
