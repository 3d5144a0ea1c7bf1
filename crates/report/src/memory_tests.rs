//! What a report keeps in memory of a day.

use std::io::{self, Write};
use std::rc::Rc;

use ramslice_types::PageKind;

use crate::tests::{all, attempt, figure, moment};
use crate::*;

/// Keeps the length of the longest piece that was written to it.
struct LongestWrite(usize);

impl Write for LongestWrite {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 = self.0.max(data.len());
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_page_never_has_the_rows_of_many_changes_in_memory() {
    let mut runs = all();
    runs.recorded.truncate(1);
    let one = Rc::make_mut(&mut runs.recorded[0]);
    one.moments =
        (0..2000).map(|at| MachineMoment { seconds: f64::from(at), ..moment(at % 10) }).collect();
    let mut history = crate::slice_history::SliceHistory::default();
    for at in 0..2000 {
        let kind = if at % 2 == 0 { PageKind::Free } else { PageKind::Movable };
        history.push((0..20).map(|slice| (slice, kind)).collect());
    }
    one.slice_changes = history.finish();
    one.attempts = (0..40_000).map(|at| attempt(f64::from(at) / 20.0, 1, true, 100, 10)).collect();
    let all = figures(&runs);
    for (id, rows) in [("slices", 40_000), ("repair-moved", 40_000), ("repair-share", 40_000)] {
        let data = figure(&all, id);
        assert_eq!(data.csv().unwrap().lines().count(), 1 + rows, "{id}");
        let mut longest = LongestWrite(0);
        data.data().unwrap().write(&mut longest).unwrap();
        assert!(longest.0 < 100, "{id}: {}", longest.0);
    }
    let mut longest = LongestWrite(0);
    page(&PageHeader::default(), &all, &mut longest).unwrap();
    assert!(longest.0 < 500_000, "{}", longest.0);
}

#[test]
fn figures_share_what_is_recorded_because_a_day_of_it_is_large() {
    let runs = all();
    let figures = figures(&runs);
    let shared = runs.recorded.iter().map(Rc::strong_count).min().unwrap();
    assert!(shared > 8 && figures.len() > 8, "{shared}");
}
