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
fn require(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), BrokenRule> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

fn answer<T>(result: Result<T, BackendError>) -> Result<T, BrokenRule> {
    result.map_err(|error| format!("{error} ({:?})", error.kind()))
}

fn slices(backend: &dyn Backend) -> Result<Vec<Slice>, BrokenRule> {
    Ok(answer(backend.snapshot())?.slices)
}

fn slice(backend: &dyn Backend, id: SliceId) -> Result<Slice, BrokenRule> {
    let found = slices(backend)?.into_iter().find(|slice| slice.id == id);
    found.ok_or_else(|| format!("slice {id} is gone"))
}

fn offline_ids(backend: &dyn Backend) -> Result<BTreeSet<u32>, BrokenRule> {
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
    answer(backend.request(&Request { ignore_backoff, ..Request::new(op) }))
}

fn is_near(a: Pages, b: Pages, settings: CheckSettings) -> bool {
    a.0.abs_diff(b.0) <= settings.tolerance.0
}

fn sums_agree(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let MachineState { info, zones, snapshot, .. } = answer(backend.machine())?;
    let ids: Vec<u32> = snapshot.slices.iter().map(|slice| slice.id.0).collect();
    require(ids.is_sorted_by(|a, b| a < b), || format!("ids do not ascend: {ids:?}"))?;
    require(info.nr_slices as usize == ids.len(), || {
        format!("{} slices, {} said", ids.len(), info.nr_slices)
    })?;
    require(info.nr_zones as usize == zones.len(), || {
        format!("{} zones, {} said", zones.len(), info.nr_zones)
    })?;
    let of_zones: Pages = zones.iter().map(|zone| zone.free_pages).sum();
    require(is_near(info.free_pages, of_zones, settings), || {
        format!("free: {} and {of_zones}", info.free_pages)
    })?;
    let of_zones: Pages = zones.iter().map(|zone| zone.offline_pages).sum();
    require(info.offline_pages == of_zones, || {
        format!("offline: {} and {of_zones}", info.offline_pages)
    })?;
    let of_zones: u32 = zones.iter().map(|zone| zone.nr_slices).sum();
    require(info.nr_slices == of_zones, || {
        format!("zones have {of_zones} slices of {}", info.nr_slices)
    })?;
    for zone in &zones {
        let own = || {
            snapshot
                .slices
                .iter()
                .filter(|slice| (slice.node, slice.zone) == (zone.node, zone.zone))
        };
        require(own().count() == zone.nr_slices as usize, || {
            format!("zone {}: {} slices", zone.name, own().count())
        })?;
        let free: Pages = own().map(|slice| slice.counters.free).sum();
        // What lies at a zone's end belongs to no slice of it, and is free at most.
        let whole = settings.tolerance == Pages::ZERO;
        require(!whole || free == zone.free_pages, || {
            format!("zone {}: {free} of its slices are free", zone.name)
        })?;
    }
    for slice in &snapshot.slices {
        let parts = slice.composition(info.slice_pages());
        let whole = info.slice_pages();
        require(parts.total() == whole, || {
            format!("slice {}: {} pages of {whole}", slice.id, parts.total())
        })?;
    }
    require(answer(backend.slice_bytes())? == info.slice_bytes, || "two slice sizes".to_owned())
}

fn json_leads_back(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let machine = answer(backend.machine())?;
    let text = serde_json::to_string(&machine).map_err(|error| error.to_string())?;
    let again: MachineState = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    // Times are whole microseconds in JSON.
    require(again.info == machine.info && again.snapshot.slices == machine.snapshot.slices, || text)
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
    let outcome = answer(backend.request(&Request { dry_run: true, ..Request::default() }))?;
    require(outcome.slices_done > 0, || format!("nothing would be done: {outcome:?}"))?;
    require(outcome.price_predicted > Price::ZERO, || "it would cost nothing".to_owned())?;
    let off = offline_ids(backend)?;
    require(off.is_empty(), || format!("{off:?} went off"))
}

