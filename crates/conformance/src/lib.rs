//! Rules that every [`Backend`] keeps: one suite for the patched kernel, stock kernels, saved and
//! simulated machines.
//!
//! [`check`] wants a machine with nothing offline, two slices that can be emptied and, where there
//! is one, a slice that can never be. It switches slices offline and online again and leaves all of
//! them online. On a live machine other programs run, so sums are compared with a tolerance that
//! the caller gives.

use std::collections::BTreeSet;
use std::time::Duration;

use ramslice_types::{
    Backend, BackendError, BackendErrorKind, Budget, ContentsDetail, MachineState, NodeId, Pages,
    Price, PriceParameter, Reason, Request, RequestOp, RequestOutcome, Slice, SliceId, SliceState,
};

/// How to check a backend.
#[derive(Debug, Clone, Copy)]
pub struct CheckSettings {
    /// How far two sums over memory may be apart when others use it meanwhile; zero of a machine at
    /// rest.
    pub tolerance: Pages,
    /// It can report the contents of a slice, page by page.
    pub contents: bool,
    /// Its slices' states are seen to change while another thread switches them.
    pub events: bool,
}

/// A broken rule, as a sentence.
pub type BrokenRule = String;

type ConformanceCheck = fn(&dyn Backend, CheckSettings) -> Result<(), BrokenRule>;

/// The rules, each by its name.
const RULES: &[(&str, ConformanceCheck)] = &[
    ("sums agree with what they are sums of", sums_agree),
    ("what is saved as JSON is read back as it was", json_leads_back),
    ("a slice that is not there is not found", unknown_slices),
    ("a dry run changes nothing", dry_run),
    ("a budget of nothing empties nothing", no_budget),
    ("a slice goes off, is counted, and comes back", off_and_on),
    ("what is off cannot go off, what is on cannot come on", wrong_state),
    ("what can never be emptied is refused with its reason", refusals),
    ("compacting stops at as many slices as allowed, and waking all wakes all", compact_and_wake),
    ("the price of a slice that can be emptied is finite, of others not", prices),
    ("price parameters are what they were set to", parameters),
    ("the pages of a slice are all there and in order", contents),
    ("a change of state is an event", events),
    ("a node that is not there has no slices", unknown_node),
    ("what each slice may cost at most is kept", budget_per_slice),
    ("packing keeps the awake reserve and what is in use", packing),
    ("what was done is counted, and only grows", work_grows),
];

/// Checks every rule; those that are broken, with their name.
pub fn check(backend: &dyn Backend, settings: CheckSettings) -> Vec<(&'static str, BrokenRule)> {
    let broken = |(name, rule): &(&'static str, ConformanceCheck)| {
        let result = rule(backend, settings);
        // The next rule begins with everything on, whatever became of this one.
        let restored =
            backend.request(&Request::new(RequestOp::OnlineAll)).map_err(|error| error.to_string());
        result.and(restored.map(drop)).err().map(|why| (*name, why))
    };
    RULES.iter().filter_map(broken).collect()
}

/// How many rules there are.
pub fn rules() -> usize {
    RULES.len()
}

/// `Err` with the sentence unless it holds.
fn holds(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), BrokenRule> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

fn said<T>(result: Result<T, BackendError>) -> Result<T, BrokenRule> {
    result.map_err(|error| format!("{error} ({:?})", error.kind()))
}

fn slices(backend: &dyn Backend) -> Result<Vec<Slice>, BrokenRule> {
    Ok(said(backend.snapshot())?.slices)
}

fn slice(backend: &dyn Backend, id: SliceId) -> Result<Slice, BrokenRule> {
    let found = slices(backend)?.into_iter().find(|slice| slice.id == id);
    found.ok_or_else(|| format!("slice {id} is gone"))
}

fn off(backend: &dyn Backend) -> Result<BTreeSet<u32>, BrokenRule> {
    let off = |slice: &Slice| slice.state == SliceState::Offline;
    Ok(slices(backend)?.iter().filter(|slice| off(slice)).map(|slice| slice.id.0).collect())
}

/// The cheapest slice that can be emptied.
fn candidate(backend: &dyn Backend) -> Result<Slice, BrokenRule> {
    let fits = |slice: &Slice| slice.state == SliceState::Online && slice.finite_price().is_some();
    let found = slices(backend)?.into_iter().filter(fits).min_by_key(|slice| slice.price);
    found.ok_or_else(|| "there is no slice that can be emptied".to_owned())
}

