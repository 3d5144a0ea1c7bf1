//! What the kdamonds are told, and what is said of it.

use std::path::Path;

use ramslice_backend::{AccessSampling, ColdPair, KdamondPlan, MigrateAction, MigrateScheme};
use ramslice_policy::{ColdPause, ColdPlan};
use ramslice_types::{Bytes, Ratio};

use super::ColdRequest;
use super::monitor::ColdTrouble;
use super::report::ColdWord;
use crate::settings::ColdSettings;

/// The most control groups in one scheme.
const MOST_GROUPS: usize = 256;

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

/// For each pair, the plan of the kdamond that moves what is idle, and of the one for the way back.
/// One that is not warm counts only.
pub(super) fn kdamond_plans(
    pairs: &[ColdPair],
    plan: &ColdPlan,
    settings: &ColdSettings,
    except: &[String],
    warm: bool,
) -> Vec<KdamondPlan> {
    let limits = &settings.limits;
    let sampling = AccessSampling {
        sample: plan.sample,
        aggregation: plan.aggregation,
        max_regions: plan.max_regions,
    };
    // Half of what it may take is for moving, the other half for sampling.
    let ms = (1000.0 * limits.cpu_share.0 / 2.0 / (2 * pairs.len().max(1)) as f64) as u32;
    let mut plans = Vec::new();
    for (pair, rates) in pairs.iter().zip(&plan.rates) {
        let scheme = |action, target_node, rate: Option<Bytes>| MigrateScheme {
            action: if warm && rate.is_some() { action } else { MigrateAction::CountOnly },
            target_node,
            accesses: [0, plan.accesses_idle()],
            min_age: plan.idle_age(),
            accessed_pages: false,
            bytes_per_second: rate.unwrap_or(limits.rate),
            ms_per_second: ms.max(1),
            except: except.to_owned(),
        };
        plans.push(KdamondPlan {
            regions: pair.hot.regions.clone(),
            sampling,
            scheme: scheme(MigrateAction::Cold, pair.cold.node, rates.to_cold),
        });
        plans.push(KdamondPlan {
            regions: pair.cold.regions.clone(),
            sampling,
            scheme: MigrateScheme {
                accesses: [plan.accesses_in_use(limits.in_use), u32::MAX],
                min_age: 0,
                accessed_pages: true,
                ..scheme(MigrateAction::Hot, pair.hot.node, rates.back)
            },
        });
    }
    plans
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

/// Control groups with those below them, by their paths below the mount point. Those that do not
/// exist have no pages.
pub(super) fn control_groups(root: &Path, except: &[String]) -> Result<Vec<String>, ColdTrouble> {
    let mount = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    let mut left: Vec<String> = except.iter().rev().cloned().collect();
    while let Some(group) = left.pop() {
        let Ok(entries) = std::fs::read_dir(mount.join(group.trim_start_matches('/'))) else {
            continue;
        };
        let below =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = below
            .filter_map(|entry| Some(format!("{group}/{}", entry.file_name().to_str()?)))
            .collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        left.extend(names);
        if !found.contains(&group) {
            found.push(group);
        }
        if found.len() > MOST_GROUPS {
            return Err(ColdTrouble::unavailable(format!(
                "cold.except names more than {MOST_GROUPS} control groups with those below them"
            )));
        }
    }
    Ok(found)
}
