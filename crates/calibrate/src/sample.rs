//! A sample: the operations that emptying took, and what they cost.

use ramslice_types::{
    Bytes, PageClass, PageFate, Pages, Price, PriceParameter, RequestOutcome, SliceContents,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Operations that empty a slice, as counted in advance: a price is computed from these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OperationCounts {
    /// Slices: 1, or more for a sum over several.
    pub slices: u64,
    /// Page frames of these.
    #[serde(rename = "frames_pages")]
    pub frames: Pages,
    /// Free ones among them.
    #[serde(rename = "free_pages")]
    pub free: Pages,
    /// Clean cache without mappings, to be dropped.
    #[serde(rename = "drop_pages")]
    pub dropped: Pages,
    /// Folios of these.
    #[serde(default)]
    pub drop_folios: u64,
    /// Pages to be migrated.
    #[serde(rename = "move_pages")]
    pub moved: Pages,
    /// Folios of these.
    #[serde(default)]
    pub move_folios: u64,
    /// Mappings of these.
    pub mappings: u64,
    /// Of the pages to be migrated, those whose destination is gained by dropping cache elsewhere;
    /// the others' comes from free memory.
    #[serde(default, rename = "cache_target_pages")]
    pub cache_targets: Pages,
    /// Page frames that stay: with any, the slice cannot be emptied. Always 0 in a sample.
    #[serde(default, rename = "staying_pages", skip_serializing_if = "is_none")]
    pub staying: Pages,
}

fn is_none(pages: &Pages) -> bool {
    *pages == Pages::ZERO
}

impl OperationCounts {
    /// What a slice with these contents takes; destinations are not known from them.
    pub fn of(contents: &SliceContents) -> Self {
        let mut found = Self { slices: 1, ..Self::default() };
        for run in &contents.runs {
            found.frames += run.pages;
            match run.fate() {
                PageFate::Free => found.free += run.pages,
                PageFate::Dropped => {
                    found.dropped += run.pages;
                    found.drop_folios += run.folios();
                }
                PageFate::Moves => {
                    found.moved += run.pages;
                    found.move_folios += run.folios();
                    // The kernel prices no mappings of pages that are on no LRU list, but for
                    // hugetlb.
                    if run.class != PageClass::MovableOps {
                        found.mappings += run.all_mappings();
                    }
                }
                PageFate::Stays | PageFate::Gone => found.staying += run.pages,
            }
        }
        found
    }
}

/// An experiment of the thesis' §4.2.2 that a sample belongs to, for model A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThesisExperiment {
    /// Empty slices (Figure 4.4).
    Empty,
    /// Slices of clean cache alone, from few pages to many (Figure 4.3, no mappings).
    Cache,
    /// Slices of anonymous memory alone, each page mapped so many times (Figure 4.3).
    Mapped(u32),
    /// All kinds together (Figure 4.5).
    Mixed,
}

/// Where a sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleOrigin {
    /// Memory filled on purpose; models are fitted to these.
    Artificial(ThesisExperiment),
    /// What programs held; models are judged by these.
    Program,
    /// A request of every day, as far as its operations could be worked out afterwards: see
    /// [`everyday()`](crate::everyday).
    Everyday,
}

/// One slice that was emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationSample {
    /// Where it comes from.
    pub origin: SampleOrigin,
    /// The mixture or program, for people.
    pub label: String,
    /// What it took.
    #[serde(flatten)]
    pub operations: OperationCounts,
    /// What the kernel expected, by the parameters in force.
    #[serde(rename = "price_predicted_100cycles")]
    pub predicted: Price,
    /// CPU time that it took.
    #[serde(rename = "price_measured_100cycles")]
    pub measured: Price,
    /// Pages that were really migrated.
    #[serde(rename = "migrated_pages")]
    pub migrated: Pages,
    /// Pages that were really dropped, in the slice and in destinations.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
    /// Attempts at moving pages that failed; they were tried again.
    #[serde(rename = "failed_pages")]
    pub failed: Pages,
}

