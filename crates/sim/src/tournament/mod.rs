//! The tournament: every policy on every input, next to the clairvoyant, which knows all demand in
//! advance.
//!
//! The clairvoyant's schedules are optima of the policy library's cost model for the demand of the
//! input, and are then played on the same simulated machine, so that its net is earned by the same
//! rules as that of every policy. The model takes all slices as equally full; the schedules take
//! them as empty to twice full, with the cache to be dropped or kept, and slices emptied at any
//! price, or only if what the plan knows of their time off pays for it. The best schedule counts,
//! or doing nothing. It knows demand, but neither which slice is cheap when, nor where the kernel's
//! pages will be: what it earns can be earned, and is no bound. A policy that finds cheap slices
//! may earn more.
//!
//! The bound ([`bound`]) is one, and is checked against every sequence of requests on small
//! machines.

mod bound;
mod score_chart;
mod settings;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ramslice_policy::model::{DemandSeries, SliceCosts};
use ramslice_policy::{
    AnyPolicy, GovernorPolicy, MachineTotals, PolicyConfig, PolicyConfigError as PolicyError,
    PolicyKind, SliceEconomics, clairvoyant,
};
use ramslice_types::{CacheChoice, Joules, Pages};
use serde::Serialize;
use thiserror::Error;

pub use score_chart::svg;
pub use settings::{PolicyCandidate, sweep};

use crate::config::{SimConfig, SimConfigError};
use crate::energy_account::{EnergyAccount, EnergyRates};
use crate::load::{
    InputNotes, LoadGenerator, LoadPattern, LoadScale, LoadStep, RecordedLoad, UsageLoad,
    UsageOptions, UsageSeries,
};
use crate::machine::SimMachine;
use crate::run::{ClairvoyantSchedule, RunDecider, SimRun, needed_slices, run};

/// A tournament that could not be finished.
#[derive(Debug, Error)]
pub enum TournamentError {
    /// The machine.
    #[error(transparent)]
    Config(#[from] SimConfigError),
    /// A policy's settings.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// It was interrupted.
    #[error("interrupted after {inputs} inputs")]
    Interrupted {
        /// That were done.
        inputs: usize,
    },
}

/// The inputs that policies are compared on.
#[derive(Debug, Clone)]
pub enum TournamentInput {
    /// A generated load.
    Generated {
        /// What it looks like.
        pattern: LoadPattern,
        /// What it is decided by.
        seed: u64,
    },
    /// A recording.
    Recorded {
        /// Its name.
        name: String,
        /// What was recorded.
        load: Box<RecordedLoad>,
    },
    /// A machine of a file of utilisation.
    Usage {
        /// Its name.
        name: String,
        /// What is decided by chance is by this.
        seed: u64,
        /// Memory in use over time.
        series: Box<UsageSeries>,
        /// What utilisation leaves open.
        options: UsageOptions,
    },
}

/// Options of a tournament.
#[derive(Debug, Clone)]
pub struct TournamentOptions {
    /// The machine of generated inputs and of files of utilisation; recordings bring their own.
    pub config: SimConfig,
    /// Between two steps of generated inputs.
    pub step: Duration,
    /// How long generated inputs last.
    pub duration: Duration,
    /// The inputs.
    pub inputs: Vec<TournamentInput>,
    /// The policies; each with all settings that are tried.
    pub contestants: Vec<PolicyCandidate>,
    /// What policies decide by: figures for slices of the machine's size.
    pub economics: SliceEconomics,
    /// Joules.
    pub rates: EnergyRates,
    /// Inputs at a time.
    pub jobs: usize,
}

/// One policy on one input, at the best of its settings there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyScore {
    /// The input.
    pub input: String,
    /// The seed of a generated one.
    pub seed: Option<u64>,
    /// The policy; `clairvoyant` knew all demand in advance.
    pub policy: String,
    /// The settings; the best on this input where several were tried.
    pub settings: String,
    /// How many settings were tried.
    pub settings_tried: usize,
    /// Joules.
    #[serde(flatten)]
    pub books: EnergyAccount,
    /// Its net as a share of the clairvoyant's, by the middles of both; nothing if the clairvoyant
    /// earned nothing.
    pub share_of_clairvoyant: Option<f64>,
    /// Its net as a share of the upper bound: pages packed perfectly at no cost, every slice as
    /// cheap as an empty one.
    pub share_of_bound: Option<f64>,
    /// For the governor: the most that it may have lost, by its own cap.
    pub loss_cap_joules: Option<Joules>,
    /// Slices that woke because memory was wanted.
    pub demand_wakes: u64,
    /// The 99.9th percentile of how long an allocation of 2 MiB waited for that.
    pub wake_wait_p999_ns: f64,
    /// Pages that were moved.
    pub migrated_pages: u64,
    /// Pages that were dropped.
    pub dropped_pages: u64,
    /// Of these, read again.
    pub refault_pages: u64,
    /// Slices that were emptied.
    pub emptied_slices: u64,
    /// Slices that were off, on average.
    pub mean_offline: f64,
    /// Pages that were wanted and not there.
    pub unmet_pages: u64,
}

