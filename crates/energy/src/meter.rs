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
    last: Option<Vec<MeterReading>>,
    sums_uj: Vec<u128>,
    /// Domains came or went, or a reading failed: what was drawn meanwhile is not known.
    incomplete: bool,
}

/// What a meter says of a time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MeterEnergy {
    /// The whole machine or, where it is not measured, its processors and memory.
    pub machine_joules: Option<Joules>,
    /// The domains that make up that figure.
    pub machine_domains: Vec<String>,
    /// The memory alone.
    pub dram_joules: Option<Joules>,
    /// Domains came or went meanwhile, or a reading failed, so that there is no figure of all the
    /// time.
    pub incomplete: bool,
}

impl MeterTally {
    /// Adds what was drawn since the last readings. Once domains have come or gone, there is no
    /// figure any more: sums that began again would be of another time than the ledger's.
    pub fn add(&mut self, readings: Vec<MeterReading>) {
        if self.incomplete {
            return;
        }
        let Some(last) = self.last.as_mut() else {
            self.sums_uj = vec![0; readings.len()];
            self.last = Some(readings);
            return;
        };
        let same = last.len() == readings.len()
            && last
                .iter()
                .zip(&readings)
                .all(|(a, b)| a.domain == b.domain && a.part_of == b.part_of);
        if !same {
            self.incomplete = true;
            return;
        }
        for ((sum, before), now) in self.sums_uj.iter_mut().zip(last.iter()).zip(&readings) {
            let (from, to) = (u128::from(before.energy_uj), u128::from(now.energy_uj));
            let turn = if to < from { u128::from(now.range_uj) + 1 } else { 0 };
            *sum += (to + turn).saturating_sub(from);
        }
        *last = readings;
    }

    /// A reading failed, as when domains come or go: there is no figure any more. Returns whether
    /// there could have been one until now.
    pub fn lose(&mut self) -> bool {
        !std::mem::replace(&mut self.incomplete, true)
    }

    /// What it shows; nothing without a domain that is understood.
    ///
    /// `psys` is the whole machine. Without it, packages add up, and memory where it is not a part
    /// of one: RAPL names `dram` below a package without including it there.
    pub fn measured(&self) -> Option<MeterEnergy> {
        if self.incomplete {
            return Some(MeterEnergy { incomplete: true, ..MeterEnergy::default() });
        }
        let joules = |wanted: &dyn Fn(&MeterReading) -> bool| {
            let last = self.last.iter().flatten();
            let mut found =
                last.zip(&self.sums_uj).filter(|(reading, _)| wanted(reading)).peekable();
            found.peek()?;
            let (names, sums): (Vec<String>, Vec<u128>) =
                found.map(|(reading, sum)| (reading.domain.clone(), *sum)).unzip();
            Some((names, Joules(sums.iter().sum::<u128>() as f64 / 1e6)))
        };
        let dram_joules = joules(&|reading| reading.domain == "dram").map(|(_, sum)| sum);
        let whole = joules(&|reading| reading.domain.starts_with("psys")).or_else(|| {
            joules(&|reading| reading.domain.starts_with("package") || reading.domain == "dram")
        });
        let (machine_domains, machine_joules) = match whole {
            Some((names, sum)) => (names, Some(sum)),
            None => return None,
        };
        Some(MeterEnergy { machine_joules, machine_domains, dram_joules, incomplete: false })
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

    #[test]
    fn domains_that_come_or_go_leave_no_figure_for_good() {
        let mut tally = MeterTally::default();
        let (one, two) = (
            |uj| vec![reading("package-0", uj)],
            |uj| vec![reading("package-0", uj), reading("psys", uj)],
        );
        for readings in [one(100), one(900), two(10), two(20), one(30), one(40)] {
            tally.add(readings);
        }
        assert_eq!(
            tally.measured(),
            Some(MeterEnergy { incomplete: true, ..MeterEnergy::default() })
        );
        // The same with a list that is empty for a moment, as while a driver is loaded again.
        let mut tally = MeterTally::default();
        for readings in [one(100), Vec::new(), one(10), one(40)] {
            tally.add(readings);
        }
        assert!(tally.measured().unwrap().incomplete);
        let mut late = MeterTally::default();
        late.add(Vec::new());
        late.add(one(10));
        assert!(late.measured().unwrap().incomplete);
    }
}
