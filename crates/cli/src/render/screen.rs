//! What stdout can show: width, colours, Unicode.

use std::env;
use std::io::{self, IsTerminal};

use ratatui::crossterm::terminal;

use crate::args::ColorChoice;
use ramslice_palette::RgbColour;

/// Columns where there is no terminal to ask.
const DEFAULT_WIDTH: u16 = 100;

/// How many colours there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorDepth {
    /// None: letters take their place.
    None,
    /// The 256 of a terminal.
    Ansi256,
    /// All of them.
    True,
}

/// The properties of stdout.
#[derive(Debug, Clone, Copy)]
pub struct OutputStyle {
    /// A person is looking.
    pub tty: bool,
    /// Columns.
    pub width: u16,
    /// Its colours.
    pub depth: ColorDepth,
    /// Half blocks and the sign for infinity can be shown.
    pub unicode: bool,
}

impl OutputStyle {
    /// Asks the environment.
    pub fn stdout(when: ColorChoice) -> Self {
        let tty = io::stdout().is_terminal();
        let var = |name| env::var(name).unwrap_or_default();
        let wanted = match when {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => tty && var("NO_COLOR").is_empty() && var("TERM") != "dumb",
        };
        let depth = match (wanted, var("COLORTERM").as_str()) {
            (false, _) => ColorDepth::None,
            (true, "truecolor" | "24bit") => ColorDepth::True,
            (true, _) => ColorDepth::Ansi256,
        };
        let width =
            if tty { terminal::size().map_or(DEFAULT_WIDTH, |size| size.0) } else { DEFAULT_WIDTH };
        Self { tty, width: width.clamp(40, 400), depth, unicode: wanted && (!tty || utf8_locale()) }
    }

    /// Plain ASCII of the default width.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { tty: false, width: DEFAULT_WIDTH, depth: ColorDepth::None, unicode: false }
    }

    /// `text` in these colours, if there are any.
    pub fn paint(&self, text: &str, fg: Option<RgbColour>, bg: Option<RgbColour>) -> String {
        let code = |layer: u8, color: RgbColour| match self.depth {
            ColorDepth::None => String::new(),
            ColorDepth::Ansi256 => format!("\x1b[{layer}8;5;{}m", color.ansi256()),
            ColorDepth::True => format!("\x1b[{layer}8;2;{};{};{}m", color.0, color.1, color.2),
        };
        if self.depth == ColorDepth::None || (fg.is_none() && bg.is_none()) {
            return text.to_owned();
        }
        let fg = fg.map(|color| code(3, color)).unwrap_or_default();
        let bg = bg.map(|color| code(4, color)).unwrap_or_default();
        format!("{fg}{bg}{text}\x1b[0m")
    }

    /// `text` in bold, if there are colours.
    pub fn bold(&self, text: &str) -> String {
        if self.depth == ColorDepth::None {
            text.to_owned()
        } else {
            format!("\x1b[1m{text}\x1b[0m")
        }
    }
}

fn utf8_locale() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        .is_some_and(|value| value.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_text_stays_as_it_is() {
        let screen = OutputStyle::plain();
        assert_eq!(screen.paint("x", Some(RgbColour(1, 2, 3)), None), "x");
        assert_eq!(screen.bold("x"), "x");
    }

    #[test]
    fn colours_are_given_in_the_terminals_depth() {
        let screen = OutputStyle { depth: ColorDepth::True, ..OutputStyle::plain() };
        assert_eq!(screen.paint("x", Some(RgbColour(1, 2, 3)), None), "\x1b[38;2;1;2;3mx\x1b[0m");
        let screen = OutputStyle { depth: ColorDepth::Ansi256, ..OutputStyle::plain() };
        assert_eq!(screen.paint("x", None, Some(RgbColour(0, 0, 0))), "\x1b[48;5;16mx\x1b[0m");
    }
}
