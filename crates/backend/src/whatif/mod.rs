//! What would become of a machine if requests were carried out: a [`Backend`] around another one.
//!
//! No request reaches the other backend, not even a dry run. Slices that would be offline are
//! remembered, and each look at the machine is changed accordingly: they are offline in it, and
//! their free memory is gone. Where the machine would have fallen below what stays awake, slices
//! wake again, as they would have.
//!
//! ```text
//! WhatIfBackend     remembers slices (whatif_memory) and huge pages (whatif_pools), and shows the
//!                   machine with them
//! ReplayBackend     changes a saved machine for good
//!   `- requests        which slices, in which order, and what ends a request
//!       |- patched        rules of the patched kernel
//!       |- hotplug        rules of memory hotplug, on a stock kernel
//!       `- machine_copy   the machine in memory, and where pages go
//!           `- larger_slices  the same, neighbouring slices as one
//! ```
//!
//! What it cannot know: whether pages that look movable are pinned; memory that was wanted and
//! given back between two looks. Cache that a request keeps counts as moved, but later looks take
//! it as dropped. So figures of what would be earned are rather too high.

mod hotplug;
mod larger_slices;
mod machine_copy;
mod patched;
mod requests;
#[cfg(test)]
mod tests;
mod whatif_memory;
mod whatif_pools;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, BufferBooks, Bytes, CacheLookups,
    ContentsDetail, HugePageNode, HugePagePool, MemoryHeadroom, NodeId, Price, PriceParameter,
    Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, SliceState, WorkCounters, Zone,
    zones_are_short,
};

pub(crate) use machine_copy::MachineCopy;
pub use machine_copy::ZoneKey;
pub(crate) use requests::carry_out;
pub use whatif_memory::WhatIfMemory;

use crate::hotplug::STALL_FLOORS;
use crate::replay::add_to_work;

/// How often the other backend is asked while waiting for a change of state.
const POLL: Duration = Duration::from_millis(250);

/// A machine on which requests are only worked out. `B` points to the backend that it is around.
pub struct WhatIfBackend<B> {
    inner: B,
    state: Mutex<WhatIfState>,
}

#[derive(Default)]
struct WhatIfState {
    memory: WhatIfMemory,
    copy: Option<RealAndCopy>,
    /// What requests would have done, in addition to what the other backend counts.
    work: WorkCounters,
    price_parameters: BTreeMap<PriceParameter, Price>,
}

/// The last look at the machine, and what requests would have made of it since.
struct RealAndCopy {
    real_info: BackendInfo,
    real_zones: Vec<Zone>,
    machine: MachineCopy,
}

impl<B> WhatIfBackend<B>
where
    B: Deref + Send + Sync,
    B::Target: Backend,
{
    /// Around `inner`; nothing has been done yet.
    pub fn new(inner: B) -> Self {
        Self::with_memory(inner, WhatIfMemory::default())
    }

    /// Around `inner`, with what was remembered of it earlier.
    pub fn with_memory(inner: B, memory: WhatIfMemory) -> Self {
        Self { inner, state: Mutex::new(WhatIfState { memory, ..WhatIfState::default() }) }
    }

    /// The same around another backend of the machine: it was opened again.
    #[must_use]
    pub fn around(self, inner: B) -> Self {
        Self { inner, ..self }
    }

    /// What is to be remembered.
    pub fn memory(&self) -> WhatIfMemory {
        self.lock().memory.clone()
    }

    fn lock(&self) -> MutexGuard<'_, WhatIfState> {
        // After a panic elsewhere the next look sets everything right but what is remembered,
        // which is replaced last.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the machine again.
    fn refreshed_copy<'a>(
        &self,
        state: &'a mut WhatIfState,
    ) -> Result<&'a mut RealAndCopy, BackendError> {
        let mut machine = MachineCopy::read(&*self.inner)?;
        if let Some(size) = state.memory.slice_bytes {
            match machine.slices_in(size) {
                Some(ratio) => machine.merge_slices(ratio),
                // The machine's own have changed.
                None => state.memory = WhatIfMemory::default(),
            }
        }
        if let Some(before) = &state.copy {
            let identity =
                |info: &BackendInfo| (info.slice_bytes, info.page_bytes, info.is_stock());
            if identity(&before.real_info) != identity(&machine.info) {
                // The same numbers are other memory now.
                state.memory = WhatIfMemory::default();
            }
        }
        let (real_info, real_zones) = (machine.info.clone(), machine.zones.clone());
        state.memory.apply(&mut machine);
        Ok(state.copy.insert(RealAndCopy { real_info, real_zones, machine }))
    }

    /// The last look, or the first one.
    fn current_copy<'a>(
        &self,
        state: &'a mut WhatIfState,
    ) -> Result<&'a mut RealAndCopy, BackendError> {
        if state.copy.is_none() {
            self.refreshed_copy(state)?;
        }
        state.copy.as_mut().ok_or_else(|| BackendError::new(BackendErrorKind::Failed, "no look"))
    }
}

