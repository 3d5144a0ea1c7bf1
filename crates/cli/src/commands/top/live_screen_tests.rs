use super::*;
use crate::commands::top::background_backend::{BackgroundBackend, test_file};
use crate::commands::top::daemon_status::{self, DaemonStatus, DaemonStatusFile};
use crate::commands::top::energy_sums::EnergySums;
use crate::commands::top::observer_thread::MachineObservation;
use crate::commands::top::options::{MachineSource, SortOrder, TopArgs};
use crate::render::ColorDepth;
use clap::Parser;
use ramslice_backend::ReplayBackend;
use ramslice_energy::SampleClock;
use ramslice_types::{
    Backend, MachineState, NodeId, Reason, Request, RequestOp, SliceId, WorkCounters,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::Path;

/// A saved machine, with counters as a kernel has them.
fn backend() -> ReplayBackend {
    let machine = ReplayBackend::open(&test_file("guest-8g.json")).unwrap().machine().unwrap();
    ReplayBackend::with_work(machine, Some(WorkCounters::default()))
}

#[derive(Parser)]
struct TopLine {
    #[command(flatten)]
    args: TopArgs,
}

fn args(words: &[&str]) -> TopArgs {
    TopLine::parse_from(["top"].iter().chain(words)).args
}

fn top(backend: &dyn Backend, words: &[&str]) -> TopModel {
    let mut args = args(words);
    if args.status_file == Path::new(daemon_status::STATUS) {
        args.status_file = "/nonexistent/status.json".into();
    }
    let joules = EnergySums::new(&args, |_| Ok(SampleClock::Real)).unwrap();
    let seen = MachineObservation::read(backend).unwrap();
    TopModel::new(seen, &args, MachineSource::Running, OutputStyle::plain(), joules)
}

fn shown(top: &TopModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(top, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn key(top: &mut TopModel, code: KeyCode) -> KeyAction {
    handle_key(top, KeyEvent::new(code, KeyModifiers::NONE))
}

fn running() -> DaemonStatus {
    let mut status: DaemonStatusFile = serde_json::from_str(daemon_status::tests::TEXT).unwrap();
    // Not old, whenever this runs.
    status.written_unix_seconds = f64::MAX;
    DaemonStatus::Running(Box::new(status))
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
        "{} differs:\n{text}\nIf that is right: RAMSLICE_UPDATE_EXPECTS=1 cargo test -p \
         ramslice-cli",
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
    for (width, height) in
        [(300, 100), (80, 24), (80, 12), (60, 10), (40, 8), (20, 5), (7, 3), (1, 1)]
    {
        let text = shown(&top, width, height);
        if height >= 5 && width >= 20 {
            assert!(text.contains("7.9") && text.contains("q quit"), "{width}x{height}\n{text}");
        }
        if height >= 12 {
            assert!(
                text.contains("per second") && text.contains("governor"),
                "{width}x{height}\n{text}"
            );
            assert!(text.contains('@'), "the map is there, with its mark:\n{text}");
        }
    }
}

#[test]
fn rates_come_from_what_was_done_and_when() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    assert!(
        shown(&top, 100, 40).contains("per second          -"),
        "nothing is known after one look"
    );
    let done = backend
        .request(&Request { max_slices: Some(2), ..Request::new(RequestOp::Compact) })
        .unwrap();
    assert_eq!(done.slices_done, 2);
    // In a saved machine no time passes by itself.
    top.sample.machine.snapshot.time -= Duration::from_secs(4);
    top.apply_observation(MachineObservation::read(&backend));
    let flow = top.last_activity.unwrap();
    assert_eq!((flow.slices_off, flow.elapsed), (2, Duration::from_secs(4)));
    assert_eq!(flow.work.unwrap().migrated, done.migrated);
    let text = shown(&top, 100, 40);
    assert!(
        text.contains("per second        0.5") && text.contains("in 4 s              2"),
        "{text}"
    );
}

#[test]
fn a_look_that_is_no_news_leaves_the_rates_as_they_were_and_counts_nothing_twice() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    top.sample.machine.snapshot.time -= Duration::from_secs(4);
    top.apply_observation(MachineObservation::read(&backend));
    let (before, total) = (shown(&top, 100, 40), top.total);
    assert!(before.contains("in 4 s"), "{before}");
    top.apply_observation(MachineObservation::read(&backend));
    assert_eq!((shown(&top, 100, 40), top.total, top.last_activity), (before, total, None));
}

#[test]
fn keys_select_sort_pause_and_quit() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    assert_eq!(top.selected_slice, SliceId(0));
    key(&mut top, KeyCode::Down);
    key(&mut top, KeyCode::Right);
    assert_eq!(top.selected_slice, SliceId(2));
    key(&mut top, KeyCode::Home);
    key(&mut top, KeyCode::Up);
    assert_eq!(top.selected_slice, SliceId(0), "the first is the first");
    key(&mut top, KeyCode::End);
    let last = top.machine().snapshot.slices.last().unwrap().id;
    assert_eq!(top.selected_slice, last);
    key(&mut top, KeyCode::PageDown);
    assert_eq!(top.selected_slice, last);

    for sort in [SortOrder::Price, SortOrder::Used, SortOrder::State, SortOrder::Address] {
        key(&mut top, KeyCode::Char('s'));
        assert_eq!(top.sort, sort);
        key(&mut top, KeyCode::Home);
        assert_eq!(top.selected_slice, top.sorted()[0].id);
    }
    key(&mut top, KeyCode::Char('p'));
    assert!(top.is_paused && shown(&top, 100, 24).contains("paused"));
    let before = top.interval;
    key(&mut top, KeyCode::Char('+'));
    assert_eq!(top.interval, before * 2);
    for _ in 0..20 {
        key(&mut top, KeyCode::Char('-'));
    }
    assert_eq!(top.interval, Duration::from_millis(100));

    key(&mut top, KeyCode::Char('?'));
    assert!(shown(&top, 80, 24).contains("Ctrl-C    quit"));
    assert_eq!(key(&mut top, KeyCode::Esc), KeyAction::Draw, "Esc closes the help first");
    assert_eq!(key(&mut top, KeyCode::Esc), KeyAction::Quit);
    assert_eq!(key(&mut top, KeyCode::Char('q')), KeyAction::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(handle_key(&mut top, ctrl_c), KeyAction::Quit);
}

#[test]
fn the_price_order_is_that_of_compact_and_what_cannot_be_emptied_comes_last() {
    let backend = backend();
    let top = top(&backend, &["--sort", "price"]);
    let sorted = top.sorted();
    let prices: Vec<_> = sorted.iter().map_while(|slice| slice.finite_price()).collect();
    assert!(prices.len() > 2 && prices.is_sorted(), "{prices:?}");
}

/// The screen of a machine at which looking takes long, which looks as often as it may.
fn session(backend: &Arc<BackgroundBackend>, words: &[&str]) -> LiveSession {
    let top = top(&**backend, &[words, &["--interval", "100ms"]].concat());
    LiveSession::new(top, ObserverThread::new(Arc::clone(backend) as Arc<dyn Backend>))
}

/// Goes on without a key until something is so.
fn until(session: &mut LiveSession, what: &str, is_so: impl Fn(&TopModel) -> bool) {
    let begun = Instant::now();
    while !is_so(&session.top) {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{what}:\n{}",
            shown(&session.top, 100, 40)
        );
        session.step(None).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pressed(session: &mut LiveSession, code: KeyCode) -> KeyAction {
    session.step(Some(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))).unwrap()
}

#[test]
fn keys_work_and_the_daemon_file_is_read_during_a_long_look() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("status.json");
    let backend = Arc::new(BackgroundBackend::new("guest-8g.json"));
    let mut session = session(&backend, &["--status-file", file.to_str().unwrap()]);
    assert!(shown(&session.top, 80, 24).contains("[every 100ms]"));
    backend.hold_reads(true);
    until(&mut session, "it looks", |_| backend.reads() == 2);
    assert_eq!(pressed(&mut session, KeyCode::Down), KeyAction::Draw);
    assert_eq!(session.top.selected_slice, SliceId(1));
    assert_eq!(session.step(Some(&Event::Resize(80, 24))).unwrap(), KeyAction::Draw);
    until(&mut session, "it says that it looks", |top| shown(top, 80, 24).contains("[looking]"));
    std::fs::write(&file, daemon_status::tests::TEXT).unwrap();
    until(&mut session, "the daemon is heard", |top| {
        shown(top, 100, 40).contains("governor (observe")
    });
    assert_eq!(backend.reads(), 2, "one look at a time");
    assert_eq!(pressed(&mut session, KeyCode::Char('q')), KeyAction::Quit);

    backend.advance_clock(Duration::from_secs(4));
    backend.hold_reads(false);
    until(&mut session, "what it saw is shown", |top| shown(top, 100, 40).contains("in 4 s"));
    assert!(!shown(&session.top, 100, 40).contains("looking"));
}

