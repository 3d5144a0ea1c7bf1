//! The demand of programs, derived from a recording: how much memory of each kind came and went
//! between two samples.
//!
//! The policy that was running influences what the recording shows. Cache that it dropped is wanted
//! all the same, and cache that came back is not new. A recording does not say whether the newest
//! memory goes first, last or at random; [`ReleaseOrder`] says what is assumed, and can be fitted.

use ramslice_types::{MachineState, SliceSnapshot};
use serde::Serialize;

use crate::machine::{KINDS, MemoryChange, OwnerClass, OwnerId, kinds};

/// Which memory goes first when memory of a kind shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseOrder {
    /// Any of it, by chance.
    #[default]
    Any,
    /// What came last.
    Newest,
    /// What came first.
    Oldest,
    /// What came at once and is about as much: a process that ends gives back what it took.
    Matching,
}

impl ReleaseOrder {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Any, Self::Newest, Self::Oldest, Self::Matching];
}

/// A recording at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordedMoment {
    /// Pages of each kind: unmovable, anonymous, tmpfs, cache, cache that is mapped.
    pub pages: [u64; KINDS.len()],
    /// Cache that was dropped for packing, since boot.
    pub dropped: u64,
    /// Cache that was dropped for want of memory, since boot.
    pub reclaimed: u64,
    /// Pages that are free and awake beyond the awake reserve, of zones with slices that are off.
    pub spare: u64,
    /// Slices that woke, since boot.
    pub woken: u64,
    /// Pages of the slices that were emptied, since boot.
    pub emptied: u64,
    /// Pages read from storage and written to it, since boot; nothing where statistics were not
    /// recorded.
    pub moved: Option<(u64, u64)>,
    /// Cache that the kernel noticed coming back, since boot.
    pub refaulted: u64,
    /// Cache that is active, and that is not; nothing where statistics were not recorded.
    pub active: Option<(u64, u64)>,
    /// Pages that became active by being used, since boot.
    pub activated: u64,
    /// Cache that was used once and is not active, and that is active and was used since; nothing
    /// where that was not recorded.
    pub uses: Option<(u64, u64)>,
    /// What file systems on disks hold, in pages; nothing where that was not recorded.
    pub stored: Option<u64>,
}

impl RecordedMoment {
    /// Of a machine; what was done since boot, and what statistics say, is to be filled in.
    pub fn of(machine: &MachineState) -> Self {
        let mut moment = Self::default();
        let packed = machine.zones.iter().filter(|zone| zone.nr_offline > 0);
        moment.spare =
            packed.map(|zone| zone.free_pages.0.saturating_sub(zone.awake_reserve_pages.0)).sum();
        let SliceSnapshot { slices, .. } = &machine.snapshot;
        for slice in slices {
            for (sum, pages) in moment.pages.iter_mut().zip(kinds(slice)) {
                *sum += pages;
            }
        }
        moment
    }
}

/// Memory of one kind, in the order in which it came.
#[derive(Debug, Clone)]
struct MemoryLayers {
    class: OwnerClass,
    layers: Vec<MemoryLayer>,
}

/// Memory that came at one time, or a piece of it: pieces go one by one, so that the rest is not
/// spread over all slices.
#[derive(Debug, Clone, Copy)]
struct MemoryLayer {
    owner: OwnerId,
    pages: u64,
    /// Of page cache, what was used at least once, twice and three times.
    used: [u64; 3],
    /// The step in which it came.
    step: u32,
    /// It is used every so many steps, as far as known; 0 is not known.
    every: u32,
}

/// Turns moments into changes.
#[derive(Debug, Clone)]
pub struct ProgramDemand {
    kinds: Vec<MemoryLayers>,
    orders: [ReleaseOrder; KINDS.len()],
    next: u32,
    step: u32,
    /// Growth below this joins the layer before.
    least: u64,
    /// The size of a piece.
    piece: u64,
    before: RecordedMoment,
    /// Cache that is dropped at present, in the recording.
    out: f64,
    /// Of what was dropped in the last step, active.
    hot: f64,
    /// What was wanted for less than a step, when that was seen last.
    brief: u64,
    /// Pages of files on disks that were ever seen in the cache, and were not deleted.
    seen: f64,
}

/// Changes of page cache in a step.
#[derive(Debug, Clone, Copy)]
struct CacheFlow {
    /// Read from storage, new or not.
    read: u64,
    new: u64,
    /// Of what is new, written rather than read.
    written: u64,
    gone: u64,
    /// Of what is gone, active before.
    gone_active: u64,
    back_share: f64,
}

