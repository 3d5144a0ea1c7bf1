//! The machine, the settings and the memory: what is decided with, and whether what was learned still fits.

use ramslice_backend::WhatIfMemory;
use ramslice_policy::{AnyPolicy, SavedPolicy, SliceEconomics};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Pages, PriceParameter, Zone,
};
use tracing::{info, warn};

use super::{Attached, Engine, Mind};
use crate::energy_ledger::{Kind, ModeLedgers, Sums};
use crate::machine_snapshot::{Look, ZoneKey};
use crate::persisted_state::{Memory, ZoneMemory};
use crate::settings::Settings;

impl Engine {
    /// Sees to it that there are policies and books for this machine.
    pub(super) fn attach(
        &mut self,
        backend: &dyn Backend,
        look: &Look,
    ) -> Result<(), BackendError> {
        let info = &look.info;
        let prices = PriceParameter::ALL
            .into_iter()
            .filter_map(|parameter| Some((parameter, backend.price_parameter(parameter).ok()?)))
            .collect();
        let same = self.attached.take_if(|attached| {
            let machine = |info: &BackendInfo| (info.slice_bytes, info.page_bytes, info.is_stock());
            machine(&attached.info) == machine(info)
        });
        if let Some(mut attached) = same {
            let kind = self.settings.energy.kind(info);
            if kind != attached.kind {
                let (on, observe) = attached.ledgers.sums();
                attached.ledgers = self.ledgers(&kind, Some((Some(attached.kind), on, observe)));
                attached.kind = kind;
                self.tell_notes(info);
            }
            // Power drivers are loaded, prices installed and memory plugged in meanwhile.
            self.attached = Some(Attached { info: info.clone(), prices, ..attached });
        } else {
            let economics = self.settings.energy.economics(info.slice_bytes, info.page_bytes);
            let economics =
                economics.map_err(|error| BackendError::new(BackendErrorKind::Invalid, error))?;
            let mut before = None;
            if let Some(saved) = &self.saved {
                let on = (saved.earned, saved.earned_own);
                before = Some((saved.books.clone(), on, (saved.would_earn, saved.would_earn_own)));
                self.work = saved.work;
                self.would_wake = saved.would_wake;
            } else if let Some(old) = &self.attached {
                let (on, observe) = old.ledgers.sums();
                before = Some((Some(old.kind.clone()), on, observe));
            }
            let kind = self.settings.energy.kind(info);
            let ledgers = self.ledgers(&kind, before);
            let basis = self.basis(info, &economics);
            self.minds.clear();
            self.attached =
                Some(Attached { info: info.clone(), economics, basis, prices, kind, ledgers });
            self.tell_notes(info);
            info!(
                slices = info.nr_slices,
                slice = %info.slice_bytes,
                power_driver = info.power_driver,
                mode = %self.settings.mode,
                "the machine is seen"
            );
        }
        let saved = self.saved.take();
        if let Some(saved) = &saved {
            let fits = self.attached.as_ref().is_some_and(|attached| attached.basis == saved.basis);
            if !fits {
                info!(
                    "what was learned was for other settings, other figures of energy or another size of slices: learning anew"
                );
            }
        }
        for zone in &look.zones {
            if !self.minds.contains_key(&ZoneKey::of(zone)) {
                self.new_mind(zone, look, saved.as_ref())?;
            }
        }
        Ok(())
    }

    fn tell_notes(&self, info: &BackendInfo) {
        for note in self.settings.energy.notes(info) {
            warn!("{note}");
        }
    }

    /// The books of modes on and observe. Sums of before go on if they are of this kind.
    fn ledgers(&mut self, kind: &Kind, before: Option<(Option<Kind>, Sums, Sums)>) -> ModeLedgers {
        let (mut earned, mut would_earn) = (Sums::default(), Sums::default());
        match before {
            Some((of, on, observe)) if of.as_ref() == Some(kind) => {
                (earned, would_earn) = (on, observe)
            }
            Some((of, on, observe)) => {
                let mut gone = vec![on];
                // In thought there is a driver always
                if of.as_ref().is_some_and(|of| of.with(kind.switched) == *kind) {
                    would_earn = observe;
                } else {
                    gone.push(observe);
                    // They are shown with the joules of mode observe.
                    self.would_wake = 0;
                }
                if gone.iter().any(|sums| *sums != Sums::default()) {
                    let of = of.map_or_else(|| "an unknown kind".to_owned(), |of| of.to_string());
                    let seconds = gone.iter().map(|sums| sums.0.elapsed().as_secs()).sum::<u64>();
                    info!(%of, now = %kind, seconds, "joules so far are of another kind: new books");
                }
            }
            None => {}
        }
        ModeLedgers::new(kind, earned, would_earn)
    }

    /// What learning rests on: other policies, figures or slices learn other things.
    fn basis(&self, info: &BackendInfo, economics: &SliceEconomics) -> String {
        let policy = &self.settings.policy;
        let kind = policy.policy.name();
        let settings = serde_json::to_value(policy).unwrap_or_default();
        let figures = serde_json::to_value(economics).unwrap_or_default();
        format!(
            "{kind} {} {} {} {figures}",
            settings[kind],
            self.settings.energy.name(),
            info.slice_bytes.0
        )
    }

