//! The model against a cache with least-recently-used eviction, on small traces.
//!
//! Tolerances, as the mean distance of miss ratios over all sizes up to the curve's end: 0.02 for
//! independent references, uniform or by Zipf's law; 0.04 for loops, whose cliff the bins of reuse
//! times blur; 0.1 for a quarter of the pages of a trace by Zipf's law with exponent 0.5,
//! where no single page matters. Of more memory, from refaults by powers of two: 0.03 for
//! independent references.

use std::collections::HashMap;

use proptest::prelude::*;
use ramslice_miss_ratio::{MissCurve, PageSample, RefaultDistances, RefaultSizes, ReuseHistogram};
use ramslice_types::SplitMix64;

/// The reuse times of a trace, in accesses, of the pages in the sample.
fn reuse_times(trace: &[u64], sample: PageSample) -> ReuseHistogram {
    let (mut last, mut histogram) = (HashMap::new(), ReuseHistogram::default());
    for (now, &page) in trace.iter().enumerate().filter(|(_, page)| sample.takes(**page)) {
        match last.insert(page, now) {
            Some(before) => histogram.add((now - before) as u64, 1.0),
            None => histogram.add_first(1.0),
        }
    }
    histogram
}

fn predicted(trace: &[u64], sample: PageSample) -> MissCurve {
    reuse_times(trace, sample).miss_ratio(trace.len() as f64 * sample.rate())
}

/// Miss ratios by size, from 0 pages to all of them: an access hits if fewer other pages were
/// accessed since the last one to its page than the cache holds.
fn least_recently_used(trace: &[u64]) -> Vec<f64> {
    let mut stack: Vec<u64> = Vec::new();
    let mut hits_at = Vec::new();
    for &page in trace {
        if let Some(depth) = stack.iter().rev().position(|other| *other == page) {
            stack.remove(stack.len() - 1 - depth);
            if hits_at.len() <= depth {
                hits_at.resize(depth + 1, 0u32);
            }
            hits_at[depth] += 1;
        }
        stack.push(page);
    }
    let mut hits = 0;
    let mut ratios = vec![1.0];
    for at in hits_at {
        hits += at;
        ratios.push(1.0 - f64::from(hits) / trace.len() as f64);
    }
    ratios
}

/// The mean distance between the model and the cache, over all sizes that both know.
fn distance(trace: &[u64], sample: PageSample) -> f64 {
    let (curve, measured) = (predicted(trace, sample), least_recently_used(trace));
    let both = measured.iter().enumerate();
    let distances: Vec<f64> =
        both.filter_map(|(pages, ratio)| Some((curve.at(pages as f64)? - ratio).abs())).collect();
    assert!(distances.len() * 2 > measured.len(), "the curve ends at {:?}", curve.points().last());
    distances.iter().sum::<f64>() / distances.len() as f64
}

/// What a cache that holds so many pages sees of a trace's second half.
struct Refaults {
    accesses: f64,
    misses: f64,
    evictions: f64,
    distances: RefaultDistances,
}

/// A cache with least-recently-used eviction that notes for each page it evicts how many it had
/// evicted before, as the kernel does.
fn refaults(trace: &[u64], size: usize) -> Refaults {
    let (mut cache, mut evicted) = (Vec::new(), HashMap::new());
    let mut clock = 0u64;
    let mut seen = Refaults {
        accesses: 0.0,
        misses: 0.0,
        evictions: 0.0,
        distances: RefaultDistances::default(),
    };
    for (now, &page) in trace.iter().enumerate() {
        let counts = now >= trace.len() / 2;
        let place = cache.iter().rposition(|other| *other == page);
        let mut evicts = false;
        if let Some(place) = place {
            cache.remove(place);
        } else {
            if let (true, Some(then)) = (counts, evicted.remove(&page)) {
                let distance: u64 = clock - then;
                seen.distances.add(distance.max(1).ilog2() as usize, 1.0);
            }
            evicts = cache.len() == size;
            if evicts {
                evicted.insert(cache.remove(0), clock);
                clock += 1;
            }
        }
        cache.push(page);
        let one = |happened: bool| if counts && happened { 1.0 } else { 0.0 };
        seen.accesses += one(true);
        seen.misses += one(place.is_none());
        seen.evictions += one(evicts);
    }
    seen
}

