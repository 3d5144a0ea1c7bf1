//! QEMU's monitor, as far as this needs it: connect, and run one command after the other.
//!
//! QMP is a line of JSON each way. The crate `qapi` speaks it, too, but has types of the whole of
//! QEMU's schema: it took 116 s of two minutes to build, for the two commands that are used here.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use thiserror::Error;

/// The longest line that is read: the list of a guest's memory blocks takes a few KiB.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Why a monitor does not answer.
#[derive(Debug, Error)]
pub(super) enum QmpError {
    #[error("connecting to the monitor {path} failed", path = .path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error(
        "the monitor {path} says nothing for {seconds} s: another program may be connected, and \
         QEMU serves one at a time; give QEMU another -qmp, or end that program",
        path = .path.display()
    )]
    Busy { path: PathBuf, seconds: u64 },
    #[error("the monitor {path} closed the connection", path = .path.display())]
    Closed { path: PathBuf },
    #[error(
        "{path} is no QMP monitor: it says `{said}`; take a socket of QEMU's -qmp",
        path = .path.display()
    )]
    NotQmp { path: PathBuf, said: String },
    #[error("the monitor {path} refuses {command}: {reason}", path = .path.display())]
    Refused { path: PathBuf, command: String, reason: String },
    #[error("talking to the monitor {path} failed", path = .path.display())]
    Failed { path: PathBuf, source: io::Error },
}

/// A connection to a monitor, ready for commands.
pub(super) struct QmpMonitor {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    patience: Duration,
}

impl QmpMonitor {
    /// Connects to a socket of QEMU's `-qmp`; waits at most `patience` for each answer.
    pub(super) fn connect(path: &Path, patience: Duration) -> Result<Self, QmpError> {
        let connect = || -> io::Result<UnixStream> {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        };
        let path = path.to_owned();
        let stream =
            connect().map_err(|source| QmpError::Connect { path: path.clone(), source })?;
        let mut monitor = Self { stream: BufReader::new(stream), path, patience };
        let greeting = monitor.line()?;
        if greeting.get("QMP").is_none() {
            return Err(monitor.not_qmp(&greeting.to_string()));
        }
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Who listens: QEMU, unless another program opened its socket for it, as libvirt does.
    pub(super) fn peer_pid(&self) -> Result<u32, QmpError> {
        let peer = socket_peercred(self.stream.get_ref())
            .map_err(|error| QmpError::Failed { path: self.path.clone(), source: error.into() })?;
        Ok(peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Runs a command; events in between are passed over.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let asked = json!({ "execute": command, "arguments": arguments });
        let mut text = asked.to_string();
        text.push('\n');
        let sent = self.stream.get_mut().write_all(text.as_bytes());
        sent.map_err(|source| self.failed(source))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(QmpError::Refused {
                    path: self.path.clone(),
                    command: command.to_owned(),
                    reason: error["desc"].as_str().unwrap_or("it does not say why").to_owned(),
                });
            }
            if answer.get("event").is_none() {
                return Err(self.not_qmp(&answer.to_string()));
            }
        }
    }

    /// Runs a command of the monitor for people; its text.
    pub(super) fn human(&mut self, command: &str) -> Result<String, QmpError> {
        let arguments = json!({ "command-line": command });
        match self.execute("human-monitor-command", &arguments)? {
            Value::String(text) => Ok(text),
            other => Err(self.not_qmp(&other.to_string())),
        }
    }

    fn line(&mut self) -> Result<Value, QmpError> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Err(QmpError::Closed { path: self.path.clone() }),
            Ok(_) => {}
            // A monitor for people greets without an end of line
            Err(error) if is_timeout(&error) && !line.is_empty() => {}
            Err(error) => return Err(self.failed(error)),
        }
        serde_json::from_slice(&line).map_err(|_| self.not_qmp(&String::from_utf8_lossy(&line)))
    }

    fn not_qmp(&self, said: &str) -> QmpError {
        let said = said.trim().chars().filter(|c| !c.is_control()).take(60).collect();
        QmpError::NotQmp { path: self.path.clone(), said }
    }

    fn failed(&self, source: io::Error) -> QmpError {
        let path = self.path.clone();
        match source.kind() {
            _ if is_timeout(&source) => QmpError::Busy { path, seconds: self.patience.as_secs() },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Closed { path },
            _ => QmpError::Failed { path, source },
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n";
    const PATIENCE: Duration = Duration::from_mins(1);

    /// A monitor that says the first line, then a line or more after each that it reads.
    fn monitor(said: &'static [&'static str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for text in said {
                (&stream).write_all(text.as_bytes()).unwrap();
                // The client's end is that of the test
                if !matches!(lines.next(), Some(Ok(_))) {
                    break;
                }
            }
        });
        (folder, path)
    }

    fn problem(said: &'static [&'static str], patience: Duration) -> QmpError {
        let (_folder, path) = monitor(said);
        match QmpMonitor::connect(&path, patience) {
            Err(error) => error,
            Ok(mut monitor) => monitor.human("info ramblock").unwrap_err(),
        }
    }

    #[test]
    fn a_command_gets_its_answer_and_not_an_event() {
        let (_folder, path) = monitor(&[
            GREETING,
            "{\"event\": \"RESUME\"}\n{\"return\": {}}\n",
            "{\"event\": \"STOP\"}\n{\"return\": \"text\"}\n",
        ]);
        let mut monitor = QmpMonitor::connect(&path, PATIENCE).unwrap();
        assert_eq!(monitor.peer_pid().unwrap(), std::process::id());
        assert_eq!(monitor.human("info ramblock").unwrap(), "text");
    }

    #[test]
    fn a_monitor_that_serves_another_program_is_busy() {
        let error = problem(&[""], Duration::from_millis(50));
        assert!(error.to_string().contains("QEMU serves one at a time"), "{error}");
    }

    #[test]
    fn a_monitor_for_people_is_named_as_such() {
        let error = problem(&["QEMU 10.0.2 monitor\r\n(qemu) "], PATIENCE).to_string();
        assert!(error.contains("says `QEMU 10.0.2 monitor`; take a socket of QEMU's -qmp"));
        let error = problem(&["(qemu) "], Duration::from_millis(50)).to_string();
        assert!(error.contains("says `(qemu)`"), "{error}");
    }

    #[test]
    fn a_refusal_is_passed_on_with_its_reason() {
        const REFUSAL: &str =
            "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no such\"}}\n";
        let error = problem(&[GREETING, "{\"return\": {}}\n", REFUSAL], PATIENCE).to_string();
        assert!(error.ends_with("refuses human-monitor-command: no such"), "{error}");
    }

    #[test]
    fn a_monitor_that_goes_is_said_to_have_closed() {
        let error = problem(&[], PATIENCE).to_string();
        assert!(error.ends_with("closed the connection"), "{error}");
    }

    #[test]
    fn a_socket_that_is_not_there_is_named() {
        let error = QmpMonitor::connect(Path::new("/nowhere/qmp"), PATIENCE).err().unwrap();
        assert_eq!(error.to_string(), "connecting to the monitor /nowhere/qmp failed");
    }
}
