//! Requests: slices are emptied and woken by the kernel's rules, all or nothing, cheapest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ramslice_policy::PolicyEvent;
use ramslice_types::{
    Budget, CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId,
    SliceState,
};

use super::owners::DropCause;
use super::{OwnerClass, SimMachine, SliceCell};

/// A slice that failed is left alone for this long, twice as long each time, up to the most.
const BACKOFF_US: u64 = 10_000_000;
const MOST_BACKOFF: u32 = 6;
/// Slices in a row that found no room, or would have cut into the awake reserve, until a batch
/// gives up.
const MOST_MISSES: u32 = 16;
/// The kernel's deadline for requests that name none.
const DEADLINE: Duration = Duration::from_mins(1);

/// The slice does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSuchSlice(pub(crate) SliceId);

/// The destinations of a slice's pages.
#[derive(Debug, Default)]
struct MovePlan {
    /// Destination, free pages taken, cache dropped there.
    targets: Vec<(usize, u32, u32)>,
    free: u64,
    cache: u64,
}

/// The next step of a batch.
enum BatchStep {
    Done,
    /// Was tried, or cannot be.
    Failed(Reason),
    /// Nothing was done: a dearer slice may have less to move, or be less empty.
    Missed(Reason),
    /// The same: other slices have room for no more than so many pages.
    NoRoom(u64),
    Stop(Reason),
}

/// Slices by price, cheapest first; of equal prices the higher address first.
type PriceOrder = Vec<(Price, Reverse<usize>)>;

impl SimMachine {
    /// Carries out a request. Time does not pass: [`RequestOutcome::elapsed`] is the time it would
    /// have taken.
    pub(crate) fn request(&mut self, request: &Request) -> Result<RequestOutcome, NoSuchSlice> {
        let mut outcome = RequestOutcome::default();
        match request.op {
            RequestOp::Offline(id) | RequestOp::Online(id)
                if self.cells.get(id.0 as usize).is_none() =>
            {
                return Err(NoSuchSlice(id));
            }
            RequestOp::Offline(id) => {
                let at = id.0 as usize;
                // Few of the dearest are needed, and none for a slice that has nothing to move.
                let zone = self.zones[self.cells[at].zone as usize].clone();
                let all = (self.to_move(at, request.cache).0 > 0).then_some(zone.first..zone.end);
                let all = all.into_iter().flatten().map(|at| at as usize);
                let mut dearest: BinaryHeap<_> = self.priced(all, request.cache).collect();
                let mut dearer = std::iter::from_fn(|| dearest.pop().map(|(_, Reverse(at))| at));
                let result = self.empty(at, &mut dearer, request, &mut outcome);
                single(&mut outcome, id, &result);
            }
            RequestOp::Online(id) => {
                let result = if self.cells[id.0 as usize].state == SliceState::Offline {
                    self.wake(id.0 as usize, request.dry_run);
                    BatchStep::Done
                } else {
                    BatchStep::Failed(Reason::State)
                };
                single(&mut outcome, id, &result);
            }
            RequestOp::Compact => self.compact(request, &mut outcome),
            RequestOp::OfflineFree => self.offline_free(request, &mut outcome),
            RequestOp::OnlineAll => {
                for at in 0..self.cells.len() {
                    if self.wanted(request, at) && self.cells[at].state == SliceState::Offline {
                        self.wake(at, request.dry_run);
                        outcome.slices_done += 1;
                        outcome.last_slice = Some(Self::id(at));
                    }
                }
            }
        }
        if !request.dry_run {
            let seconds = outcome.price_measured.cycles() as f64 / self.config.cycles_per_second;
            outcome.elapsed = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        }
        Ok(outcome)
    }

    /// The same for a policy, which hears how it went with the next observation. Returns whether
    /// anything changed.
    pub fn request_by_policy(&mut self, request: &Request) -> bool {
        let Ok(outcome) = self.request(request) else { return false };
        let done = outcome.slices_done > 0;
        self.events.push(PolicyEvent::Finished {
            op: request.op,
            outcome,
            max_slices: request.max_slices,
        });
        done
    }

    fn wake(&mut self, at: usize, dry_run: bool) {
        if !dry_run {
            self.switch(at, SliceState::Online);
        }
    }

    fn wanted(&self, request: &Request, at: usize) -> bool {
        let zone = &self.config.zones[self.cells[at].zone as usize];
        request.node.is_none_or(|node| node == zone.node)
            && request.zone.is_none_or(|number| number == zone.zone)
    }

