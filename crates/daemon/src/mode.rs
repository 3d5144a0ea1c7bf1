//! What the daemon may do.

use std::fmt;

use ramslice_types::Backend;
use serde::{Deserialize, Serialize};

/// What the daemon may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Acts on nothing, and reports what it would have earned.
    #[default]
    Observe,
    /// Acts.
    On,
    /// Decides nothing, and tells the state of memory.
    Off,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Observe, Self::On, Self::Off];

    /// The mode that requests to this backend belong to: whether they reach the machine.
    pub fn of_requests(backend: &dyn Backend) -> Self {
        if backend.simulated_offline().is_some() { Self::Observe } else { Self::On }
    }

    /// Why nothing is decided in this mode, if nothing is.
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

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
