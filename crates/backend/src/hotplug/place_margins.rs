//! What must stay available in places that their users cannot leave, in proportion to their size.
//!
//! `MemAvailable` covers the whole machine. However much is free elsewhere, the OOM killer starts
//! for a program that is bound to a node when that node is full, and for the kernel when all zones
//! but Movable are full.

use ramslice_types::{NodeId, Pages};

use super::zones::ZoneRoom;

/// A place in memory: all of it by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryPlace {
    /// Of this node alone.
    pub(super) node: Option<NodeId>,
    /// Without Movable.
    pub(super) kernel: bool,
}

impl MemoryPlace {
    /// Whether a zone is there.
    pub(super) fn has(self, node: NodeId, movable: bool) -> bool {
        self.node.is_none_or(|own| own == node) && !(self.kernel && movable)
    }
}

/// A node among several, or the zones that the kernel's own memory is in where there are others.
#[derive(Debug)]
struct MemoryGroup {
    place: MemoryPlace,
    /// With its offline pages.
    size: Pages,
    /// Whether this program has taken pages of it offline.
    has_offline: bool,
}

impl MemoryGroup {
    fn available(&self, zones: &[ZoneRoom]) -> Pages {
        let mine = zones.iter().filter(|zone| self.place.has(zone.node, zone.movable));
        mine.map(|zone| zone.available).sum()
    }

    /// In millionths of its size.
    fn ratio(&self, zones: &[ZoneRoom]) -> u64 {
        let part = u128::from(self.available(zones).0) * 1_000_000 / u128::from(self.size.0.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// What the machine loses when a slice goes offline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceLoss {
    /// It is in this node.
    pub node: NodeId,
    /// It is in Movable.
    pub movable: bool,
    /// All its pages.
    pub present: Pages,
    /// Page cache, which is available wherever it is.
    pub cache: Pages,
    /// What has to find room elsewhere, with the cache.
    pub moves: Pages,
}

/// A zone's part in the parts of a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZoneSize {
    /// Its node.
    pub node: NodeId,
    /// It is Movable.
    pub movable: bool,
    /// With its offline pages.
    pub pages: Pages,
    /// What this program has off of it.
    pub offline: Pages,
}

/// A part of memory that is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShortPlace {
    /// Which one: slices of others do not help.
    pub(super) place: MemoryPlace,
    /// What is available there.
    pub(super) available: Pages,
    /// What it lacks.
    pub(super) missing_pages: Pages,
}

/// The parts of a machine: each node if there are several, the zones below Movable if there is one,
/// and all memory.
#[derive(Debug)]
pub(crate) struct PlaceMargins {
    /// The last one is all memory.
    groups: Vec<MemoryGroup>,
}

impl PlaceMargins {
    /// Of a machine with these zones, those of a node in a row.
    pub(crate) fn of(zones: impl IntoIterator<Item = ZoneSize>) -> Self {
        let zones: Vec<ZoneSize> =
            zones.into_iter().filter(|zone| zone.pages > Pages::ZERO).collect();
        let group = |node: Option<NodeId>, kernel| {
            let place = MemoryPlace { node, kernel };
            let mine = zones.iter().filter(|zone| place.has(zone.node, zone.movable));
            let (size, off) = mine.fold((Pages::ZERO, Pages::ZERO), |sum, zone| {
                (sum.0 + zone.pages, sum.1 + zone.offline)
            });
            MemoryGroup { place, size, has_offline: off > Pages::ZERO }
        };
        let mut nodes: Vec<NodeId> = zones.iter().map(|zone| zone.node).collect();
        nodes.dedup();
        let mut groups = Vec::new();
        if nodes.len() > 1 {
            groups.extend(nodes.into_iter().map(|node| group(Some(node), false)));
        }
        if zones.iter().any(|zone| zone.movable) {
            groups.push(group(None, true));
        }
        groups.push(group(None, false));
        Self { groups }
    }

