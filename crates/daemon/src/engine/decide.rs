//! Lets the policies decide, and sends their requests.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ramslice_policy::{Observation, ObservationNeeds, Policy, PolicyEvent};
use ramslice_types::{Backend, CacheChoice, Pages, Request, RequestOp, RequestOutcome};
use tracing::{debug, info, warn};

use super::{DecisionEngine, RequestDeadlines, STOCK, STOCK_DEADLINE, ZoneDecision};
use crate::cache_watch::WatermarkStatus;
use crate::machine_snapshot::{MachineSnapshot, ZoneKey};
use crate::price_watch::{PriceOffer, PriceWatch};
use crate::status::{RequestStatus, ZoneStatus};
use crate::wake_attribution::WakeReason;

impl DecisionEngine {
    /// Lets the policy of one zone decide, and sends its requests until the deadlines.
    pub(super) fn decide(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
        index: usize,
        until: RequestDeadlines,
    ) {
        let key = ZoneKey::of(&look.zones[index]);
        let totals = look.totals(&look.zones[index]);
        let Some(zone_state) = self.zone_states.get_mut(&key) else { return };
        if totals.nr_slices == 0 || totals.nr_switchable() == 0 {
            zone_state.events.clear();
            return;
        }
        if zone_state.policy.needs() == ObservationNeeds::Rows {
            look.rows(key, &mut self.rows);
        }
        let events = std::mem::take(&mut zone_state.events);
        let mut decision = zone_state.policy.step(&Observation {
            time: self.time,
            totals,
            rows: &self.rows,
            events: &events,
        });
        self.rows.clear();
        let zone = &look.zones[index];
        if let Some(marks) = &decision.marks {
            let page = look.info.page_bytes;
            let before = zone_state.marks.take();
            zone_state.marks =
                Some(WatermarkStatus::after(before.as_ref(), &zone.name, marks, page));
            self.metrics.marks(zone, marks, page);
        }
        let watermarks = zone_state.marks.clone();
        self.metrics.forecast(zone, decision.forecast);
        let mut requests = Vec::new();
        let mut why = decision.why.to_string();
        let waits = match &self.guard_error {
            Some(error) => {
                Some(format!("no guard would wake slices when memory runs short: {error}"))
            }
            None => self.paused_until.map(|_| "tasks waited for memory a moment ago".to_owned()),
        };
        if let Some(reason) = waits.as_ref().filter(|_| !decision.requests.is_empty()) {
            why = format!("waits: {reason}; otherwise it {why}");
        }
        let mut to_send = decision.take_requests();
        while let Some(mut request) = to_send.next() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let wakes = request.op.wakes();
            let until = if wakes { until.wakes } else { until.others };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || waits.is_some() && !wakes {
                continue;
            }
            request.deadline = Some(left);
            let status = self.carry_out(backend, look, key, request);
            if status.slices_done == 0 {
                to_send.give_up_group();
            }
            requests.push(status);
        }
        debug!(zone = zone.name, node = zone.node.0, why, "decided");
        let status = ZoneStatus {
            node: zone.node.0,
            zone: zone.zone.0,
            name: zone.name.clone(),
            nr_slices: zone.nr_slices,
            nr_offline: zone.nr_offline,
            nr_empty: zone.nr_empty,
            why,
            requests,
            forecast: decision.forecast.map(Into::into),
            watermarks,
        };
        self.decisions.push(ZoneDecision { zone: status, switchable: totals.nr_switchable() });
    }

    /// Sends a request.
    pub(super) fn carry_out(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
        key: ZoneKey,
        mut request: Request,
    ) -> RequestStatus {
        if self.backend_kind == Some(STOCK) && !request.op.wakes() {
            // Before the deadline only a guard that needs the lock interrupts it.
            request.deadline = request.deadline.map(|deadline| deadline.min(STOCK_DEADLINE));
            request.max_slices = Some(1);
        }
        if !matches!(request.op, RequestOp::Offline(_) | RequestOp::Online(_)) {
            (request.node, request.zone) = (Some(key.node), Some(key.zone));
            if let Some(most) = self.settings.max_slices {
                request.max_slices =
                    Some(request.max_slices.map_or(most, |wanted| wanted.min(most)));
            }
        }
        let (mode, op, began) = (self.settings.mode, request.op, Instant::now());
        let imagined = self.simulated_offline.is_some();
        let result = backend.request(&request);
        self.metrics.request(mode, op, began.elapsed(), &result);
        if let Ok(outcome) = &result {
            self.failures.add(op, outcome);
        }
        let mut status = RequestStatus {
            op: op.name(),
            slice: if let RequestOp::Offline(id) | RequestOp::Online(id) = op {
                Some(id)
            } else {
                None
            },
            imagined,
            migrated: Pages::ZERO,
            dropped: Pages::ZERO,
            slices_done: 0,
            slices_failed: 0,
            reason: "none".to_owned(),
            error: None,
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                warn!(op = op.name(), %error, "a request could not be carried out");
                status.error = Some(error.to_string());
                RequestOutcome::default()
            }
        };
        if status.error.is_none() {
            let level = if imagined { "would have" } else { "has" };
            let zone = look.zones.iter().find(|zone| ZoneKey::of(zone) == key);
            info!(
                op = op.name(),
                node = key.node.0,
                zone = zone.map_or("", |zone| &zone.name),
                done = outcome.slices_done,
                failed = outcome.slices_failed,
                reason = outcome.reason.code(),
                "{level} carried out a request"
            );
        }
        if !imagined {
            self.requests_cost += outcome.price_measured;
            self.learn_prices(backend, look, op, &outcome);
        }
        status.slices_done = outcome.slices_done;
        status.slices_failed = outcome.slices_failed;
        (status.migrated, status.dropped) = (outcome.migrated, outcome.dropped);
        self.metrics.moved(mode, op, &outcome, look.info.slice_pages());
        status.reason = outcome.reason.code();
        self.count(op, &outcome);
        if let Some(zone_state) = self.zone_states.get_mut(&key) {
            // Only what goes by use leaves a trace by which the kernel counts its return.
            if request.cache == CacheChoice::Auto {
                zone_state.traced_out += outcome.dropped.0 as f64;
            }
            zone_state.events.push(PolicyEvent::Finished {
                op,
                outcome,
                max_slices: request.max_slices,
            });
        }
        status
    }

    /// Learns from a request about the kernel's prices.
    fn learn_prices(
        &mut self,
        backend: &dyn Backend,
        look: &MachineSnapshot,
        op: RequestOp,
        outcome: &RequestOutcome,
    ) {
        if op.wakes() || !self.prices.is_watching() {
            return;
        }
        let before = self.snapshot_after.take();
        let mut understood = false;
        if PriceWatch::can_learn_from(op, outcome) {
            match backend.snapshot() {
                Ok(after) => {
                    let before = before.as_ref().unwrap_or(&look.snapshot);
                    understood = self.prices.take(op, outcome, &before.slices, &after.slices);
                    self.snapshot_after = Some(after);
                }
                Err(error) => {
                    debug!(%error, "slices could not be read after a request");
                    self.prices.count_left_out();
                }
            }
        } else if outcome.slices_done == 0 && outcome.slices_failed == 0 {
            // Nothing was done, so there is nothing to learn.
            self.snapshot_after = before;
            return;
        } else {
            self.prices.count_left_out();
        }
        self.metrics.priced(understood);
    }

    /// What to do with the file that offers fitted prices.
    pub fn offer(&mut self) -> Option<PriceOffer> {
        self.prices.offer(&self.bound_machine.as_ref()?.info)
    }

    /// The watch over the kernel's prices.
    pub fn prices(&mut self) -> &mut PriceWatch {
        &mut self.prices
    }

    pub(super) fn count(&mut self, op: RequestOp, outcome: &RequestOutcome) {
        let done = u64::from(outcome.slices_done);
        if op.wakes() {
            self.work.woken_slices += done;
            self.metrics.woken(self.settings.mode, WakeReason::Policy, outcome.slices_done);
            return;
        }
        self.work.tried_slices += done + u64::from(outcome.slices_failed);
        self.work.emptied_slices += done;
        self.work.migrated_pages += outcome.migrated;
        self.work.dropped_pages += outcome.dropped;
        // Only debugfs shows where destinations came from. This takes the dearer source.
        self.work.target_free_pages += outcome.migrated;
        self.work.price_predicted += outcome.price_predicted;
        self.work.price_measured += outcome.price_measured;
    }
}