/// A figure as it is `now`, changed as a copy differs from what was real `then`.
fn shifted(now: u64, then: u64, copy: u64) -> u64 {
    now.saturating_add(copy).saturating_sub(then)
}

impl RealAndCopy {
    /// A zone as it is now, without what would be offline as of the last look.
    fn shift_zone(&self, zone: &mut Zone) {
        let key = ZoneKey::of(zone);
        let Some(then) = self.real_zones.iter().find(|then| ZoneKey::of(then) == key) else {
            return;
        };
        let Some(copy) = self.machine.zone(key) else { return };
        let pages = |now: &mut ramslice_types::Pages,
                     then: ramslice_types::Pages,
                     copy: ramslice_types::Pages| {
            now.0 = shifted(now.0, then.0, copy.0);
        };
        pages(&mut zone.free_pages, then.free_pages, copy.free_pages);
        pages(&mut zone.offline_pages, then.offline_pages, copy.offline_pages);
        let count = |now: &mut u32, then: u32, copy: u32| {
            *now = now.saturating_add(copy).saturating_sub(then);
        };
        count(&mut zone.nr_offline, then.nr_offline, copy.nr_offline);
        count(&mut zone.nr_empty, then.nr_empty, copy.nr_empty);
        zone.woken_by_demand =
            shifted(zone.woken_by_demand, then.woken_by_demand, copy.woken_by_demand);
    }
}

