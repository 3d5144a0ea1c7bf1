//! Synthetic files of machine utilisation, generated from published averages and marked as
//! synthetic.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ramslice_types::SplitMix64;
use serde::Serialize;

use super::{InputNotes, UsageSeries};

/// Averages of a fleet that its operators or others published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FleetAverages {
    /// Memory in use over all machines and times, in per cent.
    pub memory_percent: f64,
    /// By how much machines differ: standard deviation of their averages, in percentage points.
    pub between_machines: f64,
    /// From the quietest to the busiest hour of a day, in percentage points.
    pub daily_swing: f64,
    /// Noise within an hour: standard deviation, in percentage points.
    pub noise: f64,
    /// CPU in use, in per cent.
    pub cpu_percent: f64,
}

impl Default for FleetAverages {
    /// What is published of the trace of 2018, about 4000 machines in 8 days: memory at 88 % and
    /// CPU at 38 % on average (Guo et al., `IWQoS` 2019), CPU with a daily cycle, memory of
    /// services nearly constant (Jiang et al., IEEE Transactions on Cloud Computing, 2022).
    /// Deviations are not published; these are assumed.
    fn default() -> Self {
        Self {
            memory_percent: 88.0,
            between_machines: 5.0,
            daily_swing: 4.0,
            noise: 1.5,
            cpu_percent: 38.0,
        }
    }
}

/// Machines made up one after another: machine `n` of a seed is always the same.
#[derive(Debug, Clone)]
pub struct SyntheticUsage {
    averages: FleetAverages,
    seed: u64,
    machines: u32,
    next: u32,
    seconds: u64,
    step: u64,
}

const DAY_S: f64 = 86_400.0;
/// Noise is forgotten by half in about twenty minutes.
const MEMORY_S: f64 = 1800.0;

impl SyntheticUsage {
    /// So many machines over so many seconds, a row every `step` seconds.
    pub fn new(averages: FleetAverages, machines: u32, seconds: u64, step: u64, seed: u64) -> Self {
        Self { averages, seed, machines, next: 0, seconds, step: step.max(1) }
    }

    fn series(&self, number: u32) -> (UsageSeries, Vec<u8>) {
        let mut random = SplitMix64::of(self.seed, u64::from(number));
        let of = &self.averages;
        let mean = of.memory_percent + of.between_machines * random.normal();
        let phase = 0.04 * random.normal();
        let keep = (-(self.step as f64) / MEMORY_S).exp();
        let kick = of.noise * (1.0 - keep * keep).sqrt();
        let (mut noise, mut cpu_noise) = (of.noise * random.normal(), 0.0);
        let mut series = UsageSeries { machine: format!("m_{number}"), ..UsageSeries::default() };
        let mut cpu = Vec::new();
        for second in (0..self.seconds).step_by(self.step as usize) {
            let day = (std::f64::consts::TAU * (second as f64 / DAY_S + phase)).sin();
            noise = noise * keep + kick * random.normal();
            cpu_noise = 0.7 * cpu_noise + 6.0 * random.normal();
            let percent = (mean + of.daily_swing / 2.0 * day + noise).round().clamp(1.0, 99.0);
            series.seconds.push(second);
            series.used.push((percent / 100.0) as f32);
            cpu.push((of.cpu_percent + 12.0 * day + cpu_noise).round().clamp(1.0, 100.0) as u8);
        }
        series.notes = InputNotes::default();
        (series, cpu)
    }

    /// Writes all machines as a file in the layout of `machine_usage.csv`. Columns that the
    /// simulator does not read are left empty, as they are in places in the real trace.
    ///
    /// # Errors
    /// If the file cannot be written. It appears under its name once it is whole.
    pub fn write(&self, path: &Path) -> io::Result<u64> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let mut out = BufWriter::new(File::create(&temporary)?);
        let mut rows = 0;
        for number in 0..self.machines {
            let (series, cpu) = self.series(number);
            for ((second, used), cpu) in series.seconds.iter().zip(&series.used).zip(&cpu) {
                writeln!(out, "{},{second},{cpu},{:.0},,,,,", series.machine, used * 100.0)?;
                rows += 1;
            }
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&temporary, path)?;
        Ok(rows)
    }
}

impl Iterator for SyntheticUsage {
    type Item = UsageSeries;

    fn next(&mut self) -> Option<UsageSeries> {
        if self.next >= self.machines {
            return None;
        }
        self.next += 1;
        Some(self.series(self.next - 1).0)
    }
}
