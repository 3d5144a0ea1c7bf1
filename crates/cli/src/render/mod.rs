//! How things look: on a terminal, in plain text, in a PNG. Nothing here reads a backend.

mod bar;
mod canvas;
mod fill;
mod grid;
mod look;
mod mosaic;
mod overview;
mod page_map;
pub(crate) mod page_png;
pub(crate) mod png;
mod screen;
mod table;

pub(crate) use bar::{bar, legend};
pub(crate) use fill::fill;
pub(crate) use mosaic::{Glyph, mosaic};
pub(crate) use overview::overview;
pub(crate) use page_map::{page_legend, page_map};
pub(crate) use ramslice_report::palette::Rgb;
#[cfg(test)]
pub(crate) use ramslice_report::palette::ascii;
pub(crate) use screen::{Depth, Screen};
pub(crate) use table::{Align, Table};
