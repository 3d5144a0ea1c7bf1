//! What giving memory back to the host came to: GiB hours, what they are worth, what they cost.

use ramslice_types::{
    Bytes, Cycles, GibSeconds, Hertz, PhysicalQuantity, Ratio, Seconds, Worth, WorthPerGib,
};
use serde::Serialize;

use crate::clock::{SampleClock, gib};
use crate::costs::CostTerm;
use crate::interval::Interval;
use crate::ledger::EnergyTally;
use crate::profile::GivebackProfile;
use crate::verdict::digits;
use crate::worth::WorthUnit;

const SECONDS_PER_HOUR: f64 = 3600.0;
const GIB_BYTES: f64 = (1u64 << 30) as f64;

/// The inputs of a statement other than the sums.
#[derive(Debug, Clone, Copy)]
pub struct GivebackStatementSettings<'a> {
    /// What things are worth; without, only GiB hours and what was done are known.
    pub profile: Option<&'a GivebackProfile>,
    /// The frequency by which the guest converted CPU time to measured cycles; the profile's where
    /// the guest does not report it.
    pub cycle_clock: Option<Hertz>,
    /// Size of a page of the guest.
    pub page_bytes: Bytes,
    /// The requests were only simulated.
    pub is_simulated: bool,
}

/// One cost of giving back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GivebackCostLine {
    /// Which.
    pub term: CostTerm,
    /// How much, in the unit of the statement.
    pub worth: Interval<Worth>,
}

/// What giving memory back came to. The clock of a guest is its host's, so hours are real ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GivebackStatement {
    /// The time, in seconds.
    pub seconds: Seconds,
    /// Memory that was off, times seconds: at least and at most.
    pub given_back_gib_seconds: Interval<GibSeconds>,
    /// CPU time of emptying slices, if the clock of its cycles is known.
    pub cpu_seconds: Option<Interval<Seconds>>,
    /// Cache that was dropped: at most this much is read again.
    pub dropped_bytes: Bytes,
    /// What it is worth and cost; nothing without a profile.
    pub balance: Option<GivebackBalance>,
    /// All of it in a sentence without its end.
    pub sentence: String,
}

/// Worth and cost, in one unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GivebackBalance {
    /// The unit of all figures.
    #[serde(serialize_with = "as_text")]
    pub unit: WorthUnit,
    /// What the memory given back was worth.
    pub value: Interval<Worth>,
    /// What that cost.
    pub cost: Interval<Worth>,
    /// Value less cost.
    pub net: Interval<Worth>,
    /// The costs.
    pub lines: Vec<GivebackCostLine>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn as_text<S: serde::Serializer>(unit: &WorthUnit, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(unit)
}

impl GivebackStatement {
    /// Works it out.
    pub fn new(tally: &EnergyTally, settings: &GivebackStatementSettings<'_>) -> Self {
        let ends = [tally.off_low_byte_us, tally.off_high_byte_us]
            .map(|byte_us| SampleClock::Real.gib_seconds(byte_us));
        let given_back_gib_seconds = Interval::between(ends[0].low(), ends[1].high());
        let frequency = settings
            .cycle_clock
            .map(Interval::exactly)
            .or(settings.profile.and_then(|profile| profile.frequency.value));
        let cycles = Interval::exactly(Cycles(tally.work.price_measured.cycles() as f64));
        let mut statement = Self {
            seconds: Seconds(tally.elapsed().as_secs_f64()),
            given_back_gib_seconds,
            cpu_seconds: frequency.and_then(|frequency| cycles.per(frequency)),
            dropped_bytes: tally.work.dropped_pages.bytes(settings.page_bytes),
            balance: None,
            sentence: String::new(),
        };
        statement.balance = settings.profile.and_then(|profile| statement.balance(tally, profile));
        statement.sentence = statement.words(tally, settings.is_simulated);
        statement
    }

    /// Worth and costs; nothing if the profile lacks a figure, which its check rules out.
    fn balance(&self, tally: &EnergyTally, profile: &GivebackProfile) -> Option<GivebackBalance> {
        let value = profile.memory.value?.times(self.given_back_gib_seconds);
        let per_gib =
            |worth: Interval<WorthPerGib>, bytes: u64| worth.times(Interval::exactly(gib(bytes)));
        let woken = Interval::exactly(Ratio(tally.work.woken_slices as f64));
        let lines = vec![
            GivebackCostLine {
                term: CostTerm::Emptying,
                worth: profile.cpu.value?.times(self.cpu_seconds?),
            },
            GivebackCostLine {
                term: CostTerm::Waking,
                // Of what wakes, the host faults in what is touched: at most all of it.
                worth: profile.wake.value?.times(woken)
                    + per_gib(profile.host_faults.value?, tally.woken_bytes).or_nothing(),
            },
            GivebackCostLine {
                term: CostTerm::Refaults,
                // A page that was dropped is read again once or never.
                worth: per_gib(profile.refaults.value?, self.dropped_bytes.0).or_nothing(),
            },
        ];
        let cost = lines.iter().fold(Interval::zero(), |sum, line| sum + line.worth);
        Some(GivebackBalance { unit: profile.unit, value, cost, net: value - cost, lines })
    }

    /// Memory that was off, times hours: the middle of at least and at most.
    pub fn gib_hours(&self) -> f64 {
        let given_back = self.given_back_gib_seconds;
        f64::midpoint(given_back.low().0, given_back.high().0) / SECONDS_PER_HOUR
    }

