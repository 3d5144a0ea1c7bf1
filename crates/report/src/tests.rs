//! Whole figures and pages: what they show, what they lack, and what they never do.

use ramslice_types::{Bytes, Composition, Kind, Pages};

use crate::*;

fn moment(at: u32) -> Moment {
    let pages = Composition {
        movable: Pages(2048),
        freeable: Pages(1024 * u64::from(at % 3)),
        offline: Pages(8192 * u64::from(at)),
        free: Pages(8192 * u64::from(9 - at)),
        ..Composition::default()
    };
    let kind = |slice: u32| if slice < at { Kind::Offline } else { Kind::Movable };
    Moment {
        seconds: f64::from(at),
        pages,
        slice_bytes: Bytes(32 << 20),
        holding_slices: u64::from(10 - at),
        slices: (0..10).map(|slice| (slice, kind(slice))).collect(),
    }
}

fn recorded(name: &str) -> Recorded {
    Recorded {
        name: name.to_owned(),
        emulated: true,
        slice_bytes: Bytes(32 << 20),
        page_bytes: Bytes(4096),
        moments: (0..10).map(moment).collect(),
        censuses: Vec::new(),
        compactions: vec![(2.0, 4.0)],
        begun_seconds: 100.0,
    }
}

fn energy(name: &str, budget: Budget, net: (f64, f64)) -> Energy {
    let range = |low, high| Range { low, high };
    Energy {
        name: name.to_owned(),
        budget,
        saved: range(5.0, 6.0),
        attainable: Some(range(8.0, 8.0)),
        invested: range(1.0, 2.0),
        net: range(net.0, net.1),
        verdict: match net {
            (low, _) if low > 0.0 => Verdict::Gain,
            (_, high) if high < 0.0 => Verdict::Loss,
            _ => Verdict::Undecided,
        },
        uncounted: Vec::new(),
        basis: "By thesis-parc.".to_owned(),
    }
}

fn all() -> Runs {
    let priced = |at: u32| Priced {
        label: "a, b".to_owned(),
        held_out: at.is_multiple_of(4),
        frames_pages: 8192,
        drop_pages: 0,
        move_pages: u64::from(at) * 10,
        mappings: u64::from(at) * 10,
        predicted_cycles: 1e6 + f64::from(at) * 9e4,
        measured_cycles: 1e6 + f64::from(at) * 1e5,
    };
    Runs {
        recorded: vec![recorded("one"), recorded("<two> & more")],
        prices: vec![Prices { name: "samples".to_owned(), samples: (0..50).map(priced).collect() }],
        energy: vec![
            energy("paper", Budget::Unlimited, (-3.0, -1.0)),
            energy("nothing", Budget::None, (1.0, 2.0)),
            energy("ours", Budget::Cycles(4e8), (-1.0, 3.0)),
        ],
        latencies: vec![Latencies {
            name: "redis".to_owned(),
            requests: (0..500).map(|at| (100.0 + f64::from(at) / 50.0, 3.0 + f64::from(at % 7))).collect(),
            compactions: vec![(102.0, 104.0)],
        }],
    }
}

fn html(runs: &Runs) -> String {
    let head = Head { title: "A <report>".to_owned(), made_by: "tests".to_owned(), runs: Vec::new() };
    page(&head, &figures(runs))
}

fn figure<'a>(all: &'a [Figure], id: &str) -> &'a Figure {
    all.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn with_nothing_every_figure_says_what_it_lacks_and_how_to_get_it() {
    let all = figures(&Runs::default());
    assert_eq!(all.len(), 9);
    for figure in &all {
        let (what, how) = figure.lacks().unwrap();
        assert!(!what.is_empty() && (how.contains('`') || how.contains(".csv")), "{}", figure.id);
    }
    let html = html(&Runs::default());
    assert!(!html.contains("<svg") && html.contains("<code>ramslice record -o DIR -- COMMAND</code>"));
}

#[test]
fn with_everything_nothing_is_missing() {
    let all = figures(&all());
    let missing: Vec<_> = all.iter().filter(|figure| figure.lacks().is_some()).map(|one| &one.id).collect();
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
        for look in [crate::chart::Look::Wide, crate::chart::Look::Narrow, crate::chart::Look::Picture] {
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
    // Ids are told apart, also of the two drawings of a figure.
    let mut ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
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
    assert!(
        lines[0]
            .starts_with("time_s,slice_bytes,holding_slices,unmovable_bytes,movable_bytes,freeable_bytes")
    );
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
fn an_interval_that_spans_nothing_is_undecided() {
    let all = figures(&all());
    let svg = figure(&all, "net").svg(crate::chart::Look::Wide).unwrap();
    let class = |run: &str| {
        let before = svg.split(&format!("<title>{run}: net")).next().unwrap();
        before.rsplit("class=\"").next().unwrap().split('"').next().unwrap().to_owned()
    };
    assert_eq!([class("paper"), class("nothing"), class("ours")], ["invested", "saved", "undecided"]);
}

#[test]
fn costs_that_nobody_counted_are_named() {
    let mut runs = all();
    runs.energy[1].uncounted = vec!["run time".to_owned()];
    let all = figures(&runs);
    assert!(figure(&all, "energy").caption.contains("missing here: nothing: run time."));
    assert!(figure(&all, "energy").csv().unwrap().contains(",run time\n"));
}

#[test]
fn pictures_have_ink_and_the_kinds_colours() {
    let all = figures(&all());
    let png = Renderer::default().png(figure(&all, "occupation-1")).unwrap().unwrap();
    let picture = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
    assert_eq!(picture.width(), 1840);
    for kind in [Kind::Movable, Kind::Offline] {
        let palette::Rgb(r, g, b) = palette::color(kind);
        let found = picture.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == (r, g, b)).count();
        assert!(found > 5000, "{kind:?}: {found}");
    }
    assert!(Renderer::default().png(&figures(&Runs::default())[0]).unwrap().is_none());
}

#[test]
fn ten_thousand_moments_keep_their_peak_and_the_page_small() {
    let mut runs = all();
    let one = &mut runs.recorded[0];
    one.moments = (0..10_000u32)
        .map(|at| Moment {
            seconds: f64::from(at),
            holding_slices: if at == 7777 { 99 } else { 3 },
            ..moment(at % 10)
        })
        .collect();
    let svg = figures(&runs)[0].svg(crate::chart::Look::Narrow).unwrap();
    assert!(svg.contains("99 slices") && svg.len() < 100_000, "{}", svg.len());
}
