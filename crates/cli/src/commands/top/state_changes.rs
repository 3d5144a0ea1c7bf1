//! Which slices changed their state from one look to the next.

use std::collections::BTreeMap;

use ramslice_types::{SliceId, SliceSnapshot, SliceState};
use serde::Serialize;

/// A slice that is in another state than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct StateChange {
    pub(super) slice: SliceId,
    pub(super) from: SliceState,
    pub(super) to: SliceState,
}

/// The states last seen.
#[derive(Default)]
pub(super) struct SliceStates(BTreeMap<SliceId, SliceState>);

impl SliceStates {
    /// What differs from the last time; nothing of slices seen for the first time.
    pub(super) fn update(&mut self, snapshot: &SliceSnapshot) -> Vec<StateChange> {
        let now = snapshot.slices.iter().map(|slice| (slice.id, slice.state));
        let changes = now
            .clone()
            .filter_map(|(slice, to)| {
                let from = *self.0.get(&slice)?;
                (from != to).then_some(StateChange { slice, from, to })
            })
            .collect();
        self.0 = now.collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(json: &str) -> SliceSnapshot {
        let slices = json
            .split(',')
            .enumerate()
            .map(|(at, state)| {
                format!(
                    r#"{{"id":{at},"state":"{state}","reason":"none","unreclaimable":false,
                    "backoff":false,"unmovable":false,"node":0,"zone":1,"present_pages":0,
                    "price_100cycles":0,"retry_ms":0,
                    "counters":{}}}"#,
                    serde_json::to_string(&ramslice_types::SliceCounters::default()).unwrap()
                )
            })
            .collect::<Vec<_>>();
        serde_json::from_str(&format!(
            r#"{{"event_seq":1,"monotonic_us":1,"slices":[{}]}}"#,
            slices.join(",")
        ))
        .unwrap()
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let mut states = SliceStates::default();
        assert_eq!(states.update(&snapshot("online,offline")), []);
        let changes = states.update(&snapshot("offline,offline,online"));
        let (from, to) = (SliceState::Online, SliceState::Offline);
        assert_eq!(changes, [StateChange { slice: SliceId(0), from, to }]);
    }
}
