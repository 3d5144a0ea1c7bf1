//! Sampling on copies of the kernel's files, whose bits a test sets as accesses would.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::counts::ReuseCounts;
use super::frame_sample::FrameSample;
use super::page_idle::PageIdleFiles;
use super::scan::ReuseScan;
use super::*;

const FRAMES: usize = 8192;
const LRU: u64 = 1 << 5;
const ACTIVE: u64 = 1 << 6;
const BUDDY: u64 = 1 << 10;
const ANON: u64 = 1 << 12 | 1 << 14;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

/// Files of a machine with 32 MiB.
struct FakeFiles {
    root: tempfile::TempDir,
    flags: Vec<u64>,
}

impl FakeFiles {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/kernel/mm/page_idle")).unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/iomem"), "00000000-01ffffff : System RAM\n").unwrap();
        let fake = Self { root, flags: vec![LRU; FRAMES] };
        fake.write_bitmap(&vec![0; FRAMES / 64]);
        fake.write_flags();
        fake
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn write_bitmap(&self, words: &[u64]) {
        write(&self.path().join("sys/kernel/mm/page_idle/bitmap"), words);
    }

    fn write_flags(&self) {
        write(&self.path().join("proc/kpageflags"), &self.flags);
    }

    /// The kernel's file adds marks to those that are there; this one is what was written last. So
    /// all pages are idle but these, which clears their marks.
    fn use_frames(&self, used: impl Fn(usize) -> bool) {
        let word = |at: usize| {
            (0..64).filter(|bit| !used(at * 64 + bit)).fold(0u64, |word, bit| word | 1 << bit)
        };
        self.write_bitmap(&(0..FRAMES / 64).map(word).collect::<Vec<_>>());
    }

    fn scan(&self) -> (ReuseScan, PageIdleFiles) {
        let sample = FrameSample::choose(self.path(), 1.0).unwrap();
        (ReuseScan::new(sample), PageIdleFiles::open(self.path()).unwrap())
    }
}

fn every(ms: u64) -> ReuseOptions {
    ReuseOptions { every: Duration::from_millis(ms), cpu_share: 0.5 }
}

fn write(path: &Path, words: &[u64]) {
    fs::write(path, words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()).unwrap();
}

fn counted(scan: &ReuseScan) -> ReuseCounts {
    let mut counts = scan.counts(7);
    scan.fill(&mut counts, Duration::from_secs(1), 0.001);
    counts
}

fn value(counts: &ReuseCounts, name: &str) -> i64 {
    let lines = counts.lines();
    lines.iter().find(|line| line.name == format!("ramslice_reuse_{name}")).map_or(0, |l| l.value)
}

#[test]
fn the_time_since_the_last_use_is_counted_in_scans() {
    let mut fake = FakeFiles::new();
    // Frames of the upper half are active memory of programs.
    for flags in &mut fake.flags[FRAMES / 2..] {
        *flags |= ANON | ACTIVE;
    }
    fake.write_flags();
    let (mut scan, files) = fake.scan();
    scan.run(&files).unwrap();
    let resident = counted(&scan);
    let (file, anon) = (value(&resident, "file_resident"), value(&resident, "anon_resident"));
    assert!((900..1150).contains(&file) && (900..1150).contains(&anon), "{file} {anon}");
    assert_eq!(value(&resident, "scans"), 0);
    // Files are used at each third scan, programs at each one.
    for number in 1..=9 {
        fake.use_frames(|frame| frame >= FRAMES / 2 || number % 3 == 0);
        scan.run(&files).unwrap();
    }
    let counts = counted(&scan);
    assert_eq!(value(&counts, "file_inactive_unseen"), file);
    assert_eq!(value(&counts, "file_inactive_scans_3"), 2 * file);
    assert_eq!(value(&counts, "anon_active_unseen"), anon);
    assert_eq!(value(&counts, "anon_active_scans_1"), 8 * anon);
    assert_eq!(value(&counts, "file_arrived") + value(&counts, "anon_gone"), 0);
    assert_eq!((value(&counts, "started_us"), value(&counts, "cpu_us")), (7, 1000));
}

#[test]
fn a_frame_with_another_page_is_an_arrival() {
    let mut fake = FakeFiles::new();
    let (mut scan, files) = fake.scan();
    let everything = |_| true;
    let mut next = |fake: &FakeFiles| {
        fake.write_flags();
        fake.use_frames(everything);
        scan.run(&files).unwrap();
        counted(&scan)
    };
    let all = value(&next(&fake), "file_resident");
    fake.flags.fill(BUDDY);
    let counts = next(&fake);
    assert_eq!((value(&counts, "file_gone"), value(&counts, "file_resident")), (all, 0));
    // On no list for a moment, then there.
    fake.flags.fill(1 << 3);
    assert_eq!(value(&next(&fake), "file_arrived"), 0);
    fake.flags.fill(LRU);
    assert_eq!(value(&next(&fake), "file_arrived"), all);
    fake.flags.fill(LRU | ANON);
    let counts = next(&fake);
    assert_eq!((value(&counts, "anon_arrived"), value(&counts, "file_gone")), (all, 2 * all));
    fake.flags.fill(LRU | ANON | 1 << 18);
    assert_eq!(value(&next(&fake), "anon_resident"), 0);
}

