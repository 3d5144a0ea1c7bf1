//! What ramsliced says of itself: its mode, what its governor expects, and why it acts or not.

use std::cmp::Reverse;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ramslice_energy::{Interval, range};
use ramslice_types::{Bytes, Joules};
use serde::{Deserialize, Serialize};

use crate::daemon_takers::DaemonTakers;
pub(super) use crate::daemon_takers::STATUS;
use crate::render::short_time;

/// The format that is read here.
const SCHEMA_VERSION: u32 = 1;
/// How late the daemon may be before what it said counts as old.
const LATE: f64 = 10.0;

/// The daemon, as far as its file says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(super) enum DaemonStatus {
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
    Running(Box<DaemonStatusFile>),
}

/// The part of the daemon's file that is shown. Newer daemons may say more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct DaemonStatusFile {
    schema_version: u32,
    /// When it was written, in seconds since 1970.
    pub(super) written_unix_seconds: f64,
    /// `observe`, `on` or `off`.
    pub(super) mode: String,
    pub(super) policy: String,
    pub(super) period_seconds: f64,
    /// Until its next look, from when this was written.
    pub(super) next_step_seconds: f64,
    machine: DaemonMachine,
    /// While tasks wait for memory nothing goes off.
    #[serde(default)]
    paused_seconds: Option<f64>,
    /// Why it acts or not, in a sentence. Where it decides for zones, this is one of theirs.
    pub(super) why: String,
    /// What the operator should know, a sentence each.
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    pub(super) zones: Vec<GovernedZone>,
    /// Mode on: what came of it.
    #[serde(default)]
    earned: Option<EarnedVerdict>,
    /// The most that the governor can have lost.
    #[serde(default)]
    loss_cap_joules: Option<f64>,
    /// Mode observe: what would have come of it.
    #[serde(default)]
    would_earn: Option<WhatIfVerdict>,
    /// Mode on, by a profile of memory that is given back, or by none.
    #[serde(default)]
    given_back: Option<GivenBackWords>,
    /// The same of mode observe.
    #[serde(default)]
    would_give_back: Option<GivenBackWords>,
    /// What moves by itself to cold nodes; older daemons have none.
    #[serde(default)]
    cold: Option<ColdSummary>,
    /// Who has emptied memory; older daemons do not say.
    #[serde(default)]
    takers: Option<DaemonTakers>,
}

/// What moves by itself to cold nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct ColdSummary {
    state: String,
    why: String,
    #[serde(default)]
    nodes: Vec<ColdNodeSummary>,
}

/// What has moved between a node and its cold node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct ColdNodeSummary {
    to_cold_bytes_per_second: Option<Bytes>,
    moved_to_cold_bytes: Bytes,
    moved_back_bytes: Bytes,
}

impl ColdSummary {
    /// A sentence; none if nothing is to move.
    fn words(&self) -> Option<String> {
        if self.state == "off" {
            return None;
        }
        let sum = |of: fn(&ColdNodeSummary) -> Bytes| self.nodes.iter().map(of).sum::<Bytes>();
        let (there, back) =
            (sum(|node| node.moved_to_cold_bytes), sum(|node| node.moved_back_bytes));
        let rate = sum(|node| node.to_cold_bytes_per_second.unwrap_or_default());
        let rate = if rate > Bytes::ZERO { format!(" at {rate}/s at most") } else { String::new() };
        Some(format!(
            "cold memory ({}): {}{rate}; so far {there} there and {back} back",
            self.state, self.why
        ))
    }
}

/// Whether the daemon sees the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct DaemonMachine {
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

/// A zone that the governor decides for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct GovernedZone {
    pub(super) node: i32,
    pub(super) name: String,
    pub(super) nr_slices: u32,
    pub(super) nr_offline: u32,
    #[serde(default)]
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) forecast: Option<ZoneForecast>,
    /// Watermarks that follow the hit ratio; older daemons have none.
    #[serde(default)]
    pub(super) watermarks: Option<ZoneWatermarks>,
}

