//! One tick: starts, steers or removes the kdamonds. For each pair of nodes there are two, one that
//! watches the node with CPUs and moves what is idle, and one for the way back: DAMON moves nothing
//! within a node, and one context watches one target. Control groups with a rate of their own have
//! one more each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ramslice_backend::{ColdNodes, ColdPair, DamonError, DamonFiles, SchemeStats};
use ramslice_policy::{ColdPairView, ColdPlan, ColdSteering, ColdView};
use ramslice_types::{Bytes, Ratio};
use tracing::{debug, info, warn};

use super::ColdRequest;
use super::group_limits::{GroupLimits, group_limits};
use super::instructions::{MoveWay, PlannedKdamond, idle_basis, kdamond_plans, state_and_reason};
use super::node_room::{NodeRooms, OfflineAges};
use super::ownership::KdamondOwnership;
use super::report::{ColdNodeStatus, ColdStatus, ColdWord};
use super::unaccessed::{UnaccessedSum, resting_slices};
use crate::settings::ColdSettings;

/// Between two ticks.
const TICK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Until it is tried again, after it was refused.
const RETRY: Duration = Duration::from_mins(1);
/// The CPU time of kdamonds is measured over at least this long.
const CPU_WINDOW: Duration = Duration::from_secs(10);
/// Between two looks at how often what may rest is accessed.
const UNACCESSED_EVERY: Duration = Duration::from_secs(30);
/// DAMON keeps to no quota in the first second: until then, and two aggregations more, it counts.
const QUOTA_BEGINS: Duration = Duration::from_secs(1);

/// Why there are no kdamonds.
#[derive(Debug)]
pub(super) struct ColdTrouble {
    word: ColdWord,
    why: String,
}

impl ColdTrouble {
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self { word: ColdWord::NotAvailable, why: why.into() }
    }
}

impl std::fmt::Display for ColdTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<DamonError> for ColdTrouble {
    fn from(error: DamonError) -> Self {
        let word = match error {
            DamonError::InUse { .. } | DamonError::Held | DamonError::Stopped { .. } => {
                ColdWord::Refused
            }
            DamonError::Missing(_)
            | DamonError::NoPhysical
            | DamonError::TooOld
            | DamonError::Kernel(_) => ColdWord::NotAvailable,
        };
        let mut why = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        Self { word, why }
    }
}

/// Kdamonds that this daemon has set up.
#[derive(Debug)]
struct RunningKdamonds {
    pids: Vec<Option<u32>>,
    pairs: Vec<(u32, u32)>,
    plans: Vec<PlannedKdamond>,
    stats: Vec<SchemeStats>,
    began: Instant,
    /// The beginning of the window, and CPU time until then.
    cpu_from: (Instant, Duration),
}

impl RunningKdamonds {
    /// What has moved of a pair, there and back.
    fn moved(&self, pair: usize) -> [SchemeStats; 2] {
        [MoveWay::There, MoveWay::Back].map(|way| {
            let of_way = self.plans.iter().zip(&self.stats);
            let of_way = of_way.filter(|(planned, _)| (planned.pair, planned.way) == (pair, way));
            of_way.fold(SchemeStats::default(), |sum, (_, stats)| added(sum, *stats))
        })
    }
}

/// Sets up DAMON, steers it and removes it.
#[derive(Debug)]
pub(super) struct ColdMonitor {
    root: PathBuf,
    damon: DamonFiles,
    nodes: ColdNodes,
    ownership: KdamondOwnership,
    /// What an earlier run left behind was looked for.
    is_clean: bool,
    running: Option<RunningKdamonds>,
    trouble: Option<(ColdTrouble, Instant)>,
    steering: ColdSteering,
    ages: OfflineAges,
    cpu_share: Option<Ratio>,
    /// For how much of the time nothing accessed what may rest, and when that was last looked at.
    unaccessed: Option<(Option<Ratio>, Instant)>,
    last_decision: Option<Instant>,
    /// What kdamonds have done that are gone, by pair and direction.
    sums: BTreeMap<(u32, u32), [SchemeStats; 2]>,
    last_logged: Option<(ColdWord, String)>,
}

fn added(one: SchemeStats, other: SchemeStats) -> SchemeStats {
    SchemeStats {
        tried: one.tried + other.tried,
        applied: one.applied + other.applied,
        quota_exceeded: one.quota_exceeded.saturating_add(other.quota_exceeded),
    }
}

