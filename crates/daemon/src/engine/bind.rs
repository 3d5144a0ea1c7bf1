//! Binds machine, settings and saved state together, and decides whether what was learned still
//! fits.

use std::error::Error;

use ramslice_backend::WhatIfMemory;
use ramslice_energy::EnergyTally;
use ramslice_policy::{
    AnyPolicy, GovernorPolicy, PolicyConfigError, PolicyEvent, SavedPolicy, SliceEconomics,
};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Pages, PriceParameter, Ratio, Zone,
};
use tracing::{info, warn};

use super::{BoundMachine, DecisionEngine, ZoneState};
use crate::energy_ledger::{LedgerKind, LedgerSums, ModeLedgers};
use crate::machine_snapshot::{MachineSnapshot, ZoneKey};
use crate::persisted_state::{PersistedState, PersistedZone};
use crate::settings::DaemonSettings;

impl DecisionEngine {
    /// Makes sure that there are policies and ledgers for this machine.
    pub(super) fn bind(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
    ) -> Result<(), BackendError> {
        let info = &look.info;
        let prices = PriceParameter::ALL
            .into_iter()
            .filter_map(|parameter| Some((parameter, backend.price_parameter(parameter).ok()?)))
            .collect();
        let same = self.bound_machine.take_if(|bound| {
            let machine = |info: &BackendInfo| (info.slice_bytes, info.page_bytes, info.is_stock());
            machine(&bound.info) == machine(info)
        });
        if let Some(mut bound) = same {
            let kind = self.settings.worth.kind(info);
            if kind != bound.kind {
                let (on, observe) = bound.ledgers.sums();
                bound.ledgers = self.ledgers(&kind, Some((Some(bound.kind), on, observe)));
                bound.kind = kind;
                self.count_open_windows_again();
                self.log_notes(info);
            }
            // Meanwhile a power driver may have been loaded, prices installed, memory plugged in.
            self.bound_machine = Some(BoundMachine { info: info.clone(), prices, ..bound });
        } else {
            let economics = self.settings.worth.economics(info).map_err(invalid)?;
            // Before anything is taken over: settings that do not fit must not cost what was
            // learned, because other settings may follow.
            AnyPolicy::new(
                &self.settings.policy,
                economics.as_ref(),
                info.slice_bytes,
                info.page_bytes,
            )
            .map_err(invalid)?;
            let mut before = None;
            if let Some(saved) = &self.saved {
                // Older files have no windows: at least as many as fit into the time were opened.
                let windows = |windows: Option<u64>, sums: &EnergyTally| {
                    let (zones, elapsed) = (saved.zones.len() as u64, sums.elapsed());
                    let fit = |economics: &SliceEconomics| {
                        zones * GovernorPolicy::windows_within(economics, elapsed)
                    };
                    windows.unwrap_or_else(|| economics.as_ref().map_or(0, fit))
                };
                let on = windows(saved.earned_windows, &saved.earned);
                let on = (saved.earned, saved.earned_own, on);
                let observe = windows(saved.would_earn_windows, &saved.would_earn);
                let observe = (saved.would_earn, saved.would_earn_own, observe);
                before = Some((saved.ledger_kind.clone(), on, observe));
                self.work = saved.work;
                self.would_wake = saved.would_wake;
            } else if let Some(old) = &self.bound_machine {
                let (on, observe) = old.ledgers.sums();
                before = Some((Some(old.kind.clone()), on, observe));
            }
            let kind = self.settings.worth.kind(info);
            let ledgers = self.ledgers(&kind, before);
            let basis = self.basis(info, economics.as_ref());
            self.zone_states.clear();
            self.bound_machine =
                Some(BoundMachine { info: info.clone(), economics, basis, prices, kind, ledgers });
            self.log_notes(info);
            info!(
                slices = info.nr_slices,
                slice = %info.slice_bytes,
                power_driver = if info.is_stock() { "unknown" } else { info.power_driver.as_str() },
                mode = %self.settings.mode,
                "the machine can be read"
            );
        }
        let saved = self.saved.take();
        if let Some(saved) = &saved {
            if saved.boot == self.host.boot {
                self.takers.restore(saved.pools.clone());
            }
            let fits = self.bound_machine.as_ref().is_some_and(|bound| bound.basis == saved.basis);
            if !fits {
                info!(
                    "what was learned was for other settings, energy figures or slice sizes: \
                     learning again"
                );
            }
        }
        for zone in &look.zones {
            if !self.zone_states.contains_key(&ZoneKey::of(zone)) {
                self.new_zone_state(zone, look, saved.as_ref())?;
            }
        }
        self.share_limits(look);
        Ok(())
    }

