//! Which way to the running system: the patched kernel's if it is there, else memory hotplug.

use std::path::Path;

use ramslice_types::{Backend, BackendError};
use tracing::debug;

use crate::error::Error;
use crate::hotplug::HotplugBackend;
use crate::patched::KernelBackend;
use crate::readers::Paths;

/// A way to the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `/dev/ramslice` of a kernel with the ramslice series.
    Kernel,
    /// Memory hotplug of any kernel.
    Stock,
}

/// Opens the system below `root`; without a `way`, whichever is there, the patched kernel's first.
///
/// A kernel that has ramslice is never gone around: switched off, or not permitted, it stays an error.
pub fn open(root: &Path, way: Option<Way>) -> Result<Box<dyn Backend>, BackendError> {
    Ok(match way {
        Some(Way::Kernel) => Box::new(KernelBackend::open_at(Paths::under(root))?),
        Some(Way::Stock) => Box::new(HotplugBackend::open_at(root)?),
        None => match KernelBackend::open_at(Paths::under(root)) {
            Ok(backend) => Box::new(backend),
            Err(patched @ Error::NotSupported { .. }) => {
                debug!(%patched, "trying memory hotplug");
                match HotplugBackend::open_at(root) {
                    Ok(backend) => Box::new(backend),
                    Err(stock) => {
                        return Err(Error::Neither {
                            patched: Box::new(patched),
                            stock: Box::new(stock),
                        }
                        .into());
                    }
                }
            }
            Err(error) => return Err(error.into()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::ErrorKind;

    #[test]
    fn without_either_the_error_tells_of_both() {
        let root = tempfile::tempdir().unwrap();
        let error = open(root.path(), None).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("has no ramslice") && text.contains("CONFIG_MEMORY_HOTPLUG"),
            "{text}"
        );
    }

    #[test]
    fn memory_blocks_are_taken_when_the_device_is_not_there_unless_the_other_way_is_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let memory = root.path().join("sys/devices/system/memory");
        std::fs::create_dir_all(&memory).unwrap();
        std::fs::write(memory.join("block_size_bytes"), "8000000\n").unwrap();
        assert_eq!(open(root.path(), None).unwrap().slice_bytes().unwrap().0, 128 << 20);
        assert_eq!(
            open(root.path(), Some(Way::Kernel)).err().unwrap().kind(),
            ErrorKind::Unsupported
        );
    }

    #[test]
    fn a_kernel_with_ramslice_switched_off_is_not_gone_around() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/kernel/mm/ramslice/enabled", "0\n"),
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(open(root.path(), None).err().unwrap().kind(), ErrorKind::Disabled);
    }
}
