//! Opens the running system: the patched kernel if it is there, memory hotplug otherwise.

use std::path::Path;

use ramslice_types::{Backend, BackendError};
use tracing::debug;

use crate::error::KernelError;
use crate::hotplug::HotplugBackend;
use crate::patched::PatchedBackend;
use crate::readers::KernelPaths;

/// The kind of kernel that a backend drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    /// `/dev/ramslice` of a kernel with the ramslice series.
    Patched,
    /// Memory hotplug of any kernel.
    Stock,
}

/// Opens the system below `root`. Without a `kind`, the patched kernel is tried before hotplug.
///
/// Where the kernel has ramslice, hotplug is never used instead: that ramslice is disabled, or that
/// the caller may not use it, is an error.
pub fn open_backend(
    root: &Path,
    kind: Option<BackendKind>,
) -> Result<Box<dyn Backend>, BackendError> {
    Ok(match kind {
        Some(BackendKind::Patched) => Box::new(PatchedBackend::open_at(KernelPaths::under(root))?),
        Some(BackendKind::Stock) => Box::new(HotplugBackend::open_at(root)?),
        None => match PatchedBackend::open_at(KernelPaths::under(root)) {
            Ok(backend) => Box::new(backend),
            Err(patched @ KernelError::NotSupported { .. }) => {
                debug!(%patched, "trying memory hotplug");
                match HotplugBackend::open_at(root) {
                    Ok(backend) => Box::new(backend),
                    Err(stock) => {
                        return Err(KernelError::Neither {
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
    use ramslice_types::BackendErrorKind;

    #[test]
    fn without_either_the_error_names_both() {
        let root = tempfile::tempdir().unwrap();
        let error = open_backend(root.path(), None).err().unwrap();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("has no ramslice") && text.contains("CONFIG_MEMORY_HOTPLUG"),
            "{text}"
        );
    }

    #[test]
    fn without_the_device_hotplug_is_used_unless_the_patched_kernel_is_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let memory = root.path().join("sys/devices/system/memory");
        std::fs::create_dir_all(&memory).unwrap();
        std::fs::write(memory.join("block_size_bytes"), "8000000\n").unwrap();
        assert_eq!(open_backend(root.path(), None).unwrap().slice_bytes().unwrap().0, 128 << 20);
        assert_eq!(
            open_backend(root.path(), Some(BackendKind::Patched)).err().unwrap().kind(),
            BackendErrorKind::Unsupported
        );
    }

    #[test]
    fn a_kernel_with_ramslice_disabled_is_not_driven_by_hotplug() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/kernel/mm/ramslice/enabled", "0\n"),
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(
            open_backend(root.path(), None).err().unwrap().kind(),
            BackendErrorKind::Disabled
        );
    }
}
