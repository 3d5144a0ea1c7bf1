//! `ramslice man`: the manual pages, from the same source as the help.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::ExitStatus;

const HELP: &str = "\
Examples:
  ramslice man | man -l -
  ramslice man --dir /usr/local/share/man/man1";

/// Print the manual page, or write all of them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct ManArgs {
    /// Write ramslice.1 and a page per command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct ManDocument {
    files: Vec<PathBuf>,
}

/// A command and all that are below it, each with the name of its page: as a page names those that
/// it refers to.
fn pages(name: &str, command: &clap::Command) -> Vec<(String, clap::Command)> {
    let below = command
        .get_subcommands()
        .filter(|page| !page.is_hide_set())
        .flat_map(|page| pages(&format!("{name}-{}", page.get_name()), page));
    below.chain([(name.to_owned(), command.clone())]).collect()
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(
    args: &ManArgs,
    mut program: clap::Command,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    program.build();
    let Some(dir) = &args.dir else {
        clap_mangen::Man::new(program).render(out)?;
        return Ok(ExitStatus::Ok);
    };
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut files = Vec::new();
    for (name, page) in pages(program.get_name(), &program) {
        let path = dir.join(format!("{name}.1"));
        let write = || -> std::io::Result<()> {
            clap_mangen::Man::new(page).title(name).render(&mut File::create(&path)?)
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        files.push(path);
    }
    files.sort();
    if context.json() {
        write_json(out, "man", ManDocument { files })?;
    } else {
        for file in files {
            writeln!(out, "{}", file.display())?;
        }
    }
    Ok(ExitStatus::Ok)
}
