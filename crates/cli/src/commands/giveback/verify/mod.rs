//! `ramslice giveback verify`, on the host: what it really holds of a guest's memory.

mod guest_status;
mod memory_blocks;
mod qmp;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_backend::{ProcessMapping, ProcessMemory, ProcessMemoryError};
use ramslice_types::{Bytes, parse_bytes};
use serde::Serialize;

use self::guest_status::{GuestStatus, GuestStatusError};
use self::memory_blocks::MemoryBlock;
use self::qmp::{QmpError, QmpMonitor};
use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::render::{ColumnAlign, TextTable};

/// How long the monitor may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

const HELP: &str = "\
For the host, and for QEMU: finds the guest's memory among the mappings of QEMU's process, and \
says how much of it the host holds: resident and swapped out (/proc/PID/smaps), or the room that \
the file takes which is the guest's memory, whichever is more. It needs the rights of QEMU's user.

With --qmp the monitor says where the memory is. QEMU serves one program at a time there, and \
libvirt holds its own: give QEMU another. With --pid alone it is the largest mapping, or the one \
of --memory.

With --guest-status it compares: the host may hold what the guest left on, and the tolerance, \
because some time lies between the two looks. Off are slices, or in a guest without ramslice what \
is free in whole blocks.

Examples:
  ramslice giveback verify --qmp /run/guest.qmp
  ramslice giveback verify --pid 4711 --memory 2G
  ssh guest ramslice giveback --json >guest.json
  ramslice giveback verify --qmp /run/guest.qmp --guest-status guest.json

Exit status:
  0  the host holds no more than the guest left on, or there was nothing to compare with
  1  it holds more, or what it holds cannot be read
  2  wrong usage: no such process, no such socket, several memories, another guest's status";

/// On the host: say what it really holds of a guest's memory
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = HELP,
    group = clap::ArgGroup::new("guest").required(true).multiple(true)
)]
pub(super) struct VerifyArgs {
    /// Ask this monitor of QEMU, the socket of -qmp unix:PATH,server=on,wait=off
    #[arg(long, value_name = "SOCKET", group = "guest")]
    qmp: Option<PathBuf>,
    /// The process of QEMU [default: the one that opened the monitor]
    #[arg(long, value_name = "PID", group = "guest")]
    pid: Option<u32>,
    /// Without a monitor: the size of the guest's memory [default: that of the largest mapping]
    #[arg(long, value_name = "SIZE", conflicts_with = "qmp", value_parser = parse_bytes)]
    memory: Option<Bytes>,
    /// Compare with what `ramslice giveback --json` printed in the guest; - for standard input
    #[arg(long, value_name = "FILE")]
    guest_status: Option<PathBuf>,
    /// How much more the host may hold than the guest left on
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        requires = "guest_status",
        value_parser = parse_bytes
    )]
    tolerance: Bytes,
}

