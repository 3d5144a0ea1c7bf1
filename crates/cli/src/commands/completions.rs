//! `ramslice completions`: a script for the shell, from the same source as the help.

use std::io::Write;

use anyhow::Result;
use clap_complete::Shell;

use crate::exit::ExitStatus;

const HELP: &str = "\
Examples:
  ramslice completions bash > ~/.local/share/bash-completion/completions/ramslice
  ramslice completions zsh > ~/.zfunc/_ramslice
  ramslice completions fish > ~/.config/fish/completions/ramslice.fish";

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// What cannot be read or written.
pub fn run(
    args: &CompletionsArgs,
    mut program: clap::Command,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    out.write_all(&script)?;
    Ok(ExitStatus::Ok)
}