fn request(backend: &dyn Backend, op: RequestOp) -> Result<RequestOutcome, BrokenRule> {
    // Waking has nothing to leave alone for a while, and knows no such wish.
    let ignore_backoff = !op.wakes();
    said(backend.request(&Request { ignore_backoff, ..Request::new(op) }))
}

fn near(a: Pages, b: Pages, settings: CheckSettings) -> bool {
    a.0.abs_diff(b.0) <= settings.tolerance.0
}

fn sums_agree(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let MachineState { info, zones, snapshot, .. } = said(backend.machine())?;
    let ids: Vec<u32> = snapshot.slices.iter().map(|slice| slice.id.0).collect();
    holds(ids.is_sorted_by(|a, b| a < b), || format!("ids do not ascend: {ids:?}"))?;
    holds(info.nr_slices as usize == ids.len(), || {
        format!("{} slices, {} said", ids.len(), info.nr_slices)
    })?;
    holds(info.nr_zones as usize == zones.len(), || {
        format!("{} zones, {} said", zones.len(), info.nr_zones)
    })?;
    let of_zones: Pages = zones.iter().map(|zone| zone.free_pages).sum();
    holds(near(info.free_pages, of_zones, settings), || {
        format!("free: {} and {of_zones}", info.free_pages)
    })?;
    let of_zones: Pages = zones.iter().map(|zone| zone.offline_pages).sum();
    holds(info.offline_pages == of_zones, || {
        format!("offline: {} and {of_zones}", info.offline_pages)
    })?;
    let of_zones: u32 = zones.iter().map(|zone| zone.nr_slices).sum();
    holds(info.nr_slices == of_zones, || {
        format!("zones have {of_zones} slices of {}", info.nr_slices)
    })?;
    for zone in &zones {
        let own = || {
            snapshot
                .slices
                .iter()
                .filter(|slice| (slice.node, slice.zone) == (zone.node, zone.zone))
        };
        holds(own().count() == zone.nr_slices as usize, || {
            format!("zone {}: {} slices", zone.name, own().count())
        })?;
        let free: Pages = own().map(|slice| slice.counters.free).sum();
        // What lies at a zone's end belongs to no slice of it, and is free at most.
        let whole = settings.tolerance == Pages::ZERO;
        holds(!whole || free == zone.free_pages, || {
            format!("zone {}: {free} of its slices are free", zone.name)
        })?;
    }
    for slice in &snapshot.slices {
        let parts = slice.composition(info.slice_pages());
        let whole = info.slice_pages();
        holds(parts.total() == whole, || {
            format!("slice {}: {} pages of {whole}", slice.id, parts.total())
        })?;
    }
    holds(said(backend.slice_bytes())? == info.slice_bytes, || "two slice sizes".to_owned())
}

fn json_leads_back(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let machine = said(backend.machine())?;
    let text = serde_json::to_string(&machine).map_err(|error| error.to_string())?;
    let again: MachineState = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    // Times are whole microseconds in JSON.
    holds(again.info == machine.info && again.snapshot.slices == machine.snapshot.slices, || text)
}

