//! The page: all figures in one self-contained file.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;

use crate::chart::Medium;
use crate::figure::{FigureContent, ReportFigure};
use crate::style;
use crate::svg::escape;

/// What the page says of itself.
#[derive(Debug, Clone, Default)]
pub struct PageHeader {
    /// The heading.
    pub title: String,
    /// What made it, as in `ramslice 0.1.0`.
    pub made_by: String,
    /// The runs: name, and what it is.
    pub runs: Vec<(String, String)>,
}

/// Writes one HTML document, in UTF-8.
///
/// It has no links to other files: style, script and data are within, and a policy forbids the
/// browser to load anything.
///
/// # Errors
/// Those of `out`.
pub fn page(head: &PageHeader, figures: &[ReportFigure], out: &mut dyn Write) -> io::Result<()> {
    let title = escape(&head.title);
    let row = |(name, about): &(String, String)| {
        ["<tr><td>", &escape(name), "</td><td>", &code(about), "</td></tr>\n"].concat()
    };
    let rows: String = head.runs.iter().map(row).collect();
    write!(
        out,
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light; {light}{kinds} }}
:root[data-theme=dark] {{ color-scheme: dark; {dark} }}
@media (prefers-color-scheme: dark) {{
:root:not([data-theme=light]) {{ color-scheme: dark; {dark} }} }}
{page_css}{figure_css}</style>
</head>
<body>
<header>
<div class="top"><h1>{title}</h1><button type="button" hidden></button></div>
<table class="runs">
<thead><tr><th scope="col">run</th><th scope="col">what it is</th></tr></thead><tbody>
{rows}</tbody></table>
</header>
<main>
"#,
        light = style::variables(false),
        dark = style::variables(true),
        kinds = style::kinds(),
        page_css = include_str!("page/page.css"),
        figure_css = style::FIGURE,
    )?;
    // Figures of one kind follow each other: how to read them is said once.
    let before =
        [None].into_iter().chain(figures.iter().map(|figure| Some(figure.caption.as_str())));
    for (figure, before) in figures.iter().zip(before) {
        section(figure, before == Some(&figure.caption), out)?;
    }
    write!(
        out,
        r"</main>
<footer>Made by {made_by}. Colours: orange keeps a slice on, dark blue moves, light blue is dropped,
dark is off.</footer>
<script>
{script}</script>
</body>
</html>
",
        made_by = escape(&head.made_by),
        script = include_str!("page/page.js"),
    )
}

fn section(figure: &ReportFigure, has_text: bool, out: &mut dyn Write) -> io::Result<()> {
    let (id, title) = (escape(&figure.id), escape(&figure.title));
    let data = match &figure.content {
        FigureContent::Missing { what, how } => {
            return write!(
                out,
                "<figure id=\"{id}\"><figcaption><h2>{title}</h2></figcaption>\n<div \
                 class=\"missing\"><p>Not drawn: {}. To have it, {}.</p></div></figure>\n",
                escape(what),
                code(how)
            );
        }
        FigureContent::Drawn { data, .. } => data,
    };
    writeln!(out, "<figure id=\"{id}\"><figcaption><h2>{title}</h2></figcaption>")?;
    for look in [Medium::Wide, Medium::Narrow] {
        writeln!(out, "{}", figure.svg(look).unwrap_or_default())?;
    }
    write!(
        out,
        "<output class=\"readout\" aria-live=\"off\"></output><figcaption>{}<p><a \
         download=\"{id}.csv\" href=\"data:text/csv;charset=utf-8;base64,",
        if has_text { String::new() } else { format!("<p>{}</p>", code(&figure.caption)) },
    )?;
    let mut encoder = EncoderWriter::new(out, &STANDARD);
    data.write(&mut encoder)?;
    encoder.finish()?.write_all(b"\">Data of this figure (CSV)</a></p></figcaption></figure>\n")
}

/// Text with `commands` set apart.
fn code(text: &str) -> String {
    let mut parts = text.split('`');
    let mut html = escape(parts.next().unwrap_or_default());
    while let (Some(inner), after) = (parts.next(), parts.next()) {
        html.push_str(&format!(
            "<code>{}</code>{}",
            escape(inner),
            escape(after.unwrap_or_default())
        ));
    }
    html
}
