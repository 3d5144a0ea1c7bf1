//! What the main loop has to do with memory that moves by itself: it says what is wanted, and
//! reports what the thread does.

use std::path::Path;
use std::sync::Arc;

use super::MainLoop;
use crate::cold_automatic::{self, ColdRequest, ColdStatus, ColdThread};
use crate::mode::DaemonMode;

/// Only this machine has DAMON.
const ROOT: &str = "/";

impl MainLoop<'_> {
    /// Starts the thread if it is needed, and says what is wanted of it.
    pub(super) fn steer_cold(&mut self) {
        let settings = self.engine.settings();
        let runtime_dir = &self.options.runtime_dir;
        if self.cold.is_none() {
            if !settings.cold.automatic && !ColdThread::is_needed_after(runtime_dir) {
                return;
            }
            let (boot, metrics) = (&self.options.host.boot, &self.metrics);
            self.cold = cold_automatic::start_or_warn(Path::new(ROOT), runtime_dir, boot, metrics);
        }
        if let Some(cold) = &self.cold {
            cold.set(self.cold_request());
        }
    }

    fn cold_request(&self) -> ColdRequest {
        let settings = self.engine.settings();
        let figures = self.engine.cold_figures();
        let wanted = if !settings.cold.automatic {
            Err("cold.automatic is false")
        } else if settings.mode != DaemonMode::On {
            Err("only mode on moves memory")
        } else if self.options.host.vmstat.is_none() {
            Err("the machine is a simulated one")
        } else if self.backend.is_none() {
            Err("waits for the machine")
        } else {
            Ok(settings.cold.clone())
        };
        let opened = self.backend.as_ref().filter(|opened| opened.guardable.is_none());
        ColdRequest {
            settings: wanted.map_err(str::to_owned),
            backend: opened.map(|opened| Arc::clone(&opened.backend)),
            break_even: figures.break_even,
            slice_break_even: figures.slice_break_even,
        }
    }

    pub(super) fn cold_status(&self) -> ColdStatus {
        match &self.cold {
            Some(cold) => cold.status(),
            None => ColdStatus::off("cold.automatic is false"),
        }
    }
}
