//! `/proc/meminfo` and `/proc/vmstat`: names, values and units.

use std::fs;
use std::path::Path;

use crate::error::WriteError;

/// A line of one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatisticLine {
    pub(crate) name: String,
    pub(crate) value: i64,
    pub(crate) unit: &'static str,
}

const KIB: i64 = 1024;
/// What `/proc/vmstat` counts in KiB, without saying so.
const IN_KIB: [&str; 2] = ["nr_kernel_stack", "nr_shadow_call_stack"];

/// `MemTotal:  1234 kB`, or `HugePages_Total:  0`.
pub(crate) fn meminfo(path: &Path) -> Result<Vec<StatisticLine>, WriteError> {
    lines(path, |line| {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let value: i64 = words.next()?.parse().ok()?;
        match words.next() {
            Some("kB") => Some(StatisticLine {
                name: name.to_owned(),
                value: value.checked_mul(KIB)?,
                unit: "bytes",
            }),
            Some(_) => None,
            None => Some(StatisticLine { name: name.to_owned(), value, unit: "count" }),
        }
    })
}

/// `nr_free_pages 1234`.
pub(crate) fn vmstat(path: &Path) -> Result<Vec<StatisticLine>, WriteError> {
    lines(path, |line| {
        let (name, value) = line.split_once(' ')?;
        // Counters are unsigned long; those that went round would have passed 2^63 first.
        let value = i64::try_from(value.trim().parse::<u64>().ok()?).unwrap_or(i64::MAX);
        let (value, unit) = if IN_KIB.contains(&name) {
            (value.checked_mul(KIB)?, "bytes")
        } else {
            (value, "count")
        };
        Some(StatisticLine { name: name.to_owned(), value, unit })
    })
}

fn lines(
    path: &Path,
    parse: impl Fn(&str) -> Option<StatisticLine>,
) -> Result<Vec<StatisticLine>, WriteError> {
    let text =
        fs::read_to_string(path).map_err(|source| WriteError::io("reading", path, source))?;
    let wrong = |line: usize| WriteError::Figure { path: path.to_owned(), line: line + 1 };
    text.lines().enumerate().map(|(at, line)| parse(line).ok_or_else(|| wrong(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn kilobytes_become_bytes_and_counts_stay() {
        let figures = meminfo(file("MemTotal:  12 kB\nHugePages_Total:   3\n").path()).unwrap();
        let seen: Vec<_> = figures.iter().map(|f| (f.name.as_str(), f.value, f.unit)).collect();
        assert_eq!(seen, [("MemTotal", 12 * 1024, "bytes"), ("HugePages_Total", 3, "count")]);
    }

    #[test]
    fn the_kernels_stacks_are_in_kibibytes() {
        let figures = vmstat(file("nr_free_pages 7\nnr_kernel_stack 2\n").path()).unwrap();
        let seen: Vec<_> = figures.iter().map(|f| (f.value, f.unit)).collect();
        assert_eq!(seen, [(7, "count"), (2048, "bytes")]);
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        let text =
            meminfo(file("MemTotal: 12 kB\nMemFree: 3 MB\n").path()).unwrap_err().to_string();
        assert!(text.ends_with(":2 is not a line of a name and a number"), "{text}");
    }
}
