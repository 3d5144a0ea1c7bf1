//! Which page cache a virtual machine can give up on a kernel that does not choose by use: what was
//! not read for a time. What is read again soon after it went makes the time longer. And when
//! memory is compacted, so that what is free can be reported in whole blocks.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ramslice_types::Pages;

/// Tasks may wait for memory for one part in so many of the time since the last look.
const STALL_SHARE: u32 = 1000;
/// If more than one part in so many of what went is read again, the time was too short.
const AGAIN_SHARE: u64 = 16;
/// The most times that cache has to be older than the settings say, and that the pause between two
/// compactions is longer.
const MOST_PATIENCE: u32 = 16;
/// Processors that work for more than this part of the time are busy...
const BUSY_SHARE: u32 = 4;
/// ... for which what is due waits so long at most.
const BUSY_WAIT: Duration = Duration::from_mins(1);
/// A compaction has to bring one part in so many of what is free among pages in use.
const GAIN_SHARE: u64 = 4;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleCacheConfig {
    /// Cache goes once it was not read for this long.
    pub after: Duration,
    /// Less than this is left where it is.
    pub least: Pages,
    /// So much that is free among pages in use is worth a compaction; none: never.
    pub loose: Option<Pages>,
}

/// What tasks did since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskLoad {
    /// Some of them waited for memory.
    pub waited: Duration,
    /// The processors worked, as a sum over them.
    pub busy: Duration,
    /// Of so much time.
    pub within: Duration,
}

/// What the kernel counts; all but the first since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Pages of files on the inactive lists: read once, or not again for long.
    pub inactive: Pages,
    /// Pages that may have come to these lists: read from a disk, written to, or deactivated.
    pub arrived: Pages,
    /// Pages of files that were read again after they had been reclaimed.
    pub read_again: Pages,
}

/// Why nothing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleCacheReason {
    /// The cache has not been watched for long enough.
    Watching {
        /// For so long so far.
        watched: Duration,
        /// Of so long.
        wait: Duration,
    },
    /// Tasks wait for memory.
    TasksWait {
        /// So long since the last look.
        waited: Duration,
    },
    /// The processors have other work.
    Busy,
    /// Little of it is idle.
    Little {
        /// So much.
        idle: Pages,
        /// For so long.
        wait: Duration,
    },
}

impl fmt::Display for IdleCacheReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::as_secs;
        match self {
            Self::Watching { watched, wait } => {
                let (watched, wait) = (seconds(watched), seconds(wait));
                write!(f, "the cache was watched for {watched} of {wait} s")
            }
            Self::TasksWait { waited } => {
                write!(f, "tasks waited for memory for {} ms", waited.as_millis())
            }
            Self::Busy => f.write_str("the processors are busy"),
            Self::Little { idle, wait } => {
                write!(f, "{idle} pages of cache are idle for {} s", seconds(wait))
            }
        }
    }
}

/// What went lately, and whether it is read again.
#[derive(Debug, Clone, Copy)]
struct GivenUp {
    time: Duration,
    pages: Pages,
    read_again_before: Pages,
}

/// Decides from look to look. It has no clock of its own.
#[derive(Debug, Clone)]
pub struct IdleCachePolicy {
    config: IdleCacheConfig,
    looks: VecDeque<(Duration, CacheCounts)>,
    patience: u32,
    given_up: Option<GivenUp>,
    /// Since when what is due waits for busy processors.
    held: Option<Duration>,
    /// When memory may be compacted again, and after how many times the time that is set.
    compaction: (Duration, u32),
}

impl IdleCachePolicy {
    /// With these settings.
    pub fn new(config: IdleCacheConfig) -> Self {
        Self {
            config,
            looks: VecDeque::new(),
            patience: 1,
            given_up: None,
            held: None,
            compaction: (Duration::ZERO, 1),
        }
    }

    /// For how long what goes has not been read.
    pub fn wait(&self) -> Duration {
        self.config.after * self.patience
    }

