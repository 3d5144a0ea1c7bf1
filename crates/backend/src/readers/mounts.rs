//! Mounted file systems, as `/proc/self/mountinfo` lists them.

use std::path::PathBuf;

use procfs_core::process::MountInfo;
use ramslice_types::DeviceNumber;

/// A line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Of the file system.
    pub device: DeviceNumber,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The kind of file system, as in `ext4`.
    pub kind: String,
}

/// The mounts of a mountinfo; lines that cannot be understood are left out.
pub(crate) fn mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let mount = MountInfo::from_line(line).ok()?;
            // procfs leaves blanks in a mount point as the kernel writes them.
            let point = mount.mount_point.to_str()?.replace("\\040", " ");
            let device = mount.majmin.parse().ok()?;
            Some(Mount { device, point: PathBuf::from(point), kind: mount.fs_type })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_device_place_and_kind() {
        let text = "36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext3 /dev/root rw\n\
                    no mount at all\n";
        let device = DeviceNumber { major: 98, minor: 0 };
        let mount = Mount { device, point: PathBuf::from("/mnt two"), kind: "ext3".to_owned() };
        assert_eq!(mounts(text), [mount]);
    }
}
