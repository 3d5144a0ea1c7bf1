//! The memory policy of a task: which nodes it allocates from.

use std::io;
use std::ptr;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Linux 5.15's, of which the C library has no name.
const MPOL_PREFERRED_MANY: libc::c_int = 5;

/// Has this thread, and what it executes, allocate from these nodes while they have room, and
/// otherwise from the nearest that has. Of several, the nearest to the CPU comes first.
///
/// # Errors
/// Those of `set_mempolicy(2)`: `EINVAL` if the cpuset has none of the nodes, or they have no
/// memory; `EPERM` or `ENOSYS` where a sandbox or the kernel has no policies.
pub(crate) fn prefer_nodes(nodes: &[u32]) -> io::Result<()> {
    let words = nodes.iter().max().map_or(1, |&last| last as usize / WORD_BITS + 1);
    let mut mask: Vec<libc::c_ulong> = vec![0; words];
    for &node in nodes {
        mask[node as usize / WORD_BITS] |= 1 << (node as usize % WORD_BITS);
    }
    let mode = if nodes.len() > 1 { MPOL_PREFERRED_MANY } else { libc::MPOL_PREFERRED };
    set_policy(mode, &mask)
}

/// As before [`prefer_nodes`].
#[cfg(test)]
fn prefer_none() -> io::Result<()> {
    set_policy(libc::MPOL_DEFAULT, &[])
}

fn set_policy(mode: libc::c_int, mask: &[libc::c_ulong]) -> io::Result<()> {
    // The kernel takes one bit less than it is told.
    let (start, bits) = match mask {
        [] => (ptr::null(), 0),
        _ => (mask.as_ptr(), mask.len() * WORD_BITS + 1),
    };
    // SAFETY: the kernel reads `bits - 1` bits from `start` during the call, which are those of
    // `mask`, and none from the null pointer.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, start, bits) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let errors = [libc::EINVAL, libc::EPERM, libc::ENOSYS];
        for nodes in [&[1000][..], &[999, 1000]] {
            let error = prefer_nodes(nodes).unwrap_err();
            assert!(error.raw_os_error().is_some_and(|found| errors.contains(&found)), "{error}");
        }
    }

    #[test]
    fn the_first_node_can_be_preferred() {
        // A sandbox may allow no policies at all
        if prefer_nodes(&[0]).is_ok() {
            let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap();
            prefer_none().unwrap();
            assert!(maps.contains(" prefer:0 "), "{maps}");
        }
    }
}
