//! The mixtures of pages that memory is filled with, from the Hannover thesis (2024).

use crate::ThesisExperiment;

/// A mixture: its name, what it is for, how likely pages are to be free, anonymous, cache, and how
/// often mapped.
pub(super) struct PageMixture {
    pub(super) name: &'static str,
    pub(super) experiment: ThesisExperiment,
    pub(super) free: (f64, f64),
    pub(super) anon: (f64, f64),
    pub(super) file: (f64, f64),
    pub(super) map_count: u32,
}

const NONE: (f64, f64) = (0.0, 0.0);
const UP: (f64, f64) = (0.0, 1.0);
const DOWN: (f64, f64) = (1.0, 0.0);

/// Those of the thesis' §4.2.2, from few pages to many, and those of §4.2.3, of all kinds.
pub(super) const MIXTURES: [PageMixture; 8] = [
    PageMixture {
        name: "cache",
        experiment: ThesisExperiment::Cache,
        free: DOWN,
        anon: NONE,
        file: UP,
        map_count: 1,
    },
    mapped("mapped once", 1),
    mapped("mapped twice", 2),
    mapped("mapped 4 times", 4),
    mapped("mapped 8 times", 8),
    mixed("mixed", (0.7, 0.1), (0.1, 0.5), (0.2, 0.4), 1),
    mixed("mixed, much cache", (0.2, 0.0), (0.4, 0.1), (0.4, 0.9), 1),
    mixed("mixed, mapped 3 times", (0.1, 0.7), (0.6, 0.1), (0.3, 0.2), 3),
];

const fn mapped(name: &'static str, map_count: u32) -> PageMixture {
    let experiment = ThesisExperiment::Mapped(map_count);
    PageMixture { name, experiment, free: DOWN, anon: UP, file: NONE, map_count }
}

const fn mixed(
    name: &'static str,
    free: (f64, f64),
    anon: (f64, f64),
    file: (f64, f64),
    map_count: u32,
) -> PageMixture {
    PageMixture { name, experiment: ThesisExperiment::Mixed, free, anon, file, map_count }
}