    fn zones_wanted(&self, request: &Request) -> Vec<usize> {
        (0..self.zones.len())
            .filter(|&index| self.wanted(request, self.zones[index].first as usize))
            .collect()
    }

    /// The slices of a zone that are on, by what their counters say of the price.
    fn order(&self, index: usize, choice: CacheChoice) -> PriceOrder {
        let zone = &self.zones[index];
        let mut order: PriceOrder =
            self.priced(zone.first as usize..zone.end as usize, choice).collect();
        order.sort_unstable();
        order
    }

    /// Those of some slices that are on, with what their counters say of the price.
    fn priced(
        &self,
        slices: impl Iterator<Item = usize>,
        choice: CacheChoice,
    ) -> impl Iterator<Item = (Price, Reverse<usize>)> {
        slices
            .filter(|&at| self.cells[at].state == SliceState::Online)
            .map(move |at| (self.price_with(at, choice), Reverse(at)))
    }

    /// Walks the slice at the front, and puts it where its price belongs; whether that is where it
    /// was.
    fn settle_front(&self, order: &mut PriceOrder, front: usize, choice: CacheChoice) -> bool {
        let (_, Reverse(at)) = order[front];
        let cell = &self.cells[at];
        let (moved, dropped) = self.to_move(at, choice);
        let price = self.prices.base(u64::from(cell.present))
            + self.prices.content(dropped, moved, cell.mappings);
        let end = front + 1 + order[front + 1..].partition_point(|(other, _)| *other < price);
        order[front..end].rotate_left(1);
        order[end - 1] = (price, Reverse(at));
        end == front + 1
    }

    fn offline_free(&mut self, request: &Request, outcome: &mut RequestOutcome) {
        for index in self.zones_wanted(request) {
            let (first, end) = (self.zones[index].first as usize, self.zones[index].end as usize);
            for at in first..end {
                if self.zones[index].nr_empty == 0 {
                    break;
                }
                if request.max_slices.is_some_and(|most| outcome.slices_done >= most) {
                    return;
                }
                if !self.cells[at].is_empty() {
                    continue;
                }
                match self.empty(at, &mut std::iter::empty(), request, outcome) {
                    BatchStep::Done => {
                        outcome.slices_done += 1;
                        outcome.last_slice = Some(Self::id(at));
                    }
                    // An empty slice needs no room.
                    BatchStep::Failed(_) | BatchStep::NoRoom(_) => {}
                    BatchStep::Missed(reason) | BatchStep::Stop(reason) => {
                        outcome.reason = reason;
                        break;
                    }
                }
            }
        }
    }

    fn compact(&mut self, request: &Request, outcome: &mut RequestOutcome) {
        let frequency = self.config.cycles_per_second;
        let deadline = request.deadline.unwrap_or(DEADLINE).as_secs_f64();
        for index in self.zones_wanted(request) {
            let mut order = self.order(index, request.cache);
            let (mut front, mut misses, mut walked) = (0, 0, None);
            // Where a slice found no room, and what room there was behind it: true until one is
            // emptied.
            let mut room: Option<(usize, u64)> = None;
            // So many free pages a slice cannot take along.
            let mut too_free = u64::MAX;
            while let Some(&(_, Reverse(at))) = order.get(front) {
                if request.max_slices.is_some_and(|most| outcome.slices_done >= most) {
                    return;
                }
                if outcome.price_measured.cycles() as f64 / frequency > deadline {
                    outcome.reason = Reason::Deadline;
                    outcome.status_errno = errno(Reason::Deadline);
                    return;
                }
                let cell = &self.cells[at];
                if cell.boot || cell.unmovable > 0 {
                    // What follows is dearer still: it cannot be emptied either.
                    break;
                }
                // What is too free is not tried, so that those behind it are, which are full.
                let backs_off = cell.retry_us > self.time_us && !request.ignore_backoff;
                if backs_off || u64::from(cell.free) >= too_free {
                    front += 1;
                    continue;
                }
                if walked.replace(at) != Some(at)
                    && !self.settle_front(&mut order, front, request.cache)
                {
                    continue;
                }
                front += 1;
                let was_empty = self.cells[at].is_empty();
                if let Some((from, room)) = &mut room {
                    let offered = |slices: &[(Price, Reverse<usize>)]| -> u64 {
                        slices.iter().map(|&(_, Reverse(at))| self.offers(at, request.cache)).sum()
                    };
                    *room -= offered(&order[*from..front]);
                    *from = front;
                    debug_assert_eq!(
                        *room,
                        offered(&order[front..]),
                        "what is remembered is what there is"
                    );
                }
                let next = match room {
                    Some((_, room)) if self.to_move(at, request.cache).0 > room => {
                        BatchStep::NoRoom(room)
                    }
                    _ => {
                        let mut dearer = order[front..].iter().rev().map(|&(_, Reverse(at))| at);
                        self.empty(at, &mut dearer, request, outcome)
                    }
                };
                match next {
                    BatchStep::Done => {
                        room = None;
                        outcome.slices_done += 1;
                        outcome.last_slice = Some(Self::id(at));
                        outcome.reason = Reason::None;
                        misses = 0;
                    }
                    BatchStep::Missed(_) | BatchStep::NoRoom(_) => {
                        outcome.reason = next.reason();
                        if let BatchStep::NoRoom(most) = next {
                            room = Some((front, most));
                        } else {
                            let taken =
                                u64::from(self.cells[at].free) + self.to_move(at, request.cache).0;
                            too_free = too_free.min(taken);
                        }
                        // Those that are wholly empty come first; as many as the reserve takes
                        // stay.
                        misses += u32::from(!was_empty);
                        if misses == MOST_MISSES {
                            break;
                        }
                    }
                    BatchStep::Failed(_) => {
                        outcome.slices_failed += 1;
                        outcome.last_slice = Some(Self::id(at));
                        outcome.reason = Reason::None;
                        misses = 0;
                    }
                    BatchStep::Stop(reason) => {
                        outcome.reason = reason;
                        break;
                    }
                }
            }
        }
    }

