//! `ramslice huge`: huge pages for the kernel's pool, from slices that are emptied for them.

mod objects;
mod pools;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ramslice_backend::sys::SignalInterrupt;
use ramslice_backend::{
    HugePagePlace, HugePageRange, cheapest_first, huge_page_ranges, make_huge_page,
    page_owner_danger, write_out_file_systems,
};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, Bytes, CacheChoice, HugePageNode, HugePagePool,
    NodeId, Price, Reason, Request, RequestOp, RequestOutcome, parse_bytes,
};
use serde::Serialize;

use self::objects::{ObjectChoice, ObjectsReport, shrink_and_make};
use self::pools::{PoolRow, blocked, pool_rows, reasons, write_pools};
use crate::context::{CommandContext, write_json};
use crate::exit::{ExitStatus, UsageError};
use crate::interrupt::interruptible;
use crate::stderr;

/// Times that a slice is tried from which pages did not move.
const TRIES: u32 = 3;
/// How long it waits for a request of another.
const OTHERS_TIME: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

const HELP: &str = "\
Huge pages of 1 GiB are hard to have once a machine has run for a while: a few pages in use in \
each range keep the kernel from making one. This empties whole ranges, cheapest first, and has the \
kernel make pages of them for its pool (hugetlb), from which databases and virtual machines take \
them.

Without an option it says what the pools have and what could be had. A range is emptied whole or \
not at all: if one of its slices cannot be, the others come back, and the next range is tried. What
file systems hold until it is written is written.

If that makes fewer pages than asked for, it says how many ranges are kept by nothing but objects \
that the kernel can often make again (dentries, inodes). With `--objects shrink`, where there is \
such a range, all caches of these are shrunk, and the range is tried again. All programs then look \
up names and inodes on the disk again, once. Page cache of local files stays; that of some network \
and FUSE file systems goes with the inode. With `--cache drop`, all clean page cache goes last, \
because a file's inode stays while its cache does.

On a machine with several NUMA nodes, a page belongs to the node whose range was emptied, and all \
nodes may be chosen but those of cold memory (`ramslice cold`). `--node` keeps to one, of cold \
memory if you like, and what is said of the pool is then said of its part on that node.

Examples:
  ramslice huge                            pools, what could be had, what stands in the way
  ramslice huge --size 1G --count 4        four pages more in the pool
  ramslice huge --size 1G --count 4 --dry-run
  ramslice huge --size 1G --count 4 --objects shrink
  ramslice huge --size 1G --count 2 --node 1    two more, of memory of node 1
  ramslice huge --size 1G --give-back 2    two less, of those that are not in use

The exit status is 0 if the pool has all the pages that were asked for, and 1 if it has fewer.";

/// Make huge pages of memory that is emptied for them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct HugeArgs {
    /// Size of a page: one that the kernel has, as in 2M or 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<Bytes>,
    /// So many pages more
    #[arg(long, value_name = "N", requires = "size",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// So many pages less, of those that are not in use
    #[arg(long, value_name = "N", requires = "size", conflicts_with = "count",
          value_parser = clap::value_parser!(u64).range(1..))]
    give_back: Option<u64>,
    /// What becomes of clean page cache: auto keeps what was used lately, drop drops it all, keep
    /// moves it
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    cache: CacheChoice,
    /// What becomes of objects that the kernel can make again, if too few pages could be made
    /// otherwise and nothing else keeps a range: keep leaves them, shrink drops all that it can
    #[arg(long, value_name = "CHOICE", default_value = "keep", requires = "count")]
    objects: ObjectChoice,
    /// Keep to this NUMA node: its memory, and its part of the pool
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(i32).range(0..))]
    node: Option<i32>,
    /// Only report what it would do and cost
    #[arg(long, requires = "count")]
    dry_run: bool,
}

/// How it went with a range.
#[derive(Serialize)]
struct RangeOutcome {
    address: Bytes,
    node: NodeId,
    emptied_slices: usize,
    price_100cycles: Price,
    /// Absent if the pool got its page.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Serialize)]
struct HugeDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Vec<PoolRow>>,
    /// The node that was named: totals are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<RangeOutcome>>,
    /// Absent if there are as many pages as asked for without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<ObjectsReport>,
}

