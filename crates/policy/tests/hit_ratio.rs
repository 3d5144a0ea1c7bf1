//! Watermarks that follow the hit ratio: what moves them, what does not, and between which bounds.

use std::time::Duration;

use proptest::prelude::*;
use ramslice_policy::{
    AnyPolicy, CacheMarks, DecisionReason, MachineTotals, MarkMove, Observation, Policy,
    PolicyConfig, PolicyEvent, SavedPolicy, SliceRow,
};
use ramslice_types::{
    Bytes, Pages, Price, Ratio, RefaultDistances, RequestOp, SliceId, SliceState,
};

/// Pages of a slice, and its size in MiB.
const SLICE: u64 = 512;
const SLICE_MIB: f64 = 2.0;
const SLICES: u64 = 64;
const PAGE: Bytes = Bytes(4096);
/// Between two observations, as the default.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Pages looked up within a time-out.
const LOOKUPS: u64 = 50_000;
/// Pages that the kernel keeps free.
const FREE: u64 = 64;

fn config(more: &str) -> PolicyConfig {
    let text = format!(
        "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = 0.9\n{more}"
    );
    PolicyConfig::parse(&text, "policy.toml").unwrap()
}

fn policy(config: &PolicyConfig) -> AnyPolicy {
    AnyPolicy::new(config, None, Bytes(SLICE * PAGE.0), PAGE).unwrap()
}

/// Refaults at distances that are as likely one as another, from 0 to `most` pages.
fn even_distances(refaults: u64, most: u64) -> RefaultDistances {
    let mut counts = vec![0; RefaultDistances::ENTRIES];
    for (order, count) in counts.iter_mut().enumerate().take(40) {
        let begin = if order == 0 { 0 } else { 1 << order };
        let width = (2u64 << order).min(most).saturating_sub(begin);
        *count = (refaults as f64 * width as f64 / most.max(1) as f64).round() as u64;
    }
    RefaultDistances::new(counts).unwrap()
}

/// A machine whose programs use `used` pages, and read pages of a set by chance through an LRU
/// cache that takes all free memory.
struct CacheMachine {
    policy: AnyPolicy,
    time: Duration,
    on: u64,
    used: u64,
    cache: u64,
    marks: Vec<CacheMarks>,
    switched: u32,
}

impl CacheMachine {
    fn new(config: &PolicyConfig) -> Self {
        Self {
            policy: policy(config),
            time: Duration::from_secs(1000),
            on: SLICES,
            used: 8 * SLICE,
            cache: 0,
            marks: Vec::new(),
            switched: 0,
        }
    }

    fn capacity(&self) -> u64 {
        (self.on * SLICE).saturating_sub(self.used + FREE)
    }

    fn totals(&self) -> MachineTotals {
        MachineTotals {
            slice_pages: Pages(SLICE),
            managed: Pages(SLICES * SLICE),
            free: Pages(self.on * SLICE - self.used - self.cache),
            offline: Pages((SLICES - self.on) * SLICE),
            freeable: Pages(self.cache),
            cache: Pages(self.cache),
            awake_reserve: Pages(FREE),
            nr_slices: SLICES as u32,
            nr_offline: (SLICES - self.on) as u32,
            ..MachineTotals::default()
        }
    }

    /// What is looked up within a time-out: pages of a set of `set` pages, by chance, and
    /// `streamed` pages that are read for the first time.
    fn lookups(&mut self, set: u64, streamed: u64) -> PolicyEvent {
        self.cache = set.min(self.capacity());
        let missing = set - self.cache;
        let absent = LOOKUPS * missing / set.max(1);
        PolicyEvent::LookedUp {
            lookups: Pages(LOOKUPS + streamed),
            absent: Pages(absent + streamed),
            brought: Pages(absent + streamed),
            returned: Pages(absent),
            distances: Some(even_distances(absent, missing)),
        }
    }

