//! The one-glance bar: all memory on one line, and the legend that explains it.

use ramslice_types::{Bytes, PageComposition, PageKind};

use super::mosaic::{ScreenCell, apportion};
use super::screen::{ColorDepth, OutputStyle};
use ramslice_palette::{ascii, color, ink};

/// Between the entries of a legend.
const GAP: &str = "   ";

/// All memory on `width` cells, holes left out.
pub(crate) fn bar(screen: &OutputStyle, pages: &PageComposition, width: usize) -> Vec<ScreenCell> {
    let pages = PageComposition { hole: ramslice_types::Pages::ZERO, ..*pages };
    apportion(&pages, width)
        .into_iter()
        .map(|kind| match screen.depth {
            ColorDepth::None => ScreenCell { ch: ascii(kind), fg: None, bg: None },
            _ => {
                let ch = match kind {
                    PageKind::Offline if screen.unicode => '╱',
                    PageKind::Quarantined if screen.unicode => '╳',
                    PageKind::Offline | PageKind::Quarantined => ascii(kind),
                    _ => ' ',
                };
                ScreenCell { ch, fg: Some(ink(kind)), bg: Some(color(kind)) }
            }
        })
        .collect()
}

/// A swatch, name and size for every kind there is, `offline` and the four of an online slice
/// always; on as many lines of `width` cells as it takes.
pub(crate) fn legend(
    screen: &OutputStyle,
    pages: &PageComposition,
    page_bytes: Bytes,
    width: usize,
) -> Vec<Vec<ScreenCell>> {
    let plain = |ch| ScreenCell { ch, fg: None, bg: None };
    let mut lines: Vec<Vec<ScreenCell>> = vec![Vec::new()];
    for (kind, size) in entries(pages, page_bytes) {
        let colored = |ch| vec![ScreenCell { ch, fg: Some(ink(kind)), bg: Some(color(kind)) }; 2];
        let mut entry = match (screen.depth, kind) {
            (ColorDepth::None, _) => vec![plain(ascii(kind))],
            (_, PageKind::Offline) if screen.unicode => colored('╱'),
            (_, PageKind::Quarantined) if screen.unicode => colored('╳'),
            _ => colored(' '),
        };
        entry.extend(format!(" {} {size}", kind.name()).chars().map(plain));
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            *line = entry;
        } else if line.len() + GAP.len() + entry.len() <= width {
            line.extend(GAP.chars().map(plain));
            line.extend(entry);
        } else {
            lines.push(entry);
        }
    }
    lines
}

/// The kinds worth a word in a legend, with their size.
pub(crate) fn entries(pages: &PageComposition, page_bytes: Bytes) -> Vec<(PageKind, Bytes)> {
    let always = [
        PageKind::Unmovable,
        PageKind::Movable,
        PageKind::Freeable,
        PageKind::Free,
        PageKind::Offline,
    ];
    PageKind::ALL
        .into_iter()
        .map(|kind| (kind, pages.get(kind).bytes(page_bytes)))
        .filter(|(kind, size)| always.contains(kind) || (size.0 > 0 && *kind != PageKind::Hole))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::Pages;

    #[test]
    fn a_legend_takes_the_lines_it_needs_and_loses_nothing() {
        let pages = PageComposition {
            waking: Pages(1),
            quarantined: Pages(1),
            ..PageComposition::default()
        };
        let lines = legend(&OutputStyle::plain(), &pages, Bytes(4096), 40);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 40));
        let text: String = lines.iter().flatten().map(|glyph| glyph.ch).collect();
        for kind in PageKind::ALL.iter().filter(|&&kind| kind != PageKind::Hole) {
            assert!(text.contains(kind.name()), "{text}");
        }
    }
}
