//! Why DAMON cannot be used, or not now.

use std::path::PathBuf;

use crate::error::KernelError;

/// Why DAMON cannot be used, or not now.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// The kernel has none.
    #[error(
        "this kernel has no DAMON in sysfs ({path} is missing): it needs CONFIG_DAMON_SYSFS and \
         CONFIG_DAMON_PADDR",
        path = .0.display()
    )]
    Missing(PathBuf),
    /// It watches processes only.
    #[error("this kernel's DAMON cannot watch physical addresses: it needs CONFIG_DAMON_PADDR")]
    NoPhysical,
    /// It cannot move pages to another node.
    #[error("this kernel's DAMON cannot move pages to another node: it needs Linux 6.11 or later")]
    TooOld,
    /// Other programs have set up kdamonds.
    #[error("DAMON is in use: another program has set up {count} kdamonds, which are left alone")]
    InUse {
        /// How many.
        count: usize,
    },
    /// A module has DAMON to itself.
    #[error(
        "DAMON is in use by the kernel itself, as by the modules damon_reclaim and damon_lru_sort"
    )]
    Held,
    /// It does not run any more.
    #[error("kdamond {index} has stopped: another program, or the kernel, ended it")]
    Stopped {
        /// Which one.
        index: usize,
    },
    /// Any other failure.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
