//! `ramslice giveback` on a kernel without ramslice: idle cache is reclaimed, and memory compacted,
//! so that free page reporting finds more.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use ramslice_backend::{GuestMemory, GuestMemoryUse};
use ramslice_doctor::MemoryReturn;
use ramslice_types::{Budget, Bytes, CacheChoice};
use serde::Serialize;

use super::emptied_blocks::empty_blocks;
use super::{GivebackArgs, NO_DEVICE, device_names};
use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::interruptible;
use crate::render::{ColumnAlign, TextTable, wrapped};
use crate::stderr;

#[derive(Serialize)]
struct StockDocument<'a> {
    devices: &'a [MemoryReturn],
    power_driver: &'static str,
    free_bytes: Bytes,
    whole_blocks_bytes: Bytes,
    idle_cache_bytes: Bytes,
    used_cache_bytes: Bytes,
    /// Whether --now can reclaim it.
    cache_reclaimable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaimed_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_blocks_before_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_blocks_emptied: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_blocks_failed: Option<u32>,
}

pub(super) fn run(
    args: &GivebackArgs,
    devices: &[MemoryReturn],
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    for (given, name) in
        [(args.until.is_some(), "--until"), (args.budget != Budget::Unlimited, "--budget")]
    {
        if given {
            let text = format!("{name} needs a kernel with ramslice: this one has no slices");
            return Err(UsageError(text).into());
        }
    }
    let memory = GuestMemory::under(Path::new("/"));
    let before = memory.look()?;
    let document = |now: &GuestMemoryUse| StockDocument {
        devices,
        power_driver: "none",
        free_bytes: now.free,
        whole_blocks_bytes: now.whole_blocks,
        idle_cache_bytes: now.idle_cache,
        used_cache_bytes: now.used_cache,
        cache_reclaimable: memory.check_reclaim().is_ok(),
        dry_run: args.now.then_some(args.dry_run),
        reclaimed_bytes: None,
        whole_blocks_before_bytes: None,
        memory_blocks_emptied: None,
        memory_blocks_failed: None,
    };
    if !args.now {
        if context.json() {
            write_json(out, "giveback", document(&before))?;
        } else {
            let refusal = if devices.is_empty() {
                Some(NO_DEVICE.to_owned())
            } else {
                memory.check_reclaim().err().map(|error| error.to_string())
            };
            table(&before, devices, refusal.is_none()).write(out, &context.screen)?;
            if let Some(why) = refusal {
                wrapped(&why, "", &context.screen, out)?;
            }
        }
        return Ok(ExitStatus::Ok);
    }

    if devices.is_empty() && !args.dry_run {
        return Err(UsageError(NO_DEVICE.to_owned()).into());
    }
    let wanted = to_reclaim(&before, args.cache);
    if wanted > Bytes::ZERO {
        memory.check_reclaim()?;
    }
    if args.dry_run {
        if context.json() {
            write_json(out, "giveback", document(&before))?;
        } else {
            let more = if args.hotplug { ", then empty memory blocks by hotplug" } else { "" };
            writeln!(out, "would reclaim {wanted} of page cache, and compact memory{more}")?;
        }
        return Ok(ExitStatus::Ok);
    }

    // Before anything is done: it says what hotplug lacks
    let hotplug = args.hotplug.then(|| context.backend()).transpose()?;
    let start = Instant::now();
    let progress = io::stderr().is_terminal() && !context.json();
    let (finished, reclaimed, emptied) = interruptible(|interrupt| {
        let cache = memory.reclaim_cache(wanted, &before, &|done| {
            if progress {
                stderr::rewrite(format!("{done} of {wanted} of cache; Ctrl-C stops"));
            }
            !interrupt.requested()
        })?;
        if !interrupt.requested() {
            if progress {
                stderr::rewrite("compacting memory".to_owned());
            }
            memory.compact()?;
        }
        let mut emptied = None;
        if let Some(backend) = &hotplug
            && !interrupt.requested()
        {
            let say = |count: u32| {
                if progress {
                    stderr::rewrite(format!("emptied {count} memory blocks; Ctrl-C stops"));
                }
            };
            let whole_blocks = || Ok(memory.look()?.whole_blocks);
            emptied = Some(empty_blocks(backend.as_ref(), interrupt, &whole_blocks, &say)?);
        }
        if progress {
            stderr::clear();
        }
        Ok((!interrupt.requested(), cache.taken, emptied))
    })?;
    let now = memory.look()?;
    if context.json() {
        let body = StockDocument {
            reclaimed_bytes: Some(reclaimed),
            whole_blocks_before_bytes: Some(before.whole_blocks),
            memory_blocks_emptied: emptied.map(|done| done.emptied),
            memory_blocks_failed: emptied.map(|done| done.failed),
            ..document(&now)
        };
        write_json(out, "giveback", body)?;
    } else {
        let compacted = if finished { ", compacted memory" } else { "" };
        writeln!(
            out,
            "reclaimed {reclaimed} of page cache{compacted} in {:.2} s",
            start.elapsed().as_secs_f64()
        )?;
        if let Some(done) = emptied {
            let failed = if done.failed > 0 {
                format!("; {} could not be emptied", done.failed)
            } else {
                String::new()
            };
            writeln!(
                out,
                "emptied {} memory blocks by hotplug, all are back{failed}",
                done.emptied
            )?;
        }
        writeln!(
            out,
            "free in whole blocks: {} before, {} now: reported to the host within seconds",
            before.whole_blocks, now.whole_blocks
        )?;
        if !finished {
            writeln!(out, "ended: interrupted")?;
        }
    }
    Ok(if finished { ExitStatus::Ok } else { ExitStatus::Refused })
}

