//! The last resort of `ramslice huge`: the kernel's caches of objects are shrunk, and ranges that
//! nothing else keeps are tried again.

use std::io::{self, Write};
use std::path::Path;

use ramslice_backend::{
    HugePageRange, LastResortActions, LastResortReport, ObjectCaches, ShrinkStep,
    make_by_shrinking, ranges_kept_by_objects, write_out_file_systems,
};
use ramslice_types::{Backend, BackendError, CacheChoice, Pages};
use serde::Serialize;

use crate::stderr;

/// Objects that were used a moment ago survive the first time that caches are shrunk.
const TIMES: usize = 3;

/// What becomes of objects that the kernel could make again.
///
/// They stay by default: after the aged load of the benchmark `huge`, no range was kept by objects
/// alone, and dropping them costs every program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ObjectChoice {
    /// They stay
    Keep,
    /// They go, where nothing else keeps a range
    Shrink,
}

/// What was done with caches of objects, or would be.
#[derive(Serialize)]
pub(super) struct ObjectsReport {
    choice: ObjectChoice,
    /// Ranges that nothing but such objects kept.
    near_ranges: usize,
    freed_pages: Pages,
    /// Huge pages that were made because of it.
    pages_made: u64,
    shrunk: Vec<ShrunkCaches>,
    /// Why it could not be done, or not be found out whether it would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

#[derive(Serialize)]
struct ShrunkCaches {
    step: ShrinkStep,
    freed_pages: Pages,
    pages_made: u64,
}

impl ObjectsReport {
    /// Nothing was done; how many ranges it would be for.
    pub(super) fn undone(
        choice: ObjectChoice,
        backend: &dyn Backend,
        ranges: &[&HugePageRange],
    ) -> Self {
        let near = caches().pages().map_err(BackendError::from).and_then(|slab| {
            ranges_kept_by_objects(backend, ranges.iter().copied(), slab.reclaimable)
        });
        let mut report = Self::of(choice, &LastResortReport::default());
        match near {
            Ok(near) => report.near_ranges = near.len(),
            Err(error) => report.failure = Some(error.to_string()),
        }
        report
    }

    fn of(choice: ObjectChoice, done: &LastResortReport) -> Self {
        Self {
            choice,
            near_ranges: done.near,
            freed_pages: done.rounds.iter().map(|round| round.freed).sum(),
            pages_made: done.rounds.iter().map(|round| round.made).sum(),
            shrunk: done
                .rounds
                .iter()
                .map(|round| ShrunkCaches {
                    step: round.step,
                    freed_pages: round.freed,
                    pages_made: round.made,
                })
                .collect(),
            failure: done.failure.clone(),
        }
    }

    /// A line about it, if there is anything to say.
    pub(super) fn write(&self, dry_run: bool, out: &mut dyn Write) -> io::Result<()> {
        let ranges = match self.near_ranges {
            1 => "1 range is kept by nothing but objects of the kernel".to_owned(),
            nr => format!("{nr} ranges are kept by nothing but objects of the kernel"),
        };
        match (self.choice, dry_run) {
            _ if self.near_ranges == 0 => {}
            (ObjectChoice::Keep, _) => writeln!(out, "{ranges}: --objects shrink may free some")?,
            (ObjectChoice::Shrink, true) => {
                writeln!(out, "{ranges}: would shrink their caches, and try again")?;
            }
            (ObjectChoice::Shrink, false) => {
                let pages = match self.pages_made {
                    1 => "1 huge page".to_owned(),
                    nr => format!("{nr} huge pages"),
                };
                let freed = self.freed_pages;
                writeln!(
                    out,
                    "{ranges}: shrinking their caches freed {freed} pages of slab, which made \
                     {pages}"
                )?;
            }
        }
        match &self.failure {
            Some(why) => {
                writeln!(out, "the kernel's caches of objects were left as they are: {why}")
            }
            None => Ok(()),
        }
    }
}

fn caches() -> ObjectCaches {
    ObjectCaches::under(Path::new("/"))
}

/// What is done in turn. Only who gives up all clean page cache loses that of files whose inodes
/// are in the way.
fn steps(cache: CacheChoice) -> Vec<ShrinkStep> {
    let mut steps = vec![ShrinkStep::EmptySlabs];
    steps.extend([ShrinkStep::Objects; TIMES]);
    if cache == CacheChoice::Drop {
        steps.extend([ShrinkStep::CacheAndObjects; TIMES]);
    }
    steps
}

/// Makes up to `missing` pages of `ranges`, by `make`, while caches are shrunk.
pub(super) fn shrink_and_make(
    backend: &dyn Backend,
    (ranges, missing): (&[&HugePageRange], u64),
    (cache, progress): (CacheChoice, bool),
    make: &mut dyn FnMut(&HugePageRange) -> Result<Option<String>, BackendError>,
    interrupted: &dyn Fn() -> bool,
) -> Result<(ObjectsReport, LastResortReport), BackendError> {
    let mut actions = RunningSystem { caches: caches(), progress, make, interrupted };
    let steps = steps(cache);
    let done = make_by_shrinking(backend, ranges, missing, &steps, &mut actions)?;
    Ok((ObjectsReport::of(ObjectChoice::Shrink, &done), done))
}

struct RunningSystem<'a> {
    caches: ObjectCaches,
    progress: bool,
    make: &'a mut dyn FnMut(&HugePageRange) -> Result<Option<String>, BackendError>,
    interrupted: &'a dyn Fn() -> bool,
}