/// What the host holds of a block.
#[derive(Debug, Clone, Serialize)]
struct HeldBlock {
    /// Absent if it was found by its size.
    name: Option<String>,
    bytes: Bytes,
    held_bytes: Bytes,
    resident_bytes: Bytes,
    /// Of the resident.
    huge_page_bytes: Bytes,
    swapped_bytes: Bytes,
    /// The room of the file that it is; absent for anonymous memory.
    file_bytes: Option<Bytes>,
    locked: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct GuestComparison {
    off_bytes: Bytes,
    /// Of it.
    reported_bytes: Bytes,
    /// All but what is off: memory of no zone, as the kernel's own, is on.
    left_on_bytes: Bytes,
    tolerance_bytes: Bytes,
    /// Held beyond both.
    excess_bytes: Bytes,
    /// There is none.
    agrees: bool,
}

#[derive(Debug, Serialize)]
struct VerifyDocument {
    pid: u32,
    process: String,
    memory_bytes: Bytes,
    held_bytes: Bytes,
    blocks: Vec<HeldBlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<GuestComparison>,
}

pub(super) fn run(
    args: &VerifyArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() || context.backend_kind().is_some() {
        let text = "--from and --backend do not go with verify: it looks at a process of QEMU";
        return Err(UsageError(text.to_owned()).into());
    }
    // First, so that the host is looked at after the guest
    let status = args.guest_status.as_deref().map(read_status).transpose()?;
    let mut monitor = args.qmp.as_deref().map(connect).transpose()?;
    let pid = match (args.pid, &monitor) {
        (Some(pid), _) => pid,
        (None, Some(monitor)) => monitor.peer_pid()?,
        (None, None) => unreachable!("one of the two is required"),
    };
    let process = ProcessMemory::under(Path::new("/"), pid);
    let all = process.mappings().map_err(as_usage)?;
    let of_process =
        |error: UsageError| UsageError(format!("process {pid} ({}): {error}", process.name()));
    let blocks = match &mut monitor {
        Some(monitor) => memory_blocks::ask(monitor)?,
        None => vec![memory_blocks::guess(&all, args.memory).map_err(of_process)?],
    };
    if blocks.is_empty() {
        let text = "the monitor names no memory of a guest: it has no machine";
        return Err(UsageError(text.to_owned()).into());
    }
    let blocks = blocks
        .iter()
        .map(|block| held_block(&process, block, &block.mappings(&all).map_err(of_process)?))
        .collect::<Result<Vec<_>>>()?;
    let mut document = VerifyDocument {
        pid,
        process: process.name(),
        memory_bytes: blocks.iter().map(|block| block.bytes).sum(),
        held_bytes: blocks.iter().map(|block| block.held_bytes).sum(),
        blocks,
        guest: None,
    };
    if let Some(status) = status {
        check_same_guest(&status, document.memory_bytes)?;
        document.guest = Some(compare(&document, &status, args.tolerance));
    }
    let agrees = document.guest.is_none_or(|guest| guest.agrees);
    if context.json() {
        write_json(out, "giveback verify", &document)?;
    } else {
        table(&document).write(out, &context.screen)?;
        for line in verdict(&document) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if agrees { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn read_status(path: &Path) -> Result<GuestStatus> {
    GuestStatus::read(path).map_err(|error| match error {
        GuestStatusError::Read { .. } => anyhow::Error::from(error),
        error => UsageError(format!("{:#}", anyhow::Error::from(error))).into(),
    })
}

fn connect(path: &Path) -> Result<QmpMonitor> {
    QmpMonitor::connect(path, PATIENCE).map_err(|error| match error {
        QmpError::Connect { .. } | QmpError::NotQmp { .. } => {
            UsageError(format!("{:#}", anyhow::Error::from(error))).into()
        }
        error => anyhow::Error::from(error),
    })
}

fn as_usage(error: ProcessMemoryError) -> anyhow::Error {
    match error {
        ProcessMemoryError::NoProcess { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    }
}

fn held_block(
    process: &ProcessMemory,
    block: &MemoryBlock,
    mappings: &[&ProcessMapping],
) -> Result<HeldBlock> {
    let sum = |part: fn(&ProcessMapping) -> Bytes| mappings.iter().map(|one| part(one)).sum();
    let file = mappings.iter().find_map(|one| one.file.as_ref());
    let file_bytes = match file {
        Some(file) => process
            .open_file_room(file)
            .with_context(|| format!("the room of {} is not known", file.path.display()))?,
        None => None,
    };
    let (resident, swapped): (Bytes, Bytes) = (sum(|one| one.resident), sum(|one| one.swapped));
    Ok(HeldBlock {
        name: block.name.clone(),
        bytes: block.size,
        // What lies in a file may be mapped or not, and what is mapped may be a copy of it
        held_bytes: (resident + swapped).max(file_bytes.unwrap_or_default()),
        resident_bytes: resident,
        huge_page_bytes: sum(|one| one.huge),
        swapped_bytes: swapped,
        file_bytes,
        locked: mappings.iter().any(|one| one.is_locked),
    })
}

fn check_same_guest(status: &GuestStatus, memory: Bytes) -> Result<(), UsageError> {
    if status.least_memory() <= memory {
        return Ok(());
    }
    Err(UsageError(format!(
        "that is another guest's status: it has {} or more, and this guest {memory}",
        status.least_memory()
    )))
}

fn compare(document: &VerifyDocument, status: &GuestStatus, tolerance: Bytes) -> GuestComparison {
    let left_on = document.memory_bytes.saturating_sub(status.off);
    let may_be_held = Bytes(left_on.0.saturating_add(tolerance.0));
    let excess = document.held_bytes.saturating_sub(may_be_held);
    GuestComparison {
        off_bytes: status.off,
        reported_bytes: status.reported,
        left_on_bytes: left_on,
        tolerance_bytes: tolerance,
        excess_bytes: excess,
        agrees: excess == Bytes::ZERO,
    }
}

fn table(document: &VerifyDocument) -> TextTable {
    let mut table = TextTable::new(&[
        ("", ColumnAlign::Left),
        ("", ColumnAlign::Right),
        ("", ColumnAlign::Left),
    ])
    .without_header();
    let mut row = |name: &str, size: Bytes, text: String| {
        table.row(vec![name.to_owned(), size.to_string(), text]);
    };
    let process = format!("of process {} ({})", document.pid, document.process);
    row("guest's memory", document.memory_bytes, process);
    let several = document.blocks.len() > 1;
    row("held", document.held_bytes, if several { String::new() } else { parts(document) });
    if several {
        for block in &document.blocks {
            let name = block.name.as_deref().unwrap_or("-");
            row(&format!("  {name}"), block.held_bytes, block_parts(block));
        }
    }
    if let Some(guest) = &document.guest {
        let reported = format!("in the guest, {} of it reported to the host", guest.reported_bytes);
        row("off", guest.off_bytes, reported);
        row(
            "left on",
            guest.left_on_bytes,
            format!("the host may hold this, and {} of tolerance", guest.tolerance_bytes),
        );
    }
    table
}

fn parts(document: &VerifyDocument) -> String {
    document.blocks.first().map_or_else(String::new, block_parts)
}

fn block_parts(block: &HeldBlock) -> String {
    let mut text = format!("{} resident", block.resident_bytes);
    if block.huge_page_bytes > Bytes::ZERO {
        text.push_str(&format!(" ({} in huge pages)", block.huge_page_bytes));
    }
    text.push_str(&format!(", {} swapped", block.swapped_bytes));
    if let Some(room) = block.file_bytes {
        text.push_str(&format!(", {room} in its file"));
    }
    text
}

/// Whether host and guest agree, and what is known about why not.
fn verdict(document: &VerifyDocument) -> Vec<String> {
    let Some(guest) = &document.guest else { return Vec::new() };
    if guest.agrees {
        return vec!["the host holds no more than the guest left on".to_owned()];
    }
    let why = if guest.reported_bytes < guest.off_bytes {
        format!(
            "the guest reported {} of what is off: `ramslice giveback` says there what it lacks",
            guest.reported_bytes
        )
    } else if document.blocks.iter().any(|block| block.locked) {
        "QEMU's memory is locked (-overcommit mem-lock=on): the host cannot take it back".to_owned()
    } else {
        "QEMU ignores reports while a device is passed through (VFIO), or the guest poisons free \
         pages; or the guest's status is too old"
            .to_owned()
    };
    vec![format!("the host holds {} too much", guest.excess_bytes), why]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(held: u64) -> VerifyDocument {
        let block = HeldBlock {
            name: Some("ram".to_owned()),
            bytes: Bytes(1 << 30),
            held_bytes: Bytes(held),
            resident_bytes: Bytes(held),
            huge_page_bytes: Bytes::ZERO,
            swapped_bytes: Bytes::ZERO,
            file_bytes: None,
            locked: false,
        };
        VerifyDocument {
            pid: 42,
            process: "qemu".to_owned(),
            memory_bytes: block.bytes,
            held_bytes: block.held_bytes,
            blocks: vec![block],
            guest: None,
        }
    }

    fn status(reported_mib: u64) -> GuestStatus {
        let document = serde_json::json!({
            "schema_version": ramslice_types::SCHEMA_VERSION, "command": "giveback",
            "reported_bytes": reported_mib << 20,
            "off_unreported_bytes": (768 - reported_mib) << 20, "on_bytes": 200 << 20,
        });
        GuestStatus::parse(Path::new("x"), &document.to_string()).unwrap()
    }

    #[test]
    fn the_host_may_hold_what_the_guest_left_on_and_the_tolerance() {
        let tolerance = Bytes(64 << 20);
        let allowed = (256 + 64) << 20;
        let compared = |held| compare(&document(held), &status(768), tolerance);
        assert!(compared(allowed).agrees);
        let more = compared(allowed + 4096);
        assert!(!more.agrees);
        assert_eq!((more.excess_bytes, more.left_on_bytes), (Bytes(4096), Bytes(256 << 20)));
    }

    #[test]
    fn a_verdict_says_what_is_known_about_why() {
        let judged = |reported_mib, locked| {
            let mut document = document(1 << 30);
            document.blocks[0].locked = locked;
            document.guest = Some(compare(&document, &status(reported_mib), Bytes::ZERO));
            verdict(&document)
        };
        let [what, why] = &judged(768, false)[..] else { panic!() };
        assert_eq!(what, "the host holds 768 MiB too much");
        assert!(why.contains("VFIO"), "{why}");
        assert!(judged(768, true)[1].contains("is locked"));
        let why = &judged(256, true)[1];
        assert!(why.starts_with("the guest reported 256 MiB of what is off"), "{why}");
        assert!(verdict(&document(1 << 30)).is_empty());
    }

    #[test]
    fn a_status_with_more_memory_than_the_guest_is_another_guests() {
        assert!(check_same_guest(&status(768), Bytes(1 << 30)).is_ok());
        let error = check_same_guest(&status(768), Bytes(512 << 20)).unwrap_err().to_string();
        assert_eq!(
            error,
            "that is another guest's status: it has 968 MiB or more, and this guest 512 MiB"
        );
    }
}
