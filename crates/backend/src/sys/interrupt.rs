//! Ctrl-C ends the request that runs, not the program that is to report on it.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::thread::ThreadHandle;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The signals with which a terminal or a supervisor asks a program to end: SIGINT, SIGTERM, and
/// SIGHUP unless the program's parent had it ignored, as `nohup` does.
pub fn ending_signals() -> impl Iterator<Item = i32> {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
        .into_iter()
        .filter(|&signal| signal != libc::SIGHUP || !is_ignored(signal))
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action only the present one is written, to a place that outlives the
    // call.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

extern "C" fn on_signal(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Whether a signal came that a [`SignalInterrupt`] handles.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// [`ending_signals`] interrupt system calls of the thread that installed this, and are remembered.
///
/// A signal that arrives just before a system call does not interrupt it. Another thread can close
/// that gap by calling [`nudge`](Self::nudge) until the call returns.
pub struct SignalInterrupt {
    thread: ThreadHandle,
    /// Stays in its thread, so that the thread lives whenever `nudge` is called.
    thread_marker: PhantomData<*const ()>,
}

// SAFETY: `requested` reads an atomic, and `nudge` may be called from any thread; the
// PhantomData is there to prevent a move to another thread, not sharing.
unsafe impl Sync for SignalInterrupt {}

impl SignalInterrupt {
    /// Handles [`ending_signals`] from now on, without restarting system calls.
    pub fn install() -> io::Result<Self> {
        for signal in ending_signals() {
            // SAFETY: all-zero is a valid sigaction: no flags, hence no SA_RESTART.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // SAFETY: `action` is initialised and outlives the call; the handler takes what
            // a handler without SA_SIGINFO is given, and only stores to an atomic.
            if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { thread: ThreadHandle::current(), thread_marker: PhantomData })
    }

    /// Whether a signal came.
    pub fn requested(&self) -> bool {
        is_requested()
    }

    /// Sends SIGINT to the thread that installed this, to interrupt what it waits in.
    pub fn nudge(&self) {
        // SAFETY: `self` never leaves its thread and is borrowed, so the thread is alive.
        unsafe { self.thread.send(libc::SIGINT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_lost_terminal_ends_a_program_unless_it_was_started_to_outlive_it() {
        // Only this test sets what SIGHUP does, and no process sends one.
        // SAFETY: SIG_IGN and SIG_DFL are no handlers.
        let set = |what| assert_ne!(unsafe { libc::signal(libc::SIGHUP, what) }, libc::SIG_ERR);
        set(libc::SIG_IGN);
        assert_eq!(ending_signals().collect::<Vec<_>>(), [libc::SIGINT, libc::SIGTERM]);
        set(libc::SIG_DFL);
        assert_eq!(ending_signals().last(), Some(libc::SIGHUP));
    }

    #[test]
    fn a_nudge_interrupts_a_wait_and_is_remembered() {
        let interrupt = SignalInterrupt::install().unwrap();
        assert!(!interrupt.requested());
        let start = Instant::now();
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Repeatedly, because the first signal may come before the wait.
                while !interrupt.requested() || start.elapsed() < Duration::from_millis(300) {
                    interrupt.nudge();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let (read, _write) = rustix::pipe::pipe().unwrap();
            let mut fds = [rustix::event::PollFd::new(&read, rustix::event::PollFlags::IN)];
            let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&minute))
        });
        assert_eq!(waited, Err(rustix::io::Errno::INTR));
        assert!(interrupt.requested() && start.elapsed() < Duration::from_secs(30));
    }
}
