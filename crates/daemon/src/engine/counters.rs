//! What is counted between two looks: stalls, work, what happens on the whole machine, and what the
//! daemon itself costs.

use std::collections::BTreeMap;
use std::time::Duration;

use ramslice_backend::VmstatCounters;
use ramslice_policy::PolicyEvent;
use ramslice_types::{BackendInfo, Pages, Price, Zone};
use tracing::debug;

use super::DecisionEngine;
use crate::host_files;
use crate::machine_snapshot::{MachineSnapshot, ZoneKey};

/// Seconds in which the count of pages that were dropped falls to 1/e: their files may be gone.
const FORGOTTEN: f64 = 86_400.0;

/// This share of what was looked up. Distances are of the whole machine, and left out.
fn share_of_lookups(event: &PolicyEvent, share: f64) -> PolicyEvent {
    let part = |pages: Pages| Pages((pages.0 as f64 * share).round() as u64);
    match *event {
        PolicyEvent::LookedUp { lookups, absent, brought, returned, .. } => PolicyEvent::LookedUp {
            lookups: part(lookups),
            absent: part(absent),
            brought: part(brought),
            returned: part(returned),
            distances: None,
        },
        ref other => other.clone(),
    }
}

impl DecisionEngine {
    /// Counts how long tasks have waited for memory since the last step.
    pub(super) fn count_stalls(&mut self) {
        let total = self.host.pressure.as_deref().and_then(host_files::waited_for_memory);
        let now = total.map(|total| (total, self.time));
        let before = std::mem::replace(&mut self.stalls, now);
        let (Some((total, time)), Some((total_before, time_before))) = (now, before) else {
            return;
        };
        let event = PolicyEvent::Stalled {
            waited: total.saturating_sub(total_before),
            within: time.saturating_sub(time_before),
        };
        for zone_state in self.zone_states.values_mut() {
            zone_state.events.push(event.clone());
        }
    }

    /// Counts how long the processors have worked since the last step.
    pub(super) fn count_work(&mut self) {
        // For the one policy that asks: the kernel adds up much for that file.
        let wanted = self.settings.policy.periodic.wait_while_busy_seconds.is_some();
        let path = self.host.processors.as_deref().filter(|_| wanted);
        let now = path.and_then(host_files::processors_worked);
        let before = std::mem::replace(&mut self.worked, now);
        let (Some((busy, all)), Some((busy_before, all_before))) = (now, before) else { return };
        let event = PolicyEvent::Worked {
            busy: busy.saturating_sub(busy_before),
            within: all.saturating_sub(all_before),
        };
        for zone_state in self.zone_states.values_mut() {
            zone_state.events.push(event.clone());
        }
    }

    /// The ledgers go by a clock that stands still while the machine is suspended, and the policies
    /// by one that does not.
    pub(super) fn count_suspension(&mut self) {
        let Some(now) = self.host.suspended.map(|suspended| suspended()) else { return };
        let Some(before) = self.suspended.replace(now) else { return };
        let time = now.saturating_sub(before);
        // Two clocks are never read at the same moment.
        if time < Duration::from_millis(1) {
            return;
        }
        for zone_state in self.zone_states.values_mut() {
            zone_state.events.push(PolicyEvent::Uncounted { time });
        }
    }

    /// Counts windows that governors have opened in this step.
    pub(super) fn count_windows(&mut self) {
        let mode = self.settings.mode;
        let Some(bound) = &mut self.bound_machine else { return };
        let Some(ledger) = bound.ledgers.of_mut(mode) else { return };
        for zone_state in self.zone_states.values_mut() {
            let opened = zone_state.policy.risk_windows();
            ledger.windows += opened.saturating_sub(zone_state.counted_windows);
            zone_state.counted_windows = opened;
        }
    }

