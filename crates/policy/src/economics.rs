//! What an offline slice saves, and what switching it costs: the figures that decisions rest on.

use std::time::Duration;

use ramslice_energy::{
    DramPowerState, GivebackProfile, Interval, ReferenceMachine, SampleClock, WorthUnit,
};
use ramslice_types::{
    BackendInfo, Bytes, Cycles, Pages, PhysicalQuantity, Price, PriceParameter, Seconds, SliceId,
    Worth, WorthPerSecond,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const BYTES_PER_GIB: f64 = (1u64 << 30) as f64;

/// What one slice is worth, and what switching it costs, in one unit: joules by a profile of DRAM,
/// GiB hours or money by a profile of memory that is given back.
///
/// A profile gives intervals; decisions need one number, so the middle of each is taken. The ledger
/// reports what was really earned. Saved states and their basis have the names of version 0.1,
/// which knew joules alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SliceEconomics {
    /// Earned while one slice is offline.
    #[serde(rename = "saving_watts")]
    pub saving: WorthPerSecond,
    /// Of 100 cycles of packing: what one unit of a price costs.
    #[serde(rename = "unit_joules")]
    pub price_unit: Worth,
    /// To empty a slice that is half full of movable pages, each mapped once. A first estimate; a
    /// policy learns a better one.
    #[serde(rename = "emptying_joules")]
    pub emptying: Worth,
    /// To switch off a slice that is empty already.
    #[serde(rename = "empty_joules")]
    pub empty: Worth,
    /// To wake a slice.
    #[serde(rename = "waking_joules")]
    pub waking: Worth,
    /// To read a page of dropped cache again.
    #[serde(rename = "refault_joules")]
    pub refault: Worth,
    /// Slices that the hardware switches as one: with more than 1, a single slice saves nothing.
    pub unit_slices: u32,
    /// Which slices these are.
    #[serde(default, skip_serializing_if = "GranuleLayout::is_unknown")]
    pub granule_layout: GranuleLayout,
    /// The unit of the figures above.
    #[serde(default, skip_serializing_if = "WorthUnit::is_joule")]
    pub worth_unit: WorthUnit,
}

/// Which slices form a granule: those that the hardware switches as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GranuleLayout {
    /// Not known, or of no matter, because a slice can be switched alone.
    #[default]
    Unknown,
    /// Neighbours: slices are contiguous, and ids are addresses.
    Neighbours,
    /// Slices take turns at addresses, and a granule lies within one way.
    SameWay {
        /// Slices that take turns.
        ways: u32,
    },
}