    fn new_mind(
        &mut self,
        zone: &Zone,
        look: &Look,
        saved: Option<&Memory>,
    ) -> Result<(), BackendError> {
        let Some(attached) = &self.attached else { return Ok(()) };
        let key = ZoneKey::of(zone);
        if look.totals(zone).nr_switchable() == 0 {
            return Ok(());
        }
        let (slice, page) = (attached.info.slice_bytes, attached.info.page_bytes);
        let fresh = AnyPolicy::new(&self.settings.policy, &attached.economics, slice, page)
            .map_err(|error| BackendError::new(BackendErrorKind::Invalid, error))?;
        let remembered =
            saved.and_then(|saved| Some((saved, saved.zones.iter().find(|zone| zone.key == key)?)));
        let (mut policy, mut left, mut woken_by_restart) = (fresh, None, 0);
        let (mut events, mut dropped) = (Vec::new(), Pages::ZERO);
        if let Some((saved, remembered)) = remembered {
            if saved.basis == attached.basis {
                match SavedPolicy::restore(
                    &remembered.policy.to_text(),
                    self.settings.policy.policy,
                ) {
                    Ok(restored) => policy = restored,
                    Err(error) => warn!(zone = zone.name, %error, "learning anew"),
                }
            }
            let same_boot = saved.boot == self.host.boot;
            let acted = saved.mode == self.settings.mode;
            if acted {
                (events, dropped) = (remembered.events.clone(), remembered.dropped);
            }
            if !acted {
                policy.settle();
            } else if same_boot {
                left = remembered.left;
            } else {
                // A restart of the machine wakes everything.
                woken_by_restart = remembered.left.map_or(0, |left| left.off);
            }
        }
        self.minds.insert(key, Mind { policy, left, events, dropped, woken_by_restart });
        Ok(())
    }

    /// Whether settings fit the machine that is decided for, if there is one. What depends on the size of its slices is
    /// known here alone.
    ///
    /// # Errors
    /// Why they do not, in words.
    pub fn fits(&self, settings: &Settings) -> Result<(), String> {
        let Some(attached) =
            self.attached.as_ref().filter(|_| settings.backend == self.settings.backend)
        else {
            return Ok(());
        };
        let (slice, page) = (attached.info.slice_bytes, attached.info.page_bytes);
        settings.policy.check(slice).map_err(|error| error.to_string())?;
        settings.energy.economics(slice, page).map(|_| ())
    }

    /// Takes other settings, which fit. What was learned stays if they have the same policy, settings of it, and figures
    /// of energy.
    pub fn set_settings(&mut self, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        let (mode, was) = (self.settings.mode, before.mode);
        self.metrics.set_mode(mode, self.settings.policy.policy.name());
        if mode != was {
            info!(from = %was, to = %mode, "the mode changes");
            self.simulated = None;
            self.off.clear();
            for mind in self.minds.values_mut() {
                mind.policy.settle();
                mind.events.clear();
                mind.dropped = Pages::ZERO;
                // What is off in thought is not off in truth, and the other way round.
                mind.left = None;
            }
            if let Some(attached) = &mut self.attached {
                attached.ledgers.pause();
            }
        }
        self.reattach();
    }

    /// Figures of the new settings, and policies and books that begin anew if those are others.
    fn reattach(&mut self) {
        let Some(old) = self.attached.take() else { return };
        let info = &old.info;
        let economics = match self.settings.energy.economics(info.slice_bytes, info.page_bytes) {
            Ok(economics) => economics,
            // Settings were checked for that; the next look says it again.
            Err(error) => return warn!(error, "the profile does not work out"),
        };
        let basis = self.basis(info, &economics);
        let kind = self.settings.energy.kind(info);
        if (&basis, &kind) == (&old.basis, &old.kind) {
            self.attached = Some(old);
            return;
        }
        if basis != old.basis {
            info!("other settings of the policy, or other figures of energy: learning anew");
            self.minds.clear();
        }
        let (on, observe) = old.ledgers.sums();
        let ledgers = self.ledgers(&kind, Some((Some(old.kind), on, observe)));
        self.attached = Some(Attached { economics, basis, kind, ledgers, ..old });
    }

    /// What an earlier run would have done to the machine, if it still holds: in this boot, with
    /// the same settings and figures. A restart of the machine wakes everything.
    pub fn remembered_what_if(&self, info: &BackendInfo) -> Option<WhatIfMemory> {
        let saved = self.saved.as_ref().filter(|saved| saved.boot == self.host.boot)?;
        let economics = self.settings.energy.economics(info.slice_bytes, info.page_bytes).ok()?;
        (saved.basis == self.basis(info, &economics)).then(|| saved.shadow.clone())
    }

    /// What is to be remembered; nothing as long as the machine was never seen and nothing was remembered before.
    pub fn memory(&self) -> Option<Memory> {
        let Some(attached) = &self.attached else { return self.saved.clone() };
        Some(Memory {
            boot: self.host.boot.clone(),
            time: self.time,
            mode: self.settings.mode,
            basis: attached.basis.clone(),
            slice_bytes: attached.info.slice_bytes,
            zones: self
                .minds
                .iter()
                .map(|(key, mind)| ZoneMemory {
                    key: *key,
                    policy: mind.policy.save(),
                    left: mind.left,
                    events: mind.events.clone(),
                    dropped: mind.dropped,
                })
                .collect(),
            // Whoever saves it knows what is owed.
            owing: None,
            shadow: WhatIfMemory::default(),
            books: Some(attached.kind.clone()),
            earned: attached.ledgers.earned.tally(),
            would_earn: attached.ledgers.would_earn.tally(),
            earned_own: attached.ledgers.earned.own,
            would_earn_own: attached.ledgers.would_earn.own,
            work: self.work,
            would_wake: self.would_wake,
            prices: self.prices.memory(),
        })
    }
}
