//! What can go wrong, each with the path and the operation, and what to do about it.
//!
//! Messages leave out their source: the caller that prints an error prints the chain.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ramslice_types::{BackendError, BackendErrorKind, Bytes, SliceId};
use thiserror::Error;

/// What a file was opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// To read it.
    Read,
    /// To change it.
    Write,
}

impl fmt::Display for FileAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "reading",
            Self::Write => "writing",
        })
    }
}

/// A failure to talk to the kernel.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Neither the device nor the sysfs directory exists.
    #[error(
        "this kernel has no ramslice ({device} and {sysfs} are missing): boot one built with the \
         ramslice series, for instance with `make shell` in the source tree",
        device = .device.display(), sysfs = .sysfs.display()
    )]
    NotSupported {
        /// The missing device.
        device: PathBuf,
        /// The missing directory.
        sysfs: PathBuf,
    },
    /// `enabled` reads 0 and there is no device.
    #[error(
        "ramslice is switched off ({path} reads 0): remove `ramslice=off` from the kernel command \
         line and reboot; if that has `ramslice=table:` or `ramslice=firmware`, the kernel log \
         says what is wrong",
        path = .path.display()
    )]
    Disabled {
        /// The file that says so.
        path: PathBuf,
    },
    /// The kernel has ramslice on, but the device node is missing.
    #[error(
        "{path} is missing although the kernel has ramslice: mount devtmpfs on /dev, or run \
         `udevadm trigger --name-match=ramslice`",
        path = .path.display()
    )]
    NoDevice {
        /// The missing device.
        path: PathBuf,
    },
    /// The file exists, but not for this user.
    #[error("permission denied opening {path} for {access}: {hint}", path = .path.display())]
    Permission {
        /// The file.
        path: PathBuf,
        /// What it was opened for.
        access: FileAccess,
        /// Which group helps, or how to make one.
        hint: String,
    },
    /// The file is there, but its file system takes no writes.
    #[error(
        "{path} is on a file system that is mounted read-only, as /sys is in most containers: run \
         it on the host, or in a container that may write to /sys",
        path = .path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Root may not read a file: the kernel is locked down.
    #[error(
        "{path} is not for reading while the kernel is locked down (kernel_lockdown(7)): boot \
         without lockdown=, or without Secure Boot",
        path = .path.display()
    )]
    LockedDown {
        /// The file.
        path: PathBuf,
    },
    /// The kernel's interface is of another version.
    #[error(
        "the kernel's ramslice interface has version {kernel}, these tools know version {tool}: \
         update the {older_side}"
    )]
    AbiVersion {
        /// The kernel's version.
        kernel: u32,
        /// The version of [`crate::patched::uapi`].
        tool: u32,
        /// The older side.
        older_side: &'static str,
    },
    /// Another request is running.
    #[error(
        "another ramslice request is running ({operation} on {path}): wait until it ends",
        path = .path.display()
    )]
    Busy {
        /// The ioctl.
        operation: &'static str,
        /// The device.
        path: PathBuf,
    },
    /// The kernel does not have the slice, node or zone.
    #[error("the kernel has no {what}: `ramslice slices` and `ramslice status` list what there is")]
    NotFound {
        /// As in "slice 7".
        what: String,
    },
    /// The kernel refused a request as malformed.
    #[error(
        "the kernel refused {operation} on {path} as invalid; these tools may not match it",
        path = .path.display()
    )]
    Refused {
        /// The ioctl.
        operation: &'static str,
        /// The device.
        path: PathBuf,
        /// `EINVAL` or `E2BIG`.
        source: io::Error,
    },
    /// A signal came before a request began.
    #[error("interrupted before {operation} on {path} began", path = .path.display())]
    Interrupted {
        /// The ioctl.
        operation: &'static str,
        /// The device.
        path: PathBuf,
    },
    /// Any other failure on the device.
    #[error("{operation} on {path} failed", path = .path.display())]
    Device {
        /// The ioctl, `open`, `poll` or `read`.
        operation: &'static str,
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Slices kept being added while a snapshot was taken.
    #[error(
        "{path}: the number of slices changed {attempts} times during a snapshot; try again",
        path = .path.display()
    )]
    Unstable {
        /// The device.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },
    /// A state that the interface does not have.
    #[error(
        "the kernel says that {slice} is in state {state}, which these tools do not know: update \
         them",
        slice = SliceName(*.slice)
    )]
    UnknownState {
        /// The slice.
        slice: SliceId,
        /// The kernel's number.
        state: u8,
    },
    /// Pages are shown to root only.
    #[error(
        "{path}: only root may see what is where in memory (CAP_SYS_ADMIN): use sudo",
        path = .path.display()
    )]
    PagesPermission {
        /// The device.
        path: PathBuf,
    },
    /// The kernel has no ioctl for pages.
    #[error(
        "{path}: this kernel's ramslice cannot report the pages of a slice; it is older than these \
         tools",
        path = .path.display()
    )]
    NoPages {
        /// The device.
        path: PathBuf,
    },
    /// `page_owner` could not be read.
    #[error("reading {path} failed", path = .path.display())]
    PageOwner {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The statistics in debugfs are not there.
    #[error(
        "{path} is missing, so that what was done for slices is not known: mount debugfs with \
         `mount -t debugfs debugfs /sys/kernel/debug`",
        path = .path.display()
    )]
    NoStatistics {
        /// The missing directory.
        path: PathBuf,
    },
    /// A file of counters lacks one.
    #[error(
        "{path} has no counter `{name}`: the kernel does not match these tools",
        path = .path.display()
    )]
    NoCounter {
        /// The file.
        path: PathBuf,
        /// The counter.
        name: &'static str,
    },
    /// The kernel does not count look-ups of the page cache.
    #[error(
        "this kernel does not count look-ups of the page cache (/proc/vmstat has no `{name}`): \
         boot one built with the ramslice series, or count by trace events from Linux 6.12 on with \
         `ramslice-lab hit-ratio`"
    )]
    NoLookups {
        /// The missing counter.
        name: &'static str,
    },
    /// Refaults by distance have another form.
    #[error(
        "{path} should hold {entries} numbers: the kernel does not match these tools",
        path = .path.display()
    )]
    NotDistances {
        /// The file.
        path: PathBuf,
        /// How many numbers it should hold.
        entries: usize,
    },
    /// A file of `/proc` has another form than its parser knows.
    #[error(
        "{path} has an unknown form: the kernel does not match these tools",
        path = .path.display()
    )]
    ProcFile {
        /// The file.
        path: PathBuf,
        /// What the parser missed.
        source: procfs_core::ProcError,
    },
    /// A sysfs file could not be read or written.
    #[error("{access} {path} failed", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was done.
        access: FileAccess,
        /// What the kernel said.
        source: io::Error,
    },
    /// A sysfs file does not hold a number.
    #[error("{path} should hold a number but reads `{text}`", path = .path.display())]
    NotANumber {
        /// The file.
        path: PathBuf,
        /// What it reads.
        text: String,
    },
    /// The slice size cannot be changed now.
    #[error(
        "the slice size cannot change to {size} now: switch everything on with \
         `ramslice online --all` and let running requests end"
    )]
    SizeBusy {
        /// The size asked for.
        size: Bytes,
    },
    /// Slices are what a table says.
    #[error(
        "the slice size cannot change to {size}: a table says what slices are; boot without \
         `ramslice=table:` or `ramslice=firmware` on the kernel command line"
    )]
    SizeByTable {
        /// The size asked for.
        size: Bytes,
    },
    /// The slice size is not one the kernel can have.
    #[error(
        "{size} is not a possible slice size: it must be a multiple of {unit}, which is {of}, \
         and fit into memory"
    )]
    SizeInvalid {
        /// The size asked for.
        size: Bytes,
        /// What sizes are multiples of.
        unit: Bytes,
        /// What that is the size of.
        of: &'static str,
    },
    /// There are no memory blocks.
    #[error(
        "this kernel cannot take memory offline ({path} is missing): it is built without \
         CONFIG_MEMORY_HOTPLUG",
        path = .path.display()
    )]
    NoHotplug {
        /// The missing directory.
        path: PathBuf,
    },
    /// Memory blocks cannot be taken away.
    #[error(
        "this kernel cannot take memory offline ({path} is missing): it is built without \
         CONFIG_MEMORY_HOTREMOVE",
        path = .path.display()
    )]
    NoHotremove {
        /// The missing file.
        path: PathBuf,
    },
    /// Page flags are not there.
    #[error(
        "{path} is missing: the kernel is built without CONFIG_PROC_PAGE_MONITOR",
        path = .path.display()
    )]
    NoPageFlags {
        /// The missing file.
        path: PathBuf,
    },
    /// Neither kind of backend is available.
    #[error("{patched}; nor can its memory blocks be switched: {stock}")]
    Neither {
        /// Why the patched kernel's interface is not.
        patched: Box<KernelError>,
        /// Why memory hotplug is not.
        stock: Box<KernelError>,
    },
    /// The slice size is not a multiple of the memory block.
    #[error(
        "{size} is not a possible slice size on this kernel: it must be a multiple of the memory \
         block, {block}"
    )]
    NotBlocks {
        /// The size asked for.
        size: Bytes,
        /// The unit.
        block: Bytes,
    },
    /// What this program remembers of a stock kernel makes no sense.
    #[error(
        "{path} is damaged, and with it the knowledge which blocks ramslice has switched off: \
         remove it, then `ramslice --backend stock slices --state offline` lists all that are \
         offline, whichever program switched them, and `ramslice --backend stock online` with \
         ids, as in `online 12,30-31`, wakes those that are named",
        path = .path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// Another program switches blocks.
    #[error(
        "another ramslice request is running on this machine ({path} is locked): wait until it \
         ends",
        path = .path.display()
    )]
    Locked {
        /// The lock.
        path: PathBuf,
    },
}