/// A policy over all inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyStanding {
    /// The policy.
    pub policy: String,
    /// Inputs.
    pub inputs: usize,
    /// Joules over all inputs.
    #[serde(flatten)]
    pub books: EnergyAccount,
    /// Median over inputs of the share of the clairvoyant's net.
    pub median_share: Option<f64>,
    /// Inputs on which it earned less than nothing, by the middle.
    pub losses: usize,
    /// The largest of these losses.
    pub worst_loss_joules: Joules,
    /// Inputs on which the governor earned more than it; nothing for the governor itself.
    pub governor_better: Option<usize>,
}

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TournamentReport {
    /// One row for each input and policy.
    pub scores: Vec<PolicyScore>,
    /// One for each policy.
    pub standings: Vec<PolicyStanding>,
    /// Every setting that was tried, of policies with more than one: for curves over a setting.
    pub tried: Vec<PolicyScore>,
    /// Notes on the results.
    pub explanations: Vec<String>,
    /// What recordings and files left out.
    pub notes: InputNotes,
}

impl TournamentInput {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::Generated { pattern, .. } => pattern.name().to_owned(),
            Self::Recorded { name, .. } | Self::Usage { name, .. } => name.clone(),
        }
    }

    fn seed(&self) -> Option<u64> {
        match self {
            Self::Generated { seed, .. } => Some(*seed),
            Self::Recorded { .. } | Self::Usage { .. } => None,
        }
    }
}

/// One input, prepared for repeated runs.
struct PreparedInput<'a> {
    input: &'a TournamentInput,
    options: &'a TournamentOptions,
    config: SimConfig,
}

impl<'a> PreparedInput<'a> {
    fn new(input: &'a TournamentInput, options: &'a TournamentOptions) -> Self {
        let config = match input {
            TournamentInput::Generated { seed, .. } | TournamentInput::Usage { seed, .. } => {
                SimConfig { seed: *seed, ..options.config.clone() }
            }
            // Memory and slices are its own; where memory goes, and in what grain, is not.
            TournamentInput::Recorded { load, .. } => {
                let SimConfig { placement, scatter, run_bytes, .. } = options.config;
                SimConfig { placement, scatter, run_bytes, ..load.config.clone() }
            }
        };
        Self { input, options, config }
    }

