//! Reads a study of memory sizes, as `ramlab size` writes it: docs/reference/sizes.md.

use ramslice_types::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::results::runs;
use crate::size_data::{SizeMethod, SizeRamp, SizeRampSample, SizeRun, SizeStudy};

const KIB: u64 = 1024;

/// The document, as far as figures need it.
#[derive(Deserialize)]
pub(super) struct SizesFile {
    program: String,
    what: String,
    runs: Vec<SizesRun>,
}

/// One run.
#[derive(Deserialize)]
pub(super) struct SizesRun {
    scale: String,
    memory: String,
    seed: u64,
    size_kib: u64,
    elapsed_s: f64,
    footprint_kib: Option<u64>,
    gc_s: Option<f64>,
    performance: Option<PerformanceFile>,
    counters: Option<CountersFile>,
    disk: Option<DiskFile>,
    /// Names of the columns of a ramp's samples, and these.
    columns: Option<Vec<String>>,
    samples: Option<Vec<Vec<Value>>>,
}

#[derive(Deserialize)]
struct PerformanceFile {
    value: f64,
    unit: String,
    more_is_better: bool,
}

#[derive(Deserialize)]
struct CountersFile {
    pgfault: u64,
    pgmajfault: u64,
    pgsteal_anon: u64,
    pgsteal_file: u64,
    pswpin: u64,
    pswpout: u64,
}

#[derive(Deserialize)]
struct DiskFile {
    read_bytes: u64,
}

impl SizesRun {
    fn method(&self) -> Result<SizeMethod, String> {
        match self.memory.as_str() {
            "plenty" => Ok(SizeMethod::Plenty),
            "held" => Ok(SizeMethod::Held),
            "booted" => Ok(SizeMethod::Booted),
            "heap" => Ok(SizeMethod::Heap),
            other => Err(format!(
                "memory is `{other}`, and what is known is plenty, held, booted, heap and ramp"
            )),
        }
    }

    fn is_full(&self) -> bool {
        self.scale == "full"
    }

    fn run(&self) -> Result<SizeRun, String> {
        let method = self.method()?;
        let (Some(performance), Some(counters), Some(disk)) =
            (&self.performance, &self.counters, &self.disk)
        else {
            return Err("it has no performance, no counters or no disk".to_owned());
        };
        if counters.pgmajfault > counters.pgfault {
            return Err(format!(
                "{} of {} page faults were major",
                counters.pgmajfault, counters.pgfault
            ));
        }
        Ok(SizeRun {
            method,
            seed: self.seed,
            size: Bytes(self.size_kib * KIB),
            elapsed_seconds: self.elapsed_s,
            performance: performance.value,
            major_faults: counters.pgmajfault,
            minor_faults: counters.pgfault - counters.pgmajfault,
            reclaimed_anonymous: counters.pgsteal_anon,
            reclaimed_file: counters.pgsteal_file,
            read: Bytes(disk.read_bytes),
            swapped_in: counters.pswpin,
            swapped_out: counters.pswpout,
            collection_seconds: self.gc_s,
        })
    }

    fn ramp(&self) -> Result<SizeRamp, String> {
        let (Some(columns), Some(samples)) = (&self.columns, &self.samples) else {
            return Err("a ramp needs columns and samples".to_owned());
        };
        let place = |name: &str| {
            columns
                .iter()
                .position(|column| column == name)
                .ok_or_else(|| format!("its samples have no column `{name}`"))
        };
        let places = [place("seconds")?, place("size_kib")?, place("bytes")?, place("pgpgin")?];
        let mut found: Vec<SizeRampSample> = Vec::new();
        for (at, row) in samples.iter().enumerate() {
            let damaged = |name: &str| format!("sample {} has no number in `{name}`", at + 1);
            let whole = |place: usize| {
                row.get(place).and_then(Value::as_u64).ok_or_else(|| damaged(&columns[place]))
            };
            let [seconds, size, read, disk] = places;
            found.push(SizeRampSample {
                seconds: row
                    .get(seconds)
                    .and_then(Value::as_f64)
                    .ok_or_else(|| damaged("seconds"))?,
                size: Bytes(whole(size)? * KIB),
                read: Bytes(whole(read)?),
                disk_kib: whole(disk)?,
            });
        }
        let backwards = |pair: &[SizeRampSample]| {
            pair[1].seconds <= pair[0].seconds
                || pair[1].read < pair[0].read
                || pair[1].disk_kib < pair[0].disk_kib
        };
        if let Some(at) = found.windows(2).position(backwards) {
            return Err(format!("time or a count runs backwards at sample {}", at + 2));
        }
        Ok(SizeRamp { samples: found })
    }
}

impl SizesFile {
    /// What figures draw, and what it is. Runs of a smaller scale are no evidence, and left out
    /// beside full ones.
    pub(super) fn into_study(self, name: String) -> Result<(SizeStudy, String), String> {
        let full = self.runs.iter().any(SizesRun::is_full);
        let mut study = SizeStudy {
            name,
            what: self.what,
            unit: String::new(),
            more_is_better: false,
            footprint: None,
            runs: Vec::new(),
            ramps: Vec::new(),
        };
        for (at, run) in self.runs.iter().enumerate() {
            if full && !run.is_full() {
                continue;
            }
            let damaged = |why: String| format!("run {}: {why}", at + 1);
            if run.memory == "ramp" {
                study.ramps.push(run.ramp().map_err(damaged)?);
                continue;
            }
            study.runs.push(run.run().map_err(damaged)?);
            if let Some(performance) = &run.performance {
                if !study.unit.is_empty() && study.unit != performance.unit {
                    return Err(damaged(format!(
                        "its performance is in {}, and that of others in {}",
                        performance.unit, study.unit
                    )));
                }
                study.unit.clone_from(&performance.unit);
                study.more_is_better = performance.more_is_better;
            }
            if let Some(footprint) = run.footprint_kib {
                study.footprint = Some(Bytes(footprint * KIB));
            }
        }
        study.runs.sort_by_key(|run| (run.method, run.size, run.seed));
        let count = study.runs.len() + study.ramps.len();
        let scale = if full { "" } else { " of a small scale, which are no evidence" };
        let about = format!("memory sizes, {}: {count} {}{scale}", self.program, runs(count));
        Ok((study, about))
    }
}
