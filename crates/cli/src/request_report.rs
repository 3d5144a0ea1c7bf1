//! What `offline`, `online`, `compact` and `ramp` share: who is meant, and how it went.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{
    Backend, NodeId, Reason, Request, RequestOp, RequestOutcome, Slice, SliceId, SliceRanges, Zone,
    ZoneNumber,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::interruptible;

/// A slice and how it went with it; without a slice, a request over many.
#[derive(Debug, Serialize)]
struct RequestAnswer {
    /// What was asked.
    #[serde(skip)]
    op: RequestOp,
    /// The slice.
    slice: Option<SliceId>,
    /// Absent if the slice was not tried, as after Ctrl-C.
    outcome: Option<RequestOutcome>,
}

#[derive(Serialize)]
struct Body<'a> {
    results: &'a [RequestAnswer],
}

/// Slices in a row for which there was no room, until nothing better is expected of the next: as
/// many as the kernel tries.
pub const MOST_MISSES: u32 = 16;

/// There was no room: neither a limit of the request nor the fault of the slice.
pub fn is_missed(outcome: &RequestOutcome) -> bool {
    matches!(outcome.reason, Reason::NoRoom | Reason::AwakeReserve)
}

/// Carries out one request after another and prints an answer for each; refused if one was.
///
/// The command's name is also what the slices are then, as in "offline". With `enough`, it ends
/// once so many slices are done: it is then refused if they became fewer, whatever happened to
/// others. Ctrl-C ends the request at hand and leaves out the others; an error of the backend comes
/// after the answers so far.
pub fn report_each(
    context: &CommandContext,
    out: &mut dyn Write,
    command: &'static str,
    backend: &dyn Backend,
    requests: &[(Option<SliceId>, Request)],
    enough: Option<u32>,
) -> Result<ExitStatus> {
    let (mut answers, mut count, mut misses) = (Vec::new(), 0, 0);
    let result = interruptible(|interrupt| {
        for (slice, request) in requests {
            let over = enough.is_some_and(|enough| count >= enough || misses >= MOST_MISSES);
            let tried = !interrupt.requested();
            if over || (enough.is_some() && !tried) {
                break;
            }
            let outcome = tried.then(|| backend.request(request)).transpose()?;
            count += outcome.as_ref().map_or(0, |outcome| outcome.slices_done);
            misses = if outcome.as_ref().is_some_and(is_missed) { misses + 1 } else { 0 };
            answers.push(RequestAnswer { op: request.op, slice: *slice, outcome });
        }
        Ok(())
    });
    let lacking = enough.filter(|enough| count < *enough);
    if result.is_ok() || !answers.is_empty() {
        if context.json() {
            write_json(out, command, Body { results: &answers })?;
        } else {
            for answer in &answers {
                writeln!(out, "{}", line(answer, command))?;
            }
            if let Some(enough) = lacking {
                let why = if misses >= MOST_MISSES {
                    "there is no room for more"
                } else {
                    "there are no more"
                };
                writeln!(
                    out,
                    "{count} of {} {command}: {why}; see `ramslice slices`",
                    slices(enough)
                )?;
            }
        }
    }
    result?;
    if enough.is_some() {
        return Ok(if lacking.is_none() { ExitStatus::Ok } else { ExitStatus::Refused });
    }
    let fine =
        answers.iter().all(|answer| answer.outcome.as_ref().is_some_and(RequestOutcome::is_ok));
    Ok(if fine { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn line(answer: &RequestAnswer, done: &str) -> String {
    let who = answer.slice.map_or_else(String::new, |id| format!("slice {id}: "));
    match &answer.outcome {
        None => format!("{who}not tried, interrupted"),
        Some(outcome) if outcome.is_ok() && answer.slice.is_some() => {
            let mut line = format!("{who}{done}");
            if outcome.migrated.0 + outcome.dropped.0 > 0 {
                line.push_str(&format!(
                    ", {} pages moved, {} dropped",
                    outcome.migrated, outcome.dropped
                ));
            }
            line
        }
        Some(outcome)
            if outcome.is_ok() && outcome.slices_done == 0 && answer.op == RequestOp::OnlineAll =>
        {
            "no slice was offline".to_owned()
        }
        Some(outcome) if outcome.is_ok() => format!("{} {done}", slices(outcome.slices_done)),
        Some(outcome) => {
            let so_far = if answer.slice.is_none() && outcome.slices_done > 0 {
                format!("{} {done}, then ", slices(outcome.slices_done))
            } else {
                String::new()
            };
            format!("{who}{so_far}refused: {}", reason_text(outcome))
        }
    }
}

/// The reason with what to do; the errno where there is no reason.
pub fn reason_text(outcome: &RequestOutcome) -> String {
    match outcome.reason {
        Reason::None => {
            let error = std::io::Error::from_raw_os_error(outcome.status_errno.cast_signed());
            format!("{error}; the kernel gave no reason")
        }
        reason => {
            let error =
                outcome.driver_error().map_or_else(String::new, |error| format!(": {error}"));
            format!("{reason}: {}{error}; {}", reason.sentence(), reason.advice())
        }
    }
}

/// `1 slice`, `2 slices`.
pub fn slices(count: u32) -> String {
    if count == 1 { "1 slice".to_owned() } else { format!("{count} slices") }
}

/// The slices that were named, each once; an error names those that do not exist.
pub fn resolve(named: &[SliceRanges], slices: &[Slice]) -> Result<Vec<SliceId>, UsageError> {
    for id in named.iter().flat_map(SliceRanges::iter) {
        // Ids ascend in a snapshot.
        if slices.binary_search_by_key(&id, |slice| slice.id).is_err() {
            let ids: Vec<u32> = slices.iter().map(|slice| slice.id.0).collect();
            let text = format!("there is no slice {id}: this machine has {}", ranges(&ids));
            return Err(UsageError(text));
        }
    }
    let mut found: Vec<SliceId> = named.iter().flat_map(SliceRanges::iter).collect();
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|&id| seen.insert(id));
    Ok(found)
}

/// `0-31,64-159`.
pub fn ranges(ids: &[u32]) -> String {
    ids.chunk_by(|&a, &b| b == a + 1)
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// An error unless this node has memory.
pub fn check_node(zones: &[Zone], node: NodeId) -> Result<(), UsageError> {
    if zones.iter().any(|zone| zone.node == node) {
        return Ok(());
    }
    Err(UsageError(format!("there is no node {node} with memory: see `ramslice status`")))
}

/// The number of a zone by its name, on any node if none is given.
pub fn zone_number(
    zones: &[Zone],
    node: Option<NodeId>,
    name: &str,
) -> Result<ZoneNumber, UsageError> {
    let here = |zone: &&Zone| node.is_none_or(|node| node == zone.node);
    if let Some(node) = node {
        check_node(zones, node)?;
    }
    let found = zones.iter().filter(here).find(|zone| zone.name.eq_ignore_ascii_case(name));
    found.map(|zone| zone.zone).ok_or_else(|| {
        let mut names: Vec<&str> =
            zones.iter().filter(here).map(|zone| zone.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        UsageError(format!("there is no zone `{name}`: this machine has {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_summed_up_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn a_refusal_says_why_and_what_to_do() {
        let outcome = RequestOutcome {
            status_errno: 16,
            reason: Reason::Pinned,
            slices_failed: 1,
            ..RequestOutcome::default()
        };
        let id = SliceId(7);
        let text = line(
            &RequestAnswer { op: RequestOp::Offline(id), slice: Some(id), outcome: Some(outcome) },
            "offline",
        );
        assert!(text.starts_with("slice 7: refused: pinned: a device"), "{text}");
        assert!(text.contains("try again"), "{text}");
    }

    #[test]
    fn waking_all_says_how_many_or_that_none_was_offline() {
        let text = |op, slices_done, done| {
            let outcome = Some(RequestOutcome { slices_done, ..RequestOutcome::default() });
            line(&RequestAnswer { op, slice: None, outcome }, done)
        };
        assert_eq!(text(RequestOp::OnlineAll, 0, "online"), "no slice was offline");
        assert_eq!(text(RequestOp::OnlineAll, 1, "online"), "1 slice online");
        assert_eq!(text(RequestOp::OfflineFree, 0, "offline"), "0 slices offline");
    }

    #[test]
    fn a_drivers_own_errno_is_shown_and_a_general_one_is_not() {
        let text = |status_errno| {
            let outcome = RequestOutcome { status_errno, ..RequestOutcome::default() };
            reason_text(&RequestOutcome { reason: Reason::Power, ..outcome })
        };
        assert!(
            text(62).starts_with("power: the power driver refused: Timer expired (os error 62); "),
            "{}",
            text(62)
        );
        for general in [0, 1, 5] {
            let text = text(general);
            assert!(text.starts_with("power: the power driver refused; see"), "{text}");
        }
    }

    #[test]
    fn without_a_reason_the_errno_speaks() {
        let outcome = RequestOutcome { status_errno: 5, ..RequestOutcome::default() };
        assert!(reason_text(&outcome).starts_with("Input/output error"));
    }
}
