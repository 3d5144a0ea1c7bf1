//! Built-in profiles say what their papers say; wrong files are refused by line.

use ramslice_types::Joules;

use super::*;

fn parc() -> DramProfile {
    builtin("thesis-parc").unwrap().unwrap()
}

/// The template with one line changed.
fn changed(from: &str, to: &str) -> String {
    assert_eq!(TEMPLATE.matches(from).count(), 1, "`{from}` must occur once");
    TEMPLATE.replacen(from, to, 1)
}

fn refusal(text: &str) -> ProfileError {
    DramProfile::parse(text, "my.toml").expect_err("refused")
}

#[test]
fn every_built_in_profile_and_the_template_are_right_and_named_like_their_file() {
    assert_eq!(builtin_names().count(), 9);
    for name in builtin_names() {
        assert_eq!(builtin(name).unwrap().unwrap().name, name);
    }
    let template = DramProfile::parse(TEMPLATE, "template.toml").unwrap();
    assert!(template.machine.is_some());
    assert!(builtin("nothing").is_none());
}

#[test]
fn built_in_profiles_have_the_figures_of_their_tables() {
    let own = |profile: &str, state: &str| {
        let profile = builtin(profile).unwrap().unwrap();
        let state = profile.state(state).unwrap_or_else(|| panic!("{state}"));
        let (saving, floor) = (state.saving.value.unwrap().own, state.floor.value.unwrap().own);
        (saving.low().0, saving.high().0, floor.low().0, floor.high().0)
    };
    let near = |(a, b, c, d): (f64, f64, f64, f64), (e, f, g, h): (f64, f64, f64, f64)| {
        assert!(
            [a - e, b - f, c - g, d - h].iter().all(|difference| difference.abs() < 1e-9),
            "{a} {b} {c} {d}"
        );
    };
    // Saving and floor; Table 2.3 in W/GiB.
    near(own("ddr5-modes", "channel-off"), (0.0828, 0.0828, 0.0, 0.0));
    near(own("ddr5-modes", "self-refresh"), (0.000_53, 0.000_53, 0.082_27, 0.082_27));
    near(own("ddr5-modes", "mpsm"), (0.022_95, 0.022_95, 0.059_85, 0.059_85));
    near(own("ddr5-modes", "mpsm-ddr5"), (0.015_81, 0.015_97, 0.066_83, 0.066_99));
    near(own("ddr5-modes", "power-down"), (0.012_92, 0.0146, 0.0682, 0.069_88));
    near(own("ddr5-modes", "pasr"), (0.000_53, 0.022_95, 0.059_85, 0.059_85));
    near(own("ddr5-modes", "parc"), (0.0, 0.009_19, 0.073_61, 0.073_61));
    near(own("thesis-parc", "parc"), (0.009_19, 0.009_19, 0.073_61, 0.073_61));
    // Shares of Table I; watts of Table 2.2.1; watts of RDRAM.
    near(own("mobile-states", "self-refresh"), (0.56, 0.56, 0.07, 0.07));
    near(own("mobile-states", "deep-power-down"), (0.62, 0.63, 0.0, 0.01));
    near(own("ddr4-states", "power-down"), (0.6, 0.6, 0.9, 0.9));
    near(own("ddr4-states", "self-refresh"), (1.2, 1.2, 0.3, 0.3));
    near(own("rdram", "nap"), (0.27, 0.27, 0.03, 0.03));
    // Worked out from currents of data sheets, and Table 2.3 less its power-down.
    near(own("ddr4-rdimm", "rank-self-refresh"), (0.0, 0.0559, 0.0757, 0.0757));
    near(own("ddr5-rdimm", "rank-mpsm"), (0.001_21, 0.015_97, 0.066_83, 0.066_83));
    near(own("lpddr-suspend", "pasr"), (0.0, 0.001_46, 0.0, 0.0));
    near(own("rdram", "powerdown"), (0.297, 0.297, 0.003, 0.003));
    assert_eq!(builtin("ddr5-modes").unwrap().unwrap().states.len(), 7);
}

#[test]
fn powers_of_a_module_and_shares_become_powers_of_a_gib_only_with_their_scale() {
    let rdram = builtin("rdram").unwrap().unwrap();
    let background = rdram.background.value.unwrap().per_gib.unwrap();
    // The report: 2 GB draw about 16 W.
    assert!((background.low().0 * 2.0 - 16.0).abs() < 1e-9);
    for relative in ["mobile-states", "ddr4-states"] {
        let profile = builtin(relative).unwrap().unwrap();
        let state = profile.state(&profile.default_state).unwrap();
        assert_eq!(state.known_saving(), Err(UnknownSaving::Scale), "{relative}");
        assert!(state.share(&profile.background.value.unwrap()).is_some());
    }
    let mobile = builtin_text("mobile-states").unwrap();
    let scaled = mobile.replacen("unknown = true", "value = 100\nunit = \"mW/GiB\"", 1);
    let scaled = DramProfile::parse(&scaled, "x.toml").unwrap();
    let saving = scaled.states[0].saving.value.unwrap().per_gib.unwrap();
    assert!((saving.high().0 - 0.056).abs() < 1e-9);
}

