//! Granules: slices that the hardware switches as one. A granule saves only while all of its slices
//! are off, so they go off together or not at all.
//!
//! A granule is a candidate if each of its slices is off or can be emptied as far as is known. Its
//! price is that of the slices that are still on, what it earns that of all. Slices are requested
//! by id, the dearest of a granule first: that one is the likeliest to fail, and what it holds does
//! not go to those that follow. After a failure the rest of the granule is left out.
//!
//! What is off of a granule that is not complete stays off while it can still be completed. If that
//! failed twice, or one of the others cannot go off, what the governor had switched off wakes.

use ramslice_types::{Budget, CacheChoice, Price, Request, SliceId, SliceState, Worth};
use serde::{Deserialize, Serialize};

use super::dearest;
use super::offline_prices::{PRICE_ROOM, PriceMarkup};
use crate::decision::{PolicyDecision, offline, online};
use crate::decision_reason::DecisionReason;
use crate::economics::SliceEconomics;
use crate::observation::SliceRow;

/// A granule that was not completed rests for so long, in seconds; twice as long each time.
const FIRST_REST: f64 = 30.0;
/// The longest such rest, in seconds.
const LONGEST_REST: f64 = 3600.0;
/// After so many failures in a row, what is off of a granule wakes.
const FAILURES: u32 = 2;

/// What rows say of a granule.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct GranuleRow {
    pub(super) number: u32,
    /// Slices that there are rows of.
    seen: u32,
    off: u32,
    /// On their way to on or off.
    busy: u32,
    /// On and empty, or used, and can go off.
    pub(super) empty: u32,
    pub(super) used: u32,
    /// Expected cost of switching off what is on.
    pub(super) price: f64,
    /// The most that these requests may cost, and waking what they switch off.
    pub(super) most: f64,
}

impl GranuleRow {
    /// Slices that are still to go off.
    pub(super) fn takes(&self) -> u32 {
        self.empty + self.used
    }
}

/// The granules of an observation.
#[derive(Debug)]
pub(super) struct GranuleView<'a> {
    economics: SliceEconomics,
    markup: PriceMarkup,
    slices: u32,
    rows: &'a [SliceRow],
    /// By number.
    granules: Vec<GranuleRow>,
}