impl HugeDocument {
    const EMPTY: Self = Self {
        pools: None,
        node: None,
        dry_run: None,
        wanted: None,
        got: None,
        total: None,
        ranges: None,
        objects: None,
    };
}

pub(crate) fn run(
    args: &HugeArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() || !context.has_ramslice() {
        let text = "huge pages are made of slices, which this kernel does not have: write \
                    nr_hugepages in /sys/kernel/mm/hugepages, best early after boot";
        return Err(UsageError(text.to_owned()).into());
    }
    run_on(args, context.backend()?.as_ref(), context, out)
}

fn run_on(
    args: &HugeArgs,
    backend: &dyn Backend,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let target = HugeTarget::read(backend, args.node.map(NodeId))?;
    let known = backend.huge_page_pools(None)?;
    if let Some(size) = args.size
        && !known.iter().any(|pool| pool.page == size)
    {
        return Err(UsageError(unknown_size(size, &known)).into());
    }
    match (args.size, args.count, args.give_back) {
        (Some(size), Some(count), _) => get(args, backend, &target, (size, count), context, out),
        (Some(size), None, Some(count)) => give_back(backend, &target, (size, count), context, out),
        _ => status(backend, &target, args.size, context, out),
    }
}

/// The nodes of the machine, and on which of them pages are made.
struct HugeTarget {
    nodes: Vec<HugePageNode>,
    place: HugePagePlace,
}

impl HugeTarget {
    fn read(backend: &dyn Backend, named: Option<NodeId>) -> Result<Self> {
        let place = HugePagePlace::read(backend, named).map_err(|error| match error.kind() {
            BackendErrorKind::NotFound => {
                anyhow::Error::from(UsageError(format!("--node: {error}")))
            }
            _ => error.into(),
        })?;
        Ok(Self { nodes: backend.huge_page_nodes()?, place })
    }

    /// The pool of this size, which the kernel has; of a node that was named, its part.
    fn pool(&self, backend: &dyn Backend, size: Bytes) -> Result<HugePagePool> {
        let pools = backend.huge_page_pools(self.place.named())?;
        let known = pools.iter().find(|pool| pool.page == size).copied();
        known.ok_or_else(|| UsageError(unknown_size(size, &pools)).into())
    }

    fn has_several_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// What the pool is called.
    fn name(&self) -> String {
        match self.place.named() {
            Some(node) => format!("the pool of node {node}"),
            None => "the pool".to_owned(),
        }
    }
}

fn unknown_size(size: Bytes, known: &[HugePagePool]) -> String {
    if known.is_empty() {
        return "this kernel has no huge pages (hugetlb)".to_owned();
    }
    let sizes: Vec<_> = known.iter().map(|pool| pool.page.to_string()).collect();
    format!("--size {size}: this kernel has huge pages of {}", sizes.join(" and "))
}

fn status(
    backend: &dyn Backend,
    target: &HugeTarget,
    only: Option<Bytes>,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let rows = pool_rows(backend, &target.nodes, &target.place, only)?;
    if context.json() {
        let node = target.place.named();
        write_json(out, "huge", HugeDocument { pools: Some(rows), node, ..HugeDocument::EMPTY })?;
    } else {
        write_pools(&rows, out, &context.screen)?;
    }
    Ok(ExitStatus::Ok)
}

fn give_back(
    backend: &dyn Backend,
    target: &HugeTarget,
    (size, count): (Bytes, u64),
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let (before, node) = (target.pool(backend, size)?, target.place.named());
    if before.unused() < count {
        let text = format!(
            "--give-back {count}: of the pages of {size} in {}, {} are not in use",
            target.name(),
            before.unused()
        );
        return Err(UsageError(text).into());
    }
    let size_then = before.size().saturating_sub(count);
    let total = backend.resize_huge_page_pool(size, node, size_then)?;
    let got = before.total.saturating_sub(total);
    if context.json() {
        let body = HugeDocument {
            node,
            wanted: Some(count),
            got: Some(got),
            total: Some(total),
            ..HugeDocument::EMPTY
        };
        write_json(out, "huge", body)?;
    } else {
        let pool = target.name();
        writeln!(out, "gave back {got} of {count} pages of {size}; {pool} has {total}")?;
    }
    Ok(if got == count { ExitStatus::Ok } else { ExitStatus::Refused })
}

