//! Writes SVG: text is escaped, numbers are short, looks are left to classes that the style sheet
//! knows.

use std::fmt::Write as _;

/// Text within an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no other control characters, not even escaped.
            '\t' | '\n' => escaped.push(c),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A coordinate, to a tenth of a pixel.
fn short(value: f64) -> String {
    let text = format!("{:.1}", if value.is_finite() { value } else { 0.0 });
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Where a text is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextAnchor {
    Start,
    Middle,
    End,
}

impl TextAnchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The inside of a drawing.
#[derive(Debug, Default)]
pub(crate) struct SvgWriter {
    body: String,
}

impl SvgWriter {
    /// A rectangle; `title` is what it shows to who points at it.
    pub(crate) fn rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        title: &str,
    ) {
        let (x, y, width, height) =
            (short(x), short(y), short(width.max(0.0)), short(height.max(0.0)));
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}""#
        );
        self.close("rect", title);
    }

    /// A circle.
    pub(crate) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64, title: &str) {
        let (x, y, radius) = (short(x), short(y), short(radius));
        let _ = write!(self.body, r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}""#);
        self.close("circle", title);
    }

    fn close(&mut self, element: &str, title: &str) {
        if title.is_empty() {
            self.body.push_str("/>");
        } else {
            let _ = write!(self.body, "><title>{}</title></{element}>", escape(title));
        }
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.path(class, &[from, to], false);
    }

    /// A line through points, or the area that it bounds.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        let mut data = String::new();
        let mut last: Option<(String, String)> = None;
        for &(x, y) in points {
            let point = (short(x), short(y));
            match &last {
                None => _ = write!(data, "M{} {}", point.0, point.1),
                Some(last) if *last == point => {}
                Some((_, y)) if *y == point.1 => _ = write!(data, "H{}", point.0),
                Some((x, _)) if *x == point.0 => _ = write!(data, "V{}", point.1),
                Some(_) => _ = write!(data, "L{} {}", point.0, point.1),
            }
            last = Some(point);
        }
        if closed {
            data.push('Z');
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{data}"/>"#);
    }

    /// Rectangles of one class as one element.
    pub(crate) fn tiles(&mut self, class: &str, tiles: &[(f64, f64, f64, f64)]) {
        if tiles.is_empty() {
            return;
        }
        let mut data = String::new();
        for &(x, y, width, height) in tiles {
            let _ = write!(
                data,
                "M{} {}h{}v{}h-{}z",
                short(x),
                short(y),
                short(width),
                short(height),
                short(width)
            );
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{data}"/>"#);
    }

    /// A text.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: TextAnchor, text: &str) {
        let (x, y, anchor) = (short(x), short(y), anchor.name());
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A text that reads from the bottom to the top.
    pub(crate) fn vertical_text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let (x, y, text) = (short(x), short(y), escape(text));
        let _ = write!(
            self.body,
            r#"<text class="{class}" transform="translate({x} {y}) rotate(-90)" "#
        );
        let _ = write!(self.body, r#"text-anchor="middle">{text}</text>"#);
    }

    /// The drawing, `width` by `height` pixels, with text for screen readers.
    pub(crate) fn finish(
        self,
        id: &str,
        class: &str,
        (width, height): (f64, f64),
        title: &str,
        about: &str,
    ) -> String {
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="{class}" viewBox="0 0 {width} {height}" role="img" "#,
                r#"aria-labelledby="{id}-title {id}-desc"><title id="{id}-title">{title}</title>"#,
                r#"<desc id="{id}-desc">{about}</desc>{body}</svg>"#
            ),
            class = class,
            width = short(width),
            height = short(height),
            id = escape(id),
            title = escape(title),
            about = escape(about),
            body = self.body,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let mut svg = SvgWriter::default();
        svg.text("t", (1.0, 2.04), TextAnchor::End, "<script>&\"\u{1}");
        assert_eq!(
            svg.body,
            "<text class=\"t\" x=\"1\" y=\"2\" \
             text-anchor=\"end\">&lt;script&gt;&amp;&quot;\u{fffd}</text>"
        );
    }

    #[test]
    fn lines_say_what_changes_and_no_number_is_not_a_number() {
        let mut svg = SvgWriter::default();
        svg.path("l", &[(0.0, 1.0), (5.0, 1.0), (5.0, 3.25), (6.0, f64::NAN)], false);
        assert_eq!(svg.body, r#"<path class="l" d="M0 1H5V3.2L6 0"/>"#);
    }
}