    /// Empties one slice and switches it off; `dearer` are the slices that may take its pages,
    /// dearest first.
    fn empty(
        &mut self,
        at: usize,
        dearer: &mut dyn Iterator<Item = usize>,
        request: &Request,
        outcome: &mut RequestOutcome,
    ) -> BatchStep {
        let cell = &self.cells[at];
        if cell.state != SliceState::Online {
            return BatchStep::Failed(Reason::State);
        }
        if cell.boot {
            return BatchStep::Failed(Reason::Boot);
        }
        if cell.unmovable > 0 {
            return BatchStep::Failed(Reason::Slab);
        }
        if cell.retry_us > self.time_us && !request.ignore_backoff {
            return BatchStep::Failed(Reason::Backoff);
        }
        let (moved, dropped) = self.to_move(at, request.cache);
        let plan = match self.plan(at, dearer, moved, request.cache) {
            Ok(plan) => plan,
            Err(room) => return BatchStep::NoRoom(room),
        };
        let pages = u64::from(cell.present);
        let price = self.prices.base(pages)
            + self.prices.content(dropped, moved, cell.mappings)
            + self.prices.targets(plan.free, plan.cache);
        if let Budget::Limited(budget) = request.budget {
            let spent = if request.per_slice { Price::ZERO } else { outcome.price_predicted };
            if spent + price > budget {
                return BatchStep::Stop(Reason::OverBudget);
            }
        }
        // As the kernel has it: the reserve and a chunk stay; but a slice full of cache that goes
        // takes no free memory with it.
        let zone = &self.zones[cell.zone as usize];
        let chunk = 2 * self.config.pageblock_bytes.pages(self.config.page_bytes).0;
        let taken = u64::from(cell.free) + plan.free;
        if taken > 0 && zone.free < taken + zone.reserve + chunk {
            return BatchStep::Missed(Reason::AwakeReserve);
        }
        outcome.price_predicted += price;
        if request.dry_run {
            return BatchStep::Done;
        }
        self.work.tried_slices += 1;
        self.work.price_predicted += price;
        outcome.price_measured += price;
        self.work.price_measured += price;
        if cell.pinned > 0 {
            return self.give_up(at, outcome);
        }
        let dearer = self.carry_out(at, &plan, (moved, dropped, request.cache), outcome);
        outcome.price_measured += dearer;
        self.work.price_measured += dearer;
        BatchStep::Done
    }

    /// A slice that turned out to be pinned: everything stays, and is paid for.
    fn give_up(&mut self, at: usize, outcome: &mut RequestOutcome) -> BatchStep {
        let now = self.time_us;
        let cell = &mut self.cells[at];
        outcome.failed += Pages(u64::from(cell.pinned));
        cell.retry_us = now.saturating_add(BACKOFF_US << cell.fails.min(MOST_BACKOFF));
        cell.fails += 1;
        cell.reason = Reason::Pinned;
        BatchStep::Failed(Reason::Pinned)
    }

