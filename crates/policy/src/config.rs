//! Settings of policies, and their TOML with errors by line.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ramslice_types::{Budget, Bytes, CacheChoice, Price};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::LimitsConfig;
use crate::toml_text::{allowed, explain, spans, utf8};
use crate::watermarks_config::WatermarksConfig;

/// The version of the format.
const SCHEMA_VERSION: u32 = 1;

/// The policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Does nothing.
    Never,
    /// Compacts with a budget, periodically.
    Periodic,
    /// Four watermarks with a time-out.
    Watermarks,
    /// A threshold of utilisation, slices at random.
    Threshold,
    /// Empties fragmented slices in the background, a few in each pass.
    Repair,
    /// Our break-even governor.
    Governor,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Never,
        Self::Periodic,
        Self::Watermarks,
        Self::Threshold,
        Self::Repair,
        Self::Governor,
    ];

    /// Its name in files and at a prompt.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Periodic => "periodic",
            Self::Watermarks => "watermarks",
            Self::Threshold => "threshold",
            Self::Repair => "repair",
            Self::Governor => "governor",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "there is no policy `{name}`: there are never, periodic, watermarks, threshold, repair and \
     governor"
)]
pub struct UnknownPolicy {
    /// The given name.
    pub name: String,
}

impl std::str::FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}

/// Settings that are refused: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", place(.file, *.line))]
pub struct PolicyConfigError {
    /// The file's name as it was given; empty if the settings did not come from a file.
    pub file: String,
    /// The line, from 1; 0 if there is none.
    pub line: usize,
    /// What is wrong there, and what is allowed.
    pub message: String,
    /// The setting that is meant, as in `watermarks.free_low_mib`, or its table; empty if none is.
    pub field: String,
}

fn place(file: &str, line: usize) -> String {
    match (file.is_empty(), line) {
        (true, _) => String::new(),
        (false, 0) => format!("{file}: "),
        (false, line) => format!("{file}:{line}: "),
    }
}

/// A budget in a file: a number in units of 100 cycles, or left out for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BudgetLimit(pub Option<u64>);

impl From<BudgetLimit> for Budget {
    fn from(limit: BudgetLimit) -> Self {
        limit.0.map_or(Self::Unlimited, |units| Self::Limited(Price(units)))
    }
}

/// Settings of [`PolicyKind::PeriodicConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeriodicConfig {
    /// Time between two compactions, in seconds.
    pub period_seconds: f64,
    /// The most to spend, in units of 100 cycles, or `"inf"`; with 0, only empty slices are
    /// switched off.
    #[serde(rename = "budget_100cycles", with = "limit")]
    pub budget: BudgetLimit,
    /// The budget applies to each slice rather than to a whole compaction.
    pub per_slice: bool,
    /// The most slices to switch off in one compaction.
    pub max_slices: Option<u32>,
    /// Slices that have been empty for so many seconds go off between compactions, too; with 0,
    /// those that are empty at a look; nothing if only compactions switch slices off.
    pub empty_seconds: Option<f64>,
    /// While much memory is being taken, a compaction that is due waits, for a period at most.
    pub wait_while_growing: bool,
    /// While the processors work for more than a quarter of the time, taken over a period, a
    /// compaction that is due waits, for so many seconds at most; not at all if that is not given.
    pub wait_while_busy_seconds: Option<f64>,
    /// What a compaction does with page cache.
    pub cache: CacheChoice,
}

impl Default for PeriodicConfig {
    /// As the best runs of the case studies (thesis, section 4.3.4): every 30 s with 8 million
    /// units.
    fn default() -> Self {
        Self {
            period_seconds: 30.0,
            budget: BudgetLimit(Some(8_000_000)),
            per_slice: false,
            max_slices: None,
            empty_seconds: None,
            wait_while_growing: false,
            wait_while_busy_seconds: None,
            cache: CacheChoice::Drop,
        }
    }
}

impl PeriodicConfig {
    /// Time between two compactions.
    pub fn period(&self) -> Duration {
        seconds(self.period_seconds)
    }

