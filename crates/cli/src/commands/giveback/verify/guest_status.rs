//! What the guest says: the document of `ramslice giveback --json`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ramslice_types::{Bytes, SCHEMA_VERSION};
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

/// How the path says standard input.
const STDIN: &str = "-";

/// Why it cannot be used.
#[derive(Debug, Error)]
pub(super) enum GuestStatusError {
    #[error("reading the guest's status {path} failed", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not what `ramslice giveback --json` prints in the guest",
        path = .path.display()
    )]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error(
        "{path} is of `ramslice {command}`: take what `ramslice giveback --json` prints in the \
         guest",
        path = .path.display()
    )]
    OtherCommand { path: PathBuf, command: String },
    #[error(
        "{path} has schema_version {found}, this program knows {SCHEMA_VERSION}: use the same \
         version of ramslice in the guest and on the host",
        path = .path.display()
    )]
    Schema { path: PathBuf, found: u32 },
}

/// The part of the document that counts here.
#[derive(Debug, Deserialize)]
struct GivebackHead {
    schema_version: u32,
    command: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GivebackBody {
    /// With ramslice.
    Slices { reported_bytes: Bytes, off_unreported_bytes: Bytes, on_bytes: Bytes },
    /// Without: free page reporting finds whole blocks by itself, if a device takes reports.
    Blocks { whole_blocks_bytes: Bytes, devices: Vec<IgnoredAny> },
}

/// What the guest does without, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuestStatus {
    /// Slices that are off; without slices, what is free in whole blocks.
    pub(super) off: Bytes,
    /// Of it, what the host was told, or is within seconds.
    pub(super) reported: Bytes,
    /// The memory of its zones that is on; a kernel without ramslice does not say.
    on: Option<Bytes>,
}

impl GuestStatus {
    /// Reads it from a file, or from standard input (`-`).
    pub(super) fn read(path: &Path) -> Result<Self, GuestStatusError> {
        let mut text = String::new();
        let read = if path == Path::new(STDIN) {
            io::stdin().read_to_string(&mut text).map(drop)
        } else {
            fs::read_to_string(path).map(|found| text = found)
        };
        read.map_err(|source| GuestStatusError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, GuestStatusError> {
        let path = || path.to_owned();
        let wrong = |source| GuestStatusError::Parse { path: path(), source };
        let head: GivebackHead = serde_json::from_str(text).map_err(wrong)?;
        if head.command != "giveback" {
            return Err(GuestStatusError::OtherCommand { path: path(), command: head.command });
        }
        if head.schema_version != SCHEMA_VERSION {
            return Err(GuestStatusError::Schema { path: path(), found: head.schema_version });
        }
        Ok(match serde_json::from_str(text).map_err(wrong)? {
            GivebackBody::Slices { reported_bytes, off_unreported_bytes, on_bytes } => Self {
                off: reported_bytes + off_unreported_bytes,
                reported: reported_bytes,
                on: Some(on_bytes),
            },
            GivebackBody::Blocks { whole_blocks_bytes, devices } => Self {
                off: whole_blocks_bytes,
                reported: if devices.is_empty() { Bytes::ZERO } else { whole_blocks_bytes },
                on: None,
            },
        })
    }

    /// Memory that the guest has at least.
    pub(super) fn least_memory(&self) -> Bytes {
        self.off + self.on.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(document: &Value) -> Result<GuestStatus, String> {
        GuestStatus::parse(Path::new("status.json"), &document.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_guest_with_slices_says_what_is_reported_and_on() {
        let text = include_str!("../../../../tests/expects/giveback-json.txt");
        let start = text.find('{').unwrap();
        let end = text.rfind('}').unwrap();
        let status = GuestStatus::parse(Path::new("x"), &text[start..=end]).unwrap();
        assert_eq!(status.reported, Bytes(5_704_253_440));
        assert_eq!(status.on, Some(Bytes(2_783_932_416)));
        assert_eq!(status.least_memory(), Bytes(8_488_185_856));
    }

    #[test]
    fn slices_that_are_off_count_whether_they_were_reported_or_not() {
        let status = parse(&json!({
            "schema_version": SCHEMA_VERSION, "command": "giveback", "power_driver": "none",
            "reported_bytes": 0, "off_unreported_bytes": 3 << 20, "on_bytes": 1 << 20,
        }));
        let status = status.unwrap();
        assert_eq!((status.off, status.reported), (Bytes(3 << 20), Bytes::ZERO));
        assert_eq!(status.least_memory(), Bytes(4 << 20));
    }

    #[test]
    fn without_slices_what_is_free_in_whole_blocks_counts_and_reaches_a_device() {
        let status = |devices: Value| {
            parse(&json!({
                "schema_version": SCHEMA_VERSION, "command": "giveback", "devices": devices,
                "power_driver": "none", "free_bytes": 3 << 20, "whole_blocks_bytes": 2 << 20,
            }))
        };
        let found = GuestStatus { off: Bytes(2 << 20), reported: Bytes(2 << 20), on: None };
        assert_eq!(status(json!([{ "name": "a balloon" }])), Ok(found));
        assert_eq!(status(json!([])), Ok(GuestStatus { reported: Bytes::ZERO, ..found }));
    }

    #[test]
    fn what_is_no_status_of_a_guest_is_refused_with_what_to_take() {
        let head =
            |version: u32, command: &str| json!({ "schema_version": version, "command": command });
        let error = parse(&head(SCHEMA_VERSION, "status")).unwrap_err();
        assert!(error.starts_with("status.json is of `ramslice status`"), "{error}");
        let error = parse(&head(SCHEMA_VERSION + 1, "giveback")).unwrap_err();
        assert!(error.contains("use the same version"), "{error}");
        let error = parse(&head(SCHEMA_VERSION, "giveback")).unwrap_err();
        assert!(error.contains("is not what `ramslice giveback --json` prints"), "{error}");
        assert!(parse(&json!("text")).is_err());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = GuestStatus::read(Path::new("/nowhere/status.json")).unwrap_err();
        assert_eq!(error.to_string(), "reading the guest's status /nowhere/status.json failed");
    }
}
