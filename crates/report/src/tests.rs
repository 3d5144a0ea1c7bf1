//! Whole figures and pages: what they show, what they lack, and what they never do.

use std::rc::Rc;

use ramslice_types::{Bytes, CensusTotals, PageComposition, PageCounts, PageKind, Pages};

use crate::*;

pub(crate) fn moment(at: u32) -> MachineMoment {
    let pages = PageComposition {
        movable: Pages(2048),
        freeable: Pages(1024 * u64::from(at % 3)),
        offline: Pages(8192 * u64::from(at)),
        free: Pages(8192 * u64::from(9 - at)),
        ..PageComposition::default()
    };
    MachineMoment {
        seconds: f64::from(at),
        pages,
        slice_bytes: Bytes(32 << 20),
        holding_slices: u64::from(10 - at),
        nearly_free_slices: u64::from(at.min(3)),
        offline_slices: u64::from(at),
    }
}

/// The slices of ten such moments.
fn slice_changes() -> SliceChanges {
    let mut history = crate::slice_history::SliceHistory::default();
    for at in 0..10 {
        let kind = |slice| if slice < at { PageKind::Offline } else { PageKind::Movable };
        history.push((0..10).map(|slice| (slice, kind(slice))).collect());
    }
    history.finish()
}

/// Ten slices of 8192 pages: the kernel in the first and in one more each second, programs in half
/// of the others.
fn counted(at: u32) -> CensusMoment {
    let frames = Pages(8192);
    let pages = |slice: u32| {
        let slab = if slice == 0 { Pages(5000) } else { Pages(u64::from(slice < at) * 40) };
        let off = if slice == 9 && at > 5 { frames } else { Pages::ZERO };
        let anonymous =
            if slice % 2 == 1 { (frames - slab - off).min(Pages(6000)) } else { Pages::ZERO };
        let free = frames - slab - anonymous - off;
        PageCounts {
            free,
            anonymous,
            slab,
            off,
            lru: anonymous,
            staying: slab,
            ..PageCounts::default()
        }
    };
    let slices: Vec<_> = (0..10).map(|slice| (slice, pages(slice))).collect();
    let staying = slices.iter().filter(|(_, pages)| pages.staying > Pages::ZERO).count() as u64;
    CensusMoment {
        seconds: f64::from(at),
        slice_bytes: Bytes(32 << 20),
        totals: CensusTotals {
            offline_ratio: f64::from(at) / 10.0,
            offline_ratio_bound: 0.95,
            slices_staying: staying,
            slices_staying_least: 1,
            slices_unreclaimable: 0,
            slices_unknown: 0,
            staying_pages: slices.iter().map(|(_, pages)| pages.staying).sum(),
            sections: 3,
            sections_removable: 3 - u64::from(at.min(8) / 4) - 1,
        },
        slices,
    }
}

pub(crate) fn attempt(
    seconds: f64,
    slice: u32,
    freed: bool,
    migrated: u64,
    dropped: u64,
) -> EmptyingAttempt {
    EmptyingAttempt { seconds, slice, freed, migrated: Pages(migrated), dropped: Pages(dropped) }
}

fn recorded(name: &str) -> RecordingData {
    RecordingData {
        name: name.to_owned(),
        emulated: true,
        reports_to_host: false,
        slice_bytes: Bytes(32 << 20),
        page_bytes: Bytes(4096),
        moments: (0..10).map(moment).collect(),
        slice_changes: slice_changes(),
        censuses: [0, 2, 3, 6, 9].map(counted).to_vec(),
        compactions: vec![(2.0, 4.0)],
        attempts: vec![
            attempt(2.0, 4, true, 2048, 1024),
            attempt(2.5, 5, false, 500, 0),
            attempt(3.0, 6, true, 0, 0),
            attempt(3.5, 7, true, 4096, 0),
        ],
        begun_seconds: 100.0,
    }
}

/// 4 GiB, of which 1 GiB is page cache, and 0.5 to 1.5 GiB are used besides.
fn statistics(name: &str) -> StatisticsData {
    let moment = |at: u64| MemoryMoment {
        seconds: at as f64,
        total: Bytes(4 << 30),
        free: Bytes((2 << 30) - (1 << 29) + (at * 37 % 11) * (1 << 30) / 10),
        cached: Bytes(1 << 30),
    };
    StatisticsData {
        name: name.to_owned(),
        emulated: false,
        moments: (0..400).map(moment).collect(),
    }
}

