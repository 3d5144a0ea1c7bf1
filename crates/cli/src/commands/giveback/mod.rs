//! `ramslice giveback`: what a virtual machine has given back to its host, and more of it.

mod emptied_blocks;
mod stock;
mod verify;
mod watch;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ramslice_doctor::{MemoryReturn, SystemRoot, ways_to_give_back};
use ramslice_types::{
    Backend, BackendInfo, Budget, Bytes, CacheChoice, Pages, Request, RequestOp, RequestOutcome,
    SliceState, parse_bytes, parse_duration,
};
use serde::Serialize;

use crate::commands::compact::{end_sentence, run_supervised};
use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::interruptible;
use crate::render::{ColumnAlign, TextTable, wrapped};
use crate::request_report::slices;

const HELP: &str = "\
Memory that this guest does not need goes back to the host, in whole slices: they are emptied, \
cheapest first, and reported. The host may then use the memory behind them. When the guest wants \
it again, it comes back by itself, before an allocation would have to wait.

Without an option it only says how things are. `reported` is what the host was told; what it holds \
all the same is to be seen there, by `ramslice giveback verify`.

On a kernel without ramslice, --now reclaims page cache that was not used lately and compacts \
memory; the kernel then reports what is free in whole blocks. With --hotplug it also empties \
blocks of memory, one at a time, and brings each back at once: what was free among pages in use \
comes back in one piece. If this program is killed meanwhile, another brings the block back.

With ramslice, it takes the power driver ramslice_report. In any case, the host has to take \
reports of free pages:
  QEMU         -device virtio-balloon-pci,free-page-reporting=on
  libvirt      <memballoon model='virtio' freePageReporting='on'/>
  Firecracker  \"free_page_reporting\": true in PUT /balloon

Examples:
  ramslice giveback                        what is reported, what could be, what stays and why
  ramslice giveback --now                  give back all that is not in use, or clean cache
  ramslice giveback --now --cache keep     the same without page cache: it is packed instead
  ramslice giveback --until 512M           give back until 512 MiB are left on
  ramslice giveback --now --dry-run        what --now would do
  ramslice giveback --now --hotplug        without ramslice: blocks of memory, too
  ramslice giveback --watch --interval 5s  a line each 5 s; with --json a document each
  ramslice giveback verify --help          on the host: what it really holds";

/// Give memory back to the host that this virtual machine does not need.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct GivebackArgs {
    #[command(subcommand)]
    command: Option<GivebackCommand>,
    /// Give back all that can be
    #[arg(long)]
    now: bool,
    /// Give back until so much memory is left on, as in 512M or 2G
    #[arg(long, value_name = "SIZE", conflicts_with = "now", value_parser = parse_bytes)]
    until: Option<Bytes>,
    /// The most to spend, in units of 100 CPU cycles: 50000, 50k, 2M or inf
    #[arg(long, value_name = "N", default_value = "inf")]
    budget: Budget,
    /// What becomes of clean page cache: auto keeps what was used lately, drop drops it all, keep
    /// moves it
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    cache: CacheChoice,
    /// On kernels without ramslice: empty memory blocks by hotplug and bring each back
    #[arg(long, requires = "now")]
    hotplug: bool,
    /// Only report what it would do and cost
    #[arg(long)]
    dry_run: bool,
    /// Say again and again how things are, until Ctrl-C
    #[arg(long, conflicts_with_all = ["now", "until", "dry_run"])]
    watch: bool,
    /// How often, from 100ms to 1h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        requires = "watch",
        value_parser = parse_duration
    )]
    interval: Duration,
    /// End after this many lines
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
}

/// What is asked of the host rather than of the guest.
#[derive(Debug, clap::Subcommand)]
enum GivebackCommand {
    /// On the host: say what it really holds of a guest's memory
    Verify(verify::VerifyArgs),
    /// Brings back the memory block that the process at the other end of stdin left offline
    #[command(hide = true, name = emptied_blocks::KEEPER)]
    BringBack,
}

