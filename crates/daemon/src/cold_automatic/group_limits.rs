//! Control groups of the settings: whose pages stay, and whose go at a rate of their own.
//!
//! A filter of DAMON leaves out the pages of one group, without those below it. So a kdamond for
//! some groups leaves out all others.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ramslice_backend::ControlGroup;
use ramslice_types::Bytes;

use super::monitor::ColdTrouble;
use crate::settings::ColdSettings;

/// The most control groups that a kdamond leaves out.
const MOST_GROUPS: usize = 1024;
/// Only groups that have it are told apart; pages of others are those of the nearest above them.
const MEMORY: &str = "memory.current";

/// Groups as they are now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GroupLimits {
    /// Whose pages stay.
    pub(super) except: Vec<ControlGroup>,
    /// Whose pages do not go with those of all others: these, and those with a rate of their own.
    pub(super) others_except: Vec<ControlGroup>,
    /// In the order of the settings.
    pub(super) rates: Vec<GroupRate>,
}

/// A group with a rate of its own, and those below it that are not named themselves.
#[derive(Debug, PartialEq)]
pub(super) struct GroupRate {
    /// The most that is tried in a second.
    pub(super) rate: Bytes,
    /// All groups but these.
    pub(super) except: Vec<ControlGroup>,
}

/// What the settings say of a group, itself or by one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupShare {
    Stays,
    /// The place of the rate.
    OwnRate(usize),
    AsOthers,
}

/// Reads which groups there are. Those that are named and do not exist have no pages.
pub(super) fn group_limits(
    root: &Path,
    settings: &ColdSettings,
) -> Result<GroupLimits, ColdTrouble> {
    let mut named: BTreeMap<&str, GroupShare> =
        settings.except.iter().map(|path| (path.as_str(), GroupShare::Stays)).collect();
    let rates = settings.rate_by_group.keys().enumerate();
    named.extend(rates.map(|(place, path)| (path.as_str(), GroupShare::OwnRate(place))));
    // With rates, who has none has to be told apart, too.
    let begin = if settings.rate_by_group.is_empty() {
        named.iter().map(|(path, share)| ((*path).to_owned(), *share)).collect()
    } else {
        vec![(String::new(), GroupShare::AsOthers)]
    };
    let groups = walk(&root.join("sys/fs/cgroup"), begin, &named)?;
    let without = |kept: &[GroupShare]| -> Vec<ControlGroup> {
        let left_out = groups.iter().filter(|(_, share)| !kept.contains(share));
        left_out.map(|(group, _)| group.clone()).collect()
    };
    let places = 0..settings.rate_by_group.len();
    let all_rates: Vec<GroupShare> = places.clone().map(GroupShare::OwnRate).collect();
    let moving: Vec<GroupShare> = all_rates.iter().copied().chain([GroupShare::AsOthers]).collect();
    let rates = settings.rate_by_group.values().zip(&all_rates);
    Ok(GroupLimits {
        except: without(&moving),
        others_except: without(&[GroupShare::AsOthers]),
        rates: rates.map(|(&rate, &own)| GroupRate { rate, except: without(&[own]) }).collect(),
    })
}

