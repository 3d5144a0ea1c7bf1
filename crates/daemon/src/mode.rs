//! What the daemon may do.

use std::fmt;

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
