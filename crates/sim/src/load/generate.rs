//! Generated loads: patterns that machines show, and two adversarial ones.

use std::time::Duration;

use ramslice_types::SplitMix64;
use serde::Serialize;

use super::LoadStep;
use crate::machine::{MemoryChange, OwnerClass, OwnerId};

/// The shape of a generated load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadPattern {
    /// Services that follow the day: from 30 % at night to 70 %, with noise, and a cache that is
    /// used all the time.
    Diurnal,
    /// A quiet base, and bursts by chance: every ten minutes on average, of 5 to 30 % for two
    /// minutes on average.
    Bursty,
    /// Guests that come, stay for an hour on average and for long at times, and go: 1/64 to 1/8 of
    /// memory each.
    VmChurn,
    /// Jobs one after another: memory rises, stays, falls; files are read and written; pauses in
    /// between.
    Batch,
    /// Wants 40 % of memory again soon after it has let it go, at all distances around what
    /// emptying takes to pay.
    Adversarial,
    /// Reads files that fill half of memory over and over: what is dropped is missed at once.
    Thrash,
}

impl LoadPattern {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Diurnal, Self::Bursty, Self::VmChurn, Self::Batch, Self::Adversarial, Self::Thrash];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Diurnal => "diurnal",
            Self::Bursty => "bursty",
            Self::VmChurn => "vm-churn",
            Self::Batch => "batch",
            Self::Adversarial => "adversarial",
            Self::Thrash => "thrash",
        }
    }
}

/// How large and how long a generated load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LoadScale {
    /// Pages of the machine it is for.
    pub pages: u64,
    /// Between two steps.
    #[serde(rename = "step_us", with = "ramslice_types::duration_us")]
    pub step: Duration,
    /// From the first to the last step.
    #[serde(rename = "duration_us", with = "ramslice_types::duration_us")]
    pub duration: Duration,
    /// Decides what happens by chance.
    pub seed: u64,
}

const DAY_S: f64 = 86_400.0;
/// Owners: the kernel, cache, services; what comes and goes is numbered from here on.
const KERNEL: u32 = 0;
const CACHE: u32 = 1;
const SERVICES: u32 = 10;
const COMING: u32 = 1000;
/// More than this share of memory is never asked for: what is left is for the kernel's own.
const MOST: f64 = 0.92;

/// A process with an end.
#[derive(Debug, Clone, Copy)]
struct LoadProcess {
    owner: u32,
    share: f64,
    until: f64,
}

/// A generated load: a step after the other.
#[derive(Debug, Clone)]
pub struct LoadGenerator {
    pattern: LoadPattern,
    scale: LoadScale,
    random: SplitMix64,
    at: Duration,
    is_finished: bool,
    /// Noise of each service, as a share of memory.
    noise: [f64; 4],
    phase: f64,
    tenants: Vec<LoadProcess>,
    next_owner: u32,
    next_arrival: f64,
    /// Batch, adversarial: when the present phase ends, and which it is.
    phase_end: f64,
    high: bool,
    size: f64,
}

impl LoadGenerator {
    /// The load of a pattern.
    pub fn new(pattern: LoadPattern, scale: LoadScale) -> Self {
        let mut random = SplitMix64::of(scale.seed, 1 + pattern as u64);
        let phase = random.unit();
        Self {
            pattern,
            scale,
            at: Duration::ZERO,
            is_finished: false,
            noise: [0.0; 4],
            phase,
            tenants: Vec::new(),
            next_owner: COMING,
            next_arrival: 0.0,
            phase_end: 0.0,
            high: false,
            size: 0.0,
            random,
        }
    }

    fn pages(&self, share: f64) -> u64 {
        (share.clamp(0.0, MOST) * self.scale.pages as f64) as u64
    }

    fn level(&self, owner: u32, class: OwnerClass, maps: u32, share: f64) -> MemoryChange {
        MemoryChange::Level { owner: OwnerId(owner), class, maps, pages: self.pages(share) }
    }

    /// What every machine has: some memory of the kernel, that grows a little as it is used.
    fn common(&self, changes: &mut Vec<MemoryChange>, now: f64) {
        let grown = (now / DAY_S).min(1.0);
        changes.push(self.level(KERNEL, OwnerClass::Unmovable, 0, 0.01 + 0.01 * grown));
    }

