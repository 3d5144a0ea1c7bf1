//! Where huge pages are made: on a node that was named, or on every node whose memory is not cold.
//!
//! The kernel makes the pages of a machine's pool on all nodes in turn. The range that was emptied
//! for one may lie on another node than the one whose turn it is: so the pool of its own node is
//! asked for the page.

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, Bytes, HugePageNode, HugePagePool, NodeId,
};

use crate::huge_page_making::HugePageRange;

/// Nodes that huge pages are made on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HugePagePlace {
    /// None on a machine with one node: there the pool is the machine's.
    nodes: Vec<NodeId>,
    named: Option<NodeId>,
}

impl HugePagePlace {
    /// The node that is named, or all but those for what is rarely used.
    ///
    /// # Errors
    /// There is no such node; nodes cannot be read.
    pub fn read(backend: &dyn Backend, named: Option<NodeId>) -> Result<Self, BackendError> {
        let known = backend.huge_page_nodes()?;
        if let Some(node) = named {
            if !known.iter().any(|found| found.node == node) {
                let message = unknown_node(node, &known);
                return Err(BackendError::new(BackendErrorKind::NotFound, message));
            }
            return Ok(Self { nodes: vec![node], named });
        }
        if known.len() < 2 {
            return Ok(Self::default());
        }
        let nodes = known.iter().filter(|found| !found.is_cold).map(|found| found.node).collect();
        Ok(Self { nodes, named })
    }

    /// The node that was named: the pool is its part.
    pub fn named(&self) -> Option<NodeId> {
        self.named
    }

    /// Whether a page may be made of this range.
    pub fn has(&self, range: &HugePageRange) -> bool {
        self.nodes.is_empty() || self.nodes.contains(&range.zone.node)
    }

    /// The node whose pool a page of this range belongs to; none for the machine's.
    pub(crate) fn node_of(&self, range: &HugePageRange) -> Option<NodeId> {
        (!self.nodes.is_empty()).then_some(range.zone.node)
    }

    /// The pools that a page may be added to, the one with the fewest pages first: as the kernel
    /// does, who needs no certain range spreads pages over nodes.
    pub(crate) fn pools(
        &self,
        backend: &dyn Backend,
        page: Bytes,
    ) -> Result<Vec<(Option<NodeId>, HugePagePool)>, BackendError> {
        let mut nodes: Vec<_> = self.nodes.iter().copied().map(Some).collect();
        if nodes.is_empty() {
            nodes.push(None);
        }
        let mut found = Vec::new();
        for node in nodes {
            let pool = backend.huge_page_pools(node)?.into_iter().find(|pool| pool.page == page);
            found.extend(pool.map(|pool| (node, pool)));
        }
        found.sort_by_key(|(_, pool)| pool.size());
        Ok(found)
    }
}

fn unknown_node(node: NodeId, known: &[HugePageNode]) -> String {
    let names: Vec<_> = known
        .iter()
        .map(|found| format!("{}{}", found.node, if found.is_cold { " (cold)" } else { "" }))
        .collect();
    let has = match names.as_slice() {
        [] => "this kernel knows no nodes".to_owned(),
        [only] => format!("this machine has node {only} alone"),
        [first @ .., last] => format!("this machine has nodes {} and {last}", first.join(", ")),
    };
    format!("there is no node {node} with memory for huge pages: {has}")
}

#[cfg(test)]
mod tests {
    use ramslice_types::{Price, ZoneNumber};

    use super::*;
    use crate::huge_page_test_backend::{NodePool, StayingBackend};
    use crate::whatif::ZoneKey;

    const PAGE: Bytes = Bytes(1 << 30);

    /// Nodes with so many pages each, and whether each is cold.
    fn machine(nodes: &[(i32, u64, bool)]) -> StayingBackend {
        let nodes = nodes.iter().map(|&(node, total, is_cold)| NodePool {
            node: HugePageNode { node: NodeId(node), is_cold },
            pool: HugePagePool { page: PAGE, total, free: total, reserved: 0, surplus: 0 },
            room: 9,
        });
        StayingBackend { node_pools: nodes.collect::<Vec<_>>().into(), ..Default::default() }
    }

    fn range(node: i32) -> HugePageRange {
        HugePageRange {
            start: Bytes(0),
            zone: ZoneKey { node: NodeId(node), zone: ZoneNumber(2) },
            to_empty: Vec::new(),
            price: Price(0),
            blocked: None,
            blocked_for_good: false,
            failed_lately: false,
        }
    }

    #[test]
    fn a_node_that_is_named_is_the_only_one_cold_or_not() {
        let machine = machine(&[(0, 0, false), (1, 0, false), (2, 0, true)]);
        for named in [1, 2] {
            let place = HugePagePlace::read(&machine, Some(NodeId(named))).unwrap();
            for node in 0..3 {
                assert_eq!(place.has(&range(node)), node == named);
            }
            assert_eq!(place.named(), Some(NodeId(named)));
            assert_eq!(place.node_of(&range(named)), Some(NodeId(named)));
        }
    }

    #[test]
    fn cold_memory_is_left_alone_unless_it_is_named() {
        let machine = machine(&[(0, 0, false), (1, 0, true)]);
        let place = HugePagePlace::read(&machine, None).unwrap();
        assert!(place.has(&range(0)) && !place.has(&range(1)));
        // Not the machine's pool: the kernel may take its page from another node
        assert_eq!(place.node_of(&range(0)), Some(NodeId(0)));
        assert_eq!(place.named(), None);
    }

    #[test]
    fn with_one_node_the_pool_is_the_machines() {
        let place = HugePagePlace::read(&machine(&[(0, 0, false)]), None).unwrap();
        assert_eq!(place.node_of(&range(0)), None);
        assert!(place.has(&range(0)));
        assert_eq!(place, HugePagePlace::default());
    }

    #[test]
    fn pools_come_by_how_few_pages_they_have() {
        let machine = machine(&[(0, 4, false), (1, 0, true), (2, 3, false), (3, 3, false)]);
        let place = HugePagePlace::read(&machine, None).unwrap();
        let nodes: Vec<_> = place.pools(&machine, PAGE).unwrap();
        let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node.unwrap().0).collect();
        assert_eq!(nodes, [2, 3, 0]);
    }

    #[test]
    fn an_unknown_node_is_answered_by_those_that_are_there() {
        let text = |machine: &StayingBackend| {
            let error = HugePagePlace::read(machine, Some(NodeId(7))).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::NotFound);
            error.to_string()
        };
        let several = text(&machine(&[(0, 0, false), (1, 0, false), (4, 0, true)]));
        assert!(several.contains("node 7") && several.ends_with("nodes 0, 1 and 4 (cold)"));
        assert!(text(&machine(&[(0, 0, false)])).ends_with("has node 0 alone"));
        assert!(text(&machine(&[])).ends_with("knows no nodes"));
    }
}