/// How much cache goes.
fn to_reclaim(memory: &GuestMemoryUse, choice: CacheChoice) -> Bytes {
    match choice {
        CacheChoice::Keep => Bytes::ZERO,
        CacheChoice::Auto => memory.idle_cache,
        CacheChoice::Drop => memory.cache(),
    }
}

/// What there is; --now is offered only if it would do its work.
fn table(memory: &GuestMemoryUse, devices: &[MemoryReturn], offered: bool) -> TextTable {
    let mut table = TextTable::new(&[
        ("", ColumnAlign::Left),
        ("", ColumnAlign::Right),
        ("", ColumnAlign::Left),
    ])
    .without_header();
    let mut row = |name: &str, size: Option<Bytes>, text: &str| {
        let size = size.map_or_else(|| "-".to_owned(), |size| size.to_string());
        table.row(vec![name.to_owned(), size, text.to_owned()]);
    };
    let reported = if devices.is_empty() {
        "none of which is reported"
    } else {
        "which are reported by themselves"
    };
    row(
        "free",
        Some(memory.free),
        &format!("of it {} in whole blocks, {reported}", memory.whole_blocks),
    );
    row(
        "idle cache",
        Some(memory.idle_cache),
        if offered {
            "page cache that was not used lately: `ramslice giveback --now`"
        } else {
            "page cache that was not used lately; it cannot go to the host: see below"
        },
    );
    row("used cache", Some(memory.used_cache), "page cache that was: stays");
    row("kernel", None, "has no ramslice: free memory among pages in use stays with the guest");
    row("to the host", None, &device_names(devices));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::OutputStyle;

    #[test]
    fn idle_cache_that_cannot_go_to_the_host_is_not_offered() {
        let rows = |offered| {
            let memory = GuestMemoryUse {
                total: Bytes(4 << 30),
                free: Bytes::ZERO,
                whole_blocks: Bytes::ZERO,
                idle_cache: Bytes(3 << 20),
                used_cache: Bytes::ZERO,
                has_swap: false,
            };
            let mut text = Vec::new();
            table(&memory, &[], offered).write(&mut text, &OutputStyle::plain()).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert!(rows(true).contains("lately: `ramslice giveback --now`"));
        assert!(rows(false).contains("cannot go to the host: see below"));
        assert!(!rows(false).contains("--now"));
        assert!(rows(true).contains("none of which is reported"));
    }

    #[test]
    fn what_was_used_lately_goes_only_if_all_cache_is_to_go() {
        let memory = GuestMemoryUse {
            total: Bytes(4 << 30),
            free: Bytes(1 << 20),
            whole_blocks: Bytes::ZERO,
            idle_cache: Bytes(3 << 20),
            used_cache: Bytes(2 << 20),
            has_swap: false,
        };
        assert_eq!(to_reclaim(&memory, CacheChoice::Auto), Bytes(3 << 20));
        assert_eq!(to_reclaim(&memory, CacheChoice::Drop), Bytes(5 << 20));
        assert_eq!(to_reclaim(&memory, CacheChoice::Keep), Bytes::ZERO);
    }
}