fn unknown_slices(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let none = SliceId(u32::MAX);
    for op in [RequestOp::Offline(none), RequestOp::Online(none)] {
        match backend.request(&Request::new(op)) {
            Err(error) if error.kind() == BackendErrorKind::NotFound => {}
            other => return Err(format!("{op:?}: {other:?}")),
        }
    }
    match backend.contents(none, ContentsDetail::default()) {
        Err(error)
            if matches!(
                error.kind(),
                BackendErrorKind::NotFound | BackendErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        other => Err(format!("contents: {other:?}")),
    }
}

fn dry_run(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let outcome = said(backend.request(&Request { dry_run: true, ..Request::default() }))?;
    holds(outcome.slices_done > 0, || format!("nothing would be done: {outcome:?}"))?;
    holds(outcome.price_predicted > Price::ZERO, || "it would cost nothing".to_owned())?;
    let off = off(backend)?;
    holds(off.is_empty(), || format!("{off:?} went off"))
}

fn no_budget(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let request = Request { budget: Budget::Limited(Price::ZERO), ..Request::default() };
    let outcome = said(backend.request(&request))?;
    let told = outcome.reason == Reason::OverBudget && outcome.is_ok() && outcome.slices_done == 0;
    holds(told && off(backend)?.is_empty(), || format!("{outcome:?}"))
}

fn off_and_on(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let chosen = candidate(backend)?;
    let before = said(backend.info())?;
    let outcome = request(backend, RequestOp::Offline(chosen.id))?;
    holds(outcome.is_ok() && outcome.slices_done == 1, || {
        format!("offline {}: {outcome:?}", chosen.id)
    })?;
    holds(outcome.last_slice == Some(chosen.id), || format!("last: {:?}", outcome.last_slice))?;
    let now = slice(backend, chosen.id)?;
    holds(now.state == SliceState::Offline, || format!("it is {}", now.state))?;
    let during = said(backend.info())?;
    let gained = during.offline_pages - before.offline_pages;
    holds(gained == chosen.present, || {
        format!("{gained} pages are off, the slice has {}", chosen.present)
    })?;
    let managed = (before.managed_pages, during.managed_pages);
    holds(near(managed.0, managed.1, settings), || format!("memory: {managed:?}"))?;
    holds(during.event_seq > before.event_seq, || "no event was counted".to_owned())?;
    let outcome = request(backend, RequestOp::Online(chosen.id))?;
    holds(outcome.is_ok() && outcome.slices_done == 1, || {
        format!("online {}: {outcome:?}", chosen.id)
    })?;
    let now = slice(backend, chosen.id)?;
    holds(now.state == SliceState::Online, || format!("it is {}", now.state))?;
    holds((now.node, now.zone) == (chosen.node, chosen.zone), || {
        "it came back to another zone".to_owned()
    })?;
    let after = said(backend.info())?;
    holds(after.offline_pages == before.offline_pages, || format!("off: {}", after.offline_pages))
}

fn wrong_state(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let chosen = candidate(backend)?.id;
    let refused = |outcome: &RequestOutcome| {
        outcome.reason == Reason::State
            && !outcome.is_ok()
            && outcome.slices_failed == 0
            && outcome.slices_done == 0
    };
    let outcome = request(backend, RequestOp::Online(chosen))?;
    holds(refused(&outcome), || format!("on again: {outcome:?}"))?;
    request(backend, RequestOp::Offline(chosen))?;
    let outcome = request(backend, RequestOp::Offline(chosen))?;
    holds(refused(&outcome), || format!("off again: {outcome:?}"))
}

fn refusals(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let Some(never) = slices(backend)?.into_iter().find(|slice| slice.unreclaimable) else {
        return Ok(());
    };
    holds(never.reason != Reason::None, || {
        format!("slice {} can never be emptied, and no reason", never.id)
    })?;
    let outcome = request(backend, RequestOp::Offline(never.id))?;
    holds(!outcome.is_ok() && outcome.reason == never.reason, || {
        format!("{outcome:?}, not {}", never.reason)
    })?;
    let now = slice(backend, never.id)?;
    holds(now.state == SliceState::Online, || format!("it is {}", now.state))
}

fn compact_and_wake(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let outcome = said(backend.request(&Request { max_slices: Some(2), ..Request::default() }))?;
    holds(outcome.slices_done == 2, || format!("{outcome:?}"))?;
    let went = off(backend)?;
    holds(went.len() == 2, || format!("{went:?} are off"))?;
    let outcome = request(backend, RequestOp::OnlineAll)?;
    holds(outcome.is_ok() && outcome.slices_done == 2, || format!("online: {outcome:?}"))?;
    let left = off(backend)?;
    holds(left.is_empty(), || format!("{left:?} are off"))
}

fn prices(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let offset = said(backend.price_parameter(PriceParameter::Unreclaimable))?;
    for slice in slices(backend)? {
        let finite = slice.finite_price().is_some();
        holds(!finite || slice.price < offset, || {
            format!("slice {}: {} is no price", slice.id, slice.price)
        })?;
    }
    Ok(())
}

fn parameters(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    for parameter in PriceParameter::ALL {
        let was = said(backend.price_parameter(parameter))?;
        said(backend.set_price_parameter(parameter, was + Price(7)))?;
        let now = said(backend.price_parameter(parameter))?;
        said(backend.set_price_parameter(parameter, was))?;
        holds(now == was + Price(7), || {
            format!("{}: {now}, set to {}", parameter.name(), was + Price(7))
        })?;
    }
    Ok(())
}

fn contents(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    if !settings.contents {
        return Ok(());
    }
    let (chosen, frames) = (candidate(backend)?, said(backend.info())?.slice_pages());
    let contents = said(backend.contents(chosen.id, ContentsDetail::default()))?;
    holds(contents.frames() == frames, || {
        format!("{} of {frames} page frames", contents.frames())
    })?;
    let gap = contents.runs.windows(2).find(|pair| pair[0].end() != pair[1].pfn);
    holds(gap.is_none(), || format!("a gap: {gap:?}"))
}

fn events(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    if !settings.events {
        return Ok(());
    }
    let chosen = candidate(backend)?.id;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| backend.wait_event(Duration::from_mins(1)));
        // Until the other thread has noticed; it may begin to wait late.
        while !waiting.is_finished() {
            request(backend, RequestOp::Offline(chosen))?;
            request(backend, RequestOp::Online(chosen))?;
            std::thread::sleep(Duration::from_millis(300));
        }
        let seen = waiting.join().map_err(|_| "it panicked".to_owned())?;
        holds(said(seen)?.is_some(), || "nothing was seen for a minute".to_owned())
    })
}

