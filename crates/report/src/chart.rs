//! A panel: plot area, two axes with units, grid and legend, for a wide page, a narrow one, and a
//! picture.

use crate::scale::LinearScale;
use crate::svg::{SvgWriter, TextAnchor};

/// The medium that a figure is drawn for. The page shows one of the first two; text has the same
/// size in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A column of 920 pixels.
    Wide,
    /// A telephone.
    Narrow,
    /// A file by itself, which has its heading within.
    Picture,
}

impl Medium {
    /// Pixels across.
    pub(crate) fn width(self) -> f64 {
        if self == Self::Narrow { 358.0 } else { 920.0 }
    }

    /// Marks along the time axis that fit.
    fn ticks(self) -> usize {
        if self == Self::Narrow { 4 } else { 9 }
    }

    /// The class of the whole drawing.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Wide => "figure wide",
            Self::Narrow => "figure narrow",
            Self::Picture => "figure",
        }
    }

    /// Points that are worth drawing.
    pub(crate) fn columns(self) -> usize {
        if self == Self::Narrow { 150 } else { 400 }
    }
}

/// How a key of the legend looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegendMark {
    Area,
    Line,
    Dot,
}

/// An entry of the legend.
#[derive(Debug, Clone)]
pub(crate) struct LegendEntry {
    pub(crate) class: String,
    pub(crate) mark: LegendMark,
    pub(crate) label: String,
}

impl LegendEntry {
    pub(crate) fn new(
        class: impl Into<String>,
        mark: LegendMark,
        label: impl Into<String>,
    ) -> Self {
        Self { class: class.into(), mark, label: label.into() }
    }
}

/// What an axis shows.
#[derive(Debug, Clone)]
pub(crate) struct ChartAxis {
    pub(crate) range: (f64, f64),
    pub(crate) label: String,
    /// The marks; round values without.
    pub(crate) marks: Option<Vec<(f64, String)>>,
}

impl ChartAxis {
    pub(crate) fn new(range: (f64, f64), label: impl Into<String>) -> Self {
        Self { range, label: label.into(), marks: None }
    }
}

/// A plot under construction.
pub(crate) struct ChartPanel {
    pub(crate) svg: SvgWriter,
    pub(crate) look: Medium,
    pub(crate) x: LinearScale,
    pub(crate) y: LinearScale,
    /// Left, top, right, bottom of the plot area.
    pub(crate) area: (f64, f64, f64, f64),
    height: f64,
}

const LINE: f64 = 20.0;
/// Between two lines of marks, and the most lines.
const MARK_LINE: f64 = 14.0;
const MARK_LINES: usize = 3;

/// About how wide a text is, in the legend's size.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.3
}