#[test]
fn a_paused_screen_stays_also_if_it_was_paused_during_a_look() {
    let backend = Arc::new(BackgroundBackend::new("guest-8g.json"));
    let mut session = session(&backend, &[]);
    backend.advance_clock(Duration::from_secs(4));
    backend.hold_reads(true);
    until(&mut session, "it looks", |_| backend.reads() == 2);
    pressed(&mut session, KeyCode::Char('p'));
    backend.hold_reads(false);
    while session.observer.busy_time().is_some() {
        session.step(None).unwrap();
    }
    assert_eq!(session.top.machine().snapshot.time, Duration::ZERO);
    pressed(&mut session, KeyCode::Char('p'));
    until(&mut session, "it goes on", |top| top.total.elapsed == Duration::from_secs(4));
}

#[test]
fn a_slice_is_explained_by_a_sentence_and_its_pages_on_request() {
    let backend = Arc::new(BackgroundBackend::new("guest-pages.json"));
    let mut session = session(&backend, &[]);
    session.top.selected_slice = SliceId(2);
    assert!(session.top.words().contains("Enter shows"), "{}", session.top.words());
    backend.hold_reads(true);
    until(&mut session, "it looks", |_| backend.reads() == 2);
    // Behind the look that is under way.
    pressed(&mut session, KeyCode::Enter);
    assert!(session.top.words().contains("being looked at"), "{}", session.top.words());
    backend.hold_reads(false);
    let slab = "slab objects have to be freed";
    until(&mut session, "pages are explained", |top| top.words().contains(slab));
    pressed(&mut session, KeyCode::Down);
    assert!(!session.top.words().contains(slab), "it was of another slice");

    // A slice that was left meanwhile is not explained.
    pressed(&mut session, KeyCode::Up);
    pressed(&mut session, KeyCode::Enter);
    pressed(&mut session, KeyCode::Esc);
    while session.observer.busy_time().is_some() {
        session.step(None).unwrap();
    }
    assert!(!session.top.words().contains(slab), "{}", session.top.words());

    session.top.selected_slice = SliceId(0);
    pressed(&mut session, KeyCode::Enter);
    until(&mut session, "there are none", |top| {
        top.words().contains("does not have the pages of slice 0")
    });
}

