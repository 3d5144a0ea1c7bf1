//! Who gets emptied memory: the policy says how large the pool of huge pages is to be, and this
//! makes pages of slices or gives them back, and reports who has what.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ramslice_backend::{
    HugePagePlace, HugePageRange, ZoneKey, cheapest_first, huge_page_ranges, make_huge_page,
};
use ramslice_policy::{OfflineTaker, PoolAction, PoolBook, PoolDecision, TakersObservation};
use ramslice_types::{
    Backend, BackendError, BufferBooks, Bytes, CacheChoice, HugePagePool, NodeId, Pages, Reason,
    Request, RequestOutcome,
};
use tracing::{debug, info, warn};

use super::DecisionEngine;
use crate::energy_ledger::EnergyPlan;
use crate::machine_snapshot::MachineSnapshot;
use crate::memory_takers::{HugeTakerStatus, TakersStatus};
use crate::mode::DaemonMode;

/// So many ranges in one look may turn out not to be had before the rest waits.
const MOST_REFUSED: u32 = 4;

/// Why a buffer was refused that memory of the pool might have helped.
const FOR_WANT_OF_MEMORY: [Reason; 5] =
    [Reason::NoRoom, Reason::AwakeReserve, Reason::Gigantic, Reason::Hugetlb, Reason::Unmovable];

/// What the engine knows of those who take emptied memory.
#[derive(Debug, Default)]
pub(super) struct MemoryTakers {
    /// The pools that pages were made for: what is real, and what mode observe works out.
    real: Vec<PoolBook>,
    imagined: Vec<PoolBook>,
    /// Buffers refused since boot, at the last look.
    refused: Option<u64>,
    /// Since the last look, tasks waited for memory while little was free.
    pub(super) is_short: bool,
    /// The last look sent requests or changed a pool.
    pub(super) has_acted: bool,
    status: TakersStatus,
}

impl MemoryTakers {
    /// Takes up what an earlier run in this boot saved.
    pub(super) fn restore(&mut self, books: Vec<PoolBook>) {
        self.imagined.clone_from(&books);
        self.real = books;
    }

    /// What is to be saved.
    pub(super) fn books(&self) -> Vec<PoolBook> {
        self.real.clone()
    }

    pub(super) fn status(&self) -> &TakersStatus {
        &self.status
    }

    /// Other settings are tried at once. In another mode, what is worked out begins with what is
    /// real.
    pub(super) fn settings_changed(&mut self, is_other_mode: bool) {
        if is_other_mode {
            self.imagined.clone_from(&self.real);
        }
        for book in self.real.iter_mut().chain(&mut self.imagined) {
            book.retry();
        }
        self.status = TakersStatus::default();
    }

    /// So many buffers were refused for want of memory since the last look, as far as the kernel
    /// says: it gives the reason of the last one alone.
    fn count_refused(&mut self, books: Option<&BufferBooks>) -> u64 {
        let Some(books) = books else { return 0 };
        let before = self.refused.replace(books.nr_refused).unwrap_or(books.nr_refused);
        let since = books.nr_refused.saturating_sub(before);
        if FOR_WANT_OF_MEMORY.contains(&books.last_refusal) { since } else { 0 }
    }
}

/// Who has what, at one moment.
pub(super) struct TakersSeen {
    pools: Vec<HugePagePool>,
    buffers: Option<BufferBooks>,
}

impl TakersSeen {
    fn read(backend: &dyn Backend) -> Result<Self, BackendError> {
        Ok(Self { pools: backend.huge_page_pools(None)?, buffers: backend.buffer_books()? })
    }
}

/// What came of making pages.
#[derive(Debug, Default)]
struct MadePages {
    /// Why the last range became none.
    refusal: Option<String>,
    /// The time was over first.
    is_late: bool,
}