/// Where in [`KINDS`] page cache is; what is mapped of it follows.
const CACHE: usize = 3;
/// Who wants memory for less than a step.
const BRIEF: OwnerId = OwnerId(99);
/// Numbers of owners that come later.
const FIRST_LAYER: u32 = 100;

impl ProgramDemand {
    /// From the first moment on; layers have at least `least` pages and consist of pieces of
    /// `piece` pages.
    pub fn new(
        first: RecordedMoment,
        orders: [ReleaseOrder; KINDS.len()],
        least: u64,
        piece: u64,
    ) -> Self {
        let layers = KINDS.iter().zip(first.pages);
        let kinds = layers.map(|(&(class, owner), pages)| MemoryLayers {
            class,
            layers: vec![MemoryLayer { owner, pages, used: [0; 3], step: 0, every: 0 }],
        });
        let (kinds, piece) = (kinds.collect(), piece.max(1));
        let seen = first.stored.unwrap_or(0).min(first.pages[CACHE]) as f64;
        let (next, step, out, hot, brief) = (FIRST_LAYER, 0, 0.0, 0.0, 0);
        Self { kinds, orders, next, step, least, piece, before: first, out, hot, brief, seen }
    }

    /// What happened until `now`.
    pub fn step(&mut self, now: RecordedMoment) -> Vec<MemoryChange> {
        let mut changes = Vec::new();
        self.step += 1;
        let packing = now.dropped.saturating_sub(self.before.dropped);
        let dropped = packing + now.reclaimed.saturating_sub(self.before.reclaimed);
        let flow = self.flow(&now, packing, dropped);
        changes.extend(self.recycling(&now));
        let mut lost = self.uses();
        for kind in 0..KINDS.len() {
            if kind == CACHE {
                let mostly_active = |layer: &MemoryLayer| layer.used[1] * 2 > layer.pages;
                let active = self.shrink(kind, flow.gone_active, mostly_active, &mut changes);
                let idle = flow.gone - flow.gone_active;
                let idle = self.shrink(kind, idle, |layer| !mostly_active(layer), &mut changes);
                self.shrink(kind, active + idle, |_| true, &mut changes);
                for (lost, left) in lost.iter_mut().zip(self.uses()) {
                    *lost -= left;
                }
                self.grow(kind, flow.new, flow.written, &mut changes);
            } else {
                let (was, is) = (self.before.pages[kind], now.pages[kind]);
                self.shrink(kind, was.saturating_sub(is), |_| true, &mut changes);
                self.grow(kind, is.saturating_sub(was), 0, &mut changes);
            }
        }
        self.use_cache(&now, &flow, lost, &mut changes);
        // When a slice woke, nothing was free but the reserve. What is free beyond it now, and was
        // before the policy acted, came back since: memory that was wanted for less than a step.
        // Where none woke, as much may have been wanted as the time before, as far as there was
        // room for it.
        let spare = (now.spare + now.emptied - self.before.emptied).saturating_sub(packing);
        self.brief = if now.woken > self.before.woken { spare } else { self.brief };
        let brief = self.brief.min(spare);
        if brief > 0 {
            let level = |pages| MemoryChange::Level {
                owner: BRIEF,
                class: OwnerClass::Anon,
                maps: 1,
                pages,
            };
            changes.extend([level(brief), level(0)]);
        }
        self.before = now;
        changes
    }

    /// What the kernel recycled beyond the pages that were read and had left no trace; nothing
    /// without statistics.
    fn recycling(&self, now: &RecordedMoment) -> Option<MemoryChange> {
        let (now_read, read) = (now.moved?.0, self.before.moved?.0);
        let noticed = now.refaulted.saturating_sub(self.before.refaulted);
        let fresh = (now_read - read).saturating_sub(noticed);
        let recycled = now.reclaimed.saturating_sub(self.before.reclaimed);
        let most = if fresh > 0 { recycled.saturating_sub(fresh) } else { 0 };
        let percent = u32::try_from(most * 100 / fresh.max(1)).unwrap_or(u32::MAX);
        Some(MemoryChange::Recycling { percent, most })
    }

    /// Cache that was used once, and that was used three times, as far as it is known of the
    /// layers.
    fn uses(&self) -> [u64; 2] {
        let layers = || self.kinds[CACHE].layers.iter();
        [
            layers().map(|layer| layer.used[0] - layer.used[1]).sum(),
            layers().map(|layer| layer.used[2]).sum(),
        ]
    }

