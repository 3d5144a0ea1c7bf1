//! What ramsliced says of itself: its mode, what its governor expects, and why it acts or not.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ramslice_energy::{Interval, range};
use ramslice_types::Joules;
use serde::{Deserialize, Serialize};

use super::draw::time;

/// Where the daemon writes it.
pub(super) const STATUS: &str = "/run/ramslice/status.json";
/// The format that is read here.
const SCHEMA_VERSION: u32 = 1;
/// How late the daemon may be before what it said counts as old.
const LATE: f64 = 10.0;

/// The daemon, as far as its file tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(super) enum Daemon {
    /// A saved machine has none.
    NotHere,
    /// There is no file: no daemon runs.
    NotRunning,
    /// The file cannot be read or understood.
    Unreadable {
        /// Why.
        error: String,
    },
    /// What it says.
    Running(Box<Status>),
}

/// The part of the daemon's file that is shown. Newer daemons may say more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Status {
    schema_version: u32,
    /// When it was written, in seconds since 1970.
    pub(super) written_unix_seconds: f64,
    /// `observe`, `on` or `off`.
    pub(super) mode: String,
    pub(super) policy: String,
    pub(super) period_seconds: f64,
    /// Until its next look, from when this was written.
    pub(super) next_step_seconds: f64,
    machine: Machine,
    /// While tasks wait for memory nothing goes off.
    #[serde(default)]
    paused_seconds: Option<f64>,
    /// Why it acts or not, in a sentence.
    pub(super) why: String,
    #[serde(default)]
    pub(super) zones: Vec<Zone>,
    /// Mode on: what came of it.
    #[serde(default)]
    earned: Option<Earned>,
    /// The most that the governor can have lost.
    #[serde(default)]
    loss_cap_joules: Option<f64>,
    /// Mode observe: what would have come of it.
    #[serde(default)]
    would_earn: Option<WouldEarn>,
}

/// Whether the daemon sees the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Machine {
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

/// A zone that the governor decides for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Zone {
    pub(super) node: i32,
    pub(super) name: String,
    pub(super) nr_slices: u32,
    pub(super) nr_offline: u32,
    pub(super) why: String,
    #[serde(default)]
    pub(super) forecast: Option<Forecast>,
}

/// What it expects, in words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Forecast {
    pub(super) text: String,
}

/// A verdict in a sentence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Earned {
    verdict: String,
}

/// What mode observe would have done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct WouldEarn {
    #[serde(default)]
    verdict: Option<String>,
    nr_offline: u32,
    woken_slices: u64,
}

impl Daemon {
    /// Reads what the daemon wrote last.
    pub(super) fn read(path: &Path) -> Self {
        let unreadable = |error: String| Self::Unreadable { error: format!("{}: {error}", path.display()) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::NotRunning,
            Err(error) => return unreadable(error.to_string()),
        };
        match serde_json::from_str::<Status>(&text) {
            Ok(status) if status.schema_version == SCHEMA_VERSION => Self::Running(Box::new(status)),
            Ok(status) => unreadable(format!(
                "format {}, and this version knows {SCHEMA_VERSION}: daemon and tools are of different versions",
                status.schema_version
            )),
            Err(error) => unreadable(error.to_string()),
        }
    }

