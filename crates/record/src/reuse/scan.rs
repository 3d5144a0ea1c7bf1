//! One look after another at the frames of a sample.

use std::time::Duration;

use super::counts::{KindCounts, ReuseCounts};
use super::error::ReuseError;
use super::frame_sample::FrameSample;
use super::page_idle::{PageIdleFiles, PageState, WORD_PAGES};

/// Words that are read at once.
const MOST_WORDS: usize = 512;

/// A frame, as it was at the last scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameHistory {
    /// Memory of programs rather than page cache; nothing if no page was there that can be evicted.
    anon: Option<bool>,
    /// Pages of its folio.
    pages: u32,
    /// The scan that found it used last; nothing if it has been idle since sampling began.
    used: Option<u64>,
}

const NOTHING: FrameHistory = FrameHistory { anon: None, pages: 0, used: None };

/// A sample, and what has been seen of it.
pub(super) struct ReuseScan {
    sample: FrameSample,
    /// In the order of the words and of the bits in each.
    frames: Vec<FrameHistory>,
    /// Scans so far; the first one only marks.
    runs: u64,
    anon: KindCounts,
    file: KindCounts,
}

impl ReuseScan {
    pub(super) fn new(sample: FrameSample) -> Self {
        let frames = vec![NOTHING; sample.nr_sampled()];
        Self { sample, frames, runs: 0, anon: KindCounts::default(), file: KindCounts::default() }
    }

    pub(super) fn into_sample(self) -> FrameSample {
        self.sample
    }

    /// See [`FrameSample::share`].
    pub(super) fn share(&self) -> f64 {
        self.sample.share()
    }

    /// Scans after the first one.
    pub(super) fn scans(&self) -> u64 {
        self.runs.saturating_sub(1)
    }

    /// Counts that begin now.
    pub(super) fn counts(&self, started_us: i64) -> ReuseCounts {
        let frames = (self.sample.nr_sampled() as u64, self.sample.nr_frames());
        ReuseCounts { started_us, frames, ..ReuseCounts::default() }
    }

    /// Brings counts up to date.
    pub(super) fn fill(&self, counts: &mut ReuseCounts, elapsed: Duration, cpu_seconds: f64) {
        counts.elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        (counts.scans, counts.cpu_us) = (self.scans(), (cpu_seconds * 1e6) as u64);
        (counts.anon, counts.file) = (self.anon.clone(), self.file.clone());
    }

    /// Looks at every frame of the sample, and marks what was used.
    pub(super) fn run(&mut self, files: &PageIdleFiles) -> Result<(), ReuseError> {
        let (mut first, mut frame) = (0, 0);
        while first < self.sample.words.len() {
            let run = neighbours(&self.sample.words[first..]);
            let number = self.sample.words[first].0;
            let (mut idle, mut mark) = (vec![0; run], vec![0; run]);
            files.idle(number, &mut idle)?;
            for within in 0..run {
                let at = first + within;
                mark[within] = self.look(files, at, idle[within], frame)?;
                frame += self.sample.words[at].1.count_ones() as usize;
            }
            if mark.iter().any(|word| *word != 0) {
                files.mark(number, &mark)?;
            }
            first += run;
        }
        self.runs += 1;
        Ok(())
    }

    /// Looks at the frames of a word, whose first one in the sample has number `frame`; says which
    /// ones to mark.
    fn look(
        &mut self,
        files: &PageIdleFiles,
        at: usize,
        idle: u64,
        frame: usize,
    ) -> Result<u64, ReuseError> {
        let (word, mask) = self.sample.words[at];
        // A page that is idle still is the one that was marked. What others marked says nothing.
        let changed = if self.runs == 0 { mask } else { mask & !idle };
        if changed == 0 {
            return Ok(0);
        }
        let mut flags = [0; WORD_PAGES as usize];
        files.flags(word * WORD_PAGES, &mut flags)?;
        let mut marked = 0;
        for bit in (0..WORD_PAGES).filter(|bit| changed >> bit & 1 == 1) {
            let number = frame + (mask & ((1 << bit) - 1)).count_ones() as usize;
            let state = PageState::of(flags[bit as usize]);
            let pages = match state {
                PageState::Evictable { head: true, .. } => {
                    files.folio_pages(word * WORD_PAGES + bit)?
                }
                PageState::Evictable { .. } => 1,
                PageState::InTransit | PageState::Other => 0,
            };
            self.frame(number, state, pages);
            if pages > 0 {
                marked |= 1 << bit;
            }
        }
        Ok(marked)
    }

    /// A frame that is not idle.
    fn frame(&mut self, number: usize, state: PageState, pages: u64) {
        let before = self.frames[number];
        let PageState::Evictable { anon, active, .. } = state else {
            if state == PageState::Other {
                self.left(before);
                self.frames[number] = NOTHING;
            }
            return;
        };
        let first = self.runs == 0;
        let now = self.runs;
        let same = before.anon == Some(anon) && u64::from(before.pages) == pages;
        if !same {
            self.left(before);
            let kind = self.kind(anon);
            kind.resident += pages;
            if !first {
                kind.arrived += pages;
            }
        } else if let Some(used) = before.used {
            self.kind(anon).reuse(active, now - used, pages);
        } else {
            self.kind(anon).unseen[usize::from(!active)] += pages;
        }
        let used = (!first).then_some(now);
        self.frames[number] = FrameHistory { anon: Some(anon), pages: pages as u32, used };
    }

    /// A page has gone.
    fn left(&mut self, before: FrameHistory) {
        if let Some(anon) = before.anon {
            let kind = self.kind(anon);
            kind.gone += u64::from(before.pages);
            kind.resident -= u64::from(before.pages);
        }
    }

    fn kind(&mut self, anon: bool) -> &mut KindCounts {
        if anon { &mut self.anon } else { &mut self.file }
    }
}

/// How many words from the first one on lie next to each other.
fn neighbours(words: &[(u64, u64)]) -> usize {
    let first = words[0].0;
    let next = words.iter().enumerate().take(MOST_WORDS);
    next.take_while(|(at, (number, _))| first + *at as u64 == *number).count()
}
