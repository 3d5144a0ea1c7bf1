//! A backend for tests of huge pages: slices in which known pages stay, and a pool of huge pages.

use std::sync::Mutex;
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, HugePageNode,
    HugePagePool, NodeId, PageClass, PageRun, Pages, Pfn, Price, PriceParameter, Reason, Request,
    RequestOutcome, SliceContents, SliceId, SliceSnapshot, SliceState, Zone,
};

use crate::huge_page_last_resort::StayingPages;

/// The part of a pool on a node.
#[derive(Clone)]
pub(crate) struct NodePool {
    pub(crate) node: HugePageNode,
    pub(crate) pool: HugePagePool,
    /// So many more pages can be made.
    pub(crate) room: u64,
}

/// What stays in each slice, by its number, and a pool of huge pages.
#[derive(Default)]
pub(crate) struct StayingBackend {
    pub(crate) slices: Mutex<Vec<StayingPages>>,
    /// How often contents were read.
    pub(crate) looks: Mutex<u32>,
    pub(crate) info: Option<BackendInfo>,
    pub(crate) pool: Mutex<Option<HugePagePool>>,
    /// Its parts on nodes, if there are any: then the pool is their sum.
    pub(crate) node_pools: Mutex<Vec<NodePool>>,
}

fn none<T>() -> Result<T, BackendError> {
    Err(BackendError::new(BackendErrorKind::Unsupported, "not a part of this test"))
}

impl Backend for StayingBackend {
    fn contents(
        &self,
        slice: SliceId,
        _detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        *self.looks.lock().unwrap() += 1;
        let Some(pages) = self.slices.lock().unwrap().get(slice.0 as usize).copied() else {
            return none();
        };
        let run =
            |count, class, reason| PageRun { reason, ..PageRun::of_class(Pfn(0), count, class) };
        Ok(SliceContents {
            slice,
            state: SliceState::Online,
            reason: Reason::None,
            runs: [
                run(pages.slab, PageClass::Slab, Reason::Slab),
                run(pages.other, PageClass::PageTable, Reason::PageTable),
                run(Pages(9), PageClass::Anonymous, Reason::None),
            ]
            .into_iter()
            .filter(|run| run.pages > Pages::ZERO)
            .collect(),
            files: Vec::new(),
            cgroups: Vec::new(),
            sites: None,
        })
    }

    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.info.clone().map_or_else(none, Ok)
    }

    fn huge_page_pools(&self, node: Option<NodeId>) -> Result<Vec<HugePagePool>, BackendError> {
        let nodes = self.node_pools.lock().unwrap();
        if let Some(node) = node {
            let part = nodes.iter().find(|part| part.node.node == node);
            return part.map_or_else(none, |part| Ok(vec![part.pool]));
        }
        let sum = nodes.iter().map(|part| part.pool).reduce(|sum, part| HugePagePool {
            total: sum.total + part.total,
            free: sum.free + part.free,
            reserved: sum.reserved + part.reserved,
            surplus: sum.surplus + part.surplus,
            ..sum
        });
        Ok(sum.or(*self.pool.lock().unwrap()).into_iter().collect())
    }

    fn huge_page_nodes(&self) -> Result<Vec<HugePageNode>, BackendError> {
        Ok(self.node_pools.lock().unwrap().iter().map(|part| part.node).collect())
    }

    /// As the kernel's: what is lent becomes the pool's before a page is made, and a page of the
    /// whole pool is made on the first node with room.
    fn resize_huge_page_pool(
        &self,
        page: Bytes,
        node: Option<NodeId>,
        pages: u64,
    ) -> Result<u64, BackendError> {
        let mut nodes = self.node_pools.lock().unwrap();
        if let Some(first) = nodes.first().map(|part| part.node.node) {
            let size = |part: &NodePool| part.pool.size();
            let fits = |part: &&mut NodePool| match node {
                Some(node) => part.node.node == node,
                None => part.room > 0 || part.node.node == first,
            };
            let sum: u64 = nodes.iter().map(size).sum();
            let Some(part) = nodes.iter_mut().find(fits) else { return none() };
            let before = if node.is_some() { size(part) } else { sum };
            let wanted = pages.saturating_sub(before);
            let lent = wanted.min(part.pool.surplus);
            let made = (wanted - lent).min(part.room);
            part.pool.surplus -= lent;
            part.pool.total += made;
            part.pool.free += made;
            part.room -= made;
            drop(nodes);
            let pools = self.huge_page_pools(node)?;
            return Ok(pools.iter().find(|pool| pool.page == page).map_or(0, |pool| pool.total));
        }
        let mut pool = self.pool.lock().unwrap();
        let Some(pool) = pool.as_mut() else { return none() };
        let lent = pool.surplus.min(pages.saturating_sub(pool.size()));
        pool.surplus -= lent;
        pool.total = pool.total.max(pages + pool.surplus);
        Ok(pool.total)
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        none()
    }
    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        none()
    }
    fn request(&self, _request: &Request) -> Result<RequestOutcome, BackendError> {
        none()
    }
    fn wait_event(&self, _timeout: Duration) -> Result<Option<u64>, BackendError> {
        none()
    }
    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        none()
    }
    fn set_slice_bytes(&self, _size: Bytes) -> Result<(), BackendError> {
        none()
    }
    fn price_parameter(&self, _parameter: PriceParameter) -> Result<Price, BackendError> {
        none()
    }
    fn set_price_parameter(
        &self,
        _parameter: PriceParameter,
        _value: Price,
    ) -> Result<(), BackendError> {
        none()
    }
}
