//! The live screen of `ramslice top`: keys, signals, and a terminal that is left as it was found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};

use super::model::TopModel;
use super::observer_thread::{ObserverAnswer, ObserverRequest, ObserverThread};
use super::options::HINT;
use super::page_layout::{self, ScreenRow, TextTone};
use super::terminal_style::glyphs;
use crate::render::OutputStyle;

/// How soon a key or a signal is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Slices that a page up or down passes.
const PAGE: isize = 10;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAction {
    Quit,
    Suspend,
    /// Draw everything again.
    Clear,
    /// Show what changed.
    Draw,
    Nothing,
}

/// Shows the machine until `q`, Ctrl-C or a signal to end.
pub(super) fn run(top: TopModel, observer: ObserverThread) -> Result<()> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("handling signals")?;
    }
    // On a panic, its hook gives the terminal back before the message is printed.
    let mut terminal = ratatui::try_init().context("taking over the terminal")?;
    let result = show(&mut LiveSession::new(top, observer), &mut terminal, &end);
    ratatui::restore();
    result
}

fn show(session: &mut LiveSession, terminal: &mut DefaultTerminal, end: &AtomicBool) -> Result<()> {
    loop {
        terminal.draw(|frame| draw(&session.top, frame))?;
        loop {
            if end.load(Ordering::Relaxed) {
                return Ok(());
            }
            let event = if event::poll(TICK)? { Some(event::read()?) } else { None };
            match session.step(event.as_ref())? {
                KeyAction::Quit => return Ok(()),
                KeyAction::Suspend => {
                    suspend(terminal)?;
                    break;
                }
                KeyAction::Clear => {
                    terminal.clear()?;
                    break;
                }
                KeyAction::Draw => break,
                KeyAction::Nothing => {}
            }
        }
    }
}

/// What is shown, and who looks meanwhile.
struct LiveSession {
    top: TopModel,
    observer: ObserverThread,
    /// When the last look was over.
    last_observation: Instant,
    /// When the daemon was last heard.
    last_status: Instant,
}

impl LiveSession {
    fn new(top: TopModel, observer: ObserverThread) -> Self {
        let now = Instant::now();
        Self { top, observer, last_observation: now, last_status: now }
    }

    /// Does what a key asks for, takes in what was seen meanwhile, and has the observer look when
    /// it is time. Waits for nothing.
    fn step(&mut self, event: Option<&Event>) -> Result<KeyAction> {
        let next = event.map_or(KeyAction::Nothing, |event| handle_event(&mut self.top, event));
        let changed = self.poll_observer()?;
        Ok(if changed && next == KeyAction::Nothing { KeyAction::Draw } else { next })
    }

    /// Says whether there is something else to show.
    fn poll_observer(&mut self) -> Result<bool> {
        let top = &mut self.top;
        let mut changed = true;
        match self.observer.wait_answer(Duration::ZERO)? {
            // What is shown stays. The next look goes on from there.
            Some(ObserverAnswer::Machine(_)) if top.is_paused => {}
            Some(ObserverAnswer::Machine(seen)) => {
                top.apply_observation(*seen);
                (self.last_observation, self.last_status) = (Instant::now(), Instant::now());
            }
            Some(ObserverAnswer::Pages(slice, pages)) => top.show_pages(slice, pages),
            None => changed = false,
        }
        let due = |since: Instant| !top.is_paused && since.elapsed() >= top.interval;
        match self.observer.busy_time() {
            None if top.pages_request.is_some() || due(self.last_observation) => {
                self.observer.send_request(
                    top.pages_request
                        .take()
                        .map_or(ObserverRequest::Machine, ObserverRequest::Pages),
                )?;
            }
            // Otherwise its words would be marked as old if an observation takes long.
            Some(_) if due(self.last_status) => {
                top.read_daemon_status();
                self.last_status = Instant::now();
                changed = true;
            }
            _ => {}
        }
        let looking = self.observer.busy_time().is_some_and(|time| time >= HINT);
        changed |= looking != top.is_observing;
        top.is_observing = looking;
        Ok(changed)
    }
}

/// Gives the terminal back and stops, until the user continues it.
fn suspend(terminal: &mut DefaultTerminal) -> Result<()> {
    ratatui::restore();
    signal_hook::low_level::emulate_default_handler(SIGTSTP).context("stopping")?;
    *terminal = ratatui::try_init().context("taking over the terminal again")?;
    Ok(terminal.clear()?)
}

fn handle_event(top: &mut TopModel, event: &Event) -> KeyAction {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => handle_key(top, *key),
        Event::Resize(..) => KeyAction::Draw,
        _ => KeyAction::Nothing,
    }
}

fn handle_key(top: &mut TopModel, key: KeyEvent) -> KeyAction {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => KeyAction::Quit,
            KeyCode::Char('z') => KeyAction::Suspend,
            KeyCode::Char('l') => KeyAction::Clear,
            _ => KeyAction::Nothing,
        };
    }
    match key.code {
        // Back to the screen first, as people are used to.
        KeyCode::Esc if top.help => top.help = false,
        KeyCode::Esc if top.explanation.is_some() => top.close_pages(),
        KeyCode::Esc | KeyCode::Char('q') => return KeyAction::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => top.help = !top.help,
        KeyCode::Char('p' | ' ') => top.is_paused = !top.is_paused,
        KeyCode::Char('+') => top.change_interval(true),
        KeyCode::Char('-') => top.change_interval(false),
        KeyCode::Char('s') => top.sort = top.sort.next(),
        KeyCode::Up | KeyCode::Char('k') => top.step(-1, false),
        KeyCode::Down | KeyCode::Char('j') => top.step(1, false),
        KeyCode::PageUp => top.step(-PAGE, false),
        KeyCode::PageDown => top.step(PAGE, false),
        KeyCode::Home => top.step(isize::MIN, false),
        KeyCode::End => top.step(isize::MAX, false),
        KeyCode::Left => top.step(-1, true),
        KeyCode::Right => top.step(1, true),
        KeyCode::Enter => top.request_pages(),
        _ => return KeyAction::Nothing,
    }
    KeyAction::Draw
}

fn draw(top: &TopModel, frame: &mut Frame<'_>) {
    let area = frame.area();
    let rows = page_layout::rows(top, area.width, usize::from(area.height));
    let lines: Vec<Line<'_>> =
        rows.into_iter().map(|row| line(&top.screen, area.width, row)).collect();
    frame.render_widget(Text::from(lines), area);
}

fn line(screen: &OutputStyle, width: u16, row: ScreenRow) -> Line<'static> {
    match row {
        ScreenRow::Cells(cells) => glyphs(screen, &cells),
        ScreenRow::Text(tone, text) => match tone {
            TextTone::Plain => Line::raw(text),
            TextTone::Bold => Line::styled(text, Style::new().add_modifier(Modifier::BOLD)),
            TextTone::Dim => Line::styled(text, Style::new().add_modifier(Modifier::DIM)),
            // The bar is as wide as the screen.
            TextTone::Selected => Line::styled(
                format!("{text:<width$}", width = usize::from(width)),
                Style::new().add_modifier(Modifier::REVERSED),
            ),
        },
    }
}

#[cfg(test)]
#[path = "live_screen_tests.rs"]
mod tests;