fn energy(name: &str, budget: RunBudget, net: (f64, f64)) -> RunEnergy {
    let range = |low, high| ValueRange { low, high };
    RunEnergy {
        sweep: None,
        name: name.to_owned(),
        budget,
        saved: range(5.0, 6.0),
        attainable: Some(range(8.0, 8.0)),
        invested: range(1.0, 2.0),
        net: range(net.0, net.1),
        verdict: match net {
            (low, _) if low > 0.0 => GainVerdict::Gain,
            (_, high) if high < 0.0 => GainVerdict::Loss,
            _ => GainVerdict::Undecided,
        },
        uncounted: Vec::new(),
        basis: "By thesis-parc.".to_owned(),
    }
}

pub(crate) fn all() -> ReportData {
    let priced = |at: u32| PricedSlice {
        label: "a, b".to_owned(),
        source: if at.is_multiple_of(4) {
            ContentsSource::Programs
        } else {
            ContentsSource::Filled
        },
        frames_pages: 8192,
        drop_pages: 0,
        move_pages: u64::from(at) * 10,
        mappings: u64::from(at) * 10,
        predicted_cycles: 1e6 + f64::from(at) * 9e4,
        fitted_cycles: Some(1e6 + f64::from(at) * 1.01e5),
        measured_cycles: 1e6 + f64::from(at) * 1e5,
    };
    ReportData {
        recorded: ["one", "<two> & more"].map(|name| Rc::new(recorded(name))).into(),
        statistics: vec![statistics("one"), statistics("<two> & more")],
        prices: vec![PriceSamples {
            name: "samples".to_owned(),
            in_force: "model B".to_owned(),
            unfitted: None,
            samples: (0..50).map(priced).collect(),
        }],
        energy: vec![
            energy("paper", RunBudget::Unlimited, (-3.0, -1.0)),
            energy("nothing", RunBudget::None, (1.0, 2.0)),
            energy("ours", RunBudget::Cycles(4e8), (-1.0, 3.0)),
        ],
        latencies: vec![LatencySamples {
            name: "redis".to_owned(),
            requests: (0..500)
                .map(|at| (100.0 + f64::from(at) / 50.0, 3.0 + f64::from(at % 7)))
                .collect(),
            compactions: vec![(102.0, 104.0)],
        }],
        sizes: vec![size_data::tests::study("sort"), size_data::tests::study("<two> & more")],
        rest: vec![rest_data::tests::rest("<two> & more")],
        ..ReportData::default()
    }
}

fn html(runs: &ReportData) -> String {
    let head = PageHeader {
        title: "A <report>".to_owned(),
        made_by: "tests".to_owned(),
        runs: Vec::new(),
    };
    let mut html = Vec::new();
    page(&head, &figures(runs), &mut html).unwrap();
    String::from_utf8(html).unwrap()
}

pub(crate) fn figure<'a>(all: &'a [ReportFigure], id: &str) -> &'a ReportFigure {
    all.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn with_nothing_every_figure_says_what_it_lacks_and_how_to_get_it() {
    let all = figures(&ReportData::default());
    assert_eq!(all.len(), 9);
    for figure in &all {
        let (what, how) = figure.lacks().unwrap();
        assert!(!what.is_empty() && (how.contains('`') || how.contains(".csv")), "{}", figure.id);
    }
    let html = html(&ReportData::default());
    assert!(
        !html.contains("<svg")
            && html.contains("<code>ramslice-lab record -o DIR -- COMMAND</code>")
    );
}

#[test]
fn with_everything_nothing_is_missing() {
    let all = figures(&all());
    let missing: Vec<_> =
        all.iter().filter(|figure| figure.lacks().is_some()).map(|one| &one.id).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let ids: Vec<_> = all.iter().map(|figure| figure.id.as_str()).collect();
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
}