    /// How long slices have to be empty before they go off between compactions.
    pub fn empty_time(&self) -> Option<Duration> {
        self.empty_seconds.map(seconds)
    }

    /// How long a compaction waits for busy processors at most.
    pub fn busy_time(&self) -> Duration {
        self.wait_while_busy_seconds.map_or(Duration::ZERO, seconds)
    }
}

/// A [`BudgetLimit`] as a number or `"inf"`.
mod limit {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::BudgetLimit;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum RawLimit {
        Number(u64),
        Word(String),
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(limit: &BudgetLimit, to: S) -> Result<S::Ok, S::Error> {
        match limit.0 {
            Some(units) => to.serialize_u64(units),
            None => to.serialize_str("inf"),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BudgetLimit, D::Error> {
        match RawLimit::deserialize(from) {
            Ok(RawLimit::Number(units)) => Ok(BudgetLimit(Some(units))),
            Ok(RawLimit::Word(word)) if word == "inf" => Ok(BudgetLimit(None)),
            _ => Err(D::Error::custom(
                "a budget is a whole number of 100 cycles, or \"inf\" for no limit",
            )),
        }
    }
}

/// Settings of [`PolicyKind::ThresholdConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdConfig {
    /// Below this share of online memory, slices go offline.
    pub low: f64,
    /// Above it, slices wake.
    pub high: f64,
    /// Time between two observations, in seconds.
    pub period_seconds: f64,
    /// The most slices to switch at one observation.
    pub max_slices: u32,
    /// The seed of the random choice.
    pub seed: u64,
}

impl Default for ThresholdConfig {
    /// Thresholds such that a tenth to a quarter of online memory stays free.
    fn default() -> Self {
        Self { low: 0.75, high: 0.9, period_seconds: 30.0, max_slices: 8, seed: 1 }
    }
}

/// By which rule [`PolicyKind::RepairConfig`] chooses the slices that it empties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CandidateRule {
    /// The cheapest, as long as not too much of a slice would be moved.
    #[default]
    Price,
    /// The least occupied, whatever they hold (Adaptive-Buddy, section IV.E).
    Paper,
}

/// Settings of [`PolicyKind::RepairConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepairConfig {
    /// Which slices are emptied.
    pub candidates: CandidateRule,
    /// Time between two passes, in seconds.
    pub period_seconds: f64,
    /// The most to spend in one pass, in units of 100 cycles, or `"inf"`.
    #[serde(rename = "budget_100cycles", with = "limit")]
    pub budget: BudgetLimit,
    /// The most slices to empty in one pass; empty slices go offline in addition.
    pub max_slices: u32,
    /// By [`CandidateRule::Price`]: the most of a slice's pages that may be moved.
    pub max_share: f64,
    /// Free memory that stays online beyond the kernel's awake reserve, in slices.
    pub keep_free_slices: u32,
}

impl Default for RepairConfig {
    /// A budget that suffices for a slice of 1 GiB of which half is moved.
    fn default() -> Self {
        Self {
            candidates: CandidateRule::Price,
            period_seconds: 30.0,
            budget: BudgetLimit(Some(32_000_000)),
            max_slices: 4,
            max_share: 0.5,
            keep_free_slices: 1,
        }
    }
}

impl RepairConfig {
    /// Time between two passes.
    pub fn period(&self) -> Duration {
        seconds(self.period_seconds)
    }
}

/// Which cost of a request counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostBasis {
    /// The CPU time that the kernel measured.
    #[default]
    Measured,
    /// The price that the kernel predicted: for an emulated machine, whose CPU time says nothing.
    Predicted,
}

/// Settings of [`PolicyKind::GovernorConfig`]. Nothing needs tuning: figures come from the profile,
/// the rest is learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GovernorConfig {
    /// The length of a day, in seconds; 0 to learn nothing from the time of day.
    pub day_seconds: f64,
    /// Which cost of a request counts.
    pub costs: CostBasis,
}

impl Default for GovernorConfig {
    fn default() -> Self {
        Self { day_seconds: 86_400.0, costs: CostBasis::Measured }
    }
}