    fn load(&self, machine: &SimMachine) -> Box<dyn Iterator<Item = LoadStep> + '_> {
        match self.input {
            TournamentInput::Generated { pattern, seed } => {
                let (step, duration) = (self.options.step, self.options.duration);
                let pages = machine.totals().managed.0;
                Box::new(LoadGenerator::new(
                    *pattern,
                    LoadScale { pages, step, duration, seed: *seed },
                ))
            }
            TournamentInput::Recorded { load, .. } => Box::new(load.steps.iter().cloned()),
            TournamentInput::Usage { series, options, .. } => {
                let totals = machine.totals();
                Box::new(UsageLoad::new(series, *options, totals.managed.0, totals.used().0))
            }
        }
    }

    fn machine(&self) -> Result<SimMachine, TournamentError> {
        Ok(match self.input {
            TournamentInput::Generated { .. } | TournamentInput::Usage { .. } => {
                SimMachine::new(self.config.clone())?
            }
            TournamentInput::Recorded { load, .. } => load.machine(self.config.clone())?,
        })
    }

    fn run(&self, decider: RunDecider) -> Result<SimRun, TournamentError> {
        Ok(self.play(&mut self.machine()?, decider, |_| ()))
    }

    fn play(
        &self,
        machine: &mut SimMachine,
        mut decider: RunDecider,
        watch: impl FnMut(&SimMachine),
    ) -> SimRun {
        let load = self.load(machine);
        run(machine, load, &mut decider, watch)
    }

    fn policy(&self, config: &PolicyConfig) -> Result<RunDecider, TournamentError> {
        let (slice, page) = (self.config.slice_bytes, self.config.page_bytes);
        Ok(RunDecider::Policy(AnyPolicy::new(config, &self.options.economics, slice, page)?))
    }

    fn score(&self, policy: &str, settings: String, tried: usize, run: &SimRun) -> PolicyScore {
        PolicyScore {
            input: self.input.name(),
            seed: self.input.seed(),
            policy: policy.to_owned(),
            settings,
            settings_tried: tried,
            books: self.options.rates.books(run, self.config.slice_bytes),
            share_of_clairvoyant: None,
            share_of_bound: None,
            loss_cap_joules: None,
            demand_wakes: run.stats.demand_wakes,
            wake_wait_p999_ns: run.wake_wait_p999_ns(self.config.wake_latency_ns),
            migrated_pages: run.work.migrated_pages.0,
            dropped_pages: run.work.dropped_pages.0,
            refault_pages: run.stats.packing_refault_pages,
            emptied_slices: run.work.emptied_slices,
            mean_offline: run.mean_offline,
            unmet_pages: run.stats.unmet_pages,
        }
    }

    /// Plays several schedules of the clairvoyant; returns the best of them, and the bound in
    /// joules.
    fn clairvoyant(&self) -> Result<(PolicyScore, f64), TournamentError> {
        let (mut needed, mut with_cache) = (Vec::new(), Vec::new());
        let never = self.policy(&PolicyConfig::new(PolicyKind::Never))?;
        let mut machine = self.machine()?;
        let cheapest = bound::MinimumCosts::new(&self.options.rates, &machine);
        let mut bound = bound::SavingsBound::new(&machine, cheapest);
        let first = self.play(&mut machine, never, |machine| {
            let totals = machine.totals();
            needed.push(needed_slices(&totals));
            with_cache.push(needed_slices(&MachineTotals { freeable: Pages::ZERO, ..totals }));
            bound.step(machine);
        });
        let seconds = first.duration.as_secs_f64() / (first.steps.max(2) - 1) as f64;
        let costs = SliceCosts::new(&self.options.economics, seconds);
        let tried = 2 * FILLED.len() * AT_ANY_PRICE.len() + 1;
        let mut best = self.score(CLAIRVOYANT, "nothing is switched off".to_owned(), tried, &first);
        for (needed, cache) in [(needed, CacheChoice::Drop), (with_cache, CacheChoice::Auto)] {
            let used_at_start = needed.first().copied().unwrap_or(0);
            let series = DemandSeries { used_at_start, needed, slices: first.slices };
            for factor in FILLED {
                let emptying = costs.empty + factor * (costs.emptying - costs.empty);
                let on = clairvoyant::schedule(&series, SliceCosts { emptying, ..costs });
                for at_any_price in AT_ANY_PRICE {
                    let unit_joules =
                        (!at_any_price).then_some(Joules(self.options.economics.price_unit.0));
                    let schedule =
                        ClairvoyantSchedule { on: on.clone(), cache, costs, unit_joules };
                    let run = self.run(RunDecider::Schedule(schedule))?;
                    let settings = format!(
                        "cache {}, slices {} % full{}",
                        if cache == CacheChoice::Drop { "dropped" } else { "by use" },
                        factor * 50.0,
                        if at_any_price { ", at any price" } else { "" }
                    );
                    let score = self.score(CLAIRVOYANT, settings, tried, &run);
                    if score.books.net_middle() > best.books.net_middle() {
                        best = score;
                    }
                }
            }
        }
        Ok((best, bound.joules()))
    }

    /// The best of each, and all that were tried where there was a choice.
    fn scores(&self) -> Result<InputResult, TournamentError> {
        let (clairvoyant, bound) = self.clairvoyant()?;
        let reference = clairvoyant.books.net_middle();
        let (mut scores, mut tried) = (vec![clairvoyant], Vec::new());
        for contestant in &self.options.contestants {
            let mut best: Option<PolicyScore> = None;
            for config in &contestant.settings {
                let run = self.run(self.policy(config)?)?;
                let name = contestant.kind.name();
                let mut score =
                    self.score(name, settings::words(config), contestant.settings.len(), &run);
                if contestant.kind == PolicyKind::Governor {
                    // The simulator's profiles are of DRAM: worth is in joules.
                    let cap = GovernorPolicy::loss_cap(&self.options.economics, run.duration);
                    score.loss_cap_joules = Some(Joules(cap.0));
                }
                if contestant.settings.len() > 1 {
                    tried.push(score.clone());
                }
                if best
                    .as_ref()
                    .is_none_or(|best| score.books.net_middle() > best.books.net_middle())
                {
                    best = Some(score);
                }
            }
            scores.extend(best);
        }
        for score in scores.iter_mut().chain(&mut tried) {
            score.share_of_clairvoyant =
                (reference > 0.0).then(|| score.books.net_middle() / reference);
            score.share_of_bound = (bound > 0.0).then(|| score.books.net_middle() / bound);
        }
        Ok(InputResult { scores, tried })
    }
}

