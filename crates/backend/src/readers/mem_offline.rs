//! What Qualcomm's mem-offline, a vendor's driver for DRAM segments, reports of its segments and of
//! the blocks in them: `/sys/kernel/mem-offline`.
//!
//! The driver ends the refresh of a segment once all of its memory blocks are offline. It counts
//! and times blocks, not segments: from the moment that memory hotplug asks it until the block has
//! changed. Its table is cut off after a page of text, so that with many blocks the last rows are
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ramslice_types::Bytes;
use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::KernelPaths;
use crate::readers::sysfs::failed;

/// What the driver reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemOffline {
    /// The size of segments; if they differ, [`segments`](Self::segments) has each.
    pub granule: Option<Bytes>,
    /// Segments by address; empty unless their sizes differ.
    pub segments: Vec<DramSegment>,
    /// Memory blocks by number.
    pub blocks: BTreeMap<u64, BlockPower>,
}

/// A part of DRAM that is refreshed as a whole, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DramSegment {
    /// Its memory blocks; a segment smaller than a block has the one that it is in.
    pub blocks: Range<u64>,
    /// Its size.
    pub size: Bytes,
}

/// What the driver knows of a memory block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockPower {
    /// Whether the driver wants it refreshed. If this is true of an offline block, the firmware did
    /// not take the driver's message, and nothing is saved.
    pub is_on: Option<bool>,
    /// How often it came online, how fast, and how long it was.
    pub online: BlockSwitches,
    /// The same for offline.
    pub offline: BlockSwitches,
    /// Bytes in use; 0 outside Movable.
    pub allocated: Option<Bytes>,
}

/// How often and how fast a block changed to a state, since the driver was loaded. Times are `None`
/// before the first success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockSwitches {
    /// Attempts that succeeded.
    pub successes: Option<u64>,
    /// Attempts that failed, and one that is under way.
    pub failures: Option<u64>,
    /// The time of the last success.
    pub last: Option<Duration>,
    /// The average of all.
    pub average: Option<Duration>,
    /// The shortest.
    pub best: Option<Duration>,
    /// The longest.
    pub worst: Option<Duration>,
    /// How long it was in this state, in whole seconds.
    pub residency: Option<Duration>,
    /// That in percent of both states' times, rounded down.
    pub residency_percent: Option<u8>,
}

/// Reads all of it; `None` if the kernel has no such driver.
///
/// # Errors
/// If a file is there and cannot be read, or has no number where one belongs.
pub fn mem_offline(paths: &KernelPaths) -> Result<Option<MemOffline>, KernelError> {
    let folder = &paths.mem_offline;
    let Some(names) = names_in(folder)? else { return Ok(None) };
    let mut found = MemOffline {
        granule: number(&folder.join("offline_granule"))?.map(Bytes),
        ..MemOffline::default()
    };
    let sections: BTreeSet<u64> =
        names.iter().filter_map(|name| name.strip_prefix("memory")?.parse().ok()).collect();
    // Folders are named by a block's first section, while the table has the numbers of blocks.
    let per_block =
        sections.iter().zip(sections.iter().skip(1)).map(|(a, b)| b - a).min().unwrap_or(1);
    if let Some(stats) = text(&folder.join("stats"))? {
        found.blocks = table(&stats)
            .map_err(|text| KernelError::NotANumber { path: folder.join("stats"), text })?;
    }
    for section in sections {
        found.blocks.entry(section / per_block).or_default().allocated =
            number(&folder.join(format!("memory{section}/allocated_bytes")))?.map(Bytes);
    }
    let segments = folder.join("seg_info");
    for name in names_in(&segments)?.unwrap_or_default() {
        let of = |file: &str| number(&segments.join(&name).join(file));
        if let (Some(first), Some(count), Some(size)) =
            (of("memblk_start")?, of("num_memblks")?, of("seg_size")?)
        {
            let first = first / per_block;
            let blocks = first..first.saturating_add(count.max(1));
            found.segments.push(DramSegment { blocks, size: Bytes(size) });
        }
    }
    found.segments.sort_by_key(|segment| segment.blocks.start);
    debug!(?found, "mem-offline");
    Ok(Some(found))
}

