//! The tournament as a picture: a row per input, a mark per policy, placed by its share of the
//! clairvoyant's net.
//!
//! A picture of circles and lines is a few lines of SVG; a plotting library would bring more than
//! it draws.

use std::fmt::Write as _;

use super::{ABOVE, CLAIRVOYANT, TournamentReport, is_above};

/// After Okabe and Ito: distinguishable with colour blindness.
const COLOURS: [&str; 6] = ["#5a5a5a", "#0072b2", "#d55e00", "#cc79a7", "#009e73", "#e69f00"];
const ROW: f64 = 26.0;
const LEFT: f64 = 190.0;
const WIDTH: f64 = 960.0;
/// Shares beyond these are drawn at the edge, as triangles.
const LEAST: f64 = -1.0;
const MOST: f64 = 1.2;

fn x(share: f64) -> f64 {
    LEFT + (share.clamp(LEAST, MOST) - LEAST) / (MOST - LEAST) * (WIDTH - LEFT - 40.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn label(svg: &mut String, (left, base): (f64, f64), text: &str) {
    let _ = writeln!(svg, r#"<text x="{left:.1}" y="{base:.1}">{}</text>"#, escaped(text));
}

/// The picture, as the text of an SVG file. Inputs on which the clairvoyant earns nothing have no
/// place in it.
pub fn svg(report: &TournamentReport) -> String {
    let mut inputs: Vec<(&str, Option<u64>)> = Vec::new();
    for score in report.scores.iter().filter(|score| score.share_of_clairvoyant.is_some()) {
        let key = (score.input.as_str(), score.seed);
        if !inputs.contains(&key) {
            inputs.push(key);
        }
    }
    let policies: Vec<&str> =
        report.standings.iter().map(|standing| standing.policy.as_str()).collect();
    let policies: Vec<&str> = policies.into_iter().filter(|name| *name != CLAIRVOYANT).collect();
    let colour = |policy: &str| {
        let at = policies.iter().position(|name| *name == policy).unwrap_or(0);
        COLOURS[at % COLOURS.len()]
    };
    let (top, bottom) = (2.0 * ROW, (inputs.len() as f64 + 2.0) * ROW);
    let height = bottom + 3.0 * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    label(&mut svg, (LEFT, 22.0), "net energy as a share of the clairvoyant's");
    for tick in [-100, -50, 0, 50, 100] {
        let (at, shade) =
            (x(f64::from(tick) / 100.0), if tick == 0 { "#787878" } else { "#d7d7d7" });
        let _ = writeln!(svg, r#"<path d="M{at:.1} {top} V{bottom}" stroke="{shade}"/>"#);
        label(&mut svg, (at - 14.0, bottom + 16.0), &format!("{tick} %"));
    }
    for (row, (input, seed)) in inputs.iter().enumerate() {
        let y = top + ROW * (row as f64 + 0.5);
        let title =
            seed.map_or_else(|| (*input).to_owned(), |seed| format!("{input}, seed {seed}"));
        label(&mut svg, (8.0, y + 4.0), &title);
        for score in
            report.scores.iter().filter(|score| score.input == *input && score.seed == *seed)
        {
            let Some(share) = score.share_of_clairvoyant.filter(|_| score.policy != CLAIRVOYANT)
            else {
                continue;
            };
            let (at, fill) = (x(share), colour(&score.policy));
            let title = format!("{}: {:.1} %, {}", score.policy, share * 100.0, score.settings);
            let mark = if (LEAST..=MOST).contains(&share) {
                format!(r#"<circle cx="{at:.1}" cy="{y}" r="5" fill="{fill}" fill-opacity="0.85">"#)
            } else {
                let way = if share < LEAST { -7.0 } else { 7.0 };
                let (back, up, down) = (at - way, y - 6.0, y + 6.0);
                format!(r#"<path d="M{at:.1} {y} L{back:.1} {up} V{down} Z" fill="{fill}">"#)
            };
            let close = if mark.starts_with("<circle") { "circle" } else { "path" };
            let _ = writeln!(svg, "{mark}<title>{}</title></{close}>", escaped(&title));
        }
    }
    for (at, name) in policies.iter().enumerate() {
        let (left, y) = (LEFT + 125.0 * at as f64, bottom + 1.8 * ROW);
        let _ = writeln!(svg, r#"<circle cx="{left}" cy="{y}" r="5" fill="{}"/>"#, colour(name));
        label(&mut svg, (left + 10.0, y + 4.0), name);
    }
    if report.scores.iter().any(|score| is_above(score.share_of_clairvoyant)) {
        label(&mut svg, (8.0, height - 8.0), &format!("above 100 %: {ABOVE}"));
    }
    svg.push_str("</svg>\n");
    svg
}
