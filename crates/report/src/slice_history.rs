//! What each slice was over time, kept as changes: a day of 16384 slices, looked at each second,
//! would otherwise take 11 GB, though next to nothing of it changes from one second to the next.

use std::collections::BTreeMap;
use std::iter::Peekable;

use ramslice_types::PageKind;

/// A slice that is another than at the moment before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceChange {
    /// The place of the moment in [`RecordingData::moments`](crate::RecordingData::moments).
    pub(crate) moment: usize,
    pub(crate) slice: u32,
    /// What keeps it from being off, or what it is; none if it is gone.
    pub(crate) kind: Option<PageKind>,
}

/// All changes, by moment and slice: five bytes for each.
#[derive(Debug, Clone, Default)]
pub struct SliceChanges {
    /// For each moment the number of changes up to it.
    ends: Vec<usize>,
    slices: Vec<u32>,
    kinds: Vec<Option<PageKind>>,
}

impl SliceChanges {
    pub(crate) fn iter(&self) -> impl Iterator<Item = SliceChange> + '_ {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).enumerate().flat_map(move |(moment, (&begin, &end))| {
            (begin..end).map(move |at| SliceChange {
                moment,
                slice: self.slices[at],
                kind: self.kinds[at],
            })
        })
    }
}

/// Collects changes, moment by moment.
#[derive(Debug, Default)]
pub(crate) struct SliceHistory {
    changes: SliceChanges,
    /// The slices of the last moment, by id.
    last: Vec<(u32, PageKind)>,
}

impl SliceHistory {
    /// Adds the slices of the next moment.
    pub(crate) fn push(&mut self, mut slices: Vec<(u32, PageKind)>) {
        slices.sort_unstable_by_key(|(slice, _)| *slice);
        let changes = &mut self.changes;
        let mut change = |slice, kind| {
            changes.slices.push(slice);
            changes.kinds.push(kind);
        };
        let mut before = self.last.iter().copied().peekable();
        for &(slice, kind) in &slices {
            while let Some((gone, _)) = before.next_if(|(other, _)| *other < slice) {
                change(gone, None);
            }
            let was = before.next_if(|(other, _)| *other == slice).map(|(_, kind)| kind);
            if was != Some(kind) {
                change(slice, Some(kind));
            }
        }
        for (gone, _) in before {
            change(gone, None);
        }
        self.last = slices;
        changes.ends.push(changes.slices.len());
    }

    /// All changes so far.
    pub(crate) fn finish(self) -> SliceChanges {
        self.changes
    }
}

/// Goes through moments in their order, and says what each slice is.
pub(crate) struct SliceReplay<I: Iterator> {
    left: Peekable<I>,
    kinds: BTreeMap<u32, PageKind>,
}

impl<I: Iterator<Item = SliceChange>> SliceReplay<I> {
    pub(crate) fn new(changes: I) -> Self {
        Self { left: changes.peekable(), kinds: BTreeMap::new() }
    }

    /// The slices at this moment, which is none before the last one.
    pub(crate) fn at(&mut self, moment: usize) -> &BTreeMap<u32, PageKind> {
        while let Some(change) = self.left.next_if(|change| change.moment <= moment) {
            match change.kind {
                Some(kind) => self.kinds.insert(change.slice, kind),
                None => self.kinds.remove(&change.slice),
            };
        }
        &self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_at_each_moment_what_they_were_also_after_they_came_and_went() {
        use PageKind::{Free, Movable, Offline};
        let moments = [
            vec![(0, Movable), (1, Free), (2, Free)],
            vec![(0, Movable), (2, Offline)],
            vec![],
            vec![(0, Movable), (1, Free), (3, Free)],
        ];
        let mut history = SliceHistory::default();
        for slices in &moments {
            history.push(slices.clone());
        }
        let changes = history.finish();
        let mut replay = SliceReplay::new(changes.iter());
        for (at, slices) in moments.iter().enumerate() {
            assert_eq!(
                replay.at(at).iter().map(|(&id, &kind)| (id, kind)).collect::<Vec<_>>(),
                *slices
            );
        }
        // Moments may be left out.
        assert_eq!(SliceReplay::new(changes.iter()).at(3).len(), 3);
    }

    #[test]
    fn a_machine_that_rests_takes_no_memory_however_often_it_is_looked_at() {
        let mut history = SliceHistory::default();
        for _ in 0..1000 {
            history.push((0..1000).map(|slice| (slice, PageKind::Movable)).collect());
        }
        assert_eq!(history.finish().iter().count(), 1000);
    }
}
