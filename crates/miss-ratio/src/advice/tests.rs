//! Advice on made-up stretches of time whose answer is known.

use super::*;
use crate::reuse_histogram::ReuseHistogram;
use crate::window_curve::SampledReuse;

const SETTINGS: AdviceSettings =
    AdviceSettings { slowdown: 0.05, given_cost: None, step_pages: 100.0, beside_pages: 0.0 };

/// Ten seconds of a loop over `pages` pages that takes ten scans, at 1000 look-ups a second, on a
/// machine of 10 000 pages of which 1000 are fixed.
fn looping(pages: f64) -> ObservedWindow {
    let mut file = ReuseHistogram::default();
    file.add(10, pages * 10.0 * 0.5);
    ObservedWindow {
        seconds: 10.0,
        memory_pages: 10_000.0,
        fixed_pages: 1000.0,
        evictable_pages: PageKinds { anon: 0.0, file: 6000.0 },
        misses: PageKinds { anon: 0.0, file: 50.0 },
        lookups: 10_000.0,
        stall_seconds: Some(0.5),
        full_stall_seconds: 0.5,
        reuse: Some(SampledReuse {
            scans: 100.0,
            watched_scans: 60,
            rate: 0.5,
            sampled_pages: 3000.0,
            active: PageKinds { file, ..PageKinds::default() },
            ..SampledReuse::default()
        }),
        ..ObservedWindow::default()
    }
}

/// What is to be expected of the largest size that is not above `pages`.
fn outlook(advice: &MemoryAdvice, pages: f64) -> SizeOutlook {
    *advice.sizes.iter().rfind(|size| size.pages <= pages).unwrap()
}

#[test]
fn a_loop_needs_all_of_its_pages() {
    let windows: Vec<_> = (0..12).map(|_| looping(4000.0)).collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    let least = advice.least.unwrap();
    // The loop, what is fixed, half of what a scan sees, and what the sample may be off by.
    assert!((5000.0..5500.0).contains(&least.pages) && !least.at_most, "{least:?}");
    let cost = advice.miss_cost.unwrap();
    assert!((cost.seconds.value - 0.01).abs() < 1e-9 && cost.source == CostSource::FirstReads);
    let few = outlook(&advice, 4000.0);
    // Every page of every round, ten milliseconds each: 40 050 pages in 410 s rather than 10.
    assert!((few.slowdown.unwrap().value - 40.0).abs() < 0.1, "{few:?}");
    assert!((few.misses_per_second.value - 40_050.0 / 410.0).abs() < 0.5, "{few:?}");
    let many = outlook(&advice, 9000.0);
    assert!((many.hit_ratio.unwrap().value - 0.995).abs() < 1e-9, "{many:?}");
    assert!(many.slowdown.unwrap().high < 1e-9, "{many:?}");
}

#[test]
fn what_only_the_recording_took_is_not_needed_without_it() {
    let windows: Vec<_> = (0..12).map(|_| looping(4000.0)).collect();
    let with = |beside_pages| {
        let settings = AdviceSettings { beside_pages, ..SETTINGS };
        MemoryAdvice::new(&windows, &settings).unwrap()
    };
    let (all, less) = (with(0.0), with(300.0));
    assert!((all.least.unwrap().pages - less.least.unwrap().pages - 300.0).abs() < 1e-6);
    assert!((less.sizes.last().unwrap().pages - 9700.0).abs() < 1e-6, "{less:?}");
}

#[test]
fn the_kernels_own_time_may_be_a_part_of_what_a_miss_costs() {
    let with = |kernel_seconds| {
        let window = || ObservedWindow { kernel_seconds, ..looping(4000.0) };
        let windows: Vec<_> = (0..12).map(|_| window()).collect();
        MemoryAdvice::new(&windows, &SETTINGS).unwrap().miss_cost.unwrap().seconds
    };
    // 50 misses were waited for half a second; the kernel worked for a fifth of one.
    let known = with(Some(0.2));
    assert!((known.value - 0.012).abs() < 1e-9, "{known:?}");
    assert!((0.01..0.0103).contains(&known.low) && (0.0137..=0.0145).contains(&known.high));
    // It is no more than what was waited, however busy the kernel was with other things.
    assert_eq!(with(Some(7.0)), with(Some(0.5)));
    assert!((with(None).value - 0.01).abs() < 1e-9);
}

#[test]
fn while_only_some_tasks_wait_others_may_make_up_for_it() {
    let window = || ObservedWindow { full_stall_seconds: 0.1, ..looping(4000.0) };
    let windows: Vec<_> = (0..12).map(|_| window()).collect();
    let cost = MemoryAdvice::new(&windows, &SETTINGS).unwrap().miss_cost.unwrap().seconds;
    // 50 misses; all waited for 0.1 s, some for half a second.
    assert!((cost.value - 0.006).abs() < 1e-9, "{cost:?}");
    assert!((0.0018..0.0025).contains(&cost.low) && (0.0095..0.0105).contains(&cost.high));
}

