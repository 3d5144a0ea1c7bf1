//! One colour and one letter for each kind of page, the same on a terminal, in a PNG and on a page.
//!
//! The four kinds that tile an online slice differ in lightness as well as in hue, and
//! vermilion against blue holds for the common forms of colour blindness (after Okabe and Ito).

use ramslice_types::PageKind;

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RgbColour(
    /// Red.
    pub u8,
    /// Green.
    pub u8,
    /// Blue.
    pub u8,
);

impl RgbColour {
    /// `share` of `over`, the rest of `self`.
    #[must_use]
    pub fn mix(self, over: Self, share: f32) -> Self {
        let channel = |below: u8, above: u8| {
            (f32::from(below) + (f32::from(above) - f32::from(below)) * share.clamp(0.0, 1.0))
                .round() as u8
        };
        Self(channel(self.0, over.0), channel(self.1, over.1), channel(self.2, over.2))
    }

    /// As in CSS: `#1f66ae`.
    pub fn css(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// The nearest of the 6x6x6 cube and the greys of a 256-colour terminal.
    pub fn ansi256(self) -> u8 {
        let level = |channel: u8| match channel {
            0..48 => 0,
            48..115 => 1,
            _ => (channel - 35) / 40,
        };
        let cube = |level: u8| if level == 0 { 0 } else { 55 + 40 * level };
        let (r, g, b) = (level(self.0), level(self.1), level(self.2));
        let grey = ((u16::from(self.0) + u16::from(self.1) + u16::from(self.2)) / 3) as u8;
        let step = grey.saturating_sub(3).min(230) / 10;
        let distance = |other: Self| {
            let square = |a: u8, b: u8| (i32::from(a) - i32::from(b)).pow(2);
            square(self.0, other.0) + square(self.1, other.1) + square(self.2, other.2)
        };
        let shade = 8 + 10 * step;
        if distance(Self(shade, shade, shade)) < distance(Self(cube(r), cube(g), cube(b))) {
            232 + step
        } else {
            16 + 36 * r + 6 * g + b
        }
    }
}

/// The colour of a kind.
pub fn color(kind: PageKind) -> RgbColour {
    match kind {
        PageKind::Unmovable => RgbColour(0xd5, 0x5e, 0x00),
        PageKind::Movable => RgbColour(0x1f, 0x66, 0xae),
        PageKind::Freeable => RgbColour(0x7c, 0xbc, 0xe8),
        PageKind::Free => RgbColour(0xe3, 0xe8, 0xed),
        PageKind::Waking => RgbColour(0xf2, 0xc1, 0x2e),
        PageKind::Offline => RgbColour(0x24, 0x2a, 0x33),
        PageKind::Quarantined => RgbColour(0x8e, 0x3f, 0x86),
        PageKind::Hole => RgbColour(0xff, 0xff, 0xff),
    }
}

/// What is drawn over it: the hatching of kinds that are not in use.
pub fn ink(kind: PageKind) -> RgbColour {
    match kind {
        PageKind::Offline => RgbColour(0x4a, 0x54, 0x63),
        PageKind::Quarantined => RgbColour(0xe9, 0xb8, 0xe4),
        PageKind::Waking => RgbColour(0x8a, 0x68, 0x00),
        _ => RgbColour(0x9a, 0xa3, 0xad),
    }
}

/// The letter of a kind where there is no colour.
pub fn ascii(kind: PageKind) -> char {
    match kind {
        PageKind::Unmovable => '#',
        PageKind::Movable => 'o',
        PageKind::Freeable => '+',
        PageKind::Free => '.',
        PageKind::Waking => '^',
        PageKind::Offline => '/',
        PageKind::Quarantined => 'X',
        PageKind::Hole => ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_distinct() {
        let mut letters = PageKind::ALL.map(ascii);
        letters.sort_unstable();
        assert!(letters.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn kinds_of_an_online_slice_differ_in_lightness() {
        let lightness = |kind| {
            let RgbColour(r, g, b) = color(kind);
            0.30 * f64::from(r) + 0.59 * f64::from(g) + 0.11 * f64::from(b)
        };
        let mut values =
            [PageKind::Unmovable, PageKind::Movable, PageKind::Freeable, PageKind::Free]
                .map(lightness);
        values.sort_by(f64::total_cmp);
        assert!(values.windows(2).all(|pair| pair[1] - pair[0] > 25.0), "{values:?}");
    }

    #[test]
    fn the_256_colours_are_met_exactly_where_they_can_be() {
        assert_eq!(RgbColour(0, 0, 0).ansi256(), 16);
        assert_eq!(RgbColour(255, 255, 255).ansi256(), 231);
        assert_eq!(RgbColour(0x5f, 0x87, 0xd7).ansi256(), 68);
        assert_eq!(RgbColour(0x80, 0x80, 0x80).ansi256(), 244);
    }
}
