//! Watermarks that follow the hit ratio, from the status that ramsliced writes: rows of the table
//! `vmstat`, and a note for each move.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::proc_statistics::StatisticLine;

/// Where the daemon writes its status, below the root.
const STATUS: &str = "run/ramslice/status.json";
/// Rows are called `ramslice_cache_free_low_node0_Normal`.
const PREFIXES: [&str; 2] = ["ramslice_cache_free_low_", "ramslice_cache_free_high_"];
/// Notes of moves begin with this.
pub const MOVE_NOTE: &str = "ramsliced ";
/// How late the daemon may be before its status counts as left by one that ended.
const LATE_SECONDS: f64 = 10.0;

/// Whether a row of the table `vmstat` is a watermark.
pub(crate) fn is_watermark(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The part of the status that is recorded.
#[derive(Debug, Default, Deserialize)]
struct ReadDaemonStatus {
    written_unix_seconds: f64,
    period_seconds: f64,
    #[serde(default)]
    zones: Vec<ZoneStatus>,
}

#[derive(Debug, Deserialize)]
struct ZoneStatus {
    node: i32,
    name: String,
    #[serde(default)]
    watermarks: Option<ZoneWatermarkBytes>,
}

#[derive(Debug, Deserialize)]
struct ZoneWatermarkBytes {
    cache_free_low_bytes: i64,
    cache_free_high_bytes: i64,
    moves: u64,
    #[serde(default)]
    last_move: Option<String>,
}

/// Follows the watermarks of a daemon.
#[derive(Debug, Default)]
pub(crate) struct DaemonWatermarks {
    /// Moves that were seen, by node and zone.
    moves: BTreeMap<String, u64>,
}

impl DaemonWatermarks {
    /// The watermarks at `unix_seconds`, and a note for each zone in which they moved since the
    /// last time. Nothing without a daemon, or with one whose watermarks follow nothing.
    pub(crate) fn read(
        &mut self,
        root: &Path,
        unix_seconds: f64,
    ) -> (Vec<StatisticLine>, Vec<String>) {
        let (mut lines, mut notes) = (Vec::new(), Vec::new());
        let text = fs::read_to_string(root.join(STATUS)).unwrap_or_default();
        let status: ReadDaemonStatus = serde_json::from_str(&text).unwrap_or_default();
        let age = unix_seconds - status.written_unix_seconds;
        if age > 2.0 * status.period_seconds + LATE_SECONDS {
            return (lines, notes);
        }
        for zone in status.zones {
            let Some(marks) = zone.watermarks else { continue };
            let place = format!("node{}_{}", zone.node, zone.name);
            let values = [marks.cache_free_low_bytes, marks.cache_free_high_bytes];
            lines.extend(PREFIXES.into_iter().zip(values).map(|(prefix, value)| StatisticLine {
                name: format!("{prefix}{place}"),
                value,
                unit: "bytes",
            }));
            let before = self.moves.insert(place.clone(), marks.moves);
            // Moves from before the recording are not of it.
            if let (Some(before), Some(why)) = (before, marks.last_move)
                && before != marks.moves
            {
                notes.push(format!("{MOVE_NOTE}{place}: {why}"));
            }
        }
        (lines, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(written: f64, moves: u64) -> String {
        let last = if moves > 0 { "\"raises them\"" } else { "null" };
        format!(
            r#"{{"written_unix_seconds": {written}, "period_seconds": 30.0, "zones": [
                {{"node": 0, "name": "DMA32"}},
                {{"node": 0, "name": "Normal", "watermarks": {{"cache_free_low_bytes": 64,
                  "cache_free_high_bytes": 128, "moves": {moves}, "last_move": {last}}}}}]}}"#
        )
    }

    #[test]
    fn watermarks_are_rows_and_each_move_is_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = DaemonWatermarks::default();
        assert_eq!(watch.read(dir.path(), 1000.0), (Vec::new(), Vec::new()));
        let path = dir.path().join(STATUS);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, status(1000.0, 3)).unwrap();
        let (lines, notes) = watch.read(dir.path(), 1001.0);
        let found: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.value)).collect();
        let (low, high) =
            ("ramslice_cache_free_low_node0_Normal", "ramslice_cache_free_high_node0_Normal");
        assert_eq!(found, [(low, 64), (high, 128)]);
        assert!(lines.iter().all(|line| is_watermark(&line.name)) && notes.is_empty());
        fs::write(&path, status(1030.0, 4)).unwrap();
        let notes = watch.read(dir.path(), 1031.0).1;
        assert_eq!(notes, ["ramsliced node0_Normal: raises them"]);
        assert!(watch.read(dir.path(), 1032.0).1.is_empty(), "once");
        // A daemon that ended leaves its file.
        assert!(watch.read(dir.path(), 1130.0).0.is_empty());
        fs::write(&path, "half").unwrap();
        assert!(watch.read(dir.path(), 1131.0).0.is_empty());
    }
}
