//! Standard output as a pipe whose reader may leave, as in `ramslice top | head -1`: that is no
//! failure.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// An error if standard output is a pipe that nothing reads any more. Commands that seldom write
/// look here while they wait, to end with their reader and not with their next line.
pub fn check_reader() -> io::Result<()> {
    if is_read(&io::stdout()) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

fn is_read(file: &impl std::os::fd::AsFd) -> bool {
    // Without being asked for, poll reports errors alone; if it fails, the next line will show it.
    let mut fds = [PollFd::new(file, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err() || !fds[0].revents().contains(PollFlags::ERR)
}

/// Whether an error says that the reader has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_as_long_as_its_reader_lives_and_a_file_always() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(is_read(&writer));
        drop(reader);
        assert!(!is_read(&writer));
        assert!(is_read(&std::fs::File::create("/dev/null").unwrap()));
        assert!(is_read(&tempfile::tempfile().unwrap()));
    }
}
