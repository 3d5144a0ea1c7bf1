//! A simulated machine that may fail, for the engine's tests.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ramslice_backend::WhatIfBackend;
use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimBackend, SimConfig};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, BufferBooks, Bytes, ContentsDetail,
    HugePageNode, HugePagePool, NodeId, Price, PriceParameter, Reason, Request, RequestOp,
    RequestOutcome, SliceContents, SliceId, SliceSnapshot, SliceState, Zone,
};

use super::DecisionEngine;
use crate::mode::DaemonMode;

pub(super) const SLICE: Bytes = Bytes(64 << 20);

/// A simulated machine, and the same as mode observe sees it.
pub(super) struct TestMachine {
    pub(super) real: Arc<SimulatedMachine>,
    pub(super) what_if: WhatIfBackend<Arc<SimulatedMachine>>,
}

impl Deref for TestMachine {
    type Target = SimulatedMachine;

    fn deref(&self) -> &SimulatedMachine {
        &self.real
    }
}

/// A simulated machine that may fail.
pub(super) struct SimulatedMachine {
    pub(super) sim: SimBackend,
    pub(super) looks_fail: Mutex<Option<&'static str>>,
    pub(super) requests_fail: Mutex<bool>,
    /// Slices that the power driver cannot wake.
    pub(super) dead: Mutex<BTreeSet<SliceId>>,
    pub(super) requests: Mutex<Vec<Request>>,
    /// When each of them came.
    pub(super) times: Mutex<Vec<Instant>>,
    /// Slices that another program holds.
    pub(super) held: Mutex<BTreeSet<SliceId>>,
    /// How long a request takes.
    pub(super) takes: Mutex<Duration>,
    /// It takes as long as it may.
    pub(super) until_deadline: Mutex<bool>,
    /// Slices that cannot be emptied, though nothing shows it.
    pub(super) stuck: Mutex<BTreeSet<SliceId>>,
    /// Slices that the next request tries in vain, and what they say then.
    pub(super) failing: Mutex<Vec<(SliceId, Reason)>>,
    failed: Mutex<Vec<(SliceId, Reason)>>,
    /// How many times its price a request costs.
    pub(super) dearer: Mutex<f64>,
    /// Another power driver than the simulator's.
    pub(super) driver: Mutex<Option<&'static str>>,
    /// Next to nothing is free, for who looks at zones.
    pub(super) short: Mutex<bool>,
    /// The node whose memory was taken out.
    pub(super) unplugged: Mutex<Option<NodeId>>,
    /// Its pool of huge pages, if it has one, and how many pages it makes at most.
    pub(super) pool: Mutex<Option<(HugePagePool, u64)>>,
    /// The parts of its pool on nodes, by their numbers; none if it has only the pool.
    pub(super) node_pools: Mutex<Vec<HugePagePool>>,
    /// Buffers that it refused.
    pub(super) buffers: Mutex<Option<BufferBooks>>,
}

impl TestMachine {
    pub(super) fn new(slices: u64) -> Self {
        Self::with(slices, SLICE)
    }

    /// Of 64 slices, of which programs use so many.
    pub(super) fn used(slices: f64) -> Self {
        let machine = Self::new(64);
        machine.use_slices(slices);
        machine
    }

    pub(super) fn with(slices: u64, size: Bytes) -> Self {
        Self::of(SimConfig::new(size * slices, size))
    }

    pub(super) fn of(config: SimConfig) -> Self {
        let real = Arc::new(SimulatedMachine::of(config));
        Self { what_if: WhatIfBackend::new(Arc::clone(&real)), real }
    }

    /// As the main loop shows it to the engine.
    pub(super) fn seen_by(&self, engine: &DecisionEngine) -> &dyn Backend {
        match engine.settings.mode {
            DaemonMode::Observe => &self.what_if,
            DaemonMode::On | DaemonMode::Off => &*self.real,
        }
    }
}

impl SimulatedMachine {
    pub(super) fn of(config: SimConfig) -> Self {
        Self {
            sim: SimBackend::new(config).unwrap(),
            looks_fail: Mutex::new(None),
            requests_fail: Mutex::new(false),
            dead: Mutex::default(),
            requests: Mutex::default(),
            times: Mutex::default(),
            held: Mutex::default(),
            takes: Mutex::default(),
            until_deadline: Mutex::default(),
            stuck: Mutex::default(),
            failing: Mutex::default(),
            failed: Mutex::default(),
            dearer: Mutex::new(1.0),
            driver: Mutex::default(),
            short: Mutex::default(),
            unplugged: Mutex::default(),
            pool: Mutex::default(),
            node_pools: Mutex::default(),
            buffers: Mutex::default(),
        }
    }

    pub(super) fn use_slices(&self, slices: f64) {
        let pages = (slices * SLICE.0 as f64 / 4096.0) as u64;
        self.sim.apply(MemoryChange::Level {
            owner: OwnerId(1),
            class: OwnerClass::Anon,
            maps: 1,
            pages,
        });
    }

    /// From now on it is short of memory.
    pub(super) fn run_short(&self) {
        *self.short.lock().unwrap() = true;
    }

    pub(super) fn off(&self) -> usize {
        let off = |slice: &&ramslice_types::Slice| slice.state == SliceState::Offline;
        self.sim.snapshot().unwrap().slices.iter().filter(off).count()
    }

    pub(super) fn sent(&self) -> u32 {
        self.requests.lock().unwrap().len() as u32
    }

