//! A tracefs instance of our own: other programs' tracing is not touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;
use tracing::{debug, warn};

/// Why the kernel's events cannot be traced.
#[derive(Debug, Error)]
pub enum TraceError {
    /// There is no tracefs.
    #[error("tracefs is not mounted: `mount -t tracefs tracefs /sys/kernel/tracing`, as root")]
    NotMounted,
    /// Not by this user.
    #[error("only root may trace in {path}", path = .path.display())]
    Forbidden {
        /// Where tracefs is mounted.
        path: PathBuf,
    },
    /// The kernel lacks an event.
    #[error("this kernel has no trace event {event}")]
    NoEvent {
        /// As in `filemap:mm_filemap_fault`.
        event: String,
    },
    /// Another failure.
    #[error("tracing in {path} failed: {why}", path = .path.display())]
    Failed {
        /// Where tracefs is mounted.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
}

impl TraceError {
    fn of(tracefs: &Path, why: io::Error) -> Self {
        let path = tracefs.to_owned();
        if why.kind() == io::ErrorKind::PermissionDenied {
            Self::Forbidden { path }
        } else {
            Self::Failed { path, why }
        }
    }
}

/// The first of these folders at which tracefs is mounted. One that may not be looked into is taken
/// for it.
pub(crate) fn mounted(folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.into_iter().find(|folder| {
        fs::metadata(folder.join("instances")).map_or_else(
            |error| error.kind() == io::ErrorKind::PermissionDenied,
            |found| found.is_dir(),
        )
    })
}

/// An instance of tracefs; it goes with the value, or with the next start of the same program after
/// a kill.
pub struct TraceInstance {
    instance: PathBuf,
    pipe: File,
    /// A line of which the rest is to come.
    partial: Vec<u8>,
}

impl TraceInstance {
    /// Begins to trace events, as in `filemap/mm_filemap_fault`, with a buffer of so many KiB for
    /// each CPU. The instance is called `prefix` and the id of this process.
    ///
    /// # Errors
    /// Without tracefs, without permission, or on a kernel without one of these events.
    pub fn start(
        tracefs: Option<&Path>,
        prefix: &str,
        buffer_kib: u32,
        events: &[String],
    ) -> Result<Self, TraceError> {
        let tracefs = tracefs.ok_or(TraceError::NotMounted)?;
        for event in events {
            fs::metadata(tracefs.join("events").join(event)).map_err(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    TraceError::NoEvent { event: event.replace('/', ":") }
                } else {
                    TraceError::of(tracefs, error)
                }
            })?;
        }
        let instances = tracefs.join("instances");
        clean(&instances, prefix);
        let instance = instances.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&instance).map_err(|error| TraceError::of(tracefs, error))?;
        match Self::open(&instance, buffer_kib, events) {
            Ok(pipe) => Ok(Self { instance, pipe, partial: Vec::new() }),
            Err(error) => {
                let _ = fs::remove_dir(&instance);
                Err(TraceError::of(tracefs, error))
            }
        }
    }

    fn open(instance: &Path, buffer_kib: u32, events: &[String]) -> io::Result<File> {
        let write = |name: &str, text: &str| fs::write(instance.join(name), text);
        write("trace_clock", "boot")?;
        write("buffer_size_kb", &buffer_kib.to_string())?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(instance.join("trace_pipe"))?;
        for event in events {
            write(&format!("events/{event}/enable"), "1")?;
        }
        Ok(pipe)
    }

    /// Gives each line since the last time, oldest first.
    ///
    /// For events that come more slowly than lines are read: otherwise it does not end before
    /// [`stop`](Self::stop).
    pub fn lines(&mut self, take: impl FnMut(&str)) {
        self.lines_until(None, take);
    }

    /// The same for about this time at most; says whether more may be there.
    pub fn lines_for(&mut self, most: Duration, take: impl FnMut(&str)) -> bool {
        self.lines_until(Some(Instant::now() + most), take)
    }

    /// Ends tracing; what was traced until then can still be read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&self) -> io::Result<()> {
        fs::write(self.instance.join("tracing_on"), "0")
    }

    fn lines_until(&mut self, end: Option<Instant>, mut take: impl FnMut(&str)) -> bool {
        let mut chunk = vec![0; 64 << 10];
        loop {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return false,
                Ok(read) => {
                    self.partial.extend_from_slice(&chunk[..read]);
                    self.take_lines(&mut take);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    warn!(%error, "reading trace events failed");
                    return false;
                }
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return true;
            }
        }
    }

    fn take_lines(&mut self, take: &mut impl FnMut(&str)) {
        let end = self.partial.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.partial.split_off(end);
        let text = std::mem::replace(&mut self.partial, rest);
        String::from_utf8_lossy(&text).lines().for_each(take);
    }
}

