//! Series of demand to judge policies by: kinds of load, each with a seed.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use ramslice_policy::model::Series;

/// A sequence of numbers that a seed determines.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// In [0, 1).
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Exponentially distributed.
    pub fn about(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// Normally distributed, around 0 with deviation 1.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.share()).ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
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

impl Load {
    pub const ALL: [Self; 5] = [Self::Diurnal, Self::Bursty, Self::Churn, Self::Batch, Self::Walk];

    /// Demand in steps of `step` seconds on a machine with `slices` slices.
    pub fn series(self, seed: u64, slices: u32, step: f64, steps: usize) -> Series {
        let mut chance = Chance::new(seed ^ ((self as u64) << 56));
        let share = match self {
            Self::Diurnal => diurnal(&mut chance, step, steps),
            Self::Bursty => bursty(&mut chance, step, steps),
            Self::Churn => churn(&mut chance, step, steps),
            Self::Batch => batch(&mut chance, step, steps),
            Self::Walk => walk(&mut chance, step, steps),
        };
        let needed: Vec<u32> =
            share.iter().map(|share| (share.clamp(0.02, 0.98) * f64::from(slices)).ceil() as u32).collect();
        // After a while of use most of memory holds something.
        let used_at_start = (chance.between(0.5, 1.0) * f64::from(slices)) as u32;
        Series { needed, slices, used_at_start }
    }
}

const DAY: f64 = 86_400.0;

fn diurnal(chance: &mut Chance, step: f64, steps: usize) -> Vec<f64> {
    let (low, high) = (chance.between(0.1, 0.3), chance.between(0.5, 0.9));
    let (phase, rough) = (chance.share() * DAY, chance.between(0.0, 0.03));
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

fn bursty(chance: &mut Chance, step: f64, steps: usize) -> Vec<f64> {
    let base = chance.between(0.1, 0.4);
    let (pause, length) = (chance.between(300.0, 7200.0), chance.between(60.0, 1800.0));
    let mut share = vec![base; steps];
    let mut time = 0.0;
    while time < steps as f64 * step {
        time += chance.about(pause);
        let (long, height) = (chance.about(length), chance.about(0.2));
        let (from, to) = ((time / step) as usize, ((time + long) / step) as usize + 1);
        for share in share.iter_mut().take(to).skip(from) {
            *share += height;
        }
    }
    share
}

fn churn(chance: &mut Chance, step: f64, steps: usize) -> Vec<f64> {
    let (base, load) = (chance.between(0.05, 0.15), chance.between(0.2, 0.6));
    let sizes = [0.01, 0.02, 0.04, 0.08];
    let (middle, spread) = (chance.between(600.0, 3600.0), chance.between(0.8, 1.6));
    let life = middle * (spread * spread / 2.0_f64).exp();
    let pause = life * 0.0375 / load;
    let mut share = vec![base; steps];
    // As if it had been going on for a while.
    let mut time = -2.0 * life;
    while time < steps as f64 * step {
        time += chance.about(pause);
        let size = sizes[(chance.share() * 4.0) as usize];
        let long = middle * (spread * chance.normal()).exp();
        let (from, to) = ((time.max(0.0) / step) as usize, ((time + long).max(0.0) / step) as usize);
        for share in share.iter_mut().take(to).skip(from) {
            *share += size;
        }
    }
    share
}

fn batch(chance: &mut Chance, step: f64, steps: usize) -> Vec<f64> {
    let base = chance.between(0.1, 0.3);
    let mut share = vec![base; steps];
    let jobs: Vec<(f64, f64, f64)> = (0..(2.0 + chance.share() * 10.0) as u32)
        .map(|_| (chance.share() * DAY, chance.between(600.0, 10_800.0), chance.between(0.05, 0.5)))
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
            let (start, height) = (f64::from(day) * DAY + chance.share() * DAY, chance.between(0.05, 0.3));
            let (from, to) = (start / step, (start + chance.about(1800.0)) / step);
            for share in share.iter_mut().take(to as usize).skip(from as usize) {
                *share += height;
            }
        }
    }
    share
}

fn walk(chance: &mut Chance, step: f64, steps: usize) -> Vec<f64> {
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
