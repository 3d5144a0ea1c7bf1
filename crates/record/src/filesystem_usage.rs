//! The space that file systems use, by their own account: of files that come and go, the kernel
//! reports no more without a question for each file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tables::signed;

/// Bytes that the file systems on block devices hold, each device once; nothing where mounts cannot
/// be read.
///
/// Others may belong to another system, or wait for a server that does not answer: they are left
/// out.
pub(crate) fn bytes(root: &Path) -> Option<i64> {
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).ok()?;
    let sizes = folders(&mounts).into_iter().filter_map(|folder| {
        let about = rustix::fs::statvfs(root.join(folder.trim_start_matches('/'))).ok()?;
        about.f_blocks.checked_sub(about.f_bfree)?.checked_mul(about.f_frsize)
    });
    Some(signed(sizes.fold(0, u64::saturating_add)))
}

/// Where file systems on block devices are mounted, each of them once.
fn folders(mounts: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut folders = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(folder), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        // What is read-only has nothing that comes or goes.
        let writable =
            words.next().is_some_and(|options| options.split(',').any(|option| option == "rw"));
        if device.starts_with("/dev/")
            && !kind.starts_with("fuse")
            && writable
            && seen.insert(device)
        {
            folders.push(unescaped(folder));
        }
    }
    folders
}

/// A path as the kernel writes it: blanks and backslashes as three octal digits. Not by procfs,
/// which forgets blanks.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_on_block_devices_count_once_and_others_not_at_all() {
        let mounts = "proc /proc proc rw 0 0\n/dev/vda /mnt ext4 rw,relatime 0 0\n/dev/vda \
                      /a\\040b ext4 rw 0 0\n/dev/loop0 /snap squashfs ro,nodev 0 0\n/dev/fuse \
                      /doc fuse.portal rw 0 0\n/dev/vdb /my\\040disk xfs rw 0 0\nserver:/x /far \
                      nfs4 rw 0 0\n";
        assert_eq!(folders(mounts), ["/mnt", "/my disk"]);
    }

    #[test]
    fn where_mounts_cannot_be_read_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(bytes(root.path()), None);
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mounts"), "/dev/vda / ext4 rw 0 0\n").unwrap();
        assert!(bytes(root.path()).unwrap() > 0);
    }
}
