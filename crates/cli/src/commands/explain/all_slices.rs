//! `ramslice explain --all`: every slice that stays on, why, and what to empty next.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{
    AllocationSite, Backend, BackendErrorKind, ContentsDetail, ContentsSummary, MachineState,
    PageClass, PageFate, Pages, Price, Reason, Slice, SliceContents, SliceId, SliceState,
};
use serde::Serialize;

use super::allocation_sites::sites;
use super::price::price;
use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::render::{ColumnAlign, OutputStyle, TextTable, heading, nr_pages, wrapped};
use crate::request_report::slices as nr_slices;

/// Candidates that are named.
const NEXT: usize = 5;

/// A slice that is online and cannot be emptied.
#[derive(Serialize)]
struct StuckSlice {
    slice: SliceId,
    zone_name: String,
    /// The reason most of its pages stay for.
    reason: Reason,
    staying_pages: Pages,
    movable_pages: Pages,
    freeable_pages: Pages,
    classes: Vec<ClassCount>,
}

#[derive(Serialize)]
struct ClassCount {
    class: PageClass,
    reason: Reason,
    staying_pages: Pages,
}

/// Slices and pages that stay for one reason.
#[derive(Serialize)]
struct ReasonCount {
    reason: Reason,
    slices: u32,
    staying_pages: Pages,
}

/// A slice that could be emptied.
#[derive(Serialize)]
struct EmptyingCandidate {
    slice: SliceId,
    price_100cycles: Price,
    movable_pages: Pages,
    freeable_pages: Pages,
    /// It failed lately; time until it is tried again.
    retry_ms: u32,
}

#[derive(Serialize)]
struct ExplainAllDocument<'a> {
    slices_online: u32,
    slices_empty: u32,
    slices_unknown: u32,
    reasons: Vec<ReasonCount>,
    stuck: Vec<StuckSlice>,
    next: Vec<EmptyingCandidate>,
    page_owner: &'static str,
    sites: &'a [AllocationSite],
}

