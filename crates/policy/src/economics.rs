//! What an offline slice saves, and what switching it costs: the figures that decisions rest on.

use std::time::Duration;

use ramslice_energy::{DramPowerState, Interval, ReferenceMachine, SampleClock};
use ramslice_types::{
    Bytes, Cycles, Joules, Pages, PhysicalQuantity, Price, PriceParameter, Seconds, Watts,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const BYTES_PER_GIB: f64 = (1u64 << 30) as f64;

/// Joules and watts of one slice.
///
/// A profile gives intervals; decisions need one number, so the middle of each is taken. The energy
/// ledger reports what was really earned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SliceEconomics {
    /// Saved while one slice is offline.
    pub saving_watts: Watts,
    /// Of 100 cycles of packing: what one unit of a price costs.
    pub unit_joules: Joules,
    /// To empty a slice that is half full of movable pages, each mapped once. A first estimate; a
    /// policy learns a better one.
    pub emptying_joules: Joules,
    /// To switch off a slice that is empty already.
    pub empty_joules: Joules,
    /// To wake a slice.
    pub waking_joules: Joules,
    /// To read a page of dropped cache again.
    pub refault_joules: Joules,
    /// Slices that the hardware switches as one: with more than 1, a single slice saves nothing.
    pub unit_slices: u32,
}

/// A profile that lacks a figure that decisions need.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EconomicsError {
    /// A figure is unknown.
    #[error(
        "the profile does not say {what}, without which the policy cannot compute what pays; \
         choose another \
         profile, or fill it in"
    )]
    Unknown {
        /// Which.
        what: &'static str,
    },
    /// Nothing is saved.
    #[error(
        "the profile saves nothing in state `{state}`: no policy can earn anything; choose \
         another state or profile"
    )]
    NoSaving {
        /// The power state.
        state: String,
    },
    /// Sizes that cannot be.
    #[error(
        "a slice of {slice} with pages of {page}: both must be above 0 and a slice at least a page"
    )]
    Size {
        /// Of a slice.
        slice: Bytes,
        /// Of a page.
        page: Bytes,
    },
}

impl SliceEconomics {
    /// From a profile's power state and the machine whose prices are known.
    ///
    /// Prices follow Eq 3.1 and 3.2 of the thesis. Where the profile leaves out the cost of reading
    /// dropped cache again, it is taken to cost as much as moving a page.
    ///
    /// # Errors
    /// If a figure is missing, or there is nothing to save.
    pub fn new(
        state: &DramPowerState,
        machine: &ReferenceMachine,
        slice: Bytes,
        page: Bytes,
    ) -> Result<Self, EconomicsError> {
        let pages = slice.pages(page).0 as f64;
        if pages < 1.0 {
            return Err(EconomicsError::Size { slice, page });
        }
        let known = |what| move || EconomicsError::Unknown { what };
        let per_gib =
            state.saving_by_packing().ok_or_else(known("what a state saves for each GiB"))?;
        let saving = middle(per_gib) * slice.0 as f64 / BYTES_PER_GIB;
        if saving <= 0.0 {
            return Err(EconomicsError::NoSaving { state: state.name.clone() });
        }
        let per_cycle =
            machine.energy_per_cycle().ok_or_else(known("the energy of a cycle of packing"))?;
        let per_cycle = middle(per_cycle);
        let price = |parameter: PriceParameter| -> Result<f64, EconomicsError> {
            machine.price(parameter).map(middle::<Cycles>).ok_or_else(known("the price of packing"))
        };
        let isolating = price(PriceParameter::IsolateSlice)?
            + price(PriceParameter::IsolatePage)? * pages / 1024.0;
        let moving = price(PriceParameter::MigratePage)?
            + price(PriceParameter::MigrateMapping)?
            + price(PriceParameter::AllocBuddy)?;
        let instructions =
            machine.waking.value.map_or(0.0, middle) * slice.0 as f64 / BYTES_PER_GIB;
        let waking =
            instructions * machine.cycles_per_instruction.value.map_or(1.0, |value| value.high().0);
        let refault = machine.refault_cpu.value.map_or(moving, middle) * per_cycle
            + machine.refault_storage.value.map_or(0.0, middle) * page.0 as f64 / BYTES_PER_GIB;
        Ok(Self {
            saving_watts: Watts(saving),
            unit_joules: Joules(100.0 * per_cycle),
            emptying_joules: Joules(per_cycle * (isolating + moving * pages / 2.0)),
            empty_joules: Joules(per_cycle * isolating),
            waking_joules: Joules(per_cycle * waking),
            refault_joules: Joules(refault),
            unit_slices: 1,
        })
    }

    /// The same where the hardware switches at least `unit` as one; `slice` is the size of a slice.
    /// Without a known unit, a slice is taken for it.
    #[must_use]
    pub fn switched_as_one(self, unit: Option<Bytes>, slice: Bytes) -> Self {
        let slices = unit.map_or(1, |unit| unit.0.div_ceil(slice.0.max(1)).max(1));
        Self { unit_slices: u32::try_from(slices).unwrap_or(u32::MAX), ..self }
    }