#[test]
fn the_reasons_of_other_zones_and_notes_are_shown_where_there_is_room() {
    let mut machine = backend().machine().unwrap();
    let top = |machine: MachineState| {
        let mut top = top(&ReplayBackend::new(machine), &[]);
        top.daemon = running();
        top
    };
    let text = shown(&top(machine.clone()), 160, 60);
    let normal = "governor (observe) in Normal: does nothing: the 40 slices that are on are \
                  needed; expects at most 42 slices";
    assert!(text.contains(normal), "{text}");
    let dma32 = "in DMA32: does nothing: the 28 slices that are on are needed";
    assert!(text.lines().any(|line| line == dma32), "{text}");
    assert!(text.contains("\nnote: What is saved is a guess"), "{text}");

    machine.zones[0].node = NodeId(1);
    let top = top(machine);
    let text = shown(&top, 160, 60);
    assert!(
        text.contains("governor (observe) in node 0 Normal: ")
            && text.lines().any(|line| line.starts_with("in node 0 DMA32: ")),
        "{text}"
    );
    // As many as there is room for, and of the first one its beginning.
    let text = shown(&top, 80, 12);
    assert!(
        text.contains("governor (observe) in node 0 Normal: ") && !text.contains("DMA32: "),
        "{text}"
    );
}

#[test]
fn memory_that_the_allocator_does_not_have_yet_is_named() {
    let mut machine = backend().machine().unwrap();
    let words = "1 slice holds memory that the allocator does not have yet (not-given)";
    let screen = |machine: &MachineState, width, height| {
        shown(&top(&ReplayBackend::new(machine.clone()), &[]), width, height)
    };
    assert!(!screen(&machine, 120, 40).contains("not-given"));
    machine.snapshot.slices[3].reason = Reason::NotGiven;
    let text = screen(&machine, 120, 40);
    assert!(text.contains(words), "{text}");
    assert!(!screen(&machine, 80, 10).contains(words), "sums matter more");
}

#[test]
fn without_a_daemon_or_counters_it_says_so() {
    let backend = ReplayBackend::open(&test_file("guest-8g.json")).unwrap();
    let top = top(&backend, &[]);
    let text = shown(&top, 100, 40);
    assert!(text.contains("no daemon runs"), "{text}");
    assert!(text.contains("does not record what was done"), "{text}");
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
        text.contains("This kernel is without ramslice")
            && text.contains("`ramslice guard` wakes."),
        "{text}"
    );
    assert!(
        !shown(&top, 40, 10).contains("This kernel"),
        "sums matter more where there is little room"
    );
}

#[test]
fn without_colours_there_are_none() {
    let backend = backend();
    let mut top = top(&backend, &[]);
    let colours = |top: &TopModel| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(top, frame)).unwrap();
        let reset = ratatui::style::Color::Reset;
        terminal
            .backend()
            .buffer()
            .content
            .iter()
            .filter(|cell| cell.fg != reset || cell.bg != reset)
            .count()
    };
    assert_eq!(colours(&top), 0);
    top.screen = OutputStyle { depth: ColorDepth::Ansi256, unicode: true, ..OutputStyle::plain() };
    assert!(colours(&top) > 100);
}