impl ColdMonitor {
    pub(super) fn new(root: &Path, ownership: KdamondOwnership) -> Self {
        Self {
            root: root.to_owned(),
            damon: DamonFiles::under(root),
            nodes: ColdNodes::under(root),
            ownership,
            is_clean: false,
            running: None,
            trouble: None,
            steering: ColdSteering::default(),
            ages: OfflineAges::default(),
            cpu_share: None,
            unaccessed: None,
            last_decision: None,
            sums: BTreeMap::new(),
            last_logged: None,
        }
    }

    /// Does what is due; returns the state, and the time until the next tick.
    pub(super) fn tick(&mut self, wanted: &ColdRequest, now: Instant) -> (ColdStatus, Duration) {
        let [shortest, longest] = TICK;
        let (status, next) = match &wanted.settings {
            Err(why) => {
                self.remove();
                self.trouble = None;
                (ColdStatus::off(why), Duration::from_hours(1))
            }
            Ok(settings) => {
                let next = (settings.limits.idle / 4).clamp(shortest, longest);
                (self.tick_with(settings, wanted, now, next), next)
            }
        };
        self.log(&status);
        (status, next)
    }

    fn tick_with(
        &mut self,
        settings: &ColdSettings,
        wanted: &ColdRequest,
        now: Instant,
        next: Duration,
    ) -> ColdStatus {
        if let Some((trouble, until)) = &self.trouble
            && now < *until
        {
            return ColdStatus {
                nodes: self.moved_only(),
                ..ColdStatus::idle(trouble.word, &trouble.why)
            };
        }
        match self.steer(settings, wanted, now, next) {
            Ok(status) => {
                self.trouble = None;
                status
            }
            Err(trouble) => {
                self.remove();
                let status = ColdStatus {
                    nodes: self.moved_only(),
                    ..ColdStatus::idle(trouble.word, &trouble.why)
                };
                self.trouble = Some((trouble, now + RETRY));
                status
            }
        }
    }

    fn steer(
        &mut self,
        settings: &ColdSettings,
        wanted: &ColdRequest,
        now: Instant,
        next: Duration,
    ) -> Result<ColdStatus, ColdTrouble> {
        let pairs = self.nodes.pairs().map_err(DamonError::from)?;
        if pairs.is_empty() {
            return Err(ColdTrouble::unavailable(
                "no node without CPUs has memory: size a twin, as by `ramslice cold --size 2G`",
            ));
        }
        let groups = group_limits(&self.root, settings)?;
        self.clean_up()?;
        self.check_kdamonds()?;
        let ids: Vec<(u32, u32)> =
            pairs.iter().map(|pair| (pair.hot.node, pair.cold.node)).collect();
        if self.running.as_ref().is_some_and(|running| running.pairs != ids) {
            info!("other nodes than before have memory: DAMON is set up again");
            self.remove();
        }
        let rooms = self
            .ages
            .rooms(wanted.backend.as_deref(), wanted.slice_break_even, now)
            .map_err(|error| ColdTrouble::unavailable(error.to_string()))?;
        let (views, moved) = self.views(&pairs, &rooms)?;
        let plan = self.decide(settings, wanted, now, next, &views)?;
        if plan.stopped {
            self.remove();
        } else {
            self.carry_out(&pairs, &plan, settings, &groups, now)?;
        }
        let unaccessed = self.unaccessed(wanted, now);
        let (state, why) = state_and_reason(&plan, self.cpu_share, settings);
        let nodes = pairs.iter().zip(&views).zip(plan.rates.iter().zip(moved));
        Ok(ColdStatus {
            state,
            why,
            idle_seconds: Some(plan.idle.as_secs_f64()),
            sample_seconds: Some(plan.sample.as_secs_f64()),
            idle_basis: Some(idle_basis(settings, wanted, &plan)),
            kdamond_cpu_ratio: self.cpu_share.map(|share| share.0),
            unaccessed_ratio: unaccessed.map(|share| share.0),
            nodes: nodes
                .map(|((pair, view), (rates, [there, back]))| ColdNodeStatus {
                    node: pair.hot.node,
                    cold_node: pair.cold.node,
                    room_bytes: view.room,
                    to_cold_bytes_per_second: rates.to_cold,
                    back_bytes_per_second: rates.back,
                    moved_to_cold_bytes: there.applied,
                    moved_back_bytes: back.applied,
                    tried_to_cold_bytes: there.tried,
                    tried_back_bytes: back.tried,
                })
                .collect(),
        })
    }

