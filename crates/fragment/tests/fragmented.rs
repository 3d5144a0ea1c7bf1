//! Memory is filled as asked, and the account agrees with what the kernel says elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use ramslice_fragment::{
    FillAmount, FillPlan, FragmentError, FragmentedMemory, PageAccount, PageMix, PageProbability,
};
use ramslice_types::Bytes;

/// A directory on a disk: cargo's own for such files.
fn disk() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn mix(free: &str, anon: &str, file: &str) -> PageMix {
    let of = |text: &str| text.parse::<PageProbability>().unwrap();
    PageMix { free: of(free), anon: of(anon), file: of(file) }
}

fn plan(mix: PageMix) -> FillPlan {
    FillPlan {
        mix,
        amount: FillAmount::Bytes(Bytes(24 << 20)),
        seed: 1,
        map_count: 1,
        huge: false,
        dir: disk(),
    }
}

fn make(plan: &FillPlan) -> FragmentedMemory {
    FragmentedMemory::make(plan, |_| true).unwrap()
}

fn account(plan: &FillPlan) -> PageAccount {
    make(plan).account().unwrap()
}

/// Within five standard deviations of what `n` tosses with probability `p` give.
fn assert_binomial(found: u64, n: u64, p: f64) {
    let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
    assert!((found as f64 - mean).abs() <= 5.0 * deviation, "{found}, expected {mean} of {n}");
}

/// The cache is the kernel's: now and then it drops a page that was read once.
fn assert_nearly_all(present: u64, touched: u64) {
    assert!(present <= touched && present >= touched - touched / 50, "{present} of {touched}");
}

#[test]
fn what_was_touched_is_there_and_what_was_freed_is_not() {
    let account = account(&plan(mix("0.5", "0.3", "0.2")));
    // 24 MiB at one page per step on average.
    assert_eq!(account.steps, 24 << 8);
    assert_eq!(account.anon_present_pages + account.anon_swapped_pages, account.touched.anon_pages);
    assert_nearly_all(account.file_present_pages, account.touched.file_pages);
    assert_eq!(account.freed_pages, account.touched.free_pages);
    assert_binomial(account.touched.free_pages, account.steps, 0.5);
    assert_binomial(account.touched.anon_pages, account.steps, 0.3);
    assert_binomial(account.touched.file_pages, account.steps, 0.2);
    assert_eq!(account.anon_huge_pages, 0);
}

#[test]
fn a_seed_decides_and_another_decides_otherwise() {
    let plan = plan(mix("0.5", "0.3", "0.2"));
    let (first, again) = (account(&plan), account(&plan));
    let touched =
        |account: &PageAccount| account.bins.iter().map(|bin| bin.touched).collect::<Vec<_>>();
    assert_eq!(touched(&first), touched(&again));
    // Kept from the first version: a seed means the same for ever.
    let sums = first.touched;
    assert_eq!((sums.free_pages, sums.anon_pages, sums.file_pages), (3133, 1935, 1257));
    let other = account(&FillPlan { seed: 2, ..plan });
    assert_ne!(touched(&first), touched(&other));
}

#[test]
fn probabilities_of_one_touch_every_page() {
    let account = account(&plan(mix("1", "0", "1")));
    assert_eq!(account.steps, 12 << 8);
    assert_eq!((account.freed_pages, account.touched.file_pages), (account.steps, account.steps));
    assert_nearly_all(account.file_present_pages, account.steps);
    assert_eq!((account.touched.anon_pages, account.anon_present_pages), (0, 0));
}

#[test]
fn a_range_becomes_a_gradient() {
    let account = account(&plan(mix("1..0", "0..1", "0")));
    assert_eq!(account.bins.len(), 16);
    let mut first = 0;
    for (at, bin) in account.bins.iter().enumerate() {
        assert_eq!(bin.first_step, first);
        first += bin.steps;
        let middle = (at as f64 + 0.5) / 16.0;
        assert_binomial(bin.touched.anon_pages, bin.steps, middle);
        assert_binomial(bin.touched.free_pages, bin.steps, 1.0 - middle);
        assert_eq!(bin.anon_present_pages, bin.touched.anon_pages);
    }
    assert_eq!(first, account.steps);
    assert!(account.bins[15].anon_present_pages > 8 * account.bins[0].anon_present_pages);
}