    /// Pages that were dropped count less as time goes by.
    fn forget_dropped(&mut self) {
        let elapsed = self.time.saturating_sub(std::mem::replace(&mut self.forgotten, self.time));
        let keep = (-elapsed.as_secs_f64() / FORGOTTEN).exp();
        for zone_state in self.zone_states.values_mut() {
            zone_state.traced_out *= keep;
        }
    }

    /// Counts what happens on the whole machine.
    pub(super) fn count_host(&mut self, look: &MachineSnapshot) {
        self.forget_dropped();
        let Some(path) = self.host.vmstat.as_deref() else { return };
        let counters = match VmstatCounters::read(path) {
            Ok(counters) => counters,
            Err(error) => return debug!(%error, "counters of the machine cannot be read"),
        };
        self.count_lookups(&counters, look);
        let count = |name| counters.get(name).unwrap_or(0);
        let now = [count("pgfault"), counters.allocated().0, count("workingset_refault_file")];
        let Some(before) = self.vmstat.replace(now) else { return };
        let mut since = [0; 3];
        for (since, (now, before)) in since.iter_mut().zip(now.into_iter().zip(before)) {
            *since = now.saturating_sub(before);
        }
        let [faults, allocated, refaults] = since;
        // They stand for what the patched kernel does at each page.
        if !look.info.is_stock() {
            self.work.page_faults += faults;
            self.work.allocated_pages += Pages(allocated);
        }
        // Cache that was read again after any process dropped it. Of these, at most as many pages
        // are ours as we dropped.
        let mut refaults = Pages(refaults);
        for zone_state in self.zone_states.values_mut() {
            let ours = refaults.min(Pages(zone_state.traced_out.round() as u64));
            if ours > Pages::ZERO {
                zone_state.traced_out = (zone_state.traced_out - ours.0 as f64).max(0.0);
                refaults = refaults - ours;
                zone_state.events.push(PolicyEvent::Refaulted { pages: ours });
            }
        }
    }

    /// Counts what the page cache was asked for since the last step.
    fn count_lookups(&mut self, counters: &VmstatCounters, look: &MachineSnapshot) {
        let counted = self.cache.look(counters, self.host.sysfs.as_deref(), self.time);
        self.metrics.cache_ratios(self.cache.status().ratios.as_ref());
        let Some(counted) = counted else { return };
        self.metrics.looked_up(&counted.lookups);
        // By the cache of each zone, and what is missing of it: otherwise each zone of several
        // would take all that a disk brings for its own.
        let cached = |zone: &Zone| {
            let state = self.zone_states.get(&ZoneKey::of(zone));
            let missing = state.and_then(|state| state.policy.untraced_pages()).unwrap_or(0.0);
            (ZoneKey::of(zone), look.totals(zone).cache.0 as f64 + missing)
        };
        let sizes: BTreeMap<ZoneKey, f64> = look.zones.iter().map(cached).collect();
        let all: f64 = sizes.values().sum();
        for (key, zone_state) in &mut self.zone_states {
            let event = if zone_state.policy.untraced_pages().is_some() {
                let size = sizes.get(key).copied().unwrap_or(0.0);
                share_of_lookups(&counted.event, if all > 0.0 { size / all } else { 0.0 })
            } else {
                counted.event.clone()
            };
            zone_state.events.push(event);
        }
    }

    /// Counts the CPU time of this daemon beyond its requests, mostly for reading the machine. The
    /// answers to requests have their own.
    pub(super) fn count_own_time(&mut self, info: &BackendInfo) {
        let requested = std::mem::take(&mut self.requests_cost);
        let Some(now) = self.host.own_time.map(|own_time| own_time()) else { return };
        let before = std::mem::replace(&mut self.own_time, now);
        let Some(clock) = info.clock() else { return };
        let cycles = now.saturating_sub(before).as_secs_f64() * clock.0;
        let own = Price((cycles / 100.0) as u64) - requested;
        let Some(ledger) = self.ledger() else { return };
        ledger.own_cost += own;
        self.work.price_measured += own;
    }
}
