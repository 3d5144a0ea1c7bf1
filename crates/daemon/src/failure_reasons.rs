//! Why slices could not be emptied. Each slice that failed has its own reason; the answer to a
//! request
//! that tried many gives only the reason for its end, which may be its budget.

use std::collections::BTreeSet;

use ramslice_types::{Reason, RequestOp, RequestOutcome, SliceId, SliceSnapshot};

/// The failures of one step.
#[derive(Debug, Default)]
pub(crate) struct FailureReasons {
    /// Slices that a request named: its answer is about them.
    named_slices: BTreeSet<SliceId>,
    counts: Vec<(Reason, u32)>,
    /// For each request that chose slices: how many failed, and the reason that the answer gives.
    counts_of_chosen: Vec<(Reason, u32)>,
}

impl FailureReasons {
    /// Notes an answer.
    pub(crate) fn add(&mut self, op: RequestOp, outcome: &RequestOutcome) {
        match op {
            _ if outcome.slices_failed == 0 => {}
            RequestOp::Offline(id) => {
                self.named_slices.insert(id);
                self.counts.push((outcome.reason, outcome.slices_failed));
            }
            RequestOp::Compact | RequestOp::OfflineFree => {
                // A limit that ended the request is no slice's reason.
                let limit = matches!(
                    outcome.reason,
                    Reason::OverBudget | Reason::NoRoom | Reason::AwakeReserve | Reason::Backoff
                );
                self.counts_of_chosen.push((
                    if limit { Reason::None } else { outcome.reason },
                    outcome.slices_failed,
                ));
            }
            RequestOp::Online(_) | RequestOp::OnlineAll => {
                self.counts.push((outcome.reason, outcome.slices_failed));
            }
        }
    }

    /// The reasons of chosen slices, by snapshots before and after: a slice that failed is in
    /// backoff,
    /// and was not before, or not for so long.
    pub(crate) fn reasons_of_chosen(
        &self,
        before: &SliceSnapshot,
        after: &SliceSnapshot,
    ) -> Vec<Reason> {
        let earlier = |id| {
            let at = before.slices.binary_search_by_key(&id, |slice| slice.id).ok()?;
            Some(&before.slices[at]).filter(|slice| slice.backoff)
        };
        let failed = after
            .slices
            .iter()
            .filter(|slice| slice.backoff && !self.named_slices.contains(&slice.id));
        failed
            .filter(|slice| earlier(slice.id).is_none_or(|before| slice.retry_ms > before.retry_ms))
            .map(|slice| slice.reason)
            .collect()
    }

    /// How many slices failed for which reason, with the `reasons` of chosen slices. Slices of
    /// other
    /// programs' requests may be among these, so no more are counted than requests reported.
    pub(crate) fn count_by_reason(self, reasons: &[Reason]) -> Vec<(Reason, u32)> {
        let mut found = self.counts;
        let mut reasons = reasons.iter();
        for (reason, slices) in self.counts_of_chosen {
            let said = reasons.by_ref().take(slices as usize).map(|&reason| (reason, 1));
            let before = found.len();
            found.extend(said);
            let rest = slices - (found.len() - before) as u32;
            found.extend((rest > 0).then_some((reason, rest)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(slices_failed: u32, reason: Reason) -> RequestOutcome {
        RequestOutcome { slices_failed, reason, ..RequestOutcome::default() }
    }

    #[test]
    fn a_slice_that_was_named_has_the_reason_of_its_request_and_chosen_ones_have_their_own() {
        let mut failures = FailureReasons::default();
        failures.add(RequestOp::Offline(SliceId(1)), &failed(1, Reason::Pinned));
        failures.add(RequestOp::Compact, &failed(3, Reason::AwakeReserve));
        failures.add(RequestOp::Compact, &failed(2, Reason::Deadline));
        failures.add(RequestOp::OfflineFree, &failed(0, Reason::NoRoom));
        let reasons = [Reason::Slab, Reason::Migration, Reason::Slab, Reason::PageTable];
        assert_eq!(
            failures.count_by_reason(&reasons),
            [
                (Reason::Pinned, 1),
                (Reason::Slab, 1),
                (Reason::Migration, 1),
                (Reason::Slab, 1),
                (Reason::PageTable, 1),
                (Reason::Deadline, 1)
            ]
        );
    }

    #[test]
    fn a_limit_that_ended_a_request_is_no_slices_reason() {
        let mut failures = FailureReasons::default();
        failures.add(RequestOp::Compact, &failed(2, Reason::OverBudget));
        assert_eq!(
            failures.count_by_reason(&[Reason::Pinned]),
            [(Reason::Pinned, 1), (Reason::None, 1)]
        );
    }
}
