//! The interface to a system: a patched kernel, a stock kernel, a saved file or a simulator.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::cache_lookups::CacheLookups;
use crate::contents::{ContentsDetail, SliceContents};
use crate::machine_state::{BackendInfo, MachineState, SCHEMA_VERSION, SliceSnapshot, Zone};
use crate::memory_takers::{BufferBooks, HugePageNode, HugePagePool};
use crate::price::PriceParameter;
use crate::request::{Request, RequestOutcome};
use crate::units::{Bytes, NodeId, Price, SliceId};
use crate::work_counters::WorkCounters;

/// What kind of failure it was, for callers that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The system cannot do this at all: unsupported, not failed.
    Unsupported,
    /// It could, but is switched off.
    Disabled,
    /// The caller lacks the permission.
    Permission,
    /// Another request is running, or something is offline that must not be.
    Busy,
    /// There is no such slice, node or zone.
    NotFound,
    /// The system does not accept the request as it is written.
    Invalid,
    /// A signal came before the work began.
    Interrupted,
    /// Any other failure.
    Failed,
}

/// A failure of a backend. The message names the thing, what was wrong and what to do.
#[derive(Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

impl BackendError {
    /// Wraps a backend's own error.
    pub fn new(kind: BackendErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Memory that a system without waking on demand keeps available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryHeadroom {
    /// Memory that programs can get without swapping (`MemAvailable`).
    pub available: Bytes,
    /// A slice goes offline only if this much stays available without it.
    pub margin: Bytes,
    /// Slices are woken when less is available.
    pub floor: Bytes,
    /// The cost of a moved page beyond the price of its slice: its destination.
    pub destination: Price,
}

/// Whether a zone is short that has slices offline: of what the kernel keeps awake beyond the
/// watermark at which it wakes some itself, less than half is free.
pub fn zones_are_short(zones: &[Zone]) -> bool {
    zones.iter().any(|zone| {
        let half = (zone.low_wmark_pages + zone.awake_reserve_pages).0 / 2;
        zone.nr_offline > zone.nr_held && zone.free_pages.0 < half
    })
}

/// A system whose slices can be read and switched.
///
/// Methods take `&self` and may be called from several threads: a second thread watches
/// while the first one's request runs.
pub trait Backend: Send + Sync {
    /// What the system offers, and its totals.
    fn info(&self) -> Result<BackendInfo, BackendError>;

    /// Its zones, by index.
    fn zones(&self) -> Result<Vec<Zone>, BackendError>;

    /// All slices: their states at one moment, and what each held when it was last read.
    fn snapshot(&self) -> Result<SliceSnapshot, BackendError>;

    /// What a slice holds, page by page, with the names that `detail` asks for.
    ///
    /// Pages change meanwhile: each run was true at some moment of the call.
    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError>;

    /// Carries out a request and waits for its end.
    ///
    /// `Ok` means that the request was valid and was tried; [`RequestOutcome`] says how it went.
    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError>;

    /// Waits until a slice changes its state, and returns the number of changes so far.
    ///
    /// `None` after `timeout`, or earlier if a signal was caught.
    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError>;

    /// The size of a slice.
    fn slice_bytes(&self) -> Result<Bytes, BackendError>;

    /// Changes the size of a slice: a multiple of the pageblock, while nothing is offline.
    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError>;

    /// A parameter of the price model, in units of 100 cycles.
    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError>;

    /// Changes a parameter of the price model.
    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError>;

    /// The work done for slices since boot, from which callers compute its cost.
    ///
    /// A saved machine does not report it.
    fn work(&self) -> Result<WorkCounters, BackendError> {
        let message = "this system does not report what it has done for slices so far";
        Err(BackendError::new(BackendErrorKind::Unsupported, message))
    }

    /// Look-ups of the page cache since boot.
    ///
    /// A system that does not count them is unsupported.
    fn cache_lookups(&self) -> Result<CacheLookups, BackendError> {
        let message = "this system does not count look-ups of the page cache";
        Err(BackendError::new(BackendErrorKind::Unsupported, message))
    }

    /// The pools of huge pages, or the part of each on a node, small pages first; none where the
    /// system has no such pages.
    fn huge_page_pools(&self, _node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        Ok(Vec::new())
    }

    /// The nodes with memory on which pools have a part of their own, ascending; none where the
    /// system knows no nodes.
    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        Ok(Vec::new())
    }

    /// Asks for a pool of so many pages of this size, or for so many of its pages on a node, and
    /// returns how many there then are, those included that are lent: fewer if there was no room,
    /// more if pages are in use.
    ///
    /// The kernel makes the pages of a whole pool on all nodes in turn, wherever slices were
    /// emptied. Unsupported where pages are not made of slices.
    fn resize_huge_page_pool(
        &self,
        page: Bytes,
        _node: Option<NodeId>,
        _pages: u64,
    ) -> Result<u64, BackendError> {
        let message = format!("this system has no pool of huge pages of {page} made of slices");
        Err(BackendError::new(BackendErrorKind::Unsupported, message))
    }

    /// What is known of contiguous buffers; `None` where the system has none to give.
    fn buffer_books(&self) -> Result<Option<BufferBooks>, BackendError> {
        Ok(None)
    }

    /// The memory it keeps available; `None` where the kernel wakes memory before it runs short.
    fn headroom(&self) -> Result<Option<MemoryHeadroom>, BackendError> {
        Ok(None)
    }

    /// For a backend that carries out requests in memory alone: how many slices are offline in its
    /// answers only. Nothing if requests reach the machine.
    ///
    /// A program that labels its figures by whether it acts need not know why it does not.
    fn simulated_offline(&self) -> Option<u32> {
        None
    }

    /// Whether memory is short where slices are offline, so that waking some would help tasks that
    /// wait for memory. Otherwise they wait for another thing: a container is at its limit, say.
    ///
    /// Each system knows what it keeps awake, so a caller need not distinguish them.
    fn is_short_of_memory(&self) -> Result<bool, BackendError> {
        Ok(zones_are_short(&self.zones()?))
    }

    /// The machine, its zones and its slices: read one after the other, or at one moment where that
    /// costs no more.
    fn view(&self) -> Result<(BackendInfo, Vec<Zone>, SliceSnapshot), BackendError> {
        Ok((self.info()?, self.zones()?, self.snapshot()?))
    }

    /// Everything at one moment, as `ramslice status --json` saves it.
    ///
    /// Price parameters that cannot be read are left out: reading does not need them.
    fn machine(&self) -> Result<MachineState, BackendError> {
        let (info, zones, snapshot) = self.view()?;
        Ok(MachineState {
            schema_version: SCHEMA_VERSION,
            info,
            zones,
            snapshot,
            price_parameters: PriceParameter::ALL
                .into_iter()
                .filter_map(|parameter| Some((parameter, self.price_parameter(parameter).ok()?)))
                .collect(),
            contents: Vec::new(),
        })
    }
}