impl<B> Backend for WhatIfBackend<B>
where
    B: Deref + Send + Sync,
    B::Target: Backend,
{
    /// As it is now, with what would be offline as of the last look at slices.
    fn info(&self) -> Result<BackendInfo, BackendError> {
        let mut state = self.lock();
        if state.memory.slice_bytes.is_some() {
            return Ok(self.refreshed_copy(&mut state)?.machine.info.clone());
        }
        let look = self.current_copy(&mut state)?;
        let (then, copy) = (&look.real_info, &look.machine.info);
        let mut info = self.inner.info()?;
        info.free_pages.0 = shifted(info.free_pages.0, then.free_pages.0, copy.free_pages.0);
        info.offline_pages.0 =
            shifted(info.offline_pages.0, then.offline_pages.0, copy.offline_pages.0);
        info.event_seq = shifted(info.event_seq, then.event_seq, copy.event_seq);
        Ok(info)
    }

    /// As they are now, with what would be offline as of the last look at slices.
    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        let mut state = self.lock();
        if state.memory.slice_bytes.is_some() {
            return Ok(self.refreshed_copy(&mut state)?.machine.zones.clone());
        }
        let look = self.current_copy(&mut state)?;
        let mut zones = self.inner.zones()?;
        for zone in &mut zones {
            look.shift_zone(zone);
        }
        Ok(zones)
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        Ok(self.view()?.2)
    }

    fn view(&self) -> Result<(BackendInfo, Vec<Zone>, SliceSnapshot), BackendError> {
        let mut state = self.lock();
        let machine = self.refreshed_copy(&mut state)?.machine.clone();
        Ok((machine.info, machine.zones, machine.snapshot))
    }

    /// What the slice really holds.
    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        if let Some(size) = self.lock().memory.slice_bytes {
            let message = format!("slices of {size} are only worked out: no page of them is read");
            return Err(BackendError::new(BackendErrorKind::Unsupported, message));
        }
        self.inner.contents(slice, detail)
    }

    /// Works out what the request would do, on the machine as it was last looked at.
    ///
    /// Only slices wake that would be offline; what is really offline stays so.
    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        request.refuse_hold("requests are only worked out")?;
        let mut state = self.lock();
        let state = &mut *state;
        let wakeable = state.memory.wakeable();
        let look = self.current_copy(state)?;
        if request.dry_run {
            let mut copy = look.machine.clone();
            return Ok(carry_out(&mut copy, request, &wakeable)?.outcome);
        }
        let result = carry_out(&mut look.machine, request, &wakeable)?;
        add_to_work(&mut state.work, request, &result.outcome);
        state.memory.remember(&result);
        Ok(result.outcome)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        let (before, end) = (self.lock().memory.changes, Instant::now() + timeout);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let real = self.inner.wait_event(left.min(POLL))?;
            if real.is_some() || self.lock().memory.changes != before {
                return Ok(Some(self.info()?.event_seq));
            }
            if left <= POLL {
                return Ok(None);
            }
        }
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        let real = self.inner.slice_bytes()?;
        Ok(self.lock().memory.slice_bytes(real))
    }

    /// Works out requests as if slices had this size: a multiple of the machine's own, which stays.
    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        let real = self.inner.slice_bytes()?;
        if !self.inner.info()?.segments.is_empty() {
            let message = format!("slices of {size}: a table says what slices are");
            return Err(BackendError::new(BackendErrorKind::Invalid, message));
        }
        if size.0 == 0 || !size.0.is_multiple_of(real.0) {
            let message = format!(
                "slices of {size}: where requests are only worked out, the size must be a \
                 multiple of the machine's own, {real}"
            );
            return Err(BackendError::new(BackendErrorKind::Invalid, message));
        }
        let mut state = self.lock();
        let slices = &self.refreshed_copy(&mut state)?.machine.snapshot.slices;
        if slices.iter().any(|slice| slice.state != SliceState::Online) {
            let message = "the size of slices changes only while all of them are online";
            return Err(BackendError::new(BackendErrorKind::Busy, message));
        }
        let slice_bytes = (size != real).then_some(size);
        state.memory = WhatIfMemory { slice_bytes, ..WhatIfMemory::default() };
        state.copy = None;
        Ok(())
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        match self.lock().price_parameters.get(&parameter) {
            Some(price) => Ok(*price),
            None => self.inner.price_parameter(parameter),
        }
    }

    /// Remembers the value; prices of slices stay those of the other backend.
    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.lock().price_parameters.insert(parameter, value);
        Ok(())
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        Ok(self.inner.work()?.plus(&self.lock().work))
    }

    fn cache_lookups(&self) -> Result<CacheLookups, BackendError> {
        self.inner.cache_lookups()
    }

    /// As they are now, with the pages that would have been made or given back.
    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        let pools = self.inner.huge_page_pools(node)?;
        Ok(self.lock().memory.pools.apply(pools, node))
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        self.inner.huge_page_nodes()
    }

    /// Works out what the pool would become: more pages of ranges that are offline or would be, or
    /// fewer. Pages smaller than a slice are only counted.
    fn resize_huge_page_pool(
        &self,
        page: Bytes,
        node: Option<NodeId>,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let real = self.inner.huge_page_pools(node)?;
        let mut state = self.lock();
        let state = &mut *state;
        self.current_copy(state)?;
        let (Some(look), memory) = (&mut state.copy, &mut state.memory) else {
            return Err(BackendError::new(BackendErrorKind::Failed, "no look"));
        };
        memory.resize_pool(&mut look.machine, &real, (page, node), pages)
    }

    fn buffer_books(&self) -> Result<Option<BufferBooks>, BackendError> {
        self.inner.buffer_books()
    }

    /// As it is now, without the memory of what would be offline as of the last look at slices.
    fn headroom(&self) -> Result<Option<MemoryHeadroom>, BackendError> {
        let mut state = self.lock();
        let look = self.current_copy(&mut state)?;
        let gone = look.machine.info.offline_pages - look.real_info.offline_pages;
        let gone = gone.bytes(look.machine.info.page_bytes);
        Ok(self.inner.headroom()?.map(|headroom| {
            let available = Bytes(headroom.available.0.saturating_sub(gone.0));
            MemoryHeadroom { available, ..headroom }
        }))
    }

    fn simulated_offline(&self) -> Option<u32> {
        Some(self.lock().memory.nr_offline())
    }

    /// On a stock kernel, by what a guard would go by.
    fn is_short_of_memory(&self) -> Result<bool, BackendError> {
        match self.headroom()? {
            Some(headroom) => Ok(self.lock().memory.nr_offline() > 0
                && headroom.available < headroom.floor * STALL_FLOORS),
            None => Ok(zones_are_short(&self.zones()?)),
        }
    }
}
