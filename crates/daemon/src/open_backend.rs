//! The way to the machine: the patched kernel's own, or a stock kernel's memory hotplug.

use std::path::Path;
use std::sync::Arc;

use ramslice_backend::{BackendKind, HotplugBackend};
use ramslice_types::{Backend, BackendError};

use crate::engine::STOCK;
use crate::settings::{Settings, Which};

/// A way to the machine, open.
pub struct Opened {
    /// The machine.
    pub backend: Arc<dyn Backend>,
    /// `kernel` or `stock`.
    pub way: &'static str,
    /// A stock kernel needs somebody who wakes slices.
    pub guarded: Option<Arc<HotplugBackend>>,
}

/// Asked during long looks whether they are to go on.
pub type GoesOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// How the machine is opened; again whenever it was lost.
pub type Opener<'a> = dyn Fn(&Settings, &GoesOn) -> Result<Opened, BackendError> + 'a;

/// Opens this machine.
///
/// # Errors
/// If it can do neither.
pub fn open(settings: &Settings, goes_on: &GoesOn) -> Result<Opened, BackendError> {
    let stock = || {
        let patience = (1.0 / settings.look_share).round() as u32;
        let backend = HotplugBackend::open()?.patient(patience).asking({
            let goes_on = Arc::clone(goes_on);
            move || goes_on()
        });
        let backend = Arc::new(backend);
        Ok(Opened {
            backend: Arc::clone(&backend) as Arc<dyn Backend>,
            way: STOCK,
            guarded: Some(backend),
        })
    };
    let kernel = |way| {
        let backend = ramslice_backend::open_backend(Path::new("/"), way)?;
        Ok(Opened { backend: Arc::from(backend), way: "kernel", guarded: None })
    };
    match settings.backend {
        Which::Kernel => kernel(Some(BackendKind::Patched)),
        Which::Stock => stock(),
        Which::Auto if Path::new("/sys/kernel/mm/ramslice").exists() => {
            kernel(Some(BackendKind::Patched))
        }
        // If there is neither, the second error tells of both.
        Which::Auto => stock().or_else(|_| kernel(None)),
    }
}
