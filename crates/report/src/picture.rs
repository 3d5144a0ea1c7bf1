//! Pictures: the page's drawing with light colours, as PNG.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use thiserror::Error;

use crate::chart::Medium;
use crate::figure::ReportFigure;
use crate::style;

/// A drawing that does not become a picture.
#[derive(Debug, Error)]
pub enum PictureError {
    /// The library does not read the drawing.
    #[error("the drawing of {id} cannot be read")]
    Svg {
        /// The figure.
        id: String,
        /// What the library said.
        source: resvg::usvg::Error,
    },
    /// The picture is too large, or cannot be encoded.
    #[error("the drawing of {id} does not become a PNG: {what}")]
    Png {
        /// The figure.
        id: String,
        /// What was wrong.
        what: String,
    },
}

/// Renders figures. Has the font within, so that pictures are the same on every machine.
pub struct PngRenderer {
    options: Options<'static>,
}

impl Default for PngRenderer {
    fn default() -> Self {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        fonts.load_font_data(dejavu::sans::bold().to_vec());
        fonts.set_sans_serif_family("DejaVu Sans");
        Self {
            options: Options {
                fontdb: Arc::new(fonts),
                style_sheet: Some(style::literal()),
                ..Options::default()
            },
        }
    }
}

impl PngRenderer {
    /// The bytes of a PNG, two pixels for each of the page; nothing of a figure that is not drawn.
    pub fn png(&self, figure: &ReportFigure) -> Result<Option<Vec<u8>>, PictureError> {
        const ZOOM: f32 = 2.0;
        let Some(svg) = figure.svg(Medium::Picture) else { return Ok(None) };
        let id = || figure.id.clone();
        let tree = Tree::from_str(&svg, &self.options)
            .map_err(|source| PictureError::Svg { id: id(), source })?;
        let size = tree.size().to_int_size();
        let pixels = |side: u32| (f64::from(side) * f64::from(ZOOM)) as u32;
        let mut picture = Pixmap::new(pixels(size.width()), pixels(size.height()))
            .ok_or_else(|| PictureError::Png { id: id(), what: "it has no size".to_owned() })?;
        resvg::render(&tree, Transform::from_scale(ZOOM, ZOOM), &mut picture.as_mut());
        let png = picture
            .encode_png()
            .map_err(|error| PictureError::Png { id: id(), what: error.to_string() })?;
        Ok(Some(png))
    }
}