#[test]
fn the_page_is_well_formed_and_asks_for_nothing() {
    let html = html(&all());
    for figure in figures(&all()) {
        for look in [
            crate::chart::Medium::Wide,
            crate::chart::Medium::Narrow,
            crate::chart::Medium::Picture,
        ] {
            let svg = figure.svg(look).unwrap();
            resvg::usvg::roxmltree::Document::parse(&svg)
                .unwrap_or_else(|error| panic!("{}: {error}", figure.id));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", figure.id);
        }
    }
    let addresses = html.replace("http://www.w3.org/2000/svg", "");
    for sign in ["http:", "https:", "url(", "@import", "src=\"", "<img", "<two>"] {
        assert!(!addresses.contains(sign), "{sign}");
    }
    assert!(html.contains("&lt;two&gt; &amp; more") && html.contains("<h1>A &lt;report&gt;</h1>"));
    // Ids are unique, also in the two drawings of a figure.
    let mut ids: Vec<&str> =
        html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn data_is_what_was_given() {
    let all = figures(&all());
    let csv = figure(&all, "utilisation-1").csv().unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 11);
    assert!(lines[0].starts_with(
        "time_s,slice_bytes,holding_slices,unmovable_bytes,movable_bytes,freeable_bytes"
    ));
    assert_eq!(
        lines[2].split(',').take(6).collect::<Vec<_>>(),
        ["1.000", "33554432", "9", "0", "8388608", "4194304"]
    );
    // A row for each change of a slice: ten at first, and one a second.
    assert_eq!(figure(&all, "slices-1").csv().unwrap().lines().count(), 1 + 10 + 9);
    assert!(figure(&all, "prices").csv().unwrap().contains("\"a, b\",true,"));
    assert!(figure(&all, "energy").csv().unwrap().contains("\nours,400000000,5,6,8,8,1,2,-1,3,\n"));
    assert!(figure(&all, "latency").csv().unwrap().contains("\n2.500000,9,true\n"));
}

#[test]
fn a_recording_without_a_census_has_the_figures_that_it_had_and_no_empty_boxes() {
    let mut runs = ReportData { sizes: Vec::new(), ..all() };
    let ids =
        |runs: &ReportData| figures(runs).into_iter().map(|figure| figure.id).collect::<Vec<_>>();
    let with = ids(&runs);
    Rc::make_mut(&mut runs.recorded[1]).censuses.clear();
    let one = ids(&runs);
    Rc::make_mut(&mut runs.recorded[0]).censuses.clear();
    let without = ids(&runs);
    assert!(!html(&runs).contains("class=\"missing\""));
    let census = ["bitmaps", "fullness", "footprint", "kept-on", "census-shares"];
    let of = |run: &str| census.map(|id| format!("{id}-{run}"));
    let less = |ids: &[String], gone: &[String]| -> Vec<String> {
        ids.iter().filter(|id| !gone.contains(id)).cloned().collect()
    };
    assert_eq!(one, less(&with, &of("2")));
    assert_eq!(without, less(&one, &of("1")));
    assert_eq!((with.len(), without.len()), (without.len() + 10, 25));
}

#[test]
fn what_a_guest_reported_is_drawn_only_of_guests_that_do() {
    let mut runs = all();
    let ids = |runs: &ReportData| {
        let all = figures(runs).into_iter().map(|figure| figure.id);
        all.filter(|id| id.starts_with("giveback")).collect::<Vec<_>>()
    };
    assert!(ids(&runs).is_empty());
    Rc::make_mut(&mut runs.recorded[1]).reports_to_host = true;
    assert_eq!(ids(&runs), ["giveback-2"]);
    let all = figures(&runs);
    let csv = figure(&all, "giveback-2").csv().unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "time_s,used_bytes,used_with_cache_bytes,on_bytes,reported_bytes");
    // 2048 pages in use, 1024 of cache, 8 of the 9 free slices on, one reported
    let on = (2048 + 1024 + 8 * 8192) * 4096;
    assert_eq!(lines[2], format!("1.000,8388608,12582912,{on},33554432"));
    assert_eq!(lines.len(), 11);
    let svg = figure(&all, "giveback-2").svg(crate::chart::Medium::Wide).unwrap();
    for class in ["k-offline", "holding", "k-freeable", "k-movable"] {
        assert!(svg.contains(&format!("<path class=\"{class}\"")), "{class}");
    }
    // 0 to 8 slices of 32 MiB for a second each, and 8 MiB in use for nine
    assert!(svg.contains("0.00 used") && svg.contains("0.02 reported"), "{svg}");
}

