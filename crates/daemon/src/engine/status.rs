//! What the engine reports: the status, and joules for the metrics.

use std::time::Duration;

use ramslice_policy::{GovernorPolicy, PolicyKind};
use ramslice_types::Worth;

use super::{BoundMachine, DecisionEngine};
use crate::cold_automatic::{ColdFigures, ColdStatus};
use crate::idle_cache::IdleCacheStatus;
use crate::metrics::time_of_day;
use crate::status::{self, DaemonStatus, MachineStatus, WouldEarn};
use crate::worth_plan::GivenBack;

impl DecisionEngine {
    pub(super) fn report_energy(&self) {
        let Some(BoundMachine { ledgers, info, prices, .. }) = &self.bound_machine else { return };
        let (mode, plan) = (self.settings.mode, &self.settings.worth);
        let Some(ledger) = ledgers.of(mode) else { return };
        self.metrics.loss_cap(mode, self.loss_cap_joules());
        if let Some(earned) = plan.power().and_then(|plan| ledger.earned(plan, info, prices)) {
            self.metrics.energy(mode, &earned);
        }
    }

    /// The same in joules; nothing if the profile counts in another unit.
    fn loss_cap_joules(&self) -> Option<f64> {
        self.settings.worth.power()?;
        self.loss_cap().map(|worth| worth.0)
    }

    /// What was given back in this mode, or would have been; nothing for joules.
    pub(crate) fn given_back(&self) -> Option<GivenBack> {
        let bound = self.bound_machine.as_ref()?;
        let ledger = bound.ledgers.of(self.settings.mode)?;
        let (tally, simulated) = (ledger.tally(), ledger.is_simulated());
        self.settings.worth.given_back(&tally, &bound.info, simulated, self.loss_cap())
    }

    /// The most that can have been lost in this mode: by the governors, one for each zone, and by
    /// the daemon's own CPU time, which no decision saves.
    fn loss_cap(&self) -> Option<Worth> {
        let bound = self.bound_machine.as_ref()?;
        let ledger = bound.ledgers.of(self.settings.mode)?;
        let governed = self.settings.policy.policy == PolicyKind::Governor;
        let own = self.settings.worth.running_cost(ledger.own_cost, &bound.info);
        let economics = bound.economics.as_ref()?;
        governed.then(|| Worth(GovernorPolicy::loss_cap_of(economics, ledger.windows).0 + own))
    }

    /// What the operator should know, a sentence for each.
    fn notes(&self, bound: &BoundMachine) -> Vec<String> {
        let mut notes = self.settings.worth.notes(&bound.info);
        notes.extend(self.size_refused.clone());
        let counts = self.settings.policy.policy == PolicyKind::Governor
            && self.settings.worth.power().is_none();
        if counts && self.stalls.is_none() {
            notes.push(
                "how long tasks wait for memory cannot be read from /proc/pressure/memory, so the \
                 stall target is not watched: boot with psi=1"
                    .to_owned(),
            );
        }
        notes
    }

    /// What decisions on idle memory rest on.
    pub(crate) fn cold_figures(&self) -> ColdFigures {
        let Some(bound) = &self.bound_machine else {
            let why = "the machine was not read so far".to_owned();
            return ColdFigures { break_even: Err(why), slice_break_even: None };
        };
        let slice = bound.economics.as_ref().map(|economics| economics.break_even_of_emptying().0);
        ColdFigures {
            break_even: self.settings.worth.rest_break_even(bound.info.page_bytes),
            slice_break_even: slice.and_then(|time| Duration::try_from_secs_f64(time).ok()),
        }
    }

    /// The status. `next` is the time until the next step; the main loop fills in `cold`
    /// and `idle_cache`.
    pub fn status(&self, next: Duration) -> DaemonStatus {
        let (settings, plan) = (&self.settings, &self.settings.worth);
        let bound = self.bound_machine.as_ref();
        let ledger = bound.and_then(|bound| {
            let ledger = bound.ledgers.of(settings.mode)?;
            let earned =
                plan.power().and_then(|plan| ledger.earned(plan, &bound.info, &bound.prices));
            let dropped = ledger.tally().work.dropped_pages.bytes(bound.info.page_bytes);
            Some((ledger, earned, dropped.0))
        });
        let given_back = self.given_back();
        let simulated = ledger.as_ref().is_some_and(|(ledger, ..)| ledger.is_simulated());
        let (would_give_back, given_back) =
            if simulated { (given_back, None) } else { (None, given_back) };
        let (mut earned, mut would_earn) = (None, None);
        match ledger {
            Some((ledger, earned, dropped_bytes)) if ledger.is_simulated() => {
                would_earn = Some(WouldEarn {
                    earned,
                    nr_offline: self.simulated_offline.unwrap_or(0),
                    woken_slices: self.would_wake,
                    dropped_bytes,
                    most_at_risk_joules: self.loss_cap_joules(),
                });
            }
            Some((_, of_mode, _)) => earned = of_mode,
            None => {}
        }
        let largest = self.decisions.iter().max_by_key(|done| done.switchable);
        let why = match (&self.error, settings.mode.idle(), largest) {
            (Some(error), ..) => format!("waits for the machine: {error}"),
            (None, Some(idle), _) => idle.to_owned(),
            (None, _, Some(done)) => done.zone.why.clone(),
            (None, _, None) => "has decided nothing so far".to_owned(),
        };
        DaemonStatus {
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
                ok: self.error.is_none() && bound.is_some(),
                backend: self.backend_kind,
                power_driver: bound.map(|bound| bound.info.power_driver.clone()),
                error: self.error.clone(),
            },
            paused_seconds: status::until(self.paused_until, self.time),
            why,
            notes: bound.map_or_else(Vec::new, |bound| self.notes(bound)),
            zones: self.decisions.iter().map(|done| done.zone.clone()).collect(),
            prices: self.prices.status(),
            cold: ColdStatus::off("cold.automatic is false"),
            idle_cache: IdleCacheStatus::of("off", "not looked at"),
            page_cache: self.cache.status().clone(),
            takers: self.takers.status().clone(),
            earned,
            loss_cap_joules: self.loss_cap_joules(),
            would_earn,
            given_back,
            would_give_back,
        }
    }
}
