//! Interrupts a system call that must not wait forever: by a signal of our own, at a given time or
//! on demand, or by a driver's.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::thread::ThreadHandle;

/// How often to check whether the call must end, and to repeat the signal: the first may come just
/// before the call.
const AGAIN: Duration = Duration::from_millis(20);

extern "C" fn nothing(_signal: libc::c_int) {}

/// Whether SIGALRM came during the last call.
static HAS_RUNG: AtomicBool = AtomicBool::new(false);

extern "C" fn rings(_signal: libc::c_int) {
    HAS_RUNG.store(true, Ordering::Relaxed);
}

/// Whether SIGALRM interrupted the last call. Qualcomm's mem-offline sends it to a task that takes
/// too long to empty a memory block; without a handler it would end the program.
pub(crate) fn has_rung() -> bool {
    HAS_RUNG.load(Ordering::Relaxed)
}

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
        let handlers: [(_, extern "C" fn(libc::c_int)); 2] =
            [(signal(), nothing), (libc::SIGALRM, rings)];
        for (signal, handler) in handlers {
            // SAFETY: all-zero is a valid sigaction: no flags, hence no SA_RESTART.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as libc::sighandler_t;
            // SAFETY: `action` is initialised and outlives the call; the handlers do nothing, or
            // only store to an atomic.
            if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
                result = Err(io::Error::last_os_error());
            }
        }
    });
    result?;
    HAS_RUNG.store(false, Ordering::Relaxed);
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
    fn a_drivers_alarm_interrupts_a_call_and_not_the_program() {
        let start = Instant::now();
        let result = within(
            Duration::from_mins(1),
            || false,
            || {
                // SAFETY: pthread_self has no preconditions.
                let caller = unsafe { libc::pthread_self() } as usize;
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(300));
                        // SAFETY: the caller waits for this thread, so it is alive.
                        unsafe { libc::pthread_kill(caller as libc::pthread_t, libc::SIGALRM) };
                    });
                    sleep(60)
                })
            },
        );
        assert_eq!(result.unwrap(), Err(rustix::io::Errno::INTR));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_call_that_returns_in_time_is_left_alone() {
        assert_eq!(within(Duration::from_mins(1), || false, || sleep(0)).unwrap(), Ok(0));
    }
}