impl LastResortActions for RunningSystem<'_> {
    fn reclaimable(&self) -> Result<Pages, BackendError> {
        Ok(self.caches.pages()?.reclaimable)
    }

    fn shrink(&mut self, step: ShrinkStep) -> Result<Pages, BackendError> {
        if self.progress {
            stderr::rewrite("shrinking the kernel's caches of objects; Ctrl-C stops");
        }
        if step != ShrinkStep::EmptySlabs {
            // An inode stays until it is written
            write_out_file_systems();
        }
        Ok(self.caches.shrink(step)?)
    }

    fn make(&mut self, range: &HugePageRange) -> Result<Option<String>, BackendError> {
        (self.make)(range)
    }

    fn interrupted(&self) -> bool {
        (self.interrupted)()
    }
}

#[cfg(test)]
mod tests {
    use ramslice_backend::ShrinkRound;

    use super::*;

    fn text(report: &ObjectsReport, dry_run: bool) -> String {
        let mut out = Vec::new();
        report.write(dry_run, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn done() -> LastResortReport {
        let round = |step, freed, made| ShrinkRound { step, freed: Pages(freed), made };
        LastResortReport {
            near: 2,
            rounds: vec![round(ShrinkStep::EmptySlabs, 7, 0), round(ShrinkStep::Objects, 500, 1)],
            ..LastResortReport::default()
        }
    }

    #[test]
    fn page_cache_goes_only_with_who_drops_it() {
        for cache in [CacheChoice::Auto, CacheChoice::Keep] {
            assert!(!steps(cache).contains(&ShrinkStep::CacheAndObjects));
        }
        assert_eq!(steps(CacheChoice::Drop).last(), Some(&ShrinkStep::CacheAndObjects));
        assert_eq!(steps(CacheChoice::Drop)[0], ShrinkStep::EmptySlabs);
    }

    #[test]
    fn what_was_done_is_said_in_a_line_and_counted_in_json() {
        let report = ObjectsReport::of(ObjectChoice::Shrink, &done());
        let words = text(&report, false);
        assert!(words.ends_with("freed 507 pages of slab, which made 1 huge page\n"), "{words}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["shrunk"][1]["step"], "objects");
        assert_eq!((&json["freed_pages"], &json["pages_made"]), (&507.into(), &1.into()));
    }

    #[test]
    fn what_is_not_done_is_offered_and_nothing_is_said_where_it_would_not_help() {
        let mut report = ObjectsReport::of(ObjectChoice::Keep, &LastResortReport::default());
        assert_eq!(text(&report, false), "");
        report.near_ranges = 1;
        assert!(text(&report, false).contains("--objects shrink may free"));
        report.choice = ObjectChoice::Shrink;
        assert!(text(&report, true).contains("1 range is kept"), "{}", text(&report, true));
        report.failure = Some("not for you".to_owned());
        assert!(text(&report, false).ends_with("as they are: not for you\n"));
    }
}
