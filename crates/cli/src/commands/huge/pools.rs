//! What the kernel's pools have and what could be had, of the machine and of each node.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::Result;
use ramslice_backend::{HugePagePlace, HugePageRange, cheapest_first, huge_page_ranges};
use ramslice_types::{Backend, Bytes, HugePageNode, HugePagePool, NodeId, SliceId};
use serde::Serialize;

use crate::render::{ColumnAlign, OutputStyle, TextTable};

/// A pool, or its part on a node.
#[derive(Serialize)]
pub(super) struct PoolRow {
    /// Absent for the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
    /// The node is for what is rarely used: its ranges count only in its own row.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cold: bool,
    page_bytes: Bytes,
    total: u64,
    free: u64,
    reserved: u64,
    surplus: u64,
    /// Ranges that could be emptied for a page.
    could_be_had: usize,
    /// Ranges that cannot.
    blocked: Vec<BlockedRange>,
    /// The parts of each node, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Self>,
}

#[derive(Serialize)]
pub(super) struct BlockedRange {
    address: Bytes,
    slice: SliceId,
    reason: String,
}

/// What there is on a machine with these nodes: on one that is named, otherwise on all.
pub(super) fn pool_rows(
    backend: &dyn Backend,
    nodes: &[HugePageNode],
    place: &HugePagePlace,
    only: Option<Bytes>,
) -> Result<Vec<PoolRow>> {
    let (info, zones, snapshot) = backend.view()?;
    let pools = backend.huge_page_pools(place.named())?;
    let wanted = pools.iter().filter(|pool| only.is_none_or(|size| size == pool.page));
    let mut rows = Vec::new();
    for pool in wanted {
        let ranges = huge_page_ranges(&info, &zones, &snapshot.slices, pool.page);
        let here: Vec<_> = ranges.iter().filter(|range| place.has(range)).cloned().collect();
        let named = nodes.iter().find(|known| Some(known.node) == place.named());
        let mut row = PoolRow::new(pool, named, &here);
        if named.is_none() && nodes.len() > 1 {
            for known in nodes {
                let parts = backend.huge_page_pools(Some(known.node))?;
                let part = parts.iter().find(|part| part.page == pool.page);
                let there: Vec<_> =
                    ranges.iter().filter(|range| range.zone.node == known.node).cloned().collect();
                row.nodes.extend(part.map(|part| PoolRow::new(part, Some(known), &there)));
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

impl PoolRow {
    fn new(pool: &HugePagePool, node: Option<&HugePageNode>, ranges: &[HugePageRange]) -> Self {
        Self {
            node: node.map(|known| known.node),
            cold: node.is_some_and(|known| known.is_cold),
            page_bytes: pool.page,
            total: pool.total,
            free: pool.free,
            reserved: pool.reserved,
            surplus: pool.surplus,
            could_be_had: cheapest_first(ranges).len(),
            blocked: ranges.iter().filter_map(blocked).collect(),
            nodes: Vec::new(),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.page_bytes.to_string(),
            self.total.to_string(),
            self.free.to_string(),
            self.could_be_had.to_string(),
            reasons(&self.blocked),
        ]
    }
}

/// A row for each size; with nodes, for each node and size.
pub(super) fn write_pools(
    rows: &[PoolRow],
    out: &mut dyn Write,
    screen: &OutputStyle,
) -> io::Result<()> {
    let mut columns = vec![
        ("page", ColumnAlign::Right),
        ("in pool", ColumnAlign::Right),
        ("free", ColumnAlign::Right),
        ("could be had", ColumnAlign::Right),
        ("in the way elsewhere", ColumnAlign::Left),
    ];
    let parts = rows.iter().flat_map(|row| match row.nodes.as_slice() {
        [] => std::slice::from_ref(row),
        nodes => nodes,
    });
    let with_nodes = parts.clone().any(|row| row.node.is_some());
    if with_nodes {
        columns.insert(0, ("node", ColumnAlign::Left));
    }
    let mut table = TextTable::new(&columns);
    for row in parts {
        let mut cells = row.cells();
        if with_nodes {
            let node = row.node.map(|node| node.to_string()).unwrap_or_default();
            cells.insert(0, if row.cold { format!("{node} (cold)") } else { node });
        }
        table.row(cells);
    }
    table.write(out, screen)
}

pub(super) fn blocked(range: &HugePageRange) -> Option<BlockedRange> {
    let (slice, reason) = range.blocked?;
    Some(BlockedRange { address: range.start, slice, reason: reason.code() })
}

/// How many ranges are kept by what, the most frequent first.
pub(super) fn reasons(blocked: &[BlockedRange]) -> String {
    let mut counts = BTreeMap::new();
    for range in blocked {
        *counts.entry(range.reason.as_str()).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_reason_comes_first() {
        let blocked = |slice, reason: &str| BlockedRange {
            address: Bytes(0),
            slice: SliceId(slice),
            reason: reason.to_owned(),
        };
        let all = [blocked(1, "slab"), blocked(2, "boot"), blocked(3, "slab")];
        assert_eq!(reasons(&all), "2 slab, 1 boot");
    }
}
