//! `ramslice run --cold`: run a program whose memory goes where it may rest.

mod program_file;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use ramslice_backend::{ColdPreference, ColdSource, PreferenceError};
use ramslice_types::{Bytes, parse_bytes};

use crate::context::CommandContext;
use crate::exit::{CommandNotStarted, ExitStatus, UsageError};
use crate::stderr;

/// What the library reads, in bytes.
const LARGER_THAN: &str = "RAMSLICE_COLD_LARGER_THAN";
const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "ramslice/libramslice-cold-preload.so";

const HELP: &str = "\
Runs a program whose memory goes where it may rest: into cold memory (see `ramslice cold`), or on \
other kernels to the node without CPUs of the lowest memory tier. What finds no room there goes \
elsewhere, as without this command. Programs that it starts inherit that.

Without --larger-than, all of its memory prefers cold memory, by the task's memory policy: what it \
allocates, and the page cache of what it reads. That suits jobs whose time does not matter.

With --larger-than, only what it allocates in one piece of more than that: malloc() and its like, \
and anonymous mmap(). A library is preloaded for it, which makes jemalloc the program's malloc. \
That works for programs that are linked with glibc and are not setuid.

PROGRAM takes the place of this command: signals and the exit status are its own. Options after \
its name are the program's, so that -- may be left out.

Examples:
  ramslice run --cold -- tar -cJf old.tar.xz old/
  ramslice run --cold --larger-than 1M -- redis-server
  ramslice run --cold --optional --quiet -- nightly-report

Exit status: that of PROGRAM, or
  2    this machine has no cold memory, or the program cannot have it
  126  PROGRAM cannot be executed
  127  there is no such program";

/// Run a program whose memory goes into cold memory.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RunArgs {
    /// Its memory prefers cold memory
    #[arg(long, required = true)]
    cold: bool,
    /// Only what it allocates in one piece of more than this, as in 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    larger_than: Option<Bytes>,
    /// On a machine without cold memory, run it all the same
    #[arg(long)]
    optional: bool,
    /// Do not say on stderr where its memory goes
    #[arg(short, long)]
    quiet: bool,
    /// The library that --larger-than preloads
    #[arg(
        long,
        value_name = "FILE",
        env = "RAMSLICE_COLD_PRELOAD",
        hide_env_values = true,
        long_help = "The library that --larger-than preloads. By default \
                     ramslice/libramslice-cold-preload.so in the folder for libraries beside that \
                     of this program"
    )]
    library: Option<PathBuf>,
    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &RunArgs, context: &CommandContext) -> Result<ExitStatus> {
    if let Some(path) = context.source_path() {
        let text =
            format!("programs do not run on saved machines: leave out --from {}", path.display());
        return Err(UsageError(text).into());
    }
    let (name, arguments) = args.command.split_first().expect("clap requires one");
    let file = program_file::find(name)?;
    let mut command = Command::new(&file);
    command.arg0(name).args(arguments);
    let text = match ColdPreference::find(Path::new("/")) {
        Ok(preference) => {
            let what = match args.larger_than {
                Some(size) => {
                    program_file::check_preload(&file)?;
                    preload(&mut command, &library(args.library.as_deref())?, size)?;
                    format!("of {}, pieces of more than {size} prefer", name.display())
                }
                None => {
                    preference.apply().map_err(usage)?;
                    format!("all memory of {} prefers", name.display())
                }
            };
            format!("{what} {}", place(&preference, args.larger_than.is_some()))
        }
        Err(error @ (PreferenceError::Nowhere | PreferenceError::Unsized)) if args.optional => {
            format!("{} runs as usual: {error}", name.display())
        }
        Err(error) => return Err(usage(error)),
    };
    if !args.quiet {
        stderr::line(format_args!("ramslice: {text}"));
    }
    let source = command.exec();
    Err(CommandNotStarted::new(&name.to_string_lossy(), source).into())
}

/// What the machine does not have is a matter of usage.
fn usage(error: PreferenceError) -> anyhow::Error {
    match error {
        PreferenceError::Twins(_) => error.into(),
        PreferenceError::Refused(ref source) => UsageError(format!("{error}: {source}")).into(),
        _ => UsageError(error.to_string()).into(),
    }
}

