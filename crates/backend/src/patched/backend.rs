//! The running kernel as a [`Backend`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, BufferBooks, Bytes, CacheLookups,
    ContentsDetail, HugePageNode, HugePagePool, NodeId, Price, PriceParameter, Request, RequestOp,
    RequestOutcome, Segment, Slice, SliceContents, SliceId, SliceSnapshot, WorkCounters, Zone,
};
use rustix::io::Errno;
use tracing::debug;

use crate::buffers::read_buffer_books;
use crate::cold_memory;
use crate::error::{FileAccess, KernelError};
use crate::huge_pages::HugePagePools;
use crate::page_owner_fault::page_owner_danger;
use crate::patched::contents;
use crate::patched::convert;
use crate::patched::device::RamsliceDevice;
use crate::patched::uapi;
use crate::patched::work_counters;
use crate::readers::page_names::PageNames;
use crate::readers::page_owner;
use crate::readers::sysfs;
use crate::readers::{KernelPaths, VmstatCounters};

/// How often a snapshot is tried again when the number of slices has changed meanwhile.
const SNAPSHOT_TRIES: u32 = 8;

/// What was read so lately, and had no pages come or go, is not read again for a snapshot.
const MAX_AGE: Duration = Duration::from_secs(1);

/// A kernel with ramslice, through `/dev/ramslice` and sysfs.
///
/// The device is opened for reading; a request opens it for writing, so that looking needs
/// no more than the permission to look.
pub struct PatchedBackend {
    paths: KernelPaths,
    device: Box<dyn RamsliceDevice>,
    /// What sizes of slices are multiples of, and what that is the size of.
    size_unit: (Bytes, &'static str),
    /// Slices as a table, which stays until reboot; empty if all are of one size.
    segments: Vec<Segment>,
    /// Older kernels do not report it.
    clock_khz: Option<u64>,
    names: PageNames,
    max_age: Duration,
}

impl PatchedBackend {
    /// The running system's.
    pub fn open() -> Result<Self, KernelError> {
        Self::open_at(KernelPaths::system())
    }

    /// The one whose files are at `paths`.
    pub fn open_at(paths: KernelPaths) -> Result<Self, KernelError> {
        let device = open_device(&paths, FileAccess::Read)?;
        Self::with_device(paths, Box::new(device))
    }

    /// With snapshots of which parts may be so old: what had no pages come or go. How such pages
    /// were used, or whether they are pinned, may have changed since. [`MAX_AGE`] otherwise.
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    fn with_device(
        paths: KernelPaths,
        device: Box<dyn RamsliceDevice>,
    ) -> Result<Self, KernelError> {
        let names = PageNames::new(&paths);
        let clock_khz = sysfs::read(&paths, "clock_khz").ok();
        let mut backend = Self {
            paths,
            device,
            size_unit: (Bytes::ZERO, ""),
            segments: Vec::new(),
            clock_khz,
            names,
            max_age: MAX_AGE,
        };
        let info = backend.raw_info()?;
        let (kernel, tool) = (info.abi_version, uapi::RAMSLICE_ABI_VERSION);
        if kernel != tool {
            let which = if kernel > tool { "tools" } else { "kernel" };
            return Err(KernelError::AbiVersion { kernel, tool, older_side: which });
        }
        backend.size_unit = if info.interleave_ways > 1 {
            (Bytes(info.granularity_bytes), "what interleaved slices get at a time")
        } else {
            (Bytes(info.pageblock_bytes.into()), "the pageblock")
        };
        if info.nr_segments > 0 {
            backend.segments = backend.read_segments(info.nr_segments)?;
        }
        Ok(backend)
    }

    fn read_segments(&self, nr: u32) -> Result<Vec<Segment>, KernelError> {
        let mut rows = vec![uapi::ramslice_segment::default(); nr as usize];
        let nr = self.device.segments(&mut rows);
        let nr = nr.map_err(|source| self.device_error("SEGMENTS", source))?;
        debug!(nr, "SEGMENTS");
        rows.truncate(nr as usize);
        let segment = |row: &uapi::ramslice_segment| Segment {
            start_bytes: row.start_bytes,
            bytes: Bytes(row.bytes),
        };
        Ok(rows.iter().map(segment).collect())
    }

    /// A row, with the slice's size if they are of unequal ones.
    fn slice(&self, raw: &uapi::ramslice_slice_info, page: Bytes) -> Result<Slice, KernelError> {
        let mut slice = convert::slice(raw)?;
        let segment = self.segments.get(slice.id.0 as usize);
        slice.frames = segment.map(|segment| segment.bytes.pages(page));
        Ok(slice)
    }