/// What the driver knows of a slice: of several blocks, each is switched after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlicePower {
    /// How long it was offline at most, in percent of the time since the driver was loaded: as long
    /// as the block of it that was offline least.
    pub offline_percent: Option<u8>,
    /// Bringing it online.
    pub online: SwitchTimes,
    /// Taking it offline.
    pub offline: SwitchTimes,
}

/// How long switching a slice takes: the sums of its blocks' times, so that of several blocks the
/// best is a lower bound and the worst an upper one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchTimes {
    /// The shortest.
    pub best: Option<Duration>,
    /// The average.
    pub average: Option<Duration>,
    /// The longest.
    pub worst: Option<Duration>,
}

impl SwitchTimes {
    /// `None` for what the driver does not know of each block.
    fn of(blocks: &[&BlockSwitches]) -> Self {
        let sum = |time: fn(&BlockSwitches) -> Option<Duration>| {
            blocks.iter().map(|&block| time(block)).sum()
        };
        Self {
            best: sum(|block| block.best),
            average: sum(|block| block.average),
            worst: sum(|block| block.worst),
        }
    }
}

impl MemOffline {
    /// What it knows of a slice that consists of these blocks; `None` if it lacks one of them.
    pub fn slice(&self, blocks: Range<u64>) -> Option<SlicePower> {
        let known: Option<Vec<&BlockPower>> =
            blocks.map(|number| self.blocks.get(&number)).collect();
        let known = known.filter(|blocks| !blocks.is_empty())?;
        let online: Vec<_> = known.iter().map(|block| &block.online).collect();
        let offline: Vec<_> = known.iter().map(|block| &block.offline).collect();
        let percents: Option<Vec<u8>> =
            offline.iter().map(|block| block.residency_percent).collect();
        Some(SlicePower {
            offline_percent: percents.and_then(|percents| percents.into_iter().min()),
            online: SwitchTimes::of(&online),
            offline: SwitchTimes::of(&offline),
        })
    }

    /// The blocks of each segment, of which some may be none of the driver's.
    pub fn segment_blocks(&self, block: Bytes) -> Vec<Range<u64>> {
        if !self.segments.is_empty() {
            return self.segments.iter().map(|segment| segment.blocks.clone()).collect();
        }
        let per_segment = self.granule.map_or(1, |granule| granule.0 / block.0.max(1)).max(1);
        let first: BTreeSet<u64> =
            self.blocks.keys().map(|number| number / per_segment * per_segment).collect();
        first.into_iter().map(|first| first..first + per_segment).collect()
    }

    /// The smallest and the largest segment's size.
    pub fn segment_sizes(&self) -> Option<(Bytes, Bytes)> {
        let sizes = || self.segments.iter().map(|segment| segment.size);
        Some((sizes().min().or(self.granule)?, sizes().max().or(self.granule)?))
    }

    /// Whether each segment lies in one slice of this size: otherwise taking a slice offline may
    /// save nothing until another one is offline, too.
    pub fn slices_have_whole_segments(&self, slice: Bytes, block: Bytes) -> bool {
        let per_slice = (slice.0 / block.0.max(1)).max(1);
        self.segment_blocks(block)
            .iter()
            .all(|blocks| blocks.start / per_slice == (blocks.end - 1) / per_slice)
    }

    /// A size of slices that have whole segments: a small multiple of the largest one, if any is.
    pub fn whole_slice(&self, block: Bytes) -> Option<Bytes> {
        let largest = self.segment_sizes()?.1.0.max(block.0);
        (1..=16)
            .map(|times| Bytes(largest * times))
            .find(|&slice| self.slices_have_whole_segments(slice, block))
    }
}