    pub(super) fn fails(&self) -> Result<(), BackendError> {
        match *self.looks_fail.lock().unwrap() {
            Some(text) => Err(BackendError::new(BackendErrorKind::Failed, text)),
            None => Ok(()),
        }
    }
}

impl Backend for SimulatedMachine {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.fails()?;
        let mut info = self.sim.info()?;
        if let Some(driver) = *self.driver.lock().unwrap() {
            driver.clone_into(&mut info.power_driver);
        }
        Ok(info)
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        let mut zones = self.sim.zones()?;
        let unplugged = *self.unplugged.lock().unwrap();
        zones.retain(|zone| Some(zone.node) != unplugged);
        for zone in zones.iter_mut().filter(|_| *self.short.lock().unwrap()) {
            zone.free_pages = zone.low_wmark_pages;
        }
        Ok(zones)
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        let mut snapshot = self.sim.snapshot()?;
        let unplugged = *self.unplugged.lock().unwrap();
        // As after a hot-unplug, ids of the others stay.
        snapshot.slices.retain(|slice| Some(slice.node) != unplugged);
        let held = self.held.lock().unwrap();
        for slice in &mut snapshot.slices {
            slice.held = held.contains(&slice.id);
        }
        for (id, reason) in &*self.failed.lock().unwrap() {
            let slice = &mut snapshot.slices[id.0 as usize];
            (slice.backoff, slice.reason, slice.retry_ms) = (true, *reason, 5000);
        }
        Ok(snapshot)
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.sim.contents(slice, detail)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        if request.dry_run {
            return Ok(RequestOutcome::default());
        }
        self.requests.lock().unwrap().push(request.clone());
        self.times.lock().unwrap().push(Instant::now());
        std::thread::sleep(*self.takes.lock().unwrap());
        if *self.until_deadline.lock().unwrap() {
            std::thread::sleep(request.deadline.unwrap());
        }
        if *self.requests_fail.lock().unwrap() {
            return Err(BackendError::new(BackendErrorKind::Busy, "another request is running"));
        }
        if let RequestOp::Online(id) = request.op
            && self.dead.lock().unwrap().contains(&id)
        {
            return Err(BackendError::new(BackendErrorKind::Failed, "the driver failed"));
        }
        if let RequestOp::Offline(id) = request.op
            && self.stuck.lock().unwrap().contains(&id)
        {
            let (status_errno, reason) = (16, Reason::Migration);
            let outcome = RequestOutcome { status_errno, reason, ..RequestOutcome::default() };
            return Ok(RequestOutcome { slices_failed: 1, last_slice: Some(id), ..outcome });
        }
        let mut outcome = self.sim.request(request)?;
        let dearer = *self.dearer.lock().unwrap();
        outcome.price_measured = Price((outcome.price_measured.0 as f64 * dearer) as u64);
        let failing = std::mem::take(&mut *self.failing.lock().unwrap());
        outcome.slices_failed += failing.len() as u32;
        self.failed.lock().unwrap().extend(failing);
        Ok(outcome)
    }

    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        let parts = self.node_pools.lock().unwrap();
        if let Some(node) = node {
            let part = parts.get(node.0 as usize).copied();
            let missing = || BackendError::new(BackendErrorKind::NotFound, "no such node");
            return part.map(|part| vec![part]).ok_or_else(missing);
        }
        let sum = parts.iter().copied().reduce(|sum, part| HugePagePool {
            total: sum.total + part.total,
            free: sum.free + part.free,
            ..sum
        });
        if let Some(sum) = sum {
            return Ok(vec![sum]);
        }
        Ok(self.pool.lock().unwrap().iter().map(|(pool, _)| *pool).collect())
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        let parts = self.node_pools.lock().unwrap();
        let nodes = (0..).map(NodeId).take(parts.len());
        Ok(nodes.map(|node| HugePageNode { node, is_cold: false }).collect())
    }

    /// As the kernel does: no page goes that is in use, and what is no longer in the pool and in
    /// use counts as lent.
    fn resize_huge_page_pool(
        &self,
        _page: Bytes,
        node: Option<NodeId>,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let mut parts = self.node_pools.lock().unwrap();
        if !parts.is_empty() {
            // What is asked of the whole pool comes from node 0, as if it were its turn
            let at = node.map_or(0, |node| node.0 as usize);
            let others: u64 = parts.iter().map(|part| part.total).sum::<u64>() - parts[at].total;
            let pages = if node.is_some() { pages } else { pages.saturating_sub(others) };
            let part = &mut parts[at];
            let in_use = part.total - part.free;
            part.total = pages.max(in_use);
            part.free = part.total - in_use;
            return Ok(part.total + if node.is_some() { 0 } else { others });
        }
        let mut pool = self.pool.lock().unwrap();
        let (pool, most) = pool.as_mut().expect("a test that resizes has one");
        let in_use = pool.total - pool.free;
        let total = pages.min(*most).max(in_use + pool.reserved);
        (pool.total, pool.free) = (total, total - in_use);
        pool.surplus = total.saturating_sub(pages);
        self.sim.apply(MemoryChange::Level {
            owner: OwnerId(77),
            class: OwnerClass::Unmovable,
            maps: 0,
            pages: total * pool.page.0 / 4096,
        });
        Ok(total)
    }

    fn buffer_books(&self) -> Result<Option<BufferBooks>, BackendError> {
        Ok(*self.buffers.lock().unwrap())
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        self.sim.wait_event(timeout)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.sim.slice_bytes()
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.sim.set_slice_bytes(size)
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.sim.price_parameter(parameter)
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.sim.set_price_parameter(parameter, value)
    }
}