    /// All memory is looked at by `MemAvailable`, which knows better; these are the others.
    fn groups(&self) -> &[MemoryGroup] {
        self.groups.split_last().map_or(&[], |(_, parts)| parts)
    }

    /// Whether there is anything to look at besides `MemAvailable`.
    pub(super) fn is_empty(&self) -> bool {
        self.groups().is_empty()
    }

    /// Of a margin for all memory, what a part is to keep.
    fn share(&self, group: &MemoryGroup, margin: Pages) -> Pages {
        let all = self.groups.last().map_or(0, |all| all.size.0).max(1);
        let share = u128::from(margin.0) * u128::from(group.size.0) / u128::from(all);
        Pages(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Whether each part keeps its share of the margin without the slice. What the slice does not
    /// touch may be short as it is. `zones` are those with memory.
    pub(crate) fn allow_loss(&self, zones: &[ZoneRoom], margin: Pages, loss: &SliceLoss) -> bool {
        self.groups().iter().all(|group| {
            let gone = lost_available(group, zones, loss);
            gone == Pages::ZERO || group.available(zones) >= self.share(group, margin) + gone
        })
    }

    /// The parts of which something is off and less than their share of `floor` is available, the
    /// shortest for its size first.
    pub(super) fn short_places(&self, zones: &[ZoneRoom], floor: Pages) -> Vec<ShortPlace> {
        let off = self.groups().iter().filter(|group| group.has_offline);
        let mut short: Vec<&MemoryGroup> =
            off.filter(|group| group.available(zones) < self.share(group, floor)).collect();
        short.sort_by_key(|group| group.ratio(zones));
        let short = short.into_iter().map(|group| {
            let available = group.available(zones);
            ShortPlace {
                place: group.place,
                available,
                missing_pages: self.share(group, floor) - available,
            }
        });
        short.collect()
    }

    /// How short memory is where a slice would come back, in millionths: who has least is to have
    /// it first.
    pub(super) fn ratio(&self, zones: &[ZoneRoom], node: NodeId, movable: bool) -> u64 {
        self.groups
            .iter()
            .filter(|group| group.place.has(node, movable))
            .map(|group| group.ratio(zones))
            .min()
            .unwrap_or(0)
    }
}

/// What a part has no more of when a slice goes. Memory hotplug moves content to other nodes if
/// there are any.
fn lost_available(group: &MemoryGroup, zones: &[ZoneRoom], loss: &SliceLoss) -> Pages {
    let leaves = zones.iter().any(|zone| zone.node != loss.node);
    match group.place.node {
        Some(node) if node != loss.node => loss.moves - loss.cache,
        Some(_) if leaves => loss.present - (loss.moves - loss.cache),
        None if group.place.kernel && loss.movable => {
            // It finds room in Movable, or the slice is refused; but that of other nodes may not
            // do.
            let others = zones.iter().filter(|zone| zone.node != loss.node && zone.movable);
            let room: Pages = others.map(|zone| zone.free - zone.awake_reserve).sum();
            if leaves { loss.moves - room } else { Pages::ZERO }
        }
        _ => loss.present,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::zones;

    /// Two nodes, the second one with a Movable zone; sizes in pages.
    fn zones(free: [u64; 3]) -> Vec<ZoneRoom> {
        let zone = |(node, name, managed), free| {
            format!(
                "Node {node}, zone {name}\n  pages free {free}\n managed {managed}\n \
                 nr_zone_inactive_file 0\n"
            )
        };
        let heads = [(0, "Normal", 1000), (1, "Normal", 500), (1, "Movable", 500)];
        let text =
            heads.into_iter().zip(free).map(|(head, free)| zone(head, free)).collect::<String>();
        zones::parse(&text).iter().map(|zone| zone.room(Pages(10))).collect()
    }

    fn margins(off: [bool; 4]) -> PlaceMargins {
        let group = |node: Option<i32>, kernel, size, off| MemoryGroup {
            place: MemoryPlace { node: node.map(NodeId), kernel },
            size: Pages(size),
            has_offline: off,
        };
        PlaceMargins {
            groups: vec![
                group(Some(0), false, 1000, off[0]),
                group(Some(1), false, 1000, off[1]),
                group(None, true, 1500, off[2]),
                group(None, false, 2000, off[3]),
            ],
        }
    }

    #[test]
    fn a_node_keeps_its_share_though_another_has_plenty() {
        let loss = |node, present, moves| SliceLoss {
            node: NodeId(node),
            movable: false,
            present: Pages(present),
            cache: Pages(0),
            moves: Pages(moves),
        };
        let keeps = |free, loss| margins([false; 4]).allow_loss(&zones(free), Pages(200), &loss);
        // Each node is to keep 100, and the zones of the kernel 150.
        assert!(keeps([150, 500, 500], loss(0, 50, 0)) && !keeps([149, 500, 500], loss(0, 50, 0)));
        // What moves is room of the other node; its own loses what was free.
        assert!(
            keeps([120, 500, 100], loss(0, 50, 30)) && !keeps([119, 500, 100], loss(0, 50, 30))
        );
        assert!(keeps([120, 130, 0], loss(0, 50, 30)) && !keeps([120, 129, 0], loss(0, 50, 30)));
        // A node that is short already does not stand in the way of what does not touch it.
        assert!(keeps([500, 20, 0], loss(0, 50, 0)));
        // The kernel's zones together
        assert!(keeps([120, 80, 500], loss(1, 50, 0)) && !keeps([120, 79, 500], loss(1, 50, 0)));
    }

    #[test]
    fn what_was_in_movable_is_no_loss_to_the_kernel_unless_it_finds_room_in_its_zones_alone() {
        let loss = |moves| SliceLoss {
            node: NodeId(1),
            movable: true,
            present: Pages(50),
            cache: Pages(0),
            moves: Pages(moves),
        };
        let keeps = |free, loss| margins([false; 4]).allow_loss(&zones(free), Pages(200), &loss);
        assert!(keeps([120, 20, 500], loss(0)));
        assert!(keeps([140, 50, 500], loss(40)) && !keeps([140, 40, 500], loss(40)));
    }

    #[test]
    fn places_are_short_if_blocks_are_offline_there_and_the_shortest_for_its_size_comes_first() {
        let short = |off, free| margins(off).short_places(&zones(free), Pages(200));
        assert_eq!(short([true; 4], [500, 500, 500]), []);
        let node = |node, available, missing| ShortPlace {
            place: MemoryPlace { node: Some(NodeId(node)), kernel: false },
            available: Pages(available),
            missing_pages: Pages(missing),
        };
        assert_eq!(short([true; 4], [500, 60, 0]), [node(1, 60, 40)]);
        assert_eq!(short([true, false, true, true], [500, 60, 0]), []);
        let kernel = ShortPlace {
            place: MemoryPlace { node: None, kernel: true },
            available: Pages(120),
            missing_pages: Pages(30),
        };
        assert_eq!(short([false, true, true, true], [100, 20, 500]), [kernel]);
        assert_eq!(
            short([true, true, false, true], [90, 0, 30]),
            [node(1, 30, 70), node(0, 90, 10)]
        );
    }

    #[test]
    fn slices_are_wanted_most_where_memory_is_shortest() {
        let ratio =
            |node, movable| margins([true; 4]).ratio(&zones([500, 60, 40]), NodeId(node), movable);
        assert!(ratio(1, true) < ratio(0, false));
        assert_eq!(ratio(1, true), ratio(1, false));
        let kernel = |movable| margins([true; 4]).ratio(&zones([30, 30, 500]), NodeId(1), movable);
        assert!(kernel(false) < kernel(true));
    }
}