    fn raw_info(&self) -> Result<uapi::ramslice_info, KernelError> {
        let mut raw = uapi::ramslice_info::default();
        self.device.info(&mut raw).map_err(|source| self.device_error("INFO", source))?;
        debug!(?raw, "INFO");
        Ok(raw)
    }

    fn read_zones(&self) -> Result<Vec<Zone>, KernelError> {
        (0..self.raw_info()?.nr_zones)
            .map(|index| {
                let mut raw =
                    uapi::ramslice_zone_info { index, ..uapi::ramslice_zone_info::default() };
                self.device.zone(&mut raw).map_err(|source| self.device_error("ZONE", source))?;
                debug!(?raw, "ZONE");
                Ok(convert::zone(&raw))
            })
            .collect()
    }

    fn read_snapshot(&self) -> Result<SliceSnapshot, KernelError> {
        let info = self.raw_info()?;
        let (mut nr, page) = (info.nr_slices, Bytes(info.page_bytes.into()));
        for _ in 0..SNAPSHOT_TRIES {
            let mut rows = vec![uapi::ramslice_slice_info::default(); nr as usize];
            let (result, head) = self.device.snapshot(&mut rows, self.max_age);
            debug!(?head, ok = result.is_ok(), "SNAPSHOT");
            match result {
                Ok(()) => {
                    rows.truncate(head.nr as usize);
                    let slices =
                        rows.iter().map(|row| self.slice(row, page)).collect::<Result<_, _>>()?;
                    let time = Duration::from_nanos(head.time_ns);
                    return Ok(SliceSnapshot { event_seq: head.event_seq, time, slices });
                }
                // More slices than rows: memory was added, or slices were made smaller.
                Err(error) if is(&error, Errno::NOSPC) => nr = head.nr,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.device_error("SNAPSHOT", source)),
            }
        }
        Err(KernelError::Unstable { path: self.paths.device.clone(), attempts: SNAPSHOT_TRIES })
    }

    /// Errno values of the device, as the header defines them.
    fn device_error(&self, operation: &'static str, source: io::Error) -> KernelError {
        let path = self.paths.device.clone();
        match Errno::from_io_error(&source) {
            Some(Errno::BUSY) => KernelError::Busy { operation, path },
            Some(Errno::INTR) => KernelError::Interrupted { operation, path },
            Some(Errno::INVAL | Errno::TOOBIG) => KernelError::Refused { operation, path, source },
            _ => KernelError::Device { operation, path, source },
        }
    }

    fn run(
        &self,
        device: &dyn RamsliceDevice,
        request: &Request,
    ) -> Result<RequestOutcome, KernelError> {
        let mut raw = convert::request(request);
        device.request(&mut raw).map_err(|source| {
            if is(&source, Errno::NOENT) {
                not_found(request)
            } else {
                self.device_error("REQUEST", source)
            }
        })?;
        debug!(?raw, "REQUEST");
        Ok(convert::outcome(&raw))
    }

    fn write(&self, name: &str, value: u64) -> Result<(), KernelError> {
        sysfs::write(&self.paths, name, value)
            .map_err(|source| sysfs::failed(self.paths.sysfs.join(name), FileAccess::Write, source))
    }
}