/// Watermarks that follow the hit ratio.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ZoneWatermarks {
    cache_free_low_bytes: Bytes,
    cache_free_high_bytes: Bytes,
    why: String,
    moves: u64,
    #[serde(default)]
    last_move: Option<String>,
}

impl ZoneWatermarks {
    /// Why they are where they are, and why they moved last if that was earlier.
    fn words(&self) -> String {
        let (low, high) = (self.cache_free_low_bytes, self.cache_free_high_bytes);
        let last = self.last_move.as_ref().filter(|last| **last != self.why);
        let last = last.map_or_else(String::new, |last| format!("; last it {last}"));
        let plural = if self.moves == 1 { "" } else { "s" };
        format!("watermarks {low} and {high} ({} move{plural}): {}{last}", self.moves, self.why)
    }
}

/// What it expects, in words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ZoneForecast {
    pub(super) text: String,
}

/// What was given to the host, in a sentence without its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct GivenBackWords {
    sentence: String,
}

/// A verdict in a sentence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct EarnedVerdict {
    verdict: String,
}

/// What mode observe would have done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct WhatIfVerdict {
    #[serde(default)]
    verdict: Option<String>,
    nr_offline: u32,
    woken_slices: u64,
}

/// Sentences, for a screen that may have no room for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DaemonSentences {
    /// What it does: of zones, the largest.
    pub(super) decisions: Vec<String>,
    /// The other zones, the largest first, and what came of it.
    pub(super) details: Vec<String>,
    /// What the operator should know.
    pub(super) notes: Vec<String>,
}

impl DaemonSentences {
    fn single(sentence: String) -> Self {
        Self { decisions: vec![sentence], ..Self::default() }
    }
}

impl DaemonStatus {
    /// Reads what the daemon wrote last.
    pub(super) fn read(path: &Path) -> Self {
        let unreadable =
            |error: String| Self::Unreadable { error: format!("{}: {error}", path.display()) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::NotRunning,
            Err(error) => return unreadable(error.to_string()),
        };
        match serde_json::from_str::<DaemonStatusFile>(&text) {
            Ok(status) if status.schema_version == SCHEMA_VERSION => {
                Self::Running(Box::new(status))
            }
            Ok(status) => unreadable(format!(
                "format {}, and this version knows {SCHEMA_VERSION}: daemon and tools are of \
                 different versions",
                status.schema_version
            )),
            Err(error) => unreadable(error.to_string()),
        }
    }

