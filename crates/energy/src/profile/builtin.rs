//! The profiles that come with ramslice: the files of `profiles/`, part of the program.

use super::{DramProfile, GivebackProfile, ProfileError};

/// The commented template for a profile of one's own.
pub const TEMPLATE: &str = include_str!("../../../../profiles/template.toml");

/// Name and text of each.
const FILES: [(&str, &str); 9] = [
    ("ddr5-modes", include_str!("../../../../profiles/ddr5-modes.toml")),
    ("thesis-parc", include_str!("../../../../profiles/thesis-parc.toml")),
    ("mobile-states", include_str!("../../../../profiles/mobile-states.toml")),
    ("ddr4-states", include_str!("../../../../profiles/ddr4-states.toml")),
    ("ddr4-rdimm", include_str!("../../../../profiles/ddr4-rdimm.toml")),
    ("ddr5-rdimm", include_str!("../../../../profiles/ddr5-rdimm.toml")),
    ("lpddr-suspend", include_str!("../../../../profiles/lpddr-suspend.toml")),
    ("cxl-expander", include_str!("../../../../profiles/cxl-expander.toml")),
    ("rdram", include_str!("../../../../profiles/rdram.toml")),
];

/// The name of the built-in profile of memory that is given back.
pub const GIVEBACK_NAME: &str = "giveback";

const GIVEBACK: &str = include_str!("../../../../profiles/giveback.toml");

/// The names of those of DRAM.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().map(|(name, _)| name)
}

/// The names of all, those of DRAM first.
pub fn worth_profile_names() -> impl Iterator<Item = &'static str> {
    builtin_names().chain([GIVEBACK_NAME])
}

/// The text of one of either kind, comments included.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    FILES
        .into_iter()
        .chain([(GIVEBACK_NAME, GIVEBACK)])
        .find(|(known, _)| *known == name)
        .map(|(_, text)| text)
}

/// Reads the one of memory that is given back.
///
/// # Errors
/// None: a test reads it.
pub fn builtin_giveback() -> Result<GivebackProfile, ProfileError> {
    GivebackProfile::parse(GIVEBACK, "profiles/giveback.toml")
}

/// Reads one of DRAM; nothing if there is none of this name.
pub fn builtin(name: &str) -> Option<Result<DramProfile, ProfileError>> {
    let text = FILES.into_iter().find(|(known, _)| *known == name).map(|(_, text)| text);
    text.map(|text| DramProfile::parse(text, &format!("profiles/{name}.toml")))
}
