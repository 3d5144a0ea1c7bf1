//! What there is to tell: the status, and joules for the metrics.

use std::time::Duration;

use ramslice_policy::{GovernorPolicy, PolicyKind};

use super::{Attached, Engine};
use crate::metrics::time_of_day;
use crate::status::{self, MachineStatus, Status, WouldEarn};

impl Engine {
    pub(super) fn tell_energy(&self) {
        let Some(Attached { ledgers, info, prices, .. }) = &self.attached else { return };
        let (mode, plan) = (self.settings.mode, &self.settings.energy);
        let Some(books) = ledgers.of(mode) else { return };
        self.metrics.loss_cap(mode, self.loss_cap());
        if let Some(earned) = books.earned(plan, info, prices) {
            self.metrics.energy(mode, &earned);
        }
    }

    /// The most that can have been lost in this mode, in joules: by the governor, which each zone has one of its own of, and by
    /// the daemon's own time, which no decision saves.
    fn loss_cap(&self) -> Option<f64> {
        let attached = self.attached.as_ref()?;
        let books = attached.ledgers.of(self.settings.mode)?;
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
        let attached = self.attached.as_ref();
        let ledger = attached.and_then(|attached| {
            let ledger = attached.ledgers.of(settings.mode)?;
            let earned = ledger.earned(plan, &attached.info, &attached.prices);
            let dropped = ledger.tally().work.dropped_pages.bytes(attached.info.page_bytes);
            Some((ledger, earned, dropped.0))
        });
        let (mut earned, mut would_earn) = (None, None);
        match ledger {
            Some((ledger, earned, dropped_bytes)) if ledger.is_simulated() => {
                would_earn = Some(WouldEarn {
                    earned,
                    nr_offline: self.simulated.unwrap_or(0),
                    woken_slices: self.would_wake,
                    dropped_bytes,
                    most_at_risk_joules: self.loss_cap(),
                });
            }
            Some((_, of_mode, _)) => earned = of_mode,
            None => {}
        }
        let largest = self.done.iter().max_by_key(|done| done.switchable);
        let why = match (&self.error, settings.mode.idle(), largest) {
            (Some(error), ..) => format!("waits for the machine: {error}"),
            (None, Some(idle), _) => idle.to_owned(),
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
            earned,
            loss_cap_joules: self.loss_cap(),
            would_earn,
        }
    }
}
