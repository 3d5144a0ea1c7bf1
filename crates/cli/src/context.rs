//! What every command needs: the backend and the way to write.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use ramslice_backend::{BackendKind, ReplayBackend};
use ramslice_record::{ReadError, Recording};
use ramslice_types::{Backend, BackendError, ErrorKind, SCHEMA_VERSION};
use serde::Serialize;

use crate::args::{Global, Which};
use crate::render::Screen;

/// The global options, resolved.
pub(crate) struct Context {
    global: Global,
    /// How stdout shows things.
    pub(crate) screen: Screen,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let screen = Screen::stdout(global.color);
        Self { global, screen }
    }

    /// Whether JSON is wanted.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// The file or directory given with --from.
    pub(crate) fn saved(&self) -> Option<&Path> {
        self.global.from.as_deref()
    }

    /// The recording given with --from, if it is one.
    pub(crate) fn recording(&self) -> Result<Option<Recording>> {
        let dir = self.saved().filter(|path| path.is_dir());
        Ok(dir.map(Recording::open).transpose().map_err(not_replayable)?)
    }

    /// Opens the running kernel, or what was given with --from.
    pub(crate) fn backend(&self) -> Result<Box<dyn Backend>> {
        Ok(match &self.global.from {
            Some(dir) if dir.is_dir() => {
                let machine = Recording::open(dir).and_then(|recording| recording.last_machine());
                let (machine, work) = machine.map_err(not_replayable)?;
                Box::new(ReplayBackend::with_work(machine, work))
            }
            Some(path) => Box::new(ReplayBackend::open(path).map_err(BackendError::from)?),
            None => ramslice_backend::open_backend(Path::new("/"), self.way())?,
        })
    }

    /// The way that --backend forces.
    pub(crate) fn way(&self) -> Option<BackendKind> {
        self.global.backend.map(|which| match which {
            Which::Kernel => BackendKind::Patched,
            Which::Stock => BackendKind::Stock,
        })
    }
}

/// A recording of another version, or none at all, is unsupported as a saved file would be.
pub(crate) fn not_replayable(error: ReadError) -> BackendError {
    let kind = if matches!(error, ReadError::Io { .. }) {
        ErrorKind::Failed
    } else {
        ErrorKind::Unsupported
    };
    BackendError::new(kind, error)
}

/// The head of every JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Document<T> {
    schema_version: u32,
    command: &'static str,
    #[serde(flatten)]
    body: T,
}

/// Writes `body` under the common head, indented.
pub(crate) fn write_json(
    out: &mut dyn Write,
    command: &'static str,
    body: impl Serialize,
) -> Result<()> {
    let document = Document { schema_version: SCHEMA_VERSION, command, body };
    // As an io::Error, a closed pipe is still known as one.
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Writes `body` under the common head, on one line.
pub(crate) fn write_json_line(
    out: &mut dyn Write,
    command: &'static str,
    body: impl Serialize,
) -> Result<()> {
    let document = Document { schema_version: SCHEMA_VERSION, command, body };
    serde_json::to_writer(&mut *out, &document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}
