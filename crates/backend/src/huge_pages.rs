//! The kernel's pools of huge pages: how many there are, and more or fewer of them.

use std::fs;
use std::path::{Path, PathBuf};

use ramslice_types::{Bytes, HugePagePool};

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// The pools of the running system, or of a copy of its files.
#[derive(Debug, Clone)]
pub(crate) struct HugePagePools {
    folder: PathBuf,
}

impl HugePagePools {
    /// Those in a folder of sysfs, `mm/hugepages`.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The pool of each size, small pages first; none where the kernel has no hugetlb.
    ///
    /// # Errors
    /// What cannot be read or understood.
    pub(crate) fn read(&self) -> Result<Vec<HugePagePool>, KernelError> {
        let folder = self.folder.clone();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(folder, FileAccess::Read, error)),
        };
        let mut pools = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(folder.clone(), FileAccess::Read, error))?;
            let name = entry.file_name();
            let kib = name
                .to_str()
                .and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"))
                .and_then(|kib| kib.parse::<u64>().ok());
            if let Some(kib) = kib {
                pools.push(self.pool(Bytes(kib << 10))?);
            }
        }
        pools.sort_by_key(|pool| pool.page);
        Ok(pools)
    }

    /// The pool of pages of this size.
    ///
    /// # Errors
    /// The kernel has none of this size; its files cannot be read or understood.
    pub(crate) fn pool(&self, page: Bytes) -> Result<HugePagePool, KernelError> {
        let number = |name| self.number(page, name);
        Ok(HugePagePool {
            page,
            total: number("nr_hugepages")?,
            free: number("free_hugepages")?,
            reserved: number("resv_hugepages")?,
            surplus: number("surplus_hugepages")?,
        })
    }

    /// Asks for a pool of so many pages, and returns how many it then has: fewer if there was no
    /// room, more if pages are in use.
    ///
    /// # Errors
    /// The file cannot be written or read.
    pub(crate) fn resize(&self, page: Bytes, total: u64) -> Result<u64, KernelError> {
        let path = self.file(page, "nr_hugepages");
        fs::write(&path, total.to_string())
            .map_err(|error| failed(path, FileAccess::Write, error))?;
        self.number(page, "nr_hugepages")
    }

    fn file(&self, page: Bytes, name: &str) -> PathBuf {
        self.folder.join(format!("hugepages-{}kB", page.0 >> 10)).join(name)
    }

    fn number(&self, page: Bytes, name: &str) -> Result<u64, KernelError> {
        let path = self.file(page, name);
        let text = fs::read_to_string(&path)
            .map_err(|error| failed(path.clone(), FileAccess::Read, error))?;
        let text = text.trim();
        text.parse().map_err(|_| KernelError::NotANumber { path, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(sizes: &[(u64, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (kib, total) in sizes {
            let folder = root.path().join(format!("hugepages-{kib}kB"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("nr_hugepages"), total).unwrap();
            fs::write(folder.join("free_hugepages"), "3\n").unwrap();
            fs::write(folder.join("resv_hugepages"), "1\n").unwrap();
            fs::write(folder.join("surplus_hugepages"), "0\n").unwrap();
        }
        root
    }

    #[test]
    fn pools_come_by_the_size_of_their_pages() {
        let root = root(&[(1_048_576, "2\n"), (2048, "7\n")]);
        let pools = HugePagePools::in_folder(root.path()).read().unwrap();
        let seen: Vec<_> = pools.iter().map(|pool| (pool.page, pool.total)).collect();
        assert_eq!(seen, [(Bytes(2 << 20), 7), (Bytes(1 << 30), 2)]);
        assert_eq!(pools[0].unused(), 2);
    }

    #[test]
    fn a_kernel_without_huge_pages_has_no_pool() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(HugePagePools::in_folder(root.path()).read().unwrap(), []);
    }

    #[test]
    fn a_pool_is_asked_for_by_its_size() {
        let root = root(&[(2048, "7\n")]);
        let pools = HugePagePools::in_folder(root.path());
        assert_eq!(pools.resize(Bytes(2 << 20), 9).unwrap(), 9);
        assert!(pools.resize(Bytes(1 << 30), 1).unwrap_err().to_string().contains("1048576kB"));
    }

    #[test]
    fn what_is_no_number_is_named() {
        let root = root(&[(2048, "many\n")]);
        let text = HugePagePools::in_folder(root.path()).read().unwrap_err().to_string();
        assert!(text.contains("nr_hugepages") && text.contains("many"), "{text}");
    }
}