impl Backend for PatchedBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        let resting = cold_memory::resting_bytes(&self.paths.sysfs)?;
        Ok(convert::info(&self.raw_info()?, &self.segments, resting, self.clock_khz))
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        Ok(self.read_zones()?)
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.read_snapshot()?)
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        let mut contents = contents::read(&*self.device, slice).map_err(|source| match source {
            contents::PagesError::State(state) => KernelError::UnknownState { slice, state },
            contents::PagesError::Io(source) if is(&source, Errno::NOENT) => {
                KernelError::NotFound { what: format!("slice {slice}") }
            }
            contents::PagesError::Io(source) if is(&source, Errno::PERM) => {
                KernelError::PagesPermission { path: self.paths.device.clone() }
            }
            contents::PagesError::Io(source) if is(&source, Errno::NOTTY) => {
                KernelError::NoPages { path: self.paths.device.clone() }
            }
            contents::PagesError::Io(source) => self.device_error("PAGES", source),
        })?;
        self.names.add(&mut contents, detail);
        if detail.sites {
            contents.sites = page_owner::sites(&self.paths.page_owner, &contents.suspects())?;
        }
        Ok(contents)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        let writable = open_device(&self.paths, FileAccess::Write)?;
        Ok(self.run(&writable, request)?)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        match self.device.wait(timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(source) => Err(self.device_error("poll", source).into()),
            Ok(event) => Ok(event),
        }
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        Ok(Bytes(sysfs::read(&self.paths, "slice_bytes")?))
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        sysfs::write(&self.paths, "slice_bytes", size.0).map_err(|source| {
            match Errno::from_io_error(&source) {
                Some(Errno::BUSY) => KernelError::SizeBusy { size },
                Some(Errno::OPNOTSUPP) => KernelError::SizeByTable { size },
                Some(Errno::INVAL) => {
                    let (unit, of) = self.size_unit;
                    KernelError::SizeInvalid { size, unit, of }
                }
                _ => sysfs::failed(self.paths.sysfs.join("slice_bytes"), FileAccess::Write, source),
            }
            .into()
        })
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        Ok(Price(sysfs::read(&self.paths, &price_file(parameter))?))
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        Ok(self.write(&price_file(parameter), value.0)?)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        Ok(work_counters::read(&self.paths)?)
    }

    fn cache_lookups(&self) -> Result<CacheLookups, BackendError> {
        Ok(VmstatCounters::read(&self.paths.proc.join("vmstat"))?.cache_lookups()?)
    }

    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        Ok(HugePagePools::of(&self.paths).read(node)?)
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        Ok(HugePagePools::of(&self.paths).nodes()?)
    }

    fn resize_huge_page_pool(
        &self,
        page: Bytes,
        node: Option<NodeId>,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let pools = HugePagePools::of(&self.paths);
        if let Some(danger) = page_owner_danger(page)
            && pools.pool(node, page)?.total < pages
        {
            return Err(BackendError::new(BackendErrorKind::Failed, danger));
        }
        Ok(pools.resize(node, page, pages)?)
    }

    fn buffer_books(&self) -> Result<Option<BufferBooks>, BackendError> {
        Ok(read_buffer_books(&self.paths.sysfs)?)
    }
}

fn price_file(parameter: PriceParameter) -> String {
    format!("price/{}", parameter.name())
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

fn not_found(request: &Request) -> KernelError {
    let what = match (request.op, request.node, request.zone) {
        (RequestOp::Offline(id) | RequestOp::Online(id), ..) => format!("slice {id}"),
        (_, Some(node), Some(zone)) => format!("zone {zone} on node {node}"),
        (_, Some(node), None) => format!("node {node}"),
        (_, None, Some(zone)) => format!("zone {zone}"),
        (_, None, None) => "slice to work on".to_owned(),
    };
    KernelError::NotFound { what }
}

/// Opens the device, and finds out why if that fails.
fn open_device(paths: &KernelPaths, access: FileAccess) -> Result<File, KernelError> {
    let path = paths.device.clone();
    let result = OpenOptions::new()
        .read(true)
        .write(access == FileAccess::Write)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&path);
    debug!(path = %path.display(), %access, ok = result.is_ok(), "open");
    result.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => why_no_device(paths),
        io::ErrorKind::PermissionDenied => {
            let hint = permission_hint(paths);
            KernelError::Permission { path, access, hint }
        }
        // A node left over from another kernel: nothing answers behind it.
        _ if is(&source, Errno::NXIO) || is(&source, Errno::NODEV) => why_no_device(paths),
        _ => KernelError::Device { operation: "open", path, source },
    })
}

fn why_no_device(paths: &KernelPaths) -> KernelError {
    let (device, sysfs) = (paths.device.clone(), paths.sysfs.clone());
    if !sysfs.exists() {
        return KernelError::NotSupported { device, sysfs };
    }
    match sysfs::read(paths, "enabled") {
        Ok(0) => KernelError::Disabled { path: sysfs.join("enabled") },
        _ => KernelError::NoDevice { path: device },
    }
}

/// Who may use the device: a group if it has one, else how to give it one.
fn permission_hint(paths: &KernelPaths) -> String {
    let rule = "use sudo, or give the device a group with the udev rule \
                `KERNEL==\"ramslice\", GROUP=\"ramslice\", MODE=\"0660\"`";
    let gid = match fs::metadata(&paths.device) {
        Ok(meta) if meta.gid() != 0 => meta.gid(),
        _ => return rule.to_owned(),
    };
    match group_name(paths, gid) {
        Some(name) => format!(
            "use sudo, or join its group `{name}` (`sudo usermod -aG {name} $USER`, then log in \
             again)"
        ),
        None => rule.to_owned(),
    }
}

fn group_name(paths: &KernelPaths, gid: u32) -> Option<String> {
    fs::read_to_string(&paths.groups).ok()?.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