#[test]
fn a_saving_that_is_left_out_is_no_saving_without_a_scale() {
    let unknown = |profile: &DramProfile, state: &str| {
        profile.state(state).unwrap().known_saving().unwrap_err().to_string()
    };
    let rdimm = builtin("ddr4-rdimm").unwrap().unwrap();
    let saving = unknown(&rdimm, "rank-mpsm");
    assert_eq!(saving, "saving of state rank-mpsm is unknown (as the floor)");
    let mut modes = builtin("ddr5-modes").unwrap().unwrap();
    let pasr = modes.states.iter_mut().find(|state| state.name == "pasr").unwrap();
    pasr.all_on.as_mut().unwrap().value = None;
    assert!(unknown(&modes, "pasr").starts_with("all_on of state pasr is unknown ("));
}

#[test]
fn the_break_even_of_the_thesis_comes_out() {
    let profile = parc();
    let machine = profile.machine.as_ref().unwrap();
    let saving = profile.state("parc").unwrap().saving_by_packing().unwrap();
    let spent = Interval::exactly(Joules(0.485));
    let off: Interval<GibSeconds> = spent.per(saving).unwrap();
    assert!((off.low().0 - 52.8).abs() < 0.05, "section 4.3.4: 52.8 GiB s, here {off:?}");
    // 0.485 J at 10 W and 3.8 GHz are 184 million cycles, within a budget of 8 M units of 100.
    let cycles: Interval<Cycles> = spent.per(machine.energy_per_cycle().unwrap()).unwrap();
    assert!((cycles.low().0 / 1e6 - 184.3).abs() < 0.1);
    let again = machine.break_even(cycles, saving).unwrap();
    assert!((again.low().0 - off.low().0).abs() < 1e-9);
}

#[test]
fn partial_self_refresh_earns_nothing_for_sure_and_not_what_the_mode_saves_anyway() {
    let profile = builtin("ddr5-modes").unwrap().unwrap();
    let saving = profile.state("pasr").unwrap().saving_by_packing().unwrap();
    assert!(saving.low().0.abs() < f64::EPSILON && (saving.high().0 - 0.022_42).abs() < 1e-9);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    for (from, to, line_of, words) in [
        ("saving = { low = 5, high = 9", "saving = { low = 9, high = 5", "saving = {", "inverted"),
        ("saving = { low = 5, high = 9", "saving = { low = 5", "saving = {", "low but no high"),
        ("saving = { low = 5, high = 9", "saving = { value = 5, high = 9", "saving = {", "twice"),
        ("saving = { low = 5, high = 9", "saving = { low = -5, high = 9", "saving = {", "negative"),
        ("saving = { low = 5, high = 9", "saving = { low = 5, high = nan", "saving = {", "finite"),
        ("saving = { low = 5, high = 9", "saving = { at_least = 5", "saving = {", "upper end"),
        (
            "saving = { low = 5, high = 9",
            "saving = { low = 5, high = 19",
            "saving = {",
            "more than the background",
        ),
        (
            "saving = { low = 5, high = 9, unit = \"mW/GiB\", ",
            "saving = { low = 5, high = 9, unit = \"ns\", ",
            "saving = {",
            "mW/GiB, W/GiB",
        ),
        (
            "saving = { low = 5, high = 9, unit = \"mW/GiB\", ",
            "saving = { low = 5, high = 9, ",
            "saving = {",
            "no unit",
        ),
        (
            "saving = { low = 5, high = 9, unit = \"mW/GiB\", source = \"placeholder\"",
            "saving = { low = 5, high = 9, unit = \"mW/GiB\"",
            "saving = {",
            "no source",
        ),
        (
            "saving = { low = 5, high = 9, unit = \"mW/GiB\", source = \"placeholder\"",
            "saving = { low = 5, high = 9, unit = \"mW/GiB\", source = \" \"",
            "saving = {",
            "empty",
        ),
        (
            "saving = { low = 5, high = 9, unit",
            "saving = { low = 5, high = 9, uncertainty = 3, unit",
            "saving = {",
            "unknown field `uncertainty`, expected one of",
        ),
        (
            "saving = { low = 5, high = 9, unit",
            "saving = { low = 5, high = 9, unknown = true, unit",
            "saving = {",
            "stands alone",
        ),
        (
            "all_on = { value = 0",
            "all_on = { value = 10",
            "all_on = {",
            "up to 10 mW/GiB with nothing off",
        ),
        (
            "all_on = { value = 0",
            "all_on = { low = 1, high = 9.1",
            "all_on = {",
            "a part of saving",
        ),
        (
            "exit_latency = { value = 100",
            "exit_latency = { value = \"fast\"",
            "exit_latency",
            "invalid type",
        ),
        ("floor = { low = 71, high = 75", "floor = { low = 71, high = 1e999", "floor", ""),
        ("name = \"off\"", "name = \"Off\"", "name = \"Off\"", "a-z"),
        ("default_state = \"off\"", "default_state = \"on\"", "default_state", "there are off"),
        ("is = \"lost\"", "is = \"gone\"", "retention", "`kept` or `lost`"),
        ("schema_version = 1", "schema_version = 2", "schema_version", "know 1"),
        (
            "granularity = { value = 1,",
            "granularity = { low = 1, high = 2,",
            "granularity = {",
            "one size",
        ),
        ("granularity = { value = 1,", "granularity = { value = 0,", "granularity = {", "one size"),
        ("frequency = { value = 3.0", "frequency = { value = 0", "frequency = {", "above"),
        ("notes = [\"what a reader", "noise = [\"what a reader", "noise", "unknown field `noise`"),
        (
            "value = 80\nunit = \"mW/GiB\"",
            "value = 80\nunit = \"%\"",
            "[background]",
            "needs full_power",
        ),
        (
            "value = 80\nunit = \"mW/GiB\"",
            "value = 80\nunit = \"W\"",
            "[background]",
            "needs module_capacity",
        ),
    ] {
        let text = changed(from, to);
        let error = refusal(&text);
        let at = text.lines().position(|line| line.trim_start().starts_with(line_of)).unwrap() + 1;
        assert_eq!(error.line, at, "{to}: {error}");
        assert!(error.message.contains(words), "{to}: {error}");
        assert!(error.to_string().starts_with(&format!("my.toml:{at}: ")), "{error}");
    }
}

