//! The text format 0.0.4, for scrapers that do not accept `OpenMetrics`.
//!
//! It names families of counters by their samples, with `_total`, and has neither info metrics,
//! units nor a mark at the end. Source: Prometheus, "Exposition formats".

use std::collections::HashMap;
use std::fmt::Write;

/// `open_metrics`, as the library writes it, in text format 0.0.4.
pub(crate) fn text_0_0_4(open_metrics: &str) -> String {
    let types: HashMap<&str, &str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    // The name that samples of a family have, and its type in this format.
    let renamed = |family: &str| match types.get(family) {
        Some(&"counter") => (format!("{family}_total"), "counter"),
        Some(&"info") => (format!("{family}_info"), "gauge"),
        Some(&"unknown") | None => (family.to_owned(), "untyped"),
        Some(&kind) => (family.to_owned(), kind),
    };
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let written = if let Some((family, help)) = words(line, "# HELP ") {
            writeln!(text, "# HELP {} {help}", renamed(family).0)
        } else if let Some((family, _)) = words(line, "# TYPE ") {
            let (name, kind) = renamed(family);
            writeln!(text, "# TYPE {name} {kind}")
        } else if line.starts_with('#') {
            Ok(())
        } else {
            writeln!(text, "{line}")
        };
        written.expect("writing to a string does not fail");
    }
    text
}

/// The first word after `start`, and what follows it.
fn words<'a>(line: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(start)?.split_once(' ')
}

/// Whether an `Accept` header has `OpenMetrics` in it; without one, the older format is meant.
pub(crate) fn accepts_open_metrics(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let refused = |part: &str| {
            part.strip_prefix("q=").is_some_and(|q| q.parse::<f64>().is_ok_and(|q| q <= 0.0))
        };
        parts.next() == Some("application/openmetrics-text") && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let open = "# HELP build The version.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n\
                    # HELP woken Woken slices.\n# TYPE woken counter\nwoken_total 2\n\
                    # HELP size_bytes A size.\n# TYPE size_bytes gauge\n# UNIT size_bytes bytes\n\
                    size_bytes 3\n# EOF\n";
        let classic = "# HELP build_info The version.\n# TYPE build_info gauge\n\
                       build_info{v=\"1\"} 1\n\
                       # HELP woken_total Woken slices.\n# TYPE woken_total counter\n\
                       woken_total 2\n\
                       # HELP size_bytes A size.\n# TYPE size_bytes gauge\nsize_bytes 3\n";
        assert_eq!(text_0_0_4(open), classic);
    }

    #[test]
    fn the_accept_header_decides() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        assert!(accepts_open_metrics(prometheus));
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text;q=0"] {
            assert!(!accepts_open_metrics(accept), "{accept}");
        }
    }
}
