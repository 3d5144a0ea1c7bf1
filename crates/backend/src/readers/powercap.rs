//! Energy meters of the kernel's powercap framework, as RAPL: `/sys/class/powercap`.

use std::fs;
use std::io;
use std::path::Path;

use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::KernelPaths;
use crate::readers::sysfs::failed;

/// What one domain shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerDomain {
    /// Its name, as in `package-0`, `dram` or `psys`.
    pub name: String,
    /// The name of the domain that it is below, if any.
    pub part_of: Option<String>,
    /// Energy so far, in microjoules.
    pub energy_uj: u64,
    /// The largest value, after which it starts again at 0.
    pub range_uj: u64,
}

/// Reads all domains with a counter of energy, in a fixed order; none on a machine without a meter.
///
/// # Errors
/// If a counter is there and cannot be read: since Linux 5.10 only root may.
pub fn power_domains(paths: &KernelPaths) -> Result<Vec<PowerDomain>, KernelError> {
    let mut names = match fs::read_dir(&paths.powercap) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|source| failed(paths.powercap.clone(), FileAccess::Read, source))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(failed(paths.powercap.clone(), FileAccess::Read, source)),
    };
    // The same package shows up again through memory-mapped registers; it must not count twice.
    names.retain(|name| !name.starts_with("intel-rapl-mmio"));
    names.sort();
    let mut domains = Vec::new();
    for name in &names {
        let dir = paths.powercap.join(name);
        if !dir.join("energy_uj").exists() {
            continue;
        }
        // `intel-rapl:0:1` is a part of `intel-rapl:0`.
        let above =
            name.rsplit_once(':').map(|(above, _)| above).filter(|above| above.contains(':'));
        let part_of =
            above.map(|above| text(&paths.powercap.join(above).join("name"))).transpose()?;
        domains.push(PowerDomain {
            name: text(&dir.join("name"))?,
            part_of,
            energy_uj: number(&dir.join("energy_uj"))?,
            range_uj: number(&dir.join("max_energy_range_uj"))?,
        });
    }
    debug!(?domains, "powercap");
    Ok(domains)
}

fn text(path: &Path) -> Result<String, KernelError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(failed(path.to_owned(), FileAccess::Read, source)),
    }
}

fn number(path: &Path) -> Result<u64, KernelError> {
    let text = text(path)?;
    text.parse().map_err(|_| KernelError::NotANumber { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn domain(paths: &KernelPaths, dir: &str, name: &str, energy_uj: &str) {
        let dir = paths.powercap.join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        fs::write(dir.join("energy_uj"), format!("{energy_uj}\n")).unwrap();
        fs::write(dir.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }

    #[test]
    fn domains_come_with_what_they_are_a_part_of() {
        let dir = TempDir::new().unwrap();
        let paths = KernelPaths::under(dir.path());
        domain(&paths, "intel-rapl:0", "package-0", "1000");
        domain(&paths, "intel-rapl:0:0", "core", "400");
        domain(&paths, "intel-rapl:0:1", "dram", "90");
        domain(&paths, "intel-rapl:1", "psys", "3000");
        domain(&paths, "intel-rapl-mmio:0", "package-0", "1000");
        fs::create_dir_all(paths.powercap.join("intel-rapl")).unwrap();
        let domains = power_domains(&paths).unwrap();
        let short: Vec<_> = domains
            .iter()
            .map(|domain| (domain.name.as_str(), domain.part_of.as_deref(), domain.energy_uj))
            .collect();
        assert_eq!(
            short,
            [
                ("package-0", None, 1000),
                ("core", Some("package-0"), 400),
                ("dram", Some("package-0"), 90),
                ("psys", None, 3000),
            ]
        );
        assert_eq!(domains[0].range_uj, 262_143_328_850);
    }

    #[test]
    fn a_machine_without_a_meter_has_no_domains_and_no_error() {
        let dir = TempDir::new().unwrap();
        assert_eq!(power_domains(&KernelPaths::under(dir.path())).unwrap(), []);
    }

    #[test]
    fn a_counter_that_makes_no_sense_is_named() {
        let dir = TempDir::new().unwrap();
        let paths = KernelPaths::under(dir.path());
        domain(&paths, "intel-rapl:0", "package-0", "lots");
        let error = power_domains(&paths).unwrap_err().to_string();
        assert!(error.contains("intel-rapl:0/energy_uj") && error.contains("`lots`"), "{error}");
    }
}
