//! Data of studies of memory sizes: one program's runs with as much memory as was left to it.

use ramslice_types::Bytes;

/// A study of one program.
#[derive(Debug, Clone)]
pub struct SizeStudy {
    /// How figures call it.
    pub name: String,
    /// What the program does, in words.
    pub what: String,
    /// The unit of its performance.
    pub unit: String,
    /// Whether more of that is better.
    pub more_is_better: bool,
    /// The most that it used when there was plenty, page cache included; if that is known.
    pub footprint: Option<Bytes>,
    /// Its runs, by size.
    pub runs: Vec<SizeRun>,
    /// Memory that shrank and grew while it ran.
    pub ramps: Vec<SizeRamp>,
}

/// How a program had no more memory than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeMethod {
    /// It had plenty.
    Plenty,
    /// Slices were held.
    Held,
    /// The machine was booted with less.
    Booted,
    /// It had plenty, and a heap of a size that it could not exceed.
    Heap,
}

/// A run with one size of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeRun {
    /// How it had no more.
    pub method: SizeMethod,
    /// Of the random numbers that it drew.
    pub seed: u64,
    /// What was left to it: memory above what the kernel keeps for itself, or its heap.
    pub size: Bytes,
    /// Seconds from its start to its end.
    pub elapsed_seconds: f64,
    /// How fast it was, in the study's unit.
    pub performance: f64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Anonymous pages that were reclaimed.
    pub reclaimed_anonymous: u64,
    /// Pages of files that were reclaimed.
    pub reclaimed_file: u64,
    /// Bytes read from disks, swap included.
    pub read: Bytes,
    /// Pages read from swap.
    pub swapped_in: u64,
    /// Pages written to swap.
    pub swapped_out: u64,
    /// Seconds in garbage collection, of a program that has one.
    pub collection_seconds: Option<f64>,
}

impl SizeStudy {
    /// Whether sizes are those of a heap, and memory was plenty.
    pub fn is_of_heap(&self) -> bool {
        self.runs.iter().any(|run| run.method == SizeMethod::Heap)
    }
}

/// A run while memory shrank and grew.
#[derive(Debug, Clone)]
pub struct SizeRamp {
    /// Its samples, by time.
    pub samples: Vec<SizeRampSample>,
}

/// A moment of such a run. Counts are since its begin, and do not fall.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeRampSample {
    /// Since its begin.
    pub seconds: f64,
    /// What was left to the program.
    pub size: Bytes,
    /// Bytes of files that the program has read, from the cache or from a disk.
    pub read: Bytes,
    /// Kibibytes that all disks have delivered.
    pub disk_kib: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A study with two seeds, three sizes and a ramp.
    pub(crate) fn study(name: &str) -> SizeStudy {
        let run = |method, seed: u64, mib: u64| SizeRun {
            method,
            seed,
            size: Bytes(mib << 20),
            elapsed_seconds: 5.0,
            performance: 4.0 + seed as f64,
            major_faults: 1000 / mib,
            minor_faults: 300,
            reclaimed_anonymous: 20,
            reclaimed_file: 10,
            read: Bytes(5 << 20),
            swapped_in: 7,
            swapped_out: 9,
            collection_seconds: None,
        };
        let sample = |at: u64| SizeRampSample {
            seconds: at as f64 / 2.0,
            size: Bytes((200 - 10 * at.min(10 - at)) << 20),
            read: Bytes(at * 50_000_000),
            disk_kib: at * 10_000,
        };
        SizeStudy {
            name: name.to_owned(),
            what: "integers & <arrays>".to_owned(),
            unit: "s".to_owned(),
            more_is_better: false,
            footprint: Some(Bytes(170 << 20)),
            runs: vec![
                run(SizeMethod::Plenty, 1, 400),
                run(SizeMethod::Held, 1, 100),
                run(SizeMethod::Held, 2, 100),
                run(SizeMethod::Booted, 1, 100),
            ],
            ramps: vec![SizeRamp { samples: (0..10).map(sample).collect() }],
        }
    }
}
