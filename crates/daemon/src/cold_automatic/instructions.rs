//! What the kdamonds are told, and what is said of it.

use std::path::Path;

use ramslice_backend::{
    AccessSampling, ColdPair, KdamondPlan, MigrateAction, MigrateScheme, MovedGroups,
};
use ramslice_policy::{ColdPause, ColdPlan};
use ramslice_types::{Bytes, Ratio};

use super::ColdRequest;
use super::monitor::ColdTrouble;
use super::report::ColdWord;
use crate::settings::ColdSettings;

/// The most control groups in one scheme.
const MOST_GROUPS: usize = 256;
/// The most with a rate of their own, with those below them: each is a scheme, which looks at all
/// that is idle.
const MOST_RATES: usize = 32;

/// Control groups that are there, by their paths below the mount point. No group is in both.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GroupLimits {
    /// Whose pages stay.
    pub(super) except: Vec<String>,
    /// Whose pages go at a rate of their own.
    pub(super) rates: Vec<(String, Bytes)>,
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

/// For each pair, the plan of the kdamond that moves what is idle, and of the one for the way back.
/// One that is not warm counts only.
pub(super) fn kdamond_plans(
    pairs: &[ColdPair],
    plan: &ColdPlan,
    settings: &ColdSettings,
    groups: &GroupLimits,
    warm: bool,
) -> Vec<KdamondPlan> {
    let limits = &settings.limits;
    let sampling = AccessSampling {
        sample: plan.sample,
        aggregation: plan.aggregation,
        max_regions: plan.max_regions,
    };
    // Half of what it may take is for moving, the other half for sampling.
    let ms = 1000.0 * limits.cpu_share.0 / 2.0 / (2 * pairs.len().max(1)) as f64;
    let mut plans = Vec::new();
    for (pair, rates) in pairs.iter().zip(&plan.rates) {
        let scheme = |action, target_node, rate: Option<Bytes>, except| MigrateScheme {
            action: if warm && rate.is_some() { action } else { MigrateAction::CountOnly },
            target_node,
            accesses: [0, plan.accesses_idle()],
            min_age: plan.idle_age(),
            accessed_pages: false,
            bytes_per_second: rate.unwrap_or(limits.rate),
            ms_per_second: (ms as u32).max(1),
            groups: MovedGroups::AllBut(except),
        };
        let with_rates = groups.rates.iter().map(|(group, _)| group);
        let others = groups.except.iter().chain(with_rates).cloned().collect();
        let there = scheme(MigrateAction::Cold, pair.cold.node, rates.to_cold, others);
        let each_ms = ((ms / (1 + groups.rates.len()) as f64) as u32).max(1);
        let of_group = |(group, rate): &(String, Bytes)| MigrateScheme {
            // As far as there is room at all
            bytes_per_second: there.bytes_per_second.min(*rate),
            groups: MovedGroups::Only(group.clone()),
            ..there.clone()
        };
        let mut schemes = vec![there.clone()];
        schemes.extend(groups.rates.iter().map(of_group));
        for one in &mut schemes {
            one.ms_per_second = each_ms;
        }
        plans.push(KdamondPlan {
            regions: pair.hot.regions.clone(),
            sampling,
            schemes,
            watched: false,
        });
        let except = groups.except.clone();
        plans.push(KdamondPlan {
            regions: pair.cold.regions.clone(),
            sampling,
            schemes: vec![MigrateScheme {
                accesses: [plan.accesses_in_use(limits.in_use), u32::MAX],
                min_age: 0,
                accessed_pages: true,
                ..scheme(MigrateAction::Hot, pair.hot.node, rates.back, except)
            }],
            watched: true,
        });
    }
    plans
}

/// Whether one plan can follow another in kdamonds that run: schemes keep their counts by their
/// place.
pub(super) fn same_schemes(one: &KdamondPlan, other: &KdamondPlan) -> bool {
    let only = |plan: &KdamondPlan| -> Vec<Option<String>> {
        let of_scheme = |scheme: &MigrateScheme| match &scheme.groups {
            MovedGroups::AllBut(_) => None,
            MovedGroups::Only(group) => Some(group.clone()),
        };
        plan.schemes.iter().map(of_scheme).collect()
    };
    only(one) == only(other)
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

/// The groups of the settings that exist, with those below them. Others have no pages.
pub(super) fn group_limits(
    root: &Path,
    settings: &ColdSettings,
) -> Result<GroupLimits, ColdTrouble> {
    let rates = &settings.rate_by_group;
    let except = groups_below(root, &settings.except, MOST_GROUPS, "except", &|path| {
        rates.contains_key(path)
    })?;
    let mut found = GroupLimits { except, rates: Vec::new() };
    for (group, rate) in rates {
        // What is named itself is not shared with what it is below.
        let named = |path: &str| {
            path != group && (rates.contains_key(path) || settings.except.iter().any(|p| p == path))
        };
        let left = MOST_RATES - found.rates.len();
        let groups =
            groups_below(root, std::slice::from_ref(group), left, "rate_by_group", &named)?;
        let each = Bytes(rate.0 / groups.len().max(1) as u64);
        found.rates.extend(groups.into_iter().map(|path| (path, each)));
    }
    Ok(found)
}

/// Groups with those below them, but none that is left out, nor what is below that.
fn groups_below(
    root: &Path,
    groups: &[String],
    most: usize,
    setting: &str,
    left_out: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>, ColdTrouble> {
    let mount = root.join("sys/fs/cgroup");
    let mut found = Vec::new();
    let mut left: Vec<String> = groups.iter().rev().cloned().collect();
    while let Some(group) = left.pop() {
        let Ok(entries) = std::fs::read_dir(mount.join(group.trim_start_matches('/'))) else {
            continue;
        };
        let below =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = below
            .filter_map(|entry| Some(format!("{group}/{}", entry.file_name().to_str()?)))
            .filter(|name| !left_out(name))
            .collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        left.extend(names);
        if !found.contains(&group) {
            found.push(group);
        }
        if found.len() > most {
            let limit = if setting == "except" { MOST_GROUPS } else { MOST_RATES };
            return Err(ColdTrouble::unavailable(format!(
                "cold.{setting} names more than {limit} control groups with those below them"
            )));
        }
    }
    Ok(found)
}
