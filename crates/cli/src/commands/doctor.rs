//! `ramslice doctor`: what could this machine power down at all?

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ramslice_doctor::{
    DoctorReport, EvidenceLine, GapKind, InputGap, MwPerGib, PowerDownVerdict, SystemRoot,
    VerdictKind, capture, examine,
};
use serde::Serialize;

use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::render::{ColumnAlign, OutputStyle, TextTable, heading, wrapped};

const HELP: &str = "\
The doctor reads what firmware and drivers say about memory: SMBIOS types 16 to 20, ACPI MPST, \
SRAT and HMAT, EDAC, CXL, DAX, memory hotplug, whether this is a virtual machine, and the running \
kernel's ramslice. Nothing is changed. Only root can read firmware's tables; without them the \
answer is less exact, and a list says what was missing.

The answer assumes empty memory and a power driver. It includes the unit that a slice must hold \
whole, and the slice size to boot with. A figure in mW needs --mw-per-gib, from the data sheet or \
a profile of the DRAM.

Captures hold what the doctor reads, with serial numbers blanked, and nothing else.

Examples:
  sudo ramslice doctor                           this machine
  sudo ramslice doctor --mw-per-gib 0-9.19       with what it would save, at LPDDR5 PARC figures
  sudo ramslice doctor --capture tables          save what it reads
  ramslice doctor --from tables                  look at it elsewhere; here --from takes a directory
  ramslice doctor --json | jq .verdict.power_down

Exit status: 0 with a verdict, also with `0 J possible here`; 1 if there is no answer.";

/// Say what this machine could power down at all
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Save what is read into this directory, for --from; it must be empty or not exist
    #[arg(long, value_name = "DIR", conflicts_with = "mw_per_gib")]
    capture: Option<PathBuf>,
    /// Power that a GiB saves when powered down, in mW, as in 0-9.19
    #[arg(long, value_name = "LOW-HIGH")]
    mw_per_gib: Option<MwPerGib>,
}

#[derive(Serialize)]
struct DoctorDocument<'a> {
    root: &'a Path,
    #[serde(flatten)]
    report: &'a DoctorReport,
}

#[derive(Serialize)]
struct CaptureBody<'a> {
    directory: &'a Path,
    files: &'a [PathBuf],
    unreadable: &'a [PathBuf],
}

pub(crate) fn run(
    args: &DoctorArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let path = context.source_path().unwrap_or(Path::new("/"));
    if path.is_file() {
        let text = format!(
            "{} is a file: the doctor takes a directory, as `ramslice doctor --capture DIR` makes",
            path.display()
        );
        return Err(UsageError(text).into());
    }
    let root = SystemRoot::open(path)?;
    if let Some(directory) = &args.capture {
        let captured = capture(&root, directory)?;
        if context.json() {
            let (files, unreadable) = (&captured.files, &captured.unreadable);
            write_json(out, "doctor", CaptureBody { directory, files, unreadable })?;
            return Ok(ExitStatus::Ok);
        }
        let count = captured.files.len();
        writeln!(out, "saved {count} files in {}, serial numbers blanked", directory.display())?;
        for path in &captured.unreadable {
            writeln!(out, "not readable, and noted so: /{}", path.display())?;
        }
        return Ok(ExitStatus::Ok);
    }
    let report = examine(&root, args.mw_per_gib);
    if context.json() {
        write_json(out, "doctor", DoctorDocument { root: path, report: &report })?;
    } else {
        text(&report, &context.screen, out)?;
    }
    Ok(if report.verdict.kind == VerdictKind::Unknown {
        ExitStatus::Refused
    } else {
        ExitStatus::Ok
    })
}

