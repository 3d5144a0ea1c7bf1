//! `ramslice map`: physical memory as a picture.

mod all_pages;
mod one_slice;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ramslice_types::{
    Backend, Bytes, Interleave, MachineState, PageComposition, Segment, SliceId, SliceState,
    SliceTotals,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;
use crate::render::{ScreenCell, legend, mosaic, png};

/// Lines that a terminal picture should not exceed.
const MAX_ROWS: usize = 24;

const HELP: &str = "\
A tile is a slice, placed by its physical address. Its area is split by what it holds: unmovable, \
movable, freeable, free. However little unmovable memory a slice has, it is shown: a single page \
keeps the slice on. Slices that are off are dark and hatched, one that is being emptied has a \
frame (in the PNG).

Without colours, letters stand for the kinds: # unmovable, o movable, + freeable, . free, / offline.

With a slice, a cell is a page or a few of them, and its letter or colour says what they are used \
for; the legend explains those that occur. If any page of a cell keeps the slice on, the cell \
shows that.

With --pages, every page of the machine is a pixel, row by row from the first address; addresses \
without memory are left out, and a grey line stands for them. It works on every kernel that has \
/proc/kpageflags; memory that a balloon took is dark as slices that are off are.

Examples:
  ramslice map
  ramslice map 37                          slice 37 page by page
  ramslice map 37 --png slice.png
  ramslice map --png memory.png --width 1600 --title 'After compaction'
  ramslice map --from now.json --png then.png
  ramslice map --pages --png pages.png     all memory, a pixel for each page";

/// Draw physical memory, on the terminal or as a PNG.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct MapArgs {
    /// Draw this slice page by page
    #[arg(value_name = "SLICE")]
    slice: Option<u32>,
    /// Draw all memory, a pixel for each page (needs root)
    #[arg(long, conflicts_with_all = ["slice", "title"], requires = "png")]
    pages: bool,
    /// With --pages: free memory white, page cache grey, the rest black
    #[arg(long, requires = "pages")]
    grey: bool,
    /// Write a PNG to this file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Width: columns, or pixels of a PNG [default: the terminal's; 1200; 4096 with --pages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(40..=8192))]
    width: Option<u32>,
    /// Heading of the PNG
    #[arg(long, value_name = "TEXT", help = "Heading of the PNG [default: says what it shows]")]
    title: Option<String>,
}

#[derive(Serialize)]
struct MapDocument<'a> {
    page_bytes: Bytes,
    slice_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    interleave: Option<Interleave>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    segments: &'a [Segment],
    #[serde(skip_serializing_if = "Option::is_none")]
    png: Option<WrittenPicture<'a>>,
    tiles: Vec<MapTile>,
}

/// A picture that was written.
#[derive(Serialize)]
pub(super) struct WrittenPicture<'a> {
    path: &'a PathBuf,
    width_pixels: u32,
    height_pixels: u32,
}

#[derive(Serialize)]
struct MapTile {
    slice: SliceId,
    start_bytes: u64,
    state: SliceState,
    composition: PageComposition,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(args: &MapArgs, context: &CommandContext, out: &mut dyn Write) -> Result<ExitStatus> {
    if let (true, Some(path)) = (args.pages, &args.png) {
        return all_pages::run(path, args, context, out);
    }
    let backend = context.backend()?;
    match args.slice {
        Some(id) => one_slice::run(&*backend, SliceId(id), args, context, out),
        None => machine(&*backend, args, context, out),
    }
}

impl MapArgs {
    /// What a PNG is to look like.
    pub(super) fn options(&self, title: &str) -> png::PictureOptions {
        let title = self.title.clone().unwrap_or_else(|| title.to_owned());
        png::PictureOptions { width: self.width.unwrap_or(1200), title }
    }

    /// Columns of a picture on the terminal.
    pub(super) fn columns(&self, context: &CommandContext) -> u16 {
        self.width.map_or(context.screen.width, |width| width as u16)
    }

    /// Writes the picture where --png says, if it does.
    pub(super) fn write_png(
        &self,
        draw: impl FnOnce() -> Result<png::RgbPicture>,
    ) -> Result<Option<WrittenPicture<'_>>> {
        let Some(path) = &self.png else { return Ok(None) };
        let picture = draw()?;
        write_file(path, |file| picture.write(file))?;
        Ok(Some(WrittenPicture {
            path,
            width_pixels: picture.width,
            height_pixels: picture.height,
        }))
    }
}

fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut file = BufWriter::new(file);
    write(&mut file)
        .and_then(|()| Ok(file.flush()?))
        .with_context(|| format!("writing {}", path.display()))
}

impl WrittenPicture<'_> {
    /// A line that says so.
    pub(super) fn report_path(&self, out: &mut dyn Write) -> Result<()> {
        let (path, width, height) = (self.path.display(), self.width_pixels, self.height_pixels);
        Ok(writeln!(out, "wrote {path}, {width} x {height} pixels")?)
    }
}

fn machine(
    backend: &dyn Backend,
    args: &MapArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let machine = backend.machine()?;
    let written =
        args.write_png(|| png::draw(&machine, &args.options("Physical memory by slice")))?;
    match written {
        png if context.json() => write_json(out, "map", body(&machine, png))?,
        Some(png) => png.report_path(out)?,
        None => {
            let screen = &context.screen;
            let width = args.columns(context);
            for line in mosaic(&machine, screen, width, MAX_ROWS) {
                writeln!(out, "{}", ScreenCell::line(screen, &line))?;
            }
            let census = SliceTotals::of(&machine.snapshot.slices, machine.info.slice_pages());
            writeln!(out)?;
            for line in legend(screen, &census.pages, machine.info.page_bytes, width.into()) {
                writeln!(out, "{}", ScreenCell::line(screen, &line))?;
            }
        }
    }
    Ok(ExitStatus::Ok)
}

fn body<'a>(machine: &'a MachineState, png: Option<WrittenPicture<'a>>) -> MapDocument<'a> {
    let tiles = machine.snapshot.slices.iter().map(|slice| MapTile {
        slice: slice.id,
        start_bytes: machine.info.extents(slice.id).start,
        state: slice.state,
        composition: slice.composition(machine.info.slice_pages()),
    });
    MapDocument {
        page_bytes: machine.info.page_bytes,
        slice_bytes: machine.info.slice_bytes,
        interleave: machine.info.interleave,
        segments: &machine.info.segments,
        png,
        tiles: tiles.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::ascii;
    use ramslice_types::PageKind;

    #[test]
    fn the_help_explains_every_letter_of_a_usual_map() {
        for kind in [
            PageKind::Unmovable,
            PageKind::Movable,
            PageKind::Freeable,
            PageKind::Free,
            PageKind::Offline,
        ] {
            let text = format!("{} {}", ascii(kind), kind.name());
            assert!(HELP.contains(&text), "{text}");
        }
    }
}
