//! What figures over time share: their axis, and how many moments are worth drawing.

use crate::chart::Axis;
use crate::report_data::{Moment, Recorded};

const RECORD: &str = "ramslice-lab record -o DIR -- COMMAND";

/// Why there is nothing to draw over time, and what to do about it.
pub(super) fn no_recording() -> (String, String) {
    (
        "none of the runs is a recording".to_owned(),
        format!("make one with `{RECORD}` and name DIR as a run"),
    )
}

/// The last moment.
pub(super) fn span(recorded: &Recorded) -> f64 {
    recorded.moments.last().map_or(1.0, |moment| moment.seconds).max(1e-3)
}

/// The axis of time. An emulator's seconds are named so.
pub(super) fn axis(seconds: f64, emulated: bool) -> Axis {
    let unit = if emulated { "emulated seconds" } else { "seconds" };
    Axis::new((0.0, seconds), format!("time, {unit}"))
}

/// At most `columns` moments: of those that fall into one column, the one with the most slices in use, so that no
/// peak is lost.
pub(super) fn thinned(recorded: &Recorded, columns: usize) -> Vec<&Moment> {
    let moments = &recorded.moments;
    if moments.len() <= columns {
        return moments.iter().collect();
    }
    let (all, mut found) = (span(recorded), Vec::<(usize, &Moment)>::new());
    for moment in moments {
        let column = ((moment.seconds / all * columns as f64) as usize).min(columns - 1);
        match found.last_mut() {
            Some((last, kept)) if *last == column => {
                if moment.holding_slices > kept.holding_slices {
                    *kept = moment;
                }
            }
            _ => found.push((column, moment)),
        }
    }
    found.into_iter().map(|(_, moment)| moment).collect()
}