fn text(report: &DoctorReport, screen: &OutputStyle, out: &mut dyn Write) -> Result<()> {
    let verdict = &report.verdict;
    wrapped(&verdict.headline, "", screen, out)?;
    wrapped(&verdict.today, "", screen, out)?;
    writeln!(out)?;
    figures(verdict, screen, out)?;
    if !verdict.because.is_empty() {
        heading("Why", screen, out)?;
        for sentence in &verdict.because {
            wrapped(sentence, "  ", screen, out)?;
        }
    }
    if !report.evidence.is_empty() {
        heading("What was found", screen, out)?;
        table(&report.evidence).write(out, screen)?;
    }
    missing(&report.gaps, screen, out)
}

/// The figures of the verdict, one a line.
fn figures(verdict: &PowerDownVerdict, screen: &OutputStyle, out: &mut dyn Write) -> Result<()> {
    if let Some(part) = verdict.power_down {
        let (low, high) = (part.low_bytes, part.high_bytes);
        let size = if low == high { high.to_string() } else { format!("{low} to {high}") };
        writeln!(out, "power down   {size}")?;
    }
    if let (Some(unit), Some(bytes)) = (&verdict.unit, verdict.unit_bytes) {
        writeln!(out, "at a time    {bytes}: {unit}")?;
    }
    for saving in &verdict.savings {
        let (low, high) = saving.joules_per_hour();
        let (low_mw, high_mw) = (saving.low_mw, saving.high_mw);
        writeln!(
            out,
            "saves        {low_mw:.0} to {high_mw:.0} mW, {low:.0} to {high:.0} J an hour, by {}",
            saving.source
        )?;
    }
    let parameter = verdict.slice.parameter.as_deref().unwrap_or("none");
    let because = format!("{parameter}: {}", verdict.slice.because);
    let mut lines = Vec::new();
    wrapped(&because, "             ", screen, &mut lines)?;
    let lines = String::from_utf8_lossy(&lines).into_owned();
    Ok(write!(out, "slice size   {}", lines.trim_start())?)
}

fn table(evidence: &[EvidenceLine]) -> TextTable {
    let mut table = TextTable::new(&[
        ("input", ColumnAlign::Left),
        ("says", ColumnAlign::Left),
        ("so", ColumnAlign::Left),
    ]);
    for line in evidence {
        table.row(vec![line.input.to_owned(), line.says.clone(), line.so.clone()]);
    }
    table
}

/// Contradictions and damage first, then what this user may not read, then what is absent.
fn missing(gaps: &[InputGap], screen: &OutputStyle, out: &mut dyn Write) -> Result<()> {
    if gaps.iter().any(|gap| gap.widens) {
        heading("What was missing, and makes the verdict wider", screen, out)?;
    }
    for gap in gaps.iter().filter(|gap| gap.widens) {
        let detail =
            if gap.detail.is_empty() { String::new() } else { format!(": {}", gap.detail) };
        let remedy = if gap.kind == GapKind::Permission { " Use sudo." } else { "" };
        let shows = match gap.kind {
            GapKind::Silent => String::new(),
            _ => format!(" It would show {}.", gap.would_tell),
        };
        let text = format!("{}, {}{detail}.{shows}{remedy}", gap.input, gap.kind.words());
        wrapped(&text, "  ", screen, out)?;
        writeln!(out, "      {}", gap.path)?;
    }
    // One line each: the operator need not act on these.
    if gaps.iter().any(|gap| !gap.widens) {
        heading("Missing, too, but without effect on the verdict", screen, out)?;
        let mut table = TextTable::new(&[
            ("input", ColumnAlign::Left),
            ("problem", ColumnAlign::Left),
            ("path", ColumnAlign::Left),
        ]);
        for gap in gaps.iter().filter(|gap| !gap.widens) {
            let detail =
                if gap.detail.is_empty() { String::new() } else { format!(": {}", gap.detail) };
            table.row(vec![
                gap.input.to_owned(),
                format!("{}{detail}", gap.kind.words()),
                gap.path.clone(),
            ]);
        }
        table.write(out, screen)?;
    }
    Ok(())
}