    /// The same for a policy that sees another clock than the profile's machine: what a slice saves
    /// in a second of it.
    #[must_use]
    pub fn by(self, clock: &SampleClock) -> Self {
        let second = middle(clock.seconds(Duration::from_secs(1)));
        Self { saving_watts: Watts(self.saving_watts.0 * second), ..self }
    }

    /// What an operation of this price costs.
    pub fn joules(&self, price: Price) -> Joules {
        Joules(self.unit_joules.0 * price.0 as f64)
    }

    /// How long a page of dropped cache must stay away until its share of a slice's saving has paid
    /// for reading it again.
    pub(crate) fn refault_worth(&self, slice: Pages) -> Seconds {
        Seconds(self.refault_joules.0 * slice.0 as f64 / self.saving_watts.0)
    }

    /// The highest price that costs at most this much.
    pub fn price(&self, joules: Joules) -> Price {
        Price((joules.0.max(0.0) / self.unit_joules.0) as u64)
    }

    /// How long a slice must stay off until this much has paid.
    pub fn break_even(&self, joules: Joules) -> Seconds {
        Seconds(joules.0 / self.saving_watts.0)
    }

    /// How long a slice that cost [`Self::emptying_joules`] must stay off until emptying and waking
    /// it have paid.
    pub fn break_even_of_emptying(&self) -> Seconds {
        self.break_even(self.emptying_joules + self.waking_joules)
    }
}

fn middle<Q: PhysicalQuantity>(value: Interval<Q>) -> f64 {
    f64::midpoint(value.low().get(), value.high().get())
}

#[cfg(test)]
pub(crate) mod tests {
    use ramslice_energy::{TimeFactor, builtin};
    use ramslice_types::Ratio;

    use super::*;

    /// Of the thesis' machine.
    pub(crate) fn thesis(slice: Bytes) -> SliceEconomics {
        let profile = builtin("thesis-parc").unwrap().unwrap();
        let state = profile.state(&profile.default_state).unwrap();
        SliceEconomics::new(state, profile.machine.as_ref().unwrap(), slice, Bytes(4096)).unwrap()
    }

    #[test]
    fn a_gib_breaks_even_within_minutes_and_an_empty_one_at_once() {
        let economics = thesis(Bytes(1 << 30));
        assert!((economics.saving_watts.0 - 0.009_19).abs() < 1e-9);
        // 131072 pages of 13000 cycles at 10 W and 3.8 GHz are 4.48 J.
        assert!((economics.break_even_of_emptying().0 - 490.0).abs() < 5.0, "{economics:?}");
        assert!(economics.break_even(economics.empty_joules).0 < 3.0, "{economics:?}");
        // 8 million units are 2.1 J (thesis, section 4.3.4: a compaction with that budget took
        // 0.485 J on average).
        assert!((economics.joules(Price(8_000_000)).0 - 2.105).abs() < 0.01);
        assert_eq!(economics.price(Joules(2.2)).0 / 1_000_000, 8);
    }

    #[test]
    fn smaller_slices_break_even_as_soon() {
        let (large, small) = (thesis(Bytes(1 << 30)), thesis(Bytes(32 << 20)));
        let ratio = small.break_even_of_emptying().0 / large.break_even_of_emptying().0;
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn a_machine_that_is_slow_breaks_even_later_by_its_clock() {
        let slow = TimeFactor::new(Interval::exactly(Ratio(6.0)), "stated").unwrap();
        let (real, seen) =
            (thesis(Bytes(1 << 30)), thesis(Bytes(1 << 30)).by(&SampleClock::Emulated(slow)));
        assert_eq!(real.by(&SampleClock::Real), real);
        assert!(
            (seen.break_even_of_emptying().0 / real.break_even_of_emptying().0 - 6.0).abs() < 1e-9
        );
        assert_eq!(seen.emptying_joules, real.emptying_joules);
    }

    #[test]
    fn slices_smaller_than_the_unit_are_known_as_such() {
        let (gib, mib) = (Bytes(1 << 30), Bytes(1 << 20));
        let slices = |unit, slice| thesis(slice).switched_as_one(unit, slice).unit_slices;
        assert_eq!(slices(Some(gib), Bytes(64 << 20)), 16);
        assert_eq!((slices(Some(gib), gib), slices(Some(mib), gib), slices(None, gib)), (1, 1, 1));
    }

    #[test]
    fn a_profile_that_leaves_out_its_scale_is_refused_by_name() {
        let (parc, relative) =
            (builtin("thesis-parc").unwrap().unwrap(), builtin("ddr4-states").unwrap().unwrap());
        let state = relative.state(&relative.default_state).unwrap();
        let error = SliceEconomics::new(state, &parc.machine.unwrap(), Bytes(1 << 30), Bytes(4096))
            .unwrap_err();
        assert!(error.to_string().contains("what a state saves for each GiB"), "{error}");
    }
}
