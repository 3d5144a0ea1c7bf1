//! Exit codes: part of the interface, listed in `ramslice --help`.

use std::fmt;
use std::process::ExitCode;

use ramslice_types::{BackendError, ErrorKind};

use crate::commands::NotStarted;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok,
    /// Something was refused or failed.
    Refused,
    /// It cannot be asked: wrong usage, or a kernel without ramslice.
    Usage,
    /// A command that it ran ended with this status.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Command(status) => status,
        })
    }
}

/// Arguments that clap accepts but this machine does not have, as in a zone by a wrong name.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The exit code that goes with an error.
pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
    if let Some(error) = error.downcast_ref::<NotStarted>() {
        return Exit::Command(error.status());
    }
    let unsupported = error
        .downcast_ref::<BackendError>()
        .is_some_and(|error| matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Disabled));
    if unsupported || error.is::<UsageError>() { Exit::Usage } else { Exit::Refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_is_not_failed() {
        let error = |kind| anyhow::Error::from(BackendError::new(kind, "text"));
        assert_eq!(of_error(&error(ErrorKind::Disabled)), Exit::Usage);
        assert_eq!(of_error(&error(ErrorKind::Unsupported)), Exit::Usage);
        assert_eq!(of_error(&error(ErrorKind::Busy)), Exit::Refused);
        assert_eq!(of_error(&UsageError("x".to_owned()).into()), Exit::Usage);
    }
}
