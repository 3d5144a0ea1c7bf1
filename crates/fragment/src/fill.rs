//! The walk over the three areas, and the memory that it leaves.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ramslice_types::{Bytes, SplitMix64};
use rustix::fs::{Advice, fadvise, fstatfs};

use crate::error::FragmentError;
use crate::mix::PageMix;
use crate::page_account::{
    PageAccount, PagesByKind, ResidencyMap, SmapsEntry, WalkBin, available_memory, cached, count,
    page_table_bytes,
};
use crate::recipe::FillAmount;
use crate::sys::{MappedArea, SharingProcesses};

/// What to fill.
#[derive(Debug, Clone, PartialEq)]
pub struct FillPlan {
    /// How likely pages of each kind are touched.
    pub mix: PageMix,
    /// How much memory to touch in all, on average over seeds.
    pub amount: FillAmount,
    /// Decides which pages.
    pub seed: u64,
    /// By how many processes each anonymous page is mapped, at least 1.
    pub map_count: u32,
    /// Allocate in huge pages; otherwise in base pages only.
    pub huge: bool,
    /// Where the file is, which has no name.
    pub dir: PathBuf,
}

/// How far the walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillStep {
    /// Steps done.
    pub done: u64,
    /// Steps planned.
    pub total: u64,
    /// Pages touched so far.
    pub touched: PagesByKind,
}

/// Memory in the wanted state, for as long as the value lives.
pub struct FragmentedMemory {
    anon: MappedArea,
    file: File,
    sharers: SharingProcesses,
    steps: u64,
    step_bytes: usize,
    page_bytes: usize,
    touched: Vec<(u64, PagesByKind)>,
    freed_pages: u64,
}

/// This share of available memory may be filled; the rest is left to other programs.
const MOST_PERCENT: u64 = 95;
/// Parts of the walk that are accounted for by themselves.
const BINS: u64 = 16;
/// Progress is reported after this many steps.
const PROGRESS_STEPS: u64 = 4096;