#[test]
fn a_census_is_drawn_as_it_was_counted() {
    let all = figures(&all());
    let lines =
        |id: &str| figure(&all, id).csv().unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines("kept-on-1")[1], "0.000,33554432,6,35000,1,1,0,5000");
    assert_eq!(lines("kept-on-1")[5].split(',').nth(4), Some("9"));
    assert_eq!(lines("census-shares-1")[2], "2.000,0.200000,0.950000,3,2");
    // Ten slices at first; at second 2 one more has kernel pages, at 6 one is off.
    assert_eq!(lines("bitmaps-1").iter().filter(|line| line.starts_with("0.000,")).count(), 10);
    assert_eq!(lines("bitmaps-1").iter().filter(|line| line.starts_with("2.000,")).count(), 1);
    assert!(
        lines("footprint-1").contains(&"2.000,1,40,up to 1%".to_owned()),
        "{:?}",
        lines("footprint-1")
    );
    assert!(lines("fullness-1").contains(&"6.000,9,0,off".to_owned()), "{:?}", lines("fullness-1"));
    for id in ["bitmaps-1", "fullness-1", "footprint-1", "kept-on-1", "census-shares-1"] {
        for look in [crate::chart::Medium::Wide, crate::chart::Medium::Narrow] {
            let svg = figure(&all, id).svg(look).unwrap();
            // What is seen is also said, of the first moment and the last.
            let about = svg.split("-desc\">").nth(2).unwrap();
            assert!(about.contains("0.0 s") && about.contains("9.0 s"), "{about}");
        }
    }
    let svg = figure(&all, "footprint-1").svg(crate::chart::Medium::Wide).unwrap();
    for class in ["stays-100", "stays-1", "moves", "k-free", "p-off", "least", "least-halo"] {
        assert!(svg.contains(&format!("<path class=\"{class}\"")), "{class}");
    }
}

#[test]
fn one_census_is_enough_and_thousands_leave_the_page_small() {
    let mut runs = all();
    runs.recorded.truncate(1);
    Rc::make_mut(&mut runs.recorded[0]).censuses = vec![counted(4)];
    for id in ["bitmaps", "fullness", "footprint", "kept-on", "census-shares"] {
        let all = figures(&runs);
        for look in [
            crate::chart::Medium::Wide,
            crate::chart::Medium::Narrow,
            crate::chart::Medium::Picture,
        ] {
            let svg = figure(&all, id).svg(look).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{id}");
        }
    }
    Rc::make_mut(&mut runs.recorded[0]).moments = (0..5000u32)
        .map(|at| MachineMoment { seconds: f64::from(at), ..moment(at % 10) })
        .collect();
    Rc::make_mut(&mut runs.recorded[0]).censuses = (0..5000u32)
        .map(|at| CensusMoment {
            seconds: f64::from(at),
            ..counted(if at == 3333 { 9 } else { 1 })
        })
        .collect();
    let all = figures(&runs);
    for id in ["bitmaps", "fullness", "footprint", "kept-on", "census-shares"] {
        let svg = figure(&all, id).svg(crate::chart::Medium::Narrow).unwrap();
        assert!(svg.len() < 100_000, "{id}: {}", svg.len());
    }
    // The moment with most of them is not thinned away.
    let svg = figure(&all, "kept-on").svg(crate::chart::Medium::Narrow).unwrap();
    assert!(svg.contains("9 hold pages that stay"));
}

#[test]
fn what_emptying_took_is_drawn_as_it_was_reported() {
    let all = figures(&all());
    let lines =
        |id: &str| figure(&all, id).csv().unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines("repair-free-1")[3], "2.000,2,2");
    // A failure moves pages, too, but switches nothing off.
    assert_eq!(lines("repair-moved-1")[2], "2.500,10436608,33554432");
    assert_eq!(lines("repair-moved-1")[4], "3.500,27213824,100663296");
    assert_eq!(lines("repair-share-1")[1], "2.000,4,true,2048,1024,0.250000,0.375000");
    assert_eq!(lines("repair-share-1").len(), 5);
    let share = &figure(&all, "repair-share-1").caption;
    assert!(
        share.contains("2 slices were emptied; on average 38% of such a slice had to be moved"),
        "{share}"
    );
    assert!(share.contains("44% was in use") && share.contains("1 more was empty"), "{share}");
    let moved = &figure(&all, "repair-moved-1").caption;
    assert!(moved.contains("26.0 MiB were moved and 96 MiB switched off"), "{moved}");
}

