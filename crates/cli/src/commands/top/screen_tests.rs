use super::*;
use crate::commands::top::governor::{self, Daemon, Status};
use crate::commands::top::joules::Joules;
use crate::commands::top::model::Top;
use crate::commands::top::{Args, Sort};
use crate::render::Depth;
use clap::Parser;
use ramslice_energy::Clock;
use ramslice_kernel::ReplayBackend;
use ramslice_types::{Backend, Op, Request, SliceId, Work};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::{Path, PathBuf};

/// A saved machine, with counters as a kernel has them.
fn backend() -> ReplayBackend {
    let file = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/guest-8g.json");
    let machine = ReplayBackend::open(&file).unwrap().machine().unwrap();
    ReplayBackend::with_work(machine, Some(Work::default()))
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(words: &[&str]) -> Args {
    Line::parse_from(["top"].iter().chain(words)).args
}

fn top<'a>(backend: &'a ReplayBackend, words: &[&str]) -> Top<'a> {
    let args = args(&[&["--status-file", "/nonexistent/status.json"], words].concat());
    let joules = args.profile.as_ref().map(|name| Joules::with_clock(&args, name, Clock::Real).unwrap());
    Top::new(backend, &args, false, Screen::plain(), joules).unwrap()
}

fn shown(top: &Top<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(top, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn key(top: &mut Top<'_>, code: KeyCode) -> Next {
    press(top, KeyEvent::new(code, KeyModifiers::NONE))
}

fn running() -> Daemon {
    let mut status: Status = serde_json::from_str(governor::tests::TEXT).unwrap();
    // Not old, whenever this runs.
    status.written_unix_seconds = f64::MAX;
    Daemon::Running(Box::new(status))
}

/// Compares with `tests/expects/NAME.txt`, or writes it, as the tests of the program do.
fn expect(name: &str, text: &str) {
    let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("tests/expects")
        .join(format!("{name}.txt"));
    if std::env::var_os("RAMSLICE_UPDATE_EXPECTS").is_some() {
        return std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} differs:\n{text}\nIf that is right: RAMSLICE_UPDATE_EXPECTS=1 cargo test -p ramslice-cli",
        path.display()
    );
}

#[test]
fn the_screen_of_an_old_terminal_holds_everything_that_matters() {
    let backend = backend();
    let mut top = top(&backend, &["--profile", "thesis-parc"]);
    top.daemon = running();
    top.step(13, true);
    expect("top-80x24", &shown(&top, 80, 24));
    expect("top-120x40", &shown(&top, 120, 40));
}

#[test]
fn what_matters_most_stays_when_room_gets_short() {
    let backend = backend();
    let mut top = top(&backend, &["--profile", "thesis-parc"]);
    top.daemon = running();
    for (width, height) in [(300, 100), (80, 24), (80, 12), (60, 10), (40, 8), (20, 5), (7, 3), (1, 1)] {
        let text = shown(&top, width, height);
        if height >= 5 && width >= 20 {
            assert!(text.contains("7.9") && text.contains("q quit"), "{width}x{height}\n{text}");
        }
        if height >= 12 {
            assert!(text.contains("per second") && text.contains("governor"), "{width}x{height}\n{text}");
            assert!(text.contains('@'), "the map is there, with its mark:\n{text}");
        }
    }
}

#[test]
fn rates_come_from_what_was_done_and_when() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    assert!(shown(&top, 100, 40).contains("per second          -"), "nothing is known after one look");
    let done = backend.request(&Request { max_slices: Some(2), ..Request::new(Op::Compact) }).unwrap();
    assert_eq!(done.slices_done, 2);
    // In a saved machine no time passes by itself.
    top.look.machine.snapshot.time -= Duration::from_secs(4);
    top.refresh();
    let flow = top.last.unwrap();
    assert_eq!((flow.slices_off, flow.time), (2, Duration::from_secs(4)));
    assert_eq!(flow.work.unwrap().migrated, done.migrated);
    let text = shown(&top, 100, 40);
    assert!(text.contains("per second        0.5") && text.contains("in 4 s              2"), "{text}");
}

#[test]
fn a_look_that_is_no_news_leaves_the_rates_as_they_were_and_counts_nothing_twice() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    top.look.machine.snapshot.time -= Duration::from_secs(4);
    top.refresh();
    let (before, total) = (shown(&top, 100, 40), top.total);
    assert!(before.contains("in 4 s"), "{before}");
    top.refresh();
    assert_eq!((shown(&top, 100, 40), top.total, top.last), (before, total, None));
}