impl DecisionEngine {
    /// Decides on the pools of huge pages, and carries it out. Returns who had what before.
    pub(super) fn share_memory(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
    ) -> Option<TakersSeen> {
        self.takers.has_acted = false;
        let is_short = std::mem::take(&mut self.takers.is_short);
        let seen = match TakersSeen::read(backend) {
            Ok(seen) => seen,
            Err(error) => {
                debug!(%error, "who has memory cannot be read");
                self.takers.status.why = error.to_string();
                return None;
            }
        };
        let pools = &seen.pools;
        let refused_buffers = self.takers.count_refused(seen.buffers.as_ref());
        let wish = self.settings.takers.huge;
        self.takers.status.why = match wish {
            None => "no huge pages are wanted (takers.huge_count is 0)".to_owned(),
            Some(_) if look.info.is_stock() => {
                "huge pages are made of slices, which a stock kernel does not have".to_owned()
            }
            Some(wish) => unknown_size(wish.page, pools),
        };
        // Its error names the nodes that there are
        let node = wish.and_then(|wish| wish.node).filter(|_| !look.info.is_stock());
        let unknown = node.and_then(|node| HugePagePlace::read(backend, Some(node)).err());
        if let Some(error) = unknown {
            self.takers.status.why = format!("takers.huge_node: {error}");
        }
        if look.info.is_stock() {
            return Some(seen);
        }
        let is_imagined = backend.simulated_offline().is_some();
        let takers = &mut self.takers;
        let mut books =
            std::mem::take(if is_imagined { &mut takers.imagined } else { &mut takers.real });
        if let Some(wish) = wish
            && !books.iter().any(|book| book.is_of(&wish))
        {
            books.push(PoolBook::new(wish.page, wish.node));
        }
        for book in &mut books {
            let Some(pool) = pool_of(backend, pools, book) else { continue };
            let seen = TakersObservation {
                time: self.time,
                pool,
                offline: offline_taker(backend, look),
                is_short,
                is_paused: self.paused_until.is_some(),
                refused_buffers,
            };
            let decision = book.decide(&self.settings.takers, &seen);
            let why = self.carry_out_on_pool(backend, book, &pool, decision);
            if wish.is_some_and(|wish| book.is_of(&wish)) || book.made() > 0 {
                self.takers.status.why = why;
            }
        }
        // Of pools that nothing is wanted of, there is nothing to know
        books.retain(|book| book.made() > 0 || wish.is_some_and(|wish| book.is_of(&wish)));
        *(if is_imagined { &mut self.takers.imagined } else { &mut self.takers.real }) = books;
        Some(seen)
    }

    /// Carries out what was decided. Returns why, and what came of it.
    fn carry_out_on_pool(
        &mut self,
        backend: &dyn Backend,
        book: &mut PoolBook,
        before: &HugePagePool,
        decision: PoolDecision,
    ) -> String {
        let (action, settle) = (decision.action, self.settings.takers.settle);
        let (page, node) = (book.page(), book.node());
        let (wanted, made) = match action {
            PoolAction::Keep => return decision.why.to_string(),
            PoolAction::Make(count) => (count, self.make_pages(backend, (page, node), count)),
            PoolAction::GiveBack(count) => {
                let size = before.size().saturating_sub(count);
                let result = backend.resize_huge_page_pool(page, node, size);
                (count, result.map(|_| MadePages::default()))
            }
        };
        self.takers.has_acted = true;
        let pool = backend
            .huge_page_pools(node)
            .map(|pools| pools.into_iter().find(|pool| pool.page == page).unwrap_or(*before));
        let (made, pool) = match (made, pool) {
            (Ok(made), Ok(pool)) => (made, pool),
            (made, pool) => {
                let error = made.err().or(pool.err()).map(|error| error.to_string());
                let error = error.unwrap_or_default();
                warn!(error, %page, "the pool of huge pages could not be changed");
                book.finished(action, before, true, self.time, settle);
                return format!("{}, but the pool could not be changed: {error}", decision.why);
            }
        };
        let done = pool.size().abs_diff(before.size());
        // Where all of the time made no page, the next look would do no better
        let is_refused = made.refusal.is_some() && (!made.is_late || done == 0);
        book.finished(action, &pool, is_refused, self.time, settle);
        let imagined = backend.simulated_offline().is_some();
        let words = words(action, done, wanted, (page, node), imagined);
        let rest = made.refusal.map_or_else(String::new, |why| format!("; the rest not: {why}"));
        let text = format!("{words}, because {}{rest}", decision.why);
        info!("{text}");
        self.metrics.changed_pool(DaemonMode::of_requests(backend), action, decision.why, done);
        if done > 0 {
            self.takers.status.last_change = Some(text.clone());
        }
        text
    }

