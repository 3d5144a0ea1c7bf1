//! The cost of switching slices off: estimated from their counters, and corrected by measured
//! costs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ramslice_types::Price;
use serde::{Deserialize, Serialize};

use super::dearest;
use crate::economics::SliceEconomics;
use crate::observation::SliceRow;

/// Exact prices, found by walking a slice, may exceed what is expected of them by this factor.
pub(super) const PRICE_ROOM: f64 = 1.25;
/// Weight of the last emptied slice in the expected exact price.
const LEARNING: f64 = 0.1;
/// A budget that was too low for any slice is raised by this factor.
const RAISE: f64 = 1.5;

/// Exact prices over prices by counters: used cache is moved, not dropped, and destinations cost,
/// too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PriceMarkup {
    factor: f64,
    /// Prices by counters of the slices that the last request was for, as worth, cheapest first.
    asked: Vec<f64>,
}

impl Default for PriceMarkup {
    fn default() -> Self {
        Self { factor: 1.0, asked: Vec::new() }
    }
}

impl PriceMarkup {
    /// The expected cost of a slice with this price by counters.
    pub(super) fn of(&self, counted: f64) -> f64 {
        counted * self.factor
    }

    /// Records a request for slices of these prices.
    pub(super) fn expect(&mut self, prices: Vec<f64>) {
        self.asked = prices;
    }

    /// Records the number of emptied slices and their total cost.
    pub(super) fn learn(&mut self, slices: u32, cost: f64) {
        let counted: f64 = self.asked.iter().take(slices as usize).sum();
        if counted > 0.0 && self.asked.len() >= slices as usize {
            let weight = 1.0 - (1.0 - LEARNING).powf(f64::from(slices));
            self.factor += weight * ((cost / counted).max(1.0) - self.factor);
        }
    }

    /// Records that not even the cheapest slice was within the budget. Returns whether a higher
    /// budget, up to `most`, may suffice.
    pub(super) fn raise_if_too_low(&mut self, most: f64) -> bool {
        let cheapest = self.asked.first().copied().unwrap_or(most);
        if self.of(cheapest) >= most {
            return false;
        }
        self.factor *= RAISE;
        true
    }
}

/// Costs of switching slices off, cheapest first: empty ones, then used ones by their price.
///
/// Mostly only the first price is needed: one pass over the rows finds it without sorting.
pub(super) struct OfflinePrices<'a> {
    economics: &'a SliceEconomics,
    /// The assumed cost of a slice where there are no rows.
    usual: f64,
    empty: u32,
    rows: &'a [SliceRow],
    /// Remaining prices, once more than one was needed.
    remaining: Option<BinaryHeap<Reverse<Price>>>,
    is_first: bool,
}

impl<'a> OfflinePrices<'a> {
    /// Of these rows; `usual` is the cost of a used slice where there are none.
    pub(super) fn new(
        economics: &'a SliceEconomics,
        usual: f64,
        empty: u32,
        rows: &'a [SliceRow],
    ) -> Self {
        Self { economics, usual, empty, rows, remaining: None, is_first: true }
    }

    fn used_prices(&self) -> impl Iterator<Item = Price> + use<'a> {
        self.rows
            .iter()
            .filter(|row| row.can_go_off() && !row.is_empty())
            .filter_map(|row| row.price)
    }

    /// The next cost, and whether the slice is empty.
    pub(super) fn next(&mut self) -> Option<(f64, bool)> {
        if self.empty > 0 {
            self.empty -= 1;
            return Some((self.economics.empty.0, true));
        }
        let price = if self.rows.is_empty() {
            self.usual
        } else if std::mem::take(&mut self.is_first) {
            self.economics.cost(self.used_prices().min()?).0
        } else {
            if self.remaining.is_none() {
                let mut remaining: BinaryHeap<_> = self.used_prices().map(Reverse).collect();
                remaining.pop();
                self.remaining = Some(remaining);
            }
            self.economics.cost(self.remaining.as_mut()?.pop()?.0).0
        };
        // The stake covers at most a full slice.
        (price <= dearest(self.economics)).then_some((price, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_learned_from_what_was_paid_and_never_fall_below_the_counters() {
        let mut markup = PriceMarkup::default();
        for _ in 0..100 {
            markup.expect(vec![1.0, 2.0, 4.0]);
            // The two cheapest of three went off.
            markup.learn(2, 6.0);
        }
        assert!((markup.of(1.0) - 2.0).abs() < 1e-6, "{markup:?}");
        for _ in 0..100 {
            markup.expect(vec![1.0]);
            markup.learn(1, 0.1);
        }
        assert!((markup.of(1.0) - 1.0).abs() < 1e-3, "{markup:?}");
    }

    #[test]
    fn a_budget_is_raised_until_the_cheapest_slice_could_be_a_full_one() {
        let mut markup = PriceMarkup::default();
        markup.expect(vec![1.0, 9.0]);
        let raised = (0..20).filter(|_| markup.raise_if_too_low(4.0)).count();
        // 1.5, 2.25, 3.375, 5.06.
        assert_eq!(raised, 4);
    }
}
