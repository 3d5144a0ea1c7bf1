//! What emptying costs: Equations 3.1 to 3.4 and the defaults of Table 3.2 of the Hannover thesis.
//!
//! Memory hotplug migrates clean cache instead of dropping it and takes its destinations from the
//! allocator, so the terms for dropped pages and for destinations gained from cache are zero here.

use std::collections::BTreeMap;

use ramslice_types::{Pages, Price, PriceParameter};

use super::page_use::PageSum;

/// The parameters as changed by the user; the others have the table's values.
pub(super) type ChangedPrices = BTreeMap<PriceParameter, Price>;

/// A parameter's value.
pub(super) fn parameter(changed: &ChangedPrices, parameter: PriceParameter) -> Price {
    changed.get(&parameter).copied().unwrap_or(Price(match parameter {
        PriceParameter::IsolateSlice => 695,
        PriceParameter::IsolatePage => 303,
        PriceParameter::DropPage => 39,
        PriceParameter::MigratePage => 100,
        PriceParameter::MigrateMapping => 29,
        PriceParameter::AllocBuddy => 1,
        PriceParameter::AllocCache => 25,
        PriceParameter::Unreclaimable => 1_000_000_000,
    }))
}

/// Equations 3.1 to 3.3 of a slice of `frames`; mappings are exact.
pub(super) fn slice(changed: &ChangedPrices, frames: Pages, sum: &PageSum, stays: bool) -> Price {
    let p = |which| parameter(changed, which);
    let base = p(PriceParameter::IsolateSlice)
        + Price((p(PriceParameter::IsolatePage) * frames.0).0 / 1024);
    let content = p(PriceParameter::MigratePage) * sum.moves.0
        + p(PriceParameter::MigrateMapping) * sum.mappings;
    let offset = if stays { p(PriceParameter::Unreclaimable) } else { Price::ZERO };
    base + content + offset
}

/// What Equation 3.4 adds: a destination for each page.
pub(super) fn destinations(changed: &ChangedPrices, sum: &PageSum) -> Price {
    parameter(changed, PriceParameter::AllocBuddy) * sum.moves.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_slice_of_64_mib_has_the_price_of_the_kernels_design_page() {
        let price = slice(&ChangedPrices::new(), Pages(16_384), &PageSum::default(), false);
        assert_eq!(price, Price(695 + 303 * 16));
    }

    #[test]
    fn pages_and_each_of_their_mappings_cost() {
        let sum = PageSum { moves: Pages(10), mappings: 25, ..PageSum::default() };
        let empty = slice(&ChangedPrices::new(), Pages(1024), &PageSum::default(), false);
        assert_eq!(
            slice(&ChangedPrices::new(), Pages(1024), &sum, false),
            empty + Price(10 * 100 + 25 * 29)
        );
        assert_eq!(destinations(&ChangedPrices::new(), &sum), Price(10));
        assert_eq!(
            slice(&ChangedPrices::new(), Pages(1024), &PageSum::default(), true),
            empty + Price(1_000_000_000)
        );
    }

    #[test]
    fn absurd_parameters_are_as_dear_as_can_be() {
        let changed = ChangedPrices::from([(PriceParameter::MigratePage, Price(u64::MAX))]);
        let sum = PageSum { moves: Pages(2), ..PageSum::default() };
        assert_eq!(slice(&changed, Pages(1024), &sum, false), Price(u64::MAX));
    }
}
