//! The file of a program: where it is, and whether the loader would preload a library for it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{Access, access, getxattr};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::exit::{CommandNotStarted, UsageError};

/// What the shell has where PATH is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// As many interpreters may follow each other as the kernel follows.
const MOST_INTERPRETERS: usize = 5;

const SETUID: u32 = 0o4000;
const SETGID_EXECUTABLE: u32 = 0o2010;

const ELF_MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const PT_INTERP: u32 = 3;

/// Where a program is, by PATH unless its name has a slash.
///
/// # Errors
/// [`CommandNotStarted`]: 127 if there is none, 126 if none may be executed.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, CommandNotStarted> {
    let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, CommandNotStarted> {
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        env::split_paths(path).map(|folder| folder.join(name)).collect()
    };
    let mut why = Errno::NOENT;
    for candidate in candidates.into_iter().filter(|_| !name.is_empty()) {
        let error = match access(&candidate, Access::EXEC_OK) {
            Ok(()) if candidate.is_dir() => Errno::ACCESS,
            Ok(()) => return Ok(candidate),
            Err(error) => error,
        };
        if !matches!(error, Errno::NOENT | Errno::NOTDIR) {
            why = error;
        }
    }
    Err(CommandNotStarted::new(&name.to_string_lossy(), why.into()))
}

/// Whether the loader preloads libraries for this program.
///
/// # Errors
/// [`UsageError`] that says why not; what cannot be read.
pub(super) fn check_preload(path: &Path) -> Result<()> {
    let mut path = path.to_owned();
    for _ in 0..MOST_INTERPRETERS {
        if let Some(why) = why_privileged(&path)? {
            return Err(refused(&path, why));
        }
        let file = File::open(&path).map_err(|source| unreadable(&path, source))?;
        match read_format(&file).map_err(|source| unreadable(&path, source))? {
            FileFormat::Script(interpreter) => path = interpreter,
            FileFormat::Other(why) => return Err(refused(&path, why)),
            FileFormat::Preloadable => return Ok(()),
        }
    }
    // Executing it says what is wrong with it
    Ok(())
}

fn refused(path: &Path, why: &str) -> anyhow::Error {
    let text = format!(
        "no library can be preloaded for {}, which {why}: leave out --larger-than, so that all of \
         its memory prefers cold memory",
        path.display()
    );
    UsageError(text).into()
}

fn unreadable(path: &Path, source: io::Error) -> anyhow::Error {
    anyhow::Error::new(source).context(format!("reading {}", path.display()))
}

/// What gives the program rights that the caller lacks: then the loader preloads nothing.
fn why_privileged(path: &Path) -> Result<Option<&'static str>> {
    let file = fs::metadata(path).map_err(|source| unreadable(path, source))?;
    let mode = file.mode();
    if mode & SETUID != 0 && file.uid() != geteuid().as_raw() {
        return Ok(Some("is setuid"));
    }
    if mode & SETGID_EXECUTABLE == SETGID_EXECUTABLE && file.gid() != getegid().as_raw() {
        return Ok(Some("is setgid"));
    }
    let mut value = [0_u8; 64];
    let has_capabilities = getxattr(path, "security.capability", &mut value[..]).is_ok();
    Ok((has_capabilities && !geteuid().is_root()).then_some("has capabilities"))
}

