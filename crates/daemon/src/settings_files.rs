//! The settings file and its drop-ins: `ramsliced.toml.d/*.toml` beside it, in the order of their
//! names. Each sets what it names and leaves the rest as it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ramslice_policy::settings as policies;
use toml::{Table, Value};

use crate::settings::{SettingsError, SettingsFault};

/// A file and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingsFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The directory of the drop-ins of a settings file.
pub fn drop_in_directory(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".d");
    name.into()
}

/// So many of them, for messages.
pub fn count_drop_ins(count: usize) -> String {
    format!("{count} drop-in{}", if count == 1 { "" } else { "s" })
}

/// The drop-ins of a settings file, by name; none without the directory.
///
/// # Errors
/// If the directory cannot be read.
pub fn drop_ins(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(drop_in_directory(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if path.extension().is_some_and(|end| end == "toml") && !name.starts_with(b".") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a settings file and its drop-ins.
///
/// # Errors
/// What cannot be read, or is no text.
pub(crate) fn read_files(path: &Path) -> Result<Vec<SettingsFile>, SettingsError> {
    let unreadable = |path: &Path, error: io::Error, hint: &str| {
        let hint = if error.kind() == io::ErrorKind::NotFound { hint } else { "" };
        let message = format!("cannot be read: {error}{hint}");
        SettingsError {
            file: path.display().to_string(),
            faults: vec![SettingsFault::at("", None, message)],
        }
    };
    let read = |path: &Path, hint: &str| {
        let name = path.display().to_string();
        match fs::read(path).map(policies::utf8) {
            Ok(Ok(text)) => Ok(SettingsFile { name, text }),
            Ok(Err((text, at, message))) => Err(SettingsError {
                file: name,
                faults: vec![SettingsFault::at(&text, Some(at), message)],
            }),
            Err(error) => Err(unreadable(path, error, hint)),
        }
    };
    let hint = "; `ramsliced --print-config` prints a file with all defaults";
    let mut files = vec![read(path, hint)?];
    let drop_ins =
        drop_ins(path).map_err(|error| unreadable(&drop_in_directory(path), error, ""))?;
    for path in drop_ins {
        files.push(read(&path, "")?);
    }
    Ok(files)
}

/// The text of all files together; `None` if one is no TOML.
pub(crate) fn merged_text(files: &[SettingsFile]) -> Option<String> {
    let mut all = Table::new();
    for file in files {
        merge(&mut all, file.text.parse().ok()?);
    }
    toml::to_string(&all).ok()
}

/// Sets in `to` what `from` has. Tables are merged, everything else is replaced.
fn merge(to: &mut Table, from: Table) {
    for (name, value) in from {
        match (to.get_mut(&name), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                to.insert(name, value);
            }
        }
    }
}