/// The table `stats`, by block; an error has the cell that is no number.
///
/// First come two parts, headed `ONLINE` and `OFFLINE`, each with a row of blocks (`mem8 mem9`) and
/// rows of numbers; then rows for the present state, for times and shares in both states.
fn table(text: &str) -> Result<BTreeMap<u64, BlockPower>, String> {
    let mut found: BTreeMap<u64, BlockPower> = BTreeMap::new();
    let mut columns: Vec<u64> = Vec::new();
    let mut is_offline = false;
    let is_cut = !text.ends_with('\n');
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (label, cells) = line.trim().split_once(':').unwrap_or(("", line));
        let mut cells: Vec<&str> = cells.split_whitespace().collect();
        if is_cut && lines.peek().is_none() {
            // The rest of this cell may be missing.
            cells.pop();
        }
        match cells.as_slice() {
            ["ONLINE"] => is_offline = false,
            ["OFFLINE"] => is_offline = true,
            [first, ..] if label.is_empty() && first.starts_with("mem") => {
                let number = |cell: &&str| cell.strip_prefix("mem")?.parse().ok();
                columns = cells.iter().filter_map(number).collect();
                for &number in &columns {
                    found.entry(number).or_default();
                }
            }
            _ => {}
        }
        for (number, cell) in columns.iter().zip(cells).filter(|_| !label.is_empty()) {
            if let Some(block) = found.get_mut(number) {
                set_cell(block, label, is_offline, cell).ok_or_else(|| cell.to_owned())?;
            }
        }
    }
    for block in found.values_mut() {
        for switches in [&mut block.online, &mut block.offline] {
            if switches.successes == Some(0) {
                let BlockSwitches { last, average, best, worst, .. } = switches;
                for time in [last, average, best, worst] {
                    *time = None;
                }
            }
        }
    }
    Ok(found)
}

/// Enters a cell; `None` if it is not what its row has.
fn set_cell(block: &mut BlockPower, label: &str, is_offline: bool, cell: &str) -> Option<()> {
    let count = || cell.parse::<u64>().ok();
    let us = || Some(Duration::from_micros(cell.strip_suffix("us")?.parse().ok()?));
    let seconds = || Some(Duration::from_secs(cell.strip_suffix('s')?.parse().ok()?));
    let percent = || cell.strip_suffix('%')?.parse::<u8>().ok();
    let switches = if is_offline { &mut block.offline } else { &mut block.online };
    match label {
        "Last recd time" => switches.last = Some(us()?),
        "Avg time" => switches.average = Some(us()?),
        "Best time" => switches.best = Some(us()?),
        "Worst time" => switches.worst = Some(us()?),
        "Success count" => switches.successes = Some(count()?),
        "Fail count" => switches.failures = Some(count()?),
        "State" => match cell {
            "Online" => block.is_on = Some(true),
            "Offline" => block.is_on = Some(false),
            _ => return None,
        },
        "Online time" => block.online.residency = Some(seconds()?),
        "Offline time" => block.offline.residency = Some(seconds()?),
        "Online %" => block.online.residency_percent = Some(percent()?),
        "Offline %" => block.offline.residency_percent = Some(percent()?),
        // Averages of all blocks, and what a newer driver may add.
        _ => {}
    }
    Some(())
}

/// The names in a folder, `None` without it.
fn names_in(folder: &Path) -> Result<Option<Vec<String>>, KernelError> {
    let failed = |source| failed(folder.to_owned(), FileAccess::Read, source);
    match fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
            .map(Some)
            .map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(source)),
    }
}

fn text(path: &Path) -> Result<Option<String>, KernelError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(path.to_owned(), FileAccess::Read, source)),
    }
}