    /// A time-out passes.
    fn step(&mut self, event: PolicyEvent) -> CacheMarks {
        self.time += TIMEOUT;
        let row = |id: u64| SliceRow {
            id: SliceId(id as u32),
            state: if id < self.on { SliceState::Online } else { SliceState::Offline },
            price: (id < self.on).then_some(Price(5000)),
            present: Pages(SLICE),
            free: Pages(100),
            freeable: Pages::ZERO,
        };
        let rows: Vec<_> = (0..SLICES).map(row).collect();
        let decision = self.policy.step(&Observation {
            time: self.time,
            totals: self.totals(),
            rows: &rows,
            events: &[event],
        });
        for request in &decision.requests {
            self.switched += 1;
            match request.op {
                RequestOp::Offline(_) => self.on -= 1,
                RequestOp::Online(_) => self.on += 1,
                _ => unreachable!("{request:?}"),
            }
        }
        self.cache = self.cache.min(self.capacity());
        let marks = decision.marks.expect("each time-out judges the watermarks");
        self.marks.push(marks);
        marks
    }

    fn moves(&self, direction: MarkMove) -> usize {
        self.marks.iter().filter(|marks| marks.moved == Some(direction)).count()
    }
}

#[test]
fn memory_wakes_until_the_ratio_is_kept_and_not_much_more() {
    let mut machine = CacheMachine::new(&config(""));
    let set = 20 * SLICE;
    let (mut hits, mut looked_up, mut on) = (0, 0, 0);
    for round in 0..2000 {
        let event = machine.lookups(set, 0);
        if let (PolicyEvent::LookedUp { lookups, absent, .. }, 500..) = (&event, round) {
            hits += (*lookups - *absent).0;
            looked_up += lookups.0;
            on += machine.on;
        }
        machine.step(event);
    }
    let ratio = hits as f64 / looked_up as f64;
    assert!((0.88..=1.0).contains(&ratio), "{ratio}");
    // 8 slices for programs, 18 for nine tenths of the set: 15 % more at most.
    let mean = on as f64 / 1500.0;
    assert!(mean <= 26.0 * 1.15, "{mean} slices are on");
    assert!(machine.moves(MarkMove::Lowered) >= 1, "it tries whether less would do");
}

#[test]
fn an_hour_of_streaming_past_a_small_hot_set_raises_nothing() {
    let mut machine = CacheMachine::new(&config(""));
    for _ in 0..120 {
        let event = machine.lookups(2 * SLICE, 4 * LOOKUPS);
        let marks = machine.step(event);
        assert_eq!(marks.ratio, Some(Ratio(1.0)), "{}", marks.why);
    }
    assert_eq!(machine.moves(MarkMove::Raised), 0);
    assert!(machine.on < 20, "{} slices are on", machine.on);
}

#[test]
fn a_stream_with_a_few_misses_that_memory_would_avoid_is_no_ratio_of_few_lookups() {
    let mut machine = CacheMachine::new(&config("least_lookups = 2000\n"));
    machine.on = 30;
    machine.cache = machine.capacity();
    for _ in 0..60 {
        // 40 hits, and 40 of 4000 pages had been there: half of what counts, and next to nothing.
        let marks = machine.step(PolicyEvent::LookedUp {
            lookups: Pages(4040),
            absent: Pages(4000),
            brought: Pages(4000),
            returned: Pages(40),
            distances: None,
        });
        assert!(marks.moved.is_none() || marks.lookups >= Pages(2000), "{}", marks.why);
    }
    assert_eq!(machine.moves(MarkMove::Raised), 2, "80 count in a time-out: 25 make a ratio");
}

#[test]
fn a_stream_that_comes_back_raises_nothing_if_no_memory_here_would_keep_it() {
    let mut machine = CacheMachine::new(&config(""));
    let far = |refaults| even_distances(refaults, 1 << 39);
    for _ in 0..120 {
        machine.cache = machine.capacity();
        let marks = machine.step(PolicyEvent::LookedUp {
            lookups: Pages(LOOKUPS),
            absent: Pages(LOOKUPS / 2),
            brought: Pages(LOOKUPS / 2),
            returned: Pages(LOOKUPS / 2),
            distances: Some(far(LOOKUPS / 2)),
        });
        assert!(marks.ratio.unwrap().0 > 0.999, "{}", marks.why);
    }
    assert_eq!(machine.moves(MarkMove::Raised), 0);
    // Where distances are not known, all that came back counts.
    let event = PolicyEvent::LookedUp {
        lookups: Pages(LOOKUPS),
        absent: Pages(LOOKUPS / 2),
        brought: Pages(LOOKUPS / 2),
        returned: Pages(LOOKUPS / 2),
        distances: None,
    };
    assert_eq!(machine.step(event).ratio, Some(Ratio(0.5)));
}

