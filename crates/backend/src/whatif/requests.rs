//! Carries out a request on a machine in memory: which slices, in which order, and what ends it.
//!
//! No page is ever pinned, prices are exact, and nothing takes time. What a slice needs to go, and
//! what becomes of its pages, is for the [`RuleSet`] to say.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ramslice_types::{
    BackendError, BackendErrorKind, Budget, CacheChoice, Pages, Price, Reason, Request, RequestOp,
    RequestOutcome, Slice, SliceId, SliceState,
};
use rustix::io::Errno;

use super::hotplug::HotplugRules;
use super::machine_copy::{MachineCopy, ZoneKey};
use super::patched::PatchedRules;

/// Slices in a row that do not fit, until the patched kernel gives a zone up.
const MOST_MISSES: u32 = 16;

/// What did not fit in a zone.
#[derive(Debug, Default)]
struct ZoneMisses {
    in_a_row: u32,
    /// So many free pages a slice cannot take along.
    too_free: Option<Pages>,
}

/// What a slice that went off took along.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PagesGone {
    /// Moved to other slices.
    pub(super) migrated: Pages,
    /// Clean cache that is no longer in memory.
    pub(super) dropped: Pages,
}

/// By whose rules slices go off.
#[derive(Debug)]
pub(super) enum RuleSet {
    Patched(PatchedRules),
    Hotplug(HotplugRules),
}

impl RuleSet {
    /// Those of the kernel that the machine runs.
    pub(super) fn of(machine: &MachineCopy) -> Self {
        match machine.headroom {
            Some(headroom) => Self::Hotplug(HotplugRules::new(machine, headroom)),
            None => Self::Patched(PatchedRules::default()),
        }
    }

    /// What emptying a slice costs.
    fn price(&self, machine: &MachineCopy, at: usize) -> Price {
        match self {
            Self::Patched(_) => machine.slice(at).price,
            Self::Hotplug(rules) => rules.price(machine, at),
        }
    }

    /// Why a slice that could be emptied stays on, if it does.
    fn refusal(&mut self, machine: &MachineCopy, at: usize) -> Option<Reason> {
        match self {
            Self::Patched(rules) => rules.refusal(machine, at),
            Self::Hotplug(rules) => rules.refusal(machine, at),
        }
    }

    fn switch_off(
        &mut self,
        machine: &mut MachineCopy,
        at: usize,
        cache: CacheChoice,
    ) -> PagesGone {
        match self {
            Self::Patched(rules) => rules.switch_off(machine, at, cache),
            Self::Hotplug(rules) => rules.switch_off(machine, at),
        }
    }

    /// Cheapest first; of equal prices the higher address. What is empty, the patched kernel takes
    /// by ascending address.
    fn sort(&self, machine: &MachineCopy, candidates: &mut [usize], only_empty: bool) {
        if only_empty && matches!(self, Self::Patched(_)) {
            candidates.sort_unstable();
        } else {
            candidates.sort_unstable_by_key(|&at| (machine.slice(at).price, Reverse(at)));
        }
    }

    fn errno(&self, reason: Reason) -> u32 {
        let errno = match (reason, self) {
            (Reason::OverBudget, _) => Errno::DQUOT,
            (Reason::AwakeReserve, Self::Hotplug(_)) => Errno::NOMEM,
            (Reason::NoRoom | Reason::AwakeReserve, _) => Errno::NOSPC,
            (Reason::Backoff, _) => Errno::AGAIN,
            _ => Errno::BUSY,
        };
        errno.raw_os_error().unsigned_abs()
    }
}

/// What a request did.
#[derive(Debug, Default)]
pub(crate) struct RequestResult {
    pub(crate) outcome: RequestOutcome,
    /// Slices that went off, in this order.
    pub(crate) offlined: Vec<(ZoneKey, SliceId)>,
    /// Slices that woke.
    pub(crate) woken: Vec<SliceId>,
}

/// Carries out `request` on `machine`. Of slices that are off, those of `wakeable` may wake, in
/// this order.
///
/// # Errors
/// If there is no such slice; the machine is as it was.
pub(crate) fn carry_out(
    machine: &mut MachineCopy,
    request: &Request,
    wakeable: &[SliceId],
) -> Result<RequestResult, BackendError> {
    let rules = RuleSet::of(machine);
    let mut run = RequestRun { machine, request, rules, result: RequestResult::default() };
    match request.op {
        RequestOp::Offline(id) => {
            let at = run.find(id)?;
            let result = run.offline(at);
            run.record_single(id, result);
        }
        RequestOp::Online(id) => {
            let at = run.find(id)?;
            let result = run.online(at, wakeable);
            run.record_single(id, result);
        }
        RequestOp::Compact => run.offline_cheapest(false),
        RequestOp::OfflineFree => run.offline_cheapest(true),
        RequestOp::OnlineAll => run.wake(wakeable),
    }
    let RequestRun { result, .. } = run;
    // As in the kernel: through emptying or waking to the new state.
    machine.update_totals(2 * (result.offlined.len() + result.woken.len()) as u64);
    Ok(result)
}

/// One request at work.
struct RequestRun<'a> {
    machine: &'a mut MachineCopy,
    request: &'a Request,
    rules: RuleSet,
    result: RequestResult,
}

