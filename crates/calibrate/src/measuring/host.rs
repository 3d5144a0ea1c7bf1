//! What a measurement needs of the program around it.

use super::error::{BoxError, MeasureError};

/// The program that takes samples: it shows how far they are, and may stop it.
pub trait MeasuringHost {
    /// Whether to stop, as after Ctrl-C.
    fn interrupted(&self) -> bool;

    /// Shows what is being done; called often.
    fn progress(&self, step: &MeasuringStep<'_>);

    /// Warns that the machine could not be left as it was found.
    fn report_unrestored(&self, error: &MeasureError);

    /// Starts the program whose memory is measured.
    ///
    /// # Errors
    /// If it cannot be started.
    fn start_workload(&self) -> Result<Box<dyn Workload>, BoxError>;
}

/// A program whose memory is measured. Dropping it ends it.
pub trait Workload {
    /// Whether it still runs.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn is_running(&mut self) -> Result<bool, BoxError>;
}

/// What is being done, and how far it is.
#[derive(Debug, Clone, Copy)]
pub struct MeasuringStep<'a> {
    /// What is being done.
    pub activity: &'a str,
    /// How much of it is done.
    pub steps_done: u32,
    /// How much there is.
    pub steps_total: u32,
    /// Samples so far.
    pub samples: usize,
}
