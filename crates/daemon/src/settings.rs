//! Settings: the TOML file, checked as a compiler would. An error says where, what is wrong, and
//! what
//! is allowed.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ramslice_policy::{PolicyConfig, PolicyKind, TakersConfig, settings as policies};
use serde::Deserialize;
use toml::Spanned;

use crate::mode::DaemonMode;
use crate::settings_cold::RawCold;
use crate::settings_energy::RawEnergy;
use crate::settings_files::{SettingsFile, count_drop_ins, merged_text, read_files};
use crate::settings_idle_cache::RawIdleCache;
use crate::settings_schema::{allowed, limits};
use crate::settings_takers::RawTakers;
use crate::worth_plan::WorthPlan;

pub use crate::settings_cold::ColdSettings;
pub use crate::settings_idle_cache::IdleCacheSettings;

/// The settings file.
pub const PATH: &str = "/etc/ramslice/ramsliced.toml";

/// A file with all settings: defaults, and examples where there is none.
pub const SAMPLE: &str = include_str!("../../../packaging/ramsliced.toml");

/// The version of the format.
const SCHEMA_VERSION: u32 = 1;

/// The address of the metrics unless the file gives another one.
const LISTEN: &str = "127.0.0.1:9750";

/// One thing that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFault {
    /// The line, from 1; 0 if it concerns no line.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong, and what is allowed.
    pub message: String,
    /// The line itself, and how many of its characters to mark.
    excerpt: Option<(String, usize)>,
}

/// A file that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// The file's name as given.
    pub file: String,
    /// Everything that is wrong in it; at least one.
    pub faults: Vec<SettingsFault>,
}

impl SettingsFault {
    /// A fault in `text`; without a span, of no line.
    pub(crate) fn at(text: &str, span: Option<Range<usize>>, message: String) -> Self {
        fault_at(text, span, message)
    }
}

impl SettingsError {
    /// All faults, with the lines themselves and a mark below each, as compilers do.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for wrong in &self.faults {
            text += &format!("{}\n", self.line(wrong));
            if let Some((excerpt, width)) = &wrong.excerpt {
                let (number, indent) =
                    (wrong.line.to_string(), " ".repeat(wrong.column.saturating_sub(1)));
                let gap = " ".repeat(number.len());
                text += &format!(
                    " {number} | {excerpt}\n {gap} | {indent}{}\n",
                    "^".repeat((*width).max(1))
                );
            }
        }
        text
    }

    /// One line for each fault: file, place, message.
    pub fn lines(&self) -> Vec<String> {
        self.faults.iter().map(|wrong| self.line(wrong)).collect()
    }

    fn line(&self, wrong: &SettingsFault) -> String {
        match wrong.line {
            0 => format!("{}: {}", self.file, wrong.message),
            line => format!("{}:{line}:{}: {}", self.file, wrong.column, wrong.message),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}

impl std::error::Error for SettingsError {}

/// Which backend to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// The patched kernel if it is there, otherwise memory hotplug.
    #[default]
    Auto,
    /// The patched kernel.
    Kernel,
    /// Memory hotplug.
    Stock,
}

/// What happens to offline slices when the daemon stops or may no longer act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStop {
    /// As suits the kernel: they are woken on a stock kernel, which wakes none by itself.
    #[default]
    Auto,
    /// They stay offline.
    Leave,
    /// They are woken.
    Wake,
}

/// When tasks wait for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureSettings {
    /// Tasks wait for memory for so long within a window; none to ignore it.
    pub stall: Option<Duration>,
    /// The window.
    pub window: Duration,
    /// Nothing goes offline for so long afterwards.
    pub pause: Duration,
}

