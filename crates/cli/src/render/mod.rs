//! How things look: on a terminal, in plain text, in a PNG. Nothing here reads a backend.

mod bar;
mod canvas;
mod fill;
pub(crate) mod frame_png;
mod grid;
mod mosaic;
mod overview;
mod page_map;
pub(crate) mod page_png;
mod page_style;
pub(crate) mod png;
mod prose;
mod screen;
mod table;

pub(crate) use bar::{bar, legend};
pub use fill::fill;
pub(crate) use mosaic::{ScreenCell, mosaic};
pub(crate) use overview::overview;
pub(crate) use page_map::{page_legend, page_map};
pub(crate) use prose::{heading, more, nr_pages, short_time, wrapped};
pub(crate) use ramslice_palette::RgbColour;
#[cfg(test)]
pub(crate) use ramslice_palette::ascii;
pub use screen::{ColorDepth, OutputStyle};
pub use table::{ColumnAlign, TextTable};
