//! `ramslice map --pages`: all memory, a pixel for each page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use ramslice_backend::FrameUses;
use ramslice_types::{Bytes, PageKind, Pages};
use serde::Serialize;

use super::{MapArgs, WrittenPicture, write_file};
use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::progress::ProgressLine;
use crate::render::frame_png::{FrameColours, FramePicture};

/// Pixels of a row by default: a row is 16 MiB.
const WIDTH: u32 = 4096;
/// What is over by then needs no progress.
const SOON: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct PagesDocument<'a> {
    page_bytes: Bytes,
    row_bytes: Bytes,
    png: WrittenPicture<'a>,
    pages: Vec<KindCount>,
}

#[derive(Serialize)]
struct KindCount {
    kind: PageKind,
    pages: Pages,
}

pub(super) fn run(
    path: &PathBuf,
    args: &MapArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() {
        bail!("a saved machine has no pages: --pages shows this machine's, without --from");
    }
    let page_bytes = Bytes(rustix::param::page_size() as u64);
    let colours = if args.grey { FrameColours::Grey } else { FrameColours::Kinds };
    let width = args.width.unwrap_or(WIDTH);
    let mut picture = FramePicture::new(width, colours);
    let progress = ProgressLine::new(context.json(), SOON);
    let mut read = Pages(0);
    for frames in FrameUses::under(Path::new("/")) {
        let frames = frames?;
        picture.add(&frames);
        read = Pages(read.0 + frames.len() as u64);
        progress.show(|_| format!("read {} so far", read.bytes(page_bytes)));
    }
    progress.clear();
    let (width_pixels, height_pixels) = picture.finish();
    if height_pixels == 0 {
        bail!("/proc/kpageflags shows no memory");
    }
    write_file(path, |file| picture.write(file))?;
    let png = WrittenPicture { path, width_pixels, height_pixels };
    let row_bytes = Bytes(u64::from(width_pixels) * page_bytes.0);
    let counts = picture.counts().filter(|(kind, pages)| *kind != PageKind::Hole && pages.0 > 0);
    if context.json() {
        let pages = counts.map(|(kind, pages)| KindCount { kind, pages }).collect();
        write_json(out, "map", PagesDocument { page_bytes, row_bytes, png, pages })?;
    } else {
        png.report_path(out)?;
        writeln!(out, "A pixel is a page of {page_bytes}, a row {row_bytes}:")?;
        for (kind, pages) in counts {
            writeln!(out, "  {:<12} {}", kind.name(), pages.bytes(page_bytes))?;
        }
    }
    Ok(ExitStatus::Ok)
}
