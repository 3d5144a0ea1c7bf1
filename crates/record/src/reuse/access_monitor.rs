//! What keeps accesses from being seen: DAMON on physical memory clears the accessed bits of page
//! tables, as idle page tracking does, and then each misses what the other saw; and reads of files
//! clear no marks with the multi-generational LRU (`folio_mark_accessed()` returns before).

use std::fs;
use std::path::Path;

use super::error::ReuseError;

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// Modules that watch physical memory without being set up in sysfs.
const MODULES: [&str; 2] = ["damon_reclaim", "damon_lru_sort"];
const GENERATIONS: &str = "sys/kernel/mm/lru_gen/enabled";

/// An error that names what is in the way.
pub(super) fn refuse(root: &Path) -> Result<(), ReuseError> {
    let word = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    for kdamond in folders(&root.join(KDAMONDS)) {
        if word(&kdamond.join("state")) != "on" {
            continue;
        }
        let contexts = folders(&kdamond.join("contexts"));
        if contexts.iter().any(|context| word(&context.join("operations")) == "paddr") {
            let what = format!("{} is on, with operations paddr", kdamond.display());
            return Err(ReuseError::Damon { what });
        }
    }
    for module in MODULES {
        let path = root.join("sys/module").join(module).join("parameters/enabled");
        if word(&path) == "Y" {
            return Err(ReuseError::Damon { what: format!("{} is Y", path.display()) });
        }
    }
    let path = root.join(GENERATIONS);
    let value = word(&path);
    let bits = value.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    if bits.is_some_and(|bits| bits & 1 == 1) {
        return Err(ReuseError::Generations { path, value });
    }
    Ok(())
}

/// Folders with a number for a name.
fn folders(parent: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
