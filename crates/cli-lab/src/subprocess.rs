//! A command that runs while something else goes on: its signals, its end, its exit status.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_backend::sys::ending_signals;
use ramslice_cli::exit::CommandNotStarted;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGQUIT, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// What is only passed on.
const PASSED: [i32; 2] = [SIGUSR1, SIGUSR2];

/// Why waiting is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubprocessEvent {
    /// The time has passed, or something happened that others look after.
    Time,
    /// A signal asks the program to end.
    Signal,
    /// The command has ended, with this exit status as a shell has it.
    Ended(u8),
}

/// Signals, and perhaps a command that gets them too.
pub(crate) struct Subprocess {
    child: Option<Child>,
    signals: Receiver<Origin>,
    /// Signals that end the program itself, and are passed on.
    ending_signals: Vec<i32>,
}

impl Subprocess {
    /// Handles signals from now on and starts `command`, unless it is empty.
    ///
    /// Starts a thread: nothing may fork afterwards but through [`std::process`].
    pub(crate) fn start(command: &[String]) -> Result<Self> {
        let (send, signals) = mpsc::channel();
        let ending: Vec<i32> = ending_signals().chain([SIGQUIT]).collect();
        let wanted = ending.iter().chain(&PASSED).chain(&[SIGCHLD]);
        let mut caught = SignalsInfo::<WithOrigin>::new(wanted).context("handling signals")?;
        std::thread::spawn(move || caught.forever().try_for_each(|origin| send.send(origin)));
        let mut subprocess = Self { child: None, signals, ending_signals: ending };
        subprocess.run(command)?;
        Ok(subprocess)
    }

    /// Starts `command`, unless it is empty.
    pub(crate) fn run(&mut self, command: &[String]) -> Result<()> {
        if let [program, args @ ..] = command {
            let started = Command::new(program).args(args).spawn();
            self.child = Some(started.map_err(|source| CommandNotStarted::new(program, source))?);
        }
        Ok(())
    }

    /// Whether a signal has asked the program to end, without waiting; for use before a command
    /// runs, which would get it.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.signals.try_iter().any(|origin| self.ending_signals.contains(&origin.signal))
    }

    /// Waits for a signal, for the command's end, or for `time`.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<SubprocessEvent> {
        // An earlier end is reported first: its SIGCHLD may have been taken for another's.
        if let Some(status) = self.end_status()? {
            return Ok(SubprocessEvent::Ended(status));
        }
        match self.signals.recv_timeout(time) {
            Ok(origin) if origin.signal == SIGCHLD => {
                Ok(self.end_status()?.map_or(SubprocessEvent::Time, SubprocessEvent::Ended))
            }
            Ok(origin) => {
                if !self.pass_on(&origin) && self.ending_signals.contains(&origin.signal) {
                    return Ok(SubprocessEvent::Signal);
                }
                Ok(SubprocessEvent::Time)
            }
            Err(RecvTimeoutError::Timeout) => Ok(SubprocessEvent::Time),
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                Ok(SubprocessEvent::Time)
            }
        }
    }

    /// Asks the command to end, if it still runs; says whether there is one to wait for.
    pub(crate) fn ask_to_end(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        if child.try_wait().context("waiting for the command")?.is_none() {
            send(child, Signal::TERM);
        }
        Ok(true)
    }

    /// Asks the command to end, if it still runs, and waits for it, passing signals on.
    pub(crate) fn end(&mut self) -> Result<Option<u8>> {
        self.ask_to_end()?;
        self.wait_for_end()
    }

    /// Waits until the command has ended, passing signals on.
    pub(crate) fn wait_for_end(&mut self) -> Result<Option<u8>> {
        while self.child.is_some() {
            if let SubprocessEvent::Ended(status) = self.wait(Duration::from_hours(1))? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    /// Whether there is a command that has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.is_some() && matches!(self.end_status(), Ok(None))
    }

    fn end_status(&mut self) -> Result<Option<u8>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        Ok(child.try_wait().context("waiting for the command")?.map(status_of))
    }

    /// Whether there is a command that gets the signal.
    fn pass_on(&self, origin: &Origin) -> bool {
        let Some(child) = &self.child else { return false };
        // From a terminal it went to all of its processes, the command among them.
        let from_terminal = origin.cause == Cause::Kernel;
        if !from_terminal && let Some(signal) = Signal::from_named_raw(origin.signal) {
            send(child, signal);
        }
        true
    }
}

/// Fails if `command` names no program that can be started, before anything is done for it.
pub(crate) fn check_program(command: &[String]) -> Result<(), CommandNotStarted> {
    let Some(program) = command.first() else { return Ok(()) };
    let folders: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::new()]
    } else {
        // Without a PATH the system has one of its own.
        let Some(path) = std::env::var_os("PATH") else { return Ok(()) };
        std::env::split_paths(&path).collect()
    };
    let mut why = Errno::NOENT;
    for folder in folders {
        match std::fs::metadata(folder.join(program)) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(());
            }
            Ok(_) => why = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(CommandNotStarted::new(program, why.into()))
}

/// To a child that was not waited for yet: its id cannot be another's.
fn send(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile; then no process takes the signal.
        let _ = kill_process(pid, signal);
    }
}

/// As a shell reports it: 128 and the signal's number if one ended it.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
