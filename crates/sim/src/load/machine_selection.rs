//! Some machines of a file of utilisation: by name, or a sample that a seed draws.

use std::path::Path;

use ramslice_types::SplitMix64;

use super::{InputError, UsageFile, UsageSeries};

/// Which machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineSelection {
    /// So many, each of the file's as likely as any other, by this seed.
    Sample {
        /// How many.
        number: usize,
        /// What decides.
        seed: u64,
    },
    /// Those of these names.
    Named(Vec<String>),
}

impl MachineSelection {
    /// Reads a file and gives its machines that are meant, in its order, each with its place there.
    ///
    /// Of the machines read, only those under consideration are in memory.
    ///
    /// # Errors
    /// What is wrong with the file, with the row; or that it has fewer machines, or not these. By
    /// names, it is read until all are found.
    pub fn of(
        &self,
        path: &Path,
        file: UsageFile,
    ) -> Result<Vec<(usize, UsageSeries)>, InputError> {
        let missing = |what| InputError::Empty { path: path.to_owned(), what };
        match self {
            Self::Named(names) => {
                let (mut left, mut found) = (names.clone(), Vec::new());
                for (place, series) in file.enumerate() {
                    let series = series?;
                    if let Some(at) = left.iter().position(|name| *name == series.machine) {
                        left.swap_remove(at);
                        found.push((place, series));
                    }
                    if left.is_empty() {
                        break;
                    }
                }
                match left.first() {
                    Some(name) => Err(missing(format!("there is no machine {name}"))),
                    None => Ok(found),
                }
            }
            Self::Sample { number, seed } => {
                // Each machine replaces one of those drawn so far with the probability that keeps
                // all equally likely.
                let (mut random, mut drawn, mut machines) =
                    (SplitMix64::of(*seed, 0), Vec::new(), 0);
                for (place, series) in file.enumerate() {
                    let series = series?;
                    machines += 1;
                    if drawn.len() < *number {
                        drawn.push((place, series));
                        continue;
                    }
                    let at = random.index(machines);
                    if let Some(other) = drawn.get_mut(at) {
                        *other = (place, series);
                    }
                }
                if machines < *number {
                    let what = format!(
                        "the file has {machines} machines, and a sample of {number} is asked for"
                    );
                    return Err(missing(what));
                }
                drawn.sort_by_key(|(place, _)| *place);
                Ok(drawn)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(machines: usize) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("usage.csv");
        let rows = (0..machines).map(|at| format!("m_{at},0,30,40,,,,,\nm_{at},300,30,41,,,,,\n"));
        std::fs::write(&path, rows.collect::<String>()).unwrap();
        (dir, path)
    }

    fn drawn(path: &Path, number: usize, seed: u64) -> Result<Vec<usize>, String> {
        let found =
            MachineSelection::Sample { number, seed }.of(path, UsageFile::open(path).unwrap());
        found.map(|all| all.iter().map(|one| one.0).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sample_repeats_by_its_seed_and_every_machine_is_as_likely() {
        let (_dir, path) = file(10);
        assert_eq!(drawn(&path, 3, 5), drawn(&path, 3, 5));
        let mut times = [0; 10];
        for seed in 0..1000 {
            let places = drawn(&path, 3, seed).unwrap();
            assert!(places.len() == 3 && places.is_sorted_by(|a, b| a < b), "{places:?}");
            for place in places {
                times[place] += 1;
            }
        }
        // 300 each, with a deviation of 14.5.
        assert!(times.iter().all(|times| (240..360).contains(times)), "{times:?}");
    }

    #[test]
    fn fewer_machines_than_asked_for_and_names_that_are_not_there_are_errors() {
        let (_dir, path) = file(3);
        assert_eq!(drawn(&path, 3, 1), Ok(vec![0, 1, 2]));
        let error = drawn(&path, 4, 1).unwrap_err();
        assert!(error.contains("usage.csv: the file has 3 machines, and a sample of 4"), "{error}");
        let named = |names: &[&str]| {
            let which =
                MachineSelection::Named(names.iter().map(|name| (*name).to_owned()).collect());
            which.of(&path, UsageFile::open(&path).unwrap())
        };
        let found = named(&["m_2", "m_0"]).unwrap();
        let machines: Vec<_> =
            found.iter().map(|(place, series)| (*place, series.machine.as_str())).collect();
        assert_eq!(machines, [(0, "m_0"), (2, "m_2")]);
        let error = named(&["m_1", "m_7"]).unwrap_err().to_string();
        assert!(error.contains("usage.csv: there is no machine m_7"), "{error}");
    }
}