pub(super) fn run(
    backend: &dyn Backend,
    machine: &MachineState,
    limit: usize,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let mut body = ExplainAllDocument {
        slices_online: 0,
        slices_empty: 0,
        slices_unknown: 0,
        reasons: Vec::new(),
        stuck: Vec::new(),
        next: Vec::new(),
        page_owner: "off",
        sites: &[],
    };
    let mut owners: Vec<Vec<AllocationSite>> = Vec::new();
    for slice in machine.snapshot.slices.iter().filter(|slice| slice.state == SliceState::Online) {
        body.slices_online += 1;
        if slice.is_empty() {
            body.slices_empty += 1;
            continue;
        }
        let contents = match backend.contents(slice.id, ContentsDetail::default()) {
            Ok(contents) => contents,
            // Saved without the pages of this one, or gone with its memory.
            Err(error) if error.kind() == BackendErrorKind::NotFound => {
                body.slices_unknown += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let holdings = ContentsSummary::of(&contents);
        if contents.blocking().next().is_none() {
            body.next.push(candidate(machine, slice, &holdings));
            continue;
        }
        add_reasons(&mut body.reasons, &holdings);
        body.stuck.push(stuck_slice(machine, slice, &holdings));
        owners.extend(sites_of(backend, &contents)?);
    }
    body.reasons.sort_by_key(|count| {
        (std::cmp::Reverse((count.slices, count.staying_pages)), count.reason.raw())
    });
    body.stuck.sort_by_key(|stuck| (std::cmp::Reverse(stuck.staying_pages), stuck.slice));
    body.next.sort_by_key(|candidate| (candidate.price_100cycles, candidate.slice));
    body.next.truncate(NEXT);
    let known = !owners.is_empty();
    let merged = AllocationSite::merge(owners.iter().map(Vec::as_slice));
    if known {
        body.page_owner = "on";
        body.sites = &merged;
    }
    if context.json() {
        body.sites = &body.sites[..body.sites.len().min(limit)];
        write_json(out, "explain", &body)?;
    } else {
        text(&body, known.then_some(&merged[..]), limit, &context.screen, out)?;
    }
    Ok(ExitStatus::Ok)
}

/// Read apart from the pages: only slices that stay on are worth it.
fn sites_of(
    backend: &dyn Backend,
    contents: &SliceContents,
) -> Result<Option<Vec<AllocationSite>>> {
    let detail = ContentsDetail { sites: true, ..ContentsDetail::default() };
    Ok(backend.contents(contents.slice, detail)?.sites)
}

fn candidate(
    machine: &MachineState,
    slice: &Slice,
    holdings: &ContentsSummary,
) -> EmptyingCandidate {
    EmptyingCandidate {
        slice: slice.id,
        price_100cycles: price(machine, slice),
        movable_pages: holdings.pages(PageFate::Moves),
        freeable_pages: holdings.pages(PageFate::Dropped),
        retry_ms: if slice.backoff { slice.retry_ms } else { 0 },
    }
}

fn add_reasons(reasons: &mut Vec<ReasonCount>, holdings: &ContentsSummary) {
    for (reason, pages) in holdings.reasons() {
        match reasons.iter_mut().find(|count| count.reason == reason) {
            Some(count) => {
                count.slices += 1;
                count.staying_pages += pages;
            }
            None => reasons.push(ReasonCount { reason, slices: 1, staying_pages: pages }),
        }
    }
}

fn stuck_slice(machine: &MachineState, slice: &Slice, holdings: &ContentsSummary) -> StuckSlice {
    StuckSlice {
        slice: slice.id,
        zone_name: machine.zone_name(slice),
        reason: holdings.reasons().first().map_or(Reason::None, |&(reason, _)| reason),
        staying_pages: holdings.pages(PageFate::Stays),
        movable_pages: holdings.pages(PageFate::Moves),
        freeable_pages: holdings.pages(PageFate::Dropped),
        classes: holdings
            .staying()
            .map(|group| ClassCount {
                class: group.class,
                reason: group.reason,
                staying_pages: group.pages,
            })
            .collect(),
    }
}

fn text(
    body: &ExplainAllDocument<'_>,
    owners: Option<&[AllocationSite]>,
    limit: usize,
    screen: &OutputStyle,
    out: &mut dyn Write,
) -> Result<()> {
    use ColumnAlign::{Left, Right};
    let few = body.stuck.iter().filter(|stuck| stuck.staying_pages.0 <= 8).count();
    let mut words = format!(
        "{} of {} that are online cannot be emptied",
        body.stuck.len(),
        nr_slices(body.slices_online)
    );
    if few > 0 {
        words.push_str(&format!(", {few} of them for no more than 8 pages"));
    }
    let are = if body.slices_empty == 1 { "is" } else { "are" };
    words.push_str(&format!("; {} {are} empty.", body.slices_empty));
    if body.slices_empty > 0 {
        words.push_str(" `ramslice offline --empty` switches what is empty off.");
    }
    if body.slices_unknown > 0 {
        words.push_str(&format!(
            " Of {} the pages are not known: save them with `ramslice status --json --pages all`.",
            nr_slices(body.slices_unknown)
        ));
    }
    wrapped(&words, "", screen, out)?;

    if !body.reasons.is_empty() {
        heading("Why", screen, out)?;
        let mut table = TextTable::new(&[
            ("reason", Left),
            ("slices", Right),
            ("pages that stay", Right),
            ("", Left),
        ]);
        for count in &body.reasons {
            table.row(vec![
                count.reason.code(),
                count.slices.to_string(),
                count.staying_pages.to_string(),
                count.reason.sentence(),
            ]);
        }
        table.write(out, screen)?;

        heading("Slices that stay on", screen, out)?;
        let shown = &body.stuck[..body.stuck.len().min(limit)];
        stuck_table(shown).write(out, screen)?;
        let left_out = body.stuck.len() - shown.len();
        if left_out > 0 {
            let words = format!("{} more; --limit {} shows all", left_out, body.stuck.len());
            wrapped(&words, "", screen, out)?;
        }
    }
    if !body.next.is_empty() {
        heading("Cheapest to empty next", screen, out)?;
        next_table(&body.next).write(out, screen)?;
    }
    if !body.stuck.is_empty() {
        sites(owners, "what stays, over all slices", limit, screen, out)?;
    }
    Ok(())
}

fn stuck_table(stuck: &[StuckSlice]) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("slice", Right),
        ("zone", Left),
        ("reason", Left),
        ("stay", Right),
        ("move", Right),
        ("drop", Right),
        ("what stays", Left),
    ]);
    for one in stuck {
        let classes: Vec<String> = one
            .classes
            .iter()
            .map(|class| match class.class {
                // Movable by its class; the reason says why it is not.
                PageClass::Anonymous | PageClass::File | PageClass::Shmem | PageClass::Free => {
                    format!("{} {} ({})", class.staying_pages, class.class, class.reason)
                }
                _ => format!("{} {}", class.staying_pages, class.class),
            })
            .collect();
        table.row(vec![
            one.slice.to_string(),
            one.zone_name.clone(),
            one.reason.code(),
            one.staying_pages.to_string(),
            one.movable_pages.to_string(),
            one.freeable_pages.to_string(),
            classes.join(", "),
        ]);
    }
    table
}

fn next_table(next: &[EmptyingCandidate]) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("slice", Right),
        ("price", Right),
        ("move", Right),
        ("drop", Right),
        ("", Left),
    ]);
    for one in next {
        let note = match one.retry_ms {
            0 => String::new(),
            ms => format!("failed lately, retry in {} s", ms.div_ceil(1000)),
        };
        table.row(vec![
            one.slice.to_string(),
            one.price_100cycles.to_string(),
            nr_pages(one.movable_pages.0),
            nr_pages(one.freeable_pages.0),
            note,
        ]);
    }
    table
}
