//! Reads what was done for slices since boot: the statistics in debugfs, and the kernel's counters
//! in `/proc/vmstat`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ramslice_types::{Pages, Price, WorkCounters};
use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;
use crate::readers::{KernelPaths, VmstatCounters};

/// Reads all of it. Root only, as debugfs is.
pub(crate) fn read(paths: &KernelPaths) -> Result<WorkCounters, KernelError> {
    let mut work = faults(&paths.proc.join("vmstat"))?;
    let mut zones = 0;
    for node in entries(&paths.statistics)? {
        if !node.is_dir() {
            continue;
        }
        for zone in entries(&node)? {
            let path = zone.join("stats");
            if path.exists() {
                work = work.plus(&zone_work(&path)?);
                zones += 1;
            }
        }
    }
    debug!(zones, ?work, "statistics");
    if zones == 0 {
        Err(KernelError::NoStatistics { path: paths.statistics.clone() })
    } else {
        Ok(work)
    }
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let listed = fs::read_dir(path).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()
    });
    listed.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => KernelError::NoStatistics { path: path.to_owned() },
        _ => failed(path.to_owned(), FileAccess::Read, source),
    })
}

/// Lines of a name and a number.
struct CounterFile {
    path: PathBuf,
    text: String,
}

impl CounterFile {
    fn read(path: &Path) -> Result<Self, KernelError> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err(source) => Err(failed(path.to_owned(), FileAccess::Read, source)),
        }
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once(' '))
    }

    fn number(&self, text: &str) -> Result<u64, KernelError> {
        let wrong = || KernelError::NotANumber { path: self.path.clone(), text: text.to_owned() };
        text.trim().parse().map_err(|_| wrong())
    }

    fn get(&self, name: &'static str) -> Result<u64, KernelError> {
        match self.lines().find(|(known, _)| *known == name) {
            Some((_, text)) => self.number(text),
            None => Err(KernelError::NoCounter { path: self.path.clone(), name }),
        }
    }
}

fn zone_work(path: &Path) -> Result<WorkCounters, KernelError> {
    let counters = CounterFile::read(path)?;
    let get = |name| counters.get(name);
    Ok(WorkCounters {
        tried_slices: get("offline_tried")?,
        emptied_slices: get("offline_done")?,
        woken_slices: get("online_request")? + get("online_demand")?,
        migrated_pages: Pages(get("pages_migrated")?),
        dropped_pages: Pages(get("pages_dropped")?),
        target_free_pages: Pages(get("target_free")?),
        target_cache_pages: Pages(get("target_cache")?),
        price_predicted: Price(get("price_predicted")?),
        price_measured: Price(get("price_measured")?),
        ..WorkCounters::default()
    })
}

fn faults(path: &Path) -> Result<WorkCounters, KernelError> {
    let counters = VmstatCounters::read(path)?;
    let name = "pgfault";
    let missing = || KernelError::NoCounter { path: path.to_owned(), name };
    Ok(WorkCounters {
        page_faults: counters.get(name).ok_or_else(missing)?,
        allocated_pages: counters.allocated(),
        ..WorkCounters::default()
    })
}

#[cfg(test)]
mod tests {
    use ramslice_types::{BackendError, BackendErrorKind};
    use tempfile::TempDir;

    use super::*;

    const STATS: &str = "offline_tried 5\noffline_done 3\naborted_pressure 1\n\
        online_request 1\nonline_demand 2\n\
        pages_migrated 100\npages_dropped 40\npages_failed 0\nhuge_moved 0\n\
        huge_split 0\ntarget_free 90\ntarget_cache 10\nprice_predicted 5000\nprice_measured 6000\n";

    fn tree() -> (TempDir, KernelPaths) {
        let dir = TempDir::new().unwrap();
        let paths = KernelPaths::under(dir.path());
        for zone in ["node0/DMA32", "node0/Normal"] {
            fs::create_dir_all(paths.statistics.join(zone)).unwrap();
            fs::write(paths.statistics.join(zone).join("stats"), STATS).unwrap();
        }
        fs::write(paths.statistics.join("verify"), "not a directory").unwrap();
        fs::create_dir_all(&paths.proc).unwrap();
        let vmstat =
            "nr_free_pages 7\npgalloc_dma32 200\npgalloc_normal 300\npgfault 450\npgfree 9\n";
        fs::write(paths.proc.join("vmstat"), vmstat).unwrap();
        (dir, paths)
    }

    #[test]
    fn zones_add_up_and_the_kernels_counters_join_them() {
        let (_dir, paths) = tree();
        let work = read(&paths).unwrap();
        assert_eq!((work.tried_slices, work.emptied_slices, work.woken_slices), (10, 6, 6));
        assert_eq!((work.migrated_pages, work.dropped_pages), (Pages(200), Pages(80)));
        assert_eq!((work.target_free_pages, work.target_cache_pages), (Pages(180), Pages(20)));
        assert_eq!((work.price_predicted, work.price_measured), (Price(10_000), Price(12_000)));
        assert_eq!((work.page_faults, work.allocated_pages), (450, Pages(500)));
    }

    #[test]
    fn a_missing_or_broken_counter_is_named_with_its_file() {
        let (_dir, paths) = tree();
        let stats = paths.statistics.join("node0/Normal/stats");
        fs::write(&stats, STATS.replace("pages_dropped 40\n", "")).unwrap();
        let error = read(&paths).unwrap_err().to_string();
        assert!(error.contains("node0/Normal/stats") && error.contains("pages_dropped"), "{error}");
        fs::write(&stats, STATS.replace("pages_dropped 40", "pages_dropped many")).unwrap();
        let error = read(&paths).unwrap_err().to_string();
        assert!(error.contains("`many`"), "{error}");
    }

    #[test]
    fn without_debugfs_the_error_says_how_to_have_it() {
        let (_dir, paths) = tree();
        fs::remove_dir_all(&paths.statistics).unwrap();
        let error = BackendError::from(read(&paths).unwrap_err());
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        assert!(error.to_string().contains("mount -t debugfs"), "{error}");
    }
}
