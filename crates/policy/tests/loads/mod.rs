//! Series of demand to judge policies by: kinds of load, each with a seed.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use ramslice_policy::model::DemandSeries;
use ramslice_types::SplitMix64;

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestLoad {
    /// A day with a peak, some noise, and no two days alike.
    Diurnal,
    /// Bursts of random height and length, at random times.
    Bursty,
    /// Virtual machines that come and go; most live shortly, some for hours.
    Churn,
    /// Jobs at the same times each day, and some at other times.
    Batch,
    /// Goes up or down by chance.
    Walk,
}

impl TestLoad {
    pub const ALL: [Self; 5] = [Self::Diurnal, Self::Bursty, Self::Churn, Self::Batch, Self::Walk];

    /// Demand in steps of `step` seconds on a machine with `slices` slices.
    pub fn series(self, seed: u64, slices: u32, step: f64, steps: usize) -> DemandSeries {
        let mut chance = SplitMix64::new(seed ^ ((self as u64) << 56));
        let share = match self {
            Self::Diurnal => diurnal(&mut chance, step, steps),
            Self::Bursty => bursty(&mut chance, step, steps),
            Self::Churn => churn(&mut chance, step, steps),
            Self::Batch => batch(&mut chance, step, steps),
            Self::Walk => walk(&mut chance, step, steps),
        };
        let needed: Vec<u32> = share
            .iter()
            .map(|share| (share.clamp(0.02, 0.98) * f64::from(slices)).ceil() as u32)
            .collect();
        // After a while of use most of memory holds something.
        let used_at_start = (chance.between(0.5, 1.0) * f64::from(slices)) as u32;
        DemandSeries { needed, slices, used_at_start }
    }
}

const DAY: f64 = 86_400.0;

fn diurnal(chance: &mut SplitMix64, step: f64, steps: usize) -> Vec<f64> {
    let (low, high) = (chance.between(0.1, 0.3), chance.between(0.5, 0.9));
    let (phase, rough) = (chance.unit() * DAY, chance.between(0.0, 0.03));
    let mut noise = 0.0;
    (0..steps)
        .map(|index| {
            let time = index as f64 * step + phase;
            let wave = 0.5 - 0.5 * (std::f64::consts::TAU * time / DAY).cos();
            let keep = (-step / 600.0).exp();
            noise = noise * keep + chance.normal() * rough * (1.0 - keep * keep).sqrt();
            low + (high - low) * wave.powf(1.5) + noise
        })
        .collect()
}

fn bursty(chance: &mut SplitMix64, step: f64, steps: usize) -> Vec<f64> {
    let base = chance.between(0.1, 0.4);
    let (pause, length) = (chance.between(300.0, 7200.0), chance.between(60.0, 1800.0));
    let mut share = vec![base; steps];
    let mut time = 0.0;
    while time < steps as f64 * step {
        time += chance.exponential(pause);
        let (long, height) = (chance.exponential(length), chance.exponential(0.2));
        let (from, to) = ((time / step) as usize, ((time + long) / step) as usize + 1);
        for share in share.iter_mut().take(to).skip(from) {
            *share += height;
        }
    }
    share
}

fn churn(chance: &mut SplitMix64, step: f64, steps: usize) -> Vec<f64> {
    let (base, load) = (chance.between(0.05, 0.15), chance.between(0.2, 0.6));
    let sizes = [0.01, 0.02, 0.04, 0.08];
    let (middle, spread) = (chance.between(600.0, 3600.0), chance.between(0.8, 1.6));
    let life = middle * (spread * spread / 2.0_f64).exp();
    let pause = life * 0.0375 / load;
    let mut share = vec![base; steps];
    // As if it had been going on for a while.
    let mut time = -2.0 * life;
    while time < steps as f64 * step {
        time += chance.exponential(pause);
        let size = sizes[(chance.unit() * 4.0) as usize];
        let long = middle * (spread * chance.normal()).exp();
        let (from, to) =
            ((time.max(0.0) / step) as usize, ((time + long).max(0.0) / step) as usize);
        for share in share.iter_mut().take(to).skip(from) {
            *share += size;
        }
    }
    share
}

fn batch(chance: &mut SplitMix64, step: f64, steps: usize) -> Vec<f64> {
    let base = chance.between(0.1, 0.3);
    let mut share = vec![base; steps];
    let jobs: Vec<(f64, f64, f64)> = (0..(2.0 + chance.unit() * 10.0) as u32)
        .map(|_| (chance.unit() * DAY, chance.between(600.0, 10_800.0), chance.between(0.05, 0.5)))
        .collect();
    let days = (steps as f64 * step / DAY).ceil() as u32;
    for day in 0..days {
        for &(start, long, height) in &jobs {
            let start = f64::from(day) * DAY + start + chance.normal() * 120.0;
            let (from, to) =
                (start.max(0.0) / step, (start + long * chance.between(0.9, 1.1)).max(0.0) / step);
            for share in share.iter_mut().take(to as usize).skip(from as usize) {
                *share += height;
            }
        }
        for _ in 0..3 {
            let (start, height) =
                (f64::from(day) * DAY + chance.unit() * DAY, chance.between(0.05, 0.3));
            let (from, to) = (start / step, (start + chance.exponential(1800.0)) / step);
            for share in share.iter_mut().take(to as usize).skip(from as usize) {
                *share += height;
            }
        }
    }
    share
}

fn walk(chance: &mut SplitMix64, step: f64, steps: usize) -> Vec<f64> {
    let rough = chance.between(0.0005, 0.005) * (step / 30.0).sqrt();
    let mut share = chance.between(0.2, 0.6);
    (0..steps)
        .map(|_| {
            share += chance.normal() * rough;
            // Between walls.
            share = share.abs();
            if share > 0.95 {
                share = 1.9 - share;
            }
            share
        })
        .collect()
}