    /// Makes so many pages, of the ranges that cost least, on a node if one is wanted.
    fn make_pages(
        &mut self,
        backend: &dyn Backend,
        (page, node): (Bytes, Option<NodeId>),
        count: u64,
    ) -> Result<MadePages, BackendError> {
        let until = Instant::now() + self.settings.deadline;
        // The policies' requests have changed it
        let look = MachineSnapshot::take(backend)?;
        let place = HugePagePlace::read(backend, node)?;
        let mut ranges = huge_page_ranges(&look.info, &look.zones, &look.snapshot.slices, page);
        ranges.retain(|range| place.has(range));
        let mut room: BTreeMap<ZoneKey, Pages> =
            look.zones.iter().map(|zone| (ZoneKey::of(zone), room(&look, zone))).collect();
        let needed = page.pages(look.info.page_bytes);
        let (mut made, mut refused, mut result) = (0, 0, MadePages::default());
        result.refusal = Some(no_range(page, &ranges));
        for range in cheapest_first(&ranges).into_iter().filter(|range| !range.failed_lately) {
            if made == count || refused == MOST_REFUSED {
                break;
            }
            if self.stop.load(Ordering::Relaxed) || Instant::now() >= until {
                result.is_late = true;
                result.refusal = Some("the time for requests was over".to_owned());
                break;
            }
            let left = room.get(&range.zone).copied().unwrap_or_default();
            if left < needed {
                result.refusal = Some("the zone would keep less than its reserve".to_owned());
                continue;
            }
            let stop = self.stop.clone();
            let refusal = make_huge_page(
                backend,
                (page, &place),
                range,
                CacheChoice::Auto,
                &|| stop.load(Ordering::Relaxed) || Instant::now() >= until,
                &mut |request| self.send_for_page(backend, &look, request, until),
            )?;
            match refusal {
                None => {
                    made += 1;
                    room.insert(range.zone, left - needed);
                }
                Some(why) => {
                    refused += 1;
                    result.refusal = Some(format!("at {}: {why}", range.start));
                }
            }
        }
        if made == count {
            result.refusal = None;
        }
        Ok(result)
    }

    /// Sends a request for a page, and counts what it cost. Policies do not learn from it: it is
    /// not theirs.
    fn send_for_page(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
        request: &Request,
        until: Instant,
    ) -> Result<RequestOutcome, BackendError> {
        let began = Instant::now();
        let wakes = request.op.wakes();
        let left = until.saturating_duration_since(began);
        // What must wake has as long again
        let deadline = if wakes { left + self.settings.deadline } else { left };
        let request = Request { deadline: Some(deadline), ..request.clone() };
        let result = backend.request(&request);
        let (mode, op) = (self.settings.mode, request.op);
        self.metrics.request(mode, op, began.elapsed(), &result);
        let outcome = result?;
        self.failures.add(op, &outcome);
        if backend.simulated_offline().is_none() {
            self.requests_cost += outcome.price_measured;
        }
        self.metrics.moved(mode, op, &outcome, look.info.slice_pages());
        self.count(op, &outcome);
        Ok(outcome)
    }

    /// Reports who has what, where nothing is decided.
    pub(super) fn watch_takers(&mut self, backend: &dyn Backend, look: &MachineSnapshot) {
        (self.takers.is_short, self.takers.has_acted) = (false, false);
        "nothing is decided: the mode is off".clone_into(&mut self.takers.status.why);
        self.report_takers(backend, look, None);
    }