/// How things are.
#[derive(Serialize)]
struct GivebackState {
    /// What may take reports; absent for a saved machine, which does not say.
    devices: Option<Vec<MemoryReturn>>,
    power_driver: String,
    reported_bytes: Bytes,
    reported_slices: u32,
    /// Off all the same: another power driver has it.
    off_unreported_bytes: Bytes,
    on_bytes: Bytes,
    used_bytes: Bytes,
    free_bytes: Bytes,
    /// What --now would give back; absent if the kernel would not say.
    could_go: Option<CouldGo>,
    never_emptied_slices: u32,
    never_emptied_because: BTreeMap<String, u32>,
    /// Why nothing would reach the host, and what to do.
    #[serde(skip)]
    unreachable: Option<String>,
}

#[derive(Serialize)]
struct CouldGo {
    /// Not known where slices are of unequal sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
    slices: u32,
    price_100cycles: ramslice_types::Price,
}

#[derive(Serialize)]
struct GivebackDocument<'a> {
    #[serde(flatten)]
    state: &'a GivebackState,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a RequestOutcome>,
}

pub(crate) fn run(
    args: &GivebackArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    match &args.command {
        Some(GivebackCommand::Verify(args)) => return verify::run(args, context, out),
        Some(GivebackCommand::BringBack) => return emptied_blocks::keep(context),
        None => {}
    }
    if args.watch {
        return watch::run(args, context.has_ramslice(), context, out);
    }
    let devices = match context.source_path() {
        Some(_) => None,
        None => {
            let mut devices = ways_to_give_back(&SystemRoot::open(Path::new("/"))?);
            devices.retain(MemoryReturn::may_take_reports);
            Some(devices)
        }
    };
    if let Some(devices) = &devices
        && !context.has_ramslice()
    {
        return stock::run(args, devices, context, out);
    }
    if args.hotplug {
        let text = "--hotplug is for kernels without ramslice: here slices are emptied";
        return Err(UsageError(text.to_owned()).into());
    }
    let backend = context.backend()?;
    let backend = backend.as_ref();
    if !args.now && args.until.is_none() {
        let state = state(backend, devices, &request(args, None))?;
        if context.json() {
            let body = GivebackDocument { state: &state, dry_run: None, outcome: None };
            write_json(out, "giveback", body)?;
        } else {
            table(&state).write(out, &context.screen)?;
            if let Some(why) = &state.unreachable {
                wrapped(why, "", &context.screen, out)?;
            }
        }
        return Ok(ExitStatus::Ok);
    }

    let info = backend.info()?;
    if !args.dry_run {
        check_reaches_the_host(&info, devices.as_deref())?;
    }
    let most = args.until.map(|size| slices_above(&info, size));
    let outcome = if most == Some(0) {
        RequestOutcome::default()
    } else {
        let request = request(args, most);
        interruptible(|interrupt| {
            let progress = io::stderr().is_terminal() && !args.dry_run && !context.json();
            run_supervised(backend, &request, interrupt, progress)
        })?
    };
    let info = backend.info()?;
    let short = args.until.is_some_and(|size| !args.dry_run && slices_above(&info, size) > 0);
    if context.json() {
        let state = state(backend, devices, &request(args, None))?;
        let body = GivebackDocument {
            state: &state,
            dry_run: Some(args.dry_run),
            outcome: Some(&outcome),
        };
        write_json(out, "giveback", body)?;
    } else {
        for line in report(args, &request(args, most), &outcome, &info) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if outcome.ran_to_its_end() && !short { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn request(args: &GivebackArgs, max_slices: Option<u32>) -> Request {
    Request {
        op: RequestOp::Compact,
        budget: args.budget,
        cache: args.cache,
        dry_run: args.dry_run,
        max_slices,
        ..Request::default()
    }
}

/// Memory that is neither off nor lost.
fn on(info: &BackendInfo) -> Bytes {
    info.on_pages().bytes(info.page_bytes)
}

/// Slices that have to go until at most `size` is on.
fn slices_above(info: &BackendInfo, size: Bytes) -> u32 {
    let above = on(info).saturating_sub(size).0.div_ceil(info.slice_bytes.0.max(1));
    u32::try_from(above).unwrap_or(u32::MAX)
}

const NO_DEVICE: &str = "nothing would reach the host: this guest has no device that takes reports \
                         of free pages; `ramslice giveback --help` says how a host offers one";

/// What takes reports, by name.
fn device_names(devices: &[MemoryReturn]) -> String {
    if devices.is_empty() {
        return "no device takes reports: see `ramslice giveback --help`".to_owned();
    }
    devices.iter().map(|device| device.name).collect::<Vec<_>>().join(", ")
}

/// Refuses what would switch slices off without the host hearing of it.
fn check_reaches_the_host(
    info: &BackendInfo,
    devices: Option<&[MemoryReturn]>,
) -> Result<(), UsageError> {
    if info.is_stock() {
        return Err(UsageError(
            "nothing would reach the host: the saved machine has no ramslice, and memory that is \
             offline stays with the guest there"
                .to_owned(),
        ));
    }
    if !info.reports_to_host() {
        // Drivers of the series are modules by the driver's name; a vendor's may have any.
        let unload = match info.power_driver.as_str() {
            "none" => "",
            "sim" => "unload it with `rmmod ramslice_sim`, and ",
            _ => "unload its module, and ",
        };
        let how = format!("{unload}load the one that reports to it: `modprobe ramslice_report`");
        return Err(UsageError(format!(
            "nothing would reach the host: the power driver is {}; {how}",
            info.power_driver
        )));
    }
    if devices.is_some_and(<[_]>::is_empty) {
        return Err(UsageError(NO_DEVICE.to_owned()));
    }
    Ok(())
}

fn state(
    backend: &dyn Backend,
    devices: Option<Vec<MemoryReturn>>,
    request: &Request,
) -> Result<GivebackState> {
    let machine = backend.machine()?;
    // A courtesy: without permission to ask, or beside another request, the rest is said all the
    // same
    let dry = backend.request(&Request { dry_run: true, ..request.clone() }).ok();
    let info = machine.info;
    let bytes = |pages: Pages| pages.bytes(info.page_bytes);
    let mut because = BTreeMap::new();
    let never = machine.snapshot.slices.iter().filter(|slice| slice.unreclaimable);
    for slice in never {
        *because.entry(slice.reason.code()).or_insert(0) += 1;
    }
    let reports = info.reports_to_host();
    let offline = machine.snapshot.slices.iter().filter(|slice| slice.state == SliceState::Offline);
    let unreachable = check_reaches_the_host(&info, devices.as_deref()).err();
    Ok(GivebackState {
        devices,
        reported_bytes: bytes(info.reported_pages()),
        reported_slices: if reports { u32::try_from(offline.count())? } else { 0 },
        off_unreported_bytes: bytes(info.offline_pages - info.reported_pages()),
        on_bytes: on(&info),
        used_bytes: bytes(info.used_pages()),
        free_bytes: bytes(info.free_pages),
        could_go: dry.filter(RequestOutcome::ran_to_its_end).map(|outcome| CouldGo {
            bytes: info.bytes_of_any(outcome.slices_done),
            slices: outcome.slices_done,
            price_100cycles: outcome.price_predicted,
        }),
        never_emptied_slices: because.values().sum(),
        never_emptied_because: because,
        power_driver: info.power_driver,
        unreachable: unreachable.map(|UsageError(why)| why),
    })
}

/// A row for each thing that there is to say.
fn table(state: &GivebackState) -> TextTable {
    let mut table = TextTable::new(&[
        ("", ColumnAlign::Left),
        ("", ColumnAlign::Right),
        ("", ColumnAlign::Left),
    ])
    .without_header();
    let mut row = |name: &str, size: Option<Bytes>, text: String| {
        table.row(vec![
            name.to_owned(),
            size.map_or_else(|| "-".to_owned(), |size| size.to_string()),
            text,
        ]);
    };
    row(
        "reported",
        Some(state.reported_bytes),
        if state.off_unreported_bytes > Bytes::ZERO {
            format!("{} are off, but the host does not know", state.off_unreported_bytes)
        } else if state.reported_slices == 0 {
            "nothing has been reported to the host".to_owned()
        } else {
            format!("{}: the host may use it", slices(state.reported_slices))
        },
    );
    match &state.could_go {
        Some(could) if could.slices == 0 => {
            row("could go", Some(Bytes::ZERO), "no slice can be emptied, or spared".to_owned());
        }
        Some(could) => row(
            "could go",
            could.bytes,
            format!(
                "{}, for {} units of 100 cycles{}",
                slices(could.slices),
                could.price_100cycles,
                match state.unreachable {
                    Some(_) => ", once the host takes them: see below",
                    None => ": `ramslice giveback --now`",
                }
            ),
        ),
        None => {
            row(
                "could go",
                None,
                "unknown: it takes root, and no other request at work".to_owned(),
            );
        }
    }
    row(
        "on",
        Some(state.on_bytes),
        format!("{} used, {} free", state.used_bytes, state.free_bytes),
    );
    if state.never_emptied_slices > 0 {
        let reasons: Vec<String> = state
            .never_emptied_because
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        row(
            "of it stay",
            None,
            format!(
                "{} that can never be emptied ({}): `ramslice explain --all`",
                slices(state.never_emptied_slices),
                reasons.join(", ")
            ),
        );
    }
    row("power driver", None, driver_text(&state.power_driver));
    if let Some(devices) = &state.devices {
        row("to the host", None, device_names(devices));
    }
    table
}

fn driver_text(name: &str) -> String {
    match name {
        "report" => "report: what is off is reported".to_owned(),
        other => format!("{other}: what is off is not reported"),
    }
}

fn report(
    args: &GivebackArgs,
    request: &Request,
    outcome: &RequestOutcome,
    info: &BackendInfo,
) -> Vec<String> {
    let verb = if args.dry_run { "would give back" } else { "gave back" };
    let mut first = match info.bytes_of_any(outcome.slices_done) {
        Some(bytes) => format!("{verb} {bytes} in {}", slices(outcome.slices_done)),
        None => format!("{verb} {}", slices(outcome.slices_done)),
    };
    if !args.dry_run {
        first.push_str(&format!(" in {:.2} s", outcome.elapsed.as_secs_f64()));
    }
    if outcome.slices_failed > 0 {
        first.push_str(&format!(", {} in vain", slices(outcome.slices_failed)));
    }
    let mut lines = vec![first];
    if args.dry_run {
        lines.push(format!("price: {} predicted, in units of 100 cycles", outcome.price_predicted));
    } else {
        lines.push(format!(
            "moved {}, dropped {} of clean cache",
            outcome.migrated.bytes(info.page_bytes),
            outcome.dropped.bytes(info.page_bytes),
        ));
    }
    lines.push(match args.until {
        Some(size) if !args.dry_run && slices_above(info, size) == 0 => {
            format!("ended: at most {size} are on")
        }
        _ => format!("ended: {}", end_sentence(request, outcome)),
    });
    lines.push(format!(
        "now: {} on, {} reported",
        on(info),
        info.reported_pages().bytes(info.page_bytes)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(power_driver: &str) -> BackendInfo {
        serde_json::from_value(serde_json::json!({
            "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
            "slice_bytes": 64 << 20, "chunk_bytes": 4 << 20, "nr_slices": 16, "nr_zones": 1,
            "event_seq": 0, "managed_pages": 262_144, "free_pages": 65_536,
            "offline_pages": 131_072, "quarantined_pages": 0, "power_driver": power_driver,
        }))
        .unwrap()
    }

    #[test]
    fn slices_go_until_no_more_is_on_than_was_asked_for() {
        let info = info("report");
        assert_eq!(on(&info), Bytes(512 << 20));
        assert_eq!(slices_above(&info, Bytes(512 << 20)), 0);
        assert_eq!(slices_above(&info, Bytes(1 << 30)), 0);
        assert_eq!(slices_above(&info, Bytes((512 << 20) - 1)), 1);
        assert_eq!(slices_above(&info, Bytes::ZERO), 8);
    }

    #[test]
    fn what_would_not_reach_the_host_is_refused_with_what_to_do() {
        let refused = |driver, devices: Option<&[MemoryReturn]>| {
            check_reaches_the_host(&info(driver), devices).unwrap_err().to_string()
        };
        assert!(refused("none", None).contains("`modprobe ramslice_report`"));
        assert!(!refused("none", None).contains("unload"));
        assert!(refused("sim", None).contains("`rmmod ramslice_sim`, and load"));
        assert!(refused("vendor", None).contains("is vendor; unload its module, and load"));
        assert!(refused("report", Some(&[])).contains("no device"));
        assert!(check_reaches_the_host(&info("report"), None).is_ok());
        let stock = BackendInfo { abi_version: 0, ..info("none") };
        let text = check_reaches_the_host(&stock, None).unwrap_err().to_string();
        assert!(text.contains("stays with the guest"), "{text}");
    }
}
