//! Who has memory that was emptied, for status and metrics.

use ramslice_policy::{OfflineTaker, TakerValues};
use ramslice_types::{BufferBooks, Bytes, HugePagePool, NodeId};
use serde::Serialize;

/// Who has emptied memory, and why the pool of huge pages is as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TakersStatus {
    /// Those who take emptied memory, the dearest first.
    pub by_value: Vec<TakerStatus>,
    /// The pool that pages are wanted of, or were made for; absent if there is none.
    pub huge: Option<HugeTakerStatus>,
    /// Contiguous buffers that were refused since boot, whatever the reason.
    pub refused_buffers: Option<u64>,
    /// The reason for the last of these.
    pub last_refusal: Option<String>,
    /// Mode observe: pages are only worked out.
    pub imagined: bool,
    /// Why pages are made, given back or neither.
    pub why: String,
    /// The last change, and why.
    pub last_change: Option<String>,
}

/// One who takes emptied memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TakerStatus {
    /// `sleep`, `host`, `huge` or `buffers`; `nothing` for slices that are off without a driver.
    pub taker: &'static str,
    /// What a GiB is worth, as set; relative to the others.
    pub value: f64,
    /// What it has now.
    pub bytes: Bytes,
    /// Of this, what no program uses: it could be taken back. Absent for buffers: all of them are
    /// in use.
    pub unused_bytes: Option<Bytes>,
}

/// The pool of huge pages that are wanted, or its part on the node that they are wanted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HugeTakerStatus {
    /// The size of a page.
    pub page_bytes: Bytes,
    /// The node; absent for the whole pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// So many are wanted.
    pub wanted_pages: u64,
    /// In the pool, with what is lent beyond its size.
    pub total_pages: u64,
    /// In no use, and promised to no program.
    pub unused_pages: u64,
    /// Made by the daemon; it gives back no others.
    pub made_pages: u64,
    /// The administrator's own number.
    pub administrators_pages: u64,
}

impl HugeTakerStatus {
    /// Of a pool of which so many pages are wanted and were made.
    pub fn new(pool: &HugePagePool, node: Option<NodeId>, wanted: u64, made: u64) -> Self {
        Self {
            page_bytes: pool.page,
            node,
            wanted_pages: wanted,
            total_pages: pool.total,
            unused_pages: pool.unused(),
            made_pages: made,
            administrators_pages: pool.size().saturating_sub(made),
        }
    }
}

impl TakersStatus {
    /// Sets who has what.
    pub fn set_takers(
        &mut self,
        values: &TakerValues,
        (offline, offline_bytes): (OfflineTaker, Bytes),
        pools: &[HugePagePool],
        huge: Option<HugeTakerStatus>,
        buffers: Option<&BufferBooks>,
    ) {
        let sum = |of: fn(&HugePagePool) -> u64| -> Bytes {
            pools.iter().map(|pool| pool.page * of(pool)).sum()
        };
        let mut rows = vec![TakerStatus {
            taker: offline.name(),
            value: offline.value(values),
            bytes: offline_bytes,
            unused_bytes: Some(offline_bytes),
        }];
        if !pools.is_empty() {
            rows.push(TakerStatus {
                taker: "huge",
                value: values.huge,
                bytes: sum(|pool| pool.total),
                unused_bytes: Some(sum(HugePagePool::unused)),
            });
        }
        if let Some(books) = buffers {
            rows.push(TakerStatus {
                taker: "buffers",
                value: values.buffers,
                bytes: books.bytes,
                unused_bytes: None,
            });
        }
        rows.sort_by(|one, other| other.value.total_cmp(&one.value));
        self.by_value = rows;
        self.huge = huge;
        self.refused_buffers = buffers.map(|books| books.nr_refused);
        self.last_refusal =
            buffers.filter(|books| books.nr_refused > 0).map(|books| books.last_refusal.code());
    }
}
