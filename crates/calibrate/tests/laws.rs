//! Laws of the fit, of the figures, of the detector and of refusals, on samples made up by rules.

use proptest::prelude::*;
use ramslice_calibrate::{
    CalibrationRefusal, CalibrationSample, DriftDetector, DriftSettings, DriftState, JudgedModel,
    MachineConditions, ModelCoefficients, OperationCounts, SampleOrigin, SampleSet,
    ThesisExperiment, check_conditions, check_everyday, check_refit, check_samples, check_steady,
    everyday, fit, intervals, judge, least_squares, quantile, rank_correlation, refit, regret,
    slopes, thesis,
};
use ramslice_types::{Bytes, Pages, Price};

fn sample(
    model: &ModelCoefficients,
    experiment: ThesisExperiment,
    operations: OperationCounts,
) -> CalibrationSample {
    let price = Price(model.price(&operations).round() as u64);
    CalibrationSample {
        origin: SampleOrigin::Artificial(experiment),
        label: String::new(),
        operations,
        predicted: price,
        measured: price,
        migrated: operations.moved,
        dropped: operations.dropped,
        failed: Pages(0),
    }
}

fn operations(frames: u64, dropped: u64, moved: u64, mappings: u64, cache: u64) -> OperationCounts {
    OperationCounts {
        slices: 1,
        frames: Pages(frames),
        free: Pages(frames - dropped - moved),
        dropped: Pages(dropped),
        drop_folios: dropped,
        moved: Pages(moved),
        move_folios: moved,
        mappings,
        cache_targets: Pages(cache),
        staying: Pages(0),
    }
}

/// The experiments of a calibration, as a machine of this model would answer them.
fn experiments(model: &ModelCoefficients) -> Vec<CalibrationSample> {
    let mut found = Vec::new();
    for size in [1024, 2048, 4096] {
        for _ in 0..4 {
            found.push(sample(model, ThesisExperiment::Empty, operations(size, 0, 0, 0, 0)));
        }
    }
    for share in 1..=12 {
        let pages = 4096 * share / 12;
        found.push(sample(model, ThesisExperiment::Cache, operations(4096, pages, 0, 0, 0)));
        for count in [1, 2, 4, 8] {
            let mapped = operations(4096, 0, pages, pages * u64::from(count), 0);
            found.push(sample(model, ThesisExperiment::Mapped(count), mapped));
        }
        let (part, rest) = (pages / 3, pages / 4);
        found.push(sample(
            model,
            ThesisExperiment::Mixed,
            operations(4096, part, rest, 2 * rest, rest / 2),
        ));
    }
    found
}

fn assert_near(found: f64, expected: f64, share: f64, what: &str) {
    assert!(
        (found - expected).abs() <= share * expected.abs() + 0.5,
        "{what}: {found}, not {expected}"
    );
}

