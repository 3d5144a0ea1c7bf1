//! The TOML file as it is written, before it is checked.

use serde::Deserialize;
use toml::Spanned;

/// A number with unit and source, or the statement that it is unknown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quantity {
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
pub(super) struct Word {
    pub(super) is: Option<Spanned<String>>,
    pub(super) unknown: Option<Spanned<bool>>,
    pub(super) source: Option<Spanned<String>>,
}

/// A list of words with its source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Words {
    pub(super) list: Vec<String>,
    pub(super) source: Option<Spanned<String>>,
}

pub(super) type Number = Spanned<Quantity>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) saving: Option<Number>,
    pub(super) floor: Number,
    pub(super) all_on: Option<Number>,
    pub(super) granularity_of: Spanned<String>,
    pub(super) granularity: Number,
    pub(super) entry_latency: Number,
    pub(super) exit_latency: Number,
    pub(super) exit_power: Option<Number>,
    pub(super) retention: Spanned<Word>,
    pub(super) applies: Spanned<Word>,
    pub(super) standards: Option<Spanned<Words>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    pub(super) isolate_slice: Number,
    pub(super) isolate_page: Number,
    pub(super) drop_page: Number,
    pub(super) migrate_page: Number,
    pub(super) migrate_mapping: Number,
    pub(super) alloc_buddy: Number,
    pub(super) alloc_cache: Number,
    pub(super) error: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) memory: Number,
    pub(super) frequency: Number,
    pub(super) compacting_power: Number,
    pub(super) platform_power: Number,
    pub(super) accounting: Number,
    pub(super) waking: Number,
    pub(super) cycles_per_instruction: Number,
    pub(super) refault_cpu: Number,
    pub(super) refault_storage: Number,
    pub(super) prices: Prices,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) schema_version: Spanned<u32>,
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) default_state: Spanned<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) background: Number,
    pub(super) module_capacity: Option<Number>,
    pub(super) full_power: Option<Number>,
    pub(super) state: Vec<Spanned<State>>,
    pub(super) machine: Option<Machine>,
}