#[test]
fn few_lookups_move_nothing_and_add_up_until_they_are_enough() {
    let mut machine = CacheMachine::new(&config("least_lookups = 1000\n"));
    machine.on = 30;
    machine.cache = machine.capacity();
    let few = |lookups| PolicyEvent::LookedUp {
        lookups: Pages(lookups),
        absent: Pages(lookups),
        brought: Pages(lookups),
        returned: Pages(lookups),
        distances: None,
    };
    for _ in 0..2 {
        let marks = machine.step(few(400));
        assert_eq!((marks.moved, marks.ratio), (None, None));
        assert!(marks.why.to_string().contains("too few"), "{}", marks.why);
    }
    let marks = machine.step(few(400));
    assert_eq!((marks.moved, marks.lookups), (Some(MarkMove::Raised), Pages(1200)));
    assert!(marks.why.to_string().contains("0.000 of 1200"), "{}", marks.why);
}

#[test]
fn without_counters_nothing_moves_and_the_reason_says_so() {
    let mut machine = CacheMachine::new(&config("lower_after_timeouts = 1\n"));
    let other = PolicyEvent::Refaulted { pages: Pages(1 << 20) };
    let first = machine.step(other.clone());
    for _ in 0..100 {
        let marks = machine.step(other.clone());
        assert_eq!((marks.low, marks.high, marks.moved), (first.low, first.high, None));
        assert_eq!(marks.why, DecisionReason::LookupsUnknown);
    }
}

#[test]
fn load_that_flips_each_minute_moves_no_more_than_once_a_timeout_and_soon_rests() {
    let mut machine = CacheMachine::new(&config(""));
    for round in 0..480u32 {
        let set = if round % 4 < 2 { 20 * SLICE } else { 4 * SLICE };
        let event = machine.lookups(set, 0);
        machine.step(event);
    }
    let moves = machine.moves(MarkMove::Raised) + machine.moves(MarkMove::Lowered);
    assert!(moves <= 480 && machine.switched <= 480, "{moves}, {}", machine.switched);
    let late = machine.marks[240..].iter().filter(|marks| marks.moved.is_some()).count();
    assert!(late <= 24, "{late} moves in the last two hours");
}

#[test]
fn a_sinking_that_is_taken_back_makes_the_next_one_wait_for_longer() {
    let mut machine = CacheMachine::new(&config("lower_after_timeouts = 2\n"));
    let mut lowered = Vec::new();
    for round in 0..3000 {
        let event = machine.lookups(20 * SLICE, 0);
        if machine.step(event).moved == Some(MarkMove::Lowered) {
            lowered.push(round);
        }
    }
    let pauses: Vec<_> = lowered.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let late = pauses.iter().rev().take(3).max().unwrap();
    assert!(*late >= 32, "{pauses:?}");
}

#[test]
fn bounds_hold() {
    let text = "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = 0.99\n\
                cache_free_low_mib = 20\ncache_free_high_mib = 30\n\
                cache_free_low_least_mib = 17\ncache_free_high_most_mib = 35\n";
    let config = PolicyConfig::parse(text, "policy.toml").unwrap();
    let mut machine = CacheMachine::new(&config);
    for _ in 0..300 {
        let event = machine.lookups(60 * SLICE, 0);
        machine.step(event);
    }
    let top = machine.marks.last().unwrap();
    assert_eq!(top.high, Pages(35 * 256), "{}", top.why);
    assert_eq!(top.low, Pages(25 * 256), "they keep their distance");
    for _ in 0..3000 {
        let event = machine.lookups(SLICE, 0);
        machine.step(event);
    }
    let low = machine.marks.last().unwrap();
    assert_eq!((low.low, low.high), (Pages(17 * 256), Pages(27 * 256)), "{}", low.why);
    assert!(low.why.to_string().contains("lower bound"), "{}", low.why);
}

#[test]
fn a_restored_policy_goes_on_where_it_was() {
    let config = config("lower_after_timeouts = 3\n");
    let mut machine = CacheMachine::new(&config);
    for round in 0..200 {
        let event = machine.lookups((10 + round % 7) * SLICE, 100);
        machine.step(event);
    }
    let saved = machine.policy.save().to_text();
    let restored = SavedPolicy::restore(&saved, config.policy).unwrap();
    assert_eq!(restored, machine.policy);
    // One that was saved by an older version has no such part.
    let older = r#"{"state_version":4,"policy":"watermarks","state":{"free_low":1,"free_high":9,
        "cache_free_low":1,"cache_free_high":9,"timeout":{"secs":30,"nanos":0},"due":null}}"#;
    SavedPolicy::restore(older, config.policy).unwrap();
}