#[test]
fn keys_select_sort_pause_and_quit() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    assert_eq!(top.selected, SliceId(0));
    key(&mut top, KeyCode::Down);
    key(&mut top, KeyCode::Right);
    assert_eq!(top.selected, SliceId(2));
    key(&mut top, KeyCode::Home);
    key(&mut top, KeyCode::Up);
    assert_eq!(top.selected, SliceId(0), "the first is the first");
    key(&mut top, KeyCode::End);
    let last = top.machine().snapshot.slices.last().unwrap().id;
    assert_eq!(top.selected, last);
    key(&mut top, KeyCode::PageDown);
    assert_eq!(top.selected, last);

    for sort in [Sort::Price, Sort::Used, Sort::State, Sort::Address] {
        key(&mut top, KeyCode::Char('s'));
        assert_eq!(top.sort, sort);
        key(&mut top, KeyCode::Home);
        assert_eq!(top.selected, top.sorted()[0].id);
    }
    key(&mut top, KeyCode::Char('p'));
    assert!(top.paused && shown(&top, 100, 24).contains("paused"));
    let before = top.interval;
    key(&mut top, KeyCode::Char('+'));
    assert_eq!(top.interval, before * 2);
    for _ in 0..20 {
        key(&mut top, KeyCode::Char('-'));
    }
    assert_eq!(top.interval, Duration::from_millis(100));

    key(&mut top, KeyCode::Char('?'));
    assert!(shown(&top, 80, 24).contains("Ctrl-C    quit"));
    assert_eq!(key(&mut top, KeyCode::Esc), Next::Draw, "Esc closes the help first");
    assert_eq!(key(&mut top, KeyCode::Esc), Next::Quit);
    assert_eq!(key(&mut top, KeyCode::Char('q')), Next::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut top, ctrl_c), Next::Quit);
}

#[test]
fn the_price_order_is_that_of_compact_and_what_cannot_be_emptied_comes_last() {
    let backend = backend();
    let top = top(&backend, &["--sort", "price"]);
    let sorted = top.sorted();
    let prices: Vec<_> = sorted.iter().map_while(|slice| slice.finite_price()).collect();
    assert!(prices.len() > 2 && prices.is_sorted(), "{prices:?}");
}

#[test]
fn a_slice_is_explained_by_a_sentence_and_its_pages_on_request() {
    let file =
        PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/guest-pages.json");
    let backend = ReplayBackend::open(&file).unwrap();
    let mut top = top(&backend, &[]);
    top.selected = SliceId(2);
    assert!(top.words().contains("Enter tells"), "{}", top.words());
    key(&mut top, KeyCode::Enter);
    assert!(top.words().contains("slab objects have to be freed"), "{}", top.words());
    key(&mut top, KeyCode::Down);
    assert!(!top.words().contains("slab objects have to be freed"), "it was of another slice");
    top.selected = SliceId(0);
    key(&mut top, KeyCode::Enter);
    assert!(top.words().contains("does not tell the pages of slice 0"), "{}", top.words());
}

#[test]
fn without_a_daemon_or_counters_it_says_so() {
    let file = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/guest-8g.json");
    let backend = ReplayBackend::open(&file).unwrap();
    let top = top(&backend, &[]);
    let text = shown(&top, 100, 40);
    assert!(text.contains("no daemon runs"), "{text}");
    assert!(text.contains("does not tell what was done"), "{text}");
}

#[test]
fn a_kernel_without_ramslice_is_named_as_one() {
    let backend = backend();
    let mut machine = backend.machine().unwrap();
    machine.info.abi_version = 0;
    let backend = ReplayBackend::new(machine);
    let top = top(&backend, &[]);
    let text = shown(&top, 80, 24);
    assert!(
        text.contains("This kernel is without ramslice") && text.contains("`ramslice guard` wake any."),
        "{text}"
    );
    assert!(!shown(&top, 40, 10).contains("This kernel"), "sums matter more where there is little room");
}

#[test]
fn without_colours_there_are_none() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    let colours = |top: &Top<'_>| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(top, frame)).unwrap();
        let reset = ratatui::style::Color::Reset;
        terminal.backend().buffer().content.iter().filter(|cell| cell.fg != reset || cell.bg != reset).count()
    };
    assert_eq!(colours(&top), 0);
    top.screen = Screen { depth: Depth::Ansi256, unicode: true, ..Screen::plain() };
    assert!(colours(&top) > 100);
}