fn no_budget(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let request = Request { budget: Budget::Limited(Price::ZERO), ..Request::default() };
    let outcome = answer(backend.request(&request))?;
    let reported =
        outcome.reason == Reason::OverBudget && outcome.is_ok() && outcome.slices_done == 0;
    require(reported && offline_ids(backend)?.is_empty(), || format!("{outcome:?}"))
}

fn off_and_on(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let chosen = candidate(backend)?;
    let before = answer(backend.info())?;
    let outcome = request(backend, RequestOp::Offline(chosen.id))?;
    require(outcome.is_ok() && outcome.slices_done == 1, || {
        format!("offline {}: {outcome:?}", chosen.id)
    })?;
    require(outcome.last_slice == Some(chosen.id), || format!("last: {:?}", outcome.last_slice))?;
    let now = slice(backend, chosen.id)?;
    require(now.state == SliceState::Offline, || format!("it is {}", now.state))?;
    let during = answer(backend.info())?;
    let gained = during.offline_pages - before.offline_pages;
    require(gained == chosen.present, || {
        format!("{gained} pages are off, the slice has {}", chosen.present)
    })?;
    let managed = (before.managed_pages, during.managed_pages);
    require(is_near(managed.0, managed.1, settings), || format!("memory: {managed:?}"))?;
    require(during.event_seq > before.event_seq, || "no event was counted".to_owned())?;
    let outcome = request(backend, RequestOp::Online(chosen.id))?;
    require(outcome.is_ok() && outcome.slices_done == 1, || {
        format!("online {}: {outcome:?}", chosen.id)
    })?;
    let now = slice(backend, chosen.id)?;
    require(now.state == SliceState::Online, || format!("it is {}", now.state))?;
    require((now.node, now.zone) == (chosen.node, chosen.zone), || {
        "it came back to another zone".to_owned()
    })?;
    let after = answer(backend.info())?;
    require(after.offline_pages == before.offline_pages, || format!("off: {}", after.offline_pages))
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
    require(refused(&outcome), || format!("on again: {outcome:?}"))?;
    request(backend, RequestOp::Offline(chosen))?;
    let outcome = request(backend, RequestOp::Offline(chosen))?;
    require(refused(&outcome), || format!("off again: {outcome:?}"))
}

fn refusals(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let Some(never) = slices(backend)?.into_iter().find(|slice| slice.unreclaimable) else {
        return Ok(());
    };
    require(never.reason != Reason::None, || {
        format!("slice {} can never be emptied, and no reason", never.id)
    })?;
    let outcome = request(backend, RequestOp::Offline(never.id))?;
    require(!outcome.is_ok() && outcome.reason == never.reason, || {
        format!("{outcome:?}, not {}", never.reason)
    })?;
    let now = slice(backend, never.id)?;
    require(now.state == SliceState::Online, || format!("it is {}", now.state))
}

fn compact_and_wake(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let outcome = answer(backend.request(&Request { max_slices: Some(2), ..Request::default() }))?;
    require(outcome.slices_done == 2, || format!("{outcome:?}"))?;
    let went = offline_ids(backend)?;
    require(went.len() == 2, || format!("{went:?} are off"))?;
    let outcome = request(backend, RequestOp::OnlineAll)?;
    require(outcome.is_ok() && outcome.slices_done == 2, || format!("online: {outcome:?}"))?;
    let left = offline_ids(backend)?;
    require(left.is_empty(), || format!("{left:?} are off"))
}

fn prices(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let offset = answer(backend.price_parameter(PriceParameter::Unreclaimable))?;
    for slice in slices(backend)? {
        let finite = slice.finite_price().is_some();
        require(!finite || slice.price < offset, || {
            format!("slice {}: {} is no price", slice.id, slice.price)
        })?;
    }
    Ok(())
}

fn parameters(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    for parameter in PriceParameter::ALL {
        let was = answer(backend.price_parameter(parameter))?;
        answer(backend.set_price_parameter(parameter, was + Price(7)))?;
        let now = answer(backend.price_parameter(parameter))?;
        answer(backend.set_price_parameter(parameter, was))?;
        require(now == was + Price(7), || {
            format!("{}: {now}, set to {}", parameter.name(), was + Price(7))
        })?;
    }
    Ok(())
}