    /// Removes what an earlier run of this boot left behind, once.
    fn clean_up(&mut self) -> Result<(), DamonError> {
        if self.is_clean {
            return Ok(());
        }
        let there = self.damon.kdamonds()?;
        if !there.is_empty() && self.ownership.owns(&there) {
            info!("DAMON still does what an earlier run set up: that is removed");
            self.damon.remove()?;
        }
        self.ownership.forget();
        self.is_clean = true;
        Ok(())
    }

    /// Whether all kdamonds are there that this daemon has started, and no others.
    fn check_kdamonds(&mut self) -> Result<(), DamonError> {
        let Some(running) = &self.running else { return Ok(()) };
        let there = self.damon.kdamonds()?;
        if there == running.pids {
            return Ok(());
        }
        if !self.ownership.owns(&there) {
            // Another program's, or none any more
            self.forget();
            return Err(match there.len() {
                0 => DamonError::Stopped { index: 0 },
                count => DamonError::InUse { count },
            });
        }
        let index = there.iter().position(Option::is_none).unwrap_or(0);
        Err(DamonError::Stopped { index })
    }

    /// Reads what has moved since the last time; with all that has moved so far.
    fn views(
        &mut self,
        pairs: &[ColdPair],
        rooms: &NodeRooms,
    ) -> Result<(Vec<ColdPairView>, Vec<[SchemeStats; 2]>), DamonError> {
        let moved = |running: &Option<RunningKdamonds>| -> Vec<[SchemeStats; 2]> {
            let of_pair = |pair| running.as_ref().map(|running| running.moved(pair));
            (0..pairs.len()).map(|pair| of_pair(pair).unwrap_or_default()).collect()
        };
        let before = moved(&self.running);
        self.read_stats()?;
        let now = moved(&self.running);
        let since = before.iter().zip(&now);
        let since =
            since.map(|(before, now)| [0, 1].map(|way| now[way].applied - before[way].applied));
        let views = pairs.iter().zip(since).map(|(pair, [went, returned])| ColdPairView {
            cold_size: pair.cold.total,
            room: rooms.of(&pair.cold),
            room_back: rooms.of(&pair.hot),
            went,
            returned,
        });
        let views = views.collect();
        let moved = pairs.iter().map(|pair| self.moved(pair.hot.node, pair.cold.node)).collect();
        Ok((views, moved))
    }

    fn read_stats(&mut self) -> Result<(), DamonError> {
        if let Some(running) = &mut self.running {
            for (index, stats) in running.stats.iter_mut().enumerate() {
                *stats = self.damon.stats(index)?;
            }
        }
        Ok(())
    }

    /// For how much of the time, at most, nothing accessed slices that may rest; unknown if none
    /// may, or nothing is watched. It is looked at now and then: DAMON is busy meanwhile.
    fn unaccessed(&mut self, wanted: &ColdRequest, now: Instant) -> Option<Ratio> {
        if let Some((share, at)) = self.unaccessed
            && now.duration_since(at) < UNACCESSED_EVERY
        {
            return share.filter(|_| self.running.is_some());
        }
        let share = self.sample_unaccessed(wanted).unwrap_or_else(|error| {
            // Only a figure less: what moves goes on.
            debug!("for how long nothing accessed what may rest is not known: {error}");
            None
        });
        self.unaccessed = Some((share, now));
        share
    }

    fn sample_unaccessed(
        &self,
        wanted: &ColdRequest,
    ) -> Result<Option<Ratio>, Box<dyn std::error::Error>> {
        let Some(running) = &self.running else { return Ok(None) };
        let mut sum = UnaccessedSum::default();
        for (index, planned) in running.plans.iter().enumerate() {
            let (_, cold) = running.pairs[planned.pair];
            if !planned.plan.watched {
                continue;
            }
            let Some(slices) = resting_slices(wanted.backend.as_deref(), cold)? else { continue };
            let regions = self.damon.sampled_regions(index)?;
            sum.add(&slices, &regions, planned.plan.sampling.samples());
        }
        Ok(sum.share())
    }

