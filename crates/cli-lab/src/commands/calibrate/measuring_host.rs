//! What `ramslice-lab calibrate` gives a measurement: Ctrl-C, a line of progress, and COMMAND.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ramslice_backend::sys::SignalInterrupt;
use ramslice_calibrate::measuring::{
    BoxError, MeasureError, MeasuringHost, MeasuringStep, Workload,
};
use ramslice_cli::exit::CommandNotStarted;
use ramslice_cli::progress::ProgressLine;
use ramslice_cli::stderr;

/// The command line around a measurement.
pub(super) struct CommandHost<'a> {
    command: &'a [String],
    interrupt: &'a SignalInterrupt,
    progress: ProgressLine,
}

impl<'a> CommandHost<'a> {
    pub(super) fn new(command: &'a [String], interrupt: &'a SignalInterrupt, silent: bool) -> Self {
        Self { command, interrupt, progress: ProgressLine::new(silent, Duration::ZERO) }
    }
}

impl Drop for CommandHost<'_> {
    fn drop(&mut self) {
        self.progress.clear();
    }
}

impl MeasuringHost for CommandHost<'_> {
    fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }

    fn progress(&self, step: &MeasuringStep<'_>) {
        let MeasuringStep { activity: what, steps_done: done, steps_total: of, samples } = *step;
        self.progress.show(|elapsed| {
            let percent = 100 * done / of.max(1);
            format!("{samples} samples, {:.0} s: {what}, {percent} %", elapsed.as_secs_f64())
        });
    }

    fn report_unrestored(&self, error: &MeasureError) {
        stderr::line(format_args!("ramslice-lab: not everything is as it was: {error}"));
    }

    fn start_workload(&self) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(CommandWorkload::start(self.command)?))
    }
}

/// What samples of this command are called: its file's name, which says nothing about where it is.
pub(super) fn label(command: &[String]) -> String {
    let name = |program: &String| -> String {
        let name = Path::new(program).file_name().and_then(|name| name.to_str());
        name.unwrap_or(program).to_owned()
    };
    command.first().map_or_else(|| "as found".to_owned(), name)
}

/// The error of a workload with its exit status, if it has one.
pub(super) fn not_started(error: BoxError) -> anyhow::Error {
    match error.downcast::<CommandNotStarted>() {
        Ok(error) => (*error).into(),
        Err(error) => anyhow::Error::from_boxed(error),
    }
}

/// A command that is killed with this value.
struct CommandWorkload(Option<Child>);

impl CommandWorkload {
    fn start(command: &[String]) -> Result<Self, BoxError> {
        let [program, args @ ..] = command else { return Ok(Self(None)) };
        // Standard output is this program's.
        let child = Command::new(program).args(args).stdout(Stdio::null()).spawn();
        Ok(Self(Some(child.map_err(|source| CommandNotStarted::new(program, source))?)))
    }
}

impl Workload for CommandWorkload {
    fn is_running(&mut self) -> Result<bool, BoxError> {
        let Some(child) = &mut self.0 else { return Ok(false) };
        let waited = child.try_wait();
        match waited.map_err(|error| format!("waiting for the command: {error}"))? {
            None => Ok(true),
            Some(status) => {
                self.0 = None;
                if !status.success() {
                    stderr::line(format_args!("ramslice-lab: the command ended with {status}"));
                }
                Ok(false)
            }
        }
    }
}

impl Drop for CommandWorkload {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Only if something went wrong, or Ctrl-C: a child that has ended meanwhile cannot be
            // killed, and that is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
