//! What the kdamonds are told, and what is said of it.

use ramslice_backend::{AccessSampling, ColdPair, KdamondPlan, MigrateAction, MigrateScheme};
use ramslice_policy::{ColdPause, ColdPlan};
use ramslice_types::{Bytes, Ratio};

use super::ColdRequest;
use super::group_limits::GroupLimits;
use super::report::ColdWord;
use crate::settings::ColdSettings;

/// What groups with a rate of their own may have of all that is tried: the least part of the others
/// is what is left.
const MOST_OF_RATE: f64 = 0.75;

/// A kdamond of a pair of nodes.
#[derive(Debug)]
pub(super) struct PlannedKdamond {
    /// The place of the pair.
    pub(super) pair: usize,
    pub(super) way: MoveWay,
    pub(super) plan: KdamondPlan,
}

/// Where a kdamond moves pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveWay {
    There,
    Back,
}

/// The state of a plan, and why, as a sentence.
pub(super) fn state_and_reason(
    plan: &ColdPlan,
    cpu_share: Option<Ratio>,
    settings: &ColdSettings,
) -> (ColdWord, String) {
    let share = cpu_share.map_or(0.0, |share| 100.0 * share.0);
    let limit = 100.0 * settings.limits.cpu_share.0;
    match plan.pause {
        Some(ColdPause::Cpu) if plan.stopped => (
            ColdWord::PausedCpu,
            format!(
                "kdamonds took {share:.1}% of a CPU at the coarsest sampling, and may take \
                 {limit}%: they are off for ten minutes"
            ),
        ),
        Some(ColdPause::Cpu) => (
            ColdWord::PausedCpu,
            format!(
                "kdamonds took {share:.1}% of a CPU and may take {limit}%: nothing moves until \
                 they take less at a coarser sampling"
            ),
        ),
        Some(ColdPause::Full) => (
            ColdWord::PausedFull,
            "cold nodes have no room, or only by waking slices that should stay off; what is \
             in use comes back"
                .to_owned(),
        ),
        None => (ColdWord::Running, "moves what is idle, and back what is in use".to_owned()),
    }
}

/// For each pair, the kdamond that moves what is idle, one more for each group with a rate of its
/// own, and that for the way back. One that is not warm counts only.
///
/// Groups have kdamonds, not schemes: a region that one scheme has looked at has the age 0 for all
/// others, and so is not idle.
pub(super) fn kdamond_plans(
    pairs: &[ColdPair],
    plan: &ColdPlan,
    settings: &ColdSettings,
    groups: &GroupLimits,
    warm: bool,
) -> Vec<PlannedKdamond> {
    let limits = &settings.limits;
    let sampling = AccessSampling {
        sample: plan.sample,
        aggregation: plan.aggregation,
        max_regions: plan.max_regions,
    };
    // Half of what it may take is for moving, the other half for sampling.
    let ms = 1000.0 * limits.cpu_share.0 / 2.0 / (2 * pairs.len().max(1)) as f64;
    let each_ms = ms / (1 + groups.rates.len()) as f64;
    let mut plans = Vec::new();
    for (pair, (nodes, rates)) in pairs.iter().zip(&plan.rates).enumerate() {
        let scheme =
            |action, target_node, rate: Option<Bytes>, bytes, except: &[_]| MigrateScheme {
                action: if warm && rate.is_some() { action } else { MigrateAction::CountOnly },
                target_node,
                accesses: [0, plan.accesses_idle()],
                min_age: plan.idle_age(),
                accessed_pages: false,
                bytes_per_second: bytes,
                ms_per_second: (each_ms as u32).max(1),
                except: except.to_vec(),
            };
        let (others, of_groups) =
            parts_of_rate(rates.to_cold.unwrap_or(limits.rate), limits.rate, groups);
        let all = [(others, &groups.others_except)];
        let with_rates = of_groups.into_iter().zip(groups.rates.iter().map(|group| &group.except));
        for (bytes, except) in all.into_iter().chain(with_rates) {
            let scheme = scheme(MigrateAction::Cold, nodes.cold.node, rates.to_cold, bytes, except);
            let plan = KdamondPlan {
                regions: nodes.hot.regions.clone(),
                sampling,
                scheme,
                watched: false,
            };
            plans.push(PlannedKdamond { pair, way: MoveWay::There, plan });
        }
        let bytes = rates.back.unwrap_or(limits.rate);
        let back = scheme(MigrateAction::Hot, nodes.hot.node, rates.back, bytes, &groups.except);
        let scheme = MigrateScheme {
            accesses: [plan.accesses_in_use(limits.in_use), u32::MAX],
            min_age: 0,
            accessed_pages: true,
            ms_per_second: (ms as u32).max(1),
            ..back
        };
        let plan =
            KdamondPlan { regions: nodes.cold.regions.clone(), sampling, scheme, watched: true };
        plans.push(PlannedKdamond { pair, way: MoveWay::Back, plan });
    }
    plans
}

/// What is tried in a second of others, and of each group with a rate of its own: together no more
/// than `all`, which is less than the rate of the settings while there is little room or time.
fn parts_of_rate(all: Bytes, rate: Bytes, groups: &GroupLimits) -> (Bytes, Vec<Bytes>) {
    let wanted: f64 = groups.rates.iter().map(|group| group.rate.0 as f64).sum();
    let most = MOST_OF_RATE * rate.0 as f64;
    let scale = (all.0 as f64 / rate.0.max(1) as f64).min(1.0)
        * if wanted > most { most / wanted } else { 1.0 };
    let of_groups: Vec<Bytes> =
        groups.rates.iter().map(|group| Bytes((group.rate.0 as f64 * scale) as u64)).collect();
    (all - of_groups.iter().copied().sum(), of_groups)
}

/// What the idle time rests on.
pub(super) fn idle_basis(settings: &ColdSettings, wanted: &ColdRequest, plan: &ColdPlan) -> String {
    let idle = settings.limits.idle;
    let (base, text) = match &wanted.break_even {
        Ok((time, by)) if *time > idle => (
            *time,
            format!(
                "by {by}, pages must stay for {:.0} s to pay for their moves",
                time.as_secs_f64()
            ),
        ),
        Ok((time, by)) => {
            (idle, format!("cold.idle; by {by}, {:.0} s pay for the moves", time.as_secs_f64()))
        }
        Err(why) => (idle, format!("cold.idle alone: {why}")),
    };
    if plan.idle > base {
        format!("{text}; longer, because pages came back before that")
    } else {
        text
    }
}
