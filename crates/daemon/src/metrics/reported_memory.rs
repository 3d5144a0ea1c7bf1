//! What the host was told that it may use, and its integral over time.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use ramslice_types::{BackendInfo, Bytes};

use super::number;

/// Gauge and counter, and the look that the counter reaches to.
#[derive(Debug, Default)]
pub(super) struct ReportedMemory {
    bytes: Gauge,
    byte_seconds: Counter<f64, AtomicU64>,
    last_look: Mutex<Option<(Duration, Bytes)>>,
}

impl ReportedMemory {
    /// From metrics that are registered.
    pub(super) fn new(bytes: Gauge, byte_seconds: Counter<f64, AtomicU64>) -> Self {
        Self { bytes, byte_seconds, last_look: Mutex::default() }
    }

    /// Notes a look at `time` of the machine's clock. What was reported then counts until the next.
    pub(super) fn look(&self, info: &BackendInfo, time: Duration) {
        let reported = info.reported_pages().bytes(info.page_bytes);
        self.bytes.set(number(reported.0));
        let mut last = self.last_look.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((before, bytes)) = last.replace((time, reported)) {
            let seconds = time.saturating_sub(before).as_secs_f64();
            self.byte_seconds.inc_by(bytes.0 as f64 * seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(power_driver: &str, offline_pages: u64) -> BackendInfo {
        serde_json::from_value(serde_json::json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
            "slice_bytes": 64 << 20, "chunk_bytes": 4 << 20, "nr_slices": 16, "nr_zones": 1,
            "event_seq": 0, "managed_pages": 262_144, "free_pages": 65_536,
            "offline_pages": offline_pages, "quarantined_pages": 0, "power_driver": power_driver,
        }))
        .unwrap()
    }

    fn looks(looks: &[(u64, &str, u64)]) -> (i64, f64) {
        let memory = ReportedMemory::default();
        for &(seconds, driver, pages) in looks {
            memory.look(&info(driver, pages), Duration::from_secs(seconds));
        }
        (memory.bytes.get(), memory.byte_seconds.get())
    }

    #[test]
    fn each_look_counts_until_the_next() {
        let found = looks(&[(100, "report", 10), (130, "report", 4), (140, "report", 1)]);
        assert_eq!(found, (4096, 4096.0 * (10.0 * 30.0 + 4.0 * 10.0)));
    }

    #[test]
    fn only_what_the_driver_reports_counts() {
        assert_eq!(looks(&[(100, "simulated", 10), (130, "none", 10)]), (0, 0.0));
        // Until the driver went
        let found = looks(&[(0, "report", 10), (1, "none", 10), (2, "none", 10)]);
        assert_eq!(found, (0, 40_960.0));
    }

    #[test]
    fn a_clock_that_begins_again_takes_nothing_away() {
        assert_eq!(looks(&[(100, "report", 10), (5, "report", 10)]), (40_960, 0.0));
    }
}