/// All groups from some on downwards, each once, in the order of their paths.
fn walk(
    mount: &Path,
    begin: Vec<(String, GroupShare)>,
    named: &BTreeMap<&str, GroupShare>,
) -> Result<Vec<(ControlGroup, GroupShare)>, ColdTrouble> {
    let mut found: BTreeMap<ControlGroup, GroupShare> = BTreeMap::new();
    let mut left = begin;
    while let Some((path, above)) = left.pop() {
        let share = named.get(path.as_str()).copied().unwrap_or(above);
        let folder = mount.join(path.trim_start_matches('/'));
        let is_root = path.is_empty();
        let Ok(about) = folder.metadata() else { continue };
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        if !is_root && !folder.join(MEMORY).exists() {
            continue;
        }
        let below =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(
            below.filter_map(|entry| {
                Some((format!("{path}/{}", entry.file_name().to_str()?), share))
            }),
        );
        let path = if is_root { "/".to_owned() } else { path };
        found.insert(ControlGroup { path, inode: about.ino() }, share);
        if found.len() > MOST_GROUPS {
            let setting = if named.values().any(|share| *share != GroupShare::Stays) {
                "cold.rate_by_group needs all control groups told apart, and there are"
            } else {
                "cold.except names, with those below them,"
            };
            return Err(ColdTrouble::unavailable(format!(
                "{setting} more than {MOST_GROUPS} control groups"
            )));
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::time::Duration;

    use ramslice_policy::ColdLimits;
    use ramslice_types::Ratio;

    use super::*;

    /// Settings by which idle memory moves but that of some groups, or at rates of their own.
    pub(crate) fn settings(except: &[&str], rates: &[(&str, u64)]) -> ColdSettings {
        ColdSettings {
            automatic: true,
            limits: ColdLimits {
                idle: Duration::from_mins(2),
                in_use: Ratio(0.25),
                rate: Bytes(16 << 20),
                cpu_share: Ratio(0.01),
            },
            except: except.iter().map(|path| (*path).to_owned()).collect(),
            rate_by_group: rates
                .iter()
                .map(|(path, rate)| ((*path).to_owned(), Bytes(*rate)))
                .collect(),
        }
    }

    fn machine(groups: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for group in groups {
            let folder = root.path().join("sys/fs/cgroup").join(group);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(MEMORY), "0\n").unwrap();
        }
        root
    }

    fn paths(groups: &[ControlGroup]) -> Vec<&str> {
        groups.iter().map(|group| group.path.as_str()).collect()
    }

    #[test]
    fn what_is_named_decides_for_what_is_below_up_to_another_name() {
        let root = machine(&["a", "a/kept", "a/kept/fast", "b", "b/c", "d"]);
        fs::create_dir(root.path().join("sys/fs/cgroup/d/threads")).unwrap();
        let settings =
            settings(&["/a/kept", "/absent"], &[("/a", 1), ("/a/kept/fast", 2), ("/gone", 3)]);
        let found = group_limits(root.path(), &settings).unwrap();
        assert_eq!(paths(&found.except), ["/a/kept"]);
        assert_eq!(paths(&found.others_except), ["/a", "/a/kept", "/a/kept/fast"]);
        let all = ["/", "/a", "/a/kept", "/a/kept/fast", "/b", "/b/c", "/d"];
        for (rate, own, bytes) in [(0, "/a", 1), (1, "/a/kept/fast", 2), (2, "/gone", 3)] {
            let wanted: Vec<&str> = all.into_iter().filter(|path| *path != own).collect();
            assert_eq!(paths(&found.rates[rate].except), wanted, "{own}");
            assert_eq!(found.rates[rate].rate, Bytes(bytes));
        }
    }

    #[test]
    fn without_rates_only_what_stays_is_looked_for() {
        let root = machine(&["a", "a/b", "c"]);
        let found = group_limits(root.path(), &settings(&["/a", "/a/b"], &[])).unwrap();
        assert_eq!(paths(&found.except), ["/a", "/a/b"]);
        assert_eq!((found.others_except, found.rates.len()), (found.except, 0));
        let nothing = group_limits(root.path(), &settings(&[], &[])).unwrap();
        assert_eq!(nothing, GroupLimits::default());
    }

    #[test]
    fn a_group_that_was_made_again_is_another_one() {
        let root = machine(&["a"]);
        let before = group_limits(root.path(), &settings(&["/a"], &[])).unwrap();
        let folder = root.path().join("sys/fs/cgroup/a");
        fs::rename(&folder, root.path().join("gone")).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(MEMORY), "0\n").unwrap();
        assert_ne!(group_limits(root.path(), &settings(&["/a"], &[])).unwrap(), before);
    }

    #[test]
    fn too_many_groups_are_refused_in_words() {
        let names: Vec<String> = (0..MOST_GROUPS).map(|number| format!("many/{number}")).collect();
        let mut groups = vec!["many"];
        groups.extend(names.iter().map(String::as_str));
        let root = machine(&groups);
        for (settings, words) in [
            (settings(&["/many"], &[]), "cold.except names"),
            (settings(&[], &[("/few", 1)]), "cold.rate_by_group needs"),
        ] {
            let why = group_limits(root.path(), &settings).unwrap_err().to_string();
            assert!(why.contains(words) && why.contains("more than 1024"), "{why}");
        }
    }
}
