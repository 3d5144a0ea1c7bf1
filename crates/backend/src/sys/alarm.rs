//! Interrupts a system call that must not wait forever: by a signal of our own, at a given time or
//! on demand.

use std::io;
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::thread::ThreadHandle;

/// How often to check whether the call must end, and to repeat the signal: the first may come just
/// before the call.
const AGAIN: Duration = Duration::from_millis(20);

extern "C" fn nothing(_signal: libc::c_int) {}

/// A real-time signal that nothing else here uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

/// Runs `call` in this thread and interrupts its system calls after `after`, or once `enough`
/// returns true, until it returns.
///
/// System calls that can be interrupted then fail with `EINTR`.
///
/// # Errors
/// If there is no thread to watch over it; then nothing was called.
pub(crate) fn within<T>(
    after: Duration,
    enough: impl Fn() -> bool + Send,
    call: impl FnOnce() -> T,
) -> io::Result<T> {
    static INSTALLED: Once = Once::new();
    let mut result = Ok(());
    INSTALLED.call_once(|| {
        // SAFETY: all-zero is a valid sigaction: no flags, hence no SA_RESTART.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: `action` is initialised and outlives the call; the handler does nothing.
        if unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } != 0 {
            result = Err(io::Error::last_os_error());
        }
    });
    result?;
    let caller = ThreadHandle::current();
    std::thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        std::thread::Builder::new().spawn_scoped(scope, move || {
            let began = Instant::now();
            while over.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                if began.elapsed() >= after || enough() {
                    // SAFETY: the caller waits for this thread before it leaves the scope, so it is
                    // alive.
                    unsafe { caller.send(signal()) };
                }
            }
        })?;
        let result = call();
        drop(done);
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sleep(seconds: i64) -> rustix::io::Result<usize> {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let mut fds = [rustix::event::PollFd::new(&read, rustix::event::PollFlags::IN)];
        rustix::event::poll(
            &mut fds,
            Some(&rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 }),
        )
    }

    #[test]
    fn a_call_that_takes_too_long_is_interrupted() {
        let start = Instant::now();
        let result = within(Duration::from_millis(50), || false, || sleep(60)).unwrap();
        assert_eq!(result, Err(rustix::io::Errno::INTR));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_call_that_another_thread_wants_to_end_is_interrupted() {
        let start = Instant::now();
        let result =
            within(Duration::from_mins(1), || start.elapsed().as_millis() > 50, || sleep(60))
                .unwrap();
        assert_eq!(result, Err(rustix::io::Errno::INTR));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_call_that_returns_in_time_is_left_alone() {
        assert_eq!(within(Duration::from_mins(1), || false, || sleep(0)).unwrap(), Ok(0));
    }
}