impl<'a> GranuleView<'a> {
    /// Nothing where slices are switched alone.
    pub(super) fn of(
        economics: &SliceEconomics,
        markup: &PriceMarkup,
        rows: &'a [SliceRow],
    ) -> Option<Self> {
        let slices = economics.granule_slices();
        if slices == 1 {
            return None;
        }
        let (economics, markup) = (*economics, markup.clone());
        let mut view = Self { economics, markup, slices, rows, granules: Vec::new() };
        let mut numbers: Vec<u32> =
            rows.iter().filter_map(|row| economics.granule_of(row.id)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        view.granules = numbers
            .into_iter()
            .map(|number| GranuleRow { number, ..GranuleRow::default() })
            .collect();
        for row in rows {
            let Some(number) = economics.granule_of(row.id) else { continue };
            let Ok(at) = view.granules.binary_search_by_key(&number, |row| row.number) else {
                continue;
            };
            let cost = view.cost(row);
            let granule = &mut view.granules[at];
            granule.seen += 1;
            match row.state {
                SliceState::Offline => granule.off += 1,
                SliceState::Emptying | SliceState::Waking => granule.busy += 1,
                SliceState::Online | SliceState::Quarantined => {}
            }
            if row.can_go_off() {
                *(if row.is_empty() { &mut granule.empty } else { &mut granule.used }) += 1;
                granule.price += cost;
                granule.most += cost * PRICE_ROOM + economics.waking.0;
            }
        }
        Some(view)
    }

    /// The expected cost of switching a slice off.
    fn cost(&self, row: &SliceRow) -> f64 {
        let counted = self.counted(row);
        if row.is_empty() {
            counted.max(self.economics.empty.0)
        } else {
            self.markup.of(counted).min(dearest(&self.economics))
        }
    }

    fn counted(&self, row: &SliceRow) -> f64 {
        self.economics.cost(row.price.unwrap_or_default()).0
    }

    fn get(&self, number: u32) -> GranuleRow {
        let found = self.granules.binary_search_by_key(&number, |row| row.number);
        found.map_or(GranuleRow { number, ..GranuleRow::default() }, |at| self.granules[at])
    }

    fn is_complete(&self, granule: &GranuleRow) -> bool {
        granule.off == self.slices
    }

    /// Not complete, and as far as is known it can be: none of its slices is missing or stays on,
    /// and the stake covers what it costs.
    fn can_be_completed(&self, granule: &GranuleRow) -> bool {
        granule.off < self.slices
            && granule.off + granule.takes() == self.slices
            && granule.price <= dearest(&self.economics) * f64::from(self.slices)
    }

    /// Granules that are off.
    pub(super) fn nr_complete(&self) -> u32 {
        self.granules.iter().map(|granule| u32::from(self.is_complete(granule))).sum()
    }

    /// Granules that can be completed, the cheapest first; of equal ones the higher first, as the
    /// kernel wakes the lowest.
    pub(super) fn candidates(&self, records: &GranuleRecords, now: f64) -> Vec<GranuleRow> {
        let may_go =
            |granule: &&GranuleRow| self.can_be_completed(granule) && !records.rests(granule, now);
        let mut found: Vec<_> = self.granules.iter().filter(may_go).copied().collect();
        found.sort_by(|one, other| {
            one.price.total_cmp(&other.price).then(other.number.cmp(&one.number))
        });
        found
    }

    fn slices_of(&self, number: u32) -> impl Iterator<Item = &'a SliceRow> + '_ {
        self.rows.iter().filter(move |row| self.economics.granule_of(row.id) == Some(number))
    }

    /// The requests that complete a granule; they are remembered as asked.
    fn requests(
        &self,
        number: u32,
        cache: CacheChoice,
        records: &mut GranuleRecords,
    ) -> Vec<Request> {
        let mut on: Vec<_> = self.slices_of(number).filter(|row| row.can_go_off()).collect();
        // What the first ones hold cannot go to those that are off then.
        on.sort_by_key(|row| (row.is_empty(), std::cmp::Reverse((row.price, row.id))));
        let request = |row: &SliceRow| {
            let cost = self.cost(row) * PRICE_ROOM;
            let budget = Budget::Limited(self.economics.price(Worth(cost)) + Price(1));
            records.asked.push(AskedSlice {
                slice: row.id,
                granule: number,
                counted: self.counted(row),
                used: !row.is_empty(),
            });
            Request { budget, cache, ..offline(row.id) }
        };
        on.into_iter().map(request).collect()
    }

    /// Wakes so many slices: those of granules that save nothing anyway come first.
    pub(super) fn wake(&self, most: usize) -> Vec<Request> {
        let off = self.rows.iter().filter(|row| row.state == SliceState::Offline);
        let mut off: Vec<_> = off
            .map(|row| {
                let granule = self.get(self.economics.granule_of(row.id).unwrap_or_default());
                (self.is_complete(&granule), granule.number, row.id)
            })
            .collect();
        off.sort_unstable();
        off.into_iter().take(most).map(|(_, _, slice)| online(slice)).collect()
    }
}

/// What the governor remembers of granules of which it has switched slices off.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct GranuleRecords {
    /// By number.
    own: Vec<OwnGranule>,
    /// Slices that the last requests were for.
    asked: Vec<AskedSlice>,
}

/// A granule of which the governor has switched slices off, or tried to.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct OwnGranule {
    number: u32,
    /// What was spent since all of it was on, or since it was complete.
    spent: f64,
    /// Whether part of that was for a used slice.
    used: bool,
    /// Since when it is complete.
    since: Option<f64>,
    /// Tries in a row that did not complete it.
    failures: u32,
    /// It is left alone until then.
    rest_until: f64,
}

/// A slice that was requested.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct AskedSlice {
    slice: SliceId,
    granule: u32,
    /// Its price by counters, as worth.
    pub(super) counted: f64,
    /// It was not empty.
    pub(super) used: bool,
}

/// What became of the granules since the last step.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct GranuleChanges {
    /// What was spent on each that was completed, and whether on a used slice.
    pub(super) completed: Vec<(f64, bool)>,
    /// Slices that woke too early, and what their granules had not earned.
    pub(super) early: Vec<(u32, f64)>,
}