const HUGE_SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
const HUGE_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl FragmentedMemory {
    /// Fills memory as planned. `watch` is called now and then; when it returns false, everything
    /// is given back.
    pub fn make(
        plan: &FillPlan,
        mut watch: impl FnMut(&FillStep) -> bool,
    ) -> Result<Self, FragmentError> {
        let page_bytes = rustix::param::page_size();
        let step_bytes = if plan.huge { huge_bytes()? } else { page_bytes };
        let total = steps(plan, step_bytes)?;
        let bytes = total as usize * step_bytes;
        // A file page is touched in its own turn even if huge pages are wanted: caches of files
        // have none.
        let file = file_in(&plan.dir, plan.mix.file.mean() > 0.0, bytes as u64)?;
        let mut free = MappedArea::reserve(bytes, step_bytes, plan.huge)
            .map_err(FragmentError::system("mapping memory"))?;
        let mut anon = MappedArea::reserve(bytes, step_bytes, plan.huge)
            .map_err(FragmentError::system("mapping memory"))?;

        let mut random = SplitMix64::new(plan.seed);
        let mut done = FillStep { done: 0, total, touched: PagesByKind::default() };
        let mut touched: Vec<(u64, PagesByKind)> = Vec::new();
        let mut before = PagesByKind::default();
        let pages_per_step = (step_bytes / page_bytes) as u64;
        for at in 0..total {
            let offset = at as usize * step_bytes;
            if random.chance(plan.mix.file.at(at, total)) {
                read_pages(&file, offset, step_bytes, page_bytes)
                    .map_err(FragmentError::system("reading the file into the cache"))?;
                done.touched.file_pages += pages_per_step;
            }
            if random.chance(plan.mix.free.at(at, total)) {
                touch_all(&mut free, offset, step_bytes, page_bytes);
                done.touched.free_pages += pages_per_step;
            }
            if random.chance(plan.mix.anon.at(at, total)) {
                touch_all(&mut anon, offset, step_bytes, page_bytes);
                done.touched.anon_pages += pages_per_step;
            }
            done.done = at + 1;
            if (done.done.is_multiple_of(PROGRESS_STEPS) || done.done == total) && !watch(&done) {
                return Err(FragmentError::Interrupted { done: done.done, total });
            }
            if is_end_of_bin(done.done, total) {
                let first = touched.last().map_or(0, |&(end, _)| end);
                if first < done.done {
                    touched.push((done.done, minus(done.touched, before)));
                    before = done.touched;
                }
            }
        }
        let freed_pages = ResidencyMap::read(&free.addresses(), page_bytes)?.all_present();
        drop(free);
        let sharers = SharingProcesses::fork(plan.map_count.max(1) - 1)
            .map_err(FragmentError::system("fork"))?;
        Ok(Self { anon, file, sharers, steps: total, step_bytes, page_bytes, touched, freed_pages })
    }

    /// The processes, other than this one, that map the anonymous pages.
    pub fn sharing_pids(&self) -> Vec<i32> {
        self.sharers.pids()
    }

    /// Drops the file's pages from the cache, as memory pressure would.
    pub fn evict_file(&self) {
        // Advice cannot fail on an open regular file; if nothing is dropped, the account says so.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    /// What is there now.
    pub fn account(&self) -> Result<PageAccount, FragmentError> {
        let anon = ResidencyMap::read(&self.anon.addresses(), self.page_bytes)?;
        let smaps = SmapsEntry::read(&self.anon.addresses())?;
        let bytes = self.steps as usize * self.step_bytes;
        let has_file = self.touched.iter().any(|(_, pages)| pages.file_pages > 0);
        let file = cached(&self.file, if has_file { bytes } else { 0 }, self.page_bytes)?;
        let pages_per_step = self.step_bytes / self.page_bytes;
        let (mut bins, mut first) = (Vec::new(), 0);
        for &(end, touched) in &self.touched {
            let pages = first as usize * pages_per_step..end as usize * pages_per_step;
            bins.push(WalkBin {
                first_step: first,
                steps: end - first,
                touched,
                anon_present_pages: anon.present(pages.clone()),
                file_present_pages: file.get(pages).map_or(0, count),
            });
            first = end;
        }
        Ok(PageAccount {
            page_bytes: self.page_bytes as u64,
            steps: self.steps,
            step_bytes: self.step_bytes as u64,
            touched: bins.iter().fold(PagesByKind::default(), |sum, bin| plus(sum, bin.touched)),
            freed_pages: self.freed_pages,
            anon_present_pages: anon.all_present(),
            anon_swapped_pages: anon.swapped(),
            anon_huge_pages: smaps.huge * 1024 / self.page_bytes as u64,
            processes: 1 + self.sharers.count() as u64,
            mappings_per_anon_page: smaps.mappings(),
            file_present_pages: count(&file),
            page_table_bytes: page_table_bytes()?,
            bins,
        })
    }
}

/// Whether a bin ends after `done` steps: there are [`BINS`], or as many as steps.
fn is_end_of_bin(done: u64, total: u64) -> bool {
    done * BINS / total != (done - 1) * BINS / total
}

fn plus(a: PagesByKind, b: PagesByKind) -> PagesByKind {
    PagesByKind {
        free_pages: a.free_pages + b.free_pages,
        anon_pages: a.anon_pages + b.anon_pages,
        file_pages: a.file_pages + b.file_pages,
    }
}

fn minus(a: PagesByKind, b: PagesByKind) -> PagesByKind {
    PagesByKind {
        free_pages: a.free_pages - b.free_pages,
        anon_pages: a.anon_pages - b.anon_pages,
        file_pages: a.file_pages - b.file_pages,
    }
}

/// How many steps touch as much as wanted, on average.
fn steps(plan: &FillPlan, step_bytes: usize) -> Result<u64, FragmentError> {
    let per_step = plan.mix.pages_per_step();
    if per_step <= 0.0 {
        return Err(FragmentError::Nothing);
    }
    let available = available_memory()?;
    let most = Bytes(available.0 / 100 * MOST_PERCENT);
    let wanted = match plan.amount {
        FillAmount::Bytes(bytes) => bytes,
        FillAmount::Percent(percent) => Bytes(available.0 / 100 * u64::from(percent)),
    };
    if wanted > most {
        return Err(FragmentError::TooMuch { wanted, available, most });
    }
    let steps = (wanted.0 as f64 / step_bytes as f64 / per_step).round() as u64;
    if steps == 0 {
        return Err(FragmentError::TooLittle {
            wanted,
            least: Bytes((step_bytes as f64 * per_step).ceil() as u64),
        });
    }
    Ok(steps)
}

/// The size of a huge page, if the kernel gives huge pages on request.
fn huge_bytes() -> Result<usize, FragmentError> {
    let none = || FragmentError::NoHugePages { path: HUGE_ENABLED.into() };
    let enabled = std::fs::read_to_string(HUGE_ENABLED).map_err(|_| none())?;
    let size = std::fs::read_to_string(HUGE_SIZE).ok().and_then(|text| text.trim().parse().ok());
    size.filter(|_| !enabled.contains("[never]")).ok_or_else(none)
}

/// A file without a name and without blocks: reading a hole fills the cache without a disk's help.
fn file_in(dir: &Path, wanted: bool, bytes: u64) -> Result<File, FragmentError> {
    let failed =
        |action| move |source| FragmentError::File { action, path: dir.to_owned(), source };
    if !wanted {
        return tempfile::tempfile().map_err(failed("creating a file in"));
    }
    let file = tempfile::tempfile_in(dir).map_err(failed("creating a file in"))?;
    let magic = fstatfs(&file).map_err(|error| failed("looking at")(error.into()))?.f_type as u64;
    // By their numbers in <linux/magic.h>.
    let kind = match magic & 0xffff_ffff {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58f6 => Some("ramfs"),
        0x9584_58f6 => Some("hugetlbfs"),
        _ => None,
    };
    if let Some(kind) = kind {
        return Err(FragmentError::NotOnDisk { path: dir.to_owned(), kind });
    }
    file.set_len(bytes).map_err(failed("creating a file in"))?;
    // Without this, a page would bring its neighbours along.
    fadvise(&file, 0, None, Advice::Random)
        .map_err(|error| failed("advising on a file in")(error.into()))?;
    Ok(file)
}

fn read_pages(file: &File, offset: usize, bytes: usize, page_bytes: usize) -> std::io::Result<()> {
    // Reading one byte reads its page; the byte itself does not matter.
    (offset..offset + bytes)
        .step_by(page_bytes)
        .try_for_each(|at| file.read_exact_at(&mut [0], at as u64))
}

fn touch_all(area: &mut MappedArea, offset: usize, bytes: usize, page_bytes: usize) {
    (offset..offset + bytes).step_by(page_bytes).for_each(|at| area.touch(at));
}
