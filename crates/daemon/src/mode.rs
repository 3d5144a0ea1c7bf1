//! What the daemon may do.

use std::fmt;

use ramslice_types::Backend;
use serde::{Deserialize, Serialize};

/// What the daemon may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DaemonMode {
    /// Acts on nothing and reports what acting would have earned.
    #[default]
    Observe,
    /// Acts.
    On,
    /// Decides nothing and reports the state of memory.
    Off,
}

impl DaemonMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Observe, Self::On, Self::Off];

    /// The mode in which requests to this backend count: observe if it only simulates them.
    pub fn of_requests(backend: &dyn Backend) -> Self {
        if backend.simulated_offline().is_some() { Self::Observe } else { Self::On }
    }

    /// Why this mode decides nothing, if so.
    pub fn idle(self) -> Option<&'static str> {
        (self == Self::Off).then_some("does nothing: its mode is off")
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for DaemonMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