#[test]
fn pages_that_were_read_ahead_for_nothing_are_no_misses_of_look_ups() {
    let unused = || ObservedWindow { unused_pages: 20.0, ..looping(4000.0) };
    let windows: Vec<_> = (0..12).map(|_| unused()).collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    let many = outlook(&advice, 9000.0);
    // 30 of 10 000 look-ups; the disk brought 50.
    assert!((many.hit_ratio.unwrap().value - 0.997).abs() < 1e-9, "{many:?}");
    assert!((many.misses_per_second.value - 5.0).abs() < 1e-9, "{many:?}");
    assert!((advice.miss_cost.unwrap().seconds.value - 0.01).abs() < 1e-9);
}

#[test]
fn what_was_freed_half_way_was_needed_before() {
    let half = |pages: f64| (0..6).map(move |_| looping(pages));
    let windows: Vec<_> = half(4000.0).chain(half(10.0)).collect();
    let least = MemoryAdvice::new(&windows, &SETTINGS).unwrap().least.unwrap();
    assert!((5000.0..5500.0).contains(&least.pages), "{least:?}");
}

#[test]
fn a_file_that_is_read_once_is_no_need() {
    let windows: Vec<_> = (0..12)
        .map(|_| {
            let mut window = looping(200.0);
            let reuse = window.reuse.as_mut().unwrap();
            reuse.inactive.file.add_first(2500.0);
            (window.misses.file, window.stall_seconds) = (5000.0, Some(5.0));
            window
        })
        .collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    // The loop of 200 pages, and 50 that pass by with each scan.
    let least = advice.least.unwrap();
    assert!(least.pages < 1000.0 + 200.0 + 600.0 + 200.0, "{least:?}");
}

#[test]
fn work_that_is_larger_than_memory_is_told_how_much_more_it_needs() {
    let windows: Vec<_> = (0..12)
        .map(|_| {
            let mut window = looping(4000.0);
            window.evictable_pages.file = 9000.0;
            window.misses.file = 2000.0;
            window.stall_seconds = Some(8.0);
            window.refaults.file.add(11, 1500.0);
            window
        })
        .collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    assert_eq!(advice.miss_cost.unwrap().source, CostSource::Refaults);
    let least = advice.least.unwrap();
    assert!(least.pages > 12_000.0 && least.pages <= 14_096.0, "{least:?}");
    assert!((advice.sizes.last().unwrap().pages - 14_096.0).abs() < 1e-9);
}

#[test]
fn a_page_that_comes_back_after_days_leaves_the_sizes_up_to_the_memory_fine() {
    let mut windows: Vec<_> = (0..12).map(|_| looping(4000.0)).collect();
    windows[3].refaults.file.add(28, 1.0);
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    let least = advice.least.unwrap();
    assert!((5000.0..5500.0).contains(&least.pages) && !least.at_most, "{least:?}");
    let sizes: Vec<f64> = advice.sizes.iter().map(|size| size.pages).collect();
    assert!(sizes.contains(&10_000.0) && sizes.contains(&5000.0), "{sizes:?}");
    assert!((sizes.last().unwrap() - (10_000.0 + 2f64.powi(29))).abs() < 1e-9, "{sizes:?}");
    assert!(sizes.len() < 300, "{}", sizes.len());
}

#[test]
fn sizes_are_multiples_of_the_step_and_the_memory_that_there_was() {
    assert_eq!(sizes(250.0, 530.0, 530.0, 100.0), [300.0, 400.0, 500.0, 530.0]);
    assert_eq!(sizes(500.0 + 1e-9, 600.0, 1000.0, 200.0), [600.0, 800.0, 1000.0]);
    assert_eq!(sizes(530.0, 530.0, 530.0, 100.0), [530.0]);
    // The first one is the least, however coarse those above are.
    let coarse = sizes(150.0, 1e6, 1e6, 100.0);
    assert!((coarse[0] - 200.0).abs() < 1e-9, "{coarse:?}");
    assert!(coarse.len() < 300 && coarse.is_sorted(), "{coarse:?}");
}

#[test]
fn less_might_do_only_where_the_curve_begins_less_than_a_step_below() {
    // Nothing but what is fixed and what is used between two scans is needed.
    let windows: Vec<_> = (0..12).map(|_| looping(4.0)).collect();
    let coarse = AdviceSettings { step_pages: 900.0, ..SETTINGS };
    for settings in [SETTINGS, coarse] {
        let least = MemoryAdvice::new(&windows, &settings).unwrap().least.unwrap();
        assert!(least.at_most, "{least:?}");
    }
}