/// A policy and the settings of all of them, as in a file.
///
/// ```toml
/// schema_version = 1
/// policy = "watermarks"
///
/// [watermarks]
/// free_low_mib = 256
/// free_high_mib = 2048
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyConfig {
    /// The policy that is chosen.
    pub policy: PolicyKind,
    /// For [`PolicyKind::PeriodicConfig`].
    pub periodic: PeriodicConfig,
    /// For [`PolicyKind::WatermarksConfig`].
    pub watermarks: WatermarksConfig,
    /// For [`PolicyKind::ThresholdConfig`].
    pub threshold: ThresholdConfig,
    /// For [`PolicyKind::RepairConfig`].
    pub repair: RepairConfig,
    /// For [`PolicyKind::GovernorConfig`].
    pub governor: GovernorConfig,
    /// What the governor keeps to, whatever pays.
    pub limits: LimitsConfig,
    #[serde(skip)]
    file: String,
    /// Lines of fields, as in `watermarks.free_low_mib`.
    #[serde(skip)]
    lines: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicyConfig {
    schema_version: u32,
    policy: PolicyKind,
    #[serde(default)]
    periodic: PeriodicConfig,
    #[serde(default)]
    watermarks: WatermarksConfig,
    #[serde(default)]
    threshold: ThresholdConfig,
    #[serde(default)]
    repair: RepairConfig,
    #[serde(default)]
    governor: GovernorConfig,
    #[serde(default)]
    limits: LimitsConfig,
}

impl PolicyConfig {
    /// A policy with its defaults.
    pub fn new(policy: PolicyKind) -> Self {
        Self {
            policy,
            periodic: PeriodicConfig::default(),
            watermarks: WatermarksConfig::default(),
            threshold: ThresholdConfig::default(),
            repair: RepairConfig::default(),
            governor: GovernorConfig::default(),
            limits: LimitsConfig::default(),
            file: String::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Reads a file's text; `file` is its name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what is allowed. What depends on the size
    /// of a slice is checked by [`Self::check`].
    pub fn parse(text: &str, file: &str) -> Result<Self, PolicyConfigError> {
        let line = |at: usize| text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        let raw: RawPolicyConfig = toml::from_str(text).map_err(|error| PolicyConfigError {
            file: file.to_owned(),
            line: line(error.span().map_or(0, |span| span.start)),
            message: explain(text, error.span(), error.message(), allowed),
            field: String::new(),
        })?;
        let lines =
            spans(text).into_iter().map(|(field, span)| (field, line(span.start))).collect();
        let config = Self {
            policy: raw.policy,
            periodic: raw.periodic,
            watermarks: raw.watermarks,
            threshold: raw.threshold,
            repair: raw.repair,
            governor: raw.governor,
            limits: raw.limits,
            file: file.to_owned(),
            lines,
        };
        if raw.schema_version != SCHEMA_VERSION {
            let message = format!(
                "schema_version is {}: these tools know {SCHEMA_VERSION}",
                raw.schema_version
            );
            return Err(config.error("schema_version", message));
        }
        config.check_numbers()?;
        Ok(config)
    }

    /// Reads a file; `file` is its name, for messages.
    ///
    /// # Errors
    /// As [`Self::parse`], and for bytes that are no text.
    pub fn parse_bytes(bytes: Vec<u8>, file: &str) -> Result<Self, PolicyConfigError> {
        match utf8(bytes) {
            Ok(text) => Self::parse(&text, file),
            Err((text, at, message)) => Err(PolicyConfigError {
                file: file.to_owned(),
                line: text[..at.start].matches('\n').count() + 1,
                message,
                field: String::new(),
            }),
        }
    }

    /// The setting, or if it was left out, its table.
    fn error(&self, field: &str, message: impl Into<String>) -> PolicyConfigError {
        let table = field.split('.').next().unwrap_or(field);
        let known =
            [field, table].into_iter().find_map(|name| Some((name, *self.lines.get(name)?)));
        let (field, line) = known.unwrap_or_default();
        PolicyConfigError {
            file: self.file.clone(),
            line,
            message: message.into(),
            field: field.to_owned(),
        }
    }

    /// Settings that are part of another file: its name, and the lines of the fields, as in
    /// `watermarks.free_low_mib`.
    #[must_use]
    pub fn at(self, file: &str, lines: BTreeMap<String, usize>) -> Self {
        Self { file: file.to_owned(), lines, ..self }
    }

    /// Checks each number by itself, whatever the size of slices.
    ///
    /// # Errors
    /// If one is out of range: the error says which.
    pub fn check_numbers(&self) -> Result<(), PolicyConfigError> {
        let marks = &self.watermarks;
        for (field, value, least) in [
            ("periodic.period_seconds", Some(self.periodic.period_seconds), 0.001),
            ("periodic.empty_seconds", self.periodic.empty_seconds, 0.0),
            ("periodic.wait_while_busy_seconds", self.periodic.wait_while_busy_seconds, 0.0),
            ("watermarks.timeout_seconds", marks.timeout_seconds, 0.001),
            ("watermarks.free_low_mib", marks.free_low_mib, 0.0),
            ("watermarks.free_high_mib", marks.free_high_mib, 0.0),
            ("watermarks.cache_free_low_mib", marks.cache_free_low_mib, 0.0),
            ("watermarks.cache_free_high_mib", marks.cache_free_high_mib, 0.0),
            ("watermarks.cache_free_low_least_mib", marks.cache_free_low_least_mib, 0.0),
            ("watermarks.cache_free_high_most_mib", marks.cache_free_high_most_mib, 0.0),
            ("threshold.period_seconds", Some(self.threshold.period_seconds), 0.001),
            ("repair.period_seconds", Some(self.repair.period_seconds), 0.001),
            ("governor.day_seconds", Some(self.governor.day_seconds), 0.0),
            ("limits.floor_mib", Some(self.limits.floor_mib), 0.0),
            ("limits.burst_reserve_mib", Some(self.limits.burst_reserve_mib), 0.0),
            ("limits.stall_ms_per_second", self.limits.stall_ms_per_second, 0.0),
        ] {
            if let Some(value) = value
                && !(least..1e12).contains(&value)
            {
                let message =
                    format!("{field} is {value}: it must be a number of at least {least}");
                return Err(self.error(field, message));
            }
        }
        let (low, high) = (self.threshold.low, self.threshold.high);
        if !(0.0 < low && low < high && high <= 1.0) {
            let message = format!(
                "threshold.low is {low} and threshold.high {high}: they must be 0 < low < high <= \
                 1"
            );
            let given = self.lines.contains_key("threshold.low");
            return Err(self.error(if given { "threshold.low" } else { "threshold.high" }, message));
        }
        if let Err((field, message)) = marks.check() {
            return Err(self.error(&format!("watermarks.{field}"), message));
        }
        let share = self.repair.max_share;
        if !(0.0..=1.0).contains(&share) {
            let message = format!(
                "repair.max_share is {share}: it is a share of a slice's pages, and must be from \
                 0 to 1"
            );
            return Err(self.error("repair.max_share", message));
        }
        for (field, value) in [
            ("threshold.max_slices", Some(self.threshold.max_slices)),
            ("periodic.max_slices", self.periodic.max_slices),
            ("repair.max_slices", Some(self.repair.max_slices)),
        ] {
            if value == Some(0) {
                return Err(self.error(field, format!("{field} is 0: it must be at least 1")));
            }
        }
        Ok(())
    }

    /// Checks everything, for slices of this size.
    ///
    /// # Errors
    /// If a number is out of range, or watermarks break the hysteresis rule: the error says which.
    pub fn check(&self, slice: Bytes) -> Result<(), PolicyConfigError> {
        self.check_numbers()?;
        if self.policy != PolicyKind::Watermarks {
            return Ok(());
        }
        if let Err((field, message)) = self.watermarks.check_hysteresis(slice) {
            return Err(self.error(&format!("watermarks.{field}"), message));
        }
        Ok(())
    }
}

impl ThresholdConfig {
    /// Time between two looks.
    pub fn period(&self) -> Duration {
        seconds(self.period_seconds)
    }
}

pub(crate) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
