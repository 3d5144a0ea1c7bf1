//! A backend for tests of huge pages: slices in which known pages stay, and a pool of huge pages.

use std::sync::Mutex;
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, HugePagePool,
    PageClass, PageRun, Pages, Pfn, Price, PriceParameter, Reason, Request, RequestOutcome,
    SliceContents, SliceId, SliceSnapshot, SliceState, Zone,
};

use crate::huge_page_last_resort::StayingPages;

/// What stays in each slice, by its number, and a pool of huge pages.
#[derive(Default)]
pub(crate) struct StayingBackend {
    pub(crate) slices: Mutex<Vec<StayingPages>>,
    /// How often contents were read.
    pub(crate) looks: Mutex<u32>,
    pub(crate) info: Option<BackendInfo>,
    pub(crate) pool: Mutex<Option<HugePagePool>>,
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

    fn huge_page_pools(&self) -> Result<Vec<HugePagePool>, BackendError> {
        Ok(self.pool.lock().unwrap().into_iter().collect())
    }

    /// As the kernel's: what is lent becomes the pool's before a page is made.
    fn resize_huge_page_pool(&self, _page: Bytes, pages: u64) -> Result<u64, BackendError> {
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