    /// Sentences, the most important first.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Self::NotHere => Vec::new(),
            Self::NotRunning => {
                vec!["governor: no daemon runs, so nothing is decided by itself (ramsliced)".to_owned()]
            }
            Self::Unreadable { error } => vec![format!("governor: what it does cannot be read: {error}")],
            Self::Running(status) => status.words(now()),
        }
    }

    /// One sentence for a line of text.
    pub(super) fn short(&self) -> Option<String> {
        match self {
            Self::Running(status) => status.words(now()).into_iter().next(),
            _ => None,
        }
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Status {
    fn words(&self, now: f64) -> Vec<String> {
        let age = now - self.written_unix_seconds;
        let old = if age > self.next_step_seconds.max(self.period_seconds) + LATE {
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            format!("; said {} ago and nothing since: is it still there?", time(age))
        } else {
            String::new()
        };
        let head = format!("{} ({}{old})", self.policy, self.mode);
        if !self.machine.ok {
            let error = self.machine.error.as_deref().unwrap_or("no reason was given");
            return vec![format!("{head}: cannot see the machine: {error}")];
        }
        let mut words = vec![match self.paused_seconds {
            Some(left) => {
                format!("{head}: tasks wait for memory, so nothing goes off for another {left:.0} s")
            }
            None => format!("{head}: {}", self.why),
        }];
        // The same zone as that whose decision stands for all.
        let zone = self.zones.iter().max_by_key(|zone| zone.nr_slices);
        if let Some((zone, forecast)) = zone.and_then(|zone| Some((zone, zone.forecast.as_ref()?))) {
            words.push(format!("expects in {}: {}", zone.name, forecast.text));
        }
        if let Some(would) = &self.would_earn {
            let verdict =
                would.verdict.as_ref().map(|verdict| format!(". So far: {verdict}")).unwrap_or_default();
            words.push(format!(
                "would have {} slices off now, and {} woken again{verdict}",
                would.nr_offline, would.woken_slices
            ));
        } else if let Some(earned) = &self.earned {
            words.push(format!("so far: {}", earned.verdict));
        }
        if let Some(cap) = self.loss_cap_joules {
            let may = if self.mode == "observe" { "would have put at risk" } else { "can have lost" };
            words.push(format!("{may} {} at most", range(Interval::exactly(Joules(cap)))));
        }
        words
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As the daemon writes it, with more than is read.
    pub(in super::super) const TEXT: &str = r#"{
        "schema_version": 1, "version": "0.1.0", "pid": 77, "written_unix_seconds": 1000.5, "mode": "observe",
        "policy": "governor", "profile": "thesis-parc/parc", "period_seconds": 30.0, "next_step_seconds": 30.0,
        "machine": {"ok": true, "backend": "kernel", "power_driver": "simulated", "error": null},
        "paused_seconds": null, "why": "does nothing: the 40 slices that are on are needed",
        "zones": [
            {"node": 0, "zone": 1, "name": "DMA32", "nr_slices": 30, "nr_offline": 2, "nr_empty": 0,
             "why": "does nothing", "requests": [], "forecast": null},
            {"node": 0, "zone": 2, "name": "Normal", "nr_slices": 90, "nr_offline": 50, "nr_empty": 1,
             "why": "does nothing: the 40 slices that are on are needed", "requests": [],
             "forecast": {"horizon_seconds": 60.0, "slices": 42, "mean_error_slices": 1.0, "bias_slices": 0.5,
                          "checked": 9, "text": "at most 42 slices needed within 60 s"}}],
        "earned": null,
        "would_earn": {"saved_joules": {"low": 1, "high": 2}, "verdict": "Undecided: the net is 0 J, by a model.",
                       "nr_offline": 52, "woken_slices": 3, "dropped_bytes": 0, "most_at_risk_joules": null}}"#;

    fn status(change: impl Fn(&mut Status)) -> Vec<String> {
        let mut status: Status = serde_json::from_str(TEXT).unwrap();
        change(&mut status);
        status.words(1010.0)
    }

    #[test]
    fn it_tells_why_what_is_expected_and_what_came_of_it() {
        assert_eq!(
            status(|_| ()),
            [
                "governor (observe): does nothing: the 40 slices that are on are needed",
                "expects in Normal: at most 42 slices needed within 60 s",
                "would have 52 slices off now, and 3 woken again. So far: Undecided: the net is 0 J, by a model.",
            ]
        );
    }

    #[test]
    fn what_was_said_long_ago_or_under_pressure_or_blindly_is_told_as_such() {
        assert!(status(|status| status.written_unix_seconds = 700.0)[0].contains("said 5 min ago"));
        assert!(status(|status| status.paused_seconds = Some(12.0))[0].contains("for another 12 s"));
        let blind = status(|status| {
            status.machine = Machine { ok: false, error: Some("no device".to_owned()) };
        });
        assert_eq!(blind, ["governor (observe): cannot see the machine: no device"]);
    }

    #[test]
    fn the_most_that_can_be_lost_is_told_whether_it_acts_or_imagines() {
        let last = |mode: &str| {
            let words = status(|status| {
                mode.clone_into(&mut status.mode);
                status.loss_cap_joules = Some(36.0);
            });
            words.last().unwrap().clone()
        };
        assert_eq!(last("on"), "can have lost 36.0 J at most");
        assert_eq!(last("observe"), "would have put at risk 36.0 J at most");
    }

    #[test]
    fn no_file_is_no_daemon_and_another_format_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("status.json");
        assert_eq!(Daemon::read(&file), Daemon::NotRunning);
        fs::write(&file, TEXT).unwrap();
        assert!(matches!(Daemon::read(&file), Daemon::Running(_)));
        for wrong in ["", "{}", &TEXT.replace("\"schema_version\": 1", "\"schema_version\": 2")] {
            fs::write(&file, wrong).unwrap();
            let daemon = Daemon::read(&file);
            assert!(matches!(daemon, Daemon::Unreadable { .. }), "{wrong}");
            assert!(daemon.words()[0].contains("status.json"), "{:?}", daemon.words());
        }
    }
}
