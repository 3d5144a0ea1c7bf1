//! `/proc/vmstat`, and refaults by distance below `/sys/kernel/mm/ramslice`.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use procfs_core::{FromRead, ProcResult, VmStat};
use ramslice_types::{CacheLookups, Pages, RefaultDistances};

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// The file of refaults of files, below the directory of ramslice in sysfs.
const FILE_DISTANCES: &str = "refault_distances/file";

/// The counters of `/proc/vmstat`, by the kernel's names.
#[derive(Debug, Clone, Default)]
pub struct VmstatCounters(HashMap<String, u64>);

impl FromRead for VmstatCounters {
    fn from_read<R: Read>(from: R) -> ProcResult<Self> {
        // Counters are unsigned long, but none gets near to 2^63. Those of pages may be below zero
        // for a moment.
        let number = |(name, value): (String, i64)| (name, u64::try_from(value).unwrap_or(0));
        Ok(Self(VmStat::from_read(from)?.0.into_iter().map(number).collect()))
    }
}

impl VmstatCounters {
    /// Reads the file.
    ///
    /// # Errors
    /// With the path, if it cannot be read or is of another form.
    pub fn read(path: &Path) -> Result<Self, KernelError> {
        let file = fs::File::open(path)
            .map_err(|source| failed(path.to_owned(), FileAccess::Read, source))?;
        Self::from_read(file)
            .map_err(|source| KernelError::ProcFile { path: path.to_owned(), source })
    }

    /// A counter; nothing if the kernel does not have it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Pages taken from the allocator, of all zones.
    pub fn allocated(&self) -> Pages {
        let zones = self.0.iter().filter(|(name, _)| name.starts_with("pgalloc_"));
        zones.map(|(_, &number)| Pages(number)).sum()
    }

    /// Look-ups of the page cache.
    ///
    /// # Errors
    /// If the kernel does not count them.
    pub fn cache_lookups(&self) -> Result<CacheLookups, KernelError> {
        CacheLookups::of(|name| self.get(name)).map_err(|name| KernelError::NoLookups { name })
    }
}

/// Refaults of files by distance; nothing on a kernel that does not count them.
///
/// # Errors
/// With the path, if the file cannot be read or is of another form.
pub fn file_refault_distances(sysfs: &Path) -> Result<Option<RefaultDistances>, KernelError> {
    let path = sysfs.join(FILE_DISTANCES);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(path, FileAccess::Read, source)),
    };
    let counts = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    match counts.ok().and_then(RefaultDistances::new) {
        Some(distances) => Ok(Some(distances)),
        None => Err(KernelError::NotDistances { path, entries: RefaultDistances::ENTRIES }),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const LOOKUPS: &str = "ramslice_lookup_read 900\nramslice_lookup_fault 100\n\
        ramslice_absent_read 20\nramslice_absent_fault 5\nramslice_readahead 60\n\
        ramslice_readahead_unused 10\n";

    fn counters(text: &str) -> VmstatCounters {
        VmstatCounters::from_read(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_counted_by_zone_is_added_up_and_a_file_without_numbers_is_refused() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("vmstat");
        fs::write(&path, "nr_free_pages 7\npgalloc_dma32 200\npgalloc_normal 300\n").unwrap();
        let found = VmstatCounters::read(&path).unwrap();
        assert_eq!((found.get("nr_free_pages"), found.allocated()), (Some(7), Pages(500)));
        assert_eq!(found.get("pgfault"), None);
        fs::write(&path, "pgfault many\n").unwrap();
        let error = VmstatCounters::read(&path).unwrap_err().to_string();
        assert!(error.contains("vmstat"), "{error}");
    }

    #[test]
    fn lookups_are_read_and_a_kernel_without_them_is_named() {
        let found = counters(LOOKUPS).cache_lookups().unwrap();
        assert_eq!((found.lookups(), found.absent()), (Pages(1000), Pages(25)));
        assert_eq!(found.from_disk(), Pages(50));
        let error = counters("pgfault 3\n").cache_lookups().unwrap_err().to_string();
        assert!(error.contains("ramslice_lookup_read") && error.contains("hit-ratio"), "{error}");
    }

    #[test]
    fn distances_are_as_many_numbers_as_the_kernel_has_orders() {
        let dir = TempDir::new().unwrap();
        assert!(file_refault_distances(dir.path()).unwrap().is_none());
        let path = dir.path().join(FILE_DISTANCES);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("3 {}\n", ["0"; 63].join(" "))).unwrap();
        assert_eq!(file_refault_distances(dir.path()).unwrap().unwrap().total(), 3);
        for wrong in ["1 2 3\n".to_owned(), format!("x {}\n", ["0"; 63].join(" "))] {
            fs::write(&path, &wrong).unwrap();
            let error = file_refault_distances(dir.path()).unwrap_err().to_string();
            assert!(error.contains("refault_distances/file") && error.contains("64"), "{error}");
        }
    }
}
