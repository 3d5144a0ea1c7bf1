//! What ramsliced says of those who take emptied memory, for `status` and `top`.

use std::fs;
use std::path::Path;

use ramslice_types::{Bytes, NodeId};
use serde::{Deserialize, Serialize};

/// Where the daemon writes its status.
pub(crate) const STATUS: &str = "/run/ramslice/status.json";

/// Who has emptied memory, as in the daemon's file. Newer daemons may say more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct DaemonTakers {
    /// The dearest first.
    #[serde(default)]
    by_value: Vec<DaemonTaker>,
    /// The pool that pages are wanted of; absent if it is left alone.
    #[serde(default)]
    huge: Option<DaemonHugePool>,
    /// Why pages are made, given back or neither.
    #[serde(default)]
    why: String,
    /// The last change.
    #[serde(default)]
    last_change: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct DaemonTaker {
    taker: String,
    value: f64,
    bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct DaemonHugePool {
    page_bytes: Bytes,
    /// Absent for the whole pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
    wanted_pages: u64,
    total_pages: u64,
    unused_pages: u64,
    made_pages: u64,
}

/// The part of the daemon's file that is read here.
#[derive(Deserialize)]
struct StatusFile {
    takers: Option<DaemonTakers>,
}

impl DaemonTakers {
    /// What the daemon wrote last; none if no daemon runs, or if it is an older one.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        serde_json::from_str::<StatusFile>(&text).ok()?.takers
    }

    /// A sentence; none while the pool is left alone.
    pub(crate) fn words(&self) -> Option<String> {
        let pool = self.huge.as_ref()?;
        let values: Vec<_> = self
            .by_value
            .iter()
            .map(|row| format!("{} {} ({})", row.taker, row.value, row.bytes))
            .collect();
        let last = self.last_change.as_ref().filter(|last| **last != self.why);
        let last = last.map_or_else(String::new, |last| format!("; last it {last}"));
        Some(format!(
            "emptied memory, dearest first: {}; huge pages of {}{}: {} of {} wanted, {} unused, \
             {} made; {}{last}",
            values.join(", "),
            pool.page_bytes,
            pool.node.map_or_else(String::new, |node| format!(" on node {node}")),
            pool.total_pages,
            pool.wanted_pages,
            pool.unused_pages,
            pool.made_pages,
            self.why,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takers(huge: &serde_json::Value) -> DaemonTakers {
        serde_json::from_value(serde_json::json!({
            "by_value": [
                {"taker": "huge", "value": 10.0, "bytes": 3_u64 << 30, "unused_bytes": 2_u64 << 30},
                {"taker": "sleep", "value": 1.0, "bytes": 4_u64 << 30, "unused_bytes": 4_u64 << 30},
            ],
            "huge": huge, "refused_buffers": 0, "last_refusal": null, "imagined": false,
            "why": "the pool has all pages that are wanted", "last_change": "made 2 huge pages",
        }))
        .unwrap()
    }

    #[test]
    fn the_sentence_has_values_memory_and_the_reason() {
        let huge = serde_json::json!({
            "page_bytes": 1 << 30, "wanted_pages": 3, "total_pages": 3, "unused_pages": 2,
            "made_pages": 2, "administrators_pages": 1,
        });
        assert_eq!(
            takers(&huge).words().unwrap(),
            "emptied memory, dearest first: huge 10 (3 GiB), sleep 1 (4 GiB); huge pages of 1 GiB: \
             3 of 3 wanted, 2 unused, 2 made; the pool has all pages that are wanted; last it made \
             2 huge pages"
        );
        let huge = serde_json::json!({
            "page_bytes": 1 << 30, "node": 1, "wanted_pages": 3, "total_pages": 0,
            "unused_pages": 0, "made_pages": 0,
        });
        let words = takers(&huge).words().unwrap();
        assert!(words.contains("huge pages of 1 GiB on node 1: 0 of 3 wanted"), "{words}");
    }

    #[test]
    fn a_pool_that_is_left_alone_is_not_mentioned() {
        assert_eq!(takers(&serde_json::Value::Null).words(), None);
        assert_eq!(DaemonTakers::read(Path::new("/no/such/file")), None);
    }
}