impl GranuleLayout {
    /// On this machine. Where a table says what slices are, they are of unequal sizes, so their
    /// ids do not say which of them lie in the same granule.
    pub fn of(info: &BackendInfo) -> Self {
        match info.ways() {
            _ if !info.segments.is_empty() => Self::Unknown,
            1 => Self::Neighbours,
            ways => Self::SameWay { ways },
        }
    }

    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
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
    /// Emptying and waking slices costs nothing.
    #[error(
        "by the profile, emptying and waking slices costs nothing: no policy can count time in \
         how long a slice must stay off until that has paid; fill in another figure"
    )]
    NoCost,
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
        let known = |what| move || EconomicsError::Unknown { what };
        let per_gib =
            state.saving_by_packing().ok_or_else(known("what a state saves for each GiB"))?;
        let per_cycle =
            machine.energy_per_cycle().ok_or_else(known("the energy of a cycle of packing"))?;
        let per_cycle = middle(per_cycle);
        let work = SliceWork::new(|parameter| machine.price(parameter), slice, page)?;
        let saving = middle(per_gib) * slice_gib(slice);
        if saving <= 0.0 {
            return Err(EconomicsError::NoSaving { state: state.name.clone() });
        }
        let instructions = machine.waking.value.map_or(0.0, middle) * slice_gib(slice);
        let waking = instructions * machine.cycles_per_instruction.value.map_or(1.0, middle);
        let (emptying, waking) = (per_cycle * work.emptying, per_cycle * waking);
        check_cost(emptying + waking)?;
        let refault = machine.refault_cpu.value.map_or(work.moving_page, middle) * per_cycle
            + machine.refault_storage.value.map_or(0.0, middle) * page.0 as f64 / BYTES_PER_GIB;
        Ok(Self {
            saving: WorthPerSecond(saving),
            price_unit: Worth(100.0 * per_cycle),
            emptying: Worth(emptying),
            empty: Worth(per_cycle * work.isolating),
            waking: Worth(waking),
            refault: Worth(refault),
            unit_slices: 1,
            granule_layout: GranuleLayout::Unknown,
            worth_unit: WorthUnit::Joule,
        })
    }

    /// From a profile of memory that is given back. What wakes is taken to be touched as a whole,
    /// so that the host faults in all of it.
    ///
    /// # Errors
    /// If a figure is missing, or sizes cannot be.
    pub fn of_giveback(
        profile: &GivebackProfile,
        slice: Bytes,
        page: Bytes,
    ) -> Result<Self, EconomicsError> {
        let known = |what| move || EconomicsError::Unknown { what };
        let price = |parameter: PriceParameter| {
            let found = profile.prices.iter().find(|(name, _)| *name == parameter);
            found.and_then(|(_, price)| price.value)
        };
        let work = SliceWork::new(price, slice, page)?;
        let memory = profile.memory.value.ok_or_else(known("what memory is worth"))?;
        let cpu = profile.cpu.value.ok_or_else(known("what a CPU costs"))?;
        let clock = profile.frequency.value.ok_or_else(known("the frequency of its cycles"))?;
        let refault = profile.refaults.value.ok_or_else(known("what refaults cost"))?;
        let faults = profile.host_faults.value.ok_or_else(known("what the host's faults cost"))?;
        let wake = profile.wake.value.ok_or_else(known("what a wake costs"))?;
        let per_cycle = middle(cpu) / middle(clock);
        let (emptying, waking) =
            (per_cycle * work.emptying, middle(wake) + middle(faults) * slice_gib(slice));
        check_cost(emptying + waking)?;
        Ok(Self {
            saving: WorthPerSecond(middle(memory) * slice_gib(slice)),
            price_unit: Worth(100.0 * per_cycle),
            emptying: Worth(emptying),
            empty: Worth(per_cycle * work.isolating),
            waking: Worth(waking),
            refault: Worth(middle(refault) * page.0 as f64 / BYTES_PER_GIB),
            unit_slices: 1,
            granule_layout: GranuleLayout::Unknown,
            worth_unit: profile.unit,
        })
    }

    /// The same where the hardware switches at least `unit` as one; `slice` is the size of a slice.
    /// Without a known unit, a slice is taken for it.
    ///
    /// If a unit is no multiple of a slice, several units with common slices count as one granule.
    #[must_use]
    pub fn switched_as_one(self, unit: Option<Bytes>, slice: Bytes, layout: GranuleLayout) -> Self {
        let (unit, slice) = (unit.map_or(1, |unit| unit.0.max(1)), slice.0.max(1));
        let slices = if unit > slice { unit / common_divisor(unit, slice) } else { 1 };
        let granule_layout = if slices > 1 { layout } else { GranuleLayout::Unknown };
        let unit_slices = u32::try_from(slices).unwrap_or(u32::MAX);
        Self { unit_slices, granule_layout, ..self }
    }

    /// Slices that must be off together to save anything: 1, also where it is not known which.
    pub fn granule_slices(&self) -> u32 {
        if self.granule_layout.is_unknown() { 1 } else { self.unit_slices.max(1) }
    }

    /// The number of the granule that a slice belongs to; nothing if granules are not known, or
    /// slices are switched alone.
    pub fn granule_of(&self, slice: SliceId) -> Option<u32> {
        let slices = self.granule_slices();
        match self.granule_layout {
            _ if slices == 1 => None,
            GranuleLayout::Unknown => None,
            GranuleLayout::Neighbours => Some(slice.0 / slices),
            GranuleLayout::SameWay { ways } => {
                let ways = ways.max(1);
                Some(slice.0 / ways / slices * ways + slice.0 % ways)
            }
        }
    }

    /// The same for a policy that sees another clock than the profile's machine: what a slice saves
    /// in a second of it.
    #[must_use]
    pub fn by(self, clock: &SampleClock) -> Self {
        let second = middle(clock.seconds(Duration::from_secs(1)));
        Self { saving: WorthPerSecond(self.saving.0 * second), ..self }
    }

    /// What an operation of this price costs.
    pub fn cost(&self, price: Price) -> Worth {
        Worth(self.price_unit.0 * price.0 as f64)
    }

    /// How long a page of dropped cache must stay away until its share of what a slice earns has
    /// paid for reading it again.
    pub(crate) fn break_even_of_refault(&self, slice: Pages) -> Seconds {
        Seconds(self.refault.0 * slice.0 as f64 / self.saving.0)
    }

    /// The highest price that costs at most this much.
    pub fn price(&self, worth: Worth) -> Price {
        Price((worth.0.max(0.0) / self.price_unit.0) as u64)
    }

    /// How long a slice must stay off until this much has paid.
    pub fn break_even(&self, worth: Worth) -> Seconds {
        Seconds(worth.0 / self.saving.0)
    }

    /// How long a slice that cost [`Self::emptying`] must stay off until emptying and waking it
    /// have paid.
    pub fn break_even_of_emptying(&self) -> Seconds {
        self.break_even(self.emptying + self.waking)
    }
}