#[test]
fn wrong_settings_are_named_by_line() {
    let head = "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\n";
    for (text, what) in [
        ("hit_ratio = 0.0", "above 0 and at most 1"),
        ("hit_ratio = 1.5", "above 0 and at most 1"),
        ("hit_ratio = nan", "NaN"),
        ("hit_ratio = \"high\"", "a number above 0 and at most 1"),
        ("least_lookups = 5", "without hit_ratio"),
        ("hit_ratio = 0.9\nleast_lookups = 0", "at least 1"),
        ("hit_ratio = 0.9\nlower_after_timeouts = 0", "at least 1"),
        ("hit_ratio = 0.9\ncache_free_high_most_mib = -1", "at least 0"),
    ] {
        let error = PolicyConfig::parse(&format!("{head}{text}\n"), "policy.toml").unwrap_err();
        assert_eq!(error.line, 4 + text.matches('\n').count(), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    for (text, what) in [
        ("cache_free_low_least_mib = 5", "begins at 4 MiB"),
        ("cache_free_high_most_mib = 7", "begins at 8 MiB"),
    ] {
        let error = config(text).check(Bytes(SLICE * PAGE.0)).unwrap_err();
        assert_eq!(error.line, 5, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Look-ups with anything in them.
fn events() -> impl Strategy<Value = PolicyEvent> {
    let counts = (0..60_000u64, 0.0..1.0f64, 0.0..3.0f64, 0.0..3.0f64, 0..20u32, any::<bool>());
    counts.prop_map(|(lookups, absent, brought, returned, reach, known)| {
        let absent = (lookups as f64 * absent) as u64;
        let returned = (absent as f64 * returned) as u64;
        PolicyEvent::LookedUp {
            lookups: Pages(lookups),
            absent: Pages(absent),
            brought: Pages((absent as f64 * brought) as u64),
            returned: Pages(returned),
            distances: known.then(|| even_distances(returned, 1 << reach)),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_looked_up_the_rule_and_the_bounds_hold(
        all in prop::collection::vec(events(), 1..200),
        target in 0.01..=1.0f64, least in 1..20_000u64, calm in 1..6u32,
        low in 4.0..40.0f64, width in 2.01..30.0f64, below in 0.0..4.0f64, above in 0.0..60.0f64,
    ) {
        let high = low + width;
        let text = format!(
            "schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\nhit_ratio = {target}\n\
             least_lookups = {least}\nlower_after_timeouts = {calm}\n\
             cache_free_low_mib = {low}\ncache_free_high_mib = {high}\n\
             cache_free_low_least_mib = {}\ncache_free_high_most_mib = {}\n",
            low - below, high + above);
        let config = PolicyConfig::parse(&text, "policy.toml").unwrap();
        let mut machine = CacheMachine::new(&config);
        let pages = |mib: f64| (mib * 256.0) as u64;
        let distance = pages(high) - pages(low);
        let (mut before, mut sum) = ((Pages(pages(low)), Pages(pages(high))), 0);
        for event in all {
            machine.cache = machine.capacity();
            if let PolicyEvent::LookedUp { lookups, .. } = &event {
                sum += lookups.0;
            }
            let marks = machine.step(event);
            prop_assert_eq!((marks.high - marks.low).0, distance);
            prop_assert!(distance as f64 > SLICE_MIB * 256.0, "hysteresis rule");
            prop_assert!(marks.low.0 >= pages(low - below) && marks.high.0 <= pages(high + above));
            let by = marks.low.0.abs_diff(before.0.0);
            prop_assert!(by <= SLICE, "{by} pages at once");
            prop_assert_eq!(marks.moved.is_some(), by > 0, "{}", marks.why);
            if marks.ratio.is_some() {
                prop_assert!(sum >= least, "{sum} look-ups of {least}");
                sum = 0;
            } else {
                prop_assert_eq!(by, 0, "{}", marks.why);
            }
            before = (marks.low, marks.high);
        }
    }
}
