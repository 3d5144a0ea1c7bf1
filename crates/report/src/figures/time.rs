//! What figures over time share: their axis, and how many moments are worth drawing.

use crate::chart::ChartAxis;
use crate::report_data::{MachineMoment, RecordingData};

const RECORD: &str = "ramslice-lab record -o DIR -- COMMAND";

/// Why there is nothing to draw over time, and what to do about it.
pub(super) fn no_recording() -> (String, String) {
    (
        "none of the runs is a recording of slices".to_owned(),
        format!("make one with `{RECORD}` and name DIR as a run"),
    )
}

/// The last moment.
pub(super) fn span(recorded: &RecordingData) -> f64 {
    recorded.moments.last().map_or(1.0, |moment| moment.seconds).max(1e-3)
}

/// The axis of time. An emulator's seconds are named so.
pub(super) fn axis(seconds: f64, emulated: bool) -> ChartAxis {
    let unit = if emulated { "emulated seconds" } else { "seconds" };
    ChartAxis::new((0.0, seconds), format!("time, {unit}"))
}

/// At most `columns` moments: of those that fall into one column, the one with the most slices in
/// use, so that no peak is lost.
pub(super) fn thinned(recorded: &RecordingData, columns: usize) -> Vec<&MachineMoment> {
    thinned_places(recorded, columns).into_iter().map(|at| &recorded.moments[at]).collect()
}

/// The places of these among all moments.
pub(super) fn thinned_places(recorded: &RecordingData, columns: usize) -> Vec<usize> {
    let moments = &recorded.moments;
    if moments.len() <= columns {
        return (0..moments.len()).collect();
    }
    let (all, mut found) = (span(recorded), Vec::<(usize, usize)>::new());
    for (at, moment) in moments.iter().enumerate() {
        let column = ((moment.seconds / all * columns as f64) as usize).min(columns - 1);
        match found.last_mut() {
            Some((last, kept)) if *last == column => {
                if moment.holding_slices > moments[*kept].holding_slices {
                    *kept = at;
                }
            }
            _ => found.push((column, at)),
        }
    }
    found.into_iter().map(|(_, at)| at).collect()
}
