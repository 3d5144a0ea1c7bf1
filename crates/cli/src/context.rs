//! What every command needs: the backend and the way to write.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use ramslice_backend::{BackendKind, ReplayBackend};
use ramslice_doctor::is_capture;
use ramslice_types::{Backend, BackendError, SCHEMA_VERSION};
use serde::Serialize;

use crate::args::{BackendChoice, GlobalOptions};
use crate::exit::UsageError;
use crate::render::OutputStyle;

/// Opens the last sample of the recording in a directory.
pub type OpenRecording = fn(&Path) -> Result<Box<dyn Backend>>;

/// The global options, resolved.
pub struct CommandContext {
    global: GlobalOptions,
    /// Absent in a program that reads no recordings.
    open_recording: Option<OpenRecording>,
    /// How stdout shows things.
    pub screen: OutputStyle,
}

impl CommandContext {
    /// The options of a program; `open_recording` reads directories given with --from.
    pub fn new(global: GlobalOptions, open_recording: Option<OpenRecording>) -> Self {
        let screen = OutputStyle::stdout(global.color);
        Self { global, open_recording, screen }
    }

    /// Whether JSON is wanted.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// The file or directory given with --from.
    pub fn source_path(&self) -> Option<&Path> {
        self.global.from.as_deref()
    }

    /// Opens the running kernel, or what was given with --from.
    pub fn backend(&self) -> Result<Box<dyn Backend>> {
        Ok(match &self.global.from {
            Some(dir) if is_capture(dir) => return Err(is_doctors(dir).into()),
            Some(dir) if dir.is_dir() => match self.open_recording {
                Some(open) => open(dir)?,
                None => return Err(is_directory(dir).into()),
            },
            Some(path) => Box::new(ReplayBackend::open(path).map_err(BackendError::from)?),
            None => ramslice_backend::open_backend(Path::new("/"), self.backend_kind())?,
        })
    }

    /// The way that --backend forces.
    pub fn backend_kind(&self) -> Option<BackendKind> {
        self.global.backend.map(|which| match which {
            BackendChoice::Kernel => BackendKind::Patched,
            BackendChoice::Stock => BackendKind::Stock,
        })
    }

    /// Whether the running kernel is to be used as one with ramslice; found without opening it,
    /// because a stock kernel answers only once all pages were read.
    pub(crate) fn has_ramslice(&self) -> bool {
        self.backend_kind().map_or_else(
            || Path::new("/sys/kernel/mm/ramslice").exists(),
            |kind| kind == BackendKind::Patched,
        )
    }
}

fn is_doctors(dir: &Path) -> UsageError {
    UsageError(format!(
        "{0} is a capture of `ramslice doctor`, which has no slices: look at it with `ramslice \
         doctor --from {0}`. For other commands, save the machine with `ramslice status --json \
         >now.json`",
        dir.display()
    ))
}

fn is_directory(dir: &Path) -> UsageError {
    UsageError(format!(
        "{0} is a directory: this program reads files saved by `ramslice status --json`. If it \
         is a recording, use ramslice-lab, whose commands status, slices, map, census, energy and \
         top take one, as in `ramslice-lab status --from {0}`",
        dir.display()
    ))
}

/// The head of every JSON document.
#[derive(Debug, Serialize)]
struct JsonDocument<T> {
    schema_version: u32,
    command: &'static str,
    #[serde(flatten)]
    body: T,
}

/// Writes `body` under the common head, indented.
pub fn write_json(out: &mut dyn Write, command: &'static str, body: impl Serialize) -> Result<()> {
    let document = JsonDocument { schema_version: SCHEMA_VERSION, command, body };
    // As an io::Error, a closed pipe is still known as one.
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Writes `body` under the common head, on one line.
pub fn write_json_line(
    out: &mut dyn Write,
    command: &'static str,
    body: impl Serialize,
) -> Result<()> {
    let document = JsonDocument { schema_version: SCHEMA_VERSION, command, body };
    serde_json::to_writer(&mut *out, &document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}