    fn cache(&mut self, changes: &mut Vec<MemoryChange>, share: f64, read: f64, written: f64) {
        changes.push(self.level(CACHE, OwnerClass::File, 0, share));
        let owner = OwnerId(CACHE);
        if read > 0.0 {
            changes.push(MemoryChange::Read { owner, pages: self.pages(read) });
        }
        if written > 0.0 {
            changes.push(MemoryChange::Write { owner, pages: self.pages(written) });
        }
    }

    fn diurnal(&mut self, changes: &mut Vec<MemoryChange>, now: f64, seconds: f64) {
        let day = 0.5 - 0.5 * (std::f64::consts::TAU * (now / DAY_S + self.phase)).cos();
        let keep = (-seconds / 900.0).exp();
        for at in 0..4 {
            let step = self.random.normal() * 0.01 * (1.0 - keep * keep).sqrt();
            self.noise[at] = self.noise[at] * keep + step;
            let share = 0.06 + 0.1 * day + self.noise[at];
            changes.push(self.level(
                SERVICES + at as u32,
                OwnerClass::Anon,
                1 + at as u32 % 2,
                share.max(0.01),
            ));
        }
        let grown = (now / 3600.0).min(1.0);
        self.cache(
            changes,
            0.03 + 0.15 * grown,
            0.0002 * seconds.min(60.0),
            0.000_01 * seconds.min(60.0),
        );
    }

    fn end_processes(&mut self, changes: &mut Vec<MemoryChange>, now: f64) {
        let gone: Vec<LoadProcess> =
            self.tenants.iter().copied().filter(|tenant| tenant.until <= now).collect();
        self.tenants.retain(|tenant| tenant.until > now);
        changes
            .extend(gone.iter().map(|tenant| self.level(tenant.owner, OwnerClass::Anon, 1, 0.0)));
    }

    fn start_process(
        &mut self,
        changes: &mut Vec<MemoryChange>,
        share: f64,
        maps: u32,
        until: f64,
    ) {
        let owner = self.next_owner;
        self.next_owner += 1;
        self.tenants.push(LoadProcess { owner, share, until });
        changes.push(self.level(owner, OwnerClass::Anon, maps, share));
    }

    fn taken(&self) -> f64 {
        self.tenants.iter().map(|tenant| tenant.share).sum()
    }

    fn bursty(&mut self, changes: &mut Vec<MemoryChange>, now: f64) {
        changes.push(self.level(SERVICES, OwnerClass::Anon, 1, 0.25));
        self.cache(changes, 0.1, 0.001, 0.0);
        self.end_processes(changes, now);
        while self.next_arrival <= now {
            self.next_arrival += self.random.exponential(600.0);
            let (share, until) =
                (self.random.between(0.05, 0.3), now + self.random.exponential(120.0));
            if self.taken() + share < 0.5 {
                self.start_process(changes, share, 1, until);
            }
        }
    }

    fn churn(&mut self, changes: &mut Vec<MemoryChange>, now: f64) {
        self.cache(changes, 0.05, 0.0005, 0.0001);
        self.end_processes(changes, now);
        while self.next_arrival <= now {
            self.next_arrival += self.random.exponential(400.0);
            let share = 1.0 / f64::from(8u32 << self.random.below(4));
            // Most stay for less than an hour, some for a day: lognormal with a mean of about an
            // hour.
            let stay = 1200.0 * (1.4 * self.random.normal()).exp();
            if self.taken() + share < 0.8 {
                self.start_process(changes, share, 1, now + stay);
            }
        }
    }