prop_compose! {
    /// A machine whose every operation costs something.
    fn machines()(values in prop::array::uniform7(10.0..300.0_f64),
        base in 1000.0..20_000.0_f64) -> ModelCoefficients {
        let mut values = values;
        values[0] = base;
        values[1] *= 10.0;
        ModelCoefficients::from_array(values)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_fit_recovers_what_the_samples_were_made_by(machine in machines()) {
        let fitted = fit(&experiments(&machine)).unwrap();
        let exact = fitted.exact;
        // Where a destination comes from matters by its difference only.
        for (found, expected, what) in [
            (exact.isolate_slice, machine.isolate_slice, "isolate_slice"),
            (exact.isolate_page, machine.isolate_page, "isolate_page"),
            (exact.drop_page, machine.drop_page, "drop_page"),
            (exact.migrate_page, machine.migrate_page + machine.alloc_buddy, "migrate_page"),
            (exact.migrate_mapping, machine.migrate_mapping, "migrate_mapping"),
        ] {
            assert_near(found, expected, 0.02, what);
        }
        let dearer = machine.alloc_cache - machine.alloc_buddy;
        if dearer >= 0.0 {
            assert_near(exact.alloc_cache, dearer, 0.02, "alloc_cache");
        }
        prop_assert!(exact.alloc_buddy.abs() < f64::EPSILON);
    }

    #[test]
    fn no_term_is_below_zero_and_whole_ones_are_whole(
        machine in machines(),
        noise in prop::collection::vec(-0.9..3.0_f64, 84),
    ) {
        let mut samples = experiments(&machine);
        for (sample, noise) in samples.iter_mut().zip(noise.iter().cycle()) {
            sample.measured = Price((sample.measured.0 as f64 * (1.0 + noise)) as u64);
        }
        let fitted = fit(&samples).unwrap();
        for (at, value) in fitted.exact.to_array().into_iter().enumerate() {
            prop_assert!(value >= 0.0);
            let whole = fitted.rounded.to_array()[at];
            prop_assert!(whole.fract().abs() < f64::EPSILON);
            prop_assert!((whole - value).abs() < 1.0);
        }
        prop_assert!(fitted.rounded.parameters().is_some());
    }

    #[test]
    fn a_machine_of_another_speed_has_all_terms_at_that_factor(machine in machines(),
        factor in 2.0..50.0_f64) {
        let here = fit(&experiments(&machine)).unwrap().exact.to_array();
        let there = fit(&experiments(&machine.scaled(factor))).unwrap().exact.to_array();
        for (here, there) in here.into_iter().zip(there) {
            prop_assert!((there - factor * here).abs() <= 0.02 * there + factor, "{} {}", here,
                there);
        }
    }

    #[test]
    fn a_few_interrupted_samples_change_little(machine in machines(),
        hit in prop::collection::vec(0..84_usize, 1..6)) {
        let mut samples = experiments(&machine);
        let count = samples.len();
        for at in hit {
            samples[at % count].measured = Price(samples[at % count].measured.0 * 4);
        }
        let fitted = fit(&samples).unwrap();
        assert_near(fitted.exact.migrate_mapping, machine.migrate_mapping, 0.05, "migrate_mapping");
        assert_near(fitted.exact.drop_page, machine.drop_page, 0.05, "drop_page");
    }

    #[test]
    fn slopes_are_the_machine_s_where_destinations_are_free(machine in machines()) {
        let found = slopes(&experiments(&machine)).unwrap();
        assert_near(found.isolate_page, machine.isolate_page, 0.01, "isolate_page");
        assert_near(found.drop_page, machine.drop_page, 0.01, "drop_page");
        assert_near(found.migrate_page, machine.migrate_page + machine.alloc_buddy, 0.01,
            "migrate_page");
        assert_near(found.migrate_mapping, machine.migrate_mapping, 0.01, "migrate_mapping");
    }

    #[test]
    fn least_squares_predicts_even_where_its_terms_make_no_sense(machine in machines()) {
        let samples = experiments(&machine);
        let found = judge(&least_squares(&samples).unwrap(), &samples).unwrap();
        prop_assert!(found.p99_of_largest < 0.01, "{:?}", found);
    }

    #[test]
    fn order_figures_do_not_depend_on_units(
        pairs in prop::collection::vec((1.0..1e6_f64, 1.0..1e6_f64), 2..60),
        factor in 0.001..1000.0_f64,
    ) {
        let scaled: Vec<_> = pairs.iter().map(|(p, m)| (p * factor, *m)).collect();
        prop_assert!((rank_correlation(&pairs) - rank_correlation(&scaled)).abs() < 1e-9);
        prop_assert!((regret(&pairs).0 - regret(&scaled).0).abs() < 1e-9);
        prop_assert!((-1.0 - 1e-9..=1.0 + 1e-9).contains(&rank_correlation(&pairs)));
        let (mean, worst) = regret(&pairs);
        prop_assert!(mean >= -1e-9 && worst >= mean - 1e-9);
    }

    #[test]
    fn the_true_order_has_no_regret(costs in prop::collection::vec(1.0..1e6_f64, 1..60)) {
        let pairs: Vec<_> = costs.iter().map(|cost| (cost.sqrt(), *cost)).collect();
        prop_assert!(regret(&pairs).1.abs() < 1e-9);
        let distinct = costs.iter().any(|cost| cost.to_bits() != costs[0].to_bits());
        prop_assert!(!distinct || rank_correlation(&pairs) > 1.0 - 1e-9);
    }
}

#[test]
fn figures_of_a_handful_of_samples_are_those_worked_out_by_hand() {
    assert_eq!(quantile([3.0, 1.0, 2.0].into_iter(), 0.5), Some(2.0));
    assert_eq!(quantile((1..=200).map(f64::from), 0.99), Some(198.0));
    assert_eq!(quantile([4.0].into_iter(), 0.99), Some(4.0));
    assert_eq!(quantile(std::iter::empty(), 0.5), None);
    // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 1 - 6 * 0.5 / 60 without ties, 4.5 / sqrt(4.5 * 5)
    // with.
    let pairs = [(1.0, 10.0), (2.0, 20.0), (2.0, 30.0), (3.0, 40.0)];
    assert!((rank_correlation(&pairs) - 4.5 / 22.5_f64.sqrt()).abs() < 1e-12);
    // The opposite order of 1, 1, 1, 7 of 10: up to a budget of 3, three slices could be had for 3,
    // and cost 9.
    let pairs = [(4.0, 1.0), (3.0, 1.0), (2.0, 1.0), (1.0, 7.0)];
    let (mean, worst) = regret(&pairs);
    // One slice at 10%, two at 20%, three from 30% on.
    let expected = (6.0 + 3.0 + 7.0 * 2.0) / 9.0;
    assert!((mean - expected).abs() < 1e-9 && (worst - 6.0).abs() < 1e-9, "{mean} {worst}");
}

#[test]
fn a_model_that_predicts_nothing_gets_no_rank_correlation() {
    let samples = experiments(&thesis());
    let blind = judge(&ModelCoefficients::default(), &samples).unwrap();
    assert!((blind.bias + 1.0).abs() < 1e-9);
    assert!(blind.rank_correlation.abs() < 1e-9 && blind.regret > 0.5, "{blind:?}");
    let true_one = judge(&thesis(), &samples).unwrap();
    assert!(
        true_one.p99_of_largest < 1e-3
            && true_one.rank_correlation > 0.999
            && true_one.regret < 1e-3
    );
    assert!(judge(&thesis(), &[]).is_none());
}

#[test]
fn intervals_hold_what_the_samples_were_made_by() {
    let mut samples = experiments(&thesis());
    for (at, sample) in samples.iter_mut().enumerate() {
        sample.measured =
            Price((sample.measured.0 as f64 * (0.9 + 0.02 * (at * 7 % 11) as f64)) as u64);
    }
    let found = intervals(&samples).unwrap();
    let true_ones = [695.0, 303.0, 39.0, 101.0, 29.0, 0.0, 24.0];
    for (interval, value) in found.iter().zip(true_ones) {
        assert!(
            interval.low <= 1.03 * value && interval.high >= 0.97 * value,
            "{interval:?} {value}"
        );
    }
    assert!(found[3].high > found[3].low);
}

#[test]
fn prices_that_hold_are_left_alone() {
    let mut drift = DriftDetector::new(thesis(), DriftSettings::default());
    for (at, mut sample) in experiments(&thesis()).into_iter().cycle().take(500).enumerate() {
        // 8% up and down, and one in fifty interrupted.
        let factor = if at % 50 == 0 { 3.0 } else { 1.0 + 0.08 * f64::from(at as u32 % 3) - 0.08 };
        sample.measured = Price((sample.measured.0 as f64 * factor) as u64);
        assert_eq!(drift.observe(sample), DriftState::Steady, "after {at}");
    }
}

#[test]
fn a_machine_that_became_slower_is_noticed_and_fitted_again() {
    let slower = thesis().scaled(1.5);
    let mut drift = DriftDetector::new(thesis(), DriftSettings::default());
    let mut when = None;
    // Everyday operations: cache alone.
    for (at, share) in (0..40_u64).cycle().take(60).enumerate() {
        let state = drift.observe(sample(
            &slower,
            ThesisExperiment::Cache,
            operations(4096, 100 * share, 0, 0, 0),
        ));
        if let (DriftState::Refit { factor }, None) = (state, when) {
            when = Some(at);
            assert_near(factor, 1.5, 0.05, "factor");
        }
    }
    assert_eq!(when, Some(19), "as soon as there are enough");
    let fitted = drift.refit().unwrap();
    assert_near(fitted.exact.drop_page, 1.5 * 39.0, 0.05, "drop_page");
    // Not seen, but the machine is slower at everything.
    assert_near(fitted.exact.migrate_mapping, 1.5 * 29.0, 0.1, "migrate_mapping");
    assert_near(fitted.exact.migrate_page, 1.5 * 101.0, 0.1, "migrate_page");
    drift.replace(fitted.rounded);
    assert_eq!(drift.state(), DriftState::Steady);
}

#[test]
fn operations_from_before_prices_drifted_are_not_fitted() {
    let slower = thesis().scaled(1.5);
    let mut drift = DriftDetector::new(thesis(), DriftSettings::default());
    let all = experiments(&thesis());
    for sample in all.iter().cycle().take(400) {
        assert_eq!(drift.observe(sample.clone()), DriftState::Steady);
    }
    let mut when = None;
    for (at, sample) in experiments(&slower).into_iter().cycle().take(60).enumerate() {
        let state = drift.observe(sample);
        match state {
            DriftState::Waiting { factor } => assert_near(factor, 1.5, 0.05, "factor"),
            DriftState::Refit { .. } if when.is_none() => when = Some(at),
            _ => {}
        }
    }
    // A few operations show it, 20 of the new kind are fitted.
    assert_eq!(when, Some(19));
    assert_eq!(drift.deviating().len(), 60);
    assert_near(drift.factor(), 1.5, 0.05, "factor");
    let fitted = drift.refit().unwrap();
    let errors =
        |model: &ModelCoefficients| judge(model, &experiments(&slower)).unwrap().p99_of_largest;
    assert!(
        errors(&fitted.rounded) < 0.05 && errors(&thesis()) > 0.3,
        "{}",
        errors(&fitted.rounded)
    );
}

#[test]
fn prices_that_hold_again_are_steady_before_long() {
    let mut drift = DriftDetector::new(thesis(), DriftSettings::default());
    let all = |model: &ModelCoefficients| experiments(model).into_iter().cycle();
    for sample in all(&thesis().scaled(2.0)).take(300) {
        drift.observe(sample);
    }
    assert!(matches!(drift.state(), DriftState::Refit { .. }));
    let steady =
        all(&thesis()).take(60).position(|sample| drift.observe(sample) == DriftState::Steady);
    assert!(steady.is_some_and(|after| after < 40), "{steady:?}");
}

#[test]
fn an_operation_that_took_for_ever_moves_neither_the_factor_nor_a_refit() {
    let slower = thesis().scaled(1.5);
    let mut drift = DriftDetector::new(thesis(), DriftSettings::default());
    for (at, mut sample) in experiments(&slower).into_iter().take(100).enumerate() {
        if at % 20 == 7 {
            sample.measured = Price(u64::MAX);
        }
        drift.observe(sample);
    }
    assert_near(drift.factor(), 1.5, 0.05, "factor");
    let fitted = drift.refit().unwrap();
    assert_near(fitted.exact.drop_page, 1.5 * 39.0, 0.2, "drop_page");
    assert!(fitted.rounded.parameters().is_some());
}

#[test]
fn what_is_remembered_goes_on_as_if_nothing_had_happened() {
    let all: Vec<CalibrationSample> =
        experiments(&thesis().scaled(1.3)).into_iter().take(40).collect();
    let mut whole = DriftDetector::new(thesis(), DriftSettings::default());
    let mut first = DriftDetector::new(thesis(), DriftSettings::default());
    for (at, sample) in all.iter().enumerate() {
        whole.observe(sample.clone());
        if at == 11 {
            let text = serde_json::to_string(&first.memory()).unwrap();
            first = DriftDetector::from_memory(
                thesis(),
                DriftSettings::default(),
                serde_json::from_str(&text).unwrap(),
            );
        }
        first.observe(sample.clone());
    }
    assert!(matches!(whole.state(), DriftState::Refit { .. }));
    assert_eq!(first.state(), whole.state());
    assert_eq!(first.memory(), whole.memory());
    let few = DriftDetector::from_memory(
        thesis(),
        DriftSettings { max_operations: 5, ..DriftSettings::default() },
        whole.memory(),
    );
    assert_eq!(few.operations(), 5);
}

#[test]
fn everyday_operations_are_judged_by_those_that_were_not_fitted() {
    let of = |model: &ModelCoefficients| SampleSet {
        kernel_release: "6.12".to_owned(),
        page_bytes: Bytes(4096),
        slice_bytes: Bytes(16 << 20),
        parameters: thesis().parameters().unwrap(),
        noise: 0.0,
        changed: 0,
        samples: experiments(model)
            .into_iter()
            .map(|sample| CalibrationSample { origin: SampleOrigin::Everyday, ..sample })
            .collect(),
    };
    let report = everyday(&of(&thesis().scaled(1.5))).unwrap();
    let judged = |found: &JudgedModel| found.held_out.unwrap();
    assert!(
        judged(report.fitted_model()).p99_of_largest < 0.05
            && judged(report.installed_model()).p99_of_largest > 0.3
    );
    assert_eq!(judged(report.fitted_model()).n, experiments(&thesis()).len() / 2);
    assert!(everyday(&SampleSet { samples: Vec::new(), ..of(&thesis()) }).is_err());
    assert_eq!(check_refit(&report), Ok(()));
    let mut uneven = of(&thesis().scaled(3.0));
    for (at, sample) in uneven.samples.iter_mut().enumerate() {
        sample.measured = Price(sample.measured.0 * [1, 9, 2, 30][at / 2 % 4]);
    }
    let refused = check_refit(&everyday(&uneven).unwrap());
    assert!(
        matches!(
            refused,
            Err(CalibrationRefusal::Uneven { middle_error, .. }) if middle_error > 0.25
        ),
        "{refused:?}"
    );
    let few = &of(&thesis()).samples[..19];
    assert_eq!(
        check_everyday(few),
        Err(CalibrationRefusal::TooFewOperations { found: 19, required: 20 })
    );
    assert_eq!(check_everyday(&of(&thesis()).samples), Ok(()));
}

#[test]
fn a_refit_without_work_is_refused() {
    assert!(refit(&[], &thesis()).is_err());
    assert!(fit(&[]).is_err());
}

#[test]
fn too_few_samples_are_refused_by_what_is_missing() {
    let all = experiments(&thesis());
    assert_eq!(check_samples(&all), Ok(()));
    let without = |unwanted: fn(&CalibrationSample) -> bool| -> Vec<CalibrationSample> {
        all.iter().filter(|sample| !unwanted(sample)).cloned().collect()
    };
    for (samples, word) in [
        (all[..20].to_vec(), "in all"),
        (without(|s| s.origin == SampleOrigin::Artificial(ThesisExperiment::Empty)), "empty"),
        (without(|s| s.operations.dropped.0 > 0), "drop"),
        (
            without(|s| s.operations.moved.0 > 0 && s.operations.mappings == s.operations.moved.0),
            "mapped once",
        ),
        (without(|s| s.operations.mappings > s.operations.moved.0), "more than once"),
    ] {
        let refusal = check_samples(&samples).unwrap_err();
        assert!(matches!(refusal, CalibrationRefusal::TooFew { .. }));
        assert!(refusal.to_string().contains(word), "{refusal}");
    }
}

#[test]
fn a_busy_machine_is_refused_with_the_reason() {
    assert_eq!(check_conditions(MachineConditions { load: 0.9, cpus: 2 }), Ok(()));
    let refusal =
        check_conditions(MachineConditions { load: 3.25, cpus: 2 }).unwrap_err().to_string();
    assert!(refusal.contains("3.2 threads") && refusal.contains("2 CPUs"), "{refusal}");
    assert_eq!(check_conditions(MachineConditions { load: 0.3, cpus: 1 }), Ok(()));

    assert!(check_steady(&[100.0, 101.0, 99.0, 100.0, 400.0]).unwrap() < 0.02);
    let refusal = check_steady(&[50.0, 100.0, 150.0, 200.0, 300.0, 80.0]).unwrap_err().to_string();
    assert!(refusal.contains("not steady") && refusal.contains("25 %"), "{refusal}");
    let refusal = check_steady(&[]).unwrap_err().to_string();
    assert!(refusal.contains("no empty slice") && !refusal.contains('%'), "{refusal}");
}