    /// Pages of a slice that would be moved, and those that would be dropped. Kept cache is moved
    /// like other memory.
    fn to_move(&self, at: usize, choice: CacheChoice) -> (u64, u64) {
        let (cell, kept) = (&self.cells[at], self.kept_all(at, choice));
        (cell.movable() + kept, u64::from(cell.freeable) - kept)
    }

    /// The most pages of others that a slice could take.
    fn offers(&self, at: usize, choice: CacheChoice) -> u64 {
        let cell = &self.cells[at];
        if cell.state != SliceState::Online || cell.is_empty() {
            return 0;
        }
        self.room(cell) + self.droppable(at, choice)
    }

    /// Room for `pages` in the dearest slices first; if there is not enough, how much there is.
    fn plan(
        &self,
        at: usize,
        dearer: &mut dyn Iterator<Item = usize>,
        pages: u64,
        choice: CacheChoice,
    ) -> Result<MovePlan, u64> {
        let mut plan = MovePlan::default();
        let mut left = pages;
        while left > 0 {
            let Some(target) = dearer.next() else { break };
            let cell = &self.cells[target];
            if target == at || cell.state != SliceState::Online || cell.is_empty() {
                continue;
            }
            let free = self.room(cell).min(left);
            let cache =
                if left > free { self.droppable(target, choice).min(left - free) } else { 0 };
            left -= free + cache;
            if free + cache > 0 {
                plan.free += free;
                plan.cache += cache;
                plan.targets.push((target, free as u32, cache as u32));
            }
        }
        if left == 0 { Ok(plan) } else { Err(pages - left) }
    }

    /// Moves and drops what the plan says. Returns what that cost beyond the plan.
    fn carry_out(
        &mut self,
        at: usize,
        plan: &MovePlan,
        (moved, dropped, choice): (u64, u64, CacheChoice),
        outcome: &mut RequestOutcome,
    ) -> Price {
        // By how cache was used before the first page of it goes: so the plan was made.
        let slots = self.owners.len();
        let kept: Vec<u32> = (0..slots).map(|slot| self.kept(slot, at, choice)).collect();
        let mut drops = Vec::new();
        for &(target, free, cache) in &plan.targets {
            let mut cache = self.dropped_there(target, choice, u64::from(free) + u64::from(cache));
            for slot in 0..slots {
                if cache == 0 {
                    break;
                }
                let clean = self.clean_here(slot, target) - self.kept(slot, target, choice);
                let step = cache.min(u64::from(clean));
                if step > 0 {
                    drops.push((target, slot, step as u32));
                    cache -= step;
                }
            }
        }
        let made_room: u64 = drops.iter().map(|&(_, _, pages)| u64::from(pages)).sum();
        for (target, slot, pages) in drops {
            self.drop_chosen(target, slot, pages, choice);
        }
        let mut targets = plan.targets.iter().map(|&(target, free, cache)| (target, free + cache));
        let mut room = targets.next();
        for (slot, kept) in kept.into_iter().enumerate() {
            let clean = self.clean_here(slot, at) - kept;
            self.drop_chosen(at, slot, clean, choice);
            self.owners[slot].moved[usize::from(choice == CacheChoice::Keep)] += u64::from(kept);
            let mut left = self.owners[slot].pages[at];
            while left > 0 {
                // There is room for all: the plan was made for this many pages.
                let Some((target, pages)) = room.as_mut() else { break };
                let step = left.min(*pages);
                let dirty = self.give(at, slot, step);
                self.take_as(*target, slot, step, dirty);
                left -= step;
                *pages -= step;
                if *pages == 0 {
                    room = targets.next();
                }
            }
        }
        self.cells[at].fails = 0;
        self.cells[at].reason = Reason::None;
        self.switch(at, SliceState::Offline);
        self.work.emptied_slices += 1;
        self.work.migrated_pages += Pages(moved);
        self.work.dropped_pages += Pages(dropped + made_room);
        self.work.target_free_pages += Pages(plan.free);
        self.work.target_cache_pages += Pages(made_room);
        outcome.migrated += Pages(moved);
        outcome.dropped += Pages(dropped + made_room);
        self.prices.targets(0, made_room.saturating_sub(plan.cache))
    }