impl GranuleRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.asked.is_empty()
    }

    fn of(&mut self, number: u32) -> &mut OwnGranule {
        let at = match self.own.binary_search_by_key(&number, |own| own.number) {
            Ok(at) => at,
            Err(at) => {
                self.own.insert(at, OwnGranule { number, ..OwnGranule::default() });
                at
            }
        };
        &mut self.own[at]
    }

    /// Whether it failed lately, or so often that what is off of it has to wake first.
    fn rests(&self, granule: &GranuleRow, now: f64) -> bool {
        let found = self.own.binary_search_by_key(&granule.number, |own| own.number);
        found.is_ok_and(|at| {
            let own = &self.own[at];
            now < own.rest_until || own.failures >= FAILURES && granule.off > 0
        })
    }

    /// A request for a slice came to its end and cost so much; what was known of it when it was
    /// requested.
    pub(super) fn finished(&mut self, slice: SliceId, cost: f64) -> Option<AskedSlice> {
        let at = self.asked.iter().position(|asked| asked.slice == slice)?;
        let asked = self.asked.remove(at);
        let own = self.of(asked.granule);
        own.spent += cost;
        own.used |= asked.used;
        Some(asked)
    }

    /// The slice stayed on, and so its granule.
    pub(super) fn failed(&mut self, asked: &AskedSlice, now: f64) {
        let own = self.of(asked.granule);
        own.failures = own.failures.saturating_add(1);
        let rest = FIRST_REST * 2.0_f64.powi(own.failures.min(16).cast_signed());
        own.rest_until = now + rest.min(LONGEST_REST);
    }

    /// Takes note of the granules as they are. `asked_at` is when the last requests were sent, and
    /// of slices that woke too early, when and how many.
    pub(super) fn update(
        &mut self,
        view: &GranuleView<'_>,
        asked_at: f64,
        woken: (f64, u32),
    ) -> GranuleChanges {
        let (mut changes, (time, mut early)) = (GranuleChanges::default(), woken);
        let (saving, waking) = (view.economics.saving.0, view.economics.waking.0);
        self.asked.clear();
        for own in &mut self.own {
            let granule = view.get(own.number);
            match own.since {
                None if view.is_complete(&granule) => {
                    changes.completed.push((own.spent, own.used));
                    (own.since, own.failures, own.rest_until) = (Some(asked_at), 0, 0.0);
                }
                Some(since) if !view.is_complete(&granule) => {
                    // One that wakes costs what all would have saved.
                    let on = (view.slices - granule.off).min(early);
                    early -= on;
                    let earned = saving * f64::from(view.slices) * (time - since).max(0.0);
                    let missing = own.spent + f64::from(on) * waking - earned;
                    if on > 0 && missing > 0.0 {
                        changes.early.push((on, missing));
                    }
                    (own.since, own.spent, own.used) = (None, 0.0, false);
                }
                _ => {}
            }
            if granule.off == 0 {
                (own.spent, own.used) = (0.0, false);
            }
        }
        self.own.retain(|own| {
            let recent = own.failures > 0 && asked_at < own.rest_until + LONGEST_REST;
            recent || own.since.is_some() || view.get(own.number).off > 0
        });
        changes
    }

    /// Wakes what is off of granules that cannot be completed, or could not twice, before anything
    /// else is done.
    pub(super) fn give_back(&self, view: &GranuleView<'_>, decision: &mut PolicyDecision) {
        let in_vain = |own: &&OwnGranule| {
            let granule = view.get(own.number);
            let may_be = view.can_be_completed(&granule) && own.failures < FAILURES;
            granule.off > 0 && granule.busy == 0 && !view.is_complete(&granule) && !may_be
        };
        let off = |own: &OwnGranule| {
            view.slices_of(own.number).filter(|row| row.state == SliceState::Offline)
        };
        let wakes = self.own.iter().filter(in_vain).flat_map(off).map(|row| online(row.id));
        let mut requests: Vec<_> = wakes.collect();
        if requests.is_empty() {
            return;
        }
        if decision.requests.is_empty() {
            let slices = u32::try_from(requests.len()).unwrap_or(u32::MAX);
            decision.why = DecisionReason::GivesBack { slices };
        }
        let alone = std::iter::repeat_n(1, requests.len());
        decision.groups = alone.chain(std::mem::take(&mut decision.groups)).collect();
        requests.append(&mut decision.requests);
        decision.requests = requests;
    }

    /// Requests that complete these granules, and how many of them each takes.
    pub(super) fn requests(
        &mut self,
        view: &GranuleView<'_>,
        granules: &[u32],
        cache: CacheChoice,
    ) -> (Vec<Request>, Vec<usize>) {
        let (mut requests, mut groups) = (Vec::new(), Vec::new());
        self.asked.clear();
        for &number in granules {
            let more = view.requests(number, cache, self);
            groups.push(more.len());
            requests.extend(more);
        }
        (requests, groups)
    }
}

