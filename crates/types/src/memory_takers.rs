//! Who has memory in one piece, beside slices that are off: pools of huge pages, and buffers.

use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::units::{Bytes, NodeId};

/// The kernel's pool of huge pages of one size: all of it, or its part on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePagePool {
    /// Of a page.
    #[serde(rename = "page_bytes")]
    pub page: Bytes,
    /// Pages in the pool, with those that are lent beyond its size.
    pub total: u64,
    /// Of these not in use.
    pub free: u64,
    /// Of the free ones promised to programs. Promises are kept by the machine, not by a node: of a
    /// node's part, so many free pages stay if it alone shrinks.
    pub reserved: u64,
    /// Lent beyond the size of the pool.
    pub surplus: u64,
}

impl HugePagePool {
    /// Pages that would leave at once if the pool shrank.
    pub fn unused(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// The size that the pool was given: without what is lent beyond it.
    pub fn size(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

/// A node whose memory huge pages can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HugePageNode {
    /// The node.
    pub node: NodeId,
    /// It is another node's twin, for what is rarely used: pages are made of it only where it is
    /// named.
    pub is_cold: bool,
}

/// The kernel's books of contiguous buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BufferBooks {
    /// Buffers that exist.
    pub nr: u64,
    /// Their memory.
    pub bytes: Bytes,
    /// Requests for one that failed since boot.
    pub nr_refused: u64,
    /// Why the last of these did; `none` before the first.
    pub last_refusal: Reason,
}