    /// What there is to say. Zones are named with their nodes if the machine has several.
    pub(super) fn words(&self, several_nodes: bool) -> DaemonSentences {
        match self {
            Self::NotHere => DaemonSentences::default(),
            Self::NotRunning => DaemonSentences::single(
                "governor: no daemon runs, so nothing is decided by itself (ramsliced)".to_owned(),
            ),
            Self::Unreadable { error } => {
                DaemonSentences::single(format!("governor: what it does cannot be read: {error}"))
            }
            Self::Running(status) => status.words(now(), several_nodes),
        }
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl GovernedZone {
    /// Why, and what is expected; nothing if neither is stated.
    fn words(&self) -> Option<String> {
        let expects = self.forecast.as_ref().map(|forecast| format!("expects {}", forecast.text));
        let words: Vec<String> = self.why.iter().cloned().chain(expects).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn place(&self, several_nodes: bool) -> String {
        if several_nodes { format!("node {} {}", self.node, self.name) } else { self.name.clone() }
    }
}

impl DaemonStatusFile {
    fn words(&self, now: f64, several_nodes: bool) -> DaemonSentences {
        let age = now - self.written_unix_seconds;
        let old = if age > self.next_step_seconds.max(self.period_seconds) + LATE {
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            format!("; said {} ago and nothing since: is it still there?", short_time(age))
        } else {
            String::new()
        };
        let head = format!("{} ({}{old})", self.policy, self.mode);
        if !self.machine.ok {
            let error = self.machine.error.as_deref().unwrap_or("no reason was given");
            return DaemonSentences::single(format!("{head}: cannot see the machine: {error}"));
        }
        let mut zones: Vec<&GovernedZone> = self.zones.iter().collect();
        zones.sort_by_key(|zone| Reverse(zone.nr_slices));
        let mut zones = zones.into_iter().filter_map(|zone| {
            Some(format!("in {}: {}", zone.place(several_nodes), zone.words()?))
        });
        let decisions = if let Some(left) = self.paused_seconds {
            let pause = format!(
                "{head}: tasks wait for memory, so nothing goes off for another {left:.0} s"
            );
            [pause].into_iter().chain(zones.next()).collect()
        } else if self.zones.iter().any(|zone| zone.why.is_some()) {
            // Each zone has its own reason. That of the whole is of one of them, and need not be of
            // the largest.
            zones.next().map(|zone| format!("{head} {zone}")).into_iter().collect()
        } else {
            [format!("{head}: {}", self.why)].into_iter().chain(zones.next()).collect()
        };
        let notes = self.notes.iter().map(|note| format!("note: {note}")).collect();
        let details = zones.chain(self.watermarks(several_nodes)).chain(self.results()).collect();
        DaemonSentences { decisions, details, notes }
    }

    /// Where watermarks are that follow the hit ratio, and why.
    fn watermarks(&self, several_nodes: bool) -> Vec<String> {
        let words = |zone: &GovernedZone| {
            let words = zone.watermarks.as_ref()?.words();
            Some(format!("in {}: {words}", zone.place(several_nodes)))
        };
        self.zones.iter().filter_map(words).collect()
    }

    /// What came of it.
    fn results(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(would) = &self.would_earn {
            let verdict = would
                .verdict
                .as_ref()
                .map(|verdict| format!(". So far: {verdict}"))
                .unwrap_or_default();
            words.push(format!(
                "would have {} slices off now, and {} woken again{verdict}",
                would.nr_offline, would.woken_slices
            ));
        } else if let Some(earned) = &self.earned {
            words.push(format!("so far: {}", earned.verdict));
        }
        if let Some(given) = self.would_give_back.as_ref().or(self.given_back.as_ref()) {
            words.push(format!("so far: {}", given.sentence));
        }
        if let Some(cap) = self.loss_cap_joules {
            let may =
                if self.mode == "observe" { "would have put at risk" } else { "can have lost" };
            words.push(format!("{may} {} at most", range(Interval::exactly(Joules(cap)))));
        }
        words.extend(self.cold.as_ref().and_then(ColdSummary::words));
        words.extend(self.takers.as_ref().and_then(DaemonTakers::words));
        words
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As the daemon writes it, with more than is read.
    pub(in super::super) const TEXT: &str = r#"{
        "schema_version": 1, "version": "0.1.0", "pid": 77, "written_unix_seconds": 1000.5,
        "mode": "observe",
        "policy": "governor", "profile": "thesis-parc/parc", "period_seconds": 30.0,
        "next_step_seconds": 30.0,
        "machine": {"ok": true, "backend": "kernel", "power_driver": "simulated", "error": null},
        "paused_seconds": null, "why": "does nothing: the 28 slices that are on are needed",
        "notes": ["What is saved is a guess: the profile is of another machine."],
        "zones": [
            {"node": 0, "zone": 1, "name": "DMA32", "nr_slices": 30, "nr_offline": 2, "nr_empty": 0,
             "why": "does nothing: the 28 slices that are on are needed", "requests": [],
             "forecast": null},
            {"node": 0, "zone": 2, "name": "Normal", "nr_slices": 90, "nr_offline": 50,
            "nr_empty": 1,
             "why": "does nothing: the 40 slices that are on are needed", "requests": [],
             "forecast": {"horizon_seconds": 60.0, "slices": 42, "mean_error_slices": 1.0,
             "bias_slices": 0.5,
                          "checked": 9, "text": "at most 42 slices needed within 60 s"}}],
        "earned": null,
        "would_earn": {"saved_joules": {"low": 1, "high": 2},
        "verdict": "Undecided: the net is 0 J, by a model.",
                       "nr_offline": 52, "woken_slices": 3, "dropped_bytes": 0,
                       "most_at_risk_joules": null}}"#;

    fn status(several_nodes: bool, change: impl Fn(&mut DaemonStatusFile)) -> DaemonSentences {
        let mut status: DaemonStatusFile = serde_json::from_str(TEXT).unwrap();
        change(&mut status);
        status.words(1010.0, several_nodes)
    }

    #[test]
    fn it_reports_the_reason_the_forecast_and_the_outcome() {
        let words = status(false, |_| ());
        assert_eq!(
            words.decisions,
            ["governor (observe) in Normal: does nothing: the 40 slices that are on are \
                 needed; expects at most 42 slices needed within 60 s"],
            "reason and forecast are of one zone, the largest, whichever one the daemon's own \
             reason is of"
        );
        assert_eq!(
            words.details,
            [
                "in DMA32: does nothing: the 28 slices that are on are needed",
                "would have 52 slices off now, and 3 woken again. So far: Undecided: the net is 0 \
                 J, by a model.",
            ]
        );
        assert_eq!(
            words.notes,
            ["note: What is saved is a guess: the profile is of another machine."]
        );
    }

    #[test]
    fn what_moves_by_itself_is_a_sentence_and_nothing_where_it_is_off() {
        let details = |state: &str| {
            let cold = format!(
                r#"{{"state": "{state}", "why": "moves what is idle", "nodes": [
                    {{"node": 0, "to_cold_bytes_per_second": 8388608, "room_bytes": 1,
                      "moved_to_cold_bytes": 134217728, "moved_back_bytes": 1048576}}]}}"#
            );
            status(false, |status| status.cold = serde_json::from_str(&cold).unwrap()).details
        };
        assert_eq!(
            details("running").last().unwrap(),
            "cold memory (running): moves what is idle at 8 MiB/s at most; so far 128 MiB there \
             and 1 MiB back"
        );
        assert_eq!(details("off"), status(false, |_| ()).details);
    }

