//! What programs wanted, from what a recording saw: how much memory of each kind came and went between two samples.
//!
//! The policy that was at work has its hand in what was seen. Cache that it dropped is wanted all the same, and what
//! came back is not new. Memory that came later goes first, or last, or by chance: which of it, a recording does not
//! tell; [`Order`] says what is assumed, and can be fitted.

use ramslice_types::{Machine, Snapshot};
use serde::Serialize;

use crate::machine::{Change, Class, KINDS, OwnerId, kinds};

/// What goes first when memory of a kind becomes less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
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

impl Order {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Any, Self::Newest, Self::Oldest, Self::Matching];
}

/// What a recording says of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
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
    /// Pages read from storage and written to it, since boot; nothing where statistics were not recorded.
    pub moved: Option<(u64, u64)>,
    /// Cache that the kernel noticed coming back, since boot.
    pub refaulted: u64,
    /// Cache that is active, and that is not; nothing where statistics were not recorded.
    pub active: Option<(u64, u64)>,
}

impl Moment {
    /// Of a machine; what was done since boot, and what statistics say, is to be filled in.
    pub fn of(machine: &Machine) -> Self {
        let mut moment = Self::default();
        let packed = machine.zones.iter().filter(|zone| zone.nr_offline > 0);
        moment.spare = packed.map(|zone| zone.free_pages.0.saturating_sub(zone.awake_reserve_pages.0)).sum();
        let Snapshot { slices, .. } = &machine.snapshot;
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
struct Layers {
    class: Class,
    layers: Vec<Layer>,
}

/// Memory that came at once, or a piece of it: pieces go one by one, so that what is left of it is not everywhere.
#[derive(Debug, Clone, Copy)]
struct Layer {
    owner: OwnerId,
    pages: u64,
    /// The step in which it came.
    step: u32,
}

/// Turns moments into changes.
#[derive(Debug, Clone)]
pub struct Demand {
    kinds: Vec<Layers>,
    orders: [Order; KINDS.len()],
    next: u32,
    step: u32,
    /// Growth below this joins the layer before.
    least: u64,
    /// The size of a piece.
    piece: u64,
    before: Moment,
    /// Cache that is dropped at present, in the recording.
    out: f64,
    /// Of what was dropped in the last step, active.
    hot: f64,
}

/// What became of page cache in a step.
#[derive(Debug, Clone, Copy)]
struct Flow {
    new: u64,
    gone: u64,
    back_share: f64,
}

/// Where in [`KINDS`] page cache is; what is mapped of it follows.
const CACHE: usize = 3;
/// Who wants memory for less than a step.
const BRIEF: OwnerId = OwnerId(99);
/// Numbers of owners that come later.
const FIRST_LAYER: u32 = 100;

impl Demand {
    /// From the first moment on; layers have at least `least` pages and consist of pieces of `piece` pages.
    pub fn new(first: Moment, orders: [Order; KINDS.len()], least: u64, piece: u64) -> Self {
        let layers = KINDS.iter().zip(first.pages);
        let kinds = layers
            .map(|(&(class, owner), pages)| Layers { class, layers: vec![Layer { owner, pages, step: 0 }] });
        let (kinds, piece) = (kinds.collect(), piece.max(1));
        Self { kinds, orders, next: FIRST_LAYER, step: 0, least, piece, before: first, out: 0.0, hot: 0.0 }
    }

    /// What happened until `now`.
    pub fn step(&mut self, now: Moment) -> Vec<Change> {
        let mut changes = Vec::new();
        self.step += 1;
        let packing = now.dropped.saturating_sub(self.before.dropped);
        let dropped = packing + now.reclaimed.saturating_sub(self.before.reclaimed);
        let flow = self.flow(&now, packing, dropped);
        for kind in 0..KINDS.len() {
            if kind == CACHE {
                self.shrink(kind, flow.gone, &mut changes);
                self.grow(kind, flow.new, &mut changes);
            } else {
                let (was, is) = (self.before.pages[kind], now.pages[kind]);
                self.shrink(kind, was.saturating_sub(is), &mut changes);
                self.grow(kind, is.saturating_sub(was), &mut changes);
            }
        }
        for &Layer { owner, pages, .. } in &self.kinds[CACHE].layers {
            if flow.back_share > 0.0 {
                changes.push(Change::Read { owner, pages: (pages as f64 * flow.back_share) as u64 });
            }
        }
        if let Some((active, idle)) = now.active
            && active + idle > 0
        {
            let share = active as f64 / (active + idle) as f64;
            let used = |&Layer { owner, pages, .. }: &Layer| Change::Used {
                owner,
                pages: (pages as f64 * share) as u64,
            };
            changes.extend(self.kinds[CACHE].layers.iter().map(used));
        }
        // When a slice woke, nothing was free but the reserve. What is free beyond it now, and was before the policy
        // acted, came back since: memory that was wanted for less than a step.
        let spare = (now.spare + now.emptied - self.before.emptied).saturating_sub(packing);
        if now.woken > self.before.woken && spare > 0 {
            let level = |pages| Change::Level { owner: BRIEF, class: Class::Anon, maps: 1, pages };
            changes.extend([level(spare), level(0)]);
        }
        self.before = now;
        changes
    }

    /// What became of page cache: what is new, what is gone for good, and which share of the dropped came back.
    ///
    /// What was written is new, and so is what was read, but for what came back. What is missing then was deleted, and
    /// with it what was dropped of the same files. Without statistics, only the difference is known.
    fn flow(&mut self, now: &Moment, packing: u64, dropped: u64) -> Flow {
        let cache = |moment: &Moment| (moment.pages[CACHE] + moment.pages[CACHE + 1]) as f64;
        let (before, after, dropped) = (cache(&self.before), cache(now), dropped as f64);
        let net = after + dropped - before;
        let (read, written) = match (now.moved, self.before.moved) {
            (Some(now), Some(before)) => ((now.0 - before.0) as f64, (now.1 - before.1) as f64),
            _ => (net.max(0.0), 0.0),
        };
        // A request that drops all cache leaves no trace by which the kernel could notice what comes back. What was
        // active when it was dropped does.
        let noticed = now.refaulted.saturating_sub(self.before.refaulted) as f64;
        let unnoticed = (self.hot - noticed).clamp(0.0, (read - noticed).max(0.0));
        let back = (noticed + unnoticed).min(self.out);
        let (active, idle) = now.active.unwrap_or_default();
        self.hot = packing as f64 * active as f64 / (active + idle).max(1) as f64;
        // Not more than there was could be deleted; what was written in place was not new.
        let gone = (read + written - net).clamp(0.0, before);
        let new = (net + gone - back).max(0.0);
        let share = if before > 0.0 { gone / before } else { 0.0 };
        let back_share = if self.out > 0.0 { back / self.out } else { 0.0 };
        let gone = gone + self.out * share;
        self.out = (self.out * (1.0 - share) + dropped - back).max(0.0);
        let mapped = now.pages[CACHE + 1] as f64 - self.before.pages[CACHE + 1] as f64;
        Flow {
            new: (new - mapped).max(0.0) as u64,
            gone: (gone - (new - mapped).min(0.0)) as u64,
            back_share,
        }
    }

    fn grow(&mut self, kind: usize, pages: u64, changes: &mut Vec<Change>) {
        let Layers { class, layers } = &mut self.kinds[kind];
        let class = *class;
        let level = |owner, pages| Change::Level { owner, class, maps: 1, pages };
        let mut left = pages;
        if let Some(last) = layers.last_mut()
            && left > 0
            && left < self.least
        {
            last.pages += left;
            changes.push(level(last.owner, last.pages));
            return;
        }
        while left > 0 {
            // What is left for the last piece is not worth one of its own.
            let pages = if left < self.piece + self.least { left } else { self.piece };
            layers.push(Layer { owner: OwnerId(self.next), pages, step: self.step });
            changes.push(level(OwnerId(self.next), pages));
            self.next += 1;
            left -= pages;
        }
    }

    fn shrink(&mut self, kind: usize, pages: u64, changes: &mut Vec<Change>) {
        let Layers { class, layers } = &mut self.kinds[kind];
        let class = *class;
        let level = |owner, pages| Change::Level { owner, class, maps: 1, pages };
        let mut left = pages;
        if left == 0 {
            return;
        }
        if self.orders[kind] == Order::Any {
            let all: u64 = layers.iter().map(|layer| layer.pages).sum();
            for layer in layers.iter_mut() {
                let less = (layer.pages as f64 / all.max(1) as f64 * left as f64).round() as u64;
                layer.pages -= less.min(layer.pages);
                changes.push(level(layer.owner, layer.pages));
            }
            layers.retain(|layer| layer.pages > 0);
            return;
        }
        while left > 0 && !layers.is_empty() {
            let at = match self.orders[kind] {
                Order::Oldest => 0,
                Order::Matching => matching(layers, left),
                Order::Newest | Order::Any => layers.len() - 1,
            };
            let layer = &mut layers[at];
            let less = left.min(layer.pages);
            layer.pages -= less;
            left -= less;
            changes.push(level(layer.owner, layer.pages));
            if layer.pages == 0 {
                layers.remove(at);
            }
        }
    }
}

/// The last piece of what came at once and is the least that is about `pages`, or more; of the newest, if nothing is.
fn matching(layers: &[Layer], pages: u64) -> usize {
    let together =
        |step: u32| layers.iter().filter(|layer| layer.step == step).map(|layer| layer.pages).sum::<u64>();
    let steps = layers.iter().map(|layer| layer.step);
    let large = steps.filter(|&step| together(step) >= pages - pages / 10);
    let step = large.min_by_key(|&step| (together(step), std::cmp::Reverse(step)));
    let found = step.and_then(|step| layers.iter().rposition(|layer| layer.step == step));
    found.unwrap_or(layers.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(anonymous: u64, cache: u64) -> Moment {
        Moment { pages: [100, anonymous, 0, cache, 0], ..Moment::default() }
    }

    fn demand(order: Order) -> Demand {
        Demand::new(moment(0, 1000), [order; KINDS.len()], 10, 1000)
    }

    /// Levels that are set, those of nobody left out.
    fn levels(changes: &[Change]) -> Vec<(u32, u64)> {
        let level = |change: &Change| match change {
            Change::Level { owner, pages, .. } => Some((owner.0, *pages)),
            _ => None,
        };
        changes.iter().filter_map(level).collect()
    }

    #[test]
    fn who_ends_gives_back_what_it_took() {
        let mut demand = demand(Order::Matching);
        assert_eq!(levels(&demand.step(moment(2500, 1000))), [(100, 1000), (101, 1000), (102, 500)]);
        assert_eq!(levels(&demand.step(moment(2900, 1000))), [(103, 400)]);
        // 2500 pages go: those that came at once, not the newest ones.
        assert_eq!(levels(&demand.step(moment(400, 1000))), [(102, 0), (101, 0), (100, 0)]);
        assert_eq!(levels(&demand.step(moment(100, 1000))), [(103, 100)]);
    }

    #[test]
    fn the_newest_the_oldest_or_a_part_of_each_goes_first() {
        for (order, expected) in [
            (Order::Newest, vec![(101, 50)]),
            (Order::Oldest, vec![(1, 0), (100, 0), (101, 150)]),
            (Order::Any, vec![(1, 0), (100, 50), (101, 100)]),
        ] {
            let mut demand = demand(order);
            demand.step(moment(100, 1000));
            demand.step(moment(300, 1000));
            assert_eq!(levels(&demand.step(moment(150, 1000))), expected, "{order:?}");
        }
    }

    #[test]
    fn cache_that_was_dropped_is_wanted_all_the_same() {
        let mut demand = demand(Order::Newest);
        let now = Moment { dropped: 400, ..moment(0, 600) };
        assert_eq!(levels(&demand.step(now)), []);
        // Half of what was dropped comes back, and the kernel notices.
        let now = Moment { dropped: 400, refaulted: 200, ..moment(0, 800) };
        let changes = demand.step(now);
        assert_eq!(levels(&changes), []);
        assert_eq!(changes, [Change::Read { owner: OwnerId(3), pages: 500 }]);
    }

    #[test]
    fn with_statistics_what_was_deleted_is_known_apart_from_what_is_new() {
        let mut demand = demand(Order::Oldest);
        let mut first = Moment { moved: Some((0, 0)), ..moment(0, 1000) };
        demand.step(first);
        // 300 pages were written, and yet there are no more: as many were deleted.
        first.moved = Some((0, 300));
        assert_eq!(levels(&demand.step(first)), [(3, 700), (100, 300)]);
    }

    #[test]
    fn what_woke_slices_and_is_free_again_was_wanted_for_a_moment() {
        let mut demand = demand(Order::Newest);
        let now = Moment { woken: 2, spare: 700, ..moment(0, 1000) };
        assert_eq!(levels(&demand.step(now)), [(99, 700), (99, 0)]);
        // Without a wake, nobody knows.
        assert_eq!(levels(&demand.step(Moment { spare: 900, ..now })), []);
    }
}