fn check_cost(cost: f64) -> Result<(), EconomicsError> {
    if cost > 0.0 { Ok(()) } else { Err(EconomicsError::NoCost) }
}

/// Cycles of emptying a slice, by the price model.
struct SliceWork {
    /// A slice that is half full.
    emptying: f64,
    /// An empty one.
    isolating: f64,
    /// One page with one mapping.
    moving_page: f64,
}

impl SliceWork {
    fn new(
        price: impl Fn(PriceParameter) -> Option<Interval<Cycles>>,
        slice: Bytes,
        page: Bytes,
    ) -> Result<Self, EconomicsError> {
        let pages = slice.pages(page).0 as f64;
        if pages < 1.0 {
            return Err(EconomicsError::Size { slice, page });
        }
        let price = |parameter| {
            let found = price(parameter).map(middle::<Cycles>);
            found.ok_or(EconomicsError::Unknown { what: "the price of packing" })
        };
        let isolating = price(PriceParameter::IsolateSlice)?
            + price(PriceParameter::IsolatePage)? * pages / 1024.0;
        let moving_page = price(PriceParameter::MigratePage)?
            + price(PriceParameter::MigrateMapping)?
            + price(PriceParameter::AllocBuddy)?;
        Ok(Self { emptying: isolating + moving_page * pages / 2.0, isolating, moving_page })
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn slice_gib(slice: Bytes) -> f64 {
    slice.0 as f64 / BYTES_PER_GIB
}

fn middle<Q: PhysicalQuantity>(value: Interval<Q>) -> f64 {
    f64::midpoint(value.low().get(), value.high().get())
}

#[cfg(test)]
pub(crate) mod tests {
    use ramslice_energy::{TimeFactor, builtin, builtin_giveback};
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
        assert!((economics.saving.0 - 0.009_19).abs() < 1e-9);
        // 131072 pages of 13000 cycles at 10 W and 3.8 GHz are 4.48 J.
        assert!((economics.break_even_of_emptying().0 - 490.0).abs() < 5.0, "{economics:?}");
        assert!(economics.break_even(economics.empty).0 < 3.0, "{economics:?}");
        // 8 million units are 2.1 J (thesis, section 4.3.4: a compaction with that budget took
        // 0.485 J on average).
        assert!((economics.cost(Price(8_000_000)).0 - 2.105).abs() < 0.01);
        assert_eq!(economics.price(Worth(2.2)).0 / 1_000_000, 8);
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
        assert_eq!(seen.emptying, real.emptying);
    }

    #[test]
    fn slices_smaller_than_the_unit_are_known_as_such() {
        let (gib, mib) = (Bytes(1 << 30), Bytes(1 << 20));
        let of =
            |unit, slice| thesis(slice).switched_as_one(unit, slice, GranuleLayout::Neighbours);
        let slices = |unit, slice| of(unit, slice).unit_slices;
        assert_eq!(slices(Some(gib), Bytes(64 << 20)), 16);
        // 3 GiB are the least that is both whole slices of 96 MiB and whole units.
        assert_eq!(slices(Some(gib), Bytes(96 << 20)), 32);
        assert_eq!((slices(Some(gib), gib), slices(Some(mib), gib), slices(None, gib)), (1, 1, 1));
        for alone in [of(Some(gib), gib), of(Some(mib), gib), of(None, gib)] {
            assert_eq!(alone, thesis(gib));
            assert_eq!((alone.granule_slices(), alone.granule_of(SliceId(3))), (1, None));
        }
    }

    #[test]
    fn a_granule_has_neighbours_or_slices_of_one_way() {
        let (gib, slice) = (Bytes(1 << 30), Bytes(256 << 20));
        let granules = |layout| {
            let economics = thesis(slice).switched_as_one(Some(gib), slice, layout);
            (0..16).map(|id| economics.granule_of(SliceId(id))).collect::<Vec<_>>()
        };
        let all = |numbers: [u32; 16]| numbers.map(Some).to_vec();
        let neighbours = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
        assert_eq!(granules(GranuleLayout::Neighbours), all(neighbours));
        let by_way = [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3];
        assert_eq!(granules(GranuleLayout::SameWay { ways: 2 }), all(by_way));
        assert_eq!(granules(GranuleLayout::Unknown), [None; 16]);
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

    #[test]
    fn a_gib_that_is_given_back_earns_a_gib_hour_and_pays_within_a_minute() {
        let profile = builtin_giveback().unwrap();
        let of = |slice| SliceEconomics::of_giveback(&profile, slice, Bytes(4096)).unwrap();
        let economics = of(Bytes(1 << 30));
        assert!((economics.saving.0 * 3600.0 - 1.0).abs() < 1e-9);
        assert_eq!(economics.worth_unit, WorthUnit::GibHour);
        // 131072 pages of 13000 cycles at 3 GHz are 0.57 s of a CPU, worth 5.2 s of the GiB; the
        // host's faults are worth 5.8 s.
        let break_even = economics.break_even_of_emptying().0;
        assert!((break_even - 11.0).abs() < 0.5, "{break_even}");
        // A page that is read again within the minute has not paid.
        let refault = economics.break_even_of_refault(Pages(1 << 18)).0;
        assert!((refault - 47.0).abs() < 1.0, "{refault}");
        let small = of(Bytes(4 << 20)).break_even_of_emptying().0;
        assert!((small - break_even).abs() < 2.0, "{small}");
        let none = SliceEconomics::of_giveback(&profile, Bytes(1024), Bytes(4096));
        assert!(matches!(none, Err(EconomicsError::Size { .. })));
    }

    #[test]
    fn a_profile_in_which_switching_costs_nothing_is_refused() {
        let text = include_str!("../../../profiles/giveback.toml");
        let zero = |names: &[&str]| {
            let line = |line: &str| match line.split_once(" = ") {
                Some((name, figure)) if names.contains(&name) => {
                    let unit = figure.split_once("unit").unwrap().1;
                    format!("{name} = {{ value = 0, unit{unit}\n")
                }
                _ => format!("{line}\n"),
            };
            text.lines().map(line).collect::<String>()
        };
        let of = |text: &str| {
            let profile = GivebackProfile::parse(text, "x.toml").unwrap();
            SliceEconomics::of_giveback(&profile, Bytes(1 << 30), Bytes(4096))
        };
        assert!(of(&zero(&["cpu", "wake"])).is_ok() && of(&zero(&["host_faults", "wake"])).is_ok());
        let error = of(&zero(&["cpu", "wake", "host_faults"])).unwrap_err().to_string();
        assert!(error.contains("slices costs nothing"), "{error}");
    }

    #[test]
    fn joules_are_saved_under_the_names_of_the_first_version() {
        let text = serde_json::to_string(&thesis(Bytes(1 << 30))).unwrap();
        for name in ["saving_watts", "unit_joules", "waking_joules", "refault_joules"] {
            assert!(text.contains(name), "{text}");
        }
        assert!(!text.contains("worth_unit"), "{text}");
        assert_eq!(serde_json::from_str::<SliceEconomics>(&text).unwrap(), thesis(Bytes(1 << 30)));
    }
}