#[test]
fn a_large_folio_counts_by_its_head_with_all_of_its_pages() {
    let mut fake = FakeFiles::new();
    for (frame, flags) in fake.flags.iter_mut().enumerate() {
        *flags = LRU | if frame % 16 == 0 { HEAD } else { TAIL };
    }
    fake.write_flags();
    let (mut scan, files) = fake.scan();
    for _ in 0..3 {
        fake.use_frames(|_| true);
        scan.run(&files).unwrap();
    }
    let counts = counted(&scan);
    let (resident, reused) =
        (value(&counts, "file_resident"), value(&counts, "file_inactive_scans_1"));
    assert!(resident % 16 == 0 && (1000..3200).contains(&resident), "{resident}");
    assert_eq!(reused, resident);
}

#[test]
fn what_is_missing_and_what_is_in_the_way_is_named() {
    let fake = FakeFiles::new();
    let refused = |root: &Path| ReuseSampler::start(root, every(100)).err().unwrap().to_string();
    let kdamond = fake.path().join("sys/kernel/mm/damon/admin/kdamonds/0");
    fs::create_dir_all(kdamond.join("contexts/0")).unwrap();
    fs::write(kdamond.join("contexts/0/operations"), "paddr\n").unwrap();
    fs::write(kdamond.join("state"), "on\n").unwrap();
    let error = refused(fake.path());
    assert!(error.contains("kdamonds/0 is on") && error.contains("--reuse"), "{error}");
    // Without the file, DAMON is not what is in the way.
    let (bitmap, aside) =
        (fake.path().join("sys/kernel/mm/page_idle/bitmap"), fake.path().join("aside"));
    fs::rename(&bitmap, &aside).unwrap();
    assert!(refused(fake.path()).contains("CONFIG_IDLE_PAGE_TRACKING"));
    fs::rename(&aside, &bitmap).unwrap();
    fs::write(kdamond.join("state"), "off\n").unwrap();
    let module = fake.path().join("sys/module/damon_reclaim/parameters");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("enabled"), "Y\n").unwrap();
    assert!(refused(fake.path()).contains("damon_reclaim"));
    fs::write(module.join("enabled"), "N\n").unwrap();
    let generations = fake.path().join("sys/kernel/mm/lru_gen");
    fs::create_dir_all(&generations).unwrap();
    fs::write(generations.join("enabled"), "0x0007\n").unwrap();
    let error = refused(fake.path());
    assert!(
        error.contains("lru_gen/enabled is 0x0007") && error.contains("switch it off"),
        "{error}"
    );
    fs::write(generations.join("enabled"), "0x0000\n").unwrap();
    fs::remove_file(fake.path().join("sys/kernel/mm/page_idle/bitmap")).unwrap();
    let error = refused(fake.path());
    assert!(error.contains("page_idle/bitmap is missing") && error.contains("CONFIG_"), "{error}");
}

#[test]
fn an_interval_that_leaves_no_time_is_refused_with_one_that_may_do() {
    let fake = FakeFiles::new();
    let options = ReuseOptions { every: Duration::from_millis(1), cpu_share: 1e-6 };
    let error = ReuseSampler::start(fake.path(), options).err().unwrap().to_string();
    assert!(error.contains("1ms is too short") && error.contains("--reuse-cpu"), "{error}");
}

#[test]
fn a_sampler_counts_until_it_is_dropped_and_says_why_it_ended_early() {
    let fake = FakeFiles::new();
    let sampler = ReuseSampler::start(fake.path(), every(1000)).unwrap();
    let scans = || sampler.lines().iter().any(|line| line.name.ends_with("_all_frames"));
    assert!(scans() && sampler.failure().is_none());
    drop(sampler);
    let sampler = ReuseSampler::start(fake.path(), every(50)).unwrap();
    let kdamond = fake.path().join("sys/kernel/mm/damon/admin/kdamonds/3");
    fs::create_dir_all(kdamond.join("contexts/0")).unwrap();
    fs::write(kdamond.join("contexts/0/operations"), "paddr\n").unwrap();
    fs::write(kdamond.join("state"), "on\n").unwrap();
    let failure = (0..400).find_map(|_| {
        std::thread::sleep(Duration::from_millis(25));
        sampler.failure()
    });
    assert!(failure.unwrap().to_string().contains("kdamonds/3"));
    assert!(sampler.lines().is_empty());
}
