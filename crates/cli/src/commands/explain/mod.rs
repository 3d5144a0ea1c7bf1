//! `ramslice explain`: what keeps slices on, what it belongs to, and what would have to happen.

mod all_slices;
mod allocation_sites;
mod price;
pub(in crate::commands) mod sentences;

use std::io::Write;

use anyhow::Result;
use ramslice_types::{
    AllocationSite, BackendInfo, Bytes, ContentsDetail, ContentsSummary, FileId, Interleave,
    MachineState, OwnerPages, PageFate, PageGroup, Price, Reason, Segment, Slice, SliceContents,
    SliceId, SliceRanges,
};
use serde::Serialize;

use self::allocation_sites::sites;
use self::price::price;
use self::sentences::plain_words;
use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::render::{ColumnAlign, OutputStyle, TextTable, heading, more, wrapped};
use crate::request_report::resolve;

const HELP: &str = "\
The first sentence says what would have to happen for the slice to be empty. The table below it \
sums up the slice's pages: what they are used for; whether they stay, would be moved or would be \
dropped; and the reason why a request is refused because of them. The kernel asks the same \
question when it empties a slice, so the reasons are those of `ramslice offline` and `ramslice \
compact`.

Files are named as processes have them mapped, otherwise by device and inode; \
--find-files searches the file systems for the others, which takes long on large ones. Memory of \
programs is listed by cgroup.

Who allocated the pages that stay is known if the kernel was booted with page_owner=on \
(CONFIG_PAGE_OWNER): the call stacks, most pages first, with the processes that ran into them. It \
costs memory and time, so distributions leave it off.

Pages change meanwhile: this is a view, not a promise. Root only, because it shows where \
every user's files are.

Examples:
  ramslice explain 37                      why slice 37 cannot be emptied
  ramslice explain 37 --find-files         with the names of files that no process has mapped
  ramslice explain --all                   every slice that stays on, and what to empty next
  ramslice explain --all --json | jq '.reasons'
  ramslice map 37                          the same slice page by page
  ramslice status --json --pages stuck > now.json; ramslice explain --all --from now.json";

/// Say what keeps a slice on, and what would have to happen for it to be empty.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = HELP,
    group = clap::ArgGroup::new("which").required(true).args(["slices", "all"])
)]
pub(crate) struct ExplainArgs {
    /// Slices by id: 12, 3-7 or 3-7,12
    #[arg(value_name = "SLICES")]
    slices: Vec<SliceRanges>,
    /// Every slice that is online and cannot be emptied, and what would be cheapest to empty next
    #[arg(long)]
    all: bool,
    /// Search file systems for the names of files that no process has mapped
    #[arg(long)]
    find_files: bool,
    /// Show at most this many files, cgroups and allocation sites; with --all, also slices
    #[arg(long, value_name = "N", default_value = "10")]
    limit: usize,
}

#[derive(Serialize)]
struct ExplainDocument<'a> {
    page_bytes: Bytes,
    slice_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    interleave: Option<Interleave>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    segments: Vec<Segment>,
    slices: Vec<SliceBody<'a>>,
}

#[derive(Serialize)]
struct SliceBody<'a> {
    slice: SliceId,
    zone_name: String,
    node: i32,
    start_bytes: u64,
    state: ramslice_types::SliceState,
    /// The slice's own reason, as in a snapshot.
    reason: Reason,
    retry_ms: u32,
    /// Absent if it cannot be emptied.
    price_100cycles: Option<Price>,
    plain_words: String,
    advice: Vec<AdviceBody>,
    groups: &'a [PageGroup],
    files: Vec<FileBody<'a>>,
    cgroups: Vec<CgroupBody>,
    page_owner: &'static str,
    sites: &'a [AllocationSite],
}

#[derive(Serialize)]
struct AdviceBody {
    reason: Reason,
    sentence: String,
    advice: String,
}

#[derive(Serialize)]
struct FileBody<'a> {
    name: String,
    #[serde(flatten)]
    holding: &'a OwnerPages<FileId>,
}

#[derive(Serialize)]
struct CgroupBody {
    name: String,
    inode: u64,
    pages: ramslice_types::Pages,
    staying_pages: ramslice_types::Pages,
}

/// A slice with all that is known of it.
struct ExplainedSlice<'a> {
    slice: &'a Slice,
    contents: SliceContents,
    holdings: ContentsSummary,
}

pub(crate) fn run(
    args: &ExplainArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let backend = context.backend()?;
    let machine = backend.machine()?;
    if args.all {
        return all_slices::run(&*backend, &machine, args.limit, context, out);
    }
    let ids = resolve(&args.slices, &machine.snapshot.slices)?;
    if ids.is_empty() {
        return Err(UsageError("name a slice, or --all".to_owned()).into());
    }
    let detail = ContentsDetail { sites: true, find_files: args.find_files };
    let mut found = Vec::new();
    for id in ids {
        let contents = backend.contents(id, detail)?;
        let slice = machine.snapshot.slices.iter().find(|slice| slice.id == id);
        let slice = slice.expect("resolve() checked it");
        found.push(ExplainedSlice { slice, holdings: ContentsSummary::of(&contents), contents });
    }
    if context.json() {
        let slices = found.iter().map(|one| body(&machine, one, args.limit)).collect();
        let BackendInfo { page_bytes, slice_bytes, interleave, .. } = machine.info;
        let segments = machine.info.segments.clone();
        let document = ExplainDocument { page_bytes, slice_bytes, interleave, segments, slices };
        write_json(out, "explain", document)?;
        return Ok(ExitStatus::Ok);
    }
    for (at, one) in found.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        text(&machine, one, args.limit, &context.screen, out)?;
    }
    Ok(ExitStatus::Ok)
}

