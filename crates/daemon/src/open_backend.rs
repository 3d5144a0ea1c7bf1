//! Opens the machine: through the patched kernel, or through the memory hotplug of a stock kernel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ramslice_backend::{HotplugBackend, PatchedBackend};
use ramslice_types::{Backend, BackendError};

use crate::engine::{KERNEL, STOCK};
use crate::settings::{BackendChoice, DaemonSettings};

/// A look each second would have the kernel walk all that is online each time: 93 slices of 4 MiB
/// took 3 ms.
const MAX_AGE: Duration = Duration::from_secs(10);

/// An open backend.
pub struct OpenedBackend {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// [`KERNEL`] or [`STOCK`].
    pub kind: &'static str,
    /// The same backend where a guard must wake slices, because the kernel does not.
    pub guardable: Option<Arc<HotplugBackend>>,
}

/// Asked during long reads whether they should continue.
pub type KeepGoing = Arc<dyn Fn() -> bool + Send + Sync>;

/// Opens the machine: at the start, and again whenever it was lost.
pub type BackendOpener<'a> =
    dyn Fn(&DaemonSettings, &KeepGoing) -> Result<OpenedBackend, BackendError> + 'a;

/// Opens this machine.
///
/// # Errors
/// If the machine supports neither.
pub fn open_backend(
    settings: &DaemonSettings,
    goes_on: &KeepGoing,
) -> Result<OpenedBackend, BackendError> {
    let stock = || {
        let patience = (1.0 / settings.look_share).round() as u32;
        let backend = HotplugBackend::open()?.with_scan_reuse(patience).with_interruption({
            let goes_on = Arc::clone(goes_on);
            move || goes_on()
        });
        let backend = Arc::new(backend);
        Ok(OpenedBackend {
            backend: Arc::clone(&backend) as Arc<dyn Backend>,
            kind: STOCK,
            guardable: Some(backend),
        })
    };
    let opened = |backend| OpenedBackend { backend, kind: KERNEL, guardable: None };
    let kernel = || Ok(opened(Arc::new(PatchedBackend::open()?.with_max_age(MAX_AGE))));
    match settings.backend {
        BackendChoice::Kernel => kernel(),
        BackendChoice::Stock => stock(),
        BackendChoice::Auto if Path::new("/sys/kernel/mm/ramslice").exists() => kernel(),
        // If there is neither, the second error names both.
        BackendChoice::Auto => stock()
            .or_else(|_| Ok(opened(ramslice_backend::open_backend(Path::new("/"), None)?.into()))),
    }
}
