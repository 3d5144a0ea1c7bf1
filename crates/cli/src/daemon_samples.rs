//! What ramsliced knows of accesses to memory that may rest, by DAMON's samples.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ramslice_types::Ratio;
use serde::Deserialize;

/// The daemon writes its status with each step; one that is later than this has ended or hangs.
const LATE: Duration = Duration::from_mins(1);

/// The part of the daemon's file that is read here. Older daemons say less.
#[derive(Deserialize)]
struct StatusFile {
    written_unix_seconds: f64,
    next_step_seconds: f64,
    cold: Option<ColdPart>,
}

#[derive(Deserialize)]
struct ColdPart {
    unaccessed_ratio: Option<f64>,
}

/// For how much of the time, at most, nothing accessed slices that may rest; nothing if no daemon
/// watches.
pub(crate) fn unaccessed_share(path: &Path) -> Option<Ratio> {
    let status: StatusFile = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let due = status.written_unix_seconds + status.next_step_seconds;
    let late = now.as_secs_f64() - due > LATE.as_secs_f64();
    let share = status.cold?.unaccessed_ratio.filter(|_| !late)?;
    (0.0..=1.0).contains(&share).then_some(Ratio(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_that_runs_knows() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let share = |written: f64, cold: &str| {
            let text = format!(
                r#"{{"written_unix_seconds": {written}, "next_step_seconds": 5, "cold": {cold}}}"#
            );
            fs::write(file.path(), text).unwrap();
            unaccessed_share(file.path()).map(|share| share.0)
        };
        assert_eq!(share(1e12, r#"{"unaccessed_ratio": 0.25}"#), Some(0.25));
        assert_eq!(share(1.0, r#"{"unaccessed_ratio": 0.25}"#), None, "it ended long ago");
        for unknown in [r#"{"unaccessed_ratio": null}"#, "{}", "null"] {
            assert_eq!(share(1e12, unknown), None, "{unknown}");
        }
        assert_eq!(share(1e12, r#"{"unaccessed_ratio": 1.5}"#), None);
        fs::write(file.path(), "{").unwrap();
        assert_eq!(unaccessed_share(file.path()), None);
        assert_eq!(unaccessed_share(Path::new("/nonexistent/status.json")), None);
    }
}