impl Drop for TraceInstance {
    fn drop(&mut self) {
        let _ = self.stop();
        // An instance whose pipe is open is busy: this handle gives way to one that keeps nothing.
        if let Ok(null) = File::open("/dev/null") {
            drop(std::mem::replace(&mut self.pipe, null));
        }
        if let Err(error) = fs::remove_dir(&self.instance) {
            debug!(%error, instance = %self.instance.display(), "the trace instance stays");
        }
    }
}

/// Removes instances whose program was killed.
fn clean(instances: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// How many events the kernel had no room for, of a line that says so.
pub fn lost_events(line: &str) -> Option<i64> {
    line.split_once("[LOST ")?.1.split_whitespace().next()?.parse().ok()
}

/// A line of `trace_pipe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLine<'a> {
    /// The name of the thread.
    pub task: &'a str,
    /// Its id.
    pub pid: i64,
    /// When, on the clock that goes on during suspend.
    pub boottime_us: i64,
    /// The event.
    pub name: &'a str,
    /// What it says.
    pub payload: &'a str,
}

impl<'a> TraceLine<'a> {
    /// One of these events; nothing of any other line.
    pub fn of(line: &'a str, events: &[&str]) -> Option<Self> {
        // `   comm-123   [001] d..2.  12.345678: ramslice_state: id=3 online -> emptying`; a comm
        // may hold anything.
        let at = events.iter().filter_map(|event| line.rfind(&format!(": {event}: "))).max()?;
        let (head, payload) = (&line[..at], &line[at + 2..]);
        let (name, payload) = payload.split_once(": ")?;
        let (task, rest) = head.rsplit_once(" [")?;
        let (task, pid) = task.trim().rsplit_once('-')?;
        let boottime_us = microseconds(rest.split_whitespace().last()?)?;
        Some(Self { task, pid: pid.parse().ok()?, boottime_us, name, payload })
    }
}

/// `12.345678`, in whole microseconds.
fn microseconds(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.len() != 6 {
        return None;
    }
    Some(seconds.parse::<i64>().ok()?.checked_mul(1_000_000)? + fraction.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_traces_is_named_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (none, tracefs) = (folder.path().join("none"), folder.path().join("tracefs"));
        fs::create_dir_all(tracefs.join("instances")).unwrap();
        assert_eq!(mounted([none.clone(), tracefs.clone()]).as_ref(), Some(&tracefs));
        assert_eq!(mounted([none]), None);
        let why = |tracefs: Option<&Path>| {
            let started = TraceInstance::start(tracefs, "x", 1, &["ramslice/state".to_owned()]);
            started.err().unwrap().to_string()
        };
        let unmounted = why(None);
        assert!(unmounted.starts_with("tracefs is not mounted: `mount -t "), "{unmounted}");
        assert_eq!(why(Some(&tracefs)), "this kernel has no trace event ramslice:state");
        let forbidden = TraceError::of(&tracefs, io::ErrorKind::PermissionDenied.into());
        assert_eq!(forbidden.to_string(), format!("only root may trace in {}", tracefs.display()));
    }

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let line = "a-1 [000] d..2. 1.000000: ramslice_state: id=3 waking -> online\n";
        fs::write(&path, &line[..40]).unwrap();
        let pipe = File::open(&path).unwrap();
        let mut trace =
            TraceInstance { instance: dir.path().join("none"), pipe, partial: Vec::new() };
        let mut found = Vec::new();
        trace.lines(|line| found.push(line.to_owned()));
        assert!(found.is_empty());
        let mut more = OpenOptions::new().append(true).open(&path).unwrap();
        io::Write::write_all(&mut more, &line.as_bytes()[40..]).unwrap();
        trace.lines(|line| found.push(line.to_owned()));
        assert_eq!(found, [line.trim_end()]);
    }

    #[test]
    fn a_trace_that_is_written_faster_than_it_is_read_is_left_after_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        fs::write(&path, "a line of the trace\n".repeat(10_000)).unwrap();
        let pipe = File::open(&path).unwrap();
        let mut trace =
            TraceInstance { instance: dir.path().join("none"), pipe, partial: Vec::new() };
        let (mut calls, mut lines) = (1, 0);
        while trace.lines_for(Duration::ZERO, |_| lines += 1) {
            calls += 1;
        }
        // 64 KiB of 200 000 bytes with each, and the end.
        assert_eq!((lines, calls), (10_000, 5));
    }
}