    /// Memory that was plugged in or taken out changes which part of the tenant's limits each zone
    /// holds.
    fn share_limits(&mut self, look: &MachineSnapshot) {
        let Some(bound) = &self.bound_machine else { return };
        for zone in &look.zones {
            let share = share_of(zone, look);
            let state = self.zone_states.get_mut(&ZoneKey::of(zone));
            let Some(zone_state) = state.filter(|state| state.share != share) else { continue };
            if let Ok(fresh) = fresh_policy(&self.settings, bound, share) {
                zone_state.share = share;
                zone_state.policy.take_limits(&fresh);
            }
        }
    }

    /// Ledgers start over: what is at risk in the open windows may be lost in the new ones.
    fn count_open_windows_again(&mut self) {
        for zone_state in self.zone_states.values_mut() {
            zone_state.counted_windows = zone_state.policy.risk_windows().saturating_sub(1);
        }
    }

    fn log_notes(&self, info: &BackendInfo) {
        for note in self.settings.worth.notes(info) {
            warn!("{note}");
        }
    }

    /// The ledgers of modes on and observe. Earlier sums continue if they are of this kind.
    fn ledgers(
        &mut self,
        kind: &LedgerKind,
        before: Option<(Option<LedgerKind>, LedgerSums, LedgerSums)>,
    ) -> ModeLedgers {
        let (mut earned, mut would_earn) = (LedgerSums::default(), LedgerSums::default());
        match before {
            Some((of, on, observe)) if of.as_ref() == Some(kind) => {
                (earned, would_earn) = (on, observe);
            }
            Some((of, on, observe)) => {
                let mut gone = vec![on];
                // Mode observe assumes a power driver.
                if of.as_ref().is_some_and(|of| of.with_switch(kind.switched) == *kind) {
                    would_earn = observe;
                } else {
                    gone.push(observe);
                    // This count is shown with the joules of mode observe.
                    self.would_wake = 0;
                }
                if gone.iter().any(|sums| *sums != LedgerSums::default()) {
                    let of = of.map_or_else(|| "an unknown kind".to_owned(), |of| of.to_string());
                    let seconds = gone.iter().map(|sums| sums.0.elapsed().as_secs()).sum::<u64>();
                    info!(%of, now = %kind, seconds, "joules so far are of another kind: new \
                        ledgers");
                }
            }
            None => {}
        }
        ModeLedgers::new(kind, earned, would_earn)
    }

    /// What learning depends on: policy, figures of energy and size of slices.
    fn basis(&self, info: &BackendInfo, economics: Option<&SliceEconomics>) -> String {
        let policy = &self.settings.policy;
        let kind = policy.policy.name();
        let settings = serde_json::to_value(policy).unwrap_or_default();
        let figures = serde_json::to_value(economics).unwrap_or_default();
        format!(
            "{kind} {} {} {} {figures}",
            settings[kind],
            self.settings.worth.name(),
            info.slice_bytes.0
        )
    }