/// `slice 7`, for messages.
struct SliceName(SliceId);

impl fmt::Display for SliceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slice {}", self.0)
    }
}

impl KernelError {
    /// What kind of failure it is.
    pub fn kind(&self) -> BackendErrorKind {
        match self {
            Self::NotSupported { .. }
            | Self::AbiVersion { .. }
            | Self::UnknownState { .. }
            | Self::NoPages { .. }
            | Self::NoStatistics { .. }
            | Self::NoHotplug { .. }
            | Self::NoHotremove { .. }
            | Self::NoPageFlags { .. }
            | Self::ProcFile { .. }
            | Self::NoLookups { .. }
            | Self::NotDistances { .. }
            | Self::NoCounter { .. } => BackendErrorKind::Unsupported,
            Self::Neither { patched, .. } => patched.kind(),
            Self::Disabled { .. } => BackendErrorKind::Disabled,
            Self::Permission { .. }
            | Self::PagesPermission { .. }
            | Self::ReadOnly { .. }
            | Self::LockedDown { .. } => BackendErrorKind::Permission,
            Self::Busy { .. } | Self::SizeBusy { .. } | Self::Locked { .. } => {
                BackendErrorKind::Busy
            }
            Self::NotFound { .. } => BackendErrorKind::NotFound,
            Self::Refused { .. }
            | Self::SizeInvalid { .. }
            | Self::SizeByTable { .. }
            | Self::NotBlocks { .. } => BackendErrorKind::Invalid,
            Self::Interrupted { .. } => BackendErrorKind::Interrupted,
            Self::NoDevice { .. }
            | Self::Device { .. }
            | Self::Unstable { .. }
            | Self::PageOwner { .. }
            | Self::File { .. }
            | Self::State { .. }
            | Self::NotANumber { .. } => BackendErrorKind::Failed,
        }
    }
}

impl From<KernelError> for BackendError {
    fn from(error: KernelError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// A saved file that cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("reading {path} failed", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what `ramslice status --json` writes.
    #[error("{path} is not a file saved by `ramslice status --json`", path = .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// It was written by another version.
    #[error(
        "{path} has schema_version {found}, these tools know {known_version}: save it again",
        path = .path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// [`ramslice_types::SCHEMA_VERSION`].
        known_version: u32,
    },
    /// Its figures cannot be true.
    #[error("{path} cannot be true: {figure}; save the machine again", path = .path.display())]
    Absurd {
        /// The file.
        path: PathBuf,
        /// The figure, and of which slice.
        figure: String,
    },
}

impl From<ReplayError> for BackendError {
    fn from(error: ReplayError) -> Self {
        let kind = match error {
            ReplayError::Read { .. } | ReplayError::Absurd { .. } => BackendErrorKind::Failed,
            ReplayError::Parse { .. } | ReplayError::Schema { .. } => BackendErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}