/// The settings, checked.
#[derive(Debug, Clone)]
pub struct DaemonSettings {
    /// What the daemon may do.
    pub mode: DaemonMode,
    /// The time between two steps.
    pub period: Duration,
    /// Which backend to use.
    pub backend: BackendChoice,
    /// The policy that decides.
    pub policy: PolicyConfig,
    /// What offline slices are worth.
    pub worth: WorthPlan,
    /// Slices become as large as what the hardware switches as one.
    pub resize_slices: bool,
    /// After how long a request is given up.
    pub deadline: Duration,
    /// The most slices that one request switches off.
    pub max_slices: Option<u32>,
    /// When tasks wait for memory.
    pub pressure: PressureSettings,
    /// What moves by itself to memory for what is rarely used, and back.
    pub cold: ColdSettings,
    /// Page cache that a kernel without ramslice gives up.
    pub idle_cache: IdleCacheSettings,
    /// Who gets emptied memory.
    pub takers: TakersConfig,
    /// The state is saved at least this often.
    pub save: Duration,
    /// The largest share of one CPU for reading pages on a stock kernel.
    pub look_share: f64,
    /// What happens to offline slices at the end.
    pub on_stop: OnStop,
    /// The address of the metrics; none to serve none.
    pub listen: Option<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSettings {
    schema_version: Option<Spanned<u32>>,
    #[serde(default)]
    mode: DaemonMode,
    period_seconds: Option<Spanned<f64>>,
    #[serde(default)]
    backend: BackendChoice,
    policy: Option<PolicyKind>,
    #[serde(default)]
    periodic: policies::PeriodicConfig,
    #[serde(default)]
    watermarks: policies::WatermarksConfig,
    #[serde(default)]
    threshold: policies::ThresholdConfig,
    #[serde(default)]
    repair: policies::RepairConfig,
    #[serde(default)]
    governor: policies::GovernorConfig,
    #[serde(default)]
    limits: policies::LimitsConfig,
    #[serde(default)]
    energy: RawEnergy,
    #[serde(default)]
    requests: RawRequests,
    #[serde(default)]
    pressure: RawPressure,
    #[serde(default)]
    cold: RawCold,
    #[serde(default)]
    idle_cache: RawIdleCache,
    #[serde(default)]
    takers: RawTakers,
    #[serde(default)]
    state: RawState,
    #[serde(default)]
    stock: RawStock,
    #[serde(default)]
    stop: RawStop,
    #[serde(default)]
    metrics: RawMetrics,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawRequests {
    deadline_seconds: Option<Spanned<f64>>,
    max_slices: Option<Spanned<u32>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawPressure {
    stall_ms: Option<Spanned<u32>>,
    window_ms: Option<Spanned<u32>>,
    pause_seconds: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawState {
    save_seconds: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawStock {
    look_share: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawStop {
    #[serde(default)]
    slices: OnStop,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawMetrics {
    listen: Option<Spanned<String>>,
}

/// The faults found so far.
pub(crate) struct SettingsChecks<'a> {
    text: &'a str,
    faults: Vec<SettingsFault>,
}

impl SettingsChecks<'_> {
    pub(crate) fn add_fault(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        let found = fault_at(self.text, span, message.into());
        self.faults.push(found);
    }

    /// The value if it is within the limits, otherwise the default.
    pub(crate) fn number<T: Into<f64> + fmt::Display + Copy>(
        &mut self,
        name: &str,
        value: Option<Spanned<T>>,
        default: T,
    ) -> T {
        let Some(value) = value else { return default };
        let (span, value) = (value.span(), value.into_inner());
        let [least, most] = limits(name);
        if (least..=most).contains(&value.into()) {
            return value;
        }
        let message =
            format!("{name} is {value}: it must be {}", allowed(name).unwrap_or_default());
        self.add_fault(Some(span), message);
        default
    }
}

fn fault_at(text: &str, span: Option<Range<usize>>, message: String) -> SettingsFault {
    let Some(span) = span else {
        return SettingsFault { line: 0, column: 0, message, excerpt: None };
    };
    let start = span.start.min(text.len());
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[..start].matches('\n').count() + 1;
    let column = text[begin..start].chars().count() + 1;
    let excerpt = text[begin..].lines().next().unwrap_or_default().to_owned();
    // A fault at the end of a line may lie on its `\r`, which is no part of the excerpt.
    let end = span.end.clamp(start, start.max(begin + excerpt.len()));
    let width = text.get(start..end).map_or(1, |meant| meant.chars().count());
    SettingsFault { line, column, message, excerpt: Some((excerpt, width)) }
}

impl DaemonSettings {
    /// The default settings.
    pub fn defaults() -> Self {
        Self::parse(SAMPLE, "packaging/ramsliced.toml")
            .expect("the sample is valid: a test checks it")
    }

    /// Reads a file and its drop-ins.
    ///
    /// # Errors
    /// Everything that is wrong in them, as far as one pass can find it.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let files = read_files(path)?;
        let [file] = files.as_slice() else { return Self::parse_all(&files) };
        Self::parse(&file.text, &file.name)
    }

    /// Parses a file with its drop-ins. What is wrong is told with the place in the file that has
    /// it; what is wrong only with all of them together, without one.
    fn parse_all(files: &[SettingsFile]) -> Result<Self, SettingsError> {
        let [main, drop_ins @ ..] = files else { return Ok(Self::defaults()) };
        let name = format!("{} with {}", main.name, count_drop_ins(drop_ins.len()));
        let together = merged_text(files).map(|text| Self::parse(&text, &name));
        if let Some(Ok(settings)) = together {
            return Ok(settings);
        }
        // The version of the format is in the first.
        let alone = |(number, file): (usize, &SettingsFile)| {
            Self::parse_part(&file.text, &file.name, number == 0).err()
        };
        let matters = |error: &SettingsError| match &together {
            Some(Err(whole)) => error
                .faults
                .iter()
                .any(|fault| whole.faults.iter().any(|other| other.message == fault.message)),
            _ => true,
        };
        let found = files.iter().enumerate().filter_map(alone).find(matters);
        Err(match (found, together) {
            (Some(error), _) => error,
            (None, Some(Err(mut whole))) => {
                for fault in &mut whole.faults {
                    *fault = SettingsFault::at("", None, std::mem::take(&mut fault.message));
                }
                whole
            }
            (None, _) => {
                let message = "no valid TOML".to_owned();
                SettingsError { file: name, faults: vec![SettingsFault::at("", None, message)] }
            }
        })
    }

    /// Reads a file's text; `file` is its name, for messages.
    ///
    /// # Errors
    /// Everything that is wrong in it, as far as one pass can find it.
    pub fn parse(text: &str, file: &str) -> Result<Self, SettingsError> {
        Self::parse_part(text, file, true)
    }

    fn parse_part(text: &str, file: &str, needs_version: bool) -> Result<Self, SettingsError> {
        let refuse = |faults| SettingsError { file: file.to_owned(), faults };
        let mut checks = SettingsChecks { text, faults: Vec::new() };
        let raw: RawSettings = toml::from_str(text).map_err(|error| {
            let message = policies::explain(text, error.span(), error.message(), allowed);
            refuse(vec![fault_at(text, error.span(), message)])
        })?;
        match raw.schema_version {
            None if needs_version => {
                let version = format!("`schema_version = {SCHEMA_VERSION}`");
                let fault = if text.trim().is_empty() {
                    let message = format!(
                        "the file is empty: it needs {version}; `ramsliced --print-config` prints \
                         a file with all settings"
                    );
                    fault_at(text, None, message)
                } else {
                    let message = format!(
                        "missing field `schema_version`: write {version}; only a drop-in, a file \
                         in ramsliced.toml.d, does without"
                    );
                    fault_at(text, Some(0..0), message)
                };
                return Err(refuse(vec![fault]));
            }
            Some(version) if *version.get_ref() != SCHEMA_VERSION => {
                let message = format!(
                    "schema_version is {}: this daemon knows {SCHEMA_VERSION}",
                    version.get_ref()
                );
                return Err(refuse(vec![fault_at(text, Some(version.span()), message)]));
            }
            _ => {}
        }
        let mut policy = PolicyConfig::new(raw.policy.unwrap_or(PolicyKind::Governor));
        policy.periodic = raw.periodic;
        policy.watermarks = raw.watermarks;
        policy.threshold = raw.threshold;
        policy.repair = raw.repair;
        policy.governor = raw.governor;
        policy.limits = raw.limits;
        let spans = policies::spans(text);
        let lines = spans.iter().map(|(name, span)| {
            (name.clone(), fault_at(text, Some(span.clone()), String::new()).line)
        });
        let policy = policy.at(file, lines.collect());
        if let Err(error) = policy.check_numbers() {
            checks.add_fault(spans.get(&error.field).cloned(), error.message);
        }
        let period = checks.number("period_seconds", raw.period_seconds, 30.0);
        let deadline =
            checks.number("requests.deadline_seconds", raw.requests.deadline_seconds, 20.0);
        let max_slices =
            raw.requests.max_slices.map(|most| checks.number("requests.max_slices", Some(most), 1));
        let window = checks.number("pressure.window_ms", raw.pressure.window_ms, 2000);
        let stall_span = raw.pressure.stall_ms.as_ref().map(Spanned::span);
        let stall = checks.number("pressure.stall_ms", raw.pressure.stall_ms, 100);
        if stall > window {
            let message =
                format!("pressure.stall_ms is {stall}: it must not be above window_ms, {window}");
            checks.add_fault(stall_span, message);
        }
        let pause = checks.number("pressure.pause_seconds", raw.pressure.pause_seconds, 120.0);
        let save = checks.number("state.save_seconds", raw.state.save_seconds, 300.0);
        let look_share = checks.number("stock.look_share", raw.stock.look_share, 0.002);
        let cold = raw.cold.check(&mut checks);
        let idle_cache = raw.idle_cache.check(&mut checks);
        let takers = raw.takers.check(&mut checks);
        let worth = raw.energy.check(&mut checks);
        let listen = listen(raw.metrics.listen.as_ref(), &mut checks);
        let Some(worth) = worth.filter(|_| checks.faults.is_empty()) else {
            checks.faults.sort_by_key(|wrong| (wrong.line, wrong.column));
            return Err(refuse(checks.faults));
        };
        Ok(Self {
            mode: raw.mode,
            period: Duration::from_secs_f64(period),
            backend: raw.backend,
            policy,
            worth,
            resize_slices: raw.energy.resize_slices.is_none_or(Spanned::into_inner),
            deadline: Duration::from_secs_f64(deadline),
            max_slices,
            pressure: PressureSettings {
                stall: (stall > 0).then(|| Duration::from_millis(stall.into())),
                window: Duration::from_millis(window.into()),
                pause: Duration::from_secs_f64(pause),
            },
            cold,
            idle_cache,
            takers,
            save: Duration::from_secs_f64(save),
            look_share,
            on_stop: raw.stop.slices,
            listen,
        })
    }
}

pub(crate) fn span<T>(value: Option<&Spanned<T>>) -> Option<Range<usize>> {
    value.map(Spanned::span)
}

fn listen(raw: Option<&Spanned<String>>, checks: &mut SettingsChecks<'_>) -> Option<SocketAddr> {
    let text = raw.map_or(LISTEN, |value| value.get_ref().as_str());
    if text == "off" {
        return None;
    }
    match text.parse() {
        Ok(address) => Some(address),
        Err(_) => {
            let message = format!(
                "metrics.listen is `{text}`: it must be an address and a port, as in \"{LISTEN}\" \
                 or \
                 \"[::1]:9750\", or \"off\""
            );
            checks.add_fault(span(raw), message);
            None
        }
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
