//! `ramslice map SLICE`: one slice page by page.

use std::io::Write;

use anyhow::Result;
use ramslice_types::{
    Backend, BackendInfo, Bytes, ContentsDetail, ContentsSummary, Interleave, Segment,
    SliceContents, SliceId, SliceRanges,
};
use serde::Serialize;

use super::{MapArgs, WrittenPicture};
use crate::commands::explain::sentences::plain_words;
use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::render::{ScreenCell, page_legend, page_map, page_png, wrapped};
use crate::request_report::resolve;

/// Lines that a terminal picture should not exceed.
const MAX_ROWS: usize = 32;

#[derive(Serialize)]
struct SliceMapDocument<'a> {
    page_bytes: Bytes,
    slice_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    interleave: Option<Interleave>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    segments: &'a [Segment],
    #[serde(skip_serializing_if = "Option::is_none")]
    png: Option<WrittenPicture<'a>>,
    contents: &'a SliceContents,
}

pub(super) fn run(
    backend: &dyn Backend,
    id: SliceId,
    args: &MapArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let machine = backend.machine()?;
    let named: SliceRanges = id.to_string().parse().expect("an id is a list of slices");
    resolve(&[named], &machine.snapshot.slices)?;
    let contents = backend.contents(id, ContentsDetail::default())?;
    let info = &machine.info;
    let png = args.write_png(|| {
        let options = args.options(&format!("Slice {id}, page by page"));
        page_png::draw(&machine, &contents, &options)
    })?;
    if context.json() {
        let &BackendInfo { page_bytes, slice_bytes, interleave, .. } = info;
        let document = SliceMapDocument {
            page_bytes,
            slice_bytes,
            interleave,
            segments: &info.segments,
            png,
            contents: &contents,
        };
        write_json(out, "map", document)?;
    } else if let Some(png) = png {
        png.report_path(out)?;
    } else {
        let screen = &context.screen;
        let width = args.columns(context);
        if let Some(slice) = machine.snapshot.slices.iter().find(|slice| slice.id == id) {
            let words = plain_words(&machine, slice, &contents, &ContentsSummary::of(&contents));
            wrapped(&format!("Slice {id}. {words}"), "", screen, out)?;
            writeln!(out)?;
        }
        for line in page_map(&contents, info.page_bytes, screen, width, MAX_ROWS) {
            writeln!(out, "{}", ScreenCell::line(screen, &line))?;
        }
        writeln!(out)?;
        for line in page_legend(&contents, screen, width) {
            writeln!(out, "{}", ScreenCell::line(screen, &line))?;
        }
    }
    Ok(ExitStatus::Ok)
}