    fn new_zone_state(
        &mut self,
        zone: &Zone,
        look: &MachineSnapshot,
        saved: Option<&PersistedState>,
    ) -> Result<(), BackendError> {
        let Some(bound) = &self.bound_machine else { return Ok(()) };
        let key = ZoneKey::of(zone);
        if look.totals(zone).nr_switchable() == 0 {
            return Ok(());
        }
        let share = share_of(zone, look);
        let fresh = fresh_policy(&self.settings, bound, share).map_err(invalid)?;
        let remembered =
            saved.and_then(|saved| Some((saved, saved.zones.iter().find(|zone| zone.key == key)?)));
        let (mut policy, mut baseline, mut woken_by_restart) = (fresh.clone(), None, 0);
        let (mut events, mut traced_out, mut counted_windows) = (Vec::new(), 0.0, 0);
        if let Some((saved, remembered)) = remembered {
            if saved.basis == bound.basis {
                match SavedPolicy::restore(
                    &remembered.policy.to_text(),
                    self.settings.policy.policy,
                ) {
                    Ok(restored) => {
                        policy = restored;
                        policy.take_limits(&fresh);
                    }
                    Err(error) => warn!(zone = zone.name, %error, "learning again"),
                }
            }
            let same_boot = saved.boot == self.host.boot;
            // Another kind of backend counts other slices.
            let is_stock = saved.ledger_kind.as_ref().map(|kind| kind.stock);
            let same_backend = is_stock == Some(bound.kind.stock);
            let acted = saved.mode == self.settings.mode;
            if acted {
                (events, traced_out) = (remembered.events.clone(), remembered.dropped.0 as f64);
                events.push(PolicyEvent::Uncounted { time: self.time.saturating_sub(saved.time) });
                let of_mode = bound.ledgers.of(saved.mode);
                counted_windows = match of_mode.map_or(0, |ledger| ledger.windows) {
                    // A new ledger, in which the open window is still at risk.
                    0 => policy.risk_windows().saturating_sub(1),
                    _ => policy.risk_windows(),
                };
            }
            if !acted {
                policy.settle();
            } else if same_boot {
                baseline = remembered.baseline.filter(|_| same_backend);
            } else {
                // A reboot wakes everything, and no cache from before comes back.
                woken_by_restart = remembered.baseline.map_or(0, |left| left.off);
                policy.forget_dropped();
                traced_out = 0.0;
                for event in &mut events {
                    if let PolicyEvent::Finished { outcome, .. } = event {
                        outcome.dropped = Pages::ZERO;
                    }
                }
            }
        }
        let state = ZoneState {
            policy,
            share,
            baseline,
            events,
            traced_out,
            woken_by_restart,
            counted_windows,
            marks: None,
        };
        self.zone_states.insert(key, state);
        Ok(())
    }

    /// Whether settings fit the machine, if it has been read. Only the machine knows the size of
    /// slices, on which this depends.
    ///
    /// # Errors
    /// Why they do not fit, as a sentence.
    pub fn fits(&self, settings: &DaemonSettings) -> Result<(), String> {
        let Some(bound) =
            self.bound_machine.as_ref().filter(|_| settings.backend == self.settings.backend)
        else {
            return Ok(());
        };
        settings.policy.check(bound.info.slice_bytes).map_err(|error| error.to_string())?;
        settings.worth.economics(&bound.info).map(|_| ())
    }

    /// Takes new settings, which must fit. What was learned stays if the policy, its settings and
    /// the figures of energy are the same.
    pub fn set_settings(&mut self, settings: DaemonSettings) {
        let before = std::mem::replace(&mut self.settings, settings);
        let (mode, was) = (self.settings.mode, before.mode);
        self.metrics.set_mode(mode, self.settings.policy.policy.name());
        if mode != was {
            info!(from = %was, to = %mode, "the mode changes");
            self.simulated_offline = None;
            self.offline_slices.clear();
            for zone_state in self.zone_states.values_mut() {
                zone_state.policy.settle();
                zone_state.counted_windows = 0;
                zone_state.events.clear();
                zone_state.traced_out = 0.0;
                // Slices that were offline in one mode are not offline in the other.
                zone_state.baseline = None;
            }
            if let Some(bound) = &mut self.bound_machine {
                bound.ledgers.pause();
            }
        }
        if mode != was || self.settings.takers != before.takers {
            self.takers.settings_changed(mode != was);
        }
        self.rebind();
    }