fn body<'a>(machine: &MachineState, one: &'a ExplainedSlice<'_>, limit: usize) -> SliceBody<'a> {
    let ExplainedSlice { slice, contents, holdings } = one;
    let reasons = holdings.reasons();
    SliceBody {
        slice: slice.id,
        zone_name: machine.zone_name(slice),
        node: slice.node.0,
        start_bytes: machine.info.extents(slice.id).start,
        state: contents.state,
        reason: contents.reason,
        retry_ms: slice.retry_ms,
        price_100cycles: reasons.is_empty().then(|| price(machine, slice)),
        plain_words: plain_words(machine, slice, contents, holdings),
        advice: reasons
            .iter()
            .map(|&(reason, _)| AdviceBody {
                reason,
                sentence: reason.sentence(),
                advice: reason.advice().to_owned(),
            })
            .collect(),
        groups: &holdings.groups,
        files: holdings
            .files
            .iter()
            .take(limit)
            .map(|holding| FileBody { name: contents.file_name(holding.owner), holding })
            .collect(),
        cgroups: holdings
            .cgroups
            .iter()
            .take(limit)
            .map(|holding| CgroupBody {
                name: contents.cgroup_name(holding.owner),
                inode: holding.owner,
                pages: holding.pages,
                staying_pages: holding.staying,
            })
            .collect(),
        page_owner: if contents.sites.is_some() { "on" } else { "off" },
        sites: contents.sites.as_deref().map_or(&[], |sites| &sites[..sites.len().min(limit)]),
    }
}

fn text(
    machine: &MachineState,
    one: &ExplainedSlice<'_>,
    limit: usize,
    screen: &OutputStyle,
    out: &mut dyn Write,
) -> Result<()> {
    let ExplainedSlice { slice, contents, holdings } = one;
    let title = format!(
        "Slice {}: {}, node {} {}, {}",
        slice.id,
        machine.info.extents(slice.id),
        slice.node,
        machine.zone_name(slice),
        contents.state
    );
    writeln!(out, "{}", screen.bold(&title))?;
    writeln!(out)?;
    wrapped(&plain_words(machine, slice, contents, holdings), "", screen, out)?;
    writeln!(out)?;
    group_table(holdings).write(out, screen)?;

    let reasons = holdings.reasons();
    if !reasons.is_empty() {
        heading("What helps", screen, out)?;
        for (reason, _) in reasons {
            wrapped(
                &format!("{reason}: {}; {}", reason.sentence(), reason.advice()),
                "  ",
                screen,
                out,
            )?;
        }
    }
    if !holdings.files.is_empty() {
        heading("Files with pages in it", screen, out)?;
        file_table(contents, holdings, limit).write(out, screen)?;
        more(holdings.files.len(), limit, out)?;
    }
    if !holdings.cgroups.is_empty() {
        heading("Cgroups with pages in it", screen, out)?;
        cgroup_table(contents, holdings, limit).write(out, screen)?;
        more(holdings.cgroups.len(), limit, out)?;
    }
    if contents.suspects().is_empty() {
        return Ok(());
    }
    let what = if contents.blocking().next().is_some() { "what stays" } else { "what it holds" };
    sites(contents.sites.as_deref(), what, limit, screen, out)
}

fn group_table(holdings: &ContentsSummary) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("pages", Right),
        ("what", Left),
        ("fate", Left),
        ("reason", Left),
        ("mapped", Right),
        ("mlocked", Right),
        ("unwritten", Right),
        ("pinned", Right),
        ("first page", Left),
    ]);
    let some =
        |pages: ramslice_types::Pages| if pages.0 == 0 { String::new() } else { pages.to_string() };
    for group in &holdings.groups {
        let reason = if group.reason == Reason::None { String::new() } else { group.reason.code() };
        table.row(vec![
            group.pages.to_string(),
            group.class.name().to_owned(),
            if group.fate.name() == group.class.name() {
                String::new()
            } else {
                group.fate.name().to_owned()
            },
            reason,
            some(group.mapped),
            some(group.mlocked),
            some(group.unwritten),
            some(group.pinned),
            if group.fate == PageFate::Stays {
                format!("pfn {:#x}", group.first_pfn.0)
            } else {
                String::new()
            },
        ]);
    }
    table
}

fn file_table(contents: &SliceContents, holdings: &ContentsSummary, limit: usize) -> TextTable {
    use ColumnAlign::{Left, Right};
    let mut table = TextTable::new(&[
        ("pages", Right),
        ("stay", Right),
        ("mapped", Right),
        ("mlocked", Right),
        ("file", Left),
    ]);
    for holding in holdings.files.iter().take(limit) {
        table.row(vec![
            holding.pages.to_string(),
            holding.staying.to_string(),
            holding.mapped.to_string(),
            holding.mlocked.to_string(),
            contents.file_name(holding.owner),
        ]);
    }
    table
}

fn cgroup_table(contents: &SliceContents, holdings: &ContentsSummary, limit: usize) -> TextTable {
    let mut table = TextTable::new(&[
        ("pages", ColumnAlign::Right),
        ("stay", ColumnAlign::Right),
        ("cgroup", ColumnAlign::Left),
    ]);
    for holding in holdings.cgroups.iter().take(limit) {
        table.row(vec![
            holding.pages.to_string(),
            holding.staying.to_string(),
            contents.cgroup_name(holding.owner),
        ]);
    }
    table
}
