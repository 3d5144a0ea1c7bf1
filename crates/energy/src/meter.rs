//! Energy meters: counters of microjoules that start again at 0.

use ramslice_types::Joules;
use serde::Serialize;

/// What one domain of a meter shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterReading {
    /// The domain's name: `psys`, `package-0`, `dram`.
    pub domain: String,
    /// The domain that it is a part of, if any.
    pub part_of: Option<String>,
    /// Energy so far.
    pub energy_uj: u64,
    /// The largest value before it starts again at 0.
    pub range_uj: u64,
}

/// Sums of a meter over a time. Readings must be so close that no counter comes round twice.
#[derive(Debug, Clone, Default)]
pub struct MeterTally {
    last: Vec<MeterReading>,
    sums_uj: Vec<u128>,
}

/// What a meter says of a time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Measured {
    /// The whole machine or, where it is not measured, its processors and memory.
    pub machine_joules: Option<Joules>,
    /// The domains that make up that figure.
    pub machine_domains: Vec<String>,
    /// The memory alone.
    pub dram_joules: Option<Joules>,
}

impl MeterTally {
    /// Adds what was drawn since the last readings. Domains that come or go start again.
    pub fn add(&mut self, readings: Vec<MeterReading>) {
        let same = self.last.len() == readings.len()
            && self.last.iter().zip(&readings).all(|(a, b)| a.domain == b.domain && a.part_of == b.part_of);
        if same {
            for ((sum, before), now) in self.sums_uj.iter_mut().zip(&self.last).zip(&readings) {
                let (from, to) = (u128::from(before.energy_uj), u128::from(now.energy_uj));
                let turn = if to < from { u128::from(now.range_uj) + 1 } else { 0 };
                *sum += (to + turn).saturating_sub(from);
            }
        } else {
            self.sums_uj = vec![0; readings.len()];
        }
        self.last = readings;
    }

    /// What it shows; nothing without a domain that is understood.
    ///
    /// `psys` is the whole machine. Without it, packages add up, and memory where it is not a part of one: RAPL names
    /// `dram` below a package without including it there.
    pub fn measured(&self) -> Option<Measured> {
        let joules = |wanted: &dyn Fn(&MeterReading) -> bool| {
            let mut found =
                self.last.iter().zip(&self.sums_uj).filter(|(reading, _)| wanted(reading)).peekable();
            found.peek()?;
            let (names, sums): (Vec<String>, Vec<u128>) =
                found.map(|(reading, sum)| (reading.domain.clone(), *sum)).unzip();
            Some((names, Joules(sums.iter().sum::<u128>() as f64 / 1e6)))
        };
        let dram_joules = joules(&|reading| reading.domain == "dram").map(|(_, sum)| sum);
        let whole = joules(&|reading| reading.domain.starts_with("psys"))
            .or_else(|| joules(&|reading| reading.domain.starts_with("package") || reading.domain == "dram"));
        let (machine_domains, machine_joules) = match whole {
            Some((names, sum)) => (names, Some(sum)),
            None => return None,
        };
        Some(Measured { machine_joules, machine_domains, dram_joules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(domain: &str, energy_uj: u64) -> MeterReading {
        let part_of = matches!(domain, "core" | "dram").then(|| "package-0".to_owned());
        MeterReading { domain: domain.to_owned(), part_of, energy_uj, range_uj: 999 }
    }

    #[test]
    fn counters_come_round_and_parts_are_not_counted_twice() {
        let mut tally = MeterTally::default();
        let at = |package, core, dram| {
            vec![reading("package-0", package), reading("core", core), reading("dram", dram)]
        };
        tally.add(at(900, 10, 0));
        tally.add(at(100, 20, 50));
        tally.add(at(300, 20, 60));
        let measured = tally.measured().unwrap();
        assert_eq!(measured.dram_joules, Some(Joules(60e-6)));
        assert_eq!(measured.machine_joules, Some(Joules(460e-6)));
        assert_eq!(measured.machine_domains, ["package-0", "dram"]);
    }

    #[test]
    fn the_whole_machine_goes_before_its_parts() {
        let mut tally = MeterTally::default();
        tally.add(vec![reading("psys", 1), reading("package-0", 1)]);
        tally.add(vec![reading("psys", 8), reading("package-0", 5)]);
        assert_eq!(tally.measured().unwrap().machine_joules, Some(Joules(7e-6)));
    }

    #[test]
    fn without_a_known_domain_there_is_no_measurement() {
        let mut tally = MeterTally::default();
        tally.add(vec![reading("mmio", 1)]);
        tally.add(vec![reading("mmio", 2)]);
        assert_eq!(tally.measured(), None);
    }
}
