//! Progress of long work on standard error: a line on a terminal, rewritten; elsewhere one now and
//! then, for logs.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::stderr;

/// How often a line in a log is worth it.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// How often people look.
const TERMINAL_EVERY: Duration = Duration::from_millis(200);

/// The line, and when the next one is due.
pub struct ProgressLine {
    is_silent: bool,
    terminal: bool,
    start: Instant,
    next: Cell<Duration>,
}

impl ProgressLine {
    /// Begins to count the time; `after` is how long a terminal waits for the first line. A log
    /// gets none of what is over at once.
    pub fn new(silent: bool, after: Duration) -> Self {
        let terminal = io::stderr().is_terminal();
        let next = Cell::new(if terminal { after } else { LOG_EVERY });
        Self { is_silent: silent, terminal, start: Instant::now(), next }
    }

    /// Shows the line that `line` makes of the time so far, if one is due.
    pub fn show(&self, line: impl FnOnce(Duration) -> String) {
        let elapsed = self.start.elapsed();
        if self.is_silent || elapsed < self.next.get() {
            return;
        }
        self.next.set(elapsed + if self.terminal { TERMINAL_EVERY } else { LOG_EVERY });
        let line = line(elapsed);
        if self.terminal {
            stderr::rewrite(format_args!("{line}; Ctrl-C stops"));
        } else {
            stderr::line(line);
        }
    }

    /// Leaves nothing of it on the terminal.
    pub fn clear(&self) {
        if self.terminal && !self.is_silent {
            stderr::clear();
        }
    }
}