    /// Cache was used: what came back, and what the kernel saw of the rest; `lost` is what was
    /// deleted of [`Self::uses`].
    fn use_cache(
        &mut self,
        now: &RecordedMoment,
        flow: &CacheFlow,
        lost: [u64; 2],
        changes: &mut Vec<MemoryChange>,
    ) {
        if self.step == 1
            && let Some((active, idle)) = self.before.active
        {
            let all = (active + idle).max(1) as f64;
            let (once, busy) = self.before.uses.unwrap_or_default();
            let layers = &mut self.kinds[CACHE].layers;
            for layer in layers.iter_mut().filter(|layer| layer.step == 0) {
                let part = |pages: u64| (layer.pages as f64 * (pages as f64 / all).min(1.0)) as u64;
                layer.used = [part(active + once), part(active), part(busy)];
                changes.push(MemoryChange::Used { owner: layer.owner, pages: layer.used[1] });
            }
        }
        // What is used for the fourth time looks as it did: it is taken to be used on as it was.
        let step = self.step;
        let due = |layer: &&MemoryLayer| {
            layer.every > 0 && (step - layer.step).is_multiple_of(layer.every) && layer.used[2] > 0
        };
        let on = self.kinds[CACHE].layers.iter().filter(due);
        changes.extend(
            on.map(|layer| MemoryChange::Read { owner: layer.owner, pages: layer.used[2] }),
        );
        let again = now.activated.saturating_sub(self.before.activated);
        let mut share = flow.back_share;
        if let (Some(now), Some(before)) = (now.uses, self.before.uses) {
            // What is used again, or deleted, does not show any more as used once; what was read
            // for this step does.
            let cache = self.before.pages[CACHE] as f64;
            let shown = cache / (cache + self.out).max(1.0);
            let lost = lost.map(|pages| (pages as f64 * shown) as u64);
            let once = (now.0 + again + lost[0]).saturating_sub(before.0 + flow.read);
            let on = (now.1 + lost[1]).saturating_sub(before.1);
            for (times, pages) in [once, again, on].into_iter().enumerate() {
                self.touch(pages, times, changes);
            }
            share -= (once + again + on) as f64 / cache.max(1.0);
        } else {
            self.touch(again, 1, changes);
        }
        if share > 0.0 {
            let read = |layer: &MemoryLayer| MemoryChange::Read {
                owner: layer.owner,
                pages: (layer.pages as f64 * share) as u64,
            };
            changes.extend(self.kinds[CACHE].layers.iter().map(read));
        }
    }

    /// What became of page cache: what is new, what is gone for good, and which share of the
    /// dropped came back.
    ///
    /// What was written is new, and so is what was read, but for what came back. What is missing
    /// then was deleted, and with it what was dropped of the same files. Without statistics, only
    /// the difference is known.
    fn flow(&mut self, now: &RecordedMoment, packing: u64, dropped: u64) -> CacheFlow {
        let cache =
            |moment: &RecordedMoment| (moment.pages[CACHE] + moment.pages[CACHE + 1]) as f64;
        let (before, after, dropped) = (cache(&self.before), cache(now), dropped as f64);
        let net = after + dropped - before;
        let (read, written) = match (now.moved, self.before.moved) {
            (Some(now), Some(before)) => ((now.0 - before.0) as f64, (now.1 - before.1) as f64),
            _ => (net.max(0.0), 0.0),
        };
        // A request that drops all cache leaves no trace by which the kernel could notice what
        // comes back. What was active when it was dropped does.
        let noticed = now.refaulted.saturating_sub(self.before.refaulted) as f64;
        let hot = (self.hot - noticed).clamp(0.0, (read - noticed).max(0.0));
        // Cache that is read and does not belong to files that are new to the recording comes back.
        let unseen = self.before.stored.map(|stored| (stored as f64 - self.seen).max(0.0));
        let unnoticed = unseen.map_or(hot, |unseen| hot.max(read - noticed - unseen));
        let back = (noticed + unnoticed).min(self.out);
        let (active, idle) = now.active.unwrap_or_default();
        self.hot = packing as f64 * active as f64 / (active + idle).max(1) as f64;
        // Not more than there was could be deleted; what was written in place was not new.
        let gone = (read + written - net).clamp(0.0, before);
        let new = (net + gone - back).max(0.0);
        let back_share = if self.out > 0.0 { back / self.out } else { 0.0 };
        // Dropped cache of deleted files goes, too: as much as the file systems report, otherwise
        // its share.
        let out = match (self.before.stored, now.stored) {
            (Some(before), Some(now)) => (before as f64 + written - now as f64 - gone).max(0.0),
            _ if before > 0.0 => self.out * gone / before,
            _ => 0.0,
        };
        let out = out.min(self.out - back);
        self.out = (self.out - out + dropped - back).max(0.0);
        let gone = gone + out;
        self.seen = (self.seen + read + written - back - gone).max(0.0);
        let mapped = now.pages[CACHE + 1] as f64 - self.before.pages[CACHE + 1] as f64;
        let new = (new - mapped).max(0.0);
        let gone = (gone - (net + gone - back - mapped).min(0.0)) as u64;
        // What was active, or became it, and is not any more, was deleted, but for what requests
        // dropped.
        let was_active =
            self.before.active.unwrap_or_default().0 + now.activated - self.before.activated;
        let gone_active = was_active.saturating_sub(active + self.hot as u64).min(gone);
        CacheFlow {
            read: read as u64,
            new: new as u64,
            written: written.min(new) as u64,
            gone,
            gone_active,
            back_share,
        }
    }

