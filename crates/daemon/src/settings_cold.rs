//! Settings of `[cold]`: what moves by itself between memory for what is rarely used and the rest.

use std::collections::BTreeMap;

use ramslice_policy::ColdLimits;
use ramslice_types::{Bytes, Ratio, parse_bytes, parse_duration};
use serde::Deserialize;
use toml::Spanned;

use crate::settings::SettingsChecks;

const IDLE: &str = "2min";
const RATE: &str = "16MiB";
/// An idle time may be no shorter: accesses are sampled some twenty times in an eighth of it.
const LEAST_IDLE_MS: u128 = 100;

/// What moves by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdSettings {
    /// Whether anything does.
    pub automatic: bool,
    /// How much, and when.
    pub limits: ColdLimits,
    /// Control groups whose pages stay, with those below them, by their paths below the mount
    /// point.
    pub except: Vec<String>,
    /// Control groups with a limit of their own on what goes to cold memory in a second, shared
    /// equally with those below them; by the same paths.
    pub rate_by_group: BTreeMap<String, Bytes>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCold {
    #[serde(default)]
    automatic: bool,
    idle: Option<Spanned<String>>,
    in_use: Option<Spanned<f64>>,
    rate: Option<Spanned<String>>,
    cpu_share: Option<Spanned<f64>>,
    #[serde(default)]
    except: Vec<Spanned<String>>,
    #[serde(default)]
    rate_by_group: BTreeMap<String, Spanned<toml::Value>>,
}

/// The most control groups with a rate of their own: each is watched for itself.
const MOST_RATES: usize = 4;

/// Whether a control group below the mount point is named, as the kernel writes its path.
fn is_group(path: &str) -> bool {
    path.strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// A rate in a second; otherwise what is wrong with it.
fn rate_of(text: &str) -> Result<Bytes, String> {
    match parse_bytes(text) {
        Ok(rate) if rate < Bytes(4096) => {
            Err(format!("`{text}` is less than a page: at least 4KiB"))
        }
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

impl RawCold {
    /// The settings; what is wrong is noted, and has its default.
    pub(crate) fn check(self, checks: &mut SettingsChecks<'_>) -> ColdSettings {
        let mut text = |name: &str, value: Option<Spanned<String>>, default: &str| {
            let Some(value) = value else { return default.to_owned() };
            let wrong = match name {
                "idle" => match parse_duration(value.get_ref()) {
                    Ok(idle) if idle.as_millis() < LEAST_IDLE_MS => Some(format!(
                        "`{}` is too short: at least {LEAST_IDLE_MS}ms",
                        value.get_ref()
                    )),
                    parsed => parsed.err().map(|error| error.to_string()),
                },
                _ => rate_of(value.get_ref()).err(),
            };
            match wrong {
                None => value.into_inner(),
                Some(wrong) => {
                    checks.add_fault(Some(value.span()), format!("cold.{name}: {wrong}"));
                    default.to_owned()
                }
            }
        };
        let idle = text("idle", self.idle, IDLE);
        let rate = text("rate", self.rate, RATE);
        for group in &self.except {
            let path = group.get_ref();
            if !is_group(path) {
                checks.add_fault(Some(group.span()), no_group("except", path));
            }
        }
        if let Some(one_more) = self.rate_by_group.values().nth(MOST_RATES) {
            let message = format!(
                "cold.rate_by_group has {} control groups: at most {MOST_RATES} can have a rate of \
                 their own, as each is watched for itself",
                self.rate_by_group.len()
            );
            checks.add_fault(Some(one_more.span()), message);
        }
        let mut rate_by_group = BTreeMap::new();
        for (path, rate) in self.rate_by_group {
            let text = rate.get_ref().as_str().map(str::to_owned);
            let fault = match rate_of(&text.unwrap_or_else(|| rate.get_ref().to_string())) {
                _ if !is_group(&path) => Some(no_group("rate_by_group", &path)),
                _ if self.except.iter().any(|group| *group.get_ref() == path) => Some(format!(
                    "cold.rate_by_group has `{path}`, and so has cold.except, which keeps all of \
                     its pages where they are: take it out of one of them"
                )),
                Err(wrong) => Some(format!("cold.rate_by_group: {wrong}, as in \"4MiB\"")),
                Ok(bytes) => {
                    rate_by_group.insert(path, bytes);
                    None
                }
            };
            if let Some(fault) = fault {
                checks.add_fault(Some(rate.span()), fault);
            }
        }
        ColdSettings {
            automatic: self.automatic,
            limits: ColdLimits {
                idle: parse_duration(&idle).expect("it was checked above"),
                in_use: Ratio(checks.number("cold.in_use", self.in_use, 0.25)),
                rate: parse_bytes(&rate).expect("it was checked above"),
                cpu_share: Ratio(checks.number("cold.cpu_share", self.cpu_share, 0.01)),
            },
            except: self.except.into_iter().map(Spanned::into_inner).collect(),
            rate_by_group,
        }
    }
}

fn no_group(setting: &str, path: &str) -> String {
    format!(
        "cold.{setting} has `{path}`: it must be the path of a control group below the mount \
         point, as in \"/system.slice/a.service\""
    )
}
