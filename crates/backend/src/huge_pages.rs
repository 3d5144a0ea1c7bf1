//! The kernel's pools of huge pages, of the machine and of each node: how many there are, and more
//! or fewer of them.

use std::fs;
use std::io;
use std::path::PathBuf;

use ramslice_types::{Bytes, HugePageNode, HugePagePool, NodeId};

use crate::cold_memory::twins;
use crate::error::{FileAccess, KernelError};
use crate::readers::KernelPaths;
use crate::readers::numa::parse_nodes;
use crate::readers::sysfs::failed;

/// The pools of the running system, or of a copy of its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HugePagePools<'a> {
    paths: &'a KernelPaths,
}

impl<'a> HugePagePools<'a> {
    /// Those of a system.
    pub(crate) fn of(paths: &'a KernelPaths) -> Self {
        Self { paths }
    }

    /// The pool of each size, or its part on a node, small pages first; none where the kernel has
    /// no hugetlb.
    ///
    /// # Errors
    /// What cannot be read or understood; that there is no such node.
    pub(crate) fn read(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, KernelError> {
        let folder = self.folder(node);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if node.is_none() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
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
                pools.push(self.pool(node, Bytes(kib << 10))?);
            }
        }
        pools.sort_by_key(|pool| pool.page);
        Ok(pools)
    }

    /// The pool of pages of this size, or its part on a node.
    ///
    /// # Errors
    /// The kernel has none of this size or no such node; its files cannot be read or understood.
    pub(crate) fn pool(
        &self,
        node: Option<NodeId>,
        page: Bytes,
    ) -> Result<HugePagePool, KernelError> {
        let number = |name| self.number(node, page, name);
        let free = number("free_hugepages")?;
        let reserved = match node {
            None => number("resv_hugepages")?,
            // A node has no such file: the kernel keeps as many free as are promised, wherever
            Some(_) => free.saturating_sub(self.pool(None, page)?.unused()),
        };
        Ok(HugePagePool {
            page,
            total: number("nr_hugepages")?,
            free,
            reserved,
            surplus: number("surplus_hugepages")?,
        })
    }

    /// The nodes with memory on which pools have a part of their own, ascending.
    ///
    /// # Errors
    /// What cannot be read or understood.
    pub(crate) fn nodes(&self) -> Result<Vec<HugePageNode>, KernelError> {
        let path = self.paths.nodes.join("has_memory");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(path, FileAccess::Read, error)),
        };
        let Some(mut nodes) = parse_nodes(&text) else {
            return Err(KernelError::NotANumber { path, text: text.trim().to_owned() });
        };
        nodes.sort_unstable();
        let twins = twins(&self.paths.sysfs)?;
        let all = nodes.into_iter().map(|node| HugePageNode {
            node: NodeId(node.cast_signed()),
            is_cold: twins.contains(&node),
        });
        Ok(all.filter(|found| self.folder(Some(found.node)).is_dir()).collect())
    }

    /// Asks for a pool of so many pages, or so many on a node, and returns how many there then are:
    /// fewer if there was no room, more if pages are in use.
    ///
    /// # Errors
    /// The file cannot be written or read.
    pub(crate) fn resize(
        &self,
        node: Option<NodeId>,
        page: Bytes,
        total: u64,
    ) -> Result<u64, KernelError> {
        let path = self.file(node, page, "nr_hugepages");
        fs::write(&path, total.to_string())
            .map_err(|error| failed(path, FileAccess::Write, error))?;
        self.number(node, page, "nr_hugepages")
    }

    fn folder(&self, node: Option<NodeId>) -> PathBuf {
        match node {
            None => self.paths.huge_pages.clone(),
            Some(node) => self.paths.nodes.join(format!("node{node}/hugepages")),
        }
    }

    fn file(&self, node: Option<NodeId>, page: Bytes, name: &str) -> PathBuf {
        self.folder(node).join(format!("hugepages-{}kB", page.0 >> 10)).join(name)
    }

    fn number(&self, node: Option<NodeId>, page: Bytes, name: &str) -> Result<u64, KernelError> {
        let path = self.file(node, page, name);
        let text = fs::read_to_string(&path)
            .map_err(|error| failed(path.clone(), FileAccess::Read, error))?;
        let text = text.trim();
        text.parse().map_err(|_| KernelError::NotANumber { path, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const LARGE: Bytes = Bytes(1 << 30);
    const SMALL: Bytes = Bytes(2 << 20);

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn files(folder: &Path, page: Bytes, files: &[(&str, &str)]) {
        let folder = folder.join(format!("hugepages-{}kB", page.0 >> 10));
        for (name, text) in files {
            put(&folder.join(format!("{name}_hugepages")), text);
        }
    }

    fn root(sizes: &[(Bytes, &str)]) -> (tempfile::TempDir, KernelPaths) {
        let root = tempfile::tempdir().unwrap();
        let paths = KernelPaths::under(root.path());
        for &(page, total) in sizes {
            let numbers = [("nr", total), ("free", "3\n"), ("resv", "1\n"), ("surplus", "0\n")];
            files(&paths.huge_pages, page, &numbers);
        }
        (root, paths)
    }

    /// Nodes 0 and 1, and node 2, which is the twin of node 1: of seven pages of 1 GiB, three are
    /// free and one of these is promised.
    fn nodes() -> (tempfile::TempDir, KernelPaths) {
        let (root, paths) = root(&[(LARGE, "7\n")]);
        put(&paths.nodes.join("has_memory"), "0-2\n");
        put(&paths.sysfs.join("cold/node1/twin"), "2\n");
        for (node, total, free, surplus) in
            [(0, "4", "3", "1"), (1, "3", "0", "0"), (2, "0", "0", "0")]
        {
            let folder = paths.nodes.join(format!("node{node}/hugepages"));
            files(&folder, LARGE, &[("nr", total), ("free", free), ("surplus", surplus)]);
        }
        (root, paths)
    }

    #[test]
    fn pools_come_by_the_size_of_their_pages() {
        let (_root, paths) = root(&[(LARGE, "2\n"), (SMALL, "7\n")]);
        let pools = HugePagePools::of(&paths).read(None).unwrap();
        let seen: Vec<_> = pools.iter().map(|pool| (pool.page, pool.total)).collect();
        assert_eq!(seen, [(SMALL, 7), (LARGE, 2)]);
        assert_eq!(pools[0].unused(), 2);
    }

    #[test]
    fn a_kernel_without_huge_pages_or_nodes_has_no_pool_and_no_node() {
        let (_root, paths) = root(&[]);
        assert_eq!(HugePagePools::of(&paths).read(None).unwrap(), []);
        assert_eq!(HugePagePools::of(&paths).nodes().unwrap(), []);
    }

    #[test]
    fn a_pool_is_asked_for_by_its_size() {
        let (_root, paths) = root(&[(SMALL, "7\n")]);
        let pools = HugePagePools::of(&paths);
        assert_eq!(pools.resize(None, SMALL, 9).unwrap(), 9);
        assert!(pools.resize(None, LARGE, 1).unwrap_err().to_string().contains("1048576kB"));
    }

    #[test]
    fn what_is_no_number_is_named() {
        let (_root, paths) = root(&[(SMALL, "many\n")]);
        let text = HugePagePools::of(&paths).read(None).unwrap_err().to_string();
        assert!(text.contains("nr_hugepages") && text.contains("many"), "{text}");
    }

    #[test]
    fn a_node_has_its_own_part_and_keeps_what_the_machine_has_promised() {
        let (_root, paths) = nodes();
        let pools = HugePagePools::of(&paths).read(Some(NodeId(0))).unwrap();
        let part = HugePagePool { page: LARGE, total: 4, free: 3, reserved: 1, surplus: 1 };
        assert_eq!(pools, [part]);
        assert_eq!((part.unused(), part.size()), (2, 3));
        let other = HugePagePools::of(&paths).pool(Some(NodeId(1)), LARGE).unwrap();
        assert_eq!((other.total, other.unused()), (3, 0));
    }

    #[test]
    fn a_part_is_resized_and_no_other_file_is_written() {
        let (_root, paths) = nodes();
        let pools = HugePagePools::of(&paths);
        assert_eq!(pools.resize(Some(NodeId(1)), LARGE, 5).unwrap(), 5);
        let total = |node: Option<i32>| pools.pool(node.map(NodeId), LARGE).unwrap().total;
        assert_eq!((total(None), total(Some(0)), total(Some(1))), (7, 4, 5));
    }

    #[test]
    fn nodes_are_those_with_memory_and_pools_and_a_twin_is_named_as_one() {
        let (_root, paths) = nodes();
        let seen = || -> Vec<_> {
            let nodes = HugePagePools::of(&paths).nodes().unwrap();
            nodes.iter().map(|found| (found.node.0, found.is_cold)).collect()
        };
        assert_eq!(seen(), [(0, false), (1, false), (2, true)]);
        put(&paths.nodes.join("has_memory"), "1-3\n");
        assert_eq!(seen(), [(1, false), (2, true)]);
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let (_root, paths) = nodes();
        let text = HugePagePools::of(&paths).read(Some(NodeId(5))).unwrap_err().to_string();
        assert!(text.contains("node5"), "{text}");
    }
}