/// Whether a slice is emptied at any price, or only at one that its time off pays for.
const AT_ANY_PRICE: [bool; 2] = [false, true];

/// How full the model may take slices: 1 is half full of movable pages, 0 is empty.
const FILLED: [f64; 6] = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0];

/// The result of one input.
struct InputResult {
    scores: Vec<PolicyScore>,
    tried: Vec<PolicyScore>,
}

/// The name of the clairvoyant.
pub const CLAIRVOYANT: &str = "clairvoyant";

/// The mark next to every share above 1.
pub const ABOVE: &str = "more than the clairvoyant earned, whose plans know all demand but not \
                         which slices are cheap when; no policy can earn more than the bound";

/// Whether a share, as it is printed, is above that of the clairvoyant.
pub fn is_above(share: Option<f64>) -> bool {
    share.is_some_and(|share| share >= 1.0005)
}

/// Holds a tournament. `progress` hears how many inputs are done, and says whether to go on.
///
/// # Errors
/// If a machine or a policy's settings cannot be, or if `progress` ends it.
pub fn hold(
    options: &TournamentOptions,
    progress: &(dyn Fn(usize) -> bool + Sync),
) -> Result<TournamentReport, TournamentError> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, InputResult)>> = Mutex::new(Vec::new());
    let work = || -> Result<(), TournamentError> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(input) = options.inputs.get(at) else { return Ok(()) };
            let outcome = PreparedInput::new(input, options).scores()?;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
            let inputs = done.fetch_add(1, Ordering::Relaxed) + 1;
            if !progress(inputs) {
                next.store(options.inputs.len(), Ordering::Relaxed);
                return Err(TournamentError::Interrupted { inputs });
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| match worker.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Vec<_>>().into_iter().collect::<Result<Vec<()>, _>>()
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    let (mut by_input, mut tried) = (Vec::new(), Vec::new());
    for (_, outcome) in found {
        by_input.push(outcome.scores);
        tried.extend(outcome.tried);
    }
    let mut notes = InputNotes::default();
    for input in &options.inputs {
        match input {
            TournamentInput::Generated { .. } => {}
            TournamentInput::Recorded { load, .. } => notes += load.notes,
            TournamentInput::Usage { series, .. } => notes += series.notes,
        }
    }
    let standings = standings(&by_input);
    let scores: Vec<PolicyScore> = by_input.into_iter().flatten().collect();
    let mut shares = scores.iter().chain(&tried).map(|score| score.share_of_clairvoyant);
    let above = shares.any(is_above).then(|| format!("a share above 100 % is {ABOVE}"));
    let nothing = scores.iter().any(|score| score.share_of_clairvoyant.is_none());
    let nothing =
        nothing.then(|| "where the clairvoyant earned nothing, there is no share".to_owned());
    let explanations = above.into_iter().chain(nothing).collect();
    Ok(TournamentReport { scores, standings, tried, explanations, notes })
}

fn standings(by_input: &[Vec<PolicyScore>]) -> Vec<PolicyStanding> {
    let names: Vec<&str> = by_input
        .first()
        .map_or(Vec::new(), |scores| scores.iter().map(|score| score.policy.as_str()).collect());
    let governor = |scores: &[PolicyScore]| {
        let found = scores.iter().find(|score| score.policy == PolicyKind::Governor.name());
        found.map(|score| score.books.net_middle())
    };
    let standing = |name: &&str| {
        let own =
            |scores: &Vec<PolicyScore>| scores.iter().find(|score| score.policy == **name).cloned();
        let scores: Vec<PolicyScore> = by_input.iter().filter_map(own).collect();
        let mut books = EnergyAccount::zero();
        for score in &scores {
            books += score.books;
        }
        let nets = scores.iter().map(|score| score.books.net_middle());
        let mut shares: Vec<f64> =
            scores.iter().filter_map(|score| score.share_of_clairvoyant).collect();
        let better = by_input.iter().filter(|scores| {
            let own = scores.iter().find(|score| score.policy == **name);
            own.zip(governor(scores))
                .is_some_and(|(own, governor)| governor > own.books.net_middle())
        });
        let compared = **name != *PolicyKind::Governor.name()
            && by_input.iter().all(|s| governor(s).is_some());
        PolicyStanding {
            policy: (*name).to_owned(),
            inputs: scores.len(),
            books,
            median_share: median(&mut shares),
            losses: nets.clone().filter(|net| *net < 0.0).count(),
            worst_loss_joules: Joules(nets.fold(0.0, |worst: f64, net| worst.max(-net))),
            governor_better: compared.then(|| better.count()),
        }
    };
    names.iter().map(standing).collect()
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) =
        (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
