//! A machine as it would be with larger slices: neighbours count as one.

use std::collections::BTreeMap;

use ramslice_types::{Bytes, Reason, Slice, SliceCounters, SliceId, SliceState};

use super::machine_copy::{MachineCopy, ZoneKey};

impl MachineCopy {
    /// How many of its slices are one of this size; `None` if it is no multiple, or not larger.
    pub(super) fn slices_in(&self, size: Bytes) -> Option<u32> {
        let own = self.info.slice_bytes.0;
        let is_larger = own > 0 && size.0 > own && size.0.is_multiple_of(own);
        is_larger.then(|| u32::try_from(size.0 / own).ok()).flatten()
    }

    /// Shows its slices by `ratio` as one.
    ///
    /// One that lacks a part, or spans two zones, can never be emptied, as on a kernel that boots
    /// with slices of this size. Of slices that take turns at addresses, those whose turn is the
    /// same are neighbours. The price is the sum: the cost of a slice itself counts as often
    /// as it has parts.
    pub(super) fn merge_slices(&mut self, ratio: u32) {
        self.info.slice_bytes = self.info.slice_bytes * u64::from(ratio);
        let ways = self.info.ways();
        let mut parts: BTreeMap<SliceId, Vec<Slice>> = BTreeMap::new();
        for part in std::mem::take(&mut self.snapshot.slices) {
            let (group, turn) = (part.id.0 / ways, part.id.0 % ways);
            parts.entry(SliceId(group / ratio * ways + turn)).or_default().push(part);
        }
        let slices: Vec<Slice> =
            parts.iter().map(|(id, parts)| merged(*id, parts, ratio)).collect();
        self.info.nr_slices = slices.len() as u32;
        for zone in &mut self.zones {
            let key = ZoneKey::of(zone);
            let count = |wanted: &dyn Fn(&Slice) -> bool| {
                let mine = slices.iter().filter(|slice| ZoneKey::of_slice(slice) == key);
                mine.filter(|slice| wanted(slice)).count() as u32
            };
            zone.nr_slices = count(&|_| true);
            zone.nr_empty = count(&Slice::is_empty);
            zone.nr_offline = count(&|slice| slice.state == SliceState::Offline);
            zone.nr_quarantined = count(&|slice| slice.state == SliceState::Quarantined);
            zone.nr_held = count(&|slice| slice.held);
        }
        self.snapshot.slices = slices;
    }
}

/// These slices as one.
fn merged(id: SliceId, parts: &[Slice], ratio: u32) -> Slice {
    let first = &parts[0];
    let any = |is: fn(&Slice) -> bool| parts.iter().any(is);
    // What is not wholly off is on; a part that is out of use has all of it so.
    let state = if any(|part| part.state == SliceState::Quarantined) {
        SliceState::Quarantined
    } else if parts.iter().all(|part| part.state == first.state) {
        first.state
    } else {
        SliceState::Online
    };
    let mut one = Slice {
        id,
        state,
        unreclaimable: any(|part| part.unreclaimable),
        backoff: any(|part| part.backoff),
        unmovable: any(|part| part.unmovable),
        held: any(|part| part.held),
        counters: SliceCounters::default(),
        ..first.clone()
    };
    let keeps = parts
        .iter()
        .find(|part| part.unreclaimable)
        .or_else(|| parts.iter().find(|part| part.reason != Reason::None));
    one.reason = keeps.map_or(Reason::None, |part| part.reason);
    for part in parts {
        one.counters += part.counters;
    }
    one.present = parts.iter().map(|part| part.present).sum();
    one.price.0 = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.price.0));
    one.retry_ms = parts.iter().map(|part| part.retry_ms).max().unwrap_or(0);
    let never = if parts.len() < ratio as usize {
        Some(Reason::Hole)
    } else if parts.iter().any(|part| ZoneKey::of_slice(part) != ZoneKey::of_slice(first)) {
        Some(Reason::ZoneEnd)
    } else {
        None
    };
    if let Some(reason) = never {
        (one.unreclaimable, one.reason) = (true, reason);
    }
    one
}