#[test]
fn a_recording_in_which_nothing_was_emptied_has_no_figures_of_that() {
    let mut runs = all();
    Rc::make_mut(&mut runs.recorded[0]).attempts.clear();
    let ids: Vec<String> = figures(&runs).into_iter().map(|figure| figure.id).collect();
    let of = |run: u8| {
        ids.iter()
            .filter(|id| id.starts_with("repair-") && id.ends_with(&format!("-{run}")))
            .count()
    };
    assert_eq!((of(1), of(2)), (0, 3));
    assert_eq!(runs.recorded[0].emptying(), EmptyingTotals::default());
}

#[test]
fn thousands_of_attempts_leave_the_page_small_and_the_sums_as_they_are() {
    let mut runs = all();
    runs.recorded.truncate(1);
    let one = Rc::make_mut(&mut runs.recorded[0]);
    one.attempts = (0..20_000u32)
        .map(|at| attempt(f64::from(at) / 2500.0, at % 10, at % 7 > 0, 100, 10))
        .collect();
    let all = figures(&runs);
    for id in ["repair-free", "repair-moved", "repair-share"] {
        for look in [
            crate::chart::Medium::Wide,
            crate::chart::Medium::Narrow,
            crate::chart::Medium::Picture,
        ] {
            let svg = figure(&all, id).svg(look).unwrap();
            assert!(svg.len() < 150_000 && !svg.contains("NaN"), "{id}: {}", svg.len());
        }
    }
    let last = figure(&all, "repair-moved").csv().unwrap().lines().last().unwrap().to_owned();
    assert_eq!(last.split(',').nth(1), Some("8192000000"));
}

#[test]
fn neighbours_in_a_bitmap_and_levels_of_a_map_differ_in_lightness() {
    let css = style::variables(false) + &style::kinds();
    let lightness = |name: &str| {
        let color = css.split(&format!("--{name}:#")).nth(1).unwrap_or_else(|| panic!("no {name}"));
        let channel = |at: usize| f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap());
        0.30 * channel(0) + 0.59 * channel(2) + 0.11 * channel(4)
    };
    for row in [
        &[
            "p-slab",
            "p-table",
            "p-kernel",
            "p-anonymous",
            "p-shared",
            "p-cache",
            "p-buffer",
            "free",
        ][..],
        &["p-buffer", "offline"],
        &["offline", "full-100", "full-90", "full-50", "full-10", "free"],
        &["offline", "stays-100", "stays-10", "stays-1", "full-10", "free"],
    ] {
        for pair in row.windows(2) {
            let by = (lightness(pair[0]) - lightness(pair[1])).abs();
            assert!(by > 19.0, "{pair:?}: {by}");
        }
    }
}

#[test]
fn an_interval_that_spans_nothing_is_undecided() {
    let all = figures(&all());
    let svg = figure(&all, "net").svg(crate::chart::Medium::Wide).unwrap();
    let class = |run: &str| {
        let before = svg.split(&format!("<title>{run}: net")).next().unwrap();
        before.rsplit("class=\"").next().unwrap().split('"').next().unwrap().to_owned()
    };
    assert_eq!(
        [class("paper"), class("nothing"), class("ours")],
        ["invested", "saved", "undecided"]
    );
}