    /// `pages` more of a kind, of which `written` did not come from storage.
    fn grow(&mut self, kind: usize, pages: u64, written: u64, changes: &mut Vec<MemoryChange>) {
        let MemoryLayers { class, layers } = &mut self.kinds[kind];
        let class = *class;
        let mut left = (pages, written);
        let mut add = |layer: &mut MemoryLayer, pages: u64| {
            let written = (left.1 as f64 * pages as f64 / left.0.max(1) as f64).round() as u64;
            layer.pages += pages;
            layer.used[0] += pages - written.min(pages);
            left = (left.0 - pages, left.1 - written.min(left.1));
            if written > 0 {
                changes
                    .push(MemoryChange::Written { owner: layer.owner, pages: written.min(pages) });
            }
            changes.push(MemoryChange::Level {
                owner: layer.owner,
                class,
                maps: 1,
                pages: layer.pages,
            });
            left.0
        };
        if let Some(last) = layers.last_mut()
            && pages > 0
            && pages < self.least
        {
            add(last, pages);
            return;
        }
        let mut rest = pages;
        while rest > 0 {
            // What is left for the last piece is not worth one of its own.
            let pages = if rest < self.piece + self.least { rest } else { self.piece };
            let owner = OwnerId(self.next);
            let mut layer =
                MemoryLayer { owner, pages: 0, used: [0; 3], step: self.step, every: 0 };
            rest = add(&mut layer, pages);
            layers.push(layer);
            self.next += 1;
        }
    }

    /// So many pages were used for the first, second or third time, with `times` 0, 1 or 2: those
    /// of files that came at once and have as many that were used once less.
    fn touch(&mut self, pages: u64, times: usize, changes: &mut Vec<MemoryChange>) {
        let step = self.step;
        let layers = &mut self.kinds[CACHE].layers;
        let mut left = pages;
        while left > 0 {
            let known =
                |layer: &MemoryLayer| if times == 0 { layer.pages } else { layer.used[times - 1] } - layer.used[times];
            // Where its earlier use was not recorded, it was used all the same.
            let any = |layer: &MemoryLayer| layer.pages - layer.used[times];
            let found = matching(layers, left, known).map(|at| (at, known(&layers[at])));
            let found =
                found.or_else(|| matching(layers, left, any).map(|at| (at, any(&layers[at]))));
            let Some((at, most)) = found else { return };
            let layer = &mut layers[at];
            let more = left.min(most);
            layer.used[times] += more;
            for before in (0..times).rev() {
                layer.used[before] = layer.used[before].max(layer.used[before + 1]);
            }
            if times == layer.used.len() - 1 && layer.every == 0 {
                layer.every = ((step - layer.step) / layer.used.len() as u32).max(1);
            }
            left -= more;
            changes.push(MemoryChange::Read { owner: layer.owner, pages: more });
        }
    }

