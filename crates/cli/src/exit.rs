//! Exit codes: part of the interface, listed in `ramslice --help`.

use std::fmt;
use std::process::ExitCode;

use ramslice_types::{BackendError, ErrorKind};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// Something was refused or failed.
    Refused = 1,
    /// It cannot be asked: wrong usage, or a kernel without ramslice.
    Usage = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
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