    fn words(&self, tally: &EnergyTally, simulated: bool) -> String {
        let gib_hours = self.gib_hours();
        let hours = self.seconds.0 / SECONDS_PER_HOUR;
        let mean = if hours > 0.0 { gib_hours / hours } else { 0.0 };
        let verb = if simulated { "would have given back" } else { "gave back" };
        let mut text = format!(
            "{verb} {} GiB for {} ({} GiB h)",
            digits(mean),
            span(self.seconds),
            digits(gib_hours)
        );
        match &self.balance {
            Some(GivebackBalance { unit, value, cost, .. }) => {
                if *unit != WorthUnit::GibHour {
                    text += &format!(", worth {} {unit},", ends(*value));
                }
                text += &format!(" at a cost of {} {unit}", ends(*cost));
            }
            None => {
                let cpu = self.cpu_seconds.map_or_else(
                    || "an unknown time of a CPU".to_owned(),
                    |time| format!("{} s of a CPU", ends(time)),
                );
                text += &format!(
                    " at a cost of {cpu}, {} GiB of cache dropped and {} slices woken",
                    digits(self.dropped_bytes.0 as f64 / GIB_BYTES),
                    tally.work.woken_slices
                );
            }
        }
        text
    }
}

/// A time in the unit that suits it.
fn span(time: Seconds) -> String {
    let (length, unit) = match time.0 {
        seconds if seconds < 60.0 => (seconds, "s"),
        seconds if seconds < SECONDS_PER_HOUR => (seconds / 60.0, "minutes"),
        seconds => (seconds / SECONDS_PER_HOUR, "hours"),
    };
    format!("{} {unit}", digits(length))
}

/// Both ends, or one number.
fn ends<Q: PhysicalQuantity>(value: Interval<Q>) -> String {
    let (low, high) = (digits(value.low().get()), digits(value.high().get()));
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use ramslice_types::{Pages, Price, WorkCounters};

    use super::*;
    use crate::profile::builtin_giveback;

    /// 2 GiB for half an hour, which took 1 s of a CPU at 3 GHz, dropped 1 GiB and woke 4 slices.
    fn tally() -> EnergyTally {
        EnergyTally {
            elapsed_us: 1_800_000_000,
            steps: 60,
            off_low_byte_us: u128::from(2u64 << 30) * 1_800_000_000,
            off_high_byte_us: u128::from(2u64 << 30) * 1_800_000_000,
            woken_bytes: 256 << 20,
            work: WorkCounters {
                price_measured: Price(30_000_000),
                dropped_pages: Pages(1 << 18),
                woken_slices: 4,
                ..WorkCounters::default()
            },
            ..EnergyTally::default()
        }
    }

    fn statement(profile: Option<&GivebackProfile>, is_simulated: bool) -> GivebackStatement {
        let settings = GivebackStatementSettings {
            profile,
            cycle_clock: Some(Hertz(3e9)),
            page_bytes: Bytes(4096),
            is_simulated,
        };
        GivebackStatement::new(&tally(), &settings)
    }

    #[test]
    fn gib_hours_are_worth_one_each_and_every_cost_is_in_their_unit() {
        let profile = builtin_giveback().unwrap();
        let statement = statement(Some(&profile), true);
        let balance = statement.balance.as_ref().unwrap();
        assert!((balance.value.low().0 - 1.0).abs() < 1e-9, "{balance:?}");
        let costs: Vec<_> =
            balance.lines.iter().map(|line| (line.worth.low().0, line.worth.high().0)).collect();
        let near = |(low, high): (f64, f64), (a, b): (f64, f64)| {
            (low - a).abs() < 1e-9 && (high - b).abs() < 1e-9
        };
        assert!(near(costs[0], (9.09 / 3600.0, 9.11 / 3600.0)), "{costs:?}");
        assert!(near(costs[1], (0.0, 4.0 * 2.5e-6 + 0.0026 / 4.0)), "{costs:?}");
        assert!(near(costs[2], (0.0, 0.0253)), "{costs:?}");
        assert_eq!(
            statement.sentence,
            "would have given back 2.00 GiB for 30.0 minutes (1.00 GiB h) at a cost of 0.003 to \
             0.028 GiB h"
        );
    }

    #[test]
    fn gib_hours_are_those_of_the_sentence_where_ends_differ() {
        let tally = EnergyTally { off_low_byte_us: 0, ..tally() };
        let settings = GivebackStatementSettings {
            profile: None,
            cycle_clock: None,
            page_bytes: Bytes(4096),
            is_simulated: false,
        };
        let statement = GivebackStatement::new(&tally, &settings);
        assert!((statement.gib_hours() - 0.5).abs() < 1e-9, "{statement:?}");
        assert!(statement.sentence.contains("1.00 GiB for 30.0 minutes (0.500 GiB h)"));
    }

    #[test]
    fn money_is_worth_what_the_profile_says_and_the_sentence_says_so() {
        let text = crate::builtin_text("giveback")
            .unwrap()
            .replace("\nkind", "\ncurrency = \"EUR\"\nkind")
            .replace("\"GiB h/", "\"EUR/")
            .replace(
                "\n# A CPU",
                "\nmemory = { value = 0.005, unit = \"EUR/GiB h\", source = \"x\" }\n# A CPU",
            );
        let profile = GivebackProfile::parse(&text, "my.toml").unwrap();
        let sentence = statement(Some(&profile), false).sentence;
        assert!(
            sentence
                .starts_with("gave back 2.00 GiB for 30.0 minutes (1.00 GiB h), worth 0.005 EUR"),
            "{sentence}"
        );
        assert!(sentence.ends_with(" at a cost of 0.003 to 0.028 EUR"), "{sentence}");
    }

    #[test]
    fn without_a_profile_costs_are_what_was_done() {
        let statement = statement(None, true);
        assert_eq!(statement.balance, None);
        assert!(
            statement.sentence.ends_with(
                "at a cost of 1.00 s of a CPU, 1.00 GiB of cache dropped and 4 slices woken"
            ),
            "{}",
            statement.sentence
        );
    }
}