    /// What has moved between two nodes so far, there and back.
    fn moved(&self, hot: u32, cold: u32) -> [SchemeStats; 2] {
        let before = self.sums.get(&(hot, cold)).copied().unwrap_or_default();
        let now = self.running.as_ref().and_then(|running| {
            let index = running.pairs.iter().position(|pair| *pair == (hot, cold))?;
            Some(running.moved(index))
        });
        let now = now.unwrap_or_default();
        [added(before[0], now[0]), added(before[1], now[1])]
    }

    /// Nodes while nothing is watched.
    fn moved_only(&self) -> Vec<ColdNodeStatus> {
        let row = |(&(node, cold_node), [there, back]): (&(u32, u32), &[SchemeStats; 2])| {
            ColdNodeStatus {
                node,
                cold_node,
                room_bytes: Bytes::ZERO,
                to_cold_bytes_per_second: None,
                back_bytes_per_second: None,
                moved_to_cold_bytes: there.applied,
                moved_back_bytes: back.applied,
                tried_to_cold_bytes: there.tried,
                tried_back_bytes: back.tried,
            }
        };
        self.sums.iter().map(row).collect()
    }

    fn decide(
        &mut self,
        settings: &ColdSettings,
        wanted: &ColdRequest,
        now: Instant,
        next: Duration,
        pairs: &[ColdPairView],
    ) -> Result<ColdPlan, ColdTrouble> {
        let cpu_share = self.measure_cpu(now)?;
        self.cpu_share = cpu_share.or(self.cpu_share);
        // Commands wait for an aggregation, and the quota is that of whole seconds.
        let commands = self.running.as_ref().map_or(Duration::from_secs(1), |running| {
            let sampling = |planned: &PlannedKdamond| planned.plan.sampling;
            let waits = running.plans.iter().map(sampling).map(|sampling| {
                sampling.aggregation + sampling.sample + Duration::from_millis(400)
            });
            // Where something may rest, three more for each that is watched.
            let watched = running.plans.iter().filter(|planned| planned.plan.watched).map(sampling);
            let rests = matches!(self.unaccessed, Some((Some(_), _)));
            waits.sum::<Duration>()
                + watched.filter(|_| rests).map(|sampling| 3 * sampling.aggregation).sum()
        });
        let before = self.last_decision.replace(now).unwrap_or(now);
        let view = ColdView {
            elapsed: now.duration_since(before),
            horizon: next + commands + Duration::from_secs(1),
            cpu_share,
            break_even: wanted.break_even.as_ref().ok().map(|(time, _)| *time),
            pairs,
        };
        Ok(self.steering.decide(&settings.limits, &view))
    }