/// More pages for the pool, as many as can be had.
fn get(
    args: &HugeArgs,
    backend: &dyn Backend,
    target: &HugeTarget,
    (size, count): (Bytes, u64),
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if let Some(danger) = page_owner_danger(size) {
        return Err(UsageError(danger).into());
    }
    let (info, zones, snapshot) = backend.view()?;
    let mut ranges = huge_page_ranges(&info, &zones, &snapshot.slices, size);
    ranges.retain(|range| target.place.has(range));
    let before = target.pool(backend, size)?.total;
    let (outcomes, objects) = if args.dry_run {
        dry_run(args, backend, &ranges, count)
    } else {
        let progress = io::stderr().is_terminal() && !context.json();
        interruptible(|interrupt| {
            let (place, wanted) = (&target.place, (size, count));
            let done = make_pages(args, backend, place, &ranges, wanted, (interrupt, progress))?;
            if progress {
                stderr::clear();
            }
            Ok(done)
        })?
    };
    let got = nr_made(&outcomes);
    let total = target.pool(backend, size)?.total;
    if context.json() {
        let body = HugeDocument {
            node: target.place.named(),
            dry_run: Some(args.dry_run),
            wanted: Some(count),
            got: Some(got),
            total: Some(total),
            ranges: Some(outcomes),
            objects,
            ..HugeDocument::EMPTY
        };
        write_json(out, "huge", body)?;
    } else {
        report(args.dry_run, target, (size, count), &outcomes, &ranges, (before, total), out)?;
        if let Some(objects) = objects {
            objects.write(args.dry_run, out)?;
        }
    }
    Ok(if got == count { ExitStatus::Ok } else { ExitStatus::Refused })
}

fn nr_made(outcomes: &[RangeOutcome]) -> u64 {
    outcomes.iter().filter(|range| range.refused.is_none()).count() as u64
}

/// Ranges that would become pages, and what else may be done if they are too few.
fn dry_run(
    args: &HugeArgs,
    backend: &dyn Backend,
    ranges: &[HugePageRange],
    count: u64,
) -> (Vec<RangeOutcome>, Option<ObjectsReport>) {
    let found = cheapest_first(ranges);
    let enough = found.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
    let outcomes: Vec<_> = enough.map(|range| outcome(range, None)).collect();
    let too_few = nr_made(&outcomes) < count;
    let kept: Vec<_> = ranges.iter().filter(|range| range.blocked.is_some()).collect();
    let objects = too_few.then(|| ObjectsReport::undone(args.objects, backend, &kept));
    (outcomes, objects)
}