#[test]
fn a_missing_field_is_named_with_the_table_that_lacks_it() {
    for (field, table) in [
        ("retention = ", "[[state]]"),
        ("exit_latency = ", "[[state]]"),
        ("floor = ", "[[state]]"),
        ("granularity = ", "[[state]]"),
        ("platform_power = ", "[machine]"),
        ("drop_page = ", "[machine.prices]"),
    ] {
        let kept: Vec<&str> = TEMPLATE.lines().filter(|line| !line.starts_with(field)).collect();
        let error = refusal(&kept.join("\n"));
        let name = field.trim_end_matches(" = ");
        assert!(error.message.contains(&format!("missing field `{name}`")), "{error}");
        let at = kept.iter().position(|line| line.starts_with(table)).unwrap() + 1;
        assert_eq!(error.line, at, "{error}");
    }
}

#[test]
fn two_states_of_one_name_are_refused_where_the_second_is() {
    let state = TEMPLATE.find("[[state]]").unwrap()..TEMPLATE.find("# The machine whose").unwrap();
    let text = format!("{}{}", TEMPLATE, &TEMPLATE[state].replace("[machine", "#"));
    let error = refusal(&text);
    assert!(error.message.contains("two states `off`"), "{error}");
    assert_eq!(
        error.line,
        text.lines().count()
            - TEMPLATE[TEMPLATE.find("[[state]]").unwrap()
                ..TEMPLATE.find("# The machine whose").unwrap()]
                .lines()
                .count()
            + 2
    );
}

#[test]
fn what_may_be_left_out_may_be_left_out() {
    for field in ["saving = ", "all_on = ", "exit_power = ", "standards = ", "notes = "] {
        let kept: Vec<&str> = TEMPLATE.lines().filter(|line| !line.starts_with(field)).collect();
        DramProfile::parse(&kept.join("\n"), "my.toml")
            .unwrap_or_else(|error| panic!("{field}: {error}"));
    }
    let without_machine = &TEMPLATE[..TEMPLATE.find("# The machine whose").unwrap()];
    assert_eq!(DramProfile::parse(without_machine, "my.toml").unwrap().machine, None);
    // Without a saving, it is what lies between background and floor.
    let kept: Vec<&str> = TEMPLATE.lines().filter(|line| !line.starts_with("saving = ")).collect();
    let derived = DramProfile::parse(&kept.join("\n"), "my.toml").unwrap();
    let saving = derived.states[0].saving.value.unwrap().own;
    assert!(derived.states[0].saving_derived);
    assert!((saving.low().0 - 0.005).abs() < 1e-12 && (saving.high().0 - 0.009).abs() < 1e-12);
}