    fn batch(&mut self, changes: &mut Vec<MemoryChange>, now: f64) {
        if now >= self.phase_end {
            self.high = !self.high;
            if self.high {
                self.size = self.random.between(0.15, 0.6);
                self.phase_end = now + self.random.between(240.0, 1800.0);
                self.next_owner += 4;
            } else {
                self.phase_end = now + self.random.exponential(900.0);
                for at in 0..4 {
                    changes.push(self.level(self.next_owner + at, OwnerClass::Anon, 1, 0.0));
                }
            }
        }
        changes.push(self.level(SERVICES, OwnerClass::Anon, 1, 0.05));
        if self.high {
            for at in 0..4u32 {
                let share = self.size / 4.0 * self.random.between(0.8, 1.1);
                changes.push(self.level(self.next_owner + at, OwnerClass::Anon, 1 + at, share));
            }
        }
        let cache = if self.high { 0.2 } else { 0.15 };
        let busy = if self.high { 1.0 } else { 0.02 };
        self.cache(changes, cache, 0.004 * busy, 0.001 * busy);
    }

    fn adversarial(&mut self, changes: &mut Vec<MemoryChange>, now: f64, seconds: f64) {
        changes.push(self.level(SERVICES, OwnerClass::Anon, 1, 0.2));
        if now >= self.phase_end {
            self.high = !self.high;
            let rest =
                15.0 * f64::from(1u32 << self.random.below(8)) * self.random.between(0.7, 1.4);
            self.phase_end = now + if self.high { seconds } else { rest };
        }
        // A little always stays, so that no slice is empty by itself.
        let share = if self.high { 0.4 } else { 0.06 };
        changes.push(self.level(SERVICES + 1, OwnerClass::Anon, 1, share));
    }

    fn changes(&mut self) -> Vec<MemoryChange> {
        let (now, seconds) = (self.at.as_secs_f64(), self.scale.step.as_secs_f64());
        let mut changes = Vec::new();
        self.common(&mut changes, now);
        match self.pattern {
            LoadPattern::Diurnal => self.diurnal(&mut changes, now, seconds),
            LoadPattern::Bursty => self.bursty(&mut changes, now),
            LoadPattern::VmChurn => self.churn(&mut changes, now),
            LoadPattern::Batch => self.batch(&mut changes, now),
            LoadPattern::Adversarial => self.adversarial(&mut changes, now, seconds),
            LoadPattern::Thrash => {
                changes.push(self.level(SERVICES, OwnerClass::Anon, 1, 0.15));
                self.cache(&mut changes, 0.5, 0.25, 0.01);
            }
        }
        changes
    }
}

impl Iterator for LoadGenerator {
    type Item = LoadStep;

    fn next(&mut self) -> Option<LoadStep> {
        if self.is_finished || self.at > self.scale.duration {
            return None;
        }
        let step = LoadStep { time: self.at, changes: self.changes() };
        self.is_finished = self.scale.step.is_zero();
        self.at += self.scale.step;
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(seed: u64) -> LoadScale {
        LoadScale {
            pages: 1 << 20,
            step: Duration::from_secs(30),
            duration: Duration::from_hours(6),
            seed,
        }
    }

    #[test]
    fn a_seed_decides_a_load_and_another_one_another() {
        for pattern in LoadPattern::ALL {
            let steps = |seed| LoadGenerator::new(pattern, scale(seed)).collect::<Vec<_>>();
            assert_eq!(steps(1), steps(1), "{}", pattern.name());
            assert_eq!(steps(1).len(), 6 * 120 + 1);
            if pattern != LoadPattern::Thrash {
                assert!(steps(1) != steps(2), "{}", pattern.name());
            }
        }
    }

    #[test]
    fn loads_fit_the_machine() {
        for pattern in LoadPattern::ALL {
            for seed in 0..5 {
                let mut levels = std::collections::BTreeMap::new();
                for step in LoadGenerator::new(pattern, scale(seed)) {
                    for change in step.changes {
                        if let MemoryChange::Level { owner, pages, .. } = change {
                            levels.insert(owner, pages);
                        }
                    }
                    let all: u64 = levels.values().sum();
                    assert!(all < scale(0).pages, "{}: {all} pages", pattern.name());
                }
            }
        }
    }

    #[test]
    fn no_step_or_no_time_is_one_step() {
        let none = LoadScale { step: Duration::ZERO, ..scale(1) };
        assert_eq!(LoadGenerator::new(LoadPattern::Diurnal, none).count(), 1);
        let short = LoadScale { duration: Duration::ZERO, ..scale(1) };
        assert_eq!(LoadGenerator::new(LoadPattern::Diurnal, short).count(), 1);
    }
}