impl ChartPanel {
    /// Draws legend and axes around a plot area `plot_height` pixels high.
    pub(crate) fn new(
        look: Medium,
        heading: &str,
        plot_height: f64,
        keys: &[LegendEntry],
        x: &ChartAxis,
        y: &ChartAxis,
    ) -> Self {
        let mut svg = SvgWriter::default();
        let mut top = 8.0;
        if look == Medium::Picture {
            svg.rect("paper", (0.0, 0.0), (look.width(), 4000.0), "");
            svg.text("heading", (12.0, 28.0), TextAnchor::Start, heading);
            top = 44.0;
        }
        top = legend(&mut svg, look, top, keys);
        let right = look.width() - if look == Medium::Narrow { 8.0 } else { 16.0 };
        let bottom = top + plot_height;
        let y_scale = LinearScale::new(y.range, (bottom, top));
        let marks = y.marks.clone().unwrap_or_else(|| y_scale.ticks((plot_height / 45.0) as usize));
        let widest = marks.iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max);
        let left = 30.0 + widest;
        let x_scale = LinearScale::new(x.range, (left, right));
        for (value, text) in &marks {
            let at = y_scale.at(*value);
            svg.line("grid", (left, at), (right, at));
            svg.text("mark", (left - 6.0, at + 4.0), TextAnchor::End, text);
        }
        svg.vertical_text("label", (14.0, f64::midpoint(top, bottom)), &y.label);
        let marks = x.marks.clone().unwrap_or_else(|| x_scale.ticks(look.ticks()));
        let placed = marks.into_iter().map(|(value, text)| {
            let (at, width) = (x_scale.at(value), text_width(&text));
            // The last one stays within the drawing.
            let last = at + width / 2.0 > look.width();
            let from = if last { right - width } else { at - width / 2.0 };
            (
                (at, from, from + width),
                if last { TextAnchor::End } else { TextAnchor::Middle },
                text,
            )
        });
        let placed: Vec<_> = placed.collect();
        // Marks that would touch stand in several lines, in turn.
        let touch = |lines: usize| placed.windows(lines + 1).any(|run| run[0].0.2 > run[lines].0.1);
        let lines = (1..MARK_LINES).find(|lines| !touch(*lines)).unwrap_or(MARK_LINES);
        for (number, &((at, _, to), anchor, ref text)) in placed.iter().enumerate() {
            svg.line("grid", (at, bottom), (at, bottom + 4.0));
            let place = if anchor == TextAnchor::End { to } else { at };
            svg.text(
                "mark",
                (place, bottom + 17.0 + MARK_LINE * (number % lines) as f64),
                anchor,
                text,
            );
        }
        let lower = MARK_LINE * (lines - 1) as f64;
        svg.text(
            "label",
            (f64::midpoint(left, right), bottom + 36.0 + lower),
            TextAnchor::Middle,
            &x.label,
        );
        let height = bottom + 44.0 + lower;
        Self { svg, look, x: x_scale, y: y_scale, area: (left, top, right, bottom), height }
    }

    /// The pixels of a point.
    pub(crate) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    /// An area between two curves over the same places.
    pub(crate) fn band(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let upper = points.iter().map(|&(x, _, high)| self.at(x, high));
        let lower = points.iter().rev().map(|&(x, low, _)| self.at(x, low));
        let outline: Vec<_> = upper.chain(lower).collect();
        self.svg.path(class, &outline, true);
    }

    /// A curve.
    pub(crate) fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|&(x, y)| self.at(x, y)).collect();
        self.svg.path(class, &points, false);
    }

    /// A stripe behind or in front of what is drawn, over the whole height.
    pub(crate) fn stripe(&mut self, class: &str, from: f64, to: f64, title: &str) {
        let (left, top, right, bottom) = self.area;
        let (from, to) = (self.x.at(from).max(left), self.x.at(to).min(right));
        if to >= left && from <= right {
            self.svg.rect(class, (from, top), ((to - from).max(1.0), bottom - top), title);
        }
    }

    /// A column that shows `title` to who points at it; around `x`, `width` of its values wide.
    pub(crate) fn hit(&mut self, x: f64, width: f64, title: &str) {
        self.stripe("hit", x - width / 2.0, x + width / 2.0, title);
    }

    /// An interval, as a line with ends.
    pub(crate) fn whisker(&mut self, x: f64, low: f64, high: f64) {
        let (at, from, to) = (self.x.at(x), self.y.at(low), self.y.at(high));
        self.svg.line("whisker", (at, from), (at, to));
        for end in [from, to] {
            self.svg.line("whisker", (at - 4.0, end), (at + 4.0, end));
        }
    }

    /// The drawing.
    pub(crate) fn finish(mut self, id: &str, title: &str, about: &str) -> String {
        let (left, _, right, bottom) = self.area;
        self.svg.line("axis", (left, bottom), (right, bottom));
        let suffix = if self.look == Medium::Narrow { "-narrow" } else { "" };
        let size = (self.look.width(), self.height);
        self.svg.finish(&format!("{id}{suffix}"), self.look.class(), size, title, about)
    }
}

/// Draws the keys, in as many lines as they need; where the plot may begin.
fn legend(svg: &mut SvgWriter, look: Medium, top: f64, keys: &[LegendEntry]) -> f64 {
    if keys.is_empty() {
        return top + 4.0;
    }
    let start = 12.0;
    let (mut x, mut y) = (start, top);
    for key in keys {
        let width = 20.0 + text_width(&key.label) + 14.0;
        if x > start && x + width > look.width() {
            (x, y) = (start, y + LINE);
        }
        match key.mark {
            LegendMark::Area => svg.rect(&key.class, (x, y + 2.0), (13.0, 13.0), ""),
            LegendMark::Line => svg.line(&key.class, (x - 1.0, y + 8.5), (x + 14.0, y + 8.5)),
            LegendMark::Dot => svg.circle(&key.class, (x + 6.5, y + 8.5), 4.5, ""),
        }
        svg.text("key", (x + 20.0, y + 13.0), TextAnchor::Start, &key.label);
        x += width;
    }
    y + LINE + 8.0
}