    /// So many pages of a kind go, of those layers that are meant; says how many more that are than
    /// there were.
    fn shrink(
        &mut self,
        kind: usize,
        pages: u64,
        meant: impl Fn(&MemoryLayer) -> bool,
        changes: &mut Vec<MemoryChange>,
    ) -> u64 {
        if pages == 0 {
            return 0;
        }
        let order = self.orders[kind];
        let MemoryLayers { class, layers } = &mut self.kinds[kind];
        let class = *class;
        let (mut some, others): (Vec<_>, Vec<_>) = layers.drain(..).partition(meant);
        let all: u64 = some.iter().map(|layer| layer.pages).sum();
        let mut left = pages.min(all);
        let mut take = |layer: &mut MemoryLayer, less: u64| {
            layer.shrink(less);
            changes.push(MemoryChange::Level {
                owner: layer.owner,
                class,
                maps: 1,
                pages: layer.pages,
            });
        };
        while left > 0 && order != ReleaseOrder::Any {
            let at = match order {
                ReleaseOrder::Oldest => Some(0),
                ReleaseOrder::Matching => matching(&some, left, |layer| layer.pages),
                ReleaseOrder::Newest | ReleaseOrder::Any => None,
            };
            let at = at.unwrap_or(some.len() - 1);
            let less = left.min(some[at].pages);
            take(&mut some[at], less);
            left -= less;
            if some[at].pages == 0 {
                some.remove(at);
            }
        }
        for layer in some.iter_mut().filter(|_| left > 0) {
            let less = (layer.pages as f64 / all as f64 * left as f64).round() as u64;
            take(layer, less.min(layer.pages));
        }
        layers.extend(some.into_iter().chain(others).filter(|layer| layer.pages > 0));
        layers.sort_unstable_by_key(|layer| layer.owner);
        pages.saturating_sub(all)
    }
}

impl MemoryLayer {
    fn shrink(&mut self, pages: u64) {
        let share = (self.pages - pages) as f64 / self.pages.max(1) as f64;
        self.pages -= pages;
        self.used = self.used.map(|used| (used as f64 * share) as u64);
    }
}