    /// How many pages are to go now.
    ///
    /// # Errors
    /// Why none is.
    pub fn look(
        &mut self,
        time: Duration,
        counts: CacheCounts,
        load: TaskLoad,
    ) -> Result<Pages, IdleCacheReason> {
        self.judge(time, &counts);
        let wait = self.wait();
        let last = self.looks.back().map_or(time, |look| look.0);
        if self.looks.is_empty() {
            // What tasks do is not known so far
            self.compaction.0 = time + self.config.after;
        }
        self.looks.push_back((time, counts));
        while self.looks.get(1).is_some_and(|&(when, _)| when + wait <= time) {
            self.looks.pop_front();
        }
        let (since, first) = self.looks[0];
        if load.waited * STALL_SHARE > time.saturating_sub(last) {
            return Err(IdleCacheReason::TasksWait { waited: load.waited });
        }
        let busy = load.busy > load.within / BUSY_SHARE;
        if busy && time.saturating_sub(*self.held.get_or_insert(time)) < BUSY_WAIT {
            return Err(IdleCacheReason::Busy);
        }
        self.held = None;
        let watched = time.saturating_sub(since);
        if watched < wait {
            return Err(IdleCacheReason::Watching { watched, wait });
        }
        let idle = self.idle(&first, &counts);
        if idle < self.config.least {
            return Err(IdleCacheReason::Little { idle, wait });
        }
        Ok(idle)
    }

    /// Pages that were on the lists throughout, at least. Two bounds, as neither sees everything:
    /// what arrived from a network is not counted, and of what came and went between two looks, as
    /// a file that is deleted, only the arrival is.
    fn idle(&self, first: &CacheCounts, now: &CacheCounts) -> Pages {
        let throughout = self.looks.iter().map(|look| look.1.inactive).min().unwrap_or_default();
        let arrived = now.arrived.saturating_sub(first.arrived);
        throughout.min(now.inactive.saturating_sub(arrived))
    }

    /// Notes that so many pages went. What goes until the first of them are judged is judged with
    /// them: otherwise something that goes at each look would put that off for ever.
    pub fn gave_up(&mut self, time: Duration, pages: Pages, read_again: Pages) {
        if pages == Pages::ZERO {
            return;
        }
        let first = GivenUp { time, pages: Pages::ZERO, read_again_before: read_again };
        self.given_up.get_or_insert(first).pages += pages;
    }

    /// Whether memory is to be compacted, unless tasks wait for memory or processors are busy: so
    /// much is free among pages in use.
    pub fn compacts(&self, time: Duration, loose: Pages) -> bool {
        self.config.loose.is_some_and(|least| loose >= least) && time >= self.compaction.0
    }

    /// Notes what a compaction left of that. If it brought little, the next is later.
    pub fn compacted(&mut self, time: Duration, before: Pages, after: Pages) {
        let gained = before.saturating_sub(after);
        let (_, times) = self.compaction;
        let times = if gained < Pages(before.0 / GAIN_SHARE) { times * 2 } else { 1 };
        let times = times.min(MOST_PATIENCE);
        self.compaction = (time + self.config.after * times, times);
    }