    /// Reports who has what; reads it, if it was not seen in this step or has changed since.
    pub(super) fn report_takers(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
        seen: Option<TakersSeen>,
    ) {
        let seen = seen.filter(|_| !self.takers.has_acted);
        let Some(TakersSeen { pools, buffers }) = seen.or_else(|| TakersSeen::read(backend).ok())
        else {
            return;
        };
        let is_imagined = backend.simulated_offline().is_some();
        let books = if is_imagined { &self.takers.imagined } else { &self.takers.real };
        let config = &self.settings.takers;
        let wanted = config.huge.as_ref();
        let wished = wanted.map(|wish| PoolBook::new(wish.page, wish.node));
        let shown = match &wished {
            Some(wished) => {
                let book = books.iter().find(|book| wanted.is_some_and(|wish| book.is_of(wish)));
                Some(book.unwrap_or(wished))
            }
            None => books.first(),
        };
        let huge = shown.and_then(|book| {
            let pool = pool_of(backend, &pools, book)?;
            let count = wanted.map_or(0, |wish| wish.count);
            Some(HugeTakerStatus::new(&pool, book.node(), count, book.made()))
        });
        let offline = look.info.offline_pages.bytes(look.info.page_bytes);
        let status = &mut self.takers.status;
        status.imagined = is_imagined;
        status.set_takers(
            &config.values,
            (offline_taker(backend, look), offline),
            &pools,
            huge,
            buffers.as_ref(),
        );
        self.metrics.takers(status);
    }
}

/// The pool that a book is about, or its part on a node; none where the kernel has none.
fn pool_of(backend: &dyn Backend, pools: &[HugePagePool], book: &PoolBook) -> Option<HugePagePool> {
    let find = |pools: &[HugePagePool]| pools.iter().find(|pool| pool.page == book.page()).copied();
    match book.node() {
        None => find(pools),
        // A node may be gone, or never have been there
        Some(_) => find(&backend.huge_page_pools(book.node()).ok()?),
    }
}

/// What becomes of slices that are off. What is only worked out assumes a driver.
fn offline_taker(backend: &dyn Backend, look: &MachineSnapshot) -> OfflineTaker {
    if look.info.reports_to_host() {
        OfflineTaker::Host
    } else if backend.simulated_offline().is_some() || EnergyPlan::may_be_switched(&look.info) {
        OfflineTaker::Sleep
    } else {
        OfflineTaker::Nothing
    }
}

/// What a zone can do without: free, offline or cache that can be dropped, above what it keeps.
fn room(look: &MachineSnapshot, zone: &ramslice_types::Zone) -> Pages {
    let totals = look.totals(zone);
    totals.free + totals.offline + totals.freeable
        - (zone.low_wmark_pages + zone.awake_reserve_pages)
}

/// Why there is no range, or no further one.
fn no_range(page: Bytes, ranges: &[HugePageRange]) -> String {
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    for (_, reason) in ranges.iter().filter_map(|range| range.blocked) {
        *reasons.entry(reason.code()).or_default() += 1;
    }
    let reasons: Vec<_> =
        reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if reasons.is_empty() {
        return format!("no further range of {page} is memory of one zone");
    }
    format!("no further range of {page} can be emptied ({})", reasons.join(", "))
}

fn unknown_size(page: Bytes, pools: &[HugePagePool]) -> String {
    let sizes: Vec<_> = pools.iter().map(|pool| pool.page.to_string()).collect();
    if sizes.is_empty() {
        return "this kernel has no huge pages (hugetlb)".to_owned();
    }
    format!("takers.huge_size is {page}: this kernel has huge pages of {}", sizes.join(" and "))
}

fn words(
    action: PoolAction,
    done: u64,
    wanted: u64,
    (page, node): (Bytes, Option<NodeId>),
    imagined: bool,
) -> String {
    let of = if done == wanted { String::new() } else { format!(" of {wanted}") };
    let verb = match (action, imagined) {
        (PoolAction::GiveBack(_), false) => "gave back",
        (PoolAction::GiveBack(_), true) => "would have given back",
        (_, false) => "made",
        (_, true) => "would have made",
    };
    let plural = if wanted == 1 { "page" } else { "pages" };
    let on = node.map_or_else(String::new, |node| format!(" on node {node}"));
    format!("{verb} {done}{of} huge {plural} of {page}{on}")
}