fn unknown_node(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    match backend.request(&Request { node: Some(NodeId(4711)), ..Request::default() }) {
        Ok(outcome) => holds(outcome.slices_done == 0, || format!("{outcome:?}")),
        Err(error) => holds(
            matches!(error.kind(), BackendErrorKind::NotFound | BackendErrorKind::Invalid),
            || error.to_string(),
        ),
    }?;
    let off = off(backend)?;
    holds(off.is_empty(), || format!("{off:?} went off"))
}

fn budget_per_slice(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let price = candidate(backend)?.price;
    let request = Request { budget: Budget::Limited(price), per_slice: true, ..Request::default() };
    let outcome = said(backend.request(&request))?;
    let most = price * u64::from(outcome.slices_done + outcome.slices_failed);
    holds(outcome.price_predicted <= most, || format!("{price} for each: {outcome:?}"))
}

fn packing(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let needed = |machine: &MachineState| {
        let frames = machine.info.slice_pages();
        let parts = machine.snapshot.slices.iter().map(|slice| slice.composition(frames));
        parts.map(|parts| parts.movable + parts.unmovable).sum::<Pages>()
    };
    let before = said(backend.machine())?;
    let outcome = said(backend.request(&Request::default()))?;
    let after = said(backend.machine())?;
    holds(outcome.slices_done > 0, || format!("{outcome:?}"))?;
    let went = off(backend)?.len();
    holds(went == outcome.slices_done as usize, || format!("{went} are off: {outcome:?}"))?;
    for zone in after.zones.iter().filter(|zone| zone.nr_offline > 0) {
        let awake = zone.free_pages + settings.tolerance;
        holds(awake >= zone.awake_reserve_pages, || {
            format!("zone {}: {} awake", zone.name, zone.free_pages)
        })?;
    }
    let (was, is) = (needed(&before), needed(&after));
    holds(near(was, is, settings), || format!("{was} pages were in use, {is} are"))?;
    let lost =
        after.snapshot.slices.iter().find(|s| s.unreclaimable && s.state == SliceState::Offline);
    holds(lost.is_none(), || format!("{lost:?}"))?;
    if settings.tolerance > Pages::ZERO {
        return Ok(());
    }
    // Prices change while memory is packed, so that another request may find more; but it comes to
    // an end.
    for _ in 0..50 {
        if said(backend.request(&Request::default()))?.slices_done == 0 {
            return Ok(());
        }
    }
    Err("packing does not come to an end".to_owned())
}

fn work_grows(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let before = match backend.work() {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => return Ok(()),
        before => said(before)?,
    };
    let outcome = said(backend.request(&Request { max_slices: Some(3), ..Request::default() }))?;
    let done = said(backend.work())?.since(&before).ok_or("a counter went back")?;
    let counted = (done.emptied_slices, done.migrated_pages, done.dropped_pages);
    let told = (u64::from(outcome.slices_done), outcome.migrated, outcome.dropped);
    holds(counted == told, || format!("{counted:?} counted, {told:?} reported"))?;
    request(backend, RequestOp::OnlineAll)?;
    let woken = said(backend.work())?.since(&before).ok_or("a counter went back")?.woken_slices;
    holds(woken >= told.0, || format!("{woken} woken of {}", told.0))
}