#[test]
fn each_sweep_has_figures_of_its_own_which_say_what_they_are() {
    let mut runs = all();
    for sweep in ["tpch, fresh, simulated", "tpch, aged, simulated"] {
        for at in 0..8 {
            let budget = RunBudget::Cycles(1_562_500.0 * f64::from(1 << at));
            let one = energy(&budget.to_string(), budget, (-1.0, 1.0));
            let basis = "Simulated, not measured.".to_owned();
            runs.energy.push(RunEnergy { sweep: Some(sweep.to_owned()), basis, ..one });
        }
    }
    let all = figures(&runs);
    let ids: Vec<&str> = all.iter().map(|figure| figure.id.as_str()).collect();
    for base in ["energy", "net"] {
        assert_eq!(figure(&all, base).csv().unwrap().lines().count(), 1 + 3, "{ids:?}");
        for (number, sweep) in [(1, "tpch, fresh, simulated"), (2, "tpch, aged, simulated")] {
            let figure = figure(&all, &format!("{base}-sweep-{number}"));
            assert!(figure.title.ends_with(sweep), "{}", figure.title);
            assert!(figure.caption.contains("Simulated, not measured"), "{}", figure.caption);
            assert_eq!(figure.csv().unwrap().lines().count(), 1 + 8);
        }
    }
    // Marks of a budget each do not touch: where there is little room, they stand in two lines.
    let lines = |look| {
        let svg = figure(&all, "net-sweep-1").svg(look).unwrap();
        let marks = svg.split("<text").filter(|text| text.contains(" M</text>"));
        let place =
            |text: &str| text.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        marks.map(place).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((lines(crate::chart::Medium::Wide), lines(crate::chart::Medium::Narrow)), (1, 2));
}

#[test]
fn prices_are_drawn_by_the_parameters_in_force_and_by_the_fitted_model_each_named() {
    let mut runs = all();
    let all = figures(&runs);
    let page = html(&runs);
    // Of 50 slices that cost 1 to 5.9 million, a price is off by a tenth, or a hundredth, of what
    // is above 1 million.
    for (id, by, error) in [
        ("prices", "the parameters in force (model B)", "99 of 100 at most 8.3"),
        ("prices-fitted", "the model that ramslice-lab calibrate fits", "99 of 100 at most 0.83"),
    ] {
        let from = page.find(&format!("<figure id=\"{id}\">")).unwrap();
        let figure = &page[from..from + page[from..].find("</figure>").unwrap()];
        assert!(figure.contains(by) && figure.contains(error), "{id}: {error}");
        assert!(
            figure.contains("13 slices left by programs")
                && figure.contains("37 slices filled on purpose")
        );
    }
    assert!(figure(&all, "residuals-fitted").csv().unwrap().contains(",1000000,1000000,0\n"));
    runs.prices[0].samples.iter_mut().for_each(|one| one.source = ContentsSource::Everyday);
    let page = html(&runs);
    assert!(page.contains("50 slices of everyday requests") && page.contains("refits to these"));
    assert!(!page.contains("filled on purpose") && !page.contains("left by programs"));
    runs.prices[0].unfitted = Some("too few samples".to_owned());
    runs.prices[0].samples[0].fitted_cycles = None;
    let page = html(&runs);
    assert!(
        !page.contains("prices-fitted") && page.contains("No model was fitted: too few samples.")
    );
}

#[test]
fn uncounted_costs_are_named() {
    let mut runs = all();
    runs.energy[1].uncounted = vec!["run time".to_owned()];
    let all = figures(&runs);
    assert!(figure(&all, "energy").caption.contains("missing here: nothing: run time."));
    assert!(figure(&all, "energy").csv().unwrap().contains(",run time\n"));
}

#[test]
fn pictures_have_ink_and_the_kinds_colours() {
    let all = figures(&all());
    let png = PngRenderer::default().png(figure(&all, "occupation-1")).unwrap().unwrap();
    let picture = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
    assert_eq!(picture.width(), 1840);
    for kind in [PageKind::Movable, PageKind::Offline] {
        let ramslice_palette::RgbColour(r, g, b) = ramslice_palette::color(kind);
        let found =
            picture.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == (r, g, b)).count();
        assert!(found > 5000, "{kind:?}: {found}");
    }
    assert!(PngRenderer::default().png(&figures(&ReportData::default())[0]).unwrap().is_none());
}

#[test]
fn ten_thousand_moments_keep_their_peak_and_the_page_small() {
    let mut runs = all();
    let one = Rc::make_mut(&mut runs.recorded[0]);
    one.moments = (0..10_000u32)
        .map(|at| MachineMoment {
            seconds: f64::from(at),
            holding_slices: if at == 7777 { 99 } else { 3 },
            ..moment(at % 10)
        })
        .collect();
    let svg = figures(&runs)[0].svg(crate::chart::Medium::Narrow).unwrap();
    assert!(svg.contains("99 slices") && svg.len() < 100_000, "{}", svg.len());
}
