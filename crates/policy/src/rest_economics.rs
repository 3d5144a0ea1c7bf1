//! What a page at rest saves, and what moving it there costs: how long it must stay.

use std::time::Duration;

use ramslice_energy::{DramProfile, Interval, SampleClock};
use ramslice_types::{Bytes, PhysicalQuantity, PriceParameter, Worth, WorthPerSecond};

const BYTES_PER_GIB: f64 = (1u64 << 30) as f64;

/// What a page earns in memory that rests and keeps its contents, and what a move costs: in joules,
/// the middle of each interval.
#[derive(Debug, Clone, PartialEq)]
pub struct RestEconomics {
    /// To move a page with one mapping, once.
    pub moving: Worth,
    /// Earned by a page while its memory rests; the most that it can be, as no profile says for how
    /// much of the time that is.
    pub rest: WorthPerSecond,
    /// The power state that it rests in.
    pub state: String,
}

impl RestEconomics {
    /// From a profile whose machine gives the costs, for pages of this size. For the
    /// state see [`DramProfile::rest_state`].
    ///
    /// # Errors
    /// What the profile lacks, as a sentence.
    pub fn new(profile: &DramProfile, page: Bytes) -> Result<Self, String> {
        let of = |what: &str| format!("the profile {} {what}", profile.name);
        let machine = profile.machine.as_ref().ok_or_else(|| of("names no machine"))?;
        let per_cycle = machine
            .energy_per_cycle()
            .ok_or_else(|| of("does not say what a cycle of packing costs"))?;
        let mut cycles = 0.0;
        for parameter in [
            PriceParameter::MigratePage,
            PriceParameter::MigrateMapping,
            PriceParameter::AllocBuddy,
        ] {
            let price = machine.price(parameter);
            cycles += middle(price.ok_or_else(|| of("does not say what moving a page costs"))?);
        }
        let kept = profile
            .rest_state()
            .and_then(|state| Some((middle(state.saving_by_packing()?), &state.name)))
            .filter(|(saving, _)| *saving > 0.0);
        let (saving, state) = kept.ok_or_else(|| {
            of("does not say what memory saves that rests and keeps its contents")
        })?;
        Ok(Self {
            moving: Worth(cycles * middle(per_cycle)),
            rest: WorthPerSecond(saving * page.0 as f64 / BYTES_PER_GIB),
            state: state.clone(),
        })
    }

    /// The same by the seconds of another clock.
    #[must_use]
    pub fn by(self, clock: &SampleClock) -> Self {
        let second = middle(clock.seconds(Duration::from_secs(1)));
        Self { rest: WorthPerSecond(self.rest.0 * second), ..self }
    }

    /// How long a page must stay until moving it there and back has paid.
    pub fn break_even(&self) -> Duration {
        Duration::try_from_secs_f64(2.0 * self.moving.0 / self.rest.0).unwrap_or(Duration::MAX)
    }
}

fn middle<Q: PhysicalQuantity>(value: Interval<Q>) -> f64 {
    f64::midpoint(value.low().get(), value.high().get())
}

#[cfg(test)]
mod tests {
    use ramslice_energy::{TimeFactor, builtin};
    use ramslice_types::Ratio;

    use super::*;

    const PAGE: Bytes = Bytes(4096);

    fn ddr5() -> DramProfile {
        let mut profile = builtin("ddr5-modes").unwrap().unwrap();
        profile.machine = builtin("thesis-parc").unwrap().unwrap().machine;
        profile
    }

    #[test]
    fn a_page_rests_in_the_deepest_state_that_keeps_it() {
        let economics = RestEconomics::new(&ddr5(), PAGE).unwrap();
        assert_eq!(economics.state, "power-down");
        // 13000 cycles at 10 W and 3.8 GHz are 34 uJ. 13.76 mW/GiB are 52 nW for a page.
        assert!((economics.moving.0 - 34.2e-6).abs() < 0.5e-6, "{economics:?}");
        let minutes = economics.break_even().as_secs_f64() / 60.0;
        assert!((minutes - 21.7).abs() < 1.0, "{minutes}");
    }

    #[test]
    fn a_machine_that_is_slow_breaks_even_later_by_its_clock() {
        let slow = TimeFactor::new(Interval::exactly(Ratio(10.0)), "stated").unwrap();
        let real = RestEconomics::new(&ddr5(), PAGE).unwrap();
        let seen = real.clone().by(&SampleClock::Emulated(slow)).break_even().as_secs_f64();
        assert!((seen / real.break_even().as_secs_f64() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn a_profile_without_such_a_state_or_machine_says_so() {
        let parc = builtin("thesis-parc").unwrap().unwrap();
        let error = RestEconomics::new(&parc, PAGE).unwrap_err();
        assert!(error.contains("thesis-parc") && error.contains("keeps its contents"), "{error}");
        let error = RestEconomics::new(&builtin("ddr5-modes").unwrap().unwrap(), PAGE).unwrap_err();
        assert!(error.contains("names no machine"), "{error}");
    }
}
