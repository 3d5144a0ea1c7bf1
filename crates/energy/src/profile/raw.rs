//! The TOML file as it is written, before it is checked.

use serde::Deserialize;
use toml::Spanned;

/// A number with unit and source, or the statement that it is unknown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuantity {
    pub(super) value: Option<Spanned<f64>>,
    pub(super) low: Option<Spanned<f64>>,
    pub(super) high: Option<Spanned<f64>>,
    pub(super) at_least: Option<Spanned<f64>>,
    pub(super) unknown: Option<Spanned<bool>>,
    pub(super) unit: Option<Spanned<String>>,
    pub(super) source: Option<Spanned<String>>,
}

/// A word with its source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWord {
    pub(super) is: Option<Spanned<String>>,
    pub(super) unknown: Option<Spanned<bool>>,
    pub(super) source: Option<Spanned<String>>,
}

/// A list of words with its source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWordList {
    pub(super) list: Vec<String>,
    pub(super) source: Option<Spanned<String>>,
}

pub(super) type RawNumber = Spanned<RawQuantity>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPowerState {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) saving: Option<RawNumber>,
    pub(super) floor: RawNumber,
    pub(super) all_on: Option<RawNumber>,
    pub(super) granularity_of: Spanned<String>,
    pub(super) granularity: RawNumber,
    pub(super) entry_latency: RawNumber,
    pub(super) exit_latency: RawNumber,
    pub(super) exit_power: Option<RawNumber>,
    pub(super) retention: Spanned<RawWord>,
    pub(super) applies: Spanned<RawWord>,
    pub(super) standards: Option<Spanned<RawWordList>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrices {
    pub(super) isolate_slice: RawNumber,
    pub(super) isolate_page: RawNumber,
    pub(super) drop_page: RawNumber,
    pub(super) migrate_page: RawNumber,
    pub(super) migrate_mapping: RawNumber,
    pub(super) alloc_buddy: RawNumber,
    pub(super) alloc_cache: RawNumber,
    pub(super) error: RawNumber,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMachine {
    pub(super) name: String,
    pub(super) memory: RawNumber,
    pub(super) frequency: RawNumber,
    pub(super) compacting_power: RawNumber,
    pub(super) platform_power: RawNumber,
    pub(super) accounting: RawNumber,
    pub(super) waking: RawNumber,
    pub(super) cycles_per_instruction: RawNumber,
    pub(super) refault_cpu: RawNumber,
    pub(super) refault_storage: RawNumber,
    pub(super) prices: RawPrices,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    pub(super) schema_version: Spanned<u32>,
    #[serde(rename = "kind")]
    pub(super) _kind: Option<Spanned<String>>,
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) default_state: Spanned<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) background: RawNumber,
    pub(super) module_capacity: Option<RawNumber>,
    pub(super) full_power: Option<RawNumber>,
    pub(super) state: Vec<Spanned<RawPowerState>>,
    pub(super) machine: Option<RawMachine>,
}

/// What a file is a profile of, whatever else it has.
#[derive(Debug, Deserialize)]
pub(super) struct RawKind {
    pub(super) kind: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGivebackProfile {
    pub(super) schema_version: Spanned<u32>,
    #[serde(rename = "kind")]
    pub(super) _kind: Spanned<String>,
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) currency: Option<Spanned<String>>,
    pub(super) memory: Option<RawNumber>,
    pub(super) cpu: RawNumber,
    pub(super) refaults: RawNumber,
    pub(super) host_faults: RawNumber,
    pub(super) wake: RawNumber,
    pub(super) frequency: RawNumber,
    pub(super) prices: RawPrices,
}
