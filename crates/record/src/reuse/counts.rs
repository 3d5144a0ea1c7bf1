//! What sampling has counted so far, and its rows.

use ramslice_miss_ratio::ReuseBins;

use crate::proc_statistics::StatisticLine;
use crate::tables::signed;

/// Counts of one kind of page; in pages of the sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KindCounts {
    /// Uses of pages that are active, by the bin of scans since the use before; then of others.
    pub(super) reused: [Vec<u64>; 2],
    /// First uses since sampling began, of pages that were there then: active, and others.
    pub(super) unseen: [u64; 2],
    /// Pages that came.
    pub(super) arrived: u64,
    /// Pages that went, or became of another kind.
    pub(super) gone: u64,
    /// Pages that are there.
    pub(super) resident: u64,
}

impl KindCounts {
    /// A use `scans` after the one before.
    pub(super) fn reuse(&mut self, active: bool, scans: u64, pages: u64) {
        let (counts, bin) = (&mut self.reused[usize::from(!active)], ReuseBins::of(scans));
        if counts.len() <= bin {
            counts.resize(bin + 1, 0);
        }
        counts[bin] += pages;
    }
}

/// All counts since sampling began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ReuseCounts {
    /// When it began, on the clock that goes on during suspend: counts with another time cannot be
    /// compared.
    pub(super) started_us: i64,
    /// The time that the scans span.
    pub(super) elapsed_us: u64,
    /// Scans after the first one.
    pub(super) scans: u64,
    /// CPU time that they took.
    pub(super) cpu_us: u64,
    /// Page frames of the sample, and of all memory.
    pub(super) frames: (u64, u64),
    /// Memory of programs, and page cache of files.
    pub(super) anon: KindCounts,
    pub(super) file: KindCounts,
}

impl ReuseCounts {
    /// Rows; of reuse times those that there were.
    pub(super) fn lines(&self) -> Vec<StatisticLine> {
        let line = |name: &str, value, unit| StatisticLine {
            name: format!("ramslice_reuse_{name}"),
            value,
            unit,
        };
        let mut found = vec![
            line("started_us", self.started_us, "us"),
            line("elapsed_us", signed(self.elapsed_us), "us"),
            line("scans", signed(self.scans), "count"),
            line("cpu_us", signed(self.cpu_us), "us"),
            line("sampled_frames", signed(self.frames.0), "count"),
            line("all_frames", signed(self.frames.1), "count"),
        ];
        for (kind, counts) in [("anon", &self.anon), ("file", &self.file)] {
            let mut add = |name: &str, count: u64| {
                found.push(line(&format!("{kind}_{name}"), signed(count), "count"));
            };
            add("resident", counts.resident);
            add("arrived", counts.arrived);
            add("gone", counts.gone);
            for (at, activity) in ["active", "inactive"].into_iter().enumerate() {
                add(&format!("{activity}_unseen"), counts.unseen[at]);
                for (bin, &count) in counts.reused[at].iter().enumerate().filter(|(_, n)| **n > 0) {
                    add(&format!("{activity}_scans_{}", ReuseBins::shortest(bin)), count);
                }
            }
        }
        found
    }
}