enum FileFormat {
    /// Dynamically linked with glibc.
    Preloadable,
    /// Run by this program.
    Script(PathBuf),
    /// Neither, and what it is.
    Other(&'static str),
}

fn read_format(file: &File) -> io::Result<FileFormat> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
        let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        return Ok(FileFormat::Script(OsStr::from_bytes(word).into()));
    }
    if !head.starts_with(ELF_MAGIC) || head.len() < 64 {
        return Ok(FileFormat::Other("is neither a program nor a script"));
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if (head[4], head[5], u16_at(18)) != (CLASS_64, LITTLE_ENDIAN, MACHINE) {
        return Ok(FileFormat::Other("is for another architecture than the library"));
    }
    let (start, size, count) = (u64_at(&head, 32), u16_at(54), u16_at(56));
    for number in 0..u64::from(count) {
        let mut header = [0_u8; 56];
        file.read_exact_at(&mut header, start + number * u64::from(size))?;
        if header[..4] != PT_INTERP.to_le_bytes() {
            continue;
        }
        let mut loader = vec![0; u64_at(&header, 32).min(4096) as usize];
        file.read_exact_at(&mut loader, u64_at(&header, 8))?;
        let name = loader.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        return Ok(if name.starts_with(b"ld-linux") {
            FileFormat::Preloadable
        } else {
            FileFormat::Other("is linked with another C library than glibc")
        });
    }
    Ok(FileFormat::Other("is linked statically"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program whose one header names this loader.
    fn elf(machine: u16, loader: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        (bytes[4], bytes[5]) = (CLASS_64, LITTLE_ENDIAN);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        if let Some(loader) = loader {
            bytes[64..68].copy_from_slice(&PT_INTERP.to_le_bytes());
            bytes[64 + 8] = 64 + 56;
            bytes[64 + 32] = loader.len() as u8 + 1;
            bytes.extend_from_slice(loader.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    fn program(folder: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let made = program(folder.path(), "made", b"", 0o755);
        fs::create_dir(folder.path().join("folder")).unwrap();
        let path = format!("/no/such:{}", folder.path().display());
        let find = |name: &OsStr| find_in(name, OsStr::new(&path)).map_err(|why| why.status());
        assert_eq!(find(OsStr::new("made")), Ok(made.clone()));
        assert_eq!(find(made.as_os_str()), Ok(made));
        assert_eq!(find(OsStr::new("other")), Err(127));
        assert_eq!(find(OsStr::new("")), Err(127));
        assert_eq!(find(OsStr::new("folder")), Err(126));
        let plain = program(folder.path(), "plain", b"", 0o644);
        assert_eq!(find(plain.as_os_str()), Err(126));
    }

    #[test]
    fn what_takes_no_library_is_refused_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let why = |contents: &[u8]| {
            let path = program(folder.path(), "program", contents, 0o755);
            check_preload(&path).err().map(|error| error.to_string())
        };
        assert_eq!(why(&elf(MACHINE, Some("/lib64/ld-linux-x86-64.so.2"))), None);
        for (contents, text) in [
            (elf(MACHINE, None), "is linked statically"),
            (elf(MACHINE, Some("/lib/ld-musl-x86_64.so.1")), "another C library"),
            (elf(8, Some("/lib/ld.so.1")), "another architecture"),
            (b"text\n".to_vec(), "neither a program nor a script"),
        ] {
            let found = why(&contents).unwrap();
            assert!(found.contains(text), "{found}");
        }
    }

    #[test]
    fn of_a_script_its_interpreter_counts() {
        let folder = tempfile::tempdir().unwrap();
        let dynamic = elf(MACHINE, Some("/lib64/ld-linux-x86-64.so.2"));
        for (name, contents, takes) in [("one", dynamic, true), ("two", elf(MACHINE, None), false)]
        {
            let interpreter = program(folder.path(), name, &contents, 0o755);
            let text = format!("#! {} -x\nmore\n", interpreter.display());
            let script = program(folder.path(), "script", text.as_bytes(), 0o755);
            assert_eq!(check_preload(&script).is_ok(), takes, "{name}");
        }
    }

    #[test]
    fn a_setuid_program_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let dynamic = elf(MACHINE, Some("/lib64/ld-linux-x86-64.so.2"));
        let path = program(folder.path(), "program", &dynamic, 0o4755);
        assert!(check_preload(&path).is_ok(), "its own user gains nothing by it");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            // Which takes the bit away
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
            let error = check_preload(&path).unwrap_err().to_string();
            assert!(error.contains("is setuid"), "{error}");
        }
    }
}