impl RequestRun<'_> {
    fn find(&self, id: SliceId) -> Result<usize, BackendError> {
        self.machine.find(id).ok_or_else(|| {
            BackendError::new(BackendErrorKind::NotFound, format!("there is no slice {id}"))
        })
    }

    fn is_candidate(&self, slice: &Slice) -> bool {
        self.request.node.is_none_or(|node| node == slice.node)
            && self.request.zone.is_none_or(|zone| zone == slice.zone)
    }

    /// The answer to a request that names a slice.
    fn record_single(&mut self, id: SliceId, result: Result<(), Reason>) {
        let outcome = &mut self.result.outcome;
        outcome.last_slice = Some(id);
        if let Err(reason) = result {
            // In the wrong state, nothing was tried.
            outcome.slices_failed = u32::from(reason != Reason::State);
            outcome.reason = reason;
            outcome.status_errno = self.rules.errno(reason);
        }
    }

    /// Empties slices by ascending price until a limit ends it, which is an end like any other.
    /// The patched kernel gives a zone up after many slices in a row that do not fit.
    fn offline_cheapest(&mut self, only_empty: bool) {
        let slices = &self.machine.snapshot.slices;
        let fits = |slice: &Slice| self.is_candidate(slice) && (!only_empty || slice.is_empty());
        let mut candidates: Vec<usize> =
            (0..slices.len()).filter(|&at| fits(&slices[at])).collect();
        self.rules.sort(self.machine, &mut candidates, only_empty);
        let hotplug = matches!(self.rules, RuleSet::Hotplug(_));
        let mut full = Vec::new();
        let mut missed: BTreeMap<ZoneKey, ZoneMisses> = BTreeMap::new();
        for at in candidates {
            let most = self.request.max_slices.unwrap_or(u32::MAX);
            if self.result.outcome.slices_done >= most {
                break;
            }
            let key = ZoneKey::of_slice(self.machine.slice(at));
            if full.contains(&key) {
                continue;
            }
            let slice = self.machine.slice(at);
            let (free, was_empty) = (slice.counters.free, slice.is_empty());
            let taken = free + slice.composition(self.machine.frames()).movable;
            let of_zone = missed.entry(key).or_default();
            // Not tried, so that those behind it are, which are full.
            if of_zone.too_free.is_some_and(|too_free| free >= too_free) {
                continue;
            }
            let Err(reason) = self.offline(at) else {
                of_zone.in_a_row = 0;
                if !hotplug {
                    self.result.outcome.reason = Reason::None;
                }
                continue;
            };
            if !matches!(reason, Reason::OverBudget | Reason::AwakeReserve | Reason::NoRoom) {
                continue;
            }
            self.result.outcome.reason = reason;
            if reason == Reason::OverBudget || hotplug && reason == Reason::NoRoom {
                break;
            }
            if hotplug || only_empty {
                // No more of this zone; another may have some to spare.
                full.push(key);
                continue;
            }
            if reason == Reason::AwakeReserve {
                of_zone.too_free = Some(of_zone.too_free.map_or(taken, |most| most.min(taken)));
            }
            of_zone.in_a_row += u32::from(!was_empty);
            if of_zone.in_a_row == MOST_MISSES {
                full.push(key);
            }
        }
    }

    fn offline(&mut self, at: usize) -> Result<(), Reason> {
        let slice = self.machine.slice(at);
        let (id, key) = (slice.id, ZoneKey::of_slice(slice));
        match slice.state {
            SliceState::Online => {}
            SliceState::Quarantined => return Err(Reason::Quarantined),
            _ => return Err(Reason::State),
        }
        if slice.unreclaimable || slice.unmovable {
            let is_known = slice.reason != Reason::None;
            return Err(if is_known { slice.reason } else { Reason::Unmovable });
        }
        if slice.backoff && !self.request.ignore_backoff {
            return Err(Reason::Backoff);
        }
        let price = self.rules.price(self.machine, at);
        let outcome = &mut self.result.outcome;
        if let Budget::Limited(budget) = self.request.budget {
            let spent = if self.request.per_slice { Price::ZERO } else { outcome.price_predicted };
            if spent + price > budget {
                return Err(Reason::OverBudget);
            }
        }
        if let Some(reason) = self.rules.refusal(self.machine, at) {
            return Err(reason);
        }
        let gone = self.rules.switch_off(self.machine, at, self.request.cache);
        outcome.slices_done += 1;
        outcome.last_slice = Some(id);
        outcome.price_predicted += price;
        if !self.request.dry_run {
            outcome.price_measured += price;
            outcome.migrated += gone.migrated;
            outcome.dropped += gone.dropped;
        }
        self.result.offlined.push((key, id));
        Ok(())
    }

    fn online(&mut self, at: usize, wakeable: &[SliceId]) -> Result<(), Reason> {
        let slice = self.machine.slice(at);
        let id = slice.id;
        match slice.state {
            SliceState::Offline if wakeable.contains(&id) => {}
            SliceState::Quarantined => return Err(Reason::Quarantined),
            _ => return Err(Reason::State),
        }
        self.machine.switch_on(at);
        let outcome = &mut self.result.outcome;
        outcome.slices_done += 1;
        outcome.last_slice = Some(id);
        self.result.woken.push(id);
        Ok(())
    }

    fn wake(&mut self, wakeable: &[SliceId]) {
        for id in wakeable {
            let most = self.request.max_slices.unwrap_or(u32::MAX);
            if self.result.outcome.slices_done >= most {
                break;
            }
            let Some(at) = self.machine.find(*id) else { continue };
            if self.is_candidate(self.machine.slice(at)) {
                // One that is online already is none to wake.
                let _ = self.online(at, wakeable);
            }
        }
    }
}
