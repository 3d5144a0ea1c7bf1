//! Profiles of memory systems by name or path: the built-in ones, or files of the user.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ramslice_energy::{DramPowerState, DramProfile, WorthProfile, builtin_names, builtin_text};

use crate::exit::UsageError;

/// The text of a profile, and the name for messages.
///
/// # Errors
/// If there is no such profile, or its file cannot be read.
pub fn text(name: &str) -> Result<(String, String)> {
    if let Some(text) = builtin_text(name) {
        return Ok((text.to_owned(), format!("profiles/{name}.toml")));
    }
    let path = Path::new(name);
    let like_a_name = !name.contains(['/', '.']);
    if like_a_name && !path.exists() {
        let names: Vec<&str> = builtin_names().collect();
        let message = format!(
            "there is no profile `{name}`: name one of {}, or the path of a file",
            names.join(", ")
        );
        return Err(UsageError(message).into());
    }
    if path.is_dir() {
        return Err(UsageError(format!("{name} is a directory: a profile is a file")).into());
    }
    let text = fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
    Ok((text, name.to_owned()))
}

/// Finds a profile of either kind by name or path, and checks it.
///
/// # Errors
/// As [`text`], and by file and line if the profile is wrong.
pub fn load_any(name: &str) -> Result<WorthProfile> {
    let (text, file) = text(name)?;
    Ok(WorthProfile::parse(&text, &file)?)
}

/// Finds a profile of DRAM by name or path, and checks it.
///
/// # Errors
/// As [`text`], and by file and line if the profile is wrong.
pub fn load(name: &str) -> Result<DramProfile> {
    let (text, file) = text(name)?;
    Ok(DramProfile::parse(&text, &file)?)
}

/// The power state of that name, or the profile's default.
///
/// # Errors
/// If the profile has no such state.
pub fn state(profile: &DramProfile, name: Option<&str>) -> Result<DramPowerState, UsageError> {
    let name = name.unwrap_or(&profile.default_state);
    profile.state(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = profile.states.iter().map(|state| state.name.as_str()).collect();
        UsageError(format!("{} has no state `{name}`: it has {}", profile.file, names.join(", ")))
    })
}
