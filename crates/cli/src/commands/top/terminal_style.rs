//! Cells of a picture as a line of the terminal library.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::render::{ColorDepth, OutputStyle, RgbColour, ScreenCell};

/// A line of cells in the terminal's colours.
pub(super) fn glyphs(screen: &OutputStyle, cells: &[ScreenCell]) -> Line<'static> {
    let color = |color: RgbColour| match screen.depth {
        ColorDepth::None => Color::Reset,
        ColorDepth::Ansi256 => Color::Indexed(color.ansi256()),
        ColorDepth::True => Color::Rgb(color.0, color.1, color.2),
    };
    let spans = cells.chunk_by(|a, b| (a.fg, a.bg) == (b.fg, b.bg)).map(|run| {
        let mut style = Style::new();
        style.fg = run[0].fg.map(color);
        style.bg = run[0].bg.map(color);
        Span::styled(run.iter().map(|cell| cell.ch).collect::<String>(), style)
    });
    Line::from(spans.collect::<Vec<_>>())
}
