//! What file systems keep in page cache for themselves, let go.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use tracing::debug;

use crate::readers::mounts::mounts;
use crate::sys::ioctl;

/// Writes everything that is dirty, and has each ext4 write its journal to where it belongs.
///
/// Until then, ext4 holds the blocks of the disk that are in its journal: in page cache they look
/// like any clean pages, but can be neither moved nor dropped. What is not allowed, or unknown to
/// the file system or to a kernel before 5.14, is left out.
pub fn write_out_file_systems() {
    rustix::fs::sync();
    let mountinfo = fs::read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for mount in mounts(&String::from_utf8_lossy(&mountinfo)) {
        if mount.kind != "ext4" || !seen.insert((mount.device.major, mount.device.minor)) {
            continue;
        }
        let done = File::open(&mount.point).and_then(|folder| ioctl::ext4_checkpoint(&folder));
        if let Err(error) = done {
            debug!(point = %mount.point.display(), %error, "its journal was not written");
        }
    }
}