    #[test]
    fn who_has_emptied_memory_is_a_sentence_where_huge_pages_are_wanted() {
        let details = |huge: &str| {
            let takers = format!(
                r#"{{"by_value": [{{"taker": "huge", "value": 10, "bytes": 1073741824}}],
                    "huge": {huge}, "why": "huge pages are worth most"}}"#
            );
            status(false, |status| status.takers = serde_json::from_str(&takers).unwrap()).details
        };
        let huge = r#"{"page_bytes": 1073741824, "wanted_pages": 2, "total_pages": 1,
                       "unused_pages": 1, "made_pages": 1}"#;
        assert_eq!(
            details(huge).last().unwrap(),
            "emptied memory, dearest first: huge 10 (1 GiB); huge pages of 1 GiB: 1 of 2 wanted, 1 \
             unused, 1 made; huge pages are worth most"
        );
        assert_eq!(details("null"), status(false, |_| ()).details);
    }

    #[test]
    fn watermarks_that_follow_the_hit_ratio_have_their_reason() {
        let words = status(false, |status| {
            status.zones[1].watermarks = Some(ZoneWatermarks {
                cache_free_low_bytes: Bytes(128 << 20),
                cache_free_high_bytes: Bytes(256 << 20),
                why: "leaves the watermarks".to_owned(),
                moves: 2,
                last_move: Some("raises them".to_owned()),
            });
        });
        assert_eq!(
            words.details[1],
            "in Normal: watermarks 128 MiB and 256 MiB (2 moves): leaves the watermarks; last it \
             raises them"
        );
    }

    #[test]
    fn each_zone_of_each_node_has_its_reason_the_largest_first() {
        let words = status(true, |status| {
            let mut other = status.zones[1].clone();
            (other.node, other.nr_slices) = (1, 128);
            other.why = Some("switches off 3 slices".to_owned());
            other.forecast = None;
            status.zones.push(other);
        });
        assert_eq!(words.decisions, ["governor (observe) in node 1 Normal: switches off 3 slices"]);
        let starts =
            ["in node 0 Normal: does nothing: the 40", "in node 0 DMA32: does nothing: the 28"];
        for (words, start) in words.details.iter().zip(starts) {
            assert!(words.starts_with(start), "{words}");
        }
    }

    #[test]
    fn the_file_of_an_older_daemon_is_shown_as_far_as_it_goes() {
        let mut file: serde_json::Value = serde_json::from_str(TEXT).unwrap();
        file.as_object_mut().unwrap().remove("notes");
        for zone in file["zones"].as_array_mut().unwrap() {
            zone.as_object_mut().unwrap().remove("why");
        }
        let words = |file: &serde_json::Value| {
            serde_json::from_value::<DaemonStatusFile>(file.clone()).unwrap().words(1010.0, false)
        };
        let whole = "governor (observe): does nothing: the 28 slices that are on are needed";
        let found = words(&file);
        assert_eq!(
            found.decisions,
            [whole, "in Normal: expects at most 42 slices needed within 60 s"]
        );
        assert_eq!((found.details.len(), found.notes), (1, Vec::new()));
        file.as_object_mut().unwrap().remove("zones");
        assert_eq!(words(&file).decisions, [whole]);
    }

    #[test]
    fn old_statements_pressure_and_a_lost_machine_are_marked() {
        let old = status(false, |status| status.written_unix_seconds = 700.0);
        assert!(old.decisions[0].contains("said 5 min ago"));
        let paused = status(false, |status| status.paused_seconds = Some(12.0)).decisions;
        assert!(
            paused[0].contains("for another 12 s") && paused[1].starts_with("in Normal: "),
            "{paused:?}"
        );
        let blind = status(false, |status| {
            status.machine = DaemonMachine { ok: false, error: Some("no device".to_owned()) };
        });
        assert_eq!(
            blind,
            DaemonSentences::single(
                "governor (observe): cannot see the machine: no device".to_owned()
            )
        );
    }

    #[test]
    fn the_greatest_possible_loss_is_shown_in_both_modes() {
        let last = |mode: &str| {
            let words = status(false, |status| {
                mode.clone_into(&mut status.mode);
                status.loss_cap_joules = Some(36.0);
            });
            words.details.last().unwrap().clone()
        };
        assert_eq!(last("on"), "can have lost 36.0 J at most");
        assert_eq!(last("observe"), "would have put at risk 36.0 J at most");
    }

    #[test]
    fn memory_that_was_or_would_have_been_given_back_is_told_with_its_cost() {
        let given = |would: bool, sentence: &str| {
            let words = status(false, |status| {
                let words = Some(GivenBackWords { sentence: sentence.to_owned() });
                if would {
                    status.would_give_back = words;
                } else {
                    status.given_back = words;
                }
            });
            words.details.last().unwrap().clone()
        };
        let sentence = "would have given back 2.00 GiB for 3.00 hours (6.00 GiB h) at a cost of \
                        0.003 GiB h";
        assert_eq!(given(true, sentence), format!("so far: {sentence}"));
        assert_eq!(given(false, "gave back 1 GiB"), "so far: gave back 1 GiB");
    }

    #[test]
    fn no_file_is_no_daemon_and_another_format_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("status.json");
        assert_eq!(DaemonStatus::read(&file), DaemonStatus::NotRunning);
        fs::write(&file, TEXT).unwrap();
        assert!(matches!(DaemonStatus::read(&file), DaemonStatus::Running(_)));
        for wrong in ["", "{}", &TEXT.replace("\"schema_version\": 1", "\"schema_version\": 2")] {
            fs::write(&file, wrong).unwrap();
            let daemon = DaemonStatus::read(&file);
            assert!(matches!(daemon, DaemonStatus::Unreadable { .. }), "{wrong}");
            let words = daemon.words(false).decisions;
            assert!(words[0].contains("status.json"), "{words:?}");
        }
    }
}