    /// The share of a CPU that kdamonds took, if a window has ended.
    fn measure_cpu(&mut self, now: Instant) -> Result<Option<Ratio>, ColdTrouble> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let (from, before) = running.cpu_from;
        let window = now.duration_since(from);
        if window < CPU_WINDOW {
            return Ok(None);
        }
        let time = cpu_time(&self.damon, &running.pids)?;
        running.cpu_from = (now, time);
        let share = time.saturating_sub(before).as_secs_f64() / window.as_secs_f64();
        Ok(Some(Ratio(share)))
    }

    fn carry_out(
        &mut self,
        pairs: &[ColdPair],
        plan: &ColdPlan,
        settings: &ColdSettings,
        groups: &GroupLimits,
        now: Instant,
    ) -> Result<(), ColdTrouble> {
        let warm = self.running.as_ref().is_some_and(|running| {
            now.duration_since(running.began) >= QUOTA_BEGINS + 2 * plan.aggregation
        });
        let mut plans = kdamond_plans(pairs, plan, settings, groups, warm);
        if self.running.as_ref().is_some_and(|running| running.plans.len() != plans.len()) {
            info!("another number of control groups has a rate of its own: DAMON is set up again");
            self.remove();
            plans = kdamond_plans(pairs, plan, settings, groups, false);
        }
        let Some(running) = &mut self.running else {
            return self.start(plans, pairs, now);
        };
        for (index, (old, new)) in running.plans.iter_mut().zip(plans).enumerate() {
            if old.plan != new.plan {
                self.damon.commit(index, &new.plan)?;
                *old = new;
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        plans: Vec<PlannedKdamond>,
        pairs: &[ColdPair],
        now: Instant,
    ) -> Result<(), ColdTrouble> {
        let unwritten = |error| {
            ColdTrouble::unavailable(format!(
                "what belongs to this daemon cannot be written down: {error}"
            ))
        };
        let there = self.damon.kdamonds()?;
        if !there.is_empty() {
            return Err(DamonError::InUse { count: there.len() }.into());
        }
        self.ownership.write(None).map_err(unwritten)?;
        let kdamonds: Vec<_> = plans.iter().map(|planned| planned.plan.clone()).collect();
        if let Err(error) = self.damon.start(&kdamonds) {
            self.ownership.forget();
            return Err(error.into());
        }
        // Until they are written down, any error ends them: the next run would not know whose they
        // are.
        self.ownership.started();
        self.is_clean = false;
        let pids = self.damon.kdamonds()?;
        self.ownership.write(Some(pids.iter().flatten().copied().collect())).map_err(unwritten)?;
        self.is_clean = true;
        let stats = vec![SchemeStats::default(); plans.len()];
        let pairs = pairs.iter().map(|pair| (pair.hot.node, pair.cold.node)).collect();
        let running = RunningKdamonds {
            pids,
            pairs,
            plans,
            stats,
            began: now,
            cpu_from: (now, Duration::ZERO),
        };
        let running = self.running.insert(running);
        // Now rather than in ten seconds: without it, nothing may run.
        running.cpu_from.1 = cpu_time(&self.damon, &running.pids)?;
        Ok(())
    }

    /// Removes this daemon's kdamonds, if there are any. Those of others stay.
    pub(super) fn remove(&mut self) {
        if let Err(error) = self.clean_up() {
            // No DAMON, nothing to remove.
            if !matches!(error, DamonError::Missing(_)) {
                warn!("what an earlier run set up of DAMON cannot be removed: {error}");
            }
        }
        if self.running.is_none() {
            return;
        }
        // The sums are to be right, but need not be.
        let _ = self.read_stats();
        let removed = self.damon.kdamonds().and_then(|there| {
            if self.ownership.owns(&there) { self.damon.remove() } else { Ok(()) }
        });
        match removed {
            Ok(()) => self.forget(),
            Err(error) => {
                warn!("DAMON goes on, its kdamonds cannot be removed: {error}");
                // Later, by what is written down.
                self.keep_sums();
                self.is_clean = false;
            }
        }
    }

    /// There are no kdamonds of this daemon.
    fn forget(&mut self) {
        self.keep_sums();
        self.ownership.forget();
    }

    fn keep_sums(&mut self) {
        let Some(running) = self.running.take() else { return };
        for (index, pair) in running.pairs.iter().enumerate() {
            let sums = self.sums.entry(*pair).or_default();
            for (sum, moved) in sums.iter_mut().zip(running.moved(index)) {
                *sum = added(*sum, moved);
            }
        }
    }

    /// Logs a state when it begins.
    fn log(&mut self, status: &ColdStatus) {
        let basis = status.idle_basis.clone().unwrap_or_default();
        let said = (status.state, if status.nodes.is_empty() { status.why.clone() } else { basis });
        if self.last_logged.as_ref() == Some(&said) {
            return;
        }
        let (state, why) = (status.state.name(), &status.why);
        let basis = status.idle_basis.as_deref().unwrap_or_default();
        match status.state {
            ColdWord::Off if self.last_logged.is_none() => {}
            ColdWord::Refused | ColdWord::NotAvailable => {
                warn!(state, "idle memory stays where it is: {why}");
            }
            _ => info!(state, basis, "idle memory: {why}"),
        }
        self.last_logged = Some(said);
    }
}

fn cpu_time(damon: &DamonFiles, pids: &[Option<u32>]) -> Result<Duration, ColdTrouble> {
    let mut sum = Duration::ZERO;
    for pid in pids.iter().flatten() {
        sum += damon.cpu_time(*pid).ok_or_else(|| {
            ColdTrouble::unavailable(format!(
                "the CPU time of kdamonds cannot be read from /proc/{pid}/stat, so that it has no \
                 limit: a service needs ProtectProc=default"
            ))
        })?;
    }
    Ok(sum)
}
