//! Which page frames are sampled: those whose hash is below a threshold, within words of the bitmap
//! whose hash is below another one.

use std::fs;
use std::ops::Range;
use std::path::Path;

use ramslice_miss_ratio::PageSample;
use rustix::param::page_size;

use super::error::ReuseError;
use super::page_idle::WORD_PAGES;

const IOMEM: &str = "proc/iomem";
/// Of the frames of a word that is read: the kernel looks at all 64 of it, and neighbours are often
/// used together, so that more of them say little more.
const WITHIN_WORDS: f64 = 0.25;
/// So that a frame's hash does not depend on that of its word.
const FRAME_SALT: u64 = 0x5261_6d73_6c69_6365;

/// Frames of a sample, by word.
#[derive(Debug, Clone)]
pub(super) struct FrameSample {
    /// Words in ascending order: their number, and the frames of each that are in the sample.
    pub(super) words: Vec<(u64, u64)>,
    /// Frames of all memory.
    nr_frames: u64,
    /// The share of words that was asked for.
    share: f64,
}

impl FrameSample {
    /// A sample of this share of the words of memory.
    ///
    /// # Errors
    /// If it is not known where memory is.
    pub(super) fn choose(root: &Path, share: f64) -> Result<Self, ReuseError> {
        let path = root.join(IOMEM);
        let text =
            fs::read_to_string(&path).map_err(|source| ReuseError::io("reading", &path, source))?;
        let memory = memory(&text, page_size() as u64);
        let nr_frames = memory.iter().map(|frames| frames.end - frames.start).sum();
        if nr_frames == 0 {
            return Err(ReuseError::NoMemory { path });
        }
        // The kernel takes no marks for a last word that memory does not fill.
        let whole = memory.iter().map(|frames| frames.end).max().unwrap_or(0) / WORD_PAGES;
        let (of_words, of_frames) = (PageSample::of_rate(share), PageSample::of_rate(WITHIN_WORDS));
        let mut words: Vec<(u64, u64)> = Vec::new();
        for frames in memory {
            let end = frames.end.div_ceil(WORD_PAGES).min(whole);
            for word in frames.start / WORD_PAGES..end {
                let first = word * WORD_PAGES;
                let takes = |bit: &u64| {
                    let frame = first + bit;
                    frames.contains(&frame) && of_frames.takes(frame ^ FRAME_SALT)
                };
                if !of_words.takes(word) {
                    continue;
                }
                let mask = (0..WORD_PAGES).filter(takes).fold(0, |mask, bit| mask | 1 << bit);
                match words.last_mut() {
                    Some(last) if last.0 == word => last.1 |= mask,
                    _ if mask != 0 => words.push((word, mask)),
                    _ => {}
                }
            }
        }
        Ok(Self { words, nr_frames, share })
    }

    /// Frames in the sample.
    pub(super) fn nr_sampled(&self) -> usize {
        self.words.iter().map(|(_, mask)| mask.count_ones() as usize).sum()
    }

    /// Frames of all memory.
    pub(super) fn nr_frames(&self) -> u64 {
        self.nr_frames
    }

    /// The share of the words that it was chosen from.
    pub(super) fn share(&self) -> f64 {
        self.share
    }
}

/// Frames with memory, of `/proc/iomem`: `00100000-3fffffff : System RAM`. Without root, all
/// addresses are 0.
fn memory(iomem: &str, page: u64) -> Vec<Range<u64>> {
    let ranges = iomem.lines().filter_map(|line| {
        let (range, name) = line.split_once(" : ")?;
        // What is indented is part of another line.
        if !name.starts_with("System RAM") || range.starts_with(' ') {
            return None;
        }
        let (first, last) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (first, last) = (address(first)?, address(last)?);
        (last > first).then(|| first.div_ceil(page)..(last + 1) / page)
    });
    ranges.filter(|frames| frames.start < frames.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_where_the_kernel_lists_it() {
        let iomem = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n\
                     00100000-1fffffff : System RAM\n  01000000-01ffffff : Kernel code\n\
                     100000000-10fffffff : System RAM (virtio_mem)\n";
        let found = memory(iomem, 4096);
        assert_eq!(found, [1..0x9f, 0x100..0x2_0000, 0x10_0000..0x11_0000]);
        assert!(memory("00000000-00000000 : System RAM\n", 4096).is_empty());
    }

    #[test]
    fn a_sample_is_a_share_of_all_frames_and_a_smaller_one_a_part_of_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join(IOMEM), "00000000-3fffffff : System RAM\n").unwrap();
        let of = |share| FrameSample::choose(root.path(), share).unwrap();
        let (all, some) = (of(1.0), of(0.1));
        assert_eq!(all.nr_frames(), 1 << 18);
        let near = |sample: &FrameSample, share: f64| {
            (sample.nr_sampled() as f64 / f64::from(1 << 18) / share - 1.0).abs() < 0.1
        };
        assert!(
            near(&all, 0.25) && near(&some, 0.025),
            "{} {}",
            all.nr_sampled(),
            some.nr_sampled()
        );
        fs::write(root.path().join(IOMEM), "00000000-00100fff : System RAM\n").unwrap();
        assert!(of(1.0).words.iter().all(|(word, _)| *word < 4));
        assert!(some.words.iter().all(|word| all.words.contains(word)));
    }
}
