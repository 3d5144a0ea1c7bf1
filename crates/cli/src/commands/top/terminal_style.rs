//! The live screen of `ramslice watch`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ramslice_types::{Backend, Census, Machine};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};

use super::status;
use super::watch::{States, describe};
use crate::render::{Depth, Glyph, Rgb, Screen, bar, legend, mosaic};

/// How soon a key or a change is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Changes listed at the bottom.
const LOG_LINES: usize = 6;

/// Shows the machine until `q`, Esc or Ctrl-C.
pub(super) fn run(backend: &dyn Backend, screen: Screen, interval: Duration) -> Result<()> {
    // Before the screen is taken: an error here stays readable.
    let mut view = View::new(backend, screen)?;
    let (changed, quit) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !quit.load(Ordering::Relaxed) {
                match backend.wait_event(Duration::from_millis(250)) {
                    Ok(Some(_)) => changed.store(true, Ordering::Relaxed),
                    Ok(None) => {}
                    // Redrawing by interval goes on; do not spin on an error that stays.
                    Err(_) => std::thread::sleep(interval),
                }
            }
        });
        let mut terminal = ratatui::try_init().context("taking over the terminal")?;
        let result = (|| {
            loop {
                terminal.draw(|frame| view.draw(frame))?;
                if wait(interval, &changed)? {
                    return Ok(());
                }
                view.refresh(backend)?;
            }
        })();
        quit.store(true, Ordering::Relaxed);
        ratatui::restore();
        result
    })
}

/// Waits for something to redraw for; true to quit.
fn wait(interval: Duration, changed: &AtomicBool) -> Result<bool> {
    let start = Instant::now();
    loop {
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let ctrl_c = key.code == KeyCode::Char('c')
                        && key.modifiers.contains(KeyModifiers::CONTROL);
                    if ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(true);
                    }
                }
                Event::Resize(..) => return Ok(false),
                _ => {}
            }
        }
        if changed.swap(false, Ordering::Relaxed) || start.elapsed() >= interval {
            return Ok(false);
        }
    }
}

/// What is on the screen.
struct View {
    screen: Screen,
    machine: Machine,
    states: States,
    log: VecDeque<String>,
}

impl View {
    fn new(backend: &dyn Backend, screen: Screen) -> Result<Self> {
        let machine = backend.machine()?;
        let mut states = States::default();
        states.update(&machine.snapshot);
        Ok(Self { screen, machine, states, log: VecDeque::new() })
    }

    fn refresh(&mut self, backend: &dyn Backend) -> Result<()> {
        self.machine = backend.machine()?;
        let time = self.machine.snapshot.time.as_secs_f64();
        for change in self.states.update(&self.machine.snapshot) {
            self.log.push_back(format!("{time:>10.3} s  {}", describe(&change)));
        }
        let extra = self.log.len().saturating_sub(LOG_LINES);
        self.log.drain(..extra);
        Ok(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (screen, machine) = (Screen { width: area.width, ..self.screen }, &self.machine);
        let census = Census::of(&machine.snapshot.slices, machine.info.slice_pages());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);

        let width = usize::from(area.width);
        let mut lines = vec![Line::styled(status::headline(machine), bold)];
        for text in [status::totals(machine), status::slice_counts(&census)] {
            lines.extend(wrap(&text, width).into_iter().map(Line::raw));
        }
        lines.push(Line::default());
        lines.push(glyphs(&screen, &bar(&screen, &census.pages, width)));
        let legend = legend(&screen, &census.pages, machine.info.page_bytes, width);
        lines.extend(legend.iter().map(|line| glyphs(&screen, line)));
        lines.push(Line::default());
        // Below the picture: a blank, the changes, the keys.
        let rest = usize::from(area.height).saturating_sub(lines.len() + 2 + self.log.len());
        let picture = mosaic(machine, &screen, area.width, rest);
        lines.extend(picture.iter().take(rest).map(|line| glyphs(&screen, line)));
        lines.push(Line::default());
        lines.extend(self.log.iter().map(|change| Line::styled(change.clone(), dim)));
        lines.push(Line::styled("q quits", dim));
        frame.render_widget(Text::from(lines), area);
    }
}

/// Breaks `text` between words into lines of at most `width`.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// A line of cells in the terminal's colours.
pub(super) fn glyphs(screen: &Screen, cells: &[Glyph]) -> Line<'static> {
    let color = |color: Rgb| match screen.depth {
        Depth::None => Color::Reset,
        Depth::Ansi256 => Color::Indexed(color.ansi256()),
        Depth::True => Color::Rgb(color.0, color.1, color.2),
    };
    let spans = cells.chunk_by(|a, b| (a.fg, a.bg) == (b.fg, b.bg)).map(|run| {
        let mut style = Style::new();
        style.fg = run[0].fg.map(color);
        style.bg = run[0].bg.map(color);
        Span::styled(run.iter().map(|cell| cell.ch).collect::<String>(), style)
    });
    Line::from(spans.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_backend::ReplayBackend;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::path::Path;

    #[test]
    fn the_screen_shows_totals_map_and_keys_at_any_size() {
        let fixture = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
            .join("tests/data/guest-8g.json");
        let view = View::new(&ReplayBackend::open(&fixture).unwrap(), Screen::plain()).unwrap();
        for (width, height) in [(100, 40), (80, 24), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            if height >= 24 {
                let text = terminal.backend().to_string();
                assert!(text.contains("slices of 64 MiB") && text.contains("q quits"), "{text}");
                assert!(text.contains("4 GiB "), "{text}");
            }
        }
    }
}