#[test]
fn anonymous_pages_are_mapped_as_often_as_wanted() {
    for map_count in [1, 2, 5] {
        let state = make(&FillPlan { map_count, ..plan(mix("0.5", "0.5", "0")) });
        let account = state.account().unwrap();
        assert_eq!(account.processes, u64::from(map_count));
        let mappings = account.mappings_per_anon_page.unwrap();
        // Proportional set sizes are whole KiB.
        assert!((mappings - f64::from(map_count)).abs() < 0.01, "{mappings}");
    }
}

/// The process's children, by its list of them.
fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of = |task: &Path| fs::read_to_string(task.join("children")).unwrap_or_default();
    tasks.map(|task| of(&task.unwrap().path()).split_whitespace().count()).sum()
}

#[test]
fn the_account_agrees_with_smaps_of_the_whole_process() {
    let rss_anon = || {
        let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let before = rss_anon();
    let big = FillPlan { amount: FillAmount::Bytes(Bytes(256 << 20)), ..plan(mix("0", "1", "0")) };
    let state = make(&big);
    let account = state.account().unwrap();
    let more = rss_anon().saturating_sub(before);
    // Other tests of this process come and go with a tenth of it each.
    let own = account.anon_present_pages * account.page_bytes;
    assert_eq!(own, 256 << 20);
    assert!(more.abs_diff(own) < own / 2, "{more} more, {own} accounted for");
}

#[test]
fn pages_that_are_evicted_are_not_accounted_for() {
    // Without this, an account of what was tried would pass every other test.
    let state = make(&plan(mix("0", "0", "1")));
    assert_nearly_all(state.account().unwrap().file_present_pages, 24 << 8);
    state.evict_file();
    assert_eq!(state.account().unwrap().file_present_pages, 0);
}

#[test]
fn huge_pages_come_whole_or_are_refused() {
    let plan = FillPlan { huge: true, ..plan(mix("0.5", "0.5", "0")) };
    match FragmentedMemory::make(&plan, |_| true) {
        Ok(state) => {
            let account = state.account().unwrap();
            assert_eq!(account.step_bytes, 2 << 20);
            assert_eq!(account.anon_present_pages, account.touched.anon_pages);
            assert!(
                account.anon_huge_pages > 0
                    && account.anon_huge_pages <= account.anon_present_pages
            );
        }
        Err(error) => assert!(matches!(error, FragmentError::NoHugePages { .. }), "{error}"),
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |plan: FillPlan| FragmentedMemory::make(&plan, |_| true).err().unwrap();
    let half = mix("0.5", "0.5", "0.5");
    assert!(matches!(refused(plan(mix("0", "0", "0"))), FragmentError::Nothing));
    let amount = FillAmount::Bytes(Bytes(1 << 50));
    assert!(matches!(refused(FillPlan { amount, ..plan(half) }), FragmentError::TooMuch { .. }));
    assert!(matches!(
        refused(FillPlan { amount: FillAmount::Percent(96), ..plan(half) }),
        FragmentError::TooMuch { .. }
    ));
    assert!(matches!(
        refused(FillPlan { amount: FillAmount::Bytes(Bytes(1)), ..plan(half) }),
        FragmentError::TooLittle { .. }
    ));
    let dir = PathBuf::from("/dev/shm");
    if dir.is_dir() {
        let error = refused(FillPlan { dir, ..plan(half) });
        assert!(error.to_string().contains("is on tmpfs"), "{error}");
    }
    let dir = PathBuf::from("/nonexistent");
    assert!(refused(FillPlan { dir, ..plan(half) }).to_string().contains("/nonexistent"));
}

#[test]
fn an_interruption_gives_everything_back() {
    let mut seen = 0;
    let plan = FillPlan { amount: FillAmount::Bytes(Bytes(64 << 20)), ..plan(mix("0", "1", "0")) };
    let result = FragmentedMemory::make(&plan, |step| {
        seen += 1;
        assert!(step.done <= step.total && step.touched.anon_pages == step.done);
        seen < 3
    });
    assert!(matches!(
        result.err(),
        Some(FragmentError::Interrupted { done, total })
            if done == 3 * 4096 && total == 64 << 8
    ));
}

#[test]
fn the_processes_that_share_end_with_it() {
    // In a process of its own: other tests fork, too.
    let state = make(&FillPlan { map_count: 4, ..plan(mix("0", "1", "0")) });
    let pids = state.sharing_pids();
    assert_eq!(pids.len(), 3);
    assert!(children() >= 3);
    drop(state);
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    }
}
