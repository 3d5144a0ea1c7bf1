//! Ids and headings of figures, numbered or named where there are several runs.

/// The id of figure `base` of run `at` of `all`: numbered if there are several.
pub(super) fn id(base: &str, at: usize, all: usize) -> String {
    if all > 1 { format!("{base}-{}", at + 1) } else { base.to_owned() }
}

/// The heading of figure `base` of a run: it names the run if there are several.
pub(super) fn heading(base: &str, name: &str, all: usize) -> String {
    if all > 1 { format!("{base}: {name}") } else { base.to_owned() }
}
