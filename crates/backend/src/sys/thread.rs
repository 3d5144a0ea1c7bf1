//! The thread that a signal is for.

/// Names a thread of this process, in any of its threads.
///
/// For the system's C library that name is a number or a pointer: glibc has the one, musl the
/// other.
#[derive(Clone, Copy)]
pub(super) struct ThreadHandle(libc::pthread_t);

// SAFETY: any thread may hand the name to pthread_kill, its only use; nothing follows the pointer.
unsafe impl Send for ThreadHandle {}

impl ThreadHandle {
    /// The thread that calls this.
    pub(super) fn current() -> Self {
        // SAFETY: pthread_self has no preconditions.
        Self(unsafe { libc::pthread_self() })
    }

    /// Sends it a signal.
    ///
    /// # Safety
    /// The thread must not have ended.
    pub(super) unsafe fn send(self, signal: libc::c_int) {
        // SAFETY: the caller guarantees that the thread is alive.
        unsafe { libc::pthread_kill(self.0, signal) };
    }
}
