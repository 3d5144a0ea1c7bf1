//! Slices become as large as what the hardware switches as one: of smaller ones, one that stays on
//! keeps all of its unit powered. In mode observe, they do so in the backend's answers alone. Where
//! they stay smaller, the governor empties whole units of them.

use ramslice_types::{Backend, BackendError, Bytes, SliceState};
use tracing::{info, warn};

use super::DecisionEngine;
use crate::energy_ledger::EnergyPlan;
use crate::machine_snapshot::MachineSnapshot;
use crate::mode::DaemonMode;

/// Of fewer units, hardly one could be emptied.
const FEWEST_UNITS: u64 = 4;

impl DecisionEngine {
    /// The machine as it was read; read again if its slices were given another size.
    ///
    /// What the kernel refuses, or what the daemon does not ask for, is logged once and told by the
    /// status. It is tried at each step: a slice that is off now may be on then.
    ///
    /// # Errors
    /// If the machine cannot be read again.
    pub(super) fn fit_slices(
        &mut self,
        backend: &dyn Backend,
        look: MachineSnapshot,
    ) -> Result<MachineSnapshot, BackendError> {
        let settings = &self.settings;
        let wanted = (settings.mode != DaemonMode::Off && settings.resize_slices)
            .then(|| settings.worth.power()?.larger_unit(&look.info))
            .flatten();
        // What is only worked out assumes a driver.
        let pays = backend.simulated_offline().is_some() || EnergyPlan::may_be_switched(&look.info);
        let Some(size) = wanted.filter(|_| pays) else {
            self.size_refused = None;
            return Ok(look);
        };
        let before = look.info.slice_bytes;
        let refused = match refusal(&look, size) {
            Some(why) => why,
            None => match backend.set_slice_bytes(size) {
                Ok(()) => {
                    self.size_refused = None;
                    let how = match backend.simulated_offline() {
                        Some(_) => "the daemon works as if slices were",
                        None => "slices are now",
                    };
                    info!(%before, %size, "{how} as large as what the hardware switches");
                    return MachineSnapshot::take(backend);
                }
                Err(error) => error.to_string(),
            },
        };
        let text = format!("slices stay at {before} and do not become {size}: {refused}");
        if self.size_refused.as_ref() != Some(&text) {
            warn!("{text}");
            self.size_refused = Some(text);
        }
        Ok(look)
    }
}

/// Why slices of this size are not asked for; none if they are.
fn refusal(look: &MachineSnapshot, size: Bytes) -> Option<String> {
    if !look.info.segments.is_empty() {
        return Some("a table says what slices are".to_owned());
    }
    let slices = &look.snapshot.slices;
    let pages: u64 = slices.iter().map(|slice| slice.present.0).sum();
    let memory = look.info.page_bytes * pages;
    if memory.0 < FEWEST_UNITS * size.0 {
        return Some(format!(
            "{memory} of memory are fewer than {FEWEST_UNITS} of them; set energy.granularity"
        ));
    }
    if let Some(slice) = slices.iter().find(|slice| slice.state != SliceState::Online) {
        let held = if slice.held { ", held" } else { "" };
        return Some(format!(
            "slice {} is {}{held}, and the size changes only while all slices are online",
            slice.id, slice.state
        ));
    }
    None
}