/// Makes up to `count` pages: of the ranges that can be emptied, then of those that could be once
/// caches of the kernel are shrunk.
fn make_pages(
    args: &HugeArgs,
    backend: &dyn Backend,
    place: &HugePagePlace,
    ranges: &[HugePageRange],
    (size, count): (Bytes, u64),
    (interrupt, progress): (&SignalInterrupt, bool),
) -> Result<(Vec<RangeOutcome>, Option<ObjectsReport>)> {
    let make = |range: &HugePageRange, expected: &mut Price| {
        make_huge_page(
            backend,
            (size, place),
            range,
            args.cache,
            &|| interrupt.requested(),
            &mut |request| {
                let outcome = insist(backend, request, interrupt)?;
                *expected = Price(expected.0.saturating_add(outcome.price_predicted.0));
                Ok(outcome)
            },
        )
    };
    let mut outcomes: Vec<RangeOutcome> = Vec::new();
    let mut got = 0;
    for range in cheapest_first(ranges) {
        if got == count || interrupt.requested() {
            break;
        }
        if progress {
            stderr::rewrite(format!("{got} of {count} pages; Ctrl-C stops"));
        }
        let refused = make(range, &mut Price::default())?;
        got += u64::from(refused.is_none());
        outcomes.push(outcome(range, refused));
    }
    if got == count || interrupt.requested() {
        return Ok((outcomes, None));
    }
    let became_page = |range: &HugePageRange| {
        outcomes.iter().any(|one| one.address == range.start && one.refused.is_none())
    };
    let left: Vec<_> = ranges.iter().filter(|&range| !became_page(range)).collect();
    if args.objects == ObjectChoice::Keep {
        return Ok((outcomes, Some(ObjectsReport::undone(args.objects, backend, &left))));
    }
    // Of ranges that were blocked, the price has an offset in place of what emptying costs
    let mut prices = BTreeMap::new();
    let (objects, done) = shrink_and_make(
        backend,
        (&left, count - got),
        (args.cache, progress),
        &mut |range| make(range, prices.entry(range.start).or_default()),
        &|| interrupt.requested(),
    )?;
    for (address, refused) in done.ranges {
        outcomes.retain(|one| one.address != address);
        let range = left.iter().find(|range| range.start == address);
        outcomes.extend(range.map(|range| RangeOutcome {
            price_100cycles: prices.get(&address).copied().unwrap_or_default(),
            ..outcome(range, refused)
        }));
    }
    Ok((outcomes, Some(objects)))
}

fn outcome(range: &HugePageRange, refused: Option<String>) -> RangeOutcome {
    RangeOutcome {
        address: range.start,
        node: range.zone.node,
        emptied_slices: range.to_empty.len(),
        price_100cycles: range.price,
        refused,
    }
}

/// Sends a request; one that empties a slice in several tries, if need be.
///
/// A file system holds on to its own blocks in page cache until they are written: between two tries
/// they are.
fn insist(
    backend: &dyn Backend,
    request: &Request,
    interrupt: &SignalInterrupt,
) -> Result<RequestOutcome, BackendError> {
    if !matches!(request.op, RequestOp::Offline(_)) {
        return backend.request(request);
    }
    let request = Request { ignore_backoff: true, ..request.clone() };
    let mut tries_left = TRIES;
    let began = Instant::now();
    loop {
        let outcome = match backend.request(&request) {
            // The daemon's, say: it has a deadline
            Err(error)
                if error.kind() == BackendErrorKind::Busy
                    && began.elapsed() < OTHERS_TIME
                    && !interrupt.requested() =>
            {
                thread::sleep(AGAIN);
                continue;
            }
            result => result?,
        };
        tries_left -= 1;
        let may_pass = outcome.slices_done == 0
            && matches!(outcome.reason, Reason::Migration | Reason::Writeback);
        if !may_pass || tries_left == 0 || interrupt.requested() {
            return Ok(outcome);
        }
        write_out_file_systems();
    }
}

fn report(
    dry_run: bool,
    target: &HugeTarget,
    (size, count): (Bytes, u64),
    outcomes: &[RangeOutcome],
    ranges: &[HugePageRange],
    (before, total): (u64, u64),
    out: &mut dyn Write,
) -> io::Result<()> {
    for range in outcomes {
        let what = match &range.refused {
            Some(why) => format!("not made: {why}"),
            None if dry_run => "could be made".to_owned(),
            None => "made".to_owned(),
        };
        writeln!(
            out,
            "page at {}{}: {what}; {} slices to empty, for {} units of 100 cycles",
            range.address,
            if target.has_several_nodes() {
                format!(" on node {}", range.node)
            } else {
                String::new()
            },
            range.emptied_slices,
            range.price_100cycles
        )?;
    }
    let got = nr_made(outcomes);
    if dry_run {
        writeln!(out, "would make {got} of {count} pages of {size}")?;
    } else {
        let pool = target.name();
        writeln!(out, "made {got} of {count} pages of {size}; {pool} had {before}, has {total}")?;
    }
    let blocked: Vec<_> = ranges.iter().filter_map(blocked).collect();
    if got < count && !blocked.is_empty() {
        writeln!(
            out,
            "{} other ranges cannot be emptied ({}): `ramslice explain` says of a slice why",
            blocked.len(),
            reasons(&blocked)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
