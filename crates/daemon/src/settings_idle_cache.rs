//! Settings of `[idle_cache]`: when a kernel without ramslice gives up page cache.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::settings::SettingsChecks;

/// Page cache that goes by itself, where the kernel does not choose it by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleCacheSettings {
    /// Once it was not read for so long; none: never.
    pub after: Option<Duration>,
    /// Memory is compacted, if much of what is free lies among pages in use.
    pub compact: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIdleCache {
    after_seconds: Option<Spanned<f64>>,
    compact: Option<bool>,
}

impl RawIdleCache {
    /// The settings; what is wrong is noted, and has its default.
    pub(crate) fn check(self, checks: &mut SettingsChecks<'_>) -> IdleCacheSettings {
        let after = checks.number("idle_cache.after_seconds", self.after_seconds, 0.0);
        IdleCacheSettings {
            after: (after > 0.0).then(|| Duration::from_secs_f64(after)),
            compact: self.compact.unwrap_or(true),
        }
    }
}