fn contents(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    if !settings.contents {
        return Ok(());
    }
    let (chosen, frames) = (candidate(backend)?, answer(backend.info())?.slice_pages());
    let contents = answer(backend.contents(chosen.id, ContentsDetail::default()))?;
    require(contents.frames() == frames, || {
        format!("{} of {frames} page frames", contents.frames())
    })?;
    let gap = contents.runs.windows(2).find(|pair| pair[0].end() != pair[1].pfn);
    require(gap.is_none(), || format!("a gap: {gap:?}"))
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
        require(answer(seen)?.is_some(), || "nothing was seen for a minute".to_owned())
    })
}

fn unknown_node(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    match backend.request(&Request { node: Some(NodeId(4711)), ..Request::default() }) {
        Ok(outcome) => require(outcome.slices_done == 0, || format!("{outcome:?}")),
        Err(error) => require(
            matches!(error.kind(), BackendErrorKind::NotFound | BackendErrorKind::Invalid),
            || error.to_string(),
        ),
    }?;
    let off = offline_ids(backend)?;
    require(off.is_empty(), || format!("{off:?} went off"))
}

fn budget_per_slice(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let price = candidate(backend)?.price;
    let request = Request { budget: Budget::Limited(price), per_slice: true, ..Request::default() };
    let outcome = answer(backend.request(&request))?;
    let most = price * u64::from(outcome.slices_done + outcome.slices_failed);
    require(outcome.price_predicted <= most, || format!("{price} for each: {outcome:?}"))
}

fn packing(backend: &dyn Backend, settings: CheckSettings) -> Result<(), BrokenRule> {
    let needed = |machine: &MachineState| {
        let frames = machine.info.slice_pages();
        let parts = machine.snapshot.slices.iter().map(|slice| slice.composition(frames));
        parts.map(|parts| parts.movable + parts.unmovable).sum::<Pages>()
    };
    let before = answer(backend.machine())?;
    let outcome = answer(backend.request(&Request::default()))?;
    let after = answer(backend.machine())?;
    require(outcome.slices_done > 0, || format!("{outcome:?}"))?;
    let went = offline_ids(backend)?.len();
    require(went == outcome.slices_done as usize, || format!("{went} are off: {outcome:?}"))?;
    for zone in after.zones.iter().filter(|zone| zone.nr_offline > 0) {
        let awake = zone.free_pages + settings.tolerance;
        require(awake >= zone.awake_reserve_pages, || {
            format!("zone {}: {} awake", zone.name, zone.free_pages)
        })?;
    }
    let (was, is) = (needed(&before), needed(&after));
    require(is_near(was, is, settings), || format!("{was} pages were in use, {is} are"))?;
    let lost =
        after.snapshot.slices.iter().find(|s| s.unreclaimable && s.state == SliceState::Offline);
    require(lost.is_none(), || format!("{lost:?}"))?;
    if settings.tolerance > Pages::ZERO {
        return Ok(());
    }
    // Prices change while memory is packed, so that another request may find more; but it comes to
    // an end.
    for _ in 0..50 {
        if answer(backend.request(&Request::default()))?.slices_done == 0 {
            return Ok(());
        }
    }
    Err("packing does not come to an end".to_owned())
}

fn work_grows(backend: &dyn Backend, _: CheckSettings) -> Result<(), BrokenRule> {
    let before = match backend.work() {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => return Ok(()),
        before => answer(before)?,
    };
    let outcome = answer(backend.request(&Request { max_slices: Some(3), ..Request::default() }))?;
    let done = answer(backend.work())?.since(&before).ok_or("a counter went back")?;
    let counted = (done.emptied_slices, done.migrated_pages, done.dropped_pages);
    let reported = (u64::from(outcome.slices_done), outcome.migrated, outcome.dropped);
    require(counted == reported, || format!("{counted:?} counted, {reported:?} reported"))?;
    request(backend, RequestOp::OnlineAll)?;
    let woken = answer(backend.work())?.since(&before).ok_or("a counter went back")?.woken_slices;
    require(woken >= reported.0, || format!("{woken} woken of {}", reported.0))
}