    /// Whether what went is read again, or was rightly taken for idle.
    fn judge(&mut self, time: Duration, counts: &CacheCounts) {
        let Some(given_up) = self.given_up else { return };
        let again = counts.read_again.saturating_sub(given_up.read_again_before);
        if again > Pages(given_up.pages.0 / AGAIN_SHARE) {
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        } else if given_up.time + self.wait() <= time {
            self.patience = (self.patience / 2).max(1);
        } else {
            return;
        }
        self.given_up = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(10);

    struct WatchedCache {
        policy: IdleCachePolicy,
        time: Duration,
        counts: CacheCounts,
    }

    impl WatchedCache {
        fn new() -> Self {
            let config = IdleCacheConfig {
                after: Duration::from_mins(1),
                least: Pages(100),
                loose: Some(Pages(1000)),
            };
            Self {
                policy: IdleCachePolicy::new(config),
                time: Duration::from_hours(1),
                counts: CacheCounts::default(),
            }
        }

        /// Reads so many pages for the first time.
        fn read(&mut self, pages: u64) {
            self.counts.inactive += Pages(pages);
            self.counts.arrived += Pages(pages);
        }

        fn look(&mut self) -> Result<Pages, IdleCacheReason> {
            self.time += STEP;
            self.policy.look(self.time, self.counts, TaskLoad::default())
        }

        /// Looks for so long as nothing is to go, at most a minute.
        fn watch(&mut self) -> Result<Pages, IdleCacheReason> {
            (0..6).map(|_| self.look()).find(Result::is_ok).unwrap_or_else(|| self.look())
        }

        fn give_up(&mut self, pages: Pages) {
            self.counts.inactive = self.counts.inactive.saturating_sub(pages);
            self.policy.gave_up(self.time, pages, self.counts.read_again);
        }
    }

    #[test]
    fn what_was_there_for_a_minute_goes_and_what_came_since_stays() {
        let mut machine = WatchedCache::new();
        machine.read(5000);
        assert!(matches!(machine.look(), Err(IdleCacheReason::Watching { .. })));
        for _ in 0..5 {
            machine.look().unwrap_err();
        }
        machine.read(300);
        assert_eq!(machine.look(), Ok(Pages(5000)));
        machine.give_up(Pages(5000));
        assert_eq!(
            machine.look(),
            Err(IdleCacheReason::Little { idle: Pages(0), wait: Duration::from_mins(1) })
        );
        // A minute after they came, the 300 are old
        assert_eq!(machine.watch(), Ok(Pages(300)));
    }

    #[test]
    fn what_came_instead_of_a_deleted_file_is_not_old() {
        let mut machine = WatchedCache::new();
        machine.read(5000);
        machine.watch().unwrap();
        machine.counts.inactive = Pages(1000);
        machine.read(4000);
        assert_eq!(machine.look(), Ok(Pages(1000)));
    }

    #[test]
    fn what_came_from_a_network_is_not_old() {
        let mut machine = WatchedCache::new();
        machine.read(1000);
        machine.watch().unwrap();
        // Such reads are not counted
        machine.counts.inactive += Pages(4000);
        assert_eq!(machine.look(), Ok(Pages(1000)));
    }

    #[test]
    fn while_tasks_wait_for_memory_nothing_goes() {
        let mut machine = WatchedCache::new();
        machine.read(5000);
        machine.watch().unwrap();
        machine.time += STEP;
        let waited = STEP / 999;
        let waits = |waited| TaskLoad { waited, ..TaskLoad::default() };
        let seen = machine.policy.look(machine.time, machine.counts, waits(waited));
        assert_eq!(seen, Err(IdleCacheReason::TasksWait { waited }));
        machine.time += STEP;
        let seen = machine.policy.look(machine.time, machine.counts, waits(STEP / 1001));
        assert_eq!(seen, Ok(Pages(5000)));
    }

    #[test]
    fn while_processors_are_busy_nothing_goes_for_a_minute() {
        let mut machine = WatchedCache::new();
        machine.read(5000);
        machine.watch().unwrap();
        let look = |machine: &mut WatchedCache, busy| {
            machine.time += STEP;
            // Of two processors
            let load = TaskLoad { busy, within: 2 * STEP, ..TaskLoad::default() };
            machine.policy.look(machine.time, machine.counts, load)
        };
        assert_eq!(look(&mut machine, STEP / 2), Ok(Pages(5000)));
        for _ in 0..6 {
            assert_eq!(look(&mut machine, STEP * 51 / 100), Err(IdleCacheReason::Busy));
        }
        assert_eq!(look(&mut machine, STEP * 51 / 100), Ok(Pages(5000)));
        assert_eq!(look(&mut machine, STEP * 51 / 100), Err(IdleCacheReason::Busy));
    }

    #[test]
    fn memory_is_compacted_where_much_is_loose_and_later_if_that_brings_little() {
        let mut policy = WatchedCache::new().policy;
        let minutes = |count| Duration::from_mins(count);
        assert!(
            !policy.compacts(minutes(1), Pages(999)) && policy.compacts(minutes(1), Pages(1000))
        );
        policy.compacted(minutes(1), Pages(1000), Pages(750));
        assert!(!policy.compacts(minutes(1) + 5 * STEP, Pages(1000)));
        assert!(policy.compacts(minutes(2), Pages(1000)));
        policy.compacted(minutes(2), Pages(1000), Pages(751));
        assert!(!policy.compacts(minutes(3), Pages(1000)));
        assert!(policy.compacts(minutes(4), Pages(1000)));
        for _ in 0..9 {
            policy.compacted(minutes(4), Pages(1000), Pages(1000));
        }
        assert!(
            !policy.compacts(minutes(19), Pages(1000)) && policy.compacts(minutes(20), Pages(1000))
        );
        policy.compacted(minutes(20), Pages(1000), Pages(0));
        assert!(policy.compacts(minutes(21), Pages(1000)));
        let never = IdleCacheConfig { loose: None, ..policy.config };
        assert!(!IdleCachePolicy::new(never).compacts(minutes(1), Pages(1000)));
    }

    #[test]
    fn what_is_read_again_makes_the_time_longer_and_what_is_not_shorter() {
        let mut machine = WatchedCache::new();
        machine.read(1600);
        machine.watch().unwrap();
        machine.give_up(Pages(1600));
        machine.counts.read_again += Pages(101);
        machine.read(1600);
        machine.look().unwrap_err();
        assert_eq!(machine.policy.wait(), Duration::from_mins(2));
        machine.watch().unwrap_err();
        assert_eq!(machine.watch(), Ok(Pages(1600)));
        machine.give_up(Pages(1600));
        machine.counts.read_again += Pages(100);
        for _ in 0..12 {
            machine.look().unwrap_err();
        }
        assert_eq!(machine.policy.wait(), Duration::from_mins(1));
    }

    #[test]
    fn what_goes_at_each_look_is_judged_all_the_same() {
        let mut machine = WatchedCache::new();
        machine.give_up(Pages(16));
        machine.counts.read_again += Pages(2);
        machine.look().unwrap_err();
        assert_eq!(machine.policy.wait(), Duration::from_mins(2));
        for _ in 0..13 {
            machine.give_up(Pages(100));
            let _ = machine.look();
        }
        assert_eq!(machine.policy.wait(), Duration::from_mins(1));
    }

    #[test]
    fn what_did_not_go_is_not_judged() {
        let mut machine = WatchedCache::new();
        machine.give_up(Pages(0));
        machine.counts.read_again += Pages(1);
        machine.look().unwrap_err();
        assert_eq!(machine.policy.wait(), Duration::from_mins(1));
    }

    #[test]
    fn the_time_grows_to_sixteen_times_what_is_set() {
        let mut machine = WatchedCache::new();
        for _ in 0..9 {
            machine.give_up(Pages(16));
            machine.counts.read_again += Pages(2);
            machine.look().unwrap_err();
        }
        assert_eq!(machine.policy.wait(), Duration::from_mins(16));
    }

    #[test]
    fn reasons_are_sentences() {
        let minute = Duration::from_mins(1);
        for (reason, text) in [
            (
                IdleCacheReason::Watching { watched: STEP, wait: minute },
                "the cache was watched for 10 of 60 s",
            ),
            (
                IdleCacheReason::TasksWait { waited: STEP / 1000 },
                "tasks waited for memory for 10 ms",
            ),
            (IdleCacheReason::Busy, "the processors are busy"),
            (
                IdleCacheReason::Little { idle: Pages(7), wait: minute },
                "7 pages of cache are idle for 60 s",
            ),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }
}
