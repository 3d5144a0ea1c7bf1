//! Zones and what is free in them: `/proc/zoneinfo`, for which procfs has no parser.

use ramslice_types::{NodeId, Pages, Pfn, ZoneNumber};

/// What `/proc/zoneinfo` says of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZoneInfo {
    pub(super) node: NodeId,
    /// Its position among the zones of its node.
    pub(super) number: ZoneNumber,
    pub(super) name: String,
    pub(super) free: Pages,
    pub(super) low: Pages,
    pub(super) high: Pages,
    pub(super) present: Pages,
    pub(super) managed: Pages,
    /// What a confidential guest has not accepted so far.
    pub(super) unaccepted: Pages,
    pub(super) spanned: Pages,
    pub(super) start: Pfn,
    /// The largest amount that allocations which prefer another zone must leave.
    pub(super) lowmem_reserve: Pages,
    /// In the CPUs' own lists: free, but not in the allocator's.
    pub(super) per_cpu: Pages,
    /// What these lists take or give at once, together.
    pub(super) per_cpu_batch: Pages,
    /// Page cache, without what is in shared memory.
    pub(super) cache: Pages,
}

impl ZoneInfo {
    /// Whether a block that leaves this zone at its end could only come back to another.
    ///
    /// Zones shrink when a block at their end goes. Normal and Movable are named when a block goes
    /// online; of the others, the kernel takes the one that the block lies in, and Normal if that
    /// is none.
    pub(super) fn would_lose_end(&self, first: Pfn, end: Pfn) -> bool {
        let zone_end = self.start.0 + self.spanned.0;
        !matches!(self.name.as_str(), "Normal" | "Movable")
            && (first <= self.start || end.0 >= zone_end)
    }

    /// The floor under its free pages: as the patched kernel's, where a block is what wakes at
    /// once.
    pub(super) fn awake_reserve(&self, block: Pages) -> Pages {
        self.high.max(self.lowmem_reserve).max(block.min(Pages(self.managed.0 / 8)))
    }
}

/// A zone's room for pages that move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZoneRoom {
    /// Its node.
    pub node: NodeId,
    /// Its position among the zones of its node.
    pub zone: ZoneNumber,
    /// It is `ZONE_MOVABLE`.
    pub movable: bool,
    /// Free pages.
    pub free: Pages,
    /// Free pages that must stay.
    pub awake_reserve: Pages,
    /// What programs can use of it without swapping.
    pub available: Pages,
}

/// Whether zones with memory keep their reserves when a slice of one of them goes offline with this
/// many `free` pages, and this many that move. Memory hotplug moves pages to other nodes if there
/// are any, and to Movable only pages from Movable. On a single node it uses the highest zone
/// first; pages that find no room there stay in the slice's own zone (`do_migrate_range()` and
/// `alloc_migration_target()` of Linux 6.12).
pub(crate) fn keeps_reserves(
    zones: &[ZoneRoom],
    own: (NodeId, ZoneNumber),
    free: Pages,
    moves: Pages,
) -> bool {
    let Some(own) = zones.iter().find(|zone| (zone.node, zone.zone) == own) else { return true };
    let other_nodes = zones.iter().any(|zone| zone.node != own.node);
    let takes = |zone: &&ZoneRoom| {
        let here = if other_nodes { zone.node != own.node } else { zone.zone > own.zone };
        here && (own.movable || !zone.movable)
    };
    let room: Pages = zones.iter().filter(takes).map(|zone| zone.free - zone.awake_reserve).sum();
    let left = moves - room;
    if other_nodes && left > Pages::ZERO {
        return false;
    }
    own.free >= free + left + own.awake_reserve
}

/// Parses `/proc/zoneinfo`.
pub(super) fn parse(text: &str) -> Vec<ZoneInfo> {
    let mut zones: Vec<ZoneInfo> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("Node ") {
            if let Some((node, name)) = head.split_once(", zone") {
                let node = NodeId(node.trim().parse().unwrap_or(0));
                let number = zones.iter().filter(|zone| zone.node == node).count() as u32;
                zones.push(ZoneInfo::new(node, ZoneNumber(number), name.trim()));
            }
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        let pages =
            |at: usize| Pages(words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0));
        match words.as_slice() {
            ["pages", "free", ..] => zone.free = pages(2),
            ["low", _] => zone.low = pages(1),
            ["high", _] => zone.high = pages(1),
            ["present", _] => zone.present = pages(1),
            ["managed", _] => zone.managed = pages(1),
            ["nr_unaccepted", _] => zone.unaccepted = pages(1),
            ["spanned", _] => zone.spanned = pages(1),
            ["start_pfn:", _] => zone.start = Pfn(pages(1).0),
            ["nr_zone_inactive_file" | "nr_zone_active_file", _] => zone.cache += pages(1),
            ["count:", _] => zone.per_cpu += pages(1),
            ["batch:", _] => zone.per_cpu_batch += pages(1),
            ["protection:", ..] => {
                let numbers = line.split(|letter: char| !letter.is_ascii_digit());
                zone.lowmem_reserve =
                    Pages(numbers.filter_map(|word| word.parse().ok()).max().unwrap_or(0));
            }
            _ => {}
        }
    }
    zones
}

impl ZoneInfo {
    /// It is `ZONE_MOVABLE`: not for the kernel's own memory.
    pub(super) fn is_movable(&self) -> bool {
        self.name == "Movable"
    }

