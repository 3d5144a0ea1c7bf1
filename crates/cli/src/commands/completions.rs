//! `ramslice completions`: a script for the shell, from the same source as the help.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::context::Context;
use crate::exit::Exit;

const HELP: &str = "\
Examples:
  ramslice completions bash > ~/.local/share/bash-completion/completions/ramslice
  ramslice completions zsh > ~/.zfunc/_ramslice
  ramslice completions fish > ~/.config/fish/completions/ramslice.fish";

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, _context: &Context, out: &mut dyn Write) -> Result<Exit> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ramslice", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Ok)
}