    /// Works out the figures of the new settings. If they differ, policies and ledgers start over.
    fn rebind(&mut self) {
        let Some(old) = self.bound_machine.take() else { return };
        let info = &old.info;
        let economics = match self.settings.worth.economics(info) {
            Ok(economics) => economics,
            // The settings were checked for that; the next step reports it again.
            Err(error) => return warn!(error, "the energy profile cannot be used"),
        };
        let basis = self.basis(info, economics.as_ref());
        let kind = self.settings.worth.kind(info);
        if (&basis, &kind) == (&old.basis, &old.kind) {
            // Limits are not learned: what was learned stays with others.
            for zone_state in self.zone_states.values_mut() {
                if let Ok(fresh) = fresh_policy(&self.settings, &old, zone_state.share) {
                    zone_state.policy.take_limits(&fresh);
                }
            }
            self.bound_machine = Some(old);
            return;
        }
        if kind != old.kind {
            self.count_open_windows_again();
        }
        if basis != old.basis {
            info!("other settings of the policy, or other figures of energy: learning again");
            self.zone_states.clear();
        }
        let (on, observe) = old.ledgers.sums();
        let ledgers = self.ledgers(&kind, Some((Some(old.kind), on, observe)));
        self.bound_machine = Some(BoundMachine { economics, basis, kind, ledgers, ..old });
    }

    /// What an earlier run in mode observe would have done to the machine, if that still holds: in
    /// this boot, with the same settings and figures. A reboot wakes everything.
    pub fn saved_what_if(&self, info: &BackendInfo) -> Option<WhatIfMemory> {
        let saved = self.saved.as_ref().filter(|saved| saved.boot == self.host.boot)?;
        let slice_bytes = saved.what_if.slice_bytes(info.slice_bytes);
        let info = BackendInfo { slice_bytes, ..info.clone() };
        let economics = self.settings.worth.economics(&info).ok()?;
        (saved.basis == self.basis(&info, economics.as_ref())).then(|| saved.what_if.clone())
    }

    /// The state to save; none if the machine was never read and there was no saved state. The main
    /// loop fills in what it knows itself.
    pub fn persisted_state(&self) -> Option<PersistedState> {
        let Some(bound) = &self.bound_machine else { return self.saved.clone() };
        Some(PersistedState {
            boot: self.host.boot.clone(),
            time: self.time,
            mode: self.settings.mode,
            basis: bound.basis.clone(),
            slice_bytes: bound.info.slice_bytes,
            zones: self
                .zone_states
                .iter()
                .map(|(key, zone_state)| PersistedZone {
                    key: *key,
                    policy: zone_state.policy.save(),
                    baseline: zone_state.baseline,
                    events: zone_state.events.clone(),
                    dropped: Pages(zone_state.traced_out.round() as u64),
                })
                .collect(),
            wake_pending: None,
            backends: Vec::new(),
            what_if: WhatIfMemory::default(),
            ledger_kind: Some(bound.kind.clone()),
            earned: bound.ledgers.earned.tally(),
            would_earn: bound.ledgers.would_earn.tally(),
            earned_own: bound.ledgers.earned.own_cost,
            would_earn_own: bound.ledgers.would_earn.own_cost,
            earned_windows: Some(bound.ledgers.earned.windows),
            would_earn_windows: Some(bound.ledgers.would_earn.windows),
            work: self.work,
            would_wake: self.would_wake,
            prices: self.prices.persisted(),
            pools: self.takers.books(),
        })
    }
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
    BackendError::new(BackendErrorKind::Invalid, error)
}

/// The zone's share of all memory.
fn share_of(zone: &Zone, look: &MachineSnapshot) -> Ratio {
    let managed = look.zones.iter().map(|zone| zone.managed_pages).sum::<Pages>();
    Ratio(zone.managed_pages.share_of(managed))
}

/// A policy that has learned nothing, for a zone with this share of all memory.
fn fresh_policy(
    settings: &DaemonSettings,
    bound: &BoundMachine,
    share: Ratio,
) -> Result<AnyPolicy, PolicyConfigError> {
    let mut config = settings.policy.clone();
    config.limits = config.limits.share(share);
    let (slice, page) = (bound.info.slice_bytes, bound.info.page_bytes);
    AnyPolicy::new(&config, bound.economics.as_ref(), slice, page)
}
