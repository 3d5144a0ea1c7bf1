//! The pages of a slice, collected over as many calls as the kernel wants.

use std::io;

use ramslice_types::{Reason, SliceContents, SliceId, SliceState};
use tracing::debug;

use crate::patched::convert;
use crate::patched::device::RamsliceDevice;
use crate::patched::uapi;

/// Runs per call: as many as the kernel reports at once.
const RUNS: usize = 1024;

/// Why there are none.
pub(crate) enum PagesError {
    /// The device said so.
    Io(io::Error),
    /// The slice is in a state of this number, which the tools do not know.
    State(u8),
}

impl From<io::Error> for PagesError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads all runs of a slice.
pub(crate) fn read(
    device: &dyn RamsliceDevice,
    slice: SliceId,
) -> Result<SliceContents, PagesError> {
    let mut buffer = vec![uapi::ramslice_page_run::default(); RUNS];
    let mut runs = Vec::new();
    let mut first = 0;
    let head = loop {
        let head = match device.pages(slice.0, first, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        debug!(?head, "PAGES");
        runs.extend(buffer.iter().take(head.nr as usize).map(convert::run));
        // A kernel that gets no further would keep this going for ever.
        if head.first >= head.nr_pages || head.first <= first {
            break head;
        }
        first = head.first;
    };
    let raw = u8::try_from(head.state).unwrap_or(u8::MAX);
    Ok(SliceContents {
        slice,
        state: SliceState::from_raw(raw).ok_or(PagesError::State(raw))?,
        reason: Reason::from_raw(head.reason),
        runs,
        files: Vec::new(),
        cgroups: Vec::new(),
        sites: None,
    })
}
