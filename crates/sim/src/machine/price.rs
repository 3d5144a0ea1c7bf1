//! The price model: Equations 3.1 to 3.4 of the thesis, as in the kernel.

use ramslice_types::{Price, PriceParameter};

/// The parameters, in units of 100 cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceModel([u64; PriceParameter::ALL.len()]);

impl Default for PriceModel {
    /// The kernel's: Table 3.2, with the figures of Table 4.2, model B.
    fn default() -> Self {
        Self([695, 303, 39, 100, 29, 1, 25, 1_000_000_000])
    }
}

impl PriceModel {
    /// One of them.
    pub fn get(&self, parameter: PriceParameter) -> Price {
        Price(self.0[parameter as usize])
    }

    /// Changes one.
    pub fn set(&mut self, parameter: PriceParameter, value: Price) {
        self.0[parameter as usize] = value.0;
    }

    fn times(&self, parameter: PriceParameter, number: u64) -> Price {
        self.get(parameter) * number
    }

    /// Eq 3.1: what does not depend on the content.
    pub(super) fn base(&self, pages: u64) -> Price {
        let of_pages = self.get(PriceParameter::IsolatePage).0.saturating_mul(pages) / 1024;
        self.get(PriceParameter::IsolateSlice) + Price(of_pages)
    }

    /// Eq 3.2: what does.
    pub(super) fn content(&self, drop: u64, moved: u64, mappings: u64) -> Price {
        self.times(PriceParameter::DropPage, drop)
            + self.times(PriceParameter::MigratePage, moved)
            + self.times(PriceParameter::MigrateMapping, mappings)
    }

    /// What Eq 3.4 adds for destinations.
    pub(super) fn targets(&self, free: u64, cache: u64) -> Price {
        self.times(PriceParameter::AllocBuddy, free) + self.times(PriceParameter::AllocCache, cache)
    }

    /// What Eq 3.3 adds to a slice that cannot be emptied.
    pub(super) fn unreclaimable(&self) -> Price {
        self.get(PriceParameter::Unreclaimable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_those_of_the_thesis() {
        let prices = PriceModel::default();
        // A slice of 64 MiB, 16384 pages: 695 + 303 * 16.
        assert_eq!(prices.base(16_384), Price(5543));
        assert_eq!(prices.content(10, 20, 30), Price(390 + 2000 + 870));
        assert_eq!(prices.targets(4, 2), Price(54));
    }

    #[test]
    fn prices_do_not_wrap() {
        let mut prices = PriceModel::default();
        prices.set(PriceParameter::DropPage, Price(u64::MAX));
        assert_eq!(prices.content(2, 1, 1), Price(u64::MAX));
    }
}
