//! The price model: seven coefficients, in units of 100 cycles, and what they say of a slice.

use std::collections::BTreeMap;

use ramslice_types::{Price, PriceParameter};
use serde::{Deserialize, Serialize};

use crate::sample::OperationCounts;

/// How many coefficients there are.
pub const TERMS: usize = 7;

/// The parameters of Table 3.2 but for the offset of slices that cannot be emptied. Units of 100
/// cycles.
///
/// Not whole numbers, and those of model C below 0 at times: see [`ModelCoefficients::parameters`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelCoefficients {
    /// For a slice.
    pub isolate_slice: f64,
    /// For 1024 page frames of it.
    pub isolate_page: f64,
    /// For a page dropped.
    pub drop_page: f64,
    /// For a page migrated.
    pub migrate_page: f64,
    /// For a mapping of such a page.
    pub migrate_mapping: f64,
    /// For a destination from free memory.
    pub alloc_buddy: f64,
    /// For one gained by dropping cache.
    pub alloc_cache: f64,
}

/// What model B has: the thesis' defaults (Table 3.2, column B of Table 4.2), which are the
/// kernel's.
pub fn thesis() -> ModelCoefficients {
    ModelCoefficients::from_array([695.0, 303.0, 39.0, 100.0, 29.0, 1.0, 25.0])
}

impl ModelCoefficients {
    /// In the order of the table.
    pub fn from_array(values: [f64; TERMS]) -> Self {
        let [
            isolate_slice,
            isolate_page,
            drop_page,
            migrate_page,
            migrate_mapping,
            alloc_buddy,
            alloc_cache,
        ] = values;
        Self {
            isolate_slice,
            isolate_page,
            drop_page,
            migrate_page,
            migrate_mapping,
            alloc_buddy,
            alloc_cache,
        }
    }

    /// In the order of the table.
    pub fn to_array(&self) -> [f64; TERMS] {
        [
            self.isolate_slice,
            self.isolate_page,
            self.drop_page,
            self.migrate_page,
            self.migrate_mapping,
            self.alloc_buddy,
            self.alloc_cache,
        ]
    }

    /// As the kernel has them; one that is missing counts as in the thesis.
    pub fn of_parameters(parameters: &BTreeMap<PriceParameter, Price>) -> Self {
        let mut values = thesis().to_array();
        for (value, parameter) in values.iter_mut().zip(PriceParameter::ALL) {
            if let Some(price) = parameters.get(&parameter) {
                *value = price.0 as f64;
            }
        }
        Self::from_array(values)
    }

    /// What emptying costs, in units of 100 cycles (Eq 3.1, 3.2 and 3.4).
    pub fn price(&self, operations: &OperationCounts) -> f64 {
        self.to_array().iter().zip(row(operations)).map(|(price, count)| price * count).sum()
    }

    /// Rounded to what the kernel takes; `None` if one is below 0 or none at all.
    pub fn parameters(&self) -> Option<BTreeMap<PriceParameter, Price>> {
        let values = self.to_array();
        if values.iter().any(|value| !value.is_finite() || value.round() < 0.0) {
            return None;
        }
        Some(
            PriceParameter::ALL
                .into_iter()
                .zip(values.map(|value| Price(value.round() as u64)))
                .collect(),
        )
    }

    /// All of them this many times larger.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self::from_array(self.to_array().map(|value| value * factor))
    }
}

/// How often each term counts.
pub(crate) fn row(operations: &OperationCounts) -> [f64; TERMS] {
    let moved = operations.moved.0 as f64;
    let cache = operations.cache_targets.0 as f64;
    [
        operations.slices as f64,
        operations.frames.0 as f64 / 1024.0,
        operations.dropped.0 as f64,
        moved,
        operations.mappings as f64,
        (moved - cache).max(0.0),
        cache,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::Pages;

    #[test]
    fn the_thesis_example_of_an_empty_slice() {
        // Documentation/mm/ramslice.rst: 64 MiB have 16384 page frames, 695 + 303 * 16 = 5543.
        let empty = OperationCounts {
            slices: 1,
            frames: Pages(16384),
            free: Pages(16384),
            ..OperationCounts::default()
        };
        assert!((thesis().price(&empty) - 5543.0).abs() < 1e-9);
    }

    #[test]
    fn each_operation_has_its_price() {
        let operations = OperationCounts {
            slices: 1,
            frames: Pages(1024),
            dropped: Pages(10),
            moved: Pages(20),
            mappings: 30,
            cache_targets: Pages(5),
            ..OperationCounts::default()
        };
        let expected = 695.0 + 303.0 + 390.0 + 2000.0 + 870.0 + 15.0 + 125.0;
        assert!((thesis().price(&operations) - expected).abs() < 1e-9);
    }

    #[test]
    fn what_is_below_zero_cannot_be_installed() {
        let mut values = thesis().to_array();
        values[5] = -5694.0;
        assert_eq!(ModelCoefficients::from_array(values).parameters(), None);
        let parameters = thesis().parameters().unwrap();
        assert_eq!(parameters[&PriceParameter::AllocCache], Price(25));
        assert_eq!(ModelCoefficients::of_parameters(&parameters), thesis());
    }
}