/// The mean distance of miss ratios of all larger caches from what refaults of one say.
fn distance_above(trace: &[u64], size: usize, pages: usize) -> f64 {
    let seen = refaults(trace, size);
    let none = RefaultDistances::default();
    let sizes = RefaultSizes::new([&seen.distances, &none], seen.misses, Some(seen.evictions));
    let distances = (size..pages).step_by(1 + pages / 20).map(|larger| {
        let measured = refaults(trace, larger);
        let left = seen.misses - sizes.avoided(&seen.distances, (larger - size) as f64);
        (left - measured.misses).abs() / measured.accesses
    });
    let distances: Vec<f64> = distances.collect();
    distances.iter().sum::<f64>() / distances.len() as f64
}

const ALL: f64 = 1.0;

/// Independent references to `pages` pages, with probabilities as 1 / rank^skew.
fn independent(pages: usize, skew: f64, accesses: usize, seed: u64) -> Vec<u64> {
    let mut sums: Vec<f64> = (1..=pages).map(|rank| (rank as f64).powf(-skew)).collect();
    for at in 1..sums.len() {
        sums[at] += sums[at - 1];
    }
    let (mut random, all) = (SplitMix64::new(seed), sums[pages - 1]);
    let mut one = || {
        let drawn = random.between(0.0, all);
        sums.partition_point(|sum| *sum <= drawn) as u64
    };
    (0..accesses).map(|_| one()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn independent_references_are_met(pages in 50usize..400, seed in any::<u64>()) {
        let trace = independent(pages, 0.0, 10_000, seed);
        let found = distance(&trace, PageSample::of_rate(ALL));
        prop_assert!(found < 0.02, "{}", found);
    }

    #[test]
    fn zipf_is_met(pages in 50usize..600, skew in 0.6f64..1.4, seed in any::<u64>()) {
        let trace = independent(pages, skew, 10_000, seed);
        let found = distance(&trace, PageSample::of_rate(ALL));
        prop_assert!(found < 0.02, "{}", found);
    }

    #[test]
    fn larger_caches_miss_what_refaults_say(
        pages in 100usize..400, share in 0.3f64..0.9, skew in 0.0f64..1.2, seed in any::<u64>()
    ) {
        let trace = independent(pages, skew, 20_000, seed);
        let size = (share * pages as f64) as usize;
        let found = distance_above(&trace, size, pages);
        prop_assert!(found < 0.03, "{}", found);
        // A distance taken for the memory it needs asks for too much where much is missing.
        let seen = refaults(&trace, size);
        let none = RefaultDistances::default();
        let most = RefaultSizes::new([&seen.distances, &none], seen.misses, None);
        let least = RefaultSizes::new([&seen.distances, &none], seen.misses, Some(seen.evictions));
        prop_assert!(least.longest(&seen.distances) <= most.longest(&seen.distances));
    }

    #[test]
    fn loops_are_met(pages in 40u64..600, rounds in 20u64..40) {
        let trace: Vec<u64> = (0..rounds).flat_map(|_| 0..pages).collect();
        let found = distance(&trace, PageSample::of_rate(ALL));
        prop_assert!(found < 0.04, "{}", found);
    }

    #[test]
    fn a_quarter_of_the_pages_says_nearly_as_much(seed in any::<u64>()) {
        // Numbers are scattered, so that the sample does not depend on ranks.
        let trace: Vec<u64> = independent(2000, 0.5, 20_000, seed)
            .into_iter()
            .map(|page| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed)
            .collect();
        let found = distance(&trace, PageSample::of_rate(0.25));
        prop_assert!(found < 0.1, "{}", found);
    }

    #[test]
    fn misses_never_rise_with_memory_and_all_miss_without(
        trace in prop::collection::vec(0u64..40, 1..400)
    ) {
        let curve = predicted(&trace, PageSample::of_rate(ALL));
        prop_assert_eq!(curve.at(0.0), Some(1.0));
        for pair in curve.points().windows(2) {
            prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1, "{:?}", pair);
        }
        // Where it ends, only first accesses miss.
        let first = reuse_times(&trace, PageSample::of_rate(ALL)).first();
        let (end, last) = *curve.points().last().unwrap();
        prop_assert!((last - first / trace.len() as f64).abs() < 1e-9);
        prop_assert_eq!(curve.at(end + 1.0), None);
    }
}
