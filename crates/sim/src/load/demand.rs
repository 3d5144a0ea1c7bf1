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
    piece_pages: u64,
    before: RecordedMoment,
    /// Cache that is dropped at present, in the recording.
    out: f64,
    /// Of what was dropped in the last step, active.
    active_dropped: f64,
    /// What was wanted for less than a step, when that was seen last.
    brief_pages: u64,
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
    /// `piece_pages` pages.
    pub fn new(
        first: RecordedMoment,
        orders: [ReleaseOrder; KINDS.len()],
        least: u64,
        piece_pages: u64,
    ) -> Self {
        let layers = KINDS.iter().zip(first.pages);
        let kinds = layers.map(|(&(class, owner), pages)| MemoryLayers {
            class,
            layers: vec![MemoryLayer { owner, pages, used: [0; 3], step: 0, every: 0 }],
        });
        let (kinds, piece_pages) = (kinds.collect(), piece_pages.max(1));
        let seen = first.stored.unwrap_or(0).min(first.pages[CACHE]) as f64;
        let (next, step, out, active_dropped, brief_pages) = (FIRST_LAYER, 0, 0.0, 0.0, 0);
        Self {
            kinds,
            orders,
            next,
            step,
            least,
            piece_pages,
            before: first,
            out,
            active_dropped,
            brief_pages,
            seen,
        }
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
        self.brief_pages = if now.woken > self.before.woken { spare } else { self.brief_pages };
        let brief = self.brief_pages.min(spare);
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
        let hot = (self.active_dropped - noticed).clamp(0.0, (read - noticed).max(0.0));
        // Cache that is read and does not belong to files that are new to the recording comes back.
        let unseen = self.before.stored.map(|stored| (stored as f64 - self.seen).max(0.0));
        let unnoticed = unseen.map_or(hot, |unseen| hot.max(read - noticed - unseen));
        let back = (noticed + unnoticed).min(self.out);
        let (active, idle) = now.active.unwrap_or_default();
        self.active_dropped = packing as f64 * active as f64 / (active + idle).max(1) as f64;
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
        let gone_active = was_active.saturating_sub(active + self.active_dropped as u64).min(gone);
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
            let pages = if rest < self.piece_pages + self.least { rest } else { self.piece_pages };
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
            let known = |layer: &MemoryLayer| {
                let before = if times == 0 { layer.pages } else { layer.used[times - 1] };
                before - layer.used[times]
            };
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
#[path = "demand_tests.rs"]
mod tests;