impl CalibrationSample {
    /// What a request came to that took these operations.
    pub fn new(
        origin: SampleOrigin,
        label: &str,
        operations: OperationCounts,
        outcome: &RequestOutcome,
    ) -> Self {
        Self {
            origin,
            label: label.to_owned(),
            operations,
            predicted: outcome.price_predicted,
            measured: outcome.price_measured,
            migrated: outcome.migrated,
            dropped: outcome.dropped,
            failed: outcome.failed,
        }
    }
}

/// Samples and the machine that they are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleSet {
    /// The kernel's release.
    pub kernel_release: String,
    /// Size of a page.
    pub page_bytes: Bytes,
    /// The size of slices that artificial mixtures were emptied at.
    pub slice_bytes: Bytes,
    /// Parameters of the price model when they were taken.
    #[serde(rename = "price_parameters_100cycles")]
    pub parameters: BTreeMap<PriceParameter, Price>,
    /// How much the cost of the same work varied: half the middle half of its distribution, over
    /// the median.
    pub noise: f64,
    /// Samples left out because the slice changed while it was looked at.
    #[serde(rename = "changed_samples")]
    pub changed: u64,
    /// The samples.
    pub samples: Vec<CalibrationSample>,
}

impl SampleSet {
    /// Those that models are fitted to.
    pub fn artificial(&self) -> Vec<CalibrationSample> {
        self.of(|origin| matches!(origin, SampleOrigin::Artificial(_)))
    }

    /// Those that were gathered from everyday requests.
    pub fn everyday(&self) -> Vec<CalibrationSample> {
        self.of(|origin| origin == SampleOrigin::Everyday)
    }

    /// Those that they are judged by.
    pub fn programs(&self) -> Vec<CalibrationSample> {
        self.of(|origin| origin == SampleOrigin::Program)
    }

    fn of(&self, wanted: impl Fn(SampleOrigin) -> bool) -> Vec<CalibrationSample> {
        self.samples.iter().filter(|sample| wanted(sample.origin)).cloned().collect()
    }
}

/// A file of samples, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplesFile {
    /// `ramslice_types::SCHEMA_VERSION`.
    pub schema_version: u32,
    /// Counters of its pages, as they were when it was last read.
    #[serde(flatten)]
    pub samples: SampleSet,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{PageFlag, PageRun, Pfn, Reason, SliceId, SliceState};

    fn run(pages: u64, class: PageClass) -> PageRun {
        PageRun {
            pfn: Pfn(0),
            pages: Pages(pages),
            class,
            reason: Reason::None,
            flags: [PageFlag::Lru].into_iter().collect(),
            order: 0,
            mappings: 0,
            extra_references: 0,
            file: None,
            cgroup_inode: None,
        }
    }

    #[test]
    fn contents_become_operations() {
        let runs = vec![
            run(100, PageClass::Free),
            PageRun { mappings: 3, ..run(10, PageClass::Anonymous) },
            PageRun { mappings: 2, order: 9, ..run(1024, PageClass::Anonymous) },
            PageRun {
                flags: [PageFlag::Drop].into_iter().collect(),
                order: 2,
                ..run(8, PageClass::File)
            },
            PageRun { reason: Reason::Slab, ..run(7, PageClass::Slab) },
        ];
        let contents = SliceContents {
            slice: SliceId(1),
            state: SliceState::Online,
            reason: Reason::None,
            runs,
            files: Vec::new(),
            cgroups: Vec::new(),
            sites: None,
        };
        let found = OperationCounts::of(&contents);
        let expected = OperationCounts {
            slices: 1,
            frames: Pages(1149),
            free: Pages(100),
            dropped: Pages(8),
            drop_folios: 2,
            moved: Pages(1034),
            move_folios: 12,
            mappings: 34,
            cache_targets: Pages(0),
            staying: Pages(7),
        };
        assert_eq!(found, expected);
    }
}