fn number(path: &Path) -> Result<Option<u64>, KernelError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let text = text.trim();
    text.parse()
        .map(Some)
        .map_err(|_| KernelError::NotANumber { path: path.to_owned(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;
    const BLOCK: Bytes = Bytes(128 * MIB);

    /// Two blocks: the first went offline twice and came back once, the second never changed.
    const STATS: &str = "
\tONLINE
\t\t\tmem8\t\tmem9\t\t
\tLast recd time:\t2500us\t\t0us\t\t
\tAvg time:\t2500us\t\t0us\t\t
\tBest time:\t2500us\t\t0us\t\t
\tWorst time:\t2500us\t\t0us\t\t
\tSuccess count:\t1\t\t0\t\t
\tFail count:\t0\t\t2\t\t

\tOFFLINE
\t\t\tmem8\t\tmem9\t\t
\tLast recd time:\t40000us\t\t0us\t\t
\tAvg time:\t60000us\t\t0us\t\t
\tBest time:\t40000us\t\t0us\t\t
\tWorst time:\t80000us\t\t0us\t\t
\tSuccess count:\t2\t\t0\t\t
\tFail count:\t0\t\t1\t\t

\tState:\t\tOffline\t\tOnline\t\t

\tOnline time:\t30s\t\t100s\t\t
\tOffline time:\t70s\t\t0s\t\t

\tOnline %:\t30%\t\t100%\t\t
\tOffline %:\t70%\t\t0%\t\t

\tAvg Online %:\t65%
\tAvg Offline %:\t35%

";

    fn write(dir: &TempDir, name: &str, text: &str) {
        let path = dir.path().join("sys/kernel/mem-offline").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(dir: &TempDir) -> MemOffline {
        mem_offline(&KernelPaths::under(dir.path())).unwrap().unwrap()
    }

    #[test]
    fn the_table_has_times_counts_and_residency_of_each_block() {
        let dir = TempDir::new().unwrap();
        write(&dir, "stats", STATS);
        write(&dir, "offline_granule", "536870912\n");
        write(&dir, "anon_migrate", "0\n");
        write(&dir, "memory8/allocated_bytes", "0\n");
        write(&dir, "memory9/allocated_bytes", "4096\n");
        let found = read(&dir);
        assert_eq!(found.granule, Some(Bytes(512 * MIB)));
        let us = |us| Some(Duration::from_micros(us));
        let (first, second) = (&found.blocks[&8], &found.blocks[&9]);
        assert_eq!((first.is_on, second.is_on), (Some(false), Some(true)));
        assert_eq!(
            first.offline,
            BlockSwitches {
                successes: Some(2),
                failures: Some(0),
                last: us(40_000),
                average: us(60_000),
                best: us(40_000),
                worst: us(80_000),
                residency: Some(Duration::from_secs(70)),
                residency_percent: Some(70),
            }
        );
        assert_eq!((first.online.average, first.online.residency_percent), (us(2500), Some(30)));
        assert_eq!((second.online.average, second.online.failures), (None, Some(2)));
        assert_eq!((second.offline.worst, second.offline.failures), (None, Some(1)));
        assert_eq!((first.allocated, second.allocated), (Some(Bytes(0)), Some(Bytes(4096))));
    }

    #[test]
    fn a_slice_takes_as_long_as_its_blocks_and_is_off_as_long_as_the_least_of_them() {
        let dir = TempDir::new().unwrap();
        write(&dir, "stats", STATS);
        let found = read(&dir);
        let us = |us| Some(Duration::from_micros(us));
        let first = found.slice(8..9).unwrap();
        assert_eq!(first.offline_percent, Some(70));
        let times = |best, average, worst| SwitchTimes {
            best: us(best),
            average: us(average),
            worst: us(worst),
        };
        assert_eq!(first.offline, times(40_000, 60_000, 80_000));
        assert_eq!(first.online, times(2500, 2500, 2500));
        let both = found.slice(8..10).unwrap();
        assert_eq!(both.offline_percent, Some(0));
        assert_eq!(both.offline, SwitchTimes::default(), "the second was never switched");
        assert_eq!(found.slice(9..11), None, "no block 10 of the driver's");
    }

    #[test]
    fn a_table_that_is_cut_off_gives_what_it_has_and_no_half_of_a_number() {
        let dir = TempDir::new().unwrap();
        let end = STATS.find("80000us").unwrap();
        for more in [3, 7, 9] {
            write(&dir, "stats", &STATS[..end + more]);
            let block = read(&dir).blocks[&8].clone();
            assert_eq!((block.offline.worst, block.is_on), (None, None), "{more}");
            assert_eq!(block.offline.best, Some(Duration::from_millis(40)));
        }
        for end in 0..STATS.len() {
            write(&dir, "stats", &STATS.replace("mem", "mem1")[..end]);
            let blocks = read(&dir).blocks;
            assert!(blocks.keys().all(|number| [18, 19].contains(number)), "{end}");
        }
    }

    #[test]
    fn segments_of_different_sizes_are_listed_and_counted_in_blocks() {
        let dir = TempDir::new().unwrap();
        // Blocks of 256 MiB are two sections each.
        for section in [16, 18, 20, 22] {
            write(&dir, &format!("memory{section}/allocated_bytes"), "0\n");
        }
        for (number, first, count, size) in
            [(0, 16, 2, 512), (10, 22, 1, 64), (1, 20, 1, 256), (11, 22, 1, 64)]
        {
            let folder = format!("seg_info/segment{number}");
            write(&dir, &format!("{folder}/memblk_start"), &format!("{first}\n"));
            write(&dir, &format!("{folder}/num_memblks"), &format!("{count}\n"));
            write(&dir, &format!("{folder}/seg_size"), &format!("{}\n", size * MIB));
        }
        let found = read(&dir);
        assert_eq!(found.blocks.keys().copied().collect::<Vec<_>>(), [8, 9, 10, 11]);
        let segments: Vec<_> =
            found.segments.iter().map(|one| (one.blocks.clone(), one.size.0 / MIB)).collect();
        assert_eq!(segments, [(8..10, 512), (10..11, 256), (11..12, 64), (11..12, 64)]);
        assert_eq!(found.segment_sizes(), Some((Bytes(64 * MIB), Bytes(512 * MIB))));
        let block = Bytes(256 * MIB);
        assert!(!found.slices_have_whole_segments(block, block));
        assert_eq!(found.whole_slice(block), Some(Bytes(512 * MIB)));
    }

    #[test]
    fn equal_segments_are_known_by_their_granule() {
        let of = |granule: u64, blocks: Range<u64>| MemOffline {
            granule: Some(Bytes(granule * MIB)),
            blocks: blocks.map(|number| (number, BlockPower::default())).collect(),
            ..MemOffline::default()
        };
        let found = of(512, 8..16);
        assert_eq!(found.segment_blocks(BLOCK), [8..12, 12..16]);
        let whole = |mib| found.slices_have_whole_segments(Bytes(mib * MIB), BLOCK);
        assert_eq!([128, 256, 384, 512, 1024].map(whole), [false, false, false, true, true]);
        assert_eq!(found.whole_slice(BLOCK), Some(Bytes(512 * MIB)));
        // Smaller than a block, or not known: every slice has whole ones.
        assert!(of(64, 8..16).slices_have_whole_segments(BLOCK, BLOCK));
        assert!(MemOffline::default().slices_have_whole_segments(BLOCK, BLOCK));
        assert_eq!(MemOffline::default().whole_slice(BLOCK), None);
    }

    #[test]
    fn segments_that_no_slice_size_fits_are_not_promised_one() {
        let segment = |blocks: Range<u64>| DramSegment { size: Bytes(512 * MIB), blocks };
        let found =
            MemOffline { segments: vec![segment(2..6), segment(6..10)], ..MemOffline::default() };
        // Only one slice for all of them would do.
        assert_eq!(found.whole_slice(BLOCK), Some(Bytes(1536 * MIB)));
        let found = MemOffline {
            segments: (0..16).map(|at| segment(4 * at + 1..4 * at + 5)).collect(),
            ..MemOffline::default()
        };
        assert_eq!(found.whole_slice(BLOCK), None);
    }

    #[test]
    fn without_the_driver_there_is_nothing_and_what_makes_no_sense_is_named() {
        let dir = TempDir::new().unwrap();
        assert_eq!(mem_offline(&KernelPaths::under(dir.path())).unwrap(), None);
        write(&dir, "stats", &STATS.replace("2500us", "soon"));
        let error = mem_offline(&KernelPaths::under(dir.path())).unwrap_err().to_string();
        assert!(error.contains("mem-offline/stats") && error.contains("`soon`"), "{error}");
        write(&dir, "stats", STATS);
        write(&dir, "offline_granule", "large\n");
        let error = mem_offline(&KernelPaths::under(dir.path())).unwrap_err().to_string();
        assert!(error.contains("offline_granule") && error.contains("`large`"), "{error}");
    }
}
