//! Exit codes: part of the interface, listed in `ramslice --help`.

use std::fmt;
use std::io;
use std::process::ExitCode;

use ramslice_types::{BackendError, BackendErrorKind};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It did what was asked.
    Ok,
    /// Something was refused or failed.
    Refused,
    /// It cannot be asked: wrong usage, or a kernel without ramslice.
    Usage,
    /// A command that it ran ended with this status.
    Command(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(match exit {
            ExitStatus::Ok => 0,
            ExitStatus::Refused => 1,
            ExitStatus::Usage => 2,
            ExitStatus::Command(status) => status,
        })
    }
}

/// Arguments that clap accepts but this machine does not have, as in a zone by a wrong name.
#[derive(Debug)]
pub struct UsageError(
    /// What is wrong, and what to write instead.
    pub String,
);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A command that was to be run beside this one could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot run `{program}`")]
pub struct CommandNotStarted {
    program: String,
    source: io::Error,
}

impl CommandNotStarted {
    /// `program` could not be started because of `source`.
    pub fn new(program: &str, source: io::Error) -> Self {
        Self { program: program.to_owned(), source }
    }

    /// The exit status, as a shell has it: 127 if there is no such program, otherwise 126.
    pub fn status(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// The exit code that goes with an error.
pub fn of_error(error: &anyhow::Error) -> ExitStatus {
    if let Some(error) = error.downcast_ref::<CommandNotStarted>() {
        return ExitStatus::Command(error.status());
    }
    let unsupported = error.downcast_ref::<BackendError>().is_some_and(|error| {
        matches!(error.kind(), BackendErrorKind::Unsupported | BackendErrorKind::Disabled)
    });
    if unsupported || error.is::<UsageError>() { ExitStatus::Usage } else { ExitStatus::Refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_is_not_failed() {
        let error = |kind| anyhow::Error::from(BackendError::new(kind, "text"));
        assert_eq!(of_error(&error(BackendErrorKind::Disabled)), ExitStatus::Usage);
        assert_eq!(of_error(&error(BackendErrorKind::Unsupported)), ExitStatus::Usage);
        assert_eq!(of_error(&error(BackendErrorKind::Busy)), ExitStatus::Refused);
        assert_eq!(of_error(&UsageError("x".to_owned()).into()), ExitStatus::Usage);
    }
}
