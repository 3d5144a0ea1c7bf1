//! The profiles that come with ramslice: the files of `profiles/`, part of the program.

use super::{DramProfile, ProfileError};

/// The commented template for a profile of one's own.
pub const TEMPLATE: &str = include_str!("../../../../profiles/template.toml");

/// Name and text of each.
const FILES: [(&str, &str); 5] = [
    ("ddr5-modes", include_str!("../../../../profiles/ddr5-modes.toml")),
    ("thesis-parc", include_str!("../../../../profiles/thesis-parc.toml")),
    ("mobile-states", include_str!("../../../../profiles/mobile-states.toml")),
    ("ddr4-states", include_str!("../../../../profiles/ddr4-states.toml")),
    ("rdram", include_str!("../../../../profiles/rdram.toml")),
];

/// Their names.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().map(|(name, _)| name)
}

/// The text of one, comments included.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    FILES.into_iter().find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// Reads one; nothing if there is none of this name.
pub fn builtin(name: &str) -> Option<Result<DramProfile, ProfileError>> {
    builtin_text(name).map(|text| DramProfile::parse(text, &format!("profiles/{name}.toml")))
}