    /// What programs can have of it without swapping: as `MemAvailable`, but for slabs, which the
    /// kernel counts by node.
    pub(super) fn available(&self) -> Pages {
        self.free + (self.cache - Pages((self.cache.0 / 2).min(self.low.0))) - self.high
    }

    /// What it has for pages that move, where a block is what wakes at once.
    pub(super) fn room(&self, block: Pages) -> ZoneRoom {
        ZoneRoom {
            node: self.node,
            zone: self.number,
            movable: self.is_movable(),
            free: self.free,
            awake_reserve: self.awake_reserve(block),
            available: self.available(),
        }
    }

    fn new(node: NodeId, number: ZoneNumber, name: &str) -> Self {
        Self {
            node,
            number,
            name: name.to_owned(),
            free: Pages::ZERO,
            low: Pages::ZERO,
            high: Pages::ZERO,
            present: Pages::ZERO,
            managed: Pages::ZERO,
            unaccepted: Pages::ZERO,
            spanned: Pages::ZERO,
            start: Pfn(0),
            lowmem_reserve: Pages::ZERO,
            per_cpu: Pages::ZERO,
            per_cpu_batch: Pages::ZERO,
            cache: Pages::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONEINFO: &str = "\
Node 0, zone    DMA32
  pages free     462840
        boost    0
        min      5616
        low      7020
        high     8424
        spanned  520159
        present  520159
        managed  502000
        cma      0
        protection: (0, 0, 935, 935, 0)
      nr_free_pages 462840
      nr_zone_inactive_file 20000
      nr_zone_active_file 10000
  pagesets
    cpu: 0
              count: 252
              high:  1755
              batch: 63
    cpu: 1
              count: 48
              high:  1755
  start_pfn:           4096
Node 0, zone   Normal
  pages free     0
        spanned  0
Node 1, zone  Movable
  pages free     7
  start_pfn:           8192
";

    #[test]
    fn zones_are_numbered_within_their_node() {
        let zones = parse(ZONEINFO);
        let names: Vec<_> =
            zones.iter().map(|zone| (zone.node.0, zone.number.0, zone.name.as_str())).collect();
        assert_eq!(names, [(0, 0, "DMA32"), (0, 1, "Normal"), (1, 0, "Movable")]);
        let dma32 = &zones[0];
        assert_eq!((dma32.free, dma32.low), (Pages(462_840), Pages(7020)));
        assert_eq!(
            (dma32.managed, dma32.spanned, dma32.start),
            (Pages(502_000), Pages(520_159), Pfn(4096))
        );
        assert_eq!((dma32.lowmem_reserve, dma32.per_cpu), (Pages(935), Pages(300)));
        assert_eq!((dma32.per_cpu_batch, dma32.present), (Pages(63), Pages(520_159)));
    }

    #[test]
    fn the_high_mark_of_a_zone_is_not_that_of_a_cpus_list() {
        assert_eq!(parse(ZONEINFO)[0].high, Pages(8424));
    }

    #[test]
    fn of_page_cache_what_may_go_is_available() {
        let zone = &parse(ZONEINFO)[0];
        assert_eq!(zone.available(), Pages(462_840 - 8424 + 30_000 - 7020));
        let full = ZoneInfo { free: Pages(400), cache: Pages(8000), ..zone.clone() };
        assert_eq!(full.available(), Pages(0), "below the high mark");
    }

    #[test]
    fn only_zones_that_cannot_be_named_keep_their_ends() {
        let zones = parse(ZONEINFO);
        assert!(
            zones[0].would_lose_end(Pfn(491_520), Pfn(524_288))
                && zones[0].would_lose_end(Pfn(0), Pfn(32_768))
        );
        assert!(!zones[0].would_lose_end(Pfn(32_768), Pfn(65_536)));
        assert!(!zones[2].would_lose_end(Pfn(8192), Pfn(8200)));
    }

    #[test]
    fn what_moves_goes_where_memory_hotplug_looks_for_room() {
        let zone = |node, zone, movable, free| ZoneRoom {
            node: NodeId(node),
            zone: ZoneNumber(zone),
            movable,
            free: Pages(free),
            awake_reserve: Pages(100),
            available: Pages(free),
        };
        let keeps = |zones: &[ZoneRoom], own: (i32, u32), moves| {
            keeps_reserves(zones, (NodeId(own.0), ZoneNumber(own.1)), Pages(50), Pages(moves))
        };
        // DMA32, Normal and Movable of one node
        let one = [zone(0, 1, false, 300), zone(0, 2, false, 200), zone(0, 3, true, 1000)];
        for (own, most) in [((0, 1), 250), ((0, 2), 50), ((0, 3), 850)] {
            assert!(keeps(&one, own, most) && !keeps(&one, own, most + 1), "{own:?}");
        }
        // Of two nodes the other one takes everything.
        let two = [
            zone(0, 2, false, 160),
            zone(0, 3, true, 160),
            zone(1, 2, false, 400),
            zone(1, 3, true, 600),
        ];
        for (own, most) in [((0, 2), 300), ((0, 3), 800), ((1, 2), 60)] {
            assert!(keeps(&two, own, most) && !keeps(&two, own, most + 1), "{own:?}");
        }
    }
}