/// The last piece of what came at once and is the least that has about `pages`, or more; of the
/// newest, if nothing has.
fn matching(layers: &[MemoryLayer], pages: u64, of: impl Fn(&MemoryLayer) -> u64) -> Option<usize> {
    let together =
        |step: u32| layers.iter().filter(|layer| layer.step == step).map(&of).sum::<u64>();
    let steps = layers.iter().map(|layer| layer.step);
    let large = steps.filter(|&step| together(step) >= (pages - pages / 10).max(1));
    let step = large.min_by_key(|&step| (together(step), std::cmp::Reverse(step)));
    let has = |layer: &MemoryLayer| of(layer) > 0 && step.is_none_or(|step| layer.step == step);
    layers.iter().rposition(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(anonymous: u64, cache: u64) -> RecordedMoment {
        RecordedMoment { pages: [100, anonymous, 0, cache, 0], ..RecordedMoment::default() }
    }

    fn demand(order: ReleaseOrder) -> ProgramDemand {
        ProgramDemand::new(moment(0, 1000), [order; KINDS.len()], 10, 1000)
    }

    /// Levels that are set, without those that have no owner.
    fn levels(changes: &[MemoryChange]) -> Vec<(u32, u64)> {
        let level = |change: &MemoryChange| match change {
            MemoryChange::Level { owner, pages, .. } => Some((owner.0, *pages)),
            _ => None,
        };
        changes.iter().filter_map(level).collect()
    }

    #[test]
    fn who_ends_gives_back_what_it_took() {
        let mut demand = demand(ReleaseOrder::Matching);
        assert_eq!(
            levels(&demand.step(moment(2500, 1000))),
            [(100, 1000), (101, 1000), (102, 500)]
        );
        assert_eq!(levels(&demand.step(moment(2900, 1000))), [(103, 400)]);
        // 2500 pages go: those that came at once, not the newest ones.
        assert_eq!(levels(&demand.step(moment(400, 1000))), [(102, 0), (101, 0), (100, 0)]);
        assert_eq!(levels(&demand.step(moment(100, 1000))), [(103, 100)]);
    }

    #[test]
    fn the_newest_the_oldest_or_a_part_of_each_goes_first() {
        for (order, expected) in [
            (ReleaseOrder::Newest, vec![(101, 50)]),
            (ReleaseOrder::Oldest, vec![(1, 0), (100, 0), (101, 150)]),
            (ReleaseOrder::Any, vec![(1, 0), (100, 50), (101, 100)]),
        ] {
            let mut demand = demand(order);
            demand.step(moment(100, 1000));
            demand.step(moment(300, 1000));
            assert_eq!(levels(&demand.step(moment(150, 1000))), expected, "{order:?}");
        }
    }

    #[test]
    fn cache_that_was_dropped_is_wanted_all_the_same() {
        let mut demand = demand(ReleaseOrder::Newest);
        let now = RecordedMoment { dropped: 400, ..moment(0, 600) };
        assert_eq!(levels(&demand.step(now)), []);
        // Half of what was dropped comes back, and the kernel notices.
        let now = RecordedMoment { dropped: 400, refaulted: 200, ..moment(0, 800) };
        let changes = demand.step(now);
        assert_eq!(levels(&changes), []);
        assert_eq!(changes, [MemoryChange::Read { owner: OwnerId(3), pages: 500 }]);
    }

    #[test]
    fn with_statistics_what_was_deleted_is_known_apart_from_what_is_new() {
        let mut demand = demand(ReleaseOrder::Oldest);
        let mut first = RecordedMoment { moved: Some((0, 0)), ..moment(0, 1000) };
        demand.step(first);
        // 300 pages were written, and yet there are no more: as many were deleted.
        first.moved = Some((0, 300));
        assert_eq!(levels(&demand.step(first)), [(3, 700), (100, 300)]);
    }

    #[test]
    fn what_woke_slices_and_is_free_again_was_wanted_for_a_moment() {
        let mut demand = demand(ReleaseOrder::Newest);
        let now = RecordedMoment { woken: 2, spare: 700, ..moment(0, 1000) };
        assert_eq!(levels(&demand.step(now)), [(99, 700), (99, 0)]);
        // Without a wake it is unknown: as much as the last time, or as there was room for.
        assert_eq!(
            levels(&demand.step(RecordedMoment { spare: 900, ..now })),
            [(99, 700), (99, 0)]
        );
        assert_eq!(
            levels(&demand.step(RecordedMoment { spare: 300, ..now })),
            [(99, 300), (99, 0)]
        );
    }

    #[test]
    fn of_deleted_files_what_was_dropped_before_is_not_wanted_any_more() {
        let last = |stored| {
            let mut demand = demand(ReleaseOrder::Oldest);
            let first = RecordedMoment { moved: Some((0, 0)), stored, ..moment(0, 1000) };
            demand.step(first);
            demand.step(RecordedMoment {
                dropped: 400,
                ..RecordedMoment { moved: Some((0, 0)), stored, ..moment(0, 600) }
            });
            // A file of 500 pages goes, of which 100 were still in the cache.
            let stored = stored.map(|stored| stored - 500);
            let after =
                RecordedMoment { dropped: 400, moved: Some((0, 100)), stored, ..moment(0, 600) };
            let left = levels(&demand.step(after)).into_iter().find(|(owner, _)| *owner == 3);
            left.map(|(_, pages)| pages)
        };
        // The file systems say how much: all that had been dropped, and 100 of the rest for what
        // was written.
        assert_eq!(last(Some(5000)), Some(500));
        // It is not recorded: of the dropped cache, the same share as of the cache that was not
        // dropped.
        assert_eq!(last(None), Some(834));
    }

    #[test]
    fn what_is_used_is_of_files_that_came_at_once_and_is_read_on_when_it_is_used_often() {
        let mut demand = demand(ReleaseOrder::Any);
        let at = |cache, written, uses, activated| RecordedMoment {
            moved: Some((0, written)),
            active: Some((activated, cache - activated)),
            uses: Some(uses),
            activated,
            ..moment(0, cache)
        };
        demand.step(at(1000, 0, (0, 0), 0));
        demand.step(at(1900, 900, (0, 0), 0));
        let reads = |changes: Vec<MemoryChange>| -> Vec<(u32, u64)> {
            let read = |change: MemoryChange| match change {
                MemoryChange::Read { owner, pages } => Some((owner.0, pages)),
                _ => None,
            };
            changes.into_iter().filter_map(read).collect()
        };
        assert_eq!(reads(demand.step(at(1900, 900, (900, 0), 0))), [(100, 900)]);
        assert_eq!(reads(demand.step(at(1900, 900, (0, 0), 900))), [(100, 900)]);
        assert_eq!(reads(demand.step(at(1900, 900, (0, 900), 900))), [(100, 900)]);
        // No more of it can be seen; it goes on.
        assert_eq!(reads(demand.step(at(1900, 900, (0, 900), 900))), [(100, 900)]);
    }
}