#[test]
fn without_a_cost_there_are_hit_ratios_alone_and_a_given_one_is_the_last_resort() {
    let mut windows: Vec<_> = (0..12).map(|_| looping(4000.0)).collect();
    for window in &mut windows {
        window.misses.file = 1.0;
    }
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    assert!(advice.miss_cost.is_none() && advice.least.is_none());
    assert!(advice.sizes.iter().all(|size| size.slowdown.is_none() && size.hit_ratio.is_some()));
    let given = AdviceSettings { given_cost: Some(Duration::from_millis(1)), ..SETTINGS };
    let advice = MemoryAdvice::new(&windows, &given).unwrap();
    assert_eq!(advice.miss_cost.unwrap().source, CostSource::Given);
    assert!(advice.least.is_some());
}

#[test]
fn a_cost_that_would_take_longer_than_the_work_did_is_refused() {
    let windows: Vec<_> =
        (0..12).map(|_| ObservedWindow { stall_seconds: None, ..looping(4000.0) }).collect();
    let given = |cost| AdviceSettings { given_cost: Some(cost), ..SETTINGS };
    // 50 misses in ten seconds.
    let error = MemoryAdvice::new(&windows, &given(Duration::from_millis(200))).unwrap_err();
    let (cost, seconds, misses) = (Duration::from_millis(200), 10, 50);
    assert_eq!(error, AdviceError::CostTooHigh { cost, seconds, misses });
    let fits = MemoryAdvice::new(&windows, &given(Duration::from_millis(199))).unwrap();
    assert!(fits.sizes.iter().all(|size| size.slowdown.unwrap().high.is_finite()));
}

#[test]
fn work_that_only_waited_has_finite_figures() {
    let waited = || {
        let mut window = looping(4000.0);
        window.misses.file = 2000.0;
        (window.stall_seconds, window.full_stall_seconds) = (Some(10.0), 10.0);
        window.refaults.file.add(4, 2000.0);
        window
    };
    let windows: Vec<_> = (0..12).map(|_| waited()).collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    let present = outlook(&advice, 10_000.0);
    assert!(present.slowdown.unwrap().low > 1.0, "{present:?}");
    assert!(advice.sizes.iter().all(|size| size.slowdown.unwrap().high.is_finite()));
    assert!(advice.least.unwrap().pages > 10_000.0);
}

#[test]
fn a_longer_recording_is_asked_for_if_the_figure_keeps_the_limit_and_its_interval_does_not() {
    // A loop that is run in some stretches only, and would cost about 4 % there on average.
    let windows: Vec<_> = (0..12)
        .map(|number| {
            let mut window = looping(if number % 4 == 0 { 4000.0 } else { 10.0 });
            window.stall_seconds = Some(0.5 * 0.004);
            window
        })
        .collect();
    let least = MemoryAdvice::new(&windows, &SETTINGS).unwrap().least.unwrap();
    assert!(least.likely_pages < least.pages, "{least:?}");
    let longer = least.record_seconds.unwrap();
    assert!(longer > 120.0 && longer <= 12_000.0, "{least:?}");
}

#[test]
fn too_little_is_refused_and_so_is_a_recording_that_saw_nothing() {
    let window = looping(4000.0);
    let few = MemoryAdvice::new(&[window.clone(), window.clone()], &SETTINGS).unwrap_err();
    assert_eq!(few, AdviceError::TooFew { have: 2 });
    assert!(few.to_string().contains('6'));
    let blind = ObservedWindow {
        reuse: None,
        evictable_pages: PageKinds { anon: 0.0, file: 9000.0 },
        ..window
    };
    let error = MemoryAdvice::new(&vec![blind; 12], &SETTINGS).unwrap_err();
    assert_eq!(error, AdviceError::NothingSeen);
}

#[test]
fn figures_never_rise_with_memory_and_lie_in_their_intervals() {
    let windows: Vec<_> = (1..10).map(|number| looping(f64::from(number) * 400.0)).collect();
    let advice = MemoryAdvice::new(&windows, &SETTINGS).unwrap();
    for pair in advice.sizes.windows(2) {
        let [less, more] = [pair[0].slowdown.unwrap(), pair[1].slowdown.unwrap()];
        assert!(less.value >= more.value - 1e-12 && less.high >= more.high - 1e-12, "{pair:?}");
        assert!(less.low >= more.low - 1e-12, "{pair:?}");
        assert!(less.low <= less.value && less.value <= less.high, "{pair:?}");
    }
}