    /// Drops an owner's cache for a request.
    fn drop_chosen(&mut self, at: usize, slot: usize, pages: u32, choice: CacheChoice) {
        if pages == 0 {
            return;
        }
        if choice == CacheChoice::Auto {
            self.drop_idle(slot, pages.into());
            self.owners[slot].dropped_by_use += u64::from(pages);
        }
        self.drop_clean(at, slot, pages, DropCause::Request);
    }

    /// Clean cache of a slice that a request would drop, there or at a destination.
    fn droppable(&self, at: usize, choice: CacheChoice) -> u64 {
        u64::from(self.cells[at].freeable) - self.kept_all(at, choice)
    }

    /// Free pages that a slice has for pages of others: not those of pageblocks that the kernel has
    /// begun.
    fn room(&self, cell: &SliceCell) -> u64 {
        if cell.unmovable == 0 {
            return cell.free.into();
        }
        let block = self.config.pageblock_bytes.pages(self.config.page_bytes).0;
        let begun = u64::from(cell.unmovable).next_multiple_of(block) - u64::from(cell.unmovable);
        u64::from(cell.free).saturating_sub(begun)
    }

    /// What is dropped at a destination to get `pages` from it.
    ///
    /// The kernel goes through it pageblock by pageblock, drops the cache of each, and takes all
    /// that is free there.
    fn dropped_there(&self, target: usize, choice: CacheChoice, pages: u64) -> u64 {
        let cell = &self.cells[target];
        let cache = self.droppable(target, choice);
        let all = self.room(cell) + cache;
        if cache == 0 || all == 0 {
            return 0;
        }
        let block = self.config.pageblock_bytes.pages(self.config.page_bytes).0;
        let blocks = u64::from(cell.present).div_ceil(block).max(1);
        let seen = (pages * blocks).div_ceil(all).min(blocks);
        (cache * seen / blocks).max(pages.saturating_sub(self.room(cell))).min(cache)
    }

    /// What emptying a slice is expected to cost, by its counters (Eq 3.3).
    pub(super) fn price(&self, at: usize) -> Price {
        self.price_with(at, CacheChoice::Drop)
    }

    /// The same for a choice; which cache was used, the counters do not say, and then none was.
    fn price_with(&self, at: usize, choice: CacheChoice) -> Price {
        let cell = &self.cells[at];
        // As the kernel: a mapped page counts as mapped once.
        let mapped = u64::from(cell.anon) + u64::from(cell.file_mapped);
        let kept = if choice == CacheChoice::Keep { u64::from(cell.freeable) } else { 0 };
        let price = self.prices.base(u64::from(cell.present))
            + self.prices.content(u64::from(cell.freeable) - kept, cell.movable() + kept, mapped);
        if self.never(cell) || cell.unmovable > 0 {
            price + self.prices.unreclaimable()
        } else {
            price
        }
    }

    fn never(&self, cell: &SliceCell) -> bool {
        cell.boot || cell.retry_us > self.time_us
    }

    /// Pages of an owner's class in a slice, for a look at it.
    pub(super) fn holdings(
        &self,
        at: usize,
    ) -> impl Iterator<Item = (OwnerClass, u32, u32, u32)> + '_ {
        self.owners.iter().filter(move |owner| owner.pages[at] > 0).map(move |owner| {
            (owner.class, owner.maps, owner.pages[at], owner.dirty.get(at).copied().unwrap_or(0))
        })
    }
}

impl BatchStep {
    /// What was in the way.
    fn reason(&self) -> Reason {
        match *self {
            Self::Done => Reason::None,
            Self::NoRoom(_) => Reason::NoRoom,
            Self::Failed(reason) | Self::Missed(reason) | Self::Stop(reason) => reason,
        }
    }
}

fn single(outcome: &mut RequestOutcome, id: SliceId, result: &BatchStep) {
    outcome.last_slice = Some(id);
    let reason = result.reason();
    if reason == Reason::None {
        outcome.slices_done = 1;
        return;
    }
    // In the wrong state, nothing was tried.
    outcome.slices_failed = u32::from(reason != Reason::State);
    outcome.reason = reason;
    outcome.status_errno = errno(reason);
}

/// The kernel's numbers, so that a simulated refusal reads like a real one.
fn errno(reason: Reason) -> u32 {
    match reason {
        Reason::NoRoom | Reason::AwakeReserve => 28,
        Reason::OverBudget => 122,
        Reason::Backoff => 11,
        Reason::Deadline => 62,
        _ => 16,
    }
}