/// Where memory goes, and how.
fn place(preference: &ColdPreference, preloaded: bool) -> String {
    let nodes = match preference.nodes.len() {
        1 => format!("node {}", preference.numbers()),
        _ => format!("nodes {}", preference.numbers()),
    };
    let way = match (preloaded, preference.source) {
        (false, _) => "set_mempolicy()",
        (true, ColdSource::Twins) => "mmap(MAP_COLD)",
        (true, ColdSource::LowestTier) => "mbind()",
    };
    match preference.source {
        ColdSource::Twins => format!("cold memory, {nodes}, by {way}"),
        ColdSource::LowestTier => format!("the lowest memory tier, {nodes}, by {way}"),
    }
}

/// Has the loader take the library before those of `LD_PRELOAD`.
fn preload(command: &mut Command, library: &Path, size: Bytes) -> Result<()> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        let text = format!(
            "{} cannot be preloaded: its path must have no space and no colon",
            library.display()
        );
        return Err(UsageError(text).into());
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(more) = env::var_os(PRELOAD).filter(|more| !more.is_empty()) {
        all.push(":");
        all.push(more);
    }
    command.env(PRELOAD, all).env(LARGER_THAN, size.0.to_string());
    Ok(())
}

/// The library, as an absolute path: the program may go to another folder.
fn library(given: Option<&Path>) -> Result<PathBuf> {
    let places = match given {
        Some(path) => vec![path.to_owned()],
        None => usual_places(&env::current_exe()?),
    };
    let found = places.iter().find(|path| path.is_file());
    let Some(found) = found else {
        let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        let text = format!(
            "the library for --larger-than is not there ({}): install libramslice-cold, or name it \
             with --library",
            places.join(", ")
        );
        return Err(UsageError(text).into());
    };
    Ok(std::path::absolute(found)?)
}

/// For `/usr/bin/ramslice`, folders in `/usr/lib`.
fn usual_places(program: &Path) -> Vec<PathBuf> {
    let multiarch = format!("{}-linux-gnu", env::consts::ARCH);
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let folders = [OsStr::new(&multiarch), OsStr::new("")];
    folders.map(|folder| prefix.join("lib").join(folder).join(LIBRARY)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(source: ColdSource, nodes: &[u32]) -> ColdPreference {
        ColdPreference { source, nodes: nodes.to_vec() }
    }

    #[test]
    fn the_line_says_where_memory_goes_and_how() {
        let twin = preference(ColdSource::Twins, &[1]);
        assert_eq!(place(&twin, false), "cold memory, node 1, by set_mempolicy()");
        assert_eq!(place(&twin, true), "cold memory, node 1, by mmap(MAP_COLD)");
        let tier = preference(ColdSource::LowestTier, &[2, 3]);
        assert_eq!(place(&tier, true), "the lowest memory tier, nodes 2 and 3, by mbind()");
    }

    #[test]
    fn the_library_is_beside_the_program() {
        let places = usual_places(Path::new("/usr/bin/ramslice"));
        let expected = format!("/usr/lib/{}-linux-gnu/{LIBRARY}", env::consts::ARCH);
        assert_eq!(places, [Path::new(&expected), &Path::new("/usr/lib").join(LIBRARY)]);
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = library(Some(Path::new("/no/such.so"))).unwrap_err();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().contains("/no/such.so"), "{error}");
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        let mut command = Command::new("true");
        let error = preload(&mut command, Path::new("/a folder/x.so"), Bytes(1)).unwrap_err();
        assert!(error.to_string().contains("no space"), "{error}");
        preload(&mut command, Path::new("/folder/x.so"), Bytes(1 << 20)).unwrap();
        let set = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value).map(|value| value.to_string_lossy().into_owned())
        };
        assert!(set(PRELOAD).unwrap().starts_with("/folder/x.so"));
        assert_eq!(set(LARGER_THAN).unwrap(), "1048576");
    }
}