#[cfg(test)]
mod tests {
    use ramslice_types::{Bytes, Pages};

    use super::*;
    use crate::economics::GranuleLayout;
    use crate::economics::tests::thesis;

    /// Two granules of two used slices.
    fn rows() -> Vec<SliceRow> {
        let row = |id| SliceRow {
            id: SliceId(id),
            state: SliceState::Online,
            price: Some(Price(1_000_000)),
            present: Pages(100),
            free: Pages(10),
            freeable: Pages::ZERO,
        };
        (0..4).map(row).collect()
    }

    fn economics() -> SliceEconomics {
        let slice = Bytes(1 << 30);
        thesis(slice).switched_as_one(Some(Bytes(2 << 30)), slice, GranuleLayout::Neighbours)
    }

    /// The records of a granule that went off at second 10, for 3 J.
    fn completed() -> (GranuleRecords, Vec<SliceRow>) {
        let (mut records, mut rows, markup) =
            (GranuleRecords::default(), rows(), PriceMarkup::default());
        let view = GranuleView::of(&economics(), &markup, &rows).unwrap();
        let (requests, groups) = records.requests(&view, &[1], CacheChoice::Auto);
        assert_eq!((requests.len(), groups), (2, vec![2]));
        for slice in [2, 3] {
            assert!(records.finished(SliceId(slice), 1.5).is_some_and(|asked| asked.used));
            rows[slice as usize].state = SliceState::Offline;
        }
        let view = GranuleView::of(&economics(), &markup, &rows).unwrap();
        assert_eq!(view.nr_complete(), 1);
        let changes = records.update(&view, 10.0, (40.0, 0));
        assert_eq!(changes.completed, [(3.0, true)]);
        assert_eq!(records.update(&view, 40.0, (70.0, 0)), GranuleChanges::default());
        (records, rows)
    }

    /// What the records say when one slice of it is on, of which so many woke by themselves.
    fn woken(woken: u32, time: f64) -> Vec<(u32, f64)> {
        let (mut records, mut rows) = completed();
        rows[3].state = SliceState::Online;
        let view = GranuleView::of(&economics(), &PriceMarkup::default(), &rows).unwrap();
        assert_eq!(view.nr_complete(), 0);
        records.update(&view, 70.0, (time, woken)).early
    }

    #[test]
    fn one_slice_that_wakes_early_costs_what_its_whole_granule_has_not_earned() {
        let economics = economics();
        let lost = woken(1, 110.0);
        let missing = 3.0 + economics.waking.0 - 100.0 * 2.0 * economics.saving.0;
        assert!(missing > 0.0 && lost.len() == 1 && lost[0].0 == 1, "{lost:?}");
        assert!((lost[0].1 - missing).abs() < 1e-9, "{lost:?}, not {missing} J");
        // Both slices earn until then.
        let pays = 10.0 + (3.0 + economics.waking.0) / (2.0 * economics.saving.0);
        assert_eq!((woken(1, pays - 1.0).len(), woken(1, pays + 1.0)), (1, vec![]));
        // Another program woke it.
        assert_eq!(woken(0, 110.0), []);
    }

    #[test]
    fn what_is_remembered_of_a_granule_goes_with_what_is_off_of_it() {
        let (mut records, _) = completed();
        let all = rows();
        let view = GranuleView::of(&economics(), &PriceMarkup::default(), &all).unwrap();
        records.update(&view, 70.0, (100.0, 2));
        assert!(records.is_empty(), "{records:?}");
    }
}
