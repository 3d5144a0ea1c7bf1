//! What there is to tell: the status, and joules for the metrics.

use std::time::Duration;

use ramslice_policy::{GovernorPolicy, PolicyKind};

use super::{Attached, Engine};
use crate::books::Books;
use crate::metrics::time_of_day;
use crate::mode::Mode;
use crate::status::{self, MachineStatus, Status, WouldEarn};

impl Engine {
    pub(super) fn tell_energy(&self) {
        let Some(Attached { earned, would_earn, info, prices, .. }) = &self.attached else {
            return;
        };
        let (mode, plan) = (self.settings.mode, &self.settings.energy);
        let books = match mode {
            Mode::On => earned,
            Mode::Observe => would_earn,
            Mode::Off => return,
        };
        self.metrics.loss_cap(mode, self.loss_cap());
        if let Some(earned) = books.earned(plan, info, prices, mode != Mode::On) {
            self.metrics.energy(mode, &earned);
        }
    }

    /// The most that can have been lost in this mode, in joules: by the governor, which each zone has one of its own of, and by
    /// the daemon's own time, which no decision saves.
    fn loss_cap(&self) -> Option<f64> {
        let attached = self.attached.as_ref()?;
        let books = match self.settings.mode {
            Mode::On => &attached.earned,
            Mode::Observe => &attached.would_earn,
            Mode::Off => return None,
        };
        let governed = self.settings.policy.policy == PolicyKind::Governor;
        let elapsed = books.tally().elapsed();
        let own = self.settings.energy.running(books.own, &attached.info);
        governed.then(|| {
            GovernorPolicy::loss_cap(&attached.economics, elapsed).0 * self.minds.len() as f64 + own
        })
    }

    /// What there is to tell, `next` before the next step.
    pub fn status(&self, next: Duration) -> Status {
        let (settings, plan) = (&self.settings, &self.settings.energy);
        let imagined = settings.mode != Mode::On;
        let books = |books: &Books, attached: &Attached| {
            books.earned(plan, &attached.info, &attached.prices, imagined)
        };
        let attached = self.attached.as_ref();
        let dropped = |attached: &Attached| {
            attached.would_earn.tally().work.dropped_pages.bytes(attached.info.page_bytes).0
        };
        let largest = self.done.iter().max_by_key(|done| done.switchable);
        let why = match (&self.error, settings.mode, largest) {
            (Some(error), ..) => format!("waits for the machine: {error}"),
            (None, Mode::Off, _) => "does nothing: its mode is off".to_owned(),
            (None, _, Some(done)) => done.zone.why.clone(),
            (None, _, None) => "has decided nothing yet".to_owned(),
        };
        Status {
            schema_version: status::SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            written_unix_seconds: time_of_day().as_secs_f64(),
            mode: settings.mode,
            policy: settings.policy.policy.name(),
            profile: plan.name(),
            period_seconds: settings.period.as_secs_f64(),
            next_step_seconds: next.as_secs_f64(),
            machine: MachineStatus {
                ok: self.error.is_none() && attached.is_some(),
                backend: self.way,
                power_driver: attached.map(|attached| attached.info.power_driver.clone()),
                error: self.error.clone(),
            },
            paused_seconds: status::until(self.paused_until, self.time),
            why,
            notes: attached.map_or_else(Vec::new, |attached| plan.notes(&attached.info)),
            zones: self.done.iter().map(|done| done.zone.clone()).collect(),
            prices: self.prices.status(),
            earned: attached
                .filter(|_| settings.mode == Mode::On)
                .and_then(|attached| books(&attached.earned, attached)),
            loss_cap_joules: self.loss_cap(),
            would_earn: attached.filter(|_| settings.mode == Mode::Observe).map(|attached| {
                WouldEarn {
                    earned: books(&attached.would_earn, attached),
                    nr_offline: self.shadow.nr_off(),
                    woken_slices: self.would_wake,
                    dropped_bytes: dropped(attached),
                    most_at_risk_joules: self.loss_cap(),
                }
            }),
        }
    }
}
