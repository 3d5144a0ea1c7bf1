//! Colours of the page, light and dark. Kinds of pages have theirs everywhere: see
//! [`ramslice_palette`].

use ramslice_types::PageKind;

use ramslice_palette::color;

/// What figures are styled by; colours are variables.
pub(crate) const FIGURE: &str = include_str!("page/figure.css");

/// Name, light, dark.
const COLOURS: [(&str, &str, &str); 35] = [
    ("paper", "#ffffff", "#14181d"),
    ("panel", "#f6f8fa", "#1b2027"),
    ("ink", "#1b2027", "#e6eaee"),
    ("faint", "#5b6570", "#9aa5b1"),
    ("edge", "#d3d9df", "#38424d"),
    ("link", "#1f66ae", "#7cbce8"),
    ("holding", "#d3d9df", "#414c58"),
    ("compaction", "#c0392b", "#ff8a7a"),
    ("saved", "#009e73", "#23b98d"),
    ("attainable", "#d3d9df", "#414c58"),
    ("invested", "#e69f00", "#e69f00"),
    ("undecided", "#8a94a0", "#8a94a0"),
    ("outline", "#5b6570", "#6b7784"),
    ("s0", "#5b6570", "#9aa5b1"),
    ("s1", "#009e73", "#23b98d"),
    ("s2", "#1f66ae", "#5b9fe0"),
    ("s3", "#d55e00", "#e8833a"),
    ("s4", "#8e3f86", "#c27cba"),
    ("s5", "#b58900", "#f2c12e"),
    ("s6", "#c0392b", "#ff8a7a"),
    ("s7", "#24707f", "#56b4c4"),
    // What pages are used for: the same by day and night, as kinds are. Neighbours in a row differ
    // in lightness.
    ("p-slab", "#8f3f00", "#8f3f00"),
    ("p-table", "#d55e00", "#d55e00"),
    ("p-kernel", "#f0a35e", "#f0a35e"),
    ("p-anonymous", "#1f66ae", "#1f66ae"),
    ("p-shared", "#4f97d7", "#4f97d7"),
    ("p-cache", "#8ecbf0", "#8ecbf0"),
    ("p-buffer", "#24707f", "#24707f"),
    // How full a slice is, and how much of it stays.
    ("full-10", "#b9d5ee", "#b9d5ee"),
    ("full-50", "#7cb3e3", "#7cb3e3"),
    ("full-90", "#3f87cf", "#3f87cf"),
    ("full-100", "#17508f", "#17508f"),
    ("stays-1", "#e8954f", "#e8954f"),
    ("stays-10", "#c65500", "#c65500"),
    ("stays-100", "#6e2f00", "#6e2f00"),
];

/// Declarations of the variables.
pub(crate) fn variables(dark: bool) -> String {
    let mut text = String::new();
    for (name, light, night) in COLOURS {
        text.push_str(&format!("--{name}:{};", if dark { night } else { light }));
    }
    text
}

/// Declarations of the kinds' variables, the same by day and night.
pub(crate) fn kinds() -> String {
    PageKind::ALL
        .iter()
        .map(|kind| ["--", kind.name(), ":", &color(*kind).css(), ";"].concat())
        .collect()
}

/// The figures' style with light colours in place of variables, for readers that know none.
pub(crate) fn literal() -> String {
    let mut css = FIGURE.to_owned();
    for (name, light, _) in COLOURS {
        css = css.replace(&format!("var(--{name})"), light);
    }
    for kind in PageKind::ALL {
        css = css.replace(&format!("var(--{})", kind.name()), &color(kind).css());
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_a_colour() {
        assert!(FIGURE.contains("var(--movable)"));
        assert!(!literal().contains("var("), "{}", literal());
        for page in [include_str!("page/page.css"), FIGURE] {
            for name in page.split("var(--").skip(1).filter_map(|rest| rest.split(')').next()) {
                let known = COLOURS.iter().any(|(known, ..)| *known == name)
                    || PageKind::ALL.iter().any(|kind| kind.name() == name);
                assert!(known, "--{name}");
            }
        }
    }
}
